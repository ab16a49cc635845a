"""What the nodes of a loop's body compute, said in one way however they spell it.

A value is a row of columns; side by side lie blocks, each with one polynomial for all of its columns (see
`polynomials`). So `(1 - z) n + z h` and `n + z (h - n)` are one
form; so are a Split, Slices and products of parts, and a product of rows put side by side and the sum of two products.

Equal forms are equal results but for the order of float additions. What cannot be read has no form.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from relayout.formats.tflite.importing.builder import Dims, dims
from relayout.lowering.recognise_recurrent.polynomials import (
    Applied,
    AtomTable,
    Columns,
    Formless,
    OperandColumns,
    Poly,
    Product,
)

MOST_NODES = 80
"""Of a body: more is no cell anyway."""
FUNCTIONS = ("Sigmoid", "Tanh")

Form = tuple[tuple[int, Poly], ...]
"""Blocks side by side: how many columns, and their polynomial."""


COPYING = frozenset(("Cast", "Identity"))
"""Operators that give the elements of their operand, perhaps in another type."""


def known_row(value: ir.Value) -> npt.NDArray[np.float64] | None:
    """The elements of a constant of one row, perhaps of half precision; None of any other value."""
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
        self.settled: dict[int, ir.Node] = {}
        """What nodes compute from nothing that a round changes."""
        self._inside = {id(v) for node in nodes for v in node.outputs} | {id(v) for v in operands.values()}
        for name, value in operands.items():
            width = dims(value)[-1] if dims(value) else None
            if isinstance(width, int) and value.dtype == ir.DataType.FLOAT and None not in dims(value):
                self.forms[id(value)] = ((width, self.table.of(OperandColumns(name, (0, width)))),)
        for node in nodes[: MOST_NODES + 1] if len(nodes) <= MOST_NODES else ():
            self._read(node)

    def form(self, value: ir.Value | None) -> Form:
        """The form of a value.

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
        """The polynomial of a value of one block.

        Raises:
            Formless: it has several, or no form.
        """
        form = self.form(value)
        if len(form) != 1:
            raise Formless
        return form[0][1]

    def is_settled(self, value: ir.Value) -> bool:
        """Whether no round changes a value."""
        return id(value) not in self._inside or id(value) in self.settled

    def _read(self, node: ir.Node) -> None:
        given = [value for value in node.inputs if value is not None]
        if all(map(self.is_settled, given)):
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
        """Some columns of a form."""
        found, place = [], 0
        for width, poly in form:
            low, high = max(start - place, 0), min(end - place, width)
            if low < high:
                whole = (low, high) == (0, width)
                found.append((high - low, poly if whole else self.table.part(poly, low, high)))
            place += width
        return tuple(found)

    def weighed(self, form: Form, matrix: ir.Value | None, *, turned: bool) -> Form:
        """A product with a matrix: the sum of those of the blocks with its rows."""
        if matrix is None or not self.is_settled(matrix) or len(dims(matrix)) != 2:
            raise Formless
        rows, columns = dims(matrix)[::-1] if turned else dims(matrix)
        if not isinstance(columns, int) or rows != sum(width for width, _ in form):
            raise Formless
        made, place = self.table.number(0), 0
        for width, poly in form:
            part = Columns(matrix, turned, (place, place + width), (0, columns))
            made, place = made + self.table.of(Product(poly, part)), place + width
        return ((columns, made),)

    def both(self, node: ir.Node, combine: Callable[[Poly, Poly], Poly]) -> list[Form]:
        """Column by column."""
        self.meet(node.inputs[0], node.inputs[1])
        return [self.combined(self.form(node.inputs[0]), self.form(node.inputs[1]), combine)]

    def clamped(self, value: ir.Value | None, low: float, high: float) -> Form:
        """A form between two numbers."""
        return tuple((width, self.table.clamped(poly, low, high)) for width, poly in self.form(value))

    def meet(self, *values: ir.Value | None) -> None:
        """Refuse shapes of which one is repeated for the other, unless that is a constant's row."""
        shapes = [dims(value) for value in values if value is not None and id(value) in self.forms]
        rank = max(map(len, shapes), default=0)
        if len({(1,) * (rank - len(shape)) + shape for shape in shapes}) > 1:
            raise Formless

    def combined(self, a: Form, b: Form, combine: Callable[[Poly, Poly], Poly]) -> Form:
        """The same for forms."""
        widths = [sum(width for width, _ in form) for form in (a, b)]
        if widths[0] != widths[1]:
            a, b = (self._widened(form, max(widths)) for form in (a, b))
        ends = sorted({end for form in (a, b) for end in np.cumsum([width for width, _ in form]).tolist()})
        made = []
        for start, end in zip([0, *ends], ends, strict=False):
            ((_, p),), ((_, q),) = self.part(a, start, end), self.part(b, start, end)
            made.append((end - start, combine(p, q)))
        return tuple(made)

    def _widened(self, form: Form, width: int) -> Form:
        """A number for as many columns."""
        single = len(form) == 1 and form[0][0] == 1 and all(not atoms for atoms, _ in form[0][1].terms)
        if form[0][0] != width and not single:
            raise Formless
        return ((width, form[0][1]),) if single else form


