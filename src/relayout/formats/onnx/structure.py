"""Is the graph a graph: every value made once, made before it is read, and no node waiting for itself?"""

import math
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

import onnx
import onnx_ir as ir

from relayout.errors import ReadError, shortened
from relayout.formats.onnx.wire import all_nodes, graphs_in
from relayout.light_dataclass import dataclass

# Do the calls of a model's functions end, and is what they spell out small enough to be read?

MOST_CALLS = 100  # calls within calls: exporters stay below a tenth of it
MOST_NODES = 2_000_000  # nodes of a model with all calls of its functions spelled out


def _refuse_expansion(model: onnx.ModelProto) -> None:
    """Refuse functions that call themselves or each other too deep, or whose calls spelled out are too many nodes.

    Shape inference and runtimes spell calls out: a function that calls another twice, which calls a third twice, and so
    on, makes a short file of any size.
    """
    calls = {(f.domain, f.name): Counter(_operators(f.node)) for f in model.functions}
    depths: dict[tuple[str, str], int] = {}
    sizes: dict[tuple[str, str], int] = {}
    entered: set[tuple[str, str]] = set()
    stack = [(function, False) for function in reversed(calls)]
    while stack:
        function, leaving = stack.pop()
        if leaving:
            entered.remove(function)
            depths[function] = 1 + max((depths.get(called, 0) for called in calls[function]), default=0)
            sizes[function] = sum(count * sizes.get(called, 1) for called, count in calls[function].items())
            if depths[function] > MOST_CALLS:
                what = f"functions call each other more than {MOST_CALLS} deep"
                raise ReadError(what, where=f"function '{function[1]}'")
        elif function in entered:
            raise ReadError("the function calls itself", where=f"function '{function[1]}'")
        elif function in calls and function not in depths:
            entered.add(function)
            stack += [(function, True), *((called, False) for called in calls[function])]
    size = sum(sizes.get(called, 1) for called in _operators(model.graph.node))
    if size > MOST_NODES:
        raise ReadError(f"the calls of functions spelled out are {size} nodes; more than {MOST_NODES} are not read")


def _refuse_more_results(model: onnx.ModelProto) -> None:
    """Refuse calls that ask for more outputs than the function has."""
    most: dict[tuple[str, str], int] = {}
    for function in model.functions:  # overloads have one name
        key = function.domain, function.name
        most[key] = max(len(function.output), most.get(key, 0))
    for node in chain.from_iterable(all_nodes(f.node) for f in (model.graph, *model.functions)):
        output_count = most.get((node.domain, node.op_type))
        if output_count is not None and len(node.output) > output_count:
            what = f"{len(node.output)} outputs are asked of a function that has {output_count}"
            raise ReadError(what, where=f"{node.op_type} '{node.name or node.output[0]}'")


def _operators(nodes: Iterable[onnx.NodeProto]) -> Iterator[tuple[str, str]]:
    return ((node.domain, node.op_type) for node in all_nodes(nodes))


# Does every tensor of a model hold as much data as its type and shape say?
#
# Asked before anything else looks at the data: a shape of 10^12 elements over no data must not become an allocation,
# nor a short buffer an exception far from its cause.

EXTERNAL_KEYS = ("location", "offset", "length", "checksum", "basepath")
"""What ONNX says of external data. Other keys mean something to one runtime only, and are not looked at."""

MOST_ELEMENTS, MOST_DIGITS = 2**48, 19


def shape_of(tensor: onnx.TensorProto, where: str) -> tuple[int, ...]:
    """Return the tensor's shape; ReadError if it is none."""
    shape = tuple(tensor.dims)
    if any(extent < 0 for extent in shape) or math.prod(shape) > MOST_ELEMENTS:
        raise ReadError(f"no tensor can have the shape {list(shape)}", where=where)
    return shape


def type_of(tensor: onnx.TensorProto, where: str) -> ir.DataType:
    """Return the tensor's element type; ReadError if it is none that this version knows."""
    try:
        dtype = ir.DataType(tensor.data_type)
    except ValueError:
        dtype = ir.DataType.UNDEFINED
    if dtype == ir.DataType.UNDEFINED:
        raise ReadError(f"unknown element type {tensor.data_type}", where=where)
    return dtype


