"""Questions to ONNX's shape inference and checker.

They are C++ code that trusts its input more than it should: over some models it reads beyond a vector, or ends the
process. A model about which there is no doubt (`doubt_of_model`) is asked about in this process. Any other is asked
about in a child process, which starts with the first such question (20 ms) and is kept: its death is one error.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

import onnx

from relayout.errors import ReadError, shortened
from relayout.isolation.process import DiedError, Process

# Is a model such that ONNX's shape inference and checker are known to survive it?
#
# Over what exporters write they never crash. Over attributes and graphs that no exporter writes they may: an axis of
# 2**31 is an axis of -2**31 to them, a negative `batch_dims` reads before a vector. Here stands what is usual. A model
# that keeps to it is not doubted, and `tests/isolation` puts hundreds of thousands of such models to ONNX.

LEAST, MOST = -(1 << 16), 1 << 24  # between these are integers in attributes
FARTHEST_AXIS = 64  # axes, from either end, are nearer than that
MOST_RANK, MOST_EXTENT = 16, 1 << 31  # dimensions of a value, an extent
VERSIONS = range(3, 64)  # of the format

AXES = frozenset("axes axis batch_axis batch_dims new_axis perm time_axis".split())  # noqa: SIM905
"""Attributes that index axes."""
COUNTS = frozenset(  # attributes that something is divided by, or that a vector is as long as: at least 1
    "blocksize dilations group hidden_size kernel_shape kv_num_heads num_heads num_outputs q_num_heads strides".split()  # noqa: SIM905
)
NATURAL = frozenset(("batch_dims",))  # attributes that are not negative
STEPS = {"Slice": 4}  # operator -> place of an operand that ONNX adds to places again and again
ANYWHERE = frozenset(("ends", "starts"))  # attributes that are clamped: "to the end" is written as the greatest integer

_INT, _INTS = onnx.AttributeProto.INT, onnx.AttributeProto.INTS
_GRAPH = onnx.AttributeProto.GRAPH
_NAMES = "UNDEFINED GRAPHS SPARSE_TENSOR SPARSE_TENSORS TYPE_PROTO TYPE_PROTOS"
_RARE = frozenset(map(onnx.AttributeProto.AttributeType.Value, _NAMES.split()))
_KINDS = frozenset(onnx.TensorProto.DataType.values()) - {onnx.TensorProto.UNDEFINED}


class _Form(NamedTuple):
    """The demands of an operator's schema on its nodes."""

    inputs: range
    outputs: range
    kinds: Mapping[str, int]
    required: frozenset[str]


def doubt_of_model(model: onnx.ModelProto) -> str:
    """Return the first thing about a model that is not usual; an empty text where there is none.

    Nobody looks into functions and bodies: a model that has some is always asked about in the child process.
    """
    graph, newest = model.graph, onnx.defs.onnx_opset_version()
    versions = {"" if one.domain == "ai.onnx" else one.domain: one.version for one in model.opset_import}
    if model.ir_version not in VERSIONS or not 1 <= versions.get("", 1) <= newest:
        return "the versions that the model imports"
    if model.training_info or graph.sparse_initializer:
        return "training_info or sparse initializers"
    if model.functions:
        return f"function '{model.functions[0].name}'"
    if _has_far_steps(graph):
        return "the steps of a Slice"
    for tensor in graph.initializer:
        if tensor.data_type not in _KINDS or len(tensor.dims) > MOST_RANK:
            return f"initializer '{tensor.name}'"
    for value in (*graph.input, *graph.output, *graph.value_info):
        if not _is_usual(value.type):
            return f"value '{value.name}'"
    known = {"", *(tensor.name for tensor in graph.initializer), *(value.name for value in graph.input)}
    for node in graph.node:
        if not known.issuperset(node.input):
            return f"{_place(node)}: it reads what no node before it gives"
        domain = "" if node.domain == "ai.onnx" else node.domain
        if doubt := _doubt_of_node(node, _form(node.op_type, versions.get(domain, 1), domain)):
            return f"{_place(node)}: {doubt}"
        known.update(node.output)
    return ""


def _has_far_steps(graph: onnx.GraphProto) -> bool:
    """Return whether constant steps are unusual: ONNX adds them to places, whatever overflows."""
    places = ((node, STEPS[node.op_type]) for node in graph.node if node.op_type in STEPS)
    names = {node.input[place] for node, place in places if place < len(node.input)}
    constants = [tensor for tensor in graph.initializer if tensor.name in names]
    constants += [each.t for node in graph.node if not names.isdisjoint(node.output) for each in node.attribute]
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
    if not doubt and not all(map(_is_usual, types)):
        doubt = "what it reads"
    return f"{_place(node)}: {doubt}" if doubt else ""


