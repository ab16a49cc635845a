"""Every row of every table is exercised: by a node that it claims, run before and after."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest

import relayout
from relayout.errors import LayoutError, RelayoutError
from relayout.lowering.conditions import NO_INDICES
from relayout.lowering.passes import NAMES_OF_VENDORS
from relayout.rules import OperatorLayouts, registry
from relayout.targets import Condition, Kernel, Target, Unit, targets
from relayout.targets.table_file import named_conditions
from relayout.targets.tflite_micro import TABULATED
from running import run
from targets.blocked import run_anywhere
from targets.row_cases import cases, prepared

OF_PASSES = ("Pow", "Cast Gather", "Add", TABULATED)
"""Operators that a row claims in what `keep-integers` and `tables-of-functions` write alone, whose tests hold them."""
ROWS = [
    (target, row)
    for target in targets().values()
    for row in target.kernels
    if row.domain != "tflite" and not (target.prefers_integers and row.op_types in OF_PASSES)
]
"""Builtins of TensorFlow Lite are no nodes that ONNX Runtime runs: `test_there_and_back.py` holds them."""


def named(item: object) -> str:
    return item.name if isinstance(item, Target) else f"{item.op_types.split()[0]}-{item.when or 'all'}"  # type: ignore[attr-defined]


def numbers(op_type: str, domain: str) -> list[int]:
    return [number for number, case in enumerate(cases()) if (case.op_type, case.domain) == (op_type, domain)]


def claimed(row: Kernel, op_type: str) -> list[int]:
    """The cases of an operator that a row claims."""
    found = []
    for number in numbers(op_type, row.domain):
        _, _, operator = prepared(number)
        if row.concerns(operator, row.domain, op_type) and not row.lacks(operator):
            found.append(number)
    return found


@pytest.mark.parametrize(("target", "row"), ROWS, ids=named)
def test_row_claims_a_node_that_runs_in_its_layout(target: Target, row: Kernel) -> None:
    for op_type in row.op_types.split():
        found = claimed(row, op_type)
        assert found, f"{target.name} claims no case of {op_type}"
        model, feed, operator = prepared(found[0])
        assert target.claims(operator)
        # A node alone may be cheaper as it is, where that is a way, too; a pass may write a unit in another form.
        literal = replace(target, joins=target.joins and target.blocks is None, prefers_integers=False, expansions=())
        result = relayout.convert(model, target=literal)
        if row.domain or onnx.defs.has(op_type):  # ONNX Runtime has operators of its own in ONNX's domain
            onnx.checker.check_model(result.proto, full_check=True)
        assert result.report.proved
        written = [(node.domain, node.op_type) for node in result.proto.graph.node]
        if row.layouts:
            wanted = OperatorLayouts.parse(row.layouts[0])
            plain = str(wanted) == "NCHW"
            one = (row.domain if plain else wanted.domain, op_type)
            if row.written is not None and not plain:
                one = (row.written.domain, row.written.op_type)
            assert one in written, f"{written} are not in {row.layouts}"
        for want, got in zip(run(model, feed), run_anywhere(result.proto, feed), strict=True):
            if want.dtype.kind in "iu":
                assert np.abs(got.astype(np.int64) - want.astype(np.int64)).max() <= 1
            else:
                np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("target", "row"), ROWS, ids=named)
def test_row_has_layouts_where_its_operators_have_them(target: Target, row: Kernel) -> None:
    for op_type in row.op_types.split():
        rule = registry().get((row.domain, op_type))
        assert rule is not None, f"{op_type} is not known"
        assert bool(rule.layouts) == bool(row.layouts), op_type
    for text in row.layouts:
        assert OperatorLayouts.parse(text)


LIMITS = sorted({str(limit) for _, row in ROWS for limit in row.limits})


@pytest.mark.parametrize("line", LIMITS)
def test_a_limit_tells_nodes_apart(line: str) -> None:
    """Of the operators that have it some node meets it, and some does not."""
    found = set()
    for _, row in ROWS:
        for limit in (limit for limit in row.limits if str(limit) == line and len(found) < 2):
            for number in (number for op_type in row.op_types.split() for number in numbers(op_type, row.domain)):
                found.add(bool(limit.holds(prepared(number)[2])))
    assert found == {True, False}


def test_a_row_without_a_case_is_seen() -> None:
    """Planted: a row whose limits nothing meets claims no case."""
    row = Kernel("Conv", ("NHWC OHWI",), ("STRING",))
    assert claimed(row, "Conv") == []


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"op_types": "Convv"}, "ONNX has no operator 'Convv'; did you mean 'Conv'?"),
        ({"op_types": "MaxPool AvgPool"}, "ONNX has no operator 'AvgPool'; write AveragePool"),
        ({"op_types": "DepthwiseConv2D"}, "'DepthwiseConv2D'; write Conv with when = \"DEPTHWISE\""),
        ({"op_types": "FULLY_CONNECTED"}, "'FULLY_CONNECTED'; write Gemm and MatMul"),
        ({"op_types": "Ad"}, "ONNX has no operator 'Ad'; did you mean 'Add'?"),
        ({"op_types": "Conv", "layouts": ("NHWC OHWX",)}, "OHWX is no layout of kernels"),
        ({"op_types": "Conv", "layouts": ("NHCW OHWI",)}, "NHCW is no usual layout of images"),
        ({"op_types": "Conv", "layouts": ("NCHW->NHCX",)}, "NHCX is no layout of images"),
        ({"op_types": "Conv", "layouts": "NHWC"}, "a row for Conv: 'NHWC' is no list; write ('NHWC',)"),
        ({"op_types": "Conv", "types": ("FLOAT32",)}, "a row for Conv: no element type 'FLOAT32'; did you mean 'FLOAT"),
        ({"op_types": "Conv", "types": "FLOAT"}, "'FLOAT' is no list"),
        ({"op_types": "Conv", "ranks": 4}, "4 is no list; write (4,)"),
        ({"op_types": "Conv", "ranks": ("4",)}, "a row for Conv: ranks=('4',): it takes a tuple of ranks"),
        ({"op_types": ("Conv", "MaxPool")}, "it takes names of operators in one text, such as 'Conv MaxPool'"),
        ({"op_types": ""}, "op_types='': it takes names"),
        ({"op_types": "Conv", "layouts": (("NHWC", "OHWI"),)}, "it takes a tuple of layouts, such as ('NHWC OHWI',)"),
        ({"op_types": "Conv", "layouts": None}, "layouts=None: it takes a tuple"),
        ({"op_types": "Conv", "layouts": ("NHWC OWI",)}, "NHWC and OWI name different spatial axes"),
        ({"op_types": "Conv MaxPool", "layouts": ("NHWC OHWI",)}, "MaxPool: it has no kernel that could lie in OHWI"),
        (
            {"op_types": "Add", "layouts": ("NHWC",)},
            "NHWC for Add: it has no layouts of its own and follows its neighbours; a row for it without layouts",
        ),
        ({"op_types": "Conv", "types": (3,)}, "types=(3,): it takes a tuple of element types"),
        ({"op_types": "Conv", "limits": NO_INDICES}, "it takes a tuple of Condition"),
        ({"op_types": "Conv", "limits": ("constant",)}, "limits=('constant',): it takes a tuple of Condition"),
        ({"op_types": "Conv", "when": lambda _: True}, "it takes a Condition"),
        ({"op_types": "Conv", "domain": None}, "domain=None: it takes a name"),
        ({"op_types": "Conv", "domain": "ai.onnx"}, "the domain of ONNX's own operators is ''; leave it out"),
        ({"op_types": "Conv", "written": "v:C"}, "written='v:C': it takes a Written"),
    ],
)
def test_a_row_that_would_claim_nothing_is_refused(row: dict[str, Any], said: str) -> None:
    with pytest.raises(LayoutError, match=re.escape(said)):
        Kernel(**row)
    assert Kernel("Anything", domain="vendor").op_types == "Anything"


def test_what_is_written_instead_of_a_vendors_name_is_a_row() -> None:
    for text in NAMES_OF_VENDORS.values():
        names, _, condition = text.partition(" with when = ")
        when = named_conditions()[condition.strip('"')] if condition else None
        assert Kernel(names.replace(" and", ""), when=when).op_types
    assert not [
        name for name in NAMES_OF_VENDORS if name in {each.name.casefold() for each in onnx.defs.get_all_schemas()}
    ]


ROW = Kernel("Conv", ("NHWC OHWI",))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Target("npu", "mine", ROW), "it takes a tuple of Kernel"),  # type: ignore[arg-type]
        (lambda: Target("npu", "mine", ("Conv",)), "target 'npu': kernels=('Conv',): it takes a tuple of Kernel"),  # type: ignore[arg-type]
        (lambda: Target("", "mine", (ROW,)), "name='': it takes a name of at most"),
        (lambda: Target("npu", "mine", (ROW,), joins="no"), "joins='no': it takes True or False"),  # type: ignore[arg-type]
        (lambda: Target("npu", "mine", (ROW,), price=3), "price=3: it takes a function"),  # type: ignore[arg-type]
        (lambda: Target("npu", "mine", (ROW,), units=("Add",)), "it takes a tuple of Unit"),  # type: ignore[arg-type]
        (lambda: Target("npu", "mine", (ROW,), least_run=-4), "least_run=-4: it takes a whole number from 0 on"),
        (lambda: Target("npu", "mine", (ROW,), per_scattered=1.5), "per_scattered=1.5: it takes a whole number"),  # type: ignore[arg-type]
        (
            lambda: Target("npu", "mine", (ROW,), per_transpose=-1),
            "per_transpose=-1: it takes a whole number from 0 to",
        ),
        (lambda: Target("npu", "mine", (ROW,), blocks=16), "blocks=16: it takes a Blocks"),  # type: ignore[arg-type]
        (lambda: Condition("small", 3), "holds=3: it takes a function"),  # type: ignore[arg-type]
        (lambda: Condition("", lambda _: True), "line='': it takes a text that is not empty"),
        (lambda: Unit("Nope"), "ONNX has no operator 'Nope'"),
        (lambda: Unit("Add", operands="0 zz"), "a unit of Add: 'zz' names no operand"),
        (lambda: Unit("Max", operands="*=", early=True), "a unit of Max: early is said of one operand, '0='; it has"),
        (lambda: Unit("Max", operands="0=", early=2), "a unit of Max: early="),
        (lambda: Unit("Add", types=("int8",)), "a unit of Add: no element type 'int8'; did you mean"),
        (lambda: Unit("Add", channel=3), "channel=3: it takes a function"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_part_of_a_table_is_refused(make: Callable[[], object], said: str) -> None:
    with pytest.raises(LayoutError, match=re.escape(said)):
        make()


def test_a_price_is_in_bytes() -> None:
    target = Target("npu", "mine", (ROW,), joins=True, price=lambda *_: 0.5)  # type: ignore[arg-type, return-value]
    network = """<ir_version: 10, opset_import: ["" : 20]>
        g (float[1, 3, 8, 6] x, float[2, 3, 3, 3] w) => (float[1, 2, 6, 4] y) { y = Conv (x, w) }"""
    with pytest.raises(RelayoutError, match=r"target 'npu': `price` .* asked of node 'y': it returns 0.5, not bytes"):
        relayout.convert(onnx.parser.parse_model(network), target=target)
