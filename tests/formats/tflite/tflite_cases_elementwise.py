"""Small models of operators that work element by element."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from tflite_cases import I8, OUT8, U8, cases, rng
from tflite_writing import Net, Scale, options

SHAPE = (2, 3, 4, 5)


def unary(name: str, low: float = -3, high: float = 3, dtype: str = "float32", table: object = None) -> Net:
    net = Net()
    return net.op(name, [net.input(SHAPE, dtype, low, high)], [net.output(SHAPE, dtype)], table)


def unary8(
    name: str, q: Scale = U8, out: Scale = OUT8, dtype: str = "int8", table: object = None, version: int = 2
) -> Net:
    net = Net()
    x = net.input(SHAPE, dtype, q=q)
    return net.op(name, [x], [net.output(SHAPE, dtype, q=out)], table, version=version)


@cases("ABS", "CEIL", "COS", "ELU", "EXP", "FLOOR", "HARD_SWISH", "LOGISTIC", "NEG", "RELU", "ROUND", "SIGN", "SIN",
       "SQUARE", "TANH", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1", "ZEROS_LIKE")  # fmt: skip
def one_operand() -> Iterator[Net]:
    for name in ("ABS", "CEIL", "COS", "ELU", "EXP", "FLOOR", "HARD_SWISH", "LOGISTIC", "NEG", "RELU", "ROUND", "SIGN"):
        yield unary(name)
    for name in ("SIN", "SQUARE", "TANH", "RELU_N1_TO_1", "RELU_0_TO_1", "ZEROS_LIKE"):
        yield unary(name)
    yield unary("RELU6", -3, 9)
    yield unary("ABS", dtype="int32", low=-50, high=50)
    yield unary("NEG", dtype="int32", low=-50, high=50)


@cases("LOG", "SQRT", "RSQRT")
def one_positive_operand() -> Iterator[Net]:
    for name in ("LOG", "SQRT", "RSQRT"):
        yield unary(name, 0.1, 5)


@cases("LOGISTIC", "TANH", "RELU", "RELU6", "HARD_SWISH", "ABS", "LEAKY_RELU", "ELU")
def one_quantized_operand() -> Iterator[Net]:
    yield unary8("LOGISTIC", Scale(0.05, 3), Scale(1 / 256, -128))
    yield unary8("LOGISTIC", Scale(0.05, 130), Scale(1 / 256, 0), "uint8", version=1)
    yield unary8("TANH", Scale(0.03, 3), Scale(1 / 128, 0))
    yield unary8("RELU", Scale(0.05, 3), Scale(0.05, 3))
    yield unary8("RELU", Scale(0.05, 3), Scale(0.03, -128))
    yield unary8("RELU6", Scale(0.08, 3), Scale(0.08, 3))
    yield unary8("RELU6", Scale(0.08, 100), Scale(6 / 255, 0), "uint8")
    yield unary8("HARD_SWISH", Scale(0.05, 3), Scale(0.03, -100), version=1)
    yield unary8("ABS", Scale(0.05, 3), Scale(0.06, -128))
    yield unary8("LEAKY_RELU", Scale(0.05, 3), Scale(0.04, -20), table=options("LeakyReluOptions", alpha=0.3))


@cases("LOGICAL_NOT")
def not_() -> Iterator[Net]:
    yield unary("LOGICAL_NOT", dtype="bool")


@cases("LEAKY_RELU", "GELU")
def parametrized() -> Iterator[Net]:
    yield unary("LEAKY_RELU", table=options("LeakyReluOptions", alpha=0.3))
    for approximate in (False, True):
        yield unary("GELU", table=options("GeluOptions", approximate=approximate))


@cases("PRELU")
def prelu() -> Iterator[Net]:
    for shape in ((4, 5), (5,), (1, 1, 5), (3, 4, 5)):
        net = Net()
        slope = net.const(rng().uniform(-1, 1, shape))
        yield net.op("PRELU", [net.input(SHAPE), slope], [net.output(SHAPE)])
    net = Net()
    slope = net.const(rng().integers(-90, 90, (1, 1, 5)), "int8", q=Scale(0.01))
    yield net.op("PRELU", [net.input(SHAPE, "int8", q=I8), slope], [net.output(SHAPE, "int8", q=OUT8)])


ARITHMETIC = {"ADD": "AddOptions", "SUB": "SubOptions", "MUL": "MulOptions", "DIV": "DivOptions"}


@cases("ADD", "SUB", "MUL", "DIV")
def arithmetic() -> Iterator[Net]:
    for name, table in ARITHMETIC.items():
        for activation in (0, 1, 2, 3):
            net = Net()
            x, y = net.input(SHAPE), net.input((4, 1) if activation else SHAPE, low=0.5, high=9)
            yield net.op(name, [x, y], [net.output(SHAPE)], options(table, fusedActivationFunction=activation))
        net = Net()
        x, y = net.input((3, 1), "int32", -90, 90), net.input((2, 1, 5), "int32", 1, 7)
        yield net.op(name, [x, y], [net.output((2, 3, 5), "int32")], options(table))


@cases("ADD", "SUB", "MUL")
def quantized_arithmetic() -> Iterator[Net]:
    for name in ("ADD", "SUB", "MUL"):
        for dtype, a, b, out in (("int8", I8, Scale(0.02, 9), OUT8), ("uint8", U8, Scale(0.07, 90), Scale(0.1, 140))):
            for activation in (0, 1, 3):
                net = Net()
                x, y = net.input(SHAPE, dtype, q=a), net.input((4, 5), dtype, q=b)
                table = options(ARITHMETIC[name], fusedActivationFunction=activation)
                yield net.op(name, [x, y], [net.output(SHAPE, dtype, q=out)], table, version=2)
    net = Net()  # one tensor used twice
    x = net.input(SHAPE, "int8", q=I8)
    yield net.op("ADD", [x, x], [net.output(SHAPE, "int8", q=Scale(0.08, -5))], options("AddOptions"), version=2)
    net = Net()
    x, y = (
        net.input(SHAPE, "int16", -30000, 30000, q=Scale(2**-12)),
        net.input(SHAPE, "int16", -30000, 30000, q=Scale(2**-13)),
    )
    table = options("AddOptions", potScaleInt16=False)
    yield net.op("ADD", [x, y], [net.output(SHAPE, "int16", q=Scale(2**-11))], table, version=4)


@cases("MAXIMUM", "MINIMUM", "POW", "SQUARED_DIFFERENCE", "FLOOR_DIV", "FLOOR_MOD", "ATAN2")
def two_operands() -> Iterator[Net]:
    for name in ("MAXIMUM", "MINIMUM", "POW", "SQUARED_DIFFERENCE", "FLOOR_DIV", "FLOOR_MOD"):
        net = Net()
        x, y = net.input(SHAPE, low=0.1 if name == "POW" else -5, high=5), net.input((3, 1, 5), low=-3, high=3)
        yield net.op(name, [x, y], [net.output(SHAPE)])
    net = Net()
    yield net.op("ATAN2", [net.input(SHAPE), net.input(SHAPE)], [net.output(SHAPE)])
    for name in ("MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE"):
        net = Net()
        yield net.op(
            name, [net.input(SHAPE, "int32", -9, 9), net.input((5,), "int32", -9, 9)], [net.output(SHAPE, "int32")]
        )
    for name in ("MAXIMUM", "MINIMUM"):
        net = Net()
        yield net.op(
            name,
            [net.input(SHAPE, "int8", q=I8), net.input((5,), "int8", q=I8)],
            [net.output(SHAPE, "int8", q=I8)],
            version=2,
        )
    net = Net()
    x, y = net.input(SHAPE, "int8", q=I8), net.input(SHAPE, "int8", q=Scale(0.03, 4))
    yield net.op("SQUARED_DIFFERENCE", [x, y], [net.output(SHAPE, "int8", q=Scale(0.3, -128))], version=2)


@cases("FLOOR_DIV", "FLOOR_MOD")
def floors_of_integers() -> Iterator[Net]:
    divisor = np.array([-7, -3, 2, 5, 9], np.int32)
    for name in ("FLOOR_DIV", "FLOOR_MOD"):
        net = Net()
        y = net.const(divisor, "int32")
        yield net.op(name, [net.input(SHAPE, "int32", -50, 50), y], [net.output(SHAPE, "int32")], version=2)


@cases("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL")
def comparisons() -> Iterator[Net]:
    for name in ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL"):
        net = Net()
        x, y = net.input(SHAPE, "int32", -2, 2), net.input((3, 1, 5), "int32", -2, 2)
        yield net.op(name, [x, y], [net.output(SHAPE, "bool")])
        net = Net()
        yield net.op(name, [net.input(SHAPE), net.input((5,))], [net.output(SHAPE, "bool")])
        net = Net()
        x, y = net.input(SHAPE, "int8", q=I8), net.input((5,), "int8", q=I8)
        yield net.op(name, [x, y], [net.output(SHAPE, "bool")], version=2)
        # Kernels bring numbers to 1/256 first: 0.001 and 0.002 are equal.
        for kind, first, second in (("int8", 0.001, 0.001), ("uint8", 0.01, 0.013), ("int16", 0.001, 0.002)):
            yield compared_by_steps(name, kind, Scale(first), Scale(second))
        some = np.arange(-50, 50, 20, dtype=np.int8)
        yield compared_by_steps(name, "int8", Scale(0.006, -3), Scale(0.007, 4), some)


def compared_by_steps(name: str, kind: str, first: Scale, second: Scale, constant: object = None) -> Net:
    net = Net()
    net.meant = False
    x = net.input(SHAPE, kind, *((0, 9) if constant is None else (-60, 60)), q=first)
    y = net.input((5,), kind, 0, 9, q=second) if constant is None else net.const(constant, kind, q=second)
    return net.op(name, [x, y], [net.output(SHAPE, "bool")], version=2)


@cases("LOGICAL_AND", "LOGICAL_OR")
def logic() -> Iterator[Net]:
    for name in ("LOGICAL_AND", "LOGICAL_OR"):
        net = Net()
        yield net.op(name, [net.input(SHAPE, "bool"), net.input((4, 1), "bool")], [net.output(SHAPE, "bool")])


@cases("BITWISE_XOR", "RIGHT_SHIFT")
def bits() -> Iterator[Net]:
    for dtype in ("int8", "uint8", "int16", "int32"):
        net = Net()
        yield net.op(
            "BITWISE_XOR",
            [net.input(SHAPE, dtype, -100, 100), net.input((5,), dtype, -9, 99)],
            [net.output(SHAPE, dtype)],
        )
        net = Net()
        x, count = net.input(SHAPE, dtype, -100, 100), net.input(SHAPE, dtype, 0, 6)
        yield net.op("RIGHT_SHIFT", [x, count], [net.output(SHAPE, dtype)])


@cases("ADD_N")
def add_n() -> Iterator[Net]:
    net = Net()
    yield net.op("ADD_N", [net.input(SHAPE), net.input(SHAPE), net.input(SHAPE)], [net.output(SHAPE)])


@cases("CAST")
def cast() -> Iterator[Net]:
    pairs = (
        "float32 int32, int32 float32, bool float32, int32 int64, uint8 float32, float32 bool, int8 int32, int64 int8"
    )
    for source, target in (pair.split() for pair in pairs.split(", ")):
        net = Net()
        yield net.op("CAST", [net.input(SHAPE, source, -90, 90)], [net.output(SHAPE, target)], options("CastOptions"))
    net = Net()  # a cast takes no notice of scales
    yield net.op("CAST", [net.input(SHAPE, "uint8", q=U8)], [net.output(SHAPE, "float32")], options("CastOptions"))


@cases("QUANTIZE", "DEQUANTIZE")
def quantization() -> Iterator[Net]:
    for dtype, q in (("int8", I8), ("uint8", U8), ("int16", Scale(0.001))):
        net = Net()
        yield net.op("QUANTIZE", [net.input(SHAPE)], [net.output(SHAPE, dtype, q=q)])
        net = Net()
        yield net.op("DEQUANTIZE", [net.input(SHAPE, dtype, -300, 300, q=q)], [net.output(SHAPE)], version=3)
    net = Net()
    yield net.op(
        "QUANTIZE", [net.input(SHAPE, "int8", q=I8)], [net.output(SHAPE, "uint8", q=Scale(0.07, 90))], version=2
    )
    net = Net()
    yield net.op(
        "QUANTIZE", [net.input(SHAPE)], [net.output(SHAPE, "int8", q=Scale([0.01, 0.02, 0.03, 0.04], 0, 2))], version=2
    )
    net = Net()
    half = net.const(rng().normal(size=SHAPE), "float16")
    full = net.tensor(SHAPE)
    net.op("DEQUANTIZE", [half], [full], version=3)
    yield net.op("ADD", [net.input(SHAPE), full], [net.output(SHAPE)], options("AddOptions"))


@cases("SOFTMAX", "LOG_SOFTMAX", "L2_NORMALIZATION", "LOCAL_RESPONSE_NORMALIZATION")
def norms() -> Iterator[Net]:
    for beta in (1.0, 2.5):
        yield unary("SOFTMAX", table=options("SoftmaxOptions", beta=beta))
    for dtype, q, out in (("int8", I8, Scale(1 / 256, -128)), ("uint8", U8, Scale(1 / 256, 0))):
        yield unary8("SOFTMAX", q, out, dtype, options("SoftmaxOptions", beta=1.0))
        net = Net()  # 256 steps, of which a byte holds 255
        x, y = net.input((2, 3, 1), dtype, q=q), net.output((2, 3, 1), dtype, q=out)
        yield net.op("SOFTMAX", [x], [y], options("SoftmaxOptions", beta=1.0), version=2)
    yield unary("LOG_SOFTMAX")
    yield unary("L2_NORMALIZATION", table=options("L2NormOptions"))
    yield unary("L2_NORMALIZATION", low=-1e-8, high=1e-8, table=options("L2NormOptions"))
    table = options("LocalResponseNormalizationOptions", radius=1, bias=1.5, alpha=0.3, beta=0.6)
    yield unary("LOCAL_RESPONSE_NORMALIZATION", table=table)
