"""Operators of opset 1 to 6 as opset 7 defines them, from which on runtimes know them.

    Add<broadcast=1, axis=1>(a[n c h w], b[c])     ->  Add(a, Unsqueeze<axes=[1, 2]>(b))
    PRelu(x[n c h w], slope[c])                    ->  PRelu(x, Unsqueeze<axes=[1, 2]>(slope))
    Reshape<shape=[0, -1]>(x)                      ->  Reshape(x, shape)

1. Each node is read by its own opset's definition: attributes that became operands, defaults that changed, the axis to
   which an operand belongs.
2. An operator that computes something else in opset 7 (a Dropout that trains) is refused by name.
3. A model of operators that are the same in opset 7 keeps its opset.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from relayout.errors import ReadError, UnsupportedError
from relayout.formats.onnx.inferring import ALIASES, infer
from relayout.formats.onnx.wire import all_nodes, bodies_of, nested_graphs

OLDEST = 7  # the opset that is written instead: ONNX Runtime has no kernels for many operators of older ones
HINT = "write the model in opset 7 or newer"
COMPARISONS = frozenset({"Equal", "Greater", "Less"})
"""Broadcasting operators that give another type than they read; the logical ones read what they give."""


class _CannotRaiseError(Exception):
    """A node that opset 7 cannot state, or whose operands are not known well enough."""


class _Old:
    """A node of an old opset: its attributes, its operands, and the nodes that are put before it."""

    def __init__(self, raising: _Raising, node: onnx.NodeProto) -> None:
        self.raising, self.node = raising, node
        self.version = raising.version
        self.before: list[onnx.NodeProto] = []

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return an attribute's value."""
        values = (helper.get_attribute_value(each) for each in self.node.attribute if each.name == name)
        return next(values, default)

    def drop(self, *names: str) -> None:
        """Leave out attributes."""
        for index in reversed(range(len(self.node.attribute))):
            if self.node.attribute[index].name in names:
                del self.node.attribute[index]

    def set(self, **values: Any) -> None:
        """Give attributes other values."""
        self.drop(*values)
        self.node.attribute.extend(helper.make_attribute(name, value) for name, value in values.items())

    def constant(self, slot: int, what: str) -> np.ndarray[Any, Any]:
        """Return the numbers of an operand."""
        tensor = self.raising.constants.get(self.node.input[slot]) if slot < len(self.node.input) else None
        if tensor is None:
            raise _CannotRaiseError(f"computed {what}")
        return numpy_helper.to_array(tensor)

    def rank(self, slot: int) -> int:
        """Return the rank of an operand."""
        rank = self.raising.ranks.get(self.node.input[slot]) if slot < len(self.node.input) else None
        if rank is None:
            raise _CannotRaiseError("the rank of an operand is not known")
        return rank

    def number(self, name: str, values: Any) -> str:
        """Return the name of a new constant."""
        node, constant_name = self.node, self.raising.unique(f"{self.node.output[0]}/{name}")
        value = numpy_helper.from_array(np.asarray(values, np.int64), constant_name)
        self.before.append(
            helper.make_node("Constant", [], [constant_name], name=f"{node.name or constant_name}/{name}", value=value)
        )
        return constant_name

    def lengthen(self, count: int) -> None:
        """Give the second operand more axes of one element behind its own."""
        if count <= 0:
            return
        name, rank = self.node.input[1], self.rank(1)
        output_name = self.raising.unique(f"{self.node.output[0]}/{name}")
        axes = list(range(rank, rank + count))
        self.before.append(helper.make_node("Unsqueeze", [name], [output_name], name=output_name, axes=axes))
        self.node.input[1] = output_name


def raise_first_opsets(proto: onnx.ModelProto) -> tuple[str, ...]:
    """Write a model of opset 1 to 6 in opset 7, in place.

    Returns:
        A sentence for the report; nothing where all operators are the same in both.

    Raises:
        UnsupportedError: operators that opset 7 cannot state, all of them.
    """
    imports = [*proto.opset_import, *(each for function in proto.functions for each in function.opset_import)]
    imports = [each for each in imports if each.domain in ALIASES]
    version = max((each.version for each in imports), default=OLDEST)
    if not 1 <= version < OLDEST:
        return ()
    nodes = [node for owner in (proto.graph, *proto.functions) for node in all_nodes(owner.node)]
    changed = Counter(node.op_type for node in nodes if node.domain in ALIASES and _has_changed(node.op_type, version))
    if not changed:
        return ()
    raising = _Raising(proto, version)
    raising.run()
    if raising.refused:
        raise UnsupportedError(raising.refused, HINT)
    for each in imports:
        each.version = OLDEST
    listed = ", ".join(f"{count} {name}" for name, count in sorted(changed.items()))
    return (f"opset {version} is written as opset {OLDEST}, which states these operators otherwise: {listed}",)


