"""What backends have: operators, layouts, element types, limits, prices; and what is asked of a graph for them."""

from relayout.apply.blocks import BlockSizes
from relayout.lowering.conditions import Condition
from relayout.lowering.decomposition_rows import Expansion
from relayout.lowering.fusion_rows import Fusion
from relayout.lowering.unit_rows import Unit
from relayout.targets.layout_request_file import read_wishes
from relayout.targets.layout_requests import LayoutFor, Wishes
from relayout.targets.onnxruntime.cpu_guard import note, pass_on, refuse_elsewhere, refuse_others, stamp_cpu
from relayout.targets.onnxruntime.hint import hint
from relayout.targets.registry import target, targets
from relayout.targets.target import FLOAT, INT8, Kernel, Target

__all__ = [
    "FLOAT",
    "INT8",
    "BlockSizes",
    "Condition",
    "Expansion",
    "Fusion",
    "Kernel",
    "LayoutFor",
    "Target",
    "Unit",
    "Wishes",
    "hint",
    "note",
    "pass_on",
    "read_wishes",
    "refuse_elsewhere",
    "refuse_others",
    "stamp_cpu",
    "target",
    "targets",
]
