"""Nodes that no output needs: neither in the problem, nor in the result."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import relayout
from apply.nested import operators
from running import run
from small import build
from text_form import floats


def test_what_nobody_reads_wants_nothing() -> None:
    """A MaxPool whose result is not read had the image brought into its order for all others."""
    source = build(
        "int8[2,6,5,8] x",
        "f = Cast<to=1>(x) q = ReduceMean(f, ax) y = Relu(q)"
        "t = T0312(f) p = MaxPool<kernel_shape=[2,2]>(t) d = T0231(p)",
        {"ax": [1, 2]},
    )
    del source.graph.output[:]
    source.graph.output.append(onnx.helper.make_tensor_value_info("y", 1, [2, 1, 1, 8]))
    result = relayout.optimize(source)
    report = result.report
    assert (report.source_transposes, report.source_bytes) == (2, (2 * 6 * 5 * 8 + 2 * 8 * 5 * 4) * 4)
    assert (report.transposes, report.bytes) == (0, 0)
    assert operators(result.proto.graph) == ["Cast", "ReduceMean", "Relu"]
    assert "left out: 3 nodes that no output needs" in report.notes
    feed = {"x": np.ones((2, 6, 5, 8), np.int8)}
    np.testing.assert_array_equal(run(result.proto, feed)[0], run(source, feed)[0])


BRANCHES = """
    a = Relu(x) y = Neg(a)
    z = If(c) <then_branch = t () => (float[2,3,4,5] p) { p = Neg(a) },
               else_branch = e () => (float[2,3,4,5] r) { r = Abs(a) }>
    d = T0231(z)
"""


@pytest.mark.parametrize("regions", ["flat", "functions"])
def test_branches_that_nobody_reads_read_nothing(regions: str) -> None:
    source = build("float[2,3,4,5] x, bool c", BRANCHES, {}, outputs=("y",))
    del source.graph.output[1:]
    assert [value.name for value in source.graph.output] == ["y"]
    result = relayout.convert(source, target="xnnpack", regions=regions)
    assert "If" not in operators(result.proto.graph)
    assert result.report.transposes == 0


def test_nodes_of_a_body_that_its_outputs_do_not_need() -> None:
    source = build(
        "float[2,3,4,5] x, bool c",
        """
        t = T0231(x)
        y = If(c) <then_branch = b () => (float[2,3,4,5] p) { p = Neg(x) u = T0312(t) v = LRN<size=3>(u) },
                   else_branch = e () => (float[2,3,4,5] r) { r = Abs(x) }>
        """,
        {},
    )
    del source.graph.output[0]
    assert [value.name for value in source.graph.output] == ["y"]
    result = relayout.optimize(source)
    assert sorted(operators(result.proto.graph)) == ["Abs", "If", "Neg"]
    for flag in (True, False):
        feed = {"x": floats(2, 3, 4, 5), "c": np.array(flag)}
        np.testing.assert_array_equal(run(result.proto, feed)[0], run(source, feed)[0])


def test_an_operator_that_nobody_knows_stays() -> None:
    """It may do more than give what nobody reads."""
    source = build("float[2,3,4] x", "t = T021(x) a = Relu(t) y = T021(a) n = some.where.Log(x)", {}, outputs=("y",))
    del source.graph.output[1:]
    result = relayout.optimize(source)
    assert operators(result.proto.graph) == ["Relu", "Log"]
