"""Keep masks of attentions apart from scores: `Softmax(scores + mask)`, where a mask is 0 or far below all scores.

Integers of one scale cannot hold both. Google's quantizer ignores infinities, so that nothing is masked, and gives
-10000 a scale in which all scores are 0. On the way to a Softmax of real numbers the sum stays real. On the way to a
Softmax of integers a masked place lies just so far below the least score that its share is 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import Model, Operator, Subgraph, array_content
from relayout.quantization.findings import VIEWS, numbers_of

Range = tuple[float, float]

HIGHEST = -64.0  # a constant that is added to scores is a mask from here down: Swin's is -100
LEAST_FACTOR = 1000.0  # a constant that makes a mask of `1 - kept` is at least this large
MOST = 1e30  # numbers from here on have no scale
DEPTH = {"int8": 10.0, "int16x8": 16.0}
"""Kind of quantization -> how far below all scores a place has no share, even where hundreds are masked."""
SUMS, CHOICES, LIMITS = ("ADD", "SUB"), ("SELECT", "SELECT_V2"), ("MAXIMUM", "MINIMUM")
MOVES = ("BROADCAST_TO", "GATHER", "SLICE", "STRIDED_SLICE", "TILE")
"""Operators that give some numbers of their first operand, each once or more often."""
COMPARISONS = ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL")
PASSED_ON = ("ABS", "MUL", "REDUCE_MAX", "REDUCE_MIN", *CHOICES)  # operators that may give an infinity that they read


def sums_with_masks(
    file: Model,  # a float file
    reals: Collection[str],  # results of operators that stay real
) -> list[str]:
    """Return the results of operators that mask the scores of a Softmax of real numbers."""
    graphs = [_MaskedGraph(graph, reals, None) for graph in file.subgraphs]
    return [each.graph.tensors[place].name for each in graphs for place in each.before(each.real_softmaxes)]


def tests_for_infinity(file: Model) -> dict[str, str]:
    """Return the results of operators that compare with infinity, and of those that pass it on to them."""
    results: dict[str, str] = {}
    for graph in file.subgraphs:
        producers = {each: row for row in graph.operators for each in row.outputs}
        waiting = [row for row in graph.operators if row.name in COMPARISONS and _reads_infinity(graph, row)]
        while waiting:
            row = waiting.pop()
            name = graph.tensors[row.outputs[0]].name
            if name not in results:
                results[name] = "integers are never infinite"
                before = [producers[each] for each in row.inputs if each in producers]
                waiting += [each for each in before if each.name in (*PASSED_ON, *VIEWS)]
    return results


def _reads_infinity(graph: Subgraph, row: Operator) -> bool:
    constants = [numbers for each in row.inputs if (numbers := numbers_of(graph, each)) is not None]
    return not all(np.isfinite(numbers).all() for numbers in constants)


def with_shallow_masks(
    file: Model,  # a float file
    reals: Collection[str],  # results of operators that stay real
    ranges: Mapping[str, Range],  # tensor -> its least and greatest number in samples
    kind: str,  # of quantization
) -> tuple[Model, dict[str, Range]]:
    """Return a file whose constants mask no deeper than a Softmax of integers needs, and new ranges of tensors."""
    graphs, limits = [], dict[str, Range]()
    for graph in file.subgraphs:
        shallow, own = _MaskedGraph(graph, reals, ranges).with_shallow_constants(DEPTH[kind])
        graphs.append(shallow)
        limits |= own
    is_same = all(one is other for one, other in zip(graphs, file.subgraphs, strict=True))
    return file if is_same else file._replace(subgraphs=tuple(graphs)), limits


class _MaskedGraph:
    """A graph of real numbers, its tensors that mask scores, and the ranges of these without the masking numbers.

    Args:
        graph: the graph.
        reals: results of operators that stay real.
        ranges: tensor -> its least and greatest number in samples, where they ran.
    """

    def __init__(self, graph: Subgraph, reals: Collection[str], ranges: Mapping[str, Range] | None) -> None:
        self.graph, self.reals, self.ranges = graph, reals, ranges
        softmaxes = [row for row in graph.operators if row.name == "SOFTMAX"]
        self.real_softmaxes = [row for row in softmaxes if graph.tensors[row.outputs[0]].name in reals]
        self.integer_softmaxes = [row for row in softmaxes if row not in self.real_softmaxes]
        self.masks: dict[int, Range] = {}  # tensor that masks -> its range where it does not
        self.rows: dict[int, Operator] = {}  # computed tensor that masks -> what computes it
        for index in range(len(graph.tensors)):
            if self._is_source(index):
                self.masks[index] = self._range(index)
        for row in graph.operators:
            if (scores := self._scores(row)) is not None:
                self.masks[row.outputs[0]] = scores
                self.rows[row.outputs[0]] = row

    def before(self, softmaxes: list[Operator]) -> dict[int, Operator]:
        """Return the computed tensors that mask before some Softmax operators."""
        waiting, rows = [row.inputs[0] for row in softmaxes], dict[int, Operator]()
        while waiting:
            tensor = waiting.pop()
            if tensor in self.rows and tensor not in rows:
                rows[tensor] = self.rows[tensor]
                waiting += rows[tensor].inputs
        return rows

    def with_shallow_constants(self, depth: float) -> tuple[Subgraph, dict[str, Range]]:
        """Return a graph with less deep constants before each Softmax of integers, and new ranges of its tensors."""
        rows = self.before(self.integer_softmaxes)
        ends = {row.inputs[0]: self.masks[row.inputs[0]] for row in self.integer_softmaxes if row.inputs[0] in rows}
        below = depth + max((high - low for low, high in ends.values()), default=0.0)
        floors = {tensor: low - depth for tensor, (low, _) in ends.items()}
        changes, limits = dict[tuple[int, int], NDArray[np.float32]](), dict[str, Range]()
        for number, row in enumerate(self.graph.operators):
            is_masked = row.outputs[0] in rows
            for slot, place in enumerate(row.inputs):
                numbers, name = numbers_of(self.graph, place), self.graph.tensors[place].name
                low, high = self.masks.get(place, (0.0, 0.0))
                if numbers is None and is_masked and place in self.masks:
                    seen = (self.ranges or {}).get(name, (low, high))  # a shifted score may be larger than the scores
                    limits[name] = (floors.get(place, low - below), max(high, min(seen[1], high + below)))
                elif numbers is not None and is_masked:
                    deepest = np.float32(low - below)
                    changes[number, slot] = np.clip(numbers, deepest, None if place in self.masks else -deepest)
                elif numbers is not None and (own_range := self._far_limit(row, numbers)) is not None:
                    changes[number, slot] = np.clip(numbers, np.float32(own_range[0]), np.float32(own_range[1]))
        for tensor in rows:
            name, (low, high) = self.graph.tensors[tensor].name, self.masks[tensor]
            seen = (self.ranges or {}).get(name, (low, high))
            limits[name] = (floors.get(tensor, low - below), max(high, min(seen[1], high + below)))
        return _with_constants(self.graph, changes), limits

    def _far_limit(self, row: Operator, numbers: NDArray[np.float32]) -> Range | None:
        """Return the range of what a limit far beyond it bounds, whose scale would be none; None of other operands."""
        name = self.graph.tensors[row.outputs[0]].name
        if row.name not in LIMITS or name in self.reals or np.abs(numbers).max(initial=0) <= MOST:
            return None
        return (self.ranges or {}).get(name)

    def _is_source(self, tensor: int) -> bool:
        """Return whether a constant or an input of the graph masks scores that it is added to."""
        numbers, own = numbers_of(self.graph, tensor), self.graph.tensors[tensor]
        if numbers is not None:
            return bool((numbers <= HIGHEST).any())
        is_fed = tensor in self.graph.inputs and own.type == TensorType.FLOAT32
        return is_fed and (self.ranges is None or self.ranges.get(own.name, (0.0, 0.0))[0] <= -LEAST_FACTOR)

    def _range(self, tensor: int) -> Range:
        """Return the least and the greatest number of a tensor, without those of a constant that mask."""
        if tensor in self.masks:
            return self.masks[tensor]
        numbers = numbers_of(self.graph, tensor)
        if numbers is None:
            low, high = (self.ranges or {}).get(self.graph.tensors[tensor].name, (0.0, 0.0))
            return (0.0, max(high, 0.0)) if self._is_source(tensor) else (low, high)
        scores = numbers[numbers > HIGHEST]
        return (float(scores.min()), float(scores.max())) if scores.size else (0.0, 0.0)

    def _scores(self, row: Operator) -> Range | None:
        """Return the range of a result where it does not mask; None where it never does."""
        seen = (self.ranges or {}).get(self.graph.tensors[row.outputs[0]].name, (-np.inf, np.inf))
        if row.name == "MUL":
            factors = [numbers for each in row.inputs if (numbers := numbers_of(self.graph, each)) is not None]
            has_mask = any(np.abs(each).max(initial=0) >= LEAST_FACTOR for each in factors)
            return (0.0, 0.0) if has_mask and self._is_share(row) else None
        operands = _values(row)
        if not any(each in self.masks for each in operands):
            return None
        if row.name in SUMS:
            first, second = map(self._range, operands)
            second = second if row.name == "ADD" else (-second[1], -second[0])
            return (max(first[0] + second[0], seen[0]), min(first[1] + second[1], seen[1]))
        ranges = [self._range(each) for each in operands if not self._is_all_mask(each)] or [(0.0, 0.0)]
        return (min(low for low, _ in ranges), max(high for _, high in ranges))

    def _is_share(self, row: Operator) -> bool:
        """Return whether the computed operands of a product lie between 0 and 1, as far as samples ran."""
        names = [self.graph.tensors[each].name for each in row.inputs if numbers_of(self.graph, each) is None]
        ranges = [(self.ranges or {}).get(name, (0.0, 1.0)) for name in names]
        return all(low >= 0 and high <= 1 for low, high in ranges)

    def _is_all_mask(self, tensor: int) -> bool:
        numbers = numbers_of(self.graph, tensor)
        return numbers is not None and bool((numbers <= HIGHEST).all())


def _values(row: Operator) -> tuple[int, ...]:
    """Return the operands whose numbers an operator gives on."""
    if row.name in (*SUMS, "MAXIMUM", "CONCATENATION"):
        return row.inputs
    if row.name in CHOICES:
        return row.inputs[1:]
    return row.inputs[:1] if row.name in (*VIEWS, *MOVES) else ()


def _with_constants(graph: Subgraph, changes: Mapping[tuple[int, int], NDArray[np.float32]]) -> Subgraph:
    """Return a graph with other constants for some operands, by the place of an operator and of its operand."""
    tensors, operators = list(graph.tensors), list(graph.operators)
    readers = Counter(each for row in graph.operators for each in row.inputs)
    for (number, slot), numbers in changes.items():
        own, inputs = graph.tensors[graph.operators[number].inputs[slot]], list(operators[number].inputs)
        if readers[own.index] == 1:
            tensors[own.index] = replace(own, data=array_content(numbers))
            continue
        inputs[slot], name = len(tensors), f"{own.name}/{len(tensors)}"
        tensors.append(replace(own, index=len(tensors), name=name, data=array_content(numbers)))
        operators[number] = operators[number]._replace(inputs=tuple(inputs))
    return graph._replace(tensors=tuple(tensors), operators=tuple(operators)) if changes else graph
