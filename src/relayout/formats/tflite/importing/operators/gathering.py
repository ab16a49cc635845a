"""Operators that pick elements by index or condition; tables that are looked up; variables and tables by name."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import Tensor, texts
from relayout.formats.tflite.importing.builder import Dim, Dims, Handle, dims, initial_text, variable_name
from relayout.formats.tflite.importing.extents import element
from relayout.formats.tflite.importing.operation import BYTES_ONLY, Operation
from relayout.formats.tflite.importing.operators.shape import scalar
from relayout.formats.tflite.importing.operators.slicing import LAST, extents_of, result_extents, unsqueeze
from relayout.formats.tflite.importing.registry import ANY_OPSET, Unsupported, each_operator, operator
from relayout.formats.tflite.importing.tensors import FEW_BITS, array
from relayout.light_dataclass import dataclass

_BOOL, _INT64 = ir.DataType.BOOL, ir.DataType.INT64


@operator("GATHER", options="GatherOptions", texts=ANY_OPSET)
def gather(op: Operation) -> None:
    """Gather; with batch dimensions GatherND, the axis brought behind them."""
    (x,), finish = op.carried(0)
    indices = op.stored(1)
    if indices.dtype == ir.DataType.INT16:
        indices = op.cast(indices, ir.DataType.INT32)
    axis, batch = op.axis(op.options.axis, len(dims(x))), op.options.batch_dims
    if batch:
        batch = op.axis(batch, len(dims(indices)) + 1)
    if batch > axis:
        raise op.damaged(f"{batch} batch dimensions before axis {axis}")
    if batch:
        each = op.cast(unsqueeze(op, indices, [len(dims(indices))]), _INT64)
        rank, picked, between = len(dims(x)), len(dims(indices)) - batch, axis - batch
        if between:
            x = op.transpose(x, [*range(batch), axis, *range(batch, axis), *range(axis + 1, rank)])
        y = op.emit("GatherND", [x, each], batch_dims=batch)
        if between:
            first = range(batch + picked, batch + picked + between)
            last = range(batch + picked + between, len(dims(y)))
            y = op.transpose(y, [*range(batch), *first, *range(batch, batch + picked), *last])
        finish(y)
    else:
        finish(op.emit("Gather", [x, indices], axis=axis))


@operator("GATHER_ND", texts=ANY_OPSET)
def gather_nd(op: Operation) -> None:
    """GatherND."""
    (x,), finish = op.carried(0)
    indices = op.cast(op.stored(1), _INT64)
    depth = dims(indices)[-1]
    if not isinstance(depth, int) or depth > len(dims(x)):
        raise op.damaged(f"indices of {depth} into rank {len(dims(x))}")
    finish(op.emit("GatherND", [x, indices]))


@operator("SCATTER_ND")
def scatter_nd(op: Operation) -> None:
    """ScatterND that adds to zeros: updates of the same element sum up."""
    updates = op.raw(1)
    extents, shape = result_extents(op, 2)
    zeros = op.emit("Expand", [op.number(0, updates, "zero"), extents], shape)
    op.result_whole(op.emit("ScatterND", [zeros, op.cast(op.stored(0), _INT64), updates], reduction="add"))


def chosen(op: Operation, condition: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
    """Choose between the elements of two values by Where; between booleans, by logic."""
    if a.dtype != _BOOL:
        return op.emit("Where", [condition, a, b])
    # ONNX Runtime has no Where of booleans.
    other = op.emit("Not", [condition])
    return op.each("Or", op.each("And", condition, a), op.each("And", other, b))


@operator("SELECT_V2")
def select_v2(op: Operation) -> None:
    """A Where, broadcast from the right."""
    (a, b), finish = op.carried(1, 2, types=BYTES_ONLY)
    finish(chosen(op, op.stored(0), a, b))


@operator("SELECT")
def select(op: Operation) -> None:
    """A Where; a condition of one dimension chooses among whole rows."""
    (a, b), finish = op.carried(1, 2, types=BYTES_ONLY)
    condition = op.stored(0)
    missing = len(dims(a)) - len(dims(condition))
    if len(dims(condition)) == 1 and missing > 0:
        condition = unsqueeze(op, condition, range(1, 1 + missing))
    finish(chosen(op, condition, a, b))


def counted(op: Operation, count: ir.Value, extent: Dim) -> ir.Value:
    """Return the integers from 0 up to a count, which is an int64 scalar."""
    zero, step = op.number(0, count, "start"), op.number(1, count, "step")
    return op.emit("Range", [zero, count, step], (extent,))


@operator("ONE_HOT", options="OneHotOptions")
def one_hot(op: Operation) -> None:
    """A Where: `on` where the index is the position, else `off`; an index out of range is nowhere, as in TFLite."""
    indices = op.cast(op.stored(0), _INT64)
    rank = len(dims(indices))
    axis = op.axis(op.options.axis, rank + 1)
    (on, off), finish = op.carried(2, 3, types=BYTES_ONLY)
    extent = op.integers(1, 1)[0] if op.is_constant(1) else None
    extent_dim = op.out_dims((*dims(indices)[:axis], extent, *dims(indices)[axis:]))[axis]
    count = op.number(extent, indices, "depth") if extent is not None else scalar(op, op.cast(op.stored(1), _INT64))
    positions = counted(op, count, extent_dim)
    if axis < rank:
        positions = unsqueeze(op, positions, range(1, rank - axis + 1))
    finish(chosen(op, op.each("Equal", unsqueeze(op, indices, [axis]), positions), on, off))


def _diagonal(op: Operation, x: ir.Value, row: int, column: int) -> ir.Value:
    """Return where row equals column in a matrix as large as two axes of a value."""

    def positions(axis: int) -> ir.Value:
        extent = dims(x)[axis]
        if isinstance(extent, int):
            return counted(op, op.number(extent, op.ints([0], "zero"), "extent"), extent)
        return counted(op, scalar(op, op.emit("Shape", [x], start=axis, end=axis + 1)), extent)

    return op.each("Equal", unsqueeze(op, positions(row), [1]), positions(column))


_WITH_DIAGONALS = ("FLOAT32", "INT64", "INT32", "INT16", "INT8", "UINT8")


def _has_kernel(op: Operation) -> None:
    if op.input(0).type.name not in _WITH_DIAGONALS:
        raise Unsupported(f"{op.input(0).type.name}, for which the kernel writes nothing")


@operator("MATRIX_DIAG")
def matrix_diag(op: Operation) -> None:
    """A Where: the operand where row equals column, else 0."""
    _has_kernel(op)
    x = op.raw(0)
    last = len(dims(x)) - 1
    row = unsqueeze(op, x, [last])
    # The rest is the integer 0, whatever that means.
    op.result_whole(chosen(op, _diagonal(op, x, last, last), row, op.number(0, x, "zero")))


@operator("MATRIX_SET_DIAG")
def matrix_set_diag(op: Operation) -> None:
    """A Where: operand 1 where row equals column, else operand 0."""
    _has_kernel(op)
    x, diagonal = op.raw(0), op.raw(1)
    mask = _diagonal(op, x, len(dims(x)) - 2, len(dims(x)) - 1)
    rank = len(dims(diagonal))
    # Spread along the longer side, so that the diagonal's length fits the shorter.
    unknown = "a matrix of unknown size, which decides along which side its diagonal is spread"
    rows, columns = op.fixed(dims(x)[-2:], unknown)
    down = rows <= columns
    spread = unsqueeze(op, diagonal, [rank if down else rank - 1])
    op.result_whole(chosen(op, mask, spread, x))


# Sums, products and extremes of the rows that belong together.


def _limits(dtype: ir.DataType) -> tuple[float, float]:
    if dtype.is_floating_point():
        limits = np.finfo(dtype.numpy())
        return float(limits.min), float(limits.max)
    bounds = np.iinfo(dtype.numpy())
    return int(bounds.min), int(bounds.max)


@dataclass(frozen=True)
class _Segments:
    """The segment of each row."""

    ids: ir.Value  # the segment of each, int64
    count: ir.Value  # how many segments there are, an int64 vector of one element
    known: Dim  # the same, if it is known


def _scattered(op: Operation, x: ir.Value, into: _Segments, reduction: str, start: str) -> ir.Value:
    """Return one row for each segment, all of them `start` at first; `reduction` is how its rows are combined."""
    rank, all_ = len(dims(into.ids)), len(dims(x))
    low, high = _limits(x.dtype or ir.DataType.FLOAT)
    first = {"zero": 0.0, "one": 1.0, "lowest": low, "highest": high}[start]
    rest = dims(x)[rank:]
    # One row more takes what belongs to no segment; it is cut off again.
    rows = op.each("Add", into.count, op.ints([1], "one"))
    if rest:
        rows = op.emit("Concat", [rows, op.emit("Shape", [x], start=rank, end=all_)], axis=0)
    data = op.emit("Expand", [op.number(first, x, "start"), rows])
    negative = op.each("Less", into.ids, op.number(0, into.ids, "zero"))
    ids = op.emit("Where", [negative, into.count, into.ids])
    y = op.emit("ScatterND", [data, unsqueeze(op, ids, [rank]), x], reduction=reduction)
    ends = [op.ints([0], "starts"), op.ints([-1], "ends"), op.ints([0], "axes")]
    return op.emit("Slice", [y, *ends], op.out_dims((into.known, *rest)))


_REDUCTIONS = {"Max": ("max", "lowest"), "Min": ("min", "highest"), "Prod": ("mul", "one"), "Sum": ("add", "zero")}
_DROPPED = "ScatterND, reduction {}; a negative segment is dropped."


@each_operator({f"UNSORTED_SEGMENT_{name.upper()}": row for name, row in _REDUCTIONS.items()}, _DROPPED)
@each_operator({f"CUSTOM FlexUnsortedSegment{name}": row for name, row in _REDUCTIONS.items()}, _DROPPED)
def _unsorted(op: Operation, reduction: str, start: str) -> None:
    ids = op.cast(op.stored(1), _INT64)
    if op.is_constant(2):
        (known,) = op.integers(2, 1)
        into = _Segments(ids, op.ints([known], "count"), known)
    else:
        count = op.cast(op.emit("Reshape", [op.stored(2), op.ints([1], "shape")]), _INT64)
        into = _Segments(ids, count, element(op.stored(2)))
    op.result_stored(_scattered(op, op.stored(0), into, reduction, start))


def _sorted(op: Operation) -> _Segments:
    """Segments of which the last row's is the last one."""
    ids = op.cast(op.stored(1), _INT64)
    if op.is_constant(1):
        known = int(op.constant(1).max(initial=-1)) + 1
        return _Segments(ids, op.ints([known], "count"), known)
    bounds = [op.ints([-1], "starts"), op.ints([LAST], "ends"), op.ints([0], "axes")]
    last = op.emit("Slice", [ids, *bounds])
    return _Segments(ids, op.each("Add", last, op.ints([1], "one")), op.tensors.symbol(op.output(), 0))


