"""Random changes of the standard's node tests: other extents, ranks, types, attributes, constants, versions.

A mutation changes a `Mutant` and need not know what its operator allows: whoever draws one asks ONNX's checker and
ONNX Runtime whether the result is a model at all. Mutations that few operators would survive otherwise (groups of a
convolution, both directions of an LSTM) know the operands that belong together.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import onnx
from node_attributes import FLAGS, NUMBERS, TEXTS
from node_mutant import Array, Mutant
from node_tests import KINDS, NodeTest
from onnx import defs, helper

NEUTRAL = {"repeats": 1, "scales": 1, "sizes": 3, "shape": 3, "output_shape": 3, "steps": 1, "ends": 9}
"""Operand with an element an axis -> what it says of a new axis; others 0."""


def mutate(test: NodeTest, rng: np.random.Generator) -> Mutant:
    """Return a test with a few random changes, which may have mutant it invalid."""
    mutant = Mutant.of(test, rng)
    for _ in range(int(rng.choice([1, 2, 3, 4, 6, 8], p=[0.2, 0.2, 0.2, 0.2, 0.1, 0.1]))):
        mutant.pick([*MUTATIONS, *OF_OPERATORS.get(mutant.node.op_type, []) * 3])(mutant)
    _settle(mutant)
    constants(mutant)
    if rng.random() < 0.25:
        opened(mutant)
    return mutant


def _settle(mutant: Mutant) -> None:
    """Let attributes say what the operands say, where they must."""
    kernel = mutant.operand("W") or mutant.operand("w")
    if kernel is not None and mutant.attribute("kernel_shape") is not None:
        mutant.assign("kernel_shape", list(mutant.feed[kernel].shape[2:]))
    if mutant.attribute("auto_pad", "NOTSET") != "NOTSET":
        mutant.assign("pads", None)
    read = set(mutant.node.input)
    mutant.feed = {name: array for name, array in mutant.feed.items() if name in read}


# Extents and ranks.


def extents(mutant: Mutant) -> None:
    """All axes of one extent get another one."""
    found = sorted({extent for array in mutant.feed.values() for extent in array.shape if extent != 1})
    if not found:
        return
    before = mutant.pick(found)
    after = int(mutant.rng.choice([0, 1, 2, 3, 5, 6, 7, 9, 16, 33], p=[0.03, 0.17, *[0.1] * 8]))
    for name, array in mutant.feed.items():
        shape = tuple(after if extent == before else extent for extent in array.shape)
        if math.prod(shape) < 200_000:
            mutant.feed[name] = mutant.resized(array, shape)


def one_extent(mutant: Mutant) -> None:
    """One axis of one operand gets another extent."""
    name = mutant.pick(mutant.feed) if mutant.feed else ""
    array = mutant.feed.get(name, np.zeros(()))
    if array.ndim:
        shape, axis = list(array.shape), int(mutant.rng.integers(array.ndim))
        shape[axis] = int(mutant.rng.choice([0, 1, 2, 3, 4, 8, 11], p=[0.03, 0.37, *[0.12] * 5]))
        mutant.feed[name] = mutant.resized(array, tuple(shape))


def rank_up(mutant: Mutant) -> None:
    """Operands with the most axes get one more, at any place; what has an element an axis follows."""
    images = mutant.images()
    if not images or not (rank := mutant.feed[images[0]].ndim):
        return
    place, extent = int(mutant.rng.integers(rank + 1)), mutant.pick([1, 2, 3])
    for name in images:
        shape = list(mutant.feed[name].shape)
        mutant.feed[name] = mutant.resized(mutant.feed[name], (*shape[:place], extent, *shape[place:]))
    _lists(mutant, rank, lambda side, item: [*side[:place], item, *side[place:]])


def rank_down(mutant: Mutant) -> None:
    """Operands with the most axes lose one; what has an element an axis follows."""
    images = mutant.images()
    if not images or not (rank := mutant.feed[images[0]].ndim):
        return
    place = int(mutant.rng.integers(rank))
    for name in images:
        shape = mutant.feed[name].shape
        mutant.feed[name] = mutant.resized(mutant.feed[name], (*shape[:place], *shape[place + 1 :]))
    _lists(mutant, rank, lambda side, _: [*side[:place], *side[place + 1 :]])


def _lists(mutant: Mutant, rank: int, change: Callable[[list[Any], Any], list[Any]]) -> None:
    """Change what has an element, or two, for each axis or for each spatial axis."""
    for slot, name in enumerate(mutant.node.input):
        array = mutant.feed.get(name)
        if array is not None and array.ndim == 1 and rank > 1 and len(array) in (rank, 2 * rank):
            item = NEUTRAL.get(mutant.formal(slot).name, 0)
            sides = np.split(array, len(array) // rank)
            mutant.feed[name] = np.array([each for side in sides for each in change(list(side), item)], array.dtype)
    for attribute in list(mutant.node.attribute):
        if attribute.name == "perm":
            mutant.assign(
                "perm", [int(each) for each in mutant.rng.permutation(mutant.feed[mutant.node.input[0]].ndim)]
            )
        elif rank > 2 and len(attribute.ints) in (rank - 2, 2 * rank - 4):
            item = 0 if "pad" in attribute.name else mutant.pick([1, 2])
            sides = np.split(np.array(attribute.ints), len(attribute.ints) // (rank - 2))
            items = [int(each) for side in sides for each in change([0, 0, *side], item)[2:]]
            mutant.assign(attribute.name, items)


def broadcast(mutant: Mutant) -> None:
    """One operand lacks its first axes, or has extents of 1."""
    if len(mutant.feed) < 2:
        return
    name = mutant.pick(mutant.feed)
    shape = mutant.feed[name].shape
    if mutant.rng.random() < 0.5:
        shape = shape[int(mutant.rng.integers(len(shape) + 1)) :]
    mutant.feed[name] = mutant.resized(mutant.feed[name], tuple(mutant.pick([1, each, each]) for each in shape))


def extremes(mutant: Mutant) -> None:
    """A few real numbers are very large, infinite, or zeros of either sign."""
    found = [name for name, array in mutant.feed.items() if array.dtype.kind == "f" and array.size]
    if found:
        name = mutant.pick(found)
        array = mutant.feed[name].copy()
        for _ in range(3):
            array.flat[int(mutant.rng.integers(array.size))] = mutant.pick(
                [np.inf, -np.inf, 3e4, -3e4, 0.0, -0.0, 88.0]
            )
        mutant.feed[name] = array


# Types.


@cache
def _allowed(op_type: str, domain: str, version: int, parameter: str) -> list[int]:
    """The types of a schema's parameter that LiteRT has."""
    schema = defs.get_schema(op_type, version, domain)
    texts = next((each.allowed_type_strs for each in schema.type_constraints if each.type_param_str == parameter), ())
    names = {"tensor(float)": "float32"}
    found = [names.get(text, text[7:-1]) for text in texts if text.startswith("tensor(")]
    return [helper.np_dtype_to_tensor_dtype(np.dtype(name)) for name in found if name in KINDS]


