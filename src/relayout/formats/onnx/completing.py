"""What the layout engine expects of a model and a file may leave out: types, shapes, and what is known in advance."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray
from onnx import numpy_helper

from relayout.errors import ReadError
from relayout.formats.onnx.checking import without_weights
from relayout.formats.onnx.inferring import infer_shapes
from relayout.layout.holds import STATED

Array = NDArray[Any]

_MOVING = "Cast Concat Flatten Gather Identity Reshape Slice Squeeze Transpose Unsqueeze"
MOVING = frozenset(_MOVING.split())
"""Operators whose results hold elements of their first operand (Concat: of all), by no more than where they stand."""
_NAMES = """
    Add And Ceil ConstantOfShape Div Equal Expand Floor Greater Less Max Min Mod Mul Neg Not Or Range ReduceMax
    ReduceMin ReduceProd ReduceSum ScatterND Split Sub Where
"""
SHAPE_ARITHMETIC = MOVING | frozenset(_NAMES.split())
"""Operators that exporters compute shapes and axes with; others are not evaluated from constants alone."""
_NAMES = """
    Abs ArgMax ArgMin Clip Cos CumSum Exp EyeLike GatherElements GatherND GreaterOrEqual IsNaN LessOrEqual Log OneHot
    Pad Pow Reciprocal ReduceMean Round ScatterElements Sign Sin Sqrt Tile Trilu Xor
