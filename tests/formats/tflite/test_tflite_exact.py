"""Kernels that are reproduced number by number: tables of 16 bits, resizes in integers, the bits of floats."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tflite_running import check_model, interpreter, read, run_interpreter, session
from tflite_writing import Net, Scale, options

ALL = np.arange(-32768, 32768).astype(np.int16)
NEWEST = {"EXP": 2, "LOG": 2, "RSQRT": 3, "TANH": 3, "LOGISTIC": 3, "GELU": 2}


def results(net: Net, x: Any, *, reference: bool = False) -> tuple[Any, Any]:
    """What the import and the interpreter make of one operand, which the test gives."""
    content = net.bytes()
    ours = session(check_model(read(content)))
    (got,) = ours.run(None, {ours.get_inputs()[0].name: x})
    (wanted,) = run_interpreter(interpreter(content, reference=reference), [x])
    return got, wanted


def unary(name: str, shape: tuple[int, ...], q: Scale, out: Scale, table: Any = None) -> Net:
    net = Net()
    x, y = net.input(shape, "int16", q=q), net.output(shape, "int16", q=out)
    return net.op(name, [x], [y], table, version=NEWEST.get(name, 4))


@pytest.mark.parametrize("scales", [(2**-13, 2**-11), (0.0003, 0.0002), (2**-10, 2**-12), (0.001, 0.01)])
@pytest.mark.parametrize("name", ["EXP", "LOG", "RSQRT"])
def test_interpolated_tables(name: str, scales: tuple[float, float]) -> None:
    x = ALL[32768:] if name == "RSQRT" else ALL
    got, wanted = results(unary(name, x.shape, *map(Scale, scales)), x)
    assert np.array_equal(got, wanted)
    assert len(np.unique(got)) > 100


@pytest.mark.parametrize("scales", [(2**-13, 2**-11), (0.0003, 0.0002), (0.0003, 0.00011), (0.001, 0.01)])
@pytest.mark.parametrize("approximate", [False, True])
def test_gelu_of_sixteen_bits(approximate: bool, scales: tuple[float, float]) -> None:
    """Up to 38 steps off the function; a point of the table may be rounded otherwise by another `tanh`."""
    net = unary("GELU", ALL.shape, *map(Scale, scales), options("GeluOptions", approximate=approximate))
    got, wanted = results(net, ALL)
    off = np.abs(got.astype(int) - wanted)
    assert off.max() <= 1
    assert np.mean(off > 0) < 0.01


@pytest.mark.parametrize("scale", [2**-13, 2**-12, 2**-11, 0.0003, 0.0011, 1e-5])
@pytest.mark.parametrize("name", ["TANH", "LOGISTIC"])
def test_curves_against_the_reference_kernel(name: str, scale: float) -> None:
    """Where the scale is 2^-12 or 2^-11, the other kernel is up to 12 off this one."""
    got, wanted = results(unary(name, ALL.shape, Scale(scale), Scale(2**-15)), ALL, reference=True)
    assert np.abs(got.astype(int) - wanted).max() <= 1


@pytest.mark.parametrize("shape", [(64, 5), (4, 16, 33), (2, 3, 700)])
@pytest.mark.parametrize(("scale", "beta"), [(2**-12, 1.0), (0.0004, 0.7), (0.002, 2.0)])
def test_softmax_of_sixteen_bits(shape: tuple[int, ...], scale: float, beta: float) -> None:
    x = np.random.default_rng(0).integers(-32768, 32768, shape).astype(np.int16)
    net = unary("SOFTMAX", shape, Scale(scale), Scale(2**-15), options("SoftmaxOptions", beta=beta))
    got, wanted = results(net, x)
    assert np.abs(got.astype(int) - wanted).max() <= 1


@pytest.mark.parametrize("mode", [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("sizes", [(5, 6, 10, 7), (5, 7, 3, 4), (4, 9, 13, 2), (3, 2, 1, 8)])
def test_bilinear_in_integers(sizes: tuple[int, int, int, int], mode: tuple[bool, bool]) -> None:
    h, w, *size = sizes
    net = Net()
    x, y = net.input((2, h, w, 3), "int16", q=Scale(0.001)), net.output((2, *size, 3), "int16", q=Scale(0.001))
    table = options("ResizeBilinearOptions", alignCorners=mode[0], halfPixelCenters=mode[1])
    net.op("RESIZE_BILINEAR", [x, net.const(size, "int32")], [y], table, version=4)
    got, wanted = results(net, np.random.default_rng(0).integers(-32768, 32768, (2, h, w, 3)).astype(np.int16))
    assert np.array_equal(got, wanted)


@pytest.mark.parametrize("kinds", [("float16", "int16"), ("float32", "int32"), ("float64", "int64")])
@pytest.mark.parametrize("back", [False, True])
def test_bits_of_floats(kinds: tuple[str, str], back: bool) -> None:
    """Every power of two with its neighbours, both zeros, infinities, the smallest and largest, and random bits."""
    real, whole = map(np.dtype, kinds)
    info, unsigned = np.finfo(real), np.dtype(f"u{whole}")
    powers = np.ldexp(1.0, np.arange(info.minexp - info.nmant, info.maxexp)).astype(real)
    ends = np.array([0, -0.0, np.inf, -np.inf, info.max, -info.max, info.tiny], real)
    near = [np.nextafter(powers, real.type(end)) for end in (0, np.inf)]
    random = np.random.default_rng(1).integers(0, np.iinfo(unsigned).max, 20_000, unsigned, endpoint=True)
    bits = np.concatenate([*(v.view(whole) for v in (powers, -powers, *near, ends)), random.view(whole)])
    bits = bits[~np.isnan(bits.view(real))]
    first, last = kinds[::-1] if back else kinds
    net = Net()
    net.op("BITCAST", [net.input(bits.shape, first)], [net.output(bits.shape, last)], options("BitcastOptions"))
    got, wanted = results(net, bits.view(first))
    assert np.array_equal(got.view(whole), wanted.view(whole))


def test_what_is_not_a_number_stays_that() -> None:
    net = Net()
    net.op("BITCAST", [net.input((3,))], [net.output((3,), "int32")], options("BitcastOptions"))
    nan = np.array([np.nan, 1, -np.nan], np.float32)
    assert np.isnan(results(net, nan)[0].view(np.float32)).tolist() == [True, False, True]


def test_a_mean_of_sixteen_bits_sums_integers() -> None:
    """Rows around 0: what sums of real numbers round is several steps of such a result."""
    net = Net()
    x, y = net.input((64, 24), "int16", q=Scale(2e-5)), net.output((64,), "int16", q=Scale(2e-9))
    net.op("MEAN", [x, net.const([1], "int32")], [y], options("ReducerOptions"), version=3)
    rows = np.random.default_rng(0).integers(-30000, 30000, (64, 12)).astype(np.int16)
    ones = np.random.default_rng(1).integers(-1, 2, (64, 12)).astype(np.int16)
    got, wanted = results(net, np.concatenate([rows, ones - rows], axis=1))
    assert np.abs(got.astype(int) - wanted).max() <= 1
    assert len(np.unique(wanted)) > 10
