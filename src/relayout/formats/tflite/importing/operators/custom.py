"""Custom operators: their options, and those that are carried over as they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from relayout.errors import ReadError
from relayout.formats.tflite.container.flexbuffer import FlexValue, parse
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.program import NO_TRANSLATION
from relayout.formats.tflite.importing.registry import ANY_OPSET, Entry, Unsupported

_LARGEST = float(np.finfo(np.float32).max)


class Options:
    """The options of a custom operator: a FlexBuffer map."""

    def __init__(self, op: Operation) -> None:
        self.op = op
        found = parse(np.asarray(op.operator.custom_options).tobytes(), op.place)
        if not isinstance(found, dict):
            raise ReadError(f"the options of {op.operator.name} are no map", where=op.place)
        self.found = found

    def number(self, name: str, default: float | None = None) -> float:
        """A number; a boolean counts as one."""
        value = self.found.get(name, default)
        if not isinstance(value, int | float):
            raise ReadError(f"{self.op.operator.name} lacks the option {name}", where=self.op.place)
        if not abs(value) <= _LARGEST:
            raise ReadError(f"the option {name} is {value}", where=self.op.place)
        return float(value)

    def count(self, name: str, default: int | None = None, most: int = 1 << 31) -> int:
        """A whole number from 1 on."""
        value = self.number(name, default)
        if not (1 <= value <= most and value == int(value)):
            raise ReadError(f"the option {name} is {value}", where=self.op.place)
        return int(value)


def carried_over(op: Operation) -> None:
    """The same operator in a domain of the user's choice, its options as attributes.

    1. Operands and results are what the file's tensors hold: integers where those are quantized.
    2. Each number, text, or list of numbers or texts in a FlexBuffer map becomes an attribute of its name.
    3. What is no such map becomes one attribute, `custom_options`, a tensor of its bytes.
    """
    name = op.operator.name.removeprefix("CUSTOM ")
    if (domain := op.program.choices.custom_ops.get(name)) is None:
        raise Unsupported(NO_TRANSLATION)
    op.program.domains.setdefault(domain, 1)
    results = [op.output(i) for i in range(len(op.operator.outputs))]
    outputs = [
        (op.hint("custom"), op.tensors.plain_dtype(tensor), op.out_dims(op.tensors.declared(tensor), i))
        for i, tensor in enumerate(results)
    ]
    inputs = [op.raw(i) if op.has(i) else None for i in range(len(op.operator.inputs))]
    values = op.builder.emit(name, inputs, outputs, source=op.source, domain=domain)
    node = values[0].producer()
    for attribute in ir.convenience.convert_attributes(_attributes(np.asarray(op.operator.custom_options).tobytes())):
        if node is not None:
            node.attributes.add(attribute)
    for i, value in enumerate(values):
        op.result_stored(value, i)


def _attributes(options: bytes) -> dict[str, Any]:
    if not options:
        return {}
    try:
        found = parse(options)
    except ReadError:
        found = None  # options of another kind: a struct, for one
    if not isinstance(found, dict):
        return {"custom_options": _bytes(options)}
    made = {name: _attribute(value) for name, value in found.items()}
    if "" in made or any(value is None for value in made.values()):
        return {"custom_options": _bytes(options)}
    return made


def _bytes(content: bytes) -> ir.TensorProtocol:
    return ir.Tensor(np.frombuffer(content, np.uint8))


def _attribute(value: FlexValue) -> Any:
    """Return what ONNX can hold: numbers, texts, and lists of them, all of one kind; None for anything else."""
    if isinstance(value, int):
        return int(value) if abs(value) < 1 << 63 else None
    if isinstance(value, float | str):
        return value
    if isinstance(value, bytes):
        return _bytes(value)
    if isinstance(value, list) and value:
        if all(isinstance(v, int) and abs(v) < 1 << 63 for v in value):
            return [int(v) for v in value if isinstance(v, int)]
        if all(isinstance(v, int | float) for v in value):
            return [float(v) for v in value if isinstance(v, int | float)]
        if all(isinstance(v, str) for v in value):
            return value
    return None


CARRIED = Entry("CUSTOM", carried_over, "", texts=ANY_OPSET)
"""What an operator falls back to that has no translation of its own."""
