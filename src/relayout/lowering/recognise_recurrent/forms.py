"""What the nodes of a loop's body compute, said in one way however they spell it.

A value is a row of columns; side by side lie blocks, each with one polynomial for all of its columns (see below). So
`(1 - z) n + z h` and `n + z (h - n)` are one form; so are a Split, Slices and products of parts, and a product of rows
put side by side and the sum of two products.

Equal forms are equal results but for the order of float additions. What cannot be read has no form.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from relayout.formats.tflite.importing.builder import Dims, dims
from relayout.light_dataclass import dataclass

# Polynomials of what a body computes, in one form however it is spelled.
#
# Their atoms are columns of an operand, a product of a polynomial and columns of a matrix that no round changes, and a
# function of a polynomial; their coefficients are numbers, or one for each column, rounded to float32 as the nodes
# round what they compute. So a sixth times six is one.
#
# Functions of affine polynomials have laws. A clamp at one end is a number and a Relu; one at both ends is a number and
# `HardSigmoid(P) = min(max(alpha P + 1/2, 0), 1)`, where P begins with 1 times an atom and alpha is positive. So
# `relu6(x + 3) / 6`, `max(min(x / 6 + 0.5, 1), 0)` and `1 - min(relu(0.5 - x / 6), 1)` are one.

MOST_TERMS, MOST_FACTORS = 32, 8  # of a polynomial, of a term: bounds for what is no cell anyway
MIDDLE = 0.5  # what a HardSigmoid is of zero

Coefficient = float | tuple[float, ...]
Term = tuple[tuple[int, ...], Coefficient]  # atoms by their numbers, in order, and what they are multiplied by


class Formless(Exception):  # noqa: N818 - not an error: the body is none of those that are looked for
    """Raised where a value has no form."""


@dataclass(frozen=True)
class Columns:
    """Some columns of a matrix `rows columns`, and the rows of it that count."""

    matrix: ir.Value
    turned: bool  # return whether it is stored as `columns rows`
    rows: tuple[int, int]
    columns: tuple[int, int]


@dataclass(frozen=True)
class OperandColumns:
    """Columns of an operand; without a place, whatever is looked for under this name."""

    name: str
    place: tuple[int, int] | None = None


Function = tuple[str, float | None]  # an activation of ONNX's recurrent operators, and its alpha, if it has one

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
        """Return a part of it."""
        return self.table.sum_of((atoms, _coefficient(np.divide(c, divisor))) for atoms, c in self.terms)

    @property
    def constant(self) -> Coefficient:
        """Return the numbers that are added to products of atoms."""
        return next((c for atoms, c in self.terms if not atoms), 0.0)

    @property
    def leading(self) -> Coefficient:
        """Return the factor of the first product of atoms, 0 if there is none."""
        return min(((atoms, c) for atoms, c in self.terms if atoms), key=lambda term: term[0], default=((), 0.0))[1]


@dataclass(eq=False)
class AtomTable:
    """All atoms; equal ones have one number, so that polynomials compare at a glance."""

    atoms: list[Atom] = field(default_factory=list)
    _numbers: dict[Atom, int] = field(default_factory=dict)
    _parts: dict[tuple[int, int, int], Poly] = field(default_factory=dict)

    def sum_of(self, terms: Iterable[Term]) -> Poly:
        """Return a polynomial from terms of which some may have the same atoms."""
        coefficient_of: dict[tuple[int, ...], Coefficient] = {}
        for atoms, coefficient in terms:
            coefficient_of[atoms] = _coefficient(np.add(coefficient_of.get(atoms, 0.0), coefficient))
            if len(coefficient_of) > MOST_TERMS or len(atoms) > MOST_FACTORS:
                raise Formless
        return Poly(self, frozenset((atoms, c) for atoms, c in coefficient_of.items() if c != 0.0))

    def number(self, value: npt.ArrayLike) -> Poly:
        """Return a constant, for all columns or for each."""
        return self.sum_of([((), _coefficient(value))])

    def of(self, atom: Atom) -> Poly:
        """Return an atom by itself."""
        if atom not in self._numbers:
            self._numbers[atom] = len(self.atoms)
            self.atoms.append(atom)
        return Poly(self, frozenset({((self._numbers[atom],), 1.0)}))

    def clamped(self, poly: Poly, low: float, high: float) -> Poly:
        """Return the nearest numbers between two, of which either may be infinite.

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
        """Return some columns of what a polynomial stands for."""
        total = self.number(0)
        for atoms, coefficient in sorted(poly.terms, key=lambda term: term[0]):
            factor = self.number(coefficient[start:end] if isinstance(coefficient, tuple) else coefficient)
            for number in atoms:
                factor = factor * self._part_of_atom(number, start, end)
            total = total + factor
        return total

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
    """Return one number if all are equal."""
    with np.errstate(over="ignore"):
        flat = np.asarray(values, np.float32).astype(np.float64).reshape(-1)
    return float(flat[0]) if np.all(flat == flat[0]) else tuple(flat.tolist())


