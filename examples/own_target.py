"""A target of one's own: an NPU whose convolutions and pools read NHWC, with kernels OHWI."""

import relayout
from relayout.targets import Kernel, Target
from relayout.targets.conditions import CONSTANT_KERNEL, NOT_DEPTHWISE

NPU = Target(
    "my-npu",
    "my NPU: NHWC, kernels OHWI; depthwise convolutions run elsewhere",
    (
        Kernel("Conv", ("NHWC OHWI",), types=("FLOAT",), ranks=(4,), limits=(CONSTANT_KERNEL,), when=NOT_DEPTHWISE),
        Kernel("MaxPool AveragePool", ("NHWC",), types=("FLOAT",), ranks=(4,)),
        Kernel("Add Clip Concat Relu"),  # any order of axes
    ),
)
result = relayout.convert("models/tinynet_float.tflite", target=NPU)
print(f"{result.report.transposes} Transposes, {result.report.bytes:,} bytes, {result.report.verdict}")
for name, count in sorted(result.report.operators.items()):
    print(f"{count} {name}")
