"""Random numbers. A runtime of `.tflite` draws another stream than one of ONNX, from the same distribution."""

from __future__ import annotations

from math import isfinite, nan
from typing import Any

import numpy as np

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.exporting.draft import Dims, DraftTensor
from relayout.formats.tflite.exporting.node import NUMPY, NodeExport
from relayout.formats.tflite.exporting.registry import Unwritable, exporter
from relayout.formats.tflite.exporting.steps import Steps

UNIFORM, NORMAL = "RANDOM_UNIFORM", "RANDOM_STANDARD_NORMAL"
LIMIT = 1 << 31
"""Seeds and extents are below it."""
RATIO, TRAINING = 1, 2
"""Operands of Dropout."""


@exporter("RandomUniform", "RandomUniformLike")
def random_uniform(op: NodeExport) -> None:
    """RANDOM_UNIFORM, MUL and ADD; another stream of numbers than ONNX's."""
    low, high = op.number("low", 0.0), op.number("high", 1.0)
    _give(op, _random_numbers(op, UNIFORM), high - low, low)


@exporter("RandomNormal", "RandomNormalLike")
def random_normal(op: NodeExport) -> None:
    """RANDOM_STANDARD_NORMAL, MUL and ADD; another stream of numbers than ONNX's."""
    _give(op, _random_numbers(op, NORMAL), op.number("scale", 1.0), op.number("mean", 0.0))


@exporter("Bernoulli")
def bernoulli(op: NodeExport) -> None:
    """RANDOM_UNIFORM, GREATER and CAST, as the standard defines it; another stream of numbers than ONNX's."""
    # The definition gives 1 where the number is above the operand, with the probability 1 - p.
    steps = Steps(op)
    ones = steps.compare("GREATER", _random_numbers(op, UNIFORM), op.input(0))
    steps.give(steps.cast(ones, op.output(0).type))


@exporter("Dropout")
def dropout(op: NodeExport) -> None:
    """Nothing: its operand, and a mask of ones; in training RANDOM_UNIFORM, LESS, MUL and SELECT_V2."""
    steps, operand = Steps(op), op.input(0)
    training = op.constant(TRAINING) if op.has(TRAINING) else np.array(False)
    if training is None or training.size != 1:
        raise Unwritable("a Dropout that a switch puts into training")
    if training.item():
        ratio = op.required_constant(RATIO, "the ratio of a Dropout") if op.has(RATIO) else np.array(0.5)
        if ratio.size != 1 or not 0 <= ratio.item() < 1:
            raise Unwritable("a ratio that is not from 0 to below 1")
        share = 1.0 - float(ratio.item())
        mask = steps.compare("LESS", _random_numbers(op, UNIFORM), share)
        steps.give(steps.select(mask, steps.mul(operand, 1.0 / share), 0.0))
        if op.gives(1):
            steps.give(mask, 1)
        return
    if op.gives(1):
        ones = op.const(np.full((), op.version >= 12, NUMPY[op.output(1).type]))  # before version 12 zeros
        op.result("FILL", [steps.extents(operand), ones], 1)
    op.give(operand)


def _random_numbers(op: NodeExport, name: str) -> DraftTensor:
    """Return random numbers of the extents that the node's first output has."""
    if op.op_type in ("RandomNormal", "RandomUniform"):
        dims: Dims = tuple(op.integers("shape"))
        if any(dim < 0 or dim >= LIMIT for dim in op.integers("shape")):
            raise Unwritable(f"a shape of {op.integers('shape')}")
        shape = op.ints32(op.integers("shape"), "shape")
    else:
        dims, shape = op.input(0).dims, Steps(op).extents(op.input(0))
    return op.emit(name, [shape], dims, TensorType.FLOAT32, **_seeds(op))


def _seeds(op: NodeExport) -> dict[str, Any]:
    """Return the options that fix the stream, where the node has a seed: two zeros are none."""
    seed = op.number("seed", nan)
    return {"seed": int(seed) % LIMIT, "seed2": 1} if isfinite(seed) else {}


def _give(op: NodeExport, numbers: DraftTensor, scale: float, shift: float) -> None:
    if op.output(0).type != TensorType.FLOAT32:
        raise Unwritable(f"random numbers of {op.output(0).type.name}")
    steps = Steps(op)
    scaled = numbers if scale == 1.0 else steps.mul(numbers, scale)
    steps.give(steps.add(scaled, shift) if shift else scaled)
