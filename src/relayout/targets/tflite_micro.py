"""TensorFlow Lite Micro, an interpreter for microcontrollers: quantized units that it runs on integers.

Operators, types and limits: `.tflite` files of single operators, run in the Python package tflite-micro of October 2026
and compared with LiteRT (`tests/targets/test_tflite_micro.py`). Of uint8 it has little more than QUANTIZE and
DEQUANTIZE: such values are int8 inside. It takes constants that have a scale for each channel for those of one scale
where it dequantizes them.
"""

from __future__ import annotations

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.runtimes import Builtins
from relayout.formats.tflite.exporting.draft import DraftTensor
from relayout.formats.tflite.exporting.few_axes import groups_of, own_axes, regroup_axes, transpose_few
from relayout.formats.tflite.exporting.rewriting import Rewriting
from relayout.graph.quantized_unit import stored_reals
from relayout.lowering.conditions import (
    COUNTED_BORDER,
    COUNTED_ELEMENTS,
    DEPTH_FIRST,
    NO_DILATIONS,
    NO_INDICES,
    SPATIAL_ONLY,
    STATIC,
    Condition,
    attribute,
)
from relayout.rules import Operator
from relayout.targets.litert.quantized_units import INTEGER_KERNEL
from relayout.targets.litert.table import beside_litert
from relayout.targets.target_table import Kernel, convolutions

# The builtins that TensorFlow Lite Micro has: its Python package, tflite-micro of October 2026, loads no others.

_NAMES = """
ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE EMBEDDING_LOOKUP FLOOR
FULLY_CONNECTED L2_NORMALIZATION L2_POOL_2D LOGISTIC MAX_POOL_2D MUL RELU RELU6 RESHAPE RESIZE_BILINEAR SOFTMAX
SPACE_TO_DEPTH SVDF TANH PAD GATHER BATCH_TO_SPACE_ND SPACE_TO_BATCH_ND TRANSPOSE MEAN SUB DIV SQUEEZE
UNIDIRECTIONAL_SEQUENCE_LSTM STRIDED_SLICE EXP SPLIT LOG_SOFTMAX CAST PRELU MAXIMUM ARG_MAX MINIMUM LESS NEG PADV2
GREATER GREATER_EQUAL LESS_EQUAL SLICE SIN TRANSPOSE_CONV EXPAND_DIMS EQUAL NOT_EQUAL LOG SUM SQRT RSQRT SHAPE
ARG_MIN REDUCE_MAX PACK LOGICAL_OR LOGICAL_AND LOGICAL_NOT UNPACK REDUCE_MIN FLOOR_DIV SQUARE ZEROS_LIKE FILL
FLOOR_MOD RESIZE_NEAREST_NEIGHBOR LEAKY_RELU SQUARED_DIFFERENCE MIRROR_PAD ABS SPLIT_V CEIL REVERSE_V2 ADD_N
GATHER_ND COS ELU QUANTIZE ROUND HARD_SWISH IF WHILE SELECT_V2 BATCH_MATMUL CUMSUM CALL_ONCE BROADCAST_TO REDUCE_ALL
VAR_HANDLE READ_VARIABLE ASSIGN_VARIABLE BROADCAST_ARGS DYNAMIC_UPDATE_SLICE
"""
MOST_JOINED = 10  # tensors that its CONCATENATION takes


def join_few(op: Rewriting) -> DraftTensor | None:
    """Write a CONCATENATION of many tensors as one of CONCATENATIONs; None where it is another operator, or of few."""
    parts, result, axis = op.operands, op.result, op.operator.options.get("axis", 0)
    if op.operator.name != "CONCATENATION" or len(parts) <= MOST_JOINED or not all(each.is_static for each in parts):
        return None
    axis %= len(result.dims)
    while len(parts) > MOST_JOINED:
        runs = [parts[begin : begin + MOST_JOINED] for begin in range(0, len(parts), MOST_JOINED)]
        parts = []
        for run in runs:
            dims = (*result.dims[:axis], sum(each.shape[axis] for each in run), *result.dims[axis + 1 :])
            parts.append(op.emit("CONCATENATION", run, dims, result.type, result.quantization, axis=axis))
    return op.same(*parts)


MOST_SLICED = 4  # axes of what its STRIDED_SLICE reads


def slice_few(op: Rewriting) -> list[DraftTensor] | None:
    """Write a STRIDED_SLICE of many axes as one in which neighbours that are whole are one axis; None of any other."""
    if op.operator.name != "STRIDED_SLICE" or len(op.operands[0].dims) <= MOST_SLICED:
        return None
    source = op.operands[0]
    axes = own_axes(op.operator, source)
    groups = groups_of(op.operator, len(source.dims), axes)
    return regroup_axes(op, op.operator, axes, groups) if axes and len(groups) <= MOST_SLICED else None