def types(mutant: Mutant) -> None:
    """The operands of one type get another that the schema has."""
    parameter = mutant.pick(sorted({mutant.formal(slot).type_str for slot in range(len(mutant.node.input))} or {""}))
    allowed = _allowed(mutant.node.op_type, mutant.node.domain, mutant.version, parameter)
    if not allowed:
        return
    kind = helper.tensor_dtype_to_np_dtype(mutant.pick(allowed))
    for slot, name in enumerate(mutant.node.input):
        if name in mutant.feed and mutant.formal(slot).type_str == parameter:
            mutant.feed[name] = converted(mutant, mutant.feed[name], kind)


def converted(mutant: Mutant, array: Array, kind: np.dtype[Any]) -> Array:
    """Return an array of another type, with numbers that this type has."""
    if kind == array.dtype or array.dtype.kind not in "fiub":
        return array
    if kind.kind == "b":
        return mutant.rng.random(array.shape) < 0.5
    if kind.kind == "f":
        return array.astype(kind)
    limits = np.iinfo(kind)
    if mutant.rng.random() < 0.15:
        low, high = max(limits.min, -(2**40)), min(limits.max, 2**40)
        drawn = mutant.rng.integers(low, high, array.shape, dtype=kind, endpoint=True)
        return np.asarray(drawn)
    wide = array.astype(np.float64) * (5 if array.dtype.kind == "f" and np.abs(array).max(initial=0) < 5 else 1)
    wide = np.nan_to_num(wide if kind.kind == "i" else np.abs(wide), posinf=9, neginf=-9)
    return np.clip(np.rint(wide), max(limits.min, -(2**40)), min(limits.max, 2**40)).astype(kind)


# Attributes and operands.


def attributes(mutant: Mutant) -> None:
    """One attribute is left out, or has another value."""
    known = {name: each for name, each in mutant.schema.attributes.items() if int(each.type.value) in VALUES}
    if not known:
        return
    name = mutant.pick(sorted(known))
    if not known[name].required and mutant.rng.random() < 0.25:
        mutant.assign(name, None)
        return
    kind = int(known[name].type.value)
    default = known[name].default_value
    before = mutant.attribute(name, helper.get_attribute_value(default) if default.name else None)
    value = VALUES[kind](mutant, name, before)
    if value is not None:
        mutant.assign(name, value)


