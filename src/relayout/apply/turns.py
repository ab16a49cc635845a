"""Which orders of a value with open extents are made before others: those of which the source makes them.

The source's Transpose moves nothing in some runs where one from another order does.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from relayout.infer import Crossing, Form, Order, Root, order_of


class Turns:
    """What has been asked for so far, of the orders that a plan has besides those of producers.

    Args:
        crossings: the plan's.
    """

    def __init__(self, crossings: Iterable[Crossing] = ()) -> None:
        self.wanted = {(crossing.root, crossing.order) for crossing in crossings}
        self.asked: set[tuple[Root, Order]] = set()

    def before(
        self, root: Root, form: Form, own: Sequence[tuple[Form, Form]], there: Container[tuple[Root, Order]]
    ) -> list[Form]:
        """Return the forms to make before another one, which is asked for now.

        Args:
            root: the value.
            form: the one that is asked for.
            own: the forms before and behind each Transpose of the value that the source has.
            there: the orders that there are.
        """
        if all(extent.is_static for extent in root.extents):
            return []
        self.asked.add((root, order_of(form)))
        forms = [read for read, given in own if order_of(given) == order_of(form)]
        keys = [(root, order_of(read)) for read in forms]
        if any(key in there for key in keys):
            return []
        return [read for read, key in zip(forms, keys, strict=True) if key in self.wanted and key not in self.asked]
