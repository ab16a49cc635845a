"""The law of every rule: run(variant, re-laid inputs) == re-laid run(original)."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper, shape_inference
from onnx.reference import ReferenceEvaluator

from products import in_full
from relayout.apply.apply import apply
from relayout.infer import Form, Label, Site, build, placed
from relayout.infer.build import Sites
from relayout.infer.candidates import identity, repaired
from relayout.rules import Operator, Signature

Array = NDArray[np.generic]
Runner = Callable[[onnx.ModelProto, Mapping[str, Array]], list[Array]]
MOST = 12
"""Orders tried per case."""


@dataclass(frozen=True)
class Case:
    """One node with inputs: arrays are computed inputs, `constants` are initializers. Extents should all differ.

    Args:
        op_type: the operator.
        inputs: name -> array, in the order of the node's inputs; the empty name is an absent input.
        constants: names in `inputs` that are initializers.
        attributes: the node's.
        outputs: how many outputs, or their names (an empty name: not asked for).
        opset: the opset version of the default domain.
        domain: the node's domain.
        split: whether a Reshape before the node puts its axes together from smaller ones, which may then lie apart.
        dynamic: inputs whose shapes are symbols.
    """

    op_type: str
    inputs: Mapping[str, Array | None]
    constants: tuple[str, ...] = ()
    attributes: Mapping[str, object] = field(default_factory=dict)
    outputs: int | tuple[str, ...] = 1
    opset: int = 21
    domain: str = ""
    split: bool = False
    dynamic: bool = False

    def __str__(self) -> str:
        shapes = "_".join("x".join(map(str, np.shape(a))) or "s" for a in self.inputs.values() if a is not None)
        extra = "_".join(f"{key}{value}".replace(" ", "") for key, value in self.attributes.items())
        marks = "-split" * self.split + "-dynamic" * self.dynamic + "-constants" * bool(self.constants)
        return f"{self.op_type}-{self.opset}-{shapes}-{extra}{marks}"

    @property
    def arrays(self) -> dict[str, Array]:
        return {name: np.asarray(array) for name, array in self.inputs.items() if array is not None}

    @property
    def results(self) -> list[str]:
        return [f"out{i}" for i in range(self.outputs)] if isinstance(self.outputs, int) else list(self.outputs)

    def prepared(self) -> tuple[onnx.ModelProto, dict[str, Array]]:
        """The model, all shapes known, and what it is fed."""
        model, feed = self.bare(), {name: array for name, array in self.arrays.items() if name not in self.constants}
        if self.split:
            model, feed = parted_inputs(model, feed)
        return typed(shape_inference.infer_shapes(model, data_prop=True), feed, fixed=not self.dynamic), feed

    def bare(self) -> onnx.ModelProto:
        inputs = []
        for name, array in self.arrays.items():
            dims = [f"{name}{axis}" for axis in range(array.ndim)] if self.dynamic else array.shape
            dtype = helper.np_dtype_to_tensor_dtype(array.dtype)
            if name not in self.constants:
                inputs.append(helper.make_tensor_value_info(name, dtype, dims))
        names = [name if array is not None else "" for name, array in self.inputs.items()]
        node = helper.make_node(self.op_type, names, self.results, name="node", domain=self.domain, **self.attributes)
        constants = [numpy_helper.from_array(self.arrays[name], name) for name in self.constants]
        outputs = [helper.make_empty_tensor_value_info(name) for name in self.results if name]
        graph = helper.make_graph([node], "case", inputs, outputs, constants)
        imports = [helper.make_opsetid("", self.opset)]
        if self.domain:
            imports.append(helper.make_opsetid(self.domain, 1))
        return helper.make_model(
            graph, opset_imports=imports, ir_version=10 if self.opset < 25 else 13 + (self.opset > 27)
        )


def parted_inputs(model: onnx.ModelProto, feed: Mapping[str, Array]) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """The model with a Reshape before every input whose extents divide, so that its axes may lie in pieces."""
    found, reshapes = dict(feed), []
    for value in model.graph.input:
        array = feed[value.name]
        parts = [part for extent in array.shape for part in parted(extent)]
        if len(parts) == array.ndim or not array.size:
            continue
        whole, value.name = value.name, f"{value.name}_parts"
        found[value.name] = found.pop(whole).reshape(parts)
        value.type.tensor_type.shape.CopyFrom(shape_of(parts))
        model.graph.initializer.append(numpy_helper.from_array(np.array(array.shape, np.int64), f"{whole}_shape"))
        reshapes.append(helper.make_node("Reshape", [value.name, f"{whole}_shape"], [whole]))
    nodes = [*reshapes, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model, found


def shape_of(extents: Sequence[int]) -> onnx.TensorShapeProto:
    return helper.make_tensor_type_proto(TensorProto.FLOAT, extents).tensor_type.shape


def parted(extent: int) -> list[int]:
    """An extent as two factors, where it has any."""
    least = next((factor for factor in range(2, extent) if extent % factor == 0), None)
    return [extent] if least is None else [least, extent // least]


def typed(
    model: onnx.ModelProto, feed: Mapping[str, Array], *, fixed: bool = True, run: Runner | None = None
) -> onnx.ModelProto:
    """Outputs whose shape ONNX does not infer take it from a run."""
    results = (run or with_runtime)(model, feed)
    for value, array in zip(model.graph.output, results, strict=True):
        inferred = value.type.tensor_type
        if not fixed and inferred.HasField("shape"):
            continue
        dtype = inferred.elem_type or helper.np_dtype_to_tensor_dtype(array.dtype)
        value.CopyFrom(helper.make_tensor_value_info(value.name, dtype or TensorProto.FLOAT, array.shape))
    return model


KNOWN_TO_RUNTIME = 27
"""The newest opset that ONNX Runtime loads; what is newer runs in ONNX's own reference."""


