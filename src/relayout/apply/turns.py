"""Orders of a value with open extents that are made before others: the source makes these of them.

The source's Transpose moves nothing in some runs where one from another order does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from relayout.infer import Crossing, Form, Order, Root, order_of, orders_before


class Turns:
    """The orders that a plan has besides those of producers, and which of them have been asked for.

    Args:
        crossings: the plan's.
    """

    def __init__(self, crossings: Iterable[Crossing] = ()) -> None:
        self.orders = {(crossing.root, crossing.order) for crossing in crossings}
        self.asked: set[tuple[Root, Order]] = set()

    def before(self, root: Root, form: Form, own: Sequence[tuple[Form, Form]], there: Sequence[Form]) -> list[Form]:
        """Return the forms to make before another one, which is asked for now.

        Args:
            root: the value.
            form: the one that is asked for.
            own: the forms before and behind each Transpose of the value that the source has.
            there: the forms in which the value is stored already.
        """
        if all(extent.is_static for extent in root.extents):
            return []
        self.asked.add((root, order_of(form)))
        forms = {order_of(read): read for read, _ in own}
        ends = [(order_of(read), order_of(result)) for read, result in own]
        before = orders_before(order_of(form), ends, [order_of(each) for each in there])
        return [forms[each] for each in before if (root, each) in self.orders and (root, each) not in self.asked]
