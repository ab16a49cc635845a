"""The graph of a `.tflite` file under construction. Tensors are objects; they get their indices at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relayout.formats.stored import Content
from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import Operator, Quantization, Subgraph, Tensor
from relayout.formats.tflite.container.schema import OPTIONS
from relayout.formats.tflite.container.writer import options
from relayout.formats.tflite.exporting.registry import OpenExtentError, Unwritable
from relayout.light_dataclass import dataclass

Dims = tuple[int | str, ...]  # extents of a tensor; one that is known only at run time has a name

NUMPY_TYPES: Mapping[str, TensorType] = {
    "float32": TensorType.FLOAT32,
    "float16": TensorType.FLOAT16,
    "float64": TensorType.FLOAT64,
    "int64": TensorType.INT64,
    "int32": TensorType.INT32,
    "int16": TensorType.INT16,
    "int8": TensorType.INT8,
    "uint64": TensorType.UINT64,
    "uint32": TensorType.UINT32,
    "uint16": TensorType.UINT16,
    "uint8": TensorType.UINT8,
    "bool": TensorType.BOOL,
    "complex64": TensorType.COMPLEX64,
}


class _NumpyTypes(dict[TensorType, type[Any]]):
    """NumPy's types of constants."""

    def __missing__(self, kind: TensorType) -> type[Any]:
        raise Unwritable(f"constants of {kind.name}")


NUMPY = _NumpyTypes(
    {kind: np.dtype(name).type for name, kind in NUMPY_TYPES.items() if kind is not TensorType.COMPLEX64}
)


def all_known(dims: Iterable[object]) -> bool:
    """Return whether no extent is known only at run time."""
    return all(isinstance(dim, int) for dim in dims)


def known(dims: Dims, reason: str = "an extent that it counts on is known only at run time") -> tuple[int, ...]:
    """Return extents that must all be known."""
    if not all_known(dims):
        raise OpenExtentError(reason, [dim for dim in dims if isinstance(dim, str)])
    return tuple(int(dim) for dim in dims)


