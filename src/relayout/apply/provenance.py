"""The names that a value had in the source, and in that source's own source, with the form that each names."""

from typing import NamedTuple

import onnx_ir as ir

from relayout.errors import LayoutError
from relayout.graph.source_names import is_made
from relayout.infer import Form, Root, Sites, order_of
from relayout.layout.perm import inverse
from relayout.layout.stored_as import Holds


class Origins(NamedTuple):
    """(name, form that it names) of a root.

    Args:
        names: first those from the metadata of an earlier conversion, then the source's own.
        older: of an earlier conversion, where the source has another form under the same name.
    """

    names: list[tuple[str, Form]]
    older: list[tuple[str, Form]]


def origins(sites: Sites, root: Root) -> Origins:
    """The names of a root. Of several that an earlier conversion tells of one name the last is the oldest."""
    earlier: dict[str, Form] = {}
    own: dict[str, Form] = {}
    for value in sites.originals.get(root, []):
        form = sites.views[value].form
        if value.metadata_props and (held := held_by(value)):
            earlier = {each.name: found for each in held if (found := _form(root, form, each)) is not None} | earlier
        if value.name and not (value.metadata_props and is_made(value)):
            own[value.name] = form
    if not earlier:
        return Origins([*own.items()], [])
    names = [*((name, form) for name, form in earlier.items() if name not in own), *own.items()]
    return Origins(names, [(name, form) for name, form in earlier.items() if own.get(name, form) != form])


def held_by(value: ir.Value) -> list[Holds]:
    """What the metadata of an earlier conversion says that a value holds."""
    text = value.metadata_props.get(Holds.KEY)
    if text is None:
        return []
    try:
        return Holds.load(text)
    except LayoutError:
        return []  # metadata of others is not ours to judge


def holds_itself(value: ir.Value) -> None:
    """Say in a value's metadata that it holds what it is called now, whatever it is called later."""
    if value.shape is not None:
        held = Holds.as_is(value.name or "", value.shape)
        value.metadata_props[Holds.KEY] = Holds.dump([held, *held_by(value)])


def _form(root: Root, stored: Form, held: Holds) -> Form | None:
    """The form, in a root's factors, of the value that `stored` holds; None where its factors are others."""
    if len(held.factors) != len(held.perm) or max(held.perm, default=-1) >= len(held.factors):
        return None
    order = list(order_of(stored))
    groups: list[tuple[int, ...]] = []
    for position in held.perm:
        group = _taken(root, order, held.factors[position])
        if group is None:
            return None
        groups.append(group)
    logical = [factor for position in inverse(held.perm) for factor in groups[position]]
    dims: list[tuple[int, ...]] = []
    for extent in held.shape:
        dim = _taken(root, logical, extent)
        if dim is None:
            return None
        dims.append(dim)
    return None if order or logical else tuple(dims)


def _taken(root: Root, order: list[int], extent: int) -> tuple[int, ...] | None:
    """The factors at the front of `order` whose product is `extent` (-1: one dynamic factor); they are taken off."""
    if extent == -1:
        return (order.pop(0),) if order and not root.extents[order[0]].is_static else None
    taken: list[int] = []
    size = 1
    while size < extent and order and root.extents[order[0]].is_static:
        size *= root.extents[order[0]].number
        taken.append(order.pop(0))
    return tuple(taken) if size == extent else None
