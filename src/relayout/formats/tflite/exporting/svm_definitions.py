"""Definitions of support vector machines: products with the support vectors, and sums by their coefficients.

K = exp(-gamma |x - s|^2), tanh(gamma x·s + coef0), (gamma x·s + coef0)^degree or x·s;  y = K c + rho
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from relayout.formats.tflite.exporting.definition_body import TO_FLOAT, DefinitionBody

MOST = 1 << 20  # differences of a row from all support vectors, each of its features, up to which a kernel takes them
FIRST = 12  # the first opset that has GreaterOrEqual and ArgMax as they are used


def _kernel(body: DefinitionBody) -> tuple[str, int] | None:
    """Add the kernel of each row with each support vector, `n s`; return it and s. None where it is not known."""
    numbers, count = body.floats("support_vectors"), None if body.shape is None else body.shape[-1]
    kind, given = body.node.attributes.get_string("kernel_type", "LINEAR"), body.floats("kernel_params")
    if body.kind not in TO_FLOAT or body.rank not in (1, 2) or not isinstance(count, int) or not count:
        return None
    if not numbers.size or numbers.size % count or (kind != "LINEAR" and given.size != 3):
        return None
    vectors = numbers.reshape(-1, count)
    if body.imports.get("", FIRST) < FIRST or (kind == "RBF" and vectors.size > MOST):
        return None
    gamma, coef0, degree = given if given.size == 3 else np.zeros(3, np.float32)

    def scaled(value: str, factor: float, added: float = 0.0) -> str:
        result = body.add("Mul", value, body.const(np.array(factor, np.float32)))
        return body.add("Add", result, body.const(np.array(added, np.float32))) if added else result

    x = body.rows()
    if kind == "RBF":  # the squares of sums of products would cancel each other
        row = body.add("Reshape", x, body.const(np.array([-1, 1, count])))
        apart = body.add("Sub", row, body.const(vectors[None]))
        squares = body.reduce("ReduceSum", body.add("Mul", apart, apart), 2)
        flat = body.add("Reshape", squares, body.const(np.array([-1, len(vectors)])))
        return body.add("Exp", scaled(flat, -float(gamma))), len(vectors)
    products = body.add("MatMul", x, body.const(np.ascontiguousarray(vectors.T)))
    if kind == "LINEAR":
        return products, len(vectors)
    scaled_products = scaled(products, float(gamma), float(coef0))
    if kind == "SIGMOID":
        return body.add("Tanh", scaled_products), len(vectors)
    if kind == "POLY":
        return body.add("Pow", scaled_products, body.const(np.array(degree, np.float32))), len(vectors)
    return None


def _summed(body: DefinitionBody, kernel: str, weights: NDArray[np.float32], rho: NDArray[np.float32]) -> str:
    return body.add("Gemm", kernel, body.const(weights), body.const(rho))


def regressor(body: DefinitionBody) -> bool:
    """MatMul and Gemm, with Exp, Tanh or Pow between."""
    attributes, weights, rho = body.node.attributes, body.floats("coefficients"), body.floats("rho")
    kernel = _kernel(body)
    if kernel is None or attributes.get_string("post_transform", "NONE") != "NONE":
        return False
    if kernel[1] != weights.size or rho.size != 1 or attributes.get_int("n_supports", 0) != kernel[1]:
        return False
    result = _summed(body, kernel[0], weights[:, None], rho)
    if attributes.get_int("one_class", 0):
        is_inside = body.add("Greater", result, body.const(np.array(0, np.float32)))
        ends = (body.const(np.array(each, np.float32)) for each in (1, -1))
        result = body.add("Where", is_inside, *ends)
    body.give(result)
    return True


def classifier(body: DefinitionBody) -> bool:
    """MatMul and Gemm, with Exp, Tanh or Pow between; ArgMax of the votes of all pairs of classes."""
    attributes = body.node.attributes
    labels = body.labels("classlabels_ints")
    sizes, rho = attributes.get_ints("vectors_per_class", []), body.floats("rho")
    pairs, coefficients = list(combinations(range(len(sizes)), 2)), body.floats("coefficients")
    kernel = _kernel(body)
    if kernel is None or attributes.get_string("post_transform", "NONE") != "NONE" or rho.size != len(pairs):
        return False
    if len(sizes) < 2 or min(sizes) < 0 or labels.size != len(sizes) or sum(sizes) != kernel[1]:
        return False
    # Kernels find probabilities round by round, until they change by little.
    if coefficients.size != (len(sizes) - 1) * kernel[1] or body.floats("prob_a").size:
        return False
    rows, places = coefficients.reshape(len(sizes) - 1, -1), np.repeat(np.arange(len(sizes)), sizes)
    weights = np.zeros((kernel[1], len(pairs)), np.float32)
    for column, (first, second) in enumerate(pairs):
        for own, row in ((first, second - 1), (second, first)):
            weights[places == own, column] = rows[row, places == own]
    scores = _summed(body, kernel[0], weights, rho)
    votes = _votes(body, scores, pairs, len(sizes))
    if len(sizes) == 2:
        scores = body.add("Concat", body.add("Neg", scores), scores, axis=1)
    best = body.add("ArgMax", votes, axis=1, keepdims=0)
    body.give(body.add("Gather", body.const(labels), best))
    body.give(scores, 1)
    return True


def _votes(body: DefinitionBody, scores: str, pairs: list[tuple[int, int]], classes: int) -> str:
    """Add the votes for each class: of a pair the first class gets one where the score is above 0, else the second."""
    is_first = body.add("Greater", scores, body.const(np.array(0, np.float32)))
    for_first = body.add("Cast", is_first, to=onnx.TensorProto.FLOAT)
    differences, base = np.zeros((len(pairs), classes), np.float32), np.zeros(classes, np.float32)
    for row, (first, second) in enumerate(pairs):
        differences[row, first], differences[row, second] = 1, -1
        base[second] += 1
    return _summed(body, for_first, differences, base)


DEFINITIONS: Mapping[str, Any] = {"SVMClassifier": classifier, "SVMRegressor": regressor}
"""Operator of ai.onnx.ml -> what adds the nodes that compute it."""
