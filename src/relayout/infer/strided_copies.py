"""What kernels take element by element: where no run of elements lies together.

A Transpose copies runs where the innermost axes stay, and blocks where axes that lie together change places with those
behind them; otherwise each element by itself, which takes about ten times as long. An operator that stretches one
operand over another goes from run to run, too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from itertools import product as product_of

from relayout.infer.sites import Label, Order, Root, Site
from relayout.layout import Extent, product
from relayout.layout.perm import between, is_rotation, transposes_of_few_axes
from relayout.solve.problem import ValueEnd

RUN = 8  # the shortest run, in elements, that is worth copying as a whole
SPAN = 32  # the shortest run, in elements, in which an operator may stretch one operand over another without loss


def is_run(extents: Sequence[Extent]) -> bool:
    """Tell whether the innermost axes make a run that is worth copying as a whole; dynamic ones do."""
    whole = product(extents)
    return bool(whole.symbols) or whole.number >= RUN


def is_scattered(root: Root, start: Order, order: Order) -> bool:
    """Tell whether a Transpose from one order to another takes single elements, or runs that are hardly longer."""
    return root.space.of(_is_scattered, (start, order), root, start, order)


def _is_scattered(root: Root, start: Order, order: Order) -> bool:
    perm = between(start, order)
    stay = len(perm)
    while stay and perm[stay - 1] == stay - 1:
        stay -= 1
    if stay == len(perm) and is_rotation(perm):
        return False
    return not is_run([root.extents[leaf] for leaf in start[stay:]])


def scattering(root: Root, ports: Sequence[ValueEnd], orders: Sequence[Order]) -> frozenset[tuple[int, int]]:
    """The pairs of orders, one that is given and one that is wanted, between which a Transpose takes single elements.

    Args:
        root: the value.
        ports: its ends in the problem: the producer, then the readers.
        orders: order number -> order.
    """
    producer, *readers = ports
    pairs = product_of(set(producer.orders), {number for port in readers for number in port.orders})
    return frozenset((start, order) for start, order in pairs if is_scattered(root, orders[start], orders[order]))


def transposes_needed(root: Root, start: Order, order: Order, most: int) -> int:
    """Count the Transposes from one order of a value to another, if one moves `most` axes at most (0: any number)."""
    if start == order or not 0 < most < len(order):
        return int(start != order)
    return root.space.of(_transposes_needed, (start, order, most), root, start, order, most)


def _transposes_needed(root: Root, start: Order, order: Order, most: int) -> int:
    perm = between(start, order)
    if 1 + sum(after != before + 1 for before, after in pairwise(perm)) <= most:
        return 1
    return len(list(transposes_of_few_axes([root.extents[leaf] for leaf in start], perm, most)))


def stretches_elements(site: Site, label: Label) -> bool:
    """Tell whether an operator stretches one computed operand over another in runs that are hardly longer than an
    element.

    Constants do not count: few channels to add to are no reason to transpose an image twice. Nor does an operator whose
    orders have prices: these say it.
    """
    signature = site.signature
    if not signature.broadcast or signature.block or signature.price is not None:
        return False
    computed = tuple([port.position for port in site.ports if not port.output and not port.view.root.constant])
    return len(computed) > 1 and span(site, label, computed) < RUN


def span(
    site: Site,  # an operator that stretches operands
    label: Label,  # the order in which it runs
    among: tuple[int, ...] | None = None,  # positions of the operands that count (default: all)
) -> float:
    """The number of elements that lie together and differ in the same operands; infinite where all are of one kind."""
    reading = among or tuple([port.position for port in site.ports if not port.output])
    return site.pattern.of(_span, (label, reading), site, label, reading)


def _span(site: Site, label: Label, among: tuple[int, ...]) -> float:
    span, kind = 1, None
    for factor in reversed(label.order):
        leaves_by_port = {port: port.factors[factor] for port in site.ports if port.factors.get(factor)}
        extents = [port.view.root.extents[leaf] for port, leaves in leaves_by_port.items() for leaf in leaves]
        if all(extent.is_one for extent in extents):
            continue
        reading = [port.position for port in leaves_by_port if port.position in among]
        if kind is not None and reading != kind:
            return span
        kind = reading
        port, leaves = next(iter(leaves_by_port.items()))
        elements = product(port.view.root.extents[leaf] for leaf in leaves)
        span *= SPAN if elements.symbols else elements.number
    return math.inf
