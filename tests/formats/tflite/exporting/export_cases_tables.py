"""Operators of ai.onnx.ml: tables from keys to values, and what is computed of features."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from rules.law import Array, Case

DOMAIN = "ai.onnx.ml"
WORDS = np.array([["one", "two", ""], ["three", "é", "One"]], object)
NUMBERS = np.array([[1, -5, 3], [7, 1 << 40, -(1 << 63)]])
REALS = np.array([[1.0, np.nan, 0.0], [-0.0, 3.5, np.inf]], np.float32)
ROWS = np.array([[1, -2, 3], [0, 0, 0], [-1, -5, -2], [0, -1, -2]], np.float32)


def cases() -> Iterator[Case]:
    yield from labels()
    yield from features()
    yield from linear()
    yield from trees()
    yield from vectors()


def made(op_type: str, x: Array, version: int = 1, outputs: int = 1, **attributes: Any) -> Case:
    return Case(op_type, {"x": x}, (), attributes, outputs, domain=DOMAIN, domain_version=version)


def labels() -> Iterator[Case]:
    """Of a key that comes twice the first counts; what is no number is a key from version 4 on."""
    name, words, twice = "LabelEncoder", ["one", "é", "", "one"], [5, 6, 7, 8]
    yield made(name, WORDS, 2, keys_strings=words, values_int64s=twice)
    yield made(name, WORDS, 2, keys_strings=words, values_floats=[0.5, 1.5, 2.5, 3.5])
    yield made(name, WORDS, 2, keys_strings=words, values_strings=["1", "2", "", "4"], default_string="many")
    yield made(name, WORDS, 1, classes_strings=["two", "one"], default_int64=-7)
    yield made(name, NUMBERS, 1, classes_strings=["zero", "one"])
    yield made(name, NUMBERS, 2, keys_int64s=[1, -5], values_strings=["one", ""], default_string="many")
    yield made(name, NUMBERS, 2, keys_int64s=[3, -5, 1, 3], values_int64s=[1 << 50, 6, 7, 8], default_int64=9)
    yield made(name, NUMBERS, 2, keys_int64s=[1, -5, 1 << 40], values_floats=[0.5, 1.5, 2.5])
    yield made(name, NUMBERS, 2, keys_int64s=[1, -(1 << 63), 7], values_floats=[0.5, 1.5, 2.5], default_float=-9.0)
    for version in (2, 4):
        keys = [float("nan"), 0.0, 1.0, float("nan"), 1.0]
        yield made(name, REALS, version, keys_floats=keys, values_floats=[5.0, 6.0, 7.0, 8.0, 9.0], default_float=-2.0)
    yield made(name, REALS, 4, keys_floats=[float("nan")], values_strings=["none"])
    open_table = {"keys_floats": [float("nan"), 1.0], "values_floats": [5.0, 6.0]}
    yield Case(name, {"x": REALS}, (), open_table, domain=DOMAIN, domain_version=4, dynamic=True)


def features() -> Iterator[Case]:
    places = {"x": ROWS, "y": np.array([2, 0])}
    yield Case("ArrayFeatureExtractor", places, ("y",), domain=DOMAIN)
    yield Case("ArrayFeatureExtractor", {"x": WORDS[0], "y": np.array([[2, 0]])}, domain=DOMAIN)
    for x in (ROWS, ROWS.astype(np.int64), ROWS[0]):
        yield made("Scaler", x, offset=[1.0, 2.0, 3.0], scale=[2.0, 0.1, -2.0])
        for norm in ("MAX", "L1", "L2"):
            yield made("Normalizer", x, norm=norm)
    yield made("Scaler", ROWS[None], offset=[1.0], scale=[2.0])
    yield made("Imputer", ROWS, imputed_value_floats=[9.0, 8.0, 7.0], replaced_value_float=0.0)
    yield made("Imputer", REALS, imputed_value_floats=[9.0], replaced_value_float=float("nan"))
    yield made("Imputer", NUMBERS, imputed_value_int64s=[9, 8, 7], replaced_value_int64=1 << 40)
    for numbers in (NUMBERS, REALS[:, 2:], np.array([1, 7, 3], np.float32)):
        yield made("OneHotEncoder", numbers, cats_int64s=[7, 0, 1], zeros=1)
    for version in (1, 2):
        yield made("OneHotEncoder", WORDS, version, cats_strings=["é", "one"], zeros=1)


def linear() -> Iterator[Case]:
    two = {"coefficients": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], "intercepts": [0.5, 0.25]}
    yield made("LinearRegressor", ROWS, targets=2, **two)
    yield made("LinearRegressor", ROWS[0], coefficients=[1.0, -2.0, 3.0])
    for transform in ("NONE", "LOGISTIC", "SOFTMAX"):
        yield made("LinearClassifier", ROWS, 1, 2, classlabels_ints=[7, 8], post_transform=transform, **two)
    yield made("LinearClassifier", ROWS, 1, 2, classlabels_strings=["no", "yes"], **two)
    yield made("LinearRegressor", ROWS, targets=2, post_transform="PROBIT", **two)
    one = {"coefficients": [1.0, 2.0, 3.0], "intercepts": [0.5], "classlabels_ints": [7, 8]}
    yield made("LinearClassifier", ROWS, 1, 2, **one)


TREE = {
    "nodes_treeids": [0, 0, 0],
    "nodes_nodeids": [0, 1, 2],
    "nodes_featureids": [1, 0, 0],
    "nodes_values": [-0.5, 0.0, 0.0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
    "nodes_truenodeids": [1, 0, 0],
    "nodes_falsenodeids": [2, 0, 0],
}
"""A tree of two leaves. `test_trees.py` has others."""


def trees() -> Iterator[Case]:
    said = {"treeids": [0, 0], "nodeids": [1, 2], "ids": [0, 0], "weights": [0.25, 0.75]}
    of_targets, of_classes = (
        {f"{kind}_{name}": values for name, values in said.items()} for kind in ("target", "class")
    )
    yield made("TreeEnsembleRegressor", ROWS, n_targets=1, **TREE, **of_targets)
    for x in (ROWS, ROWS.astype(np.int64)):
        yield made("TreeEnsembleClassifier", x, 1, 2, classlabels_int64s=[7, 8], **TREE, **of_classes)


def vectors() -> Iterator[Case]:
    """Support vectors. `test_svm.py` has all kernels."""
    four: dict[str, Any] = {
        "kernel_type": "LINEAR",
        "kernel_params": [0.0, 0.0, 0.0],
        "support_vectors": [float(each) for each in (1, 0, -1, 2, 1, 0, 0, -1, 1, -2, 0, 1)],
        "rho": [0.25],
    }
    weights = [0.5, 1.0, -0.75, -0.5]
    yield made("SVMRegressor", ROWS, n_supports=4, coefficients=weights, **four)
    for x in (ROWS, ROWS.astype(np.int64)):
        classes = {"vectors_per_class": [2, 2], "classlabels_ints": [7, 8]}
        yield made("SVMClassifier", x, 1, 2, coefficients=weights, **four, **classes)
