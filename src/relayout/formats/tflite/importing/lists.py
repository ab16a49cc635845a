"""Lists of tensors (TensorFlow's TensorList), which the file says nothing of: here each is the tensor of its rows.

Without its lowering of lists, which wants static shapes, TensorFlow's converter leaves to the Flex delegate what layers
write in their rounds (Keras' recurrent layers, `tf.map_fn`, `tf.TensorArray`): tensors of type VARIANT and no shape.
What a list holds is said by the operators that make it, that write rows and that put the rows together:

    SetItem(list, i, item[*e]), Stack(list) -> y[n *e]:  list[n *e]

1. Tensors that may be the same list are found together, through the bodies of loops and branches.
2. Their element type is that of the rows that are written or read, their shape `-1` and what is known of a row's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field, replace

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import MAX_RANK, Model, Operator, Subgraph, Tensor
from relayout.formats.tflite.importing.emission import options_of
from relayout.formats.tflite.importing.tensors import array
from relayout.light_dataclass import dataclass

PREFIX = "CUSTOM FlexTensorList"
EMPTY = "CUSTOM FlexEmptyTensorList"

_Place = tuple[int, int]  # a subgraph, and a tensor of it

_INDICES = (TensorType.INT32, TensorType.INT64)

GIVEN = {"FromTensor": (0, 1), "PushBack": (1, 0), "SetItem": (2, 0)}
"""Operator -> its operand that is a row, or all of them, and how many axes that has before a row's."""

TAKEN = {"Gather": (0, 1), "GetItem": (0, 0), "PopBack": (1, 0), "Stack": (0, 1)}  # the same of results

SHAPES = {"FromTensor": 1, "Gather": 2, "GetItem": 2, "PopBack": 1, "Reserve": 0, "Stack": 1}
"""Operator -> the operand that tells what is known of a row's shape."""


def as_tensors(model: Model) -> Model:
    """Return the model with a type and a shape for every list whose rows have one."""
    lists = _Lists(model)
    subgraphs = []
    for s, subgraph in enumerate(model.subgraphs):
        tensors = tuple(lists.typed((s, t), tensor) for t, tensor in enumerate(subgraph.tensors))
        subgraphs.append(subgraph._replace(tensors=tensors))
    return model._replace(subgraphs=tuple(subgraphs))


@dataclass
class _Told:
    """The types and shapes that operators state of one list."""

    types: set[TensorType] = field(default_factory=set)
    shapes: list[tuple[int, ...]] = field(default_factory=list)

    @property
    def element(self) -> tuple[int, ...] | None:
        """A row's shape, -1 for what is not known, or known otherwise; None where not even the rank is."""
        if len({len(shape) for shape in self.shapes}) != 1:
            return None
        known = [{extent for extent in extents if extent >= 0} for extents in zip(*self.shapes, strict=True)]
        return tuple(each.pop() if len(each) == 1 else -1 for each in known)


class _Lists:
    def __init__(self, model: Model) -> None:
        self.model = model
        self._parents: dict[_Place, _Place] = {}
        self._facts: dict[_Place, _Told] = {}
        for s, subgraph in enumerate(model.subgraphs):
            for operator in subgraph.operators:
                for one, other in self._same(s, operator):
                    self._parents[self._first(one)] = self._first(other)
        for s, subgraph in enumerate(model.subgraphs):
            for operator in subgraph.operators:
                if operator.name.startswith((PREFIX, EMPTY)):
                    self._listen(s, subgraph, operator)

    def typed(self, place: _Place, tensor: Tensor) -> Tensor:
        """Return the tensor as the list that it is."""
        list_facts = self._facts.get(self._first(place)) if tensor.type == TensorType.VARIANT else None
        element = list_facts.element if list_facts is not None and len(list_facts.types) == 1 else None
        if list_facts is None or element is None:
            return tensor
        (kind,) = list_facts.types
        shape = (1, *(max(extent, 1) for extent in element))
        return replace(tensor, type=kind, shape=shape, signature=(-1, *element), listed=True)

    def _same(self, s: int, operator: Operator) -> Iterator[tuple[_Place, _Place]]:
        """Pairs of tensors that are the same list, before or after something was written into it."""
        subgraph = self.model.subgraphs[s]
        mine = [[(s, i) for i in indices] for indices in (operator.inputs, operator.outputs)]
        if operator.name.startswith(PREFIX):
            lists = [[place for place in side if place[1] >= 0 and _is_list(subgraph, place[1])] for side in mine]
            yield from zip(lists[0][:1], lists[1][:1], strict=False)
            return
        options = options_of(operator) if operator.name in ("WHILE", "IF") else None
        if options is None:
            return
        if operator.name == "WHILE":
            body, test = (self._ends(i) for i in (options.body_subgraph_index, options.cond_subgraph_index))
            sides = [*mine, *body, test[0]]
        else:
            branches = [self._ends(i) for i in (options.then_subgraph_index, options.else_subgraph_index)]
            yield from self._aligned([mine[1], *(branch[1] for branch in branches)])
            sides = [mine[0][1:], *(branch[0] for branch in branches)]
        yield from self._aligned(sides)

    def _ends(self, index: int) -> tuple[list[_Place], list[_Place]]:
        """Inputs and outputs of a subgraph; none of one that is not there."""
        if not 0 <= index < len(self.model.subgraphs):
            return [], []
        subgraph = self.model.subgraphs[index]
        return [(index, i) for i in subgraph.inputs], [(index, i) for i in subgraph.outputs]

    def _aligned(self, sides: Sequence[Sequence[_Place]]) -> Iterator[tuple[_Place, _Place]]:
        for places in zip(*sides, strict=False):
            lists = [place for place in places if _is_list(self.model.subgraphs[place[0]], place[1])]
            yield from ((lists[0], other) for other in lists[1:])

    def _first(self, place: _Place) -> _Place:
        """Return the tensor that stands for all that are the same list."""
        while (parent := self._parents.get(place, place)) != place:
            self._parents[place] = self._parents.get(parent, parent)
            place = parent
        return place

    def _listen(self, s: int, subgraph: Subgraph, operator: Operator) -> None:
        """Return what an operator says of its list."""
        kind = operator.name.removeprefix(PREFIX) if operator.name != EMPTY else "Reserve"
        lists = [i for i in (*operator.inputs, *operator.outputs) if i >= 0 and _is_list(subgraph, i)]
        if not lists:
            return
        list_facts = self._facts.setdefault(self._first((s, lists[0])), _Told())
        for indices, places in ((operator.inputs, GIVEN), (operator.outputs, TAKEN)):
            place, before = places.get(kind, (-1, 0))
            if 0 <= place < len(indices) and indices[place] >= 0:
                tensor = subgraph.tensors[indices[place]]
                list_facts.types.add(tensor.type)
                if tensor.signature:  # no axes may be of any number; and extents may be placeholders
                    list_facts.shapes.append((-1,) * (len(tensor.signature) - before))
        place = SHAPES.get(kind, -1)
        if 0 <= place < len(operator.inputs) and operator.inputs[place] >= 0:
            shape = subgraph.tensors[operator.inputs[place]]
            plain = shape.data is not None and shape.sparsity is None and shape.type in _INDICES
            if plain and len(shape.shape) == 1 and shape.shape[0] < MAX_RANK:
                list_facts.shapes.append(tuple(int(extent) for extent in array(shape)))


def _is_list(subgraph: Subgraph, index: int) -> bool:
    return index >= 0 and subgraph.tensors[index].type == TensorType.VARIANT
