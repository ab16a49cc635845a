"""The parts of a graph that a target runs, and the rest: connected, without cycles between them, in order.

A target is asked here for the second time: the graph has been rewritten, and Transposes, Reshapes or an axis that lies
elsewhere now may have made nodes its own, or taken some away.

A node with bodies (an If, a Loop, a Scan) is the target's where it runs the node and all that is inside. Otherwise the
host runs it, and each body is parted by itself: a part of a body can be a function that the body calls
(`as_functions`), but no file of its own, since it runs when the host comes by, once, often or never.

What follows from initializers alone, a kernel that is dequantized, is no part's: each part that reads it computes it,
so that what is constant in the graph is constant in the part.

Calls of the model's own functions are spelled out when it is read, so that their nodes are parted like all others. One
that had to stay a call is the target's as a whole or the host's as a whole, likewise.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from graphlib import CycleError, TopologicalSorter
from typing import Any, NamedTuple

import onnx_ir as ir

from relayout.formats.recognition import SOURCE_FORMAT
from relayout.graph.facts import copy_facts
from relayout.graph.quantized_unit import QuantizedUnit, units_of
from relayout.graph.subgraphs import all_nodes, bodies, captured, nested
from relayout.rules import FUNCTIONS, draws
from relayout.rules.alike import Alike
from relayout.rules.facts import operator_of
from relayout.targets import Target, pass_on
from relayout.terminal import count_of

# How often a path through a graph changes between target and host: nodes of one level and side can run in one go.
#
# A quantized unit counts as one node, so that no cut goes through it. A unit whose result comes back into it by way of
# others cannot be whole: its nodes count one by one, and the host runs them.


def levels_of(
    nodes: Sequence[ir.Node],  # the nodes of a graph, in order
    # which of them the target runs; those of units that cannot be whole become the host's, in place
    claims: MutableMapping[ir.Node, bool],
    units: Mapping[ir.Node, QuantizedUnit | None],  # their quantized units
) -> dict[ir.Node, int]:
    """Return how often the side has changed on the longest way to each node: even on the host, odd on the target.

    Two nodes of one level and side never wait for each other through the other side.
    """
    sides = set(claims.values())
    if len(sides) == 1 and not any(units.values()):
        return dict.fromkeys(nodes, int(sides.pop()))
    heads = {node: node if unit is None else unit.node for node, unit in ((node, units.get(node)) for node in nodes)}
    while True:
        groups: dict[ir.Node, list[ir.Node]] = {}
        for node in nodes:
            groups.setdefault(heads[node], []).append(node)
        waits = {head: _before(head, members, heads) for head, members in groups.items()}
        try:
            return _in_order(groups, waits, claims)
        except CycleError as error:
            cycle = [head for head in error.args[1] if len(groups[head]) > 1]
            if not cycle:
                raise
            of_host = [head for head in cycle if not claims[groups[head][0]]]
            for node in (node for head in of_host or cycle for node in groups[head]):
                heads[node], claims[node] = node, False


def _before(head: ir.Node, members: Sequence[ir.Node], heads: Mapping[ir.Node, ir.Node]) -> list[ir.Node]:
    """Return the groups for which a group waits, by their heads."""
    read = dict.fromkeys(heads[each] for node in members for each in producers(node) if each in heads)
    return [each for each in read if each is not head]


def _in_order(
    groups: Mapping[ir.Node, Sequence[ir.Node]],
    waits: Mapping[ir.Node, Sequence[ir.Node]],
    claims: Mapping[ir.Node, bool],
) -> dict[ir.Node, int]:
    levels: dict[ir.Node, int] = {}
    for head in TopologicalSorter(waits).static_order():
        level = max((levels[each] for each in waits[head]), default=0)
        levels[head] = level + (level + claims[groups[head][0]]) % 2
    return {node: levels[head] for head, members in groups.items() for node in members}


def producers(node: ir.Node) -> Iterator[ir.Node]:
    """Return the nodes that give what a node and its bodies read."""
    for value in (*node.inputs, *captured(node)):
        producer = None if value is None else value.producer()
        if producer is not None:
            yield producer


REGIONS = "regions."  # what the domains of functions begin with that are parts of a graph

STATING = 10  # the first IR version whose functions state types and shapes of their values, and what these hold


class Part(NamedTuple):
    """Nodes that run in one go."""

    name: str  # `00_npu`, `01_host`: its place in the order, and who runs it
    claimed: bool  # whether the target does
    nodes: tuple[ir.Node, ...]  # in order
    inputs: tuple[ir.Value, ...]  # values that it reads of other parts, and inputs of the graph
    outputs: tuple[ir.Value, ...]  # values that other parts read, and outputs of the graph
    constants: tuple[ir.Value, ...]  # initializers that it reads
    # nodes before its own that follow from initializers alone; other parts may have them, too
    copied: tuple[ir.Node, ...] = ()
    # what the target runs in the bodies of a host's nodes, and in the functions that these call; it is left to the host
    # with them
    within: tuple[ir.Node, ...] = ()

    def __repr__(self) -> str:
        """One line: the graph of the nodes is long."""
        who = "the target's" if self.claimed else "the host's"
        ends = f"{count_of(len(self.inputs), 'input')}, {count_of(len(self.outputs), 'output')}"
        return f"<Part {self.name}: {who}, {count_of(sum(self.operators.values()), 'operator')}, {ends}>"

    def to_dict(self, suffix: str = ".onnx") -> dict[str, Any]:
        """For a manifest: JSON types only."""
        return {
            "file": f"{self.name}{suffix}",
            "claimed": self.claimed,
            "inputs": [value.name for value in self.inputs],
            "outputs": [value.name for value in self.outputs],
            "operators": self.operators,
            "claimed_in_bodies": _counts(self.within),
        }

    @property
    def operators(self) -> dict[str, int]:
        """Operator -> how many."""
        return _counts((*self.copied, *self.nodes))


def _counts(nodes: Iterable[ir.Node]) -> dict[str, int]:
    counts = Counter(f"{node.domain}:{node.op_type}" if node.domain else node.op_type for node in nodes)
    return dict(sorted(counts.items()))


def parts(
    model: ir.Model,
    target: Target,
    host: Collection[str] = (),  # first outputs of nodes that the host runs, whatever the target claims
    graph: ir.Graph | None = None,  # the main graph, or a body (default: the main graph)
) -> list[Part]:
    """Return a graph in parts, each of which a target claims as a whole or not at all.

    Along every path the side changes at most as often as it must: what the target claims is one part where it is
    connected and nothing that it needs has to come back from the host in between. Nodes that nothing reads are in none.
    """
    graph, runs = model.graph if graph is None else graph, _Claims(model, target)
    constants = _constants(graph)
    own = [node for node in graph if node not in constants]
    claims = {node: runs(node) and not any(name in host for name in runs.names(node)) for node in own}
    ordered = _members(claims, levels_of(own, claims, runs.units))
    owners = {inner: node for node in graph for inner in nested(node)} | {node: node for node in graph}
    width = max(2, len(str(len(ordered))))
    graph_parts = []
    for place, nodes in enumerate(ordered):
        claimed = claims[nodes[0]]
        within = () if claimed else tuple(inner for node in nodes for inner in runs.inside(node))
        name = f"{place:0{width}}_{target.name if claimed else 'host'}"
        graph_parts.append(_part(owners, name, claimed, nodes, _copied(nodes, constants), within))
    return [part for part in graph_parts if part.outputs]


def _members(claims: Mapping[ir.Node, bool], levels: Mapping[ir.Node, int]) -> list[list[ir.Node]]:
    """The nodes of each part, by level: of a level those that are claimed where they are connected, or all others."""
    parent: dict[ir.Node, ir.Node] = {}

    def first(node: ir.Node) -> ir.Node:
        while parent[node] is not node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    for node, claimed in claims.items():
        parent[node] = node
        for before in producers(node):
            if claimed and claims.get(before) and levels[before] == levels[node]:
                parent[first(node)] = first(before)
    members: dict[object, list[ir.Node]] = {}
    for node, claimed in claims.items():
        members.setdefault(first(node) if claimed else levels[node], []).append(node)
    return sorted(members.values(), key=lambda nodes: levels[nodes[0]])


def _constants(graph: ir.Graph) -> dict[ir.Node, None]:
    """Return the nodes that follow from initializers alone, in order."""
    constants: dict[ir.Node, None] = {}
    for node in graph:
        if not node.inputs or draws(node) or any(True for _ in bodies(node)):
            continue
        if not any(value.is_graph_output() for value in node.outputs) and all(
            value is None or (value.is_initializer() and not value.is_graph_input()) or value.producer() in constants
            for value in node.inputs
        ):
            constants[node] = None
    return constants


def _copied(nodes: Iterable[ir.Node], constants: Mapping[ir.Node, None]) -> list[ir.Node]:
    """Return the constant nodes that some nodes need, in order."""
    ahead, needed = list(nodes), set[ir.Node]()
    while ahead:
        more = {node for node in producers(ahead.pop()) if node in constants} - needed
        needed |= more
        ahead += more
    return [node for node in constants if node in needed]


class _Claims:
    """The nodes that a target runs as they are, with all that is inside of them. A call of a part is one of them."""

    def __init__(self, model: ir.Model, target: Target) -> None:
        self.model, self.domain = model, domain_of(target)
        self.target_runs = Alike(target.runs)
        self.imports: Mapping[str, int] = model.opset_imports
        self.open: list[ir.OperatorIdentifier] = []
        self.unit_of = units_of(model)
        self.units: dict[ir.Node, QuantizedUnit | None] = {}
        self.known: dict[ir.Node, bool] = {}  # node, or the operator of a quantized unit -> whether the target runs it

    def __call__(self, node: ir.Node) -> bool:
        return self._runs(node) and all(self._runs(inner) for inner in nested(self._head(node)))

    def _runs(self, node: ir.Node) -> bool:
        head = self._head(node)
        if head.domain == self.domain:
            return True
        if head not in self.known:
            self.known[head] = self.target_runs(operator_of(self.model, head, self.imports))
        if self.known[head]:
            return True
        with self._called(head) as body:  # a function of whose body the target runs every node
            return bool(body) and all(self(inner) for inner in body)

    def _head(self, node: ir.Node) -> ir.Node:
        """Return the operator of a node's quantized unit, by which all of it is claimed; else the node."""
        unit = self._unit(node)
        return node if unit is None else unit.node

    def names(self, node: ir.Node) -> Iterator[str]:
        """Return the names of a node's first output, and of those of the other members of its quantized unit."""
        unit = self._unit(node)
        yield from (member.outputs[0].name or "" for member in (unit.members if unit else (node,)))

    def _unit(self, node: ir.Node) -> QuantizedUnit | None:
        """Return the quantized unit of a node, which is claimed as a whole or not at all."""
        if node not in self.units:
            unit = self.unit_of(node)
            if unit is not None and unit.node.domain == self.domain:
                unit = None  # a part is a function by itself, with its own ends
            for member in unit.members if unit else (node,):
                self.units.setdefault(member, unit)  # what several units read is the first one's
        return self.units[node]

    def inside(self, node: ir.Node) -> list[ir.Node]:
        """Return the nodes that the target runs in the bodies of a node that it does not run, and in the functions that
        are called.
        """
        claimed_nodes = [inner for inner in nested(node) if self(inner)]
        for each in (each for each in (node, *nested(node)) if not self(each)):
            with self._called(each) as body:
                claimed_nodes += [inner for outer in body for inner in ([outer] if self(outer) else self.inside(outer))]
        return claimed_nodes

    @contextmanager
    def _called(self, node: ir.Node) -> Iterator[list[ir.Node]]:
        """The body of the function of the model's own that a node calls, seen with that function's versions."""
        key = node.op_identifier()
        function = self.model.functions.get(key)
        if function is None or key in self.open or node.domain.startswith(FUNCTIONS):
            yield []
            return
        outer, self.imports = self.imports, function.opset_imports
        self.open.append(key)
        try:
            yield list(function)
        finally:
            self.open.pop()
            self.imports = outer


