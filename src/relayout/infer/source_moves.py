"""The source's own Transposes: what each moves, and how often."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import onnx_ir as ir

from relayout.graph.source_names import is_copied, label
from relayout.infer.graph_sites import Move
from relayout.infer.nesting import Inner, sure_runs
from relayout.infer.sites import Root, View, order_of
from relayout.rules import is_view


def source_moves(
    transposes: Iterable[tuple[ir.Node, View, View]], integers: Mapping[Root, Root], inners: Mapping[ir.Graph, Inner]
) -> tuple[list[Move], int]:
    """Return the source's Transposes that move data, and how many move nothing.

    Args:
        transposes: of the graph: the node, what it reads, and what it gives.
        integers: real numbers that are integers again behind views alone -> the integers: these are moved.
        inners: the bodies that are part of the problem.
    """
    moves: list[Move] = []
    places: dict[str, int] = {}
    idle = 0
    for node, before, after in transposes:
        if before.root.constant and before.root.value.producer() is None:
            continue
        given, order = order_of(before.form), order_of(after.form)
        if before.root.is_empty or given == order:
            idle += is_view(node) and not is_copied(node)
            continue
        moved = integers.get(before.root, before.root)
        times = sure_runs(inners, node.graph, before.root.graph)
        move = Move(node.outputs[0].name or "", moved, given, order, before.root, times)
        if not is_copied(node):
            places[label(node)] = len(moves)
            moves.append(move)
        elif moved is before.root and label(node) in places:
            # One reader of what the source moves once wants real numbers: these are what it moves.
            place = places[label(node)]
            moves[place] = move._replace(name=moves[place].name)
    return moves, idle
