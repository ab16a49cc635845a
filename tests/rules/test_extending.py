"""What users add: rules of their own operators, and operators that run one in another layout."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper, parser

import relayout
from relayout import rules
from relayout.errors import LayoutError, RelayoutError
from relayout.rules import Changes, Operator, Permuted, Regrouped, Signature, Variant, axis_letters, registry, rule
from relayout.rules.alike import Alike
from relayout.rules.operator import MOST_ELEMENTS
from relayout.targets.testing import claiming

HEADER = '<ir_version: 10, opset_import: ["": 21, "vendor": 1]>\n'
AROUND = """
g (float[2,3,4,5] x) => (float[2,3,4,5] y) <float[2,4,5,3] a, float[2,4,5,3] b> {
    a = Transpose<perm=[0,2,3,1]>(x)
    b = vendor.Swish(a)
    y = Transpose<perm=[0,3,1,2]>(b)
}"""
CONV = """
g (float[2,3,8,9] x) => (float[2,5,6,7] y) {
    [conv] a = Conv(x, w)
    [relu] y = Relu(a)
}"""
BLUR = """
g (float[2,3,8,9] x) => (float[2,3,8,9] z) <float[2,3,8,9] a, float[2,3,8,9] y> {
    a = Relu(x)
    [blur] y = vendor.Blur(a, k)
    z = Relu(y)
}"""


def model(text: str, **constants: np.ndarray) -> onnx.ModelProto:  # type: ignore[type-arg]
    proto = parser.parse_model(HEADER + text)
    proto.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    return proto


def kernel(*shape: int) -> np.ndarray:  # type: ignore[type-arg]
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def conv() -> onnx.ModelProto:
    return model(CONV, w=kernel(5, 3, 3, 3))


def operators(proto: onnx.ModelProto) -> list[str]:
    return [f"{node.domain}:{node.op_type}" if node.domain else node.op_type for node in proto.graph.node]


def register_swish() -> None:
    @rules.register("vendor:Swish", kind="layout-agnostic")
    def swish(operator: Operator) -> rules.Fact:
        """Any order."""
        return rules.aligned(operator, (0,))


def register_blur() -> None:
    @rules.register("vendor:Blur", kind="layout-sensitive", layouts={0: "NC", 1: "OI"})
    def blur(operator: Operator) -> rules.Fact:
        """`x[n c *s], k[c 1 *k] -> y[n c *s]`: positions fixed."""
        x, k = ("n", "c", *axis_letters(2, "s")), ("c", "i", *axis_letters(2, "k"))
        return Signature((x, k), (x,), frozenset(x) | frozenset(k)).positional()


@pytest.fixture
def scope() -> Iterator[None]:
    with rules.scope():
        yield


# Rules.


def test_transposes_cross_an_operator_with_a_rule(scope: None) -> None:
    source = model(AROUND)
    barrier = relayout.convert(source)
    assert operators(barrier.proto) == ["Transpose", "vendor:Swish", "Transpose"]
    assert barrier.report.barriers
    register_swish()
    crossed = relayout.convert(source)
    assert operators(crossed.proto) == ["vendor:Swish"]
    assert crossed.report.proved
    assert not crossed.report.barriers


def test_a_scope_forgets() -> None:
    before = dict(registry())
    with rules.scope():
        register_swish()
        rules.register_variant("Conv", layouts="NHWC", written="vendor:ConvNhwc")
        assert ("vendor", "Swish") in registry()
    assert registry() == before
    assert operators(relayout.convert(model(AROUND)).proto) == ["Transpose", "vendor:Swish", "Transpose"]
    assert "vendor:ConvNhwc" not in operators(relayout.convert(conv(), to="NHWC").proto)


def test_a_scope_forgets_after_an_exception() -> None:
    before = list(registry().items())

    def failing() -> None:
        with rules.scope():
            register_swish()
            rules.register_variant("Conv", layouts="NHWC", written="vendor:ConvNhwc")
            raise KeyError("planted")

    with pytest.raises(KeyError, match="planted"):
        failing()
    assert list(registry().items()) == before
    assert "vendor:ConvNhwc" not in operators(relayout.convert(conv(), to="NHWC").proto)


def test_scopes_nest(scope: None) -> None:
    register_swish()
    with rules.scope():
        rules.register("vendor:Other", kind="layout-agnostic")(lambda operator: rules.aligned(operator, (0,)))
    assert ("vendor", "Swish") in registry()
    assert ("vendor", "Other") not in registry()


@pytest.mark.parametrize(
    ("operator", "kind", "message"),
    [
        ("Conv", "layout-sensitive", "Conv has a rule already"),
        ("ai.onnx:Relu", "layout-agnostic", "Relu has a rule already"),
        ("com.microsoft:Gelu", "layout-agnostic", "com.microsoft:Gelu has a rule already"),
        ("vendor:Swish", "layout-agnostic", "vendor:Swish has a rule already"),
        ("vendor:New", "agnostic", "'agnostic' is no class of operators"),
        ("vendor:", "layout-agnostic", "names no operator"),
        ("two words", "layout-agnostic", "names no operator"),
    ],
)
def test_a_rule_is_never_replaced(scope: None, operator: str, kind: str, message: str) -> None:
    register_swish()
    before = dict(registry())
    with pytest.raises(LayoutError, match=message):
        rules.register(operator, kind=kind)(lambda _: None)
    assert registry() == before


def test_all_or_none_of_several_operators(scope: None) -> None:
    with pytest.raises(LayoutError):
        rules.register("vendor:New", "Conv", kind="layout-agnostic")(lambda _: None)
    assert ("vendor", "New") not in registry()


def test_layouts_name_images_and_kernels(scope: None) -> None:
    with pytest.raises(LayoutError, match="an image is NC"):
        rules.register("vendor:New", kind="layout-sensitive", layouts={0: "NHWC"})


def test_rules_of_the_project_itself_are_no_duplicates() -> None:
    with pytest.raises(ValueError, match="two rules"):
        rule("Conv", kind="layout-sensitive")(lambda _: None)


# Variants.


def test_a_registered_operator_is_written_instead_of_a_function(scope: None) -> None:
    rules.register_variant("Conv", layouts="NHWC OHWI", written="vendor:ConvNhwc")
    result = relayout.convert(conv(), target=claiming({"Conv": ["NHWC OHWI"]}))
    proto = result.proto
    assert operators(proto) == ["Transpose", "vendor:ConvNhwc", "Transpose", "Relu"]
    assert not proto.functions
    assert result.report.proved
    assert tuple(proto.graph.initializer[0].dims) == (5, 3, 3, 3)
    kernel_stored = numpy_helper.to_array(proto.graph.initializer[0])
    np.testing.assert_array_equal(kernel_stored, kernel(5, 3, 3, 3).transpose(0, 2, 3, 1))
    onnx.checker.check_model(proto, full_check=True)


def test_a_registered_operator_is_used_by_the_layout_of_all(scope: None) -> None:
    rules.register_variant("Conv", layouts="NHWC", written="vendor:ConvNhwc")
    assert "vendor:ConvNhwc" in operators(relayout.convert(conv(), to="NHWC").proto)


def test_other_layouts_remain_functions(scope: None) -> None:
    rules.register_variant("Conv", layouts="NHWC OHWI", written="vendor:ConvNhwc")
    assert "relayout.nhwc:Conv" in operators(relayout.convert(conv(), to="NHWC").proto)


def test_a_registered_operator_is_read_and_comes_back(scope: None) -> None:
    rules.register_variant("Conv", layouts="NHWC OHWI", written="vendor:ConvNhwc")
    moved = relayout.convert(conv(), target=claiming({"Conv": ["NHWC OHWI"]})).proto
    kept = relayout.optimize(moved).proto
    assert operators(kept) == operators(moved)
    back = relayout.convert(moved, to="NCHW").proto
    assert operators(back) == ["Conv", "Relu"]
    np.testing.assert_array_equal(numpy_helper.to_array(back.graph.initializer[0]), kernel(5, 3, 3, 3))


def test_a_variant_may_be_an_attribute_of_a_custom_operator(scope: None) -> None:
    register_blur()
    rules.register_variant("vendor:Blur", layouts="NHWC", attributes={"data_layout": "NHWC"})
    source = model(BLUR, k=kernel(3, 1, 3, 3))
    moved = relayout.convert(source, to="NHWC").proto
    (blur,) = [node for node in moved.graph.node if node.op_type == "Blur"]
    assert [(a.name, a.s) for a in blur.attribute] == [("data_layout", b"NHWC")]
    assert operators(moved) == ["Relu", "Transpose", "vendor:Blur", "Transpose", "Relu"]
    assert operators(relayout.optimize(moved).proto) == operators(moved), "its attribute says in which order it runs"
    back = relayout.convert(moved, to="NCHW").proto
    assert operators(back) == ["Relu", "vendor:Blur", "Relu"]
    assert not [a for node in back.graph.node for a in node.attribute]


def test_ranks_follow(scope: None) -> None:
    rules.register_variant("Conv", layouts="NHWC OHWI", written="vendor:ConvNhwc")
    line = model("g (float[2,3,9] x) => (float[2,5,7] y) { y = Conv(x, w) }", w=kernel(5, 3, 3))
    assert "vendor:ConvNhwc" in operators(relayout.convert(line, target=claiming({"Conv": ["NHWC OHWI"]})).proto)


@pytest.mark.parametrize(
    ("operator", "given", "message"),
    [
        ("Cnov", {"layouts": "NHWC", "written": "v:C"}, "Cnov has no rule to be a variant of; did you mean 'Conv'"),
        ("Relu", {"layouts": "NHWC", "written": "v:C"}, "Relu is no operator on images"),
        ("Conv", {"layouts": "NHHC", "written": "v:C"}, "is not a layout"),
        ("Conv", {"layouts": "NHWC OHWI x", "written": "v:C"}, "a layout of images"),
        ("Conv", {"layouts": "NHWC"}, "written as another operator"),
        ("Conv", {"layouts": "NHWC", "attributes": {"data_layout": "NHWC"}}, "written as another operator"),
        ("Conv", {"layouts": "NHWC", "written": "Relu"}, "Relu has a rule already"),
        ("Conv", {"layouts": "NHWC OHWI", "written": "v:C"}, "Conv has a variant in NHWC OHWI already"),
        ("MaxPool", {"layouts": "NHWC", "written": "vendor:ConvNhwc"}, "is a variant already"),
    ],
)
def test_a_variant_is_never_replaced(scope: None, operator: str, given: dict[str, object], message: str) -> None:
    rules.register_variant("Conv", layouts="NHWC OHWI", written="vendor:ConvNhwc")
    with pytest.raises(LayoutError, match=message):
        rules.register_variant(operator, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"layouts": "NHWC", "written": "ConvNhwc"}, "an operator of a backend has a domain, `vendor:ConvNhwc`"),
        ({"layouts": "NHWC OWI"}, "NHWC and OWI name different spatial axes"),
        ({"layouts": "NHWC HWC"}, "HWC is no layout of kernels"),
        ({"layouts": "OHWI NHWC"}, "OHWI is no layout of images"),
        ({"layouts": "NHCW"}, "NHCW is no usual layout of images"),
        ({"layouts": "NHWC->"}, "'' is not a layout"),
        ({"layouts": ("NHWC", "OHWI")}, "is no text: layouts are written 'NHWC'"),
        ({"layouts": None}, "None is no text"),
        ({"layouts": "NCHW OIHW"}, "so it runs itself; name other layouts"),
        ({"operator": "MaxPool", "layouts": "NHWC OHWI"}, "it has no kernel that could lie in OHWI; leave that out"),
        ({"operator": 3}, "3 names no operator"),
        ({"written": ""}, "'' names no operator"),
        ({"written": 3}, "3 names no operator"),
        ({"written": "relayout.nhwc:Conv"}, "are those of relayout's functions"),
        ({"attributes": ["a"]}, "attributes=['a']: it takes a dictionary such as {'data_layout': 'NHWC'}"),
        ({"attributes": {"a": None}}, "attributes={'a': None}: it takes a dictionary"),
        ({"attributes": {3: 1}}, "attributes={3: 1}: it takes a dictionary"),
    ],
)
def test_a_variant_that_nothing_could_be_is_refused(scope: None, given: dict[str, Any], message: str) -> None:
    with pytest.raises(LayoutError, match=re.escape(message)):
        rules.register_variant(**{"operator": "Conv", "layouts": "NHWC", "written": "v:C"} | given)
    assert "relayout.nhwc:Conv" in operators(relayout.convert(conv(), to="NHWC").proto)


@pytest.mark.parametrize("again", ["nhwc ohwi", "NWC OWI"])
def test_a_variant_in_the_same_layouts_is_the_same_however_it_is_written(scope: None, again: str) -> None:
    rules.register_variant("Conv", layouts="NHWC OHWI", written="vendor:ConvNhwc")
    with pytest.raises(LayoutError, match="Conv has a variant in"):
        rules.register_variant("Conv", layouts=again, written="vendor:Other")


@pytest.mark.parametrize(
    ("operators", "given", "message"),
    [
        ((3,), {}, "3 names no operator"),
        ((["vendor:A"],), {}, "['vendor:A'] names no operator"),
        (("vendor:A vendor:B",), {}, "names no operator"),
        ((), {}, "a rule of no operator"),
        (("relayout.nhwc:A",), {}, "are those of relayout's functions"),
        (("vendor:A",), {"kind": 3}, "3 is no class of operators"),
        (("vendor:A",), {"layouts": ["NC"]}, "layouts=['NC']: it takes a dictionary such as {0: 'NC', 1: 'OI'}"),
        (("vendor:A",), {"layouts": {"x": "NC"}}, "layouts={'x': 'NC'}: it takes a dictionary"),
        (("vendor:A",), {"layouts": {-1: "NC"}}, "layouts={-1: 'NC'}: it takes a dictionary"),
        (("vendor:A",), {"layouts": {0: None}}, "None for input 0: an image is NC"),
        (("vendor:A",), {"kind": "layout-agnostic", "layouts": {0: "NC"}}, "what has layouts is 'layout-sensitive'"),
        (("vendor:A",), {"rule": None}, "rule=None: it takes a function"),
        (("vendor:A",), {"rule": "any order"}, "rule='any order': it takes a function"),
    ],
)
def test_a_rule_that_nothing_could_be_is_refused(
    scope: None, operators: tuple[Any, ...], given: dict[str, Any], message: str
) -> None:
    before = dict(registry())
    rule = given.pop("rule", lambda _: None)
    with pytest.raises(LayoutError, match=re.escape(message)):
        rules.register(*operators, **{"kind": "layout-sensitive"} | given)(rule)
    assert registry() == before


D = axis_letters(4)
PLACE = r"the rule of vendor:Swish \(.*test_extending\.py:\d+\)"


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (lambda _: {}, "it gives dict; a rule gives a Signature, Permuted, Regrouped, Nested or None"),
        (lambda operator: operator.nothing, "AttributeError: 'Operator' object has no attribute 'nothing'"),
        (lambda _: Signature(("nchw",), ("nchw",)), "inputs=('nchw',): it takes a tuple with the names of the axes"),
        (lambda _: Signature((list(D),), (D,)), "it takes a tuple with the names"),
        (lambda _: Signature((("c/2", "c%2", "h", "w"),), (D,)), "it takes a tuple with the names"),
        (lambda _: Signature((D,), (D,), whole="d0"), "whole='d0': it takes a frozenset of names of axes"),
        (lambda _: Signature((D,), (D,), tail="d3"), "tail='d3': it takes a tuple of names of axes"),
        (lambda _: Signature((D,), (D,), grain=3), "grain=3: it takes a tuple of axes with whole numbers"),
        (lambda _: Signature((D,), (D,), variants=("NHWC",)), "variants=('NHWC',): it takes a tuple of Variant"),
        (
            lambda _: Signature((D,), (D,), variants=(Variant((D[:3],), (D,)),)),
            "a variant of d0 d1 d2, where the signature has d0 d1 d2 d3",
        ),
        (lambda _: Signature((D,), (D,), changes=lambda _: {}), "changes gives dict; it gives Changes"),
        (lambda _: Signature((D,), (D,), changes=lambda p: p.nothing), "AttributeError: 'Placement' object has no"),
        (lambda _: Signature((D,), (D,), changes=lambda _: [][0]), "IndexError: list index out of range"),
        (lambda _: Signature((D,), (D,), price=lambda _: -1), "price gives -1; it gives bytes"),
        (lambda _: Signature((D,), (D,), price=lambda _: int("x")), "ValueError: invalid literal"),
        (lambda _: Permuted([0, 1, 2, 3]), "perm=[0, 1, 2, 3]: it takes a tuple of whole numbers"),
        (lambda _: Regrouped(None), "shape=None: it takes a tuple of extents"),
        (lambda _: Signature((D[:3] + D[:1],), (D,)), "the axes of each operand, none twice"),
        (lambda _: Signature((D,), (D,), tail=("d3", "d3")), "a tuple of names of axes, none twice"),
        (lambda _: Signature((D,), (D,), whole=frozenset({"z"})), "whole names an axis 'z', which no operand has"),
        (lambda _: Signature((D,), (D,), tail=("z",)), "tail names an axis 'z', which no operand has"),
        (lambda _: Signature((D,), (D,), grain=(("d1", 4),)), "grain names an axis 'd1', which is not in `whole`"),
        (
            lambda _: Signature((D,), (D,), head=("d0",), tail=("d0",)),
            "the axis 'd0' comes first (head) and last (tail)",
        ),
        (lambda _: Signature((D,), (D,), broadcast="yes"), "broadcast='yes': it takes True or False"),
        (
            lambda _: Signature((D,), (D,), variants=(Variant((("d0", "d1/4", "d2", "d3"),), (D,)),)),
            "a variant of d0 d1/4 d2 d3: an axis is there once, or as `c/16` and `c%16`",
        ),
        (lambda _: Signature((D,), (D,), variants=(Variant((D,), (D,), written="Op"),)), "it takes a Written"),
        (lambda _: Signature((D,), (D,), variants=(Variant((D,), (D,), steps=len),)), "a variant with steps"),
        (lambda _: Signature((D,), (D,), changes=lambda _: Changes([1])), "in Changes, attributes=[1]"),
        (lambda _: Signature((D,), (D,), changes=lambda _: Changes({"a": object()})), "in Changes, attributes={"),
        (lambda _: Signature((D,), (D,), changes=lambda _: Changes(inputs={0: [1]})), "in Changes, inputs={0: [1]}"),
        (lambda _: Signature((D,), (D,), changes=lambda _: Changes(gathered={0: 1})), "in Changes, gathered={0: 1}"),
        (lambda _: Signature((D,), (D,), changes=lambda _: Changes(looked_up={7: (0,)})), "in Changes, input 7, where"),
    ],
)
def test_what_is_no_fact_is_one_error_that_names_the_rule(scope: None, said: Any, message: str) -> None:
    rules.register("vendor:Swish", kind="layout-agnostic")(said)
    with pytest.raises(RelayoutError, match=PLACE) as raised:
        relayout.convert(model(AROUND))
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (lambda operator: operator.inputs[1], "asked of node 'b': IndexError: tuple index out of range"),
        (lambda operator: operator.node.attributes["no"], "asked of node 'b': KeyError: 'no'"),
        (lambda _: Signature(), "asked of node 'b': TypeError: "),
        (lambda _: int("x"), "asked of node 'b': ValueError: invalid literal"),
        (lambda _: rules.OperatorLayouts.parse("NHWC OHWI x"), "asked of node 'b': 'NHWC OHWI x': a layout of images"),
        (lambda _: Signature((D, D), (D,)), "its signature has 2 inputs, and the node 1"),
        (lambda _: Signature((D,), (D, D)), "its signature has 2 outputs, and the node 1"),
        (lambda _: Signature((D[:3],), (D,)), "it names 3 axes (d0 d1 d2) of input 0, which has 4"),
        (lambda _: Signature((D,), (D[:2],)), "it names 2 axes (d0 d1) of output 0, which has 4"),
        (lambda _: Permuted((0, 2, 1)), "(0, 2, 1) is no perm of the 4 axes of its input"),
        (lambda _: Permuted((0, 2, 1, 3)), "it says that the result has extents"),
        (lambda _: Regrouped((2, 3)), "it says that the result has extents 2 x 3, and the node gives"),
        (lambda _: Signature((D,), ((D[0], D[2], D[1], D[3]),)), "its axis 'd2' has"),
    ],
)
def test_a_rule_that_does_not_fit_its_node_is_an_error(scope: None, said: Any, message: str) -> None:
    rules.register("vendor:Swish", kind="layout-agnostic")(said)
    with pytest.raises(RelayoutError, match=PLACE) as raised:
        relayout.convert(model(AROUND))
    assert message in str(raised.value)


def test_a_rule_that_does_not_fit_a_node_in_other_layouts_is_an_error(scope: None) -> None:
    said: list[rules.Fact] = [Signature((D, D), (D,), frozenset(D)).positional()]
    rules.register("vendor:Blur", kind="layout-sensitive", layouts={0: "NC", 1: "OI"})(lambda _: said[0])
    rules.register_variant("vendor:Blur", layouts="NHWC", attributes={"data_layout": "NHWC"})
    moved = relayout.convert(model(BLUR, k=kernel(3, 1, 3, 3)), to="NHWC").proto
    said[0] = Signature((D,), (D,)).positional()
    with pytest.raises(
        RelayoutError, match=r"the rule of vendor:Blur \(.*\), asked of node 'blur': its signature has 1 in"
    ):
        relayout.optimize(moved)


def test_the_line_is_that_of_the_mistake(scope: None) -> None:
    @rules.register("vendor:Swish", kind="layout-agnostic")
    def swish(operator: Operator) -> rules.Fact:
        """Its second input has the axes of the first."""
        letters = axis_letters(4)
        return Signature((letters,), (letters,), frozenset(operator.ints("window")))  # type: ignore[arg-type]

    with pytest.raises(RelayoutError, match=PLACE) as raised:
        relayout.convert(model(AROUND))
    assert f"test_extending.py:{swish.__code__.co_firstlineno + 4})" in str(raised.value)


def test_of_an_operand_of_unknown_rank_a_rule_need_not_know(scope: None) -> None:
    @rules.register("vendor:Swish", kind="layout-agnostic")
    def _(operator: Operator) -> rules.Fact:
        """Any order."""
        return rules.aligned(operator, tuple(range(operator.rank() - 3)))  # type: ignore[operator]

    vague = model("g (float[2,3,4,5] x) => (y) { a = vendor.Mystery(x) b = vendor.Swish(a) y = Relu(b) }")
    assert "the rank of what Swish reads is not known" in relayout.convert(vague).report.barriers


FLIP = """
g (float[2,3,4,5] x) => (float[2,3,4,5] y) <float[2,4,5,3] a, float[2,4,5,3] b> {
    a = Transpose<perm=[0,2,3,1]>(x)
    b = vendor.Flip<NAME=VALUE>(a)
    y = Transpose<perm=[0,3,1,2]>(b)
}"""


def flip(name: str, value: str) -> onnx.ModelProto:
    return model(FLIP.replace("NAME", name).replace("VALUE", value))


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [("axis", "1", "axis=1"), ("axes", "[1,-1]", "axes=(1, -1)"), ("time_axis", "-2", "time_axis=-2")],
)
def test_a_rule_that_says_nothing_of_an_axis_is_refused(scope: None, name: str, value: str, shown: str) -> None:
    rules.register("vendor:Flip", kind="axis attributes")(lambda operator: rules.aligned(operator, (0,)))
    with pytest.raises(RelayoutError, match=r"the rule of vendor:Flip \(.*test_extending\.py:\d+\)") as raised:
        relayout.convert(flip(name, value))
    assert f"the node has {shown}, and its axes may move, of which the rule says nothing" in str(raised.value)
    assert "changes=" in str(raised.value)


SPEAKING: dict[str, Any] = {
    "it is renumbered": lambda axis: {"changes": lambda p: Changes({"axis": p.axis(D[axis])}), "whole": frozenset(D)},
    "positions are fixed": lambda axis: {"variants": (Variant((D,), (D,)),)},
    "the axis stays last": lambda axis: {"tail": D[-2:], "block": frozenset(D[-2:])},
    "it counts something else": lambda axis: {"changes": lambda p: Changes({"axis": axis})},
}


@pytest.mark.parametrize("name", SPEAKING)
def test_a_rule_that_says_what_becomes_of_an_axis_is_taken(scope: None, name: str) -> None:
    said = SPEAKING[name](2)
    rules.register("vendor:Flip", kind="axis attributes")(lambda operator: Signature((D,), (D,), **said))
    result = relayout.convert(flip("axis", "2"))
    assert not result.report.barriers
    if name == "it is renumbered":
        (node,) = result.proto.graph.node
        assert [(each.name, each.i) for each in node.attribute] == [("axis", 3)]


def test_an_attribute_of_reals_counts_no_axes(scope: None) -> None:
    rules.register("vendor:Flip", kind="axis attributes")(lambda operator: rules.aligned(operator, (0,)))
    assert relayout.convert(flip("axis", "1.5")).report.transposes == 0


def test_a_variant_is_no_operator_with_a_rule(scope: None) -> None:
    rules.register_variant("Conv", layouts="NHWC OHWI", written="vendor:ConvNhwc")
    with pytest.raises(LayoutError, match="vendor:ConvNhwc is a variant of another operator already"):
        rules.register("vendor:ConvNhwc", kind="layout-agnostic")(lambda _: None)


def dropout(training: bool) -> Operator:
    mode = ir.Value(name="mode", const_value=ir.tensor(np.array(training)))
    node = ir.Node("", "Dropout", [ir.Value(name="x"), None, mode], version=13)
    return Operator(node, 13, ((2, 3), None, ()), ((2, 3),))


def test_what_a_constant_decides_is_asked_for_each_of_its_values() -> None:
    known = rules.Facts()
    inference = known.of(dropout(training=False))
    assert isinstance(inference, Signature)
    assert known.of(dropout(training=True)) is None
    assert known.of(dropout(training=False)) is inference


LOOKS: dict[str, Callable[[Operator], object]] = {
    "an element type": lambda operator: operator.dtype(1),
    "a short constant": lambda operator: operator.constant(2),
    "a long constant": lambda operator: operator.constant(1),
    "the node": lambda operator: operator.node.inputs,
}


@pytest.mark.parametrize(
    ("looked_at", "count"), [("an element type", 1), ("a short constant", 2), ("a long constant", 4), ("the node", 4)]
)
def test_an_answer_serves_all_nodes_that_are_alike_in_what_it_looked_at(looked_at: str, count: int) -> None:
    asked: list[Operator] = []

    def answer(operator: Operator) -> int:
        asked.append(operator)
        LOOKS[looked_at](operator)
        return len(asked)

    once, answers = Alike(answer), []
    for number in (1, 2, 1, 2):
        constants = [np.full(MOST_ELEMENTS + 1, number), np.array([number])]
        values = [ir.Value(const_value=ir.tensor(constant)) for constant in constants]
        shapes = ((2, 3), (MOST_ELEMENTS + 1,), (1,))
        answers.append(once(Operator(ir.Node("", "Any", [ir.Value(), *values]), 1, shapes, ((2, 3),))))
    assert len(asked) == count
    assert answers == {1: [1] * 4, 2: [1, 2] * 2, 4: [1, 2, 3, 4]}[count]


def test_an_answer_that_another_one_follows_from_has_looked_for_it_too() -> None:
    inner = Alike(lambda operator: int(operator.constant(0)[0]))
    outer = Alike(inner)
    nodes = [ir.Node("", "Any", [ir.Value(const_value=ir.tensor(np.array([number])))]) for number in (1, 2)]
    first, second = (Operator(node, 1, ((1,),), ((1,),)) for node in nodes)
    assert [inner(first), inner(second)] == [1, 2]
    assert [outer(first), outer(second)] == [1, 2]


def test_an_answer_about_something_else_is_another_one() -> None:
    once = Alike(lambda _, about: about)
    first, second = object(), object()
    operator = Operator(ir.Node("", "Any", []), 1, (), ())
    assert [once(operator, each) for each in (first, second, first)] == [first, second, first]


def test_what_no_constant_decides_is_asked_once_for_nodes_that_are_alike() -> None:
    asked: list[ir.Node] = []
    with rules.scope():

        @rule("Swish", domain="vendor", kind="layout-agnostic")
        def _(operator: Operator) -> Signature:
            asked.append(operator.bare)
            letters = axis_letters(2)
            return Signature(inputs=(letters,), outputs=(letters,))

        known = rules.Facts()
        nodes = [ir.Node("vendor", "Swish", [ir.Value(name=name)]) for name in ("x", "y")]
        first, second = (known.of(Operator(node, 1, ((2, 3),), ((2, 3),))) for node in nodes)
    assert first is second
    assert asked == nodes[:1]


@pytest.mark.parametrize("held", ["numbers", "the node", "a list of the node"])
def test_what_holds_on_to_a_node_is_asked_of_every_node(held: str) -> None:
    """What a rule says of attributes is said when the graph is written, when other nodes may have been changed."""
    with rules.scope():

        @rule("Turn", domain="vendor", kind="axis attributes")
        def _(operator: Operator) -> Signature:
            letters, node, nodes = axis_letters(2), operator.bare, [operator.bare]
            axis = operator.int("axis", 0)
            changes = {
                "numbers": lambda placement: Changes({"axis": placement.axis(letters[axis])}),
                "the node": lambda placement: Changes({"axis": node.attributes.get_int("axis", 0)}),
                "a list of the node": lambda placement: Changes({"axis": len(nodes)}),
            }
            return Signature(inputs=(letters,), outputs=(letters,), changes=changes[held])

        known = rules.Facts()
        nodes = [ir.Node("vendor", "Turn", [ir.Value(name=name)]) for name in ("x", "y")]
        first, second = (known.of(Operator(node, 1, ((2, 3),), ((2, 3),))) for node in nodes)
    assert (first is second) is (held == "numbers")


def test_what_is_said_of_convolutions_that_are_alike_is_said_once() -> None:
    known, shapes = rules.Facts(), ((1, 3, 8, 8), (4, 3, 3, 3))
    strides = ir.AttrInt64s("strides", (1, 2))
    nodes = [ir.Node("", "Conv", [ir.Value(), ir.Value()], [strides][:count]) for count in (1, 1, 0)]
    first, second, other = (known.of(Operator(node, 22, shapes, ((1, 4, 6, 6),))) for node in nodes)
    assert first is second
    assert isinstance(first, Signature)
    assert other is not first


def test_a_slip_is_an_error_though_nothing_is_known_of_the_result() -> None:
    """Of a vendor's operator the result's rank is unknown: what raises for every rank is the rule's fault."""
    network = parser.parse_model(
        """<ir_version: 9, opset_import: ["" : 17, "vendor" : 1]>
        g (float[1,2,3,4] x) => (float[1,2,3,4] y) {
        t = Transpose <perm = [0, 3, 1, 2]> (x)  u = vendor.Slip (t)  y = Transpose <perm = [0, 2, 3, 1]> (u) }"""
    )
    with rules.scope():

        @rules.rule("Slip", domain="vendor", kind="layout-agnostic")
        def slip(operator: Operator) -> object:
            """`x[*a] -> y[*a]`."""
            return rules.aligned(operator, operator.shape()[9])  # type: ignore[index, arg-type]

        with pytest.raises(RelayoutError, match=r"the rule of vendor:Slip \(.*:\d+\), asked of node 'u': IndexError"):
            relayout.explain(network)
