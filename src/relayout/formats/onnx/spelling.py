"""Calls of model-local functions, replaced by the bodies of their functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import onnx
import onnx_ir as ir

from relayout.errors import ReadError
from relayout.formats.onnx.calls import (
    Call,
    Calls,
    Key,
    body_nodes,
    holds_graph,
    is_identity,
    names_of,
    source_of,
)
from relayout.formats.onnx.inferring import ALIASES
from relayout.formats.onnx.wire import bodies_of
from relayout.graph.facts import add_facts
from relayout.graph.source_names import Names
from relayout.graph.subgraphs import all_nodes, bodies, take_over

# Constant nodes as initializers: a constant is stored as its readers want it.

SMALL = 1 << 12  # bytes of a tensor up to which it is copied, as the tensor of an initializer


def lift_constants(model: ir.Model) -> None:
    """Make the outputs of Constant nodes initializers, in place.

    Raises:
        ReadError: a Constant holds nothing that a constant can be.
    """
    if any(node.op_type == "Constant" for node in all_nodes(model.graph)):
        from onnx_ir.passes.common import LiftConstantsToInitializersPass

        try:
            LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
        except Exception as error:  # errors of many types, for attributes of the wrong name, type or number
            raise ReadError(f"a Constant holds no constant: {' '.join(str(error).split())}") from None


def lift_tensors(graph: onnx.GraphProto) -> None:
    """Make the small tensors of Constant nodes initializers, in place, and in bodies likewise.

    `lift_constants` does it, too, but to read a node takes longer than to read a tensor, and exporters write thousands.
    """
    outputs = {value.name for value in graph.output}
    lifted = [node for node in graph.node if _holds_small_tensor(node) and node.output[0] not in outputs]
    for node in lifted:
        tensor = graph.initializer.add()
        tensor.CopyFrom(node.attribute[0].t)
        tensor.name = node.output[0]
    if lifted:  # they go behind the others, and then away: nothing is copied
        names = {node.output[0] for node in lifted}
        graph.node.sort(key=lambda node: bool(node.output) and node.output[0] in names)
        del graph.node[-len(lifted) :]
    for body in bodies_of(graph.node):
        lift_tensors(body)


def _holds_small_tensor(node: onnx.NodeProto) -> bool:
    """Tell whether a node is a Constant of a small tensor, and nothing else."""
    if node.op_type != "Constant" or node.domain not in ALIASES or len(node.output) != 1:
        return False
    if [(each.name, each.type) for each in node.attribute] != [("value", onnx.AttributeProto.TENSOR)]:
        return False
    return bool(node.attribute[0].t.ByteSize() <= SMALL)


MOST_NODES, GROWTH = 20_000, 10
"""Nodes that all bodies together may add, or so many times the nodes of the file, functions included: a function that
calls another twice, which calls a third twice, and so on, is a short file of any size. What is beyond stays a call."""


def spell_out(
    model: ir.Model,
    known: Callable[[ir.Node], bool],  # whether a call needs no body to be understood
) -> None:
    """Replace the calls of a model's functions by their bodies, in place.

    A call stays where its operator is known as it is, where its function wants another version of an operator than the
    model, where it calls itself, and where the bodies together would have more than `MOST_NODES` nodes, or `GROWTH`
    times those of the file.
    """
    if model.functions:
        _SpellingOut(model, known).run()


class _SpellingOut:
    def __init__(self, model: ir.Model, known: Callable[[ir.Node], bool]) -> None:
        self.model, self.known = model, known
        self.calls = Calls()
        self.sizes: dict[Key, int] = {}
        self.open: set[Key] = set()
        own = len(list(all_nodes(model.graph))) + sum(len(list(all_nodes(f))) for f in model.functions.values())
        self.budget = max(MOST_NODES, GROWTH * own)
        self.names = Names.of(model, nodes=True)

    def run(self) -> None:
        waiting = list(all_nodes(self.model.graph))[::-1]
        while waiting:
            node = waiting.pop()
            if self._fits(node):
                waiting += self._spell(node)[::-1]
        if self.calls.calls:
            add_facts(self.model, calls=self.calls)

    def _fits(self, node: ir.Node) -> bool:
        function = self.model.functions.get(node.op_identifier())
        if function is None or self.known(node) or len(node.inputs) > len(function.inputs):
            return False
        if any(holds_graph(attribute) for attribute in node.attributes.values()):
            return False
        return self._size(node.op_identifier()) <= self.budget and self._agrees(function) and _is_closed(function)

    def _size(self, key: Key) -> int:
        """Return how many nodes a body has with all its calls spelled out; more than any limit if it calls itself."""
        if key in self.open:
            return self.budget + 1
        if key not in self.sizes:
            self.open.add(key)
            inner = (node.op_identifier() for node in all_nodes(self.model.functions[key]))
            self.sizes[key] = sum(self._size(each) if each in self.model.functions else 1 for each in inner)
            self.open.discard(key)
        return self.sizes[key]

    def _agrees(self, function: ir.Function) -> bool:
        """Tell whether the operators of a body mean the same under the model's versions as under the function's own."""
        for node in all_nodes(function):
            theirs = function.opset_imports.get(node.domain, function.opset_imports.get("", 1))
            ours = self.model.opset_imports.get(node.domain, theirs)
            if node.op_identifier() not in self.model.functions and not _means_the_same(node, ours, theirs):
                return False
        return True

    def _spell(self, node: ir.Node) -> list[ir.Node]:
        """Replace one call; the nodes in its place."""
        function, graph = self.model.functions[node.op_identifier()], node.graph
        assert graph is not None
        body = function.graph.clone()
        _resolve(body, node, function)
        for domain in dict.fromkeys(node.domain for node in all_nodes(function)):
            if domain not in self.model.opset_imports:
                self.model.opset_imports[domain] = function.opset_imports.get(domain, 1)
                self.calls.imports.append(domain)
        self._rename(body, node)
        outputs = list(body.outputs)
        body.outputs.clear()
        lifted = self._lift(body, graph)
        outputs = [lifted.get(value, value) for value in outputs]
        formals = {value: slot for slot, value in enumerate(body.inputs)}
        call = Call(node, tuple(node.inputs), tuple(body_nodes(body, formals)))
        call.sources.update(_sources(outputs, formals))
        nodes = list(body)
        call.identities.update(dict.fromkeys(node for node in nodes if is_identity(node)))
        self.budget -= len(nodes)
        body.remove(nodes)
        graph.insert_before(node, nodes)
        for slot, value in enumerate(body.inputs):
            actual = node.inputs[slot] if slot < len(node.inputs) else None
            for use in list(value.uses()):
                use.node.replace_input_with(use.idx, actual)
        for slot, (output, value) in enumerate(zip(node.outputs, outputs, strict=False)):
            actual = call.inputs[formals[value]] if value in formals else value
            if output.name and actual is not None:
                call.results[slot] = self._result(call, actual)
                take_over(call.results[slot], output)
        for slot in range(len(node.inputs)):
            node.replace_input_with(slot, None)
        graph.remove(node)
        self.calls.calls.append(call)
        return nodes

    def _result(self, call: Call, value: ir.Value) -> ir.Value:
        """Return a value of the body that can take the place of an output: one that its nodes make, and each once."""
        inside = value.producer() is not None and value not in call.inputs
        if inside and not value.is_graph_output() and not any(value is other for other in call.results.values()):
            return value
        copied = ir.Node(
            "", "Identity", [value], name=self.names.unique(f"{call.node.name or call.node.op_type}/Identity")
        )
        assert call.node.graph is not None
        call.node.graph.insert_before(call.node, copied)
        call.identities[copied] = None
        return copied.outputs[0]

    def _lift(self, body: ir.Graph, graph: ir.Graph) -> dict[ir.Value, ir.Value]:
        """Make the Constants of a body initializers of the graph that it is put into, or of its own subgraphs."""
        lifted: dict[ir.Value, ir.Value] = {}
        for node in list(all_nodes(body)):
            if node.op_type != "Constant" or node.domain or node.outputs[0].is_graph_output():
                continue
            (value,), place = node.outputs, node.graph
            try:
                tensor = ir.convenience.get_const_tensor(value)
            except (TypeError, ValueError):
                continue  # it holds nothing that a constant can be: `lift_constants` says so
            if tensor is None or place is None:
                continue
            initializer = ir.val(value.name, const_value=tensor)
            value.replace_all_uses_with(initializer)
            place.remove(node)
            (graph if place is body else place).register_initializer(initializer)
            self.calls.constants.append(initializer)
            lifted[value] = initializer
        return lifted

    def _rename(self, body: ir.Graph, call: ir.Node) -> None:
        """Give everything in a body a name of its own, which says in which call it is."""
        stem = call.name or next(iter(names_of(call)), call.op_type)
        for node in all_nodes(body):
            node.name = self.names.unique(f"{stem}/{node.name or node.op_type}")
            for value in node.outputs:
                if value.name:
                    value.name = self.names.unique(f"{stem}/{value.name}")
        for graph in body.subgraphs():
            for value in (*graph.inputs, *list(graph.initializers.values())):
                value.name = self.names.unique(f"{stem}/{value.name}")


def _is_closed(function: ir.Function) -> bool:
    """Tell whether each subgraph of a body gives values of its own."""
    inner = [graph for node in all_nodes(function) for graph in bodies(node)]
    return all(
        value.is_initializer() or value.is_graph_input() or getattr(value.producer(), "graph", None) is graph
        for graph in inner
        for value in graph.outputs
    )


def _resolve(body: ir.Graph, call: ir.Node, function: ir.Function) -> None:
    """Give the nodes of a body the attributes of a call, or their defaults; an attribute that neither has is none."""
    actual_attributes = {
        name: attribute for name, attribute in function.attributes.items() if attribute.value is not None
    }
    actual_attributes.update(call.attributes.items())
    for node in all_nodes(body):
        for name, attribute in list(node.attributes.items()):
            if attribute.is_ref():
                actual = actual_attributes.get(attribute.ref_attr_name or "")
                node.attributes.pop(name)
                if actual is not None:
                    node.attributes.add(ir.Attr(name, actual.type, actual.value))


def _sources(outputs: Sequence[ir.Value], formals: Mapping[ir.Value, int]) -> dict[int, ir.Value]:
    """Output -> the value that a node of the body makes for it; each once."""
    sources: dict[int, ir.Value] = {}
    for slot, value in enumerate(outputs):
        source = source_of(value)
        if source is not None and source.producer() is not None and source not in sources.values():
            sources[slot] = source
    return {slot: source for slot, source in sources.items() if source not in formals}


FIRST_GROWN = 13
"""The version of ONNX since which operators change by more types and attributes, and keep their meaning."""


def _means_the_same(node: ir.Node, ours: int, theirs: int) -> bool:
    """Return whether an operator of a body means in the model's version what it means in the body's.

    It does if the model's version is later, and adds only types and attributes with defaults.
    """
    if ours == theirs:
        return True
    domain = "" if node.domain == "ai.onnx" else node.domain
    if not all(onnx.defs.has(node.op_type, version, domain) for version in (ours, theirs)):
        return False
    mine, old = (onnx.defs.get_schema(node.op_type, version, domain) for version in (ours, theirs))
    if mine.since_version == old.since_version:
        return True
    if mine.deprecated or domain or old.since_version < FIRST_GROWN or ours < theirs:
        return False
    defaults, own = (
        {name: each.default_value.SerializeToString() for name, each in schema.attributes.items()}
        for schema in (old, mine)
    )
    added = [mine.attributes[name] for name in own.keys() - defaults.keys()]
    has_same_inputs = [each.name for each in mine.inputs[: len(old.inputs)]] == [each.name for each in old.inputs]
    return has_same_inputs and defaults.items() <= own.items() and all(each.default_value.type for each in added)
