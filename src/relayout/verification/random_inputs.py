"""Random arrays for the inputs of a source, and the sizes of its dynamic dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from relayout.verification.feeds import BATCH, EXTENTS, dynamic_shape, random_feed
from relayout.verification.pairs import Pair
from relayout.verification.side import Array, Feeds, RunnableModel


def random_feeds(
    source: RunnableModel,
    inputs: Sequence[Pair],
    given: Feeds,
    rng: np.random.Generator,
    signed: bool,
    extents: tuple[int, int, int] | None,
    careful: bool,
    batch: int = BATCH,
) -> dict[str, Array]:
    """Return arrays for all inputs of the source; where its counterpart reads pixels, what random ones are there.

    Args:
        source: the source.
        inputs: its inputs and their counterparts.
        given: those that are not random, by name.
        rng: where the others come from.
        signed: whether the others may be negative.
        extents: of dynamic dimensions; None: the model's own.
        batch: the first extent, where it is open.
        careful: whether integers are 0 and floats whole numbers, since the source does not run with others.
    """
    sizes: dict[str, int] = {}
    alike = {mine: theirs for pair in inputs for mine, theirs in pair.symbols().items()}
    wanted = [
        replace(
            value,
            symbols=tuple(alike.get(name, name) for name in value.symbols),
            implied=source.implied.get(value.name, ()),
        )
        for value in source.inputs
    ]
    for value in wanted:
        if value.name in given:
            sizes.update(zip(value.symbols, given[value.name].shape, strict=False))
    pixels = {pair.left.name: pair for pair in inputs if _are_drawn(pair)}
    told = {pair.left.name: pair.source_shape() for pair in inputs}
    feeds: dict[str, Array] = {}
    for value in wanted:
        if value.name in given:
            feeds[value.name] = given[value.name]
            continue
        if extents is None and value.fallback:
            shape = value.fallback
        else:
            shape = _settled(
                dynamic_shape(value, sizes, extents or EXTENTS[0], batch), value.shape, told.get(value.name)
            )
        pair = pixels.get(value.name)
        if pair is None or value.dtype is None:
            feeds[value.name] = random_feed(value, shape, rng, signed, careful)
        else:
            drawn = random_feed(replace(value, dtype=pair.right.dtype), shape, rng, signed, careful)
            feeds[value.name] = pair.of_pixels(drawn).astype(value.dtype)
    return feeds


def _are_drawn(pair: Pair) -> bool:
    """Tell whether pixels are drawn for a pair: the second model reads them, and the source real numbers."""
    return pair.reads_pixels and pair.left.dtype is not None and pair.left.dtype.kind == "f"


def _settled(
    shape: tuple[int, ...], own: tuple[int | None, ...] | None, told: tuple[int | None, ...] | None
) -> tuple[int, ...]:
    """The sizes, where the source leaves them open and its counterpart does not: the counterpart's."""
    if own is None or told is None or len(told) != len(shape):
        return shape
    return tuple(
        size if known is not None or fixed is None else fixed
        for size, known, fixed in zip(shape, own, told, strict=True)
    )
