"""Which operators run on integers in LiteRT: DequantizeLinear -> operator -> QuantizeLinear, where a kernel has it.

A row says what LiteRT's integer kernel wants of the operands' and the result's scales. What no row fits stays on real
numbers, between DEQUANTIZE and QUANTIZE.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from relayout.formats.recognition import was_tflite
from relayout.formats.tflite.container.enums import ActivationFunctionType
from relayout.formats.tflite.exporting.units import UnitNodes
from relayout.graph.domains import RESIZE
from relayout.graph.quantized_unit import (
    BYTES,
    DEQUANTIZE,
    EPILOGUES,
    QUANTIZE,
    WORDS,
    QuantizedUnit,
    Scale,
    bounds_of,
    bytes_of,
    dequantizer_of,
    is_view_node,
    scale_of,
    unit_of,
    units_of,
)
from relayout.graph.source_names import SOURCE
from relayout.graph.subgraphs import all_nodes, take_over
from relayout.graph.walks import known_tensor
from relayout.lowering.unit_rows import of_units
from relayout.rules.facts import kernel_axes
from relayout.targets.litert.insertion import Insertion
from relayout.targets.litert.integer_scales import adds, multiplies

# The activations that LiteRT's integer kernels apply, and the bounds of those in a graph.

# Move Transposes and Reshapes out of quantized units: integers are moved, and the operator runs on integers.
#
#     DequantizeLinear ─ operator ─ Reshape ─ QuantizeLinear    becomes
#     DequantizeLinear ─ operator ─ QuantizeLinear ─ Reshape
#
# An activation behind the view stays with its operator.
#
# A view commutes with a scale for the whole tensor: it moves numbers, and looks at none. Where others read what the
# DequantizeLinear gives, each unit with a view of it gets one of its own.


def move_views_out(graph: ir.Graph) -> None:
    """Move views from between an operator and its QuantizeLinear or DequantizeLinear, in place."""
    for node in filter(is_view_node, reversed(list(graph))):
        _move_behind_unit(graph, node)
    for node in filter(is_view_node, list(graph)):
        dequantize = _producer(node)
        if dequantize is None or not _has_one_scale(dequantize, DEQUANTIZE):
            continue
        reads_activation = dequantize.inputs[0] is not None and dequantize.inputs[0].const_value is None
        quantizes = any(use.node.op_type == QUANTIZE for use in node.outputs[0].uses())
        if reads_activation and not quantizes and (_only_reader(dequantize) is node or unit_of(node) is not None):
            _exchange(graph, dequantize, node)


def _move_behind_unit(graph: ir.Graph, view: ir.Node) -> None:
    behind, operator = _only_reader(view), _producer(view)
    if operator is None or operator.op_type == DEQUANTIZE or _only_reader(operator) is not view:
        return
    activation = behind if behind is not None and behind.op_type in EPILOGUES and not behind.domain else None
    quantize = behind if activation is None else _only_reader(activation)
    if quantize is not None and _has_one_scale(quantize, QUANTIZE):
        _exchange(graph, view if activation is None else _exchange(graph, view, activation), quantize)


def _exchange(graph: ir.Graph, first: ir.Node, second: ir.Node) -> ir.Node:
    """Let the second of two nodes run before the first, which stays for who else reads its result.

    Returns:
        What runs in place of the first now.
    """
    source, result = first.inputs[0], second.outputs[0]
    assert source is not None
    before = ir.Node(second.domain, second.op_type, [source, *second.inputs[1:]], second.attributes.values())
    inner = before.outputs[0]
    behind = ir.Node(first.domain, first.op_type, [inner, *first.inputs[1:]], first.attributes.values())
    before.name, behind.name = second.name, first.name
    moves = is_view_node(second)
    inner.name = f"{result.name}/exchanged"
    inner.shape, inner.type = (result.shape, source.type) if moves else (source.shape, result.type)
    graph.insert_before(second, [before, behind])
    take_over(behind.outputs[0], result)
    graph.remove(second, safe=True)
    if not first.outputs[0].uses() and not first.outputs[0].is_graph_output():
        graph.remove(first, safe=True)
    return behind


def _producer(node: ir.Node) -> ir.Node | None:
    return None if not node.inputs or node.inputs[0] is None else node.inputs[0].producer()


def _only_reader(node: ir.Node) -> ir.Node | None:
    """Return the node that alone reads the only result of a node, as its first operand."""
    if len(node.outputs) != 1 or node.outputs[0].is_graph_output():
        return None
    uses = tuple(node.outputs[0].uses())
    return uses[0].node if len(uses) == 1 and uses[0].idx == 0 else None


def _has_one_scale(node: ir.Node, op_type: str) -> bool:
    """Tell whether a node changes between integers and numbers by one constant scale."""
    scale = node.inputs[1] if node.op_type == op_type and not node.domain and len(node.inputs) > 1 else None
    return scale is not None and scale.const_value is not None and scale.const_value.size == 1


def fused_activation(activation: ir.Node, quantize: ir.Node) -> ActivationFunctionType | None:
    """Return how kernels apply an activation; NONE where the range of the integers behind it does; None: no way."""
    bounds, scale = bounds_of(activation), scale_of(quantize)
    if bounds is None or scale is None or not scale.is_one:
        return None
    implied = scale.implies(bounds)
    if all(implied):
        return ActivationFunctionType.NONE
    for kind, (floor, ceiling) in CLAMPS.items():
        if bounds[0] == floor and (bounds[1] == ceiling or (implied[1] and np.isinf(ceiling))):
            return kind
    return None


CLAMPS: Mapping[ActivationFunctionType, tuple[float, float]] = {
    ActivationFunctionType.RELU: (0.0, float("inf")),
    ActivationFunctionType.RELU6: (0.0, 6.0),
    ActivationFunctionType.RELU_N1_TO_1: (-1.0, 1.0),
}
"""Activations that kernels of integers apply, and their bounds."""

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

    @property
    def first(self) -> Scale:
        """The meaning of the integers of operand 0, which are there."""
        scale = self.inputs[0]
        assert scale is not None
        return scale

    @property
    def result(self) -> Scale:
        """The meaning of the integers of the first result."""
        return self.outputs[0]


AS_ASKED = True
"""LiteRT's kernel gives whatever scale is asked for; others give one (scale, zero point) alone."""
LEAST_BYTE = -128  # the least integer of 8 bits: where it means 0, no number is below 0
Row = Callable[[Candidate], bool | tuple[float, int]]  # what the kernel of a unit gives; False: there is none


