"""Rules of users are held to the law of every rule, on the nodes of a model of theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

from relayout import rules
from relayout.errors import RelayoutError
from relayout.rules import Changes, Operator, Signature, axis_letters

FLIP = """<ir_version: 10, opset_import: ["": 21, "vendor": 1]>
g (float[n,6,4,5] x) => (float[n,6,4,5] y) {
    a = Relu(x)
    [flip] b = vendor.Flip<axis=1>(a)
    y = Relu(b)
}
"""
BODY = """<domain: "vendor", opset_import: ["": 21]> Flip <axis> (x) => (y) { y = Softmax<axis: int = @axis>(x) }"""


@pytest.fixture(autouse=True)
def scope() -> Iterator[None]:
    with rules.scope():
        yield


def model(text: str = FLIP + BODY) -> onnx.ModelProto:
    return parser.parse_model(text)


def register(**said: Callable[[str, int], Any]) -> None:
    """A rule of Flip: what a signature says is made of the axis's letter and its number."""

    @rules.register("vendor:Flip", kind="axis attributes")
    def flip(operator: Operator) -> rules.Fact:
        """Everything happens along one axis."""
        letters, axis = axis_letters(operator.rank() or 0), operator.int("axis", 0)
        found = {name: make(letters[axis], axis) for name, make in said.items()}
        return Signature((letters,), (letters,), **found)


def renumbered(letter: str, _: int) -> Any:
    return lambda placement: Changes({"axis": placement.axis(letter)})


def together(letter: str, _: int) -> Any:
    return frozenset({letter})


def test_a_right_rule_keeps_its_law() -> None:
    register(changes=renumbered, block=together)
    (kept,) = rules.check(model())
    assert (kept.node, kept.operator, kept.reason) == ("flip", "vendor:Flip", "")
    assert kept.orders > 12, "also with axes in pieces"


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"changes": lambda _, axis: lambda p: Changes({"axis": axis})}, "output 0 is not the re-laid one"),
        ({"changes": lambda _, axis: lambda p: Changes({"axis": 9})}, "in another order it does not run"),
    ],
)
def test_a_wrong_rule_breaks_it(said: dict[str, Any], message: str) -> None:
    register(**said, block=together)
    with pytest.raises(
        RelayoutError, match=r"the rule of vendor:Flip \(.*:\d+\) breaks its law at node 'flip': "
    ) as raised:
        rules.check(model())
    assert message in str(raised.value)


def test_an_axis_that_must_be_one_dimension_is_found_out() -> None:
    """The parts of an axis may lie apart, where a rule does not say that they must not."""
    register(changes=lambda letter, _: lambda p: Changes({"axis": p.axes((letter,))[0]}))
    with pytest.raises(RelayoutError, match="breaks its law at node 'flip'"):
        rules.check(model())


def test_who_runs_the_model_may_be_given() -> None:
    register(changes=renumbered, block=together)
    asked: list[onnx.ModelProto] = []

    def run(single: onnx.ModelProto, feed: Mapping[str, Any]) -> list[Any]:
        asked.append(single)
        values = dict(feed)
        for tensor in single.graph.initializer:
            values[tensor.name] = onnx.numpy_helper.to_array(tensor)
        for node in single.graph.node:
            first, *rest = (values[name] for name in node.input)
            if node.op_type == "Reshape":
                values[node.output[0]] = first.reshape(rest[0])
            else:
                values[node.output[0]] = np.cumsum(first, node.attribute[0].i)
        return [values[value.name] for value in single.graph.output]

    with pytest.raises(RelayoutError, match=r"nothing here runs vendor:Flip at node 'flip': .*; give `run=`"):
        rules.check(model(FLIP))
    with pytest.raises(RelayoutError, match="breaks its law"):  # what it adds up must be in order
        rules.check(model(FLIP), run=run)
    with rules.scope():
        rules.registry().pop(("vendor", "Flip"))
        register(changes=renumbered, whole=together)
        assert rules.check(model(FLIP), run=run, dims={"n": 3})[0].orders > 2
    assert asked


def test_operators_of_the_project_may_be_named() -> None:
    register(changes=renumbered, block=together)
    found = rules.check(model(), operators=["Relu"])
    assert [each.operator for each in found] == ["Relu", "Relu"]
    with pytest.raises(RelayoutError, match="vendor:Flop has no rule"):
        rules.check(model(), operators=["vendor:Flop"])


def test_a_model_without_such_nodes_shows_nothing() -> None:
    with pytest.raises(RelayoutError, match="the model has no node of an operator with a rule that was registered"):
        rules.check(model())


def test_a_barrier_says_why() -> None:
    rules.register("vendor:Flip", kind="axis attributes")(lambda operator: None)
    (kept,) = rules.check(model())
    assert (kept.orders, kept.reason) == (0, "what Flip does with axes is not known here")