_LAST = "the last row's segment is the last one"


@each_operator(
    dict.fromkeys(("SEGMENT_SUM", "CUSTOM FlexSegmentSum"), ("add", "zero")), f"ScatterND that adds; {_LAST}."
)
@each_operator({"CUSTOM FlexSegmentProd": ("mul", "one")}, f"ScatterND that multiplies; {_LAST}.")
def _combined(op: Operation, reduction: str, start: str) -> None:
    op.result_stored(_scattered(op, op.stored(0), _sorted(op), reduction, start))


def _rows_of(op: Operation, into: _Segments, y: ir.Value) -> ir.Value:
    """Return how many rows there are in each segment, with axes of 1 behind."""
    ones = op.emit("Expand", [op.number(1, y, "one"), op.emit("Shape", [into.ids])])
    counts = _scattered(op, ones, into, "add", "zero")
    return unsqueeze(op, counts, range(1, len(dims(y)))) if len(dims(y)) > 1 else counts


@operator("CUSTOM FlexSegmentMean")
def segment_mean(op: Operation) -> None:
    """ScatterND that adds, over how many rows there are; where there is none, 0."""
    into = _sorted(op)
    total = _scattered(op, op.stored(0), into, "add", "zero")
    count = _rows_of(op, into, total)
    op.result_stored(op.each("Div", total, op.each("Max", count, op.number(1, count, "least"))))


