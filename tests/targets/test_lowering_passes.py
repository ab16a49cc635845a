"""A target's lowering passes state what they require: independent ones in any order, a wrong order is refused."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import permutations
from math import factorial
from pathlib import Path

import pytest

import relayout
from relayout.errors import LayoutError
from relayout.lowering.passes import IN_ORDER, PASSES, check_passes
from relayout.pipeline.lowering_list import BEFORE
from relayout.targets import target

MODELS = Path(__file__).parents[2] / "models"
FIRST = [name for name in IN_ORDER if not PASSES[name].after]
LAST = [name for name in IN_ORDER if PASSES[name].after]


def allowed() -> list[tuple[str, ...]]:
    found = []
    for order in permutations(FIRST):
        try:
            check_passes([*order, *LAST])
        except LayoutError:
            continue
        found.append(order)
    return found


def test_every_pass_before_layouts_has_a_function() -> None:
    assert set(BEFORE) == set(FIRST)


def test_some_orders_are_refused_and_some_are_not() -> None:
    orders = allowed()
    assert tuple(FIRST) in orders
    assert 1 < len(orders) < factorial(len(FIRST))
    for order in orders:
        assert order.index("keep-float") < order.index("qdq-to-integer")
        assert order.index("fold-affine") < order.index("pad-channels") < order.index("fuse-epilogue")


@pytest.mark.parametrize("name", ["onnxruntime-cpu", "litert"])
@pytest.mark.sampled(every=2)
def test_independent_passes_in_any_order_give_the_same_bytes(name: str, tmp_path: Path) -> None:
    orders, known = allowed(), target(name)
    contents = set()
    for order in (orders[0], orders[len(orders) // 2], orders[-1]):
        tried = replace(known, lowering=(*order, *LAST))
        relayout.convert(MODELS / "tinynet_int8.tflite", target=tried).save(tmp_path / "model.onnx")
        contents.add((tmp_path / "model.onnx").read_bytes())
    assert len(contents) == 1


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("qdq-to-integer", "keep-float"), "'keep-float' requires quantized units as in the source, which 'qdq-to-"),
        (("pad-channels", "fold-affine"), "'fold-affine' requires channels as in the source, which 'pad-channels'"),
        (("fuse-epilogue", "pad-channels"), "'pad-channels' requires convolutions of the standard, which"),
        (("merge-block-dims", "decompose"), "'decompose' runs before layouts are chosen"),
        (("decompose", "decompose"), "'decompose' is listed twice"),
        (("decompos",), "there is no lowering pass 'decompos'; did you mean 'decompose'?"),
    ],
)
def test_a_wrong_list_is_refused_when_the_target_is_made(names: tuple[str, ...], said: str) -> None:
    with pytest.raises(LayoutError, match=re.escape(said)):
        replace(target("litert"), lowering=names)
