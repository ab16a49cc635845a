"""Which Transpose brings a value from one form into another: between Reshapes, with as few of these as there can be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.infer.graph_sites import Sites
from relayout.infer.open_extents import nearest_order, orders_before
from relayout.infer.plans import Crossing
from relayout.infer.sites import Form, Order, Root, order_of
from relayout.layout import Extent
from relayout.layout.perm import between

# Orders of a value with open extents that are made before others: the source makes these of them.
#
# The source's Transpose moves nothing in some runs where one from another order does.


class Turns:
    """The orders that a plan has besides those of producers, and which of them have been asked for."""

    def __init__(self, crossings: Iterable[Crossing] = ()) -> None:
        self.orders = {(crossing.root, crossing.order) for crossing in crossings}
        self.requests: set[tuple[Root, Order]] = set()

    def before(
        self,
        root: Root,  # the value
        form: Form,  # the one that is asked for
        own: Sequence[tuple[Form, Form]],  # the forms before and behind each Transpose of the value that the source has
        there: Sequence[Form],  # the forms in which the value is stored already
    ) -> list[Form]:
        """Return the forms to make before another one, which is asked for now."""
        if all(extent.is_static for extent in root.extents):
            return []
        self.requests.add((root, order_of(form)))
        forms = {order_of(read): read for read, _ in own}
        ends = [(order_of(read), order_of(result)) for read, result in own]
        before = orders_before(order_of(form), ends, [order_of(each) for each in there])
        return [forms[each] for each in before if (root, each) in self.orders and (root, each) not in self.requests]


# Constants in another order of axes, evaluated when they are written.


class Relaid(ir.LazyTensor):
    """A constant in another order of axes. `strided` is a view of the source with the same bytes in C order."""

    strided: Callable[[], NDArray[Any]]


def relaid(root: Root, form: Form) -> ir.LazyTensor:
    """Return a constant, or an input's default, as it lies in a form."""
    tensor = root.value.const_value
    assert tensor is not None
    factors = order_of(root.logical)
    extents = [root.extents[factor].number for factor in factors]
    shape = tuple(extent.number for extent in root.shape(form))
    perm = between(factors, order_of(form))

    def strided() -> NDArray[Any]:
        return tensor.numpy().reshape(extents).transpose(perm)

    def evaluated() -> ir.TensorProtocol:
        array = np.ascontiguousarray(strided().reshape(shape))
        return ir.Tensor(array, dtype=tensor.dtype, shape=ir.Shape(shape))

    stored_tensor = Relaid(evaluated, tensor.dtype, ir.Shape(shape))
    stored_tensor.strided = strided
    return stored_tensor


# Integers between quantized units that are moved: in a unit of their own, as runtimes look for it.

BYTES = (ir.DataType.INT8, ir.DataType.UINT8)  # types of what runtimes run units of
PARAMETERS = 3  # operands of a QuantizeLinear that says its zero point


def quantizers(sites: Sites) -> dict[Root, ir.Node]:
    """Integers between quantized units, of one scale and zero point -> the QuantizeLinear that gives them."""
    quantizer_of: dict[Root, ir.Node] = {}
    for site in sites.sites:
        if site.signature.with_producer and site.node is not None and len(site.node.inputs) == PARAMETERS:
            root = next(port.view.root for port in site.ports if port.output)
            kinds = {None if value is None else value.dtype for value in site.node.inputs[:2]}
            if root.value.dtype in BYTES and kinds == {ir.DataType.FLOAT} and site.node.inputs[2] is not None:
                quantizer_of[root] = site.node
    for site in sites.sites if quantizer_of else ():
        for port in site.ports:
            if not port.output and not site.signature.with_reader:
                quantizer_of.pop(port.view.root, None)
    return quantizer_of


