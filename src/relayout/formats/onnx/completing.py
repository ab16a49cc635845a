"""What the layout engine expects of a model and a file may leave out: types, shapes, and what is known in advance."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from itertools import zip_longest
from typing import NamedTuple

import onnx
import onnx_ir as ir
from onnx import numpy_helper

from relayout.errors import ReadError
from relayout.formats.onnx.bodies import graphs_in
from relayout.formats.onnx.checking import without_weights
from relayout.formats.onnx.evaluating import BROADCASTING, CUTTING, WINDOWS, Array, Evaluation, Item
from relayout.formats.onnx.inferring import infer_and_judge
from relayout.formats.onnx.parts import holds_map
from relayout.graph.facts import add_facts, facts_of
from relayout.graph.subgraphs import all_nodes, bodies
from relayout.layout import Extent
from relayout.layout.stored_as import CLAIMED, STATED

ROUNDS = 8
"""Each round knows the shapes that the values of the last one give."""
MADE_UP = re.compile(r"unk__[0-9]+")
"""What ONNX's shape inference calls an extent that it does not know."""
RESERVED = "relayout.reserved"
"""An input that nobody reads, of a model that is only looked at."""
INFERRED = 200_000
"""Nodes whose shapes are inferred in all rounds together, where `ROUNDS` are not enough: a network whose layers reckon
their pads from what the layer before gives takes a round or two for each.
"""


Output = tuple[ir.DataType | None, Sequence[int | str] | None]
"""Element type and shape of an output; None is a type or rank that is not known, "" an extent."""
OutputsOf = Callable[[ir.Node, Mapping[str, int]], Sequence[Output]]


def complete(model: ir.Model, outputs_of: OutputsOf | None = None) -> None:
    """Prepare a model for the layout engine, in place.

    1. Outputs of Constant nodes become initializers: a constant is stored as its readers want it.
    2. Values get the types and shapes that ONNX infers; those that a file states stay, but for numbers that do not
       follow from the inputs: these are prices only (`CLAIMED`).
    3. What operators give that ONNX does not know is asked for; a Transpose says what it reads by what it gives.
    4. Shapes and axes that the graph computes from known extents get a `const_value`; the nodes stay.

    What cannot be inferred stays unknown. The shapes that the file states of its outputs are in their `meta`, since an
    interface is kept as it is.

    Args:
        model: the model.
        outputs_of: what a node gives in a model of these opsets, by what is known of its inputs.
    """
    for value in model.graph.outputs:
        if STATED not in value.meta:
            value.meta[STATED] = value.shape
    _open_claims(model)
    interior = (value for node in model.graph for value in node.outputs if not value.is_graph_output())
    if not any(value.type or value.shape for value in interior):
        add_facts(model, states_no_shapes=True)
    lift_constants(model)
    if all(_is_known(value) for node in all_nodes(model.graph) for value in node.outputs):
        return
    names = _Names(model.graph)
    for _ in range(ROUNDS):
        begun = _begun(model)
        try:
            inferred, known = _with_states(model, names.used)
        except ReadError:  # it crashes
            raise
        except Exception:  # onnx raises types of its own; what is wrong is said when the result is checked
            return
        _complete(model.graph, inferred, names)
        for value in (value for node in model.graph for value in node.outputs):
            if value.name in known:
                value.const_value = ir.Tensor(known[value.name])
                value.shape = ir.Shape(known[value.name].shape)
        names.settle(model, outputs_of)
        if not _asked(model, outputs_of) and _begun(model) == begun:
            return


def _begun(model: ir.Model) -> int:
    """How many states of Loops begin with what is known of shape."""
    loops = (node for node in model.graph if node.op_type == "Loop" and not node.domain)
    return sum(value is not None and value.shape is not None for node in loops for value in node.inputs[2:])


def _open_claims(model: ir.Model) -> None:
    """Open the extents that a file states of values and that do not follow from its inputs, in place."""
    claimed = facts_of(model).unimplied
    if claimed:
        add_facts(model, unimplied=frozenset())
    for value in (value for node in model.graph for value in node.outputs) if claimed else ():
        if value.name in claimed:
            _open(value)


def _open(value: ir.Value) -> None:
    """Open the extents that a file states of a value; what it states is a price only."""
    if value.shape is not None and CLAIMED not in value.meta:
        value.meta[CLAIMED] = value.shape
        value.shape = ir.Shape([None if isinstance(dim, int) else dim for dim in value.shape])


