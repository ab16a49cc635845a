"""Domains, and operators of the standard, that more than one room knows by name."""

from __future__ import annotations

MICROSOFT = "com.microsoft"  # operators that ONNX Runtime contributes; its quantizers write them, too
INTERNAL_NHWC = "com.ms.internal.nhwc"
"""Operators of the standard on images with the channels last: what ONNX Runtime's layout transformation makes for an
execution provider. Their attributes, kernels and all other operands are the standard's."""

CONVOLUTION, RESIZE = "Conv", "Resize"
RESIZING = (RESIZE, "Upsample")  # operators that interpolate images
