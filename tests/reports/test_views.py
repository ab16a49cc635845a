"""Layouts for other viewers: a model's own metadata, and Model Explorer's node data; the options that write them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import onnx
import pytest

import relayout
from relayout import cli
from relayout.formats.tflite.container.loading import load
from relayout.layout.stored_as import Holds

MODELS = Path(__file__).parents[2] / "models"
TINYNET = MODELS / "tinynet_float.tflite"


def annotated(model: onnx.ModelProto) -> dict[str, tuple[str, dict[str, str]]]:
    """Name -> (layout, all metadata) of every value that says its layout."""
    values = [*model.graph.input, *model.graph.value_info, *model.graph.output]
    notes = {value.name: {entry.key: entry.value for entry in value.metadata_props} for value in values}
    return {name: (found["relayout.layout"], found) for name, found in notes.items() if "relayout.layout" in found}


@pytest.mark.parametrize("io", ["keep", "convert"])
def test_metadata_says_how_each_value_lies(io: str) -> None:
    plain = relayout.convert(TINYNET, io=io).proto  # type: ignore[arg-type]
    result = relayout.convert(TINYNET, io=io, annotate=True)  # type: ignore[arg-type]
    model = result.proto
    found = annotated(model)
    made = {name for node in model.graph.node for name in node.output} | {value.name for value in model.graph.input}
    assert made == set(found)
    assert found["image"][0] == ("n h w c" if io == "keep" else "n c h w")
    for layout, notes in found.values():
        for held in Holds.load(notes[Holds.KEY]) if Holds.KEY in notes else []:
            # What the machine-readable note says of an image is what the layout says.
            if len(held.shape) == len(held.perm) == 4:
                source = {(0, 3, 1, 2): "n h w c", (0, 2, 3, 1): "n c h w", (0, 1, 2, 3): "n c h w"}[held.perm]
                assert " ".join(np.array(source.split())[list(held.perm)]) == re.sub("[()]", "", layout)
    assert {k: v[0] for k, v in found.items()} == result.layouts
    assert annotated(plain) == {}
    # A node says what it reads and gives: what Netron shows where one is clicked.
    for node in model.graph.node:
        (said,) = (entry.value for entry in node.metadata_props if entry.key == "relayout.layout")
        ends = [dict.fromkeys(found[n][0] for n in names if n in found) for names in (node.input, node.output)]
        assert said == " -> ".join(dict.fromkeys(", ".join(end) for end in ends))
    flat = model.graph.node[[node.op_type for node in model.graph.node].index("Reshape")].output[0]
    assert found[flat][0] == "n (c h w)"
    assert io == "convert" or "n h w c -> n c h w" in {
        entry.value for node in model.graph.node for entry in node.metadata_props if node.op_type == "Transpose"
    }
    # The notes are the only difference.
    for noted in [*model.graph.input, *model.graph.value_info, *model.graph.output, *model.graph.node]:
        kept = [entry for entry in noted.metadata_props if entry.key != "relayout.layout"]
        del noted.metadata_props[:]
        noted.metadata_props.extend(kept)
    assert model.SerializeToString() == plain.SerializeToString()


def test_a_model_with_nothing_to_win_is_annotated_when_asked(tmp_path: Path) -> None:
    relayout.convert(TINYNET, io="convert").save(tmp_path / "a.onnx")
    again = relayout.optimize(tmp_path / "a.onnx", annotate=True)
    again.save(tmp_path / "b.onnx")
    assert len(annotated(onnx.load(tmp_path / "b.onnx"))) > 10
    assert relayout.verify(tmp_path / "a.onnx", tmp_path / "b.onnx").ok


EXPLORER = {
    "results": dict,
    "showExpandedSummaryOnGroupNode": bool,
    "hideInAggregatedStatsTable": bool,
    "hideInChildrenStatsTable": bool,
}
"""Keys of Model Explorer's `GraphNodeData` that are written, and their types."""
COLOUR = re.compile("#[0-9a-f]{6}")


def test_node_data_for_model_explorer_colours_source_and_result() -> None:
    result = relayout.convert(TINYNET)
    data = result.node_data()
    assert {key: type(value) for key, value in data.items()} == EXPLORER
    for each in data["results"].values():
        assert set(each) == {"value", "bgColor", "textColor"}
        assert isinstance(each["value"], str)
        assert COLOUR.fullmatch(each["bgColor"])
        assert COLOUR.fullmatch(each["textColor"])
    said = {name: each["value"] for name, each in data["results"].items()}
    assert said["image"] == "n h w c; transposed n h w c -> n c h w, 23,040 bytes"
    assert said["tinynet_1/flatten_1_1/Reshape"] == "n (h w c) -> n (c h w)"
    assert set(said.values()) >= {"n c h w", "n h w c -> n c h w"}
    assert {name for node in result.proto.graph.node for name in node.output} <= set(said)
    # Its reader of ONNX goes by the names of nodes.
    for node in result.proto.graph.node:
        assert said[node.name] == said[node.output[0]]
    assert said["[value] image"] == said["image"]
    # Whoever opens it over the source sees tensors by the file's own names.
    graph = load(TINYNET).subgraphs[0]
    made = {graph.tensors[index].name for operator in graph.operators for index in operator.outputs}
    assert len(made) == len(graph.operators)
    assert made | {"serving_default_image:0"} <= set(said)
    assert said["serving_default_image:0"] == said["image"]
    assert json.loads(json.dumps(data)) == data


def test_the_options_write_what_they_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*arguments: object) -> int:
        monkeypatch.setattr("sys.argv", ["relayout", *map(str, arguments)])
        try:
            cli.main()
        except SystemExit as stopped:
            return int(stopped.code or 0)
        return 0

    views = ("--html", tmp_path / "a.html", "--model-explorer", tmp_path / "a.json")
    assert run("convert", TINYNET, tmp_path / "a.onnx", "-q", *views, "--annotate") == 0
    assert (tmp_path / "a.html").read_text().startswith("<!DOCTYPE html>")
    assert "results" in json.loads((tmp_path / "a.json").read_text())
    assert annotated(onnx.load(tmp_path / "a.onnx"))
    assert run("explain", TINYNET, "--json", "--html", tmp_path / "b.html") == 0
    assert json.loads(capsys.readouterr().out)["chart"]["after"]["regions"]
    assert (tmp_path / "b.html").read_bytes() == (tmp_path / "a.html").read_bytes()
    assert run("explain", TINYNET, "--html", tmp_path / "missing" / "c.html") == 2
    assert run("convert", TINYNET, tmp_path / "d.onnx", "--html", tmp_path / "missing" / "c.html") == 2
    assert not (tmp_path / "d.onnx").exists()
