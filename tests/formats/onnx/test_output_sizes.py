"""No evaluation writes more than is kept: how much an operator writes is known before it runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser
from onnx.reference import ReferenceEvaluator

from relayout.formats.onnx.evaluating import FROM_EXTENTS, SIZES, output_size, writes_at_most

F, I = np.float32, np.int64  # noqa: E741
ONE = "Abs Ceil Cos Exp Floor IsNaN Log Neg Reciprocal Round Sign Sin Sqrt Identity".split()  # noqa: SIM905
TWO = "Add Div Equal Greater GreaterOrEqual Less LessOrEqual Max Min Mul Pow Sub".split()  # noqa: SIM905
CASES: dict[str, tuple[str, list[Any]]] = {
    **{name: (f"{name}(a)", [np.ones((2, 3), F)]) for name in ONE},
    **{name: (f"{name}(a, b)", [np.ones((2, 1, 5), F), np.ones((3, 1), F)]) for name in TWO},
    **{name: (f"{name}(a, b)", [np.ones((2, 1), bool), np.ones(7, bool)]) for name in ("And", "Or", "Xor")},
    **{f"Reduce{name}": (f"Reduce{name}(a)", [np.ones((2, 3), F)]) for name in ("Max", "Mean", "Min", "Prod", "Sum")},
    "ArgMax": ("ArgMax<axis=1>(a)", [np.ones((2, 3), F)]),
    "ArgMin": ("ArgMin<axis=1>(a)", [np.ones((2, 3), F)]),
    "Cast": ("Cast<to=7>(a)", [np.ones((2, 3), F)]),
    "Clip": ("Clip(a)", [np.ones((2, 3), F)]),
    "Concat": ("Concat<axis=1>(a, b)", [np.ones((2, 3), F), np.ones((2, 5), F)]),
    "ConstantOfShape": ("ConstantOfShape(a)", [np.array([3, 4], I)]),
    "CumSum": ("CumSum(a, b)", [np.ones((2, 3), F), np.array(1, I)]),
    "Expand": ("Expand(a, b)", [np.ones((3, 1), F), np.array([2, 1, 5], I)]),
    "EyeLike": ("EyeLike(a)", [np.ones((2, 3), F)]),
    "Flatten": ("Flatten(a)", [np.ones((2, 3), F)]),
    "Gather": ("Gather<axis=1>(a, b)", [np.ones((2, 3), F), np.zeros((7, 5), I)]),
    "GatherElements": ("GatherElements(a, b)", [np.ones((2, 3), F), np.zeros((7, 3), I)]),
    "GatherND": ("GatherND(a, b)", [np.ones((2, 3, 5), F), np.zeros((7, 4, 1), I)]),
    "Mod": ("Mod(a, b)", [np.ones((2, 1), I), np.ones(5, I)]),
    "Not": ("Not(a)", [np.ones((2, 3), bool)]),
    "OneHot": ("OneHot(a, b, c)", [np.ones((2, 3), I), np.array(9, I), np.array([0, 1], I)]),
    "Pad": ("Pad(a, b)", [np.ones((2, 3), F), np.array([1, 2, 3, 4], I)]),
    "Range": ("Range(a, b, c)", [np.array(9, I), np.array(-7, I), np.array(-2, I)]),
    "Reshape": ("Reshape(a, b)", [np.ones((2, 3), F), np.array([3, -1], I)]),
    "ScatterElements": ("ScatterElements(a, b, c)", [np.ones((2, 3), F), np.zeros((1, 3), I), np.ones((1, 3), F)]),
    "ScatterND": ("ScatterND(a, b, c)", [np.ones((2, 3), F), np.zeros((1, 1), I), np.ones((1, 3), F)]),
    "Shape": ("Shape(a)", [np.ones((2, 3), F)]),
    "Size": ("Size(a)", [np.ones((2, 3), F)]),
    "Slice": ("Slice(a, b, c)", [np.ones((2, 3), F), np.array([0], I), np.array([1], I)]),
    "Split": ("Split<num_outputs=1>(a)", [np.ones((2, 3), F)]),
    "Squeeze": ("Squeeze(a)", [np.ones((2, 1), F)]),
    "Tile": ("Tile(a, b)", [np.ones((2, 3), F), np.array([4, 5], I)]),
    "Transpose": ("Transpose(a)", [np.ones((2, 3), F)]),
    "Trilu": ("Trilu(a)", [np.ones((2, 3), F)]),
    "Unsqueeze": ("Unsqueeze(a, b)", [np.ones((2, 3), F), np.array([0], I)]),
    "Where": ("Where(a, b, c)", [np.ones((2, 1, 1), bool), np.ones((3, 1), F), np.ones(5, F)]),
}  # fmt: skip


def node_of(text: str) -> onnx.NodeProto:
    return parser.parse_node(f"y = {text}")


def test_every_operator_that_is_evaluated_has_a_case() -> None:
    assert CASES.keys() == FROM_EXTENTS | {"Shape", "Size"}


@pytest.mark.parametrize("name", sorted(CASES))
def test_the_size_is_that_of_the_output_at_least(name: str) -> None:
    text, arrays = CASES[name]
    node = node_of(text)
    inputs = [onnx.helper.make_tensor_value_info(n, onnx.helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
              for n, a in zip("abc", arrays, strict=False)]  # fmt: skip
    graph = onnx.helper.make_graph([node], "g", inputs, [onnx.helper.make_empty_tensor_value_info("y")])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)])
    (found,) = ReferenceEvaluator(model).run(None, dict(zip("abc", arrays, strict=False)))
    size = output_size(node, arrays)
    assert max(a.size for a in [*arrays, np.asarray(found)]) <= size
    assert size <= max(np.asarray(found).size, *(a.size for a in arrays)) or name == "Pad"  # nor is it far from that
    assert writes_at_most(node, arrays, int(size))
    assert not writes_at_most(node, arrays, int(size) - 1)


@pytest.mark.parametrize(
    ("text", "arrays"),
    [
        ("Pad<pads=[0,100,0,100]>(a)", [np.ones((2, 3), F)]),  # until opset 10
        ("Pad(a, b, , d)", [np.ones((2, 3), F), np.array([100, 100], I), None, np.array([1], I)]),
        ("GatherND<batch_dims=1>(a, b)", [np.ones((2, 300), F), np.zeros((2, 1), I)]),
        ("Range(a, b, c)", [np.array(0.0), np.array(1.0), np.array(1e-9)]),
        ("Range(a, b, c)", [np.array(0.0), np.array(1.0), np.array(0.0)]),
        ("Range(a, b, c)", [np.array(0.0), np.array(np.nan), np.array(1.0)]),
        ("ConstantOfShape(a)", [np.array([2**62, 2**62], I)]),
        ("Tile(a, b)", [np.ones(1, F), np.array([-(2**63)], I)]),
        ("Gather<axis=7>(a, b)", [np.ones((2, 3), F), np.zeros(1, I)]),
        ("Gather(a, b)", [np.ones((2, 3), F)]),
        ("Range(a, b, c)", [np.ones(1, F)]),
    ],
)
def test_what_does_not_fit_or_is_wrong_is_not_run(text: str, arrays: list[Any]) -> None:
    assert not writes_at_most(node_of(text), arrays, 400)


MANY = 400_000_000
LONG = """s = Shape(x) c = ConstantOfShape<value=int64[1]{1}>(s)
    row = Reshape(c, over) column = Reshape(c, under) flat = Cast<to=9>(row) up = Cast<to=9>(column)"""
ASKING = {
    **{name: f"y = {name}(row, column)" for name in (*TWO, "Mod")},
    **{name: f"y = {name}(flat, up)" for name in ("And", "Or", "Xor")},
    "Where": "y = Where(up, row, row)",
    "Concat": f"y = Concat<axis=0>({','.join(['c'] * 40)}) z = Concat<axis=0>({','.join(['y'] * 1000)})",
    "ConstantOfShape": "y = ConstantOfShape(many)",
    "Expand": "y = Expand(s, many)",
    "Gather": "y = Gather(row, column) z = Gather(column, row)",
    "GatherND": "i = Mul(column, zero) y = GatherND(row, i)",
    "GatherElements": "y = GatherElements(c, c)",
    "OneHot": "y = OneHot(s, many, ends)",
    "Pad": "y = Pad(s, pads)",
    "Range": "y = Range(zero, limit, one)",
    "Tile": "y = Tile(s, many)",
}
"""Operators of which a short model asks for 4 * 10**8 elements: gigabytes, and no more than may be reserved."""


def test_operators_that_can_write_more_are_asked_for_it() -> None:
    assert SIZES.keys() <= ASKING.keys()


def asking(name: str) -> onnx.ModelProto:
    text = '<ir_version: 10, opset_import: ["": 18]> g (int8[20000] x) => (int64[n] y)'
    model = parser.parse_model(f"{text} {{ {LONG} {ASKING[name]} }}")
    constants = {"over": [1, -1], "under": [-1, 1], "many": [MANY], "ends": [0, 1], "pads": [0, MANY]}
    constants |= {"zero": 0, "one": 1, "limit": MANY}
    given = {key: value for key, value in constants.items() if any(key in node.input for node in model.graph.node)}
    model.graph.initializer.extend(numpy_helper.from_array(np.array(value, I), key) for key, value in given.items())
    return model


LIMITED = """
import pathlib, resource, sys, relayout
resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
most = 0
for path in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    relayout.explain(path)
    before, most = most, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(path.stem, "takes too much" if before and most > before + 100 else "")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits of address space")
def test_short_models_take_little_memory(tmp_path: Path) -> None:
    (tmp_path / " usual.onnx").write_bytes(asking("Gather").SerializeToString())
    for name in ASKING:
        (tmp_path / f"{name}.onnx").write_bytes(asking(name).SerializeToString())
    ran = subprocess.run([sys.executable, "-c", LIMITED, tmp_path], capture_output=True, timeout=120, text=True)
    assert [line.strip() for line in ran.stdout.splitlines()] == ["usual", *sorted(ASKING)], ran.stderr[-2000:]
