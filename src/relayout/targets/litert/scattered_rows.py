"""ScatterND along one axis as ScatterElements, which has the axis anywhere: no cache is transposed for it.

ScatterND(x[g *r], i[n 1], u[n *r])    =    ScatterElements<axis=0>(x, Expand(i[n 1 …], [n *r]), u)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relayout.lowering.conditions import Condition
from relayout.lowering.decomposition_rows import Expansion
from relayout.rules import Operator, Step
from relayout.rules.signature import Attribute, Constants

ROWS = Condition("places along the first axis", lambda operator: (operator.shape(1) or ())[1:] == (1,))


def _scattered_rows(operator: Operator, _: Constants) -> Sequence[Step]:
    data, updates = operator.shape(0), operator.shape(2)
    if data is None or updates is None or len(data) < 2 or not all(isinstance(dim, int) for dim in updates):
        return ()
    extents = np.array([int(dim) for dim in updates if isinstance(dim, int)], np.int64)
    if tuple(extents[1:]) != tuple(data[1:]):
        return ()
    reduction = operator.string("reduction", "none")
    attributes: dict[str, Attribute] = {"axis": 0, **({} if reduction == "none" else {"reduction": reduction})}
    return (
        Step("Reshape", (1, np.array([extents[0], *[1] * (len(data) - 1)], np.int64)), "rows"),
        Step("Expand", ("rows", extents), "places"),
        Step("ScatterElements", (0, "places", 2), "scattered", attributes),
    )


SCATTERED_ROWS = Expansion("ScatterND", (ROWS,), _scattered_rows)
