"""What a rule may look at: one node with shapes and constants, and nothing of the graph around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.layout import Dim, Extent
from relayout.light_dataclass import dataclass

Shape = tuple[Dim, ...]
Letters = tuple[str, ...]
WRAPPING = (ir.SequenceType, ir.OptionalType)
"""Types of values that are no tensors: what they say of a shape is their elements'. As protocols they are slow to ask
whether a value's type is one of theirs."""


@dataclass(eq=False, slots=True)
class Operator:
    """A node as its rule sees it.

    Args:
        node: the node; rules read its attributes only.
        version: the opset version of its domain.
        inputs: shape of each input; None for an absent input or an unknown rank.
        outputs: shape of each output.
        looked: the inputs whose values or element types the rule has asked for.
    """

    node: ir.Node
    version: int
    inputs: tuple[Shape | None, ...]
    outputs: tuple[Shape | None, ...]
    looked: set[int] = field(default_factory=set, compare=False)

    @property
    def name(self) -> str:
        """The operator's type."""
        return self.node.op_type

    def rank(self, index: int = 0) -> int | None:
        """The rank of an input, where known."""
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
        """Whether the optional input `index` is given."""
        return index < len(self.node.inputs) and self.node.inputs[index] is not None

    def shape(self, index: int = 0) -> Shape | None:
        """The shape of an input, where it is given and its rank is known."""
        return self.inputs[index] if index < len(self.inputs) else None

    def gives(self, index: int) -> bool:
        """Whether the optional output `index` is asked for."""
        return index < len(self.node.outputs) and bool(self.node.outputs[index].name)

    def operands(self, given: Mapping[int, Letters]) -> tuple[Letters | None, ...]:
        """The letters of every input: those of `given`, and none for absent ones and parameters."""
        return tuple(given.get(index) if self.has(index) else None for index in range(len(self.inputs)))

    def results(self, letters: Letters) -> tuple[Letters | None, ...]:
        """The same letters for every output."""
        return (letters,) * len(self.outputs)

    def dtype(self, index: int) -> np.dtype[np.generic]:
        """The element type of an input of integers; int64 where it is not known."""
        value = self._looked_at(index)
        return np.dtype(np.int64) if value is None or value.dtype is None else value.dtype.numpy()

    def width(self, index: int) -> int:
        """Count the bytes of an element of an input; 1 where its type is not known, and of texts."""
        value = self._looked_at(index)
        kind = None if value is None else value.dtype
        return 1 if kind is None or kind == ir.DataType.STRING else max(1, int(kind.itemsize))

    def constant(self, index: int) -> NDArray[np.generic] | None:
        """The value of a constant input, or None where it is absent or computed; an Identity is no computation."""
        value = self._looked_at(index)
        while value is not None and value.const_value is None and (maker := value.producer()) is not None:
            value = maker.inputs[0] if maker.op_type == "Identity" and not maker.domain else None
        if value is None or value.const_value is None:
            return None
        if value.is_graph_input():
            return None
        return value.const_value.numpy()

    def _looked_at(self, index: int) -> ir.Value | None:
        value = self.node.inputs[index] if index < len(self.node.inputs) else None
        if value is not None:
            self.looked.add(index)
        return value

    def integers(self, index: int) -> tuple[int, ...] | None:
        """A constant input of integers, or None."""
        array = self.constant(index)
        return None if array is None else tuple(int(item) for item in array.reshape(-1))

    def ints(self, name: str) -> tuple[int, ...] | None:
        """An attribute of integers, or None where it is absent."""
        found = self.node.attributes.get_ints(name)
        return None if found is None else tuple(found)

    def string(self, name: str, default: str) -> str:
        """A string attribute."""
        return self.node.attributes.get_string(name, default)

    def extent(self, index: int, axis: int) -> Extent | None:
        """The extent of one dimension of an input, where the rank is known."""
        shape = self.inputs[index]
        return None if shape is None else Extent.of(shape[axis])

    def int(self, name: str, default: int) -> int:
        """An integer attribute."""
        return self.node.attributes.get_int(name, default)


def axis_letters(rank: int, prefix: str = "d") -> tuple[str, ...]:
    """Letters for the dimensions of an operand whose axes have no meaning of their own."""
    return tuple(f"{prefix}{axis}" for axis in range(rank))


def normalized(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Axes counted from the front."""
    return tuple(axis % rank if rank else 0 for axis in axes)
