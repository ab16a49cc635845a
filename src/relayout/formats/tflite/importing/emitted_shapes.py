"""The shape and type of a node's result, where the translation that emits the node does not state them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx_ir as ir

from relayout.formats.tflite.importing.builder import Dim, Dims, broadcast, dims
from relayout.formats.tflite.importing.contents import contents
from relayout.formats.tflite.importing.extents import divided, product, shifted, times, total
from relayout.layout import perm as perms

_FIRST, _LAST = -(2**63), 2**63 - 1
"""Bounds of a Slice before the first and past the last element."""

Operands = Sequence[ir.Value]
Attributes = Mapping[str, Any]


def _numbers(operands: Operands, slot: int) -> list[int]:
    """Return a constant operand as numbers.

    Raises:
        ValueError: it is computed.
    """
    if (constant := operands[slot].const_value) is None:
        raise ValueError(f"{operands[slot].name} is computed: the shape behind it has to be stated")
    return [int(item) for item in constant.numpy().reshape(-1)]


def _broadcast(operands: Operands, _: Attributes) -> Dims:
    return broadcast(*map(dims, operands))


def _joined(operands: Operands, attributes: Attributes) -> Dims:
    """All extents but that of the axis are equal: what one operand leaves open another may state."""
    axis, shapes = attributes["axis"], [dims(operand) for operand in operands]
    shape = list(shapes[0])
    for other in shapes[1:]:
        for place, (a, b) in enumerate(zip(shape, other, strict=True)):
            if isinstance(a, int) and isinstance(b, int) and a != b and place != axis:
                raise ValueError(f"{list(shapes[0])} and {list(other)} do not meet at axis {axis}")
            shape[place] = b if isinstance(b, int) or a is None else a
    shape[axis] = total(each[axis] for each in shapes)
    return tuple(shape)


def _expanded(operands: Operands, _: Attributes) -> Dims:
    if (target := contents(operands[1])) is None:
        (rank,) = dims(operands[1])
        if not isinstance(rank, int):
            raise ValueError(f"{operands[1].name} has an unknown number of extents")
        target = (None,) * rank
    return broadcast(dims(operands[0]), target)


_SCALAR = ir.Value(name="scalar", shape=ir.Shape([]))


def _picked(operands: Operands, attributes: Attributes) -> Dims:
    shape, axis = dims(operands[0]), attributes.get("axis") or 0
    axis %= len(shape)
    return (*shape[:axis], *dims(operands[1]), *shape[axis + 1 :])


def _picked_slices(operands: Operands, attributes: Attributes) -> Dims:
    *rows, depth = dims(operands[1])
    if not isinstance(depth, int):
        raise ValueError(f"{operands[1].name} has indices of an unknown length")
    return (*rows, *dims(operands[0])[(attributes.get("batch_dims") or 0) + depth :])


def _product(operands: Operands, _: Attributes) -> Dims:
    a, b = map(dims, operands)
    return (*broadcast(a[:-2], b[:-2]), a[-2], b[-1])


def _affine(operands: Operands, attributes: Attributes) -> Dims:
    a, b = map(dims, operands[:2])
    return a[1 if attributes.get("transA") else 0], b[0 if attributes.get("transB") else 1]


def _padded(operands: Operands, _: Attributes) -> Dims:
    pads, shape = _numbers(operands, 1), dims(operands[0])
    count = len(shape)
    return tuple(shifted(dim, a + b) for dim, a, b in zip(shape, pads[:count], pads[count:], strict=True))


def _reduced(operands: Operands, attributes: Attributes) -> Dims:
    shape = dims(operands[0])
    axes: Sequence[int] = attributes.get("axes") or range(len(shape))
    if "axis" in attributes:
        axes = [attributes["axis"]]
    elif len(operands) > 1:
        axes = _numbers(operands, 1)
    gone = {axis % len(shape) for axis in axes}
    keep = attributes.get("keepdims", 1)
    return tuple(1 if axis in gone else dim for axis, dim in enumerate(shape) if keep or axis not in gone)


def _reshaped(operands: Operands, attributes: Attributes) -> Dims:
    shape, target = dims(operands[0]), _numbers(operands, 1)
    known: list[Dim] = [n if n or attributes.get("allowzero") else shape[i] for i, n in enumerate(target)]
    if -1 in known:
        place = known.index(-1)
        rest = product(known[:place] + known[place + 1 :])
        known[place] = divided(product(shape), rest) if isinstance(rest, int) and rest else None
    return tuple(known)


def _counted(operands: Operands, attributes: Attributes) -> Dims:
    return (len(range(*slice(attributes.get("start"), attributes.get("end")).indices(len(dims(operands[0]))))),)


def _cut(operands: Operands, _: Attributes) -> Dims:
    starts, ends, *_axes = (_numbers(operands, slot) for slot in range(1, len(operands)))
    axes = _axes[0] if _axes else list(range(len(starts)))
    steps = _axes[1] if len(_axes) > 1 else [1] * len(starts)
    shape: list[Dim] = list(dims(operands[0]))
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        extent = shape[axis]
        if isinstance(extent, int):
            shape[axis] = len(range(*slice(start, None if end == _FIRST else end, step).indices(extent)))
        elif not ((start, end) in ((0, _LAST), (_LAST, _FIRST)) and abs(step) == 1):
            # All but so many at the end; of any other cut nobody knows what is left.
            shape[axis] = shifted(extent, end) if step == 1 and start == 0 and _FIRST < end < 0 else None
    return tuple(shape)


def _squeezed(operands: Operands, _: Attributes) -> Dims:
    shape, axes = dims(operands[0]), _numbers(operands, 1)
    return tuple(dim for axis, dim in enumerate(shape) if axis not in axes and axis - len(shape) not in axes)


def _unsqueezed(operands: Operands, _: Attributes) -> Dims:
    shape, axes = list(dims(operands[0])), _numbers(operands, 1)
    rank = len(shape) + len(axes)
    for axis in sorted(axis % rank for axis in axes):
        shape.insert(axis, 1)
    return tuple(shape)


def _tiled(operands: Operands, _: Attributes) -> Dims:
    repeats = contents(operands[1]) or (None,) * len(dims(operands[0]))
    pairs = zip(dims(operands[0]), repeats, strict=True)
    return tuple(times(d, r) if isinstance(r, int) else r if d == 1 else None for d, r in pairs)


_KEEPING = """
    Clip CumSum DequantizeLinear LogSoftmax PRelu QuantizeLinear ReverseSequence ScatterElements ScatterND Softmax
