"""Builtins that work on each element by itself, as functions of arrays: constants are computed with them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Function = Callable[..., Any]

ACTIVATIONS = {1: (0, None), 2: (-1, 1), 3: (0, 6)}  # a fused activation, by its number -> its bounds


def activated(options: Mapping[str, Any], numbers: Array) -> Array:
    """Return what the fused activation that a builtin's options state makes of numbers."""
    kind = int(options.get("fused_activation_function") or 0)
    return np.clip(numbers, *ACTIVATIONS[kind]) if kind else np.asarray(numbers)


def _each(function: Function) -> Function:
    """Return a function of a builtin's options and operands: one of the operands, and the fused activation of that."""
    return lambda options, *arrays: activated(options, function(*arrays))


def _quotient(a: Array, b: Array) -> Array:
    return a / b if a.dtype.kind == "f" else np.trunc(a / b).astype(a.dtype)


def _gelu(options: Mapping[str, Any], x: Array) -> Array:
    if options.get("approximate"):
        return np.asarray(x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))))
    erf = np.array([math.erf(number / math.sqrt(2)) for number in x.reshape(-1).tolist()])
    return np.asarray(x / 2 * (1 + erf.reshape(x.shape)))


def _leaky_relu(options: Mapping[str, Any], x: Array) -> Array:
    return np.where(x < 0, x * np.float32(options.get("alpha") or 0), x)


_PLAIN: Mapping[str, Function] = {
    "ABS": np.abs,
    "ADD": np.add,
    "ATAN2": np.arctan2,
    "CEIL": np.ceil,
    "COS": np.cos,
    "DIV": _quotient,
    "ELU": lambda x: np.where(x < 0, np.expm1(x), x),
    "EQUAL": np.equal,
    "EXP": np.exp,
    "FLOOR": np.floor,
    "FLOOR_DIV": np.floor_divide,
    "FLOOR_MOD": np.mod,
    "GREATER": np.greater,
    "GREATER_EQUAL": np.greater_equal,
    "HARD_SWISH": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "LESS": np.less,
    "LESS_EQUAL": np.less_equal,
    "LOG": np.log,
    "LOGICAL_AND": np.logical_and,
    "LOGICAL_NOT": np.logical_not,
    "LOGICAL_OR": np.logical_or,
    "LOGISTIC": lambda x: 1 / (1 + np.exp(-x)),
    "MAXIMUM": np.maximum,
    "MINIMUM": np.minimum,
    "MUL": np.multiply,
    "NEG": np.negative,
    "NOT_EQUAL": np.not_equal,
    "POW": np.power,
    "PRELU": lambda x, slope: np.where(x < 0, x * slope, x),
    "RELU": lambda x: np.maximum(x, 0),
    "RELU6": lambda x: np.clip(x, 0, 6),
    "RELU_0_TO_1": lambda x: np.clip(x, 0, 1),
    "RELU_N1_TO_1": lambda x: np.clip(x, -1, 1),
    "ROUND": np.rint,
    "RSQRT": lambda x: 1 / np.sqrt(x),
    "SELECT": np.where,
    "SELECT_V2": np.where,
    "SIGN": np.sign,
    "SIN": np.sin,
    "SQRT": np.sqrt,
    "SQUARE": np.square,
    "SQUARED_DIFFERENCE": lambda a, b: (a - b) ** 2,
    "SUB": np.subtract,
    "TANH": np.tanh,
}
FUNCTIONS: Mapping[str, Function] = {
    **{name: _each(function) for name, function in _PLAIN.items()},
    "GELU": _gelu,
    "LEAKY_RELU": _leaky_relu,
}
"""Builtin -> what its options and operands make, in the operands' type or a wider one."""
