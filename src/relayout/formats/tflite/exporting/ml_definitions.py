"""Definitions of operators of ai.onnx.ml: the operators of the standard that compute them.

    Scaler<offset, scale>(x)  ->  Mul(Sub(x, offset), scale)

Where a kernel is known to compute an operator in another way, for some rank or attribute, it has no definition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.formats.tflite.exporting import svm_definitions, tree_definitions
from relayout.formats.tflite.exporting.definition_body import FIRST, TO_FLOAT, DefinitionBody
from relayout.graph.subgraphs import all_nodes

DOMAIN = "ai.onnx.ml"
Definition = Callable[[DefinitionBody], bool]
"""A function that adds the nodes of a definition; it returns False where there is none."""


def _feature(body: DefinitionBody) -> bool:
    """Gather along the last axis; of a vector, a row."""
    if body.rank < 1:
        return False
    places = body.add("Reshape", "x1", body.const(np.array([-1])))
    found = body.add("Gather", "x0", places, axis=body.rank - 1)
    body.give(body.add("Reshape", found, body.const(np.array([1, -1]))) if body.rank == 1 else found)
    return True


def _binarizer(body: DefinitionBody) -> bool:
    """Greater and Cast."""
    threshold = np.array(body.node.attributes.get_float("threshold", 0.0), np.float32)
    body.give(body.add("Cast", body.add("Greater", "x0", body.const(threshold)), to=onnx.TensorProto.FLOAT))
    return body.kind == ir.DataType.FLOAT


def _scaler(body: DefinitionBody) -> bool:
    """Sub and Mul, in single precision."""
    offset, scale = body.floats("offset"), body.floats("scale")
    if body.kind not in TO_FLOAT or not body.fits(offset, scale):
        return False
    body.give(body.add("Mul", body.add("Sub", body.data(), body.const(offset)), body.const(scale)))
    return True


def _normalizer(body: DefinitionBody) -> bool:
    """Div by ReduceMax, which may be negative, or by ReduceL1 or ReduceL2; a row of zeros stays as it is."""
    by = {"MAX": "ReduceMax", "L1": "ReduceL1", "L2": "ReduceL2"}.get(body.node.attributes.get_string("norm", "MAX"))
    if body.kind not in TO_FLOAT or body.rank not in (1, 2) or by is None:
        return False
    data = body.data()
    size = body.reduce(by, data, body.rank - 1)
    is_zero = body.add("Equal", size, body.const(np.array(0, np.float32)))
    body.give(body.add("Div", data, body.add("Where", is_zero, body.const(np.array(1, np.float32)), size)))
    return True


def _imputer(body: DefinitionBody) -> bool:
    """IsNaN or Equal, and Where."""
    attributes = body.node.attributes
    imputed: NDArray[Any] = body.floats("imputed_value_floats")
    replaced: NDArray[Any] = np.array(attributes.get_float("replaced_value_float", 0.0), np.float32)
    if body.kind == ir.DataType.INT64:
        imputed = np.array(attributes.get_ints("imputed_value_int64s", []), np.int64)
        replaced = np.array(attributes.get_int("replaced_value_int64", 0))
    if body.kind not in (ir.DataType.INT64, ir.DataType.FLOAT) or not body.fits(imputed):
        return False
    is_missing = body.add("IsNaN", "x0") if replaced != replaced else body.add("Equal", "x0", body.const(replaced))
    body.give(body.add("Where", is_missing, body.const(imputed), "x0"))
    return True


def _one_hot(body: DefinitionBody) -> bool:
    """Equal and Cast; of texts the place in the list, by a LabelEncoder, is compared."""
    attributes = body.node.attributes
    texts, numbers = attributes.get_strings("cats_strings", []), attributes.get_ints("cats_int64s", [])
    count = len(texts) or len(numbers)
    if body.rank < 0 or not count or len({*texts, *numbers}) < count or bool(texts) == bool(numbers):
        return False
    if texts:
        places = _places(body, list(texts))
        categories: NDArray[Any] = np.arange(count)
    else:
        places = "x0" if body.kind == ir.DataType.INT64 else body.add("Cast", "x0", to=onnx.TensorProto.INT64)
        categories = np.array(numbers)
    column = body.add("Reshape", places, body.const(np.array([0] * body.rank + [1])))
    same = body.add("Equal", column, body.const(categories))
    body.give(body.add("Cast", same, to=onnx.TensorProto.FLOAT))
    return body.kind in ((ir.DataType.STRING,) if texts else TO_FLOAT)


def _places(body: DefinitionBody, texts: list[str]) -> str:
    """Return the place of each text of the first operand in a list; -1 where it is not there."""
    table: dict[str, Any] = {"keys_strings": texts, "values_int64s": list(range(len(texts)))}
    if body.imports.get(DOMAIN, 1) == 1:
        table = {"classes_strings": texts}
    return body.add("LabelEncoder", "x0", domain=DOMAIN, **table)


def _scores(body: DefinitionBody, rows: int, *, biased: bool = False) -> str | None:
    """Return the scores of linear functions; None where the coefficients do not fit the features."""
    weights, bias = body.floats("coefficients"), body.floats("intercepts")
    count = None if body.shape is None or body.rank not in (1, 2) else body.shape[-1]
    if body.kind not in TO_FLOAT or not rows or weights.size != rows * (count if isinstance(count, int) else 0):
        return None
    if bias.size != rows and (bias.size or biased):
        return None
    operands = [body.rows(), body.const(weights.reshape(rows, -1))]
    return body.add("Gemm", *operands, body.const(bias if bias.size else np.zeros(rows, np.float32)), transB=1)


def _regressor(body: DefinitionBody) -> bool:
    """Gemm."""
    attributes = body.node.attributes
    scores = _scores(body, attributes.get_int("targets", 1))
    if scores is None or attributes.get_string("post_transform", "NONE") != "NONE":
        return False
    body.give(scores)
    return True


def _classifier(body: DefinitionBody) -> bool:
    """Gemm, ArgMax and Gather, with Sigmoid or Softmax.

    There are as many linear functions as labels: of one function for two labels kernels make up the second score.
    """
    labels = body.labels("classlabels_ints")
    transform = body.node.attributes.get_string("post_transform", "NONE")
    scores = _scores(body, labels.size, biased=True) if labels.size > 1 else None
    if scores is None or transform not in ("NONE", "LOGISTIC", "SOFTMAX"):
        return False
    best = body.add("ArgMax", scores, axis=1, keepdims=0)
    body.give(body.add("Gather", body.const(labels), best))
    if transform == "LOGISTIC":
        scores = body.add("Sigmoid", scores)
    elif transform == "SOFTMAX":
        scores = body.add("Softmax", scores, axis=1)
    body.give(scores, 1)
    return True


DEFINITIONS: Mapping[str, Definition] = {
    "ArrayFeatureExtractor": _feature,
    "Binarizer": _binarizer,
    "Imputer": _imputer,
    "LinearClassifier": _classifier,
    "LinearRegressor": _regressor,
    "Normalizer": _normalizer,
    "OneHotEncoder": _one_hot,
    "Scaler": _scaler,
    **svm_definitions.DEFINITIONS,
    **tree_definitions.DEFINITIONS,
}
"""Operator of ai.onnx.ml -> what adds the nodes that compute it."""
RAISED = 13  # the version of the standard that definitions are written in, where the model may import it
FLATTENED = ("Hardmax", "LogSoftmax", "Softmax")  # operators that saw their operand as a matrix before
UNKNOWN = "TensorFlow Lite has no such operator"
UNDEFINED = "no operators are known that compute it with these attributes, types and ranks"
"""The reasons why an operator without an export is refused: UNDEFINED is that of one which others may define."""


def summaries() -> dict[str, str]:
    """Return operator, with its domain -> what it becomes."""
    return {f"{DOMAIN}:{name}": (each.__doc__ or "").partition("\n")[0] for name, each in DEFINITIONS.items()}


def reason_of_lack(domain: str, op_type: str) -> str:
    """Return the reason why an operator is refused that has neither an export nor a definition."""
    return UNDEFINED if domain == DOMAIN and op_type in DEFINITIONS else UNKNOWN


def raise_opset(model: ir.Model) -> None:
    """Let a model with operators of ai.onnx.ml import the standard of their definitions, in place.

    Only where each of its operators of the standard has the same inputs and attributes there: a `.tflite` says nothing
    of opsets, and exporters of decision trees import old ones, or none.
    """
    nodes = [node for node in all_nodes(model.graph) if node.domain in ("", "ai.onnx")]
    version = model.opset_imports.get("", 0)
    if version < RAISED and all(_is_alike(node.op_type, version) for node in nodes):
        model.opset_imports[""] = RAISED


def _is_alike(op_type: str, version: int) -> bool:
    """Return whether an operator is the same in a version of the standard and in that of definitions."""
    try:
        old, new = (onnx.defs.get_schema(op_type, each, "") for each in (version, RAISED))
    except onnx.defs.SchemaError:
        return False
    said = [
        (
            [(each.name, each.option) for each in schema.inputs],
            {name: (each.type, each.default_value.SerializeToString()) for name, each in schema.attributes.items()},
        )
        for schema in (old, new)
    ]
    return said[0] == said[1] and op_type not in FLATTENED


def definition_of(
    node: ir.Node,
    imports: Mapping[str, int],  # the model's: domain -> version
) -> onnx.FunctionProto | None:
    """Return the function that an operator of ai.onnx.ml is; None of any other node, or where it has no definition."""
    define = DEFINITIONS.get(node.op_type) if node.domain == DOMAIN else None
    if define is None or imports.get("", FIRST) < FIRST:
        return None
    body = DefinitionBody(node, imports)
    return body.function() if define(body) else None