_EXTREMES = {f"CUSTOM FlexSegment{name}": _REDUCTIONS[name] for name in ("Max", "Min")}


@each_operator(_EXTREMES, "ScatterND, reduction {}; a segment without rows is 0.")
def _extreme(op: Operation, reduction: str, start: str) -> None:
    into = _sorted(op)
    y = _scattered(op, op.stored(0), into, reduction, start)
    zero = op.number(0, y, "zero")
    op.result_stored(op.emit("Where", [op.each("Greater", _rows_of(op, into, y), zero), y, zero]))


SUM, MEAN, SQRTN = 0, 1, 2  # how EMBEDDING_LOOKUP_SPARSE combines rows


@operator("EMBEDDING_LOOKUP")
def embedding_lookup(op: Operation) -> None:
    """Gather of rows, and of their scales where the result is of real numbers. Operands: indices, table."""
    table, quantization = op.input(1), op.tensors.quantization(op.input(1))
    if table.blocks is not None:
        _rows_by_blocks(op, table, table.blocks.size)
        return
    indices = op.stored(0)
    shape = (*dims(indices), *op.extents(1)[1:])
    few = table.type in FEW_BITS and table.data is not None
    if op.output().type == table.type:
        (x,), finish = op.carried(1)
        finish(op.emit("Gather", [x, indices], axis=0))
    elif quantization is None:
        op.result(op.emit("Gather", [op.stored(1), indices], axis=0))
    elif not quantization.per_channel and not few:
        op.result(op.dequantize(1, op.emit("Gather", [op.stored(1), indices], axis=0)))
    elif (not quantization.per_channel or quantization.axis == 0) and not quantization.zero_point.any():
        stored = _bytes(op, table) if few else op.stored(1)
        rows = op.cast(op.emit("Gather", [stored, indices], axis=0), ir.DataType.FLOAT)
        scale = op.tensors.parameters(table)[0]
        if quantization.per_channel:
            scale = op.emit("Gather", [scale, indices], axis=0)
            scale = unsqueeze(op, scale, range(len(dims(indices)), len(shape)))
        op.result(op.each("Mul", rows, scale))
    elif few:
        op.result(op.emit("Gather", [op.real(1), indices], axis=0))
    else:
        raise Unsupported("a table with a scale for each column, of which the kernel knows nothing")


