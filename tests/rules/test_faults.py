"""The law is sharp: a rule with a fault planted in it fails on some case of its operator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from relayout.rules import Fact, Operator, Signature, registry
from relayout.rules.signature import unchanged
from rules.cases import cases
from rules.law import Case, forced, holds
from rules.test_law import VIEWS

Fault = Callable[[Signature], Signature]


def forgotten(signature: Signature) -> Signature:
    """Attributes and parameters do not follow."""
    return replace(signature, changes=unchanged)


def unbound(signature: Signature) -> Signature:
    """No order is asked for: an operator with positions takes any."""
    return replace(signature, variants=(), tail=())


def loose(signature: Signature) -> Signature:
    """Axes whose order counts may hold their elements in any order."""
    return replace(signature, whole=frozenset(), block=signature.block | signature.whole)


def apart(signature: Signature) -> Signature:
    """Axes that must be one dimension may lie in pieces."""
    if signature.variants or not (signature.whole | signature.block) - set(signature.tail):
        return signature  # each axis has its place
    return replace(signature, whole=frozenset(), block=frozenset())


def swapped(signature: Signature) -> Signature:
    """Two axes of the output are taken for each other."""
    first = signature.outputs[0] or ()
    if len(first) < 2:
        return signature
    turned = (*first[:-2], *first[:-3:-1])
    return replace(signature, outputs=(turned, *signature.outputs[1:]))


FAULTS: tuple[Fault, ...] = (forgotten, unbound, loose, apart, swapped)
LONGER = "operands differ along the axis, which the engine keeps whole by itself; where they do not, it is copied"
HARMLESS = {
    **{
        (op, fault): LONGER
        for op in ("Compress", "Concat", "QLinearConcat", "Split", "Tile")
        for fault in ("loose", "apart")
    },
    **{(op, "loose"): LONGER for op in ("QuantizeLinear", "DequantizeLinear")},
    ("Upsample", "loose"): LONGER,
    ("Resize", "loose"): f"{LONGER} by ONNX Runtime, even where ONNX crops it",
    ("Slice", "loose"): "a slice of equal extent is the axis itself, or all of it backwards, in any order of factors",
    ("Einsum", "unbound"): "every order has an equation; the rule binds axes for what kernels would transpose inside",
    ("RandomNormal", "swapped"): "nothing tells one axis from another",
    ("RandomUniform", "swapped"): "nothing tells one axis from another",
}
"""(operator, fault) that no case can tell from the rule, and why."""


def plants(fault: Fault, signature: Signature) -> bool:
    """Whether the fault changes anything."""
    return fault(signature) != signature


RULES = [key for key, rule in registry().items() if key[1] not in VIEWS and rule.kind != "opaque"]


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
@pytest.mark.parametrize("key", RULES, ids=lambda key: key[1])
def test_planted_fault_breaks_the_law(key: tuple[str, str], fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    rule = registry()[key]
    planted = 0

    def faulty(operator: Operator) -> Fact:
        nonlocal planted
        fact = rule.facts(operator)
        if isinstance(fact, Signature) and plants(fault, fact):
            planted += 1
            return fault(fact)
        return fact

    monkeypatch.setitem(registry(), key, rule._replace(facts=faulty))
    found = any(breaks(case) for case in cases() if (case.domain, case.op_type) == key)
    if not planted:
        pytest.skip("the rule has no such part")
    if reason := HARMLESS.get((key[1], fault.__name__)):
        assert not found, f"no longer harmless: {reason}"
    else:
        assert found


def breaks(case: Case) -> bool:
    try:
        for tried in forced(*case.prepared(), cut=case.split):
            holds(tried)
    except Exception:  # whatever the engine or the runtime makes of it, the fault is seen
        return True
    return False
