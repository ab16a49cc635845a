"""Which element types the kernels of LiteRT take, and how an operator on others runs on wider ones.

    MAXIMUM(uint16, uint16)  ->  CAST, CAST, MAXIMUM(int32, int32), CAST

The table is what ai-edge-litert 2.3 computes rightly on plain numbers, found by running each kernel; some abort on
other types. Operators on quantized integers are none of its business.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import cache
from itertools import zip_longest

import numpy as np
import onnx
import onnx_ir as ir

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.exporting.draft import NUMPY_TYPES, Dims, Draft, DraftOperator, DraftTensor
from relayout.formats.tflite.exporting.registry import Unwritable
from relayout.formats.tflite.exporting.scales import has_zero_point_of_16_bits

# Operands that do not fit each other, in type or extents: LiteRT would refuse the file.

_NAMES = """
    ADD ATAN2 DIV EQUAL FLOOR_DIV FLOOR_MOD GREATER GREATER_EQUAL LESS LESS_EQUAL LOGICAL_AND LOGICAL_OR MAXIMUM MINIMUM
    MUL NOT_EQUAL POW SELECT_V2 SQUARED_DIFFERENCE SUB
"""
ELEMENTWISE = frozenset(_NAMES.split())  # builtins whose operands broadcast
NUMBERS = frozenset({TensorType.FLOAT32, TensorType.INT8, TensorType.UINT8, TensorType.INT16})
"""Types of what kernels of quantized integers compute with; the others are indices, extents and biases."""


def mixed_types(
    node: ir.Node,  # an operator of the standard; for others nothing is known
    version: int,  # the opset
) -> str:
    """Return the reason why a node cannot be run, by the types of its operands; empty if there is none."""
    kinds = [None if value is None else value.dtype for value in node.inputs]
    if node.domain not in ("", "ai.onnx") or len({*kinds} - {None}) < 2:
        return ""
    kind_of: dict[str, ir.DataType] = {}
    for variable, kind in zip(_variables(node.op_type, version, len(kinds)), kinds, strict=False):
        if variable and kind is not None and kind_of.setdefault(variable, kind) != kind:
            return f"operands of {kind_of[variable].name} and {kind.name}, which ONNX wants to be of one type"
    return ""


@cache
def _variables(op_type: str, version: int, count: int) -> tuple[str, ...]:
    """Return the name of each operand's type; empty where its type is a fixed one, or any."""
    try:
        schema = onnx.defs.get_schema(op_type, version, "")
    except onnx.defs.SchemaError:
        return ()
    named = {constraint.type_param_str for constraint in schema.type_constraints}
    formal = [each.type_str if each.is_homogeneous and each.type_str in named else "" for each in schema.inputs]
    is_open = bool(schema.inputs) and schema.inputs[-1].option == onnx.defs.OpSchema.FormalParameterOption.Variadic
    return (*formal, *(formal[-1:] * (count - len(formal)) if is_open else ()))


def require_broadcast(operator: DraftOperator) -> None:
    """Refuse an elementwise operator whose operands do not broadcast: LiteRT would not run the file."""
    dims = [tensor.dims for tensor in operator.inputs if tensor is not None] if operator.name in ELEMENTWISE else []
    for along in zip_longest(*(reversed(each) for each in dims), fillvalue=1):
        extents = {extent for extent in along if isinstance(extent, int) and extent != 1}
        if len(extents) > 1:
            raise Unwritable(f"operands of {' and '.join(map(str, sorted(extents)))} elements along one axis")


def require_scales(operator: DraftOperator) -> None:
    """Refuse an operator on quantized integers that reads numbers without a scale: LiteRT ends the process there."""
    for tensor in operator.inputs:
        if tensor is not None and tensor.quantization is None and tensor.type in NUMBERS:
            raise Unwritable(f"{operator.name} on quantized integers reads {tensor.type.name} without a scale")


# Element types and extents of ONNX values in the terms of a `.tflite` file.

_NAMES = "BFLOAT16 BOOL COMPLEX64 FLOAT16 INT4 INT8 INT16 INT32 INT64 STRING UINT8 UINT16 UINT32 UINT64"
TENSOR_TYPES: Mapping[ir.DataType, TensorType] = {
    **{ir.DataType[name]: TensorType[name] for name in _NAMES.split()},
    ir.DataType.FLOAT: TensorType.FLOAT32,
    ir.DataType.DOUBLE: TensorType.FLOAT64,
}


