"""LiteRT (TensorFlow Lite): what its builtin operators take.

Layouts: TensorFlow, the operations of the `tfl` dialect (`tfl.conv_2d`, `tfl.depthwise_conv_2d`, `tfl.transpose_conv`),
and the shapes that this project's own reader holds files to (`relayout/formats/tflite/operators`). Explicit
pads of a convolution become an operator of their own there, those of a mean cannot.
"""

from relayout.lowering.conditions import (
    CONSTANT_MODE,
    DEPTH_FIRST,
    DEPTHWISE,
    FLOOR,
    LAST_AXIS,
    NO_AXES,
    NO_DILATIONS,
    NO_GROUPS,
    NO_INDICES,
    NO_PADDED_MEAN,
    NOT_DEPTHWISE,
    PADS,
    PLAIN_PRODUCT,
    RELU_6,
    RESIZE_PLAIN,
    SAME_OR_VALID,
    SPATIAL_ONLY,
    attribute,
    constant,
    inputs,
)
from relayout.targets.target import INT8, Kernel, Target

FLOAT32 = ("FLOAT",)
BYTES_TOO = (*FLOAT32, *INT8)
IMAGE = (4,)
COORDINATES = "coordinate_transformation_mode"
RESIZED = (SPATIAL_ONLY, RESIZE_PLAIN, NO_AXES)

TARGET = Target(
    "litert",
    "LiteRT (TensorFlow Lite), its builtin operators: NHWC, kernels OHWI, depthwise 1HWC",
    (
        Kernel("Conv", ("NHWC OHWI",), FLOAT32, IMAGE, (), NOT_DEPTHWISE),
        Kernel("Conv", ("NHWC IHWO",), FLOAT32, IMAGE, (), DEPTHWISE),
        Kernel("ConvTranspose", ("NHWC OHWI",), FLOAT32, IMAGE, (NO_GROUPS, NO_DILATIONS)),
        Kernel("MaxPool", ("NHWC",), BYTES_TOO, IMAGE, (NO_INDICES, NO_DILATIONS, FLOOR)),
        Kernel("AveragePool", ("NHWC",), FLOAT32, IMAGE, (SAME_OR_VALID, NO_PADDED_MEAN, NO_DILATIONS, FLOOR)),
        Kernel("GlobalAveragePool GlobalMaxPool", ("NHWC",), FLOAT32, IMAGE),
        Kernel("DepthToSpace", ("NHWC",), BYTES_TOO, IMAGE, (DEPTH_FIRST,)),
        Kernel("SpaceToDepth", ("NHWC",), BYTES_TOO, IMAGE),
        Kernel("LRN", ("NHWC",), FLOAT32, IMAGE),
        Kernel(
            "Resize",
            ("NHWC",),
            FLOAT32,
            IMAGE,
            (attribute(COORDINATES, ("half_pixel", "align_corners", "asymmetric"), "half_pixel"), *RESIZED),
            attribute("mode", ("linear",), "nearest"),
        ),
        Kernel(
            "Resize",
            ("NHWC",),
            BYTES_TOO,
            IMAGE,
            (
                attribute(COORDINATES, ("asymmetric",), "half_pixel"),
                attribute("nearest_mode", ("floor",), "round_prefer_floor"),
                *RESIZED,
            ),
            attribute("mode", ("nearest",), "nearest"),
        ),
        Kernel("Abs Ceil Cos Elu Exp Floor HardSwish LeakyRelu Log Neg Relu Round Sigmoid", types=FLOAT32),
        Kernel("Sign Sin Sqrt Tanh", types=FLOAT32),
        Kernel("Clip", types=FLOAT32, limits=(RELU_6,)),
        Kernel("Add Div Mul Pow PRelu Sub", types=FLOAT32),
        Kernel("Max Min", types=FLOAT32, limits=(inputs(2),)),
        Kernel("Concat Reshape Split Squeeze Tile Transpose", types=BYTES_TOO),
        Kernel("MatMul", types=FLOAT32),
        Kernel("Gemm", types=FLOAT32, limits=(constant(1, "second operand"), PLAIN_PRODUCT)),
        Kernel("Pad", types=BYTES_TOO, limits=(CONSTANT_MODE, PADS)),
        Kernel(
            "ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum", types=FLOAT32, limits=(constant(1, "list of axes"),)
        ),
        Kernel("LogSoftmax Softmax", types=FLOAT32, limits=(LAST_AXIS,)),
        Kernel("QuantizeLinear", types=FLOAT32),
        Kernel("DequantizeLinear", types=INT8),
    ),
)
