"""`--runtime`: a file for an older TensorFlow Lite, which has all of its operators."""

from __future__ import annotations

import pytest
from export_running import agrees, run_close

import relayout
from relayout.errors import LayoutError, UnsupportedError
from relayout.formats.tflite.container.loading import load
from relayout.formats.tflite.container.runtimes import parsed
from relayout.formats.tflite.container.versions import min_runtime_version
from rules.law import with_runtime
from small import build
from text_form import floats

REWRITTEN = {
    "l = Constant<value_float = 0.0>()  h = Constant<value_float = 1.0>()  y = Clip(x, l, h)": ("2.9", {"MINIMUM"}),
    'y = Gelu<approximate="tanh">(x)': ("2.8", {"TANH"}),
    "y = Gelu(x)": ("2.8", {"EXP"}),
}


@pytest.mark.parametrize("text", REWRITTEN)
def test_what_an_older_runtime_lacks_is_written_by_others(text: str) -> None:
    runtime, written = REWRITTEN[text]
    model, feed = build("float[2,3] x", text, {}), {"x": floats(2, 3) * 4}
    result = relayout.convert(model, format="tflite", runtime=runtime)
    assert result.file is not None
    names = {operator.name for operator in result.file.subgraphs[0].operators}
    assert written <= names
    assert parsed(min_runtime_version(result.file)) <= (*parsed(runtime), 99)
    run_close(result.tflite, feed, with_runtime(model, feed))
    newer = load(relayout.convert(model, format="tflite", runtime="2.17").tflite)
    assert not written & {operator.name for operator in newer.subgraphs[0].operators}


def test_bodies_that_an_operator_makes_are_written_by_others_too() -> None:
    """A recurrence of open length is a WHILE, whose body has the operators of its activation."""
    text = 'y, h = RNN<hidden_size=4, activations=["HardSigmoid"]>(x, w, r)'
    model = build("float[t,1,3] x", text, {"w": (1, 4, 3), "r": (1, 4, 4)}, outputs=("y",))
    result = relayout.convert(model, format="tflite", runtime="2.8")
    assert result.file is not None
    assert parsed(min_runtime_version(result.file)) <= (2, 8, 99)
    run_close(result.tflite, {"x": floats(5, 1, 3)}, with_runtime(model, {"x": floats(5, 1, 3)}))


def test_the_rest_is_one_error() -> None:
    model = build("float[2,3] x", "a = Sign(x)  b = Acos(a)  y = Sign(b)", {})
    with pytest.raises(UnsupportedError, match=r"SIGN in version 1 is in runtimes from 2\.\d+\.0 on") as refused:
        relayout.convert(model, format="tflite", runtime="2.5")
    assert "ATAN2" in str(refused.value)
    agrees(model, {"x": floats(2, 3)})


def test_parts_leave_to_the_host_what_an_older_runtime_lacks() -> None:
    model = build("float[2,3] x", "a = Relu(x)  b = Acos(a)  y = Neg(b)", {})
    result = relayout.convert(model, format="tflite", runtime="2.5", parts=True)
    host = [part for part in result.parts() if not part.claimed]
    assert [node.op_type for part in host for node in part.nodes] == ["Acos"]


@pytest.mark.parametrize("runtime", ["", "new", "2.x", "2.14.0.1", "-1", "2..1", "٢.1", "99999.1"])
def test_a_runtime_that_is_none_is_refused(runtime: str) -> None:
    with pytest.raises(LayoutError, match="no version of TensorFlow Lite"):
        relayout.convert(build("float[2,3] x", "y = Relu(x)", {}), format="tflite", runtime=runtime)


def test_a_runtime_is_for_a_tflite_result() -> None:
    with pytest.raises(LayoutError, match=r"--runtime 2\.14 is for a \.tflite result"):
        relayout.convert(build("float[2,3] x", "y = Relu(x)", {}), runtime="2.14")
