"""Fourier transforms that ONNX Runtime's CPU provider runs as products: numpy's values, and no DFT."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

import relayout
from relayout.targets.onnxruntime.fourier import LEAST_ELEMENTS, MOST_WINDOWED, Transform
from running import run
from text_form import floats, model

TWO, ONE = {"MatMul": 2, "Transpose": 2}, {"MatMul": 1}
LENGTHS = {64: TWO, 100: TWO, 257: ONE, 400: TWO, 509: ONE, 606: TWO, 2048: TWO}
"""Of two factors each; 257 and 509 are primes."""
KINDS = {"half": (1, 1, 0), "real": (1, 0, 0), "complex": (2, 0, 0), "inverse": (2, 0, 1)}
"""Parts of a number, `onesided`, `inverse`."""
ROWS = {"rows": (9,), "behind one": (1, 9), "before one": (9, 1), "several": (2, 9, 3)}


def counts(proto: onnx.ModelProto) -> dict[str, int]:
    """The operators of a model, but for those that move no byte."""
    found = Counter(node.op_type for node in proto.graph.node)
    return {name: count for name, count in found.items() if name not in ("Reshape", "Slice", "Unsqueeze")}


def expected(array: NDArray[Any], half: int, inverse: int) -> NDArray[Any]:
    """The transform along the axis before the last, as numpy has it, in double precision."""
    numbers = array[..., 0] + (1j * array[..., 1] if array.shape[-1] == 2 else 0)
    found = np.fft.ifft(numbers, axis=-1) if inverse else np.fft.fft(numbers, axis=-1)
    kept = found[..., : found.shape[-1] // 2 + 1] if half else found
    return np.stack([kept.real, kept.imag], -1)


def check(proto: onnx.ModelProto, array: NDArray[Any], wanted: NDArray[Any]) -> None:
    (got,) = run(proto, {"x": array})
    assert got.shape == wanted.shape
    assert np.abs(got - wanted).max() <= 2e-6 * np.abs(wanted).max()


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.sampled(every=3)
def test_a_transform_is_products(length: int, kind: str, rows: str) -> None:
    """Also where nothing but the length is known: no shape is computed at run time."""
    parts, half, inverse = KINDS[kind]
    shape = (*ROWS[rows], length, parts)
    array = floats(*shape)
    attributes = f"axis={len(shape) - 2}, onesided={half}, inverse={inverse}"
    for extents in (ROWS[rows], tuple(f"d{place}" for place in range(len(shape) - 2))):
        said = ",".join(map(str, (*extents, length, parts)))
        text = f"g (float[{said}] x) => (float y) {{ y = DFT<{attributes}>(x) }}"
        source = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 19]>\n{text}')
        result = relayout.optimize(source, target="onnxruntime-cpu")
        assert "operators replaced by others: 1 DFT" in result.report.notes
        operators = counts(result.proto)
        assert operators["MatMul"] == LENGTHS[length]["MatMul"]
        assert operators.keys() <= LENGTHS[length].keys()
        assert result.report.source_transposes == 0
        check(result.proto, array, expected(array, half, inverse))


def dft(shape: str, call: str = "DFT<onesided=1>(x, , axis)", dtype: str = "float") -> onnx.ModelProto:
    constants = {"axis": np.array(1, np.int64), "last": np.array(-2, np.int64), "whole": np.array(128, np.int64)}
    constants["half"] = np.array(64, np.int64)
    kept = {name: array for name, array in constants.items() if name in call}
    return model(f"g ({dtype}[{shape}] x, int64 n) => ({dtype} y) {{ y = {call} }}", **kept)


@pytest.mark.parametrize("call", ["DFT(x)", "DFT(x, , last)", "DFT(x, whole, axis)"])
def test_an_axis_as_an_input(call: str) -> None:
    result = relayout.optimize(dft("9,128,1", call), target="onnxruntime-cpu").proto
    assert counts(result) == TWO
    array = floats(9, 128, 1)
    (got,) = run(result, {"x": array, "n": np.array(1, np.int64)})
    np.testing.assert_allclose(got, expected(array, 0, 0), rtol=0, atol=1e-4)


KEPT = {
    "another axis": dft("64,128,2", "DFT(x, , zero)"),
    "an axis that is computed": dft("9,128,1", "DFT(x, , n)"),
    "a length that is computed": dft("9,128,1", "DFT(x, n, axis)"),
    "a part of the axis": dft("9,128,1", "DFT(x, half, axis)"),
    "few elements": dft(f"{LEAST_ELEMENTS // 128 - 1},128,1"),
    "a short axis": dft("99,32,1"),
    "large matrices": dft("9,8191,1"),
    "an open axis": dft("9,n,1"),
    "doubles": dft("9,128,1", dtype="double"),
}
KEPT["another axis"].graph.initializer.add(name="zero", data_type=onnx.TensorProto.INT64, int64_data=[0])


@pytest.mark.parametrize("name", KEPT)
def test_a_transform_stays(name: str) -> None:
    result = relayout.optimize(KEPT[name], target="onnxruntime-cpu").proto
    assert [node.op_type for node in result.graph.node] == ["DFT"]


@pytest.mark.parametrize(("rows", "inner"), [((2, 9, 3), 1), ((9, 1), 0), ((4, "n", 3), 1), (("m", "n", 1), 1)])
def test_the_longest_axis_is_that_of_the_rows(rows: tuple[int | str, ...], inner: int) -> None:
    steps = Transform(128, 1, inverse=False, half=True).steps(rows)
    (perm,) = (step.attributes["perm"] for step in steps if step.name == "apart")
    assert isinstance(perm, tuple)
    assert perm[-2] == inner


WINDOWS = {"odd step": (400, 160, True), "no window": (256, 64, False), "two sides": (512, 128, True)}


def stft(
    count: int, step: int, window: bool, *, half: int = 1, said: str = "2,4000,1", shorter: int = 0
) -> onnx.ModelProto:
    constants = {"step": np.array(step, np.int64), "count": np.array(count, np.int64)}
    if window:
        constants["window"] = np.hanning(count - shorter).astype(np.float32)
    call = f"STFT<onesided={half}>(x, step, {'window' if window else ''}, count)"
    return model(f"g (float[{said}] x) => (float y) {{ y = {call} }}", **constants)


@pytest.mark.parametrize("said", ["2,4000,1", "b,n,1", "2,4000"])
@pytest.mark.parametrize("name", WINDOWS)
def test_a_short_time_transform_is_a_convolution(name: str, said: str) -> None:
    count, step, window = WINDOWS[name]
    half = int(name != "two sides")
    result = relayout.optimize(stft(count, step, window, half=half, said=said), target="onnxruntime-cpu").proto
    ones = {"Squeeze", "Unsqueeze"} if "n" in said else set()  # an axis of one element moves beside open ones
    assert counts(result).keys() <= {"Conv", "Transpose"} | ones
    array = floats(2, 4000, 1) if said.endswith("1") else floats(2, 4000)
    frames = np.lib.stride_tricks.sliding_window_view(array.reshape(2, 4000), count, axis=1)[:, ::step]
    shaped = frames * (np.hanning(count) if window else 1)
    check(result, array, expected(shaped[..., None], half, 0))


@pytest.mark.parametrize(
    "source",
    [
        stft(2 * MOST_WINDOWED, 256, True),
        stft(400, 160, True, said="2,300,1"),
        stft(32, 16, True),
        stft(400, 160, True, shorter=100),
        model("g (float[2,4000,1] x, float[400] w) => (float y) { y = STFT(x, step, w) }", step=np.array(160)),
        model("g (float[2,4000,1] x, int64 step) => (float y) { y = STFT(x, step, w) }", w=floats(400)),
    ],
    ids=[
        "a long power of two",
        "no whole window",
        "a short window",
        "filled up",
        "a computed window",
        "a computed step",
    ],
)
def test_a_short_time_transform_stays(source: onnx.ModelProto) -> None:
    result = relayout.optimize(source, target="onnxruntime-cpu").proto
    assert [node.op_type for node in result.graph.node] == ["STFT"]
