"""Arithmetic on dimensions, some of which have names instead of numbers.

A name made here is the expression itself, `ceil(height/2)`, in one normal form: so two branches of a network that
shrink the same extent in the same way end in the same name, and can be seen to fit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from relayout.formats.onnx.evaluating import FUNCTIONS
from relayout.formats.onnx.shape_vectors import MOVES
from relayout.formats.tflite.importing.builder import Dim, Dims, dims

MAX_EXPRESSION = 80  # characters of a name that is an expression; beyond that a dimension is just unknown

_CEILING = re.compile(r"ceil\((\w+|\([^()]+\))/(\d+)\)")
_MULTIPLE = re.compile(r"(\d+)\*(\w+(?:\([^()]*\))?|\(.+\))")
_SHIFTED = re.compile(r"(.+) ([+-]) (\d+)")


def _named(name: str) -> Dim:
    return name if len(name) <= MAX_EXPRESSION else None


def _closed(name: str) -> str:
    return name if re.fullmatch(r"\w+|\w+\([^()]*\)", name) else f"({name})"


def shifted(dim: Dim, by: int) -> Dim:
    """Return a dimension and so much more, or less."""
    if isinstance(dim, int):
        return dim + by
    if dim is None or not by:
        return dim
    if match := _SHIFTED.fullmatch(dim):
        dim, by = match[1], by + (int(match[3]) if match[2] == "+" else -int(match[3]))
    return _named(f"{dim} {'+' if by > 0 else '-'} {abs(by)}") if by else dim


def times(dim: Dim, factor: int) -> Dim:
    """Return a multiple of a dimension."""
    if isinstance(dim, int):
        return dim * factor
    if dim is None or factor == 1:
        return dim
    if factor < 1:
        return 0 if factor == 0 else None
    if match := _MULTIPLE.fullmatch(dim):
        return _named(f"{int(match[1]) * factor}*{match[2]}")
    return _named(f"{factor}*{_closed(dim)}")


def divided(dim: Dim, by: int) -> Dim:
    """Return a dimension that is known to be a multiple, divided."""
    if isinstance(dim, int):
        return dim // by
    if dim is None or by == 1:
        return dim
    match = _MULTIPLE.fullmatch(dim)
    if match and int(match[1]) % by == 0:
        return times(match[2][1:-1] if match[2].startswith("(") else match[2], int(match[1]) // by)
    return _named(f"{_closed(dim)}/{by}")


def shrunk(dim: Dim, by: int) -> Dim:
    """Return a dimension divided, rounded up: of `ceil(h/2)` one half is `ceil(h/4)`."""
    if isinstance(dim, int):
        return -(-dim // by)
    if dim is None or by == 1:
        return dim
    if match := _CEILING.fullmatch(dim):
        return _named(f"ceil({match[1]}/{int(match[2]) * by})")
    multiple = _MULTIPLE.fullmatch(dim)
    if multiple and int(multiple[1]) % by == 0:
        return divided(dim, by)
    return _named(f"ceil({_closed(dim)}/{by})")


def product(dims: Iterable[Dim]) -> Dim:
    """Return how many elements a shape has; names are multiplied in alphabetical order."""
    factor, names = 1, []
    for dim in dims:
        if isinstance(dim, int):
            factor *= dim
        elif dim is None:
            return None
        else:
            names.append(dim)
    if len(names) < 2:
        return times(names[0], factor) if names else factor
    return times(_named("*".join(sorted(map(_closed, names)))), factor)


def total(dims: Iterable[Dim]) -> Dim:
    """Return the sum of dimensions, if at most one of them has a name."""
    fixed, name = 0, None
    for dim in dims:
        if isinstance(dim, int):
            fixed += dim
        elif dim is None or name is not None:
            return None
        else:
            name = dim
    return fixed if name is None else shifted(name, fixed)


# What is known of small tensors before anything runs: shapes that a model computes from shapes, and from constants.
#
# Keras writes Flatten with an open batch as SHAPE - STRIDED_SLICE - PACK - RESHAPE. Followed backwards through the
# nodes that were written for it, the target is `(batch, 36)`, and a Reshape to the constant `(-1, 36)` does the same.
# What is known as a whole is a constant (see `constant_elements`): files hold whole chains of arithmetic on extents
# that are numbers.

MAX_ELEMENTS = 64  # shapes are short; what is longer is data

MAX_STEPS = 200  # nodes to look at for one tensor

_INTEGERS = (ir.DataType.INT32, ir.DataType.INT64)
_NUMBERS = (*_INTEGERS, ir.DataType.BOOL, ir.DataType.FLOAT)

_Known = npt.NDArray[Any]
"""Integers are an object array of numbers, names, and None where an element is not known; other types are numpy's."""


