"""What backends have: operators, layouts, element types, limits, prices; and what is asked of a graph for them."""

from relayout.targets.blocks import Blocks
from relayout.targets.conditions import Condition
from relayout.targets.expansions import Expansion
from relayout.targets.fusions import Fusion
from relayout.targets.registry import target, targets
from relayout.targets.stamps import note, pass_on, refuse_elsewhere, refuse_others, stamp
from relayout.targets.target import FLOAT, INT8, Kernel, Target
from relayout.targets.units import Unit
from relayout.targets.wishes import LayoutFor, Wishes
from relayout.targets.wishfile import read_wishes

__all__ = [
    "FLOAT",
    "INT8",
    "Blocks",
    "Condition",
    "Expansion",
    "Fusion",
    "Kernel",
    "LayoutFor",
    "Target",
    "Unit",
    "Wishes",
    "note",
    "pass_on",
    "read_wishes",
    "refuse_elsewhere",
    "refuse_others",
    "stamp",
    "target",
    "targets",
]
