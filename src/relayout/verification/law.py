"""The law of every rule: a node that runs in another order on re-laid inputs gives the re-laid outputs.

    run(node in another order, re-laid inputs) == re-laid run(node)

The rules of the project are held to it by its tests, rules of users by `check`.
"""

import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from relayout.apply.apply import apply
from relayout.errors import RelayoutError, nearest
from relayout.graph.source_names import label
from relayout.infer.allowed_orders import identity, repaired
from relayout.infer.build import build
from relayout.infer.candidates import placement
from relayout.infer.graph_sites import Sites
from relayout.infer.plans import Crossing
from relayout.infer.sites import Form, Label, Site
from relayout.infer.stored_orders import placed
from relayout.layout import Extent
from relayout.light_dataclass import dataclass
from relayout.rules import Rule, outputs_of, registry
from relayout.verification.ort_runtime import Session

Array = NDArray[Any]
Runner = Callable[[onnx.ModelProto, Mapping[str, Array]], list[Array]]
"""What runs a model: its outputs, in their order, from its inputs by name."""
MOST = 12  # orders tried for a node


class Tried(NamedTuple):
    """One order of a node: what its outputs are to be, and what they are."""

    order: str  # where the axes of its operands lie
    expected: list[Array]  # the re-laid outputs of the node as it was
    got: list[Array]  # the outputs of the node in this order


@dataclass(frozen=True)
class Chosen:
    """As much of a plan as the rewrite needs."""

    sites: Sites
    labels: tuple[Label, ...]
    crossings: tuple[Crossing, ...] = ()


def one_node_sites(model: onnx.ModelProto | ir.Model) -> Sites:
    """Build the sites of a model with one node, whose interface may be stored in any order."""
    read = model if isinstance(model, ir.Model) else ir.from_proto(model)
    # Every variant of a node is kept: those that cost a CPU more than Transposes, too.
    return build(read, keep_interface=False, exchange=True, choose=lambda _, signature: signature)


def position_of(sites: Sites) -> int:
    """Find the one node: beside it there may be Reshapes that split an axis as none of its variants does."""
    nodes = [index for index, site in enumerate(sites.sites) if site.kind == "node"]
    (position,) = [index for index in nodes if sites.sites[index].label == "node" or len(nodes) == 1]
    return position


def forced(
    model: onnx.ModelProto,  # one node named "node", and Reshapes; all shapes known
    feed: Mapping[str, Array],  # its inputs
    run: Runner,  # what runs a model
    most: int = MOST,  # orders to try
    *,
    cut: bool = False,  # whether the outputs are taken apart, too: an axis of the interface is whole
) -> Iterator[Tried]:
    """Run the one node of a model in each order that its rule allows, and as it was."""
    source = parted_outputs(model, run, feed) if cut else model
    original = run(source, feed)
    first = one_node_sites(source)
    position = position_of(first)
    site = first.sites[position]
    if site.reason:
        raise ValueError(site.reason)
    sizes = dict(zip([value.name for value in source.graph.output], original, strict=True))
    for choice in labels(site, most):
        copy = ir.from_proto(source)
        sites = one_node_sites(copy)
        node = sites.sites[position]
        stored = {port.view.root: placed(node, choice, port).form for port in node.ports}
        chosen = [identity(end) for end in sites.sites]
        chosen[position] = choice
        relaid_feed, expected = dict(feed), list(original)
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
                relaid_feed[name] = relaid(feed[name], root.logical, form, _extents(end, feed[name]))
            else:
                array = sizes[source.graph.output[port.slot].name]
                expected[port.slot] = relaid(array, port.view.form, form, _extents(end, array))
        order = _described(node, choice)
        result = apply(copy, Chosen(sites, tuple(chosen)))  # type: ignore[arg-type]
        yield Tried(order, expected, run(ir.to_proto(result), relaid_feed))


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
    factor_of_leaf = {leaf: factor for factor, leaves in port.factors.items() for leaf in leaves}
    ones = [factor for factor in range(len(end.factors)) if factor not in factor_of_leaf.values()]
    return Label((*ones, *dict.fromkeys(factor_of_leaf[leaf] for dim in form for leaf in dim)))


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
    transposed_pieces = split.transpose([flat_source.index(i) for i in flat_stored])
    return transposed_pieces.reshape([math.prod(extents[i] for i in dim) for dim in stored])


# Axes in pieces.


