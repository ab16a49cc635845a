"""Quantizers of QONNX (Brevitas, FINN) as operators of the standard.

    Quant(x, scale, zero_point, bits)  ->  DequantizeLinear(QuantizeLinear(x, scale, zero_point), scale, zero_point)
    Quant(w, scale, zero_point, bits)  ->  DequantizeLinear(integers of w, scale, zero_point)
    Quant(x, scale, zero_point, bits)  ->  Mul(Sub(Round(Clip(Add(Div(x, scale), zero_point))), zero_point), scale)

The first two where up to 8 bits suffice, scale and zero point are constants, and the nearest integer is taken: kernels
of integers read these. The third form is QONNX's own definition.

Source: https://github.com/fastmachinelearning/qonnx/tree/main/docs/qonnx-custom-ops
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.formats.onnx.replacing import Writing
from relayout.graph.domains import MICROSOFT
from relayout.graph.quantized_unit import DEQUANTIZE, QUANTIZE, VIEWS
from relayout.graph.source_names import Names, label
from relayout.graph.subgraphs import all_graphs, all_nodes, take_over
from relayout.graph.walks import known_tensor

DOMAINS = ("qonnx.custom_op.general", "onnx.brevitas", "finn.custom_op.general", "finn")
"""The domain under which QONNX, Brevitas and FINN have written these operators."""
FIRST = 13  # the first opset in which a QuantizeLinear has a scale for each channel; com.microsoft has it for any opset
CLIPS_INTEGERS = 12  # the first opset in which Clip takes integers
INT8 = np.iinfo(np.int8)  # the integers that are written
BYTE = 8
POSITIVE = "relayout.qonnx.positive"
"""In the `meta` of a value while quantizers are written: that it has no numbers below 0."""
POSITIVE_RESULTS = ("Abs", "Relu", "Sigmoid", "Softmax")
KEEP_SIGNS = (
    *VIEWS,
    *("AveragePool", "Dropout", "GlobalAveragePool", "GlobalMaxPool", "MaxPool", "ReduceMax", "ReduceMean", "Slice"),
)
"""Operators whose results have no numbers below 0, and those of which that holds where their operand has none."""
PARAMETERS = "relayout.qonnx.parameters"
"""In the `meta` of a value while quantizers are written: its scale and its zero point, which hold for all channels."""
CHOICES = ("GlobalMaxPool", "MaxPool", "ReduceMax")  # operators that pick some numbers of their operand; views keep all
NEAREST = ("ROUND", "HALF_EVEN")  # rounding modes that are QuantizeLinear's


def define_quantizers(
    model: ir.Model,  # what new nodes give has no types and shapes yet
    names: Names,  # of all its values; it grows
    *,
    by_integers: bool = True,  # whether to write QuantizeLinear and DequantizeLinear where they do; else QONNX's own
) -> bool:
    """Write quantizers of QONNX by operators of the standard, in place; return whether there were any."""
    version = model.opset_imports.get("", 1)
    changes = [
        QUANTIZERS[node.op_type](graph, node, names, version).run(by_integers=by_integers)
        for graph in all_graphs(model.graph)
        for node in list(graph)
        if node.domain in DOMAINS and node.op_type in QUANTIZERS
    ]
    if not any(changes):
        return False
    if not by_integers:
        return True
    if any(node.domain == MICROSOFT for node in all_nodes(model.graph)):
        model.opset_imports.setdefault(MICROSOFT, 1)
    for graph in all_graphs(model.graph):
        for node, behind in pairwise(list(graph)):
            _quantize_choice(node, _Quantizer(graph, behind, names, version))
    return True


class _Range(NamedTuple):
    """The integers of a quantizer, and whether they have a sign."""

    least: int
    greatest: int
    is_signed: bool

    def fit(self, *, is_weight: bool) -> bool:
        """Return whether int8 holds them: of weights as they are, else moved."""
        if is_weight:
            return INT8.min <= self.least and self.greatest <= INT8.max
        return self.greatest - self.least <= INT8.max - INT8.min


class _Quantizer(Writing):
    """A quantizer that others take the place of."""

    def run(self, *, by_integers: bool) -> bool:
        """Write it by others, of these by QuantizeLinear if asked to; return whether that could be done."""
        raise NotImplementedError

    def constant_of(self, slot: int) -> NDArray[Any] | None:
        """Return an operand; None where it is not known before a run."""
        known = known_tensor(self.node.inputs[slot] if slot < len(self.node.inputs) else None)
        return None if known is None else known.numpy()

    def step(self, op_type: str, *inputs: ir.Value | float) -> ir.Value:
        """Add an elementwise node; return its result. Numbers are constants of the scale's type."""
        scale = self.node.inputs[1]
        kind = (None if scale is None else scale.dtype) or ir.DataType.FLOAT
        operands = [
            each if isinstance(each, ir.Value) else self.constant(np.array(each, kind.numpy())) for each in inputs
        ]
        return self.add(op_type, operands)

    def give(self, result: ir.Value) -> bool:
        """Let a result of a new node be what the quantizer gave, and remove the quantizer."""
        take_over(result, self.node.outputs[0])
        self.graph.remove(self.node, safe=True)
        return True

    def linear(self, op_type: str, value: ir.Value, parameters: Sequence[ir.Value], axis: int) -> ir.Value:
        """Add a QuantizeLinear or a DequantizeLinear, with a scale for each place along an axis but 0."""
        result = self.add(op_type, [value, *parameters], **({"axis": axis} if axis else {}))
        producer = result.producer()
        assert producer is not None
        producer.domain = "" if self.version >= FIRST else MICROSOFT
        return result

    def bits(self, slot: int) -> int | None:
        """Return a number of bits; None where it is not known, or none."""
        number = self.constant_of(slot)
        is_whole = number is not None and number.size == 1 and float(number.item()).is_integer() and number.item() >= 1
        return int(number.item()) if is_whole and number is not None else None

    def range(self, bits: int) -> _Range:
        """Return the integers of so many bits, as the node's attributes ask for them."""
        is_signed = bool(self.node.attributes.get_int("signed", 1))
        is_narrow = int(self.node.attributes.get_int("narrow", 1 if self.node.op_type in ALIASES else 0))
        if is_signed:
            return _Range(is_narrow - 2 ** (bits - 1), 2 ** (bits - 1) - 1, is_signed)
        return _Range(0, 2**bits - 1 - is_narrow, is_signed)

    def mode(self, default: str) -> str:
        """Return the rounding mode, in capitals."""
        return (self.node.attributes.get_string("rounding_mode", default) or default).upper()

    def sign(self, value: ir.Value) -> ir.Value:
        """Add what gives -1 for numbers below 0, and 1 for others."""
        return self.step("Where", self.step("Less", value, 0), -1, 1)

    def rounded(self, value: ir.Value, mode: str) -> ir.Value:
        """Add what rounds by a mode of `ROUNDING`."""
        if mode in NEAREST:
            return self.step("Round", value)
        if mode in ("CEIL", "FLOOR"):
            return self.step(mode.capitalize(), value)
        size = self.step("Abs", value)
        if mode == "HALF_UP":
            size = self.step("Add", size, 0.5)
        elif mode == "HALF_DOWN":
            size = self.step("Sub", size, 0.5)
        whole = self.step("Ceil" if mode in ("UP", "HALF_DOWN") else "Floor", size)
        return self.step("Mul", whole, self.step("Sign", value))


