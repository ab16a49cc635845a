"""Emitting ONNX nodes on behalf of one TFLite operator: names, types and shapes are taken care of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from relayout.errors import ReadError
from relayout.formats.flatbuffer import Table, empty_table
from relayout.formats.tflite.container.model import MAX_NAME, Operator, Tensor
from relayout.formats.tflite.container.schema import SCHEMA
from relayout.formats.tflite.importing.builder import Builder, Dim, Dims, broadcast, dims
from relayout.formats.tflite.importing.extents import contents, divided, product, shifted, times, total
from relayout.formats.tflite.importing.registry import Entry, Unsupported, entry_of
from relayout.formats.tflite.importing.tensors import Tensors
from relayout.layout import perm as perms

if TYPE_CHECKING:
    from relayout.formats.tflite.importing.program import Program


# The shape and type of a node's result, where the translation that emits the node does not state them.

_FIRST, _LAST = -(2**63), 2**63 - 1  # bounds of a Slice before the first and past the last element

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

SHAPES: Mapping[str, Callable[[Operands, Attributes], Dims]] = {  # operators whose operands do not broadcast
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

_BOOLEAN = frozenset(
    ("And", "Equal", "Greater", "GreaterOrEqual", "IsInf", "IsNaN", "Less", "LessOrEqual", "Not", "Or", "Xor")
)
_INTEGER = frozenset(("ArgMax", "ArgMin", "NonZero", "Shape", "Size"))


def _emitted_type(op_type: str, operands: Sequence[ir.Value | None]) -> ir.DataType | None:
    """Return the type of a node's results; that of its first operand where the operator has no other."""
    if op_type in _BOOLEAN or op_type in _INTEGER:
        return ir.DataType.BOOL if op_type in _BOOLEAN else ir.DataType.INT64
    slot = {"Where": 1, "QuantizeLinear": 2, "DequantizeLinear": 1}.get(op_type, 0)
    operand = operands[slot] if len(operands) > slot else None
    return operand.dtype if operand is not None else None


def options_of(
    operator: Operator,  # the operator, one that is registered
    entry: Entry | None = None,  # its entry, where that is at hand
) -> Table:
    """Return an operator's options, with the defaults where a file leaves them out.

    Raises:
        ReadError: they are those of another operator.
    """
    entry = entry or entry_of(operator.name)
    options, kind = operator.options, entry.options if entry else ""
    if options is None:
        return empty_table(SCHEMA, kind) if kind else Table("", 0, {})
    if kind and options.kind != kind:
        raise ReadError(f"{operator.name} has {options.kind}, not {kind}", where=operator.place)
    return options


