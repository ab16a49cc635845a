"""Which operators run on integers in LiteRT: DequantizeLinear -> operator -> QuantizeLinear, where a kernel has it.

A row says what LiteRT's integer kernel wants of the operands' and the result's scales. What no row fits stays on real
numbers, between DEQUANTIZE and QUANTIZE.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

import onnx_ir as ir

from relayout.formats.recognition import was_tflite
from relayout.formats.tflite.container.enums import ActivationFunctionType
from relayout.formats.tflite.exporting.units import UnitNodes
from relayout.graph.quantized_unit import EPILOGUES, QUANTIZE, QuantizedUnit, unit_of
from relayout.graph.source_names import SOURCE
from relayout.graph.subgraphs import all_nodes
from relayout.lowering.unit_rows import of_units
from relayout.rules.facts import kernel_axes
from relayout.targets.litert.insertion import Insertion
from relayout.targets.litert.integer_scales import (
    BYTES,
    DEQUANTIZING,
    QUANTIZING,
    WORDS,
    Scale,
    adds,
    multiplies,
    scale_of,
)
from relayout.targets.litert.unit_activations import BOUNDS, CLAMPS, clamp_bounds, fused_activation

WEIGHTED = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})  # operators with weights
IMAGES = "relayout."
CONTRIBUTED = frozenset({("com.microsoft", "Gelu")})
"""Operators of other domains that are the standard's in a newer opset."""


class Candidate(NamedTuple):
    """An operator whose operands are dequantized and whose results are quantized."""

    node: ir.Node  # the operator
    inputs: tuple[Scale | None, ...]  # what each operand's integers mean; None for one that is none or absent
    constants: tuple[bool, ...]  # whether each operand's integers are constant
    outputs: tuple[Scale, ...]  # what each result's integers mean
    unsigned: bool = False  # whether unsigned integers stay so


class Kernel(NamedTuple):
    """LiteRT's integer kernel for a unit.

    Args:
        gives: the (scale, zero point) that it gives; None: whatever is asked for.
    """

    gives: tuple[float, int] | None = None


AS_ASKED = Kernel()
LEAST_BYTE = -128  # the least integer of 8 bits: where it means 0, no number is below 0
Row = Callable[[Candidate], "Kernel | None"]  # the kernel that computes a unit; None: there is none


def keeps_unsigned(model: ir.Model, *, as_source: bool = True) -> bool:
    """Return whether unsigned integers stay so.

    1. Some weights are unsigned and have a zero point: LiteRT has kernels of uint8 alone for them.
    2. The source is a `.tflite` all of whose bytes are unsigned: its kernels are those of uint8, which round otherwise
       than those of int8.

    Args:
        model: its layouts are chosen.
        as_source: whether the second counts: an NPU has kernels of int8 alone.
    """
    return _has_unsigned_weights(model) or (as_source and _is_unsigned_tflite(model))


def _is_unsigned_tflite(model: ir.Model) -> bool:
    if not was_tflite(model.metadata_props):
        return False
    scales = [scale_of(node) for node in all_nodes(model.graph) if node.op_type in QUANTIZING | DEQUANTIZING]
    kinds = {scale.dtype for scale in scales if scale is not None}
    return ir.DataType.UINT8 in kinds and ir.DataType.INT8 not in kinds


def _has_unsigned_weights(model: ir.Model) -> bool:
    for node in model.graph:
        if node.op_type in WEIGHTED and len(node.inputs) > 1 and (value := node.inputs[1]) is not None:
            producer = value.producer()
            is_constant = producer is not None and producer.op_type in DEQUANTIZING and _is_constant(producer.inputs[0])
            scale = scale_of(producer) if producer is not None and is_constant else None
            if scale is not None and scale.dtype == ir.DataType.UINT8 and scale.is_one and not scale.is_symmetric:
                return True
    return False


def _is_constant(value: ir.Value | None) -> bool:
    return value is not None and value.const_value is not None and not value.is_graph_input()


