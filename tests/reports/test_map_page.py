"""The page: self-contained and deterministic; in a headless browser: usable, legible, deaf to hostile names."""

from __future__ import annotations

import doctest
import html.parser
import importlib.util
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper, shape_inference

import relayout
from relayout.reports import drawing as colours_of_layouts
from relayout.reports.drawing import COUNT, OWN, colour_numbers
from relayout.reports.page import embedded
from reports.pages import CHROMIUM, DRIVER, opened, requests, settled

MODELS = Path(__file__).parents[2] / "models"
HOSTILE = [
    "</script><img src=x onerror=window.hacked=1>",
    "<!--<script>window.hacked=2",
    "\"'><svg onload=window.hacked=3>",
    "{data}{script}",
    "\u2028]]> ${window.hacked=4}",
    "__proto__",
    "a\x00b\ud800",
]

browser = pytest.mark.skipif(
    not (CHROMIUM and DRIVER and importlib.util.find_spec("selenium")),
    reason="needs chromium, chromedriver and selenium (the extra `browser`)",
)


def wasteful(names: list[str], shape: tuple[int, ...] = (2, 3, 4, 5)) -> onnx.ModelProto:
    """Transposes between operators of these names, one of which must remain."""
    nodes = []
    last = "x"
    for name in names:
        nodes.append(helper.make_node("Relu", [last], [name], name=f"node {name}"))
        last = name
    nodes.append(helper.make_node("Transpose", [last], ["turned"], perm=[0, 3, 1, 2]))
    nodes.append(helper.make_node("GlobalMaxPool", ["turned"], ["y"], name=names[0] if names else "pool"))
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "g",
        [info("x", TensorProto.FLOAT, shape)],
        [info("y", TensorProto.FLOAT, (shape[0], shape[3], 1, 1)), info(last, TensorProto.FLOAT, shape)],
    )
    return shape_inference.infer_shapes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]))


def page_of(source: Any, path: Path, title: str = "model") -> Path:
    path.write_text(relayout.optimize(source).html(title), encoding="utf-8")
    return path


class Elements(html.parser.HTMLParser):
    """The elements of a page, and the addresses in their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "action")]


def test_the_page_holds_all_that_it_needs_and_nothing_that_asks_for_more() -> None:
    text = relayout.convert(MODELS / "tinynet_int8.tflite").html("tinynet")
    elements = Elements(text)
    assert elements.addresses == ["data:,"]
    assert elements.tags.count("script") == 3
    assert "link" not in elements.tags or elements.tags.count("link") == 1
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'")
    assert "connect-src" not in policy[1]
    assert "unsafe-inline" not in policy[1].partition("script-src")[2]
    assert len(text.encode()) < 600_000


@pytest.mark.slow
def test_equal_models_give_equal_pages() -> None:
    source = MODELS / "tinynet_int8.tflite"
    code = f"import relayout, sys; sys.stdout.write(relayout.convert({str(source)!r}).html('tinynet'))"
    pages = [relayout.convert(source).html("tinynet").encode()]
    for seed in ("0", "12345"):
        environment = {"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path), "PYTHONUTF8": "1"}
        pages.append(
            subprocess.run([sys.executable, "-c", code], check=True, env=environment, capture_output=True).stdout
        )
    assert pages[0] == pages[1] == pages[2]


def test_hostile_names_are_only_text() -> None:
    text = relayout.optimize(wasteful(["plain"])).html()
    names = [name.replace("\x00", "").replace("\ud800", "") for name in HOSTILE]
    hostile = relayout.optimize(wasteful(names)).html("</title><script>alert(1)</script>")
    assert Elements(hostile).tags == Elements(text).tags
    assert {f"node {name}" for name in names} <= {spot[0] for spot in data_of(hostile)["spots"]}


@pytest.mark.parametrize("text", HOSTILE)
def test_embedded_json_holds_no_markup_and_reads_back(text: str) -> None:
    written = embedded({text: [text]})
    assert not set("<>&\u2028\u2029") & set(written)
    if "\ud800" not in text:
        assert json.loads(written) == {text: [text]}


def data_of(text: str) -> dict[str, Any]:
    """The data that a page holds."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