def _bytes(op: Operation, table: Tensor) -> ir.Value:
    """Return the integers of a table of few bits as bytes: ONNX Runtime gathers nothing shorter."""
    stored = ir.LazyTensor(lambda: ir.Tensor(array(table).astype(np.int8)), ir.DataType.INT8, ir.Shape(table.shape))
    return op.builder.initializer(op.tensors.hint(table, "bytes"), stored)


def _rows_by_blocks(op: Operation, table: Tensor, size: int) -> None:
    """Rows of integers, times those of their blocks' scales."""
    _, scales = op.tensors.blockwise(table, size)
    known, (_, columns), blocks = dims(op.stored(0)), table.shape, scales.shape[1]
    tables = ((_bytes(op, table), columns), (op.builder.array(op.tensors.hint(table, "scale"), scales), blocks))
    rows, factors = (op.emit("Gather", [content, op.stored(0)], axis=0) for content, last in tables)
    parted = op.reshape(op.cast(rows, ir.DataType.FLOAT), (*known, blocks, size))
    op.result(op.reshape(op.each("Mul", parted, op.reshape(factors, (*known, blocks, 1))), (*known, columns)))


@operator("EMBEDDING_LOOKUP_SPARSE", options="EmbeddingLookupSparseOptions")
def embedding_lookup_sparse(op: Operation) -> None:
    """Gather of rows, Mul by their weights, ScatterND that adds; for a mean, Div by what the weights add up to.

    Operands: ids, the places that they belong to, the dense shape of those, weights, table.
    """
    ids, weights, table, combiner = op.stored(0), op.real(3), op.real(4), op.options.combiner
    places = op.cast(op.stored(1), _INT64)
    if combiner not in (SUM, MEAN, SQRTN):
        raise Unsupported(f"combiner {combiner}")
    rank, depth = len(dims(table)) - 1, dims(places)[1] if len(dims(places)) == 2 else None
    if not isinstance(depth, int) or depth < 1:
        raise op.damaged("the places have no coordinates")
    dense, _ = extents_of(op, 2)
    bounds = [op.ints(v, n) for v, n in (([0], "starts"), ([-1], "ends"), ([0], "axes"))]
    outer = op.emit("Slice", [dense, *bounds])
    where = op.emit("Slice", [places, op.ints([0], "starts"), op.ints([-1], "ends"), op.ints([1], "axes")])
    rows = op.emit("Gather", [table, ids], axis=0)
    rows = op.each("Mul", rows, unsqueeze(op, weights, range(1, 1 + rank)))

    def added(values: ir.Value, inner: Dims) -> ir.Value:
        extents = outer
        if inner:
            tail = op.emit("Shape", [table], start=1, end=1 + len(inner))
            extents = op.emit("Concat", [outer, tail], axis=0)
        zeros = op.emit("Expand", [op.number(0, values, "zero"), extents])
        return op.emit("ScatterND", [zeros, where, values], reduction="add")

    y = added(rows, dims(table)[1:])
    if combiner != SUM:
        total = added(op.each("Mul", weights, weights) if combiner == SQRTN else weights, ())
        empty = op.each("Equal", total, op.number(0, total, "zero"))
        total = op.emit("Where", [empty, op.number(1, total, "one"), total])
        total = op.emit("Sqrt", [total]) if combiner == SQRTN else total
        y = op.each("Div", y, unsqueeze(op, total, range(depth - 1, depth - 1 + rank)))
    op.result(y)