def quantized_units(
    model: ir.Model,  # its layouts are chosen
    *,
    unsigned: bool = False,  # whether unsigned integers stay so
) -> dict[ir.Node, UnitNodes]:
    """Return the operators that run on integers."""
    found: dict[ir.Node, UnitNodes] = {}
    for node in model.graph:
        is_known = not node.domain or node.domain.startswith(IMAGES) or (node.domain, node.op_type) in CONTRIBUTED
        row = ROWS.get(node.op_type) if is_known else None
        ends = None if row is None else _ends(node)
        if row is None or ends is None:
            continue
        candidate = _candidate(node, ends.quantize, unsigned)
        kernel = None if candidate is None else row(candidate)
        if kernel is not None:
            found[node] = UnitNodes(node, ends.quantize, ends.activation, ends.fused, kernel.gives)
    return found


class _Ends(NamedTuple):
    """The nodes behind an operator: its QuantizeLinear nodes, and the activation before them."""

    quantize: Mapping[ir.Value, tuple[ir.Node, ...]]
    activation: ir.Node | None = None
    fused: ActivationFunctionType = ActivationFunctionType.NONE


def _ends(node: ir.Node) -> _Ends | None:
    """Return what stands behind each output that is read; None: something else than a QuantizeLinear reads one."""
    if len(node.outputs) == 1:
        activated = _activated(node.outputs[0])
        if activated is not None and applies(node, activated.fused, activated.activation):
            return activated
    found: dict[ir.Value, tuple[ir.Node, ...]] = {}
    for value in node.outputs:
        if not value.uses() and not value.is_graph_output():
            continue
        quantize = _quantizers(value)
        if quantize is None:
            return None
        found[value] = quantize
    return _Ends(found) if found else None


def applies(
    node: ir.Node,  # the operator
    fused: ActivationFunctionType | None,  # the activation as the kernel applies it; None: no kernel does
    activation: ir.Node | None = None,  # its node, if one builtin of a `.tflite` may have been both: it is one again
) -> bool:
    """Tell whether an operator's kernel applies an activation, or the range of its integers implies it (NONE)."""
    if fused is None or fused == ActivationFunctionType.NONE:
        return fused is not None
    source = None if activation is None else activation.metadata_props.get(SOURCE)
    if source is not None and source == node.metadata_props.get(SOURCE):
        return True
    return node.op_type in TAKES and (node.op_type not in PRODUCTS or _has_constant_weights(node))


def _has_constant_weights(node: ir.Node) -> bool:
    unit = unit_of(node)
    operand = None if unit is None else unit.operands[1]
    return operand is not None and operand.is_constant


def _activated(value: ir.Value) -> _Ends | None:
    """Return what stands behind a value that an activation alone reads, if a kernel can apply that."""
    readers = [use.node for use in value.uses()]
    if len(readers) != 1 or readers[0].domain or value.is_graph_output():
        return None
    bounds_of = BOUNDS.get(readers[0].op_type)
    bounds = None if bounds_of is None else bounds_of(readers[0])
    result = readers[0].outputs[0]
    quantize = None if bounds is None else _quantizers(result)
    fused = None if bounds is None or quantize is None else fused_activation(bounds, quantize[0])
    return None if quantize is None or fused is None else _Ends({result: quantize}, readers[0], fused)


def _quantizers(value: ir.Value) -> tuple[ir.Node, ...] | None:
    """Return the equal QuantizeLinear nodes that alone read a value; None: there are others."""
    readers = [use.node for use in value.uses()]
    if not readers or value.is_graph_output():
        return None
    if any(reader.op_type not in QUANTIZING or reader.domain for reader in readers):
        return None
    scales = [scale_of(reader) for reader in readers]
    first = scales[0]
    if first is None or any(each is None or not each.equals(first) or each.dtype != first.dtype for each in scales):
        return None
    return tuple(readers)


