"""The chart of a plan before somebody looks at it: what of the graph has to be noted before the plan is applied."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from relayout.graph.source_names import known_as
from relayout.infer.graph_sites import Sites
from relayout.infer.plans import Plan
from relayout.reports.layouts import Axes

if TYPE_CHECKING:
    from relayout.reports.chart import Chart


# Colours of layouts: a layout that has a name has the same colour wherever a graph is drawn.

OWN = {"NHWC": 0, "NCHW": 1, "NWC": 2, "NCW": 3, "NDHWC": 4, "NCDHW": 5}
"""The colours that belong to a layout of images."""
COUNT = 7  # colours for layouts; one more is for all layouts beyond them


def colour_numbers(layouts: Iterable[str]) -> dict[str, int]:
    """Return the number of each layout's colour, from 0 to `COUNT`; the last is shared by those that are left.

    1. A layout of images has its own colour.
    2. Any other layout gets one that no layout here has, the first layouts first.

    >>> colour_numbers(["NCHW", "n b", "NHWC", "n (h w) c"])
    {'NCHW': 1, 'n b': 6, 'NHWC': 0, 'n (h w) c': 5}
    """
    distinct = list(dict.fromkeys(layouts))
    used_numbers = {OWN[layout] for layout in distinct if layout in OWN}
    free = [number for number in reversed(range(COUNT)) if number not in used_numbers]
    others = (layout for layout in distinct if layout not in OWN)
    numbers = OWN | {layout: free[place] if place < len(free) else COUNT for place, layout in enumerate(others)}
    return {layout: numbers[layout] for layout in distinct}


class Drawing:
    """The chart of a plan, drawn when it is first looked at.

    What the graph says is noted before the plan is applied to it.
    """

    def __init__(
        self,
        plan: Plan | None = None,  # the plan; None: there is nothing to see
        axes: Axes | None = None,  # names of axes
        # what tells for each crossing why it remains; None: nothing is said of it
        reasons: Callable[[], Sequence[str]] | None = None,
    ) -> None:
        self._source = None if plan is None or axes is None else Source(plan.sites)
        self._plan, self._axes, self._reasons = plan, axes, reasons

    @cached_property
    def chart(self) -> Chart:
        """Operators, the layout of every value, Transposes and regions, before and after."""
        from relayout.reports.chart import Chart, Side, drawn

        plan, axes, source, reasons = self._plan, self._axes, self._source, self._reasons
        if plan is None or axes is None or source is None:
            return Chart((), (), Side((), (), ()), Side((), (), ()))
        chart = drawn(plan, source, axes, reasons() if reasons else [""] * len(plan.crossings))
        self._plan = self._axes = self._source = self._reasons = None  # as large as the model
        return chart

    def names(self) -> list[str]:
        """Return the names of the source: of its tensors, and of its operators with their types (`Conv NAME`)."""
        if self._source is not None:
            return [*self._source.names.values(), *self._source.operators()]
        chart = self.chart
        return [*(value.tensor for value in chart.values), *(f"{spot.operator} {spot.name}" for spot in chart.spots)]


class Source:
    """The facts of the graph that the rewrite changes: names, and the operand of each view."""

    def __init__(self, sites: Sites) -> None:
        moving = {move.name for move in sites.moves}
        self.names = {root: known_as(root.value) for root in sites.roots}
        self.behind = {node.outputs[0]: node.inputs[0] for node in sites.seen_through}
        self.moving = {value for value in self.behind if value.name in moving}
        self._sites = sites.sites

    def operators(self) -> list[str]:
        """Return the operators and the ends of the interface, each by its type and its name."""
        return [site.name for site in self._sites]