def keeps_unsigned(
    model: ir.Model,  # its layouts are chosen
    *,
    as_source: bool = True,  # whether the second counts: an NPU has kernels of int8 alone
) -> bool:
    """Return whether unsigned integers stay so.

    1. Some weights are unsigned and have a zero point: LiteRT has kernels of uint8 alone for them.
    2. The source is a `.tflite` all of whose bytes are unsigned: its kernels are those of uint8, which round otherwise
       than those of int8.
    """
    if _has_unsigned_weights(model):
        return True
    if not as_source or not was_tflite(model.metadata_props):
        return False
    scales = [scale_of(node) for node in all_nodes(model.graph) if node.op_type in (QUANTIZE, DEQUANTIZE)]
    kinds = {scale.dtype for scale in scales if scale is not None}
    return ir.DataType.UINT8 in kinds and ir.DataType.INT8 not in kinds


def _has_unsigned_weights(model: ir.Model) -> bool:
    for node in (node for node in model.graph if node.op_type in WEIGHTED and len(node.inputs) > 1):
        weights = dequantizer_of(node.inputs[1])
        scale = None if weights is None or known_tensor(weights.inputs[0]) is None else bytes_of(weights)
        if scale is not None and scale.dtype == ir.DataType.UINT8 and not scale.is_symmetric:
            return True
    return False


def quantized_units(
    model: ir.Model,  # its layouts are chosen
    *,
    unsigned: bool = False,  # whether unsigned integers stay so
) -> dict[ir.Node, UnitNodes]:
    """Return the operators that run on integers."""
    units: dict[ir.Node, UnitNodes] = {}
    unit_in_model = units_of(model)
    for node in model.graph:
        is_known = not node.domain or node.domain.startswith(IMAGES) or (node.domain, node.op_type) in CONTRIBUTED
        unit = unit_in_model(node) if is_known and node.op_type in ROWS else None
        if unit is None or unit.node is not node or not _is_one_kernel(unit):
            continue
        nodes, candidate = _nodes_of(unit, as_source=True), candidate_of(unit)
        if nodes is None or candidate is None:
            continue
        if gives := ROWS[node.op_type](candidate._replace(unsigned=unsigned)):
            units[node] = nodes._replace(kernel=gives if isinstance(gives, tuple) else None)
    return units


