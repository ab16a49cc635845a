"""Names that a user wants: values of the result under other names, and metadata that says what they were."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import onnx_ir as ir

from relayout.apply.forms_in_words import TAGS
from relayout.errors import NamesError, nearest
from relayout.graph.subgraphs import all_nodes
from relayout.layout.normalization import NORMALIZE, Normalization
from relayout.layout.perm import is_identity
from relayout.layout.stored_as import RENAMED, TENSOR, Holds


def rename(model: ir.Model, names: Mapping[str, str]) -> None:
    """Give values of the main graph other names, in place.

    1. An old name is a value's own, or the one that its tensor has in the `.tflite` it came from.
    2. Where the result has a value only in another order, that is named `new__nchw`, and so on.
    3. `relayout.holds` goes on speaking of the source's names; a value that is stored as it was gets its old name as
       `relayout.tensor`. So verification still finds its counterpart.

    Args:
        model: a result: its layouts are decided.
        names: old name -> new name; all are given at once, so two may be swapped.

    Raises:
        NamesError: an old name is unknown or lies inside a subgraph, or a new one is taken.
    """
    wanted: dict[ir.Value, str] = {}
    for old, new in names.items():
        for value, name in _named(model, old, new):
            if wanted.setdefault(value, name) != name:
                raise NamesError(f"--rename {old}={new}: the value is given two new names, {wanted[value]!r} also")
    _refuse_taken(model, wanted)
    before = {value: value.name or "" for value in wanted}
    for number, value in enumerate(wanted):  # away first: a new name may be the old one of another
        value.name = f"{before[value]}\0{number}"
    for value, name in wanted.items():
        held = Holds.load(value.metadata_props.get(Holds.KEY, "[]"))
        if TENSOR not in value.metadata_props and before[value] not in {item.name for item in held}:
            value.metadata_props[TENSOR] = before[value]
        known = Normalization.load(value.metadata_props.get(NORMALIZE, ""))
        if known is not None and known.of not in {item.name for item in held}:  # its axes are those of the value
            value.metadata_props[NORMALIZE] = known._replace(of=name).dump()
        value.name = name
        value.meta[RENAMED] = True


def _named(model: ir.Model, old: str, new: str) -> Iterator[tuple[ir.Value, str]]:
    """The values that an old name means, each with its new name."""
    if not new:
        raise NamesError(f"--rename {old}=: the new name is empty")
    values = list(_values(model.graph))
    found = [value for value in values if value.name == old]
    found = found or [value for value in values if value.metadata_props.get(TENSOR) == old]
    if found:
        yield found[0], new
    holders = [(value, item) for value in values for item in _held(value) if item.name == old and value not in found]
    for value, item in holders:
        # `x__nchw` was made for x alone; another value may hold several of the source's, and the first that does is it.
        stem, mark, order = (value.name or "").partition(f"{old}__")
        if not stem and mark:
            yield value, f"{new}__{order}"
        elif not found:
            yield value, new if _as_it_is(value, item) else f"{new}__{TAGS.get(item.perm, 'stored')}"
        found.append(value)
    if not found:
        raise NamesError(f"--rename {old}={new}: {_why_not(model, old)}")


def _as_it_is(value: ir.Value, item: Holds) -> bool:
    return value.shape is not None and is_identity(item.perm) and len(value.shape) == len(item.shape)


def _why_not(model: ir.Model, old: str) -> str:
    for node in all_nodes(model.graph):
        if node.graph is not model.graph and any(value.name == old for value in node.outputs):
            return "the value lies inside the body of another operator, where names are its own affair"
    names = [name for value in _values(model.graph) for name in (value.name, *(h.name for h in _held(value))) if name]
    return f"the result has no value of that name{nearest(old, names)}"


def _refuse_taken(model: ir.Model, wanted: Mapping[ir.Value, str]) -> None:
    twice = [name for name, count in Counter(wanted.values()).items() if count > 1]
    if twice:
        raise NamesError(f"--rename gives two values the name {twice[0]!r}")
    kept = {value.name for graph in (model.graph, *_bodies(model)) for value in _values(graph) if value not in wanted}
    for value, name in wanted.items():
        if name in kept:
            raise NamesError(f"--rename {value.name}={name}: another value has that name")


def _bodies(model: ir.Model) -> Iterator[ir.Graph]:
    return iter(dict.fromkeys(graph for graph in model.graph.subgraphs()))


def _values(graph: ir.Graph) -> Iterator[ir.Value]:
    yield from graph.inputs
    yield from (value for value in graph.initializers.values() if not value.is_graph_input())
    yield from (value for node in graph for value in node.outputs if value.name)


def _held(value: ir.Value) -> list[Holds]:
    return Holds.load(value.metadata_props[Holds.KEY]) if Holds.KEY in value.metadata_props else []