def _doubt_of_node(node: onnx.NodeProto, form: _Form | None) -> str:
    """Return what is not usual about a node; of one that the standard does not have, only bodies are looked for."""
    if any(attribute.type == _GRAPH for attribute in node.attribute):
        return "it has a body"
    if form is None:
        return ""
    if len(node.input) not in form.inputs or len(node.output) not in form.outputs:
        return f"{len(node.input)} inputs and {len(node.output)} outputs"
    for attribute in node.attribute:
        name, kind = attribute.name, attribute.type
        if form.kinds.get(name) != kind or kind in _RARE or attribute.ref_attr_name:
            return f"its attribute {name}"
        if kind == _INT and not _is_in_range(name, (attribute.i,)):
            return f"{name} = {attribute.i}"
        if kind == _INTS and not _is_in_range(name, attribute.ints):
            return f"{name} = {list(attribute.ints[:MOST_RANK])}"
        if name == "num_outputs" and attribute.i != len(node.output):
            return "it has another number of outputs than num_outputs"
    if missing := form.required.difference(attribute.name for attribute in node.attribute):
        return f"it has no attribute {min(missing)}"
    return ""


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
    """Return the form of a standard's operator; None where it has none: then nothing is inferred of it."""
    try:
        schema = onnx.defs.get_schema(op_type, version, domain)
    except onnx.defs.SchemaError:
        return None
    type_names = {name: str(attribute.type).rpartition(".")[2] for name, attribute in schema.attributes.items()}
    return _Form(
        range(schema.min_input, schema.max_input + 1),
        range(schema.min_output, schema.max_output + 1),
        {name: onnx.AttributeProto.AttributeType.Value(type_name) for name, type_name in type_names.items()},
        frozenset(name for name, attribute in schema.attributes.items() if attribute.required),
    )


def _place(node: onnx.NodeProto) -> str:
    return f"{node.op_type} '{node.name or next(iter(node.output), '')}'"


SECONDS, FOR_EACH = 60, 1e-5  # of the clock, after which a question is given up; and so many more for each of its bytes

MANY = 1000  # nodes above which a model is not looked through, which would take longer than to start the child process

ERRORS: Mapping[str, Callable[[str], Exception]] = {  # what onnx raises -> how to raise it here
    "InferenceError": onnx.shape_inference.InferenceError,
    "MemoryError": MemoryError,
    "ValidationError": onnx.checker.ValidationError,
}


# Questions, and the child process that is asked.


class NativeCrashError(ReadError):
    """ONNX's C++ code crashes over a model, in a child process of its own."""

    def within(self, file: str) -> ReadError:
        """Return the error with the file that it is about."""
        error = super().within(file)
        return NativeCrashError(error.what, where=error.where, hint=error.hint)


def infer_shapes(model: onnx.ModelProto, *, strict: bool = False) -> onnx.ModelProto:
    """Return the model with the types and shapes that ONNX infers.

    Args:
        model: the model; large weights should be left out of it.
        strict: whether an operator that contradicts its operands is an error.

    Raises:
        NativeCrashError: ONNX crashes over the model.
        Exception: what onnx raises for a model that is not consistent.
    """
    doubt = _doubt(model)
    if not doubt:
        inferred_model: onnx.ModelProto = onnx.shape_inference.infer_shapes(model, strict_mode=strict)
        return inferred_model
    kind = b"strict" if strict else b"infer"
    try:
        (content,) = _asked([kind, model.SerializeToString()])
    except DiedError as death:
        raise _crash("shape inference", death, _culprit(model, kind, death) or doubt) from None
    answer: onnx.ModelProto = onnx.ModelProto.FromString(content)
    return answer


def propagate(model: onnx.ModelProto, *, is_short: bool) -> onnx.ModelProto | None:
    """Return the model with the shapes that ONNX infers where it follows the values of shapes, too.

    Args:
        model: the model.
        is_short: whether all of its vectors are known to be short. ONNX makes a symbol for every element of a vector.

    Returns:
        None where that takes too much memory, or crashes.

    Raises:
        Exception: what onnx raises for a model that is not consistent.
    """
    if _process() is None or (is_short and not _doubt(model)):
        inferred_model: onnx.ModelProto = onnx.shape_inference.infer_shapes(model, data_prop=True)
        return inferred_model
    try:
        (content,) = _asked([b"propagate", model.SerializeToString()])
    except (DiedError, MemoryError):
        return None
    answer: onnx.ModelProto = onnx.ModelProto.FromString(content)
    return answer


