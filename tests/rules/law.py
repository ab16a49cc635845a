"""The law of every rule, run(variant, re-laid inputs) == re-laid run(original), on cases of one node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper, shape_inference
from onnx.reference import ReferenceEvaluator

from products import in_full
from relayout.verification import law
from relayout.verification.law import MOST, Array, Runner, Tried, parted_inputs, shape_proto, two_factors

__all__ = [
    "MOST",
    "Array",
    "Case",
    "Runner",
    "Tried",
    "forced",
    "holds",
    "parted_inputs",
    "shape_proto",
    "two_factors",
    "typed",
]


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
        domain_version: its version.
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
    domain_version: int = 1

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
            imports.append(helper.make_opsetid(self.domain, self.domain_version))
        return helper.make_model(
            graph, opset_imports=imports, ir_version=10 if self.opset < 25 else 13 + (self.opset > 27)
        )


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


def forced(
    model: onnx.ModelProto,
    feed: Mapping[str, Array],
    most: int = MOST,
    run: Runner | None = None,
    *,
    cut: bool = False,
) -> Iterator[Tried]:
    """Each order of the one node, in ONNX Runtime where nothing else runs it."""
    return law.forced(model, feed, run or with_runtime, most, cut=cut)


def holds(tried: Tried) -> None:
    """Outputs agree with what was expected."""
    label, expected, got = tried
    for want, have in zip(expected, got, strict=True):
        assert have.shape == want.shape, label
        if want.dtype.kind == "f":
            np.testing.assert_allclose(have, want, rtol=2e-5, atol=2e-6, err_msg=label)
        else:
            np.testing.assert_array_equal(have, want, err_msg=label)
