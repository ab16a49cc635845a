"""What the report says: names of axes, and the demands that each remaining Transpose separates."""

from __future__ import annotations

import doctest
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import compose, helper, numpy_helper, parser, shape_inference

import relayout
from infer.graphs import random_model
from relayout.cli import cli
from relayout.reports import layouts
from relayout.reports.layouts import size_name
from relayout.reports.reasons import Cause, remedy

MODELS = Path(__file__).parents[2] / "models"


def model(text: str, **weights: tuple[int, ...]) -> onnx.ModelProto:
    proto = parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> g {text}')
    for name, shape in weights.items():
        proto.graph.initializer.append(numpy_helper.from_array(np.ones(shape, np.float32), name))
    return shape_inference.infer_shapes(proto)


def test_one_transpose_with_two_reasons_has_both_with_their_bytes() -> None:
    """The input is wanted channels first by a convolution, and once reduced by another."""
    proto = model(
        """(float[1,8,6,4] x) => (float[1,5,8,6] y, float[1,7,8,6] z) {
            a = Transpose<perm=[0,3,1,2]>(x)
            b = Relu(a)
            y = Conv(b, k)
            z = Conv(b, l)
        }""",
        k=(5, 4, 1, 1),
        l=(7, 4, 1, 1),
    )
    report = relayout.explain(proto)
    (left,) = report.remaining
    assert left.layout == "n h w c -> n c h w"
    assert sum(cause.bytes for cause in left.causes) == left.bytes == 8 * 6 * 4 * 4
    assert all(cause.above == "you keep input x in NHWC" for cause in left.causes)
    assert {cause.below for cause in left.causes} <= {
        "Conv y needs NCHW",
        "Conv z needs NCHW",
    }


def test_the_reason_is_the_pin_that_the_bytes_separate_not_the_nearest_one() -> None:
    """MatMul is nearer to the Transpose; but it is content with the order that is given."""
    proto = model(
        """(float[2,8,6,4] x) => (float[2,5,8,6] y, float[2,8,6,3] z) {
            a = Relu(x)
            z = MatMul(a, m)
            b = Sigmoid(a)
            c = Tanh(b)
            d = Transpose<perm=[0,3,1,2]>(c)
            y = Conv(d, k)
        }""",
        m=(4, 3),
        k=(5, 4, 1, 1),
    )
    (left,) = relayout.explain(proto).remaining
    assert [cause.below for cause in left.causes] == ["Conv y needs NCHW"]
    assert {cause.above for cause in left.causes} == {"you keep input x in NHWC"}


def attention() -> onnx.ModelProto:
    """Two heads over a convolution's tokens: queries, and keys the other way round."""
    proto = model(
        """(float[2,3,4,5] x) => (float[2,2,20,20] s) {
            a = Conv(x, k)
            t = Reshape(a, tokens)
            b = Transpose<perm=[0,2,1]>(t)
            q = MatMul(b, wq)
            qh = Reshape(q, heads)
            qt = Transpose<perm=[0,2,1,3]>(qh)
            p = MatMul(b, wk)
            ph = Reshape(p, heads)
            pt = Transpose<perm=[0,2,3,1]>(ph)
            s = MatMul(qt, pt)
        }""",
        k=(8, 3, 1, 1),
        wq=(8, 8),
        wk=(8, 8),
    )
    for name, shape in (("tokens", [2, 8, 20]), ("heads", [2, 20, 2, 4])):
        proto.graph.initializer.append(numpy_helper.from_array(np.array(shape, np.int64), name))
    return shape_inference.infer_shapes(proto)


def repeated(make: Callable[[], onnx.ModelProto], times: int) -> onnx.ModelProto:
    """A model several times over, side by side."""
    parts = [compose.add_prefix(make(), f"p{index}_") for index in range(times)]
    whole = parts[0]
    for part in parts[1:]:
        whole = compose.merge_models(whole, part, io_map=[])
    return whole


def test_a_reason_names_the_operators_beside_its_transpose_and_their_axes() -> None:
    """More than two orders: the certificate's prices lead on to other Transposes, which are no reason for this one."""
    found = {left.tensor: left for left in relayout.explain(attention()).remaining}
    assert {name: left.layout for name, left in found.items()} == {
        "a": "n c h w -> n h w c",
        "q": "n h w c1 c2 -> n c1 h w c2",
        "p": "n h w c -> n c h w",
    }
    assert [(cause.above, cause.below) for name in "aqp" for cause in found[name].causes] == [
        ("Conv a needs NCHW", "MatMul q needs c last (n (h w) c)"),
        ("MatMul q needs c last (n (h w) c)", "MatMul s needs (h w) c2 last (n c1 (h w) c2)"),
        ("MatMul p needs c last (n (h w) c)", "MatMul s needs c2 (h w) last (n c1 c2 (h w))"),
    ]


