"""Operators that a `.tflite` cannot have: one error that lists them, custom operators, and parts."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from ai_edge_litert.interpreter import Interpreter
from flatbuffers import flexbuffers
from numpy.typing import NDArray
from onnx import TensorProto, helper

import relayout as package
from relayout.errors import LayoutError, UnsupportedError, WriteError
from relayout.formats.tflite.container.flexbuffer import parse, to_flexbuffer
from relayout.formats.tflite.container.loading import load
from relayout.formats.tflite.exporting import graph_export
from relayout.formats.tflite.exporting.registry import entries
from running import run
from small import build, feed_of


def with_determinants() -> onnx.ModelProto:
    """Two operators that LiteRT does not have, between some that it has."""
    return build(
        "float[2,3,8,10] x",
        """
        a = Conv(x, w1)
        d = Det(a)
        s = Unsqueeze(d, ends)
        r = Relu(a)
        c = Conv(r, w2)
        y = Mul(c, s)
        e = Det(c)
        """,
        {"w1": (5, 3, 3, 5), "w2": (5, 5, 1, 1), "ends": [2, 3]},
    )


def run_parts(folder: Path, feeds: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
    """Run the manifest's parts in order, `.tflite` ones in LiteRT, and return the model's outputs."""
    manifest = json.loads((folder / "manifest.json").read_text())
    values = dict(feeds)
    for part in manifest["parts"]:
        path, fed = folder / part["file"], {name: values[name] for name in part["inputs"]}
        assert part["claimed"] == (path.suffix == ".tflite")
        if part["claimed"]:
            values |= Interpreter(model_path=str(path), num_threads=1).get_signature_runner()(**fed)
        else:
            session = onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
            values |= zip(part["outputs"], session.run(part["outputs"], fed), strict=True)
    return [values[name] for name in manifest["outputs"]]


def test_one_error_lists_everything_with_count_and_remedy() -> None:
    with pytest.raises(UnsupportedError) as found:
        package.convert(with_determinants(), format="tflite")
    ((what, (count, first)),) = found.value.found.items()
    assert (what, count, first) == ("Det (determinants of more than 5 rows)", 2, "d")
    assert "--custom-op NAME" in str(found.value)
    assert "--partition-dir DIR" in str(found.value)


def test_an_input_of_a_type_that_there_is_not_is_listed() -> None:
    source = build("double[2,3] x, float8e4m3fn[2] f", "y = Neg(x)  z = Cast<to=1>(f)", {})
    with pytest.raises(UnsupportedError, match=r"input f \(elements of FLOAT8E4M3FN\)"):
        package.convert(source, format="tflite")


# Parts.


@pytest.mark.parametrize("io", ["keep", "convert"])
def test_parts_run_in_sequence_compute_what_the_model_does(io: str, tmp_path: Path) -> None:
    source = with_determinants()
    result = package.convert(source, format="tflite", parts=True, io=io)
    parts = result.save_parts(tmp_path / "parts")
    assert [part.claimed for part in parts] == [True, False, True]
    feeds = feed_of(source, {})
    expected = run(source, feeds)
    interface = json.loads(result.model.metadata_props.get("relayout.interface", "{}"))
    assert interface == ({"x": "n c h w -> n h w c"} if io == "convert" else {})
    if interface:
        feeds = {"x": feeds["x"].transpose(0, 2, 3, 1)}
    for found, wanted in zip(run_parts(tmp_path / "parts", feeds), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4 * np.abs(wanted).max())


def test_what_an_export_refuses_is_left_to_the_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The table claims a Tanh; where its export does not take it, the graph is parted again."""
    source = build(
        "float[2,3,8,10] x",
        "a = Conv(x, w)  t = Tanh(a)  r = Relu(t)  y = Exp(r)",
        {"w": (5, 3, 3, 5)},
    )
    known = {key: entry for key, entry in entries().items() if key != ("", "Tanh")}
    monkeypatch.setattr(graph_export, "export_of", known.get)
    result = package.convert(source, format="tflite", parts=True)
    parts = result.save_parts(tmp_path / "parts")
    assert [part.name for part in result.parts()] == [part.name for part in parts]
    assert [(part.claimed, "Tanh" in part.operators) for part in parts] == [(True, False), (False, True), (True, False)]
    feeds = feed_of(source, {})
    np.testing.assert_allclose(run_parts(tmp_path / "parts", feeds)[0], run(source, feeds)[0], rtol=1e-4, atol=1e-5)


def test_a_result_in_parts_is_no_file(tmp_path: Path) -> None:
    result = package.convert(with_determinants(), format="tflite", parts=True)
    with pytest.raises(WriteError, match="save_parts"):
        _ = result.tflite
    with pytest.raises(WriteError, match="save_parts"):
        result.save(tmp_path / "m.tflite")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(WriteError, match="not empty"):
        result.save_parts(tmp_path / "full")


