"""What a quantized file has: operators on integers, those that stayed float and why, outputs that join two ranges."""

import re
from collections import Counter
from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import Model, Operator, Subgraph

REALS = (TensorType.FLOAT32, TensorType.FLOAT16)
BYTES = (TensorType.INT8, TensorType.UINT8, TensorType.INT16)
CONVERSIONS = ("QUANTIZE", "DEQUANTIZE")
JOINS = ("CONCATENATION", "PACK")
SQUARES = ("MUL", "SQUARE", "SQUARED_DIFFERENCE")
MOVED = ("SUB", "SQUARED_DIFFERENCE")
SCALING = ("ADD", "MUL", "SUB")
SUMS = ("MEAN", "SUM")
TERMS = (*SQUARES, "ABS", "EXP")  # terms of a sum that a value is divided by: of its norm, or of its own sum
VIEWS = ("RESHAPE", "TRANSPOSE", "EXPAND_DIMS", "SQUEEZE", *CONVERSIONS)
"""Operators behind which a value keeps its range."""
FEWEST_STEPS = 32  # steps of 8 bits that a joined value may have before a report speaks of it: fewer than 5 bits
STEPS = 255
PARTS = "/|__"  # marks behind the name of a value, in names of tensors that stand for a part of its operator


def numbers_of(graph: Subgraph, tensor: int) -> NDArray[np.float32] | None:
    """Return the numbers of a constant of real numbers; None of any other tensor."""
    own = graph.tensors[tensor] if tensor >= 0 else None
    if own is None or own.data is None or own.type != TensorType.FLOAT32:
        return None
    return own.content.view(np.float32).reshape(own.shape)


class FloatOperator(NamedTuple):
    """A kind of operator that computes real numbers in a quantized file."""

    name: str  # the builtin
    number: int  # how many there are
    reason: str  # why they stayed float
    first: str  # the result of the first one


