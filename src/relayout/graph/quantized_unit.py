"""Quantized units: an operator between DequantizeLinear and QuantizeLinear, which backends run on integers.

    DequantizeLinear ─┐
    DequantizeLinear ─┼─ operator ─ (Relu or Clip) ─ QuantizeLinear
    DequantizeLinear ─┘

A QuantizeLinear that reads a DequantizeLinear is a unit, too: it gives the same numbers with another scale. Transposes
and Reshapes may stand between the members: who chooses layouts moves them out. A unit is known by its nodes alone;
whether a kernel computes it with these scales is for conditions to say.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.graph.domains import CONVOLUTION, RESIZE
from relayout.graph.subgraphs import all_nodes
from relayout.graph.walks import known_tensor

DEQUANTIZE, QUANTIZE = "DequantizeLinear", "QuantizeLinear"
BOUNDS: Mapping[str, tuple[float, float]] = {"Clip": (-np.inf, np.inf), "Relu": (0.0, np.inf)}
"""Activation -> the bounds that it keeps its operand in, where neither inputs nor attributes say others."""
EPILOGUES = frozenset(BOUNDS)
"""Activations that a kernel applies to its accumulators, or that the range of the result's integers implies."""
RESHAPES = frozenset({"Flatten", "Reshape"})
VIEWS = frozenset({"Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity"})
"""Operators that only look at their operand otherwise."""
QUANTIZING_DOMAINS = ("", "ai.onnx", "com.microsoft")
FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.DOUBLE)
FLOAT_PARAMETERS: Mapping[str, frozenset[int]] = {
    "BatchNormalization": frozenset({1, 2, 3, 4}),
    **dict.fromkeys(
        ["Clip", "GroupNormalization", "InstanceNormalization", "LayerNormalization", RESIZE], frozenset({1, 2})
    ),
    **dict.fromkeys([CONVOLUTION, "ConvTranspose", "Gemm", "Pad"], frozenset({2})),
    "Pow": frozenset({1}),
}
"""Operator -> the inputs that may be real constants in a unit: bounds, scales of an image, a bias, an exponent."""
MOST_STEPS = 16  # views in a row that are followed

# What integers mean: `(integers - zero point) * scale`.

SHIFTS = {ir.DataType.UINT8: 128, ir.DataType.UINT16: 32768}
"""Unsigned types -> how much lower their integers lie once they are signed."""
BYTES = (ir.DataType.INT8, ir.DataType.UINT8)
WORDS = (ir.DataType.INT16, ir.DataType.UINT16)


class Scale(NamedTuple):
    """The meaning of integers, which are signed here, whatever their type is."""

    dtype: ir.DataType  # their type
    scale: NDArray[np.floating[Any]]  # the scales
    zero: NDArray[np.int64]  # zero points, as signed integers have them
    axis: int = 0  # along which there is a scale for each element; 0 where there is one

    @staticmethod
    def one(step: float, zero: int, dtype: ir.DataType) -> "Scale":
        """Return one scale for a tensor."""
        return Scale(dtype, np.array([step]), np.array([zero]))

    @property
    def is_one(self) -> bool:
        """True if there is one scale for the tensor."""
        return self.scale.size == 1

    @property
    def step(self) -> float:
        """The one scale."""
        return float(self.scale[0])

    @property
    def is_symmetric(self) -> bool:
        """True if all zero points are 0."""
        return not self.zero.any()

    @property
    def stated_zero(self) -> NDArray[np.int64]:
        """The zero points as nodes state them, in the integers' own type."""
        return self.zero + SHIFTS.get(self.dtype, 0)

    @property
    def parameters(self) -> tuple[NDArray[np.float32], NDArray[Any]]:
        """The one scale and the zero point, as a QuantizeLinear takes them."""
        zero = self.stated_zero.astype(self.dtype.numpy())
        return self.scale.astype(np.float32).reshape(()), zero.reshape(())

    @property
    def limits(self) -> tuple[int, int]:
        """The least and the greatest integer."""
        limits, shift = np.iinfo(self.dtype.numpy()), SHIFTS.get(self.dtype, 0)
        return limits.min - shift, limits.max - shift

    def real(self, integers: NDArray[Any]) -> NDArray[np.float64]:
        """Return the numbers that integers mean."""
        shape = [1] * integers.ndim
        if not self.is_one:
            shape[self.axis] = -1
        return np.asarray((integers - self.zero.reshape(shape)) * self.scale.astype(np.float64).reshape(shape))

    def integers(self, numbers: NDArray[Any]) -> NDArray[np.float64]:
        """Return the integers that numbers become, by one scale."""
        return np.asarray(np.clip(np.rint(numbers / self.step) + float(self.zero[0]), *self.limits))

    def implies(self, bounds: tuple[float, float]) -> tuple[bool, bool]:
        """Tell of each of two bounds whether the integers' range cuts as much, or more.

        Rounding is monotone: q(clip(x, low, high)) is q(x) cut at q(low) and q(high).
        """
        low, high = (each if np.isinf(each) else float(np.rint(each / self.step)) + self.zero[0] for each in bounds)
        return bool(low <= self.limits[0]), bool(high >= self.limits[1])

    def equals(self, other: "Scale | None") -> bool:
        """Tell whether the same integer means the same number."""
        if other is None or not (self.is_one and other.is_one):
            return False
        return bool(self.scale[0] == other.scale[0] and self.zero[0] == other.zero[0])

    def is_same(self, other: "Scale | None") -> bool:
        """Tell whether integers of the same type mean the same numbers."""
        return other is not None and self.dtype == other.dtype and self.equals(other)