def _candidate(node: ir.Node, quantize: Mapping[ir.Value, tuple[ir.Node, ...]], unsigned: bool) -> Candidate | None:
    inputs: list[Scale | None] = []
    constants: list[bool] = []
    for value in node.inputs:
        producer = None if value is None else value.producer()
        is_dequantized = producer is not None and producer.op_type in DEQUANTIZING and not producer.domain
        inputs.append(scale_of(producer) if producer is not None and is_dequantized else None)
        constants.append(_is_constant(producer.inputs[0] if producer is not None and is_dequantized else value))
    outputs = [scale_of(nodes[0]) for nodes in quantize.values()]
    if any(scale is None or not scale.is_one for scale in outputs):
        return None
    return Candidate(
        node, tuple(inputs), tuple(constants), tuple(scale for scale in outputs if scale is not None), unsigned
    )


# What kernels want


def _data(candidate: Candidate, slots: Iterator[int] | range) -> bool:
    """Tell whether operands are integers with one scale, of the width of the result, and signed or not as it is."""
    result = candidate.outputs[0].dtype
    kinds = WORDS if result in WORDS else (result,) if candidate.unsigned else BYTES  # no kernel takes uint16
    scales = [candidate.inputs[slot] if slot < len(candidate.inputs) else None for slot in slots]
    shifted = result in BYTES
    results = all(scale.dtype in kinds and (shifted or scale.is_symmetric) for scale in candidate.outputs)
    return results and all(
        scale is not None and scale.is_one and scale.dtype in kinds and (shifted or scale.is_symmetric)
        for scale in scales
    )


def _has_weights(candidate: Candidate) -> bool:
    """Tell whether the kernel takes the weights: constant, of 8 bits, without zero points but in kernels of uint8."""
    if not _data(candidate, range(1)) or len(candidate.inputs) < 2:
        return False
    weights = candidate.inputs[1]
    if weights is None or not candidate.constants[1] or weights.dtype not in BYTES:
        return False
    kept = candidate.outputs[0].dtype if candidate.outputs[0].dtype in BYTES else ir.DataType.INT8
    if candidate.unsigned and weights.dtype != kept:
        return False
    if candidate.unsigned and candidate.outputs[0].dtype == ir.DataType.UINT8:
        if weights.dtype != ir.DataType.UINT8 or not weights.is_one:
            return False
    elif not weights.is_symmetric:
        return False
    if any(candidate.node.attributes.get_float(name, 1.0) != 1.0 for name in ("alpha", "beta")):
        return False
    return len(candidate.inputs) < 3 or candidate.node.inputs[2] is None or candidate.constants[2]


def _weighted(candidate: Candidate) -> Kernel | None:
    return AS_ASKED if _has_weights(candidate) and _is_by_output(candidate) else None


def _is_by_output(candidate: Candidate) -> bool:
    """Tell whether a kernel has one scale, or one for each output; a Gemm's matrix is not looked at."""
    weights, node = candidate.inputs[1], candidate.node
    letters = node.domain.rpartition(".")[2] or kernel_axes(node.op_type).lower()
    return weights is None or weights.is_one or "o" not in letters or letters.index("o") == weights.axis


def _on_two(candidate: Candidate) -> Kernel | None:
    return AS_ASKED if _data(candidate, range(2)) else None


def _sum(candidate: Candidate) -> Kernel | None:
    operands = [scale for scale in candidate.inputs[:2] if scale is not None]
    return AS_ASKED if _on_two(candidate) and adds(operands, candidate.outputs[0]) else None


def _multiplied(candidate: Candidate) -> Kernel | None:
    operands = [scale for scale in candidate.inputs[:2] if scale is not None]
    return AS_ASKED if _on_two(candidate) and multiplies(operands, candidate.outputs[0]) else None


def _sloped(candidate: Candidate) -> Kernel | None:
    """PRELU takes bytes, and constant slopes."""
    is_constant = len(candidate.constants) > 1 and candidate.constants[1]
    return AS_ASKED if is_constant and candidate.outputs[0].dtype in BYTES and _data(candidate, range(2)) else None


def _product(candidate: Candidate) -> Kernel | None:
    """A product by constant weights, or of two tensors."""
    if len(candidate.constants) > 1 and candidate.constants[1]:
        value = candidate.node.inputs[1]
        is_matrix = value is not None and value.shape is not None and len(value.shape) == 2
        return AS_ASKED if is_matrix and _has_weights(candidate) else None
    return _on_two(candidate)


