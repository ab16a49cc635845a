"""Columns of a target's tables whose entries are looked up: a name that does not exist would claim nothing."""

from __future__ import annotations

from collections.abc import Sequence

import onnx
import onnx_ir as ir

from relayout.errors import LayoutError, nearest
from relayout.rules.registry import has_rule

_DEPTHWISE = 'Conv with when = "DEPTHWISE"'
_PRODUCTS = "Gemm and MatMul"
NAMES_OF_VENDORS = {
    **dict.fromkeys(("depthwiseconv", "depthwiseconv2d", "depthwiseconvolution"), _DEPTHWISE),
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", "convolution"), "Conv"),
    **dict.fromkeys(("transposeconv", "conv2dtranspose", "deconv", "deconvolution"), "ConvTranspose"),
    **dict.fromkeys(("fullyconnected", "dense", "linear", "innerproduct"), _PRODUCTS),
    **dict.fromkeys(("avgpool", "avgpool2d", "averagepool2d"), "AveragePool"),
    **dict.fromkeys(("maxpool2d", "maxpooling"), "MaxPool"),
    "batchmatmul": "MatMul",
    "batchnorm": "BatchNormalization",
    "concatenation": "Concat",
    "layernorm": "LayerNormalization",
    "logistic": "Sigmoid",
    "relu6": "Clip",
    "resizebilinear": "Resize",
    "stridedslice": "Slice",
}
"""Vendors' name of an operator, in small letters -> the name that a table uses."""
_TYPES = tuple(ir.DataType.__members__)


def check_types(names: Sequence[str], where: str) -> None:
    """Look element types up.

    Raises:
        LayoutError: there is none of a name.
    """
    for name in names:
        if name not in ir.DataType.__members__:
            raise LayoutError(f"{where}no element type {name!r}{nearest(name, _TYPES)}")


def check_operators(names: Sequence[str]) -> None:
    """Look operators of ONNX's own domain up: those of the standard, and those that have a rule here.

    Raises:
        LayoutError: there is none of a name.
    """
    for name in names:
        if not has_rule(("", name)) and not onnx.defs.has(name):
            raise LayoutError(f"ONNX has no operator {name!r}{_instead(name)}")


def _instead(name: str) -> str:
    """Return what a message adds to the name of an operator that ONNX does not have."""
    if written := NAMES_OF_VENDORS.get(name.casefold().replace("_", "")):
        return f"; write {written}"
    return nearest(name, sorted({schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain}))
