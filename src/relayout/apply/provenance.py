"""The names that a value had in the source, and in that source's own source, with the form that each names."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import onnx_ir as ir

from relayout.apply.transposing import distinct
from relayout.errors import NamesError, nearest
from relayout.graph.source_names import is_made
from relayout.infer.graph_sites import Sites
from relayout.infer.sites import Form, Root, order_of
from relayout.layout import Extent, product
from relayout.layout.normalization import NORMALIZE, Normalization
from relayout.layout.perm import between, inverse, is_identity
from relayout.layout.stored_as import RENAMED, TENSOR, Holds

# Forms in names, declared shapes and metadata.

TAGS = {
    (0, 3, 1, 2): "nchw",
    (0, 2, 3, 1): "nhwc",
    (0, 2, 1): "ncw",
    (0, 4, 1, 2, 3): "ncdhw",
    (0, 2, 3, 4, 1): "ndhwc",
}


def tag(root: Root, form: Form) -> str:
    """Return a short word for a form: `nchw`, `p021`, or the shape."""
    return root.space.of(_tag, form, root, form)


def _tag(root: Root, form: Form) -> str:
    logical = root.logical
    if sorted(logical) == sorted(form):
        perm = between(distinct(logical), distinct(form))
        return TAGS.get(perm, "p" + "".join(map(str, perm)))
    return "as_" + "x".join(str(extent) for extent in root.shape(form))


def declared_dims(extents: Sequence[Extent], named: Mapping[Extent, str]) -> list[int | str | None]:
    """Extents as a file declares them: a number, the source's name, or None for what nobody named."""
    dims: list[int | str | None] = []
    for extent in extents:
        text = str(extent)
        if extent.is_static or extent in named:
            dims.append(extent.number if extent.is_static else named[extent])
        else:
            unnamed = any(name.startswith("?") for name in extent.names) or Extent.of(text) != extent
            dims.append(None if unnamed else text)
    return dims


def entry_of_holds(extents: Sequence[Extent], source: Form, stored: Form) -> tuple[tuple[int, ...], ...]:
    """Return how a value in form `stored` holds a value of the source in form `source`: all of `Holds` but the name."""

    def number(extent: Extent) -> int:
        return extent.number if extent.is_static else -1

    factors = order_of(source)
    numbers = tuple(number(extents[factor]) for factor in factors)

    perm = between(factors, order_of(stored))
    is_open = numbers.count(-1) > 1
    return (
        numbers,
        perm,
        tuple(number(product(extents[factor] for factor in dim)) for dim in source),
        tuple(map(len, source)) if is_open and any(len(dim) > 1 for dim in source) else (),
        tuple(map(len, stored)) if is_open and perm != (*range(len(perm)),) else (),
    )


# Names that a user wants: values of the result under other names, and metadata that says what they were.


def rename(
    model: ir.Model,  # a result: its layouts are decided
    names: Mapping[str, str],  # old name -> new name; all are given at once, so two may be swapped
) -> None:
    """Give values of the main graph other names, in place.

    1. An old name is a value's own, or the one that its tensor has in the `.tflite` it came from.
    2. Where the result has a value only in another order, that is named `new__nchw`, and so on.
    3. `relayout.holds` goes on speaking of the source's names; a value that is stored as it was gets its old name as
       `relayout.tensor`. So verification still finds its counterpart.

    Raises:
        NamesError: an old name is unknown or lies inside a subgraph, or a new one is taken.
    """
    new_names: dict[ir.Value, str] = {}
    for old, new in names.items():
        for value, name in _named(model, old, new):
            if new_names.setdefault(value, name) != name:
                raise NamesError(f"--rename {old}={new}: the value is given two new names, {new_names[value]!r} also")
    _refuse_taken(model, new_names)
    before = {value: value.name or "" for value in new_names}
    for number, value in enumerate(new_names):  # away first: a new name may be the old one of another
        value.name = f"{before[value]}\0{number}"
    for value, name in new_names.items():
        source_values = Holds.of(value.metadata_props)
        if TENSOR not in value.metadata_props and before[value] not in {item.name for item in source_values}:
            value.metadata_props[TENSOR] = before[value]
        known = Normalization.load(value.metadata_props.get(NORMALIZE, ""))
        if known is not None and known.of not in {
            item.name for item in source_values
        }:  # its axes are those of the value
            value.metadata_props[NORMALIZE] = known._replace(of=name).dump()
        value.name = name
        value.meta[RENAMED] = True