def two_factors(extent: int) -> list[int]:
    """Split an extent into two factors, where it has any."""
    least = next((factor for factor in range(2, extent) if extent % factor == 0), None)
    return [extent] if least is None else [least, extent // least]


def parted_inputs(model: onnx.ModelProto, feed: Mapping[str, Array]) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Put a Reshape before every input whose extents divide, so that its axes may lie in pieces."""
    parted_feed, reshapes = dict(feed), []
    for value in model.graph.input:
        array = feed[value.name]
        parts = [part for extent in array.shape for part in two_factors(extent)]
        if len(parts) == array.ndim or not array.size:
            continue
        model.graph.value_info.append(value)
        whole, value.name = value.name, f"{value.name}_parts"
        parted_feed[value.name] = parted_feed.pop(whole).reshape(parts)
        value.type.tensor_type.shape.CopyFrom(shape_proto(parts))
        model.graph.initializer.append(numpy_helper.from_array(np.array(array.shape, np.int64), f"{whole}_shape"))
        reshapes.append(helper.make_node("Reshape", [value.name, f"{whole}_shape"], [whole]))
    nodes = [*reshapes, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model, parted_feed


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
    value.type.tensor_type.shape.CopyFrom(shape_proto(parts))
    model.graph.initializer.append(numpy_helper.from_array(np.array(parts, np.int64), f"{value.name}_shape"))
    model.graph.node.append(helper.make_node("Reshape", [whole, f"{value.name}_shape"], [value.name]))


def shape_proto(extents: Sequence[int]) -> onnx.TensorShapeProto:
    """Make a shape of extents."""
    shape: onnx.TensorShapeProto = helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, extents).tensor_type.shape
    return shape


# Rules that users registered, held to the law of every rule on the nodes of a model of theirs.

CLOSE = {"rtol": 1e-4, "atol": 1e-5}  # how far real numbers may be off: kernels add in other orders


class Kept(NamedTuple):
    """A node on which a rule keeps its law."""

    node: str  # the node's name
    operator: str  # its operator, `vendor:Swish`
    orders: int  # how many orders it ran in besides its own
    reason: str = ""  # why it ran in none: it is a barrier, or nothing says what to feed it


def check(
    source: str | Path | onnx.ModelProto | ir.Model,
    *,
    operators: Sequence[str] = (),
    run: Runner | None = None,
    dims: Mapping[str, int] | None = None,
    most: int = MOST,
) -> tuple[Kept, ...]:
    """Hold rules to their law: run each node in other orders on re-laid inputs, and compare with its re-laid outputs.

    >>> from relayout import rules
    >>> rules.check("model.onnx")                                    # every node that has a rule of yours
    (Kept(node='swish', operator='vendor:Swish', orders=11, reason=''),)

    Args:
        source: a model with such nodes, an ONNX file or in memory. Nodes in bodies are not looked at.
        operators: whose rules, `vendor:Swish`; by default those that were registered.
        run: what runs a model of one such node (and Reshapes): outputs in their order, from inputs by name. By default
            ONNX Runtime, which also knows the operator where the model has a function of that name.
        dims: dynamic dimension -> its extent; others get small ones.
        most: orders to try for each node.

    Raises:
        RelayoutError: rules break their law: all of them, with the node and the order; a rule is wrong by itself;
            nothing runs a node; or the model has no such node.
    """
    from relayout.formats.onnx.completing import complete
    from relayout.formats.onnx.reading import read

    model = read(source)
    complete(model, outputs_of)
    rule_by_key = _selected_rules(operators)
    nodes = [node for node in model.graph if _key(node) in rule_by_key]
    if not nodes:
        names = ", ".join(map(_name, rule_by_key)) or "an operator with a rule that was registered"
        raise RelayoutError(f"the model has no node of {names}: there is nothing to hold to a law")
    extents = _Extents(dims or {})
    outcomes = [_checked(model, node, rule_by_key[_key(node)], extents, run or _with_runtime, most) for node in nodes]
    broken = [each for each in outcomes if isinstance(each, str)]
    if broken:
        raise RelayoutError("; ".join(broken))
    return tuple(each for each in outcomes if isinstance(each, Kept))


def _selected_rules(operators: Sequence[str]) -> dict[tuple[str, str], Rule]:
    """Find the rules that are asked for."""
    if not operators:
        return {key: rule for key, rule in registry().items() if rule.place}
    named = {_name(key): key for key in registry()}
    for operator in operators:
        if operator not in named:
            raise RelayoutError(f"{operator} has no rule{nearest(operator, named)}")
    return {named[operator]: registry()[named[operator]] for operator in operators}


def _key(node: ir.Node) -> tuple[str, str]:
    return "" if node.domain == "ai.onnx" else node.domain, node.op_type


def _name(key: tuple[str, str]) -> str:
    return f"{key[0]}:{key[1]}" if key[0] else key[1]


class _Extents:
    """The extents of dynamic dimensions: those that are given, and small ones that all differ."""

    def __init__(self, dims: Mapping[str, int]) -> None:
        self.known: dict[str, int | str] = dict(dims)
        self.unnamed = count(2)

    def of(self, value: ir.Value) -> list[int] | None:
        """Return a value's shape in numbers; None where its rank is not known."""
        return None if value.shape is None else [self._number(dim) for dim in value.shape]

    def _number(self, dim: int | ir.SymbolicDim) -> int:
        if isinstance(dim, int):
            return dim
        if dim.value is None:
            return next(self.unnamed)
        extent = Extent.of(dim.value)
        for name in sorted(extent.names):
            if name not in self.known:
                self.known[name] = 2 * next(self.unnamed)
        known_extent = extent.fixed(self.known)
        return known_extent.number if known_extent.is_static else next(self.unnamed)


def _checked(model: ir.Model, node: ir.Node, rule: Rule, extents: _Extents, run: Runner, most: int) -> Kept | str:
    """Run a node in other orders: that its rule keeps its law, or how it breaks it."""
    name, operator = label(node), _name(_key(node))
    model_and_feed = _alone(model, node, extents)
    if isinstance(model_and_feed, str):
        return Kept(name, operator, 0, model_and_feed)
    single, feed = model_and_feed
    try:
        results = run(single, feed)
    except RelayoutError:
        raise
    except Exception as error:  # whatever a runtime raises
        said = " ".join(str(error).split())
        advice = "give `run=`, a function of a model and what it is fed"
        raise RelayoutError(f"nothing here runs {operator} at node {name!r}: {said}; {advice}") from error
    for value, array in zip(single.graph.output, results, strict=True):
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        value.CopyFrom(helper.make_tensor_value_info(value.name, kind, array.shape))
    sites = one_node_sites(single)
    if reason := sites.sites[position_of(sites)].reason:
        return Kept(name, operator, 0, reason)
    tried = 0
    for cut in (False, True)[
        : 1 + any(len(two_factors(extent)) > 1 for array in feed.values() for extent in array.shape)
    ]:
        copy = onnx.ModelProto()
        copy.CopyFrom(single)
        prepared, prepared_feed = parted_inputs(copy, feed) if cut else (copy, feed)
        said = ""
        try:
            for each in forced(prepared, prepared_feed, run, most, cut=cut):
                if fault := _fault(each):
                    said = f"with {each.order} {fault}"
                    break
                tried += 1
        except RelayoutError:
            raise
        except Exception as error:  # whatever a runtime, or a graph that is not consistent, ends with
            said = f"in another order it does not run: {' '.join(str(error).split())}"
        if said:
            return f"{rule.place} breaks its law at node {name!r}: {said}"
    return Kept(name, operator, tried - 1)


def _alone(model: ir.Model, node: ir.Node, extents: _Extents) -> tuple[onnx.ModelProto, dict[str, Array]] | str:
    """Make a model of one node, and what it is fed; or say why there is none."""
    inputs, constants, feed = [], [], dict[str, Array]()
    rng = np.random.default_rng(0)
    for value in dict.fromkeys(value for value in node.inputs if value is not None):
        name = value.name or ""
        if value.const_value is not None and not value.is_graph_input():
            tensor = ir.serde.serialize_tensor(value.const_value)
            tensor.name = name
            constants.append(tensor)
            continue
        shape = extents.of(value)
        if shape is None or value.dtype is None:
            return f"the type or rank of {name!r}, which it reads, is not known"
        feed[name] = _random(rng, shape, value.dtype)
        inputs.append(helper.make_tensor_value_info(name, int(value.dtype), shape))
    proto = ir.serde.serialize_node(node)
    proto.name = "node"
    outputs = [helper.make_empty_tensor_value_info(name) for name in proto.output if name]
    graph = helper.make_graph([proto], "one", inputs, outputs, constants)
    imports = [helper.make_opsetid(domain, version) for domain, version in model.opset_imports.items()]
    single = helper.make_model(graph, opset_imports=imports, ir_version=max(model.ir_version or 8, 8))
    single.functions.extend(map(ir.serde.serialize_function, model.functions.values()))
    return single, feed


def _random(rng: np.random.Generator, shape: Sequence[int], kind: ir.DataType) -> Array:
    """Draw random numbers of a type: real ones, and integers from 0 to 2, which may be indices."""
    dtype = kind.numpy()
    if kind == ir.DataType.BOOL:
        return rng.random(shape) > 0.5
    if dtype.kind in "iu":
        return rng.integers(0, 3, shape).astype(dtype)
    return rng.normal(size=shape).astype(dtype)


def _fault(tried: Tried) -> str:
    """Say in what an order differs from what it is to give; empty: in nothing."""
    for slot, (want, have) in enumerate(zip(tried.expected, tried.got, strict=True)):
        if want.shape != have.shape:
            return f"output {slot} has shape {list(have.shape)}, not {list(want.shape)}"
        real = want.dtype.kind == "f"
        if not (np.allclose(have, want, equal_nan=True, **CLOSE) if real else np.array_equal(have, want)):
            return f"output {slot} is not the re-laid one"
    return ""


def _with_runtime(model: onnx.ModelProto, feed: Mapping[str, Array]) -> list[Array]:
    """Run a model in ONNX Runtime, with no optimization of its own."""
    return list(map(np.asarray, Session(model.SerializeToString(), optimized=False).run(None, feed)))