def _text(mutant: Mutant, name: str, before: Any) -> str | None:
    if name == "reduction":
        scatters = ["none", "add", "mul", "max", "min"]
        return str(mutant.pick(scatters if "Scatter" in mutant.node.op_type else ["none", "mean", "sum"]))
    return mutant.pick(TEXTS[name]) if name in TEXTS else None


def _integer(mutant: Mutant, name: str, before: Any) -> int:
    rank = max((array.ndim for array in mutant.feed.values()), default=1)
    if name in FLAGS:
        return int(mutant.rng.integers(2))
    if name == "axis":
        return int(mutant.rng.integers(-rank, max(rank, 1)))
    if name in ("to", "dtype", "output_dtype", "stash_type"):
        return int(mutant.pick(sorted(helper.np_dtype_to_tensor_dtype(np.dtype(each)) for each in KINDS)))
    return int(mutant.pick([0, 1, 2, 3, 4, (before or 0) + 1, (before or 0) * 2, -1]))


def _integers(mutant: Mutant, name: str, before: Any) -> list[int]:
    rank = mutant.feed[mutant.node.input[0]].ndim if mutant.feed.get(mutant.node.input[0]) is not None else 1
    if name == "perm":
        return [int(each) for each in mutant.rng.permutation(rank)]
    if name == "axes":
        chosen = mutant.rng.permutation(rank)[: int(mutant.rng.integers(1, rank + 1)) if rank else 0]
        return [int(each) - rank * int(mutant.rng.integers(2)) for each in chosen]
    spatial = len(before) if before else max(rank - 2, 1) * (2 if name == "pads" else 1)
    least, most = {"pads": (0, 3), "output_padding": (0, 2)}.get(name, (1, 4))
    if name in ("strides", "dilations", "pads", "kernel_shape", "output_padding"):
        return [int(each) for each in mutant.rng.integers(least, most, spatial)]
    return [int(each) + mutant.pick([0, 0, 1, -1]) for each in before or [1]]


def _number(mutant: Mutant, name: str, before: Any) -> float:
    return float(mutant.pick([*NUMBERS, (before or 0.0) * 2, (before or 1.0) * 0.3]))


VALUES: dict[int, Callable[[Mutant, str, Any], Any]] = {
    onnx.AttributeProto.STRING: _text,
    onnx.AttributeProto.INT: _integer,
    onnx.AttributeProto.INTS: _integers,
    onnx.AttributeProto.FLOAT: _number,
}


def left_out(mutant: Mutant) -> None:
    """An optional operand or result is left out."""
    schema = mutant.schema
    optional = defs.OpSchema.FormalParameterOption.Optional
    sides = [(mutant.node.input, schema.inputs), (mutant.node.output, schema.outputs)]
    found = [
        (names, slot)
        for names, formals in sides
        for slot in range(min(len(names), len(formals)))
        if names[slot] and (formals[slot].option == optional or (names is mutant.node.output and len(names) > 1))
    ]
    if found:
        names, slot = mutant.pick(found)
        names[slot] = ""
        while names and not names[-1]:
            names.pop()


def results(mutant: Mutant) -> None:
    """All optional results are asked for."""
    for slot in range(len(mutant.node.output), len(mutant.schema.outputs)):
        mutant.node.output.append(f"more_{slot}")


def whole_numbers(mutant: Mutant) -> None:
    """An operand of few whole numbers (indices, axes, pads, a shape) has others."""
    found = [name for name, array in mutant.feed.items() if array.dtype in (np.int64, np.int32) and 0 < array.size < 50]
    if not found:
        return
    name = mutant.pick(found)
    array = mutant.feed[name].copy()
    place = int(mutant.rng.integers(array.size))
    before = int(array.flat[place])
    array.flat[place] = mutant.pick([before + 1, before - 1, -before, 0, 1, -1, 2, before * 2])
    mutant.feed[name] = array if mutant.rng.random() < 0.7 else mutant.rng.permutation(array)


def order(mutant: Mutant) -> None:
    """The elements of one operand change places."""
    if mutant.feed:
        name = mutant.pick(mutant.feed)
        mutant.feed[name] = mutant.rng.permuted(mutant.feed[name].reshape(-1)).reshape(mutant.feed[name].shape)


def older(mutant: Mutant) -> None:
    """The model imports an older version of ONNX's operators, or a newer one than the test."""
    since = defs.get_schema(mutant.node.op_type, mutant.node.domain).since_version
    mutant.version = (
        mutant.pick([since, since, *range(9, defs.onnx_opset_version() + 1)]) if not mutant.node.domain else 1
    )


