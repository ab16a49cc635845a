"""A target's lowering passes state what they require: independent ones in any order, a wrong order is refused."""

from __future__ import annotations

import re
import runpy
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

import relayout
from relayout.errors import LayoutError
from relayout.formats.tflite.exporting.exporter import DRAFT_PASSES
from relayout.formats.tflite.exporting.preparing import SOURCE_PASSES
from relayout.lowering.passes import IN_ORDER, PASSES, Stage, check_passes
from relayout.targets import target
from relayout.targets.target_passes import FINAL, TARGET_PASSES

ROOT = Path(__file__).parents[2]
MODELS = ROOT / "models"
FIRST = [name for name in IN_ORDER if PASSES[name].stage == Stage.GRAPH]
LAST = [name for name in IN_ORDER if PASSES[name].stage > Stage.GRAPH]


TRIED = 400


def allowed() -> list[tuple[str, ...]]:
    """The orders that are allowed, of the standing one and some at random."""
    draws = Random(1)
    orders = []
    for order in (FIRST, *(draws.sample(FIRST, len(FIRST)) for _ in range(TRIED))):
        try:
            check_passes([*order, *LAST])
        except LayoutError:
            continue
        orders.append(tuple(order))
    return orders


def test_every_pass_has_a_function() -> None:
    functions = {
        (Stage.SOURCE, "tflite"): SOURCE_PASSES,
        (Stage.GRAPH, ""): TARGET_PASSES,
        (Stage.PLACED, ""): TARGET_PASSES,
        (Stage.FINAL, ""): TARGET_PASSES,
        (Stage.FINAL, "tflite"): FINAL,
        (Stage.DRAFT, "tflite"): DRAFT_PASSES,
    }
    assert [row.name for row in PASSES.values() if row.name not in functions[row.stage, row.file_format]] == []
    named = {name for each in functions.values() for name in each}
    assert set(PASSES) == named, "rows: lowering/passes.py; functions: TARGET_PASSES of targets/target_passes.py"


def test_the_pages_of_passes_and_of_targets_are_up_to_date() -> None:
    files = runpy.run_path(str(ROOT / "docs" / "make_tables.py"))["pages"]()
    assert {path: path.read_text(encoding="utf-8") for path in files} == files, "docs/make_tables.py"


def test_some_orders_are_refused_and_some_are_not() -> None:
    orders = allowed()
    assert tuple(FIRST) in orders
    assert 1 < len(orders) < TRIED
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