def contents(value: ir.Value) -> tuple[Dim, ...] | None:
    """Return the elements of a one-dimensional integer tensor, as far as they are known; None where nothing is."""
    elements = _Reader().read(value)
    if elements is None or elements.ndim != 1 or all(e is None for e in elements.tolist()):
        return None
    return tuple(elements.tolist())


def element(value: ir.Value) -> Dim:
    """Return the only element of an integer tensor, if it is known."""
    elements = _Reader().read(value)
    single: Dim = elements.reshape(-1).tolist()[0] if elements is not None and elements.size == 1 else None
    return single


def constant_elements(
    value: ir.Value,  # what a node has just been written for
    # whether a value is known to be no constant, so that nothing behind it is looked at
    is_settled: Callable[[ir.Value], bool],
) -> npt.NDArray[Any] | None:
    """The elements of a small tensor that follows from constants and extents, in its type; None of any other."""
    extents = dims(value) if value.dtype in _NUMBERS and value.producer() is not None else (MAX_ELEMENTS + 1,)
    size = product(extents)
    if not isinstance(size, int) or size > MAX_ELEMENTS:
        return None
    elements = _Reader(is_settled).numbers(value)
    return elements if elements is not None and elements.shape == extents else None


def without_unread(nodes: Sequence[ir.Node], outputs: Sequence[ir.Value], spare: Container[int]) -> list[ir.Node]:
    """The nodes but those that nobody reads of those that compute shapes, or that are `spare`, by their identity.

    A constant has taken the place of the former, an attribute that of the latter.
    """
    remaining_nodes: list[ir.Node] = []
    results = {id(value) for value in outputs}
    for node in reversed(nodes):
        of_shapes = node.op_type in _RULES and all(_is_of_shapes(v) for v in node.outputs)
        if (of_shapes or id(node) in spare) and not any(v.uses() or id(v) in results for v in node.outputs):
            node.resize_inputs(0)
        else:
            remaining_nodes.append(node)
    return remaining_nodes[::-1]


def _is_of_shapes(value: ir.Value) -> bool:
    if value.dtype in _INTEGERS:
        return True
    size = product(dims(value)) if value.dtype in _NUMBERS else None
    return isinstance(size, int) and size <= MAX_ELEMENTS


class _Unknown(Exception):  # noqa: N818 - not an error: there is nothing to know
    pass