def scale_of(node: ir.Node) -> Scale | None:
    """Return what the integers of a QuantizeLinear or DequantizeLinear mean; None where no constant says so.

    Kernels have no meaning for others than positive normal numbers: such ones are none, and arithmetic does what ONNX
    says.
    """
    integers = node.inputs[0] if node.op_type == DEQUANTIZE else node.outputs[0]
    scale, zero = map(known_tensor, _parameters(node))
    if integers is None or integers.dtype is None or scale is None or node.attributes.get_int("block_size", 0) != 0:
        return None
    scales = scale.numpy().astype(np.float32).reshape(-1)
    are_normal = (scales >= np.finfo(np.float32).tiny).all() and np.isfinite(scales).all()
    if not are_normal or (zero is None and _parameters(node)[1] is not None):
        return None
    zeros = np.zeros(scales.shape, np.int64) if zero is None else zero.numpy().astype(np.int64).reshape(-1)
    rank = 1 if node.inputs[0] is None or node.inputs[0].shape is None else len(node.inputs[0].shape)
    axis = node.attributes.get_int("axis", 1) % max(rank, 1) if scales.size > 1 else 0
    return Scale(integers.dtype, scales, zeros - SHIFTS.get(integers.dtype, 0), axis)


def bytes_of(node: ir.Node) -> Scale | None:
    """Return what the bytes that a node gives or reads mean, by one scale; None of other integers, and other scales."""
    scale = scale_of(node)
    return scale if scale is not None and scale.is_one and scale.dtype in BYTES else None


def dequantizer_of(value: ir.Value | None) -> ir.Node | None:
    """Return the DequantizeLinear that produces a value; None for another producer."""
    node = None if value is None else value.producer()
    return node if node is not None and node.op_type == DEQUANTIZE and not node.domain else None


def stored_reals(value: ir.Value | None) -> NDArray[np.float64] | None:
    """Return a constant as real numbers, also one that is stored as integers; None of any other value."""
    producer = None if value is None or value.const_value is not None else value.producer()
    scale = None if producer is None or producer.op_type != DEQUANTIZE else scale_of(producer)
    stored = known_tensor(value if producer is None or scale is None else producer.inputs[0])
    if stored is None:
        return None
    numbers = stored.numpy().astype(np.float64)
    return numbers if scale is None else scale.real(numbers - SHIFTS.get(scale.dtype, 0))


def bounds_of(
    activation: ir.Node, constant: Callable[[int], NDArray[Any] | None] | None = None
) -> tuple[float, float] | None:
    """Return the least and the most that a Relu or a Clip gives; None where these are computed, and of other nodes.

    Args:
        activation: the node.
        constant: gives the constant that an input is, or None; None: constants are also those stored as integers.
    """
    if activation.op_type not in EPILOGUES or activation.domain not in ("", "ai.onnx"):
        return None
    bounds: list[float] = []
    for slot, name, default in zip((1, 2), ("min", "max"), BOUNDS[activation.op_type], strict=True):
        value = activation.inputs[slot] if slot < len(activation.inputs) else None
        array = None if value is None else constant(slot) if constant else stored_reals(value)
        if value is not None and array is None:
            return None
        bounds.append(activation.attributes.get_float(name, default) if array is None else float(array.reshape(-1)[0]))
    return bounds[0], bounds[1]


