"""Do the calls of a model's functions end, and is what they spell out small enough to be read?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain

import onnx

from relayout.errors import ReadError
from relayout.formats.onnx.bodies import all_nodes

MOST_CALLS = 100
"""Calls within calls: exporters stay below a tenth of it."""
MOST_NODES = 2_000_000
"""Nodes of a model with all calls of its functions spelled out."""


def refuse_endless_calls(model: onnx.ModelProto) -> None:
    """Refuse functions that call themselves, are too large spelled out, or give fewer outputs than a call asks for."""
    _refuse_recursion(model)
    _refuse_expansion(model)
    _refuse_more_results(model)


def _refuse_recursion(model: onnx.ModelProto) -> None:
    calls = {(f.domain, f.name): list(_operators(f.node)) for f in model.functions}
    finished: dict[tuple[str, str], int] = {}  # how deep the calls go from there
    for start in calls:
        path: list[tuple[str, str]] = []
        stack = [(start, False)]
        while stack:
            function, leaving = stack.pop()
            if leaving:
                path.pop()
                deep = finished[function] = 1 + max((finished.get(called, 0) for called in calls[function]), default=0)
                if deep > MOST_CALLS:
                    what = f"functions call each other more than {MOST_CALLS} deep"
                    raise ReadError(what, where=f"function '{function[1]}'")
            elif function in path:
                raise ReadError("the function calls itself", where=f"function '{function[1]}'")
            elif function in calls and function not in finished:
                path.append(function)
                stack += [(function, True), *((called, False) for called in calls[function])]


def _refuse_expansion(model: onnx.ModelProto) -> None:
    """Shape inference and runtimes spell calls out: a function that calls another twice, which calls a third twice, and
    so on, makes a short file of any size.
    """
    bodies = {(f.domain, f.name): Counter(_operators(f.node)) for f in model.functions}
    sizes: dict[tuple[str, str], int] = {}
    waiting = list(bodies)
    while waiting:
        function = waiting[-1]
        inner = [called for called in bodies[function] if called in bodies and called not in sizes]
        if inner:
            waiting += inner
            continue
        sizes[waiting.pop()] = sum(count * sizes.get(called, 1) for called, count in bodies[function].items())
    size = sum(sizes.get(called, 1) for called in _operators(model.graph.node))
    if size > MOST_NODES:
        raise ReadError(f"the calls of functions spelled out are {size} nodes; more than {MOST_NODES} are not read")


def _refuse_more_results(model: onnx.ModelProto) -> None:
    """Refuse calls that ask for more outputs than the function has."""
    most: dict[tuple[str, str], int] = {}
    for function in model.functions:  # overloads have one name
        key = function.domain, function.name
        most[key] = max(len(function.output), most.get(key, 0))
    for node in chain.from_iterable(all_nodes(f.node) for f in (model.graph, *model.functions)):
        given = most.get((node.domain, node.op_type))
        if given is not None and len(node.output) > given:
            what = f"{len(node.output)} outputs are asked of a function that has {given}"
            raise ReadError(what, where=f"{node.op_type} '{node.name or node.output[0]}'")


def _operators(nodes: Iterable[onnx.NodeProto]) -> Iterator[tuple[str, str]]:
    return ((node.domain, node.op_type) for node in all_nodes(nodes))
