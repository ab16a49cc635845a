"""Splits that are carried through a graph: all of them, in time that grows with the graph alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import relayout
from relayout.infer import candidates
from relayout.infer import splits as carried
from relayout.infer.allowed_orders import identity
from relayout.infer.build import build
from relayout.infer.plans import plan
from relayout.infer.sites import Order, Site
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


def shuffled_convolutions(count: int, channels: int) -> onnx.ModelProto:
    """As `shuffles`, of channels that may be split many times, with a convolution of every second half."""
    half = channels // 2
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
        f"g (float[1,{channels},5,7] x0) => (float[1,{channels},5,7] y) {{ {steps} y = Relu(x{count}) }}",
        halves=np.array([half, half]),
        apart=np.array([1, 2, half, 5, 7]),
        joined=np.array([1, channels, 5, 7]),
        w=np.ones((half, half, 1, 1), np.float32),
    )


SLOW = [(4, 16), (5, 16), (3, 32), (4, 32)]


@pytest.mark.parametrize("form", [{"format": "tflite"}, {"to": "NHWC"}])
@pytest.mark.parametrize(
    ("count", "channels"), [(3, 16), *(pytest.param(*each, marks=pytest.mark.slow) for each in SLOW)]
)
def test_missing_pieces_beside_their_axis_lose_nothing(
    count: int, channels: int, form: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No plan moves fewer bytes where pieces that an operand lacks are tried in all places, with all orders."""
    source = shuffled_convolutions(count, channels)
    beside = relayout.convert(source, **form).report
    assert beside.proved

    def slotted(_: Site, base: Sequence[int], wanted: Sequence[int]) -> tuple[int, ...]:
        chosen, inside = iter(wanted), set(wanted)
        return tuple([next(chosen) if factor in inside else factor for factor in base])

    def bases(found: candidates._Found, _: frozenset[str]) -> list[Order]:
        return list(dict.fromkeys([identity(found.site).order, *[label.order for label in found.labels.values()]]))

    def partial(site: Site) -> tuple[int, ...]:
        return tuple(range(len(site.ports)))

    monkeypatch.setattr(candidates, "_slotted", slotted)
    monkeypatch.setattr(candidates, "_bases", bases)
    monkeypatch.setattr(candidates, "_partial", partial)
    monkeypatch.setattr(candidates, "FIRST", 10**6)
    assert relayout.convert(source, **form).report.bytes == beside.bytes


def test_long_chains_of_shuffled_convolutions_are_proved() -> None:
    """Sixteen units of 64 channels, of which each splits the axis anew."""
    report = relayout.convert(shuffled_convolutions(16, 64), format="tflite").report
    assert report.proved
    assert report.bytes <= 4 * (64 * 5 * 7 * 4)
