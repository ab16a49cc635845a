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


def mutant(test: NodeTest, rng: np.random.Generator) -> Mutant:
    """Return a test with a few random changes, which may have made it invalid."""
    made = Mutant.of(test, rng)
    for _ in range(int(rng.choice([1, 2, 3, 4, 6, 8], p=[0.2, 0.2, 0.2, 0.2, 0.1, 0.1]))):
        made.pick([*MUTATIONS, *OF_OPERATORS.get(made.node.op_type, []) * 3])(made)
    _settle(made)
    constants(made)
    if rng.random() < 0.25:
        opened(made)
    return made


def _settle(made: Mutant) -> None:
    """Let attributes say what the operands say, where they must."""
    kernel = made.operand("W") or made.operand("w")
    if kernel is not None and made.attribute("kernel_shape") is not None:
        made.assign("kernel_shape", list(made.feed[kernel].shape[2:]))
    if made.attribute("auto_pad", "NOTSET") != "NOTSET":
        made.assign("pads", None)
    read = set(made.node.input)
    made.feed = {name: array for name, array in made.feed.items() if name in read}


# Extents and ranks.


def extents(made: Mutant) -> None:
    """All axes of one extent get another one."""
    found = sorted({extent for array in made.feed.values() for extent in array.shape if extent != 1})
    if not found:
        return
    before = made.pick(found)
    after = int(made.rng.choice([0, 1, 2, 3, 5, 6, 7, 9, 16, 33], p=[0.03, 0.17, *[0.1] * 8]))
    for name, array in made.feed.items():
        shape = tuple(after if extent == before else extent for extent in array.shape)
        if math.prod(shape) < 200_000:
            made.feed[name] = made.resized(array, shape)


def one_extent(made: Mutant) -> None:
    """One axis of one operand gets another extent."""
    name = made.pick(made.feed) if made.feed else ""
    array = made.feed.get(name, np.zeros(()))
    if array.ndim:
        shape, axis = list(array.shape), int(made.rng.integers(array.ndim))
        shape[axis] = int(made.rng.choice([0, 1, 2, 3, 4, 8, 11], p=[0.03, 0.37, *[0.12] * 5]))
        made.feed[name] = made.resized(array, tuple(shape))


def rank_up(made: Mutant) -> None:
    """Operands with the most axes get one more, at any place; what has an element an axis follows."""
    images = made.images()
    if not images or not (rank := made.feed[images[0]].ndim):
        return
    place, extent = int(made.rng.integers(rank + 1)), made.pick([1, 2, 3])
    for name in images:
        shape = list(made.feed[name].shape)
        made.feed[name] = made.resized(made.feed[name], (*shape[:place], extent, *shape[place:]))
    _lists(made, rank, lambda side, item: [*side[:place], item, *side[place:]])


def rank_down(made: Mutant) -> None:
    """Operands with the most axes lose one; what has an element an axis follows."""
    images = made.images()
    if not images or not (rank := made.feed[images[0]].ndim):
        return
    place = int(made.rng.integers(rank))
    for name in images:
        shape = made.feed[name].shape
        made.feed[name] = made.resized(made.feed[name], (*shape[:place], *shape[place + 1 :]))
    _lists(made, rank, lambda side, _: [*side[:place], *side[place + 1 :]])