def _is_one_kernel(unit: QuantizedUnit) -> bool:
    """Tell whether no views stand between the nodes of a unit, and all integers of one result mean the same."""
    ends = [each.node for each in (*unit.operands, *unit.results) if each is not None]
    first: dict[ir.Value | None, Scale | None] = {}
    for result in unit.results:
        scale = result.meaning
        other = first.setdefault(result.node.inputs[0], scale)
        if scale is None or not scale.is_same(other):
            return False
    others = unit.members.difference(ends, [unit.node])
    return not any(each.domain for each in ends) and all(each.op_type in EPILOGUES for each in others)


def _nodes_of(
    unit: QuantizedUnit,
    *,
    as_source: bool = False,  # whether one builtin of a `.tflite` that was an operator and its activation is one again
) -> UnitNodes | None:
    """Return the nodes for which a kernel stands; None where it does not apply the activation between them."""
    activation = next((each for each in unit.members if each.op_type in EPILOGUES and each is not unit.node), None)
    fused: ActivationFunctionType | None = ActivationFunctionType.NONE
    if activation is not None:
        fused = fused_activation(activation, unit.results[0].node)
        if not applies(unit.node, fused, activation if as_source else None):
            return None
    quantize: dict[ir.Value, tuple[ir.Node, ...]] = {}
    for value, node in ((each.node.inputs[0], each.node) for each in unit.results):
        assert value is not None
        quantize[value] = (*quantize.get(value, ()), node)
    return None if fused is None else UnitNodes(unit.node, quantize, activation, fused)


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
    if node.op_type not in PRODUCTS:
        return node.op_type in TAKES
    unit = unit_of(node)
    weights = None if unit is None else unit.operands[1]
    return weights is not None and weights.is_constant


# What kernels want


def _data(candidate: Candidate, slots: Iterator[int] | range) -> bool:
    """Tell whether operands are integers with one scale, of the width of the result, and signed or not as it is."""
    result = candidate.result.dtype
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
    byte_type = candidate.result.dtype if candidate.result.dtype in BYTES else ir.DataType.INT8
    if candidate.unsigned and weights.dtype != byte_type:
        return False
    if candidate.unsigned and candidate.result.dtype == ir.DataType.UINT8:
        if weights.dtype != ir.DataType.UINT8 or not weights.is_one:
            return False
    elif not weights.is_symmetric:
        return False
    if any(candidate.node.attributes.get_float(name, 1.0) != 1.0 for name in ("alpha", "beta")):
        return False
    return len(candidate.inputs) < 3 or candidate.node.inputs[2] is None or candidate.constants[2]


def _weighted(candidate: Candidate) -> bool:
    """There is one scale for the weights, or one for each output; a Gemm's matrix is not looked at."""
    if not _has_weights(candidate):
        return False
    weights, node = candidate.inputs[1], candidate.node
    letters = node.domain.rpartition(".")[2] or kernel_axes(node.op_type).lower()
    return weights is None or weights.is_one or "o" not in letters or letters.index("o") == weights.axis


def _on_two(candidate: Candidate, takes: Callable[[Sequence[Scale], Scale], bool] = lambda *_: True) -> bool:
    operands = [scale for scale in candidate.inputs[:2] if scale is not None]
    return _data(candidate, range(2)) and takes(operands, candidate.result)


def _sloped(candidate: Candidate) -> bool:
    """PRELU takes bytes, and constant slopes."""
    return candidate.constants[1:2] == (True,) and candidate.result.dtype in BYTES and _on_two(candidate)


def _product(candidate: Candidate) -> bool:
    """A product by constant weights, or of two tensors."""
    if candidate.constants[1:2] != (True,):
        return _on_two(candidate)
    value = candidate.node.inputs[1]
    return value is not None and value.shape is not None and len(value.shape) == 2 and _has_weights(candidate)


def _on_one(candidate: Candidate) -> bool:
    return _data(candidate, range(1))


def _tabulated(candidate: Candidate) -> bool:
    """The kernel is a table of what the operator gives for each signed byte; that of ELU knows no alpha."""
    is_standard = candidate.node.attributes.get_float("alpha", 1.0) == 1.0
    return is_standard and not candidate.unsigned and _on_bytes(candidate)


def _on_bytes(candidate: Candidate) -> bool:
    return candidate.result.dtype in BYTES and _on_one(candidate)


def _hard_swish(candidate: Candidate) -> bool:
    """The kernel multiplies by a number below 1: a step of 1/128 of the operand's is less than one of the result's."""
    operand = candidate.inputs[0]
    is_fine = operand is not None and operand.step / 128 < 0.999 * candidate.result.step
    return bool(is_fine) and _on_bytes(candidate)


