"""Which extents a file states only because it has to: those that depend on data.

Where an extent is computed from data, a converter writes what it saw last, often without a sign of it. Three facts are
followed through a subgraph, operator by operator: which tensors' elements depend on data at all (those of a shape do
not), which operands decide an extent, and whose extents are open for either reason.
"""

from __future__ import annotations

from collections.abc import Callable

from relayout.formats.tflite.container.model import Operator, Subgraph

_SEGMENTS = ("UNSORTED_SEGMENT_MAX", "UNSORTED_SEGMENT_MIN", "UNSORTED_SEGMENT_PROD", "UNSORTED_SEGMENT_SUM")

_SIZING: dict[str, tuple[int, ...]] = {
    "BROADCAST_TO": (1,),
    "CONV_3D_TRANSPOSE": (0,),
    "EMBEDDING_LOOKUP_SPARSE": (2,),
    "FILL": (0,),
    "MIRROR_PAD": (1,),
    "NON_MAX_SUPPRESSION_V4": (2,),
    "NON_MAX_SUPPRESSION_V5": (2,),
    "ONE_HOT": (1,),
    "PAD": (1,),
    "PADV2": (1,),
    "RANGE": (0, 1, 2),
    "RESHAPE": (1,),
    "RESIZE_BILINEAR": (1,),
    "RESIZE_NEAREST_NEIGHBOR": (1,),
    "SCATTER_ND": (2,),
    "SLICE": (1, 2),
    "SPARSE_TO_DENSE": (1,),
    "SPLIT_V": (1,),
    "STRIDED_SLICE": (1, 2, 3),
    "TILE": (1,),
    "TOPK_V2": (1,),
    "TRANSPOSE_CONV": (0,),
    **dict.fromkeys(_SEGMENTS, (2,)),
}
"""Operator -> the operands whose elements decide the extents of its results."""

_OF_SHAPES = ("RANK", "SHAPE")
"""Operators whose results depend on shapes alone."""


class Placeholders:
    """The tensors of a subgraph whose declared extents are no claim.

    Args:
        subgraph: whose inputs are data.
        is_open: whether a tensor has a dimension with a name.
    """

    def __init__(self, subgraph: Subgraph, is_open: Callable[[int], bool]) -> None:
        self._is_open = is_open
        self._data = set(subgraph.inputs) | {t.index for t in subgraph.tensors if t.is_variable}
        self._open: set[int] = set()

    def __contains__(self, index: int) -> bool:
        return index in self._open

    def follow(self, operator: Operator) -> None:
        """Take an operator's results into account."""
        given = [index for index in operator.inputs if index >= 0]
        sizing = [operator.inputs[p] for p in _SIZING.get(operator.name, ()) if p < len(operator.inputs)]
        if any(i in self._open or self._is_open(i) for i in given) or any(i in self._data for i in sizing):
            self._open.update(operator.outputs)
        if operator.name not in _OF_SHAPES and any(i in self._data for i in given):
            self._data.update(operator.outputs)
