"""What backends have: operators, layouts, element types, limits, prices; and what is asked of a graph for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from relayout.lazy_exports import loaded_later
from relayout.targets.layout_requests import DesiredLayouts, LayoutFor
from relayout.targets.onnxruntime.cpu_guard import note, pass_on, refuse_elsewhere, refuse_others, stamp_cpu

if TYPE_CHECKING:
    from relayout.apply.blocks import BlockSizes
    from relayout.graph.passes import Pass, Stage
    from relayout.lowering.conditions import Condition
    from relayout.lowering.decomposition_rows import Expansion
    from relayout.lowering.fuse_epilogue import Fusion
    from relayout.lowering.unit_rows import Unit
    from relayout.targets.layout_requests import read_desired_layouts
    from relayout.targets.registry import target, targets
    from relayout.targets.target_table import FLOAT, INT8, Kernel, Target

__all__ = [
    "FLOAT",
    "INT8",
    "BlockSizes",
    "Condition",
    "DesiredLayouts",
    "Expansion",
    "Fusion",
    "Kernel",
    "LayoutFor",
    "Pass",
    "Stage",
    "Target",
    "Unit",
    "note",
    "pass_on",
    "read_desired_layouts",
    "refuse_elsewhere",
    "refuse_others",
    "stamp_cpu",
    "target",
    "targets",
]

__getattr__ = loaded_later(
    __name__,
    {
        "BlockSizes": "relayout.apply.blocks",
        "Condition": "relayout.lowering.conditions",
        "Expansion": "relayout.lowering.decomposition_rows",
        "Fusion": "relayout.lowering.fuse_epilogue",
        "Unit": "relayout.lowering.unit_rows",
        **dict.fromkeys(("Pass", "Stage"), "relayout.graph.passes"),
        "read_desired_layouts": "relayout.targets.layout_requests",
        **dict.fromkeys(("target", "targets"), "relayout.targets.registry"),
        **dict.fromkeys(("FLOAT", "INT8", "Kernel", "Target"), "relayout.targets.target_table"),
    },
)  # a conversion for no target needs no tables