def _open_body(body: ir.Graph) -> None:
    """Open what a body states that is given something else than it states; of its results it goes on stating that."""
    for value in body.outputs:
        value.meta.setdefault(STATED, value.shape)
    for node in all_nodes(body):
        for value in node.outputs:
            _open(value)


def _with_states(model: ir.Model, used: set[str]) -> tuple[onnx.GraphProto, dict[str, Array]]:
    """Infer with states of Loops that have in each run the rank and the extents that they begin with.

    ONNX assumes nothing of a state, whose shape may change. If a body that is given that shape gives it back, it does
    not: by induction, for all states of which it is assumed together. Of extents that do not come back nothing is
    assumed, and the others are tried again.
    """
    assumed = [state for node in model.graph for state in _assumed(node)]
    while assumed:
        for state in assumed:
            state.value.shape = ir.Shape([*state.dims])
        try:
            inferred, known = _inferred(without_weights(model), used)
        except Exception:  # an assumption may be what contradicts the graph
            break
        loops = {node.output[0]: node for node in inferred.node if node.op_type == "Loop"}
        weaker = [state.weakened(loops.get(state.node.outputs[0].name or "")) for state in assumed]
        for state in (state for state, other in zip(assumed, weaker, strict=True) if other is None):
            state.value.shape = state.before
        found = [state for state in weaker if state is not None]
        if found == assumed:
            return inferred, known
        assumed = found
    for state in assumed:
        state.value.shape = state.before
    return _inferred(without_weights(model), used)


Dims = tuple[int | str | None, ...]


class _State(NamedTuple):
    """A state of a Loop, of the shape that it is assumed to have in each run.

    Args:
        node: the Loop.
        slot: which of its states.
        value: the body's input.
        before: its shape without the assumption.
        first: the extents that it begins with.
        dims: those of them that are assumed, or what the file states.
    """

    node: ir.Node
    slot: int
    value: ir.Value
    before: ir.Shape | None
    first: Dims
    dims: Dims

    def weakened(self, node: onnx.NodeProto | None) -> _State | None:
        """The state with those extents alone that the body gives back; None where it gives no such rank."""
        bodies_of = [each.g for each in node.attribute if each.name == "body"] if node is not None else []
        if not bodies_of or len(bodies_of[0].output) <= self.slot + 1:
            return None
        tensor = bodies_of[0].output[self.slot + 1].type.tensor_type
        if not tensor.HasField("shape") or len(tensor.shape.dim) != len(self.dims):
            return None
        given = [dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None for dim in tensor.shape.dim]
        stated: Dims = (None,) * len(given) if self.before is None else _dims(self.before)
        pairs = zip(self.dims, given, self.first, stated, strict=True)
        return self._replace(
            dims=tuple([dim if dim == got or dim != begins else own for dim, got, begins, own in pairs])
        )


def _dims(shape: ir.Shape) -> Dims:
    return tuple([dim if isinstance(dim, int) else dim.value for dim in shape])


def _assumed(node: ir.Node) -> Iterator[_State]:
    """The states of a Loop that leave extents open, of the shape that they begin with.

    A number that the file states of a state which begins with an open extent is none that follows from its inputs.
    """
    attribute = node.attributes.get("body") if node.op_type == "Loop" else None
    if attribute is None or node.domain or not node.outputs:
        return
    for slot, (state, given) in enumerate(zip(attribute.as_graph().inputs[2:], node.inputs[2:], strict=False)):
        if given is None or given.shape is None or (state.shape is not None and len(state.shape) != len(given.shape)):
            continue
        first = _dims(given.shape)
        stated: Dims = (None,) * len(first) if state.shape is None else _dims(state.shape)
        more = [isinstance(own, int) and not isinstance(dim, int) for dim, own in zip(first, stated, strict=True)]
        if any(more):
            _open_body(attribute.as_graph())
            stated = tuple([None if says_more else own for own, says_more in zip(stated, more, strict=True)])
        if any(isinstance(own, int) and own != dim for dim, own in zip(first, stated, strict=True)):
            continue
        before = None if state.shape is None else ir.Shape([*stated])
        if any(not isinstance(own, int) for own in stated):
            dims = tuple([dim if dim is not None else own for dim, own in zip(first, stated, strict=True)])
            yield _State(node, slot, state, before, first, dims)


