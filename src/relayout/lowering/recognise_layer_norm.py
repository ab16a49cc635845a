"""A layer normalization in pieces, as the one operator that ONNX has.

With m the mean of each row of x, v that of (x - m) squared, and f = gamma / sqrt(v + epsilon), Keras writes
`x f + (beta - m f)`, where gamma and beta may be absent, relayout `(x - m) f + beta`, and litert-torch
`(x f + (0 - m f)) gamma + beta` with an f without gamma, and with RESHAPEs of m and f. LayerNormalization is nearer to
what is meant: where rows lie far from 0, `m f` takes the digits away. Rows of pixels stay in pieces: those take any
order of axes, as the convolutions around them do.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import Operator, Tensor
from relayout.formats.tflite.importing.builder import dims
from relayout.formats.tflite.importing.emission import options_of
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.operators.convolution import vector, widened_from
from relayout.formats.tflite.importing.tensors import array
from relayout.graph.subgraphs import all_nodes, become
from relayout.lowering.constants import Constants
from relayout.lowering.fuse_epilogue import only_reader

# A GELU that is spelled out, as the operator.
#
# x / sqrt(2) -> Erf -> + 1 -> * x -> * 0.5        (the last two in any order, or 0.5 on x)

ERF, PRODUCT, QUOTIENT, SUM = (frozenset({name}) for name in ("Erf", "Mul", "Div", "Add"))
DOMAIN = "com.microsoft"  # of an operator that no opset before 20 has


def recognise_gelu(model: ir.Model) -> dict[str, int]:
    """Write each GELU that is spelled out as one node, in place.

    Returns:
        Operator -> how many.
    """
    erf_nodes = [node for node in all_nodes(model.graph) if node.op_type in ERF and not node.domain]
    if not erf_nodes:
        return {}
    constants = Constants(model)
    count = sum(_write(model, constants, node) for node in erf_nodes)
    return {"Gelu": count} if count else {}


def _write(model: ir.Model, constants: Constants, erf: ir.Node) -> bool:
    x = _scaled_operand(constants, erf.inputs[0])
    end = None if x is None else _end(constants, erf, x)
    if x is None or end is None or end.graph is None:
        return False
    model.opset_imports.setdefault(DOMAIN, 1)
    become(end, DOMAIN, "Gelu", [x], end.attributes.values())
    return True


def _scaled_operand(constants: Constants, value: ir.Value | None) -> ir.Value | None:
    """Return x of `x / sqrt(2)`."""
    node = None if value is None else value.producer()
    if node is None or node.domain or len(node.inputs) != 2:
        return None
    first, second = node.inputs
    if node.op_type in QUOTIENT and _is_number(constants, second, math.sqrt(2)):
        return first
    if node.op_type in PRODUCT:
        for operand, number in ((first, second), (second, first)):
            if _is_number(constants, number, math.sqrt(0.5)):
                return operand
    return None


def _end(constants: Constants, erf: ir.Node, x: ir.Value) -> ir.Node | None:
    """Return the last node of a GELU of x; None: it is another function."""
    raised = only_reader(erf)
    if raised is None or raised.op_type not in SUM or not _has_number(constants, raised, 1.0):
        return None
    product = only_reader(raised)
    if product is None or product.op_type not in PRODUCT:
        return None
    factors = [value.producer() for value in product.inputs if value is not None]
    if any(
        node is not None
        and node.op_type in PRODUCT
        and not node.domain
        and x in node.inputs
        and _has_number(constants, node, 0.5)
        for node in factors
    ):
        return product
    last = only_reader(product)
    if last is None or last.op_type not in PRODUCT:
        return None
    reads_x = [x in node.inputs for node in (product, last)]
    halves = [_has_number(constants, node, 0.5) for node in (product, last)]
    return last if reads_x in ([True, False], [False, True]) and halves == reads_x[::-1] else None


def _has_number(constants: Constants, node: ir.Node, number: float) -> bool:
    return any(_is_number(constants, value, number) for value in node.inputs)


def _is_number(constants: Constants, value: ir.Value | None, number: float) -> bool:
    array = constants.array(value)
    return array is not None and array.size == 1 and abs(float(array.reshape(-1)[0]) - number) < 1e-5 * number


RANK = 3  # of what is normalized: `n t c` are tokens, `n h w c` would be pixels

Write = Callable[[Operation, ir.Value, Sequence[ir.Value], float], ir.Value]
"""Writes the LayerNormalization of a value, by a scale and perhaps a shift, and epsilon."""

_REAL = (TensorType.FLOAT32, TensorType.FLOAT16)


class _Factor(NamedTuple):
    """The factor that x is multiplied with: the tensor of its mean, epsilon, gamma."""

    mean: int
    epsilon: float
    gamma: Tensor | None


class _Pieces:
    """The pieces that an ADD may be the last of. `operators` are the operators that made them."""

    def __init__(self, op: Operation, shape: tuple[int, ...]) -> None:
        self.op, self.count = op, shape[-1]
        self.column = (*shape[:-1], 1)
        self.operators: list[Operator] = []

    def tensor(self, index: int) -> Tensor:
        return self.op.tensors.subgraph.tensors[index]

    def origin(self, index: int) -> int:
        """Return the tensor that RESHAPEs, which add or remove axes of one element, make a tensor of."""
        operator = self.op.tensors.flow.producer(index)
        if operator is None or operator.name != "RESHAPE":
            return index
        shapes = [self.tensor(each).signature for each in (index, operator.inputs[0])]
        one, other = ([extent for extent in shape if extent != 1] for shape in shapes)
        if one != other or -1 in one:
            return index
        self.operators.append(operator)
        return self.origin(operator.inputs[0])

    def are_of_pixels(self, index: int) -> bool:
        """Tell whether pieces with RESHAPEs normalize the pixels of an image: litert-torch makes rows of those, too."""
        operator = self.op.tensors.flow.producer(index)
        if operator is None or operator.name != "RESHAPE" or len(self.tensor(operator.inputs[0]).shape) <= RANK:
            return False
        return any(each.name == "RESHAPE" for each in self.operators)

    def is_column(self, index: int) -> bool:
        """Tell whether a tensor has one number for each row, and so the shape of the rows but for the last extent 1."""
        return self.tensor(index).shape == self.column

    def producer_of(self, index: int, name: str, operands: int = 2) -> Operator | None:
        """Return the operator of that name that computes a tensor, as it is."""
        operator = self.op.tensors.flow.producer(self.origin(index))
        if operator is None or operator.name != name or len(operator.inputs) != operands or min(operator.inputs) < 0:
            return None
        if options_of(operator).fields.get("fused_activation_function"):
            return None
        self.operators.append(operator)
        return operator

    def constant(self, index: int) -> Tensor | None:
        """Return a constant of real numbers."""
        tensor = widened_from(self.op, self.tensor(index))
        return tensor if tensor.data is not None and tensor.type in _REAL else None

    def row(self, index: int) -> Tensor | None:
        """Return a constant with one element for each place of a row."""
        tensor = self.constant(index)
        shape = () if tensor is None else tensor.shape
        return tensor if shape and shape == (*(1,) * (len(shape) - 1), self.count) and len(shape) <= RANK else None

    def of_mean(self, index: int) -> int | None:
        """Return the tensor whose mean along the last axis a tensor is; None if it is no such mean."""
        operator = self.producer_of(index, "MEAN")
        axes = None if operator is None else self.tensor(operator.inputs[1])
        if operator is None or axes is None or axes.data is None or axes.type != TensorType.INT32:
            return None
        extents = self.tensor(operator.inputs[0]).signature
        is_last = range(len(extents))[-1:]
        reduced = {int(axis) % len(extents) for axis in array(axes).reshape(-1)} if extents else set()
        several = reduced.difference(is_last)
        return operator.inputs[0] if several < reduced and all(extents[axis] == 1 for axis in several) else None

    def factor(self, index: int, x: int) -> _Factor | None:
        """Gamma over the root of x's variance."""
        for root, gamma in self.by_rows(index):
            if (inner := self.without_gamma(root, x)) is not None:
                return inner._replace(gamma=gamma)
        return self.without_gamma(index, x)

    def without_gamma(self, index: int, x: int) -> _Factor | None:
        """Return one over the root of x's variance."""
        root_of = self.producer_of(index, "RSQRT", 1)
        for variance, epsilon in _both(self.producer_of(root_of.inputs[0], "ADD") if root_of else None):
            least, squares = self.constant(epsilon), self.of_mean(variance)
            for one, mean in () if squares is None or not self.is_column(index) else self.distances(squares):
                if one == x and least is not None and array(least).size == 1 and self.of_mean(mean) == x:
                    return _Factor(self.origin(mean), float(array(least).reshape(-1)[0]), None)
        return None

    def distances(self, squares: int) -> Iterator[tuple[int, int]]:
        """Yield the two tensors whose distances are squared in a tensor: the second has one number for each row."""
        square = self.producer_of(squares, "SQUARE", 1) or self.producer_of(squares, "MUL")
        is_square = square is not None and len(set(square.inputs)) == 1
        difference = self.producer_of(square.inputs[0], "SUB") if square is not None and is_square else None
        for one, mean in _both(difference or self.producer_of(squares, "SQUARED_DIFFERENCE")):
            if self.is_column(mean):
                yield one, mean

    def of_distances(self, scaled: int) -> tuple[int, _Factor] | None:
        """Return the x of `(x - m) f`, and its factor."""
        products = [(scaled, None), *self.by_rows(scaled)]
        for product, gamma in products:
            for distance, index in _both(self.producer_of(product, "MUL")):
                difference = self.producer_of(distance, "SUB")
                if difference is None:
                    continue
                x, mean = difference.inputs
                factor = self.factor(index, x) if gamma is None else self.without_gamma(index, x)
                if factor is not None and self.is_column(mean) and factor.mean == self.origin(mean):
                    return x, factor if gamma is None else factor._replace(gamma=gamma)
        return None

    def by_rows(self, index: int) -> Iterator[tuple[int, Tensor]]:
        """Yield the operand of a product by a constant with one element for each place of a row, and the constant."""
        for other, factor in _both(self.producer_of(index, "MUL")):
            if (row := self.row(factor)) is not None:
                yield other, row

    def of_product_and_shift(self, scaled: int, shift: int) -> Iterator[tuple[int, _Factor, Tensor | None]]:
        """Yield x, factor and beta of two operands of a sum, if they are `x f` and `beta - m f`."""
        for x, index in _both(self.producer_of(scaled, "MUL")):
            factor = self.factor(index, x)
            if factor is not None and self.is_shift(shift, index, factor.mean):
                yield x, factor, None
            for inner, other in _both(self.producer_of(shift, "ADD")) if factor is not None else ():
                if factor is not None and self.is_shift(inner, index, factor.mean) and self.row(other) is not None:
                    yield x, factor, self.row(other)

    def of_sum(self, scaled: int, shift: int) -> Iterator[tuple[int, _Factor, Tensor | None]]:
        """Yield x, factor and beta of two operands of a sum, if it is the last piece."""
        yield from self.of_product_and_shift(scaled, shift)
        beta, distances = self.row(shift), self.of_distances(scaled)
        if beta is not None and distances is not None:
            yield *distances, beta
        for inner, gamma in self.by_rows(scaled) if beta is not None else ():
            for one, other in _both(self.producer_of(inner, "ADD")):
                for x, factor, own in self.of_product_and_shift(one, other):
                    if factor.gamma is None and own is None:
                        yield x, factor._replace(gamma=gamma), beta

    def is_shift(self, index: int, factor: int, mean: int) -> bool:
        """Tell whether a tensor is the negative mean times the factor."""
        difference = self.producer_of(index, "SUB")
        zero = None if difference is None else self.constant(difference.inputs[0])
        if difference is not None and zero is not None and self.is_column(index):
            products = _both(self.producer_of(difference.inputs[1], "MUL")) if not array(zero).any() else ()
            return any((self.origin(one), self.origin(other)) == (mean, self.origin(factor)) for one, other in products)
        for negative, other in _both(self.producer_of(index, "MUL")):
            negation = self.producer_of(negative, "NEG", 1)
            if other != factor or negation is None or not self.is_column(negation.inputs[0]):
                continue
            if self.origin(negation.inputs[0]) == mean:
                return True
        return False