def test_pieces_of_an_axis_that_stay_together_have_one_name() -> None:
    report = relayout.explain(attention())
    values = {value.tensor: value for value in report.chart.values}
    assert (values["a"].layout, values["a"].stored, values["a"].others) == ("n c h w", "n c h w", ("n h w c",))
    assert (values["q"].layout, values["q"].others) == ("n (h w) c", ("n c1 h w c2",))
    assert report.interface[-1].layout == "n b (h1 w1) (h2 w2)"


@pytest.mark.parametrize("seed", range(30))
def test_causes_sum_to_their_transpose_and_name_two_demands(seed: int) -> None:
    proto, _ = random_model(seed, 14)
    report = relayout.explain(proto)
    for left in report.remaining:
        assert sum(cause.bytes for cause in left.causes) == left.bytes
        assert [cause.bytes for cause in left.causes] == sorted((c.bytes for c in left.causes), reverse=True)
        assert all(cause.above != cause.below for cause in left.causes)
        assert left.reason.startswith(f"Needed because {left.causes[0].above} and {left.causes[0].below}")
        assert len(left.causes) == 1 or size_name(left.causes[0].bytes) in left.reason


def test_axes_are_named_by_the_operators_that_know_them() -> None:
    proto = model(
        """(float[2,3,8,6] x) => (float[2,48,5] t) {
            a = Conv(x, k)
            b = Transpose<perm=[0,2,3,1]>(a)
            t = Reshape(b, s)
        }""",
        k=(5, 3, 1, 1),
    )
    proto.graph.initializer.append(numpy_helper.from_array(np.array([2, 48, 5], np.int64), "s"))
    report = relayout.explain(proto)
    assert [end.layout for end in report.interface] == ["n c h w", "n (h w) c"]
    unnamed = relayout.explain(model("(float[2,3] x) => (float[2,3] y) { y = Relu(x) }"))
    assert [end.layout for end in unnamed.interface] == ["a b", "a b"]


@pytest.mark.parametrize(
    ("shape", "stored"),
    [
        ((1, 3, 4, 5), "n c w h"),
        ((1, 3, 4, 5), "c n w h"),
        ((1, 3, 1, 5), "n c w h"),
        ((2, 3, 4, 5), "n c w h"),
        ((1, 3, 4, 5), "n h w c"),
    ],
)
def test_axes_of_one_element_have_their_names_in_every_order(shape: tuple[int, ...], stored: str) -> None:
    extents = ",".join(map(str, shape))
    proto = model(
        f"(float[{extents}] x) => (float[{shape[0]},6,{shape[2]},{shape[3]}] y) {{ y = Conv(x, k) }}", k=(6, 3, 1, 1)
    )
    report = relayout.convert(proto, layouts={"x": ("n c h w", stored)}).report
    assert [end.layout for end in report.interface] == [f"n c h w -> {stored}", "n c h w"]


def test_a_batch_of_one_is_named_alike_before_and_after() -> None:
    """In an order of the source that no layout has, the other axes of an image say which one it is."""
    proto = model(
        """(float[1,3,5,4] x) => (float[1,6,4,5] y) { a = Transpose<perm=[0,1,3,2]>(x) y = Conv(a, k) }""",
        k=(6, 3, 1, 1),
    )
    report = relayout.convert(proto, io="NHWC").report
    assert report.interface[0].layout == "n c w h -> n h w c"


def test_a_transposed_tensor_of_an_importer_is_named_as_it_lies() -> None:
    """A convolution's own output lies channels first in the literal import, whatever TensorFlow Lite's order is."""
    chart = relayout.explain(MODELS / "tinynet_float.tflite").chart
    given = {spot.operator: chart.values[spot.outputs[0]] for spot in chart.spots if spot.outputs}
    assert given["Conv"].layout == "n c h w"
    assert given["input"].layout == "n h w c"


def test_a_report_is_printed_as_the_terminal_shows_it() -> None:
    text = str(relayout.explain(attention()))
    assert "remains: a  NCHW -> NHWC, 1.28 KB" in text
    assert "  Needed because Conv a needs NCHW and MatMul q needs c last (n (h w) c)." in text
    assert "proved minimal" in text
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 88
    assert "between MatMul and MatMul: " not in text


