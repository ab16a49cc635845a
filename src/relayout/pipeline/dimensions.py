"""Dimensions that a user asks for: open ones are fixed, and fixed ones are opened."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import onnx_ir as ir

from relayout.errors import LayoutError, nearest
from relayout.graph.facts import add_facts, add_notes, facts_of
from relayout.graph.subgraphs import all_nodes
from relayout.layout import Dim, Extent
from relayout.layout.restated import restated, with_extents
from relayout.layout.stored_as import Holds

if TYPE_CHECKING:
    from relayout.shapes import Opened


# Declarations of an earlier conversion, restated or removed where extents change.


@contextmanager
def restating(model: ir.Model) -> Iterator[None]:
    """State anew what values are declared to hold once dimensions were opened, or have another extent, in place."""
    before = {value: _extents(value) for value in _declaring(model)}
    yield
    for value, known in before.items():
        now = _extents(value)
        if known != now:
            _state(
                value,
                [restated(entry, known, now) if known and now else None for entry in Holds.of(value.metadata_props)],
            )


def restate_fixed(model: ir.Model) -> None:
    """State anew what values are declared to hold once open dimensions were given numbers, in place."""
    for value in _declaring(model):
        now = _extents(value)
        if now is not None:
            _state(value, [with_extents(entry, now) for entry in Holds.of(value.metadata_props)])


def _declaring(model: ir.Model) -> list[ir.Value]:
    values = [*model.graph.inputs, *(value for node in all_nodes(model.graph) for value in node.outputs)]
    return [value for value in values if Holds.KEY in value.metadata_props]


def _state(value: ir.Value, entries: list[Holds | None]) -> None:
    Holds.note(value.metadata_props, [each for each in entries if each is not None])


def _extents(value: ir.Value) -> tuple[int, ...] | None:
    return None if value.shape is None else tuple([dim if isinstance(dim, int) else -1 for dim in value.shape])


_PLACE = re.compile(r"(.+):(-?[0-9]{1,4})", re.DOTALL)


class Asked(NamedTuple):
    """A user's request about dimensions."""

    named: Mapping[str, Dim]  # dynamic dimension -> number, or the name of another
    places: Mapping[str, Dim]  # `input:axis` -> number or name: a fixed dimension that is opened
    batch: Dim | None = None  # what becomes of the first axis of all inputs

    @staticmethod
    def of(dims: Mapping[str, Dim] | None, batch: Dim | None = None) -> "Asked":
        """Sort what the options say; a key that ends in a colon and a number is an axis of an input."""
        extents = dict(dims or {})
        places = {key: extent for key, extent in extents.items() if _PLACE.fullmatch(key)}
        return Asked({key: extent for key, extent in extents.items() if key not in places}, places, batch)


def name_dimensions(model: ir.Model, request: Asked) -> None:
    """Name the dimensions of inputs that are asked for and have no name, in place, before shapes are inferred.

    An input that a part of the model begins with, later, is no input yet.
    """
    inputs = {value.name or "" for value in model.graph.inputs}
    places = [
        (_place(model, key), extent) for key, extent in request.places.items() if key.rpartition(":")[0] in inputs
    ]
    for (value, axis), extent in places:
        if _is_nameless(value, axis):
            _name(value, axis, extent if isinstance(extent, str) else _unused(model))
    batch = [] if request.batch is None else [place for place in _batch(model) if _is_nameless(*place)]
    if batch:
        name = request.batch if isinstance(request.batch, str) else _unused(model)
        for value, axis in batch:
            _name(value, axis, name)


def _is_nameless(value: ir.Value, axis: int) -> bool:
    assert value.shape is not None
    dim = value.shape[axis]
    return isinstance(dim, ir.SymbolicDim) and dim.value is None


def _name(value: ir.Value, axis: int, name: str) -> None:
    assert value.shape is not None
    value.shape = ir.Shape([name if place == axis else dim for place, dim in enumerate(value.shape)])


