"""The chart of a plan before somebody looks at it: what of the graph has to be noted before the plan is applied."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from relayout.graph.source_names import known_as
from relayout.infer import Plan, Sites
from relayout.reports.axes import Axes

if TYPE_CHECKING:
    from relayout.reports.chart import Chart


class Drawing:
    """The chart of a plan, drawn when it is first looked at.

    What the graph says is noted before the plan is applied to it.

    Args:
        plan: the plan; None: there is nothing to see.
        axes: names of axes.
        reasons: what tells for each crossing why it remains; None: nothing is said of it.
    """

    def __init__(
        self, plan: Plan | None = None, axes: Axes | None = None, reasons: Callable[[], Sequence[str]] | None = None
    ) -> None:
        self._chart: Chart | None = None
        self._draw: Callable[[], Chart] = _nothing
        if plan is not None and axes is not None:
            self._draw = partial(_drawn, plan, Source(plan.sites), axes, reasons)

    @property
    def chart(self) -> Chart:
        """Operators, the layout of every value, Transposes and regions, before and after."""
        if self._chart is None:
            self._chart, self._draw = self._draw(), _nothing
        return self._chart


def _nothing() -> Chart:
    from relayout.reports.chart import Chart, Side

    return Chart((), (), Side((), (), ()), Side((), (), ()))


def _drawn(plan: Plan, source: Source, axes: Axes, reasons: Callable[[], Sequence[str]] | None) -> Chart:
    from relayout.reports.chart import drawn

    return drawn(plan, source, axes, reasons() if reasons else [""] * len(plan.crossings))


class Source:
    """What the graph says that the rewrite changes: names, and what the views are views of."""

    def __init__(self, sites: Sites) -> None:
        moving = {move.name for move in sites.moves}
        self.names = {root: known_as(root.value) for root in sites.roots}
        self.behind = {node.outputs[0]: node.inputs[0] for node in sites.seen_through}
        self.moving = {value for value in self.behind if value.name in moving}
