"""Is a model such that ONNX's shape inference and checker are known to survive it?

Over what exporters write they never crash. Over attributes and graphs that no exporter writes they may: an axis of
2**31 is an axis of -2**31 to them, a negative `batch_dims` reads before a vector. Here stands what is usual. A model
that keeps to it is not doubted, and `tests/isolation` puts hundreds of thousands of such models to ONNX.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import onnx

LEAST, MOST = -(1 << 16), 1 << 24
"""Between these are integers in attributes."""
FARTHEST_AXIS = 64
"""Axes, from either end, are nearer than that."""
MOST_RANK, MOST_EXTENT, DEEPEST = 16, 1 << 31, 8
"""Dimensions of a value, an extent, bodies within bodies."""
VERSIONS = range(3, 64)
"""Of the format."""

AXES = frozenset("axes axis batch_axis batch_dims new_axis perm scan_input_axes scan_output_axes time_axis".split())  # noqa: SIM905
"""Attributes that index axes."""
COUNTS = frozenset(
    "blocksize dilations group hidden_size kernel_shape kv_num_heads num_heads num_outputs q_num_heads strides".split()  # noqa: SIM905
)
"""Attributes that something is divided by, or that a vector is as long as: at least 1."""
NATURAL = frozenset(("batch_dims",))
"""Attributes that are not negative."""
STEPS = {"Slice": 4}
"""Operator -> place of an operand that ONNX adds to places again and again."""
ANYWHERE = frozenset(("ends", "starts"))
"""Attributes that are clamped: "to the end" is written as the greatest integer."""

_INT, _INTS = onnx.AttributeProto.INT, onnx.AttributeProto.INTS
_GRAPH = onnx.AttributeProto.GRAPH
_RARE = frozenset(
    (
        onnx.AttributeProto.UNDEFINED,
        onnx.AttributeProto.GRAPHS,
        onnx.AttributeProto.SPARSE_TENSOR,
        onnx.AttributeProto.SPARSE_TENSORS,
        onnx.AttributeProto.TYPE_PROTO,
        onnx.AttributeProto.TYPE_PROTOS,
    )
)
_KINDS = frozenset(onnx.TensorProto.DataType.values()) - {onnx.TensorProto.UNDEFINED}


class _Form(NamedTuple):
    """The demands of an operator's schema on its nodes."""

    inputs: range
    outputs: range
    kinds: Mapping[str, int]
    required: frozenset[str]

    @classmethod
    def of(cls, schema: onnx.defs.OpSchema) -> "_Form":
        kinds = {
            name: onnx.AttributeProto.AttributeType.Value(str(attribute.type).rpartition(".")[2])
            for name, attribute in schema.attributes.items()
        }
        return cls(
            range(schema.min_input, schema.max_input + 1),
            range(schema.min_output, schema.max_output + 1),
            kinds,
            frozenset(name for name, attribute in schema.attributes.items() if attribute.required),
        )


def doubt_of_model(model: onnx.ModelProto) -> str:
    """Return the first thing about a model that is not usual; an empty text where there is none."""
    newest = onnx.defs.onnx_opset_version()
    versions = {"" if one.domain == "ai.onnx" else one.domain: one.version for one in model.opset_import}
    if model.ir_version not in VERSIONS or not 1 <= versions.get("", 1) <= newest:
        return "the versions that the model imports"
    if model.training_info:
        return "training_info"
    if _has_far_steps(model.graph, set()):
        return "the steps of a Slice"
    calls = {(function.domain, function.name): len(function.input) for function in model.functions}
    if len(calls) < len(model.functions):
        return "overloads of functions"
    for function in model.functions:
        imports = {"" if one.domain == "ai.onnx" else one.domain: one.version for one in function.opset_import}
        if not 1 <= imports.get("", 1) <= newest:
            return f"the versions that function '{function.name}' imports"
        if doubt := _Graphs(imports, calls).doubt_of_nodes(function.node, {"", *function.input}, 0):
            return f"function '{function.name}', {doubt}"
    return _Graphs(versions, calls).doubt(model.graph, frozenset(), 0)


