"""Layouts that the models do not declare: a user says them, or the message proposes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from relayout.errors import LayoutError, RelayoutError
from relayout.verification import verify
from relayout.verification.pairs import called, fitting_perm

NCHW = """<ir_version: 10, opset_import: ["": 18]> g (float[1,3,8,9] x) => (float[1,4,6,7] y) {
    c = Conv(x, w) y = Relu(c) }"""
NHWC = """<ir_version: 10, opset_import: ["": 18]> g (float[1,8,9,3] x) => (float[1,6,7,4] y) {
    t = Transpose<perm=[0,3,1,2]>(x) c = Conv(t, w) r = Relu(c) y = Transpose<perm=[0,2,3,1]>(r) }"""
OPEN = {"1,3,8,9": "n,3,h,w", "1,4,6,7": "n,4,p,q", "1,8,9,3": "n,h,w,3", "1,6,7,4": "n,p,q,4"}


def model(text: str, *, is_open: bool = False, factor: float = 1) -> onnx.ModelProto:
    for fixed, free in OPEN.items() if is_open else ():
        text = text.replace(fixed, free)
    made = parser.parse_model(text)
    weights = np.random.default_rng(1).normal(size=(4, 3, 3, 3)).astype(np.float32)
    made.graph.initializer.append(numpy_helper.from_array(weights * np.float32(factor), "w"))
    return made


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize(("first", "second", "pair"), [(NHWC, NCHW, "NHWC:NCHW"), (NCHW, NHWC, "NCHW:NHWC")])
def test_the_message_proposes_what_makes_it_agree(first: str, second: str, pair: str, is_open: bool) -> None:
    a, b = model(first, is_open=is_open), model(second, is_open=is_open)
    if is_open:  # three rows may be meant
        report = verify(a, b)
        assert not report.ok
        assert any(note.endswith(f"the same, say so: --layout x={pair}") for note in report.notes)
    else:
        with pytest.raises(RelayoutError, match=f"the same, say so: --layout x={pair}$"):
            verify(a, b)
    source, target = pair.split(":")
    report = verify(a, b, layouts={"x": (source, target), "y": (source, target)})
    assert report.ok
    assert not report.notes
    report = verify(a, b, layouts={"x": (source, target)})
    assert report.ok
    assert report.notes == (f"output 'y' was compared as an input is: --layout y={pair}",)
    assert not verify(a, model(second, is_open=is_open, factor=1.01), layouts={"x": (source, target)}).ok


def test_an_output_alone_is_proposed_too() -> None:
    a = model(NCHW)
    b = model(
        NHWC.replace("float[1,8,9,3] x", "float[1,3,8,9] x").replace(
            "t = Transpose<perm=[0,3,1,2]>(x)", "t = Neg(m) m = Neg(x)"
        )
    )
    report = verify(a, b)
    assert not report.ok
    assert report.notes == (
        "output 'y' is [1, 4, 6, 7] in the first model and [1, 6, 7, 4] in the second; if both mean the same, say so:"
        " --layout y=NCHW:NHWC",
    )
    assert verify(a, b, layouts={"y": ("NCHW", "NHWC")}).ok


@pytest.mark.parametrize(
    ("layouts", "message"),
    [
        ({"z": ("NHWC", "NCHW")}, "--layout z: no input or output is called so; there are 'x', 'y'"),
        ({"x": ("NHC", "NCH")}, "--layout x=NHC:NCH: the tensor has rank 4"),
        (
            {"x": ("NCHW", "NHWC")},
            r"--layout x=NCHW:NHWC: in the second model it would be \[1, 9, 3, 8\], and is \[1, 3, 8, 9\];"
            " --layout x=NHWC:NCHW fits",
        ),
        ({"x": ("NCHW", "NOHW")}, "--layout x=NCHW:NOHW: NOHW is not a reordering of NCHW"),
    ],
)
def test_layouts_that_do_not_fit_are_refused(layouts: dict[str, tuple[str, str]], message: str) -> None:
    with pytest.raises((LayoutError, RelayoutError), match=message):
        verify(model(NHWC), model(NCHW), layouts=layouts)


def test_a_layout_for_two_models_of_one_order_is_to_be_left_out() -> None:
    message = r"would be \[1, 3, 8, 9\], and is \[1, 8, 9, 3\]; both models have the same order: leave --layout out"
    with pytest.raises(LayoutError, match=message):
        verify(model(NHWC), model(NHWC), layouts={"x": ("NHWC", "NCHW")})


def test_the_command_line_takes_them(tmp_path: Path, relayout: Any) -> None:
    onnx.save(model(NHWC), tmp_path / "a.onnx")
    onnx.save(model(NCHW), tmp_path / "b.onnx")
    onnx.save(model(NCHW, factor=2), tmp_path / "c.onnx")
    arguments = ("verify", tmp_path / "a.onnx", tmp_path / "b.onnx")
    assert "say so: --layout x=NHWC:NCHW" in relayout(*arguments).err
    assert relayout(*arguments, "--layout", "x=NHWC:NCHW").code == 0
    assert "x=NHWC is not TENSOR=SRC:DST" in relayout(*arguments, "--layout", "x=NHWC").err
    ran = relayout(
        "verify", tmp_path / "a.onnx", tmp_path / "c.onnx", "--layout", "x=NHWC:NCHW", "--repro", tmp_path / "r"
    )
    assert ran.code == 1
    assert "reproduction: " in ran.out


@pytest.mark.parametrize(
    ("shape", "wanted", "perm"),
    [
        ((1, 8, 9, 3), (1, 3, 8, 9), (0, 3, 1, 2)),
        ((1, 8, 8, 3), (1, 3, 8, 8), (0, 3, 1, 2)),
        ((2, 3, 5), (5, 2, 3), (2, 0, 1)),
        ((1, 4, 4, 4), (1, 4, 4, 4), None),
        ((1, 2), (1, 2, 1), None),
        ((1,) * 9, (1,) * 9, None),
    ],
)
def test_only_one_perm_is_proposed(
    shape: tuple[int, ...], wanted: tuple[int, ...], perm: tuple[int, ...] | None
) -> None:
    assert fitting_perm(shape, wanted) == perm


def test_perms_have_names() -> None:
    assert called((0, 2, 3, 1)) == "NCHW:NHWC"
    assert called((2, 0, 1)) == "ABC:CAB"


def test_no_elements_are_fed_without_a_traceback() -> None:
    text = NCHW.replace("1,3,8,9", "0,3,8,9").replace("1,4,6,7", "0,4,6,7")
    assert verify(model(text), model(text)).ok
