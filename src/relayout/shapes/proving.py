"""Prove an opened model by inference: with a number for the name, no operator contradicts what was followed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx_ir as ir

from relayout.errors import ReadError
from relayout.formats.onnx import complete
from relayout.formats.onnx.checking import without_weights
from relayout.formats.onnx.fixing import fix_dims
from relayout.formats.onnx.inferring import infer
from relayout.rules import outputs_of

NUMBER = 13
"""The extent that a model is tried with: one that other extents rarely have."""


def contradiction(model: ir.Model, name: str, before: int | str, *, rows: bool = True) -> str:
    """Return what contradicts the shapes of a model in which an extent is open; nothing if all agree.

    Args:
        model: the model, whose values have the extents that were followed.
        name: the name of the opened extent.
        before: the extent that it had.
        rows: whether it is a batch. Any other is tried with twice its extent, over which windows still slide.
    """
    number = NUMBER if before != NUMBER else NUMBER + 4
    if not rows and isinstance(before, int):
        number = 2 * before
    tried = _completed(model, name, number)
    if isinstance(tried, str):
        return tried
    said = _inconsistency(tried)
    # ONNX's inference is wrong of some operators, whatever their extents are.
    if said and isinstance(before, int) and not isinstance(usual := _completed(model, name, before), str):
        return "" if _inconsistency(usual) else said
    return said


def _completed(model: ir.Model, name: str, number: int) -> ir.Model | str:
    """Return the model with a number for a name and all shapes inferred anew, or what differs from what it had."""
    tried = model.clone()
    fix_dims(tried, {name: number})
    followed = {value.name or "": value.shape for value in _interiors(tried) if value.shape is not None}
    for value in _interiors(tried):
        if value.const_value is None:
            value.shape = None
    complete(tried, outputs_of)
    found = {value.name or "": value.shape for value in _interiors(tried)}
    for name, shape in followed.items():
        if differing := _differing(shape, found[name]):
            return f"'{name}' {differing}"
    return tried


def _inconsistency(model: ir.Model) -> str:
    """Return what ONNX's inference says against a model."""
    try:
        infer(without_weights(model), strict=True)
    except ReadError:
        raise
    except Exception as error:  # onnx raises types of its own
        return " ".join(str(error).split())
    return ""


def _interiors(model: ir.Model) -> Iterator[ir.Value]:
    for node in model.graph:
        yield from (value for value in node.outputs if value.name)


def _differing(followed: ir.Shape, found: ir.Shape | None) -> str:
    """Say how two shapes contradict each other, as far as both are numbers."""
    if found is None:
        return ""
    if len(found) != len(followed):
        return f"has {len(found)} axes and not {len(followed)}"
    pairs: Mapping[int, tuple[object, object]] = dict(enumerate(zip(followed, found, strict=True)))
    wrong = [axis for axis, (a, b) in pairs.items() if isinstance(a, int) and isinstance(b, int) and a != b]
    return f"is {list(found)} and not {list(followed)}" if wrong else ""
