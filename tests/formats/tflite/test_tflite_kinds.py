"""Every operator in every element type that LiteRT runs it in: converted and equal, or refused with the reason."""

from __future__ import annotations

import pytest
from tflite_asking import REFUSED, ask, listed
from tflite_kinds import ROWS, cells, model
from tflite_running import compare, read

from relayout.errors import UnsupportedError

LISTED = listed()
FICKLE = 4
"""Refused kinds that may run in one process and end another."""
MANY = ("BITCAST", "CAST")
"""A hundred pairs of types each."""


def params(mark: str) -> list[object]:
    return [
        pytest.param(name, kind.lstrip("!"), marks=[pytest.mark.slow] if name in MANY else [])
        for name, kinds in LISTED.items()
        for kind in kinds
        if kind.startswith("!") == (mark == REFUSED)
    ]


@pytest.mark.parametrize(("name", "kind"), params(""))
def test_what_the_interpreter_runs(name: str, kind: str) -> None:
    net = model(name, kind)
    quantized = any(t.quantization is not None for t in net.graph.tensors)
    for result in compare(net.bytes(), net.ranges):
        assert result.error <= result.tolerance(quantized) + net.slack, result


@pytest.mark.parametrize(("name", "kind"), params(REFUSED))
def test_what_is_refused_has_a_reason(name: str, kind: str) -> None:
    with pytest.raises(UnsupportedError, match=rf"{name} \(.*(kernel|ONNX|scale)"):
        read(model(name, kind).bytes())


def test_nothing_differs() -> None:
    assert not [(name, kind) for name, kinds in LISTED.items() for kind in kinds if kind.startswith("?")]
    assert set(LISTED) <= set(ROWS)


@pytest.mark.slow
def test_the_list_is_what_the_interpreter_says() -> None:
    """A kernel that takes elements for others reads beyond them, and at times ends the process: of what is refused a
    few may run or not. What is converted must run, and agree.
    """
    asked = {(name, kind) for name, kinds in ask(list(cells())).items() for kind in kinds}
    known = {(name, kind) for name, kinds in LISTED.items() for kind in kinds}
    assert all(kind.startswith(REFUSED) for _, kind in asked ^ known), asked ^ known
    assert len(asked ^ known) <= FICKLE, asked ^ known
