"""Regions on random links: no Transpose inside one, connected, nothing left out; and the chart of real graphs."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest

import relayout
from infer.graphs import random_model
from relayout.reports.chart import Chart, Link, Side, regions

MODELS = Path(__file__).parents[2] / "models"


def random_links(seed: int) -> tuple[int, list[Link]]:
    rng = random.Random(seed)
    count = rng.randint(1, 12)
    pairs = [pair for pair in itertools.combinations(range(count), 2) if rng.random() < 0.3]
    return count, [Link(*pair, rng.choice([0, 1, 2, 3, 4]), rng.random() < 0.2) for pair in pairs]


def connected(nodes: tuple[int, ...], links: list[Link]) -> bool:
    reached, waiting = {nodes[0]}, [nodes[0]]
    while waiting:
        node = waiting.pop()
        for link in links:
            ends = {link.producer, link.reader}
            if node in ends and ends <= set(nodes) and not link.crosses:
                waiting += ends - reached
                reached |= ends
    return reached == set(nodes)


def test_regions_are_connected_and_no_transpose_lies_inside_one() -> None:
    together = 0
    for seed in range(500):
        count, links = random_links(seed)
        found = regions(count, links)
        assert sorted(node for nodes in found for node in nodes) == list(range(count))
        assert found == sorted(found)
        where = {node: number for number, nodes in enumerate(found) for node in nodes}
        crossing = {frozenset(link[:2]) for link in links if link.crosses}
        assert all(where[a] != where[b] for a, b in map(tuple, crossing))
        assert all(connected(nodes, links) for nodes in found)
        if not crossing:
            # Without a Transpose, all that values of several axes connect is together.
            assert all(where[link.producer] == where[link.reader] for link in links if link.factors > 1)
        together += any(len(nodes) > 2 for nodes in found)
    assert together > 100


def test_a_value_of_one_order_joins_no_two_layouts() -> None:
    """0 and 1 are images in one order, 3 and 4 in another, 2 a vector between them."""
    links = [Link(0, 1, 4, False), Link(1, 2, 1, False), Link(2, 3, 1, False), Link(3, 4, 4, False)]
    assert regions(5, links) == [(0, 1, 2), (3, 4)]


def assert_consistent(chart: Chart, side: Side) -> None:
    where = {spot: number for number, region in enumerate(side.regions) for spot in region.spots}
    assert set(where) == set(range(len(chart.spots)))
    assert {mark for edge in side.edges for mark in edge.through} == set(range(len(side.transposes)))
    for edge in side.edges:
        assert edge.value in chart.spots[edge.producer].outputs
        assert not edge.through or where[edge.producer] != where[edge.reader]


@pytest.mark.parametrize("seed", range(12))
def test_charts_of_random_graphs_are_consistent_and_count_what_the_report_counts(seed: int) -> None:
    model, _ = random_model(seed, 12)
    report = relayout.explain(model)
    assert_consistent(report.chart, report.chart.before)
    assert_consistent(report.chart, report.chart.after)
    after = report.chart.after.transposes
    assert (len(after), sum(mark.bytes for mark in after)) == (report.transposes, report.bytes)
    # A Transpose whose result nobody reads is in the count and not in the chart.
    assert len(report.chart.before.transposes) <= report.source_transposes


@pytest.mark.parametrize("name", ["tinynet_int8", "tinynet_float"])
def test_the_chart_of_a_network(name: str) -> None:
    report = relayout.explain(MODELS / f"{name}.tflite")
    chart = report.chart
    assert len(chart.before.transposes) == report.source_transposes
    assert sum(mark.bytes for mark in chart.before.transposes) == report.source_bytes
    first, rest = chart.after.regions
    assert (first.layout, rest.layout) == ("n h w c", "n c h w")
    assert (len(first.spots), len(rest.spots) > 10) == (1, True)
    assert {value.layout for value in chart.values if len(value.shape) == 4} == {"n h w c", "n c h w"}
    assert all(len(value.shape) == len(value.layout.split()) for value in chart.values if "(" not in value.layout)
    assert "DequantizeLinear" not in {s.operator for s in chart.spots if "weight" in s.name}


def test_control_flow_is_one_operator() -> None:
    from onnx import parser

    text = """<ir_version: 10, opset_import: ["": 21]>
g (bool c, float[2,3,4,5] x) => (float[2,5,3,4] y) {
    a = Transpose<perm=[0,3,1,2]>(x)
    b = If (c) <
        then_branch = t () => (float[2,5,3,4] u) { u = Relu(a) },
        else_branch = e () => (float[2,5,3,4] v) { v = Tanh(a) }
    >
    y = Sigmoid(b)
}"""
    report = relayout.explain(parser.parse_model(text))
    assert_consistent(report.chart, report.chart.after)
    operators = [spot.operator for spot in report.chart.spots]
    assert operators.count("If") == 1
    assert {"Relu", "Tanh", "Sigmoid"} <= set(operators)
