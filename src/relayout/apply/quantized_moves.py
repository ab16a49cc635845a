"""Integers between quantized units that are moved: in a unit of their own, as runtimes look for it."""

from __future__ import annotations

import onnx_ir as ir

from relayout.infer import Root, Sites

BYTES = (ir.DataType.INT8, ir.DataType.UINT8)
"""Types of what runtimes run units of."""
PARAMETERS = 3
"""Operands of a QuantizeLinear that says its zero point."""


def quantizers(sites: Sites) -> dict[Root, ir.Node]:
    """Integers between quantized units, of one scale and zero point -> the QuantizeLinear that gives them."""
    made: dict[Root, ir.Node] = {}
    for site in sites.sites:
        if site.signature.with_maker and site.node is not None and len(site.node.inputs) == PARAMETERS:
            root = next(port.view.root for port in site.ports if port.output)
            kinds = {None if value is None else value.dtype for value in site.node.inputs[:2]}
            if root.value.dtype in BYTES and kinds == {ir.DataType.FLOAT} and site.node.inputs[2] is not None:
                made[root] = site.node
    for site in sites.sites if made else ():
        for port in site.ports:
            if not port.output and not site.signature.with_reader:
                made.pop(port.view.root, None)
    return made
