"""Splits that are carried through a graph: all of them, in time that grows with the graph alone."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import relayout
from relayout.infer import build, plan
from relayout.infer import splits as carried
from text_form import model


def shuffles(count: int) -> onnx.ModelProto:
    """Two halves of 16 channels after a convolution, the second through an activation, joined and shuffled, again and
    again, and read as pixels: what is split by a shuffle is split through all that stand before it and behind it.
    """
    steps = "\n".join(
        f"""a{n}, b{n} = Split<axis=1>(x{n}, halves)
        c{n} = Relu(b{n})
        d{n} = Concat<axis=1>(a{n}, c{n})
        e{n} = Reshape(d{n}, apart)
        f{n} = Transpose<perm=[0,2,1,3,4]>(e{n})
        x{n + 1} = Reshape(f{n}, joined)"""
        for n in range(count)
    )
    return model(
        f"""
    g (float[1,16,5,7] x0) => (float[1,5,7,16] y) {{
        {steps}
        y = Transpose<perm=[0,2,3,1]>(x{count})
    }}""",
        halves=np.array([8, 8]),
        apart=np.array([1, 2, 8, 5, 7]),
        joined=np.array([1, 16, 5, 7]),
    )


def test_a_split_is_carried_through_a_chain_in_a_few_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each Split and Concat of a chain of shuffles is looked at a few times, however long the chain is."""
    refine, calls = carried.refine, []

    def counted(*grained: object) -> bool:
        calls.append(grained)
        return refine(*grained)  # type: ignore[arg-type]

    monkeypatch.setitem(build.__globals__, "refine", counted)
    for count in (20, 60):
        calls.clear()
        sites = build(ir.from_proto(shuffles(count)))
        assert len(calls) <= 6 * 2 * count, count
        assert plan(sites).proved


def shuffled_convolutions(count: int) -> onnx.ModelProto:
    """As `shuffles`, of 96 channels, which may be split six times, with a convolution of every second half."""
    steps = "\n".join(
        f"""a{n}, b{n} = Split<axis=1>(x{n}, halves)
        c{n} = Conv(b{n}, w)
        d{n} = Concat<axis=1>(a{n}, c{n})
        e{n} = Reshape(d{n}, apart)
        f{n} = Transpose<perm=[0,2,1,3,4]>(e{n})
        x{n + 1} = Reshape(f{n}, joined)"""
        for n in range(count)
    )
    return model(
        f"g (float[1,96,5,7] x0) => (float[1,96,5,7] y) {{ {steps} y = Relu(x{count}) }}",
        halves=np.array([48, 48]),
        apart=np.array([1, 2, 48, 5, 7]),
        joined=np.array([1, 96, 5, 7]),
        w=np.ones((48, 48, 1, 1), np.float32),
    )


def test_few_orders_of_shuffled_channels_lose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all can be tried with all, no plan moves fewer bytes; where there are too many, the rest is proved."""
    few = relayout.convert(shuffled_convolutions(4), format="tflite").report
    assert few.proved
    assert relayout.convert(shuffled_convolutions(9), format="tflite").report.proved
    monkeypatch.setattr("relayout.infer.candidates.FIRST", 10**6)
    assert relayout.convert(shuffled_convolutions(4), format="tflite").report.bytes == few.bytes
