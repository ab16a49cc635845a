"""`.tflite` results: how they are asked for, what their interface is in LiteRT, what is reported of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from ai_edge_litert.interpreter import Interpreter
from numpy.typing import NDArray

import relayout as package
from relayout.formats.tflite.container.loading import load
from running import run
from small import build, feed_of

FLOAT = Path(__file__).parents[1] / "models" / "tinynet_float.tflite"
LAST = (0, 2, 3, 1)
FIRST = (0, 3, 1, 2)


def network() -> onnx.ModelProto:
    """Two images in, an image and a row out; no two extents are equal."""
    return build(
        "float[2,3,12,20] image, float[2,5,6,10] mask",
        """
        a = Conv<pads=[1,1,1,1], strides=[2,2]>(image, w1)
        b = Mul(a, mask)
        m = MaxPool<kernel_shape=[2,2], strides=[2,2]>(b)
        p = GlobalAveragePool(b)
        f = Flatten(p)
        y = Gemm(f, w2)
        """,
        {"w1": (5, 3, 3, 3), "w2": (5, 7)},
    )


def run_litert(content: bytes, feeds: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Run a file by its signature: the names are those of its inputs and outputs."""
    return dict(Interpreter(model_content=content, num_threads=1).get_signature_runner()(**feeds))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    onnx.save(network(), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def agree(found: NDArray[Any], expected: NDArray[Any]) -> None:
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


# The interface.


def expected() -> tuple[dict[str, NDArray[Any]], NDArray[Any], NDArray[Any]]:
    feeds = feed_of(network(), {})
    m, y = run(network(), feeds)
    return feeds, m, y


@pytest.mark.parametrize(
    ("options", "inputs", "outputs"),
    [
        ({}, {}, {}),
        ({"io": "convert"}, {"image": LAST, "mask": LAST}, {"m": LAST}),
        ({"io": "NHWC"}, {"image": LAST, "mask": LAST}, {"m": LAST}),
        ({"io": "NCHW"}, {}, {}),
        ({"io": "NHWC", "layouts": {"mask": ("NCHW", "NCHW")}}, {"image": LAST}, {"m": LAST}),
        ({"layouts": {"image": ("NCHW", "NHWC")}}, {"image": LAST}, {}),
        ({"layouts": {"m": ("NCHW", "NHWC")}}, {}, {"m": LAST}),
    ],
)
def test_inputs_and_outputs_lie_as_asked(
    options: dict[str, Any], inputs: dict[str, Any], outputs: dict[str, Any]
) -> None:
    feeds, m, y = expected()
    result = package.convert(network(), format="tflite", **options)
    found = run_litert(result.tflite, {n: a.transpose(inputs[n]) if n in inputs else a for n, a in feeds.items()})
    assert list(found) == ["m", "y"]
    agree(found["m"], m.transpose(outputs["m"]) if outputs else m)
    agree(found["y"], y)
    assert package.verify(network(), result.tflite).ok


def test_images_of_a_tflite_source_become_nchw() -> None:
    result = package.convert(FLOAT, format="tflite", io="NCHW")
    (image,) = (end for end in result.report.interface if end.kind == "input")
    assert image.layout == "n h w c -> n c h w"
    assert package.verify(FLOAT, result.tflite).ok
    assert package.convert(FLOAT, format="tflite", io="NHWC").report.transposes == 0


def test_the_transposes_of_a_tflite_source_are_its_own() -> None:
    """Not those of a literal import, which stand around each of its convolutions."""
    first = package.convert(network(), format="tflite")
    again = package.convert(first.tflite, format="tflite").report
    assert (again.source_transposes, again.source_bytes) == (first.report.transposes, first.report.bytes)
    assert (again.transposes, again.bytes) == (first.report.transposes, first.report.bytes)
    assert first.report.transposes == first.report.operators["TRANSPOSE"] > 0
    assert package.convert(FLOAT, format="tflite").report.source_transposes == 0


def test_images_of_other_ranks() -> None:
    source = build("float[2,3,17] x", "y = Conv(x, w)", {"w": (5, 3, 4)})
    result = package.convert(source, format="tflite", io="NHWC")
    assert [end.layout for end in result.report.interface] == ["n c w -> n w c", "n c w -> n w c"]
    feeds = feed_of(source, {})
    (y,) = run(source, feeds)
    agree(run_litert(result.tflite, {"x": feeds["x"].transpose(0, 2, 1)})["y"], y.transpose(0, 2, 1))


def test_a_model_without_images_is_left_as_it_is_and_told() -> None:
    source = build("float[2,3,4,5] x", "y = Softmax<axis=1>(x)", {})
    report = package.convert(source, format="tflite", io="NHWC").report
    assert "--io NHWC: no input or output is an image, so all stay as they are" in report.notes
    assert all("->" not in end.layout for end in report.interface)


def test_onnx_results_take_one_layout_for_images_too() -> None:
    feeds, m, y = expected()
    result = package.convert(network(), io="NHWC").proto
    found = run(result, {name: array.transpose(LAST) for name, array in feeds.items()})
    agree(found[0], m.transpose(LAST))
    agree(found[1], y)


def test_names_and_parts() -> None:
    feeds, _, _ = expected()
    names = {"image": "pixels", "b": "masked"}
    result = package.convert(network(), format="tflite", outputs=["b"], rename=names)
    (found,) = run_litert(result.tflite, {"pixels": feeds["image"], "mask": feeds["mask"]}).items()
    shown = network()
    shown.graph.output.append(onnx.ValueInfoProto(name="b"))
    assert found[0] == "masked"
    agree(found[1], run(shown, feeds)[2])
    part = package.convert(network(), format="tflite", inputs=["b"], outputs=["y"])
    agree(run_litert(part.tflite, {"b": found[1]})["y"], run(network(), feeds)[1])


def test_open_dimensions_stay_open_or_are_fixed() -> None:
    source = build("float[n,3,17] x", "y = Conv(x, w)", {"w": (5, 3, 4)})
    opened, fixed = (
        load(package.convert(source, format="tflite", dims=dims).tflite).subgraphs[0].tensors[0]
        for dims in ({}, {"n": 4})
    )
    assert (opened.signature, fixed.signature) == ((-1, 3, 17), (4, 3, 17))
    result = package.convert(source, format="tflite").tflite
    for n in (1, 4):
        feeds = feed_of(source, {"n": n})
        agree(run_litert(result, feeds)["y"], run(source, feeds)[0])


def test_one_value_may_be_several_outputs() -> None:
    source = build(
        "float[2,3] x",
        "a = Neg(x)  y = Identity(a)  z = Identity(a)  v = Identity(x)  w = Exp(a)",
        {},
        outputs=("y", "z", "v", "w"),
    )
    feeds = feed_of(source, {})
    found = run_litert(package.convert(source, format="tflite").tflite, feeds)
    for name, array in zip(("y", "z", "v", "w"), run(source, feeds), strict=True):
        agree(found[name], array)


def test_an_output_of_each_type_keeps_it() -> None:
    source = build(
        "float[2,3] x, int64[2,3] i, bool[2,3] b",
        "y = Neg(x)  j = Add(i, i)  c = Not(b)  s = Shape(x)",
        {},
        outputs=("y", "j", "c", "s"),
    )
    feeds = feed_of(source, {})
    found = run_litert(package.convert(source, format="tflite").tflite, feeds)
    for name, array in zip(("y", "j", "c", "s"), run(source, feeds), strict=True):
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


# The command line.


def test_the_suffix_decides_the_format(relayout, source: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    told = relayout("convert", source, tmp_path / "m.tflite", "--verify")
    assert told.code == 0
    assert told.out.startswith(f"wrote {tmp_path / 'm.tflite'} (")
    assert "CONV_2D 1" in told.out
    assert "oldest runtime: TensorFlow Lite 2." in told.out
    assert "LiteRT" in told.out
    assert relayout("convert", source, "-o", tmp_path / "again.tflite", "-q").code == 0
    assert (tmp_path / "again.tflite").read_bytes() == (tmp_path / "m.tflite").read_bytes()
    assert relayout("convert", source, "-o", tmp_path / "m2.onnx", "-q").code == 0
    assert package.verify(source, tmp_path / "m2.onnx").ok


def test_a_format_where_no_suffix_says_it(relayout, source: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    assert relayout("convert", source, FLOAT, "--out-dir", tmp_path / "out", "--format", "tflite", "--verify").code == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["m.tflite", "tinynet_float.tflite"]
    assert relayout("convert", source, tmp_path / "plain", "--format", "tflite", "-q").code == 0
    assert (tmp_path / "plain").read_bytes() == (tmp_path / "out" / "m.tflite").read_bytes()


def test_a_tflite_becomes_another(relayout, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    target = tmp_path / "part.tflite"
    given = ("--rename", "image=pixels", "--io", "NCHW", "--verify")
    assert relayout("convert", FLOAT, target, *given).code == 0
    assert [name for name, _ in load(target).signatures[0].inputs] == ["pixels"]
    assert relayout("verify", FLOAT, target).code == 0
    assert relayout("convert", FLOAT, target, "-q").code == 0
    target.write_bytes(FLOAT.with_name("tinynet_int8.tflite").read_bytes())
    refused = relayout("convert", FLOAT, target)
    assert refused.code == 2
    assert f"-o {target} replaces it" in refused.err
    assert relayout("convert", FLOAT, "-o", target, "-q").code == 0
    assert relayout("convert", target, "-o", target, "-q").code == 2
    assert relayout("convert", target, "-o", target, "-q", "--overwrite").code == 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--opset", "21", "--external-data"], "--opset, --external-data are for ONNX results"),
        (["--inline"], "--inline is for ONNX results"),
        (["--regions", "functions"], "--regions is for ONNX results"),
        (["--annotate"], "--annotate is for ONNX results"),
        (["--format", "onnx"], "has the suffix of the other format"),
        (["-o", "n.tflite"], "SOURCE and TARGET"),
    ],
)
def test_what_a_tflite_does_not_have_is_one_clear_error(  # type: ignore[no-untyped-def]
    relayout, source: Path, tmp_path: Path, given: list[str], said: str
) -> None:
    told = relayout("convert", source, tmp_path / "m.tflite", *given)
    assert told.code == 2
    assert said in told.err
    assert told.err.count("\n") == 1
    assert not (tmp_path / "m.tflite").exists()


def test_optimize_writes_onnx(relayout, source: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    told = relayout("optimize", source, tmp_path / "m.tflite")
    assert told.code == 2
    assert f"relayout convert {source} {tmp_path / 'm.tflite'}" in told.err


def test_plans_pages_and_limits(relayout, source: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    target, plan, page = tmp_path / "m.tflite", tmp_path / "plan.json", tmp_path / "page.html"
    for io in ("keep", "convert", "NHWC"):
        given = ("--io", io, "--plan", plan, "--html", page, "--json")
        told = json.loads(relayout("convert", source, "-o", target, *given).out)
        assert told["proved"] is True
        assert told["operators"]["CONV_2D"] == 1
        assert told["min_runtime"]
        assert told["bytes"] == (0 if io != "keep" else told["bytes"])
        assert relayout("check", plan, source).code == 0
        assert "<html" in page.read_text(encoding="utf-8")
    assert relayout("convert", source, "-o", target, "--max-bytes", "0", "-q").code == 1
    assert relayout("convert", source, "-o", target, "--max-bytes", "0", "--io", "NHWC", "-q").code == 0
    assert relayout("explain", source, "--format", "tflite", "--io", "NHWC", "--max-bytes", "0", "-q").code == 0


def test_a_result_is_shown_and_held_beside_its_source(  # type: ignore[no-untyped-def]
    relayout, source: Path, tmp_path: Path
) -> None:
    target = tmp_path / "m.tflite"
    assert relayout("convert", source, target, "-q").code == 0
    assert "CONV_2D 1" in relayout(target).out
    told = relayout("diff", source, target, "--json")
    assert told.code == 0
    assert {spot["operator"] for spot in json.loads(told.out)["chart"]["spots"]} >= {"Conv", "MaxPool"}
    said = relayout("diff", source, target).out
    assert ": 3 Transposes in the file; translated to ONNX operator by operator it has " in said.splitlines()[1]
    assert "operator by operator" not in said.splitlines()[0]


def test_the_table_of_operators_that_are_written(relayout) -> None:  # type: ignore[no-untyped-def]
    rows = json.loads(relayout("ops", "--to-tflite", "--json").out)["to_tflite"]
    known = {row["operator"]: row for row in rows}
    assert known["Conv"]["becomes"].startswith("CONV_2D, DEPTHWISE_CONV_2D or CONV_3D")
    assert known["InstanceNormalization"]["before layouts"]
    assert all(row["becomes"] or row["before layouts"] for row in rows)
    assert "CONV_2D" in relayout("ops", "--to-tflite").out


# In Python.


def test_an_error_names_the_target_whose_own_operators_cannot_be_written(tmp_path: Path) -> None:
    package.convert(FLOAT.with_name("tinynet_int8.tflite"), target="onnxruntime-cpu").save(tmp_path / "fast.onnx")
    with pytest.raises(package.UnsupportedError, match="convert the source without --target onnxruntime-cpu; "):
        package.convert(tmp_path / "fast.onnx", format="tflite")
    source = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 20, "vendor": 1]> g (float[2,3] x) => (float[2,3] y) { y = vendor.Odd(x) }'
    )
    with pytest.raises(package.UnsupportedError, match="vendor:Odd") as error:
        package.convert(source, format="tflite")
    assert "convert the source" not in str(error.value)


def test_a_result_is_saved_under_its_own_suffix(tmp_path: Path) -> None:
    result = package.convert(network(), format="tflite")
    result.save(tmp_path / "m.tflite")
    assert (tmp_path / "m.tflite").read_bytes() == result.tflite
    with pytest.raises(package.WriteError, match=r"the result is a \.tflite"):
        result.save(tmp_path / "m.onnx")
    with pytest.raises(package.WriteError, match=r"a \.tflite is one file of any size"):
        result.save(tmp_path / "m.tflite", external_data=True)
    with pytest.raises(package.WriteError, match='format="tflite"'):
        _ = package.convert(network()).tflite
    with pytest.raises(package.WriteError, match="format='tflite'"):
        package.convert(network()).save(tmp_path / "n.tflite")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.tflite"]


def test_the_oldest_runtime_is_that_of_the_newest_operator() -> None:
    old = package.convert(build("float[2,3] x", "y = Add(x, x)", {}), format="tflite")
    new = package.convert(build("float[2,3] x", "y = Gelu(x)", {}), format="tflite")
    assert (old.report.min_runtime, new.report.min_runtime) == ("1.5.0", "2.9.0")
    stated = dict(load(new.tflite).metadata)["min_runtime_version"]
    assert stated is not None
    assert bytes(np.asarray(stated)).rstrip(b"\0") == b"2.9.0"
    assert package.convert(network()).report.min_runtime == ""


def test_kernels_that_no_builtin_reads_are_refused() -> None:
    """QNN's are HWIO: LiteRT refused the file that held them."""
    with pytest.raises(package.UnsupportedError, match=r"its kernel is HWIO, not OHWI.*leave --target out"):
        package.convert(FLOAT, target="qnn", format="tflite")
