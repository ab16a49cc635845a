"""If, Loop and Scan, nested, with values of the graph around them; functions."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from export_control import BRANCH, COUNTED, MODELS, NESTED, SCANNED, UNTIL
from export_running import agrees

import relayout
from relayout.formats.tflite.container.loading import load
from rules.law import Array, with_runtime
from small import build
from text_form import floats


def operators(content: bytes) -> set[str]:
    return {operator.name for graph in load(content).subgraphs for operator in graph.operators}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_each_operator_with_bodies_agrees(name: str) -> None:
    agrees(*MODELS[name]())


@pytest.mark.parametrize("chosen", [True, False])
def test_if_runs_the_branch_that_is_chosen(chosen: bool) -> None:
    model = build("bool c, float[2,3] x", BRANCH, {"w": (3,)})
    agrees(model, {"c": np.array(chosen), "x": floats(2, 3)})


MADE = {
    "a product": "a = Mul(c, d)",
    "picked": "a = Gather<axis=0>(c, i)",
    "one behind the other": "n = Add(c, d) a = Mul(n, c)",
    "stored": "a = Identity(c)",
}


@pytest.mark.parametrize("chosen", [True, False])
@pytest.mark.parametrize("made", MADE)
def test_a_body_gives_what_constants_make(made: str, chosen: bool) -> None:
    """LiteRT computes such results before the first run, and lost them."""
    text = f"""y = If(p) <then_branch = t () => (a) {{ {MADE[made]} }}, else_branch = e () => (b) {{ b = Neg(c) }}>"""
    model = build("bool p", text, {"c": (4, 4), "d": (4, 4), "i": [1, 3, 0, 0]})
    agrees(model, {"p": np.array(chosen)})


@pytest.mark.parametrize("count", [0, 1, 5])
def test_loop_runs_as_often_as_it_is_told_at_run_time(count: int) -> None:
    model = build("int64 m, float[2,3] x", COUNTED, {"k": np.array(True), "q": (3,), "zero": [0]})
    agrees(model, {"m": np.array(count), "x": floats(2, 3)})


def test_loop_of_a_known_count_is_written_out() -> None:
    constants = {"m": np.array(4), "k": np.array(True), "q": (3,), "zero": [0]}
    model = build("float[2,3] x", COUNTED, constants)
    agrees(model, {"x": floats(2, 3)})
    assert "WHILE" not in operators(relayout.convert(model, format="tflite").tflite)


@pytest.mark.parametrize("most", [3.0, 100.0])
def test_loop_ends_when_its_condition_says_so(most: float) -> None:
    model = build("float[2,3] x, float most", UNTIL, {"k": np.array(True)})
    agrees(model, {"x": np.abs(floats(2, 3)), "most": np.array(most, np.float32)})


def test_bodies_stand_in_bodies() -> None:
    constants = {"k": np.array(True), "q": (3,), "two": np.array(2)}
    model = build("int64 m, float[2,3] x", NESTED, constants)
    agrees(model, {"m": np.array(4), "x": floats(2, 3)})


def test_scan_of_a_known_length() -> None:
    model = build("float[3] x, float[5,3] y", SCANNED, {"q": (3,)})
    agrees(model, {"x": floats(3), "y": floats(5, 3)})


def test_scan_of_a_length_that_is_known_at_run_time() -> None:
    model = build("float[3] x, float[n,3] y", SCANNED, {"q": (3,)})
    for length in (1, 4):
        feed: dict[str, Array] = {"x": floats(3), "y": floats(length, 3)}
        agrees(model, feed)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_loop_collects_slices_of_open_extents(count: int) -> None:
    body = """
    body = b (int64 i, bool go, float[n,m,3] s) => (bool on, float[n,m,3] t, float[n,m,3] z, float[] e, float[m] v) {
        on = Identity (go)  t = Add (s, q)  z = Neg (t)  e = ReduceSum<keepdims=0>(t)  v = ReduceMax<keepdims=0>(t, ax)
    }
    """
    text = f"last, rows, sums, tops = Loop<{body}>(m, k, x)"
    model = build("int64 m, float[n,m,3] x", text, {"k": np.array(True), "q": (3,), "ax": [0, 2]})
    for shape in ((2, 5, 3), (4, 1, 3)):
        feed: dict[str, Array] = {"m": np.array(count), "x": floats(*shape)}
        wanted = with_runtime(model, feed)
        if not count:  # of slices that nobody computed an open extent is 0
            wanted = [wanted[0], np.zeros((0, 0, 0, 3), np.float32), wanted[2], np.zeros((0, 0), np.float32)]
        agrees(model, feed, expected=wanted)


def test_a_loop_has_a_state_whose_rank_only_its_begin_tells() -> None:
    """As the standard defines Range: a body states no shape, and a scalar has no extents that could be open."""
    body = """
    body = b (int64 i, bool go, float[] s) => (bool on, float[] t, float[] z) {
        on = Identity (go)  t = Add (s, d)  z = Identity (s)
    }
    """
    model = build("int64 m, float x, float d", f"last, rows = Loop<{body}>(m, k, x)", {"k": np.array(True)})
    agrees(model, {"m": np.array(4), "x": np.array(2, np.float32), "d": np.array(-0.5, np.float32)})


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_loop_collects_slices_of_six_axes(count: int) -> None:
    """With the rounds they have seven: LiteRT's default delegate refused the file."""
    body = """
    body = b (int64 i, bool go, float[2,1,3,2,2,2] s) => (bool on, float[2,1,3,2,2,2] t, float[2,1,3,2,2,2] z) {
        on = Identity (go)  t = Add (s, q)  z = Neg (t)
    }
    """
    model = build(
        "int64 m, float[2,1,3,2,2,2] x", f"last, rows = Loop<{body}>(m, k, x)", {"k": np.array(True), "q": (2,)}
    )
    agrees(model, {"m": np.array(count), "x": floats(2, 1, 3, 2, 2, 2)})