def shift_bytes(op: Rewriting) -> DraftTensor | None:
    """Write a TRANSPOSE or QUANTIZE that gives uint8 of a scale as one that gives int8; None of any other operator."""
    name, source, meaning = op.operator.name, op.operands[0], op.result.quantization
    is_transpose = name == "TRANSPOSE"
    is_missing = is_transpose or (name == "QUANTIZE" and source.type in (TensorType.FLOAT32, TensorType.UINT8))
    if not is_missing or op.result.type != TensorType.UINT8 or meaning is None:
        return None
    shifted = meaning._replace(zero_point=meaning.zero_point - 128)
    if is_transpose:
        source = op.emit("QUANTIZE", [source], source.dims, TensorType.INT8, shifted)
    signed = op.emit(name, [source, *op.operands[1:]], op.result.dims, TensorType.INT8, shifted)
    return op.emit("QUANTIZE", [signed], op.result.dims, TensorType.UINT8, meaning)


MOST_TRANSPOSED = 5  # axes that its TRANSPOSE takes

MICRO = Builtins(
    "TensorFlow Lite Micro",
    frozenset(_NAMES.split()),
    form=lambda op: join_few(op) or slice_few(op) or transpose_few(op, MOST_TRANSPOSED) or shift_bytes(op),
    lacks=frozenset((name, TensorType.INT64) for name in ("ARG_MAX", "ARG_MIN", "CAST")),
    on_bytes=frozenset(("ABS", "ELU")),
)

TYPES = ("INT8", "UINT8", "INT16")
BYTES = ("INT8", "UINT8")  # interiors of uint8 are written as int8
IMAGE = (3, 4)
UNIT = (STATIC, INTEGER_KERNEL)
NEAREST = attribute("mode", ("nearest",), "nearest")
TABULATED = """
    Atan Ceil Celu Cos Erf Exp Floor Gelu HardSigmoid Log Mish Neg Pow Reciprocal Round Selu Shrink Sign Sin Softplus
    Softsign Sqrt Tan ThresholdedRelu
"""
"""Functions of one number that are looked up."""


def _is_looked_up(operator: Operator) -> bool:
    """Tell whether an operator is a function of one integer, with one scale, that gives integers with one scale."""
    unit = operator.unit()
    if unit is None or not all(each.meaning is not None and each.meaning.is_one for each in unit.activations):
        return False
    others = [stored_reals(value) for value in unit.node.inputs[1:] if value is not None]
    return all(numbers is not None and numbers.size == 1 for numbers in others)


ONE_INTEGER = Condition("one operand of one scale, whose result has one, and others of one number", _is_looked_up)

TARGET = beside_litert(
    name="tflite-micro",
    line="TensorFlow Lite Micro: int8 and int16, NHWC; other operators as LiteRT has them",
    kernels=(
        *convolutions(TYPES, IMAGE, UNIT),
        Kernel("ConvTranspose", ("NHWC OHWI",), TYPES, IMAGE, UNIT),
        Kernel("MaxPool", ("NHWC",), TYPES, IMAGE, (NO_INDICES, *UNIT)),
        Kernel("AveragePool", ("NHWC",), TYPES, IMAGE, (NO_DILATIONS, COUNTED_ELEMENTS, *UNIT)),
        Kernel("AveragePool", ("NHWC",), TYPES, (4,), (NO_DILATIONS, COUNTED_BORDER, *UNIT)),
        Kernel("GlobalAveragePool", ("NHWC",), TYPES, (3, 4, 5), UNIT),
        Kernel("GlobalMaxPool", ("NHWC",), BYTES, (3, 4, 5), UNIT),
        Kernel("Resize", ("NHWC",), BYTES, (4,), (SPATIAL_ONLY, *UNIT)),
        Kernel("Resize", ("NHWC",), ("INT16",), (4,), (SPATIAL_ONLY, *UNIT), NEAREST),
        Kernel("DepthToSpace", ("NHWC",), BYTES, (4,), (DEPTH_FIRST, *UNIT)),
        Kernel("Gemm MatMul", types=TYPES, limits=UNIT),
        Kernel("Add Mul Sub Max Min Concat", types=TYPES, limits=UNIT),
        Kernel("Flatten Pad Reshape Slice Split Squeeze Unsqueeze", types=TYPES, limits=UNIT),
        Kernel("Transpose", types=("INT8", "INT16"), limits=UNIT),
        Kernel("HardSwish LeakyRelu Relu Sigmoid Tanh", types=TYPES, limits=UNIT),
        Kernel("Clip", types=BYTES, limits=UNIT),
        Kernel("Pow", types=("INT16",), limits=UNIT),
        Kernel("ReduceMean", types=TYPES, limits=UNIT),
        Kernel("ReduceMax ReduceMin", types=BYTES, limits=UNIT),
        Kernel("Abs Elu", types=BYTES, limits=UNIT),
        Kernel(TABULATED, types=BYTES, limits=(STATIC, ONE_INTEGER)),
        Kernel("Softmax", types=TYPES, limits=UNIT, trailing="axis"),
        Kernel("SOFTMAX", types=("INT16",), limits=(STATIC,), domain="tflite"),
        Kernel("QuantizeLinear", types=TYPES, limits=(STATIC,)),
        Kernel("Cast Gather", types=BYTES, limits=(STATIC,)),
        Kernel("Add", types=("INT32",), limits=(STATIC,)),
    ),
    builtins=MICRO,
)
ALIASES = {"tflm": "tflite-micro"}
