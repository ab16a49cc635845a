"""The standard's own node tests as a law: every one that has a signature, in other orders."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper, shape_inference

from relayout.infer.build import build
from rules.law import (
    Array,
    Runner,
    forced,
    holds,
    parted_inputs,
    shape_proto,
    two_factors,
    typed,
    with_reference,
    with_runtime,
)

MOST = 4
"""Orders tried per test."""
AT_LEAST = 550
"""Tests that must really have been forced into another order or form, of about 1,900."""
EXCLUDED = {
    "bernoulli": "draws at random",
    "dropout_random": "draws at random",
    "training_dropout": "draws at random",
}
"""Tests left out, by a part of their name."""


@dataclass(frozen=True)
class Standard:
    """One node test.

    Args:
        name: its name.
        model: one node.
        inputs: what it is fed.
        fixed: whether all inputs but the first are constants.
        split: whether the axes of the others are put together from pieces.
    """

    name: str
    model: onnx.ModelProto
    inputs: dict[str, Array]
    fixed: bool
    split: bool

    def __str__(self) -> str:
        return f"{self.name}{'-constants' * self.fixed}{'-split' * self.split}"

    def prepared(self) -> tuple[onnx.ModelProto, dict[str, Array]]:
        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        model.graph.node[0].name = "node"
        feed = dict(self.inputs)
        if self.fixed:
            for value in list(model.graph.input)[1:]:
                model.graph.initializer.append(numpy_helper.from_array(feed.pop(value.name), value.name))
                model.graph.input.remove(value)
        for value in model.graph.input:
            value.type.tensor_type.shape.CopyFrom(shape_proto(feed[value.name].shape))
        return parted_inputs(model, feed) if self.split else (model, feed)


def collected() -> Iterator[Standard]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        found = collect_testcases(None)
    for case in found:
        model = case.model
        if (
            model is None
            or len(model.graph.node) != 1
            or model.graph.node[0].domain
            or any(part in case.name for part in EXCLUDED)
        ):
            continue
        given = case.data_sets[0][0]
        names = [value.name for value in model.graph.input]
        if any(isinstance(item, list | dict | None) for item in given) or len(given) != len(names):
            continue
        feed = {name: np.asarray(item) for name, item in zip(names, given, strict=True)}
        if all(array.dtype.kind in "fiub" for array in feed.values()):
            filled = all(array.size for array in feed.values())
            divides = filled and any(len(two_factors(extent)) > 1 for array in feed.values() for extent in array.shape)
            for fixed in (False, True)[: len(feed)]:
                for split in (False, True)[: 1 + divides]:
                    yield Standard(case.name, model, feed, fixed, split)


def runner(model: onnx.ModelProto, feed: dict[str, Array]) -> Runner | None:
    """What runs this model: ONNX Runtime, else the reference, else nothing."""
    for found in (with_runtime, with_reference):
        try:
            found(model, feed)
        except Exception:
            continue
        return found
    return None


def exercised(case: Standard) -> str:
    """Force the node into other orders and compare; what came of it, in a word."""
    model, feed = case.prepared()
    runs = runner(model, feed)
    if runs is None:
        return "does not run"
    model = typed(shape_inference.infer_shapes(model, data_prop=True), feed, run=runs)
    nodes = [site for site in build(ir.from_proto(model), keep_interface=False).sites if site.kind == "node"]
    if not nodes:
        return "is a view"
    if nodes[0].reason:
        return "has no signature"
    if any(site.carried for site in nodes):
        return "runs a graph"  # what it carries is forced in tests/rules/test_nested.py
    count = 0
    for tried in forced(model, feed, MOST, runs, cut=case.split):
        holds(tried)
        count += 1
    return "is forced" if count > 1 else "has one order"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_standard_node_tests_keep_the_law() -> None:
    results: Counter[str] = Counter()
    forced_tests: set[str] = set()
    faults: list[str] = []
    for case in collected():
        try:
            result = exercised(case)
        except Exception as error:
            faults.append(f"{case}: {type(error).__name__} {str(error).strip().splitlines()[:1]}")
            continue
        results[result] += 1
        if result == "is forced":
            forced_tests.add(case.name)
    print(dict(results), len(forced_tests))
    assert not faults, "\n".join(faults)
    assert len(forced_tests) >= AT_LEAST, results
