"""The laws of polynomials: equal numbers, and one form for equal functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from relayout.lowering.recognise_recurrent.forms import Applied, AtomTable, Formless, OperandColumns, Poly, Reading

X = OperandColumns("x", (0, 1))
FUNCTIONS: dict[str, Callable[[float, float | None], float]] = {
    "Relu": lambda x, _: max(x, 0.0),
    "HardSigmoid": lambda x, alpha: min(max((alpha or 0.0) * x + 0.5, 0.0), 1.0),
}


def value(poly: Poly, x: float) -> float:
    """What a polynomial of x is, as ONNX's activations say."""

    def of(number: int) -> float:
        atom = poly.table.atoms[number]
        if not isinstance(atom, Applied):
            return x
        name, alpha = atom.function
        return FUNCTIONS[name](value(atom.of, x), alpha if isinstance(alpha, float) else None)

    return sum(float(c) * math.prod(map(of, atoms)) for atoms, c in poly.terms if isinstance(c, float))


@pytest.mark.parametrize("seed", range(200))
def test_clamps_of_affine_polynomials_keep_their_numbers(seed: int) -> None:
    rng, table = np.random.default_rng(seed), AtomTable()
    places = np.linspace(-6, 6, 41)
    poly, numbers = table.of(X), places
    for _ in range(3):
        slope, shift = (float(np.float32(v)) for v in (rng.choice([-2, -1, -0.2, 1 / 6, 1, 3]), rng.normal()))
        poly, numbers = table.number(slope) * poly + table.number(shift), slope * numbers + shift
        low, high = sorted(float(np.float32(v)) for v in rng.normal(size=2) * 2)
        low, high = (
            (low, high) if (kind := rng.integers(3)) == 0 else (low, math.inf) if kind == 1 else (-math.inf, high)
        )
        poly, numbers = table.clamped(poly, low, high), np.clip(numbers, low, high)
        np.testing.assert_allclose([value(poly, x) for x in places], numbers, atol=1e-5)


def test_one_form_for_all_spellings() -> None:
    table = AtomTable()
    x, one, half = table.of(X), table.number(1), table.number(0.5)
    line = table.number(0.25) * x + half
    wanted = table.clamped(line, 0, 1)
    (((atom,), _),) = wanted.terms
    assert table.atoms[atom] == Applied(("HardSigmoid", 0.25), x)
    for found in (
        table.clamped(table.clamped(line, -math.inf, 1), 0, math.inf),
        table.clamped(table.clamped(line, 0, math.inf), -math.inf, 1),
        one - table.clamped(half - table.number(0.25) * x, 0, 1),
        one - table.clamped(table.clamped(one - line, 0, math.inf), -math.inf, 1),
        table.number(0.25) * table.clamped(x + table.number(2), 0, 4),
        table.number(1 / 3) * table.clamped(table.number(3) * line, 0, 3),
        half + table.number(0.25) * table.clamped(x, -2, 2),
    ):
        assert found == wanted
    for other in ((0, 1.5), (0.1, 1), (-1, 1)):
        assert table.clamped(line, *other) != wanted


@pytest.mark.parametrize(
    ("op_type", "operands", "ends"),
    [
        ("Relu", ["x"], (0, math.inf)),
        ("Clip", ["x", -1, 2], (-1, 2)),
        ("Clip", ["x", None, 2], (-math.inf, 2)),
        ("Clip", ["x", -1], (-1, math.inf)),
        ("Clip", ["x"], (-math.inf, math.inf)),
        ("Max", ["x", 1], (1, math.inf)),
        ("Max", [1, "x"], (1, math.inf)),
        ("Min", ["x", 1], (-math.inf, 1)),
        ("Min", ["x", [1, 2, 3]], None),
        ("Min", ["x"], None),
        ("Max", ["x", 1, 2], None),
        ("Clip", ["x", "x"], None),
    ],
)
def test_clamps_are_read(op_type: str, operands: list[Any], ends: tuple[float, float] | None) -> None:
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([1, 3]))
    given = [x if v == "x" else v if v is None else _constant(v) for v in operands]
    node = ir.node(op_type, given)
    (y,) = node.outputs
    y.type, y.shape = x.type, x.shape
    reading = Reading([node], {"x": x})
    if ends is None:
        with pytest.raises(Formless):
            reading.poly(y)
    else:
        assert reading.poly(y) == reading.table.clamped(reading.poly(x), *ends)


def _constant(number: Any) -> ir.Value:
    tensor = ir.tensor(np.array(number, np.float32))
    return ir.Value(name="c", type=ir.TensorType(tensor.dtype), shape=ir.Shape(tensor.shape), const_value=tensor)


def test_no_numbers_between_two() -> None:
    table = AtomTable()
    for low, high in ((1, 1), (2, 1), (math.nan, 1)):
        with pytest.raises(Formless):
            table.clamped(table.of(X), low, high)
