"""NVIDIA TensorRT, which reads ONNX in the standard's layout and chooses its own formats inside.

Operators, types and limits: onnx-tensorrt, "Supported ONNX Operators" (TensorRT 10.0), table "Operator Support Matrix".
"""

from dataclasses import replace

from relayout.lowering.conditions import NO_DILATIONS, NO_INDICES, RESIZE_PLAIN, SYMMETRIC, attribute, constant
from relayout.lowering.unit_rows import NO_RAW_INTEGERS
from relayout.targets.target_table import Kernel, Target

FLOATS = ("FLOAT", "FLOAT16", "BFLOAT16")
UNITS = (*FLOATS, "INT8")
"""An operator between a DequantizeLinear and a QuantizeLinear runs on int8 where there is a kernel, else on floats."""
NUMBERS = (*UNITS, "INT32", "INT64")
ANY = (*NUMBERS, "BOOL")
MODES = attribute("mode", ("nearest", "linear"), "nearest")
_PLACES = ("half_pixel", "pytorch_half_pixel", "tf_half_pixel_for_nn", "asymmetric", "align_corners")
PLACES = attribute("coordinate_transformation_mode", _PLACES, "half_pixel")

_COMPUTING = (
    Kernel("Conv ConvTranspose", ("NCHW",), UNITS),
    Kernel("MaxPool", ("NCHW",), UNITS, (4, 5), (NO_INDICES, NO_DILATIONS)),
    Kernel("AveragePool LpPool", ("NCHW",), UNITS, (4, 5), (NO_DILATIONS,)),
    Kernel("GlobalAveragePool GlobalLpPool GlobalMaxPool", ("NCHW",), UNITS),
    Kernel("BatchNormalization GroupNormalization InstanceNormalization LRN", ("NCHW",), UNITS),
    Kernel("DepthToSpace SpaceToDepth", ("NCHW",), NUMBERS),
    Kernel("GridSample", ("NCHW",), ("FLOAT", "FLOAT16"), (4,)),
    Kernel("Resize", ("NCHW",), UNITS, (), (MODES, PLACES, RESIZE_PLAIN)),
    Kernel("Clip Elu Gemm HardSwish LeakyRelu MatMul PRelu Sigmoid Softmax Tanh", types=UNITS),
    Kernel("Abs Add Div Max Mean Min Mul Relu Sub", types=NUMBERS),
    Kernel("Concat Flatten Reshape Split Transpose", types=ANY),
    Kernel("ReduceMean", types=NUMBERS, limits=(constant(1, "list of axes"),)),
    Kernel("Slice", types=ANY, limits=(constant(3, "list of axes"),)),
    Kernel("Squeeze", types=ANY, limits=(constant(1, "list of axes"),)),
    Kernel("Pad", types=NUMBERS, limits=(constant(3, "list of axes"),)),
)
_ENDS = (
    Kernel("QuantizeLinear", types=UNITS, limits=(SYMMETRIC,)),
    Kernel("DequantizeLinear", types=("INT8", "FLOAT8E4M3FN", "INT4"), limits=(SYMMETRIC,)),
)

TARGET = Target(
    "tensorrt",
    "NVIDIA TensorRT: NCHW, kernels OIHW, as ONNX has them; from documents of November 2026, never run",
    (*(replace(row, limits=(*row.limits, NO_RAW_INTEGERS)) for row in _COMPUTING), *_ENDS),
)