def constants(mutant: Mutant) -> None:
    """Some operands are constants."""
    part = mutant.pick([0.0, 0.5, 1.0])
    for place, (name, array) in enumerate(mutant.feed.items()):
        if mutant.rng.random() < (0.8 if array.dtype.kind == "i" and place else part * (place > 0)):
            mutant.constants.add(name)
    if mutant.rng.random() < 0.03:
        mutant.constants = set(mutant.feed)


def opened(mutant: Mutant) -> None:
    """Some axes, or all, have names instead of extents."""
    part = mutant.pick([0.3, 0.6, 1.0])
    for name, array in mutant.feed.items():
        mutant.opened[name] = [axis for axis in range(array.ndim) if mutant.rng.random() < part]


# Of single operators.


def grouped(mutant: Mutant) -> None:
    """A convolution has another number of groups, and channels to match."""
    x, w, bias = (mutant.operand(each) for each in ("X", "W", "B"))
    if x is None or w is None or mutant.feed[x].ndim < 3 or mutant.feed[w].ndim < 3:
        return
    groups, reads, gives = mutant.pick([1, 2, 3, 4, 8]), mutant.pick([1, 1, 2, 3]), mutant.pick([1, 1, 2, 4])
    is_transposed = mutant.node.op_type == "ConvTranspose"
    kernel = (groups * reads, gives) if is_transposed else (groups * gives, reads)
    mutant.feed[x] = mutant.resized(
        mutant.feed[x], (mutant.feed[x].shape[0], groups * reads, *mutant.feed[x].shape[2:])
    )
    mutant.feed[w] = mutant.resized(mutant.feed[w], (*kernel, *mutant.feed[w].shape[2:]))
    if bias is not None:
        mutant.feed[bias] = mutant.resized(mutant.feed[bias], (groups * gives,))
    mutant.assign("group", groups)


def directions(mutant: Mutant) -> None:
    """A recurrence runs in another direction, or in both."""
    direction = mutant.pick(["forward", "reverse", "bidirectional"])
    mutant.assign("direction", direction)
    count = 1 + (direction == "bidirectional")
    for operand, axis in {"W": 0, "R": 0, "B": 0, "P": 0, "initial_h": 0, "initial_c": 0}.items():
        name = mutant.operand(operand)
        if name is not None and mutant.feed[name].ndim > axis:
            shape = list(mutant.feed[name].shape)
            shape[axis] = count
            mutant.feed[name] = mutant.resized(mutant.feed[name], tuple(shape))


def factors(mutant: Mutant) -> None:
    """A Reshape to another shape of as many elements."""
    data, shape = mutant.operand("data"), mutant.operand("shape")
    if data is None or shape is None:
        return
    rest, found = mutant.feed[data].size, []
    while rest > 1 and len(found) < 5:
        found.append(mutant.pick([each for each in range(1, rest + 1) if not rest % each]))
        rest //= found[-1]
    dims = [*found, rest]
    if mutant.rng.random() < 0.6:
        dims[int(mutant.rng.integers(len(dims)))] = -1
    mutant.feed[shape] = np.array(dims, np.int64)


def shapes(mutant: Mutant) -> None:
    """A list of axes, repeats, sizes and the like that fits the first operand's rank."""
    rank = mutant.feed[mutant.node.input[0]].ndim if mutant.node.input[0] in mutant.feed else 0
    chosen = [int(each) for each in mutant.rng.permutation(rank)[: int(mutant.rng.integers(0, rank + 1))]]
    for slot, name in enumerate(mutant.node.input):
        if slot and name in mutant.feed and mutant.formal(slot).name == "axes":
            axes = [each - rank * int(mutant.rng.integers(2)) for each in chosen]
            mutant.feed[name] = np.array(axes, mutant.feed[name].dtype)
        elif slot and name in mutant.feed and mutant.formal(slot).name in ("starts", "ends", "steps", "pads"):
            count = len(chosen) * (2 if mutant.formal(slot).name == "pads" else 1)
            mutant.feed[name] = mutant.resized(mutant.feed[name], (count,))


MUTATIONS = [
    *(extents, extents, one_extent, rank_up, rank_down, broadcast, types, types, attributes, attributes, attributes),
    *(left_out, results, whole_numbers, order, older, extremes),
]
OF_OPERATORS: dict[str, list[Callable[[Mutant], None]]] = {
    name: changes
    for names, changes in {
        "Conv ConvTranspose ConvInteger DeformConv": [grouped, attributes],
        "MaxPool AveragePool LpPool": [attributes],
        "RNN GRU LSTM": [directions],
        "Reshape": [factors],
        "Slice Pad Squeeze Unsqueeze CenterCropPad": [shapes, whole_numbers],
        "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL2": [shapes],
        "Gather Tile Expand ScatterND GatherND Split": [whole_numbers],
    }.items()
    for name in names.split()
}
"""Operator -> what it is changed by more often than others."""
