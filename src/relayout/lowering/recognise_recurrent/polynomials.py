"""Polynomials of what a body computes, in one form however it is spelled.

Their atoms are columns of an operand, a product of a polynomial and columns of a matrix that no round changes, and a
function of a polynomial; their coefficients are numbers, or one for each column, rounded to float32 as the nodes round
what they compute. So a sixth times six is one.

Functions of affine polynomials have laws. A clamp at one end is a number and a Relu; one at both ends is a number and
`HardSigmoid(P) = min(max(alpha P + 1/2, 0), 1)`, where P begins with 1 times an atom and alpha is positive. So
`relu6(x + 3) / 6`, `max(min(x / 6 + 0.5, 1), 0)` and `1 - min(relu(0.5 - x / 6), 1)` are one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import field, replace

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from relayout.light_dataclass import dataclass

MOST_TERMS, MOST_FACTORS = 32, 8
"""Of a polynomial, of a term: bounds for what is no cell anyway."""
MIDDLE = 0.5
"""What a HardSigmoid is of zero."""

Coefficient = float | tuple[float, ...]
Term = tuple[tuple[int, ...], Coefficient]
"""Atoms by their numbers, in order, and what they are multiplied by."""


class Formless(Exception):  # noqa: N818 - not an error: the body is none of those that are looked for
    """Raised where a value has no form."""


@dataclass(frozen=True)
class Columns:
    """Some columns of a matrix `rows columns`, and the rows of it that count."""

    matrix: ir.Value
    turned: bool
    """Whether it is stored as `columns rows`."""
    rows: tuple[int, int]
    columns: tuple[int, int]


@dataclass(frozen=True)
class OperandColumns:
    """Columns of an operand; without a place, whatever is looked for under this name."""

    name: str
    place: tuple[int, int] | None = None


Function = tuple[str, float | None]
"""An activation of ONNX's recurrent operators, and its alpha, if it has one."""


RELU: Function = ("Relu", None)


@dataclass(frozen=True)
class Applied:
    """A function of each column."""

    function: Function | str
    of: Poly


@dataclass(frozen=True)
class Product:
    """A row times columns of a matrix, or whatever matrix is looked for under a name."""

    of: Poly
    matrix: Columns | str


Atom = OperandColumns | Applied | Product


@dataclass(frozen=True)
class Poly:
    """A sum of terms without two of the same atoms, and without zeros."""

    table: AtomTable
    terms: frozenset[Term]

    def __add__(self, other: Poly) -> Poly:
        return self.table.sum_of((*self.terms, *other.terms))

    def __sub__(self, other: Poly) -> Poly:
        return self + self.table.number(-1) * other

    def __mul__(self, other: Poly) -> Poly:
        pairs = ((a, b) for a in self.terms for b in other.terms)
        return self.table.sum_of((tuple(sorted(a[0] + b[0])), _coefficient(np.multiply(a[1], b[1]))) for a, b in pairs)

    def over(self, divisor: float) -> Poly:
        """A part of it."""
        return self.table.sum_of((atoms, _coefficient(np.divide(c, divisor))) for atoms, c in self.terms)

    @property
    def constant(self) -> Coefficient:
        """What is added to products of atoms."""
        return next((c for atoms, c in self.terms if not atoms), 0.0)

    @property
    def leading(self) -> Coefficient:
        """What the first product of atoms is multiplied by, 0 if there is none."""
        return min(((atoms, c) for atoms, c in self.terms if atoms), key=lambda term: term[0], default=((), 0.0))[1]