class Emission:
    """A TFLite operator, its tensors and options, and the nodes that are written for it."""

    def __init__(self, operator: Operator, entry: Entry, tensors: Tensors, program: Program) -> None:
        self.operator, self.tensors, self.program = operator, tensors, program
        self.builder: Builder = tensors.builder
        self.options = options_of(operator, entry)
        self.source = f"{operator.name} {operator.place}"
        tensors.placeholders.follow(operator)

    def has(self, i: int) -> bool:
        """Tell whether operand i is given."""
        return i < len(self.operator.inputs) and self.operator.inputs[i] >= 0

    def input(self, i: int) -> Tensor:
        """Return the tensor of operand i."""
        if not self.has(i):
            raise ReadError(f"{self.operator.name} lacks operand {i}", where=f"{self.operator.place}.inputs")
        return self.tensors.subgraph.tensors[self.operator.inputs[i]]

    def output(self, i: int = 0) -> Tensor:
        """Return the tensor of result i."""
        if i >= len(self.operator.outputs):
            raise ReadError(f"{self.operator.name} lacks result {i}", where=f"{self.operator.place}.outputs")
        return self.tensors.subgraph.tensors[self.operator.outputs[i]]

    @property
    def place(self) -> str:
        """Return where the operator stands in the file."""
        return self.operator.place

    def emit(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        shape: Dims | None = None,
        dtype: ir.DataType | None = None,
        *,
        name: str = "",
        **attributes: Any,
    ) -> ir.Value:
        """Append a node with one output, of the shape and type that follow from the inputs unless they are stated.

        Raises:
            ValueError: operands contradict each other, or the shape depends on what only a run tells.
        """
        if shape is None:
            shape = SHAPES.get(op_type, _broadcast)([value for value in inputs if value is not None], attributes)
        return self.emit_all(op_type, inputs, [shape], dtype, name=name, **attributes)[0]

    def emit_all(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        shapes: Sequence[Dims],
        dtype: ir.DataType | None = None,
        *,
        name: str = "",
        **attributes: Any,
    ) -> tuple[ir.Value, ...]:
        """Append a node with one output for each shape, between Casts where another type stands in for its own."""
        if (dtype := dtype or _emitted_type(op_type, inputs)) is None:
            raise ValueError(f"{op_type} has no input to take its type from")
        name = name or self.hint(op_type.lower())
        others = self.program.choices.passes.stand_ins.get(op_type, {})
        # The condition of a Where is boolean whatever is chosen among.
        skipped = 1 if op_type == "Where" else 0
        types = [v.dtype for v in inputs[skipped:] if v is not None and v.dtype is not None]
        stand_in_of: dict[ir.DataType | None, ir.DataType] = {kind: others[kind] for kind in types if kind in others}
        operands = [
            self.cast(v, stand_in_of[v.dtype]) if v is not None and v.dtype in stand_in_of and i >= skipped else v
            for i, v in enumerate(inputs)
        ]
        outputs = [(name, stand_in_of.get(dtype, dtype), shape) for shape in shapes]
        results = self.builder.emit(op_type, operands, outputs, source=self.source, **attributes)
        return tuple(self.cast(value, dtype) for value in results)

    def each(self, op_type: str, *operands: ir.Value, dtype: ir.DataType | None = None, **attributes: Any) -> ir.Value:
        """Append a node on each element by itself, of operands that broadcast."""
        return self.emit(op_type, operands, dtype=dtype, **attributes)

    def hint(self, suffix: str) -> str:
        """Return the name wanted for a value of this operator's own."""
        return self.tensors.hint(self.output(), suffix)

    def damaged(self, what: str) -> ReadError:
        """Return the error of a file in which this operator is not what its kernel takes."""
        return ReadError(what, where=self.place)

    def array(self, name: str, array: npt.ArrayLike) -> ir.Value:
        """Return a constant of this operator's own."""
        return self.builder.array(self.hint(name), np.asarray(array))

    def ints(self, values: Sequence[int], name: str = "axes") -> ir.Value:
        """Return a one-dimensional int64 constant."""
        return self.array(name, np.array(values, np.int64))

    def number(self, value: float, like: ir.Value, name: str = "constant") -> ir.Value:
        """Return a scalar constant of the same type as a value."""
        if like.dtype is None:
            raise ValueError(f"{like.name} has no type")
        with np.errstate(over="ignore"):  # damaged files ask for numbers beyond the type's: infinity
            constant = np.array(value, like.dtype.numpy())
        return self.array(name, constant)

    def transpose(self, value: ir.Value, perm: Sequence[int], name: str = "") -> ir.Value:
        """Return a Transpose; the result is named after the value."""
        if len(dims(value)) != len(perm):
            raise self.damaged(f"{self.operator.name} wants rank {len(perm)}, not {len(dims(value))}")
        name = name or f"{(value.name or '')[:MAX_NAME]}/transposed"
        return self.emit("Transpose", [value], name=name, perm=list(perm))

    def reshape(self, value: ir.Value, shape: Sequence[Dim]) -> ir.Value:
        """Return a Reshape to known extents, of which at most one may be known only at run time."""
        target = [dim if isinstance(dim, int) else -1 for dim in shape]
        if target.count(-1) > 1:
            raise Unsupported("a shape with several unknown dimensions")
        # Without allowzero a 0 would copy the input's extent; together with -1 ONNX forbids it.
        zero = 1 if 0 in target and -1 not in target else None
        return self.emit("Reshape", [value, self.ints(target, "shape")], tuple(shape), allowzero=zero)

    def cast(self, value: ir.Value, dtype: ir.DataType) -> ir.Value:
        """Return a Cast, or the value itself if it has the type."""
        return value if value.dtype == dtype else self.emit("Cast", [value], dtype=dtype, to=dtype)

    def fixed(self, extents: Sequence[Dim], unknown: str) -> list[int]:
        """Extents that are all known; where some are not, the operator is unsupported for this reason."""
        known = [extent for extent in extents if isinstance(extent, int)]
        if len(known) != len(extents):
            raise Unsupported(unknown)
        return known

    def out_dims(self, known: Sequence[Dim], i: int = 0) -> Dims:
        """Return the shape of result i: what is known from the operands, else what the file says, else a name."""
        tensor = self.output(i)
        declared = self.tensors.claimed(tensor)
        if len(declared) != len(known):
            declared = (None,) * len(known)
        return tuple(
            dim if dim is not None else self.tensors.symbol(tensor, axis, declared[axis])
            for axis, dim in enumerate(known)
        )
