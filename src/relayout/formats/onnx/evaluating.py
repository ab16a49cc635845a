"""Values and extents that follow from constants and extents alone: the shapes that an exporter has a graph compute."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx
from onnx import numpy_helper

from relayout.formats.onnx.evaluated_operators import FROM_EXTENTS, JOINING, PRODUCTS, SHAPE_ARITHMETIC, STARTS
from relayout.formats.onnx.inferring import infer_node
from relayout.formats.onnx.node_results import node_results
from relayout.formats.onnx.output_sizes import writes_at_most
from relayout.formats.onnx.shape_vectors import OF_ITEMS, Array, Item, as_integers, object_vector, product_or_quotient
from relayout.layout import Extent

MOST_ELEMENTS = 64
"""Of a value that is evaluated from constants: shapes and axes are short."""
MOST_BYTES = 1 << 18
"""Of a value that follows from extents. An operator that would write more elements is not run."""
MOST_TOGETHER = 1 << 26
"""Bytes of all long values of a graph."""


class Evaluation:
    """What is known of a graph in advance, node after node.

    A vector of shapes may be known in part. It is an array of objects then: integers, extents with symbols, and None
    for an extent that has no name.

    Args:
        model: the graph, with inferred shapes.
        known: values that are known already.

    Attributes:
        named: dimension -> what is known of its extent besides its name.
        bounded: dimension that shape inference has a name for -> the extent that it is, or a number below that.
    """

    def __init__(self, model: onnx.ModelProto, known: Mapping[str, Array]) -> None:
        graph = model.graph
        self.opsets = model.opset_import
        self.shapes = {value.name: value.type.tensor_type for value in (*graph.value_info, *graph.input, *graph.output)}
        self.values = dict(known)
        self._long = 0
        self.extents = {name for name, array in known.items() if array.size > MOST_ELEMENTS}
        self.weights: dict[str, onnx.TensorProto] = {}
        self.named: dict[str, Item] = {}
        self.bounded: dict[str, Extent] = {}
        self.constants: dict[str, list[Item]] = {tensor.name: list(tensor.dims) for tensor in graph.initializer}
        self.initializers = {tensor.name: tensor for tensor in graph.initializer}
        inputs = {value.name for value in graph.input}
        for tensor in graph.initializer:
            if tensor.name in inputs or tensor.name in self.values:
                continue
            if math.prod(tensor.dims) <= MOST_ELEMENTS:
                self.values[tensor.name] = numpy_helper.to_array(tensor)
            else:
                self.weights[tensor.name] = tensor

    def run(self, node: onnx.NodeProto) -> Iterator[tuple[str, Array]]:
        """What a node gives, as far as it is known as a whole; what is known in part is kept."""
        names = [name for name in node.input if name]
        follows = node.op_type in STARTS or any(name in self.extents for name in names)
        if node.op_type in JOINING:
            follows |= self._partly(names)
        if not follows and not all(name in self.values for name in names):
            return
        for name, array in zip(node.output, self._results(node, names, follows), strict=False):
            if array.size > MOST_ELEMENTS and not (follows and array.nbytes <= MOST_BYTES):
                continue
            if array.size > MOST_ELEMENTS:
                self._long += array.nbytes
                if self._long > MOST_TOGETHER:
                    continue
            array = self._typed(name, array)
            self.values[name] = array
            if follows:
                self.extents.add(name)
            if array.dtype != object:
                yield name, array

    def _partly(self, names: Sequence[str]) -> bool:
        """Whether some of the vectors that are joined are known, and of the others how long they are: that is noted."""
        known = [name for name in names if name in self.values]
        if len(known) in (0, len(names)) or any(self.values[name].dtype.kind not in "iO" for name in known):
            return False
        shapes = {name: self.dims(name) for name in names if name not in self.values}
        lengths = {name: dims[0] for name, dims in shapes.items() if dims is not None and len(dims) == 1}
        counts = {name: count for name, count in lengths.items() if isinstance(count, int) and count <= MOST_ELEMENTS}
        self.values |= {name: object_vector([None] * count) for name, count in counts.items()}
        self.extents |= counts.keys()
        return True

    def _typed(self, name: str, array: Array) -> Array:
        """Numbers in the type that shape inference knows: those that were found one by one are 64 bits wide."""
        kind = self.shapes[name].elem_type if name in self.shapes else 0
        if array.dtype != np.int64 or kind not in (onnx.TensorProto.INT32, onnx.TensorProto.INT64):
            return array
        return array.astype(onnx.helper.tensor_dtype_to_np_dtype(kind), copy=False)

    def followed(self, node: onnx.NodeProto) -> Iterator[tuple[str, list[Item]]]:
        """The extents of what a node gives, as far as those of what it reads tell."""
        names = [name for name in dict.fromkeys(node.input) if name]
        numbers = {name: self.values[name] for name in names if name in self.values}
        data = {name: numpy_helper.from_array(array) for name, array in numbers.items() if array.dtype.kind in "if"}
        version = max((one.version for one in self.opsets if one.domain in ("", "ai.onnx")), default=1)
        found = infer_node(node, dict(self._types(names)), data, version)
        yield from ((name, self._dims(kind.tensor_type) or []) for name, kind in found.items())

    def _types(self, names: Sequence[str]) -> Iterator[tuple[str, onnx.TypeProto]]:
        for name in names:
            tensor = self.initializers.get(name)
            if tensor is not None:
                yield name, onnx.helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
            elif name in self.shapes:
                yield name, onnx.TypeProto(tensor_type=self.shapes[name])

    def dims(self, name: str) -> list[Item] | None:
        """The extents of a value; None: not even its rank is known."""
        if name in self.constants:
            return self.constants[name]
        tensor = self.shapes.get(name)
        return None if tensor is None else self._dims(tensor)

    def _dims(self, tensor: onnx.TypeProto.Tensor) -> list[Item] | None:
        if not tensor.HasField("shape"):
            return None
        return [
            dim.dim_value if dim.HasField("dim_value") else self.extent(dim.dim_param) if dim.dim_param else None
            for dim in tensor.shape.dim
        ]

    def extent(self, name: str) -> Item:
        """The extent of a dimension of that name."""
        return self.named[name] if name in self.named else Extent.of(name)

    def _results(self, node: onnx.NodeProto, names: Sequence[str], follows: bool) -> list[Array]:
        if node.op_type in ("Shape", "Size"):
            return _shape(node, self.dims(names[0]))
        if node.op_type not in (FROM_EXTENTS if follows else SHAPE_ARITHMETIC):
            return []
        given = {}
        for name in names:
            array = self.values.get(name)
            if array is None and name in self.weights:
                array = self.values[name] = numpy_helper.to_array(self.weights[name])
            if array is None:
                return []
            given[name] = array
        if not writes_at_most(node, [given.get(name) for name in node.input], MOST_BYTES):
            return []
        if any(array.dtype == object for array in given.values()):
            if node.op_type in OF_ITEMS:
                return OF_ITEMS[node.op_type](*(given[name] for name in node.input))
            if node.op_type in PRODUCTS:
                return product_or_quotient(node, given)
        return node_results(node, given, self.opsets)


def _shape(node: onnx.NodeProto, dims: Sequence[Item] | None) -> list[Array]:
    if dims is None:
        return []
    if node.op_type == "Size":
        return [np.asarray(math.prod(dims))] if all(isinstance(dim, int) for dim in dims) else []  # type: ignore[arg-type]
    bounds = {attribute.name: attribute.i for attribute in node.attribute}
    return [as_integers(object_vector(dims[bounds.get("start", 0) : bounds.get("end", len(dims))]))]
