"""Functions of one integer of 8 bits are looked up in tables, where a runtime would compute them in real numbers.

    DEQUANTIZE, ABS, EXP, DIV, …, QUANTIZE  ->  CAST, ADD, GATHER of 256 integers

A table holds what the operators make of each of the integers as real numbers: no step between them is rounded. A
microcontroller has real numbers in software, or in a unit that takes longer than a load. An operator whose kernel
computes on 8 bits itself becomes that: ELU between integers. Operators on integers stay, since the places in a table
take four bytes each; they are a part of a function only where its real numbers depend on several of their results.
"""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import Model, Operator, Subgraph, Tensor, array_content
from relayout.formats.tflite.container.runtimes import Builtins
from relayout.formats.tflite.container.versions import finished
from relayout.formats.tflite.container.writer import options
from relayout.formats.tflite.elementwise import FUNCTIONS
from relayout.formats.tflite.exporting.draft import NUMPY

CONVERSIONS = ("DEQUANTIZE", "QUANTIZE")
INTEGERS = np.arange(-128, 128)


class Function(NamedTuple):
    """Operators that make one tensor of another one, element by element."""

    source: Tensor  # the integers that it is a function of
    result: Tensor  # the integers that it gives
    operators: tuple[Operator, ...]  # in order
    is_real: bool  # whether some compute real numbers

    @property
    def kernels(self) -> list[Operator]:
        """The operators that do more than dequantize and quantize."""
        return [each for each in self.operators if each.name not in CONVERSIONS]


def with_tables(
    file: Model,
    builtins: Builtins | None,  # those that the runtime has; None: all
) -> Model:
    """Return a file with tables, and with kernels on integers, for functions that its runtime computes otherwise."""
    if builtins is None or builtins.on_bytes is None:
        return file
    graphs = list(file.subgraphs)
    for is_cut in (True, False):
        graphs = [_with_tables(graph, builtins, is_cut=is_cut) for graph in graphs]
    is_same = all(new is old for new, old in zip(graphs, file.subgraphs, strict=True))
    return file if is_same else finished(file._replace(subgraphs=tuple(graphs)))


def _with_tables(graph: Subgraph, builtins: Builtins, *, is_cut: bool) -> Subgraph:
    """Return a graph with tables, and with kernels on integers, for some functions; itself where it has none of these.

    Args:
        graph: a graph.
        builtins: those that the runtime has.
        is_cut: whether a function begins and ends at each tensor of integers; else functions of functions are one.
    """
    functions = {each.result.index: each for each in _functions(graph, is_cut=is_cut) if not _runs(each, builtins)}
    if not functions:
        return graph
    tensors, operators = list(graph.tensors), list[Operator]()
    for operator in graph.operators:
        function = functions.get(operator.outputs[0]) if operator.outputs else None
        kernel = None if function is None else _kernel(function, builtins)
        if function is None:
            operators.append(operator)
        elif kernel is not None:
            operators.append(kernel._replace(inputs=(function.source.index,), outputs=(function.result.index,)))
        else:
            operators += _lookup(function, _table(graph, function), tensors)
    return graph._replace(tensors=tuple(tensors), operators=tuple(_read(operators, graph.outputs)))


def _kernel(function: Function, builtins: Builtins) -> Operator | None:
    """Return the operator of a function that is one, and that a runtime computes on integers; None where it is none."""
    assert builtins.on_bytes is not None
    kernels = function.kernels
    return kernels[0] if len(kernels) == 1 and kernels[0].name in builtins.on_bytes else None


def _runs(function: Function, builtins: Builtins) -> bool:
    """Tell whether a runtime computes a function on integers, operator by operator."""
    return not function.is_real and all(builtins.has(each.name, TensorType.INT8) for each in function.kernels)


def _functions(graph: Subgraph, *, is_cut: bool) -> list[Function]:
    """Return the functions of which other operators, or nobody, read the results; if `is_cut`, all."""
    sources = _sources(graph, is_cut=is_cut)
    producers = {each: number for number, row in enumerate(graph.operators) for each in row.outputs}
    rest = [row for row in graph.operators if sources.keys().isdisjoint(row.outputs)]
    read = {*graph.outputs, *(place for row in rest for place in row.inputs)}
    functions: list[Function] = []
    for place, source in sources.items():
        if not _has_steps(graph.tensors[place]) or (place not in read and not is_cut):
            continue
        operators = _between(graph, source, place, producers)
        reals = [row.outputs[0] for row in operators if _is_real(graph, row)]
        function = Function(graph.tensors[source], graph.tensors[place], operators, bool(reals))
        if function.kernels and read.isdisjoint(set(reals) - {place}):  # what others read is computed anyway
            functions.append(function)
    return functions


def _between(graph: Subgraph, source: int, result: int, producers: Mapping[int, int]) -> tuple[Operator, ...]:
    """Return the operators by which a tensor is a function of another one, in order."""
    numbers, waiting = set[int](), [result]
    while waiting:
        place = waiting.pop()
        number = producers.get(place)
        if place != source and number is not None and number not in numbers:
            numbers.add(number)
            waiting += graph.operators[number].inputs
    return tuple(graph.operators[number] for number in sorted(numbers))