"""
_REDUCING = "ArgMax ArgMin ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare"

SHAPES: Mapping[str, Callable[[Operands, Attributes], Dims]] = {
    **dict.fromkeys(_KEEPING.split(), lambda operands, _: dims(operands[0])),
    **dict.fromkeys(_REDUCING.split(), _reduced),
    "Concat": _joined,
    "ConstantOfShape": lambda operands, _: _expanded([_SCALAR, operands[0]], {}),
    "Expand": _expanded,
    "Gather": _picked,
    "GatherElements": lambda operands, _: dims(operands[1]),
    "GatherND": _picked_slices,
    "Gemm": _affine,
    "MatMul": _product,
    "NonZero": lambda operands, _: (len(dims(operands[0])), None),
    "Pad": _padded,
    "Reshape": _reshaped,
    "Shape": _counted,
    "Size": lambda operands, _: (),
    "Slice": _cut,
    "Squeeze": _squeezed,
    "Tile": _tiled,
    "Transpose": lambda operands, attributes: perms.permute(attributes["perm"], dims(operands[0])),
    "Unsqueeze": _unsqueezed,
}
"""Operators whose operands do not broadcast."""

_BOOLEAN = frozenset(
    ("And", "Equal", "Greater", "GreaterOrEqual", "IsInf", "IsNaN", "Less", "LessOrEqual", "Not", "Or", "Xor")
)
_INTEGER = frozenset(("ArgMax", "ArgMin", "NonZero", "Shape", "Size"))


def emitted_shape(op_type: str, operands: Sequence[ir.Value | None], attributes: Attributes) -> Dims:
    """Return the shape of a node's only result, of an operator in `SHAPES` or one whose operands broadcast.

    Raises:
        ValueError: operands contradict each other, or the shape depends on what only a run tells.
    """
    return SHAPES.get(op_type, _broadcast)([operand for operand in operands if operand is not None], attributes)


def emitted_type(op_type: str, operands: Sequence[ir.Value | None]) -> ir.DataType | None:
    """Return the type of a node's results; that of its first operand where the operator has no other."""
    if op_type in _BOOLEAN or op_type in _INTEGER:
        return ir.DataType.BOOL if op_type in _BOOLEAN else ir.DataType.INT64
    slot = {"Where": 1, "QuantizeLinear": 2, "DequantizeLinear": 1}.get(op_type, 0)
    operand = operands[slot] if len(operands) > slot else None
    return operand.dtype if operand is not None else None
