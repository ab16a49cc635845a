"""Keep masks apart from scores: `Softmax(scores + mask)`, where a mask is 0 or far below all scores; also of a Sigmoid.

Integers of one scale cannot hold both. Google's quantizer ignores infinities, so that nothing is masked, and gives
-10000 a scale in which all scores are 0. On the way to a Softmax of real numbers the sum stays real. On the way to one
of integers a masked place lies just so far below the least score that its share is 0. What counts is how deep the
Softmax sees a mask: `(scores + mask) * 0.5` halves it, and `scores - mask` turns its sign.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from math import copysign, inf

import numpy as np
from numpy.typing import NDArray

from relayout.formats.tflite.builtin_traits import COMPARISONS, LIMITS, SUMS, selected_operands
from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import Model, Operator, Subgraph, Tensor, array_content
from relayout.quantization.findings import numbers_of, operators_before, with_constants

Range = tuple[float, float]
Changes = dict[tuple[int, int], Tensor]  # places of an operator and of its operand -> another constant

HIGHEST = -64.0  # a constant that is added to scores is a mask from here down: Swin's is -100
LEAST_FACTOR = 1000.0  # a constant that makes a mask of `1 - kept` is at least this large
MOST = 1e30  # numbers from here on have no scale
IGNORED = float(np.finfo(np.float32).max)  # a number that the quantizer leaves out of ranges
DEPTH = {"int8": 10.0, "int16x8": 16.0}
"""Kind of quantization -> how far below all scores a place has no share, even where hundreds are masked."""
FLOORS: Mapping[str, Callable[[float, float], float]] = {
    "LOGISTIC": lambda low, depth: min(low, -depth),
    "SOFTMAX": lambda low, depth: low - depth,
}
"""Operator that masks end at -> the number to which it sees them go down, of the least score and the depth."""
BIASED, BIAS = ("CONV_2D", "FULLY_CONNECTED"), 2  # operators that add a constant bias, which may mask, and its place


def sums_with_masks(
    file: Model,  # a float file
    reals: Collection[str],  # results of operators that stay real
) -> list[str]:
    """Return the results of operators that mask the scores of a Softmax of real numbers."""
    graphs = [_MaskedGraph(graph, reals, None, are_real=True) for graph in file.subgraphs]
    rows = [(each.graph, row) for each in graphs for row in each.rows if row.name not in BIASED]
    return [graph.tensors[each].name for graph, row in rows for each in row.outputs]


def tests_for_infinity(file: Model) -> dict[str, str]:
    """Return the results of operators that compare with infinity, and of those that pass it on to them."""
    results = list[str]()
    for graph in file.subgraphs:
        tests = [row for row in graph.operators if row.name in COMPARISONS and _reads_infinity(graph, row)]
        before = operators_before(
            graph,
            [each for row in tests for each in row.inputs],
            lambda row: row.inputs if row.name in ("ABS", "MUL") else selected_operands(row),
        )
        results += [graph.tensors[each].name for row in (*tests, *before) for each in row.outputs]
    return dict.fromkeys(results, "integers are never infinite")


def _reads_infinity(graph: Subgraph, row: Operator) -> bool:
    constants = [numbers for each in row.inputs if (numbers := numbers_of(graph, each)) is not None]
    return not all(np.isfinite(numbers).all() for numbers in constants)


def with_ignored_biases(file: Model) -> Model:
    """Return a file for samples, whose ranges are without the masks in biases of products."""
    graphs = [_MaskedGraph(graph, (), None, are_real=False) for graph in file.subgraphs]
    return file._replace(subgraphs=tuple(with_constants(each.graph, each.ignored_biases()) for each in graphs))


def with_shallow_masks(
    file: Model,  # a float file
    reals: Collection[str],  # results of operators that stay real
    ranges: Mapping[str, Range],  # tensor -> its least and greatest number in samples
    kind: str,  # of quantization
) -> tuple[Model, dict[str, Range]]:
    """Return a file whose constants mask no deeper than a Softmax of integers needs, and new ranges of tensors."""
    graphs, limits = list[Subgraph](), dict[str, Range]()
    for graph in file.subgraphs:
        changes = _near_limits(graph, reals, ranges)
        for are_real in (True, False):
            _MaskedGraph(graph, reals, ranges, DEPTH[kind], are_real=are_real).make_shallow(changes, limits)
        graphs.append(with_constants(graph, changes))
    return file._replace(subgraphs=tuple(graphs)), limits


def _near_limits(graph: Subgraph, reals: Collection[str], ranges: Mapping[str, Range]) -> Changes:
    """Return limits no farther than the range of what they bound: the scale of one far beyond it would be none."""
    changes: Changes = {}
    for number, row in [each for each in enumerate(graph.operators) if each[1].name in LIMITS]:
        name = graph.tensors[row.outputs[0]].name
        for slot, place in enumerate(row.inputs if name in ranges and name not in reals else ()):
            numbers = numbers_of(graph, place)
            if numbers is not None and np.abs(numbers).max(initial=0) > MOST:
                changes[number, slot] = _with_numbers(graph.tensors[place], np.clip(numbers, *ranges[name]))
    return changes


def _with_numbers(tensor: Tensor, numbers: NDArray[np.floating]) -> Tensor:
    return replace(tensor, data=array_content(np.asarray(numbers, np.float32)))


class _MaskedGraph:
    """A graph of real numbers, its tensors that mask scores, and the ranges of these without the masking numbers.

    Args:
        graph: the graph.
        reals: results of operators that stay real.
        ranges: tensor -> its least and greatest number in samples, where they ran.
        depth: how far below all scores a place has no share.
        are_real: True of masks that end at operators that stay real, False of all others.
    """

    def __init__(
        self,
        graph: Subgraph,
        reals: Collection[str],
        ranges: Mapping[str, Range] | None,
        depth: float = 0.0,
        *,
        are_real: bool,
    ) -> None:
        self.graph, self.ranges, self.are_real = graph, ranges, are_real
        ends = [row for row in graph.operators if row.name in FLOORS]
        ends = [row for row in ends if (graph.tensors[row.outputs[0]].name in reals) == are_real]
        self.factors = {row.inputs[0]: 1.0 for row in ends}  # tensor -> by what an end sees it multiplied, at least
        for row in reversed(graph.operators):
            for place, own in self._steps(row):
                factor = own * self._least_factor(row)
                if abs(factor) < abs(self.factors.get(place, inf)):
                    self.factors[place] = factor
        self.masks = dict[int, Range]()  # tensor that masks -> its range where it does not
        self.masks |= {place: self._range(place) for place in self.factors if self._is_source(place)}
        self.rows: list[Operator] = []  # operators that compute such tensors
        for row in graph.operators:
            if (scores := self._scores(row)) is not None:
                self.masks |= {each: scores for each in row.outputs if each in self.factors}
                self.rows.append(row)
        lowest = {row.inputs[0]: FLOORS[row.name] for row in ends if row.inputs[0] in self.masks}
        self.floors = {place: floor(self.masks[place][0], depth) for place, floor in lowest.items()}
        self.below = max((self.masks[place][1] - floor for place, floor in self.floors.items()), default=depth)

    def _least_factor(self, row: Operator) -> float:
        """Return by what an end sees the results of an operator multiplied, at least; infinity if no end sees them."""
        return min((self.factors[each] for each in row.outputs if each in self.factors), key=abs, default=inf)

    def ignored_biases(self) -> Changes:
        """Return biases whose masks are so low that the quantizer leaves them out of ranges."""
        changes: Changes = {}
        for number, row in enumerate(self.graph.operators):
            for place, _ in self._steps(row) if row.name in BIASED else ():
                tensor, factor = self.graph.tensors[place], self.factors[place]
                numbers = tensor.content.view(np.float32)
                numbers = np.where(numbers * factor <= HIGHEST, copysign(IGNORED, -factor), numbers)
                changes[number, BIAS] = _with_numbers(tensor, numbers)
        return changes

    def make_shallow(self, changes: Changes, limits: dict[str, Range]) -> None:
        """Add constants that mask no deeper than an end sees, and new ranges, also where no sample masks."""
        results = {each for row in self.rows if row.name in BIASED or not self.are_real for each in row.outputs}
        for number, row in enumerate(self.graph.operators):
            places = () if results.isdisjoint(row.outputs) else (*row.inputs, *row.outputs)
            for slot, place in enumerate(places):
                tensor = self.graph.tensors[place]
                if place in self.masks and tensor.data is None:
                    limits[tensor.name] = self._limit(place)
                elif place in self.masks:
                    numbers = np.clip(tensor.content.view(np.float32), *self._limit(place))
                    changes[number, slot] = _with_numbers(tensor, numbers)

    def _limit(self, place: int) -> Range:
        """Return the range of a tensor that masks no deeper than an end sees."""
        (low, high), far = self.masks[place], self.below / abs(self.factors[place])
        least, most = self._seen(place, (low, high))  # a shifted score may be larger than the scores
        if self.factors[place] < 0:
            return min(low, max(least, low - far)), high + far
        return self.floors.get(place, low - far), max(high, min(most, high + far))

    def _seen(self, place: int, default: Range) -> Range:
        """Return the range of a tensor in samples."""
        return (self.ranges or {}).get(self.graph.tensors[place].name, default)

    def _steps(self, row: Operator) -> list[tuple[int, float]]:
        """Return the operands of which a result on the way to an end is made, and by what each is multiplied."""
        factor = self._least_factor(row)
        if factor == inf:
            return []
        if row.name in SUMS:
            steps = [(row.inputs[0], 1.0), (row.inputs[1], 1.0 if row.name == "ADD" else -1.0)]
            # A constant that is far below 0 everywhere shifts scores, and masks none.
            return [] if any(self._masking_part(place, own * factor) == 1 for place, own in steps) else steps
        if row.name in BIASED:
            biases = row.inputs[BIAS:]
            return [(each, 1.0) for each in biases if 0 < self._masking_part(each, factor, -LEAST_FACTOR) < 1]
        if row.name == "MUL":
            return self._factor(row, factor)
        return [(each, 1.0) for each in selected_operands(row) or ()]

    def _factor(self, row: Operator, factor: float) -> list[tuple[int, float]]:
        """Return what a constant multiplies; where that is a share, the constant, which then is a mask or not."""
        for place, other in (row.inputs, row.inputs[::-1]):
            numbers = numbers_of(self.graph, other)
            if numbers is None or not numbers.size:
                continue
            largest, (low, high) = float(numbers.flat[np.abs(numbers).argmax()]), self._seen(place, (0.0, 1.0))
            is_share = low >= -1 and high <= 1 and low * high >= 0
            if is_share and abs(largest * factor) >= LEAST_FACTOR and numbers_of(self.graph, place) is None:
                return [(other, -copysign(1.0, largest * factor))]
            if (numbers == largest).all() and 0 < abs(largest) < MOST:
                return [(place, largest)]
        return []

    def _masking_part(self, place: int, factor: float, highest: float = HIGHEST) -> float:
        """Return which part of a constant's numbers an end sees as masks, 0 to 1; 0 of any other tensor."""
        numbers = numbers_of(self.graph, place)
        return 0.0 if numbers is None or not numbers.size else float((numbers * factor <= highest).mean())

    def _is_source(self, place: int) -> bool:
        """Return whether a constant or an input of the graph masks scores that it is added to."""
        factor, (low, high) = self.factors[place], self._seen(place, (0.0, 0.0))
        if place not in self.graph.inputs or self.graph.tensors[place].type != TensorType.FLOAT32:
            return self._masking_part(place, factor) > 0
        return self.ranges is None or min(low * factor, high * factor) <= -LEAST_FACTOR

    def _range(self, place: int) -> Range:
        """Return the least and the greatest number of a tensor, without those that mask."""
        if place in self.masks:
            return self.masks[place]
        numbers, factor, (low, high) = numbers_of(self.graph, place), self.factors[place], self._seen(place, (0.0, 0.0))
        if numbers is not None:
            scores = numbers[numbers * factor > HIGHEST]
            return (float(scores.min()), float(scores.max())) if scores.size else (0.0, 0.0)
        if not self._is_source(place):
            return low, high
        return (0.0, max(high, 0.0)) if factor > 0 else (min(low, 0.0), 0.0)

    def _scores(self, row: Operator) -> Range | None:
        """Return the range of a result where it does not mask; None where it never does."""
        steps = self._steps(row)
        masking = [place in self.masks for place, _ in steps]
        if not any(masking) or (row.name == "MAXIMUM" and not all(masking)):
            return None
        lows, highs = zip(*(self._seen(each, (-inf, inf)) for each in row.outputs), strict=True)
        least, most = min(lows), max(highs)
        if row.name in BIASED:
            return least, most
        parts = [(place, own) for place, own in steps if self._masking_part(place, self.factors[place]) < 1]
        ends = [sorted(own * end for end in self._range(place)) for place, own in parts] or [[0.0, 0.0]]
        lows, highs = zip(*ends, strict=True)
        low, high = (sum(lows), sum(highs)) if row.name in (*SUMS, "MUL") else (min(lows), max(highs))
        low = max(low, least)
        return low, max(low, min(high, most))
