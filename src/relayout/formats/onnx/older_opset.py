"""A model in an older opset: `--opset 13`, for tools that read no newer one.

1. An operator whose definition did not change since stays. So does one that says nothing new: attributes at their
   defaults are left out, and element types and operands are held to the older schema.
2. Axes that became operands become attributes again (ReduceMean before 18), and the like.
3. A few operators that are younger become older ones. All others are one error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.errors import LayoutError
from relayout.formats.onnx.checking import first_version, first_version_with, is_default, schema_of
from relayout.graph.domains import RESIZE
from relayout.graph.source_names import Names
from relayout.graph.subgraphs import all_nodes, become
from relayout.graph.walks import known_tensor

# A model while it is written in an older opset, and the error of a node that needs a newer one.


class NewerError(Exception):
    """A fact of an operator that the older opset cannot state."""


class OlderModel:
    """A model that is written in an older opset: its names, and new constants."""

    def __init__(
        self,
        model: ir.Model,
        opset: int,  # the older version of ONNX's own domain
    ) -> None:
        self.model, self.opset = model, opset
        self.owner: ir.Graph | ir.Function = model.graph
        """The graph or function whose nodes, those of bodies among them, are rewritten."""
        owners: tuple[ir.Model | ir.Function, ...] = (model, *model.functions.values())
        self.names = Names(set().union(*(Names.of(owner, nodes=True).taken for owner in owners)))

    def constant(self, name: str, array: NDArray[Any]) -> ir.Value:
        """Return a new constant: an initializer, in a function the result of a Constant."""
        value = ir.val(self.names.unique(name), const_value=ir.Tensor(array))
        if isinstance(self.owner, ir.Function):
            attribute = ir.AttrTensor("value", ir.Tensor(array))
            self.owner.insert_before(self.owner[0], ir.Node("", "Constant", [], [attribute], outputs=[value]))
        else:
            self.model.graph.register_initializer(value)
        return value


# Operators that older opsets do not have, written in others that they have.


class OlderSteps:
    """The operators that stand for a node, in front of it."""

    def __init__(self, older: OlderModel, node: ir.Node) -> None:
        self.older, self.original = older, node
        value = node.inputs[0]
        self.dtype = None if value is None else value.dtype
        self.x = value

    def constant(self, number: float) -> ir.Value:
        """Return a number of the operand's type."""
        if self.dtype is None:
            raise NewerError(f"an unknown element type, from opset {first_version(self.original.op_type)} on")
        return self.older.constant("constant", np.array(number, self.dtype.numpy()))

    def add(self, op_type: str, *inputs: ir.Value | None, **attributes: Any) -> ir.Value:
        """Return the result of a new operator, of the operand's type and shape unless `like` says otherwise."""
        node = self.original
        name = self.older.names.unique(f"{node.outputs[0].name}/{op_type.lower()}")
        result = ir.Value(name=name, type=node.outputs[0].type)
        new_node = ir.node(op_type, inputs, attributes or None, outputs=[result], name=name)
        assert node.graph is not None
        node.graph.insert_before(node, new_node)
        return result

    def give(self, value: ir.Value) -> None:
        """Let a value stand for the node's first output; the node goes."""
        node = self.original
        if any(each.uses() or each.is_graph_output() for each in node.outputs[1:]):
            raise NewerError(f"its other outputs, from opset {first_version(node.op_type)} on")
        last = value.producer()
        assert last is not None
        assert node.graph is not None
        node.resize_outputs(1)
        become(node, "", last.op_type, last.inputs, last.attributes.values())
        node.graph.remove(last, safe=True)


def _gelu(steps: OlderSteps) -> None:
    half = steps.add("Mul", steps.x, steps.constant(0.5))
    if steps.original.attributes.get_string("approximate", "none") == "tanh":
        cube = steps.add("Mul", steps.add("Mul", steps.x, steps.x), steps.x)
        inner = steps.add("Add", steps.x, steps.add("Mul", cube, steps.constant(0.044715)))
        curve = steps.add("Tanh", steps.add("Mul", inner, steps.constant(float(np.sqrt(2 / np.pi)))))
    else:
        curve = steps.add("Erf", steps.add("Mul", steps.x, steps.constant(float(np.sqrt(0.5)))))
    steps.give(steps.add("Mul", half, steps.add("Add", curve, steps.constant(1.0))))