MOST_NODES = 80  # of a body: more is no cell anyway
FUNCTIONS = ("Sigmoid", "Tanh")

Form = tuple[tuple[int, Poly], ...]  # blocks side by side: how many columns, and their polynomial

COPYING = frozenset(("Cast", "Identity"))  # operators that give the elements of their operand, perhaps in another type


def known_row(value: ir.Value) -> npt.NDArray[np.float64] | None:
    """Return the elements of a constant of one row, perhaps of half precision; None of any other value."""
    shape, node = dims(value), value.producer()
    if math.prod(d if isinstance(d, int) else 2 for d in shape[:-1]) != 1 or 0 in shape:
        return None
    if value.const_value is not None:
        return value.const_value.numpy().astype(np.float64).reshape(-1)
    source = node.inputs[0] if node is not None and node.op_type in COPYING else None
    return None if source is None or value.dtype != ir.DataType.FLOAT else known_row(source)


class Reading:
    """The forms of what a body computes from its operands."""

    def __init__(self, nodes: Sequence[ir.Node], operands: Mapping[str, ir.Value]) -> None:
        self.table = AtomTable()
        self.forms: dict[int, Form] = {}
        self.settled: dict[int, ir.Node] = {}  # what nodes compute from nothing that a round changes
        self._inside = {id(v) for node in nodes for v in node.outputs} | {id(v) for v in operands.values()}
        for name, value in operands.items():
            width = dims(value)[-1] if dims(value) else None
            if isinstance(width, int) and value.dtype == ir.DataType.FLOAT and None not in dims(value):
                self.forms[id(value)] = ((width, self.table.of(OperandColumns(name, (0, width)))),)
        for node in nodes[: MOST_NODES + 1] if len(nodes) <= MOST_NODES else ():
            self._read(node)

    def form(self, value: ir.Value | None) -> Form:
        """Return the form of a value.

        Raises:
            Formless: it has none.
        """
        if value is not None and id(value) in self.forms:
            return self.forms[id(value)]
        elements = known_row(value) if value is not None and self.is_settled(value) else None
        if elements is None:
            raise Formless
        return ((elements.size, self.table.number(elements)),)

    def poly(self, value: ir.Value) -> Poly:
        """Return the polynomial of a value of one block.

        Raises:
            Formless: it has several, or no form.
        """
        form = self.form(value)
        if len(form) != 1:
            raise Formless
        return form[0][1]

    def is_settled(self, value: ir.Value) -> bool:
        """Tell whether no round changes a value."""
        return id(value) not in self._inside or id(value) in self.settled

    def _read(self, node: ir.Node) -> None:
        operands = [value for value in node.inputs if value is not None]
        if all(map(self.is_settled, operands)):
            self.settled |= {id(value): node for value in node.outputs}
            return
        try:
            if node.op_type in _RULES and not node.domain and all(v.dtype == ir.DataType.FLOAT for v in node.outputs):
                for value, form in zip(node.outputs, _RULES[node.op_type](self, node), strict=True):
                    if tuple(dims(value))[-1:] == (sum(width for width, _ in form),):
                        self.forms[id(value)] = form
        except Formless:
            return

    def part(self, form: Form, start: int, end: int) -> Form:
        """Return some columns of a form."""
        columns, place = [], 0
        for width, poly in form:
            low, high = max(start - place, 0), min(end - place, width)
            if low < high:
                whole = (low, high) == (0, width)
                columns.append((high - low, poly if whole else self.table.part(poly, low, high)))
            place += width
        return tuple(columns)

    def weighed(self, form: Form, matrix: ir.Value | None, *, turned: bool) -> Form:
        """Return a product with a matrix: the sum of those of the blocks with its rows."""
        if matrix is None or not self.is_settled(matrix) or len(dims(matrix)) != 2:
            raise Formless
        rows, columns = dims(matrix)[::-1] if turned else dims(matrix)
        if not isinstance(columns, int) or rows != sum(width for width, _ in form):
            raise Formless
        total, place = self.table.number(0), 0
        for width, poly in form:
            part = Columns(matrix, turned, (place, place + width), (0, columns))
            total, place = total + self.table.of(Product(poly, part)), place + width
        return ((columns, total),)

    def both(self, node: ir.Node, combine: Callable[[Poly, Poly], Poly]) -> list[Form]:
        """Column by column."""
        self.meet(node.inputs[0], node.inputs[1])
        return [self.combined(self.form(node.inputs[0]), self.form(node.inputs[1]), combine)]

    def clamped(self, value: ir.Value | None, low: float, high: float) -> Form:
        """Return a form between two numbers."""
        return tuple((width, self.table.clamped(poly, low, high)) for width, poly in self.form(value))

    def meet(self, *values: ir.Value | None) -> None:
        """Refuse shapes of which one is repeated for the other, unless that is a constant's row."""
        shapes = [dims(value) for value in values if value is not None and id(value) in self.forms]
        rank = max(map(len, shapes), default=0)
        if len({(1,) * (rank - len(shape)) + shape for shape in shapes}) > 1:
            raise Formless

    def combined(self, a: Form, b: Form, combine: Callable[[Poly, Poly], Poly]) -> Form:
        """Combine the polynomials of two forms, wherever their columns meet."""
        widths = [sum(width for width, _ in form) for form in (a, b)]
        if widths[0] != widths[1]:
            a, b = (self._widened(form, max(widths)) for form in (a, b))
        ends = sorted({end for form in (a, b) for end in np.cumsum([width for width, _ in form]).tolist()})
        columns = []
        for start, end in zip([0, *ends], ends, strict=False):
            ((_, p),), ((_, q),) = self.part(a, start, end), self.part(b, start, end)
            columns.append((end - start, combine(p, q)))
        return tuple(columns)

    def _widened(self, form: Form, width: int) -> Form:
        """Return a number for as many columns."""
        single = len(form) == 1 and form[0][0] == 1 and all(not atoms for atoms, _ in form[0][1].terms)
        if form[0][0] != width and not single:
            raise Formless
        return ((width, form[0][1]),) if single else form


