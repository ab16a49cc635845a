"""Builtins that ONNX has as well, as rows that the importer and the exporter read: builtin -> ONNX's operator.

Either direction has more: operators that the other one has only in some uses, or spells out.
"""

from __future__ import annotations

from collections.abc import Mapping

UNARY: Mapping[str, str] = {
    "CEIL": "Ceil",
    "COS": "Cos",
    "FLOOR": "Floor",
    "HARD_SWISH": "HardSwish",
    "LOGICAL_NOT": "Not",
    "LOGISTIC": "Sigmoid",
    "ROUND": "Round",
    "SIN": "Sin",
    "SQRT": "Sqrt",
}
ARITHMETIC: Mapping[str, str] = {"ADD": "Add", "MUL": "Mul", "SUB": "Sub"}
LOGICAL: Mapping[str, str] = {"LOGICAL_AND": "And", "LOGICAL_OR": "Or"}
COMPARISONS: Mapping[str, str] = {
    "EQUAL": "Equal",
    "GREATER": "Greater",
    "GREATER_EQUAL": "GreaterOrEqual",
    "LESS": "Less",
    "LESS_EQUAL": "LessOrEqual",
}
REDUCTIONS: Mapping[str, str] = {
    "MEAN": "ReduceMean",
    "REDUCE_MAX": "ReduceMax",
    "REDUCE_MIN": "ReduceMin",
    "REDUCE_PROD": "ReduceProd",
    "SUM": "ReduceSum",
}
EXTREMES: Mapping[str, str] = {"ARG_MAX": "ArgMax", "ARG_MIN": "ArgMin"}
