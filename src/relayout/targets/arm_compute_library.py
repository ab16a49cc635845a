"""Arm Compute Library, kernels for Arm's CPUs and GPUs.

Layouts: Arm Compute Library, "Data Layout Support", which calls NHWC the native layout and NCHW the legacy one (it is
not in the table), and Arm NN, the change "Change weights layout for depthwise to [1,H,W,I*M]", for depthwise kernels.
Operators and types: Arm Compute Library, "Supported Operators" (rows of the CPU's functions). Groups: Apache TVM,
"Relay Arm Compute Library Integration", section "Operator support". Left out: three
spatial axes and transposed convolutions, whose kernels' layout is not stated alike, and Resize, whose modes are not.
"""

from relayout.lowering.conditions import (
    CONSTANT_KERNEL,
    CONSTANT_MODE,
    DEPTH_FIRST,
    DEPTHWISE,
    FLOOR,
    INFERENCE,
    NO_DILATIONS,
    NO_GROUPS,
    NO_INDICES,
    PADS,
    RELU_6,
    constant,
    inputs,
)
from relayout.targets.target_table import INT8, Kernel, Target

FLOATS = ("FLOAT", "FLOAT16")
NUMBERS = (*FLOATS, *INT8)
IMAGE = (4,)

TARGET = Target(
    "arm-compute-library",
    "Arm Compute Library: NHWC, kernels OHWI, depthwise 1HWC; from documents of November 2026, never run",
    (
        Kernel("Conv", ("NHWC OHWI",), NUMBERS, IMAGE, (CONSTANT_KERNEL,), NO_GROUPS),
        Kernel("Conv", ("NHWC IHWO",), NUMBERS, IMAGE, (CONSTANT_KERNEL,), DEPTHWISE),
        Kernel("QLinearConv", ("NHWC OHWI",), INT8, IMAGE, (CONSTANT_KERNEL,), NO_GROUPS),
        Kernel("QLinearConv", ("NHWC IHWO",), INT8, IMAGE, (CONSTANT_KERNEL,), DEPTHWISE),
        Kernel("MaxPool", ("NHWC",), NUMBERS, IMAGE, (NO_INDICES, NO_DILATIONS, FLOOR)),
        Kernel("AveragePool", ("NHWC",), NUMBERS, IMAGE, (NO_DILATIONS, FLOOR)),
        Kernel("GlobalAveragePool GlobalMaxPool", ("NHWC",), NUMBERS, IMAGE),
        Kernel("BatchNormalization LRN", ("NHWC",), FLOATS, IMAGE, (INFERENCE,)),
        Kernel("DepthToSpace", ("NHWC",), (), IMAGE, (DEPTH_FIRST,)),
        Kernel("SpaceToDepth", ("NHWC",), (), IMAGE),
        Kernel("Elu HardSwish Relu Sigmoid Tanh", types=NUMBERS),
        Kernel("Clip", types=NUMBERS, limits=(RELU_6,)),
        Kernel("Abs Exp Log Neg Round Sin", types=FLOATS),
        Kernel("Add Mul Sub", types=(*NUMBERS, "INT32")),
        Kernel("Div Pow PRelu", types=FLOATS),
        Kernel("Max Min", types=(*NUMBERS, "INT32"), limits=(inputs(2),)),
        Kernel("Concat LogSoftmax ReduceMean Softmax", types=NUMBERS),
        Kernel("Gemm", types=NUMBERS, ranks=(2,), limits=(constant(1, "second operand"),)),
        Kernel("MatMul", types=(*FLOATS, "BFLOAT16")),
        Kernel("Pad", limits=(CONSTANT_MODE, PADS)),
        Kernel("Reshape Slice Split Squeeze Tile Transpose"),
        Kernel("QuantizeLinear", types=NUMBERS),
        Kernel("DequantizeLinear", types=INT8),
    ),
)