def test_transposes_that_are_alike_but_for_names_are_listed_once(caplog: pytest.LogCaptureFixture) -> None:
    report = relayout.explain(repeated(attention, 4))
    text = " ".join(str(report).split())
    assert "between MatMul and MatMul: 8 Transposes, 10.2 KB" in text
    alike = {(row.layout, row.bytes, tuple(cause.kinds for cause in row.causes)) for row in report.remaining}
    assert text.count("remains: ") == len(alike) < len(report.remaining)
    assert all(row.tensor in text for row in report.remaining)
    with caplog.at_level("INFO", "relayout"):
        assert str(report).count("remains: ") == len(report.remaining)


def test_the_report_is_json_and_equal_for_equal_input() -> None:
    import json

    first, second = (relayout.explain(MODELS / "tinynet_int8.tflite").to_dict() for _ in range(2))
    first.pop("seconds"), second.pop("seconds")
    assert json.dumps(first) == json.dumps(second)
    assert set(first["chart"]) == {"spots", "values", "before", "after"}


WINDOWS = """(float[8,4,8,4,{channels}] x) => (float[64,5,16] y) {{
    w = Transpose<perm=[0,2,1,3,4]>(x)
    q = Reshape(w, n)
    k = Transpose<perm=[0,2,1]>(q)
    y = MatMul(c, k)
}}"""
AT_ONCE = """(float[8,4,8,4,24] x) => (float[64,5,16] y) {
    t = Transpose<perm=[4,0,1,2,3]>(x)
    r = Relu(t)
    s = Transpose<perm=[1,2,3,4,0]>(r)
    w = Transpose<perm=[0,2,4,1,3]>(s)
    k = Reshape(w, n)
    y = MatMul(c, k)
}"""
"""Windows of an image, and in each the product of some rows with all elements; the second in one Transpose, behind two
that are not needed.
"""


@pytest.mark.parametrize(
    ("text", "shape", "target", "said"),
    [
        (WINDOWS.format(channels=24), (64, 16, 24), None, True),
        (WINDOWS.format(channels=24), (64, 16, 24), "onnxruntime-cpu", False),
        (WINDOWS.format(channels=2), (64, 16, 2), None, False),
        (AT_ONCE, (64, 24, 16), None, False),
    ],
    ids=["more than in the source", "done in two steps", "few", "as in the source"],
)
def test_transposes_of_single_elements_are_named(
    text: str, shape: tuple[int, ...], target: str | None, said: bool
) -> None:
    proto = model(text)
    channels = 24 if 24 in shape else 2
    arrays = {"n": np.array(shape), "c": np.ones((64, 5, channels), np.float32)}
    proto.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in arrays.items())
    report = relayout.optimize(proto, target=target).report
    assert (report.transposes, report.proved) == (1, True)
    told = "1 Transpose copies single elements or short runs (98,304 bytes)"
    assert any(note.startswith(told) for note in report.notes) == said


def test_a_cause_says_whether_an_input_or_output_keeps_its_layout_and_the_report_what_to_do() -> None:
    """With the interface converted, what remains is between operators: there the option would do nothing."""
    text = """(float[1,8,6,4] x) => (float[1,8,6,4] y) {
        a = Transpose<perm=[0,3,1,2]>(x)
        b = Conv(a, k)
        c = Transpose<perm=[0,2,3,1]>(b)
        d = MatMul(c, m)
        e = Transpose<perm=[0,3,1,2]>(d)
        f = Conv(e, k)
        y = Softmax(f)
    }""".replace("float[1,8,6,4] y", "float[1,4,8,6] y")
    kept = relayout.explain(model(text, k=(4, 4, 1, 1), m=(4, 4)))
    assert any(cause.interface for left in kept.remaining for cause in left.causes)
    assert "Remove it with `convert --io convert`." in " ".join(str(kept).split())
    free = relayout.explain(model(text, k=(4, 4, 1, 1), m=(4, 4)), io="convert")
    assert free.remaining
    assert not any(cause.interface for left in free.remaining for cause in left.causes)
    assert "--io convert" not in str(free)
    assert "Only a backend with a kernel for" in " ".join(str(free).split())


