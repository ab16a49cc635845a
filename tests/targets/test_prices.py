"""A target's prices: what an operator costs off its best order weighs against bytes that are moved."""

from __future__ import annotations

import json
from math import prod

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser, shape_inference

import relayout
from relayout.infer import plan_file
from relayout.infer.build import build
from relayout.pipeline import read
from relayout.rules import Operator, Placement, Signature
from relayout.targets import DesiredLayouts, Target
from relayout.targets.price_list import PriceList
from running import run

TEXT = """<ir_version: 10, opset_import: ["": 20]>
g (float[1,3,8,10] x) => (float[1,5,8,10] y) { a = Conv(x, w) b = Relu(a) y = Softmax<axis=1>(b) }"""
SIZE = 5 * 8 * 10 * 4
"""Bytes of the value before the Softmax, and of the one after it."""


def source() -> onnx.ModelProto:
    model = parser.parse_model(TEXT)
    weights = np.random.default_rng(0).normal(size=(5, 3, 1, 1)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    return shape_inference.infer_shapes(model)


def costly(times: float) -> Target:
    """A target whose Softmax costs `times` its operand's bytes along any axis but the last."""

    def price(operator: Operator, signature: Signature, placement: Placement) -> int:
        if operator.name != "Softmax":
            return 0
        axis = signature.changes(placement).attributes["axis"]
        assert isinstance(axis, int)
        extents = [extent.number for extent in placement.extents()]
        return 0 if axis % len(extents) == len(extents) - 1 else int(times * prod(extents) * 4)

    return Target("costly", "a test's", (), price=price)


@pytest.mark.parametrize(("times", "moved"), [(1.5, 0), (2.5, 2 * SIZE)])
def test_bytes_are_moved_where_that_is_cheaper(times: float, moved: int) -> None:
    model = source()
    result = relayout.convert(model, target=costly(times))
    assert result.report.bytes == result.report.lower_bound == moved
    assert result.report.proved
    (softmax,) = (node for node in result.proto.graph.node if node.op_type == "Softmax")
    (axis,) = (attribute.i for attribute in softmax.attribute)
    assert axis == (3 if moved else 1)
    feed = {"x": np.random.default_rng(1).normal(size=(1, 3, 8, 10)).astype(np.float32)}
    np.testing.assert_allclose(run(result.proto, feed)[0], run(model, feed)[0], rtol=1e-5)


def test_a_price_list_is_asked_for_its_operators_alone() -> None:
    asked: set[str] = set()

    def price(operator: Operator, signature: Signature, placement: Placement) -> int:
        asked.add(operator.name)
        return costly(2.5).price(operator, signature, placement)  # type: ignore[misc]

    listed, each = PriceList({"Softmax": price}), Target("each", "a test's", (), price=price)
    result = relayout.convert(source(), target=Target("listed", "a test's", (), price=listed))
    assert asked == {"Softmax"}
    assert result.report.bytes == relayout.convert(source(), target=each).report.bytes == 2 * SIZE
    assert asked > {"Softmax"}, "a function is asked for every operator"


def test_a_bound_counts_prices_that_cannot_be_avoided() -> None:
    """Without moving anything the price is paid; a certificate that forgot it would claim too little, or too much."""
    result = relayout.convert(source(), target=costly(1.5))
    assert (result.report.bytes, result.report.lower_bound, result.report.proved) == (0, 0, True)


@pytest.mark.parametrize("times", [1.5, 2.5])
def test_a_plan_with_prices_is_checked_with_its_target(times: float) -> None:
    result = relayout.convert(source(), target=costly(times))
    sites = build(read(source()), choose=DesiredLayouts.of(target=costly(times)))
    checked = plan_file.check(json.loads(json.dumps(result.plan)), sites)
    assert (checked.bytes, checked.bound, checked.proved) == (result.report.bytes, result.report.lower_bound, True)
    other = plan_file.check(result.plan, build(read(source()), choose=DesiredLayouts.of(target=costly(4.0 - times))))
    assert not other.proved, "under other prices the choice is not the least"
