"""Custom operators: those that are carried over as they are."""

from __future__ import annotations

from relayout.formats.tflite.builder import dims
from relayout.formats.tflite.flexbuffer import FlexValue, parse
from relayout.formats.tflite.operation import Operation
from relayout.formats.tflite.registry import Entry, Unsupported


def carried_over(op: Operation) -> None:
    """The same operator in a domain of the user's choice, its options as attributes."""
    name = op.operator.name.removeprefix("CUSTOM ")
    domain = op.program.choices.custom_ops.get(name)
    if domain is None:
        raise Unsupported("no translation")
    op.program.domains.setdefault(domain, 1)
    count = len(op.operator.outputs)
    outputs = []
    for i in range(count):
        tensor = op.output(i)
        outputs.append((op.hint("custom"), op.tensors.plain_dtype(tensor), op.out_dims(op.tensors.declared(tensor), i)))
    inputs = [op.raw(i) if op.has(i) else None for i in range(len(op.operator.inputs))]
    attributes = _attributes(op.operator.custom_options.tobytes())
    for i, value in enumerate(op.builder.emit(name, inputs, outputs, source=op.source, domain=domain, **attributes)):
        op.result_stored(value, i)
    _ = dims


def _attributes(options: bytes) -> dict[str, FlexValue]:
    return {}


CARRIED = Entry("CUSTOM", carried_over, "")
