"""Products of a transposed tensor with itself: XNNPACK computes another one where both operands are one tensor."""

from __future__ import annotations

import numpy as np
import pytest
from export_running import agrees

import relayout
from litert_runs import KERNELS, operators, results_of_runs
from running import run
from text_form import floats, model

GRAPHS = {
    "MatMul behind a Conv": ("float[1,4,6,6] x", "a = Conv(x, w)  y = MatMul(a, a)", {"w": floats(4, 4, 1, 1)}),
    "Einsum behind a Conv": (
        "float[1,4,6,6] x",
        'a = Conv(x, w)  y = Einsum<equation="bcij,bcjk->bcik">(a, a)',
        {"w": floats(4, 4, 1, 1)},
    ),
    "Einsum of three": (
        "float[1,4,6,6] x",
        'a = Conv(x, w)  y = Einsum<equation="bcij,bcjk,bckl->bcil">(a, a, a)',
        {"w": floats(4, 4, 1, 1)},
    ),
    "Gemm with alpha": ("float[5,5] x", "a = Softmax<axis=0>(x)  y = Gemm<alpha=0.5>(a, a)", {}),
    "behind a Softmax of the first axis": ("float[5,5] x", "a = Softmax<axis=0>(x)  y = MatMul(a, a)", {}),
    "behind a Transpose": (
        "float[5,3,5] x",
        "a = Softmax<axis=1>(x)  t = Transpose<perm=[1,0,2]>(a)  y = MatMul(t, t)",
        {},
    ),
    "by itself transposed": (
        "float[1,4,6,6] x",
        "a = Conv(x, w)  t = Transpose<perm=[0,1,3,2]>(a)  y = MatMul(a, t)  z = MatMul(t, t)",
        {"w": floats(4, 4, 1, 1)},
    ),
    "attention of one tensor": (
        "float[1,4,6,6] x",
        "a = Conv(x, w)  t = Transpose<perm=[0,1,3,2]>(a)  s = MatMul(a, t)  p = Softmax(s)  y = MatMul(p, a) "
        "q = MatMul(p, p)",
        {"w": floats(4, 4, 1, 1)},
    ),
}


@pytest.mark.parametrize("kind", GRAPHS)
def test_both_kernel_sets_compute_the_product(kind: str) -> None:
    inputs, text, constants = GRAPHS[kind]
    outputs = ", ".join(f"float[] {name}" for name in ("y", "z", "q") if f"{name} = " in text)
    source = model(f"g ({inputs}) => ({outputs}) {{ {text} }}", **constants)
    shape = [dim.dim_value for dim in source.graph.input[0].type.tensor_type.shape.dim]
    agrees(source, {"x": floats(*shape)})


def test_an_open_batch_is_right_at_every_size() -> None:
    source = model(
        "g (float[b,4,6,6] x) => (float[b,4,6,6] y) { a = Conv(x, w)  y = MatMul(a, a) }", w=floats(4, 4, 1, 1)
    )
    content = relayout.convert(source, format="tflite").tflite
    feeds = [floats(batch, 4, 6, 6) for batch in (1, 3)]
    for kernels in KERNELS:
        for feed, result in zip(feeds, results_of_runs(content, feeds, kernels), strict=True):
            np.testing.assert_allclose(result, run(source, {"x": feed})[0], rtol=1e-4, atol=1e-4)


def test_a_product_of_two_tensors_copies_nothing() -> None:
    source = model(
        "g (float[1,4,6,6] x) => (float[1,4,6,6] y) { a = Conv(x, w)  b = Relu(a)  y = MatMul(a, b) }",
        w=floats(4, 4, 1, 1),
    )
    assert "SLICE" not in operators(relayout.convert(source, format="tflite").tflite)
