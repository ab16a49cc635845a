"""Which operators run on integers in LiteRT: DequantizeLinear -> operator -> QuantizeLinear, where a kernel has it.

A row says what LiteRT's integer kernel wants of the operands' and the result's scales. What no row fits stays on real
numbers, between DEQUANTIZE and QUANTIZE.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.formats.tflite.exporting.units import QuantizedUnit

DEQUANTIZE, QUANTIZE = "DequantizeLinear", "QuantizeLinear"
SHIFTS = {ir.DataType.UINT8: 128, ir.DataType.UINT16: 32768}
"""Unsigned types -> how much lower their integers lie once they are signed."""
BYTES = (ir.DataType.INT8, ir.DataType.UINT8)
WORDS = (ir.DataType.INT16, ir.DataType.UINT16)
ACTIVATIONS = ("Relu", "Clip")
IMAGES = "relayout."


class Scale(NamedTuple):
    """What integers mean: their type, scales and zero points, the last as signed integers have them."""

    dtype: ir.DataType
    scale: NDArray[np.float32]
    zero: NDArray[np.int64]

    @property
    def is_one(self) -> bool:
        """Whether there is one scale for the tensor."""
        return self.scale.size == 1

    @property
    def is_symmetric(self) -> bool:
        """Whether all zero points are 0."""
        return not self.zero.any()

    def equals(self, other: Scale | None) -> bool:
        """Whether the same integer means the same number."""
        return (
            other is not None
            and self.is_one
            and other.is_one
            and self.scale[0] == other.scale[0]
            and self.zero[0] == other.zero[0]
        )


class Candidate(NamedTuple):
    """An operator whose operands are dequantized and whose results are quantized.

    Args:
        node: the operator.
        inputs: what each operand's integers mean; None for one that is none or absent.
        constants: whether each operand's integers are constant.
        outputs: what each result's integers mean.
    """

    node: ir.Node
    inputs: tuple[Scale | None, ...]
    constants: tuple[bool, ...]
    outputs: tuple[Scale, ...]


Row = Callable[[Candidate], bool]


def quantized_units(model: ir.Model) -> dict[ir.Node, QuantizedUnit]:
    """Return the operators that run on integers."""
    found: dict[ir.Node, QuantizedUnit] = {}
    for node in model.graph:
        row = ROWS.get(node.op_type) if not node.domain or node.domain.startswith(IMAGES) else None
        if row is None:
            continue
        ends = _ends(node)
        if ends is None:
            continue
        quantize, activation = ends
        candidate = _candidate(node, quantize)
        if candidate is not None and row(candidate):
            found[node] = QuantizedUnit(node, quantize, activation)
    return found


def _ends(node: ir.Node) -> tuple[Mapping[ir.Value, tuple[ir.Node, ...]], ir.Node | None] | None:
    """Return the QuantizeLinear nodes behind each output, and the activation before them; None: others read one."""
    found: dict[ir.Value, tuple[ir.Node, ...]] = {}
    activation: ir.Node | None = None
    for value in node.outputs:
        source = value
        readers = [use.node for use in value.uses()]
        if len(node.outputs) == len(readers) == 1 and readers[0].op_type in ACTIVATIONS and node.op_type in TAKES:
            follower = readers[0]
            if not follower.domain and _is_saturating(follower) and not value.is_graph_output():
                activation, source = follower, follower.outputs[0]
                readers = [use.node for use in source.uses()]
        quantizers = tuple(reader for reader in readers if reader.op_type == QUANTIZE and not reader.domain)
        if not quantizers or len(quantizers) != len(readers) or source.is_graph_output():
            return None
        scales = [scale_of(each) for each in quantizers]
        if any(scale is None or not scale.equals(scales[0]) or scale.dtype != scales[0].dtype for scale in scales):  # type: ignore[union-attr]
            return None
        found[source] = quantizers
    return (found, activation) if found else None


def _is_saturating(node: ir.Node) -> bool:
    """Whether the range of the integers behind an activation does what it does."""
    quantizers = [use.node for use in node.outputs[0].uses()]
    scale = scale_of(quantizers[0]) if quantizers and quantizers[0].op_type == QUANTIZE else None
    if scale is None or not scale.is_one:
        return False
    least, most = (-128, 127) if scale.dtype in BYTES else (-32768, 32767)
    low, high = _bounds(node)
    if low is None or high is None:
        return False
    step, zero = float(scale.scale[0]), int(scale.zero[0])
    cuts_low = np.isinf(low) or np.rint(low / step) + zero <= least
    cuts_high = np.isinf(high) or np.rint(high / step) + zero >= most
    return bool(cuts_low and cuts_high)


def _bounds(node: ir.Node) -> tuple[float | None, float | None]:
    if node.op_type == "Relu":
        return 0.0, np.inf
    found: list[float | None] = []
    for slot, name, default in ((1, "min", -np.inf), (2, "max", np.inf)):
        value = node.inputs[slot] if slot < len(node.inputs) else None
        if value is None:
            found.append(node.attributes.get_float(name, default))
        else:
            array = _constant(value)
            found.append(None if array is None else float(array.reshape(-1)[0]))
    return found[0], found[1]


def _constant(value: ir.Value) -> NDArray[np.generic] | None:
    """Return a constant, also one that was quantized."""
    if value.const_value is not None:
        return value.const_value.numpy()
    node = value.producer()
    if node is None or node.op_type != DEQUANTIZE or node.inputs[0] is None or node.inputs[0].const_value is None:
        return None
    scale = scale_of(node)
    if scale is None or not scale.is_one:
        return None
    shift = SHIFTS.get(scale.dtype, 0)
    integers = node.inputs[0].const_value.numpy().astype(np.float64) - shift
    found: NDArray[np.generic] = (integers - scale.zero[0]) * scale.scale[0]
    return found


def scale_of(node: ir.Node) -> Scale | None:
    """Return what the integers of a QuantizeLinear or DequantizeLinear mean; None where that is computed."""
    integers = node.inputs[0] if node.op_type == DEQUANTIZE else node.outputs[0]
    scale = node.inputs[1].const_value if len(node.inputs) > 1 and node.inputs[1] is not None else None
    if integers is None or integers.dtype is None or scale is None or node.attributes.get_int("block_size", 0) != 0:
        return None
    scales = scale.numpy().astype(np.float32).reshape(-1)
    zero = node.inputs[2] if len(node.inputs) > 2 else None
    if zero is not None and zero.const_value is None:
        return None
    zeros = np.zeros(scales.shape, np.int64)
    if zero is not None and zero.const_value is not None:
        zeros = zero.const_value.numpy().astype(np.int64).reshape(-1)
    return Scale(integers.dtype, scales, zeros - SHIFTS.get(integers.dtype, 0))


def _candidate(node: ir.Node, quantize: Mapping[ir.Value, tuple[ir.Node, ...]]) -> Candidate | None:
    inputs: list[Scale | None] = []
    constants: list[bool] = []
    for value in node.inputs:
        producer = None if value is None else value.producer()
        is_dequantized = producer is not None and producer.op_type == DEQUANTIZE and not producer.domain
        inputs.append(scale_of(producer) if producer is not None and is_dequantized else None)
        source = producer.inputs[0] if producer is not None and is_dequantized else value
        constants.append(source is not None and source.const_value is not None and not source.is_graph_input())
    outputs = [scale_of(nodes[0]) for nodes in quantize.values()]
    if any(scale is None or not scale.is_one for scale in outputs):
        return None
    return Candidate(node, tuple(inputs), tuple(constants), tuple(scale for scale in outputs if scale is not None))


# What kernels want


def _data(candidate: Candidate, slots: Iterator[int] | range) -> bool:
    """Whether operands are integers with one scale, of the width of the result."""
    kinds = BYTES if candidate.outputs[0].dtype in BYTES else WORDS
    scales = [candidate.inputs[slot] if slot < len(candidate.inputs) else None for slot in slots]
    results = all(scale.dtype in kinds and (kinds is BYTES or scale.is_symmetric) for scale in candidate.outputs)
    return results and all(
        scale is not None and scale.is_one and scale.dtype in kinds and (kinds is BYTES or scale.is_symmetric)
        for scale in scales
    )


def _weighted(candidate: Candidate) -> bool:
    """Weights are constant int8 without zero points; the bias, if any, is constant."""
    if not _data(candidate, range(1)) or len(candidate.inputs) < 2:
        return False
    weights = candidate.inputs[1]
    if weights is None or not candidate.constants[1] or weights.dtype not in BYTES or not weights.is_symmetric:
        return False
    if (
        candidate.node.attributes.get_float("alpha", 1.0) != 1.0
        or candidate.node.attributes.get_float("beta", 1.0) != 1.0
    ):
        return False
    return len(candidate.inputs) < 3 or candidate.node.inputs[2] is None or candidate.constants[2]


def _on_two(candidate: Candidate) -> bool:
    return _data(candidate, range(2))


def _product(candidate: Candidate) -> bool:
    """A product by constant weights, or of two tensors."""
    if len(candidate.constants) > 1 and candidate.constants[1]:
        value = candidate.node.inputs[1]
        matrix = value is not None and value.shape is not None and len(value.shape) == 2
        return matrix and _weighted(candidate)
    return _on_two(candidate)


def _alike(candidate: Candidate) -> bool:
    """The result has the operand's scale: the kernel does not rescale."""
    return _data(candidate, range(1)) and all(scale.equals(candidate.inputs[0]) for scale in candidate.outputs)