@dataclass(eq=False)
class DraftTensor:
    """One tensor."""

    name: str  # its name in the file
    type: TensorType  # its element type
    dims: Dims  # its extents
    data: Content | NDArray[np.uint8] | None = None  # a constant's bytes, or what streams them; None: it is computed
    array: NDArray[Any] | None = None  # the constant, where it is small and known
    quantization: Quantization | None = None  # what its integers mean
    variable: bool = False  # whether it keeps its value from run to run

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents that the file states: 1 for one that is known only at run time."""
        return tuple(dim if isinstance(dim, int) else 1 for dim in self.dims)

    @property
    def is_static(self) -> bool:
        """True if every extent is known."""
        return all_known(self.dims)


@dataclass(eq=False)
class DraftOperator:
    """One operator: its builtin's name (or `CUSTOM code`), operands, results, options, and what it keeps between.

    One that is restored is as the file has it that the model was read from. `node` is the first output of the node of
    the graph that it is a part of.
    """

    name: str
    inputs: list[DraftTensor | None]
    outputs: list[DraftTensor]
    options: dict[str, Any] = field(default_factory=dict)
    custom_options: bytes = b""
    intermediates: tuple[DraftTensor, ...] = ()
    is_restored: bool = False
    node: str = ""


class Draft:
    """One subgraph under construction: its operators run in the order in which they were added."""

    def __init__(self, name: str = "main") -> None:
        self.name = name
        self.inputs: list[DraftTensor] = []
        self.outputs: list[DraftTensor] = []
        self.operators: list[DraftOperator] = []
        self.leading: list[DraftOperator] = []  # operators that run before all others, once all are there
        self._constants: dict[tuple[str, tuple[int, ...], bytes], DraftTensor] = {}
        self.transposed: dict[DraftTensor, DraftTensor] = {}
        """A large constant matrix -> the same transposed: one for all products that read it."""
        self._names: dict[str, int] = {}
        self.tables: dict[DraftTensor, tuple[DraftTensor, DraftTensor]] = {}
        """Handle of a table -> its keys and values, which are constants."""
        self.reserved: frozenset[str] = frozenset()
        """Names of values of the graph: no tensor in between takes one, or `verify` would compare the two."""

    def unique(self, name: str) -> str:
        """Return a name that no tensor has yet."""
        result = name
        while result in self._names:
            self._names[name] += 1
            result = f"{name}_{self._names[name]}"
        self._names[result] = 0
        return result

    def taken(self, name: str) -> str:
        """Return a name that a tensor got, which no other one shall get."""
        self._names.setdefault(name, 0)
        return name

    def tensor(self, name: str, kind: TensorType, dims: Dims, quantization: Quantization | None = None) -> DraftTensor:
        """Add a tensor that an operator computes."""
        return DraftTensor(self._between(name), kind, dims, quantization=quantization)

    def _between(self, name: str) -> str:
        """Return a unique name that no value of the graph has, either."""
        result = name
        while result in self.reserved or (result := self.unique(result)) in self.reserved:
            result = f"{result}/between"
        return result

    def constant(self, name: str, array: NDArray[Any], quantization: Quantization | None = None) -> DraftTensor:
        """Add a small constant; equal ones without quantization are one tensor."""
        array = np.asarray(array, order="C")
        if (kind := NUMPY_TYPES.get(array.dtype.name)) is None:
            raise Unwritable(f"elements of {array.dtype.name.upper()}")
        raw = array.tobytes()
        key = (array.dtype.name, array.shape, raw)
        if quantization is None and key in self._constants:
            return self._constants[key]
        data = np.frombuffer(raw, np.uint8) if raw else None
        tensor = DraftTensor(self._between(name), kind, array.shape, data, array, quantization)
        if quantization is None:
            self._constants[key] = tensor
        return tensor

    def add(
        self,
        name: str,
        inputs: Sequence[DraftTensor | None],
        outputs: Sequence[DraftTensor],
        custom_options: bytes = b"",
        **fields: Any,
    ) -> DraftOperator:
        """Add an operator. Options that are not named have the schema's defaults."""
        # Files hold options in single precision, and are read back.
        rounded = {key: float(np.float32(each)) if isinstance(each, float) else each for key, each in fields.items()}
        operator = DraftOperator(name, list(inputs), list(outputs), rounded, custom_options)
        self.operators.append(operator)
        return operator

    def add_cast(self, source: DraftTensor, result: DraftTensor) -> None:
        """Add the CAST of a tensor to the type of another one."""
        self.add("CAST", [source], [result], in_data_type=source.type, out_data_type=result.type)

    def producers(self) -> dict[DraftTensor, DraftOperator]:
        """Return the operator that gives each tensor."""
        return {tensor: operator for operator in self.operators for tensor in operator.outputs}

    def readers(self) -> dict[DraftTensor, int]:
        """Return how many operands and outputs of the graph each tensor is."""
        read = chain(chain.from_iterable(each.inputs for each in self.operators), self.outputs)
        return Counter(filter(None, read))

    def described(self, operator: DraftOperator) -> tuple[Operator, tuple[Tensor, ...]]:
        """Return one operator and its tensors as the writer takes them."""
        alone = Draft()
        alone.operators.append(operator)
        graph = alone.finish()
        return graph.operators[0], graph.tensors

    def finish(self, place: str = "subgraphs[0]") -> Subgraph:
        """Return the subgraph as the writer takes it."""
        used = dict.fromkeys(self.tensors())
        index = {tensor: number for number, tensor in enumerate(used)}
        tensors = tuple(_written(tensor, number, place) for tensor, number in index.items())
        operators = tuple(
            Operator(
                each.name,
                1,
                tuple(-1 if tensor is None else index[tensor] for tensor in each.inputs),
                tuple(index[tensor] for tensor in each.outputs),
                tuple(index[tensor] for tensor in each.intermediates),
                options(kind, **each.options) if (kind := OPTIONS.get(each.name)) else None,
                np.frombuffer(each.custom_options, np.uint8),
                f"{place}.operators[{number}]",
            )
            for number, each in enumerate(self.operators)
        )
        inputs, outputs = (tuple(index[tensor] for tensor in side) for side in (self.inputs, self.outputs))
        return Subgraph(self.name, tensors, inputs, outputs, operators, place)

    def tensors(self) -> Iterable[DraftTensor]:
        """Yield every tensor, in the order of the file, at each place where it is read or written."""
        yield from self.inputs
        for operator in self.operators:
            yield from (tensor for tensor in operator.inputs if tensor is not None)
            yield from operator.outputs
            yield from operator.intermediates
        yield from self.outputs


def _written(tensor: DraftTensor, index: int, place: str) -> Tensor:
    signature = tuple(dim if isinstance(dim, int) else -1 for dim in tensor.dims)
    return Tensor(
        index=index,
        name=tensor.name,
        type=tensor.type,
        shape=tensor.shape,
        signature=signature,
        data=tensor.data if tensor.data is not None and tensor.data.nbytes else None,  # no bytes: no buffer
        quantization=tensor.quantization,
        is_variable=tensor.variable,
        sparsity=None,
        place=f"{place}.tensors[{index}]",
    )