def _asked(model: ir.Model, outputs_of: OutputsOf | None) -> bool:
    """Find what shape inference does not, one node after another; whether anything was found."""
    nodes = list(all_nodes(model.graph))
    found = False
    for node in reversed(nodes):
        if node.op_type == "Transpose" and not node.domain:
            found |= _read_back(node)
    for node in nodes:
        if node.op_type == "Loop" and not node.domain:
            found |= _carried(node)
        if outputs_of is None or all(_is_known(value) for value in node.outputs if value.name):
            continue
        if node.domain in ("", "ai.onnx") and not found and _is_inferred(node, model.opset_imports):
            continue  # shape inference has seen as much of it
        for value, (kind, shape) in zip(node.outputs, outputs_of(node, model.opset_imports), strict=False):
            before = None if value.shape is None else list(value.shape)
            if value.name and shape is not None:
                value.shape = _better(value.shape, ir.Shape([dim or None for dim in shape]))
                found |= before is None or before != list(value.shape or ())
            if kind is not None and value.type is None:
                value.type = ir.TensorType(kind)
    return found


def _read_back(node: ir.Node) -> bool:
    """What a Transpose reads has the type and the extents of what it gives, or at least the rank of its perm.

    Returns:
        Whether that was not known.
    """
    perm, value = node.attributes.get_ints("perm"), node.inputs[0] if node.inputs else None
    if value is None or value.is_graph_input() or not node.outputs:
        return False
    given = node.outputs[0]
    if value.type is None:
        value.type = deepcopy(given.type)
    if perm is None or (value.shape is not None and all(not _is_open(dim) for dim in value.shape)):
        return False
    before = None if value.shape is None else list(value.shape)
    dims: list[int | ir.SymbolicDim | str] = [f"{value.name}_dim_{axis}" for axis in range(len(perm))]
    if given.shape is not None and sorted(perm) == list(range(len(given.shape))):
        for axis, dim in zip(perm, given.shape, strict=True):
            dims[axis] = dims[axis] if _is_open(dim) else dim
    value.shape = _better(value.shape, ir.Shape(dims))
    return before != list(value.shape or ())


def _is_inferred(node: ir.Node, opsets: Mapping[str, int]) -> bool:
    """Whether ONNX infers what an operator of the standard gives: of a GroupNormalization it does not."""
    try:
        schema = onnx.defs.get_schema(node.op_type, opsets.get("", 1), "")
    except onnx.defs.SchemaError:
        return False
    return bool(schema.has_type_and_shape_inference_function) or bool(schema.function_body.node)


def _carried(node: ir.Node) -> bool:
    """What a Loop gives of its states is what it was given or what its body gives: what their shapes share is known.

    What it stacks has as many slices as it runs.
    """
    attribute, found = node.attributes.get("body"), False
    if attribute is None or attribute.type != ir.AttributeType.GRAPH:
        return False
    body = attribute.as_graph()
    for state, begins, given, value in zip(
        body.inputs[2:], node.inputs[2:], body.outputs[1:], node.outputs, strict=False
    ):
        if state.shape is None or given.shape is None or len(state.shape) != len(given.shape) or _is_known(value):
            continue
        first = None if begins is None or begins.shape is None else _dims(begins.shape)
        names = first if first is not None and len(first) == len(state.shape) else ()
        pairs = zip_longest(_dims(state.shape), _dims(given.shape), names)
        shared = [a if a == b and (isinstance(a, int) or a == begun) else None for a, b, begun in pairs]
        before = value.shape
        value.shape = _better(before, ir.Shape(shared))
        found |= before is None or list(before) != list(value.shape or ())
    runs, states = _runs(node, body), max(0, len(node.inputs) - 2)
    for each, value in zip(body.outputs[1 + states :], node.outputs[states:], strict=False):
        if runs is not None and each.shape is not None and not (value.shape and isinstance(value.shape[0], int)):
            value.shape = _better(
                ir.Shape([runs, *(dim if isinstance(dim, int) else None for dim in each.shape)]), value.shape
            )
            found = True
    return found


def _runs(node: ir.Node, body: ir.Graph) -> int | None:
    """How often a Loop runs, where its count is known and its body goes on in every run: how `scan` is exported."""
    count, begins = (*node.inputs[:2], None, None)[:2]
    goes_on: ir.Value | None = body.outputs[0] if body.outputs else None
    while goes_on is not None and (maker := goes_on.producer()) is not None and maker.op_type == "Identity":
        goes_on = maker.inputs[0]
    if goes_on is None or len(body.inputs) < 2:
        return None
    asked = (goes_on,) if goes_on is not body.inputs[1] else ()
    if not all(each is None or _is_true(each) for each in (begins, *asked)):
        return None
    known = None if count is None else ir.convenience.get_const_tensor(count)
    return None if known is None or known.size != 1 else max(0, int(known.numpy().reshape(())))