def _on_one(candidate: Candidate) -> Kernel | None:
    return AS_ASKED if _data(candidate, range(1)) else None


def _on_signed(candidate: Candidate) -> Kernel | None:
    return None if candidate.unsigned else _on_one(candidate)


def _tabulated(candidate: Candidate) -> Kernel | None:
    """The kernel is a table of what the operator gives for each signed byte; that of ELU knows no alpha."""
    is_standard = candidate.node.attributes.get_float("alpha", 1.0) == 1.0
    return _on_bytes(candidate) if is_standard and not candidate.unsigned else None


def _on_bytes(candidate: Candidate) -> Kernel | None:
    return _on_one(candidate) if candidate.outputs[0].dtype in BYTES else None


def _hard_swish(candidate: Candidate) -> Kernel | None:
    """The kernel multiplies by a number below 1: a step of 1/128 of the operand's is less than one of the result's."""
    operand = candidate.inputs[0]
    is_fine = operand is not None and operand.scale[0] / 128 < 0.999 * candidate.outputs[0].scale[0]
    return _on_bytes(candidate) if is_fine else None


def _alike(candidate: Candidate) -> Kernel | None:
    """The kernel does not rescale: it gives the operand's scale."""
    if not _data(candidate, range(1)):
        return None
    operand = candidate.inputs[0]
    assert operand is not None
    if all(scale.equals(operand) for scale in candidate.outputs):
        return AS_ASKED
    return Kernel((float(operand.scale[0]), int(operand.zero[0])))


def _averaged(candidate: Candidate) -> Kernel | None:
    """The kernel rounds a mean to steps of the operand's before a QUANTIZE to the result's rounds it again."""
    kernel, operand = _alike(candidate), candidate.inputs[0]
    if kernel is None or operand is None or candidate.node.attributes.get_string("mode", "linear") == "nearest":
        return kernel
    return kernel if float(candidate.outputs[0].scale[0]) >= FINE * float(operand.scale[0]) else None


def _alike_bytes(candidate: Candidate) -> Kernel | None:
    return _alike(candidate) if candidate.outputs[0].dtype in BYTES else None


def _chosen(candidate: Candidate) -> Kernel | None:
    """The kernel takes elements of one of two operands, both of which have the result's scale."""
    same = all(scale is not None and scale.equals(candidate.outputs[0]) for scale in candidate.inputs[1:])
    return AS_ASKED if same and _data(candidate, range(1, len(candidate.inputs))) else None


def _all_alike(candidate: Candidate) -> Kernel | None:
    """The kernel compares integers: all operands and the result have one scale."""
    same = all(scale is not None and scale.equals(candidate.outputs[0]) for scale in candidate.inputs)
    return AS_ASKED if same and _data(candidate, range(len(candidate.inputs))) else None


def _fixed(scale: float, zero: int, kinds: Collection[ir.DataType] = BYTES) -> Row:
    """The kernel gives one scale. A QUANTIZE to another loses nothing that its steps would show."""

    def row(candidate: Candidate) -> Kernel | None:
        result = candidate.outputs[0]
        if not _data(candidate, range(1)) or result.dtype not in kinds:
            return None
        if abs(float(result.scale[0]) - scale) <= scale * 1e-6 and int(result.zero[0]) == zero:
            return AS_ASKED
        return Kernel((scale, zero)) if float(result.scale[0]) >= scale * FINE else None

    return row


def reaches_logarithms(result: Scale) -> bool:
    """Tell whether LOG_SOFTMAX of bytes, which ends at -255/16, reaches the least number of a result."""
    step = float(result.scale[0])
    return (-128 - int(result.zero[0])) * step >= -255 / 16 - step / 2


def _log_softmax(candidate: Candidate) -> Kernel | None:
    return _fixed(1 / 16, 127)(candidate) if reaches_logarithms(candidate.outputs[0]) else None


def _either(first: Row, second: Row) -> Row:
    """There are two kernels, of bytes and of words."""
    return lambda candidate: first(candidate) or second(candidate)