def _plain(node: ir.Node, **wanted: float) -> None:
    """Refuse attributes that are other than these."""
    for name, number in wanted.items():
        attribute = node.attributes.get(name)
        if attribute is not None and attribute.value != number:
            raise Formless


def _gemm(reading: Reading, node: ir.Node) -> list[Form]:
    _plain(node, alpha=1, beta=1, transA=0)
    turned = node.attributes.get("transB")
    form = reading.weighed(reading.form(node.inputs[0]), node.inputs[1], turned=bool(turned and turned.as_int()))
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if bias is None:
        return [form]
    if id(bias) in reading.forms and dims(bias) != dims(node.outputs[0]):
        raise Formless
    return [reading.combined(form, reading.form(bias), Poly.__add__)]


def _matmul(reading: Reading, node: ir.Node) -> list[Form]:
    return [reading.weighed(reading.form(node.inputs[0]), node.inputs[1], turned=False)]


def _function(reading: Reading, node: ir.Node) -> list[Form]:
    form = reading.form(node.inputs[0])
    return [tuple((width, reading.table.of(Applied((node.op_type, None), poly))) for width, poly in form)]


def _relu(reading: Reading, node: ir.Node) -> list[Form]:
    return [reading.clamped(node.inputs[0], 0.0, math.inf)]


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
    """The one element of a constant; None of an operand left out."""
    if value is None:
        return None
    elements = known_row(value)
    if elements is None or elements.size != 1:
        raise Formless
    return float(elements[0])


def _moved(reading: Reading, node: ir.Node) -> list[Form]:
    """The same rows in the same order, whatever axes of one element lie around them."""
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
    """Some columns: axes whose extent stays are whole, since steps are 1."""
    source, (result,) = node.inputs[0], node.outputs
    bounds = [_integers(value) for value in node.inputs[1:]]
    if source is None or len(bounds) != 4 or any(step != 1 for step in bounds[3]):
        raise Formless
    shape, extents = dims(source), dims(result)
    width, left = shape[-1], extents[-1]
    if shape[:-1] != extents[:-1] or not isinstance(width, int) or not isinstance(left, int):
        raise Formless
    starts = {axis % len(shape): start for axis, start in zip(bounds[2], bounds[0], strict=True)}
    start = starts.get(len(shape) - 1, 0)
    start = max(start + width, 0) if start < 0 else start
    return [reading.part(reading.form(source), start, start + left)]


def _integers(value: ir.Value | None) -> list[int]:
    if value is None or value.const_value is None:
        raise Formless
    return [int(number) for number in value.const_value.numpy().reshape(-1)]


_RULES: dict[str, Callable[[Reading, ir.Node], list[Form]]] = {
    "Add": lambda reading, node: reading.both(node, Poly.__add__),
    "Sub": lambda reading, node: reading.both(node, Poly.__sub__),
    "Mul": lambda reading, node: reading.both(node, Poly.__mul__),
    "Gemm": _gemm,
    "MatMul": _matmul,
    "Identity": _moved,
    "Reshape": _moved,
    "Squeeze": _moved,
    "Unsqueeze": _moved,
    "Concat": _concat,
    "Split": _split,
    "Slice": _slice,
    "Relu": _relu,
    "Clip": _clip,
    "Max": partial(_end, least=True),
    "Min": partial(_end, least=False),
    **dict.fromkeys(FUNCTIONS, _function),
}