def open_dimensions(model: ir.Model, request: Asked) -> None:
    """Open the dimensions that are asked for, in place, and give them their names or numbers.

    Raises:
        OpeningError: an operator binds one.
        LayoutError: there is no such input or axis, or what is asked for contradicts itself.
    """
    places: dict[str, Dim] = {}
    groups: dict[str, dict[tuple[ir.Value, int], Dim]] = {}
    for key, extent in request.places.items():
        group = extent if isinstance(extent, str) else key
        groups.setdefault(group, {})[_place(model, key)] = extent
    if request.batch is not None:
        batch = _batch(model)
        if not batch:
            raise LayoutError("batch: no input has an axis that could be a batch")
        _refuse_taken(model, request.batch, batch)
        groups = {"batch": dict.fromkeys(batch, request.batch)} | groups
    for (value, axis), extent in (place for group in groups.values() for place in group.items()):
        key = f"{value.name}:{axis}"
        if places.setdefault(key, extent) != extent:
            raise LayoutError(f"dimension {key}: it cannot be both {places[key]} and {extent}")
    if not groups:
        return
    from relayout.formats.tflite.spelled_out import restamping

    with restamping(model), restating(model):  # what is stated anew is part of what is stamped
        openings = [
            _open(model, group, "the batch" if word == "batch" and request.batch is not None else "")
            for word, group in groups.items()
        ]
    if request.batch is not None:
        add_notes(model, *_unbatched_inputs(model, request.batch))
    if places:
        opened = tuple(each for each in openings if each is not None)
        add_facts(model, opened_places=places, opened=opened)


def _place(model: ir.Model, key: str) -> tuple[ir.Value, int]:
    match = _PLACE.fullmatch(key)
    assert match is not None
    name, axis = match[1], int(match[2])
    inputs = {value.name or "": value for value in model.graph.inputs}
    if name not in inputs:
        raise LayoutError(f"dimension {key}: the model has no input '{name}'{nearest(name, inputs)}")
    shape = inputs[name].shape
    rank = 0 if shape is None else len(shape)
    if not -rank <= axis < rank:
        raise LayoutError(f"dimension {key}: input '{name}' has {rank} axes, counted from 0")
    return inputs[name], axis % rank


def _batch(model: ir.Model) -> list[tuple[ir.Value, int]]:
    """List the first axes of all inputs that have one of the same extent, but vectors of one element.

    The extent is that of the first input of several axes, if there is one.
    """
    inputs = [value for value in model.graph.inputs if value.shape is not None and len(value.shape)]
    images = [value for value in inputs if value.shape is not None and (len(value.shape) > 1 or value.shape[0] != 1)]
    if not images:
        return []
    first = _extent(max(images, key=lambda value: len(value.shape or ()) > 1), 0)
    return [(value, 0) for value in images if _extent(value, 0) == first]


def _refuse_taken(model: ir.Model, name: Dim, batch: Sequence[tuple[ir.Value, int]]) -> None:
    """Refuse a name for the batch that another dimension has: both would be said to have one extent.

    Raises:
        LayoutError: another dimension has it.
    """
    for value in model.graph.inputs:
        for axis in range(0 if value.shape is None else len(value.shape)):
            if (value, axis) not in batch and name in _extent(value, axis).names:
                raise LayoutError(f"batch {name}: axis {axis} of input '{value.name}' has that name; take another")


def _unbatched_inputs(model: ir.Model, batch: Dim) -> Iterator[str]:
    """Say which inputs keep their first axis."""
    inputs = [
        f"{value.name} ({_extent(value, 0)})"
        for value in model.graph.inputs
        if value.shape is not None and len(value.shape) and _extent(value, 0) != Extent.of(batch)
    ]
    if inputs:
        yield f"batch: inputs that keep their first axis: {', '.join(inputs)}"


def _extent(value: ir.Value, axis: int) -> Extent:
    assert value.shape is not None
    dim = value.shape[axis]
    return Extent.of(dim if isinstance(dim, int) else str(dim.value))


