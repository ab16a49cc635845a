"""Operators of TensorFlow that put rows into tensors by index, and are left to the Flex delegate."""

from __future__ import annotations

import onnx_ir as ir

from relayout.formats.tflite.builder import dims
from relayout.formats.tflite.operation import Operation
from relayout.formats.tflite.operators.elementwise import one
from relayout.formats.tflite.registry import Translation, described, operator

_INT64 = ir.DataType.INT64


def _scatter(reduction: str, negative: bool = False) -> Translation:
    def translate(op: Operation) -> None:
        x, indices, updates = op.stored(0), op.cast(op.stored(1), _INT64), op.stored(2)
        updates = one(op, "Neg", updates) if negative else updates
        op.result(op.emit("ScatterND", [x, indices, updates], dims(x), reduction=reduction))

    what = "that replaces" if reduction == "none" else f"reduction {reduction}" + ", of Neg" * negative
    return described(translate, f"tensor_scatter_{reduction}", f"ScatterND, {what}.")


for _name, _reduction in {"Add": "add", "Max": "max", "Min": "min", "Sub": "add", "Update": "none"}.items():
    operator(f"CUSTOM FlexTensorScatter{_name}")(_scatter(_reduction, negative=_name == "Sub"))
