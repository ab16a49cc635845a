"""OpenVINO on a CPU, which reads ONNX in the standard's layouts and chooses its own inside.

Operators and limits: models of single operators, read by OpenVINO 2026.4, run by its CPU plugin and compared with ONNX
Runtime and with the standard's node tests (`tests/targets/test_openvino.py`). A node that OpenVINO refuses or gets
wrong is outside of its row's limits. Some operators have no row, since no limit is known: Attention has no windows,
OneHot, RoiAlign and DFT are wrong at times, and so are indices of a TopK of equal elements.
"""

from __future__ import annotations

from relayout.lowering.conditions import (
    DEPTH_FIRST,
    FLOOR,
    LAST_AXIS,
    NO_PADDED_MEAN,
    RESIZE_PLAIN,
    Condition,
    attribute,
    constant,
)
from relayout.lowering.unit_rows import of_units
from relayout.rules import Operator
from relayout.targets.target_table import Kernel, Target

UNSIGNED = ("UINT8", "UINT16", "UINT32", "UINT64")
INTEGERS = (*UNSIGNED, "INT8", "INT16", "INT32", "INT64")
FLOAT32 = ("FLOAT",)
OPSET_OF_AXES = 13  # until then a Softmax was one of a matrix: OpenVINO takes it for one along its axis


def _has_extents_of_data(operator: Operator) -> bool:
    x, indices, axis = operator.shape(), operator.shape(1), operator.int("axis", 0)
    if x is None or indices is None or len(x) != len(indices):
        return False
    return all(a == b for place, (a, b) in enumerate(zip(x, indices, strict=True)) if place != axis % len(x))


ALONG_AXIS = Condition(
    f"the last axis, or opset {OPSET_OF_AXES}",
    lambda operator: operator.version >= OPSET_OF_AXES or LAST_AXIS.holds(operator),
)
EXTENTS = Condition("indices with the data's extents but along the axis", _has_extents_of_data)
BORDERS = attribute("mode", ("constant", "reflect", "edge"), "constant")
ROW_MAJOR = Condition("storage_order 0", lambda operator: operator.int("storage_order", 0) == 0)
TIME_FIRST = Condition("layout 0", lambda operator: operator.int("layout", 0) == 0)
NO_PEEPHOLES = Condition("no peepholes", lambda operator: not operator.has(7))
BOTH_ZEROS = Condition("a first zero point, or none", lambda operator: operator.has(2) or not operator.has(3))
ONE_SCALE = Condition("one scale for the weights", lambda operator: operator.shape(4) in ((), (1,)))
OUTSIDE_UNITS = of_units("in no quantized unit", lambda _: False)
MEAN_OF_IMAGE = Condition(
    "count_include_pad 0, or real numbers",
    lambda operator: NO_PADDED_MEAN.holds(operator) or OUTSIDE_UNITS.holds(operator),
)
SOME_AXES = Condition("noop_with_empty_axes 0", lambda operator: not operator.int("noop_with_empty_axes", 0))
COORDINATES = attribute(
    "coordinate_transformation_mode", ("half_pixel", "pytorch_half_pixel", "asymmetric"), "half_pixel"
)
NEAR = attribute("mode", ("nearest", "linear"), "nearest")

TARGET = Target(
    "openvino",
    "OpenVINO on a CPU: NCHW, kernels OIHW, as ONNX has them",
    (
        Kernel("Conv ConvTranspose", ("NCHW",)),
        Kernel("ConvInteger", ("NCHW",)),
        Kernel("QLinearConv", ("NCHW",), limits=(ONE_SCALE,)),
        Kernel("MaxPool", ("NCHW",), limits=(FLOOR, ROW_MAJOR)),
        Kernel("AveragePool", ("NCHW",), limits=(FLOOR, MEAN_OF_IMAGE)),
        Kernel("GlobalAveragePool GlobalLpPool GlobalMaxPool LpPool", ("NCHW",)),
        Kernel("BatchNormalization GroupNormalization InstanceNormalization LRN", ("NCHW",)),
        Kernel("DepthToSpace Upsample", ("NCHW",)),
        Kernel("SpaceToDepth", ("NCHW",), limits=(DEPTH_FIRST,)),
        Kernel("GridSample", ("NCHW",), ranks=(4,)),
        Kernel("Resize", ("NCHW",), limits=(NEAR, COORDINATES, RESIZE_PLAIN)),
        Kernel("Abs Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Elu Erf Exp Floor Gelu HardSigmoid HardSwish"),
        Kernel("IsInf IsNaN LeakyRelu Log Mish Neg Not Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh"),
        Kernel("Softplus Softsign Sqrt Swish Tan Tanh ThresholdedRelu"),
        Kernel("Celu", types=FLOAT32),
        Kernel("Add And BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Clip Div Equal Greater GreaterOrEqual"),
        Kernel("Less LessOrEqual Max Mean Min Mul Or Pow PRelu Sub Sum Where Xor"),
        Kernel("BitShift", types=UNSIGNED),
        Kernel("Mod", types=INTEGERS),
        Kernel("Einsum Gemm MatMul"),
        Kernel("QLinearMatMul", limits=(ONE_SCALE,)),
        Kernel("ArgMax ArgMin Cast Compress Concat CumSum Expand Flatten Gather GatherND Reshape ReverseSequence"),
        Kernel("ScatterElements ScatterND Slice Split Squeeze Transpose Trilu Unique"),
        Kernel("GatherElements", limits=(EXTENTS,)),
        Kernel("Pad", limits=(BORDERS,)),
        Kernel("Tile", limits=(constant(1, "list of repeats"),)),
        Kernel("Unsqueeze", limits=(constant(1, "list of axes"),)),
        Kernel("LayerNormalization LpNormalization RMSNormalization RotaryEmbedding"),
        Kernel("LogSoftmax"),
        Kernel("Hardmax Softmax", limits=(ALONG_AXIS,)),
        Kernel("ReduceL1 ReduceL2 ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare"),
        Kernel("ReduceLogSum", limits=(constant(1, "list of axes"), SOME_AXES)),
        Kernel("GRU RNN", when=TIME_FIRST),
        Kernel("LSTM", limits=(NO_PEEPHOLES,), when=TIME_FIRST),
        Kernel("MatMulInteger", limits=(BOTH_ZEROS,)),
        Kernel("DequantizeLinear QuantizeLinear"),
    ),
)
