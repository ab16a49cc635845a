"""Work grows with the graph, not with its square: calls are counted, not seconds."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

import onnx
import pytest
from scale import residual_network

import relayout
import text_form

SMALL, TIMES = 300, 4


def residual(count: int) -> onnx.ModelProto:
    """So many nodes with a Transpose every sixth node."""
    network = residual_network(count)
    assert isinstance(network, onnx.ModelProto)
    return network


def dequantized(count: int) -> onnx.ModelProto:
    """Integers that so many nodes read, in two orders, each of which gives an output."""
    kinds = ("float[1,4,2,2]", "float[1,2,2,4]")
    nodes = [
        line
        for i in range(0, count, 3)
        for line in (f"y{i} = Relu(d)", f"t{i} = Transpose<perm=[0,2,3,1]>(d)", f"y{i + 1} = MatMul(t{i}, w)")
    ]
    outputs = ", ".join(f"{kinds[i % 3]} y{i}" for i in range(count) if i % 3 < 2)
    given = "<float sc = {0.1}, int8 zp = {3}>"
    text = (
        f"g (float[1,4,2,2] x) => ({outputs}) {given} {{ q = QuantizeLinear(x, sc, zp) d = DequantizeLinear(q, sc, zp)"
    )
    return text_form.model(f"{text} {' '.join(nodes)} }}", w=text_form.floats(4, 4))


def gathered(count: int) -> onnx.ModelProto:
    """So many nodes on one value, and all that they give added by one operator."""
    places = range(count // 2)
    nodes = " ".join(f"a{i} = Relu(t) y{i} = Transpose<perm=[0,3,1,2]>(a{i})" for i in places)
    added = f"y = Sum({', '.join(f'y{i}' for i in places)})"
    ends = "float[1,4,2,2] x) => (float[1,4,2,2] y"
    return text_form.model(f"g ({ends}) {{ t = Transpose<perm=[0,2,3,1]>(x) {nodes} {added} }}")


def calls(model: onnx.ModelProto, **options: str) -> dict[str, int]:
    """Module -> calls of functions, C's among them, that one `convert` makes in it."""
    found = dict[str, int]()

    def seen(frame: FrameType, event: str, _: object) -> None:
        if event in ("call", "c_call"):
            name = frame.f_globals.get("__name__", "")
            if name != "onnx_ir._core":  # it makes the list of a node's operands anew for each that is replaced
                found[name] = found.get(name, 0) + 1

    sys.setprofile(seen)
    try:
        result = relayout.convert(model, **options)
    finally:
        sys.setprofile(None)
    assert result.report.proved
    return found


@pytest.mark.parametrize(
    ("network", "options"),
    [(residual, {}), (dequantized, {}), (gathered, {}), (residual, {"format": "tflite"})],
)
@pytest.mark.sampled(every=3)
def test_calls_grow_with_nodes(
    network: Callable[[int], onnx.ModelProto], options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relayout.infer.presolve.LARGE", 0)  # both are large
    monkeypatch.setattr("relayout.solve.solver.LARGE", 0)
    calls(network(60), **options)  # what is found once: rules, schemas
    small, large = calls(network(SMALL), **options), calls(network(TIMES * SMALL), **options)
    grown = {name: round(count / small.get(name, 1), 1) for name, count in large.items() if count > 2_000}
    assert grown
    assert {name: times for name, times in grown.items() if times > 1.6 * TIMES} == {}