def test_layouts_have_the_names_of_the_text_report() -> None:
    data = data_of(relayout.convert(MODELS / "tinynet_int8.tflite").html())
    assert {layout for layout, _ in data["colours"]} == {"NHWC", "NCHW", "n (h w c)"}
    assert {mark[1] for side in ("before", "after") for mark in data[side]["marks"]} == {"NHWC -> NCHW", "NCHW -> NHWC"}
    assert {region[0] for region in data["after"]["regions"]} == {"NHWC", "NCHW"}
    stored = {layout for value in data["values"] for layout in (value[3], value[4], *value[5])}
    assert {"NHWC", "NCHW"} <= stored
    assert not {"n h w c", "n c h w"} & stored


def test_a_layout_has_one_colour_on_every_page() -> None:
    pages = [
        relayout.convert(MODELS / "tinynet_int8.tflite").html(),
        relayout.convert(MODELS / "tinynet_float.tflite", io="convert").html(),
        relayout.optimize(wasteful(["a"])).html(),
    ]
    colours = [dict(data_of(text)["colours"]) for text in pages]
    for layout in ("NHWC", "NCHW"):
        assert {numbers[layout] for numbers in colours if layout in numbers} == {OWN[layout]}
    assert all(len(set(numbers.values())) == len(numbers) for numbers in colours)
    assert doctest.testmod(colours_of_layouts).failed == 0


def test_layouts_beyond_the_palette_share_the_last_colour() -> None:
    numbers = colour_numbers(["NWC", *(f"a b{number}" for number in range(COUNT + 2))])
    assert numbers["NWC"] == OWN["NWC"]
    assert Counter(numbers.values())[COUNT] == 3
    assert len(set(numbers.values())) == COUNT + 1


def test_the_page_says_what_a_target_runs() -> None:
    result = relayout.convert(MODELS / "tinynet_float.tflite", target="nnapi")
    assert result.report.claims is not None
    assert data_of(result.html())["summary"]["claims"] == list(result.report.claims.lines(0))


@browser
def test_it_opens_on_what_remains_and_on_the_result(tmp_path: Path) -> None:
    """The Transpose is behind 40 operators, beyond the end of the window."""
    nodes = [helper.make_node("Relu", [f"v{number}"], [f"v{number + 1}"]) for number in range(40)]
    nodes += [
        helper.make_node("Transpose", ["v40"], ["t"], perm=[0, 3, 1, 2]),
        helper.make_node("Conv", ["t", "k"], ["y"]),
    ]
    info = helper.make_tensor_value_info
    ends = [info("v0", TensorProto.FLOAT, (1, 8, 6, 4))], [info("y", TensorProto.FLOAT, (1, 3, 8, 6))]
    kernel = helper.make_tensor("k", TensorProto.FLOAT, (3, 4, 1, 1), [1.0] * 12)
    graph = helper.make_graph(nodes, "g", *ends, [kernel])
    path = page_of(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]), tmp_path / "page.html")
    for width in (390, 1280):
        with opened(path, width=width, height=800) as driver:
            x, y, wide, high = driver.execute_script(
                "const pane = relayout.panes.after, at = pane.cy.getElementById('t0').renderedPosition();"
                "return [at.x, at.y, pane.holder.clientWidth, pane.holder.clientHeight];"
            )
            assert 0 < x < wide
            assert 0 < y < high
            ids = ("list", "after", "before") if width > 600 else ("list", "after", "details")
            places = [driver.find_element("id", each).rect["x" if width > 600 else "y"] for each in ids]
            assert places == sorted(set(places))
            assert "Transposes that remain: 1" in driver.find_element("id", "list").text