def _on_one(candidate: Candidate) -> bool:
    return _data(candidate, range(1))


def _fixed(scale: float, zero: int) -> Row:
    """The result has the one scale that the kernel gives."""

    def fits(candidate: Candidate) -> bool:
        result = candidate.outputs[0]
        same = abs(float(result.scale[0]) - scale) <= scale * 1e-6 and int(result.zero[0]) == zero
        return _data(candidate, range(1)) and result.dtype in BYTES and same

    return fits


def _concatenated(candidate: Candidate) -> bool:
    return _data(candidate, range(len(candidate.inputs)))


ROWS: Mapping[str, Row] = {
    "Conv": _weighted,
    "ConvTranspose": _weighted,
    "Gemm": _weighted,
    "MatMul": _product,
    "Add": _on_two,
    "Sub": _on_two,
    "Mul": _on_two,
    "MaxPool": _alike,
    "AveragePool": _alike,
    "GlobalAveragePool": _on_one,
    "ReduceMean": _on_one,
    "Concat": _concatenated,
    "Reshape": _alike,
    "Flatten": _alike,
    "Squeeze": _alike,
    "Unsqueeze": _alike,
    "Transpose": _alike,
    "Slice": _alike,
    "Split": _alike,
    "Gather": _alike,
    "Pad": _alike,
    "Resize": _alike,
    "DepthToSpace": _alike,
    "SpaceToDepth": _alike,
    "Relu": _on_one,
    "LeakyRelu": _on_one,
    "HardSwish": _on_one,
    "Sigmoid": _fixed(1 / 256, -128),
    "Softmax": _fixed(1 / 256, -128),
    "Tanh": _fixed(1 / 128, 0),
}
"""ONNX's operator -> whether LiteRT's integer kernel computes a unit of it."""
TAKES = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul", "Add", "Sub", "Mul", "AveragePool", "MaxPool"})
"""Operators behind which an activation may stand that the range of the integers implies."""