def _both(operator: Operator | None) -> Iterator[tuple[int, int]]:
    """Yield an operator's two operands, in either order."""
    if operator is not None:
        first, second = operator.inputs
        yield first, second
        yield second, first


def layer_normalized(
    op: Operation,  # the ADD
    # what writes the LayerNormalization of a value by constants; by default the operator itself
    write: Write | None = None,
) -> bool:
    """Hand over an ADD as a LayerNormalization, if it is the last piece of one."""
    write = write or normalization
    if len(op.operator.inputs) != 2 or op.output().type != TensorType.FLOAT32 or min(op.operator.inputs) < 0:
        return False
    shape = op.output().shape
    if len(shape) != RANK or op.tensors.flow.producer(op.operator.inputs[0]) is None:
        return False
    pieces = _Pieces(op, shape)
    for scaled, shift in _both(op.operator):
        for x, factor, beta in pieces.of_sum(scaled, shift):
            if not _is_of_rows(op, pieces.tensor(x), pieces.count) or pieces.are_of_pixels(x):
                continue
            for operator in pieces.operators:
                op.spare(operator)
            constants = [_constant(op, factor.gamma, "scale", pieces.count)]
            constants += [] if beta is None else [_constant(op, beta, "shift", pieces.count)]
            y = write(op, op.tensors.value(pieces.tensor(x)), constants, factor.epsilon)
            op.result(y, fused=op.options.fused_activation_function)
            return True
    return False


def _is_of_rows(op: Operation, tensor: Tensor, count: int) -> bool:
    """Tell whether a tensor has real rows; their number may be known only at run time."""
    if tensor.type != TensorType.FLOAT32 or not op.tensors.has_value(tensor):
        return False
    shape = dims(op.tensors.value(tensor))
    return len(shape) == RANK and shape[-1] == count and sum(not isinstance(d, int) for d in shape) < 2


def _constant(op: Operation, tensor: Tensor | None, name: str, count: int) -> ir.Value:
    """Return a row as a value: the file's own where it is one of real numbers; None is a row of ones."""
    if tensor is not None and tensor.type == TensorType.FLOAT32 and len(tensor.shape) == 1:
        return op.tensors.value(tensor)
    return op.builder.shared(op.hint(name), np.ones(count, np.float32) if tensor is None else vector(tensor))


def normalization(op: Operation, x: ir.Value, constants: Sequence[ir.Value], epsilon: float) -> ir.Value:
    """Return the LayerNormalization of a value along its last axis, by a scale and perhaps a shift."""
    return op.emit("LayerNormalization", [x, *constants], dims(x), axis=-1, epsilon=epsilon)