def check_model(model: onnx.ModelProto) -> None:
    """Hold a model to ONNX's checker, with shape inference.

    Raises:
        NativeCrashError: ONNX crashes over the model.
        Exception: what onnx raises for a model that is not valid.
    """
    doubt = _doubt(model)
    if not doubt:
        onnx.checker.check_model(model, full_check=True)
        return
    try:
        _asked([b"check", model.SerializeToString()])
    except DiedError as death:
        raise _crash("checker", death, _culprit(model, b"strict", death) or doubt) from None


def infer_node_outputs(
    schema: onnx.defs.OpSchema,  # of its operator
    node: onnx.NodeProto,
    types: Mapping[str, onnx.TypeProto],  # of its inputs
    data: Mapping[str, onnx.TensorProto],  # the values of those that are constants
    version: int,  # of the operators of its domain
) -> dict[str, onnx.TypeProto]:
    """Return the types of a node's outputs, as ONNX infers them of that node alone.

    Raises:
        NativeCrashError: ONNX crashes over the node.
        Exception: what onnx raises for a node that its operator does not allow.
    """
    process = _process()
    doubt = doubt_of_node(node, schema, types.values())
    if process is None or not doubt:
        imports = [onnx.helper.make_opsetid(schema.domain, version)]
        return dict(
            onnx.shape_inference.infer_node_outputs(schema, node, dict(types), dict(data), opset_imports=imports)
        )
    if any(name and name not in types for name in node.input):
        raise KeyError(next(name for name in node.input if name and name not in types))
    head = [schema.name, str(version), schema.domain, str(onnx.IR_VERSION)]
    kinds = [part for name, kind in types.items() for part in (name.encode(), kind.SerializeToString())]
    values = [part for name, value in data.items() for part in (name.encode(), value.SerializeToString())]
    question = [b"node", *(text.encode() for text in head), node.SerializeToString(), b"%d" % len(kinds)]
    try:
        answer = _asked([*question, *kinds, *values])
    except DiedError as death:
        raise _crash("shape inference", death, doubt) from None
    return {
        name.decode(): onnx.TypeProto.FromString(kind) for name, kind in zip(answer[::2], answer[1::2], strict=True)
    }


@cache
def _process() -> Process | None:
    """Return the child process, which has not started; None where there can be none."""
    import onnx.onnx_cpp2py_export as extension

    if not Process.can_start() or not extension.__file__:
        return None
    return Process(["-I", "-S"], str(Path(__file__).with_name("onnx_server.py")), [extension.__file__])


def _doubt(model: onnx.ModelProto) -> str:
    """Return the reason to ask the child process; empty where this process will do."""
    if _process() is None:
        return ""
    return "a node of many" if len(model.graph.node) > MANY else doubt_of_model(model)


def _asked(question: list[bytes]) -> list[bytes]:
    """Return the answer of the child process.

    Raises:
        DiedError: it ended.
        Exception: what onnx raised there.
    """
    process = _process()
    assert process is not None
    error, *answer = process.ask(question, SECONDS + FOR_EACH * sum(map(len, question)))
    if error:
        name = error.decode()
        raise ERRORS.get(name, RuntimeError)(answer[0].decode(errors="replace") or name)
    return answer


def _crash(what: str, death: DiedError, where: str) -> NativeCrashError:
    return NativeCrashError(
        f"ONNX's {what} crashes over this model ({death.how})",
        where=shortened(where, 400),
        hint="correct what that node says, or leave it out",
    )


def _culprit(model: onnx.ModelProto, kind: bytes, death: DiedError) -> str:
    """Return the node of the main graph with which shape inference begins to crash; nothing where it cannot be found.

    A graph that ends behind a node is bisected: the nodes before infer as they did.
    """
    low, high = 0, len(model.graph.node)  # the first `high` nodes crash, the first `low` do not
    if death.late or not _crashes(model, high, kind):
        return ""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _crashes(model, middle, kind) else (middle, high)
    node = model.graph.node[high - 1]
    attributes = (attribute for attribute in node.attribute if attribute.type in (attribute.INT, attribute.INTS))
    said = (f"{each.name} = {list(each.ints) if each.type == each.INTS else each.i}" for each in attributes)
    return f"{_place(node)} ({', '.join(said) or 'no attributes'})"


def _crashes(model: onnx.ModelProto, count: int, kind: bytes) -> bool:
    """Tell whether shape inference crashes over the first nodes."""
    part = deepcopy(model)
    del part.graph.node[count:]
    try:
        _asked([kind, part.SerializeToString()])
    except DiedError:
        return True
    except Exception:  # it answers
        return False
    return False