class JoinedOutput(NamedTuple):
    """An output that joins values of very different ranges, and so gives the small ones a few steps."""

    name: str  # the output
    values: tuple[tuple[str, float], ...]  # the joined values and the greatest number of each

    def __str__(self) -> str:
        """Return a sentence for the report."""
        listed = " and ".join(f"{name} (to {size:.3g})" for name, size in self.values[:2])
        small = min(size for _, size in self.values)
        steps = STEPS * small / max(size for _, size in self.values) / 2
        cut = ",".join(name for name, _ in self.values)
        return (
            f"output {self.name} joins {listed} in one tensor of one scale, which leaves {max(steps, 0):.0f} steps for"
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
        outputs = [graph.tensors[each] for each in operator.outputs]
        return any(each.type in BYTES and each.quantization is not None for each in outputs)
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


def products_by_weights_first(file: Model) -> dict[str, str]:
    """Return the results of products whose first matrix is a constant: kernels mix weights of 8 bits as the second."""
    return {
        graph.tensors[operator.outputs[0]].name: "LiteRT takes weights of 8 bits as the second matrix alone"
        for graph in file.subgraphs
        for operator in graph.operators
        if operator.name == "BATCH_MATMUL" and graph.tensors[operator.inputs[0]].data is not None
    }


WITHOUT_INTEGERS = ("ABS", "ATAN2", "COS", "ELU", "EXP", "LOG", "NEG", "POW", "SIGN", "SIN")
"""Functions of one element that the quantizer leaves in float."""
ELEMENTWISE = (
    *WITHOUT_INTEGERS,
    *("ADD", "DIV", "EQUAL", "GELU", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL", "LOGISTIC", "MAXIMUM"),
    *("MINIMUM", "MUL", "NOT_EQUAL", "RELU", "RSQRT", "SELECT", "SELECT_V2", "SQRT", "SUB", "TANH", *SQUARES),
)


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
        for operator in graph.operators:
            tensor = graph.tensors[operator.outputs[0]].name
            ends = [len(tensor), *(mark.start() for mark in reversed([*re.finditer(PARTS, tensor)]))]
            value = next((tensor[:end] for end in ends if tensor[:end] in values), "")
            parts.setdefault(value, []).append((tensor, operator.name))
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
    reasons = {"SQRT": "microcontrollers have no kernel on integers, and LiteRT's takes longer"}
    if for_litert:
        reasons["SOFTMAX"] = "LiteRT computes real numbers in less time"
    return {
        graph.tensors[operator.outputs[0]].name: reasons[operator.name]
        for graph in file.subgraphs
        for operator in graph.operators
        if operator.name in reasons
        and (with_ends or operator.name == "SQRT" or operator.outputs[0] not in graph.outputs)
    }


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
        if _scales(operator, _computed(graph, operator), chosen_outputs) and operator not in chosen:
            chosen.append(operator)
            chosen_outputs.update(operator.outputs)
    last = {operator.outputs[0] for operator in chosen if operator.name == "RESHAPE"}
    last -= {each for operator in chosen for each in operator.inputs}
    return [operator for operator in chosen if operator.outputs[0] not in last]


def _scales(operator: Operator, read: set[int], chosen_outputs: set[int]) -> bool:
    """Return whether an operator scales or shifts by computed numbers that are all of some, or multiplies by one."""
    is_factor = operator.name == "MUL" and bool(read & chosen_outputs)
    return bool(read) and operator.name in (*SCALING, "RESHAPE") and (is_factor or read <= chosen_outputs)


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
    while last is not None and (last.name in (*SUMS, "SQRT", "RESHAPE") or _has_one_operand(graph, last)):
        path.append(last)
        last = producers.get(last.inputs[0])
    while path and path[-1].name not in SUMS:
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


class _Join(NamedTuple):
    """Values of very different ranges that are joined on the way to an output."""

    output: int
    values: tuple[tuple[str, float], ...]  # the joined values and the greatest number of each
    path: tuple[Operator, ...]  # from the operator that gives the output to the one that joins


def joined_outputs(
    file: Model,  # the float file
    ranges: Mapping[str, tuple[float, float]],  # tensor -> the least and the greatest number that samples gave
) -> tuple[JoinedOutput, ...]:
    """Return the outputs of a float file that join values of very different ranges."""
    graph = file.subgraphs[0]
    return tuple(JoinedOutput(graph.tensors[join.output].name, join.values) for join in _joins(graph, ranges))


def real_joins(file: Model, ranges: Mapping[str, tuple[float, float]]) -> dict[str, str]:
    """Return the results of operators that join values of very different ranges, and move them on to real outputs."""
    graph = file.subgraphs[0]
    rows = [row for join in _joins(graph, ranges) for row in join.path]
    return dict.fromkeys(
        (graph.tensors[row.outputs[0]].name for row in rows), "one scale leaves a joined value few steps"
    )


def _joins(graph: Subgraph, ranges: Mapping[str, tuple[float, float]]) -> list[_Join]:
    producers = {each: operator for operator in graph.operators for each in operator.outputs}
    joins: list[_Join] = []
    waiting: list[tuple[int, int, tuple[Operator, ...]]] = [(output, output, ()) for output in graph.outputs]
    visited = set[tuple[int, int]]()
    while waiting:
        output, tensor, path = waiting.pop(0)
        operator = producers.get(tensor)
        if operator is None or operator.name not in (*JOINS, *VIEWS) or (output, tensor) in visited:
            continue
        visited.add((output, tensor))
        path = (*path, operator)
        waiting += [(output, each, path) for each in operator.inputs[: None if operator.name in JOINS else 1]]
        values = []
        for each in operator.inputs if operator.name in JOINS else ():
            value = _behind_views(each, producers)
            ends = ranges.get(graph.tensors[value].name) or ranges.get(graph.tensors[each].name)
            if ends is not None:
                values.append((graph.tensors[value].name, max(map(abs, ends))))
        sizes = [size for _, size in values if size > 0]
        if len(sizes) > 1 and STEPS * min(sizes) < 2 * FEWEST_STEPS * max(sizes):
            joins.append(_Join(output, tuple(values), path))
    return joins


def _behind_views(tensor: int, producers: Mapping[int, Operator]) -> int:
    """Return the tensor of which another one is a view."""
    while (operator := producers.get(tensor)) is not None and operator.name in VIEWS:
        tensor = operator.inputs[0]
    return tensor
