"""Passes over the graph of a model as it was read, for results of any format, and what runs them."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.formats.onnx.folding import bytes_of_weights
from relayout.formats.onnx.qonnx import define_quantizers
from relayout.formats.tflite.spelled_out import RESTORED
from relayout.graph.passes import Pass
from relayout.graph.source_names import Names
from relayout.graph.subgraphs import all_graphs, graph_values, inline_body, nested, take_over

if TYPE_CHECKING:
    from relayout.formats.tflite.spelled_out import Builtin

ROUNDS = 12


@dataclass
class UnpreparedModel:
    """A model before its layouts are chosen: what passes over it see and change."""

    model: ir.Model
    complete: Callable[[ir.Model], None]  # what infers types and shapes of what is new
    from_tflite: bool = False  # whether it was just read from a `.tflite`
    # whether the result may have a builtin that nodes say that they were
    is_restored: Callable[[Builtin], bool] = lambda _: True
    # whether a node becomes others later, before layouts are chosen, or a CUSTOM operator
    needs_no_definition: Callable[[tuple[str, str], ir.Node], bool] = lambda *_: False
    is_looped: Callable[[ir.Node], bool] = lambda _: True  # whether a recurrent node of many steps may be a loop
    steps_are_faster: bool = True  # whether an LSTM takes less time step by step than by a kernel for all steps
    joins_recurrences: bool = False  # whether small recurrent nodes may be one, which rounds integers otherwise
    element_bytes: int = 4  # of an element of recurrent weights in the result

    names: Names = field(default_factory=lambda: Names(set()))  # of all values; they grow
    weight_bytes: int = 0  # of the constants before any was computed


def prepare(
    source: UnpreparedModel,  # the model
    passes: Sequence[Pass],  # in order
    repeated: Container[str],  # names of passes that run again until none of them reports a change
) -> bool:
    """Run passes over a model in place: some once, some until nothing changes any more, some once again.

    Returns:
        Whether one of those that repeat changed anything.
    """

    def run(rows: Iterable[Pass]) -> bool:
        source.names = Names.of(source.model)
        changes = [row.run(source) for row in rows]  # all of them, whether or not one changed anything
        return any(changes)

    places = [place for place, row in enumerate(passes) if row.name in repeated]
    first = places[0] if places else len(passes)
    run(passes[:first])
    source.weight_bytes = bytes_of_weights(source.model)
    is_changed = False
    for _ in range(ROUNDS):
        if not run(passes[place] for place in places):
            break
        is_changed = True
        source.complete(source.model)
    run(row for row in passes[first:] if row.name not in repeated)
    return is_changed


def inline_branches(model: ir.Model) -> bool:
    """Replace each If whose condition is constant by its branch, in place; return whether there were any."""
    has_branches = False
    for graph in list(all_graphs(model.graph)):
        for node in list(graph):
            condition = node.inputs[0] if node.op_type == "If" and not node.domain and node.inputs else None
            if condition is None or condition.const_value is None or condition.is_graph_input():
                continue
            chosen = "then_branch" if condition.const_value.numpy().reshape(-1)[0] else "else_branch"
            _inline(graph, node, node.attributes[chosen].as_graph(), Names.of(model))
            has_branches = True
    return has_branches


def _inline(graph: ir.Graph, node: ir.Node, body: ir.Graph, names: Names) -> None:
    """Put the nodes of a branch in the place of its If."""
    outputs = list(body.outputs)
    inline_body(graph, node, body, lambda name: names.unique(f"{node.name or 'If'}/{name}"), deep=False)
    for output, value in zip(node.outputs, outputs, strict=True):
        copy = ir.Node("", "Identity", [value], name=f"{node.name or 'If'}/Identity")
        graph.insert_before(node, copy)
        output.shape, output.type = value.shape or output.shape, value.type or output.type
        take_over(copy.outputs[0], output)
    _remove(graph, node)


def _remove(graph: ir.Graph, node: ir.Node) -> None:
    """Remove a node; what its bodies read of outside has one reader less."""
    for inner in nested(node):
        inner.resize_inputs(0)
    graph.remove(node, safe=True)


def remove_unread(model: ir.Model) -> None:
    """Remove nodes whose results nobody reads, in place."""
    for node in reversed(list(model.graph)):
        if not any(value.uses() or value.is_graph_output() for value in node.outputs) and RESTORED not in node.meta:
            _remove(model.graph, node)


def define_quantizers_first(model: ir.Model, names: Names, complete: Callable[[ir.Model], None]) -> None:
    """Write quantizers of QONNX by operators of the standard, in place."""
    if define_quantizers(model, names):
        complete(model)


# Float64 and bfloat16 of a model as float32, whose kernels every runtime has: `--float32`.
#
#     Cast<to=DOUBLE>(x); Mul<DOUBLE>(y, w: DOUBLE)  ->  Cast<to=FLOAT>(x); Mul<FLOAT>(y, w: FLOAT)
#
# Types alone change, of every value at once, so each operator has one type for its operands as before.

CONVERTED = {ir.DataType.DOUBLE: "float64", ir.DataType.BFLOAT16: "bfloat16"}
"""Types that become float32, and their names in a report."""
TYPES = ("to", "dtype", "output_datatype", "output_dtype", "softmax_precision", "stash_type")
"""Attributes that hold the number of an element type."""


def use_float32(model: ir.Model) -> tuple[str, ...]:
    """Give values of float64 and bfloat16 the type float32, in place: inputs, outputs and constants included.

    Finite numbers beyond the range of float32 become its largest, so a mask of the least float64 stays finite. Numbers
    next to 0 become its smallest, so what keeps a divisor from being 0 still does.

    Returns:
        A sentence for the report, which names the types; empty where the model has none of them.
    """
    converted: set[ir.DataType] = set()
    for graph in chain(all_graphs(model.graph), *(all_graphs(each.graph) for each in model.functions.values())):
        for value in dict.fromkeys(graph_values(graph)):
            if value.dtype in CONVERTED:
                converted.add(value.dtype)
                assert value.type is not None
                value.type.dtype = ir.DataType.FLOAT
            if value.const_value is not None and value.const_value.dtype in CONVERTED:
                value.const_value = _as_float32(value.const_value)
        for node in graph:
            converted |= _convert_attributes(node)
    names = " and ".join(name for kind, name in CONVERTED.items() if kind in converted)
    return (f"computed in float32, inputs and outputs included: {names}",) if converted else ()


def _convert_attributes(node: ir.Node) -> set[ir.DataType]:
    """Let the attributes of a node name and hold float32, in place; return the types that they had."""
    converted = set()
    for name, attribute in list(node.attributes.items()):
        if attribute.is_ref():
            continue
        if attribute.type == ir.AttributeType.INT and name in TYPES and attribute.value in CONVERTED:
            converted.add(ir.DataType(attribute.value))
            node.attributes[name] = ir.AttrInt64(name, int(ir.DataType.FLOAT))
        elif attribute.type == ir.AttributeType.TENSOR and attribute.value.dtype in CONVERTED:
            converted.add(attribute.value.dtype)
            node.attributes[name] = ir.AttrTensor(name, _as_float32(attribute.value))
        elif attribute.type == ir.AttributeType.TYPE_PROTO and attribute.value.type.dtype in CONVERTED:
            converted.add(attribute.value.type.dtype)
            attribute.value.type.dtype = ir.DataType.FLOAT
    return converted


def _as_float32(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    """Return a tensor of float64 or bfloat16 as one of float32, read when it is used."""
    return ir.LazyTensor(
        lambda: ir.Tensor(_rounded(tensor.numpy()), name=tensor.name),
        dtype=ir.DataType.FLOAT,
        shape=ir.Shape(tensor.shape.numpy()),
        name=tensor.name,
    )


def _rounded(array: NDArray[Any]) -> NDArray[np.float32]:
    """Return an array in single precision; finite numbers stay finite, and only 0 is 0.

    >>> _rounded(np.array([-1e300, 0.5, np.inf, 1e-300]))
    array([-3.4028235e+38,  5.0000000e-01,            inf,  1.1754944e-38],
          dtype=float32)
    """
    limits = np.finfo(np.float32)
    wide = array.astype(np.float64)
    finite = np.clip(wide, -limits.max, limits.max)
    is_tiny = (wide != 0) & (np.abs(wide) < limits.tiny)  # kernels take smaller numbers for 0
    return np.where(np.isinf(wide), wide, np.where(is_tiny, np.copysign(limits.tiny, wide), finite)).astype(np.float32)
