"""What a rule may look at: one node with shapes and constants, and nothing of the graph around it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import TypeGuard

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.graph.quantized_unit import QuantizedUnit, unit_of
from relayout.layout import Dim, Extent
from relayout.light_dataclass import dataclass

Shape = tuple[Dim, ...]
Letters = tuple[str, ...]
WRAPPING = (ir.SequenceType, ir.OptionalType)
"""Types of values that are no tensors: what they say of a shape is their elements'. As protocols they are slow to ask
whether a value's type is one of theirs."""


def is_static(dims: tuple[int | ir.SymbolicDim, ...]) -> TypeGuard[tuple[int, ...]]:
    """Tell whether all extents are numbers."""
    return set(map(type, dims)) <= {int}


PLAIN = (ir.AttributeType.INT, ir.AttributeType.FLOAT, ir.AttributeType.STRING)
LISTS = (ir.AttributeType.INTS, ir.AttributeType.FLOATS, ir.AttributeType.STRINGS)
AROUND, UNIT = -1, -2
"""Among the inputs that were looked at: the node itself, and with it whatever is around it; its quantized unit."""
MOST_ELEMENTS = 64  # elements of a constant that is compared with those of nodes alike


@dataclass(eq=False, slots=True)
class Operator:
    """A node as its rule sees it.

    Args:
        bare: the node, for who looks at nothing of it but its name, domain and attributes.
        version: the opset version of its domain.
        inputs: shape of each input; None for an absent input or an unknown rank.
        outputs: shape of each output.
        looked: the inputs whose values were asked for; with `AROUND` the node itself, with `UNIT` its unit.
    """

    bare: ir.Node
    version: int
    inputs: tuple[Shape | None, ...]
    outputs: tuple[Shape | None, ...]
    looked: set[int] = field(default_factory=set, compare=False)
    _unit: tuple[QuantizedUnit | None] | None = None  # once it was asked for

    @property
    def node(self) -> ir.Node:
        """The node. An answer that looks at it is of this node alone: the methods below tell what is alike."""
        self.looked.add(AROUND)
        return self.bare

    def unit(self) -> QuantizedUnit | None:
        """Return the quantized unit that the node belongs to, if it belongs to one."""
        self.looked.add(UNIT)
        if self._unit is None:
            self._unit = (unit_of(self.bare),)
        return self._unit[0]

    @property
    def name(self) -> str:
        """The operator's type."""
        return self.bare.op_type

    @property
    def domain(self) -> str:
        """The operator's domain."""
        return self.bare.domain

    @property
    def attributes(self) -> Mapping[str, ir.Attr]:
        """The node's attributes."""
        return self.bare.attributes

    def rank(self, index: int = 0) -> int | None:
        """Return the rank of an input, where known."""
        shape = self.inputs[index] if index < len(self.inputs) else None
        return None if shape is None else len(shape)

    def needed_rank(self, index: int = 0, *, least: int = 0) -> int:
        """The rank of an input that a rule needs to say anything: a node is a barrier where `facts` sees the error.

        Raises:
            ValueError: it is not known, or lower than `least`.
        """
        rank = self.rank(index)
        if rank is None or rank < least:
            raise ValueError(f"the rank of input {index} of {self.name} is {rank}")
        return rank

    def letters(self, index: int = 0, *, least: int = 0) -> Letters:
        """Letters for the dimensions of an input whose axes have no meaning of their own; see `needed_rank`."""
        return axis_letters(self.needed_rank(index, least=least))

    def has(self, index: int) -> bool:
        """Tell whether the node has the optional input `index`."""
        return self._input(index) is not None

    def shape(self, index: int = 0) -> Shape | None:
        """Return the shape of an input, where it is given and its rank is known."""
        return self.inputs[index] if index < len(self.inputs) else None

    def gives(self, index: int) -> bool:
        """Tell whether the node has the optional output `index`."""
        outputs = self.bare.outputs
        return index < len(outputs) and bool(outputs[index].name)

    def operands(self, letters_of: Mapping[int, Letters]) -> tuple[Letters | None, ...]:
        """Return the letters of every input: those of `letters_of`, and none for absent ones and parameters."""
        return tuple(letters_of.get(index) if self.has(index) else None for index in range(len(self.inputs)))

    def results(self, letters: Letters) -> tuple[Letters | None, ...]:
        """Return the same letters for every output."""
        return (letters,) * len(self.outputs)

    def kind(self, index: int) -> ir.DataType | None:
        """Return the element type of an input, where it is given and known."""
        value = self._input(index)
        return None if value is None else value.dtype

    def dtype(self, index: int) -> np.dtype[np.generic]:
        """Return the element type of an input of integers; int64 where it is not known."""
        kind = self.kind(index)
        return np.dtype(np.int64) if kind is None else kind.numpy()

    def width(self, index: int) -> int:
        """Count the bytes of an element of an input; 1 where its type is not known, and of texts."""
        kind = self.kind(index)
        return 1 if kind is None or kind == ir.DataType.STRING else max(1, int(kind.itemsize))

    def _input(self, index: int) -> ir.Value | None:
        inputs = self.bare.inputs
        return inputs[index] if index < len(inputs) else None

    def is_initializer(self, index: int) -> bool:
        """Tell whether an input holds a constant, without a look at its value."""
        value = self._input(index)
        return value is not None and value.const_value is not None and not value.is_graph_input()

    def constant(self, index: int) -> NDArray[np.generic] | None:
        """The value of a constant input, or None where it is absent or computed; an Identity is no computation."""
        tensor = self._tensor(index)
        return None if tensor is None else tensor.numpy()

    def _tensor(self, index: int) -> ir.TensorProtocol | None:
        """Return the tensor that a constant input holds, or None."""
        value = self._input(index)
        if value is not None:
            self.looked.add(index)
        while value is not None and value.const_value is None and (producer := value.producer()) is not None:
            value = producer.inputs[0] if producer.op_type == "Identity" and not producer.domain else None
        return None if value is None or value.is_graph_input() else value.const_value

    def described(self) -> tuple[Hashable, ...] | None:
        """The node without the values of its inputs, but whether they are constants: what nodes that are alike share.

        None where its attributes are no plain values.
        """
        node = self.bare
        outputs = node.outputs
        key: list[Hashable] = [node.domain, node.op_type, self.version, self.inputs, self.outputs]
        for value in node.inputs:
            if value is None:
                key.append(None)
                continue
            dtype = value.dtype
            key += (dtype and int(dtype), value.const_value is not None and not value.is_graph_input())
        one = len(outputs) == 1
        key.append(bool(outputs[0].name) if one else tuple([self.wants(slot) for slot in range(len(outputs))]))
        for attribute in node.attributes.values() if node.attributes else ():
            if attribute.is_ref() or attribute.type not in (*PLAIN, *LISTS):
                return None
            value = attribute.value
            key += [attribute.name, attribute.type, tuple(value) if attribute.type in LISTS else value]
        return tuple(key)

    def contents(self, slots: Iterable[int]) -> tuple[Hashable, ...] | None:
        """Return the values of some inputs, to be compared with those of another node; None where they are too long.

        No two nodes are alike in their quantized units, but for those that have none.
        """
        contents: list[Hashable] = []
        for slot in slots:
            if slot == UNIT:
                if self.unit() is not None:
                    return None
                continue
            tensor = self._tensor(slot)
            if tensor is not None and tensor.size > MOST_ELEMENTS:
                return None
            array = None if tensor is None else tensor.numpy()
            contents.append(None if array is None else (array.dtype.str, array.shape, array.tobytes()))
        return tuple(contents)

    def wants(self, slot: int) -> bool:
        """Tell whether an output is asked for; one of unknown rank (a Dropout's mask) only where somebody reads it."""
        if not slot or self.outputs[slot] is not None or not self.gives(slot):
            return self.gives(slot)
        value = self.bare.outputs[slot]
        return bool(value.uses()) or value.is_graph_output()

    def integers(self, index: int) -> tuple[int, ...] | None:
        """Return a constant input of integers, or None."""
        array = self.constant(index)
        return None if array is None else tuple(int(item) for item in array.reshape(-1))

    def ints(self, name: str) -> tuple[int, ...] | None:
        """Return an attribute of integers, or None where it is absent."""
        numbers = self.bare.attributes.get_ints(name)
        return None if numbers is None else tuple(numbers)

    def floats(self, name: str) -> Sequence[float] | None:
        """Return an attribute of real numbers, or None where it is absent."""
        return self.bare.attributes.get_floats(name)

    def string(self, name: str, default: str) -> str:
        """Return a string attribute."""
        return self.bare.attributes.get_string(name, default)

    def extent(self, index: int, axis: int) -> Extent | None:
        """Return the extent of one dimension of an input, where the rank is known."""
        shape = self.inputs[index]
        return None if shape is None else Extent.of(shape[axis])

    def int(self, name: str, default: int) -> int:
        """Return an integer attribute."""
        return self.bare.attributes.get_int(name, default)

    def float(self, name: str, default: float) -> float:
        """Return a real attribute."""
        return self.bare.attributes.get_float(name, default)


def axis_letters(rank: int, prefix: str = "d") -> tuple[str, ...]:
    """Letters for the dimensions of an operand whose axes have no meaning of their own."""
    return tuple(f"{prefix}{axis}" for axis in range(rank))


def normalized(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Axes counted from the front."""
    return tuple(axis % rank if rank else 0 for axis in axes)


Output = tuple[ir.DataType | None, Shape | None]
"""The element type and the shape of an output: None is a type or a rank that is not known, `""` such an extent."""
Shapes = Callable[[Operator], Sequence[Output]]
"""Gives the outputs of a node, by the shapes and constants of its inputs; of those left out nothing is known."""
