"""Random numbers. A runtime of `.tflite` draws another stream than one of ONNX, from the same distribution."""

from __future__ import annotations

from typing import Any

import numpy as np

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.exporting.draft import Dims, DraftTensor
from relayout.formats.tflite.exporting.node import NUMPY, NodeExport
from relayout.formats.tflite.exporting.registry import Unwritable, exporter
from relayout.formats.tflite.exporting.steps import Steps

UNIFORM, NORMAL = "RANDOM_UNIFORM", "RANDOM_STANDARD_NORMAL"
SEEDS = 1 << 31
RATIO, TRAINING = 1, 2
"""Operands of Dropout."""


@exporter("RandomUniform", "RandomUniformLike")
def random_uniform(op: NodeExport) -> None:
    """RANDOM_UNIFORM, MUL and ADD; another stream of numbers than ONNX's."""
    low, high = op.number("low", 0.0), op.number("high", 1.0)
    _give(op, _drawn(op, UNIFORM), high - low, low)


@exporter("RandomNormal", "RandomNormalLike")
def random_normal(op: NodeExport) -> None:
    """RANDOM_STANDARD_NORMAL, MUL and ADD; another stream of numbers than ONNX's."""
    _give(op, _drawn(op, NORMAL), op.number("scale", 1.0), op.number("mean", 0.0))


@exporter("Bernoulli")
def bernoulli(op: NodeExport) -> None:
    """RANDOM_UNIFORM, GREATER and CAST, as the standard defines it; another stream of numbers than ONNX's."""
    # The definition gives 1 where the number is above the operand, with the probability 1 - p.
    steps = Steps(op)
    drawn = steps.compare("GREATER", _drawn(op, UNIFORM), op.input(0))
    steps.give(steps.cast(drawn, op.output(0).type))


@exporter("Dropout")
def dropout(op: NodeExport) -> None:
    """Nothing: its operand, and a mask of ones; in training RANDOM_UNIFORM, LESS, MUL and SELECT_V2."""
    steps, operand = Steps(op), op.input(0)
    training = op.constant(TRAINING) if op.has(TRAINING) else np.array(False)
    if training is None:
        raise Unwritable("a Dropout that a switch puts into training")
    if training.item():
        ratio = float(op.required_constant(RATIO, "the ratio of a Dropout").item() if op.has(RATIO) else 0.5)
        kept = steps.compare("LESS", _drawn(op, UNIFORM), 1.0 - ratio)
        steps.give(steps.select(kept, steps.mul(operand, 1.0 / (1.0 - ratio)), 0.0))
        if op.gives(1):
            steps.give(kept, 1)
        return
    if op.gives(1):
        ones = op.const(np.full((), op.version >= 12, NUMPY[op.output(1).type]))  # before version 12 zeros
        op.result("FILL", [steps.extents(operand), ones], 1)
    op.give(operand)


def _drawn(op: NodeExport, name: str) -> DraftTensor:
    """Return random numbers of the extents that the node's first output has."""
    if op.op_type in ("RandomNormal", "RandomUniform"):
        dims: Dims = tuple(op.integers("shape"))
        shape = op.ints32(op.integers("shape"), "shape")
    else:
        dims, shape = op.input(0).dims, Steps(op).extents(op.input(0))
    return op.emit(name, [shape], dims, TensorType.FLOAT32, **_seeds(op))


def _seeds(op: NodeExport) -> dict[str, Any]:
    """Return the options that fix the stream, where the node has a seed: two zeros are none."""
    return {"seed": int(op.number("seed")) % SEEDS, "seed2": 1} if "seed" in op.node.attributes else {}


def _give(op: NodeExport, drawn: DraftTensor, scale: float, shift: float) -> None:
    if op.output(0).type != TensorType.FLOAT32:
        raise Unwritable(f"random numbers of {op.output(0).type.name}")
    steps = Steps(op)
    scaled = drawn if scale == 1.0 else steps.mul(drawn, scale)
    steps.give(steps.add(scaled, shift) if shift else scaled)
