"""Small models of pools that the converter leaves to the Flex delegate, and what TensorFlow says they compute."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from tflite_cases import cases
from tflite_cases_tensorflow import left
from tflite_writing import Net

PADDINGS = ("SAME", "VALID")


def places(extents: Sequence[int], window: Sequence[int], strides: Sequence[int], padding: str) -> list[int]:
    return [
        -(-e // s) if padding == "SAME" else (e - k) // s + 1 for e, k, s in zip(extents, window, strides, strict=True)
    ]


def windows(x: Any, window: Sequence[int], strides: Sequence[int], padding: str, fill: float = np.nan) -> Any:
    """`n *s c` as `n *places c *window`; what is in the border is `fill`, a larger half of it at the end."""
    out = places(x.shape[1:-1], window, strides, padding)
    totals = [max((o - 1) * s + k - e, 0) for e, k, s, o in zip(x.shape[1:-1], window, strides, out, strict=True)]
    kind = x.dtype if x.dtype.kind != "i" else np.float64
    padded = np.pad(x.astype(kind), [(0, 0), *((t // 2, t - t // 2) for t in totals), (0, 0)], constant_values=fill)
    view = np.lib.stride_tricks.sliding_window_view(padded, tuple(window), tuple(range(1, x.ndim - 1)))
    return view[(slice(None), *(slice(0, (o - 1) * s + 1, s) for o, s in zip(out, strides, strict=True)))]


def pooled(x: Any, window: Sequence[int], strides: Sequence[int], padding: str, how: Any, planar: bool = False) -> Any:
    x = np.moveaxis(x, 1, -1) if planar else x
    y = how(windows(x, window, strides, padding), axis=tuple(range(-len(window), 0)))
    return np.moveaxis(y, -1, 1) if planar else y


def pool(
    name: str, window: tuple[int, ...], strides: tuple[int, ...], padding: str, planar: bool = False, kind: str = ""
) -> Net:
    net, spatial = Net(), (5, 6, 7)[-len(window) :]
    out = places(spatial, window, strides, padding)
    shapes = [(2, 3, *extents) if planar else (2, *extents, 3) for extents in (spatial, out)]
    x, y = net.input(shapes[0], kind or "float32", -100, 100), net.output(shapes[1], kind or "float32")
    letters = "DHW"[-len(window) :]
    lists = {n: [1, 1, *v] if planar else [1, *v, 1] for n, v in (("ksize", window), ("strides", strides))}
    left(net, name, [x], y, padding=padding, data_format=f"NC{letters}" if planar else f"N{letters}C", **lists)
    how = np.nanmean if name.startswith("Avg") else np.nanmax
    net.expected = lambda x: pooled(x, window, strides, padding, how, planar)
    return net


@cases("CUSTOM FlexMaxPool3D", "CUSTOM FlexAvgPool3D")
def flex_volumes() -> Iterator[Net]:
    for name, padding in itertools.product(("MaxPool3D", "AvgPool3D"), PADDINGS):
        yield pool(name, (2, 3, 2), (2, 2, 2), padding)
        yield pool(name, (2, 2, 3), (3, 2, 1), padding, planar=True)


@cases("CUSTOM FlexMaxPool")
def flex_pools_of_integers() -> Iterator[Net]:
    for padding, planar in zip(PADDINGS, (False, True), strict=True):
        yield pool("MaxPool", (3, 2), (2, 1), padding, planar, "int32")


@cases("CUSTOM FlexMaxPoolWithArgmax")
def flex_pools_with_places() -> Iterator[Net]:
    for padding, batch in itertools.product(PADDINGS, (False, True)):
        net = Net()
        out = (2, *places((6, 7), (3, 2), (2, 1), padding), 3)
        results = [net.output(out), net.output(out, "int64" if batch else "int32")]
        lists = {"ksize": [1, 3, 2, 1], "strides": [1, 2, 1, 1]}
        x = net.input((2, 6, 7, 3))
        left(net, "MaxPoolWithArgmax", [x], results, padding=padding, include_batch_in_index=batch, **lists)
        net.expected = lambda x, padding=padding, batch=batch: with_places(x, (3, 2), (2, 1), padding, batch)
        yield net


def with_places(x: Any, window: Any, strides: Any, padding: str, batch: bool) -> Any:
    """The greatest elements, and where each lies in `h w c` or `n h w c`."""
    shape = x.shape if batch else (1, *x.shape[1:])
    counted = np.broadcast_to(np.arange(float(np.prod(shape))).reshape(shape), x.shape)
    many = (-2, -1)
    elements, numbers = (windows(v, window, strides, padding, -np.inf) for v in (x, counted))
    flat, numbers = (v.reshape(*v.shape[:-2], -1) for v in (elements, numbers))
    at = flat.argmax(-1)[..., None]
    return elements.max(many), np.take_along_axis(numbers, at, -1)[..., 0]