def domain_of(target: Target) -> str:
    """Return the domain of the functions that a target's parts are."""
    return f"{REGIONS}{target.name}"


def part_model(model: ir.Model, part: Part) -> ir.Model:
    """Return a part as a model of its own; functions that it calls come with it."""
    graph = ir.convenience.extract(model.graph, list(part.inputs), list(part.outputs))
    graph.name = part.name
    functions = _called(model, graph)
    domains = {node.domain for node in all_nodes(graph)} | {domain for domain, _, _ in functions} | {""}
    imports = {domain: version for domain, version in model.opset_imports.items() if domain in domains}
    graph.opset_imports.clear()
    graph.opset_imports.update(imports)
    own_model = ir.Model(
        graph, ir_version=model.ir_version, producer_name=model.producer_name, functions=tuple(functions.values())
    )
    pass_on(model.metadata_props, own_model.metadata_props)
    if SOURCE_FORMAT in model.metadata_props:
        own_model.metadata_props[SOURCE_FORMAT] = model.metadata_props[SOURCE_FORMAT]
    copy_facts(model, own_model)
    return own_model


def _called(model: ir.Model, graph: ir.Graph) -> dict[ir.OperatorIdentifier, ir.Function]:
    """Return the functions that a graph calls, and those that these call, in the model's order."""
    called: set[ir.OperatorIdentifier] = set()
    ahead: list[ir.Graph | ir.Function] = [graph]
    while ahead:
        new_calls = {node.op_identifier() for node in all_nodes(ahead.pop())} - called
        called |= new_calls
        ahead += [model.functions[key] for key in new_calls if key in model.functions]
    return {key: function for key, function in model.functions.items() if key in called}


