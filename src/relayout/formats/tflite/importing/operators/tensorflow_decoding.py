"""Operators of TensorFlow that decode what a network says, and are left to the Flex delegate."""

from __future__ import annotations

import onnx_ir as ir

from relayout.formats.tflite.importing.builder import dims
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.operators.elementwise import one, two
from relayout.formats.tflite.importing.operators.gathering import counted
from relayout.formats.tflite.importing.operators.shape import scalar
from relayout.formats.tflite.importing.operators.slicing import joined, unsqueeze
from relayout.formats.tflite.importing.operators.tensorflow import attributes
from relayout.formats.tflite.importing.operators.windows import bordered
from relayout.formats.tflite.importing.registry import Unsupported, operator

_BOOL, _INT64 = ir.DataType.BOOL, ir.DataType.INT64


@operator("CUSTOM FlexCTCGreedyDecoder")
def greedy_decoder(op: Operation) -> None:
    """ArgMax at each time; NonZero finds what is no blank, within its sequence and, if so asked, no repetition."""
    given, x, lengths = attributes(op), op.stored(0), op.cast(op.stored(1), _INT64)
    time, batch, classes = dims(x)
    blank = given.number("blank_index")
    if blank < 0 and not isinstance(classes, int):
        raise Unsupported("unknown dimensions, of which the last class is the blank")
    steps = scalar(op, op.emit("Shape", [x], (1,), _INT64, start=0, end=1))
    within = two(op, "Less", counted(op, steps, time), unsqueeze(op, lengths, [1]), _BOOL)
    logits = op.transpose(x, (1, 0, 2))
    best = op.emit("ArgMax", [logits], (batch, time), _INT64, axis=2, keepdims=0)
    last = op.number(blank + (classes if blank < 0 and isinstance(classes, int) else 0), best, "blank")
    kept = two(op, "And", within, one(op, "Not", two(op, "Equal", best, last, _BOOL)))
    if given.number("merge_repeated"):
        before = bordered(op, best, [0, 1], [0, -1], op.number(-1, best, "none"))
        kept = two(op, "And", kept, one(op, "Not", two(op, "Equal", best, before, _BOOL)))
    count = op.tensors.symbol(op.output(1), 0)
    places = op.transpose(op.emit("NonZero", [kept], (2, count), _INT64), (1, 0))
    so_far = op.emit("CumSum", [op.cast(kept, _INT64), op.number(1, op.ints([1]), "axis")], (batch, time))
    before = two(op, "Sub", op.emit("GatherND", [so_far, places], (count,)), op.number(1, so_far, "one"))
    rows = op.emit("Gather", [places, op.ints([0], "row")], (count, 1), axis=1)
    op.result(joined(op, [rows, unsqueeze(op, before, [1])], 1), 0)
    op.result(op.emit("GatherND", [best, places], (count,)), 1)
    longest = op.emit("ReduceMax", [so_far], (), keepdims=0)
    longest = op.emit("Reshape", [longest, op.ints([1], "shape")], (1,))
    op.result(joined(op, [op.emit("Shape", [so_far], (1,), _INT64, start=0, end=1), longest], 0), 2)
    greatest = op.emit("ReduceMax", [logits, op.ints([2])], (batch, time), keepdims=0)
    valid = op.emit("Where", [within, greatest, op.number(0, x, "zero")], (batch, time), x.dtype)
    op.result(one(op, "Neg", op.emit("ReduceSum", [valid, op.ints([1])], (batch, 1), keepdims=1)), 3)
