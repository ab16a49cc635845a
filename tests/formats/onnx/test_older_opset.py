"""Models in an older opset: the standard's own tests run there and give the same, or are refused; nothing else."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import relayout
from relayout.errors import LayoutError
from relayout.formats.onnx.completing import complete
from relayout.formats.onnx.older_opset import DEFINITIONS, ROWS, to_older_opset
from relayout.formats.onnx.parts import to_proto
from relayout.formats.onnx.reading import read
from relayout.rules import outputs_of
from text_form import floats, model

ROOT = Path(__file__).parents[3]
FLOAT = ROOT / "models" / "tinynet_float.tflite"
INT8 = ROOT / "models" / "tinynet_int8.tflite"


@cache
def standard() -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        cases = collect_testcases(None)
    plain = [
        case for case in cases if case.model is not None and {each.domain for each in case.model.opset_import} <= {""}
    ]
    return [case for case in plain if all(isinstance(each, np.ndarray | np.generic) for each in case.data_sets[0][0])]


def run(proto: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


def lowered(proto: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    made = read(proto)
    complete(made, outputs_of)
    to_older_opset(made, opset)
    return to_proto(made)


@pytest.mark.slow
@pytest.mark.parametrize("opset", [13, 15, 17, 18, 20])
def test_the_standards_tests_give_the_same_in_an_older_opset(opset: int) -> None:
    counts: Counter[str] = Counter()
    for case in standard():
        if case.model.opset_import[0].version <= opset:
            continue
        try:
            proto = lowered(case.model, opset)
        except LayoutError:
            counts["refused"] += 1
            continue
        onnx.checker.check_model(proto, full_check=True)
        feeds = dict(zip((each.name for each in case.model.graph.input), case.data_sets[0][0], strict=False))
        try:
            want = run(case.model, feeds)
        except Exception:
            counts["not run by ONNX Runtime"] += 1
            continue
        for got, expected in zip(run(proto, feeds), want, strict=True):
            if isinstance(expected, np.ndarray) and expected.dtype.kind in "fiub":
                np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5, err_msg=case.name)
        counts["right"] += 1
    assert counts["right"] > 300


@pytest.mark.parametrize("source", [FLOAT, INT8], ids=["float", "int8"])
@pytest.mark.parametrize("opset", [13, 16, 17, 18, 21])
def test_a_converted_model_in_the_opset_that_is_asked_for(source: Path, opset: int, tmp_path: Path) -> None:
    result = relayout.convert(source, opset=opset)
    result.save(tmp_path / "m.onnx")
    made = onnx.load(tmp_path / "m.onnx")
    assert [each.version for each in made.opset_import if not each.domain] == [opset]
    assert relayout.verify(source, tmp_path / "m.onnx").ok


def test_layouts_of_a_target_in_an_older_opset(tmp_path: Path) -> None:
    """Functions of layouts import the same version, and the file has the first IR version with functions."""
    result = relayout.convert(FLOAT, to="NHWC", opset=13)
    result.save(tmp_path / "m.onnx")
    made = onnx.load(tmp_path / "m.onnx")
    assert made.ir_version == 8
    assert {each.version for function in made.functions for each in function.opset_import if not each.domain} == {13}
    assert relayout.verify(FLOAT, tmp_path / "m.onnx").ok


def test_a_file_in_which_nothing_else_changes_gets_the_opset(tmp_path: Path) -> None:
    source = model("g (float[2,3,4] x) => (float[2,3] y) { y = ReduceMean<keepdims=0>(x, a) }", a=np.array([2]))
    source.opset_import[0].version = 18
    onnx.save(source, tmp_path / "a.onnx")
    relayout.convert(tmp_path / "a.onnx", opset=13).save(tmp_path / "b.onnx")
    made = onnx.load(tmp_path / "b.onnx")
    assert made.opset_import[0].version == 13
    assert [attribute.name for attribute in made.graph.node[0].attribute if attribute.name == "axes"] == ["axes"]
    assert relayout.verify(tmp_path / "a.onnx", tmp_path / "b.onnx").ok
    relayout.convert(tmp_path / "a.onnx", opset=18).save(tmp_path / "c.onnx")
    assert (tmp_path / "c.onnx").read_bytes() == (tmp_path / "a.onnx").read_bytes()


def test_a_function_has_its_own_constants(tmp_path: Path) -> None:
    source = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["": 20, "acme": 1]> g (float[2,3] x) => (float[2,3] y) { y = acme.F(x) }
        <domain: "acme", opset_import: ["": 20]> F (a) => (constant) { b = Cast<to=1>(a) constant = Gelu(b) }
    """)
    source.functions[0].value_info.append(onnx.helper.make_tensor_value_info("b", 1, [2, 3]))
    onnx.save(source, tmp_path / "a.onnx")
    relayout.convert(tmp_path / "a.onnx", opset=13).save(tmp_path / "b.onnx")
    assert relayout.verify(tmp_path / "a.onnx", tmp_path / "b.onnx").ok


