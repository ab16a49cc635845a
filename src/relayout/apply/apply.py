"""Plan -> graph: attributes and constants in the chosen order, Transposes where the plan says so, nothing else."""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import onnx_ir as ir

from relayout.apply.blocks import BlockSizes, state_joined
from relayout.apply.dim_grouping import forms
from relayout.apply.layout_functions import add_function, drop_unused_functions, in_body
from relayout.apply.node_changes import NodeChanges, arrange, operands_of_step, place_inside
from relayout.apply.quantization_annotations import Annotations
from relayout.apply.transposing import Turns, relaid
from relayout.apply.value_store import Storage
from relayout.graph.facts import add_facts, facts_of
from relayout.graph.source_names import Names
from relayout.graph.subgraphs import nested
from relayout.infer.candidates import placement
from relayout.infer.graph_sites import Sites
from relayout.infer.plans import Plan
from relayout.infer.sites import Form, Port, Root, Site
from relayout.infer.stored_orders import placed
from relayout.layout import Extent
from relayout.layout.stored_as import STATED
from relayout.rules import Changes, Placement, Variant, Written
from relayout.rules.signature import Constants, Step, unchanged

SingleConsumers = Callable[[Sites, Mapping[Root, ir.Node], Mapping[Port, Form]], tuple[set[Port], set[Root]]]
"""Of the source, the integers between quantized units, and where each operand is stored: the operands that get integers
of their own, and the integers behind which a Reshape stays."""
UNCHANGED = Changes()


def apply(
    model: ir.Model,
    plan: Plan,  # what was decided for it
    # the operators of a target that bring images into blocks of channels and back, where it has some
    blocks: BlockSizes | None = None,
    # which int8 tensors must keep one consumer; None: the target does not mind
    single_consumers: SingleConsumers | None = None,
) -> ir.Model:
    """Return the model with every value stored as the plan says.

    The model that the plan was made for is rewritten in place and returned: its nodes keep their identity, and a node
    whose operands all stay as they were is not touched but for the names of its inputs.
    """
    return _Rewrite(model, plan, blocks, single_consumers).run()


class Ended(NamedTuple):
    """An output of a graph, as the source has it."""

    value: ir.Value
    name: str | None
    shape: ir.Shape | None
    doc_string: str | None
    metadata: dict[str, str]


