"""Operators on complex numbers, whose halves are what a model gives: LiteRT's own, and TensorFlow's beside numpy."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from tflite_cases import cases
from tflite_cases_tensorflow import left
from tflite_writing import Net, options

SHAPE = (3, 1, 5)


def spectrum(net: Net) -> int:
    """Complex numbers that LiteRT makes itself."""
    numbers = net.tensor(SHAPE, type_name="COMPLEX64")
    net.op("RFFT2D", [net.input((3, 1, 8)), net.const([1, 8], "int32")], [numbers], options("Rfft2dOptions"))
    return numbers


def shown(net: Net, numbers: int, shape: Sequence[int]) -> Net:
    for half in ("REAL", "IMAG"):
        net.op(half, [numbers], [net.output(tuple(shape))])
    return net


@cases("BROADCAST_TO", "EXPAND_DIMS", "MUL", "RESHAPE", "SELECT", "SELECT_V2", "SLICE", "SQUEEZE", "STRIDED_SLICE")
@cases("TILE", "TRANSPOSE")
def spectra_in_litert() -> Iterator[Net]:
    for name, constants, shape, table, version in (
        ("BROADCAST_TO", [[2, 3, 4, 5]], (2, 3, 4, 5), None, 2),
        ("EXPAND_DIMS", [1], (3, 1, 1, 5), options("ExpandDimsOptions"), 1),
        ("RESHAPE", [[5, 3]], (5, 3), options("ReshapeOptions"), 1),
        ("SLICE", [[1, 0, 2], [2, 1, -1]], (2, 1, 3), options("SliceOptions"), 1),
        ("SQUEEZE", [], (3, 5), options("SqueezeOptions", squeezeDims=[1]), 1),
        ("STRIDED_SLICE", [[0, 0, 1], [3, 1, 5], [1, 1, 2]], (3, 1, 2), options("StridedSliceOptions"), 1),
        ("TILE", [[1, 2, 1]], (3, 2, 5), options("TileOptions"), 1),
        ("TRANSPOSE", [[2, 0, 1]], (5, 3, 1), options("TransposeOptions"), 1),
    ):
        net = Net()
        result = net.tensor(shape, type_name="COMPLEX64")
        operands = [spectrum(net), *(net.const(each, "int32") for each in constants)]
        yield shown(net.op(name, operands, [result], table, version=version), result, shape)
    for name, table in (("SELECT", options("SelectOptions")), ("SELECT_V2", options("SelectV2Options"))):
        net = Net()
        result, wide = net.tensor(SHAPE, type_name="COMPLEX64"), (3, 1, 1) if name == "SELECT_V2" else SHAPE
        operands = [net.input(wide, "bool"), spectrum(net), spectrum(net)]
        yield shown(net.op(name, operands, [result], table), result, SHAPE)
    for other in (True, False):
        net = Net()
        numbers, result = spectrum(net), net.tensor(SHAPE, type_name="COMPLEX64")
        factor = spectrum(net) if other else numbers
        yield shown(net.op("MUL", [numbers, factor], [result], options("MulOptions")), result, SHAPE)


@cases("MUL", "TILE")
def spectra_by_constants() -> Iterator[Net]:
    """As a discrete cosine transform turns its spectrum; a constant that something else than a product reads."""
    turned = np.exp(1j * np.arange(5)).astype(np.complex64)
    for name in ("MUL", "TILE"):
        net = Net()
        constant, result = (
            net.const(turned, "complex64", type_name="COMPLEX64"),
            net.tensor(SHAPE, type_name="COMPLEX64"),
        )
        if name == "TILE":
            wide = net.tensor((10,), type_name="COMPLEX64")
            net.op("TILE", [constant, net.const([2], "int32")], [wide], options("TileOptions"))
            constant = net.tensor((5,), type_name="COMPLEX64")
            operands = [wide, net.const([3], "int32"), net.const([5], "int32")]
            net.op("SLICE", operands, [constant], options("SliceOptions"))
        net.op("MUL", [spectrum(net), constant], [result], options("MulOptions"))
        yield shown(net, result, SHAPE)


def of_constants(*constants: Any) -> Callable[[Net], list[int]]:
    return lambda net: [net.const(each, "int32") for each in constants]


LEFT: dict[str, tuple[int, Callable[[Net], list[int]], tuple[int, ...], Callable[..., Any], dict[str, Any]]] = {
    "AddN": (2, of_constants(), SHAPE, np.add, {"N": 2}),
    "AddV2": (2, of_constants(), SHAPE, np.add, {}),
    "BroadcastTo": (1, of_constants([3, 4, 5]), (3, 4, 5), lambda a: np.broadcast_to(a, (3, 4, 5)), {}),
    "ConcatV2": (2, of_constants(-1), (3, 1, 10), lambda a, b: np.concatenate([a, b], -1), {"N": 2}),
    "Conj": (1, of_constants(), SHAPE, np.conj, {}),
    "Cumsum": (1, of_constants(0), SHAPE, lambda a: np.cumsum(a, 0), {}),
    "Einsum": (2, of_constants(), (3, 3), lambda a, b: np.einsum("abc,dbc->ad", a, b), {"equation": "abc,dbc->ad"}),
    "Exp": (1, of_constants(), SHAPE, np.exp, {}),
    "GatherNd": (1, of_constants([[2, 0], [0, 0]]), (2, 5), lambda a: a[[2, 0], [0, 0]], {}),
    "GatherV2": (1, of_constants([4, 0], 2), (3, 1, 2), lambda a: a[..., [4, 0]], {"batch_dims": 0}),
    "Mean": (1, of_constants([0]), (1, 1, 5), lambda a: a.mean(0, keepdims=True), {"keep_dims": 1}),
    "Mul": (2, of_constants(), SHAPE, np.multiply, {}),
    "Neg": (1, of_constants(), SHAPE, np.negative, {}),
    "Pack": (2, of_constants(), (3, 2, 1, 5), lambda a, b: np.stack([a, b], 1), {"axis": 1, "N": 2}),
    "Pad": (1, of_constants([[0, 1], [2, 0], [0, 0]]), (4, 3, 5), lambda a: np.pad(a, [(0, 1), (2, 0), (0, 0)]), {}),
    "RealDiv": (2, of_constants(), SHAPE, np.divide, {}),
    "ReverseV2": (1, of_constants([2]), SHAPE, lambda a: a[..., ::-1], {}),
    "Roll": (1, of_constants([2], [2]), SHAPE, lambda a: np.roll(a, 2, 2), {}),
    "Slice": (1, of_constants([1, 0, 2], [2, 1, 3]), (2, 1, 3), lambda a: a[1:, :, 2:], {}),
    "Square": (1, of_constants(), SHAPE, np.square, {}),
    "Sub": (2, of_constants(), SHAPE, np.subtract, {}),
    "Sum": (1, of_constants([2]), (3, 1), lambda a: a.sum(2), {"keep_dims": 0}),
    "Tile": (1, of_constants([1, 2, 1]), (3, 2, 5), lambda a: np.tile(a, (1, 2, 1)), {}),
    "Transpose": (1, of_constants([2, 0, 1]), (5, 3, 1), lambda a: a.transpose(2, 0, 1), {}),
}
"""Operator -> complex operands, the others, the result's shape, what it computes, attributes."""


