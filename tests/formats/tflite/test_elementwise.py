"""Functions of builtins are held to LiteRT's kernels of real numbers."""

from __future__ import annotations

import numpy as np
import pytest
from ai_edge_litert.interpreter import OpResolverType

from litert_runs import every_result_of_runs
from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import Model, Operator, Subgraph, Tensor
from relayout.formats.tflite.container.versions import finished
from relayout.formats.tflite.container.writer import options, to_bytes
from relayout.formats.tflite.elementwise import FUNCTIONS

COUNT = 64
BOOLS = {"LOGICAL_AND": (True, True), "LOGICAL_NOT": (True,), "LOGICAL_OR": (True, True)}
CHOICES = dict.fromkeys(("SELECT", "SELECT_V2"), (True, False, False))
PAIRS = """
    ADD ATAN2 DIV EQUAL FLOOR_DIV FLOOR_MOD GREATER GREATER_EQUAL LESS LESS_EQUAL MAXIMUM MINIMUM MUL NOT_EQUAL POW
    PRELU SQUARED_DIFFERENCE SUB
"""
OPERANDS = {**dict.fromkeys(PAIRS.split(), (False, False)), **BOOLS, **CHOICES}
"""Builtin -> for each of its operands whether it is one of truths; one of real numbers where it is not listed."""
POSITIVE = ("LOG", "POW", "RSQRT", "SQRT")
TRUTHS = {*BOOLS, "EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL", "NOT_EQUAL"}
RELU, RELU_N1_TO_1, RELU6 = 1, 2, 3
OPTIONS = [
    ("GELU", "GeluOptions", {"approximate": True}),
    ("LEAKY_RELU", "LeakyReluOptions", {"alpha": 0.25}),
    *(
        (name, table, {"fused_activation_function": kind})
        for name, table in (("ADD", "AddOptions"), ("DIV", "DivOptions"), ("MUL", "MulOptions"), ("SUB", "SubOptions"))
        for kind in (RELU, RELU_N1_TO_1, RELU6)
        if (name, kind) != ("DIV", RELU_N1_TO_1)
    ),
]


def judge(name: str, table: str = "", **fields: object) -> None:
    draw = np.random.default_rng(len(name))
    reals = draw.normal(size=(3, COUNT)).astype(np.float32) * 3
    reals[1, :8] = reals[0, :8]  # equal ones, too
    reals = np.abs(reals) + np.float32(0.1) if name in POSITIVE else reals
    feeds = [
        reals[place] > 0 if is_truth else reals[place] for place, is_truth in enumerate(OPERANDS.get(name, (False,)))
    ]
    kinds = [TensorType.BOOL if each.dtype == np.bool_ else TensorType.FLOAT32 for each in feeds]
    kinds.append(TensorType.BOOL if name in TRUTHS else TensorType.FLOAT32)
    tensors = tuple(Tensor(place, f"t{place}", kind, (COUNT,), (COUNT,)) for place, kind in enumerate(kinds))
    places = tuple(range(len(feeds)))
    row = Operator(name, 1, places, (len(feeds),), options=options(table, **fields) if table else None)
    content = to_bytes(finished(Model("", (Subgraph("main", tensors, places, (len(feeds),), (row,)),), ())))
    ((expected,),) = every_result_of_runs(content, [feeds], OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES)
    np.testing.assert_allclose(FUNCTIONS[name](fields, *feeds), expected, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_is_what_the_kernel_computes(name: str) -> None:
    judge(name)


@pytest.mark.parametrize(("name", "table", "fields"), OPTIONS, ids=str)
def test_options_are_seen(name: str, table: str, fields: dict[str, object]) -> None:
    judge(name, table, **fields)
