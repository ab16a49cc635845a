"""The law of every rule: a node that runs in another order on re-laid inputs gives the re-laid outputs.

    run(node in another order, re-laid inputs) == re-laid run(node)

The rules of the project are held to it by its tests, rules of users by `check`.
"""

import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from relayout.apply.apply import apply
from relayout.infer import Crossing, Form, Label, Site, build, placed, placement
from relayout.infer.allowed_orders import identity, repaired
from relayout.infer.graph_sites import Sites
from relayout.light_dataclass import dataclass
from relayout.rules import Operator, Signature

Array = NDArray[Any]
Runner = Callable[[onnx.ModelProto, Mapping[str, Array]], list[Array]]
"""What runs a model: its outputs, in their order, from its inputs by name."""
MOST = 12
"""Orders tried for a node."""


class Tried(NamedTuple):
    """One order of a node: what its outputs are to be, and what they are.

    Args:
        order: where the axes of its operands lie.
        expected: the re-laid outputs of the node as it was.
        got: the outputs of the node in this order.
    """

    order: str
    expected: list[Array]
    got: list[Array]


@dataclass(frozen=True)
class Chosen:
    """As much of a plan as the rewrite needs."""

    sites: Sites
    labels: tuple[Label, ...]
    crossings: tuple[Crossing, ...] = ()


def all_variants(_: Operator, signature: Signature) -> Signature:
    """Keep every variant of a node: those that cost a CPU more than Transposes, too."""
    return signature


def one_node_sites(model: onnx.ModelProto | ir.Model) -> Sites:
    """Build the sites of a model with one node, whose interface may be stored in any order."""
    read = model if isinstance(model, ir.Model) else ir.from_proto(model)
    return build(read, keep_interface=False, exchange=True, choose=all_variants)


def position_of(sites: Sites, name: str = "node") -> int:
    """Find the one node: beside it there may be Reshapes that split an axis as none of its variants does."""
    nodes = [index for index, site in enumerate(sites.sites) if site.kind == "node"]
    (position,) = [index for index in nodes if sites.sites[index].label == name or len(nodes) == 1]
    return position


def forced(
    model: onnx.ModelProto, feed: Mapping[str, Array], run: Runner, most: int = MOST, *, cut: bool = False
) -> Iterator[Tried]:
    """Run the one node of a model in each order that its rule allows, and as it was.

    Args:
        model: one node named "node", and Reshapes; all shapes known.
        feed: its inputs.
        run: what runs a model.
        most: orders to try.
        cut: whether the outputs are taken apart, too: an axis of the interface is whole.
    """
    source = parted_outputs(model, run, feed) if cut else model
    original = run(source, feed)
    first = one_node_sites(source)
    position = position_of(first)
    site = first.sites[position]
    if site.reason:
        raise ValueError(site.reason)
    sizes = dict(zip([value.name for value in source.graph.output], original, strict=True))
    for label in labels(site, most):
        copy = ir.from_proto(source)
        sites = one_node_sites(copy)
        node = sites.sites[position]
        stored = {port.view.root: placed(node, label, port).form for port in node.ports}
        chosen = [identity(end) for end in sites.sites]
        chosen[position] = label
        given, expected = dict(feed), list(original)
        for index, end in enumerate(sites.sites):
            if end.kind == "node":
                continue
            (port,) = end.ports
            root = port.view.root
            if root not in stored:
                continue
            chosen[index] = _as_stored(end, stored[root])
            form = placed(end, chosen[index], port).form
            name = root.value.name or ""
            if end.kind == "input":
                given[name] = relaid(feed[name], root.logical, form, _extents(end, feed[name]))
            else:
                array = sizes[source.graph.output[port.slot].name]
                expected[port.slot] = relaid(array, port.view.form, form, _extents(end, array))
        order = _described(node, label)
        result = apply(copy, Chosen(sites, tuple(chosen)))  # type: ignore[arg-type]
        yield Tried(order, expected, run(ir.to_proto(result), given))


def labels(site: Site, most: int) -> list[Label]:
    """List the source's order and others that the signature allows, all different: every one, or a random selection."""
    everything = tuple(range(len(site.factors)))
    if math.factorial(len(everything)) <= most:
        orders = list(itertools.permutations(everything))
    else:
        draw = random.Random(0)
        orders = [everything, *(tuple(draw.sample(everything, len(everything))) for _ in range(4 * most))]
    if site.signature.variants:
        drawn = [Label(order, variant) for order in orders for variant in range(len(site.signature.variants))]
    else:
        allowed = dict.fromkeys(repaired(site, order) for order in orders)
        drawn = [Label(order) for order in allowed if repaired(site, order) == order]
    different = {tuple(placed(site, label, port) for port in site.ports): label for label in reversed(drawn)}
    return list(different.values())[::-1][:most]