@cases("CUSTOM FlexBatchMatMulV2")
def adjoint_products() -> Iterator[Net]:
    """What is transposed is conjugated, too."""
    for first, second in itertools.product((0, 1), repeat=2):
        net = Net()
        inner = ((5, 1) if first else (1, 5), (1, 5) if second else (5, 1))
        operands = [complex_input(net, (3, *shape)) for shape in inner]
        result = net.tensor((3, 1, 1), type_name="COMPLEX64")
        left(net, "BatchMatMulV2", operands, result, adj_x=first, adj_y=second)

        def computed(*x: Any, adjoint: tuple[int, int] = (first, second)) -> tuple[Any, Any]:
            a, b = (n.conj().swapaxes(1, 2) if each else n for n, each in zip(numbers_of(x), adjoint, strict=True))
            return parts(a @ b)

        net.expected = computed
        yield shown(net, result, (3, 1, 1))


def complex_input(net: Net, shape: tuple[int, ...] = SHAPE) -> int:
    numbers = net.tensor(shape, type_name="COMPLEX64")
    left(net, "Complex", [net.input(shape), net.input(shape)], numbers)
    return numbers


def parts(result: Any) -> tuple[Any, Any]:
    return np.real(result), np.imag(result)


def numbers_of(operands: Sequence[Any]) -> list[Any]:
    return [a + 1j * b for a, b in zip(operands[::2], operands[1::2], strict=True)]


@cases(*(f"CUSTOM Flex{name}" for name in LEFT))
def spectra_in_tensorflow() -> Iterator[Net]:
    for name, (count, others, shape, computed, attributes) in LEFT.items():
        net = Net()
        result = net.tensor(shape, type_name="COMPLEX64")
        operands = [*(complex_input(net) for _ in range(count)), *others(net)]
        left(net, name, operands, result, **attributes)
        net.expected = lambda *x, computed=computed: parts(computed(*numbers_of(x)))
        yield shown(net, result, shape)


@cases("CUSTOM FlexMatMul", "CUSTOM FlexSelectV2", "CUSTOM FlexSplit", "CUSTOM FlexUnpack", "CUSTOM FlexAngle")
def spectra_in_tensorflow_of_other_forms() -> Iterator[Net]:
    def matrix(net: Net) -> int:
        numbers = net.tensor((3, 5), type_name="COMPLEX64")
        return net.op("SQUEEZE", [complex_input(net)], [numbers], options("SqueezeOptions")) and numbers

    net, result = Net(), -1
    result = net.tensor((3, 3), type_name="COMPLEX64")
    left(net, "MatMul", [matrix(net), matrix(net)], result, transpose_a=0, transpose_b=1)
    net.expected = lambda *x: parts(np.matmul(*(n[:, 0] if k == 0 else n[:, 0].T for k, n in enumerate(numbers_of(x)))))
    yield shown(net, result, (3, 3))
    net = Net()
    result = net.tensor(SHAPE, type_name="COMPLEX64")
    left(net, "SelectV2", [net.input((3, 1, 1), "bool"), complex_input(net), complex_input(net)], result)
    net.expected = lambda c, *x: parts(np.where(c, *numbers_of(x)))
    yield shown(net, result, SHAPE)
    net = Net()
    results = [net.tensor((1, 1, 5), type_name="COMPLEX64") for _ in range(3)]
    left(net, "Split", [net.const(0, "int32"), complex_input(net)], results, num_split=3)
    net.expected = lambda *x: parts(numbers_of(x)[0][1:2])
    yield shown(net, results[1], (1, 1, 5))
    net = Net()
    results = [net.tensor((1, 5), type_name="COMPLEX64") for _ in range(3)]
    left(net, "Unpack", [complex_input(net)], results, axis=0, num=3)
    net.expected = lambda *x: parts(numbers_of(x)[0][2])
    yield shown(net, results[2], (1, 5))
    net = Net()
    left(net, "Angle", [complex_input(net)], net.output(SHAPE))
    net.expected = lambda *x: np.angle(numbers_of(x)[0])
    yield net