class _Reader:
    def __init__(self, is_settled: Callable[[ir.Value], bool] = lambda value: False) -> None:
        self.left, self.is_settled = MAX_STEPS, is_settled

    def read(self, value: ir.Value) -> _Known | None:
        """Return the elements of an integer tensor, as far as they are known."""
        try:
            return self.known(value) if value.dtype in _INTEGERS else None
        except _FAILURES:
            return None

    def numbers(self, value: ir.Value) -> _Known | None:
        """Return the elements of a tensor that is known as a whole."""
        try:
            return self.typed(value)
        except _FAILURES:
            return None

    def typed(self, value: ir.Value | None) -> _Known:
        """Return the known elements in the tensor's own type, in which arithmetic rounds and wraps as it should."""
        elements = self.known(value)
        if elements.dtype != object or value is None or value.dtype is None:
            return elements
        if not all(isinstance(e, int) for e in elements.flat):
            raise _Unknown
        return elements.astype(value.dtype.numpy())

    def known(self, value: ir.Value | None) -> _Known:
        self.left -= 1
        if value is None or self.left < 0 or value.dtype not in _NUMBERS:
            raise _Unknown
        if value.const_value is not None:
            if value.const_value.size > MAX_ELEMENTS:
                raise _Unknown
            array = value.const_value.numpy()
            return array.astype(object) if value.dtype in _INTEGERS else array
        node = value.producer()
        if node is None or node.op_type not in _RULES or self.is_settled(value):
            raise _Unknown
        result = _RULES[node.op_type](self, node)
        if result.size > MAX_ELEMENTS:
            raise _Unknown
        return result

    def fixed(self, node: ir.Node, i: int) -> list[int]:
        """Operand i as plain numbers."""
        elements = self.known(node.inputs[i]).reshape(-1).tolist()
        if not all(isinstance(e, int) for e in elements):
            raise _Unknown
        return elements

    def shape(self, node: ir.Node) -> _Known:
        if (source := node.inputs[0]) is None:
            raise _Unknown
        start, end = (node.attributes.get(name) for name in ("start", "end"))
        extents: Dims = dims(source)
        extents = extents[start.as_int() if start else 0 : end.as_int() if end else len(extents)]
        out = np.empty(len(extents), object)
        out[:] = extents
        return out

    def size(self, node: ir.Node) -> _Known:
        source = node.inputs[0]
        out = np.empty((), object)
        out[()] = product(dims(source)) if source is not None else None
        return out

    def moved(self, node: ir.Node) -> _Known:
        """The elements where an operator that only moves them puts them; of several parts some may be unknown."""
        data, *others = node.inputs
        if node.op_type == "Concat":
            operands = [self.part(value) for value in node.inputs]
        else:
            operands = [self.known(data), *(self.known(each).astype(np.int64) for each in others)]
        attributes = {name: attribute.value for name, attribute in node.attributes.items()}
        if (elements := MOVES[node.op_type](attributes, *operands)) is None:
            raise _Unknown
        kind = object if any(each.dtype == object for each in operands) else operands[0].dtype
        return np.asarray(elements, kind)  # of objects, numpy takes one out of the array

    def cast(self, node: ir.Node) -> _Known:
        source, result = node.inputs[0], node.outputs[0]
        if source is None or result.dtype is None or (source.dtype in _INTEGERS and result.dtype in _INTEGERS):
            return self.known(source)
        array = self.typed(source)
        if result.dtype in _INTEGERS:
            limits = np.iinfo(result.dtype.numpy())
            if not np.all((array >= float(limits.min)) & (array < float(limits.max))):
                raise _Unknown  # runtimes differ in what they make of it
            return array.astype(np.int64).astype(object)
        return array.astype(result.dtype.numpy())

    def computed(self, node: ir.Node) -> _Known:
        """Return what a function of numpy makes of operands that are known as a whole."""
        with np.errstate(all="ignore"):
            array = np.asarray(_FUNCTIONS[node.op_type](*map(self.typed, node.inputs)))
        return array.astype(object) if node.outputs[0].dtype in _INTEGERS else array

    def expand(self, node: ir.Node) -> _Known:
        x, extents = self.known(node.inputs[0]), self.fixed(node, 1)
        if prod(extents) > MAX_ELEMENTS:
            raise _Unknown
        return np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(extents)))

    def part(self, value: ir.Value | None) -> _Known:
        """Of several parts, one may be unknown."""
        try:
            return self.known(value)
        except _Unknown:
            shape = [d for d in dims(value) if isinstance(d, int)] if value is not None else []
            if value is None or len(shape) != len(dims(value)) or prod(shape) > MAX_ELEMENTS:
                raise
            return np.full(shape, None, object)

    def product(self, node: ir.Node) -> _Known:
        x, axes = self.known(node.inputs[0]), self.fixed(node, 1)
        if x.ndim != 1 or axes not in ([0], [-1]):
            raise _Unknown
        keep = node.attributes["keepdims"].as_int() if "keepdims" in node.attributes else 1
        out = np.empty((1,) if keep else (), object)
        out[...] = product(x.tolist())
        return out

    def pairwise(self, node: ir.Node) -> _Known:
        if node.outputs[0].dtype not in _INTEGERS:
            return self.computed(node)
        a, b = self.part(node.inputs[0]), self.part(node.inputs[1])
        compute = _PAIRS[node.op_type]
        out = np.empty(np.broadcast_shapes(a.shape, b.shape), object)
        flat = [compute(x, y) for x, y in zip(*(np.broadcast_to(v, out.shape).flat for v in (a, b)), strict=True)]
        out.reshape(-1)[:] = flat
        return out

    def scattered(self, node: ir.Node) -> _Known:
        """Elements multiplied with others or added to them: extents whose axes an Einsum joins."""
        how = node.attributes["reduction"].as_string() if "reduction" in node.attributes else ""
        if node.outputs[0].dtype not in _INTEGERS or how not in _SCATTERED:
            raise _Unknown
        x, index, updates = self.known(node.inputs[0]).copy(), self.fixed(node, 1), self.known(node.inputs[2])
        if x.ndim != 1 or updates.shape != (len(index),):
            raise _Unknown
        for place, element_ in zip(index, updates.tolist(), strict=True):
            x[place] = _SCATTERED[how](x[place], element_)
        return x