def _open(model: ir.Model, group: Mapping[tuple[ir.Value, int], Dim], what: str) -> "Opened | None":
    """Open one dimension, which several inputs may hold, and give it its name or number."""
    from relayout.shapes import open_axes
    from relayout.shapes.parts import whole_dimension

    new_extent = next(iter(group.values()))
    named = {extent.symbols[0] for value, axis in group if not (extent := _extent(value, axis)).is_static}
    still = {place: _extent(*place) for place in group if _extent(*place).is_static}
    if len({*still.values()}) > 1:
        extents = ", ".join(f"{value.name}:{axis} of {extent}" for (value, axis), extent in still.items())
        raise LayoutError(f"{new_extent} cannot be the name of different extents: {extents}")
    if isinstance(new_extent, int) and new_extent < 1:
        value, axis = next(iter(group))
        raise LayoutError(f"dimension {value.name}:{axis}={new_extent}: an extent is at least 1")
    symbol = new_extent if isinstance(new_extent, str) else _unused(model)
    opening: Opened | None = None
    if still:
        value, axis = next(iter(still))
        seeds: dict[ir.Value, dict[int, Any]] = {}
        for (each, place), extent in still.items():
            seeds.setdefault(each, {})[place] = whole_dimension(Extent.of(symbol), extent)
        at = f"axis {axis} of '{value.name}'"
        fault = f"cannot become {new_extent}" if isinstance(new_extent, int) else "cannot be opened"
        opening = open_axes(model, seeds, f"{what} ({at}) {fault}" if what else f"{at} {fault}", rows=bool(what))
        named.add(symbol)
    if names := {name: new_extent for name in named if name != new_extent}:
        fix_inferred(model, names)
    return None if opening is None else opening._replace(dim=new_extent)


def _unused(model: ir.Model) -> str:
    name = "opened"
    used_names = {symbol for value in model.graph.inputs for dim in value.shape or () for symbol in _names(dim)}
    while name in used_names:
        name += "_"
    return name


def _names(dim: int | ir.SymbolicDim) -> frozenset[str]:
    return frozenset() if isinstance(dim, int) else Extent.of(str(dim.value)).names


def fix_inferred(
    model: ir.Model,
    dims: Mapping[str, Dim],  # dimension -> number, or the name of another
    *,
    infer: bool = True,  # infer again what follows; an imported `.tflite` states every shape by itself
) -> None:
    """Fix dimensions that inference has named, too, in place."""
    from relayout.formats.onnx.completing import complete
    from relayout.formats.onnx.fixing import check_dims, fix_dims, state_results
    from relayout.rules import outputs_of

    named = fix_dims(model, dims)
    check_dims(model, dims, named.union(facts_of(model).fixed_dims))
    if not infer:
        return
    if not named.isdisjoint(dims):
        complete(model, outputs_of)
    state_results(model)


def inferred_extents(
    model: ir.Model,  # the model, which stays open
    at: Mapping[str, int],  # dimension -> its extent
) -> dict[str, int]:
    """Return the extents that a model's values have where some of its dimensions have these, by their names."""
    from relayout.formats.onnx.completing import complete
    from relayout.formats.onnx.fixing import fix_dims
    from relayout.rules import outputs_of

    fixed = model.clone()
    fix_dims(fixed, at)
    values = [value for node in fixed.graph for value in node.outputs if value.const_value is None]
    for value in values:
        value.shape = None if value.shape is not None and not value.shape.is_static() else value.shape
    complete(fixed, outputs_of)
    shapes = {value.name: value.shape for value in values if value.name}
    extents = dict(at)
    for value in (value for node in model.graph for value in node.outputs):
        shape = shapes.get(value.name or "")
        if value.shape is None or shape is None or len(shape) != len(value.shape):
            continue
        for dim, number in zip(value.shape, shape, strict=True):
            if isinstance(dim, ir.SymbolicDim) and dim.value is not None and isinstance(number, int):
                extents.setdefault(str(dim.value), number)
    return extents
