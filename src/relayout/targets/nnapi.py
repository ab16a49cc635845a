"""Android's Neural Networks API.

Layouts: Android NDK, "NeuralNetworks", `OperationCode`, the shapes of `ANEURALNETWORKS_CONV_2D`,
`…_GROUPED_CONV_2D` and `…_DEPTHWISE_CONV_2D`. NCHW is there from API level 29 on and said to be slower, so it is not
in the table. Operators and limits: ONNX Runtime, "NNAPI Execution Provider", sections "NNAPI_FLAG_USE_NCHW" and
"Supported ops", with its checks of nodes (`core/providers/nnapi/nnapi_builtin/builders/impl`: Conv, pools, Resize) and
the quantized units that it knows (`builders/helper.cc`, `GetQuantizedOpType`), here of uint8.
"""

from relayout.lowering.conditions import (
    CONSTANT_KERNEL,
    CONSTANT_MODE,
    DEPTH_FIRST,
    DEPTHWISE,
    FLOOR,
    GROUPED,
    NO_AXES,
    NO_DILATIONS,
    NO_GROUPS,
    NO_INDICES,
    NO_PADDED_MEAN,
    PADS,
    RESIZE_PLAIN,
    SPATIAL_ONLY,
    attribute,
    constant,
)
from relayout.targets.litert.table import beside_litert
from relayout.targets.target_table import INT8, Kernel

FLOAT32 = ("FLOAT",)
UNITS = (*FLOAT32, "UINT8")
IMAGE = (4,)
COORDINATES = "coordinate_transformation_mode"
PLACES = attribute(COORDINATES, ("half_pixel", "align_corners", "asymmetric"), "half_pixel")
FLOORED = (
    attribute(COORDINATES, ("asymmetric",), "half_pixel"),
    attribute("nearest_mode", ("floor",), "round_prefer_floor"),
)
RESIZED = (SPATIAL_ONLY, RESIZE_PLAIN, NO_AXES)

TARGET = beside_litert(
    name="nnapi",
    line="Android's Neural Networks API: NHWC, kernels OHWI, depthwise 1HWC; from documents of November 2026,"
    " never run; LiteRT's kernels run the rest",
    kernels=(
        Kernel("Conv", ("NHWC OHWI",), (*FLOAT32, *INT8), IMAGE, (CONSTANT_KERNEL,), NO_GROUPS),
        Kernel("Conv", ("NHWC OHWI",), (*FLOAT32, *INT8), IMAGE, (CONSTANT_KERNEL, NO_DILATIONS), GROUPED),
        Kernel("Conv", ("NHWC IHWO",), (*FLOAT32, *INT8), IMAGE, (CONSTANT_KERNEL,), DEPTHWISE),
        Kernel("MaxPool", ("NHWC",), UNITS, IMAGE, (NO_INDICES, NO_DILATIONS, FLOOR)),
        Kernel("AveragePool", ("NHWC",), UNITS, IMAGE, (NO_DILATIONS, NO_PADDED_MEAN, FLOOR)),
        Kernel("GlobalAveragePool GlobalMaxPool", ("NHWC",), FLOAT32, IMAGE),
        Kernel("LRN", ("NHWC",), FLOAT32, IMAGE),
        Kernel("DepthToSpace", ("NHWC",), FLOAT32, IMAGE, (DEPTH_FIRST,)),
        Kernel("Resize", ("NHWC",), FLOAT32, IMAGE, (PLACES, *RESIZED), attribute("mode", ("linear",), "nearest")),
        Kernel("Resize", ("NHWC",), UNITS, IMAGE, (*FLOORED, *RESIZED), attribute("mode", ("nearest",), "nearest")),
        Kernel("Abs Clip Elu Exp Floor LeakyRelu Log Neg Relu Sigmoid Sin Sqrt Tanh", types=FLOAT32),
        Kernel("Add Mul", types=UNITS),
        Kernel("Div Max Min Pow PRelu Sub", types=FLOAT32),
        Kernel("Concat Gemm MatMul Reshape Softmax Transpose", types=UNITS),
        Kernel("Flatten ReduceMean Slice", types=FLOAT32),
        Kernel("Squeeze Unsqueeze", types=FLOAT32, limits=(constant(1, "list of axes"),)),
        Kernel("Pad", types=FLOAT32, limits=(CONSTANT_MODE, PADS)),
        Kernel("QuantizeLinear", types=(*FLOAT32, *INT8), limits=(constant(1, "scale"), constant(2, "zero point"))),
        Kernel("DequantizeLinear", types=INT8, limits=(constant(1, "scale"), constant(2, "zero point"))),
    ),
)