def _sum(a: Dim, b: Dim) -> Dim:
    if isinstance(b, int):
        return shifted(a, b)
    return shifted(b, a) if isinstance(a, int) else None


def _product(a: Dim, b: Dim) -> Dim:
    return product((a, b))


def _quotient(a: Dim, b: Dim) -> Dim:
    if not isinstance(b, int) or b <= 0:
        return None
    if isinstance(a, int):
        return a // b if a >= 0 else None
    exact = divided(a, b)
    return exact if isinstance(exact, str) and not exact.endswith(f"/{b}") else None


def _remainder(a: Dim, b: Dim) -> Dim:
    if isinstance(a, int) and isinstance(b, int):
        return a % b if a >= 0 and b > 0 else None
    return None if _quotient(a, b) is None else 0  # a name is divided where nothing is left


_PAIRS: dict[str, Callable[[Dim, Dim], Dim]] = {
    "Add": _sum,
    "Div": _quotient,
    "Mod": _remainder,
    "Mul": _product,
    "Sub": lambda a, b: shifted(a, -b) if isinstance(b, int) else None,
}

_SCATTERED: dict[str, Callable[[Dim, Dim], Dim]] = {"add": _sum, "mul": _product}

_SAME = "Abs Add And Ceil Div Equal Floor Greater GreaterOrEqual Less LessOrEqual Mul Neg Not Or Sub Where"
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: FUNCTIONS[name] for name in _SAME.split()},
    "Max": np.maximum,
    "Min": np.minimum,
    "Mod": np.fmod,
    "Round": np.rint,
    "Sign": np.sign,
    "Sqrt": np.sqrt,
    "Xor": np.logical_xor,
}
"""Operators that numpy has: those whose results are the same everywhere, to the last bit."""

_FAILURES = (_Unknown, ValueError, IndexError, TypeError, ArithmeticError, RecursionError)
"""What reading ends with where operands contradict each other, or ask for too much."""

_RULES: dict[str, Callable[[_Reader, ir.Node], _Known]] = {
    **dict.fromkeys(_FUNCTIONS, _Reader.computed),
    **dict.fromkeys(_PAIRS, _Reader.pairwise),
    **dict.fromkeys(MOVES.keys() - {"Flatten"}, _Reader.moved),
    "Cast": _Reader.cast,
    "Expand": _Reader.expand,
    "ReduceProd": _Reader.product,
    "ScatterND": _Reader.scattered,
    "Shape": _Reader.shape,
    "Size": _Reader.size,
}
