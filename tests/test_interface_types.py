"""Element types of a quantized interface: the same model from every type to every other, in both formats."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import relayout
from products import in_full
from relayout.errors import LayoutError
from relayout.pipeline import check_plan
from running import run
from targets.quantized_nets import CHANNELS, residual
from text_form import floats, model

ROOT = Path(__file__).parents[1]
INT8 = ROOT / "models" / "tinynet_int8.tflite"
FLOAT = ROOT / "models" / "tinynet_float.tflite"
TYPES = {"float32": np.float32, "int8": np.int8, "uint8": np.uint8}


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return one network with each interface, as ONNX."""
    folder = tmp_path_factory.mktemp("sources")
    found = {}
    for kind in TYPES:
        found[kind] = folder / f"{kind}.onnx"
        relayout.convert(INT8, input_type=kind, output_type=kind).save(found[kind])
    return found


@pytest.mark.parametrize(("before", "after", "suffix"), list(product(TYPES, TYPES, ("onnx", "tflite"))))
@pytest.mark.sampled(every=3)
def test_every_type_becomes_every_other(
    sources: dict[str, Path], before: str, after: str, suffix: str, tmp_path: Path
) -> None:
    result = relayout.convert(
        sources[before], input_type=after, output_type=after, format="tflite" if suffix == "tflite" else "onnx"
    )
    result.save(tmp_path / f"m.{suffix}")
    assert relayout.verify(sources[before], tmp_path / f"m.{suffix}").ok
    assert relayout.verify(INT8, tmp_path / f"m.{suffix}").ok
    changed = [note for note in result.report.notes if note.endswith(f"{after} here")]
    assert len(changed) == 2 * (before != after)
    if suffix == "onnx":
        ends = (result.model.graph.inputs[0], result.model.graph.outputs[0])
        assert [end.dtype.numpy() for end in ends if end.dtype is not None] == 2 * [np.dtype(TYPES[after])]


def test_the_result_gives_what_the_integers_mean() -> None:
    """Not by verification: real numbers in and out of the result, and through the source between numpy's own steps."""
    source = residual(zero=5)
    whole = relayout.convert(source, input_type="int8", output_type="uint8").proto
    real = np.random.default_rng(0).normal(0, 2, (1, CHANNELS, 16, 10)).astype(np.float32)
    step, zero = np.float32(0.05), 5
    integers = np.clip(np.rint(real / step) + zero, -128, 127).astype(np.int8)
    (want,) = run(source, {"x": (integers.astype(np.float32) - zero) * step})
    session = onnxruntime.InferenceSession(in_full(whole), providers=["CPUExecutionProvider"])
    (got,) = session.run(None, {"x": integers})
    assert got.dtype == np.uint8
    apart = np.abs((got.astype(np.float32) - zero - 128) * step - want)
    assert apart.max() < 1.01 * step, "ONNX Runtime's integer kernels round to another step here and there"
    assert (apart > 1e-6).mean() < 0.01


def test_nothing_is_quantized_twice() -> None:
    """Where the first node quantizes, the integers are the input, and no node is left over."""
    result = relayout.convert(residual(), input_type="int8")
    kinds = [node.op_type for node in result.model.graph]
    assert kinds.count("QuantizeLinear") == [node.op_type for node in residual().graph.node].count("QuantizeLinear") - 1


def test_ends_that_are_not_quantized_stay_or_are_refused() -> None:
    with pytest.raises(
        LayoutError,
        match=r"--input-type int8: no input is quantized.*image is float32.*--quantize int8 --calibrate DATA",
    ):
        relayout.convert(FLOAT, input_type="int8")
    with pytest.raises(LayoutError, match=r"image is float32\); leave --input-type out"):
        relayout.convert(FLOAT, input_type="float32")
    with pytest.raises(LayoutError, match="--output-type uint8: no output is quantized"):
        relayout.convert(FLOAT, output_type="uint8")
    two = residual()
    two.graph.input.append(onnx.helper.make_tensor_value_info("z", 1, [1]))
    two.graph.output.append(onnx.helper.make_tensor_value_info("n", 1, [1]))
    two.graph.node.append(onnx.helper.make_node("Neg", ["z"], ["n"]))
    result = relayout.convert(two, input_type="uint8", output_type="uint8")
    assert [str(value.dtype) for value in result.model.graph.inputs] == ["UINT8", "FLOAT"]
    assert [str(value.dtype) for value in result.model.graph.outputs] == ["UINT8", "FLOAT"]
    with pytest.raises(relayout.RelayoutError, match="input_type='int4'"):
        relayout.convert(INT8, input_type="int4")


@pytest.mark.parametrize("parameter", ["float s", "int8 z"])
def test_a_scale_that_an_input_may_override_is_no_constant(parameter: str) -> None:
    source = model(
        f"g (float[2,3] x, {parameter}) => (float[2,3] y)"
        " { q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z) }",
        s=np.array(0.05, np.float32),
        z=np.array(3, np.int8),
    )
    with pytest.raises(LayoutError, match="no output is quantized"):
        relayout.convert(source, format="onnx", output_type="uint8")


def test_an_input_that_others_read_too_is_not_quantized() -> None:
    source = model(
        "g (int8[2,3] x) => (float[2,3] y, int8[2,3] z) { y = DequantizeLinear(x, s) z = Neg(x) }",
        s=floats(1)[0] * 0 + np.float32(0.1),
    )
    with pytest.raises(LayoutError, match="no input is quantized"):
        relayout.convert(source, input_type="float32")


def test_the_plan_of_a_changed_interface_is_checked_again(tmp_path: Path) -> None:
    result = relayout.convert(INT8, input_type="uint8", output_type="float32")
    (tmp_path / "plan.json").write_text(json.dumps(result.plan), encoding="utf-8")
    assert check_plan(tmp_path / "plan.json", INT8).ok


def test_with_the_layout_of_the_interface(tmp_path: Path) -> None:
    result = relayout.convert(INT8, input_type="uint8", io="NCHW")
    assert result.report.transposes == 0
    result.save(tmp_path / "m.onnx")
    assert relayout.verify(INT8, tmp_path / "m.onnx").ok


def test_the_command_line_has_it(relayout, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    ran = relayout(
        "convert", INT8, tmp_path / "m.tflite", "--input-type", "uint8", "--output-type", "float32", "--verify"
    )
    assert ran.code == 0, ran.err
    assert "input image: int8 in the source, uint8 here" in ran.out
    assert relayout("convert", INT8, tmp_path / "m.tflite", "--input-type", "int16").code == 2