"""
FROM_EXTENTS = SHAPE_ARITHMETIC | frozenset(_NAMES.split())
"""Operators that are evaluated where extents, and not constants alone, are what they start from."""
STARTS = frozenset(("ConstantOfShape", "Range", "Shape", "Size"))
"""Where values begin that follow from extents: masks, positions. Weights are not folded here."""
MOST_ELEMENTS = 64
"""Of a value that is evaluated from constants: shapes and axes are short."""
MOST_BYTES = 1 << 18
"""Of a value that follows from extents."""
ROUNDS = 8
"""Each round knows the shapes that the values of the last one give."""


Output = tuple[ir.DataType | None, Sequence[int | str] | None]
"""Element type and shape of an output; None is a type or rank that is not known, "" an extent."""
OutputsOf = Callable[[ir.Node, Mapping[str, int]], Sequence[Output]]


def complete(model: ir.Model, outputs_of: OutputsOf | None = None) -> None:
    """Prepare a model for the layout engine, in place.

    1. Outputs of Constant nodes become initializers: a constant is stored as its readers want it.
    2. Values get the types and shapes that ONNX infers; those that a file states stay.
    3. What operators give that ONNX does not know is asked for; a Transpose says the rank of what it reads.
    4. Shapes and axes that the graph computes from known extents get a `const_value`; the nodes stay.

    What cannot be inferred stays unknown. The shapes that the file states of its outputs are in their `meta`, since an
    interface is kept as it is.

    Args:
        model: the model.
        outputs_of: what a node gives in a model of these opsets, by what is known of its inputs.
    """
    for value in model.graph.outputs:
        if STATED not in value.meta:
            value.meta[STATED] = value.shape
    lift_constants(model)
    if all(_is_known(value) for node in model.graph.all_nodes() for value in node.outputs):
        return
    for _ in range(ROUNDS):
        try:
            inferred, known = _inferred(without_weights(model))
        except Exception:  # onnx raises types of its own; what is wrong is said when the result is checked
            return
        _complete(model.graph, inferred)
        for value in (value for node in model.graph for value in node.outputs):
            if value.name in known:
                value.const_value = ir.Tensor(known[value.name])
                value.shape = ir.Shape(known[value.name].shape)
        if not _asked(model, outputs_of):
            return


def _asked(model: ir.Model, outputs_of: OutputsOf | None) -> bool:
    """Find what shape inference does not, one node after another; whether anything was found."""
    found = False
    for node in model.graph.all_nodes():
        if node.op_type == "Transpose" and not node.domain:
            found |= _ranked(node)
        if node.op_type == "Loop" and not node.domain:
            found |= _carried(node)
        if outputs_of is None or all(_is_known(value) for value in node.outputs if value.name):
            continue
        if node.domain in ("", "ai.onnx") and not found:
            continue  # shape inference has seen as much of it
        for value, (kind, shape) in zip(node.outputs, outputs_of(node, model.opset_imports), strict=False):
            before = None if value.shape is None else list(value.shape)
            if value.name and shape is not None:
                value.shape = _better(value.shape, ir.Shape([dim or None for dim in shape]))
                found |= before is None or before != list(value.shape or ())
            if kind is not None and value.type is None:
                value.type = ir.TensorType(kind)
    return found


def _ranked(node: ir.Node) -> bool:
    """What a Transpose reads has the rank of its perm; whether that was not known."""
    perm, value = node.attributes.get_ints("perm"), node.inputs[0] if node.inputs else None
    if perm is None or value is None or value.shape is not None or value.is_graph_input():
        return False
    value.shape = ir.Shape([f"{value.name}_dim_{axis}" for axis in range(len(perm))])
    return True


def _carried(node: ir.Node) -> bool:
    """What a Loop gives of its states is what it was given or what its body gives: what their shapes share is known."""
    attribute, found = node.attributes.get("body"), False
    if attribute is None or attribute.type != ir.AttributeType.GRAPH:
        return False
    body = attribute.as_graph()
    for state, given, value in zip(body.inputs[2:], body.outputs[1:], node.outputs, strict=False):
        if value.shape is None and state.shape is not None and given.shape is not None:
            pairs = list(zip(state.shape, given.shape, strict=False))
            if len(state.shape) == len(given.shape):
                value.shape = ir.Shape([a if isinstance(a, int) and a == b else None for a, b in pairs])
                found = True
    return found


def lift_constants(model: ir.Model) -> None:
    """Make the outputs of Constant nodes initializers, in place.

    Raises:
        ReadError: a Constant holds nothing that a constant can be.
    """
    if any(node.op_type == "Constant" for node in model.graph.all_nodes()):
        from onnx_ir.passes.common import LiftConstantsToInitializersPass

        try:
            LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
        except Exception as error:  # errors of many types, for attributes of the wrong name, type or number
            raise ReadError(f"a Constant holds no constant: {' '.join(str(error).split())}") from None


def _is_known(value: ir.Value) -> bool:
    return value.type is not None and value.shape is not None and all(isinstance(dim, int) for dim in value.shape)


def _inferred(light: onnx.ModelProto) -> tuple[onnx.GraphProto, dict[str, Array]]:
    """The graph with inferred types and shapes, and the values that are known in advance."""
    whole: dict[str, onnx.ValueInfoProto] = {}
    known: dict[str, Array] = {}
    for _ in range(ROUNDS):
        inferred = infer_shapes(light)
        whole.update({value.name: value for value in inferred.graph.value_info})
        found = dict(_evaluated(inferred, known))
        if not found:
            break
        known |= found
        kept = [node for node in light.graph.node if not any(name in known for name in node.output)]
        given = {tensor.name for tensor in light.graph.initializer}
        outputs = {value.name for value in light.graph.output}
        if any(name in outputs for name in found):
            break
        light.CopyFrom(inferred)
        # What is known is an initializer from here on; ONNX would believe the symbols of its value_info instead.
        open_still = [value for value in light.graph.value_info if value.name not in found]
        del light.graph.node[:], light.graph.value_info[:]
        light.graph.node.extend(kept)
        light.graph.value_info.extend(open_still)
        light.graph.initializer.extend(
            numpy_helper.from_array(known[name], name) for name in found if name not in given
        )
    result = onnx.GraphProto()
    result.CopyFrom(inferred.graph)
    stated = {value.name for value in result.value_info}
    result.value_info.extend(value for name, value in whole.items() if name not in stated)
    return result, known


def _evaluated(model: onnx.ModelProto, known: Mapping[str, Array]) -> Iterator[tuple[str, Array]]:
    """Values of the main graph that follow from what is known, and were not known before."""
    evaluation = _Evaluation(model, known)
    for node in model.graph.node:
        if node.output[0] not in known and node.domain in ("", "ai.onnx"):
            yield from evaluation.run(node)


class _Evaluation:
    """Values that are known in advance. An array of objects is known in part: None stands for a dynamic extent."""

    def __init__(self, model: onnx.ModelProto, known: Mapping[str, Array]) -> None:
        graph = model.graph
        self.opsets = model.opset_import
        self.shapes = {value.name: value.type.tensor_type for value in (*graph.value_info, *graph.input, *graph.output)}
        self.values = dict(known)
        self.extents = {name for name, array in known.items() if array.size > MOST_ELEMENTS}
        self.weights: dict[str, onnx.TensorProto] = {}
        inputs = {value.name for value in graph.input}
        for tensor in graph.initializer:
            if tensor.name in inputs or tensor.name in self.values:
                continue
            if int(np.prod(tensor.dims)) <= MOST_ELEMENTS:
                self.values[tensor.name] = numpy_helper.to_array(tensor)
            else:
                self.weights[tensor.name] = tensor

    def run(self, node: onnx.NodeProto) -> Iterator[tuple[str, Array]]:
        """What a node gives, as far as it is known as a whole; what is known in part is kept."""
        names = [name for name in node.input if name]
        follows = node.op_type in STARTS or any(name in self.extents for name in names)
        if not follows and not all(name in self.values for name in names):
            return
        for name, array in zip(node.output, self._results(node, names, follows), strict=False):
            if array.size > MOST_ELEMENTS and not (follows and array.nbytes <= MOST_BYTES):
                continue
            self.values[name] = array
            if follows:
                self.extents.add(name)
            if array.dtype != object:
                yield name, array

    def _results(self, node: onnx.NodeProto, names: Sequence[str], follows: bool) -> list[Array]:
        if node.op_type in ("Shape", "Size"):
            return _shape(node, self.shapes.get(names[0]))
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
        if any(array.dtype == object for array in given.values()):
            return self._moved(node, given)
        return self._computed(node, given)

    def _moved(self, node: onnx.NodeProto, given: Mapping[str, Array]) -> list[Array]:
        """An operator that only moves elements, run on their numbers in a list of all."""
        moved = set(node.input if node.op_type == "Concat" else node.input[:1])
        to = next((attribute.i for attribute in node.attribute if attribute.name == "to"), None)
        if node.op_type not in MOVING or to not in (None, onnx.TensorProto.INT64, onnx.TensorProto.INT32):
            return []
        if any(array.dtype == object for name, array in given.items() if name not in moved):
            return []
        items: list[int | None] = []
        numbered = dict(given)
        for name in moved:
            flat = given[name].ravel().tolist()
            numbered[name] = np.arange(len(items), len(items) + len(flat)).reshape(given[name].shape)
            items += flat
        return [
            _whole(np.array([items[i] for i in a.ravel()], object).reshape(a.shape), to)
            for a in self._computed(node, numbered)
        ]

    def _computed(self, node: onnx.NodeProto, given: Mapping[str, Array]) -> list[Array]:
        if any(array.dtype.kind not in "iubf" for array in given.values()):
            return []
        if node.op_type == "Div" and any((array < 0).any() for array in given.values() if array.dtype.kind == "i"):
            return []  # integers are truncated by the standard, and floored by its reference
        if node.op_type in ("ConstantOfShape", "Expand") and np.prod(given[node.input[-1]], dtype=float) > MOST_BYTES:
            return []
        from onnx.reference import ReferenceEvaluator

        inputs = [
            onnx.helper.make_tensor_value_info(n, onnx.helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in given.items()
        ]
        outputs = [onnx.helper.make_empty_tensor_value_info(name) for name in node.output if name]
        graph = onnx.helper.make_graph([node], "one", inputs, outputs)
        single = onnx.helper.make_model(graph, opset_imports=self.opsets)
        try:
            with np.errstate(all="ignore"):
                return [np.asarray(array) for array in ReferenceEvaluator(single).run(None, dict(given))]
        except Exception:  # the node is wrong, or the reference lacks it: it is simply not known in advance
            return []


def _shape(node: onnx.NodeProto, tensor: onnx.TypeProto.Tensor | None) -> list[Array]:
    if tensor is None or not tensor.HasField("shape"):
        return []
    dims = [dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim]
    if node.op_type == "Size":
        return [] if None in dims else [np.asarray(np.prod(dims, dtype=np.int64))]  # type: ignore[arg-type]
    bounds = {attribute.name: attribute.i for attribute in node.attribute}
    return [_whole(np.array(dims[bounds.get("start", 0) : bounds.get("end", len(dims))], object))]


def _whole(array: Array, kind: int | None = None) -> Array:
    """The array as integers where every element is known."""
    if any(item is None for item in array.ravel()):
        return array
    return array.astype(np.int32 if kind == onnx.TensorProto.INT32 else np.int64)


def _complete(graph: ir.Graph, inferred: onnx.GraphProto) -> None:
    found = {value.name: value.type for value in (*inferred.value_info, *inferred.output)}
    protos = {proto.output[0]: proto for proto in inferred.node if proto.output}
    for node in graph:
        for value in node.outputs:
            declared = found.get(value.name or "")
            if declared is None or _is_known(value):
                continue
            value.type = value.type or ir.serde.deserialize_type_proto_for_type(declared)
            value.shape = _better(value.shape, ir.serde.deserialize_type_proto_for_shape(declared))
        proto = protos.get(node.outputs[0].name or "") if node.outputs else None
        for attribute in proto.attribute if proto is not None else ():
            if attribute.HasField("g"):
                body = node.attributes[attribute.name].as_graph()
                for value, declared in zip(body.inputs, attribute.g.input, strict=True):
                    if value.shape is None:
                        value.type = value.type or ir.serde.deserialize_type_proto_for_type(declared.type)
                        value.shape = ir.serde.deserialize_type_proto_for_shape(declared.type)
                _complete(body, attribute.g)


def _better(stated: ir.Shape | None, inferred: ir.Shape | None) -> ir.Shape | None:
    """The stated shape, with the extents that it leaves open taken from the inferred one."""
    if stated is None or inferred is None or len(stated) != len(inferred):
        return stated if stated is not None else inferred
    return ir.Shape([b if isinstance(b, int) else a for a, b in zip(stated, inferred, strict=True)])