class Quantization(NamedTuple):
    """The integers of one operand or result of a unit."""

    node: ir.Node  # the DequantizeLinear or QuantizeLinear
    dtype: ir.DataType | None  # the type of the integers; None if it is not known

    @property
    def meaning(self) -> Scale | None:
        """The meaning of the integers; None where no constant says it."""
        return scale_of(self.node)

    @property
    def scale(self) -> ir.TensorProtocol | None:
        """The constant scales; None if they are computed."""
        return known_tensor(_parameters(self.node)[0])

    @property
    def zero_point(self) -> ir.TensorProtocol | None:
        """The constant zero points; None if they are computed or absent, which means 0."""
        return known_tensor(_parameters(self.node)[1])

    @property
    def has_zero_point(self) -> bool:
        """True if a zero point is stated."""
        return _parameters(self.node)[1] is not None

    @property
    def is_constant(self) -> bool:
        """True if constants are dequantized: weights, not an activation."""
        return _is_constant(self.node.inputs[0])


class QuantizedUnit(NamedTuple):
    """An operator that reads dequantized integers and whose results are quantized."""

    node: ir.Node  # the operator
    # the quantization of each input; None of an input that is absent, or no real number
    operands: tuple[Quantization | None, ...]
    results: tuple[Quantization, ...]  # the QuantizeLinears that read its outputs
    # all nodes of the unit in no order: the operator, both ends, the epilogue, views between them. Constant operands'
    # own nodes are members, too.
    members: frozenset[ir.Node]

    @property
    def activations(self) -> Iterator[Quantization]:
        """The operands that are no constants, and the results."""
        yield from (each for each in self.operands if each is not None and not each.is_constant)
        yield from self.results

    @property
    def dtype(self) -> ir.DataType | None:
        """The type of the first activation that it reads."""
        return next(self.activations).dtype


def unit_of(node: ir.Node) -> QuantizedUnit | None:
    """Return the quantized unit that a node belongs to; None if it belongs to none.

    A DequantizeLinear that several units read belongs to the first of them alone: duplicate it before.
    """
    before = _operator_before(node.inputs[0]) if node.inputs else None
    reads_integers = _is(node, DEQUANTIZE) or is_dequantized_view(node)
    candidates = (before, node) if _is(node, QUANTIZE) else (node, before)
    for candidate in chain(candidates, _operators_behind(node.outputs[0]) if reads_integers else ()):
        unit = None if candidate is None else _unit(candidate)
        if unit is not None and node in unit.members:
            return unit
    return None


def units_of(model: ir.Model) -> Callable[[ir.Node], QuantizedUnit | None]:
    """Return `unit_of` for the nodes of a model, at no cost where nothing is quantized."""
    graphs: list[ir.Graph | ir.Function] = [model.graph, *model.functions.values()]
    has_units = any(_is(node, QUANTIZE) for graph in graphs for node in all_nodes(graph))
    return unit_of if has_units else lambda _: None


def is_view_node(node: ir.Node) -> bool:
    """Tell whether a node is a standard operator that only looks at its operand otherwise."""
    return node.op_type in VIEWS and node.domain in ("", "ai.onnx") and bool(node.inputs)


def is_dequantized_view(node: ir.Node) -> bool:
    """Return whether a node is a view of what is dequantized: units that read it may each have their own."""
    return is_view_node(node) and _dequantized(node.inputs[0], set()) is not None


def is_reshape(node: ir.Node) -> bool:
    """Return whether a node is a view by its shapes alone: where these have no factors in common, it is none."""
    return node.op_type in RESHAPES and node.domain in ("", "ai.onnx")


def _unit(node: ir.Node) -> QuantizedUnit | None:
    members = {node}
    if _is(node, QUANTIZE):
        read = _dequantized(node.inputs[0], members)
        if read is None or read.is_constant:
            return None
        return QuantizedUnit(node, (read,), (Quantization(node, node.outputs[0].dtype),), frozenset(members))
    if _is(node, DEQUANTIZE) or not node.outputs:
        return None
    operands = _operands(node, members)
    if operands is None or all(each is None or each.is_constant for each in operands):
        return None
    results = _results(node, members)
    if not results or (is_view_node(node) and any(map(_is_epilogue, members))):
        return None  # a view before an activation: the activation is the operator
    return QuantizedUnit(node, tuple(operands), tuple(results), frozenset(members))


