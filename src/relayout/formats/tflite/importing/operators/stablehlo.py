"""StableHLO operators that work on each element by itself. Their operands have equal shapes: nothing is broadcast."""

from __future__ import annotations

import onnx_ir as ir

from relayout.formats.tflite.importing.builder import dims
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.operators.bodies import carried_operands, hand_over
from relayout.formats.tflite.importing.operators.elementwise import one, two, unary_of_reals
from relayout.formats.tflite.importing.operators.gathering import chosen
from relayout.formats.tflite.importing.registry import Translation, Unsupported, described, operator

_UNARY = {
    "ABS": "Abs",
    "COSINE": "Cos",
    "EXPONENTIAL": "Exp",
    "FLOOR": "Floor",
    "LOG": "Log",
    "LOGISTIC": "Sigmoid",
    "NEGATE": "Neg",
    "TANH": "Tanh",
}

_BINARY = {"DIVIDE": "Div", "POWER": "Pow", "SUBTRACT": "Sub"}

_OF_INTEGERS = {"ADD": ("Add", "Or"), "MAXIMUM": ("Max", "Or"), "MINIMUM": ("Min", "And"), "MULTIPLY": ("Mul", "And")}
"""Those that LiteRT has kernels for, which take no notice of scales; and what they are of booleans."""

_COMPARISONS = ("Equal", "", "GreaterOrEqual", "Greater", "LessOrEqual", "Less")
"""What the numbers of `StablehloComparisonDirection` stand for; 1 is "not equal"."""


def _binary(op_type: str) -> Translation:
    def translate(op: Operation) -> None:
        op.result(two(op, op_type, op.real(0), op.real(1)))

    return described(translate, op_type.lower(), f"{op_type}.")


def _of_integers(op_type: str, logical: str) -> Translation:
    def translate(op: Operation) -> None:
        a, b = op.whole(0), op.whole(1)
        op.result_whole(two(op, logical if a.dtype == ir.DataType.BOOL else op_type, a, b))

    return described(translate, op_type.lower(), f"{op_type}, {logical} of booleans.")


def _logical(op_type: str) -> Translation:
    def translate(op: Operation) -> None:
        a, b = op.raw(0), op.raw(1)
        op.result_stored(two(op, op_type if a.dtype == ir.DataType.BOOL else f"Bitwise{op_type}", a, b))

    return described(translate, op_type.lower(), f"{op_type} of booleans, Bitwise{op_type} of integers.")


for _name, _op_type in _UNARY.items():
    operator(f"STABLEHLO_{_name}")(unary_of_reals(_op_type))
for _name, _op_type in _BINARY.items():
    operator(f"STABLEHLO_{_name}")(_binary(_op_type))
for _name, (_op_type, _of_booleans) in _OF_INTEGERS.items():
    operator(f"STABLEHLO_{_name}")(_of_integers(_op_type, _of_booleans))
for _op_type in ("And", "Or"):
    operator(f"STABLEHLO_{_op_type.upper()}")(_logical(_op_type))


@operator("STABLEHLO_REMAINDER")
def remainder(op: Operation) -> None:
    """Mod with the sign of the dividend."""
    op.result(op.emit("Mod", [op.real(0), op.real(1)], dims(op.stored(0)), fmod=1))


@operator("STABLEHLO_RSQRT")
def rsqrt(op: Operation) -> None:
    """Reciprocal of Sqrt."""
    op.result(one(op, "Reciprocal", one(op, "Sqrt", op.real(0))))


@operator("STABLEHLO_CBRT")
def cbrt(op: Operation) -> None:
    """Pow of the magnitude, with the sign."""
    x = op.real(0)
    root = two(op, "Pow", one(op, "Abs", x), op.number(1 / 3, x, "third"))
    op.result(two(op, "Mul", root, one(op, "Sign", x)))


@operator("STABLEHLO_COMPARE", options="StablehloCompareOptions")
def compare(op: Operation) -> None:
    """Equal, Less and so on; Not of Equal."""
    op.result_stored(compared(op, op.options.comparison_direction, op.real(0), op.real(1)))


def compared(op: Operation, direction: int, a: ir.Value, b: ir.Value) -> ir.Value:
    """A comparison by the number that the schema has for it."""
    if not 0 <= direction < len(_COMPARISONS):
        raise Unsupported(f"comparison {direction}")
    y = two(op, _COMPARISONS[direction] or "Equal", a, b, ir.DataType.BOOL)
    return y if _COMPARISONS[direction] else one(op, "Not", y)


@operator("STABLEHLO_CONVERT")
def convert(op: Operation) -> None:
    """Cast."""
    op.result(op.cast(op.real(0), op.tensors.plain_dtype(op.output())))


@operator("STABLEHLO_CLAMP")
def clamp(op: Operation) -> None:
    """Max with the lower end, Min with the upper one; the value is operand 1."""
    op.result(two(op, "Min", two(op, "Max", op.real(1), op.real(0)), op.real(2)))


@operator("STABLEHLO_SELECT")
def select(op: Operation) -> None:
    """Where."""
    op.result(chosen(op, op.stored(0), op.real(1), op.real(2)))


@operator("STABLEHLO_SHIFT_LEFT")
def shift_left(op: Operation) -> None:
    """BitShift of the same bits without a sign."""
    x, count = op.raw(0), op.raw(1)
    dtype = x.dtype or ir.DataType.INT32
    wide = ir.DataType.UINT64 if dtype in (ir.DataType.INT64, ir.DataType.UINT64) else ir.DataType.UINT32
    y = op.emit("BitShift", [op.cast(x, wide), op.cast(count, wide)], dims(x), direction="LEFT")
    op.result_stored(op.cast(y, dtype))


@operator("STABLEHLO_COMPOSITE", options="StableHLOCompositeOptions")
def composite(op: Operation) -> None:
    """The operators of the decomposition, in place."""
    hand_over(op, op.program.inline(op.options.decomposition_subgraph_index, carried_operands(op), op.place))