def as_functions(model: ir.Model, target: Target) -> None:
    """Replace each part that a target claims by a call of a model-local function, in place, in bodies too.

    Its domain is `regions.NAME`; initializers that it reads become inputs of the call, after all others, and so does
    what a part of a body reads of the graphs around it.
    """
    names = _names(model, domain_of(target))
    before = len(model.functions)
    ahead = [model.graph]
    while ahead:
        graph = ahead.pop(0)
        replacements: dict[ir.Value, ir.Value] = {}
        for part in parts(model, target, graph=graph):
            if part.claimed and any(node.domain != domain_of(target) for node in part.nodes):
                replacements.update(_fold(model, graph, part, (domain_of(target), next(names)), replacements))
        ahead += [body for node in graph for body in bodies(node)]
    if len(model.functions) > before:
        model.ir_version = max(model.ir_version or STATING, STATING)
    model.graph.sort()


def _names(model: ir.Model, domain: str) -> Iterator[str]:
    """Names of new functions, in order."""
    place = 0
    while True:
        name = f"region_{place:02}"
        if (domain, name, "") not in model.functions:
            yield name
        place += 1


def _fold(
    model: ir.Model, graph: ir.Graph, part: Part, key: tuple[str, str], known: Mapping[ir.Value, ir.Value]
) -> Iterable[tuple[ir.Value, ir.Value]]:
    """Fold one part of a graph; the values that it gave, each with the one that the call gives in its place."""
    operands = [known.get(value, value) for value in (*part.inputs, *part.constants)]
    function = _function(model, key, operands, part)
    outputs = [ir.Value(name=value.name, type=value.type, shape=value.shape) for value in part.outputs]
    for new, old in zip(outputs, part.outputs, strict=True):
        new.metadata_props.update(old.metadata_props)
    call = ir.Node(function.domain, function.name, operands, outputs=outputs, name=function.name)
    graph.insert_after(part.nodes[-1], call)
    for new, old in zip(outputs, part.outputs, strict=True):
        ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
    for inner in (inner for node in part.nodes for inner in nested(node)):
        for slot in range(len(inner.inputs)):
            inner.replace_input_with(slot, None)  # else what it read would seem to be read still
    graph.remove(list(part.nodes), safe=True)
    for node in reversed(part.copied):
        if not any(value.uses() for value in node.outputs):
            graph.remove(node, safe=True)
    model.functions[function.identifier()] = function
    model.opset_imports.setdefault(function.domain, 1)
    return zip(part.outputs, outputs, strict=True)


