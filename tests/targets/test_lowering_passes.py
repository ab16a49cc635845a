"""A target's lowering passes state what they require: independent ones in any order, a wrong order is refused."""

from __future__ import annotations

import re
import runpy
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import onnx_ir as ir
import pytest

import relayout
from relayout.errors import ExtensionError, LayoutError
from relayout.formats.onnx.source_passes import UnpreparedModel
from relayout.formats.tflite.exporting.exporter import DraftFile
from relayout.lowering.passes import FOR_TARGETS, LISTED_STAGES, ON_FIXING, PASSES, REPEATED, check_passes, passes_for
from relayout.reports.backends import show, table
from relayout.targets import Kernel, Pass, Stage, Target, target, targets
from relayout.targets.litert.exported_graph import ExportedGraph
from relayout.verification import verify

ROOT = Path(__file__).parents[2]
MODELS = ROOT / "models"
STANDING = [name for name, row in PASSES.items() if row.stage in LISTED_STAGES]
FIRST = [name for name in STANDING if PASSES[name].stage == Stage.GRAPH]
LAST = [name for name in STANDING if PASSES[name].stage > Stage.GRAPH]
UNITS = "quantized units as in the source"

TRIED = 400


def allowed() -> list[tuple[str, ...]]:
    """The orders that are allowed, of the standing one and some at random."""
    draws = Random(1)
    orders = []
    for order in (FIRST, *(draws.sample(FIRST, len(FIRST)) for _ in range(TRIED))):
        try:
            check_passes([*order, *LAST], ())
        except LayoutError:
            continue
        orders.append(tuple(order))
    return orders


SUBJECTS = {
    Stage.SOURCE: set(UnpreparedModel.__dataclass_fields__),
    Stage.EXPORT: set(dir(ExportedGraph(ir.Model(ir.Graph([], [], nodes=[]), ir_version=8), is_litert=True))),
    Stage.DRAFT: {"draft", *DraftFile.__dataclass_fields__},
    Stage.WRITTEN: {"file", "builtins"},
    **{stage: {"model", "target", *Target.__dataclass_fields__} for stage in LISTED_STAGES},
}


def test_every_pass_has_a_function_of_what_its_stage_has() -> None:
    strange = {row.name: set(row.parameters()) - SUBJECTS[row.stage] for row in PASSES.values()}
    assert {name for name, parameters in strange.items() if parameters} == set()
    assert {row.column for row in PASSES.values()} - {""} <= SUBJECTS[Stage.GRAPH]
    assert {row.name for row in PASSES.values() if row.stage == Stage.SOURCE} >= REPEATED | ON_FIXING | FOR_TARGETS


def test_every_pass_works_for_a_target_or_always_runs() -> None:
    used = {row.name for each in targets().values() for row in passes_for(each)}
    assert set(STANDING) - used == set(), "list it in the `lowering` of a target, or take its row away"


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
        (("decompose", "decompose"), "'decompose' is listed twice"),
        (("decompos",), "there is no lowering pass 'decompos'; did you mean 'decompose'?"),
    ],
)
def test_a_wrong_list_is_refused_when_the_target_is_made(names: tuple[str, ...], said: str) -> None:
    with pytest.raises(LayoutError, match=re.escape(said)):
        replace(target("litert"), lowering=names)


def relu_as_leaky(model: ir.Model) -> dict[str, int]:
    """Write each Relu as a LeakyRelu, in place."""
    nodes = [node for node in model.graph if node.op_type == "Relu"]
    for node in nodes:
        node.op_type = "LeakyRelu"
        node.attributes["alpha"] = ir.AttrFloat32("alpha", 0.0)
    return {"Relu": len(nodes)}


def with_pass(function: Callable[..., object], **row: Any) -> Target:
    kernels = (Kernel("Conv", ("NHWC OHWI",)), Kernel("LeakyRelu"))
    return Target("npu", "mine", kernels, lowering=(*Target.lowering, Pass("leaky", function, **row)))


@pytest.mark.parametrize("stage", LISTED_STAGES)
def test_a_target_brings_a_pass_of_its_own(stage: Stage) -> None:
    source = MODELS / "tinynet_float.tflite"
    for own in (made := with_pass(relu_as_leaky, line="Relus as others", stage=stage), replace(made, rest=True)):
        result = relayout.convert(source, target=own)
        assert "Relus as others: 1 Relu" in result.report.notes
        assert result.report.operators is not None
        assert result.report.operators.get("LeakyRelu") == 1
        assert [row.name for row in passes_for(own)] == ["leaky"]
        assert verify(source, result.model).ok


def test_a_pass_takes_columns_of_its_target_by_name_and_runs_where_one_has_something() -> None:
    seen = []

    def look(kernels: tuple[Kernel, ...], model: ir.Model, *, target: Target, name: str = "default") -> list[str]:
        seen.append((kernels == target.kernels, len(model.graph) > 0, name))
        return ["two sentences", "of its own"]

    report = relayout.convert(MODELS / "tinynet_float.tflite", target=with_pass(look)).report
    assert {"two sentences", "of its own"} <= set(report.notes)
    relayout.convert(MODELS / "tinynet_float.tflite", target=with_pass(look, column="units"))
    assert seen == [(True, True, "default")]


