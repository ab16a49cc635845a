"""A `.tflite` some of whose inner tensors are given: the part of it that makes others, as a file of its own.

What is given is an input there. A tensor that is given and made, too, is made under its name, and read from the input.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from relayout.formats.tflite.container.model import Model, Operator, Subgraph, Tensor


class Cut(NamedTuple):
    """A part of a file.

    Args:
        model: the part.
        tensors: tensor of the file -> the part's that holds what is made, or what the file is fed.
        given: tensor of the file that is given -> the part's input.
    """

    model: Model
    tensors: Mapping[int, int]
    given: Mapping[int, int]


def cut(model: Model, shown: Sequence[int], given: Collection[int]) -> Cut:
    """Return the part of a file's first subgraph that makes some tensors of those that are given, and of its inputs.

    Args:
        model: the file.
        shown: the tensors that it makes.
        given: tensors that operators read from inputs; those that none of them reads are left out.
    """
    whole = model.subgraphs[0]
    operators = _needed(whole, shown, given)
    made = _indices(operator.outputs for operator in operators)
    read = _indices(operator.inputs for operator in operators)
    inner = _indices(operator.intermediates for operator in operators)
    fed = [index for index in read if index in given and index not in whole.inputs]
    ends = [index for index in whole.inputs if index in read or index in shown]
    used = dict.fromkeys((*ends, *read, *_scales(whole, read), *made, *inner, *shown))
    tensors = _places(index for index in used if index in made or index not in fed)
    entries = _places(fed, len(tensors))
    listed = [_moved(whole.tensors[index], place, "", tensors) for index, place in tensors.items()]
    listed += [_moved(whole.tensors[index], place, "/given", tensors) for index, place in entries.items()]
    part = Subgraph(
        whole.name,
        tuple(listed),
        (*(tensors[index] for index in ends), *entries.values()),
        tuple(tensors[index] for index in dict.fromkeys(shown)),
        tuple(_renumbered(operator, tensors, {**tensors, **entries}) for operator in operators),
        whole.place,
    )
    return Cut(Model(model.description, (part, *model.subgraphs[1:]), ()), tensors, entries)


def _indices(operands: Iterable[Sequence[int]]) -> dict[int, None]:
    """Return each tensor of some operators once, in order."""
    return dict.fromkeys(index for each in operands for index in each if index >= 0)


def _scales(graph: Subgraph, indices: Iterable[int]) -> list[int]:
    """Return the tensors that hold the scales of blocks of other tensors."""
    return [blocks.scales for index in indices if (blocks := graph.tensors[index].blocks) is not None]


def _places(indices: Iterable[int], start: int = 0) -> dict[int, int]:
    return {index: place for place, index in enumerate(indices, start)}


def _needed(graph: Subgraph, shown: Sequence[int], given: Collection[int]) -> list[Operator]:
    """Return the operators that make what is shown of what is given, in the file's order."""
    producers = {index: place for place, operator in enumerate(graph.operators) for index in operator.outputs}
    found: set[int] = set()
    ahead = list(shown)
    while ahead:
        place = producers.get(ahead.pop())
        if place is not None and place not in found:
            found.add(place)
            ahead += [index for index in graph.operators[place].inputs if index >= 0 and index not in given]
    return [graph.operators[place] for place in sorted(found)]


def _moved(tensor: Tensor, place: int, suffix: str, tensors: Mapping[int, int]) -> Tensor:
    blocks = None if tensor.blocks is None else tensor.blocks._replace(scales=tensors[tensor.blocks.scales])
    return replace(tensor, index=place, name=f"{tensor.name}{suffix}", blocks=blocks)


def _renumbered(operator: Operator, tensors: Mapping[int, int], reading: Mapping[int, int]) -> Operator:
    return operator._replace(
        inputs=tuple(reading[index] if index >= 0 else index for index in operator.inputs),
        outputs=tuple(tensors[index] for index in operator.outputs),
        intermediates=tuple(tensors[index] if index >= 0 else index for index in operator.intermediates),
    )
