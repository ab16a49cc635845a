"""Operators of TensorFlow that put rows into tensors by index, and are left to the Flex delegate."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from relayout.errors import ReadError
from relayout.formats.tflite.importing.builder import dims
from relayout.formats.tflite.importing.extents import product
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.operators.elementwise import one, two
from relayout.formats.tflite.importing.operators.gathering import counted
from relayout.formats.tflite.importing.operators.shape import scalar
from relayout.formats.tflite.importing.operators.slicing import unsqueeze
from relayout.formats.tflite.importing.operators.tensorflow import attributes
from relayout.formats.tflite.importing.registry import Translation, described, operator

_BOOL, _INT64 = ir.DataType.BOOL, ir.DataType.INT64


def _scatter(reduction: str, negative: bool = False) -> Translation:
    def translate(op: Operation) -> None:
        x, indices, updates = op.stored(0), op.cast(op.stored(1), _INT64), op.stored(2)
        updates = one(op, "Neg", updates) if negative else updates
        op.result(op.emit("ScatterND", [x, indices, updates], dims(x), reduction=reduction))

    what = "that replaces" if reduction == "none" else f"reduction {reduction}" + ", of Neg" * negative
    return described(translate, f"tensor_scatter_{reduction}", f"ScatterND, {what}.")


for _name, _reduction in {"Add": "add", "Max": "max", "Min": "min", "Sub": "add", "Update": "none"}.items():
    operator(f"CUSTOM FlexTensorScatter{_name}")(_scatter(_reduction, negative=_name == "Sub"))


@operator("CUSTOM FlexDenseBincount")
def bincount(op: Operation) -> None:
    """ScatterND that adds ones, or weights, to zeros; what is beyond the last bin counts in one more, cut off again."""
    x, weights = op.cast(op.stored(0), _INT64), op.stored(2)
    shape, rank = dims(x), len(dims(x))
    if rank not in (1, 2):
        raise ReadError(f"{op.operator.name} of rank {rank}", where=op.place)
    known = op.integers(1, 1)[0] if op.is_constant(1) else None
    size = scalar(op, op.cast(op.stored(1), _INT64)) if known is None else op.number(known, x, "size")
    more = two(op, "Add", size, op.number(1, x, "one"))
    x, total = two(op, "Min", x, size), more
    out = op.out_dims((*shape[:-1], known))
    if rank == 2:  # the bins of a row behind those of the row before
        rows = scalar(op, op.emit("Shape", [x], (1,), _INT64, start=0, end=1))
        places = two(op, "Mul", counted(op, rows, shape[0]), more)
        x, total = two(op, "Add", x, unsqueeze(op, places, [1])), two(op, "Mul", rows, more)
    vector = op.ints([1], "vector")
    zeros = op.emit("Expand", [op.number(0, weights, "zero"), op.emit("Reshape", [total, vector], (1,))], (None,))
    binary = attributes(op).number("binary_output")
    if binary or 0 in dims(weights):
        extents = op.emit("Shape", [x], (rank,), _INT64)
        weights = op.emit("Expand", [op.number(1, weights, "one"), extents], shape)
    reduction = "max" if binary else "add"
    y = op.emit("ScatterND", [zeros, unsqueeze(op, x, [rank]), weights], (None,), reduction=reduction)
    if rank == 2:
        target = op.emit("Concat", [op.ints([-1], "rows"), op.emit("Reshape", [more, vector], (1,))], (2,), axis=0)
        y = op.emit("Reshape", [y, target], (shape[0], None if known is None else known + 1))
    ends = [op.ints(values, name) for values, name in (([0], "starts"), ([-1], "ends"), ([rank - 1], "axes"))]
    op.result(op.emit("Slice", [y, *ends], out))


@operator("CUSTOM FlexDynamicPartition")
def dynamic_partition(op: Operation) -> None:
    """Gather of the rows of each part where they are known, else Compress."""
    x, parts, count = op.stored(0), op.stored(1), len(op.operator.outputs)
    rank = len(dims(parts))
    pairs = list(zip(dims(x), dims(parts), strict=False))
    if len(pairs) < rank or any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs):
        raise ReadError(f"parts of shape {list(dims(parts))} for {list(dims(x))}", where=op.place)
    rest = dims(x)[rank:]
    if rank != 1:
        many = product(dims(parts))
        x, parts = op.reshape(x, (many, *rest)), op.reshape(parts, (many,))
    known = op.constant(1).reshape(-1) if op.is_constant(1) else None
    for k in range(count):
        if known is not None:
            rows = np.flatnonzero(known == k)
            op.result(op.emit("Gather", [x, op.builder.array(op.hint("rows"), rows)], (rows.size, *rest), axis=0), k)
            continue
        here = two(op, "Equal", parts, op.number(k, parts, "part"), ir.DataType.BOOL)
        op.result(op.emit("Compress", [x, here], (op.tensors.symbol(op.output(k), 0), *rest), axis=0), k)