def _lists(made: Mutant, rank: int, change: Callable[[list[Any], Any], list[Any]]) -> None:
    """Change what has an element, or two, for each axis or for each spatial axis."""
    for slot, name in enumerate(made.node.input):
        array = made.feed.get(name)
        if array is not None and array.ndim == 1 and rank > 1 and len(array) in (rank, 2 * rank):
            item = NEUTRAL.get(made.formal(slot).name, 0)
            sides = np.split(array, len(array) // rank)
            made.feed[name] = np.array([each for side in sides for each in change(list(side), item)], array.dtype)
    for attribute in list(made.node.attribute):
        if attribute.name == "perm":
            made.assign("perm", [int(each) for each in made.rng.permutation(made.feed[made.node.input[0]].ndim)])
        elif rank > 2 and len(attribute.ints) in (rank - 2, 2 * rank - 4):
            item = 0 if "pad" in attribute.name else made.pick([1, 2])
            sides = np.split(np.array(attribute.ints), len(attribute.ints) // (rank - 2))
            items = [int(each) for side in sides for each in change([0, 0, *side], item)[2:]]
            made.assign(attribute.name, items)


def broadcast(made: Mutant) -> None:
    """One operand lacks its first axes, or has extents of 1."""
    if len(made.feed) < 2:
        return
    name = made.pick(made.feed)
    shape = made.feed[name].shape
    if made.rng.random() < 0.5:
        shape = shape[int(made.rng.integers(len(shape) + 1)) :]
    made.feed[name] = made.resized(made.feed[name], tuple(made.pick([1, each, each]) for each in shape))


def extremes(made: Mutant) -> None:
    """A few real numbers are very large, infinite, or zeros of either sign."""
    found = [name for name, array in made.feed.items() if array.dtype.kind == "f" and array.size]
    if found:
        name = made.pick(found)
        array = made.feed[name].copy()
        for _ in range(3):
            array.flat[int(made.rng.integers(array.size))] = made.pick([np.inf, -np.inf, 3e4, -3e4, 0.0, -0.0, 88.0])
        made.feed[name] = array


# Types.


@cache
def _allowed(op_type: str, domain: str, version: int, parameter: str) -> list[int]:
    """The types of a schema's parameter that LiteRT has."""
    schema = defs.get_schema(op_type, version, domain)
    texts = next((each.allowed_type_strs for each in schema.type_constraints if each.type_param_str == parameter), ())
    names = {"tensor(float)": "float32"}
    found = [names.get(text, text[7:-1]) for text in texts if text.startswith("tensor(")]
    return [helper.np_dtype_to_tensor_dtype(np.dtype(name)) for name in found if name in KINDS]


def types(made: Mutant) -> None:
    """The operands of one type get another that the schema has."""
    parameter = made.pick(sorted({made.formal(slot).type_str for slot in range(len(made.node.input))} or {""}))
    allowed = _allowed(made.node.op_type, made.node.domain, made.version, parameter)
    if not allowed:
        return
    kind = helper.tensor_dtype_to_np_dtype(made.pick(allowed))
    for slot, name in enumerate(made.node.input):
        if name in made.feed and made.formal(slot).type_str == parameter:
            made.feed[name] = converted(made, made.feed[name], kind)


def converted(made: Mutant, array: Array, kind: np.dtype[Any]) -> Array:
    """Return an array of another type, with numbers that this type has."""
    if kind == array.dtype or array.dtype.kind not in "fiub":
        return array
    if kind.kind == "b":
        return made.rng.random(array.shape) < 0.5
    if kind.kind == "f":
        return array.astype(kind)
    limits = np.iinfo(kind)
    if made.rng.random() < 0.15:
        low, high = max(limits.min, -(2**40)), min(limits.max, 2**40)
        drawn = made.rng.integers(low, high, array.shape, dtype=kind, endpoint=True)
        return np.asarray(drawn)
    wide = array.astype(np.float64) * (5 if array.dtype.kind == "f" and np.abs(array).max(initial=0) < 5 else 1)
    wide = np.nan_to_num(wide if kind.kind == "i" else np.abs(wide), posinf=9, neginf=-9)
    return np.clip(np.rint(wide), max(limits.min, -(2**40)), min(limits.max, 2**40)).astype(kind)


# Attributes and operands.


def attributes(made: Mutant) -> None:
    """One attribute is left out, or has another value."""
    known = {name: each for name, each in made.schema.attributes.items() if int(each.type.value) in VALUES}
    if not known:
        return
    name = made.pick(sorted(known))
    if not known[name].required and made.rng.random() < 0.25:
        made.assign(name, None)
        return
    kind = int(known[name].type.value)
    default = known[name].default_value
    before = made.attribute(name, helper.get_attribute_value(default) if default.name else None)
    value = VALUES[kind](made, name, before)
    if value is not None:
        made.assign(name, value)


def _text(made: Mutant, name: str, before: Any) -> str | None:
    if name == "reduction":
        scatters = ["none", "add", "mul", "max", "min"]
        return str(made.pick(scatters if "Scatter" in made.node.op_type else ["none", "mean", "sum"]))
    return made.pick(TEXTS[name]) if name in TEXTS else None


def _integer(made: Mutant, name: str, before: Any) -> int:
    rank = max((array.ndim for array in made.feed.values()), default=1)
    if name in FLAGS:
        return int(made.rng.integers(2))
    if name == "axis":
        return int(made.rng.integers(-rank, max(rank, 1)))
    if name in ("to", "dtype", "output_dtype", "stash_type"):
        return int(made.pick(sorted(helper.np_dtype_to_tensor_dtype(np.dtype(each)) for each in KINDS)))
    return int(made.pick([0, 1, 2, 3, 4, (before or 0) + 1, (before or 0) * 2, -1]))


def _integers(made: Mutant, name: str, before: Any) -> list[int]:
    rank = made.feed[made.node.input[0]].ndim if made.feed.get(made.node.input[0]) is not None else 1
    if name == "perm":
        return [int(each) for each in made.rng.permutation(rank)]
    if name == "axes":
        chosen = made.rng.permutation(rank)[: int(made.rng.integers(1, rank + 1)) if rank else 0]
        return [int(each) - rank * int(made.rng.integers(2)) for each in chosen]
    spatial = len(before) if before else max(rank - 2, 1) * (2 if name == "pads" else 1)
    least, most = {"pads": (0, 3), "output_padding": (0, 2)}.get(name, (1, 4))
    if name in ("strides", "dilations", "pads", "kernel_shape", "output_padding"):
        return [int(each) for each in made.rng.integers(least, most, spatial)]
    return [int(each) + made.pick([0, 0, 1, -1]) for each in before or [1]]


def _number(made: Mutant, name: str, before: Any) -> float:
    return float(made.pick([*NUMBERS, (before or 0.0) * 2, (before or 1.0) * 0.3]))


VALUES: dict[int, Callable[[Mutant, str, Any], Any]] = {
    onnx.AttributeProto.STRING: _text,
    onnx.AttributeProto.INT: _integer,
    onnx.AttributeProto.INTS: _integers,
    onnx.AttributeProto.FLOAT: _number,
}


def left_out(made: Mutant) -> None:
    """An optional operand or result is left out."""
    schema = made.schema
    optional = defs.OpSchema.FormalParameterOption.Optional
    sides = [(made.node.input, schema.inputs), (made.node.output, schema.outputs)]
    found = [
        (names, slot)
        for names, formals in sides
        for slot in range(min(len(names), len(formals)))
        if names[slot] and (formals[slot].option == optional or (names is made.node.output and len(names) > 1))
    ]
    if found:
        names, slot = made.pick(found)
        names[slot] = ""
        while names and not names[-1]:
            names.pop()


def results(made: Mutant) -> None:
    """All optional results are asked for."""
    for slot in range(len(made.node.output), len(made.schema.outputs)):
        made.node.output.append(f"more_{slot}")


def whole_numbers(made: Mutant) -> None:
    """An operand of few whole numbers (indices, axes, pads, a shape) has others."""
    found = [name for name, array in made.feed.items() if array.dtype in (np.int64, np.int32) and 0 < array.size < 50]
    if not found:
        return
    name = made.pick(found)
    array = made.feed[name].copy()
    place = int(made.rng.integers(array.size))
    before = int(array.flat[place])
    array.flat[place] = made.pick([before + 1, before - 1, -before, 0, 1, -1, 2, before * 2])
    made.feed[name] = array if made.rng.random() < 0.7 else made.rng.permutation(array)


def order(made: Mutant) -> None:
    """The elements of one operand change places."""
    if made.feed:
        name = made.pick(made.feed)
        made.feed[name] = made.rng.permuted(made.feed[name].reshape(-1)).reshape(made.feed[name].shape)


def older(made: Mutant) -> None:
    """The model imports an older version of ONNX's operators, or a newer one than the test."""
    since = defs.get_schema(made.node.op_type, made.node.domain).since_version
    made.version = made.pick([since, since, *range(9, defs.onnx_opset_version() + 1)]) if not made.node.domain else 1


def constants(made: Mutant) -> None:
    """Some operands are constants."""
    part = made.pick([0.0, 0.5, 1.0])
    for place, (name, array) in enumerate(made.feed.items()):
        if made.rng.random() < (0.8 if array.dtype.kind == "i" and place else part * (place > 0)):
            made.constants.add(name)
    if made.rng.random() < 0.03:
        made.constants = set(made.feed)


def opened(made: Mutant) -> None:
    """Some axes, or all, have names instead of extents."""
    part = made.pick([0.3, 0.6, 1.0])
    for name, array in made.feed.items():
        made.opened[name] = [axis for axis in range(array.ndim) if made.rng.random() < part]


# Of single operators.


def grouped(made: Mutant) -> None:
    """A convolution has another number of groups, and channels to match."""
    x, w, bias = (made.operand(each) for each in ("X", "W", "B"))
    if x is None or w is None or made.feed[x].ndim < 3 or made.feed[w].ndim < 3:
        return
    groups, reads, gives = made.pick([1, 2, 3, 4, 8]), made.pick([1, 1, 2, 3]), made.pick([1, 1, 2, 4])
    is_transposed = made.node.op_type == "ConvTranspose"
    kernel = (groups * reads, gives) if is_transposed else (groups * gives, reads)
    made.feed[x] = made.resized(made.feed[x], (made.feed[x].shape[0], groups * reads, *made.feed[x].shape[2:]))
    made.feed[w] = made.resized(made.feed[w], (*kernel, *made.feed[w].shape[2:]))
    if bias is not None:
        made.feed[bias] = made.resized(made.feed[bias], (groups * gives,))
    made.assign("group", groups)


def directions(made: Mutant) -> None:
    """A recurrence runs in another direction, or in both."""
    direction = made.pick(["forward", "reverse", "bidirectional"])
    made.assign("direction", direction)
    count = 1 + (direction == "bidirectional")
    for operand, axis in {"W": 0, "R": 0, "B": 0, "P": 0, "initial_h": 0, "initial_c": 0}.items():
        name = made.operand(operand)
        if name is not None and made.feed[name].ndim > axis:
            shape = list(made.feed[name].shape)
            shape[axis] = count
            made.feed[name] = made.resized(made.feed[name], tuple(shape))


def factors(made: Mutant) -> None:
    """A Reshape to another shape of as many elements."""
    data, shape = made.operand("data"), made.operand("shape")
    if data is None or shape is None:
        return
    rest, found = made.feed[data].size, []
    while rest > 1 and len(found) < 5:
        found.append(made.pick([each for each in range(1, rest + 1) if not rest % each]))
        rest //= found[-1]
    dims = [*found, rest]
    if made.rng.random() < 0.6:
        dims[int(made.rng.integers(len(dims)))] = -1
    made.feed[shape] = np.array(dims, np.int64)


def shapes(made: Mutant) -> None:
    """A list of axes, repeats, sizes and the like that fits the first operand's rank."""
    rank = made.feed[made.node.input[0]].ndim if made.node.input[0] in made.feed else 0
    chosen = [int(each) for each in made.rng.permutation(rank)[: int(made.rng.integers(0, rank + 1))]]
    for slot, name in enumerate(made.node.input):
        if slot and name in made.feed and made.formal(slot).name == "axes":
            axes = [each - rank * int(made.rng.integers(2)) for each in chosen]
            made.feed[name] = np.array(axes, made.feed[name].dtype)
        elif slot and name in made.feed and made.formal(slot).name in ("starts", "ends", "steps", "pads"):
            count = len(chosen) * (2 if made.formal(slot).name == "pads" else 1)
            made.feed[name] = made.resized(made.feed[name], (count,))


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
