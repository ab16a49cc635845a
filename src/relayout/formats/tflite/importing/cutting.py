"""A part of a .tflite's graph: what lies between named tensors. Operators outside of it are not even looked at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from relayout.errors import NamesError, nearest_values
from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import Model, Operator, Signature, Subgraph


def cut(
    model: Model,  # the file
    index: int,  # which subgraph
    signature: Signature | None,  # the signature that names its ends
    inputs: Sequence[str] | None,  # names of its inputs, or of tensors in between
    outputs: Sequence[str] | None,  # likewise
) -> Subgraph:
    """The part of a subgraph that computes `outputs` from `inputs`; the rules are those of `formats.onnx.cut`.

    A name is a tensor's own or the signature's for it. Of several tensors of one name, `NAME#INDEX` means one.

    Raises:
        NamesError: a name cannot be an end of the part.
    """
    subgraph = model.subgraphs[index]
    named = _Names(model, index, signature)
    starts = [named.find("inputs", name) for name in named.once("inputs", inputs or ())]
    ends = tuple(named.find("outputs", name) for name in named.once("outputs", outputs or ())) or subgraph.outputs
    named.refuse_constants("inputs", inputs or (), starts)
    named.refuse_constants("outputs", outputs or (), ends)
    for start, name in zip(starts, inputs or (), strict=True):
        if start in ends:
            raise NamesError(f"{name!r} is an input and an output of the part: nothing lies in between")
    _refuse_inputs(subgraph, outputs or (), ends)
    operators, read = _needed(subgraph, set(starts), ends)
    for start, name in zip(starts, inputs or (), strict=True):
        if start not in read and start not in subgraph.inputs:
            raise NamesError(f"--inputs {name}: none of the outputs is computed from it, or only through other inputs")
    starts += [i for i in subgraph.inputs if i in read and i not in starts]
    return _apart(subgraph._replace(inputs=tuple(starts), outputs=ends, operators=operators))


def _refuse_inputs(subgraph: Subgraph, names: Sequence[str], ends: Sequence[int]) -> None:
    """Refuse inputs of the model as outputs of a part, but those that the model itself gives back."""
    for end, name in zip(ends, names, strict=False):
        if end in subgraph.inputs and end not in subgraph.outputs:
            raise NamesError(f"--outputs {name}: it is an input of the model: nothing lies in between")


def _apart(part: Subgraph) -> Subgraph:
    """Of an operator with several results one may be an input now and another still be computed: it gets a stand-in."""
    tensors, operators = list(part.tensors), []
    for operator in part.operators:
        results = list(operator.outputs)
        for slot, i in enumerate(results):
            if i in part.inputs:
                results[slot] = len(tensors)
                tensors.append(replace(tensors[i], index=len(tensors), name=f"{tensors[i].name}__unread"))
        operators.append(operator._replace(outputs=tuple(results)))
    return part._replace(tensors=tuple(tensors), operators=tuple(operators))


def _needed(subgraph: Subgraph, starts: set[int], ends: Sequence[int]) -> tuple[tuple[Operator, ...], set[int]]:
    """The operators that the ends need, in order, and every tensor that is read.

    Operators without results (assignments, imports of tables) are kept where the part has state: a resource, which any
    handle of its name reaches, or a body, which may make one.
    """
    makers = {i: operator for operator in subgraph.operators for i in operator.outputs if i not in starts}
    acting = [operator for operator in subgraph.operators if not operator.outputs]
    kept: set[int] = set()
    read: set[int] = set()
    left = list(ends)
    while left:
        while left:
            i = left.pop()
            if i < 0 or i in read:
                continue
            read.add(i)
            maker = makers.get(i)
            if maker is not None and id(maker) not in kept:
                kept.add(id(maker))
                left += maker.inputs
        if any(_has_state(subgraph, operator) for operator in subgraph.operators if id(operator) in kept):
            left = [i for operator in acting if id(operator) not in kept for i in operator.inputs]
            kept.update(map(id, acting))
    return tuple(operator for operator in subgraph.operators if id(operator) in kept), read


def _has_state(subgraph: Subgraph, operator: Operator) -> bool:
    fields = operator.options.fields if operator.options is not None else {}
    resources = (i for i in (*operator.inputs, *operator.outputs) if i >= 0)
    return any(subgraph.tensors[i].type in (TensorType.RESOURCE, TensorType.VARIANT) for i in resources) or any(
        name.endswith(("subgraph_index", "subgraph")) for name in fields
    )


class _Names:
    """What tensors may be called."""

    def __init__(self, model: Model, index: int, signature: Signature | None) -> None:
        self.model, self.index = model, index
        self.own: dict[str, list[int]] = {}
        for tensor in model.subgraphs[index].tensors:
            name = tensor.name or f"tensor_{tensor.index}"
            self.own.setdefault(name, []).append(tensor.index)
        ends = (signature.outputs, signature.inputs) if signature else ((), ())
        # An input and an output may have one name in a signature: each side's own comes last, and counts.
        by_side = {"inputs": (*ends[0], *ends[1]), "outputs": (*ends[1], *ends[0])}
        self.signed = {side: {name: position for name, position in given if name} for side, given in by_side.items()}
        subgraph = model.subgraphs[index]
        made = {i for operator in subgraph.operators for i in operator.outputs}
        self.computed = made | {*subgraph.inputs, *subgraph.outputs}

    def once(self, side: str, names: Sequence[str]) -> Sequence[str]:
        for i, name in enumerate(names):
            if name in names[:i]:
                raise NamesError(f"--{side}: {name!r} is given twice")
        return names

    def refuse_constants(self, side: str, names: Sequence[str], tensors: Sequence[int]) -> None:
        for name, tensor in zip(names, tensors, strict=False):
            if tensor not in self.computed:
                raise NamesError(f"--{side} {name}: it is a constant")

    def find(self, side: str, name: str) -> int:
        if name in self.signed[side]:
            return self.signed[side][name]
        if not (found := self.own.get(name, [])):
            stem, _, number = name.rpartition("#")
            found = [i for i in self.own.get(stem, []) if str(i) == number]
        if len(found) == 1:
            return found[0]
        if found:
            listed = ", ".join(f"{name}#{i}" for i in found[:8])
            raise NamesError(f"--{side} {name}: {len(found)} tensors have that name; say which: {listed}")
        for i, other in enumerate(self.model.subgraphs):
            if i != self.index and any(tensor.name == name for tensor in other.tensors):
                raise NamesError(
                    f"--{side} {name}: the tensor lies inside the body of another operator; a cut goes around it"
                )
        known = (each for each, tensors in self.own.items() if not self.computed.isdisjoint(tensors))
        near = nearest_values(name, [*self.signed[side], *known])
        raise NamesError(f"--{side} {name}: the model has no tensor of that name{near}")