def with_runtime(model: onnx.ModelProto, feed: Mapping[str, Array]) -> list[Array]:
    if model.opset_import[0].version > KNOWN_TO_RUNTIME:
        return with_reference(model, feed)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(in_full(model), options, ["CPUExecutionProvider"])
    return [np.asarray(array) for array in session.run(None, dict(feed))]


def with_reference(model: onnx.ModelProto, feed: Mapping[str, Array]) -> list[Array]:
    with np.errstate(all="ignore"):
        return [np.asarray(array) for array in ReferenceEvaluator(model).run(None, dict(feed))]


def labels(site: Site, most: int) -> list[Label]:
    """The source's order and others that the signature allows, all different: every one, or a random selection."""
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


def relaid(array: Array, source: Form, stored: Form, extents: list[int]) -> Array:
    """An array in form `source` stored in another."""
    flat_source = [i for dim in source for i in dim]
    flat_stored = [i for dim in stored for i in dim]
    split = array.reshape([extents[i] for i in flat_source])
    laid = split.transpose([flat_source.index(i) for i in flat_stored])
    return laid.reshape([int(np.prod([extents[i] for i in dim])) for dim in stored])


def all_of_them(_: Operator, signature: Signature) -> Signature:
    """Every variant of a node: those that cost a CPU more than Transposes, too."""
    return signature


def position_of(sites: Sites) -> int:
    """Where the one node stands: beside it there may be Reshapes that split an axis as none of its variants does."""
    nodes = [index for index, site in enumerate(sites.sites) if site.kind == "node"]
    (position,) = [index for index in nodes if sites.sites[index].label == "node" or len(nodes) == 1]
    return position


