"""Apple's Core ML.

Operators and limits: ONNX Runtime, "CoreML Execution Provider", section "Supported ops". Layouts are the standard's.
The provider computes on real numbers alone, so quantized units are not claimed.
"""

from relayout.lowering.conditions import CONSTANT_KERNEL, CONSTANT_MODE, DEPTH_FIRST, PADS, constant
from relayout.targets.target_table import Kernel, Target

FLOATS = ("FLOAT", "FLOAT16")

TARGET = Target(
    "coreml",
    "Apple Core ML: NCHW, kernels OIHW, as ONNX has them; from documents of November 2026, never run",
    (
        Kernel("Conv", ("NCHW",), FLOATS, (3, 4), (CONSTANT_KERNEL,)),
        Kernel("AveragePool GlobalAveragePool GlobalMaxPool MaxPool", ("NCHW",), FLOATS, (4,)),
        Kernel("BatchNormalization LRN Resize", ("NCHW",), FLOATS),
        Kernel("DepthToSpace", ("NCHW",), FLOATS, (), (DEPTH_FIRST,)),
        Kernel("Clip LeakyRelu Reciprocal Relu Sigmoid Sqrt Tanh", types=FLOATS),
        Kernel("Add Div Mul Sub", types=FLOATS),
        Kernel("Pow", types=("FLOAT",)),
        Kernel("PRelu", types=FLOATS, limits=(constant(1, "slope"),)),
        Kernel("Gemm MatMul", types=FLOATS, limits=(constant(1, "second operand"),)),
        Kernel("Concat Flatten Reshape Squeeze Transpose", types=FLOATS),
        Kernel("Pad", types=FLOATS, limits=(CONSTANT_MODE, PADS)),
        Kernel("ArgMax ReduceSum", types=FLOATS),
    ),
)
