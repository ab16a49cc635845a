"""A part of an ONNX graph: what lies between named values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count

import onnx_ir as ir

from relayout.errors import NamesError, nearest_values
from relayout.formats.onnx.parts import ANNOTATION
from relayout.graph.facts import copy_facts, facts_of
from relayout.graph.subgraphs import all_nodes, reads
from relayout.layout.stored_as import TENSOR


def cut(model: ir.Model, inputs: Sequence[str] | None, outputs: Sequence[str] | None) -> ir.Model:
    """The part of a model that computes `outputs` from `inputs`.

    1. Without `outputs` the part ends where the model does; without `inputs` it begins there.
    2. `inputs` come first, in the order given. An input of the model that the part needs besides stays an input.
    3. What none of the outputs needs is dropped.

    Args:
        model: completed, so that types and shapes are known where they can be.
        inputs: names of values of the main graph: its inputs, or interior values.
        outputs: likewise.

    Raises:
        NamesError: a name is unknown, inside a subgraph, given twice or on both sides, an output of the part is of
            unknown type or a constant, or an input cannot be one: a constant, of unknown type or rank, or not what any
            of the outputs is computed from.
    """
    graph = model.graph
    known = _known(graph)
    starts = [_find(model, known, "inputs", name) for name in _once("inputs", inputs or ())]
    ends = [_find(model, known, "outputs", name) for name in _once("outputs", outputs or ())] or list(graph.outputs)
    for value, name in zip(starts, inputs or (), strict=True):
        _check_start(value, name, ends)
    for value, name in zip(ends, outputs or (), strict=False):
        _check_end(value, name)
    read = _reached(graph, ends, set(starts))
    for value, name in zip(starts, inputs or (), strict=True):
        if value not in read and not value.is_graph_input():
            raise NamesError(f"--inputs {name}: none of the outputs is computed from it, or only through other inputs")
    starts += [value for value in graph.inputs if value in read and value not in starts and not value.is_initializer()]
    part = ir.convenience.extract(graph, [_entry(graph, value) for value in starts], ends)
    return _make_model(model, part)


def _check_end(value: ir.Value, name: str) -> None:
    """Refuse what cannot be an output: an input, too, unless the model itself gives it back."""
    if value.is_graph_input() and not value.is_graph_output():
        raise NamesError(f"--outputs {name}: it is an input of the model: nothing lies in between")
    if value.const_value is not None and not value.is_graph_output():
        raise NamesError(f"--outputs {name}: it is a constant")
    if value.type is None:
        raise NamesError(f"--outputs {name}: its type is not known, so it cannot be an output")


def _make_model(model: ir.Model, part: ir.Graph) -> ir.Model:
    """Return a part of a model's graph as a model with the same facts."""
    if facts_of(model).is_annotated:
        _keep_named(model.graph, part)
    result = ir.Model(
        part,
        ir_version=model.ir_version,
        producer_name=model.producer_name,
        producer_version=model.producer_version,
        domain=model.domain,
        model_version=model.model_version,
        doc_string=model.doc_string,
        functions=tuple(model.functions.values()),
        metadata_props=dict(model.metadata_props),
    )
    copy_facts(model, result)
    return result


def _keep_named(graph: ir.Graph, part: ir.Graph) -> None:
    """The scales and zero points of the part's values, which no node need read."""
    values = [*part.inputs, *(value for node in part for value in node.outputs)]
    named = {name for value in values for name in value.meta.get(ANNOTATION, {}).values()}
    for name, value in graph.initializers.items():
        if name in named and name not in part.initializers:
            kept = ir.Value(name=name, type=value.type, shape=value.shape, const_value=value.const_value)
            part.register_initializer(kept)


def _once(side: str, names: Sequence[str]) -> Sequence[str]:
    for i, name in enumerate(names):
        if name in names[:i]:
            raise NamesError(f"--{side}: {name!r} is given twice")
    return names


def _known(graph: ir.Graph) -> dict[str, ir.Value]:
    values = [*graph.inputs, *graph.initializers.values(), *(value for node in graph for value in node.outputs)]
    other = {value.metadata_props[TENSOR]: value for value in reversed(values) if TENSOR in value.metadata_props}
    return other | {value.name: value for value in reversed(values) if value.name}


def _find(model: ir.Model, known: dict[str, ir.Value], side: str, name: str) -> ir.Value:
    value = known.get(name)
    if value is not None:
        return value
    for node in all_nodes(model.graph):
        if node.graph is not model.graph and any(made.name == name for made in node.outputs):
            raise NamesError(
                f"--{side} {name}: the value lies inside the body of another operator; a cut goes around it"
            )
    computed = (each for each, held in known.items() if held.const_value is None)
    raise NamesError(f"--{side} {name}: the model has no value of that name{nearest_values(name, computed)}")


def _check_start(value: ir.Value, name: str, ends: list[ir.Value]) -> None:
    if value.is_initializer() and not value.is_graph_input():
        raise NamesError(f"--inputs {name}: it is a constant")
    if any(value is end for end in ends):
        raise NamesError(f"{name!r} is an input and an output of the part: nothing lies in between")
    if value.type is None or value.dtype is None or value.shape is None:
        raise NamesError(f"--inputs {name}: its type and rank are not known, so it cannot be an input")


def _reached(graph: ir.Graph, ends: Iterable[ir.Value], starts: set[ir.Value]) -> set[ir.Value]:
    """Every value that the ends are computed from, not looking beyond the starts."""
    seen: set[ir.Value] = set()
    left = list(ends)
    while left:
        value = left.pop()
        if value in seen:
            continue
        seen.add(value)
        node = value.producer()
        if value not in starts and node is not None:
            left += [read for read in reads(node) if read.graph is graph and read not in seen]
    return seen


def _entry(graph: ir.Graph, value: ir.Value) -> ir.Value:
    """An input in the place of an interior value. What makes that value may stay for other results of its own."""
    if value.is_graph_input():
        return value
    dims = [
        dim if isinstance(dim, int) or dim.value is not None else f"{value.name}_{axis}"
        for axis, dim in enumerate(value.shape or ())
    ]
    entry = ir.Value(name=value.name, type=value.type, shape=ir.Shape(dims), doc_string=value.doc_string)
    entry.metadata_props.update(value.metadata_props)
    entry.meta.update({key: said for key, said in value.meta.items() if key == ANNOTATION})
    taken = {other.name for node in all_nodes(graph) for other in node.outputs}
    value.name = next(name for k in count() if (name := f"{entry.name}__unread{k or ''}") not in taken)
    value.replace_all_uses_with(entry, replace_graph_outputs=True)
    graph.inputs.append(entry)
    return entry
