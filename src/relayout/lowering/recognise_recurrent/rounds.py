"""What the rounds of a WHILE count, pick, and write: read from its condition and its body, before a node is written.

See `rows`, which writes a Scan of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from functools import cached_property

import numpy as np
import onnx_ir as ir

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import MAX_RANK, Operator, Subgraph, Tensor
from relayout.formats.tflite.importing.builder import Dim, dims
from relayout.formats.tflite.importing.contents import element
from relayout.formats.tflite.importing.emission import options_of
from relayout.formats.tflite.importing.flow import Flow
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.tensors import array
from relayout.light_dataclass import dataclass

NOW, NEXT = "now", "next"
"""A counter in this round, and in the next one."""

SET_ITEM, GET_ITEM = (f"CUSTOM FlexTensorList{name}Item" for name in ("Set", "Get"))
"""How TensorFlow writes and reads a row of a list (see `lists`)."""

_INDICES = (TensorType.INT32, TensorType.INT64)


@dataclass
class Rounds:
    """What the rounds of a loop do. Positions are those of the operands."""

    op: Operation
    test: Subgraph
    body: Subgraph
    given: Sequence[ir.Value]
    flow: Flow = field(init=False)

    def __post_init__(self) -> None:
        self.flow = Flow(self.body)

    @cached_property
    def is_plain(self) -> bool:
        """Whether no result is another operand, which the runtime would copy in an order of its own."""
        operands = set(self.body.inputs)
        return all(a == b or b not in operands for a, b in zip(self.body.inputs, self.body.outputs, strict=True))

    @cached_property
    def counters(self) -> dict[int, int]:
        """Position of each counter -> the tensor of its next value."""
        found = {}
        for position, (now, after) in enumerate(zip(self.body.inputs, self.body.outputs, strict=True)):
            maker = self.flow.producer(after)
            if maker is None or maker.name != "ADD" or len(maker.inputs) != 2 or self._is_fused(maker):
                continue
            other = [i for i in maker.inputs if i != now]
            starts = self.op.is_constant(position) and self.op.input(position).type in _INDICES
            if len(other) == 1 and _number(self.body.tensors[other[0]]) == 1 and starts:
                start = self.op.constant(position)
                if start.size == 1 and not start.any():
                    found[position] = after
        return found

    @cached_property
    def count(self) -> Dim:
        """How many rounds there are: a number, or an extent that is known when it runs; None if that is not known."""
        flow = Flow(self.test)
        limits: list[Dim] = []
        waiting = [*self.test.outputs]
        while waiting:
            maker = flow.producer(waiting.pop())
            if maker is None or len(maker.inputs) != 2 or len(limits) > len(self.test.operators):
                return None
            if maker.name == "LOGICAL_AND":
                waiting += maker.inputs
                continue
            counter, limit = maker.inputs
            counts = counter in self.test.inputs and self.test.inputs.index(counter) in self.counters
            if maker.name != "LESS" or not counts:
                return None
            limits.append(self._limit(limit))
        numbers = [limit for limit in limits if isinstance(limit, int)]
        if len(numbers) == len(limits):
            return max(min(numbers, default=0), 0)
        return limits[0] if len(set(limits)) == 1 else None

    def _limit(self, index: int) -> Dim:
        """What is known of a number that the condition compares with: a constant, or an operand no round changes."""
        if index in self.test.inputs:
            position = self.test.inputs.index(index)
            return element(self.given[position]) if self.body.inputs[position] == self.body.outputs[position] else None
        return _number(self.test.tensors[index]) if index >= 0 else None

    @cached_property
    def picked(self) -> dict[int, int]:
        """Tensor of a row that a round picks -> the position of what it is a row of."""
        found = {}
        for operator in self.body.operators:
            if len(operator.inputs) < 2 or not _picks_a_row(operator):
                continue
            whole, index = operator.inputs[:2]
            if self._meaning(index) == [NOW] and self._is_untouched(whole):
                position, tensors = self.body.inputs.index(whole), self.body.tensors
                alike = tensors[whole].quantization is None and tensors[operator.outputs[0]].quantization is None
                if alike and not tensors[index].shape and dims(self.given[position])[:1] == (self.count,):
                    found[operator.outputs[0]] = position
        return found

    @cached_property
    def written(self) -> dict[int, int]:
        """Position of a list -> the tensor of the row that a round writes, `1 ...`, or `...` into a list of tensors."""
        found = {}
        for position, (now, after) in enumerate(zip(self.body.inputs, self.body.outputs, strict=True)):
            row = self._row(now, after)
            if row is not None and dims(self.given[position])[:1] == (self.count,):
                found[position] = row
        return found

    def _row(self, whole: int, after: int) -> int | None:
        """What is written into a list at the place of a counter, if nothing else reads that list."""
        maker = self.flow.producer(after)
        if maker is None or self.flow.readers(after) or self.body.outputs.count(after) != 1:
            return None
        writers = {
            SET_ITEM: self._row_of_item,
            "DYNAMIC_UPDATE_SLICE": self._row_of_update,
            "CONCATENATION": self._row_between,
        }
        if maker.name not in writers or len(maker.inputs) != 3:
            return None
        return writers[maker.name](maker, whole)

    def _row_of_item(self, maker: Operator, whole: int) -> int | None:
        items, place, row = maker.inputs
        alone = list(self.flow.readers(whole)) == [maker]
        return row if alone and items == whole and self._meaning(place) == [NOW] else None

    def _row_of_update(self, maker: Operator, whole: int) -> int | None:
        updated, row, begin = maker.inputs
        if list(self.flow.readers(whole)) != [maker] or updated != whole:
            return None
        place = self._meaning(begin)
        return row if place is not None and place[0] == NOW and not any(place[1:]) else None

    def _row_between(self, maker: Operator, whole: int) -> int | None:
        """The row between the slices of a list that come before and behind it."""
        if self._is_fused(maker) or options_of(maker).axis != 0:
            return None
        before, row, behind = maker.inputs
        parts, readers = [self.flow.producer(before), self.flow.producer(behind)], self.flow.readers(whole)
        if len(readers) != 2 or not all(any(part is reader for reader in readers) for part in parts):
            return None
        bounds = [self._bounds(part, whole) for part in parts]
        ends = [(bound[0][0], bound[1][0]) if bound else None for bound in bounds]
        fits = ends == [(0, NOW), (NEXT, -1)] and parts[0] is not parts[1]
        return row if fits and all(self.flow.sole_reader(i) is maker for i in (before, behind)) else None

    def _bounds(self, part: Operator | None, whole: int) -> tuple[list[int | str], list[int | str]] | None:
        """Begin and size of a SLICE that takes all of every axis but the first."""
        if part is None or part.name != "SLICE" or len(part.inputs) != 3 or part.inputs[0] != whole:
            return None
        begin, size = (self._meaning(i) for i in part.inputs[1:])
        extents = self.body.tensors[whole].shape
        if not begin or not size or not len(begin) == len(size) == len(extents):
            return None
        takes_all = all(b == 0 and s in (-1, e) for b, s, e in zip(begin[1:], size[1:], extents[1:], strict=True))
        return (begin, size) if takes_all else None

    def _meaning(self, index: int, depth: int = 4) -> list[int | str] | None:
        """The elements of a short tensor of integers, as far as they are numbers or a counter."""
        tensor, maker = self.body.tensors[index], self.flow.producer(index)
        counting = {self.body.inputs[p]: NOW for p in self.counters} | dict.fromkeys(self.counters.values(), NEXT)
        if index in counting:
            return [counting[index]]
        if tensor.data is not None and tensor.type in _INDICES and tensor.sparsity is None:
            return [int(v) for v in array(tensor).reshape(-1)[:9]]
        if maker is None or depth == 0:
            return None
        if maker.name == "RESHAPE":
            return self._meaning(maker.inputs[0], depth - 1)
        if maker.name not in ("CONCATENATION", "PACK") or len(maker.inputs) > MAX_RANK:
            return None
        parts = [self._meaning(i, depth - 1) for i in maker.inputs]
        known = [part for part in parts if part is not None]
        return [v for part in known for v in part] if len(known) == len(parts) and len(tensor.shape) == 1 else None

    def _is_untouched(self, index: int) -> bool:
        """Whether a tensor is an operand that is the same in every round."""
        body = self.body
        return index in body.inputs and body.outputs[body.inputs.index(index)] == index

    def _is_fused(self, operator: Operator) -> bool:
        return bool(options_of(operator).fused_activation_function)


def _picks_a_row(operator: Operator) -> bool:
    if operator.name == GET_ITEM:
        return True
    options = options_of(operator) if operator.name == "GATHER" else None
    return options is not None and (options.axis, options.batch_dims) == (0, 0)


def _number(tensor: Tensor) -> int | None:
    """The one integer of a constant."""
    known = tensor.data is not None and tensor.type in _INDICES and tensor.sparsity is None
    values = array(tensor).reshape(-1) if known else np.empty(0)
    return int(values[0]) if values.size == 1 else None
