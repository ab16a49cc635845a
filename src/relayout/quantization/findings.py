"""What a quantized file has: operators on integers, those that stayed float and why, outputs that join two ranges."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relayout.formats.tflite import builtin_traits as traits
from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import Model, Operator, Subgraph, Tensor
from relayout.formats.tflite.elementwise import FUNCTIONS as ELEMENTWISE
from relayout.formats.tflite.provenance import load_provenance

REALS = (TensorType.FLOAT32, TensorType.FLOAT16)
BYTES = (TensorType.INT8, TensorType.UINT8, TensorType.INT16)
AVERAGES = (*traits.REDUCED_SUMS, "SQRT", "RESHAPE")
MOVED = ("SUB", "SQUARED_DIFFERENCE")
TERMS = (*traits.SQUARES, "ABS", "EXP")  # terms of a sum that a value is divided by: of its norm, or of its own sum
STEPS = {"int8": 255, "int16x8": 32767}
"""Kind of quantization -> steps of the integers."""
FEWEST_STEPS = 32  # steps of 8 bits that a joined value may have before a report speaks of it: fewer than 5 bits
Joined = tuple[tuple[str, float], ...]  # the values that an operator joins, and the greatest number of each
PARTS = "/|__"  # marks behind the name of a value, in names of tensors that stand for a part of its operator


def numbers_of(graph: Subgraph, tensor: int) -> NDArray[np.float32] | None:
    """Return the numbers of a constant of real numbers; None of any other tensor."""
    own = graph.tensors[tensor] if tensor >= 0 else None
    if own is None or own.data is None or own.type != TensorType.FLOAT32:
        return None
    return own.content.view(np.float32).reshape(own.shape)


def is_quantized(graph: Subgraph, tensors: Iterable[int]) -> bool:
    """Return whether some tensors are integers that have a scale."""
    values = [graph.tensors[each] for each in tensors if each >= 0]
    return any(each.type in BYTES and each.quantization is not None for each in values)


def with_constants(graph: Subgraph, changes: Mapping[tuple[int, int], Tensor]) -> Subgraph:
    """Return a graph with other constants for some operands, by the places of an operator and of its operand."""
    tensors, operators = list(graph.tensors), list(graph.operators)
    readers = Counter([*graph.outputs, *(each for row in graph.operators for each in row.inputs)])
    for (number, slot), constant in changes.items():
        place, inputs = operators[number].inputs[slot], list(operators[number].inputs)
        if readers[place] == 1:
            tensors[place] = constant
            continue
        inputs[slot] = len(tensors)
        tensors.append(replace(constant, index=len(tensors), name=f"{constant.name}/{len(tensors)}"))
        operators[number] = operators[number]._replace(inputs=tuple(inputs))
    return graph._replace(tensors=tuple(tensors), operators=tuple(operators))


def operators_before(
    graph: Subgraph,
    tensors: Iterable[int],
    # operator -> the operands to follow from its result; None where the walk ends before it
    operands: Callable[[Operator], Iterable[int] | None],
) -> list[Operator]:
    """Return the operators that make tensors, the last one first, as far back as operands are followed."""
    reached, rows = {*tensors}, list[Operator]()
    for row in reversed(graph.operators):
        if not reached.isdisjoint(row.outputs) and (before := operands(row)) is not None:
            rows.append(row)
            reached.update(before)
    return rows


class FloatOperator(NamedTuple):
    """A kind of operator that computes real numbers in a quantized file."""

    name: str  # the builtin
    number: int  # how many there are
    reason: str  # why they stayed float
    first: str  # the result of the first one


class JoinedOutput(NamedTuple):
    """An output that joins values of very different ranges, and so gives the small ones a few steps."""

    name: str  # the output
    values: Joined

    def __str__(self) -> str:
        """Return a sentence for the report."""
        listed = " and ".join(f"{name} (to {size:.3g})" for name, size in self.values[:2])
        cut, steps = ",".join(name for name, _ in self.values), _fewest_steps(self.values)
        return (
            f"output {self.name} joins {listed} in one tensor of one scale, which leaves {steps:.0f} steps for"
            f" the smaller: --outputs {cut} gives each its own, and float outputs join real numbers"
        )


class QuantizationSummary(NamedTuple):
    """The outcome for a file."""

    kind: str  # of quantization
    samples: int  # how many were run
    integers: int  # operators that compute integers, or read weights of 8 bits or halves
    floats: tuple[FloatOperator, ...]  # operators that compute real numbers
    joined: tuple[JoinedOutput, ...] = ()  # outputs that join values of very different ranges

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
    kind: str,  # of quantization
    samples: int,  # how many were run
    file: Model,  # the quantized file
    reasons: Mapping[str, str],  # tensor -> why the operator that gives it stayed float
    joined: tuple[JoinedOutput, ...],  # outputs that join ranges
) -> QuantizationSummary:
    """Look at a quantized file."""
    integers, floats = 0, dict[tuple[str, str], list[str]]()  # builtin and reason -> results
    is_static = kind in STEPS
    for graph in file.subgraphs:
        dequantized = {row.outputs[0] for row in graph.operators if row.name == "DEQUANTIZE"}
        for operator in graph.operators:
            if operator.name in traits.CONVERSIONS:
                continue
            places = operator.outputs if is_static else operator.inputs
            if is_quantized(graph, places) or (not is_static and not dequantized.isdisjoint(places)):
                integers += 1
            elif is_static and any(graph.tensors[each].type in REALS for each in operator.outputs):
                name = graph.tensors[operator.outputs[0]].name
                reason = reasons.get(name, "the quantizer has no integers for it")
                floats.setdefault((operator.name, reason), []).append(name)
    rows = sorted(floats.items(), key=lambda item: (-len(item[1]), item[0]))
    listed = tuple(FloatOperator(name, len(results), why, results[0]) for (name, why), results in rows)
    return QuantizationSummary(kind, samples, integers, listed, joined)


def _results(file: Model, reason: str, test: Callable[[Subgraph, Operator], bool]) -> dict[str, str]:
    """Return the results of the operators that pass a test, with a reason."""
    chosen = [(graph, row) for graph in file.subgraphs for row in graph.operators if test(graph, row)]
    return {graph.tensors[row.outputs[0]].name: reason for graph, row in chosen}


def computed_divisors(file: Model) -> dict[str, str]:
    """Return the results of quotients whose divisor is computed: integers of 8 bits may make a 0 of it."""
    reason = "LiteRT refuses integers that divide by 0"
    return _results(file, reason, lambda graph, row: row.name == "DIV" and graph.tensors[row.inputs[1]].data is None)


def products_by_weights_first(file: Model) -> dict[str, str]:
    """Return the results of products whose first matrix is a constant: kernels mix weights of 8 bits as the second."""
    reason = "LiteRT takes weights of 8 bits as the second matrix alone"
    return _results(
        file, reason, lambda graph, row: row.name == "BATCH_MATMUL" and graph.tensors[row.inputs[0]].data is not None
    )


WITHOUT_INTEGERS = ("ABS", "ATAN2", "COS", "ELU", "EXP", "LOG", "NEG", "POW", "SIGN", "SIN")
"""Functions of one element that the quantizer leaves in float."""


def parted_functions(
    file: Model,  # a float file
    # what operators of the source give; a tensor that stands for a part of one begins with its name
    values: Collection[str],
    reasons: Mapping[str, str],  # tensor -> why the operator that gives it stays real
    *,
    for_litert: bool,  # True if LiteRT's CPU kernels run it
) -> dict[str, str]:
    """Return the results of operators that are one function of the source together, of which some stay real.

    Between two of them integers would only be made of real numbers and back: an Erf loses 17 dB by it. Beside an NPU
    one part may run on the CPU alone; where there are two, all of them do, so that the NPU waits once.
    """
    least = 1 if for_litert else 2
    parts: dict[str, list[tuple[str, str]]] = {}
    for graph in file.subgraphs:
        for name, tensor in [(row.name, graph.tensors[each].name) for row in graph.operators for each in row.outputs]:
            ends = [len(tensor), *(mark.start() for mark in reversed([*re.finditer(PARTS, tensor)]))]
            value = next((tensor[:end] for end in ends if tensor[:end] in values), "")
            parts.setdefault(value, []).append((tensor, name))
    parts.pop("", None)
    return {
        tensor: f"a part of {value}, of which others have no integers"
        for value, own in parts.items()
        if sum(name in WITHOUT_INTEGERS or tensor in reasons for tensor, name in own) >= least
        and all(name in ELEMENTWISE for _, name in own)
        for tensor, name in own
        if name not in WITHOUT_INTEGERS and tensor not in reasons
    }


def slow_on_integers(file: Model, *, for_litert: bool, with_ends: bool) -> dict[str, str]:
    """Return the results of operators whose kernels of integers take longer than those of real numbers, and round more.

    A SOFTMAX of integers takes twice as long, and knows 256 shares: of a row of 200 most are 0 or 1 of them; as the end
    of a graph it stays one. A SQRT takes twice as long, and TensorFlow Lite Micro has it for real numbers alone.

    Args:
        file: a float file.
        for_litert: True if LiteRT's CPU kernels run it.
        with_ends: True if outputs of the graph are real numbers.
    """
    reason = "microcontrollers have no kernel on integers, and LiteRT's takes longer"
    reasons = _results(file, reason, lambda graph, row: row.name == "SQRT")
    if not for_litert:
        return reasons

    def is_inner(graph: Subgraph, row: Operator) -> bool:
        return row.name == "SOFTMAX" and (with_ends or row.outputs[0] not in graph.outputs)

    return reasons | _results(file, "LiteRT computes real numbers in less time", is_inner)


def normalizations(file: Model) -> dict[str, str]:
    """Return the results of operators that normalize: mean, variance or norm, its inverse root, and what scales by it.

    LiteRT takes longer for them on integers, which round a variance to few steps: a BERT loses 3 dB by it, and a small
    norm is 0.
    """
    return {
        graph.tensors[operator.outputs[0]].name: "LiteRT normalizes real numbers in less time"
        for graph in file.subgraphs
        for operator in _normalizing(graph)
    }


def _normalizing(graph: Subgraph) -> list[Operator]:
    """Return the operators of a graph that make roots of variances or of norms, quotients by sums, and what scales."""
    producers = {each: operator for operator in graph.operators for each in operator.outputs}
    roots = [operator for operator in graph.operators if operator.name in ("RSQRT", "SQRT", "DIV")]
    chosen = [operator for root in roots for operator in _variance(graph, root, producers)]
    chosen_outputs = {each for before in chosen for each in before.outputs}
    for operator in graph.operators:
        is_new = chosen_outputs.isdisjoint(operator.outputs)
        if is_new and _scales(operator, _computed(graph, operator), chosen_outputs):
            chosen.append(operator)
            chosen_outputs.update(operator.outputs)
    last = {operator.outputs[0] for operator in chosen if operator.name == "RESHAPE"}
    last -= {each for operator in chosen for each in operator.inputs}
    return [operator for operator in chosen if operator.outputs[0] not in last]


def _scales(operator: Operator, read: set[int], chosen_outputs: set[int]) -> bool:
    """Return whether an operator scales or shifts by computed numbers that are all of some, or multiplies by one."""
    is_factor = operator.name == "MUL" and bool(read & chosen_outputs)
    return bool(read) and operator.name in traits.SUMS | {"MUL", "RESHAPE"} and (is_factor or read <= chosen_outputs)


def _variance(graph: Subgraph, root: Operator, producers: Mapping[int, Operator]) -> list[Operator]:
    """Return a root, and what makes the sum or mean of squares of which it is; empty where it is of none.

    Of a quotient the sum is the divisor, and what it sums up may be something else.
    """
    is_quotient = root.name == "DIV"
    path, square = _averaging(graph, producers.get(root.inputs[int(is_quotient)]), producers)
    if not path:
        return []
    while square is not None and square.name == "RESHAPE":
        path.append(square)
        square = producers.get(square.inputs[0])
    if square is None or square.name not in TERMS or len(_computed(graph, square)) > 2:
        return [root, *path] if is_quotient else []
    chosen = [root, *path, square]
    moved = square if square.name == "SQUARED_DIFFERENCE" else producers.get(square.inputs[0])
    if moved is None or moved.name not in MOVED:
        return chosen
    center, _ = _averaging(graph, producers.get(moved.inputs[1]), producers)
    return [*chosen, *([moved, *center] if center else [])]


def _averaging(
    graph: Subgraph, last: Operator | None, producers: Mapping[int, Operator]
) -> tuple[list[Operator], Operator | None]:
    """Return what makes a value of a sum or mean, by constants and in other shapes, and what gives the terms."""
    path: list[Operator] = []
    while last is not None and (last.name in AVERAGES or _has_one_operand(graph, last)):
        path.append(last)
        last = producers.get(last.inputs[0])
    while path and path[-1].name not in traits.REDUCED_SUMS:
        last = path.pop()
    return path, last


def _has_one_operand(graph: Subgraph, operator: Operator) -> bool:
    """Return whether an operator raises or scales a value by a constant."""
    return (
        operator.name in ("ADD", "MUL", "MAXIMUM")
        and len(_computed(graph, operator)) == 1
        and len({*operator.inputs}) == len(operator.inputs)
        and graph.tensors[operator.inputs[0]].data is None
    )


def _computed(graph: Subgraph, operator: Operator) -> set[int]:
    """Return the operands that are no constants."""
    return {each for each in operator.inputs if each >= 0 and graph.tensors[each].data is None}


def joined_outputs(
    file: Model,  # the float file
    ranges: Mapping[str, tuple[float, float]],  # tensor -> the least and the greatest number that samples gave
) -> tuple[JoinedOutput, ...]:
    """Return the outputs of a float file that join values of very different ranges."""
    graph, name = file.subgraphs[0], load_provenance(file).source_name
    joins = _uneven_joins(graph, ranges)
    return tuple(
        JoinedOutput(graph.tensors[output].name, tuple((name(tensor), size) for tensor, size in values))
        for output in graph.outputs
        for values in joins.get(output, ())
    )


def real_joins(file: Model, ranges: Mapping[str, tuple[float, float]]) -> dict[str, str]:
    """Return the results of operators that join values of very different ranges, and move them on to real outputs."""
    graph = file.subgraphs[0]
    names = [graph.tensors[each].name for each in _uneven_joins(graph, ranges)]
    return dict.fromkeys(names, "one scale leaves a joined value few steps")


def _joined_operands(row: Operator) -> tuple[int, ...] | None:
    """Return the operands that an operator joins, or the one that it views."""
    return traits.selected_operands(row) if row.name in traits.JOINS | traits.VIEWS else None


def _uneven_joins(graph: Subgraph, ranges: Mapping[str, tuple[float, float]]) -> dict[int, dict[Joined, None]]:
    """Return the joins on the way to each tensor in which one value is far smaller than another, the last one first."""
    joins, roots = dict[int, dict[Joined, None]](), dict[int, int]()  # view -> its root
    for row in reversed(operators_before(graph, graph.outputs, _joined_operands)):
        operands, (result, *_) = _joined_operands(row) or (), row.outputs
        values = []
        for each in operands:
            names = [graph.tensors[place].name for place in (roots.get(each, each), each)]
            ends = next((ranges[name] for name in names if name in ranges), None)
            values += [] if ends is None else [(names[0], max(map(abs, ends)))]
        if row.name in traits.VIEWS:
            roots[result] = roots.get(row.inputs[0], row.inputs[0])
        own = [tuple(values)] if _fewest_steps(values) < FEWEST_STEPS else []  # of one value there are all steps
        if before := dict.fromkeys([*own, *(join for each in operands for join in joins.get(each, ()))]):
            joins[result] = before
    return joins


def _fewest_steps(values: Iterable[tuple[str, float]]) -> float:
    """Return the steps of 8 bits that the smallest value has beside the largest; what is always 0 needs none."""
    sizes = [size for _, size in values if size > 0]
    return STEPS["int8"] / 2 * min(sizes, default=1.0) / max(sizes, default=1.0)
