"""Numbers that the nodes and the metadata of a graph state of a value: steps, bounds, rates, initial states."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from relayout.errors import LayoutError
from relayout.layout.stored_as import INITIAL, TENSOR, Holds
from relayout.verification.initial_state import initial_state
from relayout.verification.side import Array

COUNTING_OPERAND = {"Gather": 1, "GatherND": 1, "GatherElements": 1}
RATES = {"MelWeightMatrix": 2}
"""Operators with an operand that is a sample rate, and which."""
DEQUANTIZING = {"DequantizeLinear"}


def step_of(node: ir.Node | None) -> float:
    """The step of the integers that a node dequantizes; 0 if it is none, or its scale is computed."""
    if node is None or node.op_type not in DEQUANTIZING or len(node.inputs) < 2 or node.inputs[1] is None:
        return 0.0
    scale = node.inputs[1].const_value
    return 0.0 if scale is None or not scale.size else float(np.abs(scale.numpy()).max())


def initial_array(value: ir.Value) -> Array | None:
    """Return the initial value of an input, stored as the input is; None if none is stated, or dimensions are open."""
    notes = value.metadata_props
    if INITIAL not in notes or value.dtype is None or value.shape is None or not value.shape.is_static():
        return None
    held = held_by(notes)
    names = (value.name or "", notes.get(TENSOR, ""))
    return initial_state(notes[INITIAL], value.dtype.numpy(), tuple(value.shape.numpy()), held, names)


def held_by(notes: Mapping[str, str]) -> list[Holds]:
    """Return what a value's metadata says that it holds; nothing where that cannot be read."""
    try:
        return Holds.load(notes[Holds.KEY]) if Holds.KEY in notes else []
    except LayoutError:
        return []


def index_bounds(graph: ir.Graph) -> dict[str, int]:
    """Graph inputs that operators count with, and how far they may."""
    found: dict[str, list[int]] = defaultdict(list)
    for node in graph:
        place = COUNTING_OPERAND.get(node.op_type)
        if place is None or len(node.inputs) <= place:
            continue
        data, indices = node.inputs[0], node.inputs[place]
        if data is not None and indices is not None and data.shape is not None:
            found[indices.name or ""].append(min((d for d in data.shape if isinstance(d, int)), default=1))
    return {name: min(bounds) for name, bounds in found.items()}


def sample_rates(graph: ir.Graph) -> set[str]:
    """Graph inputs that operators read as sample rates."""
    read = ((node, RATES[node.op_type]) for node in graph if node.op_type in RATES)
    operands = (node.inputs[place] for node, place in read if len(node.inputs) > place)
    return {value.name or "" for value in operands if value is not None}
