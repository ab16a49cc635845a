"""A subgraph while tensors of it are changed, and others added, before any of it is translated."""

from __future__ import annotations

from dataclasses import field, replace

from relayout.formats.tflite.container.model import Subgraph, Tensor
from relayout.light_dataclass import dataclass


@dataclass
class SubgraphRewriting:
    """One subgraph, and what its tensors are to become."""

    subgraph: Subgraph
    tensors: list[Tensor] = field(init=False)

    def __post_init__(self) -> None:
        self.tensors = list(self.subgraph.tensors)

    def add(self, tensor: Tensor, suffix: str) -> int:
        """One more tensor, called as this one and something more; its index."""
        index = len(self.tensors)
        beside = tensor.index if tensor.beside < 0 else tensor.beside
        self.tensors.append(replace(tensor, index=index, name=f"{tensor.name}/{suffix}", beside=beside))
        return index