WORD_STEP = 2.0**-15  # the step of what kernels of 16 bits give for LOGISTIC, TANH and SOFTMAX
FINE = 0.6
"""How much finer than the kernel's a result's steps may be: both roundings together stay below one step and a half."""


def _logistic(candidate: Candidate) -> Kernel | None:
    """The kernel of 16 bits is a step off at most. For one scale there is another one, which is six steps off."""
    operand = candidate.inputs[0]
    is_other = operand is not None and abs(float(operand.scale[0]) / OTHER_LOGISTIC - 1) < 0.01
    return _LOGISTIC_OF_BYTES(candidate) or (None if is_other else _LOGISTIC_OF_WORDS(candidate))


_LOGISTIC_OF_BYTES, _LOGISTIC_OF_WORDS = _fixed(1 / 256, -128), _fixed(WORD_STEP, 0, WORDS)
OTHER_LOGISTIC = 2.0**-12  # the scale of an operand of 16 bits for which LiteRT has another LOGISTIC


def _clipped(candidate: Candidate) -> Kernel | None:
    """There is an activation with these bounds."""
    bounds = clamp_bounds(candidate.node)
    return _on_bytes(candidate) if bounds in CLAMPS.values() else None


def _inverse_root(candidate: Candidate) -> Kernel | None:
    """A power of -0.5 is RSQRT, whose kernel of 16 bits has 512 straight lines: right as the lesser of two alone.

    The kernel of 8 bits refuses numbers below 0.
    """
    node, exponent = candidate.node, candidate.node.inputs[1]
    known = None if exponent is None or exponent.const_value is None else exponent.const_value.numpy()
    is_root = known is not None and known.size == 1 and float(known.reshape(-1)[0]) == -0.5
    operand = candidate.inputs[0]
    if is_root and operand is not None and operand.dtype == ir.DataType.INT8:
        return _on_bytes(candidate) if int(operand.zero[0]) == LEAST_BYTE else None
    values = [node.outputs[0]]
    for _ in range(2):
        values = [use.node.outputs[0] for value in values for use in value.uses()]
    is_lesser = {use.node.op_type for value in values for use in value.uses()} == {"Min"}
    return AS_ASKED if is_root and is_lesser and candidate.outputs[0].dtype in WORDS and _on_one(candidate) else None


def _concatenated(candidate: Candidate) -> Kernel | None:
    return AS_ASKED if _data(candidate, range(len(candidate.inputs))) else None


ROWS: Mapping[str, Row] = {  # ONNX's operator -> whether LiteRT's integer kernel computes a unit of it
    **dict.fromkeys(("Conv", "ConvTranspose", "Gemm"), _weighted),
    "MatMul": _product,
    **dict.fromkeys(("Add", "Sub"), _sum),
    "Mul": _multiplied,
    "MaxPool": _alike,
    **dict.fromkeys(("AveragePool", "Resize"), _averaged),
    **dict.fromkeys(("DepthToSpace", "SpaceToDepth"), _alike_bytes),
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose"), _alike),
    **dict.fromkeys(("Slice", "Split", "Gather", "Pad", "Expand", "Tile"), _alike),
    **dict.fromkeys(("GlobalMaxPool", "ReduceMax", "ReduceMin"), _alike),
    **dict.fromkeys(("GlobalAveragePool", "ReduceMean", "Relu", "LeakyRelu"), _on_one),
    "PRelu": _sloped,
    "Abs": _on_signed,
    "HardSwish": _hard_swish,
    **dict.fromkeys(("Elu", "Gelu"), _tabulated),
    **dict.fromkeys(("Max", "Min"), _all_alike),
    "Concat": _concatenated,
    "Where": _chosen,
    "Pow": _inverse_root,
    "Clip": _clipped,
    "Sigmoid": _logistic,
    "Softmax": _either(_fixed(1 / 256, -128), _fixed(WORD_STEP, 0, WORDS)),
    "LogSoftmax": _log_softmax,
    "Tanh": _either(_fixed(1 / 128, 0), _fixed(WORD_STEP, 0, WORDS)),
}
TAKES = frozenset({"Conv", "Gemm", "MatMul", "Add", "Sub", "Mul", "AveragePool", "MaxPool"})
"""Operators whose kernels apply an activation."""
PRODUCTS = frozenset({"MatMul"})
"""Of these those whose second operand is constant: of two activations they are another builtin."""