@operator("HASHTABLE_LOOKUP")
def hashtable_lookup(op: Operation) -> None:
    """Gather of the row whose key is equal, zeros where there is none; and whether there is one."""
    lookup_keys, keys, x = op.stored(0), op.stored(1), op.raw(2)
    if op.input(2).type not in (op.output().type,) or x.dtype is None or len(dims(x)) < 1:
        raise Unsupported("values of another type")
    same = op.each("Equal", unsqueeze(op, lookup_keys, [1]), unsqueeze(op, keys, [0]))
    bits = op.cast(same, ir.DataType.UINT8)
    hits = op.emit("ReduceMax", [bits, op.ints([1])], keepdims=0)
    rows = op.emit("Gather", [x, op.emit("ArgMax", [bits], axis=1, keepdims=0)], axis=0)
    hit = op.cast(hits, _BOOL)
    hit = unsqueeze(op, hit, range(1, len(dims(x)))) if len(dims(x)) > 1 else hit
    # A row that is not there is all 0, whatever that means.
    op.result_whole(chosen(op, hit, rows, op.number(0, x, "zero")))
    if len(op.operator.outputs) > 1:
        op.result_stored(hits, 1)


@operator("BUCKETIZE", options="BucketizeOptions")
def bucketize(op: Operation) -> None:
    """The number of boundaries that are not greater than each element."""
    x = op.cast(op.real(0), ir.DataType.FLOAT)
    boundaries = op.array("boundaries", np.array(op.options.boundaries, np.float32))
    rank = len(dims(x))
    counted = op.cast(op.each("GreaterOrEqual", unsqueeze(op, x, [rank]), boundaries), ir.DataType.INT32)
    op.result_stored(op.emit("ReduceSum", [counted, op.ints([rank])], keepdims=0))


@operator("UNIQUE", options="UniqueOptions")
def unique(op: Operation) -> None:
    """Unique, in the order of first appearance; where each element's value is among them, and how often it appears."""
    (x,), finish = op.carried(0)
    kind = x.dtype or ir.DataType.FLOAT
    # ONNX Runtime takes these; any other integer fits INT64.
    supported_types = (ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.INT64, ir.DataType.INT8)
    operand = x if kind in supported_types else op.cast(x, _INT64)
    count: Dim = op.tensors.symbol(op.output(), 0)
    extent = dims(x)[0] if len(dims(x)) == 1 else None
    name, dtype = op.hint("unique"), operand.dtype or _INT64
    outputs = [(name, dtype, (count,)), (name, _INT64, (count,)), (name, _INT64, (extent,))]
    if len(op.operator.outputs) > 2:
        outputs.append((name, _INT64, (count,)))
    values, _, inverse, *counts = op.builder.emit("Unique", [operand], outputs, source=op.source, sorted=0)
    finish(op.cast(values, kind))
    op.result_stored(inverse, 1)
    for k, many in enumerate(counts, 2):
        op.result_stored(many, k)


