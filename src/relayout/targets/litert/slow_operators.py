"""Operators that LiteRT runs itself and slowly, or XNNPACK in a slow way, are others in the file: the same numbers."""

from collections import Counter
from collections.abc import Callable, Mapping

import onnx_ir as ir

from relayout.targets.litert.insertion import Insertion
from relayout.targets.litert.large_windows import split_large_window
from relayout.targets.litert.local_response import write_local_response
from relayout.targets.litert.mirrored_borders import gather_mirrored_border
from relayout.targets.litert.strided_slices import split_strided_slice

REWRITES: Mapping[str, Callable[[Insertion], bool]] = {
    "Conv": split_large_window,
    "LRN": write_local_response,
    "Pad": gather_mirrored_border,
    "Slice": split_strided_slice,
}
"""Operator -> what writes its slow forms as other operators, in place."""
LINE = "written as operators that take less time in LiteRT"
"""The words of a report before their names."""


def rewrite_slow_operators(graph: ir.Graph) -> Counter[str]:
    """Rewrite operators in place, and return how many there were of each.

    Args:
        graph: its layouts are chosen.
    """
    nodes = [node for node in graph if node.op_type in REWRITES]
    return Counter(node.op_type for node in nodes if REWRITES[node.op_type](Insertion(graph, node)))