def _layer_normalization(steps: OlderSteps) -> None:
    node = steps.original
    value = steps.x
    if value is None or value.shape is None:
        raise NewerError("an unknown rank, from opset 17 on")
    rank = len(value.shape)
    axes = [axis - rank for axis in range(node.attributes.get_int("axis", -1) % rank, rank)]

    def mean(each: ir.Value | None) -> ir.Value:
        if steps.older.opset >= 18:
            return steps.add("ReduceMean", each, steps.older.constant("axes", np.array(axes, np.int64)), keepdims=1)
        return steps.add("ReduceMean", each, axes=axes, keepdims=1)

    centred = steps.add("Sub", value, mean(value))
    variance = mean(steps.add("Mul", centred, centred))
    epsilon = steps.constant(node.attributes.get_float("epsilon", 1e-5))
    deviation = steps.add("Sqrt", steps.add("Add", variance, epsilon))
    result = steps.add("Mul", steps.add("Div", centred, deviation), node.inputs[1])
    if len(node.inputs) > 2 and node.inputs[2] is not None:
        result = steps.add("Add", result, node.inputs[2])
    steps.give(result)


DEFINITIONS: Mapping[str, Callable[[OlderSteps], None]] = {  # operators that become older ones
    "Gelu": _gelu,
    "HardSwish": lambda steps: steps.give(
        steps.add("Mul", steps.x, steps.add("HardSigmoid", steps.x, alpha=1 / 6, beta=0.5))
    ),
    "LayerNormalization": _layer_normalization,
    "Mish": lambda steps: steps.give(steps.add("Mul", steps.x, steps.add("Tanh", steps.add("Softplus", steps.x)))),
}


# Operators that older opsets have in another form, such as axes that became operands.


def _array(value: ir.Value | None) -> NDArray[Any] | None:
    tensor = known_tensor(value)
    return None if tensor is None else tensor.numpy()


def _axes_as_attribute(older: OlderModel, node: ir.Node) -> None:
    """A reduction's axes: an operand from 18 on."""
    if older.opset >= 18 or len(node.inputs) < 2:
        return
    axes = _array(node.inputs[1])
    if node.inputs[1] is not None and axes is None:
        raise NewerError("computed axes, from opset 18 on")
    if axes is not None and axes.size:
        node.attributes["axes"] = ir.AttrInt64s("axes", [int(axis) for axis in axes.reshape(-1)])
    elif node.attributes.get_int("noop_with_empty_axes", 0):
        raise NewerError("no axes and noop_with_empty_axes, from opset 18 on")
    node.attributes.pop("noop_with_empty_axes", None)
    node.resize_inputs(1)


