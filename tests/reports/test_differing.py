"""Two models side by side: what both have, what differs, what only one has; as text, JSON and a page."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, parser, shape_inference

from relayout import pipeline
from relayout.reports.differing import Diff
from relayout.reports.page import distinct
from reports.pages import opened, requests, settled
from reports.test_map_page import browser

MODELS = Path(__file__).parents[2] / "models"
TINYNET = MODELS / "tinynet_float.tflite"

TEXT = """<ir_version: 10, opset_import: ["": 21]>
g (float[1,8,6,4] x) => (float[1,3,8,6] y) {
    [move] t = Transpose<perm=[0,3,1,2]>(x)
    [first] a = Conv(t, k)
    [act] b = Relu(a)
    [twice] c = Add(b, b)
    [last] y = Conv(c, l)
}"""


def network() -> onnx.ModelProto:
    proto = parser.parse_model(TEXT)
    for name, shape in (("k", (5, 4, 1, 1)), ("l", (3, 5, 1, 1))):
        proto.graph.initializer.append(numpy_helper.from_array(np.ones(shape, np.float32), name))
    return shape_inference.infer_shapes(proto)


def compared(a: onnx.ModelProto, b: onnx.ModelProto, folder: Path) -> Diff:
    for name, proto in (("a", a), ("b", b)):
        onnx.save(proto, folder / f"{name}.onnx")
    return pipeline.diff(folder / "a.onnx", folder / "b.onnx")


def said(found: Diff) -> dict[str, tuple[str, ...]]:
    return {found.chart.spots[item.spot].name: item.what for item in found.changed}


def names(found: Diff, spots: tuple[int, ...]) -> list[str]:
    return [found.chart.spots[spot].name for spot in spots]


def test_an_input_of_another_name_is_named(tmp_path: Path) -> None:
    other = network()
    other.graph.input[0].name = other.graph.node[0].input[0] = "pixels"
    found = compared(network(), other, tmp_path)
    assert said(found) == {"x": ("renamed: x -> pixels",)}
    assert "  input x: renamed: x -> pixels" in str(found).splitlines()


def test_a_model_and_itself_are_alike(tmp_path: Path) -> None:
    found = compared(network(), network(), tmp_path)
    assert (found.changed, found.only_first, found.only_second, found.both) == ((), (), (), 6)
    assert found.chart.before == found.chart.after


def test_a_default_that_is_written_out_is_no_difference(tmp_path: Path) -> None:
    other = network()
    other.graph.node[1].attribute.extend(
        [helper.make_attribute("group", 1), helper.make_attribute("auto_pad", "NOTSET")]
    )
    assert compared(network(), other, tmp_path).changed == ()


def test_each_difference_is_named(tmp_path: Path) -> None:
    other = network()
    nodes = {node.name: node for node in other.graph.node}
    nodes["last"].attribute.append(helper.make_attribute("pads", [1, 1, 1, 1]))
    nodes["twice"].op_type = "Mul"
    nodes["act"].op_type = "Sigmoid"
    nodes["act"].name = "nothing"
    nodes["act"].input[0], nodes["act"].output[0] = "a", "n"
    nodes["twice"].input[:] = ["n", "n"]
    other.graph.output[0].type.tensor_type.shape.dim[2].dim_value = 10
    other.graph.output[0].type.tensor_type.shape.dim[3].dim_value = 8
    del other.graph.value_info[:]
    found = compared(network(), shape_inference.infer_shapes(other), tmp_path)
    assert said(found) == {
        "twice": ("operator Add -> Mul",),
        "last": ("pads none -> [1, 1, 1, 1]", "shape 1 × 3 × 8 × 6 -> 1 × 3 × 10 × 8"),
    }
    assert (names(found, found.only_first), names(found, found.only_second)) == (["act"], ["nothing"])
    lines = str(found).splitlines()
    assert "  Add twice: operator Add -> Mul" in lines
    assert f"only {tmp_path / 'b.onnx'} has 1" in lines


def test_renamed_operators_are_found_by_their_order(tmp_path: Path) -> None:
    other = network()
    for number, node in enumerate(other.graph.node):
        node.name = f"n{number}"
        node.input[:] = [name if name in ("x", "k", "l") else f"v{name}" for name in node.input]
        node.output[:] = [name if name == "y" else f"v{name}" for name in node.output]
    del other.graph.value_info[:]
    found = compared(network(), shape_inference.infer_shapes(other), tmp_path)
    assert (found.changed, found.only_first, found.only_second) == ((), (), ())


def test_a_source_and_its_result_differ_in_layouts(tmp_path: Path) -> None:
    pipeline.convert(TINYNET, io="convert").save(tmp_path / "b.onnx")
    found = pipeline.diff(TINYNET, tmp_path / "b.onnx")
    assert (len(found.chart.before.transposes), len(found.chart.after.transposes)) == (16, 0)
    assert not found.only_first + found.only_second
    what = said(found)
    assert what["tinynet_1/concatenate_1_1/concat/concat/Concat"] == ("axis 3 -> 1", "layout NHWC -> NCHW")
    assert what["image"] == ("layout NHWC -> NCHW",)
    image = next(value for value in found.chart.values if value.tensor == "image")
    assert (image.layout, image.stored) == ("n h w c", "n c h w")


@pytest.mark.parametrize(
    ("a", "b", "shown"),
    [
        ("/x/a.onnx", "/y/b.onnx", ("a.onnx", "b.onnx")),
        ("/x/old/a.onnx", "/x/new/a.onnx", ("old/a.onnx", "new/a.onnx")),
        ("a.onnx", "a.onnx", ("a.onnx", "a.onnx")),
    ],
)
def test_names_are_as_short_as_they_differ(a: str, b: str, shown: tuple[str, str]) -> None:
    assert distinct(a, b) == shown


def test_the_command_line(relayout, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    relayout("convert", TINYNET, tmp_path / "b.onnx", "-q")
    ran = relayout("diff", TINYNET, tmp_path / "b.onnx", "--html", tmp_path / "d.html")
    assert ran.code == 0
    assert "both have 20 operators, inputs and outputs; 2 of them differ" in ran.out
    assert (tmp_path / "d.html").read_text().startswith("<!DOCTYPE html>")
    data = json.loads(relayout("diff", TINYNET, tmp_path / "b.onnx", "--json").out)
    assert [len(data[key]) for key in ("changed", "only_first", "only_second")] == [2, 0, 0]
    assert relayout("diff", TINYNET, tmp_path / "absent.onnx").code == 2
    refused = relayout("diff", TINYNET, tmp_path / "b.onnx", "--html", tmp_path / "b.onnx")
    assert (refused.code, "replaced by its own result" in refused.err) == (2, True)


@browser
@pytest.mark.parametrize("width", [390, 1400])
def test_the_page_marks_what_differs(width: int, tmp_path: Path) -> None:
    other = network()
    other.graph.node[1].attribute.append(helper.make_attribute("dilations", [2, 2]))
    other.graph.node[2].op_type, other.graph.node[2].name = "Sigmoid", "nothing"
    found = compared(network(), other, tmp_path)
    (tmp_path / "d.html").write_text(found.html(), encoding="utf-8")
    with opened(tmp_path / "d.html", width=width, height=844) as driver:
        assert requests(driver) == []
        assert "4 alike, 1 differ, 1 only in a.onnx, 1 only in b.onnx" in driver.find_element("id", "figures").text
        marked = "return relayout.panes[arguments[0]].cy.nodes(arguments[1]).map(n => n.data('label'))"
        for side, name in (("before", "act"), ("after", "nothing")):
            (label,) = driver.execute_script(marked, side, ".only")
            assert label.endswith(name)
            (label,) = driver.execute_script(marked, side, ".changed[id ^= 's']")
            assert label == "Conv\nfirst"
        # A difference leads to its operator, on the side that has it.
        for number, words in enumerate(("dilations", "a.onnx", "b.onnx")):
            settled(driver, f"document.querySelectorAll('#list button')[{number}].click()")
            assert words in driver.find_element("id", "details").text
            if width < 600 and number:
                shown = [pane.is_displayed() for pane in driver.find_elements("css selector", ".pane")]
                assert shown == [number == 1, number == 2]
        # The other side shows what is nearest to it.
        near = "const [a, b] = Object.values(relayout.panes); return relayout.spots[a.nearest(arguments[0], b)].name"
        assert driver.execute_script(near, found.only_first[0]) in ("first", "twice")
        assert driver.execute_script("return document.documentElement.scrollWidth") <= width
        assert driver.get_log("browser") == []
