"""Dilated convolutions as TensorFlow writes them: of every second element, of every third.

    SPACE_TO_BATCH_ND(pads) - CONV_2D - BATCH_TO_SPACE_ND(crops)

is one convolution with dilations, with a border of `pads - crops`: what is padded beyond that is cut off again. Its
converter sees this where all extents are known, and leaves the three where the batch, height or width is open; then it
computes pads and crops when the model runs, and their difference is known all the same (see below). In one dimension
an EXPAND_DIMS stands before the convolution and a SQUEEZE behind it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import prod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from relayout.formats.flatbuffer import Table
from relayout.formats.tflite.container.enums import Padding, TensorType
from relayout.formats.tflite.container.model import Model, Operator, Subgraph, Tensor
from relayout.formats.tflite.importing.emission import options_of
from relayout.formats.tflite.importing.importer import SubgraphRewriting
from relayout.formats.tflite.importing.tensors import Flow, array
from relayout.light_dataclass import dataclass

# Short integer tensors that a file computes, each element as a sum: a number, and multiples of what is not known.
#
# TensorFlow computes the margins of a dilated convolution from extents when a model runs. What they are it does not
# say, but by how much two of them differ can be read off, if what is not known is the same in both:
#
#     pads = (4 - (h + 8) % 4) % 4 + 4, crops = (4 - (h + 8) % 4) % 4: the difference is 4

MAX_ELEMENTS = 64  # shapes and margins are short
MAX_DEPTH = 64  # operators behind one another to look at

INTEGERS = (TensorType.INT32, TensorType.INT64)
MAX_TERMS = 16  # Unknowns in one sum
Elements = npt.NDArray[np.object_]  # a tensor of sums


class Sum(NamedTuple):
    """A number and multiples of unknowns, which have numbers and come in their order."""

    number: int
    terms: tuple[tuple[int, int], ...] = ()

    def plus(self, other: "Sum", times: int = 1) -> "Sum":
        """Add another sum, so many times."""
        factor_of = dict(self.terms)
        for unknown, factor in other.terms:
            factor_of[unknown] = factor_of.get(unknown, 0) + times * factor
        terms = sorted((unknown, factor) for unknown, factor in factor_of.items() if factor)
        if len(terms) > MAX_TERMS:
            raise ValueError("too many unknowns")
        return Sum(self.number + times * other.number, tuple(terms))


class Sums:
    """The integer tensors of a subgraph as sums."""

    def __init__(self, subgraph: Subgraph, flow: Flow) -> None:
        self.tensors, self.flow = subgraph.tensors, flow
        self._known: dict[int, Elements | None] = {}
        self._unknown: dict[tuple[object, ...], int] = {}
        self._depth = 0

    def of(self, index: int) -> Elements | None:
        """Return the elements of a short integer tensor; None where it is none."""
        if index not in self._known:
            self._known[index] = None  # what a damaged file computes from itself
            self._known[index] = self._elements(index)
        return self._known[index]

    def _elements(self, index: int) -> Elements | None:
        tensor = self.tensors[index] if 0 <= index < len(self.tensors) else None
        if tensor is None or tensor.type not in INTEGERS or prod(tensor.shape) > MAX_ELEMENTS:
            return None
        operator = self.flow.producer(index)
        if tensor.data is not None and operator is None:
            return _filled(array(tensor).shape, (Sum(int(item)) for item in array(tensor).reshape(-1)))
        rule = _RULES.get(operator.name) if operator is not None else None
        if operator is not None and rule is not None and self._depth < MAX_DEPTH:
            self._depth += 1
            try:
                return rule(self, operator, options_of(operator))
            except (IndexError, TypeError, ValueError, AttributeError):
                pass  # operands that do not fit each other: their translation says so
            finally:
                self._depth -= 1
        if -1 in tensor.signature:
            return None
        items = (self._named("element", index, position) for position in range(prod(tensor.shape)))
        return _filled(tensor.shape, items)

    def operand(self, operator: Operator, i: int) -> Elements:
        """Return the elements of an operand."""
        if (elements := self.of(operator.inputs[i])) is None:
            raise ValueError("not known")
        return elements

    def numbers(self, operator: Operator, i: int) -> list[int]:
        """Return the elements of an operand that are all numbers."""
        items = self.operand(operator, i).reshape(-1).tolist()
        if any(item.terms for item in items):
            raise ValueError("not known")
        return [item.number for item in items]

    def shape(self, operator: Operator, _: Table) -> Elements:
        """Take every extent for unknown, also those that a file states: it may state too many."""
        index = operator.inputs[0]
        extents = range(len(self.tensors[index].shape))
        return _filled((len(extents),), (self._named("extent", index, axis) for axis in extents))

    def strided(self, operator: Operator, options: Table) -> Elements:
        """Take a part of a tensor."""
        x = self.operand(operator, 0)
        first, last, steps = (self.numbers(operator, i) for i in (1, 2, 3))
        if (
            options.ellipsis_mask
            or options.new_axis_mask
            or options.offset
            or not len(first) == len(last) == len(steps)
        ):
            raise ValueError("no plain part")
        index: list[int | slice] = []
        for axis, (start, end, step) in enumerate(zip(first, last, steps, strict=True)):
            bit = 1 << axis
            if options.shrink_axis_mask & bit:
                index.append(start)
            else:
                begin = None if options.begin_mask & bit else start
                index.append(slice(begin, None if options.end_mask & bit else end, step))
        part = x[tuple(index)]
        return part if isinstance(part, np.ndarray) else _filled((), [part])

    def operands(self, operator: Operator) -> list[Elements]:
        """Return the elements of all operands."""
        return [self.operand(operator, i) for i in range(len(operator.inputs))]

    def same(self, operator: Operator, _: Table) -> Elements:
        """Keep the elements, in the shape of the result."""
        return self.operand(operator, 0).reshape(self.tensors[operator.outputs[0]].shape)

    def pairwise(self, operator: Operator, options: Table) -> Elements:
        """Compute with two elements each."""
        if getattr(options, "fused_activation_function", 0):
            raise ValueError("an activation")
        first, second = np.broadcast_arrays(*self.operands(operator))
        compute = _PAIRS[operator.name]
        pairs = zip(first.reshape(-1), second.reshape(-1), strict=True)
        return _filled(first.shape, (compute(self, one, other) for one, other in pairs))

    def product(self, one: Sum, other: Sum) -> Sum:
        """Multiply two elements: an unknown of its own where neither is a number."""
        first, second = (one, other) if not other.terms else (other, one)
        return self._named("product", first, second) if second.terms else Sum(0).plus(first, second.number)

    def remainder(self, one: Sum, other: Sum) -> Sum:
        """Return what is left of a division that rounds down."""
        if not one.terms and not other.terms and other.number:
            return Sum(one.number % other.number)
        return self._named("remainder", one, other)

    def _named(self, *what: object) -> Sum:
        """Make a sum of one unknown."""
        return Sum(0, ((self._unknown.setdefault(what, len(self._unknown)), 1),))


def _filled(shape: tuple[int, ...], items: Iterable[Sum]) -> Elements:
    """Fill an array with sums, which numpy takes apart if it is left to it."""
    elements = np.empty(prod(shape), object)
    for position, item in enumerate(items):
        elements[position] = item
    return elements.reshape(shape)


_PAIRS: dict[str, Callable[[Sums, Sum, Sum], Sum]] = {
    "ADD": lambda _, one, other: one.plus(other),
    "FLOOR_MOD": Sums.remainder,
    "MUL": Sums.product,
    "SUB": lambda _, one, other: one.plus(other, -1),
}

_RULES: dict[str, Callable[[Sums, Operator, Table], Elements]] = {
    **dict.fromkeys(_PAIRS, Sums.pairwise),
    **dict.fromkeys(("CAST", "EXPAND_DIMS", "RESHAPE", "SQUEEZE"), Sums.same),
    "CONCATENATION": lambda sums, operator, options: np.concatenate(sums.operands(operator), axis=options.axis),
    "PACK": lambda sums, operator, options: np.stack(sums.operands(operator), axis=options.axis),
    "SHAPE": Sums.shape,
    "STRIDED_SLICE": Sums.strided,
}


CONVOLUTIONS = ("CONV_2D", "DEPTHWISE_CONV_2D")
MARGINS = 2  # the operand that says what is padded, or cut off
IMAGE = 4  # the rank of what a convolution reads
Border = tuple[tuple[int, int], ...]  # what is added before and behind each axis


def dilated(model: Model) -> Model:
    """Write one convolution for each that a model takes apart into blocks and puts together again."""
    return model._replace(subgraphs=tuple(_Joining(subgraph).run() for subgraph in model.subgraphs))


class _Chain(NamedTuple):
    """The operators of one dilated convolution; `axis`: the axis of extent 1 that is there for the convolution's sake.

    `inserting` and `dropping` add that axis and take it away.
    """

    space: Operator
    inserting: Operator | None
    convolution: Operator
    dropping: Operator | None
    batch: Operator
    axis: int

    @property
    def between(self) -> list[int]:
        """List the tensors between the first and the last."""
        operators = (self.space, self.inserting, self.convolution, self.dropping)
        return [operator.outputs[0] for operator in operators if operator is not None]


@dataclass
class _Joining(SubgraphRewriting):
    """One subgraph while convolutions are put together."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.flow = Flow(self.subgraph)
        self.sums = Sums(self.subgraph, self.flow)
        self.gone: set[str] = set()

    def run(self) -> Subgraph:
        """Put the convolutions of the subgraph together."""
        operators: list[Operator] = []
        for operator in self.subgraph.operators:
            chain = self._chain(operator) if operator.name == "BATCH_TO_SPACE_ND" else None
            border = None if chain is None else self._border(chain)
            operators += [operator] if chain is None or border is None else self._joined(chain, border)
        remaining_operators, read = list[Operator](), set(self.subgraph.outputs)
        for operator in reversed(operators):  # what only a convolution read is gone with it
            if operator.place not in self.gone or not read.isdisjoint(operator.outputs):
                read.update(operator.inputs)
                remaining_operators.append(operator)
        return self.subgraph._replace(tensors=tuple(self.tensors), operators=tuple(reversed(remaining_operators)))

    def _chain(self, batch: Operator) -> _Chain | None:
        """Find the operators that end with this one, if they are a dilated convolution."""
        if len(batch.inputs) < MARGINS + 1 or len(batch.outputs) != 1:
            return None
        dropping, convolution = None, self._before(batch)
        if convolution is not None and convolution.name in ("RESHAPE", "SQUEEZE"):
            dropping, convolution = convolution, self._before(convolution)
        if convolution is None or convolution.name not in CONVOLUTIONS:
            return None
        inserting, space = None, self._before(convolution)
        if space is not None and space.name in ("EXPAND_DIMS", "RESHAPE"):
            inserting, space = space, self._before(space)
        if space is None or space.name != "SPACE_TO_BATCH_ND" or (inserting is None) != (dropping is None):
            return None
        if len(space.inputs) < MARGINS + 1 or min(*space.inputs, *batch.inputs, *batch.outputs) < 0:
            return None
        axis = 0
        if inserting is not None and dropping is not None:
            axis = self._inserted(inserting.inputs[0], inserting.outputs[0])
            if not axis or axis != self._inserted(dropping.outputs[0], dropping.inputs[0], axis):
                return None
        chain = _Chain(space, inserting, convolution, dropping, batch, axis)
        return chain if self._fits(chain) else None

    def _before(self, operator: Operator) -> Operator | None:
        """Find the operator of one result that computes the first operand of another."""
        producer = self.flow.producer(operator.inputs[0]) if operator.inputs and operator.inputs[0] >= 0 else None
        return producer if producer is not None and len(producer.outputs) == 1 and producer.inputs else None

    def _inserted(self, without: int, image: int, expected: int = 0) -> int:
        """Find the axis that an image has more than a tensor; 0 where it is no such image."""
        less, more = (self.tensors[i].signature for i in (without, image))
        for axis in (expected,) if expected else (1, 2):
            if len(more) == IMAGE and more[axis] == 1 and (*more[:axis], *more[axis + 1 :]) == tuple(less):
                return axis
        return 0

    def _fits(self, chain: _Chain) -> bool:
        """Tell whether whole windows, one by one, slide over blocks that are put together as they were taken apart."""
        options = options_of(chain.convolution)
        steps = (options.stride_h, options.stride_w, options.dilation_h_factor, options.dilation_w_factor)
        if options.padding != Padding.VALID or steps != (1, 1, 1, 1):
            return False
        behind = (chain.convolution, chain.dropping)
        if any(self.flow.sole_reader(each.outputs[0]) is None for each in behind if each is not None):
            return False
        ends = self.tensors[chain.space.inputs[0]], self.tensors[chain.batch.outputs[0]]
        rank = IMAGE - bool(chain.axis)
        if any(len(tensor.shape) != rank for tensor in ends):
            return False
        places = chain.between.index(chain.convolution.outputs[0])
        before = [self.tensors[i] for i in (chain.space.inputs[0], *chain.between[:places])]
        after = [self.tensors[i] for i in (*chain.between[places:], chain.batch.outputs[0])]
        return _mean_the_same(before) and _mean_the_same(after)

    def _border(self, chain: _Chain) -> Border | None:
        """Find what is added to each axis between the batch and the channels, if it is the same for all extents."""
        try:
            block, other = (self.sums.numbers(operator, 1) for operator in (chain.space, chain.batch))
        except ValueError:
            return None
        pads, crops = self.sums.of(chain.space.inputs[MARGINS]), self.sums.of(chain.batch.inputs[MARGINS])
        count = len(block)
        if block != other or not 1 <= count <= IMAGE - 2 - bool(chain.axis) or min(block) < 1:
            return None
        if pads is None or crops is None or not pads.shape == crops.shape == (count, 2):
            return None
        margins = [pad.plus(crop, -1) for pad, crop in zip(pads.reshape(-1), crops.reshape(-1), strict=True)]
        if any(each.terms or each.number < 0 for each in margins):
            return None
        pairs = [(margins[2 * i].number, margins[2 * i + 1].number) for i in range(count)]
        return (*pairs, *[(0, 0)] * (IMAGE - 2 - bool(chain.axis) - count))

    def _joined(self, chain: _Chain, border: Border) -> list[Operator]:
        """Write the operators in place of the last of a chain; the others go, unless somebody else reads them."""
        x, border = self._unpadded(chain, border)
        block = self.sums.numbers(chain.space, 1)
        dilations = [*block, *[1] * (IMAGE - 2 - bool(chain.axis) - len(block))]
        new_operators: list[Operator] = []
        if chain.inserting is not None:
            dilations.insert(chain.axis - 1, 1)
            border = (*border[: chain.axis - 1], (0, 0), *border[chain.axis - 1 :])
            new_operators.append(
                self._new_operator(chain.inserting, "EXPAND_DIMS", x, self._inserted_at(x, chain.axis), [chain.axis])
            )
            x = new_operators[-1].outputs[0]
        if any(map(any, border)):
            pads = [(0, 0), *border, (0, 0)]
            inner = self.tensors[x]
            signature, shape = (
                tuple(dim if dim < 0 else dim + sum(pair) for dim, pair in zip(dims, pads, strict=True))
                for dims in (inner.signature, inner.shape)
            )
            grown = replace(inner, shape=shape, signature=signature, data=None, is_variable=False)
            new_operators.append(self._new_operator(chain.space, "PAD", x, grown, pads))
            x = new_operators[-1].outputs[0]
        convolution, result = chain.convolution, chain.batch.outputs[0]
        options = options_of(convolution)
        steps = {"dilation_h_factor": dilations[0], "dilation_w_factor": dilations[1]}
        y = result if chain.dropping is None else self._added(self._inserted_at(result, chain.axis), "convolved")
        new_operators.append(
            convolution._replace(
                inputs=(x, *convolution.inputs[1:]),
                outputs=(y,),
                options=Table(options.kind, options.byte, {**options.fields, **steps}),
            )
        )
        if chain.dropping is not None:
            squeezed = Table("SqueezeOptions", 0, {"squeeze_dims": np.array([chain.axis], np.int32)})
            new_operators.append(
                chain.dropping._replace(name="SQUEEZE", inputs=(y,), outputs=(result,), options=squeezed, version=1)
            )
        others = (chain.space, chain.inserting, convolution, chain.dropping)
        self.gone |= {operator.place for operator in others if operator is not None}
        return new_operators

    def _unpadded(self, chain: _Chain, border: Border) -> tuple[int, Border]:
        """Return what the chain reads, and its border; with that of a PAD before it, which then goes."""
        x, pad = chain.space.inputs[0], self._before(chain.space)
        if pad is None or pad.name != "PAD" or len(pad.inputs) < 2 or min(pad.inputs) < 0:
            return x, border
        pads, inner = self.sums.of(pad.inputs[1]), self.tensors[pad.inputs[0]]
        rank = len(border) + 2
        if pads is None or pads.shape != (rank, 2) or any(each.terms for each in pads.reshape(-1)):
            return x, border
        outer, *added, last = [(int(a.number), int(b.number)) for a, b in pads]
        if any((*outer, *last)) or min(map(min, added)) < 0 or not _mean_the_same([inner, self.tensors[x]]):
            return x, border
        self.gone.add(pad.place)
        return inner.index, tuple((a + c, b + d) for (a, b), (c, d) in zip(border, added, strict=True))

    def _new_operator(
        self, operator: Operator, name: str, x: int, result: Tensor, numbers: Sequence[object]
    ) -> Operator:
        """Make an operator of a tensor and a constant, in the place of another."""
        elements = np.array(numbers, np.int32)
        constant = replace(
            result,
            type=TensorType.INT32,
            shape=elements.shape,
            signature=elements.shape,
            data=elements.reshape(-1).view(np.uint8),
            quantization=None,
        )
        inputs = (x, self._added(constant, f"{name.lower()}_by"))
        outputs = (self._added(result, name.lower()),)
        return operator._replace(name=name, version=1, inputs=inputs, outputs=outputs, options=None)

    def _added(self, tensor: Tensor, suffix: str) -> int:
        """Add a tensor of a shape of its own: it is in nobody's place."""
        index = super().add(tensor, suffix)
        self.tensors[index] = replace(self.tensors[index], beside=-1)
        return index

    def _inserted_at(self, index: int, axis: int) -> Tensor:
        """Return a tensor with one more axis, of extent 1."""
        tensor = self.tensors[index]
        shape, signature = ((*dims[:axis], 1, *dims[axis:]) for dims in (tensor.shape, tensor.signature))
        return replace(tensor, shape=shape, signature=signature, data=None, is_variable=False)


def _mean_the_same(tensors: Sequence[Tensor]) -> bool:
    """Tell whether tensors are of one type, and the same integer is the same number in all."""
    first, *others = tensors
    one = first.quantization
    return all(
        other.type == first.type
        and (one is None) == (other.quantization is None)
        and (one is None or (not one.per_channel and one.equals(other.quantization)))
        for other in others
    )