def _gemm(reading: Reading, node: ir.Node) -> list[Form]:
    for name, number in (("alpha", 1), ("beta", 1), ("transA", 0)):
        attribute = node.attributes.get(name)
        if attribute is not None and attribute.value != number:
            raise Formless
    turned = node.attributes.get("transB")
    form = reading.weighed(reading.form(node.inputs[0]), node.inputs[1], turned=bool(turned and turned.as_int()))
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if bias is None:
        return [form]
    if id(bias) in reading.forms and dims(bias) != dims(node.outputs[0]):
        raise Formless
    return [reading.combined(form, reading.form(bias), Poly.__add__)]


def _function(reading: Reading, node: ir.Node) -> list[Form]:
    form = reading.form(node.inputs[0])
    return [tuple((width, reading.table.of(Applied((node.op_type, None), poly))) for width, poly in form)]


def _clip(reading: Reading, node: ir.Node) -> list[Form]:
    low, high = (_number(value) for value in (*node.inputs[1:], None, None)[:2])
    return [reading.clamped(node.inputs[0], -math.inf if low is None else low, math.inf if high is None else high)]


def _end(reading: Reading, node: ir.Node, *, least: bool) -> list[Form]:
    """Max or Min of a value and a number."""
    if len(node.inputs) != 2:
        raise Formless
    value, end = (
        node.inputs if node.inputs[0] is not None and id(node.inputs[0]) in reading.forms else node.inputs[::-1]
    )
    number = _number(end)
    if number is None:
        raise Formless
    return [reading.clamped(value, *((number, math.inf) if least else (-math.inf, number)))]