@dataclass(eq=False)
class AtomTable:
    """All atoms; equal ones have one number, so that polynomials compare at a glance."""

    atoms: list[Atom] = field(default_factory=list)
    _numbers: dict[Atom, int] = field(default_factory=dict)
    _parts: dict[tuple[int, int, int], Poly] = field(default_factory=dict)

    def sum_of(self, terms: Iterable[Term]) -> Poly:
        """A polynomial from terms of which some may have the same atoms."""
        found: dict[tuple[int, ...], Coefficient] = {}
        for atoms, coefficient in terms:
            found[atoms] = _coefficient(np.add(found.get(atoms, 0.0), coefficient))
            if len(found) > MOST_TERMS or len(atoms) > MOST_FACTORS:
                raise Formless
        return Poly(self, frozenset((atoms, c) for atoms, c in found.items() if c != 0.0))

    def number(self, value: npt.ArrayLike) -> Poly:
        """A constant, for all columns or for each."""
        return self.sum_of([((), _coefficient(value))])

    def of(self, atom: Atom) -> Poly:
        """An atom by itself."""
        if atom not in self._numbers:
            self._numbers[atom] = len(self.atoms)
            self.atoms.append(atom)
        return Poly(self, frozenset({((self._numbers[atom],), 1.0)}))

    def clamped(self, poly: Poly, low: float, high: float) -> Poly:
        """The nearest numbers between two, of which either may be infinite.

        Raises:
            Formless: there are none.
        """
        if not low < high:
            raise Formless
        if math.isinf(low):
            return poly if math.isinf(high) else self.number(high) - self._positive(self.number(high) - poly)
        if math.isinf(high):
            return self.number(low) + self._positive(poly - self.number(low))
        width = self.number(np.subtract(high, low))
        return self.number(low) + width * self._between((poly - self.number(low)).over(high - low))

    def _positive(self, poly: Poly) -> Poly:
        """`max(P, 0)`. `max(h - a max(Q, 0), 0)` is `h` less what is between 0 and h of `a Q`, a clamp at both ends."""
        most, inner = poly.constant, [(atoms, c) for atoms, c in poly.terms if atoms]
        if len(inner) == 1 and len(inner[0][0]) == 1 and isinstance(most, float) and most > 0:
            (((number,), slope),) = inner
            atom = self.atoms[number]
            if isinstance(atom, Applied) and atom.function == RELU and isinstance(slope, float) and slope < 0:
                return self.number(most) * (self.number(1) - self._between((self.number(slope) * atom.of).over(-most)))
        return self.of(Applied(RELU, poly))

    def _between(self, poly: Poly) -> Poly:
        """`min(max(P, 0), 1)`, a HardSigmoid; of negative slope, one minus that of `1 - P`."""
        slope = poly.leading
        if not isinstance(slope, float) or slope == 0:
            raise Formless
        if slope < 0:
            return self.number(1) - self._between(self.number(1) - poly)
        return self.of(Applied(("HardSigmoid", slope), (poly - self.number(MIDDLE)).over(slope)))

    def part(self, poly: Poly, start: int, end: int) -> Poly:
        """Some columns of what a polynomial stands for."""
        made = self.number(0)
        for atoms, coefficient in sorted(poly.terms, key=lambda term: term[0]):
            factor = self.number(coefficient[start:end] if isinstance(coefficient, tuple) else coefficient)
            for number in atoms:
                factor = factor * self._part_of_atom(number, start, end)
            made = made + factor
        return made

    def _part_of_atom(self, number: int, start: int, end: int) -> Poly:
        key = number, start, end
        if key not in self._parts:
            atom = self.atoms[number]
            if isinstance(atom, Applied):
                atom = replace(atom, of=self.part(atom.of, start, end))
            elif isinstance(atom, Product) and isinstance(atom.matrix, Columns):
                first = atom.matrix.columns[0]
                atom = replace(atom, matrix=replace(atom.matrix, columns=(first + start, first + end)))
            elif isinstance(atom, OperandColumns) and atom.place is not None:
                atom = replace(atom, place=(atom.place[0] + start, atom.place[0] + end))
            self._parts[key] = self.of(atom)
        return self._parts[key]


def _coefficient(values: npt.ArrayLike) -> Coefficient:
    """One number if all are equal."""
    with np.errstate(over="ignore"):
        flat = np.asarray(values, np.float32).astype(np.float64).reshape(-1)
    return float(flat[0]) if np.all(flat == flat[0]) else tuple(flat.tolist())