# The condition that LiteRT has an integer kernel for a quantized unit: other units stay on real numbers.


def _has_kernel(unit: QuantizedUnit) -> bool:
    if unit.node.op_type == QUANTIZE:
        return True
    return _applies_activation(unit) and _computes(unit)


def _applies_activation(unit: QuantizedUnit) -> bool:
    """Tell whether the kernel applies the unit's activation, or the range of the result's integers implies it."""
    activations = [each for each in unit.members if each.op_type in EPILOGUES and each is not unit.node]
    if not activations:
        return True
    bounds = BOUNDS[activations[0].op_type](activations[0])
    return bounds is not None and applies(unit.node, fused_activation(bounds, unit.results[0].node))


def _computes(unit: QuantizedUnit) -> bool:
    row = ROWS.get(unit.node.op_type)
    operands = tuple(None if each is None else scale_of(each.node) for each in unit.operands)
    results = tuple(each for each in (scale_of(result.node) for result in unit.results) if each is not None)
    if row is None or len(results) < len(unit.results) or not all(result.is_one for result in results):
        return False
    constants = tuple(
        value is not None and (value.const_value is not None or (operand is not None and operand.is_constant))
        for value, operand in zip(unit.node.inputs, unit.operands, strict=True)
    )
    unsigned = (False, True) if any(map(_is_unsigned_weight, operands, constants)) else (False,)
    return any(row(Candidate(unit.node, operands, constants, results, each)) is not None for each in unsigned)


def _is_unsigned_weight(scale: Scale | None, is_constant: bool) -> bool:
    return is_constant and scale is not None and scale.dtype.name == "UINT8"


INTEGER_KERNEL = of_units("scales, types and constants that LiteRT's integer kernel takes", _has_kernel)

# An activation that a quantized operator's kernel does not apply is a unit of its own.
#
#     ConvTranspose ─ Relu ─ QuantizeLinear    becomes
#     ConvTranspose ─ QuantizeLinear ─ DequantizeLinear ─ Relu ─ QuantizeLinear
#
# The scale is the same, so the numbers are. TRANSPOSE_CONV could apply it, but the integer kernels of TensorFlow Lite
# Micro leave it out. So it does where it did in the `.tflite` that a model was, and the target is LiteRT.


def separate_activations(
    graph: ir.Graph,  # its layouts are chosen
    *,
    as_source: bool,  # whether one builtin of a `.tflite` that was both is one again
) -> None:
    """Quantize what is between an operator and an activation that it does not apply, in place."""
    for node in list(graph):
        value = node.inputs[0] if node.op_type in BOUNDS and not node.domain else None
        operator = None if value is None else value.producer()
        readers = [use.node for use in node.outputs[0].uses()]
        if value is None or operator is None or operator.op_type not in ROWS or len(readers) != 1:
            continue
        unit = unit_of(operator)
        if unit is not None and node in unit.members and _stands_alone(operator, node, readers[0], as_source):
            _quantize_before(graph, node, value, readers[0])


def _stands_alone(operator: ir.Node, activation: ir.Node, quantize: ir.Node, as_source: bool) -> bool:
    """Tell whether a kernel of integers computes an activation, and not with the operator before it."""
    bounds = BOUNDS[activation.op_type](activation)
    if bounds is None or quantize.op_type not in QUANTIZING or quantize.domain:
        return False
    fused = fused_activation(bounds, quantize)
    has_kernel = fused == ActivationFunctionType.RELU or quantize.outputs[0].dtype in BYTES
    return fused is not None and has_kernel and not applies(operator, fused, activation if as_source else None)


def _quantize_before(graph: ir.Graph, node: ir.Node, value: ir.Value, quantize: ir.Node) -> None:
    """Let a node read a value as the integers that a QuantizeLinear behind it gives."""
    before = Insertion(graph, node)
    node.replace_input_with(0, before.quantized(value, quantize.inputs[1:], quantize.outputs[0].type))
