"""Apple's Core ML.

Operators and limits: ONNX Runtime, "CoreML Execution Provider", section "Supported ops". Layouts are the standard's.
"""

from relayout.lowering.conditions import CONSTANT_KERNEL, CONSTANT_MODE, DEPTH_FIRST, PADS, constant
from relayout.targets.target import Kernel, Target

TARGET = Target(
    "coreml",
    "Apple Core ML: NCHW, kernels OIHW, as ONNX has them",
    (
        Kernel("Conv", ("NCHW",), (), (3, 4), (CONSTANT_KERNEL,)),
        Kernel("AveragePool GlobalAveragePool GlobalMaxPool MaxPool", ("NCHW",), (), (4,)),
        Kernel("BatchNormalization LRN Resize", ("NCHW",)),
        Kernel("DepthToSpace", ("NCHW",), (), (), (DEPTH_FIRST,)),
        Kernel("Clip LeakyRelu Reciprocal Relu Sigmoid Sqrt Tanh"),
        Kernel("Add Div Mul Sub"),
        Kernel("Pow", types=("FLOAT",)),
        Kernel("PRelu", limits=(constant(1, "slope"),)),
        Kernel("Gemm MatMul", limits=(constant(1, "second operand"),)),
        Kernel("Concat Flatten Reshape Squeeze Transpose"),
        Kernel("Pad", limits=(CONSTANT_MODE, PADS)),
        Kernel("ArgMax ReduceSum"),
    ),
)
