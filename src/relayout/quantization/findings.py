"""What a quantized file has: operators on integers, those that stayed float and why, outputs that join two ranges."""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import Model, Operator, Subgraph

REALS = (TensorType.FLOAT32, TensorType.FLOAT16)
BYTES = (TensorType.INT8, TensorType.UINT8, TensorType.INT16)
CONVERSIONS = ("QUANTIZE", "DEQUANTIZE")
JOINS = ("CONCATENATION", "PACK")
SQUARES = ("MUL", "SQUARE", "SQUARED_DIFFERENCE")
MOVED = ("SUB", "SQUARED_DIFFERENCE")
SCALING = ("ADD", "MUL", "SUB")
VIEWS = ("RESHAPE", "TRANSPOSE", "EXPAND_DIMS", "SQUEEZE", *CONVERSIONS)
"""Operators behind which a value keeps its range."""
FEWEST_STEPS = 32
"""Steps of 8 bits that a joined value may have before a report speaks of it: fewer than 5 bits."""
STEPS = 255


class FloatOperator(NamedTuple):
    """A kind of operator that computes real numbers in a quantized file.

    Args:
        name: the builtin.
        number: how many there are.
        reason: why they stayed float.
        first: the result of the first one.
    """

    name: str
    number: int
    reason: str
    first: str


class JoinedOutput(NamedTuple):
    """An output that joins values of very different ranges, and so gives the small ones a few steps.

    Args:
        name: the output.
        values: the joined values and the greatest number of each.
    """

    name: str
    values: tuple[tuple[str, float], ...]

    def __str__(self) -> str:
        """Return a sentence for the report."""
        listed = " and ".join(f"{name} (to {size:.3g})" for name, size in self.values[:2])
        small = min(size for _, size in self.values)
        steps = STEPS * small / max(size for _, size in self.values) / 2
        cut = ",".join(name for name, _ in self.values)
        return (
            f"output {self.name} joins {listed} in one tensor of one scale, which leaves {max(steps, 0):.0f} steps for"
            f" the smaller: --outputs {cut} gives each its own"
        )


class QuantizationSummary(NamedTuple):
    """What became of a file.

    Args:
        kind: of quantization.
        samples: how many were run.
        integers: operators that compute integers, or read weights of 8 bits or halves.
        floats: operators that compute real numbers.
        joined: outputs that join values of very different ranges.
    """

    kind: str
    samples: int
    integers: int
    floats: tuple[FloatOperator, ...]
    joined: tuple[JoinedOutput, ...] = ()

    def lines(self) -> tuple[str, ...]:
        """Return what a report says of it."""
        from_samples = f" from {self.samples} sample{'s' * (self.samples != 1)}" if self.samples else ""
        what = {
            "int8": "operators on integers of 8 bits",
            "int16x8": "operators on integers of 16 bits with weights of 8",
            "dynamic": "operators with weights of 8 bits",
            "float16": "operators with weights of 16 bits",
        }[self.kind]
        count = sum(each.number for each in self.floats)
        rest = f", {count} float" if self.samples else ""
        said = [f"quantized: {self.integers} {what}{from_samples}{rest}"]
        said += [f"float: {each.number} {each.name} ({each.reason}; first: {each.first})" for each in self.floats]
        return (*said, *map(str, self.joined))

    def __str__(self) -> str:
        return "\n".join(self.lines())


def summary_of(
    kind: str, samples: int, file: Model, reasons: Mapping[str, str], joined: tuple[JoinedOutput, ...]
) -> QuantizationSummary:
    """Look at a quantized file.

    Args:
        kind: of quantization.
        samples: how many were run.
        file: the quantized file.
        reasons: tensor -> why the operator that gives it stayed float.
        joined: outputs that join ranges.
    """
    integers, floats = 0, Counter[tuple[str, str]]()
    first: dict[tuple[str, str], str] = {}
    is_static = kind in ("int8", "int16x8")
    for graph in file.subgraphs:
        for operator in graph.operators:
            if operator.name in CONVERSIONS:
                continue
            if _is_quantized(graph, operator, is_static):
                integers += 1
            elif is_static and any(graph.tensors[each].type in REALS for each in operator.outputs):
                name = graph.tensors[operator.outputs[0]].name
                row = (operator.name, reasons.get(name, "the quantizer has no integers for it"))
                floats[row] += 1
                first.setdefault(row, name)
    rows = sorted(floats.items(), key=lambda item: (-item[1], item[0]))
    listed = tuple(FloatOperator(name, count, why, first[name, why]) for (name, why), count in rows)
    return QuantizationSummary(kind, samples, integers, listed, joined)


