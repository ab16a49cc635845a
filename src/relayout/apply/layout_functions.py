"""Operators in layouts that the standard does not have, as model-local functions of standard operators.

`relayout.nhwc:Conv(x[n *s c], w[o i *k], b[o]) -> y[n *s o]` is Transpose, Conv, Transpose. A runtime that implements
ONNX functions runs it; one that has the kernel matches its name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import count

import numpy as np
import onnx
import onnx_ir as ir

from relayout import isolation
from relayout.errors import ReadError
from relayout.graph.subgraphs import all_nodes
from relayout.layout import Extent
from relayout.layout.perm import between
from relayout.rules import FUNCTIONS, Letters, Placement, Variant
from relayout.rules.signature import part_of

Dims = tuple[tuple[str, Extent], ...]  # the letter and extent of each dimension of an operand
OVERLOADS = 10  # version of the IR from which functions of one name are told apart by an overload
EXACT = "relayout.exact"
"""In the `meta` of a function: a call of it gives as many outputs as it has, and could give no more."""


def add_function(
    model: ir.Model,
    node: ir.Node,  # a node that is written as `variant`
    variant: Variant,  # one whose `written.body` is the standard's
) -> None:
    """See to it that the function that a node calls is in the model."""
    model.opset_imports.setdefault(node.domain, 1)
    output_count, exact = len(node.outputs), _is_exact(model, node, variant)
    for number in count():
        node.overload = f"overload_{number}" if number else ""
        known = model.functions.get(node.op_identifier())
        if known is None or len(known.outputs) == output_count:
            break
        if not exact and (len(known.outputs) > output_count or not known.meta.get(EXACT, True)):
            break
    if node.overload:
        model.ir_version = max(model.ir_version, OVERLOADS)
    if known is None or len(known.inputs) < len(node.inputs) or len(known.outputs) < output_count:
        model.functions[node.op_identifier()] = function = _function(model, node, variant)
        function.meta[EXACT] = exact
    elif exact:
        known.meta[EXACT] = True


def _is_exact(model: ir.Model, node: ir.Node, variant: Variant) -> bool:
    """Tell whether the standard has a node like this with no more outputs than it gives: a BatchNormalization, which
    gives one, or three in training. A function for such a node is for no other.
    """
    try:
        schema, operator = _schema(model, variant)
    except onnx.defs.SchemaError as error:
        raise ReadError(str(error).rstrip("!"), hint="raise the model's opset (onnx.version_converter)") from None
    if len(node.outputs) == schema.max_output:
        return False
    names = [f"x{slot}" if value is not None else "" for slot, value in enumerate(node.inputs)]
    types = {
        name: onnx.helper.make_tensor_type_proto(value.dtype.value, None)
        for name, value in zip(names, node.inputs, strict=True)
        if value is not None and value.dtype is not None
    }
    proto = onnx.helper.make_node(operator, names, [f"y{slot}" for slot in range(schema.max_output)])
    proto.attribute.extend(ir.to_proto(attribute) for attribute in node.attributes.values())
    try:
        isolation.infer_node_outputs(schema, proto, types, {}, model.opset_imports.get("", 1))
    except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError, RuntimeError):
        return True
    return False


def _schema(model: ir.Model, variant: Variant) -> tuple[onnx.defs.OpSchema, str]:
    """Return the standard's schema of the operator in a function, and its name."""
    assert variant.written is not None
    assert variant.written.body is not None
    operator = variant.written.body.written
    assert operator is not None
    version = model.opset_imports.get(operator.domain, 1)
    return onnx.defs.get_schema(operator.op_type, version, operator.domain), operator.op_type


def drop_unused_functions(model: ir.Model) -> None:
    """Remove functions of layouts that no node calls any longer, and the imports of their domains."""
    if not any(domain.startswith(FUNCTIONS) for domain in model.opset_imports):
        return
    called = {node.op_identifier() for node in all_nodes(model.graph)}
    called.update(node.op_identifier() for function in model.functions.values() for node in all_nodes(function))
    for key in [key for key in model.functions if key[0].startswith(FUNCTIONS) and key not in called]:
        del model.functions[key]
    domains = {domain for domain, _, _ in model.functions} | {domain for domain, _, _ in called}
    for domain in [domain for domain in model.opset_imports if domain.startswith(FUNCTIONS) and domain not in domains]:
        del model.opset_imports[domain]


