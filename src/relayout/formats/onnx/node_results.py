"""Results of one node of known operands: by NumPy where that is simple, else by ONNX's reference."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping

import numpy as np
import onnx

from relayout.formats.onnx.plain_operators import compute_plainly
from relayout.formats.onnx.shape_vectors import Array, move_elements

NUMERIC = "iubf"
"""Kinds of NumPy types that are computed with. Others are moved alone."""


def node_results(
    node: onnx.NodeProto, operands: Mapping[str, Array], opsets: Iterable[onnx.OperatorSetIdProto]
) -> list[Array]:
    """Return what a node gives, an array for each output that has a name.

    Args:
        node: the node.
        operands: its operands, by name.
        opsets: of its model.

    Returns:
        The arrays; none where nobody computes it, or where the node is wrong: it is simply not known in advance.
    """
    slots = [operands.get(name) for name in node.input]
    try:
        with np.errstate(all="ignore"):
            moved = move_elements(node, slots)
            if moved is not None:
                return [moved]
            if any(array.dtype.kind not in NUMERIC for array in operands.values()):
                return []
            plain = compute_plainly(node, slots)
            return _by_reference(node, operands, opsets) if plain is None else [plain]
    except Exception:  # of many types: the reference lacks operators and types
        return []


def _by_reference(
    node: onnx.NodeProto, operands: Mapping[str, Array], opsets: Iterable[onnx.OperatorSetIdProto]
) -> list[Array]:
    from onnx.reference import ReferenceEvaluator

    inputs = [
        onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in operands.items()
    ]
    outputs = [onnx.helper.make_empty_tensor_value_info(name) for name in node.output if name]
    model = onnx.helper.make_model(onnx.helper.make_graph([node], "node", inputs, outputs), opset_imports=list(opsets))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [np.asarray(array) for array in ReferenceEvaluator(model).run(None, dict(operands))]
