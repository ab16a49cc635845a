"""Extents of inputs that a model leaves open and its weights imply: the width that a recurrent layer multiplies by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import onnx_ir as ir

from relayout.formats.onnx import complete
from relayout.graph.domains import domain_of_version
from relayout.rules import FUNCTIONS, Operator, Permuted, Signature, facts, outputs_of

Extents = list[int | None]


def implied_extents(model: ir.Model) -> dict[str, tuple[int | None, ...]]:
    """Return, for each input that has open extents, those that operators on the way to their weights imply.

    Axes that an operator calls by one letter have one extent. From the last node to the first, what is known of an axis
    by its other operands and by its output is known of what it reads.

    Args:
        model: the model; it is not changed.
    """
    if all(value.shape is not None and value.shape.is_static() for value in model.graph.inputs):
        return {}
    model = model.clone()
    complete(model, outputs_of)
    known: dict[ir.Value, Extents] = {}
    for node in reversed(model.graph):
        version = model.opset_imports.get(domain_of_version(node.domain, FUNCTIONS), 1)
        shapes = [[_shape(value) for value in values] for values in (node.inputs, node.outputs)]
        fact = facts(Operator(node, version, tuple(shapes[0]), tuple(shapes[1])))
        if isinstance(fact, Permuted):
            _permute(node, fact.perm, known)
        elif isinstance(fact, Signature):
            _unify(node, fact, known)
    return {value.name or "": tuple(known[value]) for value in model.graph.inputs if value in known}


def _permute(node: ir.Node, perm: Sequence[int], known: dict[ir.Value, Extents]) -> None:
    given, made = _extents(node.inputs[0], known), _extents(node.outputs[0], known)
    if node.inputs[0] is not None and given is not None and made is not None and len(perm) == len(given) == len(made):
        for place, axis in enumerate(perm):
            given[axis] = made[place] if given[axis] is None else given[axis]
        known[node.inputs[0]] = given


def _unify(node: ir.Node, fact: Signature, known: dict[ir.Value, Extents]) -> None:
    ends = [*_lettered(node.inputs, fact.inputs, known), *_lettered(node.outputs, fact.outputs, known)]
    extents: dict[str, set[int]] = {}
    for _, letters, dims in ends:
        for letter, extent in zip(letters, dims, strict=False):
            if extent is not None and letter not in fact.whole and not (fact.broadcast and extent == 1):
                extents.setdefault(letter, set()).add(extent)
    for value, letters, dims in ends:
        told = [next(iter(extents[letter])) if len(extents.get(letter, ())) == 1 else None for letter in letters]
        if len(told) == len(dims):
            known[value] = [one if extent is None else extent for extent, one in zip(dims, told, strict=True)]


def _lettered(
    values: Sequence[ir.Value | None], letters: Sequence[Sequence[str] | None], known: Mapping[ir.Value, Extents]
) -> Iterator[tuple[ir.Value, Sequence[str], Extents]]:
    for value, named in zip(values, letters, strict=False):
        extents = _extents(value, known)
        if value is not None and named is not None and extents is not None:
            yield value, named, extents


def _extents(value: ir.Value | None, known: Mapping[ir.Value, Extents]) -> Extents | None:
    if value is None:
        return None
    if value in known:
        return list(known[value])
    shape = _shape(value)
    return None if shape is None else [extent if isinstance(extent, int) else None for extent in shape]


def _shape(value: ir.Value | None) -> tuple[int | str, ...] | None:
    if value is None or value.shape is None:
        return None
    return tuple(extent if isinstance(extent, int) else extent.value or "" for extent in value.shape)
