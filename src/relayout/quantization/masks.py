"""Keep masks of attentions apart from scores: `Softmax(scores + mask)`, where a mask is 0 or far below all scores.

Integers of one scale cannot hold both. Google's quantizer ignores infinities, so that nothing is masked, and gives
-10000 a scale in which all scores are 0. On the way to a Softmax of real numbers the sum stays real. On the way to a
Softmax of integers a masked place lies just so far below the least score that its share is 0.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import Model, Operator, Subgraph, Tensor, array_content
from relayout.quantization.findings import VIEWS

Range = tuple[float, float]

HIGHEST = -64.0  # a constant that is added to scores is a mask from here down: Swin's is -100
LEAST_FACTOR = 1000.0  # a constant that makes a mask of `1 - kept` is at least this large
MOST = 1e30  # numbers from here on have no scale
DEPTH = {"int8": 10.0, "int16x8": 16.0}
"""Kind of quantization -> how far below all scores a place has no share, even where hundreds are masked."""
SUMS, CHOICES, LIMITS = ("ADD", "SUB"), ("SELECT", "SELECT_V2"), ("MAXIMUM", "MINIMUM")
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
    constants = [numbers for each in row.inputs if (numbers := _numbers(graph, each)) is not None]
    return not all(np.isfinite(numbers).all() for numbers in constants)


def _numbers(graph: Subgraph, tensor: int) -> NDArray[np.float32] | None:
    """Return the numbers of a constant of real numbers; None of any other tensor."""
    own = graph.tensors[tensor] if tensor >= 0 else None
    if own is None or own.data is None or own.type != TensorType.FLOAT32:
        return None
    return own.content.view(np.float32).reshape(own.shape)


def with_shallow_masks(
    file: Model,  # a float file
    reals: Collection[str],  # results of operators that stay real
    ranges: Mapping[str, Range],  # tensor -> its least and greatest number in samples
    kind: str,  # of quantization
) -> tuple[Model, dict[str, Range]]:
    """Return a file whose constants mask no deeper than a Softmax of integers needs, and new ranges of tensors."""
    graphs, limits = [], dict[str, Range]()
    for graph in file.subgraphs:
        shallow, own = _MaskedGraph(graph, reals, ranges).shallow(DEPTH[kind])
        graphs.append(shallow)
        limits |= own
    is_same = all(one is other for one, other in zip(graphs, file.subgraphs, strict=True))
    return file if is_same else file._replace(subgraphs=tuple(graphs)), limits


class _MaskedGraph:
    """A graph of real numbers, and what each of its tensors has besides numbers that mask scores.

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

    def shallow(self, depth: float) -> tuple[Subgraph, dict[str, Range]]:
        """Return a graph with less deep constants before each Softmax of integers, and new ranges of its tensors."""
        rows = self.before(self.integer_softmaxes)
        ends = {row.inputs[0]: self.masks[row.inputs[0]] for row in self.integer_softmaxes if row.inputs[0] in rows}
        below = depth + max((high - low for low, high in ends.values()), default=0.0)
        floors = {tensor: low - depth for tensor, (low, _) in ends.items()}
        tensors, limits = list(self.graph.tensors), dict[str, Range]()
        for place in sorted({*rows, *(each for row in rows.values() for each in row.inputs)} - {-1}):
            numbers, (low, high) = _numbers(self.graph, place), self.masks.get(place, (0.0, 0.0))
            if numbers is not None:
                deepest = np.float32(low - below)
                shallow = np.clip(numbers, deepest, None if place in self.masks else -deepest)
                tensors[place] = replace(tensors[place], data=array_content(shallow))
            elif place in self.masks:
                seen = (self.ranges or {}).get(tensors[place].name, (low, high))  # a factor of a difference is above
                limits[tensors[place].name] = (floors.get(place, low - below), max(high, min(seen[1], high + below)))
        self._bound_limits(tensors, [row for row in self.graph.operators if row.outputs[0] not in rows])
        is_same = all(one is other for one, other in zip(tensors, self.graph.tensors, strict=True))
        return self.graph if is_same else self.graph._replace(tensors=tuple(tensors)), limits

    def _bound_limits(self, tensors: list[Tensor], rows: list[Operator]) -> None:
        """Bound limits far beyond a result, which would have a scale that is none, by its range, in place."""
        for row in rows:
            name = tensors[row.outputs[0]].name
            own_range = None if row.name not in LIMITS or name in self.reals else (self.ranges or {}).get(name)
            for place in row.inputs if own_range is not None else ():
                numbers = _numbers(self.graph, place)
                if own_range is not None and numbers is not None and np.abs(numbers).max(initial=0) > MOST:
                    bounded = np.clip(numbers, np.float32(own_range[0]), np.float32(own_range[1]))
                    tensors[place] = replace(tensors[place], data=array_content(bounded))

    def _is_source(self, tensor: int) -> bool:
        """Return whether a constant or an input of the graph masks scores that it is added to."""
        numbers, own = _numbers(self.graph, tensor), self.graph.tensors[tensor]
        if numbers is not None:
            return bool((numbers <= HIGHEST).any())
        is_fed = tensor in self.graph.inputs and own.type == TensorType.FLOAT32
        return is_fed and (self.ranges is None or self.ranges.get(own.name, (0.0, 0.0))[0] <= -LEAST_FACTOR)

    def _range(self, tensor: int) -> Range:
        """Return the least and the greatest number of a tensor, without those of a constant that mask."""
        if tensor in self.masks:
            return self.masks[tensor]
        numbers = _numbers(self.graph, tensor)
        if numbers is None:
            low, high = (self.ranges or {}).get(self.graph.tensors[tensor].name, (0.0, 0.0))
            return (0.0, max(high, 0.0)) if self._is_source(tensor) else (low, high)
        scores = numbers[numbers > HIGHEST]
        return (float(scores.min()), float(scores.max())) if scores.size else (0.0, 0.0)

    def _scores(self, row: Operator) -> Range | None:
        """Return the range of a result where it does not mask; None where it never does."""
        seen = (self.ranges or {}).get(self.graph.tensors[row.outputs[0]].name, (-np.inf, np.inf))
        if row.name == "MUL":
            factors = [numbers for each in row.inputs if (numbers := _numbers(self.graph, each)) is not None]
            has_mask = any(np.abs(each).max(initial=0) >= LEAST_FACTOR for each in factors)
            return (0.0, 0.0) if has_mask else None
        operands = _values(row)
        if not any(each in self.masks for each in operands):
            return None
        if row.name in SUMS:
            first, second = map(self._range, operands)
            second = second if row.name == "ADD" else (-second[1], -second[0])
            return (max(first[0] + second[0], seen[0]), min(first[1] + second[1], seen[1]))
        ranges = [self._range(each) for each in operands if not self._is_all_mask(each)] or [(0.0, 0.0)]
        return (min(low for low, _ in ranges), max(high for _, high in ranges))

    def _is_all_mask(self, tensor: int) -> bool:
        numbers = _numbers(self.graph, tensor)
        return numbers is not None and bool((numbers <= HIGHEST).all())


def _values(row: Operator) -> tuple[int, ...]:
    """Return the operands whose numbers an operator gives on."""
    if row.name in (*SUMS, "MAXIMUM"):
        return row.inputs
    if row.name in CHOICES:
        return row.inputs[1:]
    return row.inputs[:1] if row.name in VIEWS else ()