def _has_far_steps(graph: onnx.GraphProto, outer: set[str]) -> bool:
    """Return whether constant steps are unusual: ONNX adds them to places, whatever overflows.

    Args:
        graph: the main graph, or a body in it.
        outer: the names of steps that the graphs around it may hold; those of this graph are added.
    """
    for node in graph.node:
        place = STEPS.get(node.op_type)
        if place is not None and len(node.input) > place:
            outer.add(node.input[place])
        for attribute in node.attribute:
            if attribute.type == _GRAPH and _has_far_steps(attribute.g, outer):
                return True
    if not outer:
        return False
    constants = [tensor for tensor in graph.initializer if tensor.name in outer]
    constants += [each.t for node in graph.node if outer.intersection(node.output) for each in node.attribute]
    return not all(map(_is_near, constants))


def _is_near(tensor: onnx.TensorProto) -> bool:
    """Return whether a constant's integers, if it has some, are near 0."""
    if tensor.data_type not in (onnx.TensorProto.INT32, onnx.TensorProto.INT64):
        return True
    try:
        numbers = onnx.numpy_helper.to_array(tensor)
    except Exception:  # onnx raises types of its own for data that do not fit
        return False
    return bool(((numbers >= -MOST) & (numbers <= MOST)).all())


def doubt_of_node(node: onnx.NodeProto, schema: onnx.defs.OpSchema, types: Iterable[onnx.TypeProto] = ()) -> str:
    """Return what is not usual about a node, or about the types that it reads; an empty text where nothing is."""
    form = _form(schema.name, schema.since_version, schema.domain)
    doubt = "it is not in the standard" if form is None else _doubt_of_node(node, form)
    if not doubt and any(attribute.type == _GRAPH for attribute in node.attribute):
        doubt = "it has a body"
    if not doubt and not all(map(_is_usual, types)):
        doubt = "what it reads"
    return f"{_place(node)}: {doubt}" if doubt else ""


class _Graphs:
    """The graphs of a model, or of one function.

    Args:
        versions: domain -> version of its operators.
        calls: function -> how many inputs it has.
    """

    def __init__(self, versions: Mapping[str, int], calls: Mapping[tuple[str, str], int]) -> None:
        self._versions, self._calls = versions, calls

    def doubt(self, graph: onnx.GraphProto, outer: Iterable[str], depth: int) -> str:
        """Return what is not usual about a graph, which is inside so many others."""
        if depth > DEEPEST:
            return "bodies within bodies"
        if graph.sparse_initializer:
            return "a sparse initializer"
        known = {"", *outer}
        for tensor in graph.initializer:
            if tensor.data_type not in _KINDS or len(tensor.dims) > MOST_RANK:
                return f"initializer '{tensor.name}'"
            known.add(tensor.name)
        for value in graph.input:
            if not _is_usual(value.type):
                return f"input '{value.name}'"
            known.add(value.name)
        for value in (*graph.output, *graph.value_info):
            if not _is_usual(value.type):
                return f"value '{value.name}'"
        return self.doubt_of_nodes(graph.node, known, depth)

    def doubt_of_nodes(self, nodes: Iterable[onnx.NodeProto], known: set[str], depth: int) -> str:
        """Return what is not usual about nodes that read each other and values that are `known`."""
        versions, calls = self._versions, self._calls
        for node in nodes:
            if not known.issuperset(node.input):
                return f"{_place(node)}: it reads what no node before it gives"
            domain = node.domain
            domain = "" if domain == "ai.onnx" else domain
            if (domain, node.op_type) in calls:
                if len(node.input) > calls[domain, node.op_type]:
                    return f"{_place(node)}: it has more inputs than its function"
                known.update(node.output)
                continue
            form = _form(node.op_type, versions.get(domain, 1), domain)
            if form is not None:
                doubt = _doubt_of_node(node, form)
                if doubt:
                    return f"{_place(node)}: {doubt}"
            for attribute in node.attribute:
                if attribute.type == _GRAPH and (doubt := self.doubt(attribute.g, known, depth + 1)):
                    return f"{_place(node)}, {attribute.name}: {doubt}"
            known.update(node.output)
        return ""