def _is_real(graph: Subgraph, operator: Operator) -> bool:
    """Tell whether an operator reads or gives real numbers, and not to dequantize or quantize them."""
    kinds = {graph.tensors[each].type for each in (*operator.inputs, *operator.outputs) if each >= 0}
    return operator.name not in CONVERSIONS and TensorType.FLOAT32 in kinds


def _sources(graph: Subgraph, *, is_cut: bool) -> dict[int, int]:
    """Return tensor -> the integers of 8 bits that it is a function of, for each that is a function of one tensor."""

    def source_of(place: int) -> int:
        is_end = is_cut and place >= 0 and _has_steps(graph.tensors[place])
        return place if is_end else sources.get(place, place)

    sources: dict[int, int] = {}
    for operator in graph.operators:
        read = [each for each in operator.inputs if each < 0 or not _is_number(graph.tensors[each])]
        own = set(map(source_of, read))
        if operator.name not in (*FUNCTIONS, *CONVERSIONS) or len(own) != 1:
            continue
        (source,), result = own, operator.outputs[0]
        if (
            source >= 0
            and graph.tensors[source].signature == graph.tensors[result].signature
            and _has_steps(graph.tensors[source])
        ):
            sources[result] = source
    return sources


def _is_number(tensor: Tensor) -> bool:
    """Tell whether a tensor is a constant of one element."""
    return tensor.data is not None and prod(tensor.shape) == 1 and tensor.type in NUMPY


def _has_steps(tensor: Tensor) -> bool:
    """Tell whether a tensor holds integers of 8 bits of one scale."""
    meaning = tensor.quantization
    is_computed = tensor.data is None and tensor.type == TensorType.INT8
    return is_computed and meaning is not None and meaning.scale.size == 1


def _table(graph: Subgraph, function: Function) -> NDArray[np.int8]:
    """Return what a function gives for -128, -127, …, 127."""
    source, result = function.source, function.result
    numbers: dict[int, NDArray[Any]] = {source.index: _real(INTEGERS, source)}
    with np.errstate(all="ignore"):
        for operator in function.operators:
            operands = [_operand(graph.tensors[each], numbers) for each in operator.inputs]
            fields = {} if operator.options is None else operator.options.fields
            compute = FUNCTIONS.get(operator.name)
            computed = operands[0] if compute is None else compute(fields, *operands)
            kind = np.bool_ if graph.tensors[operator.outputs[0]].type == TensorType.BOOL else np.float32
            numbers[operator.outputs[0]] = np.asarray(computed, kind)
        assert result.quantization is not None
        steps = np.rint(np.nan_to_num(numbers[result.index] / result.quantization.scale[0]))
    zero = result.quantization.zero_point[0]
    return np.asarray(np.clip(steps + zero, INTEGERS[0], INTEGERS[-1]), np.int8)


def _operand(tensor: Tensor, numbers: Mapping[int, NDArray[Any]]) -> NDArray[Any]:
    """Return the numbers that an operand stands for."""
    if tensor.index in numbers:
        return numbers[tensor.index]
    constant = tensor.content.view(NUMPY[tensor.type])
    return constant if tensor.quantization is None else _real(constant, tensor)


def _real(integers: NDArray[Any], tensor: Tensor) -> NDArray[np.float32]:
    """Return the numbers that the integers of a tensor mean."""
    assert tensor.quantization is not None
    steps = np.asarray(integers - tensor.quantization.zero_point[0], np.float32)
    return np.asarray(steps * tensor.quantization.scale[0])


def _lookup(function: Function, table: NDArray[np.int8], tensors: list[Tensor]) -> list[Operator]:
    """Return the operators that look a function up, and add their tensors."""
    source, result = function.source, function.result
    values, first, wide, places = range(len(tensors), len(tensors) + 4)
    for what, constant in (("table", table), ("first", np.array(-INTEGERS[0], np.int32))):
        kind, meaning = (TensorType.INT8, result.quantization) if what == "table" else (TensorType.INT32, None)
        name, shape = f"{result.name}/{what}", constant.shape
        tensors.append(Tensor(len(tensors), name, kind, shape, shape, array_content(constant), meaning))
    for what in ("wide", "places"):
        name = f"{result.name}/{what}"
        tensors.append(Tensor(len(tensors), name, TensorType.INT32, source.shape, source.signature))
    kinds = {"in_data_type": TensorType.INT8, "out_data_type": TensorType.INT32}
    return [
        Operator("CAST", 1, (source.index,), (wide,), options=options("CastOptions", **kinds)),
        Operator("ADD", 1, (wide, first), (places,), options=options("AddOptions")),
        Operator("GATHER", 1, (values, places), (result.index,), options=options("GatherOptions", axis=0)),
    ]


def _read(operators: Sequence[Operator], ends: Sequence[int]) -> list[Operator]:
    """Return the operators whose results are read, or that give none."""
    read, rest = set(ends), list[Operator]()
    for operator in reversed(operators):
        if not operator.outputs or not read.isdisjoint(operator.outputs):
            rest.append(operator)
            read.update(operator.inputs)
    return rest[::-1]