ROUNDING = (*NEAREST, "CEIL", "FLOOR", "UP", "DOWN", "HALF_UP", "HALF_DOWN")
ALIASES = ("Quant", "IntQuant")


class _Bipolar(_Quantizer):
    """BipolarQuant: the scale, or less the scale for numbers below 0."""

    def run(self, *, by_integers: bool) -> bool:
        x, scale = self.node.inputs[:2]
        if x is None or scale is None:
            return False
        return self.give(self.step("Mul", self.sign(x), scale))


class _Quant(_Quantizer):
    """Quant and IntQuant."""

    def run(self, *, by_integers: bool) -> bool:
        x, scale, zero_point = self.node.inputs[:3]
        bits, mode = self.bits(3), self.mode("ROUND")
        if x is None or scale is None or zero_point is None or bits is None or mode not in ROUNDING:
            return False
        integers = self.range(bits)
        if bits == 1 and integers.is_signed:
            shifted = self.step("Add", self.step("Div", x, scale), zero_point)
            return self.give(self._real(self.sign(shifted), scale, zero_point))
        if by_integers and mode in NEAREST and bits <= BYTE and self._give_integers(x, integers):
            return True
        shifted = self.step("Add", self.step("Div", x, scale), zero_point)
        clipped = self.step("Min", self.step("Max", shifted, integers.least), integers.greatest)
        return self.give(self._real(self.rounded(clipped, mode), scale, zero_point))

    def _real(self, integers: ir.Value, scale: ir.Value, zero_point: ir.Value) -> ir.Value:
        return self.step("Mul", self.step("Sub", integers, zero_point), scale)

    def _give_integers(self, x: ir.Value, integers: _Range) -> bool:
        """Write QuantizeLinear and DequantizeLinear; return whether their scales and zero points hold these numbers."""
        scale, zero_point, weights = self.constant_of(1), self.constant_of(2), self.constant_of(0)
        if scale is None or zero_point is None or scale.dtype != np.float32:
            return False
        axis = _common_axis(x, scale, zero_point)
        if axis is None:
            return False
        zeros = np.broadcast_to(zero_point.reshape(-1), scale.size)
        # Integers are moved, so that the upper end of their range is that of int8, which saturates; weights keep a zero
        # point of 0. A number between two integers goes to the even one, before or after the zero point is added.
        move = integers.greatest - INT8.max if weights is None else 0
        if np.any(zeros % 2) or scale.min() <= 0 or not integers.fit(is_weight=weights is not None):
            return False
        if (zeros - move).min() < INT8.min or (zeros - move).max() > INT8.max:
            return False
        stored_zeros = (zeros - move).reshape(-1 if axis else ()).astype(np.int8)
        parameters = [self.constant(scale.reshape(-1 if axis else ())), self.constant(stored_zeros)]
        if weights is not None:
            whole = np.round(np.clip(weights / scale + zero_point, integers.least, integers.greatest))
            return self._give_real(self.constant(whole.astype(np.int8)), parameters, axis)
        is_positive = not zeros.any() and not integers.least
        smallest = None if is_positive else np.asarray((integers.least - zero_point) * scale, np.float32)
        stored = self._clipped_integers(x, smallest, integers.least - move, parameters, axis)
        return self._give_real(stored, parameters, axis, is_positive=is_positive)

    def _clipped_integers(
        self,
        x: ir.Value,  # the real numbers
        smallest: NDArray[Any] | None,  # the real number that the least integer stands for; None: 0
        least: int,  # that integer
        parameters: Sequence[ir.Value],  # scale and zero point
        axis: int,  # where they differ along one; else 0
    ) -> ir.Value:
        """Add a QuantizeLinear and what cuts the lower end; return the integers."""
        if least == INT8.min:
            return self.linear(QUANTIZE, x, parameters, axis)
        if smallest is None:
            return self.linear(QUANTIZE, x if _is_positive(x) else self.add("Relu", [x]), parameters, axis)
        if self.version < CLIPS_INTEGERS:
            return self.linear(QUANTIZE, self.add("Max", [x, self.constant(smallest)]), parameters, axis)
        stored = self.linear(QUANTIZE, x, parameters, axis)
        return self.add("Clip", [stored, self.constant(np.array(least, np.int8))])

    def _give_real(
        self, stored: ir.Value, parameters: Sequence[ir.Value], axis: int, *, is_positive: bool = False
    ) -> bool:
        real = self.linear(DEQUANTIZE, stored, parameters, axis)
        real.meta[POSITIVE] = is_positive
        if not axis:
            real.meta[PARAMETERS] = parameters
        return self.give(real)