def _doubt_of_node(node: onnx.NodeProto, form: _Form) -> str:
    if len(node.input) not in form.inputs or len(node.output) not in form.outputs:
        return f"{len(node.input)} inputs and {len(node.output)} outputs"
    missing = form.required
    has_bodies = False
    for attribute in node.attribute:
        name, kind = attribute.name, attribute.type
        if form.kinds.get(name) != kind or kind in _RARE or attribute.ref_attr_name:
            return f"its attribute {name}"
        if kind == _INT:
            if not _is_in_range(name, (attribute.i,)):
                return f"{name} = {attribute.i}"
        elif kind == _INTS:
            if not _is_in_range(name, attribute.ints):
                return f"{name} = {list(attribute.ints[:MOST_RANK])}"
        elif kind == _GRAPH:
            has_bodies = True
        if missing:
            missing = missing - {name}
    if missing:
        return f"it has no attribute {min(missing)}"
    fits = FITS.get(node.op_type)
    if fits is not None and not fits(node, {attribute.name: attribute for attribute in node.attribute}):
        return "its numbers of inputs and outputs do not fit its attributes"
    return "it has a body" if has_bodies and fits is None else ""


def _is_in_range(name: str, values: Sequence[int]) -> bool:
    """Tell whether the integers of an attribute are usual ones."""
    if not values or name in ANYWHERE:
        return True
    if name in AXES:
        return min(values) >= (0 if name in NATURAL else -FARTHEST_AXIS) and max(values) < FARTHEST_AXIS
    return min(values) >= (1 if name in COUNTS else LEAST) and max(values) <= MOST


def _is_usual(kind: onnx.TypeProto) -> bool:
    """Tell whether a type is that of a tensor with few dimensions of usual extents."""
    if not kind.HasField("tensor_type"):
        return False
    tensor = kind.tensor_type
    dims = tensor.shape.dim
    if tensor.elem_type not in _KINDS or len(dims) > MOST_RANK:
        return False
    return all(0 <= dim.dim_value < MOST_EXTENT for dim in dims if dim.HasField("dim_value"))


@lru_cache(4096)
def _form(op_type: str, version: int, domain: str) -> _Form | None:
    """Return the standard's schema of an operator; None where it has none: then nothing is inferred of it."""
    try:
        return _Form.of(onnx.defs.get_schema(op_type, version, domain))
    except onnx.defs.SchemaError:
        return None


def _place(node: onnx.NodeProto) -> str:
    return f"{node.op_type} '{node.name or next(iter(node.output), '')}'"


_Attributes = Mapping[str, onnx.AttributeProto]


def _fits_if(node: onnx.NodeProto, attributes: _Attributes) -> bool:
    return all(len(attribute.g.output) == len(node.output) for attribute in attributes.values())


def _fits_loop(node: onnx.NodeProto, attributes: _Attributes) -> bool:
    body = attributes["body"].g
    return len(body.input) == max(len(node.input), 2) and len(body.output) == len(node.output) + 1


def _fits_scan(node: onnx.NodeProto, attributes: _Attributes) -> bool:
    body, scanned = attributes["body"].g, attributes["num_scan_inputs"].i
    states = len(node.input) - scanned
    kept = len(node.output) - states
    lengths = {"scan_input_axes": scanned, "scan_input_directions": scanned}
    lengths |= {"scan_output_axes": kept, "scan_output_directions": kept}
    return (
        0 < scanned <= len(node.input)
        and kept >= 0
        and len(body.input) == len(node.input)
        and len(body.output) == len(node.output)
        and all(len(attributes[name].ints) == length for name, length in lengths.items() if name in attributes)
    )


def _fits_split(node: onnx.NodeProto, attributes: _Attributes) -> bool:
    return "num_outputs" not in attributes or attributes["num_outputs"].i == len(node.output)


FITS: Mapping[str, Callable[[onnx.NodeProto, _Attributes], bool]] = {
    "If": _fits_if,
    "Loop": _fits_loop,
    "Scan": _fits_scan,
    "Split": _fits_split,
}
"""Operators whose numbers of inputs and outputs depend on their attributes."""