def _named(model: ir.Model, old: str, new: str) -> Iterator[tuple[ir.Value, str]]:
    """Yield the values that an old name means, each with its new name."""
    if not new:
        raise NamesError(f"--rename {old}=: the new name is empty")
    values = list(_values(model.graph))
    holding_values = [value for value in values if value.name == old]
    holding_values = holding_values or [value for value in values if value.metadata_props.get(TENSOR) == old]
    if holding_values:
        yield holding_values[0], new
    holders = [
        (value, item)
        for value in values
        for item in Holds.of(value.metadata_props)
        if item.name == old and value not in holding_values
    ]
    for value, item in holders:
        # `x__nchw` was made for x alone; another value may hold several of the source's, and the first that does is it.
        stem, mark, order = (value.name or "").partition(f"{old}__")
        if not stem and mark:
            yield value, f"{new}__{order}"
        elif not holding_values:
            yield value, new if _as_it_is(value, item) else f"{new}__{TAGS.get(item.perm, 'stored')}"
        holding_values.append(value)
    if not holding_values:
        raise NamesError(f"--rename {old}={new}: {_why_not(model, old)}")


def _as_it_is(value: ir.Value, item: Holds) -> bool:
    return value.shape is not None and is_identity(item.perm) and len(value.shape) == len(item.shape)


def _why_not(model: ir.Model, old: str) -> str:
    if old in (value.name for body in model.graph.subgraphs() for node in body for value in node.outputs):
        return "the value lies inside the body of another operator, where names are its own affair"
    names = [
        name
        for value in _values(model.graph)
        for name in (value.name, *(h.name for h in Holds.of(value.metadata_props)))
        if name
    ]
    return f"the result has no value of that name{nearest(old, names)}"


def _refuse_taken(model: ir.Model, new_names: Mapping[ir.Value, str]) -> None:
    twice = [name for name, count in Counter(new_names.values()).items() if count > 1]
    if twice:
        raise NamesError(f"--rename gives two values the name {twice[0]!r}")
    graphs = dict.fromkeys((model.graph, *model.graph.subgraphs()))
    other_names = {value.name for graph in graphs for value in _values(graph) if value not in new_names}
    for value, name in new_names.items():
        if name in other_names:
            raise NamesError(f"--rename {value.name}={name}: another value has that name")


def _values(graph: ir.Graph) -> Iterator[ir.Value]:
    yield from graph.inputs
    yield from (value for value in graph.initializers.values() if not value.is_graph_input())
    yield from (value for node in graph for value in node.outputs if value.name)


class Origins(NamedTuple):
    """(name, form that it names) of a root."""

    names: list[tuple[str, Form]]  # first those from the metadata of an earlier conversion, then the source's own
    older: list[tuple[str, Form]]  # of an earlier conversion, where the source has another form under the same name


def origins(sites: Sites, root: Root) -> Origins:
    """Return the names of a root. Of several that an earlier conversion tells of one name the last is the oldest."""
    earlier: dict[str, Form] = {}
    own: dict[str, Form] = {}
    for value in sites.originals.get(root, []):
        form = sites.views[value].form
        if value.metadata_props and (source_values := Holds.of(value.metadata_props)):
            earlier = {
                each.name: source_form for each in source_values if (source_form := _form(root, form, each)) is not None
            } | earlier
        if value.name and not (value.metadata_props and is_made(value)):
            own[value.name] = form
    if not earlier:
        return Origins([*own.items()], [])
    names = [*((name, form) for name, form in earlier.items() if name not in own), *own.items()]
    return Origins(names, [(name, form) for name, form in earlier.items() if own.get(name, form) != form])


def holds_itself(value: ir.Value) -> None:
    """Say in a value's metadata that it holds what it is called now, whatever it is called later."""
    if value.shape is not None:
        itself = Holds.as_is(value.name or "", value.shape)
        Holds.note(value.metadata_props, [itself, *Holds.of(value.metadata_props)])


def _form(root: Root, stored: Form, source_value: Holds) -> Form | None:
    """Return the form, in a root's factors, of the value that `stored` holds; None where its factors are others."""
    if len(source_value.factors) != len(source_value.perm) or max(source_value.perm, default=-1) >= len(
        source_value.factors
    ):
        return None
    order = list(order_of(stored))
    groups: list[tuple[int, ...]] = []
    for position in source_value.perm:
        group = _taken(root, order, source_value.factors[position])
        if group is None:
            return None
        groups.append(group)
    logical = [factor for position in inverse(source_value.perm) for factor in groups[position]]
    dims: list[tuple[int, ...]] = []
    for extent in source_value.shape:
        dim = _taken(root, logical, extent)
        if dim is None:
            return None
        dims.append(dim)
    return None if order or logical else tuple(dims)


def _taken(root: Root, order: list[int], extent: int) -> tuple[int, ...] | None:
    """The factors at the front of `order` whose product is `extent` (-1: one dynamic factor); they are taken off."""
    if extent == -1:
        return (order.pop(0),) if order and not root.extents[order[0]].is_static else None
    front: list[int] = []
    size = 1
    while size < extent and order and root.extents[order[0]].is_static:
        size *= root.extents[order[0]].number
        front.append(order.pop(0))
    return tuple(front) if size == extent else None