def test_parts_on_the_command_line(relayout, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    source, folder = tmp_path / "m.onnx", tmp_path / "parts"
    onnx.save(with_determinants(), source)
    told = relayout("convert", source, tmp_path / "m.tflite")
    assert told.code == 2
    assert "Det (determinants of more than 5 rows) ×2 (first: d)" in told.err
    told = relayout("convert", source, "--format", "tflite", "--partition-dir", folder)
    assert told.code == 0
    assert "3, of which litert runs 2" in told.out
    suffixes = [Path(part["file"]).suffix for part in json.loads((folder / "manifest.json").read_text())["parts"]]
    assert suffixes == [".tflite", ".onnx", ".tflite"]
    assert relayout("convert", source, "--format", "tflite", "--partition-dir", folder).code == 2
    told = relayout("convert", source, "--format", "tflite", "--partition-dir", tmp_path / "p", "--verify")
    assert "give TARGET" in told.err
    told = relayout("convert", source, "--partition-dir", tmp_path / "p")
    assert "give --target" in told.err


# Custom operators.

OPTIONS: dict[str, Any] = {
    "size": -3,
    "large": 1 << 62,
    "axes": [1, -2],
    "mode": "säme",
    "scale": 0.5,
    "sigma": [1.5, 2.0],
    "names": ["a", "bcd"],
    "none": [],
    "raw": b"\x00\x01\x02",
}


@pytest.mark.parametrize("options", [{}, {"size": 1}, OPTIONS, dict(reversed(OPTIONS.items()))])
def test_options_are_read_as_they_were_written(options: dict[str, Any]) -> None:
    assert parse(to_flexbuffer(options)) == options
    assert flexbuffers.Loads(to_flexbuffer(options)) == options


def with_blur() -> onnx.ModelProto:
    source = build(
        "float[1,3,8,10] x",
        'a = Conv(x, w)  q = some.where.Blur<size=3, mode="same", sigma=[1.5, 2.0]>(a)  y = Relu(q)',
        {"w": (5, 3, 3, 3)},
    )
    source.graph.value_info.append(helper.make_tensor_value_info("q", TensorProto.FLOAT, [1, 5, 6, 8]))
    return source


@pytest.mark.parametrize("domain", ["", "some.where"])
def test_a_node_of_another_domain_becomes_a_custom_operator(domain: str) -> None:
    result = package.convert(with_blur(), format="tflite", custom_ops={"Blur": domain})
    (subgraph,) = load(result.tflite).subgraphs
    (blur,) = (operator for operator in subgraph.operators if operator.name == "CUSTOM Blur")
    assert parse(bytes(np.asarray(blur.custom_options))) == {"size": 3, "mode": "same", "sigma": [1.5, 2.0]}
    assert [subgraph.tensors[i].shape for i in (*blur.inputs, *blur.outputs)] == [(1, 5, 6, 8)] * 2
    assert result.report.operators["CUSTOM Blur"] == 1


def test_custom_operators_pass_from_one_tflite_to_another() -> None:
    first = package.convert(with_blur(), format="tflite", custom_ops={"Blur": ""}).tflite
    second = package.convert(first, format="tflite", custom_ops={"Blur": ""}).tflite
    options = [
        bytes(np.asarray(operator.custom_options))
        for content in (first, second)
        for operator in load(content).subgraphs[0].operators
        if operator.name == "CUSTOM Blur"
    ]
    assert len(options) == 2
    assert options[0] == options[1]
    with pytest.raises(LayoutError, match="wants a domain"):
        package.convert(first, custom_ops={"Blur": ""})
    onnx_again = package.convert(first, custom_ops={"Blur": "some.where"}).proto
    assert "some.where" in {node.domain for node in onnx_again.graph.node}


def test_a_custom_operator_of_another_domain_is_still_refused() -> None:
    with pytest.raises(UnsupportedError, match=re.escape("some.where:Blur (TensorFlow Lite has no such operator)")):
        package.convert(with_blur(), format="tflite", custom_ops={"Blur": "else.where"})


def test_custom_operators_on_the_command_line(relayout, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    onnx.save(with_blur(), tmp_path / "m.onnx")
    told = relayout("convert", tmp_path / "m.onnx", tmp_path / "m.tflite", "--custom-op", "Blur")
    assert told.code == 0
    assert "CUSTOM Blur 1" in told.out
    told = relayout("convert", tmp_path / "m.onnx", tmp_path / "n.tflite", "--custom-op", "Blur=some.where", "-q")
    assert (tmp_path / "n.tflite").read_bytes() == (tmp_path / "m.tflite").read_bytes()
    told = relayout("convert", tmp_path / "m.tflite", tmp_path / "n.onnx", "--custom-op", "Blur")
    assert told.code == 2
    assert "Blur=DOMAIN" in told.err