def _function(model: ir.Model, key: tuple[str, str], parameters: Sequence[ir.Value], part: Part) -> ir.Function:
    """Return a part as a function of the values that it is given."""
    nodes = (*part.copied, *part.nodes)
    domains = {inner.domain for node in nodes for inner in (node, *nested(node))} | {""}
    imports = {domain: model.opset_imports[domain] for domain in sorted(domains)}
    body = ir.GraphView(parameters, part.outputs, nodes=nodes, opset_imports=imports, name=part.name).clone()
    body.initializers.clear()
    return ir.Function(*key, graph=body, attributes=[])


def _part(
    owners: Mapping[ir.Node, ir.Node],
    name: str,
    claimed: bool,
    nodes: list[ir.Node],
    copied: list[ir.Node],
    within: tuple[ir.Node, ...],
) -> Part:
    inside: set[ir.Node | None] = {*nodes, *copied}
    read = dict.fromkeys(v for node in (*copied, *nodes) for v in (*node.inputs, *captured(node)) if v is not None)
    constants = dict.fromkeys(value for value in read if value.is_initializer() and not value.is_graph_input())
    inputs = tuple(v for v in read if v.producer() not in inside and v not in constants)
    results = (value for node in nodes for value in node.outputs)
    inside |= {None}  # of a reader that is in no graph any longer
    outputs = tuple(
        value
        for value in results
        if value.is_graph_output() or any(owners.get(use.node) not in inside for use in value.uses())
    )
    return Part(name, claimed, tuple(nodes), inputs, outputs, tuple(constants), tuple(copied), within)
