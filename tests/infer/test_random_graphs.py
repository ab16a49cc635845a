"""The whole engine on random graphs: same numbers, never more bytes, and no order that was left out would do better."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import relayout
from infer.graphs import random_model
from relayout.infer.allowed_orders import repaired
from relayout.infer.build import build
from relayout.infer.candidates import candidates
from relayout.infer.formulation import formulate
from relayout.infer.plans import plan
from relayout.infer.sites import Label, Site
from running import run
from text_form import model


def transposed_bytes(model: onnx.ModelProto) -> tuple[int, int]:
    """Transposes that move data and their bytes, counted in the graph as it is written."""
    shapes = {}
    inferred = onnx.shape_inference.infer_shapes(model)
    for value in (*inferred.graph.value_info, *inferred.graph.input, *inferred.graph.output):
        shapes[value.name] = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
    constants = {tensor.name for tensor in model.graph.initializer}
    found = []
    for node in model.graph.node:
        if node.op_type == "Transpose" and node.input[0] not in constants:
            shape = shapes[node.input[0]]
            perm = next(list(a.ints) for a in node.attribute if a.name == "perm")
            moved = [axis for axis in perm if shape[axis] != 1]
            if moved != sorted(moved):
                found.append(4 * int(np.prod(shape)))
    return len(found), sum(found)


def interface(model: onnx.ModelProto) -> list[tuple[str, bytes]]:
    return [(v.name, v.type.SerializeToString()) for v in (*model.graph.input, *model.graph.output)]


@pytest.mark.parametrize("block", range(10))
def test_same_numbers_and_the_bytes_that_the_report_says(block: int) -> None:
    for seed in range(block * 30, block * 30 + 30):
        model, feed = random_model(seed, steps=4 + seed % 12)
        want = run(model, feed)
        before, before_bytes = transposed_bytes(model)
        result = relayout.optimize(model)
        onnx.checker.check_model(result.proto, full_check=True)
        for expected, got in zip(want, run(result.proto, feed), strict=True):
            assert got.shape == expected.shape, seed
            np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5, err_msg=str(seed))
        assert interface(result.proto) == interface(model), seed
        after, after_bytes = transposed_bytes(result.proto)
        assert (after, after_bytes) == (result.report.transposes, result.report.bytes), seed
        assert (after <= before, after_bytes <= before_bytes) == (True, True), seed
        assert (result.report.source_transposes, result.report.source_bytes) == (before, before_bytes), seed
        assert result.report.proved, seed


MANY = 10**9
"""More than all bytes of a random graph."""


@pytest.mark.slow
def test_with_a_price_of_their_own_transposes_are_as_few_as_can_be() -> None:
    """Never more of them than the source has; by bytes alone there may be, where several small ones replace a large."""
    fewer = 0
    for seed in range(300):
        graph, feed = random_model(seed, steps=4 + seed % 12)
        free, dear = (relayout.optimize(graph, per_transpose=each) for each in (0, MANY))
        assert dear.report.proved, seed
        assert transposed_bytes(dear.proto) == (dear.report.transposes, dear.report.bytes), seed
        assert dear.report.transposes <= min(free.report.transposes, dear.report.source_transposes), seed
        if dear.report.transposes == free.report.transposes:
            assert dear.report.bytes == free.report.bytes, seed
            continue
        fewer += 1
        assert dear.report.bytes > free.report.bytes, seed
        for expected, got in zip(run(graph, feed), run(dear.proto, feed), strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5, err_msg=str(seed))
    assert fewer


STRETCHED = """
    g (float[2,8,9,3] x) => (float[2,3,8,9] y) {
        a = Transpose<perm=[0,3,1,2]>(x)
        b = Sub(a, mean)
        c = Div(b, mean)
        d = Mul(c, mean)
        y = Add(d, mean)
    }"""


def test_all_ties_together_are_less_than_a_transpose() -> None:
    """Whatever is not a byte or a Transpose only decides between plans that are alike in both."""
    graphs = [random_model(seed, steps=4 + seed % 12)[0] for seed in range(2000, 2060)]
    graphs.append(model(STRETCHED, mean=np.arange(1, 4, dtype=np.float32).reshape(3, 1, 1)))
    tied = 0
    for graph in graphs:
        problem = formulate(build(ir.from_proto(graph))).problem
        most = sum(max(cost % problem.unit for cost in costs) for costs in problem.costs)
        for value in problem.values:
            others = {order for port in (value.producer, *value.readers) for order in port.orders}
            most += value.weight % problem.unit * min(len(value.readers), len(others) - 1)
        assert most < problem.unit
        tied += most > 0
    assert tied > 30


def every_label(site: Site) -> list[Label]:
    everything = range(len(site.factors))
    if site.signature.variants:
        return [
            Label(order, variant)
            for variant in range(len(site.signature.variants))
            for order in dict.fromkeys(repaired(site, order) for order in itertools.permutations(everything))
        ][:200]
    return [Label(o) for o in dict.fromkeys(repaired(site, order) for order in itertools.permutations(everything))]


@pytest.mark.parametrize("per_transpose", [0, MANY])
@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("exchange", [False, True])
def test_candidate_orders_lose_nothing(keep: bool, per_transpose: int, exchange: bool) -> None:
    """The least cost over demanded orders equals the least cost over all orders of every operator."""
    compared = 0
    for seed in range(1000, 1080):
        model, _ = random_model(seed, steps=3 + seed % 5, rank=3)
        sites = build(ir.from_proto(model), keep_interface=keep, per_transpose=per_transpose, exchange=exchange)
        if any(len(site.factors) > 5 for site in sites.sites):
            continue
        chosen = plan(sites)
        found = candidates(sites)
        wide = replace(found, labels=[every_label(site) for site in sites.sites])
        best = plan(sites, time_limit=20, among=wide)
        assert best.proved, seed
        assert chosen.size == best.size, seed
        assert not per_transpose or len(chosen.crossings) == len(best.crossings), seed
        compared += 1
    assert compared > 30


def test_a_value_of_the_problem_has_ends_that_may_differ_and_each_once() -> None:
    """What could cost nothing is no value, and what costs nothing more is no end."""
    values = 0
    for seed in range(60):
        graph, _ = random_model(seed, steps=6 + seed % 18)
        for value in formulate(build(ir.from_proto(graph))).problem.values:
            ends = (value.producer, *value.readers)
            assert len(set(ends)) == len(ends) > 1
            assert len({order for port in ends for order in port.orders}) > 1
            values += 1
    assert values > 100