@operator("BROADCAST_ARGS")
def broadcast_args(op: Operation) -> None:
    """The shape that two shapes broadcast to: of either the extent that is not 1."""
    a, b = op.stored(0), op.stored(1)
    known = op.fixed([dims(v)[0] for v in (a, b)], "shapes of unknown rank")
    rank = max(known)

    def filled(value: ir.Value, length: int) -> ir.Value:
        if length == rank:
            return value
        ones = op.array("ones", np.ones(rank - length, value.dtype.numpy() if value.dtype else None))
        return op.emit("Concat", [ones, value], axis=0)

    a, b = filled(a, known[0]), filled(b, known[1])
    op.result_stored(op.emit("Where", [op.each("Equal", a, op.number(1, a, "one")), b, a]))


@operator("SPARSE_TO_DENSE", options="SparseToDenseOptions")
def sparse_to_dense(op: Operation) -> None:
    """ScatterND into the default value. Operands: indices, shape, values, default."""
    indices = op.cast(op.stored(0), _INT64)
    extents, shape = result_extents(op, 1)
    rank = len(shape)
    values, default = op.raw(2), op.raw(3)
    if len(dims(indices)) < 2:  # one index, or a list of them
        count: Dim = dims(indices)[0] if dims(indices) else 1
        indices = op.emit("Reshape", [indices, op.ints([-1, rank], "shape")], (count if rank == 1 else 1, rank))
    if not dims(values):
        values = op.emit("Expand", [values, op.emit("Shape", [indices], start=0, end=1)])
    op.result_whole(op.emit("ScatterND", [op.emit("Expand", [default, extents], shape), indices, values]))


# Variables and tables that operators share by name.


@operator("VAR_HANDLE", options="VarHandleOptions")
def var_handle(op: Operation) -> None:
    """Nothing: the variable's name, which READ_VARIABLE and ASSIGN_VARIABLE follow."""
    op.output()
    op.tensors.handles[op.operator.outputs[0]] = Handle("variable", variable_name(op.operator))


def handle(op: Operation, kind: str) -> Handle:
    """Return what operand 0 refers to."""
    op.input(0)
    resource = op.tensors.handles.get(op.operator.inputs[0])
    if resource is None or resource.kind != kind:
        raise Unsupported(f"a {kind} that no handle names")
    return resource


@operator("READ_VARIABLE", options="ReadVariableOptions")
def read_variable(op: Operation) -> None:
    """The value assigned last, in this run or with `state="io"` in the run before."""
    variable, tensor = handle(op, "variable"), op.output()
    shape = op.out_dims(op.tensors.declared(tensor))
    op.program.variables.read.add(variable.name)
    value = op.program.variables.load(variable.key, variable.name, op.tensors.dtype(tensor), shape)
    if value is None:
        raise Unsupported("a variable that is read before anything assigns to it")
    if value.dtype != op.tensors.dtype(tensor):
        raise op.damaged(f"variable {variable.name} holds {value.dtype}")
    op.result_stored(value)


@operator("ASSIGN_VARIABLE", options="AssignVariableOptions")
def assign_variable(op: Operation) -> None:
    """Nothing: the operand is the variable's value from here on."""
    variable = handle(op, "variable")
    op.program.variables.changed.add(variable.name)
    op.program.variables.store(variable.key, variable.name, op.stored(1))