def test_each_reason_ends_with_what_removes_it() -> None:
    """A layout that was asked for, and an operator of which nothing is known."""
    text = "(float[1,8,6,4] x) => (float[1,4,8,6] y) { a = Transpose<perm=[0,3,1,2]>(x) y = Conv(a, k) }"
    asked = relayout.explain(model(text, k=(4, 4, 1, 1)), layouts={"x": ("NHWC", "NHWC")}, io="convert")
    assert [left.reason for left in asked.remaining] == [
        "Needed because you store input x in NHWC and Conv y needs NCHW."
        " It stays while you ask for that layout (--layout, --io)."
    ]
    unknown = parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21, "acme": 1]> g (float[1,4,8,6] x, float[4,4,1,1] k) =>'
        " (float[1,8,6,4] y) { a = Conv(x, k) b = Transpose<perm=[0,2,3,1]>(a) y = acme.Foo(b) }"
    )
    unknown.graph.value_info.extend(
        helper.make_tensor_value_info(name, 1, shape) for name, shape in (("a", [1, 4, 8, 6]), ("b", [1, 8, 6, 4]))
    )
    (left,) = relayout.explain(unknown).remaining
    assert left.reason.endswith("Remove it by a rule for that operator (docs/how-to/custom-operator.md).")
    assert left.causes[0].barrier
    assert left.causes[0].kinds == ("Conv", "Foo")


def test_layouts_have_names_and_sizes_units() -> None:
    assert doctest.testmod(layouts).failed == 0
    assert layouts.layout_names("n h w c -> n c h w") == "NHWC -> NCHW"
    assert layouts.layout_names("n (h w) c1 -> a b") == "n (h w) c1 -> a b"
    assert [size_name(count) for count in (1, 1_000, 999_999, 10**12)] == ["1 byte", "1 KB", "1 MB", "1 TB"]


def test_what_removes_one_of_two_causes_removes_a_part() -> None:
    kept, other = Cause("you keep x", "Conv y needs NHWC", 8, interface=True), Cause("Conv a", "Conv b", 8)
    assert remedy([kept]) == "Remove it with `convert --io convert`."
    assert remedy([kept, other]) == "A part of it goes with `convert --io convert`."


def test_each_verb_advises_options_that_it_has_or_names_the_verb_that_has_them() -> None:
    text = "(float[1,8,6,4] x) => (float[1,4,8,6] y) { a = Transpose<perm=[0,3,1,2]>(x) y = Conv(a, k) }"
    (left,) = relayout.optimize(model(text, k=(4, 4, 1, 1))).report.remaining
    own = {name for each in cli.every_command()["optimize"].params for name in each.opts}
    advised = re.findall(r"(?:`(\w+) )?(--[a-z-]+)", left.reason)
    assert advised == [("convert", "--io")]
    cause = Cause("Conv a", "Conv b", 8, kinds=("Conv", "Conv"))
    others = remedy([cause]), remedy([cause._replace(open_extents=True)]), remedy([cause._replace(barrier=True)])
    assert {name for text in others for name in re.findall("--[a-z-]+", text)} <= own


def test_a_layout_that_io_asks_for_is_none_of_an_option_that_nobody_gave() -> None:
    proto = model("(float[1,3,8,6] x) => (float[1,5,8,6] y) { y = Conv(x, k) }", k=(5, 3, 1, 1))
    report = relayout.explain(proto, io="NHWC")
    assert {each.reason.rpartition(". ")[2] for each in report.remaining} == {
        "It stays while you ask for that layout (--layout, --io)."
    }


def test_a_known_operator_with_open_extents_is_no_case_for_a_rule() -> None:
    source = parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> g (float[1,4,8,6] x, float[4,4,1,1] k, int64[3] s)'
        " => (float[a,b,c] y) { v = Conv(x, k) t = Transpose<perm=[0,2,3,1]>(v) y = Reshape(t, s) }"
    )
    (left,) = relayout.explain(shape_inference.infer_shapes(source)).remaining
    assert left.causes[0].barrier
    assert left.reason.endswith("Fixed extents may remove it: --dim NAME=N.")


def test_an_unknown_operator_with_open_extents_is_one() -> None:
    source = parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21, "acme": 1]> g (float[1,4,n,6] x, float[4,4,1,1] k)'
        " => (float[1,n,6,4] y) { v = Conv(x, k) t = Transpose<perm=[0,2,3,1]>(v) y = acme.Unknown(t) }"
    )
    (left,) = relayout.explain(shape_inference.infer_shapes(source)).remaining
    assert left.causes[0].barrier
    assert "custom-operator.md" in left.reason