def _quantize_choice(
    node: ir.Node,
    behind: _Quantizer,  # what writes nodes behind it
) -> None:
    """Quantize what a node gives that picks some of its operand's numbers, with that one's scale, in place.

    Quant, MaxPool, Conv  ->  …, DequantizeLinear, MaxPool, QuantizeLinear, DequantizeLinear, Conv

    No number changes: it is a quantized unit then, as kernels of integers want it.
    """
    operand = node.inputs[0] if node.inputs and not node.domain else None
    parameters = None if operand is None else operand.meta.get(PARAMETERS)
    if parameters is None or node.op_type not in (*VIEWS, *CHOICES):
        return
    result = node.outputs[0]
    result.meta[PARAMETERS] = parameters
    readers = list(result.uses())
    if node.op_type in VIEWS or not readers:
        return
    behind.stem = label(node)
    real = behind.linear(DEQUANTIZE, behind.linear(QUANTIZE, result, parameters, 0), parameters, 0)
    real.meta[PARAMETERS] = parameters
    for reader in readers:
        reader.node.replace_input_with(reader.idx, real)


def _is_positive(value: ir.Value | None) -> bool:
    """Return whether a value is known to have no numbers below 0."""
    while value is not None and not value.meta.get(POSITIVE):
        node = value.producer()
        if node is None or node.domain:
            return False
        if node.op_type in POSITIVE_RESULTS:
            return True
        value = node.inputs[0] if node.op_type in KEEP_SIGNS else None
    return value is not None