class _Raising:
    def __init__(self, proto: onnx.ModelProto, version: int) -> None:
        self.proto, self.version = proto, version
        self.refused: dict[str, tuple[int, str]] = {}
        self.ranks: Mapping[str, int] = {}
        graphs = list(nested_graphs(proto.graph))
        nodes = [node for owner in (proto.graph, *proto.functions) for node in all_nodes(owner.node)]
        self.names = {name for node in nodes for name in (*node.input, *node.output)}
        self.names |= {each.name for graph in graphs for each in (*graph.input, *graph.initializer)}
        inputs = {each.name for graph in graphs for each in graph.input} if proto.ir_version >= 4 else set()
        self.constants = {each.name: each for graph in graphs for each in graph.initializer if each.name not in inputs}
        self.constants |= {
            node.output[0]: attribute.t
            for node in nodes
            for attribute in node.attribute
            if node.op_type == "Constant" and attribute.name == "value"
        }

    def run(self) -> None:
        """Write all nodes; those whose operands' ranks count come last, as the ranks behind others are known then."""
        lists = [owner.node for owner in (self.proto.graph, *self.proto.functions)]
        for nodes in lists:
            self._write(nodes, ROWS)
        waiting = [node for nodes in lists for node in all_nodes(nodes) if _is_old(node, RANKED)]
        if not waiting or self.refused:
            return
        if any(
            node.op_type in ("PRelu", "Tile") or any(each.name == "axis" for each in node.attribute) for node in waiting
        ):
            self.ranks = _ranks(self.proto)
        for nodes in lists:
            self._write(nodes, RANKED)

    def _write(self, nodes: Any, rows: Mapping[str, Callable[[_Old], None]]) -> None:
        """Write the nodes of a graph and its bodies, in place."""
        written: list[onnx.NodeProto] = []
        for node in nodes:
            for body in bodies_of((node,)):
                self._write(body.node, rows)
            old = _Old(self, node)
            try:
                if _is_old(node, rows):
                    rows[node.op_type](old)
            except _CannotRaiseError as reason:
                name = f"{node.op_type} of opset {self.version} ({reason})"
                count, first = self.refused.get(name, (0, node.name or (node.output[0] if node.output else "")))
                self.refused[name] = (count + 1, first)
            if node.domain in ALIASES:
                old.drop("consumed_inputs")
            written += [*old.before, node]
        if len(written) != len(nodes):
            copies = deepcopy(written)
            del nodes[:]
            nodes.extend(copies)

    def unique(self, name: str) -> str:
        """Return a name that no value has yet."""
        while name in self.names:
            name += "_"
        self.names.add(name)
        return name


def _has_changed(op_type: str, version: int) -> bool:
    """Return whether opset 7 defines an operator anew; of one that the old opset lacks, whether it is refused."""
    try:
        then, now = (onnx.defs.get_schema(op_type, opset, "").since_version for opset in (version, OLDEST))
    except onnx.defs.SchemaError:
        return op_type in ROWS
    return bool(then != now)


def _is_old(node: onnx.NodeProto, rows: Mapping[str, Callable[[_Old], None]]) -> bool:
    return node.op_type in rows and node.domain in ALIASES


def _ranks(proto: onnx.ModelProto) -> dict[str, int]:
    """Return the ranks that inference tells, where what still waits gives what its first operand has."""
    model = deepcopy(proto)
    for each in model.opset_import:
        if each.domain in ALIASES:
            each.version = OLDEST
    for node in all_nodes(model.graph.node):
        if _is_old(node, RANKED):
            is_boolean = node.op_type in COMPARISONS
            attributes = [helper.make_attribute("to", onnx.TensorProto.BOOL)] if is_boolean else []
            node.op_type = "Cast" if is_boolean else "Identity"
            del node.input[1:], node.attribute[:]
            node.attribute.extend(attributes)
    try:
        model = infer(model)
    except ReadError:  # it crashes
        raise
    except Exception:  # onnx raises types of its own: what the file states is known at least
        model = proto
    ranks: dict[str, int] = {}
    for graph in nested_graphs(model.graph):
        for value in (*graph.value_info, *graph.output, *graph.input):
            if value.type.tensor_type.HasField("shape"):
                ranks[value.name] = len(value.type.tensor_type.shape.dim)
        ranks |= {tensor.name: len(tensor.dims) for tensor in graph.initializer}
    return ranks


def _batch_normalization(old: _Old) -> None:
    _dropout(old)
    if any(old.node.output[1:5]):
        raise _CannotRaiseError("more than one output")


def _broadcast(old: _Old) -> None:
    """The second operand is stretched to the first; its axes begin at `axis`, or are the last ones."""
    axis = old.attribute("axis") if old.attribute("broadcast", 0) else None
    if axis is not None:
        rank = old.rank(0)
        count = rank - (axis + rank if axis < 0 else axis) - old.rank(1)
        if count < 0:
            raise _CannotRaiseError(f"axis {axis} of {rank}, for an operand of {old.rank(1)}")
        old.lengthen(count)
    old.drop("broadcast", "axis")


