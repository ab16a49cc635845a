"""Who must be the only reader of int8 in the result, since a view made him so in the source.

On x64 ONNX Runtime makes int8 unsigned, and multiplies it as such, where one reader alone is behind the
DequantizeLinear that is alone behind its QuantizeLinear; otherwise the operators around it compute with floats. Where a
Transpose or Reshape stood between, as a unit of its own, and is gone, a Reshape stands there: it moves no byte.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Set

import onnx_ir as ir

from relayout.infer import Form, Port, Root, Sites


def single_consumers(
    sites: Sites, units: Mapping[Root, ir.Node], forms: Mapping[Port, Form]
) -> tuple[set[Port], set[Root]]:
    """Return the operands that get integers of their own, and the integers behind which a Reshape stays.

    Args:
        sites: the source graph, as it was.
        units: integers between quantized units -> the QuantizeLinear that gives them.
        forms: operand -> the dimensions in which it is stored.
    """
    own = own_readers(sites, units, forms)
    return own, kept_apart(sites, units, forms, own)


def own_readers(sites: Sites, units: Mapping[Root, ir.Node], forms: Mapping[Port, Form]) -> set[Port]:
    """Where int8 is dequantized for one reader alone, as in the source, though others want the same now.

    Args:
        sites: the source graph, as it was.
        units: integers between quantized units -> the QuantizeLinear that gives them.
        forms: operand -> the dimensions in which it is stored.
    """
    alone: dict[tuple[Root, Form], list[Port]] = {}
    beside: Counter[tuple[Root, Form]] = Counter()
    for site in sites.sites:
        if site.signature.with_reader:
            (port,) = (port for port in site.free_ports() if not port.output)
            root = port.view.root
            if root in units and root.value.dtype == ir.DataType.INT8:
                beside[root, forms[port]] += 1
                # Nobody else reads what the DequantizeLinear reads, and one node alone what it gives.
                assert site.node is not None
                value = site.node.inputs[0]
                if value is not None and len(value.uses()) == len(site.node.outputs[0].uses()) == 1:
                    alone.setdefault((root, forms[port]), []).append(port)
    return {port for key, ports in alone.items() if beside[key] > 1 for port in ports}


def kept_apart(sites: Sites, units: Mapping[Root, ir.Node], forms: Mapping[Port, Form], own: Set[Port]) -> set[Root]:
    """The int8 integers that a view alone read in the source, and that several read in the result.

    Args:
        sites: the source graph, as it was.
        units: integers between quantized units -> the QuantizeLinear that gives them.
        forms: operand -> the dimensions in which it is stored.
        own: the operands that get integers of their own.
    """
    signed = {root: node for root, node in units.items() if root.value.dtype == ir.DataType.INT8}
    views = {node for node, _, _ in sites.viewing} if signed else set()
    found = set()
    for root, node in signed.items():  # whose one DequantizeLinear has one reader, a view
        readers = [use.node for use in node.outputs[0].uses()]
        behind = [use.node for reader in readers for use in reader.outputs[0].uses()]
        if len(readers) == len(behind) == 1 and behind[0] in views:
            found.add(root)
    if not found:
        return found
    made: dict[Root, Form] = {}
    read: dict[Root, list[tuple[Form, Root | None, bool]]] = {}
    for site in sites.sites:
        (given,) = [port.view.root for port in site.ports if port.output] if site.signature.with_reader else [None]
        for port in site.ports:
            if port.output:
                made[port.view.root] = forms[port]
            else:
                read.setdefault(port.view.root, []).append((forms[port], given, port in own))

    def count(root: Root) -> int:
        """How many read a value, or what is dequantized of it; those who want it in one other form are one."""
        behind = read.get(root, [])
        others = {form for form, _, alone in behind if form != made[root] and not alone}
        direct = (given for form, given, alone in behind if form == made[root] and not alone)
        return len(others) + sum(alone for *_, alone in behind) + sum(1 if to is None else count(to) for to in direct)

    return {root for root in found if count(root) > 1}