def parted_outputs(model: onnx.ModelProto, run: Runner, feed: Mapping[str, Array]) -> onnx.ModelProto:
    """The model with a Reshape behind every output whose axes may lie in pieces: an interface axis is whole."""
    for value, array in zip(model.graph.output, run(model, feed), strict=True):
        if array.size:
            _part(model, value, [part for extent in array.shape for part in parted(extent)])
    sites = build(ir.from_proto(model), keep_interface=False, exchange=True, choose=all_of_them)
    views = {value.name: view for value, view in sites.views.items()}
    for value in model.graph.output:
        view = views[value.name]
        if any(len(dim) > 1 for dim in view.form):
            factors = [factor for dim in view.form for factor in dim]
            _part(model, value, [view.root.extents[factor].number for factor in factors])
    return model


def _part(model: onnx.ModelProto, value: onnx.ValueInfoProto, parts: list[int]) -> None:
    if len(parts) == len(value.type.tensor_type.shape.dim) or 0 in parts:
        return
    model.graph.value_info.append(value)
    whole, value.name = value.name, f"{value.name}_parts"
    value.type.tensor_type.shape.CopyFrom(shape_of(parts))
    model.graph.initializer.append(numpy_helper.from_array(np.array(parts, np.int64), f"{value.name}_shape"))
    model.graph.node.append(helper.make_node("Reshape", [whole, f"{value.name}_shape"], [value.name]))


@dataclass(frozen=True)
class Chosen:
    """As much of a plan as the rewrite needs."""

    sites: Sites
    labels: tuple[Label, ...]


Tried = tuple[str, list[Array], list[Array]]


def forced(
    model: onnx.ModelProto,
    feed: Mapping[str, Array],
    most: int = MOST,
    run: Runner = with_runtime,
    *,
    cut: bool = False,
) -> Iterator[Tried]:
    """For each label of the one node: (the label, expected outputs, outputs of the rewritten model).

    Args:
        model: one node named "node", and Reshapes.
        feed: its inputs.
        most: orders to try.
        run: what runs a model.
        cut: whether outputs are taken apart, too.
    """
    source = parted_outputs(model, run, feed) if cut else model
    original = run(source, feed)
    first = build(ir.from_proto(source), keep_interface=False, exchange=True, choose=all_of_them)
    position = position_of(first)
    site = first.sites[position]
    assert not site.reason, site.reason
    sizes = dict(zip([value.name for value in source.graph.output], original, strict=True))
    for label in labels(site, most):
        copy = ir.from_proto(source)
        sites = build(copy, keep_interface=False, exchange=True, choose=all_of_them)
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
            order = [i for dim in stored[root] for i in dim]
            held = {leaf: factor for factor, leaves in port.factors.items() for leaf in leaves}
            ones = [factor for factor in range(len(end.factors)) if factor not in held.values()]
            chosen[index] = Label((*ones, *dict.fromkeys(held[leaf] for leaf in order)))
            form = placed(end, chosen[index], port).form
            name = root.value.name or ""
            if end.kind == "input":
                given[name] = relaid(feed[name], root.logical, form, extents_of(end, feed[name]))
            else:
                array = sizes[source.graph.output[port.slot].name]
                expected[port.slot] = relaid(array, port.view.form, form, extents_of(end, array))
        result = apply(copy, Chosen(sites, tuple(chosen)))  # type: ignore[arg-type]
        yield str(label), expected, run(ir.to_proto(result), given)


def extents_of(end: Site, array: Array) -> list[int]:
    """The extents of the root's factors, the symbolic ones read off the array that an interface site stands for."""
    (port,) = end.ports
    extents = [extent.number for extent in port.view.root.extents]
    for dim, length in zip(port.view.form, array.shape, strict=True):
        if len(dim) == 1:
            extents[dim[0]] = length
    return extents


def holds(tried: Tried) -> None:
    """Outputs agree with what was expected."""
    label, expected, got = tried
    for want, have in zip(expected, got, strict=True):
        assert have.shape == want.shape, label
        if want.dtype.kind == "f":
            np.testing.assert_allclose(have, want, rtol=2e-5, atol=2e-6, err_msg=label)
        else:
            np.testing.assert_array_equal(have, want, err_msg=label)
