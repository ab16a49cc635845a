"""A recurrent operator that is given its own results of the steps before."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from relayout.verification.side import open_side

TIME, BATCH, COLUMNS, UNITS = 5, 2, 3, 4


def recurrent(kind: str, direction: str, start: bool) -> ir.Model:
    """`x`, time first, through one operator; `y` is `batch time units`."""
    gates = {"LSTM": 4, "RNN": 1}[kind] * UNITS
    state = f", float[1,{BATCH},{UNITS}] h0" if start else ""
    given = ", b, , h0" if start else ""
    model = ir.from_onnx_text(
        f'<ir_version: 10, opset_import: ["" : 21]> g (float[{TIME},{BATCH},{COLUMNS}] x{state}) '
        f"=> (float[{BATCH},{TIME},{UNITS}] y) <float[{TIME},1,{BATCH},{UNITS}] a, float[{TIME},{BATCH},{UNITS}] s> "
        f'{{ a = {kind}<hidden_size = {UNITS}, direction = "{direction}">(x, w, r{given})'
        "  s = Squeeze(a, one)  y = Transpose<perm = [1, 0, 2]>(s) }"
    )
    rng = np.random.default_rng(5)
    shapes = {"w": (1, gates, COLUMNS), "r": (1, gates, UNITS), "b": (1, 2 * gates)}
    constants = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    constants["one"] = np.array([1])
    for name, array in constants.items():
        value = ir.Value(name=name, const_value=ir.tensor(array), shape=ir.Shape(array.shape))
        value.dtype = ir.tensor(array).dtype
        model.graph.register_initializer(value)
        for node in model.graph:
            for slot, operand in enumerate(node.inputs):
                if operand is not None and operand.name == name:
                    node.replace_input_with(slot, value)
    return model


@pytest.mark.parametrize("start", [False, True])
@pytest.mark.parametrize("direction", ["forward", "reverse"])
@pytest.mark.parametrize("kind", ["LSTM", "RNN"])
def test_its_own_results_change_nothing_and_others_change_the_step_behind_them(
    kind: str, direction: str, start: bool
) -> None:
    rng = np.random.default_rng(6)
    fed = {"x": rng.normal(size=(TIME, BATCH, COLUMNS)).astype(np.float32)}
    if start:
        fed["h0"] = rng.normal(size=(1, BATCH, UNITS)).astype(np.float32)
    with open_side(recurrent(kind, direction, start)) as side:
        plain = side.runner().run(fed, ["y"])["y"]
        forced = side.forced(["y"], [], own=True)
        assert forced is not None
        again = forced.run({**fed, forced.entries["y"]: plain}, ["y"])["y"]
        np.testing.assert_allclose(again, plain, atol=1e-6)
        other = plain.copy()
        other[:, 2] += 0.5
        moved = np.abs(forced.run({**fed, forced.entries["y"]: other}, ["y"])["y"] - plain).max((0, 2)) > 1e-4
        behind = 3 if direction == "forward" else 1
        assert moved[behind]
        untouched = slice(0, 3) if direction == "forward" else slice(2, TIME)
        assert not moved[untouched].any()


def test_what_is_no_recurrent_operator_is_not_given_anything() -> None:
    model = ir.from_onnx_text(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[3] x) => (float[3] y) { a = Neg(x) y = Identity(a) }'
    )
    with open_side(model) as side:
        assert side.forced(["y"], [], own=True) is None
