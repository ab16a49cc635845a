"""What a target runs as other operators, since it takes longer for the one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from relayout import arguments
from relayout.errors import LayoutError, shortened
from relayout.formats.onnx.checking import first_version
from relayout.formats.onnx.inferring import SHORT
from relayout.light_dataclass import dataclass
from relayout.lowering.conditions import Condition, is_about
from relayout.lowering.passes import check_operators
from relayout.rules import Operator, Step
from relayout.rules.signature import Constants

MOST_SHOWN = 200  # characters of an answer in a message
MOST_OPERANDS = 1000  # a schema that allows more allows any number
_STEP = {
    "op_type": arguments.WORDS,
    "inputs": arguments.instance(tuple, "a tuple of operands, such as (0, 'half')"),
    "name": arguments.TEXT,
    "attributes": arguments.mapping("{'axis': 1}", lambda value: True),
}
Steps = Callable[[Operator, Constants], Sequence[Step]]
"""The operators that stand for a node, of it and its constants; none where it stays."""


@dataclass(frozen=True)
class Expansion:
    """An operator that is written as others before layouts are chosen.

    Args:
        op_type: the operator, of ONNX's own domain.
        limits: what must hold of its nodes.
        steps: what stands for one.
        of_tflite: whether those of a model that was a `.tflite` are written so, too: it comes back with its operators.
    """

    op_type: str
    limits: tuple[Condition, ...]
    steps: Steps
    of_tflite: bool = True

    def __post_init__(self) -> None:
        """See that every part is what it is taken for.

        Raises:
            LayoutError: one is not, or ONNX has no such operator.
        """
        kinds = {
            "op_type": arguments.WORDS,
            "limits": arguments.several_of(Condition),
            "steps": arguments.FUNCTION,
            "of_tflite": arguments.FLAG,
        }
        arguments.check_fields(self, "an expansion: ", LayoutError, **kinds)
        check_operators([self.op_type])

    def takes(self, operator: Operator) -> bool:
        """Tell whether the expansion is about a node."""
        return is_about(operator, self.op_type, self.limits)

    def of(self, operator: Operator, constants: Constants) -> Sequence[Step]:
        """Return the steps that stand for a node; none, too, where the node is not as its operator is defined."""
        try:
            return self.steps(operator, constants)
        except (IndexError, TypeError, ValueError):
            # This package's own steps: a stranger's node lacks an operand or attribute that its operator must have. A
            # user's steps are a `UsersFunction`, which raises nothing of these kinds.
            return ()


def why_not_written(operator: Operator, steps: Any) -> str:
    """Say why steps cannot be written; empty where they can."""
    if not isinstance(steps, Sequence) or not all(isinstance(step, Step) for step in steps):
        return f"it returns {shortened(repr(steps), MOST_SHOWN)}, not a tuple of Step"
    known: set[object] = set(range(len(operator.node.inputs)))
    for step in steps:
        try:
            arguments.check(step._asdict(), _STEP, where=f"step {step.op_type!r}: ", error=LayoutError)
            check_operators([step.op_type])
            _check_step(step, operator.version)
        except LayoutError as error:
            return str(error)
        unknown = [each for each in step.inputs if isinstance(each, int | str) and each not in known]
        if unknown:
            return f"{step.op_type} reads {unknown[0]!r}, which nothing gives"
        if step.name in known:
            return f"two steps give {step.name!r}"
        known.add(step.name)
    return _contradiction(operator, steps) if steps else ""


def _check_step(step: Step, version: int) -> None:
    """Hold a step to what an opset says of its operator.

    Raises:
        LayoutError: the opset lacks the operator, or the step has other attributes or operands than the operator.
    """
    where = f"step {step.op_type!r}: "
    try:
        schema = onnx.defs.get_schema(step.op_type, version, "")
    except onnx.defs.SchemaError:
        first = first_version(step.op_type)
        raise LayoutError(f"{where}the model's opset is {version}, and {step.op_type} begins with {first}") from None
    if schema.deprecated:
        raise LayoutError(f"{where}opset {version}, which the model has, no longer has {step.op_type}")
    for name, value in step.attributes.items():
        if name not in schema.attributes:
            has = f"has {', '.join(sorted(schema.attributes))}" if schema.attributes else "has none"
            raise LayoutError(f"{where}no attribute {name!r}; in opset {version} {step.op_type} {has}")
        expected_kind = str(schema.attributes[name].type).rpartition(".")[2]
        try:
            kind = onnx.AttributeProto.AttributeType.Name(_attribute(name, value).type)
        except (TypeError, ir.serde.SerdeError) as error:
            raise LayoutError(f"{where}{name}={value!r}: {error.__cause__ or error}") from error
        if kind != expected_kind:
            raise LayoutError(f"{where}{name}={value!r} is of type {kind}; {step.op_type} takes {expected_kind}")
    missing = [name for name, each in schema.attributes.items() if each.required and name not in step.attributes]
    if missing:
        raise LayoutError(f"{where}{step.op_type} needs an attribute {missing[0]!r}")
    few, many = schema.min_input, schema.max_input
    if not few <= len(step.inputs) <= many:
        takes = str(few) if few == many else f"{few} or more" if many > MOST_OPERANDS else f"{few} to {many}"
        raise LayoutError(f"{where}it reads {len(step.inputs)} operands; {step.op_type} takes {takes}")
    for each in step.inputs:
        is_array = isinstance(each, np.ndarray | np.generic) and each.dtype.kind != "O"
        if not is_array and not isinstance(each, int | str):
            raise LayoutError(
                f"{where}{shortened(repr(each), MOST_SHOWN)} is no operand: write a number, a word or a numpy array"
            )


def _attribute(name: str, value: Any) -> onnx.AttributeProto:
    return ir.serde.serialize_attribute(ir.convenience.convert_attribute(name, value))


def _contradiction(operator: Operator, steps: Sequence[Step]) -> str:
    """Say what ONNX's inference has against steps in the place of a node; empty where nothing, or too little is known.

    Types and shapes of the steps, and that of what the last one gives, are held to those of the node.
    """
    node = operator.node
    values = [*(value for value in node.inputs if value is not None), node.outputs[0]]
    if any(value.dtype is None or value.shape is None for value in values):
        return ""
    operands: dict[int | str, str] = {
        slot: f"operand_{slot}" if value else "" for slot, value in enumerate(node.inputs)
    }
    known = operands | {step.name: f"step_{place}" for place, step in enumerate(steps)}
    known[steps[-1].name] = "result"
    graph = onnx.GraphProto(name="steps")
    for slot, value in enumerate(node.inputs):
        if value is not None:
            described = graph.input.add()
            described.CopyFrom(ir.serde.serialize_value(value))
            described.name = operands[slot]
    graph.output.add().CopyFrom(ir.serde.serialize_value(node.outputs[0]))
    graph.output[0].name = "result"
    for step in steps:
        read = []
        for slot, each in enumerate(step.inputs):
            if isinstance(each, int | str):
                read.append(known[each])
                continue
            read.append(f"constant_{len(graph.initializer)}_{slot}")
            array = np.asarray(each)
            if array.size <= SHORT:
                graph.initializer.append(onnx.numpy_helper.from_array(array, read[-1]))
            else:
                kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
                graph.input.append(onnx.helper.make_tensor_value_info(read[-1], kind, array.shape))
        node_proto = onnx.helper.make_node(step.op_type, read, [known[step.name]])
        node_proto.attribute.extend(_attribute(name, value) for name, value in step.attributes.items())
        graph.node.append(node_proto)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", operator.version)])
    try:
        onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
    except onnx.shape_inference.InferenceError as error:
        return f"its steps do not fit: {str(error).splitlines()[-1]}"
    return ""