@operator("CALL_ONCE", options="CallOnceOptions")
def call_once(op: Operation) -> None:
    """The subgraph, at the beginning of each run; with `state="io"` nothing, since its work comes in as inputs.

    There, an input tells its initial value as metadata, `relayout.initial`: JSON, one number where all are equal.
    """
    index, program = op.options.init_subgraph_index, op.program
    if index in program.initialised:
        return
    program.initialised.add(index)
    if program.choices.state == "zero" and not program.nested:
        with program.variables.setting_up():
            program.inline(index, [], op.place)
        return
    with program.variables.setting_up(), program.variables.forgetting() as before, op.builder.body() as nodes:
        program.inline(index, [], op.place)
        if program.choices.state == "zero" and program.variables.assigned(before):
            raise Unsupported("variables that a branch or loop sets up")
        for key in program.variables.assigned(before):
            program.variables.initial[key] = initial_text(program.variables.current[key])
    op.builder.discard(nodes)


_DOMAIN, _VERSION = "ai.onnx.ml", 4
_SUFFIX = {TensorType.INT64: "int64", TensorType.STRING: "string"}


@operator("HASHTABLE", options="HashtableOptions")
def hashtable(op: Operation) -> None:
    """Nothing: the table's number, which the operators below follow."""
    op.output()
    op.tensors.handles[op.operator.outputs[0]] = Handle("table", str(op.options.table_id))


def _elements(op: Operation, i: int, tensor: Tensor) -> list[str | int]:
    if tensor.type not in _SUFFIX:
        raise Unsupported(f"a table of {tensor.type.name}")
    if not op.tensors.is_constant(tensor) and op.stored(i).const_value is None:
        raise Unsupported("a table that is computed")
    return [*texts(tensor)] if tensor.type == TensorType.STRING else [int(v) for v in array(tensor).reshape(-1)]


@operator("HASHTABLE_IMPORT", options="HashtableImportOptions", texts=ANY_OPSET)
def hashtable_import(op: Operation) -> None:
    """Nothing: keys and values, which must be constants. If a key occurs twice, the first wins."""
    table = handle(op, "table")
    keys, values = op.input(1), op.input(2)
    if {keys.type, values.type} != set(_SUFFIX):
        raise Unsupported(f"a table from {keys.type.name} to {values.type.name}")
    content: dict[str | int, str | int] = {}
    both = _elements(op, 1, keys), _elements(op, 2, values)
    if len(both[0]) != len(both[1]):
        raise op.damaged(f"{len(both[0])} keys for {len(both[1])} values")
    for key, value in zip(*both, strict=True):
        content.setdefault(key, value)
    # A table that is filled already stays as it is.
    op.program.tables.setdefault(table.key, content)


def _content(op: Operation) -> dict[str | int, str | int]:
    if (table := op.program.tables.get(handle(op, "table").key)) is None:
        raise Unsupported("a table that nothing fills")
    return table


@operator("HASHTABLE_FIND", options="HashtableFindOptions", texts=ANY_OPSET)
def hashtable_find(op: Operation) -> None:
    """LabelEncoder (ai.onnx.ml), from numbers to texts or from texts to numbers."""
    content, keys, value_type = _content(op), op.stored(1), op.output().type
    default = _elements(op, 2, op.input(2))
    if {op.input(1).type, value_type} != set(_SUFFIX) or op.input(2).type != value_type or len(default) != 1:
        raise Unsupported(f"a table from {op.input(1).type.name} to {value_type.name}")
    if not content or not isinstance(next(iter(content)), str if op.input(1).type == TensorType.STRING else int):
        raise Unsupported("a table that is empty or holds other types")
    suffix = _SUFFIX[value_type]
    attributes = {
        f"keys_{_SUFFIX[op.input(1).type]}s": list(content),
        f"values_{suffix}s": list(content.values()),
        f"default_{suffix}": default[0],
    }
    op.program.domains[_DOMAIN] = _VERSION
    outputs = [(op.hint("found"), op.tensors.dtype(op.output()), dims(keys))]
    (values,) = op.builder.emit("LabelEncoder", [keys], outputs, source=op.source, domain=_DOMAIN, **attributes)
    op.result_stored(values)


@operator("HASHTABLE_SIZE", options="HashtableSizeOptions")
def hashtable_size(op: Operation) -> None:
    """A constant."""
    size = op.array("size", np.array([len(_content(op))], np.int64))
    op.result_stored(op.emit("Identity", [size]))
