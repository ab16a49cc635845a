"""Transposes as the kernels of a target do them best.

A kernel that copies whole runs where the innermost axis stays, and moves one axis in blocks, may have nothing but
single elements to copy where the innermost axis moves while others change places, too: `a b c d e -> a c e b d`. In two
steps, `a b c d e -> (a c) (b d) e -> (a c) e (b d)`, every byte moves twice, and none by itself.
"""

from __future__ import annotations

from math import prod

import numpy as np
import onnx_ir as ir

from relayout.apply.value_store import SHAPE_IS_INPUT
from relayout.graph.subgraphs import all_nodes, become
from relayout.layout.perm import innermost
from relayout.lowering.constants import Constants
from relayout.rules import Facts, Permuted
from relayout.rules.facts import operator_of

LEAST_ELEMENTS = 4096  # of a value for which a second step is worth three more nodes, some microseconds


def split_transposes(
    model: ir.Model,  # the model. What has dynamic extents stays as it is.
    least_run: int,  # the shortest run, in elements, for which two steps are faster
) -> tuple[str, ...]:
    """Do Transposes that move the innermost axis among others in two steps: runs first, then that axis alone, in place.

    Returns:
        A sentence for the report, where there are any.
    """
    if model.opset_imports.get("", 1) < SHAPE_IS_INPUT:
        return ()
    constants, known = Constants(model), Facts()
    moving = ((node, known.of(operator_of(model, node))) for node in list(all_nodes(model.graph)))
    permuted = ((node, fact.perm) for node, fact in moving if isinstance(fact, Permuted))
    divided = [node for node, perm in permuted if _divide(constants, node, perm, least_run)]
    values = [node.outputs[0] for node in divided]
    size = int(sum(prod(each.shape.numpy()) * each.dtype.itemsize for each in values if each.shape and each.dtype))
    many = f"{len(divided)} ({size:,} bytes more, in runs)"
    return (f"Transposes that move the innermost axis among others, in two steps: {many}",) if divided else ()


def _divide(constants: Constants, node: ir.Node, perm: tuple[int, ...], least: int) -> bool:
    """Do a Transpose in two steps, where that pays; it is the last node of them then."""
    value, inner = node.outputs[0], innermost(perm)
    if not inner or value.shape is None or not value.shape.is_static():
        return False
    shape = value.shape.numpy()
    place = perm.index(inner[0])
    behind = place + len(inner)
    outer, run, rest = prod(shape[:place]), prod(shape[place:behind]), prod(shape[behind:])
    if run < least or outer * run * rest < LEAST_ELEMENTS:
        return False

    def extents(*numbers: int) -> ir.Value:
        return constants.new(f"{value.name}/shape", np.array(numbers, np.int64))

    def result(*numbers: int) -> ir.Value:
        return ir.Value(name=f"{value.name}/runs", shape=ir.Shape(numbers), type=value.type)

    runs = result(*shape[:place], *shape[behind:], *shape[place:behind])
    moved = ir.AttrInt64s("perm", [*perm[:place], *perm[behind:], *inner])
    step = constants.insert(node, "Transpose", [node.inputs[0]], runs, moved)
    step = constants.insert(node, "Reshape", [step, extents(outer, rest, run)], result(outer, rest, run))
    step = constants.insert(node, "Transpose", [step], result(outer, run, rest), ir.AttrInt64s("perm", (0, 2, 1)))
    become(node, "", "Reshape", [step, extents(*shape)])
    return True
