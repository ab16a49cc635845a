"""Operators as quantized units, inside and outside of the limits that NPUs have: for their tables and their judges."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import onnx

from rules.cases.making import f, i, positive
from rules.law import Array, Case
from targets.quantizing import quantized, rescaled

BOTH = (np.int8, np.int16)
IMAGE = (1, 6, 9, 8)
SIGNS = {np.int8: "int8", np.uint8: "uint8", np.int16: "int16", np.uint16: "uint16"}


@dataclass(frozen=True)
class UnitCase:
    """An operator between DequantizeLinear and QuantizeLinear.

    Args:
        case: the operator on real numbers.
        dtype: of its integers.
        alike: whether all operands and the result have one scale.
        weights: of its weights' integers.
    """

    case: Case
    dtype: type = np.int8
    alike: bool = True
    weights: type = np.int8

    @property
    def op_type(self) -> str:
        return self.case.op_type

    @property
    def domain(self) -> str:
        return self.case.domain

    def __str__(self) -> str:
        weights = "" if self.weights is np.int8 else f"-{SIGNS[self.weights]}-weights"
        return f"{self.case}-{SIGNS[self.dtype]}{weights}{'' if self.alike else '-scales'}"

    def prepared(self) -> tuple[onnx.ModelProto, dict[str, Array]]:
        """The model, and what it is fed."""
        if self.op_type == "QuantizeLinear":
            return rescaled(self.case.arrays["x"], self.dtype)
        return quantized(self.case, self.dtype, alike=self.alike, constants_too=True, weights=self.weights)


def with_weights(
    op_type: str, x: Array, w: Array, dtype: type = np.int8, alike: bool = False, **attributes: object
) -> UnitCase:
    transposed = op_type == "ConvTranspose"
    groups = attributes.get("group", 1)
    assert isinstance(groups, int)
    given = {"x": x, "w": w, "b": f(w.shape[1] * groups if transposed else w.shape[0])}
    return UnitCase(Case(op_type, given, ("w", "b"), attributes), dtype, alike)


def convolutions() -> Iterator[UnitCase]:
    image, large, square = f(*IMAGE), f(1, 6, 19, 18), f(1, 6, 20, 20)
    for dtype in (np.int8, np.uint8, np.int16, np.uint16):
        yield with_weights("Conv", image, f(4, 6, 3, 2), dtype)
        yield with_weights("Conv", image, f(6, 1, 3, 2), dtype, group=6)
    yield with_weights("Conv", f(2, 6, 9, 8), f(4, 6, 3, 2))
    yield with_weights("Conv", image, f(4, 3, 3, 2), group=2)
    yield with_weights("Conv", image, f(12, 1, 3, 2), group=6)
    yield with_weights("Conv", f(1, 6, 9), f(4, 6, 3))
    yield with_weights("Conv", f(1, 6, 9), f(6, 1, 3), group=6)
    yield with_weights("Conv", f(1, 3, 80, 8), f(4, 3, 65, 1))
    yield with_weights("Conv", f(1, 2, 66, 68), f(3, 2, 64, 66))
    for side in (16, 17):
        yield with_weights("Conv", f(1, 6, 40, 40), f(4, 6, side, side))
        yield UnitCase(Case("AveragePool", {"x": f(1, 6, 40, 40)}, (), {"kernel_shape": [side, side]}))
    for step in (7, 8):
        yield with_weights("Conv", f(1, 6, 40, 40), f(4, 6, 3, 3), strides=[step, step])
        yield with_weights("ConvTranspose", image, f(6, 4, 3, 3), strides=[step, step])
    for steps in ([3, 3], [4, 4]):
        yield with_weights("Conv", large, f(4, 6, 3, 2), strides=steps)
        yield with_weights("Conv", large, f(6, 1, 3, 2), group=6, strides=steps)
        yield with_weights("Conv", large, f(4, 6, 3, 2), strides=steps, dilations=[2, 2])
        yield with_weights("Conv", square, f(4, 6, 5, 5), strides=steps, auto_pad="SAME_UPPER")
    yield UnitCase(Case("Conv", {"x": image, "w": f(4, 6, 3, 2)}))
    yield UnitCase(Case("Conv", {"x": image, "w": f(4, 6, 3, 2)}, ("w",)), np.int16, weights=np.int16)
    yield UnitCase(Case("Conv", {"x": image, "w": f(4, 6, 3, 2)}, ("w",), dynamic=True))


def transposed() -> Iterator[UnitCase]:
    image = f(*IMAGE)
    for steps in ([1, 1], [2, 2], [3, 3], [2, 1], [1, 2]):
        yield with_weights("ConvTranspose", image, f(6, 4, 3, 3), strides=steps)
    for dtype in (np.int8, np.uint8, np.int16):
        yield with_weights("ConvTranspose", image, f(6, 4, 2, 2), dtype, strides=[2, 2])
    yield with_weights("ConvTranspose", f(1, 6, 9, 1), f(6, 4, 2, 1), strides=[2, 1])
    yield with_weights("ConvTranspose", f(1, 6, 1, 9), f(6, 4, 1, 2), strides=[1, 2])
    yield with_weights("ConvTranspose", f(1, 6, 1, 9), f(6, 4, 1, 2), strides=[2, 1])
    yield with_weights("ConvTranspose", image, f(6, 4, 1, 1), strides=[2, 2])
    yield with_weights("ConvTranspose", image, f(6, 4, 4, 4), strides=[2, 2], pads=[1, 1, 1, 1])
    within = {"strides": [2, 2], "output_padding": [1, 1]}
    yield with_weights("ConvTranspose", image, f(6, 4, 3, 3), pads=[1, 1, 1, 1], **within)
    yield with_weights("ConvTranspose", image, f(6, 4, 3, 3), **within)
    yield with_weights("ConvTranspose", image, f(6, 4, 3, 3), dilations=[2, 2])
    yield with_weights("ConvTranspose", f(2, 6, 9, 8), f(6, 4, 2, 2), strides=[2, 2])
    yield with_weights("ConvTranspose", f(1, 6, 9), f(6, 4, 2), strides=[2])


def pools() -> Iterator[UnitCase]:
    image, odd, even = f(*IMAGE), f(1, 6, 17, 17), f(1, 6, 18, 18)
    ones = [1, 1, 1, 1]
    for op in ("MaxPool", "AveragePool"):

        def pool(
            x: Array, *sides: int, op: str = op, dtype: type = np.int8, alike: bool = True, **attributes: object
        ) -> UnitCase:
            return UnitCase(Case(op, {"x": x}, (), {"kernel_shape": sides, **attributes}), dtype, alike)

        for dtype in (np.int8, np.uint8, np.int16):
            yield pool(image, 3, 2, dtype=dtype)
            yield pool(image, 3, 2, dtype=dtype, alike=False)
        yield pool(f(2, 6, 9, 8), 3, 2)
        yield pool(f(1, 6, 9), 3)
        yield pool(image, 3, 2, dilations=[2, 1])
        yield pool(f(1, 6, 19, 18), 3, 2, strides=[3, 3])
        yield pool(f(1, 6, 19, 18), 3, 2, strides=[4, 4])
        yield pool(f(1, 6, 20, 20), 5, 5, strides=[4, 4], auto_pad="SAME_UPPER")
        yield pool(even, 3, 3, strides=[2, 2], pads=ones)
        yield pool(even, 3, 3, strides=[4, 4], pads=ones)
        yield pool(odd, 3, 3, strides=[2, 2], pads=ones)
        yield pool(even, 3, 3, strides=[2, 2], ceil_mode=1)
        yield pool(f(1, 3, 19, 18), 8, 8, auto_pad="SAME_UPPER")
        yield pool(f(1, 3, 19, 18), 9, 9, auto_pad="SAME_UPPER")
        for extents, sides in (((260, 8), (256, 2)), ((260, 8), (257, 2)), ((8, 260), (2, 257))):
            yield pool(f(1, 2, *extents), *sides)
        yield pool(f(1, 2, 257, 258), 256, 257)
    yield UnitCase(Case("MaxPool", {"x": image}, (), {"kernel_shape": [3, 2]}, outputs=2))
    given = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": ones, "count_include_pad": 1}
    yield UnitCase(Case("AveragePool", {"x": odd}, (), given))
    yield UnitCase(Case("AveragePool", {"x": even}, (), given))
    for op in ("GlobalAveragePool", "GlobalMaxPool"):
        for dtype in (np.int8, np.uint8, np.int16):
            yield UnitCase(Case(op, {"x": image}), dtype)
            yield UnitCase(Case(op, {"x": image}), dtype, alike=False)
        for shape in ((2, 6, 9, 8), (1, 6, 9), (2, 6, 9), (2, 3, 4, 6, 9)):
            yield UnitCase(Case(op, {"x": f(*shape)}))


def resizes() -> Iterator[UnitCase]:
    modes = {
        "half": {"mode": "linear", "coordinate_transformation_mode": "half_pixel"},
        "asymmetric": {"mode": "linear", "coordinate_transformation_mode": "asymmetric"},
        "corners": {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
        "floor": {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
    }

    def resize(mode: str, *sizes: int, dtype: type = np.int8, c: int = 6) -> UnitCase:
        given = {"x": f(1, 6, 9, 8), "r": None, "c": None, "s": i(1, c, *sizes)}
        return UnitCase(Case("Resize", given, ("s",), modes[mode]), dtype)

    for mode in ("half", "asymmetric", "floor"):
        for sizes in ((18, 16), (36, 32), (72, 64), (27, 24), (18, 32), (4, 4)):
            yield resize(mode, *sizes)
        for dtype in (np.uint8, np.int16):
            yield resize(mode, 18, 16, dtype=dtype)
    yield resize("corners", 17, 15)
    yield resize("corners", 18, 16)
    yield resize("corners", 5, 4)
    yield resize("floor", 9, 8)
    yield resize("floor", 18, 16, c=12)


def moves() -> Iterator[UnitCase]:
    image = f(*IMAGE)
    for mode in ("DCR", "CRD"):
        yield UnitCase(Case("DepthToSpace", {"x": f(1, 8, 3, 4)}, (), {"blocksize": 2, "mode": mode}))
    pads = i(0, 0, 1, 2, 0, 0, 0, 1)
    for dtype in (np.int8, np.uint8, np.int16):
        yield UnitCase(Case("Pad", {"x": image, "p": pads}, ("p",)), dtype)
        yield UnitCase(Case("Slice", {"x": image, "s": i(1), "e": i(5), "a": i(2)}, ("s", "e", "a")), dtype)
        yield UnitCase(Case("Split", {"x": image}, (), {"axis": 1, "num_outputs": 2}, outputs=2), dtype)
        for alike in (True, False):
            yield UnitCase(Case("Transpose", {"x": image}, (), {"perm": [0, 2, 1, 3]}), dtype, alike)
        yield UnitCase(Case("QuantizeLinear", {"x": image}), dtype)
        for alike in (True, False):
            yield UnitCase(Case("Concat", {"x": image, "y": f(*IMAGE)}, (), {"axis": 1}), dtype, alike)
        yield UnitCase(Case("Flatten", {"x": image}), dtype, alike=False)
        yield UnitCase(Case("Reshape", {"x": image, "s": i(6, 72)}, ("s",)), dtype, alike=False)
        yield UnitCase(Case("Squeeze", {"x": f(2, 1, 4), "a": i(1)}, ("a",)), dtype, alike=False)
        yield UnitCase(Case("Unsqueeze", {"x": f(2, 3, 4), "a": i(1)}, ("a",)), dtype, alike=False)
    yield UnitCase(Case("Unsqueeze", {"x": f(6, 9), "a": i(1)}, ("a",)), alike=False)
    yield UnitCase(Case("Split", {"x": f(4, 9)}, (), {"axis": 0, "num_outputs": 2}, outputs=2))
    for shape, some in (((6, 9, 8), i(0, 0, 1, 2, 0, 0)), (IMAGE, i(0, 1, 0, 0, 0, 2, 0, 0))):
        yield UnitCase(Case("Pad", {"x": f(*shape), "p": some}, ("p",)))
    for mode in ("reflect", "edge"):
        yield UnitCase(Case("Pad", {"x": image, "p": pads}, ("p",), {"mode": mode}))
    yield UnitCase(Case("Pad", {"x": image, "p": i(1, 0, 0, 0, 0, 0, 0, 0)}, ("p",), {"mode": "edge"}))
    yield UnitCase(Case("Pad", {"x": image, "p": i(0, 0, -1, 0, 0, 0, 0, 0)}, ("p",)))
    for start, end, step in ((1, 8, 2), (7, 1, -1)):
        bounds = {"s": i(start), "e": i(end), "a": i(2), "t": i(step)}
        yield UnitCase(Case("Slice", {"x": image, **bounds}, tuple(bounds)))


def products() -> Iterator[UnitCase]:
    for dtype in (np.int8, np.uint8, np.int16):
        yield UnitCase(Case("Gemm", {"x": f(3, 4), "w": f(4, 5), "b": f(5)}, ("w", "b")), dtype, alike=False)
        yield UnitCase(Case("MatMul", {"x": f(2, 3, 4), "w": f(4, 5)}, ("w",)), dtype)
        yield UnitCase(Case("MatMul", {"x": f(2, 3, 4), "w": f(2, 4, 5)}), dtype)
        yield UnitCase(Case("MatMul", {"x": f(2, 3, 4), "w": f(2, 4, 5)}, ("w",)), dtype)
        yield UnitCase(Case("Gemm", {"x": f(3, 4), "w": f(4, 5)}), dtype)
    turned = {"transA": 1, "transB": 1}
    yield UnitCase(Case("Gemm", {"x": f(4, 3), "w": f(5, 4), "b": f(5)}, ("w", "b"), turned), alike=False)
    halved = {"alpha": 0.5, "transB": 1}
    yield UnitCase(Case("Gemm", {"x": f(3, 4), "w": f(5, 4), "b": f(5)}, ("w", "b"), halved), alike=False)


def elementwise() -> Iterator[UnitCase]:
    image = f(*IMAGE)
    for op in ("Add", "Mul", "Sub", "Max", "Min"):
        for dtype in (np.int8, np.uint8, np.int16):
            yield UnitCase(Case(op, {"x": image, "y": f(*IMAGE)}), dtype, alike=False)
            yield UnitCase(Case(op, {"x": image, "y": f(*IMAGE)}), dtype)
        yield UnitCase(Case(op, {"x": f(1, 6, 1, 8), "y": f(1, 1, 9, 1)}))
        yield UnitCase(Case(op, {"x": image, "y": f(1, 6, 1, 1)}, ("y",)))
        yield UnitCase(Case(op, {"x": f(1, 2, 3, 2, 2, 2), "y": f(2, 1)}))
    yield UnitCase(Case("Max", {"x": image, "y": f(*IMAGE), "z": f(*IMAGE)}))
    for op in ("Abs", "Elu", "Gelu", "Neg", "Softplus"):
        yield UnitCase(Case(op, {"x": image}), np.int8, alike=False)
    yield UnitCase(Case("Gelu", {"x": image}, domain="com.microsoft", domain_version=1), np.int8, alike=False)
    for op in ("LeakyRelu", "Relu", "Sigmoid", "Tanh"):
        for dtype in (np.int8, np.uint8, np.int16):
            yield UnitCase(Case(op, {"x": image}), dtype)
            yield UnitCase(Case(op, {"x": image}), dtype, alike=False)
        yield UnitCase(Case(op, {"x": f(5)}))
    for dtype, alike in ((np.int8, True), (np.int8, False), (np.uint8, False), (np.int16, True)):
        yield UnitCase(Case("HardSwish", {"x": image}), dtype, alike)
    for attributes in ({}, {"alpha": 1 / 6}, {"alpha": 0.4, "beta": -0.5}):
        for dtype in (np.int8, np.uint8):
            yield UnitCase(Case("HardSigmoid", {"x": 5 * image}, (), attributes), dtype, alike=False)
    yield UnitCase(Case("HardSigmoid", {"x": 5 * image}), np.int16)
    for dtype in BOTH:
        for low, high in ((0, 6), (-1, 1), (0, 5), (0, None)):
            bounds = {"low": np.array(low, np.float32)}
            bounds |= {} if high is None else {"high": np.array(high, np.float32)}
            yield UnitCase(Case("Clip", {"x": image, **bounds}, tuple(bounds)), dtype)
        yield UnitCase(Case("Softmax", {"x": image}, (), {"axis": -1}), dtype)
    yield UnitCase(Case("Softmax", {"x": image}, (), {"axis": 1}))
    yield UnitCase(Case("Softmax", {"x": f(1, 12)}, (), {"axis": -1}))
    yield UnitCase(Case("Softmax", {"x": f(65536, 4)}, (), {"axis": -1}))
    yield UnitCase(Case("Softmax", {"x": f(65537, 4)}, (), {"axis": -1}))


def reductions() -> Iterator[UnitCase]:
    for op in ("ReduceMean", "ReduceMax", "ReduceMin"):

        def reduce(
            shape: tuple[int, ...], *axes: int, op: str = op, dtype: type = np.int8, alike: bool = True
        ) -> UnitCase:
            return UnitCase(Case(op, {"x": f(*shape), "a": i(*axes)}, ("a",)), dtype, alike)

        for dtype in (np.int8, np.uint8, np.int16):
            yield reduce(IMAGE, 1, 2, dtype=dtype)
            yield reduce(IMAGE, 1, 2, dtype=dtype, alike=False)
        for axes in ((1,), (2,), (3,), (2, 3), (1, 2, 3)):
            yield reduce(IMAGE, *axes)
        yield reduce((1, 6, 1, 8), 3)
        for shape, axis in (
            *(((2, 6, 9, 8), axis) for axis in range(4)),
            ((2, 6, 9), 1),
            ((2, 6, 9), 2),
            ((1, 6, 9), 2),
            ((6, 9), 0),
            ((6, 9), 1),
        ):
            yield reduce(shape, axis)
    for shape, axes in MEANS:
        yield UnitCase(Case("ReduceMean", {"x": f(*shape), "a": i(*axes)}, ("a",)))


MEANS = (
    *(((2, 6, 9, 8), axes) for axes in ((1, 2), (2, 3), (0, 1, 2), (1, 2, 3), (0, 2), (1, 3))),
    *(((2, 3, 4, 5, 6), axes) for axes in ((0,), (2,), (4,), (2, 3), (0, 1, 2, 3), (1, 3))),
    *(((2, 1, 4, 5, 6), axes) for axes in ((4,), (0, 4))),
    *(((1, 5000, 3), axes) for axes in ((1,), (2,), (1, 2))),
    ((1, 4099, 3), (1,)),
    ((2, 70, 60, 3), (1, 2)),
)
"""Means of batches, of many axes, and along axes that are longer than Vela takes."""


def normalizations() -> Iterator[UnitCase]:
    yield UnitCase(Case("Pow", {"x": positive(*IMAGE), "p": np.array(-0.5, np.float32)}, ("p",)), np.int16, alike=False)
    for shape in (IMAGE, (1, 6, 9)):
        for op, channels in (("LayerNormalization", shape[-1]), ("InstanceNormalization", 6)):
            parameters = {"w": f(channels), "b": f(channels)}
            yield UnitCase(Case(op, {"x": f(*shape), **parameters}, ("w", "b")), alike=False)
    yield UnitCase(Case("LayerNormalization", {"x": f(1, 9, 8), "w": f(9, 8)}, ("w",), {"axis": 1}), alike=False)


@cache
def unit_cases() -> tuple[UnitCase, ...]:
    """All of them."""
    groups = (convolutions, transposed, pools, resizes, moves, products, elementwise, reductions, normalizations)
    return tuple(case for group in groups for case in group())
