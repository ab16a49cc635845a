"""Questions to ONNX's shape inference and checker.

They are C++ code that trusts its input more than it should: over some models it reads beyond a vector, or ends the
process. A model about which `doubts` has no doubt is asked about in this process. Any other is asked about in a child
process, which starts with the first such question (20 ms) and is kept: its death is one error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import onnx

from relayout.errors import ReadError, shortened
from relayout.isolation.doubts import doubt_of_model, doubt_of_node
from relayout.isolation.process import DiedError, Process

SECONDS, FOR_EACH = 60, 1e-5
"""Of the clock, after which a question is given up; and so many more for each of its bytes."""

MANY = 1000
"""Nodes above which a model is not looked through, which would take longer than to start the child process."""

ERRORS: Mapping[str, Callable[[str], Exception]] = {
    "InferenceError": onnx.shape_inference.InferenceError,
    "MemoryError": MemoryError,
    "ValidationError": onnx.checker.ValidationError,
}
"""What onnx raises -> how to raise it here."""


class NativeCrashError(ReadError):
    """ONNX's C++ code crashes over a model, in a child process of its own."""

    def within(self, file: str) -> ReadError:
        """Return the error with the file that it is about."""
        found = super().within(file)
        return NativeCrashError(found.what, where=found.where, hint=found.hint)


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
        found: onnx.ModelProto = onnx.shape_inference.infer_shapes(model, strict_mode=strict)
        return found
    kind = b"strict" if strict else b"infer"
    try:
        (content,) = _asked([kind, model.SerializeToString()])
    except DiedError as death:
        raise _crash("shape inference", death, _culprit(model, kind, death) or doubt) from None
    return _parsed(content)


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
        found: onnx.ModelProto = onnx.shape_inference.infer_shapes(model, data_prop=True)
        return found
    try:
        (content,) = _asked([b"propagate", model.SerializeToString()])
    except (DiedError, MemoryError):
        return None
    return _parsed(content)


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
    schema: onnx.defs.OpSchema,
    node: onnx.NodeProto,
    types: Mapping[str, onnx.TypeProto],
    data: Mapping[str, onnx.TensorProto],
    version: int,
) -> dict[str, onnx.TypeProto]:
    """Return the types of a node's outputs, as ONNX infers them of that node alone.

    Args:
        schema: of its operator.
        node: the node.
        types: of its inputs.
        data: the values of those that are constants.
        version: of the operators of its domain.

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
        found = _asked([*question, *kinds, *values])
    except DiedError as death:
        raise _crash("shape inference", death, doubt) from None
    return {name.decode(): onnx.TypeProto.FromString(kind) for name, kind in zip(found[::2], found[1::2], strict=True)}


def _parsed(content: bytes) -> onnx.ModelProto:
    found = onnx.ModelProto()
    found.ParseFromString(content)
    return found


@cache
def _process() -> Process | None:
    """The child process, which has not started; None where there can be none."""
    import onnx.onnx_cpp2py_export as extension

    if not Process.can_start() or not extension.__file__:
        return None
    return Process(["-I", "-S"], str(Path(__file__).with_name("onnx_server.py")), [extension.__file__])


def _doubt(model: onnx.ModelProto) -> str:
    """Why to ask in the child process; nothing where this process will do."""
    if _process() is None:
        return ""
    return "a node of many" if len(model.graph.node) > MANY else doubt_of_model(model)


def _asked(question: list[bytes]) -> list[bytes]:
    """The answer of the child process.

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
    """The node of the main graph with which shape inference begins to crash; nothing where it cannot be found.

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
    return f"{node.op_type} '{node.name or next(iter(node.output), '')}' ({', '.join(said) or 'no attributes'})"


def _crashes(model: onnx.ModelProto, count: int, kind: bytes) -> bool:
    """Tell whether shape inference crashes over the first nodes."""
    part = onnx.ModelProto()
    part.CopyFrom(model)
    del part.graph.node[count:]
    try:
        _asked([kind, part.SerializeToString()])
    except DiedError:
        return True
    except Exception:  # it answers
        return False
    return False