def _is_true(value: ir.Value) -> bool:
    known = ir.convenience.get_const_tensor(value)
    return known is not None and known.size == 1 and bool(known.numpy().all())


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


def _is_known(value: ir.Value) -> bool:
    return value.type is not None and value.shape is not None and all(isinstance(dim, int) for dim in value.shape)


def _inferred(light: onnx.ModelProto, used: set[str]) -> tuple[onnx.GraphProto, dict[str, Array]]:
    """The graph with inferred types and shapes, and the values that are known in advance.

    Args:
        light: the model without its weights, which is changed.
        used: names that have been made up for extents, and are not again; it grows.
    """
    stated = {value.name: value for value in light.graph.value_info}
    symbols = set(_symbols([*light.graph.input, *light.graph.output, *light.graph.value_info]))
    whole: dict[str, onnx.ValueInfoProto] = {}
    known: dict[str, Array] = {}
    nodes = len(light.graph.node)
    # Before version 4 of the IR only what an input declares is an initializer: what is found would count for nothing.
    light.ir_version = max(light.ir_version, 4)
    for _ in range(max(ROUNDS, min(nodes, INFERRED // max(1, nodes)))):
        _reserve(light.graph, used)
        inferred, settled = infer_and_judge(light)
        if settled and not known:
            return inferred.graph, known
        whole.update({value.name: value for value in inferred.graph.value_info})
        found, shapes = _evaluated(inferred, known, symbols)
        if not found and not shapes:
            break
        known |= found
        kept = [node for node in light.graph.node if not any(name in known for name in node.output)]
        given = {tensor.name for tensor in light.graph.initializer}
        outputs = {value.name for value in light.graph.output}
        if any(name in outputs for name in found):
            break
        light.CopyFrom(inferred)
        # What is known is an initializer from here on; ONNX would believe the symbols of its value_info instead, and
        # symbols of its own beside those that are found.
        stated |= {value.name: value for value in shapes}
        open_still = [value for name, value in stated.items() if name not in known]
        del light.graph.node[:], light.graph.value_info[:]
        light.graph.node.extend(kept)
        light.graph.value_info.extend(open_still)
        light.graph.initializer.extend(
            numpy_helper.from_array(known[name], name) for name in found if name not in given
        )
    result = onnx.GraphProto()
    result.CopyFrom(inferred.graph)
    named = {value.name for value in result.value_info}
    result.value_info.extend(value for name, value in whole.items() if name not in named)
    _name_by_others(result, inferred, known, symbols)
    return result, known


def _reserve(graph: onnx.GraphProto, used: set[str]) -> None:
    """Have an input whose extents are all names that were made up: ONNX makes none up that the graph has."""
    for dim in _open_dims(graph, (*graph.input, *graph.output, *graph.value_info)):
        used.update(MADE_UP.findall(dim.dim_param))
    if graph.input and graph.input[-1].name == RESERVED:
        del graph.input[-1]
    graph.input.append(onnx.helper.make_tensor_value_info(RESERVED, onnx.TensorProto.FLOAT, sorted(used)))


def _name_by_others(
    graph: onnx.GraphProto, inferred: onnx.ModelProto, known: Mapping[str, Array], symbols: Container[str]
) -> None:
    """Say extents that shape inference had to make names for in other names: `height`, `height*width`."""
    dims = list(_open_dims(graph, graph.value_info))
    if not any(_is_made_up(dim.dim_param, symbols) for dim in dims):
        return
    evaluation = Evaluation(inferred, known)
    for node in inferred.graph.node:
        if node.domain not in ("", "ai.onnx"):
            continue
        for _ in evaluation.run(node):
            pass
        items = evaluation.slid(node) if node.op_type in WINDOWS else evaluation.told(node)
        items = evaluation.broadcast(node) if node.op_type in BROADCASTING else items
        for dim, item in zip(evaluation.dims(node.output[0]) or (), items, strict=False):
            if isinstance(dim, Extent) and len(dim.symbols) == dim.number == 1 and item not in (None, dim):
                (name,) = dim.symbols
                if _is_made_up(name, symbols):
                    evaluation.named[name] = item
    for dim in dims:
        item = evaluation.named.get(dim.dim_param)
        if item is not None:
            dim.Clear()
            if isinstance(item, int):
                dim.dim_value = item
            else:
                dim.dim_param = str(item)


def _open_dims(
    graph: onnx.GraphProto, values: Iterable[onnx.ValueInfoProto]
) -> Iterator[onnx.TensorShapeProto.Dimension]:
    """The dynamic dimensions of some values of a graph, and of all in its nodes' bodies, which share their names."""
    for value in values:
        yield from (dim for dim in value.type.tensor_type.shape.dim if dim.dim_param)
    for node in graph.node:
        for attribute in node.attribute:
            for body in graphs_in(attribute):
                yield from _open_dims(body, (*body.input, *body.value_info, *body.output))


def _is_made_up(name: str, symbols: Container[str]) -> bool:
    """Whether shape inference made a name up, now or when the file was written."""
    return name not in symbols or MADE_UP.fullmatch(name) is not None


def _evaluated(
    model: onnx.ModelProto, known: Mapping[str, Array], symbols: Container[str]
) -> tuple[dict[str, Array], list[onnx.ValueInfoProto]]:
    """What of the main graph follows from what is known, and was not known before: values, and shapes of values.

    Shape inference names an extent that it does not know; `symbols` are those that the file has.
    """
    evaluation = Evaluation(model, known)
    shapes = {value.name: value for value in model.graph.value_info}
    values: dict[str, Array] = {}
    found: dict[str, onnx.ValueInfoProto] = {}
    for node in model.graph.node:
        if node.domain not in ("", "ai.onnx") or node.output[0] in known:
            continue
        values.update(evaluation.run(node))
        told = [(name, evaluation.told(node)) for name in (node.output if node.op_type in CUTTING else node.output[:1])]
        # A chain of shapes that are reckoned from those before them is gone through at once.
        if any(name in found for name in node.input):
            told += evaluation.followed(node)
        for name, items in told:
            value = _named(found.get(name, shapes[name]), items, symbols) if name in shapes else None
            if value is not None:
                found[name] = value
                evaluation.shapes[name] = value.type.tensor_type
    return values, list(found.values())


def _named(value: onnx.ValueInfoProto, shape: Sequence[Item], symbols: Container[str]) -> onnx.ValueInfoProto | None:
    """The value with those extents that are known of it, in the file's symbols; None: they say nothing new.

    Of the others the names go: the next inference numbers what it does not know anew.
    """
    better = onnx.ValueInfoProto()
    better.CopyFrom(value)
    dims, new = better.type.tensor_type.shape.dim, False
    if shape and not better.type.tensor_type.HasField("shape"):  # before opset 14 not even the rank is inferred
        dims.extend(onnx.TensorShapeProto.Dimension() for _ in shape)
        new = True
    for dim, item in zip(dims, shape, strict=False):
        if dim.HasField("dim_value") or dim.dim_param in symbols:
            continue
        before = dim.dim_param
        dim.Clear()
        if isinstance(item, int):
            dim.dim_value = item
        elif item is not None and all(symbol in symbols for symbol in item.names):
            dim.dim_param = str(item)
        new |= dim.WhichOneof("value") is not None and dim.dim_param != before
    return better if new and len(dims) == len(shape) else None


def _symbols(values: Iterable[onnx.ValueInfoProto]) -> Iterator[str]:
    for value in values:
        yield from (dim.dim_param for dim in value.type.tensor_type.shape.dim if dim.dim_param)


class _Names:
    """Names that inference made up for extents, and what else these are called.

    A name is one extent in all of a run, and is never made up again for another: `used` has those that there were.
    """

    def __init__(self, graph: ir.Graph) -> None:
        self.used: set[str] = set()
        ends = (*graph.inputs, *graph.outputs)
        shapes = (shape for end in ends for shape in (end.shape, end.meta.get(STATED)) if shape is not None)
        self._kept = {name for shape in shapes for dim in shape for name in _symbols_of(dim)}
        self._same: dict[str, Extent] = {}

    def learn(self, before: ir.Shape | None, after: Sequence[int | ir.SymbolicDim | str] | None) -> None:
        """What another shape of the same value says instead of names that were made up."""
        if before is None or after is None or len(before) != len(after):
            return
        for dim, other in zip(before, after, strict=True):
            name = None if isinstance(dim, int) else dim.value
            found = other if isinstance(other, int | str) else other.value
            if name is None or found in (None, "") or not MADE_UP.fullmatch(name) or name in self._kept:
                continue
            extent = self._of(Extent.of(found))
            if name not in self._same and name not in extent.names:
                self._same[name] = extent

    def settle(self, model: ir.Model, outputs_of: OutputsOf | None) -> None:
        """Say every extent by its one name, node after node: by what a node reads its outputs' may be known.

        [b, 8, h, w] -> Conv -> [unk__8, 8, h, w]: unk__8 is b
        """
        for node in model.graph:
            for value in node.outputs if self._same else ():
                self._rename(value)
            if outputs_of is not None and any(any(map(_is_made_up_here, v.shape or ())) for v in node.outputs):
                for value, (_, shape) in zip(node.outputs, outputs_of(node, model.opset_imports), strict=False):
                    self.learn(value.shape, shape)
                    self._rename(value)
        for value in (value for node in all_nodes(model.graph) for value in node.outputs) if self._same else ():
            self._rename(value)

    def _of(self, extent: Extent) -> Extent:
        while not self._same.keys().isdisjoint(extent.names):
            extent = extent.fixed({name: str(self._same[name]) for name in extent.names if name in self._same})
        return extent

    def _rename(self, value: ir.Value) -> None:
        if value.shape is None or not any(self._same.keys() & _symbols_of(dim) for dim in value.shape):
            return
        dims = [
            dim if isinstance(dim, int) or dim.value is None else self._of(Extent.of(dim.value)) for dim in value.shape
        ]
        value.shape = ir.Shape([(d.number if d.is_static else str(d)) if isinstance(d, Extent) else d for d in dims])


def _symbols_of(dim: int | ir.SymbolicDim) -> frozenset[str]:
    return frozenset() if isinstance(dim, int) or dim.value is None else Extent.of(dim.value).names


def _is_made_up_here(dim: int | ir.SymbolicDim) -> bool:
    return not isinstance(dim, int) and dim.value is not None and MADE_UP.fullmatch(dim.value) is not None


def _complete(graph: ir.Graph, inferred: onnx.GraphProto, names: _Names) -> None:
    types = _Types(names)
    found = {value.name: value.type for value in (*inferred.value_info, *inferred.output)}
    for node in graph:
        for value in node.outputs:
            declared = found.get(value.name or "")
            if declared is not None and not holds_map(declared) and not _is_known(value):
                types.give(value, declared)
    nested = {node.outputs[0].name: node for node in graph if node.attributes and node.outputs and bodies(node)}
    for proto in inferred.node if nested else ():
        outer = nested.get(proto.output[0]) if proto.output else None
        for attribute in proto.attribute:
            if outer is not None and attribute.HasField("g"):
                body = outer.attributes[attribute.name].as_graph()
                for value, declared in zip(body.inputs, attribute.g.input, strict=True):
                    if value.shape is None:
                        types.give(value, declared.type)
                _complete(body, attribute.g, names)


class _Types:
    """Types and shapes as protobuf has them: a graph of thousands of values has few."""

    def __init__(self, names: _Names) -> None:
        self._names = names
        self._known: dict[bytes, tuple[ir.TypeProtocol | None, ir.Shape | None]] = {}

    def give(self, value: ir.Value, declared: onnx.TypeProto) -> None:
        """Give a value a type, if it has none, and a shape, or extents that its own leaves open."""
        key = declared.SerializeToString()
        if key not in self._known:
            self._known[key] = (
                ir.serde.deserialize_type_proto_for_type(declared),
                ir.serde.deserialize_type_proto_for_shape(declared),
            )
        made, shape = self._known[key]
        if value.type is None:  # each value its own: a type can be changed
            plain = type(made) is ir.TensorType
            value.type = ir.TensorType(made.dtype, denotation=made.denotation) if plain and made else deepcopy(made)
        before = value.shape
        value.shape = _better(before, None if shape is None else shape.copy(), kept=value.is_graph_output())
        if before is not None and value.shape is not None:
            self._names.learn(before, tuple(value.shape))


def _better(stated: ir.Shape | None, inferred: ir.Shape | None, *, kept: bool = True) -> ir.Shape | None:
    """The stated shape, with the extents that it leaves open taken from the inferred one, and, where it need not be
    `kept`, those that an inference before has made names for.
    """
    if stated is None or inferred is None or len(stated) != len(inferred):
        return stated if stated is not None else inferred
    pairs = zip(stated, inferred, strict=True)
    return ir.Shape([b if isinstance(b, int) or _is_open(a, kept=kept) else a for a, b in pairs])


def _is_open(dim: int | ir.SymbolicDim, *, kept: bool = True) -> bool:
    if isinstance(dim, int):
        return False
    return dim.value is None or (not kept and MADE_UP.fullmatch(dim.value) is not None)