def stored_type(value: ir.Value) -> TensorType:
    """Return the type of a value's elements where it is an input or output of the file."""
    if value.dtype is None:
        raise Unwritable("the element type of an operand or result is not known")
    if value.dtype not in TENSOR_TYPES:
        raise Unwritable(f"elements of {value.dtype.name}")
    return TENSOR_TYPES[value.dtype]


def kernel_type(value: ir.Value) -> TensorType:
    """Return the type of a value's elements between operators: kernels compute half precision in single."""
    kind = stored_type(value)
    return TensorType.FLOAT32 if kind == TensorType.FLOAT16 else kind


def tensor_dims(value: ir.Value) -> Dims:
    """Return the extents of a value."""
    if value.shape is None:
        raise Unwritable("the rank of an operand or result is not known")
    return tuple(
        dim if isinstance(dim, int) else str(dim.value or f"?{value.name}.{axis}")
        for axis, dim in enumerate(value.shape)
    )


_TABLE = """
fli     ADD SUB MUL FLOOR_MOD NEG CUMSUM RANGE SUM MEAN REDUCE_MAX REDUCE_MIN REDUCE_PROD
fli     LESS LESS_EQUAL GREATER GREATER_EQUAL
fli?    EQUAL NOT_EQUAL
fbB     MAX_POOL_2D
fi      DIV FLOOR_DIV POW ABS SIGN SQUARED_DIFFERENCE
flihbB  MAXIMUM MINIMUM TOPK_V2 SPLIT SPLIT_V UNIQUE
fibB    ARG_MAX ARG_MIN
flihbB? GATHER GATHER_ND REVERSE_V2 PAD PADV2
flibB   DEPTH_TO_SPACE SPACE_TO_DEPTH
flihB   REVERSE_SEQUENCE
flibB?  ONE_HOT SCATTER_ND
flibBI? WHERE
flihbBI?  CONCATENATION
ihbHIB  BITWISE_XOR RIGHT_SHIFT
lihbHIB? STABLEHLO_AND
fedlihbHIB? CAST
ihb     STABLEHLO_SHIFT_LEFT
f       EXP LOG SIN COS SQRT RSQRT SQUARE TANH LOGISTIC CEIL FLOOR ROUND ELU GELU HARD_SWISH LEAKY_RELU PRELU ATAN2
f       RELU RELU6 RELU_N1_TO_1 RELU_0_TO_1 SOFTMAX LOG_SOFTMAX BATCH_MATMUL FULLY_CONNECTED CONV_2D DEPTHWISE_CONV_2D
f       TRANSPOSE_CONV CONV_3D AVERAGE_POOL_2D RESIZE_BILINEAR L2_NORMALIZATION
"""
TYPES: Mapping[str, tuple[TensorType, ...]] = {  # builtin -> the types of its data that its kernel takes
    name: tuple(NUMPY_TYPES[np.dtype(letter).name] for letter in letters)
    for letters, *names in (line.split() for line in _TABLE.strip().splitlines())
    for name in names
}
WIDER: Mapping[TensorType, tuple[TensorType, ...]] = {  # type -> types that hold all its numbers
    TensorType.FLOAT16: (TensorType.FLOAT32,),
    TensorType.BOOL: (TensorType.UINT8, TensorType.INT32),
    TensorType.INT8: (TensorType.INT16, TensorType.INT32),
    TensorType.UINT8: (TensorType.INT16, TensorType.INT32),
    TensorType.INT16: (TensorType.INT32, TensorType.INT64),
    TensorType.UINT16: (TensorType.INT32, TensorType.INT64),
    TensorType.INT32: (TensorType.INT64,),
    TensorType.UINT32: (TensorType.INT64,),
}
_NAMES = """
    ADD BROADCAST_TO CONCATENATION EQUAL GATHER GATHER_ND MUL NOT_EQUAL REVERSE_V2 SPLIT SPLIT_V STABLEHLO_AND SUB
"""
ANY_SIGN = frozenset(_NAMES.split())  # builtins that do the same bits to signed and unsigned integers
ORDERED = frozenset(["LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL", "MAXIMUM", "MINIMUM", "TOPK_V2"])
"""Builtins that only ask for the order of numbers: unsigned ones are moved down to where signed ones lie."""
DATA = {"SPLIT": 1, "TRANSPOSE_CONV": 2, "ONE_HOT": 2, "SCATTER_ND": 1, "SELECT_V2": 1, "FILL": 1}
"""Builtin -> which operand holds its data, where it is not the first."""