def test_what_a_pass_adds_has_types_and_shapes() -> None:
    def add(model: ir.Model) -> dict[str, int]:
        node = next(node for node in model.graph if node.op_type == "Concat")
        new = ir.Node("", "Relu", [node.outputs[0]])
        node.outputs[0].replace_all_uses_with(new.outputs[0])
        new.replace_input_with(0, node.outputs[0])
        model.graph.insert_after(node, new)
        return {"Relu": 1}

    source = MODELS / "tinynet_float.tflite"
    before, after = (relayout.convert(source, target=with_pass(each)).report for each in (relu_as_leaky, add))
    assert (after.transposes, after.bytes, after.proved) == (before.transposes, before.bytes, True)


def lose_operand(model: ir.Model) -> dict[str, int]:
    next(node for node in model.graph if node.op_type == "Relu").resize_inputs(0)
    return {}


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda model: "text", "it returns str, not counts such as {'Neg': 2}, or sentences"),
        (lambda model: None, "it returns NoneType, not counts"),
        (lambda model: {"Neg": -1}, "it returns dict, not counts"),
        (lambda model: 1 / 0, "ZeroDivisionError: division by zero"),
        (lambda model: sys.exit(3), "SystemExit: 3"),
        (lose_operand, "behind it the model would not be valid ONNX"),
    ],
)
def test_an_error_in_a_pass_names_pass_target_and_file(function: Callable[..., object], said: str) -> None:
    place = rf"^target 'npu': pass 'leaky' \({re.escape(__file__)}:\d+\): "
    with pytest.raises(ExtensionError, match=place + re.escape(said)):
        relayout.convert(MODELS / "tinynet_float.tflite", target=with_pass(function))


@pytest.mark.parametrize(
    ("own", "said"),
    [
        (Pass("p", relu_as_leaky, requires=(UNITS,)), f"pass 'p' requires {UNITS}, which 'qdq-to-integer' before it"),
        (Pass("p", relu_as_leaky, ends=("quantised units",)), "pass 'p' states 'quantised units', which no other pass"),
        (Pass("p", relu_as_leaky, requires=UNITS), f"pass 'p': requires='{UNITS}': it takes a tuple of facts"),  # type: ignore[arg-type]
        (Pass("p", lambda modle: {}), "pass 'p' takes 'modle', which no target has; did you mean 'model'?"),
        (Pass("p", relu_as_leaky, column="unit"), "pass 'p' takes 'unit', which no target has; did you mean 'units'?"),
        (Pass("p", relu_as_leaky, stage=Stage.DRAFT), "it takes Stage.GRAPH, Stage.PLACED or Stage.FINAL"),
        (Pass("p", dict), "<class 'dict'> does not say what it takes"),
        (Pass("p", "lowering.decompose.expand"), "it takes a function"),
        (Pass("define", relu_as_leaky), "pass 'define' is one of relayout's"),
        (Pass("decompose", relu_as_leaky), "pass 'decompose' is one of relayout's"),
        (Pass("", relu_as_leaky), "name='': it takes a text that is not empty"),
        (relu_as_leaky, "it takes a tuple of lowering passes, names such as 'decompose' or a Pass"),
    ],
)
def test_a_wrong_pass_is_refused_when_the_target_is_made(own: Any, said: str) -> None:
    with pytest.raises(LayoutError, match=re.escape(said)):
        Target("npu", "mine", (Kernel("Conv"),), lowering=(*Target.lowering, own))


def test_a_pass_that_is_listed_twice_is_refused_and_one_that_others_need_stands_first() -> None:
    own = Pass("p", relu_as_leaky, requires=(UNITS,))
    assert Target("npu", "mine", (Kernel("Conv"),), lowering=(own, *Target.lowering)).lowering[0] == own
    with pytest.raises(LayoutError, match="lowering pass 'p' is listed twice"):
        Target("npu", "mine", (Kernel("Conv"),), lowering=(own, own))
    ending = Pass("p", relu_as_leaky, ends=(UNITS,))
    with pytest.raises(
        LayoutError, match=f"pass 'keep-integers' requires {UNITS}, which 'p' before it ends: swap them"
    ):
        Target("npu", "mine", (Kernel("Conv"),), lowering=(ending, *Target.lowering))


def test_the_table_of_a_target_lists_its_passes(capsys: pytest.CaptureFixture[str]) -> None:
    listing = table("onnxruntime-cpu-avx2")
    assert listing["passes"][-1] == "int8-weights-to-uint8"
    show(listing)
    assert "\npasses: fold-affine, decompose, keep-float, qdq-to-integer, " in capsys.readouterr().out