def _alike(candidate: Candidate) -> bool | tuple[float, int]:
    """The kernel does not rescale: it gives the operand's scale."""
    operand = candidate.inputs[0]
    if operand is None or not _on_one(candidate):
        return False
    if all(scale.equals(operand) for scale in candidate.outputs):
        return AS_ASKED
    return operand.step, int(operand.zero[0])


def _averaged(candidate: Candidate) -> bool | tuple[float, int]:
    """The kernel rounds a mean to steps of the operand's before a QUANTIZE to the result's rounds it again."""
    gives, operand = _alike(candidate), candidate.inputs[0]
    if not gives or operand is None or candidate.node.attributes.get_string("mode", "linear") == "nearest":
        return gives
    return gives if candidate.result.step >= FINE * operand.step else False


def _all_alike(candidate: Candidate, first: int = 0) -> bool:
    """The kernel compares integers, or takes those of one operand: all from one on have the scale of the result."""
    same = all(scale is not None and scale.equals(candidate.result) for scale in candidate.inputs[first:])
    return same and _data(candidate, range(first, len(candidate.inputs)))


WORD_STEP = 2.0**-15  # the step of what kernels of 16 bits give for LOGISTIC, TANH and SOFTMAX
KERNEL_SCALES: Mapping[str, tuple[float, int]] = {
    **dict.fromkeys(("Sigmoid", "Softmax"), (1 / 256, -128)),
    "Tanh": (1 / 128, 0),
    "LogSoftmax": (1 / 16, 127),
}
"""Operator -> the scale and zero point that its kernel of bytes gives."""
FINE = 0.6
"""How much finer than the kernel's a result's steps may be: both roundings together stay below one step and a half."""


def _fixed(candidate: Candidate) -> bool | tuple[float, int]:
    """The kernel gives one scale. A QUANTIZE to another loses nothing that its steps would show."""
    result = candidate.result
    scale, zero = KERNEL_SCALES[candidate.node.op_type] if result.dtype in BYTES else (WORD_STEP, 0)
    if not _on_one(candidate):
        return False
    if abs(result.step - scale) <= scale * 1e-6 and int(result.zero[0]) == zero:
        return AS_ASKED
    return (scale, zero) if result.step >= scale * FINE else False


def reaches_logarithms(result: Scale) -> bool:
    """Tell whether LOG_SOFTMAX of bytes, which ends at -255/16, reaches the least number of a result."""
    return (-128 - int(result.zero[0])) * result.step >= -255 / 16 - result.step / 2


def _logistic(candidate: Candidate) -> bool | tuple[float, int]:
    """The kernel of 16 bits is a step off at most. For one scale there is another one, which is six steps off."""
    operand = candidate.inputs[0]
    is_other = operand is not None and abs(operand.step / OTHER_LOGISTIC - 1) < 0.01
    return not (is_other and candidate.result.dtype in WORDS) and _fixed(candidate)


OTHER_LOGISTIC = 2.0**-12  # the scale of an operand of 16 bits for which LiteRT has another LOGISTIC


def _inverse_root(candidate: Candidate) -> bool:
    """A power of -0.5 is RSQRT, whose kernel of 16 bits has 512 straight lines: right as the lesser of two alone.

    The kernel of 8 bits refuses numbers below 0.
    """
    node, exponent = candidate.node, candidate.node.inputs[1]
    known = None if exponent is None or exponent.const_value is None else exponent.const_value.numpy()
    is_root = known is not None and known.size == 1 and float(known.reshape(-1)[0]) == -0.5
    operand = candidate.inputs[0]
    if is_root and operand is not None and operand.dtype == ir.DataType.INT8:
        return int(operand.zero[0]) == LEAST_BYTE and _on_bytes(candidate)
    values = [node.outputs[0]]
    for _ in range(2):
        values = [use.node.outputs[0] for value in values for use in value.uses()]
    is_lesser = {use.node.op_type for value in values for use in value.uses()} == {"Min"}
    return is_root and is_lesser and candidate.result.dtype in WORDS and _on_one(candidate)