def widen(
    draft: Draft,  # the graph
    begin: int,  # the first operator to look at; none of them is a quantized unit's
) -> None:
    """Put CASTs around operators whose kernel does not take the type of their data, in place."""
    added = draft.operators[begin:]
    del draft.operators[begin:]
    for operator in added:
        kind = _data(operator).type
        takes = TYPES.get(operator.name)
        is_text = kind == TensorType.STRING  # see `constants.py`
        # A kernel refuses integers for their zero point.
        is_refused = operator.name == "CONCATENATION" and has_zero_point_of_16_bits(_data(operator))
        if takes is None or is_text or (kind in takes and not is_refused) or _averages_integers(operator):
            draft.operators.append(operator)
            continue
        if kind == TensorType.UINT64 and operator.name in ANY_SIGN | ORDERED:
            _as_signed(draft, operator, moved=operator.name in ORDERED)
            continue
        wide = wider_type(kind, [each for each in takes if each != kind])
        _convert_around(draft, operator, kind, wide, draft.add_cast)


def wider_type(kind: TensorType, types: Collection[TensorType]) -> TensorType:
    """Return one of some types that holds every number of another one: that one, if it is among them."""
    wide = next((each for each in (kind, *WIDER.get(kind, ())) if each in types), None)
    if wide is None:
        raise Unwritable(f"elements of {kind.name}")
    return wide


def _as_signed(
    draft: Draft,  # the graph
    operator: DraftOperator,
    *,
    moved: bool,  # whether 2^63 is subtracted before, and added after it, which keeps the order
) -> None:
    """Write an operator on unsigned integers of 64 bits as one on signed ones."""
    half = draft.constant("half", np.array(-(1 << 63)))

    def convert(source: DraftTensor, result: DraftTensor) -> None:
        names = ["BITCAST", "ADD"] if source.type == TensorType.UINT64 else ["ADD", "BITCAST"]
        if not moved:
            draft.add("BITCAST", [source], [result])
            return
        between = draft.tensor(f"{source.name}/signed", TensorType.INT64, source.dims)
        for name, tensors in zip(names, ((source, between), (between, result)), strict=True):
            draft.add(name, [tensors[0], *([half] if name == "ADD" else [])], [tensors[1]])

    _convert_around(draft, operator, TensorType.UINT64, TensorType.INT64, convert)


def _averages_integers(operator: DraftOperator) -> bool:
    """Return whether a kernel averages integers as they lie: those of one scale, never uint16.

    No other kernel of quantized integers computes what a node on integers does: RELU takes the zero point for 0, ADD
    multiplies by scales.
    """
    data, result = _data(operator), operator.outputs[0]
    if operator.name != "RESIZE_BILINEAR" or data.quantization is None or data.type == TensorType.UINT16:
        return False
    return data.quantization.equals(result.quantization)


def _data(operator: DraftOperator) -> DraftTensor:
    tensor = operator.inputs[DATA.get(operator.name, 0)]
    assert tensor is not None
    return tensor


def _convert_around(
    draft: Draft,
    operator: DraftOperator,
    kind: TensorType,  # the type of its data
    other: TensorType,  # the type in its place
    convert: Callable[[DraftTensor, DraftTensor], None],  # adds what makes elements of one type those of the other
) -> None:
    """Let an operator read and give data of another type."""
    operands = {
        each: _as_type(draft, each, other) for each in operator.inputs if each is not None and each.type == kind
    }
    for operand, converted in operands.items():
        convert(operand, converted)
    results = {each: _as_type(draft, each, other) for each in operator.outputs if each.type == kind}
    operator.inputs = [None if each is None else operands.get(each, each) for each in operator.inputs]
    operator.outputs = [results.get(each, each) for each in operator.outputs]
    draft.operators.append(operator)
    for result, converted in results.items():
        convert(converted, result)


def _as_type(draft: Draft, tensor: DraftTensor, kind: TensorType) -> DraftTensor:
    return draft.tensor(f"{tensor.name}/{kind.name.lower()}", kind, tensor.dims)


NEARLY = 2e-3  # how far kernels take the logarithm of a scale for a whole number, and a little farther


def free_scales(draft: Draft) -> None:
    """Let sums of int16 have scales that are all powers of two, or nearly so, in place.

    By default the kernels shift such integers instead of multiplying them, want one operand to have the result's
    scale, and abort where an operand is stretched.
    """
    for operator in draft.operators:
        tensors = [each for each in (*operator.inputs, *operator.outputs) if each is not None]
        if operator.name not in ("ADD", "SUB") or operator.is_restored:
            continue
        scales = [each.quantization.scale for each in tensors if each.type == TensorType.INT16 and each.quantization]
        powers = np.log2(np.concatenate([*scales, []]))
        if len(scales) == len(tensors) and (abs(powers - powers.round()) < NEARLY).all():
            operator.options["pot_scale_int16"] = False
