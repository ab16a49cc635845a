"""Model and request -> plan: the one place where the problem is built, solved and held to the no-regression rule."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import onnx_ir as ir

from relayout.apply.duplicate_dequantize import Shared, duplicate, is_divided_view, merge
from relayout.graph.facts import facts_of
from relayout.graph.quantized_unit import is_reshape
from relayout.infer import plan_file
from relayout.infer.build import build
from relayout.infer.graph_sites import Sites
from relayout.infer.plans import Plan, plan
from relayout.pipeline.dimensions import inferred_extents
from relayout.pipeline.names import IMAGE_LAYOUTS, image_pins
from relayout.pipeline.request import Request
from relayout.progress import say
from relayout.reports.layouts import Axes
from relayout.reports.report import Report, at_any_extent, no_worse, report

if TYPE_CHECKING:
    from relayout.infer.plans import Relaxed


class Planned(NamedTuple):
    """A plan for a model, with what its report and its check need."""

    request: Request  # what was asked for; `--io NCHW` has become pins
    plan: Plan  # the choice, which the no-regression rule accepts
    fewest: Plan  # the plan that moves the fewest bytes
    static: Plan  # the plan that the rule accepts where open extents are as likely as they are priced
    axes: Axes  # the names of the graph's axes
    notes: tuple[str, ...]  # sentences for the report
    duplicates: Shared  # DequantizeLinears that were given one copy for each consumer, until `merge_duplicates`

    @property
    def sites(self) -> Sites:
        """The problem's graph."""
        return self.plan.sites

    @property
    def saves_nothing(self) -> bool:
        """True if the source has the plan's Transposes already, and each of them moves data."""
        counts = len(self.plan.crossings), self.plan.size
        return not self.sites.idle and counts == (self.plan.source_count, self.plan.source_size)

    def merge_duplicates(self) -> None:
        """Make one DequantizeLinear again of those that still read the same, in place."""
        merge(self.duplicates)

    def report(self) -> Report:
        """Return the report of the plan, before it is applied."""
        desired = self.request.layout.desired
        described = report(self.plan, self.axes, relaxed=_what_if(self.plan) if self.request.solver.what_if else [])
        described = replace(described, at=dict(self.request.solver.at))
        if self.static is not self.fewest:
            described = no_worse(described, self.plan, self.fewest)
        if self.plan is not self.static:
            described = at_any_extent(described, self.plan, self.static)
        unmet = desired.unmet(
            (site.node, site.reason) for site in self.sites.sites if site.kind == "node" and site.node
        )
        return replace(described, notes=(*described.notes, *self.notes, *desired.notes(), *unmet))

    def serializer(self) -> Callable[[], dict[str, Any]]:
        """Return a function that gives the plan file. Names are captured now, since `apply` renames values."""
        options = self.request.to_json(self.sites.per_transpose, self.sites.per_scattered)
        return plan_file.later(self.plan, options)


def planned(model: ir.Model, request: Request, *, no_regression: bool = False) -> Planned:
    """Choose the layout of every value of a model that was read and lowered.

    Args:
        model: the model. Its shared DequantizeLinears are duplicated in place: `Planned.merge_duplicates`.
        request: what is asked for.
        no_regression: hold the plan to the source: no more bytes, Transposes and strided copies than it has.
    """
    say("planning")
    duplicates = own_dequantizers(model, request)
    sites = sites_of(model, request)
    if request.solver.at:
        from relayout.formats.onnx.fixing import check_at

        check_at(model, request.solver.at, sites.declared)
    notes: tuple[str, ...] = ()
    io = request.layout.io
    is_nhwc = facts_of(model).is_tflite
    if io in IMAGE_LAYOUTS:
        images = image_pins(sites, Axes(sites, is_nhwc), io)
        notes = () if images else (f"--io {io}: no input or output is an image, so all stay as they are",)
        pins = {**images, **request.layout.layouts}
        request = replace(request, layout=replace(request.layout, io="keep", layouts=pins))
        sites = sites_of(model, request)
    limit = request.solver.time_limit
    accepted = static = fewest = plan(sites, time_limit=limit)
    if no_regression:
        from relayout.infer.at_run_time import no_more_at_run_time
        from relayout.infer.no_regression import no_worse_plan

        static = no_worse_plan(sites, fewest, time_limit=limit)
        accepted = no_more_at_run_time(sites, static, time_limit=limit)
    return Planned(request, accepted, fewest, static, Axes(sites, is_nhwc), notes, duplicates)


def _what_if(plan: Plan) -> "list[Relaxed]":
    from relayout.infer.plans import what_if

    return what_if(plan)


def own_dequantizers(model: ir.Model, request: Request) -> Shared:
    """Give each reader of what is dequantized a DequantizeLinear and views of its own, in place.

    A Reshape that computes, since its shapes have no factors in common, or others than those of another Reshape, stays
    one: what each of two made would be transposed by itself. So do views where a target wants integers to keep one
    reader: each copy would be one more.
    """
    if request.target is not None and request.target.single_consumers is not None:
        return duplicate(model)
    shared = duplicate(model, is_divided_view)
    own = {node: group[0] for group in shared if is_reshape(group[0]) for node in group}
    # Whether others split its axes otherwise, so that it computes, is known of all of them together.
    computed = {own[site.node] for site in sites_of(model, request).sites if site.node in own} if own else set()
    if not computed:
        return shared
    merge(shared)
    return duplicate(model, lambda node: node not in computed and is_divided_view(node))


def _most_axes(request: Request) -> int:
    """Return how many axes one Transpose of a result moves at most; 0: any number."""
    if request.format != "tflite":
        return 0
    from relayout.formats.tflite.exporting.file_order import LARGEST_RANK

    return LARGEST_RANK


def sites_of(model: ir.Model, request: Request) -> Sites:
    """Return the problem's graph: of a model whose DequantizeLinears are duplicated, by a request."""
    desired = request.layout.desired
    return build(
        model,
        keep_interface=request.layout.io == "keep",
        layouts=request.layout.layouts,
        choose=desired if desired else None,
        per_transpose=request.per_transpose,
        per_scattered=request.per_scattered,
        most_axes=_most_axes(request),
        exchange=request.solver.exchange,
        at=inferred_extents(model, request.solver.at) if request.solver.at else None,
    )