def _operands(node: ir.Node, members: set[ir.Node]) -> list[Quantization | None] | None:
    """Return the quantization of each input; None if a real number that must be quantized is not."""
    operands: list[Quantization | None] = []
    for slot, value in enumerate(node.inputs):
        is_real = value is not None and value.dtype in FLOATS
        quantization = _dequantized(value, members) if is_real else None
        operands.append(quantization)
        if is_real and quantization is None:
            parameter = slot in FLOAT_PARAMETERS.get(node.op_type, ())
            if not parameter or not _is_constant(value):
                return None
    return operands


def _results(node: ir.Node, members: set[ir.Node]) -> list[Quantization]:
    """Return the QuantizeLinears of all outputs that are read; none if an output is read otherwise."""
    results: list[Quantization] = []
    for value in node.outputs:
        if not value.uses() and not value.is_graph_output():
            continue
        quantizers = _quantized(value, members)
        if not quantizers:
            return []
        results += quantizers
    return results


def _dequantized(value: ir.Value | None, members: set[ir.Node]) -> Quantization | None:
    """Follow views back to a DequantizeLinear; add what was passed to the members."""
    passed: list[ir.Node] = []
    for _ in range(MOST_STEPS):
        node = None if value is None else value.producer()
        if node is None:
            return None
        passed.append(node)
        if _is(node, DEQUANTIZE):
            members.update(passed)
            integers = node.inputs[0]
            return Quantization(node, None if integers is None else integers.dtype)
        if not is_view_node(node):
            return None
        value = node.inputs[0]
    return None


def _quantized(value: ir.Value, members: set[ir.Node]) -> list[Quantization] | None:
    """Follow an epilogue and views on to QuantizeLinears, which alone may read a value; None if something else does."""
    passed: list[ir.Node] = []
    epilogues = 0
    for _ in range(MOST_STEPS):
        if value.is_graph_output():
            return None
        readers = [use.node for use in value.uses()]
        if readers and all(_is(reader, QUANTIZE) and reader.inputs[0] is value for reader in readers):
            members.update(passed, readers)
            return [Quantization(reader, reader.outputs[0].dtype) for reader in readers]
        if len(readers) != 1:
            return None
        (reader,) = readers
        epilogues += _is_epilogue(reader)
        if not (is_view_node(reader) or _is_epilogue(reader)) or epilogues > 1 or reader.inputs[0] is not value:
            return None
        passed.append(reader)
        value = reader.outputs[0]
    return None


def _operator_before(value: ir.Value | None) -> ir.Node | None:
    """Return the operator that gives a value, before an epilogue and views."""
    for _ in range(MOST_STEPS):
        node = None if value is None else value.producer()
        if node is None or not (is_view_node(node) or _is_epilogue(node)):
            return node
        before = node.inputs[0]
        producer = None if before is None else before.producer()
        if producer is None or _is(producer, DEQUANTIZE):
            return node  # a view or an activation that is a unit of its own
        value = before
    return None


def _operators_behind(value: ir.Value) -> Iterator[ir.Node | None]:
    """The operators that read a value, behind views: a view that is quantized right away is a unit of its own."""
    for reader in dict.fromkeys(use.node for use in value.uses()):
        node = reader
        for _ in range(MOST_STEPS):
            yield node
            users = [use.node for use in node.outputs[0].uses()] if is_view_node(node) else []
            if len(users) != 1:
                break
            (node,) = users


def _is(node: ir.Node, op_type: str) -> bool:
    return node.op_type == op_type and node.domain in QUANTIZING_DOMAINS


def _is_epilogue(node: ir.Node) -> bool:
    return node.op_type in EPILOGUES and node.domain in ("", "ai.onnx")


def _is_constant(value: ir.Value | None) -> bool:
    for _ in range(MOST_STEPS):
        if value is None or value.is_graph_input():
            return False
        if value.const_value is not None:
            return True
        node = value.producer()
        if node is None or not node.inputs or not (is_view_node(node) or _is(node, DEQUANTIZE) or _is(node, QUANTIZE)):
            return False
        value = node.inputs[0]
    return False


def _parameters(node: ir.Node) -> tuple[ir.Value | None, ir.Value | None]:
    """Return the scale and the zero point that a node reads."""
    _, scale, zero, *_ = (*node.inputs, None, None, None)
    return scale, zero