def _number(value: ir.Value | None) -> float | None:
    """Return the one element of a constant; None of an operand left out."""
    if value is None:
        return None
    elements = known_row(value)
    if elements is None or elements.size != 1:
        raise Formless
    return float(elements[0])


def _moved(reading: Reading, node: ir.Node) -> list[Form]:
    """Return the operand's form: the same rows in the same order, whatever axes of one element lie around them."""
    source, (result,) = node.inputs[0], node.outputs
    if source is None or _rows(source) != _rows(result):
        raise Formless
    return [reading.form(source)]


def _rows(value: ir.Value) -> Dims:
    *leading, columns = dims(value) or (None,)
    if None in leading or not isinstance(columns, int):
        raise Formless
    return (*(d for d in leading if d != 1), columns)


def _concat(reading: Reading, node: ir.Node) -> list[Form]:
    rank = len(dims(node.outputs[0]))
    if node.attributes["axis"].as_int() not in (rank - 1, -1):
        raise Formless
    if any(value is None or id(value) not in reading.forms for value in node.inputs):
        raise Formless
    return [tuple(block for value in node.inputs for block in reading.form(value))]


def _split(reading: Reading, node: ir.Node) -> list[Form]:
    source, axis = node.inputs[0], node.attributes.get("axis")
    widths = [width for value in node.outputs if isinstance(width := dims(value)[-1], int)]
    if axis is None or axis.as_int() not in (len(dims(node.outputs[0])) - 1, -1) or len(widths) != len(node.outputs):
        raise Formless
    ends, form = np.cumsum(widths).tolist(), reading.form(source)
    return [reading.part(form, start, end) for start, end in zip([0, *ends], ends, strict=False)]


def _slice(reading: Reading, node: ir.Node) -> list[Form]:
    """Return some columns: axes whose extent stays are whole, since steps are 1."""
    source, (result,) = node.inputs[0], node.outputs
    bounds = [v.const_value.numpy().reshape(-1).tolist() for v in node.inputs[1:] if v and v.const_value is not None]
    if source is None or len(bounds) != 4 or any(step != 1 for step in bounds[3]):
        raise Formless
    shape, extents = dims(source), dims(result)
    width, result_width = shape[-1], extents[-1]
    if shape[:-1] != extents[:-1] or not isinstance(width, int) or not isinstance(result_width, int):
        raise Formless
    starts = {axis % len(shape): start for axis, start in zip(bounds[2], bounds[0], strict=True)}
    start = starts.get(len(shape) - 1, 0)
    start = max(start + width, 0) if start < 0 else start
    return [reading.part(reading.form(source), start, start + result_width)]


_RULES: dict[str, Callable[[Reading, ir.Node], list[Form]]] = {
    "Add": lambda reading, node: reading.both(node, Poly.__add__),
    "Sub": lambda reading, node: reading.both(node, Poly.__sub__),
    "Mul": lambda reading, node: reading.both(node, Poly.__mul__),
    "Gemm": _gemm,
    "MatMul": lambda reading, node: [reading.weighed(reading.form(node.inputs[0]), node.inputs[1], turned=False)],
    **dict.fromkeys(("Identity", "Reshape", "Squeeze", "Unsqueeze"), _moved),
    "Concat": _concat,
    "Split": _split,
    "Slice": _slice,
    "Relu": lambda reading, node: [reading.clamped(node.inputs[0], 0.0, math.inf)],
    "Clip": _clip,
    "Max": partial(_end, least=True),
    "Min": partial(_end, least=False),
    **dict.fromkeys(FUNCTIONS, _function),
}
