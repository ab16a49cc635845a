"""Qualcomm's AI Engine Direct (QNN).

Layouts: Qualcomm, "QNN Operation Definitions" (Conv2d, DepthWiseConv2d: channels last, filters height, width, input
channels of a group, output channels), and ONNX Runtime's `core/providers/qnn/builder/opbuilder/conv_op_builder.cc`,
which turns kernels of Conv and ConvTranspose into that order. Operators and limits: ONNX Runtime, "QNN Execution
Provider", sections "Supported ONNX operators" and "Model requirements"; Qualcomm, "Supported ONNX Ops", for
BatchNormalization. Element types vary by operator and processor: the table says nothing of them, so quantized units of
8 and 16 bits, which the HTP runs, are claimed as float operators are.
"""

from relayout.lowering.conditions import INFERENCE, NO_INDICES, STATIC
from relayout.targets.target_table import Kernel, Target

IMAGE = (4,)

TARGET = Target(
    "qnn",
    "Qualcomm AI Engine Direct: NHWC, kernels HWIO; from documents of November 2026, never run",
    (
        Kernel("Conv ConvTranspose", ("NHWC HWIO",), (), IMAGE, (STATIC,)),
        Kernel("MaxPool", ("NHWC",), (), IMAGE, (NO_INDICES, STATIC)),
        Kernel("AveragePool GlobalAveragePool GlobalMaxPool", ("NHWC",), (), IMAGE, (STATIC,)),
        Kernel("BatchNormalization InstanceNormalization LRN", ("NHWC",), (), IMAGE, (INFERENCE, STATIC)),
        Kernel("DepthToSpace SpaceToDepth", ("NHWC",), (), IMAGE, (STATIC,)),
        Kernel("Resize GridSample", ("NHWC",), (), IMAGE, (STATIC,)),
        Kernel("Abs Asin Atan Cast Ceil Clip Cos Elu Exp Floor Gelu HardSigmoid HardSwish LeakyRelu", limits=(STATIC,)),
        Kernel("Log Neg Not Reciprocal Relu Round Sigmoid Sign Sin Sqrt Tanh ThresholdedRelu", limits=(STATIC,)),
        Kernel("Add And Div Equal Greater GreaterOrEqual Less LessOrEqual", limits=(STATIC,)),
        Kernel("Max Mean Min Mod Mul Or Pow PRelu Sub Sum Where", limits=(STATIC,)),
        Kernel("ArgMax ArgMin Concat CumSum Expand Flatten Gather Gemm MatMul Pad Reshape", limits=(STATIC,)),
        Kernel("LayerNormalization LogSoftmax Softmax", limits=(STATIC,)),
        Kernel("ReduceL2 ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum", limits=(STATIC,)),
        Kernel("Slice Split Squeeze Tile TopK Transpose Unsqueeze", limits=(STATIC,)),
        Kernel("QuantizeLinear DequantizeLinear", limits=(STATIC,)),
    ),
)
