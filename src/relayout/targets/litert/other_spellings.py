"""Operators of quantized units in another spelling: a group normalization is one operator, a Gather is Slices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.lowering.conditions import Condition
from relayout.lowering.decomposition_rows import Expansion
from relayout.lowering.fuse_epilogue import only_reader
from relayout.rules import Operator, Step
from relayout.rules.signature import Constants
from relayout.shapes.own_axes import SLICE_INPUTS
from relayout.targets.litert.insertion import Insertion
from relayout.targets.litert.integer_forms import requantized, unit_scales
from relayout.targets.litert.integer_scales import stored_reals

# A group normalization as PyTorch's exporter spells it out, as the one operator that ONNX has.
#
# x -> Reshape [n g -1] -> InstanceNormalization -> Reshape [n c h w] -> Mul [c 1 1] -> Add [c 1 1]

INSTANCES, VIEWS = frozenset({"InstanceNormalization"}), frozenset({"Reshape"})
FOLLOWERS = ("Reshape", "Mul", "Add")
GROUPED = "GroupNormalization"  # the operator that stands for all of them


def join_groups(
    model: ir.Model,
    fits: Callable[[ir.Node], bool],  # returns whether a GroupNormalization is wanted; another one stays as it was
) -> None:
    """Write spelled group normalizations as GroupNormalizations, in place."""
    for node in [node for node in model.graph if node.op_type in INSTANCES and not node.domain]:
        chain = _chain(node)
        joined = None if chain is None else _joined(model.graph, node, chain)
        if joined is None or chain is None:
            continue
        before, after = chain[-1].outputs[0], joined.outputs[0]
        before.replace_all_uses_with(after)
        if fits(joined):
            model.graph.remove(chain, safe=True)
        else:
            after.replace_all_uses_with(before)
            model.graph.remove(joined, safe=True)


def _chain(node: ir.Node) -> list[ir.Node] | None:
    """Return an InstanceNormalization and what follows it; None where that is something else, or read otherwise."""
    chain = [node]
    for op_type in FOLLOWERS:
        follower = only_reader(chain[-1])
        if follower is None or follower.op_type != op_type:
            return None
        chain.append(follower)
    return None if chain[-1].outputs[0].is_graph_output() else chain


def _joined(graph: ir.Graph, node: ir.Node, chain: Sequence[ir.Node]) -> ir.Node | None:
    """Add the operator that stands for a chain, and return it; None where none does."""
    rows = node.inputs[0]
    view = None if rows is None else rows.producer()
    image = view.inputs[0] if view is not None and view.op_type in VIEWS and not view.domain else None
    result = chain[-1].outputs[0]
    if image is None or rows is None or rows.shape is None or image.shape is None or result.shape != image.shape:
        return None
    groups, channels = rows.shape[1], image.shape[1]
    if len(image.shape) < 3 or not isinstance(groups, int) or not isinstance(channels, int) or channels % groups:
        return None
    factors = _factors(node, chain, len(image.shape), channels)
    if factors is None or rows.shape[0] != image.shape[0]:
        return None
    place = Insertion(graph, chain[-1])
    parameters = [
        place.constant(array.astype(np.float32), f"{result.name}/{name}")
        for array, name in zip(factors, ("scale", "bias"), strict=True)
    ]
    attributes = {"num_groups": groups, "epsilon": node.attributes.get_float("epsilon", 1e-5)}
    return place.add(GROUPED, [image, *parameters], result.shape, result.type, attributes).producer()


def _factors(
    node: ir.Node, chain: Sequence[ir.Node], rank: int, channels: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Return what each channel is multiplied by, and what is added then; None where something of it is computed."""
    scale, bias = (stored_reals(value) for value in node.inputs[1:3])
    others = []  # the other operands of the product and the sum: constants for each channel
    extents = (channels, *[1] * (rank - 2))
    for before, after in pairwise(chain[1:]):
        array = next((stored_reals(value) for value in after.inputs if value is not before.outputs[0]), None)
        if array is None or array.size != channels or array.shape[-len(extents) :] != extents:
            return None
        others.append(array.reshape(-1))
    if scale is None or bias is None:
        return None
    (weight, shift), repeats = others, channels // len(scale)
    return scale.repeat(repeats) * weight, bias.repeat(repeats) * weight + shift


# A Gather by constants as Slices, which NPUs have: indices that go up by one step are one Slice.
#
# Gather(x, 3)             becomes    Reshape(Slice(x, 3:4))
# Gather(x, [0, 2, 4, 9])  becomes    Concat(Slice(x, 0:5:2), Slice(x, 9:10))


MOST_SLICES = 8  # slices that a Gather may become


def _runs(indices: Sequence[int]) -> list[range]:
    """Return indices as ranges that go up, each as long as can be."""
    runs: list[range] = []
    place = 0
    while place < len(indices):
        first = indices[place]
        step = indices[place + 1] - first if place + 1 < len(indices) else 1
        end = place + 1
        while step > 0 and end < len(indices) and indices[end] - indices[end - 1] == step:
            end += 1
        is_pair = end - place == 2 and step > 1  # the second may begin a longer run
        end = place + 1 if step <= 0 or is_pair else end
        step = step if end - place > 1 else 1
        runs.append(range(first, indices[end - 1] + 1, step))
        place = end
    return runs


def _slices(operator: Operator) -> list[range] | None:
    """Return the ranges of a Gather's constant indices; None where they or the extent are not known."""
    shape, indices = operator.shape(), operator.constant(1)
    if shape is None or indices is None or not indices.size or not operator.has(0) or operator.constant(0) is not None:
        return None
    extent = shape[operator.int("axis", 0) % len(shape)]
    if not isinstance(extent, int):
        return None
    runs = _runs([int(each) % extent for each in indices.reshape(-1)])
    return runs if len(runs) <= MOST_SLICES else None


def _as_slices(operator: Operator, _: Constants) -> Sequence[Step]:
    """Slices, a Concat of several, and a Reshape where indices are no list."""
    runs, shape, y = _slices(operator), operator.shape(), operator.outputs[0]
    if runs is None or shape is None or y is None or operator.version < SLICE_INPUTS:
        return ()
    axis = operator.int("axis", 0) % len(shape)
    axes = np.array([axis], np.int64)
    scales, steps, names = unit_scales(operator.node), list[Step](), list[str]()
    for number, run in enumerate(runs):
        begin, end, step = (np.array([each], np.int64) for each in (run.start, run.stop, run.step))
        name = f"part_{number}"
        steps.append(Step("Slice", (0, begin, end, axes, step), name))
        if scales is not None and len(runs) > 1:
            steps += requantized(name, f"quantized_{name}", *scales.first.meaning)
            name = f"quantized_{name}"
        names.append(name)
    if len(names) > 1:
        steps.append(Step("Concat", tuple(names), "joined", {"axis": axis}))
    if len(y) != len(shape):
        if not all(isinstance(extent, int) for extent in y):
            return ()
        if scales is not None and len(names) > 1:
            steps += requantized("joined", "quantized", *scales.result.meaning)
        steps.append(Step("Reshape", (steps[-1].name, np.array(y, np.int64)), "selected"))
    return tuple(steps)


BY_CONSTANTS = Condition("by constants that are a few ranges", lambda operator: _slices(operator) is not None)
GATHERED_SLICES = Expansion("Gather", (BY_CONSTANTS,), _as_slices)
