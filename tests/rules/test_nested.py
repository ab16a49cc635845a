"""The law of operators with subgraphs: in whatever orders values cross their borders, the model gives the same.

Nothing but the borders is asked to change: the interface and all other nodes stay in the source's order, and the
rewrite puts Transposes between them and the borders.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from numpy.typing import NDArray
from onnx import parser, shape_inference

from relayout.apply.apply import apply
from relayout.infer.allowed_orders import identity
from relayout.infer.build import build
from relayout.infer.graph_sites import Sites
from relayout.rules import Fact, Nested, Operator, registry
from relayout.rules.signature import unchanged
from relayout.verification.law import Chosen, labels
from running import run
from text_form import floats

Feed = dict[str, NDArray[np.generic]]
DRAWS = 12
"""Combinations of orders tried per case."""


BRANCHES = """
    g (float[2,3,5] x, float[3,5] z, bool c) => (float[2,3,5] y, float[3,5] w) {
        y, w = If (c) <
            then_branch = then () => (float[2,3,5] p, float[3,5] r) { p = Relu(x) r = Neg(z) },
            else_branch = else () => (float[2,3,5] q, float[3,5] s) { q = Add(x, z) s = Identity(z) }
        >
    }"""
ROUNDS = """
    g (float[2,3,5] x, float[7,5] z, int64 n) => (float[2,3,5] y, float[7,5] w, float[t,5,3] all) {
        y, w, all = Loop (n, , x, z) <
            body = b (int64 i, bool k, float[2,3,5] a, float[7,5] c)
              => (bool go, float[2,3,5] d, float[7,5] e, float[5,3] f) {
                go = Identity(k)
                d = Tanh(a)
                e = Neg(c)
                m = ReduceMean<keepdims=0, axes=[0]>(a)
                f = Transpose<perm=[1,0]>(m)
            }
        >
    }"""
BODY = """body = b (float[2,3] a, float[5] c, float[5,2] h, float[3,4] v)
      => (float[2,3] d, float[5] e, float[2,3] f, float[4,3,5] r) {
        d = Tanh(a)
        m = ReduceSum<keepdims=0, axes=[1]>(h)
        e = Add(c, m)
        n = Neg(d)
        f = Add(a, n)
        t = Transpose<perm=[1,0]>(v)
        one = Unsqueeze<axes=[2]>(t)
        r = Add(one, e)
    }"""


def slices(p: str, q: str, s: str, u: str, attributes: str = "") -> str:
    """A Scan of two states, two scanned inputs and two outputs of slices, of these types."""
    return f"""
        g (float[2,3] x, float[5] z, {p} p, {q} q) => (float[2,3] y, float[5] w, {s} s, {u} u) {{
            y, w, s, u = Scan<{BODY}, num_scan_inputs=2{attributes}>(x, z, p, q)
        }}"""


ALONG_FIRST = slices("float[6,5,2]", "float[6,3,4]", "float[6,2,3]", "float[6,4,3,5]")
ALONG_AXES = slices(
    "float[5,6,2]",
    "float[3,4,6]",
    "float[2,3,6]",
    "float[4,6,3,5]",
    ", scan_input_axes=[1,2], scan_output_axes=[2,1], scan_input_directions=[1,0], scan_output_directions=[0,1]",
)
FROM_THE_END = slices(
    "float[5,6,2]",
    "float[3,4,6]",
    "float[2,3,6]",
    "float[4,3,6,5]",
    ", scan_input_axes=[-2,-1], scan_output_axes=[-1,-2]",
)
BATCHES = f"""
    g (float[7,2,3] x, float[7,5] z, float[7,6,5,2] p, float[7,6,3,4] q)
      => (float[7,2,3] y, float[7,5] w, float[7,6,2,3] s, float[7,6,4,3,5] u) {{
        y, w, s, u = Scan<{BODY}, num_scan_inputs=2, directions=[1,0]>(, x, z, p, q)
    }}"""
CASES = [
    ("If", BRANCHES, 11, {"c": np.array(True)}),
    ("If", BRANCHES, 11, {"c": np.array(False)}),
    ("Loop", ROUNDS, 11, {"n": np.array(3, np.int64)}),
    ("Scan", ALONG_FIRST, 9, {}),
    ("Scan", ALONG_FIRST, 11, {}),
    ("Scan", ALONG_AXES, 9, {}),
    ("Scan", ALONG_AXES, 12, {}),
    ("Scan", FROM_THE_END, 11, {}),
    ("Scan", BATCHES, 8, {}),
]


def case(text: str, opset: int, given: Feed) -> tuple[onnx.ModelProto, Feed]:
    model = parser.parse_model(f'<ir_version: 7, opset_import: ["": {opset}]>\n{text}')
    feed = dict(given)
    for seed, value in enumerate(model.graph.input):
        if value.name not in feed:
            dims = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
            feed[value.name] = floats(*dims, seed=seed)
    return shape_inference.infer_shapes(model), feed


def orders(source: onnx.ModelProto) -> Iterator[tuple[Sites, Chosen]]:
    """The source with its borders in orders drawn at random, everything else as it is."""
    rng = random.Random(0)
    for _ in range(DRAWS):
        sites = build(ir.from_proto(source))
        drawn = [rng.choice(labels(site, DRAWS)) if site.kind == "border" else identity(site) for site in sites.sites]
        yield sites, Chosen(sites, tuple(drawn))


def holds(source: onnx.ModelProto, feed: Feed) -> int:
    """Hold the law; how many of the models differ from the source."""
    want, moved = run(source, feed), 0
    for sites, chosen in orders(source):
        model = sites.graph
        owner = ir.Model(model, ir_version=source.ir_version)
        proto = ir.to_proto(apply(owner, chosen))  # type: ignore[arg-type]
        onnx.checker.check_model(proto, full_check=True)
        moved += sum(node.op_type == "Transpose" for node in proto.graph.node) > 0
        for expected, got in zip(want, run(proto, feed), strict=True):
            assert expected.shape == got.shape
            np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
    return moved


@pytest.mark.parametrize(("op_type", "text", "opset", "given"), CASES, ids=lambda given: str(given)[:4].strip())
def test_values_cross_a_border_in_any_order(op_type: str, text: str, opset: int, given: Feed) -> None:
    source, feed = case(text, opset, given)
    sites = build(ir.from_proto(source))
    (site,) = [site for site in sites.sites if site.node is not None and site.node.op_type == op_type]
    assert not site.reason
    assert all(
        len(labels(border, DRAWS)) > 1 for border in sites.sites if border.kind == "border" and len(border.factors) > 2
    )
    assert holds(source, feed) > DRAWS // 2


def forgotten(fact: Nested) -> Nested:
    """Attributes do not follow."""
    return fact._replace(signature=replace(fact.signature, changes=unchanged))


def unled(fact: Nested) -> Nested:
    """What stands first may stand anywhere."""
    return fact._replace(signature=replace(fact.signature, head=()))


def swapped(fact: Nested) -> Nested:
    """Two axes outside are taken for each other."""
    turned = tuple(None if letters is None else letters[::-1] for letters in fact.signature.inputs)
    return fact._replace(signature=replace(fact.signature, inputs=turned))


def exchanged(fact: Nested) -> Nested:
    """Two axes inside are taken for each other."""
    bodies = tuple(
        body._replace(outputs=tuple(None if letters is None else letters[::-1] for letters in body.outputs))
        for body in fact.bodies
    )
    return fact._replace(bodies=bodies)


FAULTS = {
    "If": (exchanged,),
    "Loop": (unled, swapped, exchanged),
    "Scan": (forgotten, unled, swapped, exchanged),
}


@pytest.mark.parametrize(("op_type", "fault"), [(op, fault) for op, faults in FAULTS.items() for fault in faults])
def test_planted_fault_breaks_the_law(op_type: str, fault: object, monkeypatch: pytest.MonkeyPatch) -> None:
    rule = registry()["", op_type]

    def faulty(operator: Operator) -> Fact:
        fact = rule.facts(operator)
        assert isinstance(fact, Nested)
        return fault(fact)  # type: ignore[operator]

    monkeypatch.setitem(registry(), ("", op_type), rule._replace(facts=faulty))
    broken = 0
    for kind, text, opset, given in CASES:
        if kind == op_type:
            try:
                holds(*case(text, opset, given))
            except Exception:  # whatever the engine or the runtime makes of it, the fault is seen
                broken += 1
    assert broken


def test_every_operator_with_subgraphs_has_a_case() -> None:
    """A rule that gives `Nested` for no case here would go without the law."""
    assert {kind for kind, *_ in CASES} == set(FAULTS)
    assert all(registry()["", kind].kind != "opaque" for kind in FAULTS)
