"""A node of the ONNX graph as its export sees it: attributes, constants, extents, and what it writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import onnx_ir as ir
from numpy.typing import NDArray

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.exporting.builder import BuiltinBuilder
from relayout.formats.tflite.exporting.draft import Dims, DraftTensor, known
from relayout.formats.tflite.exporting.kernel_types import stored_type, tensor_dims
from relayout.formats.tflite.exporting.registry import Unwritable
from relayout.graph.quantized_unit import dequantizer_of, scale_of

if TYPE_CHECKING:
    from relayout.formats.tflite.exporting.graph_export import GraphExport

IMAGES = "relayout."  # what the domains of operators in other layouts begin with: `relayout.nhwc.ohwi`


class NodeReading:
    """A node as it is read: attributes, operands, constants and extents."""

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


class NodeExport(NodeReading, BuiltinBuilder):
    """One node, and the graph that its operators are added to.

    Args:
        graph: the graph under construction.
        node: the node.
        unit: whether it runs on integers.
    """

    def __init__(self, graph: GraphExport, node: ir.Node, *, quantized: bool = False) -> None:
        super().__init__(graph.draft, (node.outputs[0].name if node.outputs else "") or node.name or node.op_type)
        self.graph, self.node, self.quantized = graph, node, quantized
        self.op_type = node.op_type
        self.version = graph.version  # of ONNX's operators that the model imports

    # What the node says.

    @property
    def layouts(self) -> tuple[str, str]:
        """The layouts of images and of the kernel: `("nhwc", "ohwi")`; empty where they are ONNX's."""
        if not self.node.domain.startswith(IMAGES):
            return "", ""
        images, _, kernel = self.node.domain.removeprefix(IMAGES).partition(".")
        return images, kernel

    def require_channels_last(self) -> None:
        """Refuse an operator on images whose channels do not come last."""
        rank = self.rank(0)
        if rank > 2 and not self.layouts[0].endswith("c"):
            raise Unwritable("its channels do not come last")

    def out_dims(self, slot: int = 0) -> Dims:
        """Return the extents of an output."""
        return tensor_dims(self.node.outputs[slot])

    def rank(self, slot: int = 0) -> int:
        """Return the number of axes of an operand."""
        return len(self.dims(slot))

    def static(self, slot: int = 0) -> tuple[int, ...]:
        """Return the extents of an operand that must all be known."""
        return known(self.dims(slot))

    def axis(self, default: int = 0) -> int:
        """Return the attribute that counts the first operand's axes, counted from the front."""
        return self.integer("axis", default) % max(self.rank(), 1)

    def stored_type(self, slot: int = 0) -> TensorType:
        """Return the element type that an output has in the model: half precision is single inside of the file."""
        return stored_type(self.node.outputs[slot])

    def axes(
        self,
        slot: int = 1,  # the operand
        default: Sequence[int] | None = None,  # where they are not given; None: all axes
    ) -> list[int]:
        """Return axes that are an attribute in old versions and an operand in new ones, counted from the front."""
        rank = self.rank()
        axes = self.integers("axes")
        if self.has(slot):
            axes = [int(each) for each in self.required_constant(slot, "the list of axes").reshape(-1)]
        elif not axes:  # an attribute without any says nothing
            axes = list(range(rank) if default is None else default)
        return sorted(each % rank for each in axes) if rank else []

    # What it reads.

    def input(self, slot: int = 0) -> DraftTensor:
        """Return the tensor of an operand: its integers, where the node runs on integers."""
        tensor = self.graph.tensor_of(self.value(slot), integers=self.quantized)
        if self.quantized or self.graph.integers.moves_shifted(self.node):
            return tensor
        return self.graph.integers.as_stated(self.value(slot), tensor)

    def dequantized_constant(self) -> DraftTensor | None:
        """Return the integers of the second operand if it is made of constant ones alone; else None."""
        node = None if self.quantized else dequantizer_of(self.value(1))
        source = None if node is None or scale_of(node) is None else node.inputs[0]
        if node is None or source is None or source.const_value is None or source.is_graph_input():
            return None
        tensor = self.graph.integers.read(source, node)
        return tensor if tensor.type in (TensorType.INT8, TensorType.INT4, TensorType.UINT8) else None

    def inputs(self) -> list[DraftTensor]:
        """Return the tensors of all operands."""
        return [self.input(slot) for slot in range(len(self.node.inputs)) if self.has(slot)]

    # What it writes.

    def output(self, slot: int = 0) -> DraftTensor:
        """Return the tensor of an output: integers, where the node runs on integers."""
        return self.graph.result_of(self, slot)

    def result(self, name: str, inputs: Sequence[DraftTensor | None], slot: int = 0, **options: Any) -> None:
        """Add the operator that gives one of the node's outputs."""
        self.draft.add(name, inputs, [self.output(slot)], **options)

    def results(self, name: str, inputs: Sequence[DraftTensor | None], **options: Any) -> None:
        """Add the operator that gives all of the node's outputs."""
        slots = range(len(self.node.outputs))
        self.draft.add(name, inputs, [self.output(slot) for slot in slots], **options)

    def give(self, tensor: DraftTensor, slot: int = 0) -> None:
        """Let a tensor that is there already be one of the node's outputs."""
        self.graph.alias(self, slot, tensor)

    def give_new(self, tensor: DraftTensor) -> None:
        """Let what was computed be the node's output, with the extents that are known of that."""
        dims = self.out_dims()
        if tensor.data is None and tensor not in self.inputs() and len(tensor.dims) == len(dims):
            rows = zip(tensor.dims, dims, strict=True)
            tensor.dims = tuple(stated if isinstance(stated, int) else dim for dim, stated in rows)
        self.give(tensor)
