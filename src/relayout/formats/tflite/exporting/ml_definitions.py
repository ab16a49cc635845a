"""Definitions of operators of ai.onnx.ml: the operators of the standard that compute them.

    Scaler<offset, scale>(x)  ->  Mul(Sub(x, offset), scale)

Where a kernel is known to compute an operator in another way, for some rank or attribute, it has no definition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import combinations
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.formats.tflite.exporting import tree_definitions
from relayout.formats.tflite.exporting.definition_body import TO_FLOAT, DefinitionBody, Undefined, definition_by
from relayout.graph.subgraphs import all_nodes

# Definitions of support vector machines: products with the support vectors, and sums by their coefficients.
#
# K = exp(-gamma |x - s|^2), tanh(gamma x·s + coef0), (gamma x·s + coef0)^degree or x·s;  y = K c + rho

# Of a row from all support vectors, in each of its features, up to which a kernel takes them.
MOST_DIFFERENCES = 1 << 20
FIRST_OF_VECTORS = 12  # the first opset that has GreaterOrEqual and ArgMax as they are used


def _kernel(body: DefinitionBody) -> tuple[str, int]:
    """Add the kernel of each row with each support vector, `n s`; return it and s."""
    numbers, count = body.floats("support_vectors"), None if body.shape is None else body.shape[-1]
    kind, parameters = body.text("kernel_type", "LINEAR"), body.floats("kernel_params")
    if body.kind not in TO_FLOAT or body.rank not in (1, 2) or not isinstance(count, int) or not count:
        raise Undefined
    if not numbers.size or numbers.size % count or (kind != "LINEAR" and parameters.size != 3):
        raise Undefined
    vectors = numbers.reshape(-1, count)
    if body.imports.get("", FIRST_OF_VECTORS) < FIRST_OF_VECTORS or (kind == "RBF" and vectors.size > MOST_DIFFERENCES):
        raise Undefined
    gamma, coef0, degree = parameters.tolist() if parameters.size == 3 else (0.0, 0.0, 0.0)

    def scaled(value: str, factor: float, added: float = 0.0) -> str:
        result = body.add("Mul", value, body.single(factor))
        return body.add("Add", result, body.single(added)) if added else result

    x = body.rows()
    if kind == "RBF":  # the squares of sums of products would cancel each other
        differences = body.add("Sub", body.reshape(x, -1, 1, count), body.const(vectors[None]))
        squares = body.reduce("ReduceSum", body.add("Mul", differences, differences), 2)
        return body.add("Exp", scaled(body.reshape(squares, -1, len(vectors)), -gamma)), len(vectors)
    products = body.add("MatMul", x, body.const(np.ascontiguousarray(vectors.T)))
    if kind == "LINEAR":
        return products, len(vectors)
    scaled_products = scaled(products, gamma, coef0)
    if kind == "SIGMOID":
        return body.add("Tanh", scaled_products), len(vectors)
    if kind == "POLY":
        return body.add("Pow", scaled_products, body.single(degree)), len(vectors)
    raise Undefined


def _svm_regressor(body: DefinitionBody) -> None:
    """MatMul and Gemm, with Exp, Tanh or Pow between."""
    weights, rho = body.floats("coefficients"), body.floats("rho")
    kernel, count = _kernel(body)
    if body.text("post_transform", "NONE") != "NONE" or rho.size != 1:
        raise Undefined
    if count != weights.size or count != body.integer("n_supports"):
        raise Undefined
    result = body.add("Gemm", kernel, body.const(weights[:, None]), body.const(rho))
    if body.integer("one_class"):
        is_inside = body.add("Greater", result, body.single(0))
        result = body.add("Where", is_inside, body.single(1), body.single(-1))
    body.give(result)


def _svm_classifier(body: DefinitionBody) -> None:
    """MatMul and Gemm, with Exp, Tanh or Pow between; ArgMax of the votes of all pairs of classes."""
    labels, sizes = body.labels("classlabels_ints"), body.integers("vectors_per_class")
    pairs = list(combinations(range(len(sizes)), 2))
    rho, coefficients = body.floats("rho"), body.floats("coefficients")
    kernel, count = _kernel(body)
    if body.text("post_transform", "NONE") != "NONE" or rho.size != len(pairs):
        raise Undefined
    if len(sizes) < 2 or min(sizes) < 0 or labels.size != len(sizes) or sum(sizes) != count:
        raise Undefined
    # Kernels find probabilities round by round, until they change by little.
    if coefficients.size != (len(sizes) - 1) * count or body.floats("prob_a").size:
        raise Undefined
    rows, places = coefficients.reshape(len(sizes) - 1, -1), np.repeat(np.arange(len(sizes)), sizes)
    weights = np.zeros((count, len(pairs)), np.float32)
    for column, (first, second) in enumerate(pairs):
        for own, row in ((first, second - 1), (second, first)):
            weights[places == own, column] = rows[row, places == own]
    scores = body.add("Gemm", kernel, body.const(weights), body.const(rho))
    votes = _votes(body, scores, pairs, len(sizes))
    if len(sizes) == 2:
        scores = body.add("Concat", body.add("Neg", scores), scores, axis=1)
    best = body.add("ArgMax", votes, axis=1, keepdims=0)
    body.give(body.add("Gather", body.const(labels), best))
    body.give(scores, 1)


def _votes(body: DefinitionBody, scores: str, pairs: list[tuple[int, int]], classes: int) -> str:
    """Add the votes for each class: of a pair the first class gets one where the score is above 0, else the second."""
    for_first = body.add("Cast", body.add("Greater", scores, body.single(0)), to=onnx.TensorProto.FLOAT)
    differences, base = np.zeros((len(pairs), classes), np.float32), np.zeros(classes, np.float32)
    for row, (first, second) in enumerate(pairs):
        differences[row, first], differences[row, second] = 1, -1
        base[second] += 1
    return body.add("Gemm", for_first, body.const(differences), body.const(base))


# Other definitions.

DOMAIN = "ai.onnx.ml"
Definition = Callable[[DefinitionBody], None]
"""A function that adds the nodes of a definition; it raises `Undefined` where there is none."""


def _feature(body: DefinitionBody) -> None:
    """Gather along the last axis; of a vector, a row."""
    if body.rank < 1:
        raise Undefined
    columns = body.add("Gather", "x0", body.reshape("x1", -1), axis=body.rank - 1)
    body.give(body.reshape(columns, 1, -1) if body.rank == 1 else columns)


def _binarizer(body: DefinitionBody) -> None:
    """Greater and Cast."""
    if body.kind != ir.DataType.FLOAT:
        raise Undefined
    is_above = body.add("Greater", "x0", body.single(body.number("threshold")))
    body.give(body.add("Cast", is_above, to=onnx.TensorProto.FLOAT))


def _scaler(body: DefinitionBody) -> None:
    """Sub and Mul, in single precision."""
    offset, scale = body.floats("offset"), body.floats("scale")
    if body.kind not in TO_FLOAT or not body.fits(offset, scale):
        raise Undefined
    body.give(body.add("Mul", body.add("Sub", body.data(), body.const(offset)), body.const(scale)))


def _normalizer(body: DefinitionBody) -> None:
    """Div by ReduceMax, which may be negative, or by ReduceL1 or ReduceL2; a row of zeros stays as it is."""
    by = {"MAX": "ReduceMax", "L1": "ReduceL1", "L2": "ReduceL2"}.get(body.text("norm", "MAX"))
    if body.kind not in TO_FLOAT or body.rank not in (1, 2) or by is None:
        raise Undefined
    data = body.data()
    size = body.reduce(by, data, body.rank - 1)
    is_zero = body.add("Equal", size, body.single(0))
    body.give(body.add("Div", data, body.add("Where", is_zero, body.single(1), size)))


def _imputer(body: DefinitionBody) -> None:
    """IsNaN or Equal, and Where."""
    imputed: NDArray[Any] = body.floats("imputed_value_floats")
    replaced: NDArray[Any] = np.array(body.number("replaced_value_float"), np.float32)
    if body.kind == ir.DataType.INT64:
        imputed = np.array(body.integers("imputed_value_int64s"), np.int64)
        replaced = np.array(body.integer("replaced_value_int64"))
    if body.kind not in (ir.DataType.INT64, ir.DataType.FLOAT) or not body.fits(imputed):
        raise Undefined
    is_missing = body.add("IsNaN", "x0") if replaced != replaced else body.add("Equal", "x0", body.const(replaced))
    body.give(body.add("Where", is_missing, body.const(imputed), "x0"))


def _one_hot(body: DefinitionBody) -> None:
    """Equal and Cast; of texts the place in the list, by a LabelEncoder, is compared."""
    texts, numbers = body.node.attributes.get_strings("cats_strings", []), body.integers("cats_int64s")
    count = len(texts) or len(numbers)
    if body.rank < 0 or not count or len({*texts, *numbers}) < count or bool(texts) == bool(numbers):
        raise Undefined
    if body.kind not in ((ir.DataType.STRING,) if texts else TO_FLOAT):
        raise Undefined
    if texts:
        # The place of each text in the list; -1 where it is not there.
        table: dict[str, Any] = {"keys_strings": list(texts), "values_int64s": list(range(count))}
        if body.imports.get(DOMAIN, 1) == 1:
            table = {"classes_strings": list(texts)}
        places = body.add("LabelEncoder", "x0", domain=DOMAIN, **table)
    else:
        places = "x0" if body.kind == ir.DataType.INT64 else body.add("Cast", "x0", to=onnx.TensorProto.INT64)
    same = body.add(
        "Equal", body.reshape(places, *[0] * body.rank, 1), body.const(np.arange(count) if texts else np.array(numbers))
    )
    body.give(body.add("Cast", same, to=onnx.TensorProto.FLOAT))


def _scores(body: DefinitionBody, rows: int, *, biased: bool = False) -> str:
    """Return the scores of linear functions."""
    weights, bias = body.floats("coefficients"), body.floats("intercepts")
    count = None if body.shape is None or body.rank not in (1, 2) else body.shape[-1]
    if body.kind not in TO_FLOAT or not rows or weights.size != rows * (count if isinstance(count, int) else 0):
        raise Undefined
    if bias.size != rows and (bias.size or biased):
        raise Undefined
    operands = [body.rows(), body.const(weights.reshape(rows, -1))]
    return body.add("Gemm", *operands, body.const(bias if bias.size else np.zeros(rows, np.float32)), transB=1)


def _regressor(body: DefinitionBody) -> None:
    """Gemm."""
    if body.text("post_transform", "NONE") != "NONE":
        raise Undefined
    body.give(_scores(body, body.integer("targets", 1)))


def _classifier(body: DefinitionBody) -> None:
    """Gemm, ArgMax and Gather, with Sigmoid or Softmax.

    There are as many linear functions as labels: of one function for two labels kernels make up the second score.
    """
    labels, transform = body.labels("classlabels_ints"), body.text("post_transform", "NONE")
    if labels.size < 2 or transform not in ("NONE", "LOGISTIC", "SOFTMAX"):
        raise Undefined
    scores = _scores(body, labels.size, biased=True)
    best = body.add("ArgMax", scores, axis=1, keepdims=0)
    body.give(body.add("Gather", body.const(labels), best))
    body.give(tree_definitions.transformed(body, scores, transform), 1)


DEFINITIONS: Mapping[str, Definition] = {  # operator of ai.onnx.ml -> what adds the nodes that compute it
    "ArrayFeatureExtractor": _feature,
    "Binarizer": _binarizer,
    "Imputer": _imputer,
    "LinearClassifier": _classifier,
    "LinearRegressor": _regressor,
    "Normalizer": _normalizer,
    "OneHotEncoder": _one_hot,
    "Scaler": _scaler,
    "SVMClassifier": _svm_classifier,
    "SVMRegressor": _svm_regressor,
    **tree_definitions.DEFINITIONS,
}
RAISED = 13  # the version of the standard that definitions are written in, where the model may import it
FLATTENED = ("Hardmax", "LogSoftmax", "Softmax")  # operators that saw their operand as a matrix before


def summaries() -> dict[str, str]:
    """Return operator, with its domain -> what it becomes."""
    return {f"{DOMAIN}:{name}": (each.__doc__ or "").partition("\n")[0] for name, each in DEFINITIONS.items()}


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


definition_of = definition_by((DOMAIN,), DEFINITIONS, DefinitionBody)