def transposed(
    source: Form,  # the form in which the value is
    target: Form,  # the one in which it is wanted
    *,
    bounded: bool = False,  # dimensions are not joined, since they are dynamic and could not be split
) -> tuple[Form, Form]:
    """Return the forms before and behind the Transpose that brings a value into another order."""
    if sorted(source) == sorted(target):
        return source, target
    if sorted(filter(None, source)) == sorted(filter(None, target)):
        # Only size-1 dimensions differ: they stay in front while the others are brought into order, if nowhere else.
        leading = (*(dim for dim in source if not dim), *filter(None, target))
        far_forms = [leading, *_ordered(source, target)]
        return source, next((far for far in far_forms if _moves_one(source, far)), leading)
    coarse = _common(source, target, bounded=bounded)
    before, after = (tuple(coarse[f] for f in order_of(form) if f in coarse) for form in (source, target))
    if bounded:
        return before, after
    # One Reshape is enough where either form has its dimensions in the other's order, too.
    pairs = [(near, target) for near in _ordered(target, source)] + [(source, far) for far in _ordered(source, target)]
    pairs.append((before, after))
    return next((pair for pair in pairs if _moves_one(*pair)), pairs[0])


def nearest_form(
    forms: Sequence[Form],  # the forms in which the value is stored already, each in another order
    target: Form,  # the wanted form
    extents: Sequence[Extent],  # of each factor
    # the forms before and behind each Transpose of the value that the source has
    own: Sequence[tuple[Form, Form]] = (),
) -> Form:
    """Return the form from which a value is brought into another order: its producer's, the first.

    Where axes are open there may be a nearer one (see `nearest_order`).
    """
    there = {order_of(form): form for form in forms}
    ends = [(order_of(read), order_of(view)) for read, view in own]
    return there[nearest_order(list(there), order_of(target), extents, ends)]


def _ordered(form: Form, other: Form) -> list[Form]:
    """Return the dimensions of a form in the order of another; none where the other parts one of them.

    One of size 1 stays before what is behind it: a product can read `a 1 b c -> 1 b a c` in strides. Those in front of
    all may stay there, too.
    """
    place = {factor: place for place, factor in enumerate(order_of(other))}
    if any([place[factor] - place[dim[0]] for factor in dim] != [*range(len(dim))] for dim in form if dim):
        return []
    groups: list[Form] = []
    ones: Form = ()
    for dim in form:
        ones = (*ones, dim)
        if dim:
            groups.append(ones)
            ones = ()
    front, first = groups[0][:-1], groups[0][-1:]
    ordered_forms = []
    for leading, moving in (((), groups), (front, [first, *groups[1:]])):
        moving = sorted(moving, key=lambda group: place[group[-1][0]])
        ordered_forms.append((*leading, *chain.from_iterable(moving), *ones))
    return ordered_forms


def _moves_one(source: Form, target: Form) -> bool:
    """Tell whether a Transpose from one form to another moves one axis: runtimes copy in blocks then."""
    perm = between(distinct(source), distinct(target))
    others = ([axis for axis in perm if axis != moved] for moved in perm)
    return any(axes == sorted(axes) for axes in others)


def _common(first: Form, second: Form, *, bounded: bool) -> dict[int, tuple[int, ...]]:
    """Return the longest runs of factors that are adjacent, in order, in both stored orders: first factor -> run.

    Runs that are `bounded` end where a dimension of either form does. What is dynamic is not merged: it could not be
    split.
    """
    follows = dict(zip(order_of(second), order_of(second)[1:], strict=False))
    ends = {dim[-1] for dim in (*first, *second) if dim} if bounded else set()
    runs: list[list[int]] = []
    for factor in order_of(first):
        if runs and follows.get(runs[-1][-1]) == factor and runs[-1][-1] not in ends:
            runs[-1].append(factor)
        else:
            runs.append([factor])
    return {run[0]: tuple(run) for run in runs}


def distinct(form: Form) -> tuple[object, ...]:
    """Return the dimensions of a form as distinct items: size-1 dimensions are told apart by number."""
    ones = 0
    items: list[object] = []
    for dim in form:
        items.append(dim or f"one {ones}")
        ones += not dim
    return tuple(items)


def filled_dims(form: Form) -> Form:
    """Return a form without its size-1 axes."""
    return tuple(dim for dim in form if dim)
