"""Functions of one integer of 8 bits are looked up in tables, where a runtime would compute them in real numbers.

    DEQUANTIZE, ABS, EXP, DIV, …, QUANTIZE  ->  CAST, ADD, GATHER of 256 integers

A microcontroller has real numbers in software, or in a unit that takes longer than a load. A table holds what the
operators give for each of the integers, so it is exact. One operator of which the runtime has a kernel on 8 bits, such
as ELU, is that kernel instead. Operators on integers stay as they are, since the places in a table take four bytes
each: they are looked up with the others only where real numbers are computed of several of their results.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from relayout.formats.tflite.builtin_traits import CONVERSIONS
from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import Model, Operator, Quantization, Subgraph, Tensor, array_content
from relayout.formats.tflite.container.runtimes import QUANTIZED, Builtins
from relayout.formats.tflite.container.versions import finished
from relayout.formats.tflite.container.writer import options
from relayout.formats.tflite.elementwise import FUNCTIONS
from relayout.formats.tflite.exporting.draft import NUMPY
from relayout.graph.source_names import Names

INTEGERS = np.arange(-128, 128)
POSITIVE = ("RSQRT",)  # builtins whose kernels on integers refuse those that mean a negative number


class Curve(NamedTuple):
    """The numbers of a tensor that is a function of one integer of 8 bits."""

    source: int  # the tensor of the integer
    numbers: NDArray[Any]  # what it is for -128, -127, …, 127: truths, or the real numbers that it holds or means


class Lookup(NamedTuple):
    """A tensor of integers of 8 bits that is a function of another one."""

    source: int  # that other one
    table: NDArray[np.int8]  # its integer for -128, -127, …, 127
    operators: list[Operator]  # the operators in whose place the table is, in order
    kernel: Operator | None  # the one that computes it on integers; None: there is none


def with_tables(
    file: Model,
    builtins: Builtins | None,  # those that the runtime has; None: all
) -> Model:
    """Return a file with tables, or with kernels on integers, for functions that its runtime computes otherwise."""
    if builtins is None or builtins.on_bytes is None:
        return file
    graphs = tuple(_with_tables(graph, builtins) for graph in file.subgraphs)
    is_same = all(new is old for new, old in zip(graphs, file.subgraphs, strict=True))
    return file if is_same else finished(file._replace(subgraphs=graphs))


def _with_tables(graph: Subgraph, builtins: Builtins) -> Subgraph:
    """Return a graph with tables, and with kernels on integers; itself where no function of it gets one."""
    lookups = _lookups(graph, builtins)
    while lookups:
        tensors, names = list(graph.tensors), Names({tensor.name for tensor in graph.tensors})
        operators: list[Operator] = []
        for operator in graph.operators:
            lookup = lookups.get(operator.outputs[0]) if operator.outputs else None
            if lookup is None:
                operators.append(operator)
            elif lookup.kernel is not None:
                operators.append(lookup.kernel._replace(inputs=(lookup.source,), outputs=operator.outputs))
            else:
                operators += _written(lookup, operator.outputs[0], tensors, names)
        operators = _without_unread(operators, graph.outputs)
        alive = set(map(id, operators))
        needless = [result for result, lookup in lookups.items() if any(id(row) in alive for row in lookup.operators)]
        if not needless:
            return graph._replace(tensors=tuple(tensors), operators=tuple(operators))
        for result in needless:  # what others read is computed anyway
            del lookups[result]
    return graph


def _lookups(graph: Subgraph, builtins: Builtins) -> dict[int, Lookup]:
    """Return tensor -> how it is looked up, for those that the runtime would not compute on integers alone."""
    producers = {each: number for number, row in enumerate(graph.operators) for each in row.outputs}
    curves: dict[int, Curve] = {}
    lookups: dict[int, Lookup] = {}
    for operator in graph.operators:
        curve = _curve(graph, operator, curves)
        if curve is None:
            continue
        result = graph.tensors[operator.outputs[0]]
        curves[result.index] = curve
        rows, ends = _between(graph, result.index, producers) if _is_byte(result) else ([], set[int]())
        kernels = [row for row in rows if row.name not in CONVERSIONS]
        if not kernels or all(_runs(graph, row, builtins) for row in kernels):
            continue
        kernel = None
        if len(ends) == 1 and ends.isdisjoint(lookups):  # else of what that is looked up by
            nearer: dict[int, Curve] = {}
            for row in rows:
                nearest = _curve(graph, row, nearer)
                assert nearest is not None
                curve = nearer[row.outputs[0]] = nearest
            kernel = _kernel(kernels, graph.tensors[curve.source], builtins)
        assert result.quantization is not None
        table = np.asarray(_steps(curve.numbers, result.type, result.quantization), np.int8)
        rows = [row for row in rows if row.name not in CONVERSIONS or row is operator]
        lookups[result.index] = Lookup(curve.source, table, rows, kernel)
    return lookups


def _runs(graph: Subgraph, operator: Operator, builtins: Builtins) -> bool:
    """Tell whether a runtime computes an operator on integers."""
    kinds = {graph.tensors[each].type for each in (*operator.inputs, *operator.outputs) if each >= 0}
    return TensorType.FLOAT32 not in kinds and builtins.has(operator.name, TensorType.INT8)


def _kernel(kernels: Sequence[Operator], source: Tensor, builtins: Builtins) -> Operator | None:
    """Return the one operator of a function, if the runtime computes it on integers, and of all that these mean."""
    assert builtins.on_bytes is not None
    if len(kernels) > 1 or kernels[0].name not in builtins.on_bytes or source.quantization is None:
        return None
    is_defined = kernels[0].name not in POSITIVE or source.quantization.zero_point[0] == INTEGERS[0]
    return kernels[0] if is_defined else None


def _between(graph: Subgraph, result: int, producers: Mapping[int, int]) -> tuple[list[Operator], set[int]]:
    """Return the operators that make a tensor of integers of 8 bits, in order, and these."""
    numbers, ends, waiting = set[int](), set[int](), [*graph.operators[producers[result]].inputs]
    while waiting:
        place = waiting.pop()
        if _is_byte(graph.tensors[place]):
            ends.add(place)
        elif place in producers and producers[place] not in numbers:
            numbers.add(producers[place])
            waiting += graph.operators[producers[place]].inputs
    return [graph.operators[number] for number in sorted({*numbers, producers[result]})], ends


def _curve(graph: Subgraph, operator: Operator, curves: Mapping[int, Curve]) -> Curve | None:
    """Return what an operator gives as a function of one integer; None where it is none."""
    if operator.name not in FUNCTIONS and operator.name not in CONVERSIONS:
        return None
    operands = [_operand(graph.tensors[each], curves) if each >= 0 else None for each in operator.inputs]
    sources = {each.source for each in operands if each is not None} - {-1}
    result = graph.tensors[operator.outputs[0]]
    if None in operands or len(sources) != 1:
        return None
    (source,), meaning = sources, result.quantization
    is_whole = meaning is None or (meaning.scale.size == 1 and result.type in QUANTIZED)
    if graph.tensors[source].signature != result.signature or not is_whole:
        return None
    with np.errstate(all="ignore"):
        arrays = [each.numbers for each in operands if each is not None]
        fields = {} if operator.options is None else operator.options.fields
        numbers = arrays[0] if operator.name in CONVERSIONS else FUNCTIONS[operator.name](fields, *arrays)
        if meaning is not None:
            return Curve(source, _real(_steps(numbers, result.type, meaning), meaning))
    is_known = result.type in (TensorType.FLOAT32, TensorType.BOOL)
    return Curve(source, np.asarray(numbers, NUMPY[result.type])) if is_known else None


def _operand(tensor: Tensor, curves: Mapping[int, Curve]) -> Curve | None:
    """Return an operand as a function: of itself, where it is integers of 8 bits; a constant number of no tensor."""
    if tensor.index in curves:
        return curves[tensor.index]
    meaning = tensor.quantization
    if _is_byte(tensor) and meaning is not None:
        return Curve(tensor.index, _real(INTEGERS, meaning))
    if tensor.data is None or prod(tensor.shape) != 1 or tensor.type not in NUMPY:
        return None
    number = tensor.content.view(NUMPY[tensor.type])
    return Curve(-1, number if meaning is None else _real(number, meaning))


def _is_byte(tensor: Tensor) -> bool:
    """Tell whether a tensor is computed, and holds integers of 8 bits of one scale."""
    meaning = tensor.quantization
    is_computed = tensor.data is None and tensor.type == TensorType.INT8
    return is_computed and meaning is not None and meaning.scale.size == 1


def _real(integers: NDArray[Any], meaning: Quantization) -> NDArray[np.float32]:
    """Return the numbers that integers mean."""
    return np.asarray(np.asarray(integers - meaning.zero_point[0], np.float32) * meaning.scale[0])


def _steps(numbers: NDArray[Any], kind: TensorType, meaning: Quantization) -> NDArray[np.float32]:
    """Return the integers that mean numbers: the nearest, or the ends; the least for what is no number."""
    limits = np.iinfo(NUMPY[kind])
    steps = np.rint(numbers / meaning.scale[0]) + meaning.zero_point[0]
    return np.asarray(np.clip(np.nan_to_num(steps, nan=limits.min), limits.min, limits.max), np.float32)


def _written(lookup: Lookup, result: int, tensors: list[Tensor], names: Names) -> list[Operator]:
    """Return the operators that look a function up, and add their tensors."""
    source, end = tensors[lookup.source], tensors[result]

    def add(what: str, kind: TensorType, constant: NDArray[Any] | None, meaning: Quantization | None = None) -> int:
        name = names.unique(f"{end.name}/{what}")
        shape, signature = (source.shape, source.signature) if constant is None else (constant.shape, constant.shape)
        data = None if constant is None else array_content(constant)
        tensors.append(Tensor(len(tensors), name, kind, shape, signature, data, meaning))
        return len(tensors) - 1

    table = add("table", TensorType.INT8, lookup.table, end.quantization)
    first = add("first", TensorType.INT32, np.array(-INTEGERS[0], np.int32))
    wide, places = add("wide", TensorType.INT32, None), add("places", TensorType.INT32, None)
    kinds = {"in_data_type": TensorType.INT8, "out_data_type": TensorType.INT32}
    return [
        Operator("CAST", 1, (source.index,), (wide,), options=options("CastOptions", **kinds)),
        Operator("ADD", 1, (wide, first), (places,), options=options("AddOptions")),
        Operator("GATHER", 1, (table, places), (result,), options=options("GatherOptions", axis=0)),
    ]


def _without_unread(operators: Iterable[Operator], ends: Sequence[int]) -> list[Operator]:
    """Return the operators whose results are read, or that give none."""
    read, rest = set(ends), list[Operator]()
    for operator in reversed(list(operators)):
        if not operator.outputs or not read.isdisjoint(operator.outputs):
            rest.append(operator)
            read.update(operator.inputs)
    return rest[::-1]
