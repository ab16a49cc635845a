"""Numbers that a model states or implies of its values: steps, bounds, rates, initial states, extents."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import onnx_ir as ir

from relayout.errors import LayoutError
from relayout.formats.onnx.completing import complete
from relayout.layout.stored_as import INITIAL, TENSOR, Holds, relay
from relayout.rules import Operator, Permuted, Signature, domain_of_version, facts, outputs_of
from relayout.verification.side import Array, Places

# Initial values of inputs that are state from run to run, from a model's metadata (`relayout.initial`).


def initial_state(
    text: str,  # the metadata: JSON, in the order of axes of the first source
    dtype: np.dtype[Any],  # the input's type
    stored: tuple[int, ...],  # its shape
    source_values: Sequence[Holds],  # what the input holds of its sources
    names: Collection[str],  # what it is called, here and in the source
) -> Array | None:
    """Return the array, stored as the input is; None if the text is not as it is written."""
    try:
        array = np.array(json.loads(text), dtype)
        for item in reversed(source_values):  # the oldest of a name: the values are those of the first source
            if array.ndim and item.name in names:
                return np.asarray(relay(array, item, stored))
        return np.broadcast_to(array, stored)
    except (ValueError, TypeError, OverflowError, RecursionError, LayoutError):  # not as we write it
        return None


# Numbers that the nodes and the metadata of a graph state of a value: steps, bounds, rates, initial states.

COUNTING_OPERAND = {"Gather": 1, "GatherND": 1, "GatherElements": 1, "MaxUnpool": 1}
"""Operators with an operand that counts elements of the first one along an axis, and which."""
COUNTING_ALL = frozenset({"MaxUnpool"})
"""Those of which the operand counts all elements; of a result that has at least as many."""
RATES = {"MelWeightMatrix": 2}  # operators with an operand that is a sample rate, and which
QUANTIZING = {"QuantizeLinear", "DynamicQuantizeLinear", "DequantizeLinear"}
DEQUANTIZING = {"DequantizeLinear"}
SCATTERING = {"ScatterND": False, "ScatterElements": True, "Scatter": True, "MaxUnpool": None}
"""Operators whose second operand are places, and whether these lie along an axis; None: they count all elements. The
standard lets no one write one twice without a reduction."""

AS_THEY_ARE = frozenset({"Cast", "Identity"})  # operators that keep integers
JOINING, WITH_AN_AXIS = frozenset({"Concat"}), frozenset({"Unsqueeze"})
"""Operators that put columns of indices beside each other, and that make a column of a vector."""


def quantizes(node: ir.Node) -> bool:
    """Return whether a node makes integers that stand for real numbers, or reads them."""
    return node.op_type in QUANTIZING or node.op_type.startswith("QLinear")


def has_constant_scale(node: ir.Node) -> bool:
    """Return whether a node makes integers of a constant scale: a hybrid operator computes its own when it runs."""
    if node.op_type in DEQUANTIZING or not quantizes(node):
        return False
    return len(node.inputs) > 1 and node.inputs[1] is not None and node.inputs[1].const_value is not None


def step_of(node: ir.Node) -> float:
    """Return the step of the integers that a node quantizes to or dequantizes; 0 if its scale is computed."""
    scale = node.inputs[1].const_value if len(node.inputs) > 1 and node.inputs[1] is not None else None
    return 0.0 if scale is None or not scale.size else float(np.abs(scale.numpy()).max())


def dequantized_step(node: ir.Node | None) -> float:
    """Return the step of the integers that a node dequantizes; 0 of any other node."""
    return step_of(node) if node is not None and node.op_type in DEQUANTIZING else 0.0


def operand_names(node: ir.Node | None) -> tuple[str, ...]:
    """Return the names of the values that a node reads."""
    return tuple(one.name or "" for one in node.inputs if one is not None) if node else ()


def initial_array(value: ir.Value) -> Array | None:
    """Return the initial value of an input, stored as the input is; None if none is stated, or dimensions are open."""
    notes = value.metadata_props
    if INITIAL not in notes or value.dtype is None or value.shape is None or not value.shape.is_static():
        return None
    source_values = Holds.of(notes)
    names = (value.name or "", notes.get(TENSOR, ""))
    return initial_state(notes[INITIAL], value.dtype.numpy(), tuple(value.shape.numpy()), source_values, names)


def index_bounds(graph: ir.Graph) -> dict[str, int]:
    """Graph inputs that operators count with, and how far they may."""
    bounds_by_input: dict[str, list[int]] = defaultdict(list)
    for node in graph:
        place = COUNTING_OPERAND.get(node.op_type)
        if place is None or len(node.inputs) <= place:
            continue
        data, indices = node.inputs[0], node.inputs[place]
        if data is None or indices is None or data.shape is None:
            continue
        extents = [extent for extent in data.shape if isinstance(extent, int)]
        if node.op_type not in COUNTING_ALL:
            bounds_by_input[indices.name or ""].append(min(extents, default=1))
        elif len(extents) == len(data.shape):
            bounds_by_input[indices.name or ""].append(prod(extents))
    return {name: min(bounds) for name, bounds in bounds_by_input.items()}


def _writes_once(node: ir.Node) -> bool:
    return node.op_type in SCATTERING and node.attributes.get_string("reduction", "none") == "none"


def written_places(graph: ir.Graph) -> set[str]:
    """Values from which nodes compute the places that they write to, each no more than once, and those places."""
    names: set[str] = set()
    for node in reversed(graph):
        if _writes_once(node):
            names.update(operand_names(node)[1:2])
        elif names.intersection(value.name or "" for value in node.outputs):
            names.update(operand_names(node))
    return names


def named_places(
    graph: ir.Graph,
    inferred: Mapping[str, ir.Value],  # values by name, with shapes that the graph may not state
) -> dict[str, Places]:
    """Return the graph inputs that name elements to write to, and which ones they may name."""
    places: dict[str, Places] = {}
    for node in graph:
        data, indices = node.inputs[:2] if len(node.inputs) > 1 else (None, None)
        if not _writes_once(node) or data is None or indices is None or SCATTERING[node.op_type] is None:
            continue
        shape = inferred.get(data.name or "", data).shape if data.shape is None else data.shape
        if shape is None:
            continue
        extents = tuple(extent if isinstance(extent, int) else None for extent in shape)
        if SCATTERING[node.op_type]:
            name, axis = _as_it_is(indices).name, node.attributes.get_int("axis", 0)
            places[name or ""] = Places(extents, axis)
        else:
            places |= _columns(indices, extents)
    return places


def _columns(indices: ir.Value, extents: tuple[int | None, ...]) -> dict[str, Places]:
    """Return the inputs that hold numbers of the first axes, as rows of all of them or each axis for itself."""
    indices = _as_it_is(indices)
    node = indices.producer()
    if node is None:
        return {indices.name or "": Places(extents)}
    columns = node.inputs if node.op_type in JOINING else (indices,)
    places_by_input: dict[str, Places] = {}
    for column, extent in zip(columns, extents, strict=False):
        before = None if column is None else _as_it_is(column).producer()
        if before is not None and before.op_type in WITH_AN_AXIS and before.inputs[0] is not None:
            source = _as_it_is(before.inputs[0])
            if source.shape is not None and len(source.shape) == 1:
                places_by_input[source.name or ""] = Places((extent,), 0)
    return places_by_input


def _as_it_is(value: ir.Value) -> ir.Value:
    """Return the value that a value holds the integers of."""
    while (node := value.producer()) is not None and node.op_type in AS_THEY_ARE and node.inputs[0] is not None:
        value = node.inputs[0]
    return value


def sample_rates(graph: ir.Graph) -> set[str]:
    """Graph inputs that operators read as sample rates."""
    read = ((node, RATES[node.op_type]) for node in graph if node.op_type in RATES)
    operands = (node.inputs[place] for node, place in read if len(node.inputs) > place)
    return {value.name or "" for value in operands if value is not None}


def nodes_in_float(graph: ir.Graph) -> dict[str, tuple[str, ...]]:
    """Return type -> names of the nodes that give floats, where a node behind them does not quantize these at once."""
    on_integers: set[ir.Node] = set()
    names: dict[str, list[str]] = {}
    for node in reversed(graph):
        if node.op_type in QUANTIZING:
            continue
        uses = [use.node for value in node.outputs for use in value.uses()]
        if uses and all(use.op_type in QUANTIZING or use in on_integers for use in uses):
            on_integers.add(node)
        elif any(value.dtype is not None and value.dtype.is_floating_point() for value in node.outputs):
            names.setdefault(node.op_type, []).append(node.name or node.outputs[0].name or "")
    return {operator: tuple(each[::-1]) for operator, each in reversed(names.items())}


def ranges_of_inputs(graph: ir.Graph, ends: Mapping[str, tuple[float, int]]) -> dict[str, tuple[float, float, float]]:
    """Return the least and the greatest number that each input may be without being clipped, and the step between two.

    Args:
        graph: the graph.
        ends: inputs and outputs that are quantized -> scale and zero point.
    """
    range_by_input = {}
    for value in graph.inputs:
        name = value.name or ""
        if name in ends:
            range_by_input[name] = _range(*ends[name], value.dtype)
        for use in value.uses():
            if use.node.op_type in QUANTIZING and (scale := step_of(use.node)):
                range_by_input[name] = _range(scale, _zero_of(use.node), use.node.outputs[0].dtype)
    return range_by_input


def _zero_of(node: ir.Node) -> int:
    zero = node.inputs[2] if len(node.inputs) > 2 else None
    return 0 if zero is None or zero.const_value is None else int(zero.const_value.numpy().max())


def _range(scale: float, zero: int, dtype: ir.DataType | None) -> tuple[float, float, float]:
    limits = np.iinfo(np.uint8 if dtype is None or not dtype.is_integer() else dtype.numpy())
    return scale * (int(limits.min) - zero), scale * (int(limits.max) - zero), scale


# Extents of inputs that a model leaves open and its weights imply: the width that a recurrent layer multiplies by.

Extents = list[int | None]


def implied_extents(
    model: ir.Model,  # the model; it is not changed
) -> dict[str, tuple[int | None, ...]]:
    """Return, for each input that has open extents, those that operators on the way to their weights imply.

    Axes that an operator calls by one letter have one extent. From the last node to the first, what is known of an axis
    by its other operands and by its output is known of what it reads.
    """
    if all(value.shape is not None and value.shape.is_static() for value in model.graph.inputs):
        return {}
    model = model.clone()
    complete(model, outputs_of)
    known: dict[ir.Value, Extents] = {}
    for node in reversed(model.graph):
        version = model.opset_imports.get(domain_of_version(node.domain), 1)
        shapes = [[_shape(value) for value in values] for values in (node.inputs, node.outputs)]
        fact = facts(Operator(node, version, tuple(shapes[0]), tuple(shapes[1])))
        if isinstance(fact, Permuted):
            _permute(node, fact.perm, known)
        elif isinstance(fact, Signature):
            _unify(node, fact, known)
    return {value.name or "": tuple(known[value]) for value in model.graph.inputs if value in known}


def _permute(node: ir.Node, perm: Sequence[int], known: dict[ir.Value, Extents]) -> None:
    input_extents, output_extents = _extents(node.inputs[0], known), _extents(node.outputs[0], known)
    if (
        node.inputs[0] is not None
        and input_extents is not None
        and output_extents is not None
        and len(perm) == len(input_extents) == len(output_extents)
    ):
        for place, axis in enumerate(perm):
            input_extents[axis] = output_extents[place] if input_extents[axis] is None else input_extents[axis]
        known[node.inputs[0]] = input_extents


def _unify(node: ir.Node, fact: Signature, known: dict[ir.Value, Extents]) -> None:
    ends = [*_lettered(node.inputs, fact.inputs, known), *_lettered(node.outputs, fact.outputs, known)]
    extents: dict[str, set[int]] = {}
    for _, letters, dims in ends:
        for letter, extent in zip(letters, dims, strict=False):
            if extent is not None and letter not in fact.whole and not (fact.broadcast and extent == 1):
                extents.setdefault(letter, set()).add(extent)
    for value, letters, dims in ends:
        common_extents = [
            next(iter(extents[letter])) if len(extents.get(letter, ())) == 1 else None for letter in letters
        ]
        if len(common_extents) == len(dims):
            known[value] = [one if extent is None else extent for extent, one in zip(dims, common_extents, strict=True)]


def _lettered(
    values: Sequence[ir.Value | None], letters: Sequence[Sequence[str] | None], known: Mapping[ir.Value, Extents]
) -> Iterator[tuple[ir.Value, Sequence[str], Extents]]:
    for value, named in zip(values, letters, strict=False):
        extents = _extents(value, known)
        if value is not None and named is not None and extents is not None:
            yield value, named, extents


def _extents(value: ir.Value | None, known: Mapping[ir.Value, Extents]) -> Extents | None:
    if value is None:
        return None
    if value in known:
        return list(known[value])
    shape = _shape(value)
    return None if shape is None else [extent if isinstance(extent, int) else None for extent in shape]


def _shape(value: ir.Value | None) -> tuple[int | str, ...] | None:
    if value is None or value.shape is None:
        return None
    return tuple(extent if isinstance(extent, int) else extent.value or "" for extent in value.shape)