def _as_stored(end: Site, form: Form) -> Label:
    """Find the label of an end of the interface under which its value lies in a form."""
    (port,) = end.ports
    held = {leaf: factor for factor, leaves in port.factors.items() for leaf in leaves}
    ones = [factor for factor in range(len(end.factors)) if factor not in held.values()]
    return Label((*ones, *dict.fromkeys(held[leaf] for dim in form for leaf in dim)))


def _extents(end: Site, array: Array) -> list[int]:
    """List the extents of the root's factors; symbolic ones are read off the array of an interface site."""
    (port,) = end.ports
    extents = [extent.number for extent in port.view.root.extents]
    for dim, length in zip(port.view.form, array.shape, strict=True):
        if len(dim) == 1:
            extents[dim[0]] = length
    return extents


def _described(site: Site, label: Label) -> str:
    """Say where the axes of a node's inputs lie."""
    inputs = enumerate(placement(site, label).inputs)
    return ", ".join(f"input {slot}: {' '.join(letter for letter, _ in dims)}" for slot, dims in inputs if dims)


def relaid(array: Array, source: Form, stored: Form, extents: Sequence[int]) -> Array:
    """Store an array, which is in form `source`, in another."""
    flat_source = [i for dim in source for i in dim]
    flat_stored = [i for dim in stored for i in dim]
    split = array.reshape([extents[i] for i in flat_source])
    laid = split.transpose([flat_source.index(i) for i in flat_stored])
    return laid.reshape([math.prod(extents[i] for i in dim) for dim in stored])


# Axes in pieces.


def two_factors(extent: int) -> list[int]:
    """Split an extent into two factors, where it has any."""
    least = next((factor for factor in range(2, extent) if extent % factor == 0), None)
    return [extent] if least is None else [least, extent // least]


def parted_inputs(model: onnx.ModelProto, feed: Mapping[str, Array]) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Put a Reshape before every input whose extents divide, so that its axes may lie in pieces."""
    found, reshapes = dict(feed), []
    for value in model.graph.input:
        array = feed[value.name]
        parts = [part for extent in array.shape for part in two_factors(extent)]
        if len(parts) == array.ndim or not array.size:
            continue
        model.graph.value_info.append(value)
        whole, value.name = value.name, f"{value.name}_parts"
        found[value.name] = found.pop(whole).reshape(parts)
        value.type.tensor_type.shape.CopyFrom(shape_of(parts))
        model.graph.initializer.append(numpy_helper.from_array(np.array(array.shape, np.int64), f"{whole}_shape"))
        reshapes.append(helper.make_node("Reshape", [value.name, f"{whole}_shape"], [whole]))
    nodes = [*reshapes, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model, found


def parted_outputs(model: onnx.ModelProto, run: Runner, feed: Mapping[str, Array]) -> onnx.ModelProto:
    """Put a Reshape behind every output whose axes may lie in pieces: an interface axis is whole."""
    for value, array in zip(model.graph.output, run(model, feed), strict=True):
        if array.size:
            _part(model, value, [part for extent in array.shape for part in two_factors(extent)])
    views = {value.name: view for value, view in one_node_sites(model).views.items()}
    for value in model.graph.output:
        view = views[value.name]
        if any(len(dim) > 1 for dim in view.form):
            factors = [factor for dim in view.form for factor in dim]
            _part(model, value, [view.root.extents[factor].number for factor in factors])
    return model


def _part(model: onnx.ModelProto, value: onnx.ValueInfoProto, parts: Sequence[int]) -> None:
    """Put a Reshape behind an output."""
    if len(parts) == len(value.type.tensor_type.shape.dim) or 0 in parts:
        return
    model.graph.value_info.append(value)
    whole, value.name = value.name, f"{value.name}_parts"
    value.type.tensor_type.shape.CopyFrom(shape_of(parts))
    model.graph.initializer.append(numpy_helper.from_array(np.array(parts, np.int64), f"{value.name}_shape"))
    model.graph.node.append(helper.make_node("Reshape", [whole, f"{value.name}_shape"], [value.name]))


def shape_of(extents: Sequence[int]) -> onnx.TensorShapeProto:
    """Make a shape of extents."""
    shape: onnx.TensorShapeProto = helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, extents).tensor_type.shape
    return shape
