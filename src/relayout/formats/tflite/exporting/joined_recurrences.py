"""Small recurrent operators that do not wait for each other as one, whose state holds those of all.

    f = GRU(x)                             fs = GRU(Concat(x, x backward, z))
    b = backward GRU(x)              ->    f, b, g = parts of fs, b's backward again
    g = GRU(z)

The weights of the one have those of each as a block, and zeros elsewhere. A step of a small state takes its time for
the number of its operators, not for their products: of two directions of 4 elements and 33 steps both take 0.56 of
their time in LiteRT, of 16 elements 0.66, of 32 elements more than before.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.formats.onnx.replacing import Writing
from relayout.formats.tflite.exporting.operators.recurrent_loop import STEPS
from relayout.formats.tflite.exporting.recurrent_operands import (
    BIAS,
    GATES,
    KERNEL,
    LENGTHS,
    RECURRENT,
    SEQUENCE,
    STATES,
    activations_of,
    is_recurrent,
    misfit_of,
)
from relayout.graph.source_names import Names
from relayout.graph.subgraphs import bodies

MOST_BYTES = 1 << 14
"""Bytes of the weights of a joint state: beyond, its products with zeros take longer than operators."""
LEAST_VERSION = 10
"""The version of ONNX from which on a Slice goes backward."""
KEPT = ("clip", "input_forget", "linear_before_reset")
"""Attributes that the one has from those that it stands for."""
LAST = np.iinfo(np.int64).max
Array = NDArray[np.float32]


class Run(NamedTuple):
    """One direction of a recurrent operator; its weights are those of one gate after the other."""

    node: ir.Node
    sequence: ir.Value  # what it reads: `length rows elements`
    is_backward: bool
    kernel: Array  # `gates·hidden elements`
    recurrent: Array  # `gates·hidden hidden`
    biases: Array  # `2·gates·hidden`

    @property
    def hidden(self) -> int:
        """Elements of the state."""
        return int(self.recurrent.shape[1])


def join_recurrences(model: ir.Model, names: Names) -> bool:
    """Let small recurrent operators that do not wait for each other be one, in place; return whether there were any.

    They are written step by step, have as many steps and rows and the same activations, begin with zeros, and their
    weights are constants.
    """
    version, groups = model.opset_imports.get("", 1), dict[object, list[list[Run]]]()
    for node, level in _recurrences(model.graph) if version >= LEAST_VERSION else ():
        if runs := _runs_of(node):
            group = groups.setdefault((level, *_kind_of(node)), [[]])
            if _joint_bytes([*group[-1], *runs]) > MOST_BYTES:
                group.append([])
            group[-1] += runs
    joined = [runs for group in groups.values() for runs in group if len(runs) > 1 and _joint_bytes(runs) <= MOST_BYTES]
    for runs in joined:
        _Join(model.graph, runs[-1].node, names, version).run(runs)
    if joined:
        model.graph.sort()
    return bool(joined)


def _recurrences(graph: ir.Graph) -> Iterator[tuple[ir.Node, int]]:
    """Yield recurrent nodes, each with how many of them wait for each other before it: none waits for one as deep."""
    depths, deepest = dict[ir.Value, int](), 0
    for node in graph:
        before = [depths.get(value, 0) for value in node.inputs if value is not None]
        depth = deepest if bodies(node) else max(before, default=0)
        if is_recurrent(node):
            yield node, depth
            depth += 1
        deepest = max(deepest, depth)
        depths.update(dict.fromkeys(node.outputs, depth))


def _runs_of(node: ir.Node) -> list[Run]:
    """Return the directions of a node that others may join; none if they may not."""
    x, has_others = node.inputs[SEQUENCE], any(value is not None for value in node.inputs[LENGTHS:])
    has_numbers = "activation_alpha" in node.attributes or "activation_beta" in node.attributes
    is_batch_first = node.attributes.get_int("layout", 0) == 1
    if misfit_of(node) or not node.meta[STEPS] or has_others or has_numbers:
        return []
    if is_batch_first or x is None or x.shape is None:
        return []
    kernel, recurrent = _constant(node, KERNEL), _constant(node, RECURRENT)
    if kernel is None or recurrent is None or not isinstance(x.shape[0], int) or x.shape[0] < 2:
        return []
    has_biases = len(node.inputs) > BIAS and node.inputs[BIAS] is not None
    biases = _constant(node, BIAS) if has_biases else np.zeros((len(kernel), 2 * kernel.shape[1]), np.float32)
    if biases is None or activations_of(node, 0) != activations_of(node, len(kernel) - 1):
        return []
    is_reverse = node.attributes.get_string("direction", "forward") == "reverse"
    rows = enumerate(zip(kernel, recurrent, biases, strict=True))
    return [Run(node, x, is_reverse or number == 1, *each) for number, each in rows]


def _constant(node: ir.Node, slot: int) -> Array | None:
    """Return an operand that is a small constant."""
    value = node.inputs[slot]
    constant = None if value is None or value.is_graph_input() else value.const_value
    if constant is None or constant.dtype != ir.DataType.FLOAT or constant.nbytes > 4 * MOST_BYTES:
        return None
    array: Array = constant.numpy()
    return array


def _kind_of(node: ir.Node) -> tuple[object, ...]:
    """Return what operators that are one have in common."""
    x, attributes = node.inputs[SEQUENCE], node.attributes
    assert x is not None
    assert x.shape is not None
    attribute_texts = [str(attributes[name].value) if name in attributes else "" for name in KEPT]
    return (node.op_type, str(x.shape[0]), str(x.shape[1]), *attribute_texts, str(activations_of(node, 0)))


def _joint_bytes(runs: Sequence[Run]) -> int:
    return GATES[runs[0].node.op_type] * sum(run.hidden for run in runs) ** 2 * np.dtype(np.float32).itemsize


def _blocks(arrays: Sequence[Array], gates: int) -> Array:
    """Return weights of a joint state, `1 rows elements`: those of each on the diagonal, gate after gate."""
    sizes = [(len(array) // gates, array.shape[1]) for array in arrays]
    joint = np.zeros((gates, *np.sum(sizes, 0)), np.float32)
    row, column = 0, 0
    for array, (rows, columns) in zip(arrays, sizes, strict=True):
        joint[:, row : row + rows, column : column + columns] = array.reshape(gates, rows, columns)
        row, column = row + rows, column + columns
    return joint.reshape(1, -1, joint.shape[2])


class _Join(Writing):
    """Several directions as one operator, before the last of their nodes."""

    def run(self, runs: Sequence[Run]) -> None:
        """Let the operator take the place of all nodes of the directions."""
        gates = GATES[self.node.op_type]
        weights = [_blocks([run.kernel for run in runs], gates), _blocks([run.recurrent for run in runs], gates)]
        biases = np.concatenate([run.biases.reshape(2 * gates, -1) for run in runs], 1).reshape(1, -1)
        attributes = {name: self.node.attributes[name].value for name in KEPT if name in self.node.attributes}
        attributes |= {
            "activations": [name for name, _ in activations_of(self.node, 0)],
            "hidden_size": weights[1].shape[2],
        }
        inputs = [self._sequences(runs), *map(self.constant, (*weights, biases))]
        joint = self.add_many(self.node.op_type, inputs, 1 + STATES[self.node.op_type], **attributes)
        places = zip(runs, np.cumsum([0, *(run.hidden for run in runs)]).tolist(), strict=False)
        for node, own in groupby(places, lambda each: each[0].node):
            parts = list(own)
            results = [
                self._result(joint[slot], slot, parts) if output.uses() or output.is_graph_output() else None
                for slot, output in enumerate(node.outputs)
            ]
            Writing(self.graph, node, self.names, self.version).finish(results)

    def _sequences(self, runs: Sequence[Run]) -> ir.Value:
        """Return what the directions read, beside each other in the order in which they run."""
        turned: dict[tuple[ir.Value, bool], ir.Value] = {}
        for run in runs:
            turned.setdefault((run.sequence, False), run.sequence)
            if run.is_backward and (run.sequence, True) not in turned:
                turned[run.sequence, True] = self._part(run.sequence, {0: (-1, -LAST)})
        x = self.add("Concat", [turned[run.sequence, run.is_backward] for run in runs], axis=2)
        shape, elements = runs[0].sequence.shape, sum(run.kernel.shape[1] for run in runs)
        x.shape, x.type = ir.Shape([*(shape or ())[:2], elements]), runs[0].sequence.type
        return x

    def _result(self, joint: ir.Value, slot: int, parts: Sequence[tuple[Run, int]]) -> ir.Value:
        """Return what a node gives, of all steps in the first slot, of which each direction has a part."""
        results = []
        for run, begin in parts:
            ends = {(2 if slot else 3): (begin, begin + run.hidden)}
            results.append(self._part(joint, ends | ({0: (-1, -LAST)} if run.is_backward and not slot else {})))
        return results[0] if len(results) == 1 else self.add("Concat", results, axis=0 if slot else 1)

    def _part(self, value: ir.Value, ends: dict[int, tuple[int, int]]) -> ir.Value:
        """Return a part of a value, from one element of an axis to before another; from -1 on it is turned round."""
        begins = [begin for begin, _ in ends.values()]
        numbers = (begins, [end for _, end in ends.values()], list(ends), [-1 if each < 0 else 1 for each in begins])
        return self.add("Slice", [value, *(self.constant(np.array(each, np.int64)) for each in numbers)])
