"""A node test under change, and the model that it is at each moment."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from node_tests import NodeTest
from numpy.typing import NDArray
from onnx import defs, helper, numpy_helper, shape_inference

Array = NDArray[Any]
MOST_AXES = 6
"""Axes of operands; LiteRT's kernels take hardly more."""


@dataclass
class Mutant:
    """A node test under change.

    Args:
        rng: what chooses.
        test: the test.
        node: its operator.
        version: of ONNX's operators.
        feed: input -> array.
        constants: the inputs that are constants of the model.
        opened: the inputs with dimensions of a name, each with the axes.
    """

    rng: np.random.Generator
    test: NodeTest
    node: onnx.NodeProto
    version: int
    feed: dict[str, Array]
    constants: set[str] = field(default_factory=set)
    opened: dict[str, list[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, test: NodeTest, rng: np.random.Generator) -> Mutant:
        """Return a test as it is."""
        node = onnx.NodeProto()
        node.CopyFrom(test.model.graph.node[0])
        versions = {each.domain: each.version for each in test.model.opset_import}
        feed = {name: np.asarray(array) for name, array in test.inputs.items()}
        return cls(rng, test, node, versions.get("", 1), feed)

    @property
    def schema(self) -> defs.OpSchema:
        """The operator's schema."""
        return defs.get_schema(self.node.op_type, self.version, self.node.domain)

    def formal(self, slot: int) -> defs.OpSchema.FormalParameter:
        """The schema's name and type of an operand."""
        return self.schema.inputs[min(slot, len(self.schema.inputs) - 1)]

    def operand(self, name: str) -> str | None:
        """The input that an operand of the schema's name is."""
        for slot, value in enumerate(self.node.input):
            if value in self.feed and self.formal(slot).name == name:
                return value
        return None

    def is_scale(self, slot: int) -> bool:
        """Return whether an operand is the scale of integers."""
        return self.node.input[slot] in self.feed and self.formal(slot).name.endswith("_scale")

    def attribute(self, name: str, default: Any = None) -> Any:
        """An attribute; the default where it is absent."""
        found = next((each for each in self.node.attribute if each.name == name), None)
        value = default if found is None else helper.get_attribute_value(found)
        return value.decode() if isinstance(value, bytes) else value

    def assign(self, name: str, value: Any) -> None:
        """Give an attribute a value; None leaves it out."""
        kept = [each for each in self.node.attribute if each.name != name]
        del self.node.attribute[:]
        self.node.attribute.extend(kept)
        if value is not None:
            kind = int(self.schema.attributes[name].type.value)
            self.node.attribute.append(helper.make_attribute(name, value, attr_type=kind))

    def pick(self, items: Any) -> Any:
        """Choose one of several."""
        listed = list(items)
        return listed[int(self.rng.integers(len(listed)))]

    def resized(self, array: Array, shape: tuple[int, ...]) -> Array:
        """Return an array of another shape; its elements come from the old one."""
        if array.shape == shape:
            return array
        count = math.prod(shape)
        if not array.size or array.dtype.kind not in "fiub":
            return np.zeros(shape, array.dtype)
        drawn = self.rng.choice(array.reshape(-1), count)
        if array.dtype.kind == "f":
            low, high = array.min(), array.max()
            wide = self.rng.uniform(0.8, 1.0, count) * drawn.astype(np.float64)
            drawn = np.clip(wide, low, high) if np.isfinite(low) and np.isfinite(high) else drawn
        return drawn.astype(array.dtype).reshape(shape)

    def images(self) -> list[str]:
        """The inputs that have the most axes."""
        most = max((array.ndim for array in self.feed.values()), default=0)
        return [name for name, array in self.feed.items() if array.ndim == most]

    def model(self) -> onnx.ModelProto:
        """Return the model: outputs have the types and extents that ONNX infers.

        Raises:
            Exception: it is not valid.
        """
        if self.opened:
            self._closed().model()  # what is not valid with extents is none without
        if unspecified(self):
            raise ValueError("ONNX does not say what it computes")
        inputs = [self._info(name) for name in self.feed if name not in self.constants]
        weights = [numpy_helper.from_array(self.feed[name], name) for name in self.feed if name in self.constants]
        outputs = [onnx.ValueInfoProto(name=name) for name in self.node.output if name]
        graph = helper.make_graph([self.node], "mutant", inputs, outputs, weights)
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid(self.node.domain, self.version)])
        proto.ir_version = min(proto.ir_version, 11)
        inferred = shape_inference.infer_shapes(proto, check_type=True, strict_mode=True, data_prop=True)
        onnx.checker.check_model(inferred, full_check=True)
        return inferred

    def _closed(self) -> Mutant:
        return Mutant(self.rng, self.test, self.node, self.version, self.feed, self.constants)

    def _info(self, name: str) -> onnx.ValueInfoProto:
        array, axes = self.feed[name], self.opened.get(name, [])
        dims = [f"d{extent}" if axis in axes else extent for axis, extent in enumerate(array.shape)]
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), dims)


def unspecified(mutant: Mutant) -> bool:
    """Return whether ONNX does not say what an operator computes.

    It does not say which of two elements for one place stays, nor what a scale or step of 0, or a cap below 0, means.
    """
    kind = mutant.node.op_type
    if kind == "NonMaxSuppression":
        return any(mutant.feed[name].size > 1 for name in mutant.node.input[2:] if name in mutant.feed)
    scales = [mutant.feed[value] for slot, value in enumerate(mutant.node.input) if mutant.is_scale(slot)]
    if not all(((array > 1e-9) & (array < 1e3)).all() for array in scales):
        return True
    if mutant.attribute("softcap", 0.0) < 0 or (kind == "Range" and not mutant.feed[mutant.node.input[2]].all()):
        return True
    if max((array.ndim for array in mutant.feed.values()), default=0) > MOST_AXES:
        return True
    training = mutant.operand("training_mode") if kind == "Dropout" else None
    if training is not None and mutant.feed[training].any():
        return True
    return _repeats(mutant)


def _repeats(mutant: Mutant) -> bool:
    """Return whether two elements are written to one place."""
    kind = mutant.node.op_type
    found = mutant.operand("I" if kind == "MaxUnpool" else "indices")
    if found is None or mutant.attribute("reduction", "none") != "none":
        return False
    places = mutant.feed[found].astype(np.int64)
    if kind == "MaxUnpool":
        return len(np.unique(places)) < places.size
    if kind == "ScatterND":
        extents = mutant.feed[mutant.node.input[0]].shape[: places.shape[-1]]
        rows = (places % np.maximum(np.array(extents, np.int64), 1)).reshape(-1, places.shape[-1])
        return len(np.unique(rows, axis=0)) < len(rows)
    if kind in ("Scatter", "ScatterElements"):
        data = mutant.feed[mutant.node.input[0]]
        axis = mutant.attribute("axis", 0)
        along = np.sort(places % max(data.shape[axis], 1), axis)
        return bool((np.diff(along, axis=axis) == 0).any())
    return False