def axis_of(shape: tuple[int, ...]) -> int | None:
    """Return the axis along which a scale differs, counted from behind; 0 for one scale, None for several axes."""
    axes = [place - len(shape) for place, extent in enumerate(shape) if extent != 1]
    return None if len(axes) > 1 else axes[0] if axes else 0


def _common_axis(x: ir.Value, scale: NDArray[Any], zero_point: NDArray[Any]) -> int | None:
    """Return `axis_of` a scale; None where its zero point differs along another, or where it stretches the data."""
    axis = axis_of(scale.shape)
    if axis is None or zero_point.size not in (1, scale.size):
        return None
    if zero_point.size > 1 and axis_of(zero_point.shape) != axis:
        return None
    if x.shape is not None and (x.shape.rank() < scale.ndim or (axis and x.shape[axis] == 1 != scale.size)):
        return None
    return axis


class _Trunc(_Quantizer):
    """Trunc: the integers of one number of bits lose their last ones."""

    def run(self, *, by_integers: bool) -> bool:
        x, scale, zero_point = self.node.inputs[:3]
        mode, scales = self.mode("FLOOR"), self._scales()
        if x is None or scale is None or zero_point is None or mode not in ROUNDING or scales is None:
            return False
        ratio, output_scale, ends = scales
        nearest = self.step("Round", self.step("Add", self.step("Div", x, scale), zero_point))
        fewer = self.step("Div", nearest, ratio)
        if ends is not None:
            fewer = self.step("Min", self.step("Max", fewer, ends.least), ends.greatest)
        zeros = zero_point if ends is None else self.step("Div", zero_point, ratio)
        real = self.step("Sub", self.rounded(fewer, mode), zeros)
        return self.give(self.step("Mul", real, scale if output_scale is None else output_scale))

    def _scales(self) -> tuple[float, ir.Value | None, _Range | None] | None:
        """Return what integers are divided by, the result's scale and its integers; None where they are not known.

        Version 1 has the numbers of bits before and after, and keeps the scale; version 2 also has the scale after.
        """
        if len(self.node.inputs) == 5:
            before, after = self.bits(3), self.bits(4)
            return None if before is None or after is None else (2.0 ** (before - after), None, None)
        if len(self.node.inputs) != 6:
            return None
        scale, output_scale, bits = self.constant_of(1), self.constant_of(4), self.bits(5)
        if scale is None or output_scale is None or bits is None or scale.size != 1 or output_scale.size != 1:
            return None
        ratio = 2.0 ** float(np.round(np.log2(output_scale.item() / scale.item())))
        return ratio, self.node.inputs[4], self.range(bits)


QUANTIZERS = {"BipolarQuant": _Bipolar, "IntQuant": _Quant, "Quant": _Quant, "Trunc": _Trunc}