AVERAGING = ("AveragePool", RESIZE)  # operators whose kernels of bytes round to the scale of the operand
ROWS: Mapping[str, Row] = {  # ONNX's operator -> whether LiteRT's integer kernel computes a unit of it
    **dict.fromkeys(("Conv", "ConvTranspose", "Gemm"), _weighted),
    "MatMul": _product,
    **dict.fromkeys(("Add", "Sub"), lambda candidate: _on_two(candidate, adds)),
    "Mul": lambda candidate: _on_two(candidate, multiplies),
    "MaxPool": _alike,
    **dict.fromkeys(AVERAGING, _averaged),
    **dict.fromkeys(("DepthToSpace", "SpaceToDepth"), lambda candidate: _on_bytes(candidate) and _alike(candidate)),
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose"), _alike),
    **dict.fromkeys(("Slice", "Split", "Gather", "Pad", "Expand", "Tile"), _alike),
    **dict.fromkeys(("GlobalMaxPool", "ReduceMax", "ReduceMin"), _alike),
    **dict.fromkeys(("GlobalAveragePool", "ReduceMean", "Relu", "LeakyRelu"), _on_one),
    "PRelu": _sloped,
    "Abs": lambda candidate: not candidate.unsigned and _on_one(candidate),
    "HardSwish": _hard_swish,
    **dict.fromkeys(("Elu", "Gelu"), _tabulated),
    **dict.fromkeys(("Max", "Min"), _all_alike),
    "Concat": lambda candidate: _data(candidate, range(len(candidate.inputs))),
    "Where": partial(_all_alike, first=1),
    "Pow": _inverse_root,
    "Clip": lambda candidate: bounds_of(candidate.node) in CLAMPS.values() and _on_bytes(candidate),
    "Sigmoid": _logistic,
    **dict.fromkeys(("Softmax", "Tanh"), _fixed),
    "LogSoftmax": lambda candidate: (
        candidate.result.dtype in BYTES and reaches_logarithms(candidate.result) and _fixed(candidate)
    ),
}
TAKES = frozenset({"Conv", "Gemm", "MatMul", "Add", "Sub", "Mul", "AveragePool", "MaxPool"})
"""Operators whose kernels apply an activation."""
PRODUCTS = frozenset({"MatMul"})
"""Of these those whose second operand is constant: of two activations they are another builtin."""


# The condition that LiteRT has an integer kernel for a quantized unit: other units stay on real numbers.


def _has_kernel(unit: QuantizedUnit) -> bool:
    if unit.node.op_type == QUANTIZE:
        return True
    row, candidate = ROWS.get(unit.node.op_type), candidate_of(unit)
    if row is None or candidate is None or _nodes_of(unit) is None:
        return False
    has_unsigned = any(
        each is not None and each.is_constant and each.dtype == ir.DataType.UINT8 for each in unit.operands
    )
    return bool(row(candidate) or (has_unsigned and row(candidate._replace(unsigned=True))))


def candidate_of(unit: QuantizedUnit) -> Candidate | None:
    """Return a quantized unit as a candidate; None where a result has no constant scale, or several."""
    operands = tuple(None if each is None else each.meaning for each in unit.operands)
    results = tuple(each for each in (result.meaning for result in unit.results) if each is not None)
    if len(results) < len(unit.results) or not all(result.is_one for result in results):
        return None
    constants = tuple(
        value is not None and (value.const_value is not None or (operand is not None and operand.is_constant))
        for value, operand in zip(unit.node.inputs, unit.operands, strict=True)
    )
    return Candidate(unit.node, operands, constants, results)


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
    is_litert: bool,  # whether one builtin of a `.tflite` that was both is one again
) -> None:
    """Quantize what is between an operator and an activation that it does not apply, in place."""
    for node in list(graph):
        value = node.inputs[0] if node.op_type in EPILOGUES and not node.domain else None
        operator = None if value is None else value.producer()
        readers = [use.node for use in node.outputs[0].uses()]
        if value is None or operator is None or operator.op_type not in ROWS or len(readers) != 1:
            continue
        unit = unit_of(operator)
        if unit is not None and node in unit.members and _stands_alone(operator, node, readers[0], is_litert):
            (_, *parameters), integers = readers[0].inputs, readers[0].outputs[0].type
            node.replace_input_with(0, Insertion(graph, node).quantized(value, parameters, integers))


def _stands_alone(operator: ir.Node, activation: ir.Node, quantize: ir.Node, as_source: bool) -> bool:
    """Tell whether a kernel of integers computes an activation, and not with the operator before it."""
    if quantize.op_type != QUANTIZE or quantize.domain:
        return False
    fused = fused_activation(activation, quantize)
    has_kernel = fused == ActivationFunctionType.RELU or quantize.outputs[0].dtype in BYTES
    return fused is not None and has_kernel and not applies(operator, fused, activation if as_source else None)