@browser
def test_it_loads_finds_opens_and_asks_nobody(tmp_path: Path) -> None:
    path = page_of(MODELS / "tinynet_int8.tflite", tmp_path / "page.html")
    with opened(path) as driver:
        assert requests(driver) == []
        assert driver.get_log("browser") == []
        count = driver.execute_script("return relayout.spots.length")
        assert count > 30
        settled(driver, "document.getElementById('close').click()")
        closed = driver.execute_script("return relayout.panes.after.cy.nodes('[id ^= \"s\"]').length")
        assert closed == 0
        # A region opens from the keyboard: choose it, the largest, then o.
        settled(
            driver,
            """const pane = relayout.panes.after, sizes = pane.regions.map(r => r.spots.length);
            const i = sizes.indexOf(Math.max(...sizes));
            pane.cy.getElementById('r' + i).emit('tap');
            document.dispatchEvent(new KeyboardEvent('keydown', {key: 'o'}));""",
        )
        inside = driver.execute_script("return Math.max(...relayout.panes.after.regions.map(r => r.spots.length))")
        assert driver.execute_script("return relayout.panes.after.cy.nodes('[id ^= \"s\"]').length") == inside
        overlaps = driver.execute_script(OVERLAPS)
        assert overlaps == []
        # Search: type, choose with the keyboard, see it selected on both sides.
        find = driver.find_element("id", "find")
        find.send_keys("gemm")
        assert len(driver.find_elements("css selector", "#found li")) == 2
        find.send_keys("\ue015\ue007")  # down, enter
        selected = "return ['before', 'after'].map(n => relayout.panes[n].cy.nodes(':selected').data('label'))"
        assert all(label.startswith("Gemm") for label in driver.execute_script(selected))
        assert "Gemm" in driver.find_element("id", "details").text
        # A Transpose tells its reason.
        driver.find_element("css selector", ".transposes button").click()
        assert "Needed because you keep input image in NHWC" in driver.find_element("id", "details").text
        assert driver.get_log("browser") == []
        assert requests(driver) == []


OVERLAPS = """
const found = [];
for (const pane of Object.values(relayout.panes)) {
  const boxes = pane.cy.nodes().filter(n => !n.hasClass('open'))
    .map(n => [n.id(), n.position(), n.data('w'), n.data('h')]);
  for (let i = 0; i < boxes.length; i++) for (let j = 0; j < i; j++) {
    const [a, p, w, h] = boxes[i], [b, q, v, g] = boxes[j];
    if (Math.abs(p.x - q.x) < (w + v) / 2 && Math.abs(p.y - q.y) < (h + g) / 2) found.push([pane.name, a, b]);
  }
}
return found;"""


@browser
def test_hostile_names_do_nothing_in_a_browser(tmp_path: Path) -> None:
    names = [name.replace("\x00", "").replace("\ud800", "") for name in HOSTILE]
    path = page_of(wasteful(names), tmp_path / "page.html", "</title><script>window.hacked=9</script>")
    with opened(path) as driver:
        driver.find_element("id", "find").send_keys("onerror")
        assert len(driver.find_elements("css selector", "#found li")) >= 1
        settled(driver, "document.querySelector('#found li').click(); document.getElementById('open').click();")
        settled(driver, "relayout.spots.forEach((_, i) => relayout.panes.after.cy.getElementById('s' + i).emit('tap'))")
        assert driver.execute_script("return window.hacked") is None
        assert driver.execute_script("return document.querySelectorAll('img, svg, iframe').length") == 0
        assert names[0] in driver.execute_script("return relayout.spots.map(s => s.name)").__str__()
        assert [entry for entry in driver.get_log("browser") if "Refused" in entry["message"]] == []
        assert requests(driver) == []


