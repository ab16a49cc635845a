"""Forms in names, declared shapes and metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from relayout.apply.transposing import distinct
from relayout.infer import Form, Root, order_of
from relayout.layout import Extent, product
from relayout.layout.perm import between

TAGS = {
    (0, 3, 1, 2): "nchw",
    (0, 2, 3, 1): "nhwc",
    (0, 2, 1): "ncw",
    (0, 4, 1, 2, 3): "ncdhw",
    (0, 2, 3, 4, 1): "ndhwc",
}


def tag(root: Root, form: Form) -> str:
    """A short word for a form: `nchw`, `p021`, or the shape."""
    return root.space.of(_tag, form, root, form)


def _tag(root: Root, form: Form) -> str:
    logical = root.logical
    if sorted(logical) == sorted(form):
        perm = between(distinct(logical), distinct(form))
        return TAGS.get(perm, "p" + "".join(map(str, perm)))
    return "as_" + "x".join(str(extent) for extent in root.shape(form))


def declared_dims(extents: Sequence[Extent], named: Mapping[Extent, str]) -> list[int | str | None]:
    """Extents as a file declares them: a number, the source's name, or None for what nobody named."""
    return [_dim(extent, named) for extent in extents]


def _dim(extent: Extent, named: Mapping[Extent, str]) -> int | str | None:
    if extent.is_static:
        return extent.number
    if extent in named:
        return named[extent]
    if any(name.startswith("?") for name in extent.names):
        return None
    text = str(extent)
    return text if Extent.of(text) == extent else None


def entry_of_holds(extents: Sequence[Extent], source: Form, stored: Form) -> tuple[tuple[int, ...], ...]:
    """How a value in form `stored` holds a value of the source in form `source`: all of `Holds` but the name."""

    def number(extent: Extent) -> int:
        return extent.number if extent.is_static else -1

    factors = order_of(source)
    numbers = tuple(number(extents[factor]) for factor in factors)
    tells_itself = numbers.count(-1) < 2 or all(len(dim) < 2 for dim in source)
    return (
        numbers,
        between(factors, order_of(stored)),
        tuple(number(product(extents[factor] for factor in dim)) for dim in source),
        () if tells_itself else tuple(map(len, source)),
    )