def transposes_in_bodies(model: ir.Model) -> dict[str, int]:
    """Return which functions of layouts are called, as `domain:name`, and how many Transposes their calls bring."""
    counts: Counter[str] = Counter()
    for node in all_nodes(model.graph) if model.functions else ():
        function = model.functions.get(node.op_identifier()) if node.domain.startswith(FUNCTIONS) else None
        if function is not None:
            inside = Counter(each.op_type for each in all_nodes(function))["Transpose"]
            counts[f"{node.domain}:{node.op_type}"] += inside
    return {name: count for name, count in sorted(counts.items()) if count}


def inline_functions(model: ir.Model) -> bool:
    """Replace calls of functions of layouts by their bodies, in place, for a runtime that has no functions.

    Returns:
        Whether there were any.
    """
    if not any(function.domain.startswith(FUNCTIONS) for function in model.functions.values()):
        return False
    from onnx_ir.passes.common import InlinePass  # with it comes OpenSSL, 4 MB, that other passes are made with

    notes: dict[str | None, dict[str, str]] = {}
    for node in all_nodes(model.graph):
        function = model.functions.get(node.op_identifier())
        if function is not None and node.domain.startswith(FUNCTIONS):
            node.resize_outputs(max(len(node.outputs), len(function.outputs)))
            notes |= {value.name: dict(value.metadata_props) for value in node.outputs}
    InlinePass(lambda function: function.domain.startswith(FUNCTIONS))(model)
    for node in all_nodes(model.graph):
        for value in node.outputs:  # the pass leaves behind what a call's result says that it holds
            if value.name in notes:
                value.metadata_props.update(notes[value.name])
        # An input that a call leaves out is an empty one of the body: no fusion takes a bias for one that is left out.
        while node.inputs and node.inputs[-1] is None:
            node.resize_inputs(len(node.inputs) - 1)
    drop_unused_functions(model)
    return True


class _Body:
    """The nodes of a function, one after another."""

    def __init__(self) -> None:
        self.nodes: list[ir.Node] = []

    def add(self, op_type: str, inputs: Sequence[ir.Value | None], name: str, **attributes: Sequence[int]) -> ir.Value:
        output = ir.Value(name=name)
        attribute_list = [ir.convenience.convert_attribute(key, tuple(value)) for key, value in attributes.items()]
        self.nodes.append(ir.Node("", op_type, inputs, attribute_list, outputs=[output], name=f"{name}/{op_type}"))
        return output

    def constant(self, name: str, items: Sequence[int]) -> ir.Value:
        output = ir.Value(name=name)
        tensor = ir.AttrTensor("value", ir.Tensor(np.array(items, np.int64), name=name))
        self.nodes.append(ir.Node("", "Constant", [], [tensor], outputs=[output], name=f"{name}/Constant"))
        return output

    def transposed(self, value: ir.Value, source: Sequence[str], target: Sequence[str], name: str) -> ir.Value:
        if tuple(source) == tuple(target):
            return value
        return self.add("Transpose", [value], name, perm=between(tuple(source), tuple(target)))

    def to_standard(self, value: ir.Value, stored: Letters, standard: Letters) -> ir.Value:
        """Tiles joined to their axes, one by one, each at the end; then the standard's order."""
        stem, axes = value.name, list(stored)
        for letter in dict.fromkeys(part.letter for part in map(part_of, stored) if part.tile):
            parts = [token for token in axes if part_of(token).letter == letter]
            rest = [token for token in axes if token not in parts]
            parts.sort(key=lambda token: part_of(token).inner)
            value = self.transposed(value, axes, [*rest, *parts], f"{stem}_{letter}_parts")
            shape = self.constant(f"{stem}_{letter}_joined_shape", [*[0] * len(rest), -1])
            value = self.add("Reshape", [value, shape], f"{stem}_{letter}_joined")
            axes = [*rest, letter]
        return self.transposed(value, axes, standard, f"{stem}_standard")

    def from_standard(self, value: ir.Value, standard: Letters, stored: Letters, name: str) -> ir.Value:
        """The standard's order, with axes in tiles split, one by one, each at the end; then the stored order."""
        axes = list(standard)
        for letter, tile in dict.fromkeys((p.letter, p.tile) for p in map(part_of, stored) if p.tile):
            rest = [token for token in axes if token != letter]
            value = self.transposed(value, axes, [*rest, letter], f"{name}_{letter}_last")
            shape = self.constant(f"{name}_{letter}_split_shape", [*[0] * len(rest), -1, tile])
            value = self.add("Reshape", [value, shape], f"{name}_{letter}_split")
            axes = [*rest, f"{letter}/{tile}", f"{letter}%{tile}"]
        return self.transposed(value, axes, stored, name)