def test_dilations_of_one_are_none_and_a_pool_of_unknown_shape_is_refused() -> None:
    text = "g (float[1,2,8,8] x) => (float[1,2,7,7] y) { y = AveragePool<kernel_shape=[2,2], dilations=[1,1]>(x) }"
    made = relayout.convert(model(text), opset=13).proto
    assert "dilations" not in {attribute.name for attribute in made.graph.node[0].attribute}
    source = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 22]> g (float x) => (float[1,2,4,4] y)'
        " { y = MaxPool<kernel_shape=[3,3], strides=[2,2], ceil_mode=1>(x) }"
    )
    source.graph.input[0].type.tensor_type.ClearField("shape")
    with pytest.raises(LayoutError, match="ceil_mode 1 of an unknown shape"):
        relayout.convert(source, opset=13)


def test_what_needs_a_newer_opset_is_one_error() -> None:
    source = model(
        """g (float[2,3,4,5] x) => (float[2,3,4,5] y, float[2,3,4,5] z, int64[2,3,4,5] w) {
            a = GroupNormalization<num_groups=3>(x, s, b)
            y = Relu(a)
            z = GroupNormalization<num_groups=3>(y, s, b)
            i = Cast<to=7>(x)
            w = BitwiseNot(i)
        }""",
        s=floats(3),
        b=floats(3),
    )
    with pytest.raises(
        LayoutError, match=r"--opset 13: .*GroupNormalization \(.*\) ×2.*BitwiseNot \(from opset 18 on\) ×1"
    ):
        relayout.convert(source, opset=13)
    with pytest.raises(LayoutError, match="is not raised"):
        relayout.convert(model("g (float[2] x) => (float[2] y) { y = Relu(x) }"), opset=23)


YOUNGER = (
    "y = Gelu(x)",
    'y = Gelu<approximate="tanh">(x)',
    "y = HardSwish(x)",
    "y = Mish(x)",
    "y = LayerNormalization<axis=2>(x, s, b)",
    "y = LayerNormalization(x, c)",
)
REDUCTIONS = sorted(name for name in ROWS if name.startswith("Reduce"))
OTHERWISE = (
    *(f"y = {name}<keepdims=1>(x, axes)" for name in REDUCTIONS),
    "y, z = Split<axis=3, num_outputs=2>(x)",
    "y = Pad(x, pads, , axes)",
    'y = Resize<axes=[2,3], mode="linear">(x, , scales)',
    'y = GridSample<mode="linear">(x, grid)',
    *(f"y = {name}<kernel_shape=[2,2], strides=[2,2], ceil_mode=1>(x)" for name in ("MaxPool", "AveragePool")),
    "y = LpPool<kernel_shape=[2,2], strides=[2,2]>(x)",
    'y = RoiAlign<coordinate_transformation_mode="output_half_pixel", output_height=2, output_width=2>(x, r, which)',
    "y = Mod<fmod=1>(x, x)",
)
ALWAYS_REFUSED = {"DFT", "GroupNormalization"}


def test_every_row_is_run() -> None:
    named = {word for text in (*YOUNGER, *OTHERWISE) for word in re.findall(r"[A-Z]\w+", text)}
    assert {*ROWS, *DEFINITIONS} - named == ALWAYS_REFUSED


@pytest.mark.parametrize("text", YOUNGER)
@pytest.mark.parametrize("opset", [13, 17, 18])
def test_younger_operators_become_older_ones(text: str, opset: int) -> None:
    source = model(
        f"g (float[2,3,4,5] x) => (float[2,3,4,5] y) {{ {text} }}", s=floats(4, 5), b=floats(4, 5, seed=1), c=floats(5)
    )
    feeds = {"x": floats(2, 3, 4, 5, seed=2)}
    made = lowered(source, opset)
    onnx.checker.check_model(made, full_check=True)
    np.testing.assert_allclose(run(made, feeds)[0], run(source, feeds)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("text", OTHERWISE)
def test_operators_that_say_the_same_in_another_way(text: str) -> None:
    outputs = "float[a,b,c,d] y, float[e,f,g,h] z" if "z = " in text else "float[a,b,c,d] y"
    source = model(
        f"g (float[2,3,4,5] x) => ({outputs}) {{ {text} }}",
        axes=np.array([-1, 2]),
        pads=np.array([1, 0, 2, 1]),
        scales=np.array([2, 3], np.float32),
        grid=floats(2, 3, 3, 2),
        r=np.array([[0, 0, 3, 3]], np.float32),
        which=np.array([1]),
    )
    feeds = {"x": np.abs(floats(2, 3, 4, 5, seed=2)) + np.float32(0.1)}
    made = lowered(source, 16 if "GridSample" in text else 13)
    onnx.checker.check_model(made, full_check=True)
    for got, want in zip(run(made, feeds), run(source, feeds), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