def check_data(tensor: onnx.TensorProto, where: str) -> None:
    """ReadError unless the tensor's data, raw or typed, is as long as its type and shape say."""
    shape, dtype = shape_of(tensor, where), type_of(tensor, where)
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        if dtype == ir.DataType.STRING:
            raise ReadError("strings cannot be external data", where=where)
        keys = [entry.key for entry in tensor.external_data if entry.key in EXTERNAL_KEYS]
        if len(set(keys)) < len(keys):
            raise ReadError("external data with one key twice", where=where)
        for entry in tensor.external_data:
            if not isinstance(entry.value, str):
                raise ReadError(f"external data with the {entry.key} {entry.value!r}, which is not text", where=where)
            if entry.key in ("offset", "length") and not (entry.value.isdecimal() and len(entry.value) < MOST_DIGITS):
                raise ReadError(f"external data with the {entry.key} '{entry.value}'", where=where)
        return
    count = math.prod(shape)
    if tensor.HasField("raw_data"):
        if dtype == ir.DataType.STRING:
            raise ReadError("strings cannot be raw data", where=where)
        need, have, unit = -(-count * dtype.bitwidth // 8), len(tensor.raw_data), "bytes"
    else:
        need = _elements(dtype, count)
        have = len(getattr(tensor, onnx.helper.tensor_dtype_to_field(dtype.value)))
        unit = "elements"
    if need != have:
        raise ReadError(f"{dtype.name}{list(shape)} needs {need} {unit} of data and has {have}", where=where)


def tensors_in(model: onnx.ModelProto) -> Iterator[tuple[str, onnx.TensorProto]]:
    """Yield every tensor of the model with its place: initializers and attributes, of subgraphs and functions too."""
    yield from _graph_tensors(model.graph, "")
    for function in model.functions:
        yield from _node_tensors(function.node, f"function '{function.name}', ")


def _graph_tensors(graph: onnx.GraphProto, place: str) -> Iterator[tuple[str, onnx.TensorProto]]:
    for tensor in graph.initializer:
        yield f"{place}initializer '{tensor.name}'", tensor
    yield from _node_tensors(graph.node, place)


def _node_tensors(nodes: Any, place: str) -> Iterator[tuple[str, onnx.TensorProto]]:
    for node in nodes:
        attributes = node.attribute
        for attribute in attributes if attributes else ():
            tensors = [*([attribute.t] if attribute.HasField("t") else ()), *attribute.tensors]
            graphs = graphs_in(attribute)
            if tensors or graphs:
                where = f"{place}{node.op_type} '{node.name}', attribute '{attribute.name}'"
                yield from ((where, tensor) for tensor in tensors)
                for graph in graphs:
                    yield from _graph_tensors(graph, f"{where}, ")


def _elements(dtype: ir.DataType, count: int) -> int:
    if dtype in (ir.DataType.COMPLEX64, ir.DataType.COMPLEX128):
        return 2 * count
    if dtype != ir.DataType.STRING and dtype.bitwidth in (2, 4):
        return -(-count * dtype.bitwidth // 8)
    return count


_TYPES = onnx.AttributeProto.AttributeType
_GRAPHS = (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)

MOST_RANK = 256  # dimensions of a value: exporters stay below a tenth of it

MOST_VERSION = (1 << 31) - 1  # what ONNX counts versions of operators with
MOST_NAME = 1 << 16  # characters of a name. They go into new names, messages and reports.

AXES = frozenset(("axes", "axis", "batch_axis", "batch_dims", "new_axis", "perm", "time_axis"))
"""Attributes of the standard's operators that index axes."""

COUNTS = frozenset(("dilations", "group", "kernel_shape", "strides"))
"""Attributes of the standard's operators that are at least 1."""

QUANTIZING = frozenset(("com.microsoft", kind) for kind in ("DequantizeLinear", "QuantizeLinear"))
"""Operators beside the standard's that quantize."""
QUANTIZING_OPERANDS = 2  # operands that they have at least

SHOWN = 3  # how many names one message lists


@dataclass
class _Scope:
    """One graph or function body under inspection, inside the names of the graphs around it."""

    place: str
    outer: frozenset[str]
    input_names: set[str] = field(default_factory=set)
    in_function: bool = False
    producer_of: dict[str, int] = field(default_factory=dict)  # value -> the node that makes it
    ranks: dict[str, int] = field(default_factory=dict)  # graph input or initializer -> its rank, where it is stated
    late: set[int] = field(default_factory=set)
    """Nodes that read what no node before them makes, and no graph input or initializer is."""
    nested: list[int] = field(default_factory=list)  # nodes with bodies


def check_structure(model: onnx.ModelProto) -> bool:
    """ReadError unless the main graph, its subgraphs and all functions are graphs; True if any is out of order.

    Extents below 0, which some exporters write and runtimes take for open ones, become open.

    Shadowing the name of an outer value is allowed, as runtimes allow it; the order of nodes is not required to be
    topological, since it can be restored.
    """
    imported = [opset for function in model.functions for opset in function.opset_import]
    _refuse_names("the imported operators", [opset.domain for opset in (*model.opset_import, *imported)])
    for opset in (*model.opset_import, *(opset for opset in imported if abs(opset.version) > MOST_VERSION)):
        if not 1 <= opset.version <= MOST_VERSION:
            raise ReadError(f"there is no version {opset.version} of the operators of '{opset.domain or 'ai.onnx'}'")
    unsorted = [_check_graph(model.graph, frozenset(), "")[1]]
    names = [f"{f.domain}.{f.name}:{getattr(f, 'overload', '')}".rstrip(":") for f in model.functions]
    _refuse_repeated("", "function", names)
    for function in model.functions:
        place = f"function '{function.name}'"
        _refuse_names(place, [function.name, function.domain, *function.input, *function.output, *function.attribute])
        _refuse_repeated(place, "input", function.input)
        scope = _Scope(place, frozenset(), set(function.input), in_function=True)
        unsorted.append(_check_nodes(scope, function.node, function.output)[1])
    if model.functions:
        _refuse_expansion(model)
        _refuse_more_results(model)
    return any(unsorted)


def _check_graph(
    graph: onnx.GraphProto, outer: frozenset[str], place: str, in_function: bool = False
) -> tuple[set[str], bool]:
    """Names the graph reads from outside, and whether its nodes are out of order."""
    inputs = [value.name for value in graph.input]
    weights = [tensor.name for tensor in graph.initializer]
    values = [value.name for value in (*graph.output, *graph.value_info)]
    _refuse_names(place or "the main graph", [graph.name, *inputs, *weights, *values])
    _refuse_repeated(place, "graph input", inputs)
    _refuse_repeated(place, "initializer", weights)
    for value in (*graph.input, *graph.output, *graph.value_info):
        dims = value.type.tensor_type.shape.dim
        if len(dims) > MOST_RANK:
            raise ReadError(f"value '{value.name}' has {len(dims)} dimensions", where=place or "the main graph")
        _refuse_names(place or "the main graph", [dim.dim_param for dim in dims])
        for dim in dims:
            if dim.dim_value < 0:
                dim.ClearField("dim_value")
    if not all(inputs) or not all(weights):
        raise ReadError("a graph input or initializer has no name", where=place or "the main graph")
    scope = _Scope(place, outer, {*inputs, *weights}, in_function)
    scope.ranks = {tensor.name: len(tensor.dims) for tensor in graph.initializer}
    stated = (value for value in graph.input if value.type.tensor_type.HasField("shape"))
    scope.ranks |= {value.name: len(value.type.tensor_type.shape.dim) for value in stated}
    return _check_nodes(scope, graph.node, [value.name for value in graph.output])


def _check_nodes(scope: _Scope, nodes: Sequence[onnx.NodeProto], outputs: Iterable[str]) -> tuple[set[str], bool]:
    reads = [_check_node(scope, index, node) for index, node in enumerate(nodes)]
    visible = scope.outer.union(scope.input_names, scope.producer_of)
    unsorted = False
    for index, place, graph in _bodies(scope, nodes):
        _refuse_other_ends(nodes[index], graph, place)
        captured, crooked = _check_graph(graph, visible, place, scope.in_function)
        reads[index] |= captured
        scope.late.add(index)
        unsorted |= crooked
    _refuse_missing(scope, nodes, reads, visible)
    _refuse_outputs(scope, outputs, visible)
    unsorted |= _refuse_cycles(scope, nodes, reads)
    return set().union(*reads) - scope.input_names - scope.producer_of.keys(), unsorted


def _check_node(scope: _Scope, index: int, node: onnx.NodeProto) -> set[str]:
    """Refuse a node that is wrong by itself, enter the values that it makes, and give the names that it reads."""
    op_type, inputs, outputs = node.op_type, node.input[:], node.output[:]
    if not op_type or not outputs:
        raise ReadError(f"a node has no {'outputs' if op_type else 'operator'}", where=_at(scope, node))
    attributes = node.attribute
    names = [op_type, node.domain, node.name, *inputs, *outputs]
    if attributes:
        names += [each.name for each in attributes]
    if not _are_short(names):
        _refuse_names(_at(scope, node), names)
    _refuse_few(scope, node, len(inputs))
    if attributes:
        _refuse_attributes(scope, node)
        if any(map(graphs_in, attributes)):
            scope.nested.append(index)
    reads = set(inputs)
    reads.discard("")
    input_names, known = scope.input_names, scope.producer_of
    for name in reads:
        if name not in known and name not in input_names:
            scope.late.add(index)
    for name in outputs:
        if name:
            if name in known or name in input_names:
                raise ReadError(f"value '{name}' is made twice", where=_at(scope, node))
            known[name] = index
    return reads


def _bodies(scope: _Scope, nodes: Sequence[onnx.NodeProto]) -> Iterator[tuple[int, str, onnx.GraphProto]]:
    """Yield the bodies of nodes: the number of the node, its place in the file, and the body."""
    for index in scope.nested:
        node = nodes[index]
        for attribute in node.attribute:
            for graph in graphs_in(attribute):
                yield index, f"{_at(scope, node)}, {attribute.name}", graph


def _refuse_other_ends(node: onnx.NodeProto, body: onnx.GraphProto, place: str) -> None:
    """Refuse a Loop or a Scan whose body reads another number of values, or gives fewer than the node does.

    Branches of an If are let pass: some exporters let them read what is around them.
    """
    if node.domain not in ("", "ai.onnx") or node.op_type not in ("Loop", "Scan"):
        return
    is_loop, count = node.op_type == "Loop", len(node.input)
    reads = {count} if is_loop else {count, count - 1}  # the first Scan read the lengths of sequences, too
    if len(body.input) not in reads or len(body.output) < len(node.output) + is_loop:
        stated = f"{len(body.input)} inputs and {len(body.output)} outputs"
        expected_ends = f"{node.op_type} has {count} operands and {len(node.output)} outputs"
        raise ReadError(f"the body has {stated}, and the {expected_ends}", where=place)


def _refuse_missing(
    scope: _Scope, nodes: Sequence[onnx.NodeProto], reads: Sequence[set[str]], visible: frozenset[str]
) -> None:
    if missing := [(name, nodes[index]) for index in sorted(scope.late) for name in sorted(reads[index] - visible)]:
        listed = ", ".join(f"'{name}'" for name in list(dict.fromkeys(name for name, _ in missing))[:SHOWN])
        raise ReadError(f"values are read that nothing makes: {listed}", where=_at(scope, missing[0][1]))


def _refuse_outputs(scope: _Scope, outputs: Iterable[str], visible: frozenset[str]) -> None:
    for name in outputs:
        if name not in visible:
            raise ReadError(f"output '{name}' is made by nothing", where=scope.place or "the main graph")
        if name not in scope.input_names and name not in scope.producer_of:
            what = f"output '{name}' is a value of the graph outside"
            raise ReadError(what, where=scope.place, hint="runtimes want an Identity between")


def _refuse_attributes(scope: _Scope, node: onnx.NodeProto) -> None:
    """Refuse attributes that no version of a standard operator has like this, and damaged ones of any operator."""
    known = _in_all_versions(node.op_type).types if node.domain in ("", "ai.onnx") else None
    for attribute in node.attribute:
        _refuse_hollow(scope, node, attribute)
        if known is None:
            continue
        name = attribute.name
        _refuse_types(scope, node, attribute, known.get(name))
        if name in AXES and attribute.type in (_TYPES.INT, _TYPES.INTS) and not attribute.ref_attr_name:
            _refuse_axes(scope, node, attribute)
        elif name in COUNTS and not attribute.ref_attr_name:
            _refuse_windows(scope, node, attribute)
        elif name == "equation" and node.op_type == "Einsum":
            _refuse_endless(scope, node, attribute)


def _refuse_hollow(scope: _Scope, node: onnx.NodeProto, attribute: onnx.AttributeProto) -> None:
    """Refuse an attribute that stands for one of a function where there is none."""
    if attribute.ref_attr_name and (not scope.in_function or attribute.type in _GRAPHS):
        what = "a graph is" if scope.in_function else "outside of functions an attribute is"
        raise ReadError(f"{what} given by the name of another one", where=f"{_at(scope, node)}, {attribute.name}")


def _refuse_cycles(scope: _Scope, nodes: Sequence[onnx.NodeProto], reads: list[set[str]]) -> bool:
    """Tell whether the nodes are out of order; raise ReadError at a cycle (Kahn 1962: the remaining nodes have one)."""
    producer_of = scope.producer_of
    if all(producer_of.get(name, -1) < index for index in scope.late for name in reads[index]):
        return False
    before = [{producer_of[name] for name in names if name in producer_of} for names in reads]
    waiting = _remaining_sources(before)
    if not any(waiting):
        return True
    # Walk upwards from a node that waits: among finitely many, one comes up again, and that one is on the cycle.
    index, seen = next(i for i, count in enumerate(waiting) if count), set[int]()
    while index not in seen:
        seen.add(index)
        index = min(source for source in before[index] if waiting[source])
    raise ReadError("a cycle: a node waits for its own result", where=_at(scope, nodes[index]))


def _remaining_sources(before: Sequence[set[int]]) -> list[int]:
    """Run nodes as soon as their sources have run; return for how many sources each still waits in the end."""
    waiting = [len(sources) for sources in before]
    readers: list[list[int]] = [[] for _ in before]
    for index, sources in enumerate(before):
        for source in sources:
            readers[source].append(index)
    ready = deque(index for index, count in enumerate(waiting) if not count)
    while ready:
        for reader in readers[ready.popleft()]:
            waiting[reader] -= 1
            if not waiting[reader]:
                ready.append(reader)
    return waiting


def _refuse_names(place: str, names: Iterable[str]) -> None:
    """Refuse names that are too long, or bytes: so protobuf gives a string that is not UTF-8, and cannot write it."""
    for name in filter(lambda name: not isinstance(name, str) or len(name) > MOST_NAME, names):
        if not isinstance(name, str):
            raise ReadError(f"the name {name!r} is not UTF-8 text", where=place)
        raise ReadError(f"a name has {len(name)} characters: '{shortened(name, 80)}'", where=shortened(place))


def _are_short(names: Sequence[str]) -> bool:
    """Tell whether names are texts, and no longer together than one may be."""
    try:
        return len("".join(names)) <= MOST_NAME
    except TypeError:  # bytes among them
        return False


def _refuse_few(scope: _Scope, node: onnx.NodeProto, count: int) -> None:
    """Refuse a node that has fewer operands than any version of its operator: whoever looks at it reads these."""
    op_type, domain = node.op_type, node.domain
    if domain in ("", "ai.onnx"):
        fewest = _in_all_versions(op_type).fewest
    else:
        fewest = QUANTIZING_OPERANDS if (domain, op_type) in QUANTIZING else 0
    if count < fewest:
        counted = f"{count} operand{'s' * (count != 1)}"
        raise ReadError(f"{op_type} has {counted} and needs {fewest}", where=_at(scope, node))


def _refuse_types(
    scope: _Scope, node: onnx.NodeProto, attribute: onnx.AttributeProto, types: frozenset[int] | None
) -> None:
    """Refuse a type that no version of the operator knows under the attribute's name, and bytes that are no text."""
    if types is not None and attribute.type not in types:
        what = _TYPES.Name(attribute.type) if attribute.type in _TYPES.values() else attribute.type
        raise ReadError(f"an attribute has the type {what}", where=f"{_at(scope, node)}, {attribute.name}")
    if attribute.type == _TYPES.STRING and not attribute.s.isascii():
        try:
            attribute.s.decode()
        except UnicodeDecodeError:
            raise ReadError("an attribute is not UTF-8 text", where=f"{_at(scope, node)}, {attribute.name}") from None


def _refuse_axes(scope: _Scope, node: onnx.NodeProto, attribute: onnx.AttributeProto) -> None:
    """Refuse axes far from all that there can be: ONNX's shape inference counts with them first.

    Some operators add as many axes as an attribute lists, and one more; so much is let pass, and judged by inference.
    """
    axes = attribute.ints if attribute.type == _TYPES.INTS else [attribute.i]
    rank = scope.ranks.get(node.input[0], MOST_RANK) if node.input else MOST_RANK
    most = rank + len(axes) + 1
    least = 0 if attribute.name == "batch_dims" else -most
    wrong = next((axis for axis in axes if not least <= axis <= most), None)
    if wrong is not None:
        known = f"of an operand of rank {rank}" if rank < MOST_RANK else "of any operand"
        raise ReadError(f"{wrong} is no axis {known}", where=f"{_at(scope, node)}, {attribute.name}")
    if attribute.name == "perm" and sorted(axes) != list(range(len(axes))):
        raise ReadError(f"{list(axes)} is no perm", where=_at(scope, node))


def _refuse_windows(scope: _Scope, node: onnx.NodeProto, attribute: onnx.AttributeProto) -> None:
    """Refuse windows without elements, that do not move, or that move backwards, and a negative number of groups."""
    counts = attribute.ints if attribute.type == _TYPES.INTS else [attribute.i]
    if min(counts, default=1) < 1:
        what = f"{attribute.name} is {', '.join(map(str, counts))}, and must be at least 1"
        raise ReadError(what, where=_at(scope, node), hint="no runtime loads it: export the model again")


class _Standard(NamedTuple):
    """Facts that hold for all versions of a standard operator."""

    types: Mapping[str, frozenset[int]]  # attribute -> its types in all of them
    fewest: int  # operands that a node has at least in one of them


@lru_cache(1024)
def _in_all_versions(op_type: str) -> _Standard:
    """Return what is known of a standard operator, of whichever version."""
    types_of: dict[str, set[int]] = {}
    fewest = []
    version = onnx.defs.onnx_opset_version()
    while version and onnx.defs.has(op_type, max_inclusive_version=version):
        schema = onnx.defs.get_schema(op_type, version)
        fewest.append(schema.min_input)
        for name, attribute in schema.attributes.items():
            types_of.setdefault(name, set()).add(_TYPES.Value(str(attribute.type).rpartition(".")[2]))
        version = schema.since_version - 1
    return _Standard({name: frozenset(types) for name, types in types_of.items()}, min(fewest, default=0))


def _refuse_endless(scope: _Scope, node: onnx.NodeProto, equation: onnx.AttributeProto) -> None:
    """Refuse equations for which ONNX's shape inference does not end: those with dots that are not one ellipsis."""
    text = equation.s.decode("utf-8", "replace")
    terms = text.replace("->", ",").split(",")
    if equation.ref_attr_name or any("." in term.replace("...", "", 1) for term in terms):
        what = f"'{shortened(text, 80)}' is no equation" if text else "its equation is an attribute of its function"
        raise ReadError(what, where=_at(scope, node))


def _refuse_repeated(place: str, what: str, names: Iterable[str]) -> None:
    if repeated := [name for name, count in Counter(names).items() if count > 1]:
        raise ReadError(f"{what} '{repeated[0]}' occurs twice", where=place)


def _at(scope: _Scope, node: onnx.NodeProto) -> str:
    name = node.name or next(iter(node.output), "")
    return f"{scope.place + ', ' if scope.place else ''}{node.op_type or 'node'} '{name}'"
