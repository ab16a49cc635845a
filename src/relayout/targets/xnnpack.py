"""XNNPACK, CPU kernels for phones, browsers and desktops.

Layouts of kernels: XNNPACK, `include/xnnpack.h`, the comments of `xnn_define_convolution_2d`,
`xnn_define_depthwise_convolution_2d` and `xnn_define_deconvolution_2d`. A deconvolution in groups has all output
channels in front, ONNX those of one group: no order of axes leads from one to the other. Operators and limits: ONNX
Runtime, "XNNPACK Execution Provider", section "Supported ops", with its checks of nodes
(`core/providers/xnnpack/nn`, `tensor/resize.cc`), and TensorFlow, "XNNPACK backend for TensorFlow Lite", section
"Limitations and supported operators" and "Quantized Operators".
"""

from relayout.lowering.conditions import (
    CONSTANT_BOUNDS,
    CONSTANT_KERNEL,
    CONSTANT_MODE,
    DEPTH_FIRST,
    FLOOR,
    LAST_AXIS,
    NO_AXES,
    NO_DILATIONS,
    NO_GROUPS,
    NO_INDICES,
    NO_PADDED_MEAN,
    PADS,
    PLAIN_PRODUCT,
    RESIZE_PLAIN,
    SPATIAL_ONLY,
    STATIC_BUT_N,
    WIDE,
    attribute,
    constant,
    inputs,
)
from relayout.targets.target_table import INT8, Kernel, Target, convolutions

FLOAT32 = ("FLOAT",)
NUMBERS = (*FLOAT32, *INT8)
IMAGE = (4,)
LINEAR = attribute("mode", ("linear",), "nearest")
PLACES = attribute("coordinate_transformation_mode", ("half_pixel", "asymmetric", "align_corners"), "half_pixel")

TARGET = Target(
    "xnnpack",
    "XNNPACK: NHWC, kernels OHWI, depthwise 1HWC; from documents of November 2026, never run",
    (
        *convolutions(NUMBERS, IMAGE, (CONSTANT_KERNEL, STATIC_BUT_N)),
        *convolutions(INT8, IMAGE, (CONSTANT_KERNEL, STATIC_BUT_N), "QLinearConv"),
        Kernel("ConvTranspose", ("NHWC OHWI",), FLOAT32, IMAGE, (CONSTANT_KERNEL, NO_GROUPS, STATIC_BUT_N)),
        Kernel("MaxPool", ("NHWC",), NUMBERS, IMAGE, (NO_INDICES, FLOOR, WIDE, STATIC_BUT_N)),
        Kernel("AveragePool", ("NHWC",), NUMBERS, IMAGE, (FLOOR, WIDE, NO_PADDED_MEAN, NO_DILATIONS, STATIC_BUT_N)),
        Kernel("GlobalAveragePool", ("NHWC",), FLOAT32, IMAGE, (STATIC_BUT_N,)),
        Kernel("Resize", ("NHWC",), FLOAT32, IMAGE, (LINEAR, PLACES, SPATIAL_ONLY, RESIZE_PLAIN, NO_AXES)),
        Kernel("DepthToSpace", ("NHWC",), FLOAT32, IMAGE, (DEPTH_FIRST,)),
        Kernel("Abs Ceil Elu Floor HardSwish LeakyRelu Neg Relu Round Sigmoid Sqrt", types=FLOAT32),
        Kernel("Add Mul", types=NUMBERS),
        Kernel("Div Sub", types=FLOAT32),
        Kernel("Max Min", types=FLOAT32, limits=(inputs(2),)),
        Kernel("Clip", types=FLOAT32, limits=(CONSTANT_BOUNDS,)),
        Kernel("PRelu", types=FLOAT32, limits=(constant(1, "slope"),)),
        Kernel("Pad", types=FLOAT32, limits=(CONSTANT_MODE, PADS)),
        Kernel("Reshape", types=FLOAT32, limits=(constant(1, "shape"),)),
        Kernel("Softmax", types=NUMBERS, limits=(LAST_AXIS,)),
        Kernel("Gemm", types=NUMBERS, ranks=(2,), limits=(constant(1, "second operand"), PLAIN_PRODUCT)),
        Kernel("MatMul", types=FLOAT32, ranks=(2,), limits=(constant(1, "second operand"),)),
        Kernel("QuantizeLinear", types=NUMBERS, limits=(constant(1, "scale"), constant(2, "zero point"))),
        Kernel("DequantizeLinear", types=INT8, limits=(constant(1, "scale"), constant(2, "zero point"))),
    ),
)
