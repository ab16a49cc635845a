"""Element types of an interface: `--input-type uint8`, `--output-type float32`, and `--input-type int32` for ids.

Inputs and outputs of int64 become such of int32, with a Cast between them and the graph.

An input is quantized if DequantizeLinears alone read its integers, or QuantizeLinears alone its real numbers, all with
one scale and zero point, perhaps behind Transposes and Reshapes; an output likewise, by what gives it. Between such an
end and the graph come a DequantizeLinear, a QuantizeLinear, or both. Every value inside stays what it was.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from relayout.errors import LayoutError
from relayout.graph.quantized_unit import DEQUANTIZE, QUANTIZE, QUANTIZING_DOMAINS, VIEWS
from relayout.lowering.constants import Constants
from relayout.rules.quantization import undoes

TYPES = {
    "float32": ir.DataType.FLOAT,
    "int8": ir.DataType.INT8,
    "uint8": ir.DataType.UINT8,
    "int32": ir.DataType.INT32,
}
"""The types that can be asked for."""
REAL = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE)
"""The types of inputs that may be fed as pixels where the model normalizes them."""
HIGHER = {ir.DataType.INT8: 0, ir.DataType.UINT8: 128}
"""Type of integers -> how much higher they lie than those of int8 that mean the same."""


class _Quantization(NamedTuple):
    """The meaning of integers: their type, one scale and one zero point."""

    dtype: ir.DataType
    scale: float
    zero_point: int

    def of_type(self, dtype: ir.DataType) -> "_Quantization":
        """Return the quantization of these numbers as integers of another type."""
        return _Quantization(dtype, self.scale, self.zero_point - HIGHER[self.dtype] + HIGHER[dtype])


def set_interface_types(
    model: ir.Model, inputs: str | None, outputs: str | None, normalized: Collection[str] = ()
) -> tuple[str, ...]:
    """Give the quantized inputs and outputs of a model other element types, in place.

    Args:
        model: the model. Ends that are not quantized stay as they are.
        inputs: `float32`, `int8` or `uint8` for inputs, or `int32` for those of int64; None leaves them.
        outputs: the same for outputs.
        normalized: inputs that the model will normalize itself: real numbers of these may be fed as integers, too.

    Returns:
        A sentence for the report about each end that changed.

    Raises:
        LayoutError: none of the inputs, or of the outputs, is quantized, or of int64.
    """
    ends = _Ends(model)
    told: list[str] = []
    sides = (("input", inputs, model.graph.inputs), ("output", outputs, model.graph.outputs))
    for side, asked, values in sides:
        if asked is None:
            continue
        if TYPES[asked] == ir.DataType.INT32:
            told += ends.shorten(side, values)
            continue
        quantized = [(value, known) for value in values if (known := ends.quantization(value, side)) is not None]
        fed = [value for value in values if value.name in normalized and value.dtype in REAL]
        if not quantized and not (side == "input" and fed and TYPES[asked] in HIGHER):
            types = ", ".join(f"{value.name} is {_name(value.dtype)}" for value in values[:4]) or "there are none"
            said = f"--{side}-type {asked}: no {side} is quantized with 8 bits and one scale ({types})"
            raise LayoutError(f"{said}; {_remedy(side, asked)}")
        for value, quantization in quantized:
            name, before, dtype = value.name, value.dtype, TYPES[asked]
            if before != dtype:
                (ends.change_input if side == "input" else ends.change_output)(value, quantization, dtype)
                told.append(f"{side} {name}: {_name(before)} in the source, {asked} here")
    return tuple(told)


def _remedy(side: str, asked: str) -> str:
    if asked == "float32":
        return f"leave --{side}-type out"
    if side == "output" or asked != "uint8":
        return "quantize the model first (docs/how-to/onnx-to-litert.md, Quantized models)"
    return "--normalize INPUT=MEAN:STD beside it makes real numbers of pixels (docs/how-to/interface.md, Raw pixels)"


def integer_ends(model: ir.Model) -> dict[str, tuple[float, int]]:
    """Return the quantized inputs and outputs that are integers, by name -> their scale and zero point."""
    ends = _Ends(model)
    found: dict[str, tuple[float, int]] = {}
    for side, values in (("input", model.graph.inputs), ("output", model.graph.outputs)):
        for value in values:
            known = ends.quantization(value, side) if value.dtype in HIGHER and value.name else None
            if known is not None:
                found[value.name or ""] = (known.scale, known.zero_point)
    return found


def _name(dtype: ir.DataType | None) -> str:
    return next((name for name, each in TYPES.items() if each == dtype), "?" if dtype is None else dtype.name.lower())


class _Ends:
    def __init__(self, model: ir.Model) -> None:
        self.graph = model.graph
        self.constants = Constants(model)

    def quantization(self, value: ir.Value, side: str) -> _Quantization | None:
        """Return what the integers of an end mean, or would mean; None if it is not quantized."""
        first, second = (DEQUANTIZE, QUANTIZE) if side == "input" else (QUANTIZE, DEQUANTIZE)
        kind = first if value.dtype in HIGHER else second
        nodes = _readers(value) if side == "input" else [_producer(value)]
        known = {self._stated(node) if node is not None and _is(node, kind) else None for node in nodes}
        return known.pop() if len(known) == 1 else None

    def shorten(self, side: str, values: Sequence[ir.Value]) -> list[str]:
        """Let inputs, or outputs, of int64 have int32; return a sentence about each.

        Raises:
            LayoutError: none is of int64.
        """
        long = [value for value in values if value.dtype == ir.DataType.INT64]
        if not long:
            types = ", ".join(f"{value.name} is {_name(value.dtype)}" for value in values[:4]) or "there are none"
            raise LayoutError(f"--{side}-type int32: no {side} is int64 ({types}); leave --{side}-type out")
        names = [value.name or "" for value in long]
        for name, value in zip(names, long, strict=True):
            if side == "input":
                readers = list(value.uses())
                value.dtype = ir.DataType.INT32
                node = self._cast(value, ir.DataType.INT64)
                for use in readers:
                    use.node.replace_input_with(use.idx, node.outputs[0])
                self.graph.insert_before(self.graph[0], node)
            else:
                value.name = self.constants.names.unique(f"{name}/int64")
                node = self._cast(value, ir.DataType.INT32)
                node.outputs[0].name = name
                node.outputs[0].metadata_props.update(value.metadata_props)
                self.graph.append(node)
                for place, output in enumerate(self.graph.outputs):
                    if output is value:
                        self.graph.outputs[place] = node.outputs[0]
        return [f"{side} {name}: int64 in the source, int32 here" for name in names]

    def _cast(self, value: ir.Value, dtype: ir.DataType) -> ir.Node:
        """Return a Cast of a value."""
        name = self.constants.names.unique(f"{value.name}/{dtype.name.lower()}")
        result = ir.Value(name=name, type=ir.TensorType(dtype), shape=value.shape)
        return ir.Node("", "Cast", [value], [ir.AttrInt64("to", int(dtype))], outputs=[result], name=name)

    def _stated(self, node: ir.Node) -> _Quantization | None:
        """Return what a node says of its integers; None where they have no 8 bits, or several scales."""
        integers = node.inputs[0] if node.op_type == DEQUANTIZE else node.outputs[0]
        has_zero = len(node.inputs) > 2 and node.inputs[2] is not None
        scale = self.constants.array(node.inputs[1])
        zero = self.constants.array(node.inputs[2]) if has_zero else np.zeros((), np.int8)
        if integers is None or integers.dtype not in HIGHER or scale is None or zero is None:
            return None
        if scale.size != 1 or zero.size != 1 or scale.dtype != np.float32:
            return None
        return _Quantization(integers.dtype, float(scale.reshape(-1)[0]), int(zero.reshape(-1)[0]))

    def change_input(self, value: ir.Value, quantization: _Quantization, dtype: ir.DataType) -> None:
        """Let an input have another type."""
        readers = list(value.uses())
        before, value.dtype = value.dtype, dtype
        chain = self._chain(value, quantization, dtype, before)
        for use in readers:
            use.node.replace_input_with(use.idx, chain[-1].outputs[0])
        for node in reversed(chain):
            self.graph.insert_before(self.graph[0], node)
        for use in readers:  # what was quantized again is the input itself
            if use.node.op_type == QUANTIZE and undoes(use.node, chain[-1]):
                use.node.outputs[0].replace_all_uses_with(value, replace_graph_outputs=False)
                self._drop(use.node)
        for node in reversed(chain):
            self._drop(node)

    def change_output(self, value: ir.Value, quantization: _Quantization, dtype: ir.DataType) -> None:
        """Let an output have another type. The value of the graph gets another name."""
        name = value.name
        value.name = self.constants.names.unique(f"{name}/{_name(value.dtype)}")
        chain = self._chain(value, quantization, value.dtype, dtype)
        end = chain[-1].outputs[0]
        end.name = name
        end.metadata_props.update(value.metadata_props)
        self.graph.extend(chain)
        for place, output in enumerate(self.graph.outputs):
            if output is value:
                self.graph.outputs[place] = end

    def _chain(
        self, value: ir.Value, quantization: _Quantization, begin: ir.DataType | None, end: ir.DataType | None
    ) -> list[ir.Node]:
        """Return the nodes from a value of one type to one of another that means the same."""
        nodes: list[ir.Node] = []
        if begin in HIGHER:
            nodes.append(self._node(DEQUANTIZE, value, quantization.of_type(begin)))
            value = nodes[-1].outputs[0]
        if end in HIGHER:
            nodes.append(self._node(QUANTIZE, value, quantization.of_type(end)))
        return nodes

    def _node(self, kind: str, value: ir.Value, quantization: _Quantization) -> ir.Node:
        integers = np.uint8 if quantization.dtype == ir.DataType.UINT8 else np.int8
        scale = self.constants.new("interface_scale", np.array(quantization.scale, np.float32))
        zero = self.constants.new("interface_zero_point", np.array(quantization.zero_point, integers))
        name = self.constants.names.unique(f"{value.name}/{kind}")
        dtype = ir.DataType.FLOAT if kind == DEQUANTIZE else quantization.dtype
        result = ir.Value(name=name, type=ir.TensorType(dtype), shape=value.shape)
        return ir.Node("", kind, [value, scale, zero], outputs=[result], name=name)

    def _drop(self, node: ir.Node) -> None:
        """Remove a node that nothing reads any longer."""
        if not any(value.uses() or value.is_graph_output() for value in node.outputs):
            self.graph.remove(node, safe=True)


def _readers(value: ir.Value) -> list[ir.Node | None]:
    """The nodes that read a value, behind Transposes and Reshapes; None among them where an output is one."""
    found: list[ir.Node | None] = []
    ahead = [value]
    while ahead:
        each = ahead.pop()
        if each.is_graph_output():
            found.append(None)
        for use in each.uses():
            if use.node.op_type in VIEWS and not use.node.domain:
                ahead.append(use.node.outputs[0])
            else:
                found.append(use.node)
    return found


def _producer(value: ir.Value) -> ir.Node | None:
    """The node that gives a value, before Transposes and Reshapes."""
    node = value.producer()
    while node is not None and node.op_type in VIEWS and not node.domain:
        before = node.inputs[0] if node.inputs else None  # a damaged file
        node = None if before is None else before.producer()
    return node


def _is(node: ir.Node, kind: str) -> bool:
    return node.op_type == kind and node.domain in QUANTIZING_DOMAINS
