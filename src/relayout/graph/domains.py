"""Domains of operators that more than one room knows."""

from __future__ import annotations

MICROSOFT = "com.microsoft"
"""Operators that ONNX Runtime contributes; its quantizers write them, too."""
INTERNAL_NHWC = "com.ms.internal.nhwc"
"""Operators of the standard on images with the channels last: what ONNX Runtime's layout transformation makes for an
execution provider. Their attributes, kernels and all other operands are the standard's."""


def domain_of_version(domain: str, functions: str) -> str:
    """Return the domain whose imported version says what an operator is.

    Args:
        domain: an operator's.
        functions: what the domains of functions in other layouts begin with; these are of the standard's version.
    """
    return "" if domain in ("ai.onnx", INTERNAL_NHWC) or domain.startswith(functions) else domain
