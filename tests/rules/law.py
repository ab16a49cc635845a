"""The law of every rule: run(variant, re-laid inputs) == re-laid run(original)."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper, shape_inference

from relayout.infer import Form, Label, Plan, Site, build, placed, plan
from relayout.infer.candidates import repaired
from relayout.rewrite import apply

MOST = 24
"""Orders tried per case."""


@dataclass(frozen=True)
class Case:
    """One node with inputs: arrays are computed inputs, `constants` are initializers. Extents should all differ.

    Args:
        op_type: the operator.
        inputs: name -> array, in the order of the node's inputs; the empty name is an absent input.
        constants: names in `inputs` that are initializers.
        attributes: the node's.
        outputs: how many outputs.
        opset: the opset version of the default domain.
        domain: the node's domain.
    """

    op_type: str
    inputs: Mapping[str, NDArray[np.generic] | None]
    constants: tuple[str, ...] = ()
    attributes: Mapping[str, object] = field(default_factory=dict)
    outputs: int = 1
    opset: int = 21
    domain: str = ""

    def __str__(self) -> str:
        shapes = "_".join("x".join(map(str, a.shape)) or "s" for a in self.inputs.values() if a is not None)
        extra = "_".join(f"{key}{value}".replace(" ", "") for key, value in self.attributes.items())
        return f"{self.op_type}-{self.opset}-{shapes}-{extra}"

    def model(self) -> onnx.ModelProto:
        given = {name: np.asarray(array) for name, array in self.inputs.items() if array is not None}
        outputs = [f"out{i}" for i in range(self.outputs)]
        names = [name if array is not None else "" for name, array in self.inputs.items()]
        node = helper.make_node(self.op_type, names, outputs, name="node", domain=self.domain, **self.attributes)
        graph = helper.make_graph(
            [node],
            "case",
            [
                helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
                for name, array in given.items()
                if name not in self.constants
            ],
            [helper.make_empty_tensor_value_info(name) for name in outputs],
            [numpy_helper.from_array(given[name], name) for name in self.constants],
        )
        imports = [helper.make_opsetid("", self.opset)]
        if self.domain:
            imports.append(helper.make_opsetid(self.domain, 1))
        model = helper.make_model(graph, opset_imports=imports, ir_version=10)
        inferred = shape_inference.infer_shapes(model, data_prop=True)
        return self._typed(inferred)

    def _typed(self, model: onnx.ModelProto) -> onnx.ModelProto:
        """Outputs whose shape ONNX does not infer take it from a run."""
        results = run(model, self.feed())
        for value, array in zip(model.graph.output, results, strict=True):
            dtype = value.type.tensor_type.elem_type or helper.np_dtype_to_tensor_dtype(array.dtype)
            value.CopyFrom(helper.make_tensor_value_info(value.name, dtype or TensorProto.FLOAT, array.shape))
        return model

    def feed(self) -> dict[str, NDArray[np.generic]]:
        return {n: np.asarray(a) for n, a in self.inputs.items() if a is not None and n not in self.constants}


def run(model: onnx.ModelProto, feed: Mapping[str, NDArray[np.generic]]) -> list[NDArray[np.generic]]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    return [np.asarray(array) for array in session.run(None, dict(feed))]


def labels(site: Site) -> Iterator[Label]:
    """Every label that the signature allows, or a random selection of them."""
    everything = list(range(len(site.factors)))
    if site.signature.variants:
        yield from (Label(tuple(everything), variant) for variant in range(len(site.signature.variants)))
        return
    orders = list(itertools.islice(itertools.permutations(everything), 5040))
    random.Random(0).shuffle(orders)
    allowed = list(dict.fromkeys(repaired(site, order) for order in orders))
    yield from (Label(order) for order in [tuple(everything), *allowed[:MOST]] if repaired(site, order) == order)


def relaid(array: NDArray[np.generic], source: Form, stored: Form, extents: list[int]) -> NDArray[np.generic]:
    """An array in form `source` stored in another."""
    flat_source = [i for dim in source for i in dim]
    flat_stored = [i for dim in stored for i in dim]
    split = array.reshape([extents[i] for i in flat_source])
    laid = split.transpose([flat_source.index(i) for i in flat_stored])
    return laid.reshape([int(np.prod([extents[i] for i in dim])) for dim in stored])


def forced(case: Case, choose: int) -> Iterator[tuple[str, list[NDArray[np.generic]], list[NDArray[np.generic]]]]:
    """For each label of the node: (the label, expected outputs, outputs of the rewritten model)."""
    source = case.model()
    original = run(source, case.feed())
    sites = build(ir.from_proto(source), keep_interface=False)
    (position,) = [index for index, site in enumerate(sites.sites) if site.kind == "node"]
    options = list(labels(sites.sites[position]))
    for number in range(len(options))[:choose]:
        model = ir.from_proto(source)
        sites = build(model, keep_interface=False)
        base = plan(sites)
        node = sites.sites[position]
        label = list(labels(node))[number]
        stored = {port.view.root: placed(node, label, port)[1] for port in node.ports}
        chosen = list(base.labels)
        chosen[position] = label
        feed, expected = dict(case.feed()), list(original)
        for index, site in enumerate(sites.sites):
            if site.kind == "node":
                continue
            (port,) = site.ports
            root = port.view.root
            order = [i for dim in stored[root] for i in dim]
            held = {leaf: factor for factor, leaves in port.factors.items() for leaf in leaves}
            ones = [factor for factor in range(len(site.factors)) if factor not in held.values()]
            chosen[index] = Label((*ones, *(held[leaf] for leaf in order)))
            extents = [extent.number for extent in root.extents]
            form = placed(site, chosen[index], port)[1]
            if site.kind == "input":
                feed[root.value.name or ""] = relaid(feed[root.value.name or ""], root.logical, form, extents)
            else:
                expected[port.slot] = relaid(expected[port.slot], root.logical, form, extents)
        result = apply(model, _unproved(base, tuple(chosen)))
        yield str(label), expected, run(ir.to_proto(result), feed)


def _unproved(base: Plan, chosen: tuple[Label, ...]) -> Plan:
    return replace(base, labels=chosen, proved=False)