def test_functions_are_written_out() -> None:
    function = """
    <domain: "some.where", opset_import: ["": 21]> twice (x, w) => (y) { a = Add (x, w)  y = Add (a, a) }
    """
    model = build("float[2,3] x", "y = some.where.twice (x, w)", {"w": (3,)}, functions=function)
    agrees(model, {"x": floats(2, 3)})


def test_a_constant_condition_leaves_its_branch() -> None:
    model = build("float[2,3] x", BRANCH, {"c": np.array(False), "w": (3,)})
    assert isinstance(model, onnx.ModelProto)
    agrees(model, {"x": floats(2, 3)})
    assert operators(relayout.convert(model, format="tflite").tflite) == {"MUL"}


def test_sequences_of_known_length_are_their_tensors() -> None:
    text = """
    p = SplitToSequence<axis=1>(x)
    q = SequenceInsert (p, c, one)
    r = SequenceErase (q, zero)
    n = SequenceLength (r)
    y = ConcatFromSequence<axis=1>(r)
    z = SequenceAt (r, last)
    """
    constants = {"c": (2, 1), "one": np.array(1), "zero": np.array(0), "last": np.array(-1)}
    model = build("float[2,3] x", text, constants, outputs=("n",))
    agrees(model, {"x": floats(2, 3)})


def test_optional_values_of_which_it_is_known_whether_they_are_there() -> None:
    text = """
    o = Optional (x)
    h = OptionalHasElement (o)
    e = OptionalGetElement (o)
    t = OptionalHasElement (e)
    y = OptionalGetElement (e)
    """
    model = build("float[2,3] x", text, {}, opset=18, outputs=("h", "t", "y"))
    agrees(model, {"x": floats(2, 3)})


def test_a_sequence_in_an_optional_value_is_its_tensors() -> None:
    text = """
    s = SequenceConstruct (x, c)
    o = Optional (s)
    e = OptionalGetElement (o)
    y = SequenceAt (e, one)
    """
    model = build("float[2,3] x", text, {"c": (2, 1), "one": np.array(1)}, opset=18)
    agrees(model, {"x": floats(2, 3)})


GIVEN = {
    "computed": "m = Add(x, z)  n = Neg(x)",
    "inputs": "m = Identity(x)  n = Identity(z)",
    "inputs at other places": "m = Identity(z)  n = Identity(x)",
    "an input twice": "m = Identity(x)  n = Identity(x)",
    "a result twice": "m = Add(x, z)  n = Identity(m)",
    "a result and an input": "m = Neg(z)  n = Identity(x)",
}


@pytest.mark.parametrize("chosen", [True, False])
@pytest.mark.parametrize("name", GIVEN)
@pytest.mark.parametrize("extent", ["3", "n"])
def test_a_branch_gives_what_it_reads(extent: str, name: str, chosen: bool) -> None:
    """LiteRT loses a result that is two outputs."""
    ends = f"float[{extent}] m, float[{extent}] n", f"float[{extent}] o, float[{extent}] r"
    branches = f"then_branch = t () => ({ends[0]}) {{ {GIVEN[name]} }}"
    branches += f", else_branch = e () => ({ends[1]}) {{ o = Neg(x)  r = Neg(z) }}"
    model = build(f"bool c, float[{extent}] x, float[{extent}] z", f"p, q = If (c) <{branches}>", {})
    agrees(model, {"c": np.array(chosen), "x": floats(3), "z": floats(3, seed=1)})


@pytest.mark.parametrize("text", ["s = Identity(v)  t = Identity(u)", "s = Identity(u)  t = Add(v, u)"])
def test_states_of_a_loop_change_places(text: str) -> None:
    body = f"int64 i, bool a, float[3] u, float[3] v) => (bool g, float[3] s, float[3] t) {{ g = Identity(a)  {text} }}"
    model = build(
        "int64 m, float[3] x, float[3] z", f"p, q = Loop (m, k, x, z) <body = b ({body}>", {"k": np.array(True)}
    )
    for count in (0, 1, 4):
        agrees(model, {"m": np.array(count), "x": floats(3), "z": floats(3, seed=1)})
