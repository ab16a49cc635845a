"""A node of the ONNX graph as it is read: attributes, operands, constants and extents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
from numpy.typing import NDArray

from relayout.formats.tflite.exporting.draft import Dims
from relayout.formats.tflite.exporting.kernel_types import tensor_dims
from relayout.formats.tflite.exporting.registry import Unwritable


class NodeReading:
    """A node."""

    node: ir.Node

    def integer(self, name: str, default: int = 0) -> int:
        """Return an attribute that is an integer."""
        return self.node.attributes.get_int(name, default)

    def number(self, name: str, default: float = 0.0) -> float:
        """Return an attribute that is a number."""
        return self.node.attributes.get_float(name, default)

    def text(self, name: str, default: str = "") -> str:
        """Return an attribute that is a text."""
        return self.node.attributes.get_string(name, default)

    def integers(self, name: str, default: Sequence[int] = ()) -> list[int]:
        """Return an attribute that is a list of integers."""
        return list(self.node.attributes.get_ints(name, default))

    def numbers(self, name: str, default: Sequence[float] = ()) -> list[float]:
        """Return an attribute that is a list of numbers."""
        return list(self.node.attributes.get_floats(name, default))

    def has(self, slot: int) -> bool:
        """Return whether the node has an operand."""
        return slot < len(self.node.inputs) and self.node.inputs[slot] is not None

    def gives(self, slot: int) -> bool:
        """Return whether anybody reads an output."""
        if slot >= len(self.node.outputs):
            return False
        value = self.node.outputs[slot]
        return bool(value.uses()) or value.is_graph_output()

    def value(self, slot: int) -> ir.Value:
        """Return the value that an operand is."""
        value = self.node.inputs[slot] if slot < len(self.node.inputs) else None
        if value is None:
            raise Unwritable(f"operand {slot} is missing")
        return value

    def constant(self, slot: int) -> NDArray[Any] | None:
        """Return an operand that is a constant; None where it is absent or computed."""
        if not self.has(slot):
            return None
        tensor = self.value(slot).const_value
        return None if tensor is None or self.value(slot).is_graph_input() else tensor.numpy()

    def required_constant(self, slot: int, what: str) -> NDArray[Any]:
        """Return an operand that must be a constant."""
        array = self.constant(slot)
        if array is None:
            raise Unwritable(f"{what} is computed")
        return array

    def dims(self, slot: int = 0) -> Dims:
        """Return the extents of an operand."""
        return tensor_dims(self.value(slot))
