"""Names for people: short where that is distinct, whole where it is not, with `-v`, and in JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

import relayout
from relayout.terminal import LONG, ShortNames

PREFIX = "model/" + "block/" * 12
"""So long that a name behind it is cut."""


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("a", "a"),
        ("a/Relu;b/Add;c", "a/Relu;…"),
        ("x" * 200 + "/end", "…" + "x" * (LONG - 5) + "/end"),
        ("noted; and more", "noted; and more"),
    ],
)
def test_a_short_name_shows_what_was_left_out(name: str, short: str) -> None:
    assert ShortNames([name], whole=False)(name) == short
    assert ShortNames([name], whole=True)(name) == name


def test_names_that_would_look_alike_stay_whole() -> None:
    one, other, third = "a/Relu;b/Add", "a/Relu;c/Add", "d/Relu;e"
    names = ShortNames([one, other, third], whole=False)
    assert [names(each) for each in (one, other, third)] == [one, other, "d/Relu;…"]
    ends = [f"{kind}/{'x' * 60}" for kind in "ab"]
    assert list(map(ShortNames(ends, whole=False), ends)) == ends


def test_of_names_that_end_alike_less_is_cut() -> None:
    names = [f"network/block_{number}/{'x' * 40}/Relu6;network/block_{number}/bias" for number in (7, 17)]
    short = ShortNames(names, 24, whole=False)
    assert all(len(short(name)) < 100 and short(name).endswith("/Relu6;…") for name in names)
    assert short(names[0]) != short(names[1])


def test_an_operator_is_distinct_from_one_of_another_type_by_its_type() -> None:
    texts = ["Conv a/Relu;b/Conv", "Relu a/Relu;b", "because Conv a/Relu;b/Conv needs NCHW"]
    assert ShortNames(texts, whole=False)(texts[2]) == "because Conv a/Relu;… needs NCHW"
    alike = [*texts, "Conv a/Relu;c"]
    assert ShortNames(alike, whole=False)(texts[2]) == "because Conv a/Relu;…/Conv needs NCHW"
    assert ShortNames([*alike, "Conv a/Relu;d/Conv"], whole=False)(texts[2]) == texts[2], (
        "the last parts are alike, too"
    )


def saved(path: Path, *names: str) -> Path:
    """Convolutions of these names side by side on one image that comes channels last; all but the first are at ease."""
    nodes = [helper.make_node("Transpose", ["image"], ["t"], perm=[0, 3, 1, 2])]
    nodes += [helper.make_node("Conv", ["t", "k"], [f"y{i}"], name=name) for i, name in enumerate(names)]
    info = helper.make_tensor_value_info
    outputs = [info(f"y{i}", TensorProto.FLOAT, (1, 3, 8, 6)) for i in range(len(names))]
    kernel = helper.make_tensor("k", TensorProto.FLOAT, (3, 4, 1, 1), [1.0] * 12)
    graph = helper.make_graph(nodes, "g", [info("image", TensorProto.FLOAT, (1, 8, 6, 4))], outputs, [kernel])
    onnx.save(helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)]), path)
    return path


def explained(path: Path, *options: str) -> str:
    """Return the output of `explain`."""
    command = [sys.executable, "-m", "relayout", "explain", str(path), *options]
    return subprocess.run(command, check=True, capture_output=True, encoding="utf-8").stdout


def joined(text: str) -> str:
    """A text without the places where it may be broken into lines."""
    return "".join(text.split())


def test_explain_shortens_names_and_verbose_and_json_have_them_whole(tmp_path: Path) -> None:
    name = f"{PREFIX}conv"
    path = saved(tmp_path / "one.onnx", name)
    assert f"Conv…{name[1 - LONG :]}needsNCHW" in joined(explained(path))
    assert f"Conv{name}needsNCHW" in joined(explained(path, "--verbose"))
    (left,) = json.loads(explained(path, "--json"))["remaining"]
    assert f"Conv {name} needs NCHW" in left["reason"]


def test_explain_tells_two_long_names_apart(tmp_path: Path) -> None:
    """Both end alike; the report names one of them, and a reader must know which."""
    names = [f"{kind}/{PREFIX}conv" for kind in ("left", "right")]
    report = joined(str(relayout.explain(saved(tmp_path / "two.onnx", *names))))
    assert any(f"Conv{name}needsNCHW" in report for name in names)
    assert "…" not in report


def test_names_on_the_page_are_whole_in_the_details_and_short_in_the_list(tmp_path: Path) -> None:
    name = f"{PREFIX}conv"
    text = relayout.optimize(saved(tmp_path / "one.onnx", name)).html()
    assert f"and Conv {name} needs NCHW" in text
    assert f"and Conv …{name[1 - LONG :]} needs NCHW" in text