def _cast(old: _Old) -> None:
    """Before opset 6 a type is a word."""
    to = old.attribute("to")
    if not isinstance(to, bytes):
        return
    name = to.decode(errors="replace").upper()
    if name not in onnx.TensorProto.DataType.keys():  # noqa: SIM118 - no dictionary
        raise _CannotRaiseError(f"to {name[:40]}")
    old.set(to=onnx.TensorProto.DataType.Value(name))


DEFAULTS: Mapping[str, tuple[int, Mapping[str, float]]] = {
    "Clip": (6, {"min": -np.inf, "max": np.inf}),
    "Concat": (4, {"axis": 1}),
    "Selu": (6, {"alpha": 1.6732, "gamma": 1.0507}),
}
"""Operator -> the opset from which on it has other defaults, or none, and the defaults before."""


def _state_defaults(old: _Old) -> None:
    """An attribute that is not stated has the old default."""
    changed, defaults = DEFAULTS[old.node.op_type]
    if old.version < changed:
        old.set(**{name: old.attribute(name, default) for name, default in defaults.items()})


def _dropout(old: _Old) -> None:
    if not old.attribute("is_test", 0):
        raise _CannotRaiseError("is_test 0: it trains")
    old.drop("is_test")


def _gru(old: _Old) -> None:
    """The first definition calls its default direction `foward`."""
    if old.attribute("direction") == b"foward":
        old.set(direction="forward")
    old.drop("output_sequence")


def _lp_pool(old: _Old) -> None:
    """Before opset 2 the exponent is a real number."""
    exponent = old.attribute("p", 2)
    if exponent != int(exponent):
        raise _CannotRaiseError(f"p {exponent}")
    if old.node.op_type == "LpPool" and old.attribute("kernel_shape") is None:
        raise _CannotRaiseError("no kernel_shape")
    old.set(p=int(exponent))


def _mean_variance_normalization(old: _Old) -> None:
    raise _CannotRaiseError("an experimental operator, which is another one since opset 9")


def _pad(old: _Old) -> None:
    if (pads := old.attribute("paddings")) is not None:
        old.drop("paddings")
        old.set(pads=pads)


def _prelu(old: _Old) -> None:
    """A slope of one axis has one number for each channel, or one for all."""
    slope = old.raising.constants.get(old.node.input[1])
    if slope is None or list(slope.dims) not in ([], [1]):
        old.lengthen(old.rank(0) - 2 if old.rank(1) == 1 else 0)


def _reshape(old: _Old) -> None:
    """Before opset 5 the new shape is an attribute."""
    shape = old.attribute("shape")
    if old.version < 5 and len(old.node.input) == 1:
        if shape is None:
            raise _CannotRaiseError("no shape")
        old.drop("shape")
        old.node.input.append(old.number("shape", shape))


def _split(old: _Old) -> None:
    """Before opset 2 sizes may be an operand, and no axis is the default."""
    if old.version >= 2:
        return
    if old.attribute("axis") is None:
        raise _CannotRaiseError("no axis")
    if len(old.node.input) > 1:
        sizes = old.constant(1, "sizes")
        del old.node.input[1:]
        old.set(split=[int(size) for size in sizes.reshape(-1)])


def _tile(old: _Old) -> None:
    """Before opset 6 one axis is repeated."""
    if old.version >= 6:
        return
    count, axis = (int(old.constant(slot, what).reshape(-1)[0]) for slot, what in ((1, "repeats"), (2, "axis")))
    rank = old.rank(0)
    del old.node.input[1:]
    old.node.input.append(old.number("repeats", [count if place == axis % rank else 1 for place in range(rank)]))


def _upsample(old: _Old) -> None:
    """The scales are those of an image's height and width."""
    if old.attribute("scales") is not None:
        return
    height, width = (old.attribute(name) for name in ("height_scale", "width_scale"))
    if height is None or width is None:
        raise _CannotRaiseError("no scales")
    old.drop("height_scale", "width_scale")
    old.set(scales=[1.0, 1.0, height, width])
    if old.attribute("mode") == b"bilinear":
        old.set(mode="linear")


# Operators whose definition changed until opset 7. Of GRU, LSTM and RNN the first output is optional, whatever
# `output_sequence` says.
ROWS: Mapping[str, Callable[[_Old], None]] = {
    "BatchNormalization": _batch_normalization,
    "Cast": _cast,
    "Clip": _state_defaults,
    "Concat": _state_defaults,
    "Dropout": _dropout,
    "GRU": _gru,
    "Gemm": lambda old: old.drop("broadcast"),
    "GlobalLpPool": _lp_pool,
    "LSTM": lambda old: old.drop("output_sequence"),
    "LpPool": _lp_pool,
    "MeanVarianceNormalization": _mean_variance_normalization,
    "Pad": _pad,
    "RNN": lambda old: old.drop("output_sequence"),
    "Reshape": _reshape,
    "Selu": _state_defaults,
    "Split": _split,
    "Upsample": _upsample,
}
RANKED: Mapping[str, Callable[[_Old], None]] = {
    **dict.fromkeys(("Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "Sub", "Xor"), _broadcast),
    "PRelu": _prelu,
    "Tile": _tile,
}
"""The same, where ranks of operands count. Each gives as many axes as its first operand has."""
