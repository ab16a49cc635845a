"""The nodes of a graph in the order of the result: kept, moved, new and removed ones."""

from __future__ import annotations

import random

import onnx_ir as ir
import pytest

from relayout.apply.node_changes import arrange


def node(name: str) -> ir.Node:
    return ir.Node("", "Relu", [None], name=name)


@pytest.mark.parametrize("seed", range(40))
def test_a_graph_has_the_wanted_nodes_in_order(seed: int) -> None:
    rng = random.Random(seed)
    there = [node(f"n{k}") for k in range(rng.randrange(9))]
    graph = ir.Graph([], [], nodes=there)
    kept = [each for each in there if rng.random() < 0.7]
    if seed % 2:
        rng.shuffle(kept)
    wanted = list(kept)
    for k in range(rng.randrange(5)):
        wanted.insert(rng.randrange(len(wanted) + 1), node(f"m{k}"))
    arrange(graph, wanted)
    assert list(graph) == wanted
    assert all(each.graph is graph for each in wanted)
    assert all(each.graph is None for each in there if each not in wanted)


def test_what_stays_is_not_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    there = [node(f"n{k}") for k in range(4)]
    graph = ir.Graph([], [], nodes=there)
    removed: list[ir.Node] = []
    monkeypatch.setattr(ir.Graph, "remove", lambda self, nodes: removed.extend(nodes))
    arrange(graph, [there[0], node("new"), *there[1:]])
    assert not removed
    assert [each.name for each in graph] == ["n0", "new", "n1", "n2", "n3"]
