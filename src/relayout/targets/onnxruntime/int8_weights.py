"""Weights of uint8 beside data of uint8 as int8: the same numbers, integers and zero point 128 lower.

ONNX Runtime multiplies uint8 by int8 twice as fast as uint8 by uint8. The tensor that is added beside the file's own is
`moved_by_128`: what refuses or reads it goes by the type in the file.
"""

from __future__ import annotations

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import Model, Operator, Subgraph
from relayout.formats.tflite.importing.import_passes import FilePass
from relayout.formats.tflite.importing.importer import SubgraphRewriting
from relayout.targets.onnxruntime.uint8_activations import moved_by_128

DATA = {"CONV_2D": 0, "CONV_3D": 0, "CONV_3D_TRANSPOSE": 2, "DEPTHWISE_CONV_2D": 0, "FULLY_CONNECTED": 0}
DATA |= {"TRANSPOSE_CONV": 2}
"""Operators whose operand 1 is weights -> which operand is data."""


def int8_weights(model: Model) -> Model:
    """Return the model with weights of uint8 as int8, where they have one scale and meet data of uint8."""
    return model._replace(subgraphs=tuple(_Lowering(subgraph).run() for subgraph in model.subgraphs))


PASS = FilePass("int8_weights", int8_weights)
"""It goes by the type that each tensor has in the file: it may stand anywhere."""


class _Lowering(SubgraphRewriting):
    """One subgraph while its weights are changed."""

    def run(self) -> Subgraph:
        made: dict[int, int] = {}
        operators = tuple(self._rewritten(operator, made) for operator in self.subgraph.operators)
        return self.subgraph._replace(tensors=tuple(self.tensors), operators=operators) if made else self.subgraph

    def _rewritten(self, operator: Operator, made: dict[int, int]) -> Operator:
        data = DATA.get(operator.name)
        if data is None or len(operator.inputs) <= max(data, 1) or min(operator.inputs[data], operator.inputs[1]) < 0:
            return operator
        index = operator.inputs[1]
        weights, quantization = self.tensors[index], self.tensors[index].quantization
        of_bytes = weights.type == self.tensors[operator.inputs[data]].stated == TensorType.UINT8
        if not of_bytes or weights.data is None or weights.sparsity is not None:
            return operator
        if quantization is None or quantization.per_channel:
            return operator
        if index not in made:
            made[index] = self.add(moved_by_128(self.tensors[index], TensorType.INT8), "lowered")
        return operator._replace(inputs=(operator.inputs[0], made[index], *operator.inputs[2:]))
