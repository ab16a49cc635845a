"""The report of a conversion: Transposes and bytes before, after and at least, layouts, and the reason for each."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import onnx_ir as ir

from relayout.infer import Crossing, Form, Plan, Relaxed, Root, Site, placed
from relayout.layout import product
from relayout.layout.perm import between, is_identity

AXES = {3: "n w c", 4: "n h w c", 5: "n d h w c"}
"""The axes of a TensorFlow Lite image tensor by rank, in its own order."""


@dataclass(frozen=True)
class Transposed:
    """A Transpose that remains at run time.

    Args:
        tensor: the value that is transposed.
        shape: its shape before.
        layout: stored order before and after, in einops' notation.
        bytes: what it moves in one inference.
        producer: the operator that gives the value in the first order.
        readers: the operators that want the second.
        reason: which operators must be in which order, so that these bytes must cross.
    """

    tensor: str
    shape: tuple[int | str, ...]
    layout: str
    bytes: int
    producer: str
    readers: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class Interface:
    """An input or output of the result: its layout in einops' notation, `n h w c -> n c h w` where it changed."""

    kind: str
    name: str
    dtype: str
    shape: tuple[int | str, ...]
    layout: str


@dataclass(frozen=True)
class Report:
    """What a conversion did, and what is proved of it.

    Args:
        operators: operator -> how many in the result.
        source_transposes: Transposes of the source graph that move data (a literal import's own included).
        source_bytes: bytes they move in one inference; a dynamic dimension counts as 1.
        transposes: Transposes in the result that move data.
        bytes: bytes they move.
        lower_bound: bytes below which no choice of orders can go.
        proved: the independent checker agreed that `bytes` equals the lower bound.
        remaining: each remaining Transpose with its reason.
        interface: inputs and outputs with their layouts.
        barriers: operators that keep the source's order, with the reason -> how many.
        what_if: operators and ends of the interface that are fixed, with the bytes that each costs alone.
        notes: what else a reader should know (a cap that was reached, a time limit).
        seconds: stage -> wall time.
    """

    operators: dict[str, int]
    source_transposes: int
    source_bytes: int
    transposes: int
    bytes: int
    lower_bound: int
    proved: bool
    remaining: tuple[Transposed, ...]
    interface: tuple[Interface, ...]
    barriers: dict[str, int]
    what_if: tuple[Relaxed, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """What may be said of the result: only what was checked."""
        if self.proved:
            return "proved minimal"
        if self.bytes == self.lower_bound:
            return "minimal according to the solver"
        return f"not proved: at most {self.bytes - self.lower_bound} bytes above the least"

    def to_dict(self) -> dict[str, Any]:
        """For machines: JSON types only."""
        return {**asdict(self), "verdict": self.verdict}


def report(plan: Plan, *, image_axes: bool = False, relaxed: Sequence[Relaxed] = ()) -> Report:
    """The report of a plan, before it is applied.

    Args:
        plan: the plan.
        image_axes: call the axes of tensors of rank 3 to 5 `n h w c` (TensorFlow Lite); else `a b c d`.
        relaxed: what single constraints cost.
    """
    namer, demands = _Axes(image_axes), _Demands(plan)
    remaining = tuple(
        Transposed(
            crossing.root.value.name or "",
            tuple(_dims(crossing.root)),
            namer.orders(crossing),
            crossing.size,
            crossing.producer.name,
            tuple(site.name for site in crossing.readers),
            demands.reason(crossing),
        )
        for crossing in plan.crossings
    )
    notes = []
    if plan.formulation.capped:
        notes.append("some candidate orders were dropped: the bound holds for the orders that were considered")
    if not plan.solution.finished:
        notes.append("the time limit stopped the solver")
    barriers = Counter(site.reason for site in plan.sites.sites if site.reason)
    return Report(
        {},
        plan.source_count,
        plan.source_size,
        len(plan.crossings),
        plan.size,
        plan.bound,
        plan.proved,
        remaining,
        tuple(_interface(plan, namer)),
        dict(sorted(barriers.items())),
        tuple(relaxed),
        tuple(notes),
    )


def operators(model: ir.Model) -> dict[str, int]:
    """Operator -> how many, most frequent first."""
    counts = Counter(f"{node.domain}:{node.op_type}" if node.domain else node.op_type for node in model.graph)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


@dataclass(frozen=True)
class _Axes:
    image: bool

    def letters(self, rank: int) -> list[str]:
        if self.image and rank in AXES:
            return AXES[rank].split()
        return [chr(ord("a") + axis) if rank <= 26 else f"a{axis}" for axis in range(rank)]

    def words(self, root: Root, form: Form | tuple[tuple[int, ...], ...]) -> str:
        """A form in einops' notation: factors of a split axis are numbered, grouped ones stand in brackets."""
        names: dict[int, str] = {}
        for letter, dim in zip(self.letters(len(root.dims)), root.logical, strict=True):
            names.update({index: letter if len(dim) == 1 else f"{letter}{k}" for k, index in enumerate(dim, 1)})
        parts = []
        for dim in form:
            word = " ".join(names[index] for index in dim)
            parts.append(word if len(dim) == 1 else f"({word})" if dim else "1")
        return " ".join(parts)

    def orders(self, crossing: Crossing) -> str:
        root = crossing.root
        target = tuple((index,) for index in crossing.order)
        source = tuple((index,) for index in crossing.given)
        return f"{self.words(root, source)} -> {self.words(root, target)}"


def _dims(root: Root) -> Iterator[int | str]:
    for piece in root.dims:
        yield piece.extent.number if piece.extent.is_static else str(piece.extent)


def _interface(plan: Plan, namer: _Axes) -> Iterator[Interface]:
    for site, label in zip(plan.sites.sites, plan.labels, strict=True):
        if site.kind not in ("input", "output"):
            continue
        (port,) = site.ports
        root = port.view.root
        form = placed(site, label, port).form
        extents = [product(root.factors[index].extent for index in dim) for dim in form]
        value = root.value if site.kind == "input" else plan.sites.graph.outputs[port.slot]
        letters = namer.letters(len(port.view.dims))
        layout = " ".join(letters)
        if form != port.view.form:
            perm = between(_numbered(port.view.form), _numbered(form))
            layout = f"{layout} -> {' '.join(letters[axis] for axis in perm)}" if not is_identity(perm) else layout
        shape = tuple(extent.number if extent.is_static else str(extent) for extent in extents)
        yield Interface(site.kind, value.name or "", str(value.dtype).lower(), shape, layout)


def _numbered(form: Form) -> list[object]:
    ones = iter(range(len(form)))
    return [dim or f"one {next(ones)}" for dim in form]


class _Demands:
    """Which fixed sites meet in a value that is transposed."""

    def __init__(self, plan: Plan) -> None:
        self.sites = plan.sites.sites
        self.index = {id(site): number for number, site in enumerate(self.sites)}
        problem = plan.formulation.problem
        self.fixed = [len(labels) == 1 for labels in problem.costs]
        self.neighbours: dict[int, list[int]] = {}
        for value in problem.values:
            for reader in value.readers:
                self.neighbours.setdefault(value.producer.node, []).append(reader.node)
                self.neighbours.setdefault(reader.node, []).append(value.producer.node)

    def reason(self, crossing: Crossing) -> str:
        """The two demands that meet in this value: the nearest fixed site on either side of it."""
        start = self.index[id(crossing.producer)]
        ends = [self.index[id(site)] for site in crossing.readers]
        above = self.sites[self.nearest([start], set(ends))]
        below = self.sites[self.nearest(ends, {start})]
        return f"{_demanded(above)}; {_demanded(below)}: {crossing.size:,} bytes must cross between them"

    def nearest(self, start: Sequence[int], avoid: set[int]) -> int:
        """The nearest site with one label only, from `start`, not through `avoid`."""
        seen, queue = set(start) | avoid, deque(start)
        while queue:
            site = queue.popleft()
            if self.fixed[site]:
                return site
            for other in self.neighbours.get(site, []):
                if other not in seen:
                    seen.add(other)
                    queue.append(other)
        return start[0]


def _demanded(site: Site) -> str:
    if site.kind == "pin" or (site.kind != "node" and not site.signature.variants):
        return f"{site.name} is stored as asked"
    if site.kind != "node":
        return f"{site.name} keeps its order"
    if site.reason:
        return f"{site.name} keeps the source's order ({site.reason})"
    return f"{site.name} runs in one order only" if site.signature.variants else f"{site.name} needs axes last"
