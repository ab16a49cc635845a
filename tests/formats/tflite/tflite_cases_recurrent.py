"""Small recurrent networks with gates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from tflite_cases import cases, rng
from tflite_writing import Net, Scale, options

TIME, BATCH, COLUMNS, UNITS = 5, 2, 3, 4
TANH, RELU, RELU6 = 4, 1, 3


@dataclass(frozen=True)
class Weights:
    """Makes weights: real ones, or with `hybrid` integers that mean about the same."""

    net: Net
    random: np.random.Generator
    hybrid: bool = False

    def __call__(self, *shape: int, peephole: bool = False) -> int:
        values = self.random.normal(size=shape) * 0.7
        if not self.hybrid or not (len(shape) > 1 or peephole):
            return self.net.const(values)
        scale = float(np.abs(values).max() / 127)
        return self.net.const(np.round(values / scale), "int8", q=Scale(scale))


def gates(weights: Weights, rows: int, columns: int, cifg: bool) -> list[int]:
    return [-1 if cifg and gate == 0 else weights(rows, columns) for gate in range(4)]


def lstm(
    *,
    one_step: bool = False,
    time: int = TIME,
    time_major: bool = False,
    cifg: bool = False,
    peephole: bool = False,
    clip: float = 0,
    projection: int = 0,
    projection_bias: bool = False,
    projection_clip: float = 0,
    normalized: bool = False,
    activation: int = TANH,
    hybrid: bool = False,
    diagonal: bool = False,
) -> Net:
    net = Net()
    weights = Weights(net, rng(), hybrid)
    out = projection or UNITS
    if one_step:
        x = net.input((BATCH, COLUMNS))
    else:
        x = net.input((time, BATCH, COLUMNS) if time_major else (BATCH, time, COLUMNS))
    kernels, recurrent = gates(weights, UNITS, COLUMNS, cifg), gates(weights, UNITS, out, cifg)
    peepholes = [-1 if not peephole or (cifg and g == 0) else weights(UNITS, peephole=True) for g in range(3)]
    biases, norms = ([-1 if cifg and gate == 0 else weights(UNITS) for gate in range(4)] for _ in range(2))
    project = [weights(projection, UNITS) if projection else -1, weights(projection) if projection_bias else -1]
    states = [net.tensor((BATCH, out), variable=True), net.tensor((BATCH, UNITS), variable=True)]
    if diagonal:
        recurrent = [weights(UNITS) for _ in range(4)]
    more = {} if one_step else {"timeMajor": time_major, "diagonalRecurrentTensors": diagonal}
    table = options(
        "LSTMOptions" if one_step else "UnidirectionalSequenceLSTMOptions",
        fusedActivationFunction=activation,
        cellClip=clip,
        projClip=projection_clip,
        **more,
    )
    operands = [x, *kernels, *recurrent, *peepholes, *biases, *project, *states, *(norms if normalized else [-1] * 4)]
    shape = (BATCH, out) if one_step else (time, BATCH, out) if time_major else (BATCH, time, out)
    net.slack = 0.05 if hybrid else 0
    name = "LSTM" if one_step else "UNIDIRECTIONAL_SEQUENCE_LSTM"
    return net.op(name, operands, [net.output(shape)], table, version=3 if hybrid else 1)


LSTMS: list[dict[str, Any]] = [
    {},
    {"cifg": True},
    {"peephole": True},
    {"peephole": True, "cifg": True},
    {"clip": 0.3},
    {"clip": 0.3, "peephole": True},
    {"projection": 3},
    {"projection": 3, "projection_bias": True, "projection_clip": 0.2, "peephole": True},
    {"projection": 3, "clip": 0.4, "cifg": True},
    {"normalized": True},
    {"normalized": True, "cifg": True, "peephole": True, "projection": 3},
    {"activation": RELU},
    {"activation": RELU6, "peephole": True},
    {"hybrid": True},
    {"hybrid": True, "projection": 3, "peephole": True},
]
LONG: list[dict[str, Any]] = [
    {"time": 19, "clip": 5},
    {"time": 19, "clip": 5, "peephole": True},
    {"time": 19, "clip": 5, "cifg": True},
    {"time": 19, "clip": 3, "activation": RELU},
]
"""Of more steps than their limits say."""


@cases("UNIDIRECTIONAL_SEQUENCE_LSTM")
def lstms() -> Iterator[Net]:
    yield lstm(time_major=True)
    yield lstm(diagonal=True)
    for kind in (*LSTMS, *LONG):
        yield lstm(**kind)


@cases("LSTM")
def single_steps() -> Iterator[Net]:
    for kind in LSTMS:
        yield lstm(one_step=True, **kind)


@cases("LSTM")
def basic() -> Iterator[Net]:
    net = Net()
    weights = Weights(net, rng())
    x, h, c = net.input((BATCH, COLUMNS)), net.input((BATCH, UNITS)), net.input((BATCH, UNITS))
    operands = [x, h, weights(4 * UNITS, COLUMNS + UNITS), weights(4 * UNITS), c]
    results = [net.output((BATCH, n)) for n in (UNITS, UNITS)]
    results += [net.tensor((BATCH, n)) for n in (COLUMNS + UNITS, 4 * UNITS)]
    yield net.op(
        "LSTM", operands, results, options("LSTMOptions", fusedActivationFunction=TANH, kernelType=1), version=2
    )


def quantized_lstm(
    *,
    time: int = TIME,
    cifg: bool = False,
    peephole: bool = False,
    projection: int = 0,
    normalized: bool = False,
    clip: float = 0,
    one_step: bool = False,
    others: tuple[Scale, Scale] | None = None,
) -> Net:
    """Operands and results of 8 bits, a cell of 16; `others`: hidden value and result are not scaled as the state."""
    net, random = Net(), rng()
    out = projection or UNITS

    def weights(rows: int, columns: int) -> int:
        return net.const(random.integers(-127, 128, (rows, columns)), "int8", q=Scale(0.01))

    def vector(scale: float, dtype: str, most: int) -> int:
        return net.const(random.integers(-most, most, UNITS), dtype, q=Scale(scale))

    lead = (BATCH,) if one_step else (BATCH, time)
    x = net.input((*lead, COLUMNS), "int8", q=Scale(0.02, 5))
    h_scale = Scale(0.007 if not projection else 0.015, 3)
    hidden, result = others or (Scale(0.006, -4) if projection else h_scale, h_scale)
    kernels = [-1 if cifg and g == 0 else weights(UNITS, COLUMNS) for g in range(4)]
    recurrent = [-1 if cifg and g == 0 else weights(UNITS, out) for g in range(4)]
    peepholes = [-1 if not peephole or (cifg and g == 0) else vector(3e-5, "int16", 30000) for g in range(3)]
    bias_scale = 3e-5 / 1024 if normalized else 0.02 * 0.01
    biases = [
        -1 if cifg and g == 0 else vector(bias_scale, "int32", 9_000_000 if normalized else 2000) for g in range(4)
    ]
    norms = [-1 if not normalized or (cifg and g == 0) else vector(3e-5, "int16", 30000) for g in range(4)]
    project = [-1, -1]
    if projection:
        project = [
            weights(projection, UNITS),
            net.const(random.integers(-900, 900, projection), "int32", q=Scale(0.01 * hidden.scale)),
        ]
    states = [
        net.tensor((BATCH, out), "int8", q=h_scale, variable=True),
        net.tensor((BATCH, UNITS), "int16", q=Scale(2**-12), variable=True),
    ]
    steps = [net.tensor((0,), "int16", q=Scale(0.0005)) for _ in range(4)] + [net.tensor((0,), "int8", q=hidden)]
    name = "LSTM" if one_step else "UNIDIRECTIONAL_SEQUENCE_LSTM"
    kind = "LSTMOptions" if one_step else "UnidirectionalSequenceLSTMOptions"
    table = options(kind, fusedActivationFunction=TANH, cellClip=clip)
    operands = [x, *kernels, *recurrent, *peepholes, *biases, *project, *states, *norms]
    net.op(name, operands, [net.output((*lead, out), "int8", q=result)], table, version=3)
    net.graph.operators[-1].intermediates = steps
    net.slack = 1  # rounding of one step goes on into the next
    return net


@cases("UNIDIRECTIONAL_SEQUENCE_LSTM", "LSTM")
def quantized_lstms() -> Iterator[Net]:
    yield quantized_lstm(one_step=True)
    yield quantized_lstm(one_step=True, normalized=True, projection=3)
    yield quantized_lstm()
    yield quantized_lstm(others=(Scale(0.009, 5), Scale(0.011, 8)))
    yield quantized_lstm(one_step=True, others=(Scale(0.009, 5), Scale(0.011, 8)))
    yield quantized_lstm(projection=3, others=(Scale(0.009, 5), Scale(0.011, 8)))
    yield quantized_lstm(cifg=True)
    yield quantized_lstm(clip=0.5)
    yield quantized_lstm(peephole=True)
    yield quantized_lstm(projection=3)
    yield quantized_lstm(normalized=True)
    yield quantized_lstm(normalized=True, peephole=True, projection=3, cifg=True)


@cases("BIDIRECTIONAL_SEQUENCE_LSTM")
def bidirectional_lstms() -> Iterator[Net]:
    """Merged only where time comes first: for a second batch the kernel otherwise yields something else on each run."""
    kinds: list[dict[str, Any]] = [
        {},
        {"merge": True, "time_major": True},
        {"merge": True, "time_major": True, "peephole": True, "cifg": True},
        {"clip": 0.3, "projection": 3},
        {"clip": 5, "time": 19},
        {"auxiliary": "both"},
        {"auxiliary": "backward"},
        {"hybrid": True},
    ]
    for kind in kinds:
        yield bidirectional_lstm(**kind)


def bidirectional_lstm(
    *,
    time: int = TIME,
    merge: bool = False,
    time_major: bool = False,
    peephole: bool = False,
    cifg: bool = False,
    clip: float = 0,
    projection: int = 0,
    auxiliary: str = "",
    hybrid: bool = False,
) -> Net:
    net = Net()
    weights, out = Weights(net, rng(), hybrid), projection or UNITS
    shape = (time, BATCH, COLUMNS) if time_major else (BATCH, time, COLUMNS)
    operands = [net.input(shape)]
    for _ in range(2):
        operands += gates(weights, UNITS, COLUMNS, cifg) + gates(weights, UNITS, out, cifg)
        operands += [-1 if not peephole or (cifg and g == 0) else weights(UNITS) for g in range(3)]
        operands += [-1 if cifg and g == 0 else weights(UNITS) for g in range(4)]
        operands += [weights(projection, UNITS) if projection else -1, -1]
    for _ in range(2):
        operands += [net.tensor((BATCH, out), variable=True), net.tensor((BATCH, UNITS), variable=True)]
    operands += [net.input(shape) if auxiliary else -1]
    for _ in range(2):
        operands += gates(weights, UNITS, COLUMNS, cifg) if auxiliary == "both" else [-1] * 4
    table = options(
        "BidirectionalSequenceLSTMOptions",
        fusedActivationFunction=TANH,
        cellClip=clip,
        mergeOutputs=merge,
        timeMajor=time_major,
    )
    results = [net.output((*shape[:2], 2 * out if merge else out)) for _ in range(1 if merge else 2)]
    net.slack = 0.05 if hybrid else 0
    return net.op("BIDIRECTIONAL_SEQUENCE_LSTM", operands, results, table, version=3)