class _Rewrite:
    def __init__(
        self, model: ir.Model, plan: Plan, blocks: BlockSizes | None, single_consumers: SingleConsumers | None
    ) -> None:
        self.model, self.plan, self.graph = model, plan, model.graph
        names = {site.node.name for site in plan.sites.sites if site.node is not None}
        names |= {value.name for value in (*self.graph.inputs, *filter(None, self.graph.outputs))}
        annotations = Annotations(plan.sites.originals if facts_of(model).is_annotated else {})
        self.storage = Storage(plan.sites, Names(set(filter(None, names))), annotations, blocks, Turns(plan.crossings))
        self.changes = NodeChanges(self.storage)
        self.forms, self.labels = forms(plan)
        self.own: set[Port] = set()
        self.separate_roots: set[Root] = set()
        if single_consumers is not None:
            self.own, self.separate_roots = single_consumers(plan.sites, self.storage.units, self.forms)
        self.borders: dict[Port, Site] = {}
        self.results: dict[ir.Graph, list[tuple[int, ir.Value]]] = {}
        self.output_graphs: dict[ir.Value, set[ir.Graph]] = {}
        self.listed: dict[tuple[ir.Graph, ir.Value, Form], ir.Value] = {}
        self.entries: dict[ir.Graph, list[Port]] = {}
        self.let_go: set[ir.Value | None] = set()
        for site in plan.sites.sites:
            if site.kind == "output":
                (end,) = site.ports
                self.storage.ends[self.graph.outputs[end.slot]] = self.forms[end]
            elif site.kind == "border":
                self.borders.update(dict.fromkeys(site.ports, site))
            for port in site.carried:
                if port.body >= 0 and port.output:
                    self.entries.setdefault(site.bodies[port.body], []).append(port)

    def run(self) -> ir.Model:
        self._claim_names()
        self._take_apart()
        for site in self.plan.sites.sites:
            getattr(self, f"_{site.kind}")(site)
        self._put_together()
        drop_unused_functions(self.model)
        return self.model

    def _claim_names(self) -> None:
        """Values that stay where they are keep their names before any new value can take them."""
        names = self.storage.names.taken
        for site in self.plan.sites.sites:
            for port in site.ports:
                value = port.view.root.value
                if port.output and value.name and self.forms[port] == port.view.root.logical:
                    names.add(value.name)
            if site.reason and site.node is not None:
                names.update(value.name for node in nested(site.node) for value in node.outputs if value.name)
        names.update(root.value.name for root in self.plan.sites.roots if root.constant and root.value.name)

    def _take_apart(self) -> None:
        graphs = [self.graph, *(graph for site in self.plan.sites.sites for graph in site.bodies)]
        self.graphs = list(dict.fromkeys(graphs))
        reading = [site for site in self.plan.sites.sites if any(port.slot < 0 for port in site.ports)]
        self.captures = {  # node -> each use of a value inside its subgraphs: (node, slot, value)
            site.node: [
                (user, slot, value)
                for user in (nested(site.node) if site.node is not None else ())
                for slot, value in enumerate(user.inputs)
                if value is not None
            ]
            for site in reading
        }
        # As they are before the rewrite: a value that ends in another order is renamed.
        self.outputs = {
            graph: [
                Ended(v, v.name, v.meta.get(STATED) or v.shape, v.doc_string, dict(v.metadata_props))
                for v in graph.outputs
            ]
            for graph in self.graphs
        }
        for graph in self.graphs:
            self.storage.nodes[graph] = []
            self.storage.initializers[graph] = {}
            self.results[graph] = []
            graph.outputs.clear()

    def _put_together(self) -> None:
        results = {value for _, value in self.results[self.graph]}
        self._let_go()
        if self.plan.sites.inners:
            place_inside(self.plan.sites, self.storage.nodes, self.storage.conversions, self.output_graphs)
        relaid = any(root.constant and root.value.producer() is not None for root, _ in self.storage.stored)
        self.known: set[ir.Node | None] = set()  # all that they give is known when the model is converted
        for site in self.plan.sites.sites if relaid else ():
            constant = [port.view.root.constant for port in site.ports if port.output]
            if constant and all(constant):
                self.known.add(site.node)
        reserved = {value.name for value in results}
        for graph in self.graphs:
            nodes = self.storage.nodes[graph]
            for value in (value for node in nodes for value in node.outputs):
                if value.name in reserved and value not in results:
                    value.name = self.storage.names.unique(f"{value.name}__stored")
            arrange(graph, self._alive(nodes))
            for _, value in sorted(self.results[graph], key=lambda item: item[0]):
                graph.outputs.append(value)
        for graph in self.graphs:
            self._keep_initializers(graph)
        add_facts(self.model, lost_annotations=self.storage.annotations.settle(self.graphs))
        # Before version 4 of the IR every initializer had to be an input, too: new ones would change the interface.
        self.model.ir_version = max(self.model.ir_version, 4)

    def _let_go(self) -> None:
        """Nodes of the source that are not in the result read nothing any longer."""
        result_nodes = {node for nodes in self.storage.nodes.values() for node in nodes}
        for node in self.plan.sites.seen_through:
            if node not in result_nodes:
                self._reads_nothing(node)
        for node in self.plan.sites.unneeded:
            for inner in (node, *nested(node)):
                self._reads_nothing(inner)

    def _reads_nothing(self, node: ir.Node) -> None:
        self.let_go.update(node.inputs)
        for slot in range(len(node.inputs)):
            node.replace_input_with(slot, None)

    def _alive(self, nodes: list[ir.Node]) -> list[ir.Node]:
        """The nodes without those that computed what has become a constant in another order, or the shape of a Reshape
        that is gone.
        """
        alive = []
        for node in reversed(nodes):
            unread = node in self.known or not self.let_go.isdisjoint(node.outputs)
            if unread and not any(value.uses() or value in self.output_graphs for value in node.outputs):
                self._reads_nothing(node)
            else:
                alive.append(node)
        return alive[::-1]

    def _keep_initializers(self, graph: ir.Graph) -> None:
        needed = self.storage.initializers[graph]
        inputs = set(graph.inputs)
        named = {value for value in graph.initializers.values() if value.name in self.storage.annotations.named}
        for name, value in list(graph.initializers.items()):
            if value not in inputs and value not in named and (name not in needed or not _is_used(value)):
                del graph.initializers[name]
        for name, value in needed.items():
            if name not in graph.initializers and _is_used(value):
                graph.register_initializer(value)

    # One method a kind of site

    def _input(self, site: Site) -> None:
        (port,) = site.ports
        self._give(port)

    def _output(self, site: Site) -> None:
        (port,) = site.ports
        original = self.outputs[self.graph][port.slot]
        value = self._result(self.graph, port, original)
        value.name = original.name
        value.doc_string = value.doc_string or original.doc_string
        value.metadata_props.update({k: v for k, v in original.metadata.items() if k not in value.metadata_props})
        self.storage.describe(value, port.view.root, self.forms[port])
        if self.forms[port] == port.view.form:
            value.shape = original.shape

    def _pin(self, site: Site) -> None:
        """The value after a pin is the value before it, in the pin's order."""
        before, after = site.ports
        value = self.storage.get(before.view.root, self.forms[before])
        self.storage.describe(value, after.view.root, self.forms[after])
        self.storage.put(after.view.root, self.forms[after], value)

    def _enter(self, site: Site) -> None:
        """The inputs of a body are given where the body begins."""
        (graph,) = site.bodies
        for port in self.entries.get(graph, []):
            self._give(port)

    def _border(self, site: Site) -> None:
        """The node itself, which follows, reads and gives what is carried."""

    def _node(self, site: Site) -> None:
        node = site.node
        assert node is not None
        assert site.graph is not None
        self._read_operands(site)
        label = self.labels[site].variant
        variant = site.signature.variants[label] if label >= 0 else None
        if variant is not None and variant.steps is not None:
            self._write_steps(site, variant.steps)
            return
        written = None if variant is None else variant.written
        changes = self._changes(site, written)
        self.changes.change(site.graph, node, changes)
        if variant is not None and written is not None:
            self._write_as(node, variant, written)
        self.storage.nodes[site.graph].append(node)
        for port in site.carried or site.ports:
            if port.output and port.body < 0 and port.slot < len(node.outputs):
                if port.slot in changes.extents:
                    self.storage.origins(port.view.root)
                    value = self.changes.multiplied(site.graph, node.outputs[port.slot], changes.extents[port.slot])
                    self.storage.put(port.view.root, self.forms[port], value)
                else:
                    self._give(port)
                    if port.view.root in self.separate_roots:
                        self.storage.keep_apart(port.view.root, self.forms[port])

    def _read_operands(self, site: Site) -> None:
        """Let a node read its operands as planned, and its bodies give their results so."""
        for port in site.carried or site.ports:
            if port.body >= 0 and not port.output:
                graph = site.bodies[port.body]
                self._result(graph, port, self.outputs[graph][port.slot])
            elif not port.output:
                self._read(site, port)

    def _changes(self, site: Site, written: Written | None) -> Changes:
        """Return the changes that a node's rule asks for; the node may be written as another operator."""
        if written is not None and written.body is not None:
            same = written.body.inputs == site.signature.inputs
            return UNCHANGED if same else site.signature.changes(in_body(written.body, self._placement(site)))
        stays = all(self.forms[port] == port.view.form for port in site.carried or site.ports)
        if stays or site.signature.changes is unchanged:
            return UNCHANGED
        changes = site.signature.changes(self._placement(site))
        # Another operator is said of the one that is not written.
        return UNCHANGED if written is not None and changes.op_type is not None else changes

    def _placement(self, site: Site) -> Placement:
        """Return where the axes of a node's operands lie; those that it carries into its bodies are its borders'."""
        if not site.carried:
            return placement(site, self.labels[site])
        assert site.node is not None
        inputs: list[tuple[tuple[str, Extent], ...] | None] = [None] * len(site.node.inputs)
        outputs: list[tuple[tuple[str, Extent], ...] | None] = [None] * len(site.node.outputs)
        for port in site.carried:
            border = self.borders.get(port)
            if border is not None and port.body < 0:
                (outputs if port.output else inputs)[port.slot] = placed(border, self.labels[border], port).dims
        return Placement(tuple(inputs), tuple(outputs))

    def _write_as(self, node: ir.Node, variant: Variant, written: Written) -> None:
        """Write a node as a variant asks for: another operator, or a call of a function."""
        node.domain, node.op_type, node.overload = written.domain, written.op_type, ""
        self.changes.set(node, written.attributes)
        if written.body is not None:
            add_function(self.model, node, variant)
        elif written.domain:
            self.model.opset_imports.setdefault(written.domain, 1)
        if written.joined:
            state_joined(node, variant)

    def _write_steps(self, site: Site, steps: Callable[[Placement, Constants], Iterable[Step]]) -> None:
        """Write the operators that stand for a node, and give what the last one gives under its name."""
        node, graph = site.node, site.graph
        assert node is not None
        assert graph is not None
        (port,) = (port for port in site.ports if port.output and port.slot == 0)
        root, form, name = port.view.root, self.forms[port], port.view.root.value.name
        tensors = [None if value is None else value.const_value for value in node.inputs]
        known = [None if tensor is None else tensor.numpy() for tensor in tensors]
        value_of: dict[int | str, ir.Value | None] = dict(enumerate(node.inputs))
        *before, last = steps(self._placement(site), known)
        for step in (*before, last):
            value = value_of[step.name] = ir.Value(type=root.value.type)
            read = operands_of_step(step, value_of, self.storage.constant, name)
            step_node = ir.Node("", step.op_type, read, outputs=[value], name=node.name)
            step_node.metadata_props.update(node.metadata_props)
            self.changes.set(step_node, step.attributes)
            self.storage.nodes[graph].append(step_node)
            if step is not last:
                value.name = self.storage.names.unique(f"{name}__{step.name}")
                step_node.name = self.storage.names.unique(f"{node.name or name}/{step.name}")
        self._reads_nothing(node)
        value.name = name if form == root.logical else self.storage.names.unique(self.storage.name(root, form))
        self.storage.describe(value, root, form)
        self.storage.put(root, form, value)

    def _result(self, graph: ir.Graph, port: Port, original: Ended) -> ir.Value:
        """Return the value that a graph gives as an output: its own, and given once."""
        root = port.view.root
        listed = (graph, original.value, self.forms[port])
        if graph is self.graph and listed in self.listed:  # the source lists it twice
            self.results[graph].append((port.slot, self.listed[listed]))
            return self.listed[listed]
        value = self.storage.get(root, self.forms[port])
        outer = root.graph is not graph or value.is_graph_input() or value.producer() is None
        if (outer and value is not original.value) or graph in self.output_graphs.get(value, ()):
            name = original.name if graph is self.graph else self.storage.names.unique(f"{original.name}__out")
            output = ir.Value(name=name, type=value.type, shape=value.shape)
            node_name = self.storage.names.unique(f"{name}/Identity")
            self.storage.nodes[graph].append(ir.Node("", "Identity", [value], outputs=[output], name=node_name))
            value = output
        # A body's result is stated as it is stored: a loop without trips gives that.
        form, source, declared = self.forms[port], port.view.form, original.shape
        shape = None if graph is self.graph or sorted(form) != sorted(source) else value.shape
        if declared is not None and shape is not None and len(shape) == len(form) == len(declared):
            dims = dict(zip(source, declared, strict=True))
            value.shape = ir.Shape([dims[dim] if dim else 1 for dim in form])
        self.results[graph].append((port.slot, value))
        self.output_graphs.setdefault(value, set()).add(graph)
        self.listed[listed] = value
        return value

    def _read(self, site: Site, port: Port) -> None:
        assert site.node is not None
        get = self.storage.own if port in self.own else self.storage.get
        value = get(port.view.root, self.forms[port])
        if port.slot >= 0:
            if site.node.inputs[port.slot] is not value:
                site.node.replace_input_with(port.slot, value)
            return
        for user, slot, read in self.captures[site.node]:
            if self.plan.sites.views.get(read) is port.view:
                user.replace_input_with(slot, value)

    def _give(self, port: Port) -> None:
        """The producer's own value holds its root as planned; it gets its own name where that is not the source's."""
        root, form = port.view.root, self.forms[port]
        value = root.value
        if form != root.logical:
            if root.graph is not self.graph or not value.is_graph_input():
                value.name = self.storage.names.unique(self.storage.name(root, form))
            elif value.const_value is not None:
                value.const_value = relaid(root, form)
            self.storage.describe(value, root, form)
        elif len(self.plan.sites.originals.get(root, [])) > 1:
            self.storage.tell(value, root, form)
        self.storage.put(root, form, value)


def _is_used(value: ir.Value) -> bool:
    return bool(value.uses()) or value.is_graph_output()
