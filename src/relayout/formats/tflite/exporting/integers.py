"""The tensors of integers that the quantized values of a graph become."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import onnx_ir as ir

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import Quantization
from relayout.formats.tflite.exporting.constants import integer_constant
from relayout.formats.tflite.exporting.draft import Draft, DraftTensor
from relayout.formats.tflite.exporting.kernel_types import TENSOR_TYPES, kernel_type, tensor_dims
from relayout.formats.tflite.exporting.registry import Unwritable
from relayout.formats.tflite.exporting.scales import INTEGERS, JOINING, MOVING, change_sign, meaning_of, raised
from relayout.formats.tflite.exporting.tidying import MOVED, MOVERS
from relayout.graph.quantized_unit import Scale, scale_of
from relayout.layout.normalization import NORMALIZE

# Inputs and outputs on integers that are only moved: they mean what the moved integers mean.
#
#     x int8 -> RESHAPE -> int8 = 0.02 · (q + 5)    ->    x int8 = 0.02 · (q + 5)
#
# In ONNX an integer has no scale until it is dequantized, which may be behind a Reshape. Apps read how to quantize
# their data from the file's inputs.


def give_meaning(program: list[Draft], model: ir.Model) -> None:
    """Give inputs and outputs whose integers are only moved scales and zero points, in place.

    Not those whose integers the file normalizes itself: they are read as other numbers.
    """
    draft = program[0]
    raw = {value.name for value in model.graph.inputs if NORMALIZE in value.metadata_props}
    for tensor in filter(_is_without_meaning, draft.inputs):
        readers = [operator for operator in draft.operators if tensor in operator.inputs]
        if tensor.name not in raw and all(each.name in MOVERS for each in readers):
            tensor.quantization = _common(each.outputs[0].quantization for each in readers)
    producers = draft.producers()
    for tensor in filter(_is_without_meaning, draft.outputs):
        producer = producers.get(tensor)
        source = producer.inputs[0] if producer is not None and producer.name in MOVERS else None
        tensor.quantization = None if source is None else _common([source.quantization])


def _is_without_meaning(tensor: DraftTensor) -> bool:
    return tensor.quantization is None and tensor.type in MOVED


def _common(meanings: Iterable[Quantization | None]) -> Quantization | None:
    """Return what all mean, with one scale for all elements; None where they do not agree."""
    first, *others = [*meanings] or [None]
    if first is None or first.per_channel or not all(each is not None and first.equals(each) for each in others):
        return None
    return first


class IntegerTensors:
    """The integers of a graph: their tensors, of types that kernels take, and what they mean."""

    def __init__(
        self,
        draft: Draft,  # the subgraph under construction
        tensors: dict[ir.Value, DraftTensor],  # value -> its tensor, shared with the export of the graph
        scales: Mapping[ir.Value, Scale],  # integers -> their scales, where nodes state them
        # unsigned types -> the signed ones that integers get, and how much lower these lie
        shifts: Mapping[TensorType, tuple[TensorType, int]],
    ) -> None:
        self.draft, self.tensors, self.shifts = draft, tensors, shifts
        self.by_value: dict[ir.Value, DraftTensor] = {}
        """Integers between quantized units -> their tensor, of a type that kernels take."""
        self.stated: dict[ir.Value, DraftTensor] = {}
        """Unsigned integers that are stored as signed ones -> a copy in the type that ONNX states."""
        self._scales = scales

    def read(self, value: ir.Value, reader: ir.Node) -> DraftTensor:
        """Return the tensor of integers that are read as real numbers, of a type that kernels take."""
        kind = kernel_type(value)
        signed, shift, quantization = self.stored(value, reader)
        if value not in self.by_value:
            if value.const_value is not None and not value.is_graph_input():
                self.by_value[value] = integer_constant(self.draft, value, signed, shift, quantization)
            elif shift and value in self.tensors and self.tensors[value].type == kind:
                source = self.tensors[value]
                self._require_meaning(source, kind, quantization, shift)
                signed_tensor = self.draft.tensor(
                    f"{value.name}/{signed.name.lower()}", signed, tensor_dims(value), quantization
                )
                change_sign(self.draft, source, signed_tensor)
                self.by_value[value] = signed_tensor
            else:
                self.by_value[value] = self.tensors[value]
        self._require_meaning(self.by_value[value], kind, quantization, shift)
        return self.by_value[value]

    @staticmethod
    def _require_meaning(
        tensor: DraftTensor,  # the integers
        kind: TensorType,  # their type in the source
        meaning: Quantization,  # what they mean to the one that reads them, once they are signed
        shift: int,  # how much lower they lie once they are signed
    ) -> None:
        """Refuse integers that mean other numbers to those that made them, or to others that read them."""
        meaning = meaning._replace(zero_point=meaning.zero_point + (shift if tensor.type == kind else 0))
        tensor.quantization = tensor.quantization or meaning
        if not meaning.equals(tensor.quantization):
            raise Unwritable("integers that are read with two scales")

    def meaning(self, value: ir.Value) -> Quantization | None:
        """Return what the integers of a value mean, if anything in the graph says so."""
        scale = self._scales.get(value)  # of no constant: LiteRT's kernels take one scale
        return meaning_of(scale) if scale is not None and scale.is_one else None

    def stored(self, value: ir.Value, node: ir.Node) -> tuple[TensorType, int, Quantization]:
        """Return the type of integers in kernels, how much lower they lie there, and what they mean there.

        `node` says what they mean, or else any other one that reads or gives them.
        """
        scale = scale_of(node) or self._scales.get(value)
        if scale is None:
            raise Unwritable("the scale of its integers is computed")
        kind = kernel_type(value)
        signed, shift = self.shifts.get(kind, (kind, 0))
        return signed, shift, meaning_of(scale, shift)

    def as_stated(self, value: ir.Value, tensor: DraftTensor) -> DraftTensor:
        """Return integers in the type that ONNX states, where they are stored as signed ones."""
        kind = kernel_type(value)
        meaning = raised(tensor, kind) if value.dtype in INTEGERS else None
        if meaning is None:
            return tensor
        if value not in self.stated:
            unsigned_tensor = self.draft.tensor(f"{value.name}/{kind.name.lower()}", kind, tensor_dims(value), meaning)
            change_sign(self.draft, tensor, unsigned_tensor)
            self.stated[value] = unsigned_tensor
        return self.stated[value]

    def moves_shifted(self, node: ir.Node) -> bool:
        """Return whether a node moves integers that are all stored as signed ones: then its results are, too."""
        if node.op_type not in MOVING:
            return False
        joined = node.inputs if node.op_type in JOINING else node.inputs[:1]
        # The first that is not shifted ends it: each operand of a wide Concat asks.
        return any(value is not None for value in joined) and all(
            value is None or self._is_shifted(value) for value in joined
        )

    def _is_shifted(self, value: ir.Value) -> bool:
        tensor, kind = self.tensors.get(value), TENSOR_TYPES.get(value.dtype) if value.dtype else None
        return tensor is not None and kind is not None and tensor.type != kind

    def moved(self, node: ir.Node, value: ir.Value) -> DraftTensor | None:
        """Return the integers that a node moves, whose meaning its result has, too."""
        source = node.inputs[0] if node.op_type in MOVING and node.inputs else None
        if source is None or source.dtype != value.dtype or value.dtype not in INTEGERS:
            return None
        tensor = self.tensors.get(source)
        return tensor if tensor is None or self.moves_shifted(node) or tensor.type == kernel_type(value) else None