def _split(older: OlderModel, node: ir.Node) -> None:
    """A number of outputs that states sizes: from 18 on."""
    if older.opset >= 18 or "num_outputs" not in node.attributes:
        return
    count = node.attributes["num_outputs"].as_int()
    del node.attributes["num_outputs"]
    value = node.inputs[0]
    axis = node.attributes.get_int("axis", 0)
    extent = None if value is None or value.shape is None else value.shape[axis]
    if not isinstance(extent, int):
        raise NewerError("an open extent in parts, from opset 18 on")
    if extent % count:
        size = -(-extent // count)
        sizes = np.array([size] * (count - 1) + [extent - size * (count - 1)], np.int64)
        node.resize_inputs(2)
        node.replace_input_with(1, older.constant("split", sizes))


def _pad(older: OlderModel, node: ir.Node) -> None:
    """A Pad of some axes: from 18 on."""
    if older.opset >= 18 or len(node.inputs) < 4:
        return
    axes, pads, value = _array(node.inputs[3]), _array(node.inputs[1]), node.inputs[0]
    if axes is None or pads is None or value is None or value.shape is None:
        raise NewerError("computed axes, from opset 18 on")
    rank, count = len(value.shape), axes.size
    whole = np.zeros(2 * rank, np.int64)
    for place, axis in enumerate(int(each) % rank for each in axes.reshape(-1)):
        whole[axis], whole[rank + axis] = pads[place], pads[count + place]
    node.replace_input_with(1, older.constant("pads", whole))
    node.resize_inputs(3)


def _resize(older: OlderModel, node: ir.Node) -> None:
    """A Resize of some axes: from 18 on."""
    if older.opset >= 18 or "axes" not in node.attributes:
        return
    value = node.inputs[0]
    if value is None or value.shape is None:
        raise NewerError("axes of an unknown rank, from opset 18 on")
    rank = len(value.shape)
    axes = [axis % rank for axis in node.attributes["axes"].as_ints()]
    del node.attributes["axes"]
    for slot, rest in ((2, [1.0] * rank), (3, list(value.shape))):
        operand = node.inputs[slot] if slot < len(node.inputs) else None
        known = _array(operand)
        if operand is None or (known is not None and not known.size):
            continue
        if known is None or not all(isinstance(dim, int | float) for dim in rest):
            raise NewerError("computed sizes of some axes, from opset 18 on")
        whole = np.array(rest, known.dtype)
        whole[axes] = known.reshape(-1)
        node.replace_input_with(slot, older.constant("sizes" if slot == 3 else "scales", whole))


def _grid_sample(older: OlderModel, node: ir.Node) -> None:
    """The words for modes changed with 20."""
    words = {"linear": "bilinear", "cubic": "bicubic"}
    mode = node.attributes.get_string("mode", "linear")
    if older.opset < 20 and mode in words:
        node.attributes["mode"] = ir.AttrString("mode", words[mode])


def _roi_align(older: OlderModel, node: ir.Node) -> None:
    """Before 16 there is one way to count coordinates."""
    if older.opset >= 16:
        return
    mode = node.attributes.get_string("coordinate_transformation_mode", "half_pixel")
    if mode != "output_half_pixel":
        raise NewerError(f"coordinate_transformation_mode {mode}, from opset 16 on")
    node.attributes.pop("coordinate_transformation_mode", None)


def _pool(older: OlderModel, node: ir.Node) -> None:
    """Since 22, a window that begins in the padding behind an axis is none (`ceil_mode`)."""
    if older.opset >= 22 or not node.attributes.get_int("ceil_mode", 0):
        return
    value, result = node.inputs[0], node.outputs[0]
    window = node.attributes["kernel_shape"].as_ints()
    ones, none = [1] * len(window), [0] * (2 * len(window))
    steps, gaps = (node.attributes.get_ints(name, ones) for name in ("strides", "dilations"))
    pads = node.attributes.get_ints("pads", none)
    if value is None or value.shape is None or result.shape is None:
        raise NewerError("ceil_mode 1 of an unknown shape, from opset 22 on")
    extents, counts = tuple(value.shape)[2:], tuple(result.shape)[2:]
    for axis, (extent, count) in enumerate(zip(extents, counts, strict=True)):
        reach = (window[axis] - 1) * gaps[axis] + 1
        room = extent + pads[axis] + pads[axis + len(window)] - reach if isinstance(extent, int) else None
        if room is None or count != -(-room // steps[axis]) + 1:
            raise NewerError("ceil_mode 1 with a window in the padding, from opset 22 on")


def _mod(older: OlderModel, node: ir.Node) -> None:
    """Real numbers have one remainder only before 26."""
    dtype = node.inputs[0].dtype if node.inputs[0] is not None else None
    if dtype is not None and dtype.is_floating_point() and not node.attributes.get_int("fmod", 0):
        raise NewerError("fmod 0 of real numbers")


def _always_newer(older: OlderModel, node: ir.Node) -> None:
    raise NewerError("it means something else in older opsets")


_REDUCTIONS = "L1 L2 LogSum LogSumExp Max Mean Min Prod SumSquare"
ROWS: Mapping[str, Callable[[OlderModel, ir.Node], None]] = {
    **dict.fromkeys((f"Reduce{each}" for each in _REDUCTIONS.split()), _axes_as_attribute),
    **dict.fromkeys(("AveragePool", "LpPool", "MaxPool"), _pool),
    "DFT": _always_newer,
    "GridSample": _grid_sample,
    "GroupNormalization": _always_newer,
    "Mod": _mod,
    "Pad": _pad,
    RESIZE: _resize,
    "RoiAlign": _roi_align,
    "Split": _split,
}
"""Operators whose definition changed in more than what a schema tells."""


IR_VERSIONS = {13: 7, 14: 7, 15: 8, 16: 8, 17: 8, 18: 8, 19: 9, 20: 9, 21: 10, 22: 10, 23: 11}
"""Opset -> the IR version that came with it."""
WITH_FUNCTIONS = 8  # the first IR version that has model-local functions
MOST_NAMED = 5


def to_older_opset(
    model: ir.Model,  # the model; of another opset than this or an older one
    opset: int,  # the version of ONNX's own domain, 13 or newer
) -> None:
    """Write a model's operators as an older opset has them, in place.

    Raises:
        LayoutError: operators that need a newer one: all of them, each with the reason and how many.
    """
    older, current, refused = OlderModel(model, opset), model.opset_imports.get("", opset), Counter[str]()
    owners: tuple[ir.Graph | ir.Function, ...] = (model.graph, *model.functions.values())
    for owner in owners:
        older.owner = owner
        for node in list(all_nodes(owner)):
            try:
                _rewrite(older, current, node)
            except NewerError as newer:
                refused[f"{node.op_type} ({newer})"] += 1
    if refused:
        listed = [f"{what} ×{count}" for what, count in refused.items()]
        more = f"; and {len(listed) - MOST_NAMED} more" if len(listed) > MOST_NAMED else ""
        raise LayoutError(f"--opset {opset}: a newer one is needed for {'; '.join(listed[:MOST_NAMED])}{more}")
    for imports in (model.opset_imports, *(function.opset_imports for function in model.functions.values())):
        imports[""] = opset
    model.ir_version = max(IR_VERSIONS[opset], WITH_FUNCTIONS if model.functions else 0)


def _rewrite(older: OlderModel, current: int, node: ir.Node) -> None:
    """Write a node of one opset as an older one has it."""
    if node.domain not in ("", "ai.onnx"):
        return
    now, then = schema_of(node, current), schema_of(node, older.opset)
    if now is None or (then is not None and then.since_version == now.since_version and node.op_type not in ROWS):
        return
    if then is None:
        if node.op_type not in DEFINITIONS:
            raise NewerError(f"from opset {first_version(node.op_type)} on")
        DEFINITIONS[node.op_type](OlderSteps(older, node))
        return
    if (row := ROWS.get(node.op_type)) is not None:
        row(older, node)
    for name, attribute in list(node.attributes.items()):
        if name in then.attributes:
            continue
        if not is_default(now, name, attribute):
            since = first_version_with(node.op_type, name)
            raise NewerError(f"{name} {str(attribute.value)[:40]}, from opset {since} on")
        del node.attributes[name]
    if len(node.inputs) < then.min_input or any(value is None for value in node.inputs[: then.min_input]):
        raise NewerError("an absent operand")
    if len(node.inputs) > then.max_input:
        raise NewerError(f"{len(node.inputs)} operands, where opset {older.opset} has {then.max_input}")
    _hold_types(node, then)


def _hold_types(node: ir.Node, schema: Any) -> None:
    """Refuse element types that the older schema does not have."""
    allowed = {each.type_param_str: set(each.allowed_type_strs) for each in schema.type_constraints}
    for values, formals in ((node.inputs, schema.inputs), (node.outputs, schema.outputs)):
        for slot, value in enumerate(values):
            formal = formals[min(slot, len(formals) - 1)]
            name = None if value is None or value.type is None else _type_name(value.type)
            if name is not None and name not in allowed.get(formal.type_str, {formal.type_str}):
                raise NewerError(f"{name} as {formal.name}")


def _type_name(kind: ir.TypeProtocol) -> str:
    """Return a type as schemas write it: `seq(tensor(float))`."""
    if isinstance(kind, ir.SequenceType):
        return f"seq({_type_name(kind.elem_type)})"
    if isinstance(kind, ir.OptionalType):
        return f"optional({_type_name(kind.elem_type)})"
    return f"tensor({kind.dtype.name.lower()})"