CONTRAST = """
const light = c => { const v = parseInt(c.slice(1), 16); return [v >> 16, v >> 8 & 255, v & 255].map(x => x / 255)
  .map(x => x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4)
  .reduce((s, x, i) => s + x * [0.2126, 0.7152, 0.0722][i], 0); };
const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort(); return (y + 0.05) / (x + 0.05); };
const css = name => getComputedStyle(document.body).getPropertyValue(name).trim();
const pairs = [[css('--ink'), css('--paper')], [css('--soft'), css('--paper')], [css('--soft'), css('--panel')],
  [css('--good'), css('--paper')], [css('--mark-ink'), css('--mark')], [css('--paper'), css('--accent')]];
const colours = [...relayout.PALETTE[arguments[0]], relayout.MARK[arguments[0]]];
for (const [fill, text] of colours) pairs.push([text, fill]);
const borders = colours.map(([, , border]) => ratio(border, css('--paper')));
return [Math.min(...pairs.map(([a, b]) => ratio(a, b))), Math.min(...borders)];"""


@browser
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1400])
def test_it_renders_dark_and_light_wide_and_narrow_and_is_legible(dark: bool, width: int, tmp_path: Path) -> None:
    path = page_of(MODELS / "tinynet_int8.tflite", tmp_path / "page.html")
    with opened(path, width=width, height=844, dark=dark) as driver:
        text, border = driver.execute_script(CONTRAST, "dark" if dark else "light")
        assert text >= 4.5
        assert border >= 3
        paper = driver.execute_script("return getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, re.findall(r"\d+", paper)[:3])) < 200) is dark
        assert driver.execute_script("return document.documentElement.scrollWidth") <= width
        shown = [pane.is_displayed() for pane in driver.find_elements("css selector", ".pane")]
        assert shown == ([True, False] if width < 600 else [True, True])
        if width < 600:
            driver.find_element("css selector", ".tabs [data-side=before]").click()
            shown = [pane.is_displayed() for pane in driver.find_elements("css selector", ".pane")]
            assert shown == [False, True]
        driver.find_element("css selector", ".tabs [data-side=after]").click() if width < 600 else None
        driver.set_window_size(width + 40, 700)
        box, wide, high = driver.execute_script(
            "const pane = relayout.panes.after; pane.resized();"
            "return [pane.cy.elements().renderedBoundingBox(), pane.holder.clientWidth, pane.holder.clientHeight];"
        )
        assert box["x1"] >= 0, "it opens fitted, and stays so when the window has another size"
        assert box["y1"] >= 0
        assert box["x2"] <= wide
        assert box["y2"] <= high
        assert len(set(driver.get_screenshot_as_png())) > 100
        assert driver.get_log("browser") == []


def large(count: int) -> onnx.ModelProto:
    """A network of residual blocks, with one Transpose that remains."""
    nodes = [helper.make_node("Transpose", ["x"], ["v0"], perm=[0, 3, 1, 2])]
    for number in range(1, count - 1):
        before = f"v{number - 1}"
        inputs = [before, f"v{number - 6}"] if number % 7 == 6 else [before]
        nodes.append(helper.make_node("Add" if len(inputs) > 1 else "Relu", inputs, [f"v{number}"], name=f"n{number}"))
    nodes.append(helper.make_node("GlobalMaxPool", [f"v{count - 2}"], ["y"]))
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [info("x", TensorProto.FLOAT, (1, 8, 6, 4))], [info("y", TensorProto.FLOAT, (1, 4, 1, 1))]
    )
    return shape_inference.infer_shapes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]))


@browser
@pytest.mark.slow
def test_five_thousand_operators_are_usable(tmp_path: Path) -> None:
    path = page_of(large(5000), tmp_path / "page.html")
    assert path.stat().st_size < 2_000_000
    with opened(path) as driver:
        assert driver.get_log("browser") == []
        opened_all = settled(driver, "relayout.panes.after.all(true); return relayout.panes.after.cy.nodes().length")
        assert opened_all > 4900
        driver.find_element("id", "find").send_keys("n4000")
        settled(driver, "document.querySelector('#found li').click()")
        assert "n4000" in driver.find_element("id", "details").text
        settled(driver, "relayout.panes.after.zoom(0.5); relayout.panes.after.cy.panBy({x: 0, y: -300})")
        assert driver.get_log("browser") == []
