"""The lowering passes that a target may list, what each requires of a graph, and what no longer holds behind it.

A target's list is checked against these rows when the target is created. Passes of which neither ends what the other
requires may stand in any order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import onnx
import onnx_ir as ir

from relayout.errors import LayoutError, nearest
from relayout.rules.registry import has_rule

# Columns of a target's tables whose entries are looked up: a name that does not exist would claim nothing.

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


UNITS = "quantized units as in the source"
CHANNELS = "channels as in the source"
CONVOLUTIONS = "convolutions of the standard"
TRANSPOSES = "Transposes as the plan has them"
SHAPES = "shapes that name each axis"


class PassRow(NamedTuple):
    """One lowering pass.

    Args:
        name: how a target lists it.
        line: what a report says of it.
        requires: facts that must hold of a graph before it.
        ends: facts that no longer hold behind it.
        after: whether it runs after layouts are chosen.
    """

    name: str
    line: str
    requires: frozenset[str]
    ends: frozenset[str] = frozenset()
    after: bool = False


def _row(name: str, line: str, requires: set[str], ends: str = "", *, after: bool = False) -> PassRow:
    return PassRow(name, line, frozenset(requires), frozenset({ends} if ends else ()), after)


PASSES: Mapping[str, PassRow] = {
    row.name: row
    for row in (
        _row("qlinear-to-qdq", "operators on integers as quantized units", {UNITS}),
        _row("recognise-gelu", "operators that were spelled out", {UNITS}),
        _row("drop-expand", "Expands that their readers do themselves", set()),
        _row("keep-integers", "quantized units that stay on integers", {UNITS}),
        _row("decompose", "operators that take less time as others", {UNITS}),
        _row("keep-float", "quantized units that stay on real numbers", {UNITS}),
        _row("qdq-to-integer", "quantized units that run on integers", {UNITS}, UNITS),
        _row("fold-affine", "scales and shifts in the weights of convolutions", {CHANNELS, CONVOLUTIONS}),
        _row("pad-channels", "values with more channels", {CONVOLUTIONS}, CHANNELS),
        _row("fuse-epilogue", "taken in by the convolutions before them", {CONVOLUTIONS}, CONVOLUTIONS),
        _row("split-transposes", "Transposes in two steps", {TRANSPOSES}, TRANSPOSES, after=True),
        _row("int8-weights-to-uint8", "kernels of int8 stored as uint8", {SHAPES}, after=True),
        _row("merge-block-dims", "kernels in blocks of channels", {SHAPES}, SHAPES, after=True),
    )
}
"""Name -> pass, in the order in which a target has them that says nothing."""
IN_ORDER = tuple(PASSES)
"""Every pass: one whose rows a target does not have does nothing."""


def check_passes(names: Sequence[str], where: str = "") -> None:
    """Hold a list of passes to what each requires.

    Raises:
        LayoutError: a pass is not known, is listed twice, or stands behind one that ends what it requires.
    """
    ended: dict[str, str] = {}
    met: set[str] = set()
    for name in names:
        row = PASSES.get(name)
        if row is None:
            raise LayoutError(f"{where}there is no lowering pass {name!r}{nearest(name, list(PASSES))}")
        if name in met:
            raise LayoutError(f"{where}lowering pass {name!r} is listed twice")
        if not row.after and any(PASSES[other].after for other in met):
            raise LayoutError(f"{where}{name!r} runs before layouts are chosen: list it before those that run after")
        for fact in sorted(row.requires & ended.keys()):
            raise LayoutError(f"{where}{name!r} requires {fact}, which {ended[fact]!r} before it ends: swap them")
        ended |= dict.fromkeys(row.ends, name)
        met.add(name)