def _is_quantized(graph: Subgraph, operator: Operator, is_static: bool) -> bool:
    """Return whether an operator gives integers that have a scale, or reads such weights."""
    if is_static:
        given = [graph.tensors[each] for each in operator.outputs]
        return any(each.type in BYTES and each.quantization is not None for each in given)
    producers = {each: other.name for other in graph.operators for each in other.outputs}
    read = [graph.tensors[each] for each in operator.inputs if each >= 0]
    return any(
        (each.type in BYTES and each.quantization is not None) or producers.get(each.index) == "DEQUANTIZE"
        for each in read
    )


def computed_divisors(file: Model) -> dict[str, str]:
    """Return the results of quotients whose divisor is computed: integers of 8 bits may make a 0 of it."""
    return {
        graph.tensors[operator.outputs[0]].name: "LiteRT refuses integers that divide by 0"
        for graph in file.subgraphs
        for operator in graph.operators
        if operator.name == "DIV" and graph.tensors[operator.inputs[1]].data is None
    }


def normalizations(file: Model) -> dict[str, str]:
    """Return the results of operators that normalize: mean, variance, its inverse root, and what scales by it.

    LiteRT takes longer for them on integers, which round a variance to few steps: a BERT loses 3 dB by it.
    """
    return {
        graph.tensors[operator.outputs[0]].name: "LiteRT normalizes real numbers in less time"
        for graph in file.subgraphs
        for operator in _normalizing(graph)
    }


def _normalizing(graph: Subgraph) -> list[Operator]:
    """Return the operators of a graph that make inverse roots of variances, and those that scale by these."""
    producers = {each: operator for operator in graph.operators for each in operator.outputs}
    roots = [operator for operator in graph.operators if operator.name == "RSQRT"]
    chosen = [operator for root in roots for operator in _variance(graph, root, producers)]
    for operator in graph.operators:
        made = {each for before in chosen for each in before.outputs}
        read = _computed(graph, operator)
        is_scaled = operator.name in SCALING and (read <= made or (operator.name == "MUL" and read & made))
        if read and is_scaled and operator not in chosen:
            chosen.append(operator)
    return chosen


def _variance(graph: Subgraph, root: Operator, producers: Mapping[int, Operator]) -> list[Operator]:
    """Return an inverse root and what makes the mean square of which it is; empty where it is of none."""
    chosen = [root]

    def before(operator: Operator, place: int = 0) -> Operator | None:
        """Return what gives an operand; a RESHAPE of it has its numbers."""
        giver = producers.get(operator.inputs[place])
        while giver is not None and giver.name == "RESHAPE":
            chosen.append(giver)
            giver = producers.get(giver.inputs[0])
        return giver

    last = root
    while (giver := before(last)) is not None and giver.name in ("ADD", "MUL"):
        if len(_computed(graph, giver)) != 1 or giver.inputs[0] == giver.inputs[1]:
            break
        chosen.append(last := giver)
    mean = giver
    square = None if mean is None or mean.name != "MEAN" else before(mean)
    if mean is None or square is None or square.name not in SQUARES or len(_computed(graph, square)) > 2:
        return []
    chosen += [mean, square]
    moved = square if square.name == "SQUARED_DIFFERENCE" else before(square)
    center = before(moved, 1) if moved is not None and moved.name in MOVED else None
    return [*chosen, *([moved, center] if moved is not None and center is not None and center.name == "MEAN" else [])]


def _computed(graph: Subgraph, operator: Operator) -> set[int]:
    """Return the operands that are no constants."""
    return {each for each in operator.inputs if each >= 0 and graph.tensors[each].data is None}


def joined_outputs(file: Model, ranges: Mapping[str, tuple[float, float]]) -> tuple[JoinedOutput, ...]:
    """Return the outputs of a float file that join values of very different ranges.

    Args:
        file: the float file.
        ranges: tensor -> the least and the greatest number that samples gave.
    """
    graph = file.subgraphs[0]
    producers = {each: operator for operator in graph.operators for each in operator.outputs}
    joined = []
    for output in graph.outputs:
        operator = producers.get(_behind_views(output, producers))
        if operator is None or operator.name not in JOINS:
            continue
        values = []
        for each in operator.inputs:
            value = _behind_views(each, producers)
            ends = ranges.get(graph.tensors[value].name) or ranges.get(graph.tensors[each].name)
            if ends is not None:
                values.append((graph.tensors[value].name, max(map(abs, ends))))
        sizes = [size for _, size in values if size > 0]
        if len(sizes) > 1 and STEPS * min(sizes) < 2 * FEWEST_STEPS * max(sizes):
            joined.append(JoinedOutput(graph.tensors[output].name, tuple(values)))
    return tuple(joined)


def _behind_views(tensor: int, producers: Mapping[int, Operator]) -> int:
    """Return the tensor of which another one is a view."""
    while (operator := producers.get(tensor)) is not None and operator.name in VIEWS:
        tensor = operator.inputs[0]
    return tensor
