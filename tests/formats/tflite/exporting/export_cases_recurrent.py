"""LSTMs that LiteRT's fused kernel computes, and those that are written step by step."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rules.cases.making import f
from rules.law import Array, Case

TIME, BATCH, SIZE, UNITS = 5, 2, 3, 4


def cases() -> Iterator[Case]:
    for direction in ("forward", "reverse", "bidirectional"):
        yield lstm(direction)
        yield lstm(direction, states=True, peephole=True)
    yield lstm(outputs=("", "h", ""))
    yield lstm(outputs=("", "", "c"), states=True)
    yield lstm(input_forget=1, peephole=True)
    yield lstm("bidirectional", activations=["Sigmoid", "Relu", "Relu"] * 2)
    yield lstm(activations=["Sigmoid", "Tanh", "Relu"])
    yield lstm(activations=["HardSigmoid", "Tanh", "Tanh"])
    yield lstm(
        "bidirectional",
        activations=["HardSigmoid", "ScaledTanh", "Tanh", "Sigmoid", "Affine", "LeakyRelu"],
        activation_alpha=[0.3, 0.9, 1.2, 0.2],
        activation_beta=[0.4, 0.7, 0.1],
    )
    yield lstm(activations=["HardSigmoid", "Tanh", "Elu"], activation_alpha=[0.1])
    yield lstm(clip=0.4)
    yield lstm("bidirectional", clip=0.1, states=True)
    yield lstm(constants=())
    yield lstm(coupled=True, peephole=True)
    yield lstm(time=1)


def lstm(
    direction: str = "forward",
    *,
    time: int = TIME,
    states: bool = False,
    peephole: bool = False,
    coupled: bool = False,
    outputs: tuple[str, ...] = ("y", "h", "c"),
    constants: tuple[str, ...] = ("w", "r", "b"),
    **attributes: object,
) -> Case:
    """Return an LSTM; the gates of a coupled one are such that those of input and forget add up to 1."""
    count = 2 if direction == "bidirectional" else 1
    given: dict[str, Array | None] = {
        "x": f(time, BATCH, SIZE),
        "w": f(count, 4 * UNITS, SIZE),
        "r": f(count, 4 * UNITS, UNITS),
        "b": f(count, 8 * UNITS),
        "lengths": None,
        "h0": f(count, BATCH, UNITS) if states else None,
        "c0": f(count, BATCH, UNITS) if states else None,
        "p": f(count, 3 * UNITS) if peephole else None,
    }
    for name, parts in (("w", 4), ("r", 4), ("b", 8), ("p", 3)) if coupled else ():
        array = given[name]
        if array is not None:
            halves = np.split(array, parts, axis=1)
            halves[2] = -halves[0]
            if parts == 8:
                halves[6] = -halves[4]
            given[name] = np.concatenate(halves, axis=1)
    listed = (*constants, *(("p",) if peephole else ()))
    return Case("LSTM", given, listed, {"hidden_size": UNITS, "direction": direction, **attributes}, outputs)