def _function(model: ir.Model, node: ir.Node, variant: Variant) -> ir.Function:
    """Return the function that a node calls: the standard operator in the layouts of `variant`."""
    assert variant.written is not None
    standard = variant.written.body
    assert standard is not None
    assert standard.written is not None
    operator = standard.written
    schema, _ = _schema(model, variant)
    body = _Body()
    inputs = [ir.Value(name=_formal(schema.inputs, slot)) for slot in range(len(node.inputs))]
    read: list[ir.Value | None] = []
    for slot, value in enumerate(inputs):
        stored, plain = variant.inputs[slot], standard.inputs[slot]
        read.append(value if stored is None or plain is None else body.to_standard(value, stored, plain))
    results = [ir.Value(name=f"{_formal(schema.outputs, slot)}_standard") for slot in range(len(node.outputs))]
    types = {
        name: ir.AttributeType[str(attribute.type).rpartition(".")[2]] for name, attribute in schema.attributes.items()
    }
    attributes = [ir.RefAttr(name, name, types[name]) for name in sorted(types)]
    body.nodes.append(
        ir.Node(operator.domain, operator.op_type, read, attributes, outputs=results, name=operator.op_type)
    )
    outputs = []
    for slot, value in enumerate(results):
        stored, plain = variant.outputs[slot], standard.outputs[slot]
        name = _formal(schema.outputs, slot)
        outputs.append(value if stored is None or plain is None else body.from_standard(value, plain, stored, name))
    imports = {domain: model.opset_imports.get(domain, 1) for domain in dict.fromkeys(("", operator.domain))}
    graph = ir.Graph(inputs, outputs, nodes=body.nodes, opset_imports=imports, name=operator.op_type)
    formal = [ir.Attr(name, ir.AttributeType.UNDEFINED, None) for name in sorted(types)]
    return ir.Function(node.domain, node.op_type, node.overload, graph=graph, attributes=formal)


def _formal(parameters: Sequence[onnx.defs.OpSchema.FormalParameter], slot: int) -> str:
    return parameters[min(slot, len(parameters) - 1)].name + (f"_{slot}" if slot >= len(parameters) else "")


def in_body(standard: Variant, stored: Placement) -> Placement:
    """Return where the axes lie for the operator in a function's body, which is in the standard's order."""

    def operands(letters_by_slot: Sequence[Letters | None], dims: Sequence[Dims | None]) -> tuple[Dims | None, ...]:
        dims_of_operands: list[Dims | None] = []
        for letters, parts in zip(letters_by_slot, dims, strict=True):
            extents = dict.fromkeys(letters or (), Extent(1))
            for letter, extent in parts or ():
                extents[letter] = extents[letter] * extent  # an axis in tiles lies in two dimensions
            dims_of_operands.append(None if letters is None else tuple(extents.items()))
        return tuple(dims_of_operands)

    return Placement(operands(standard.inputs, stored.inputs), operands(standard.outputs, stored.outputs))
