"""The ONNX graph under construction: unique names, values with type and shape, nodes, initializers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from relayout.formats.tflite.container.model import MAX_NAME
from relayout.graph.source_names import SOURCE, STANDS_FOR
from relayout.graph.subgraphs import bodies

Dim = int | str | None
"""A dimension: its extent, the name of an extent known at run time, or None where nothing is known."""

Dims = tuple[Dim, ...]


def dims(value: ir.Value) -> Dims:
    """The shape of a value."""
    if value.shape is None:
        raise ValueError(f"{value.name} has no shape")
    return tuple(dim if isinstance(dim, int) else dim.value for dim in value.shape)


def broadcast(*shapes: Dims) -> Dims:
    """The shape of an elementwise operator's output, aligned from the right.

    Raises:
        ValueError: two extents differ, and neither is 1.
    """
    if len(set(shapes)) == 1:
        return shapes[0]
    rank = max(len(shape) for shape in shapes)
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return tuple(_broadcast_dim(column) for column in zip(*padded, strict=True))


def _broadcast_dim(column: tuple[Dim, ...]) -> Dim:
    larger = [dim for dim in column if dim != 1]
    fixed = [dim for dim in larger if isinstance(dim, int)]
    if len(set(fixed)) > 1:
        raise ValueError(f"extents of {min(fixed)} and {max(fixed)} meet")
    if fixed or not larger:
        return fixed[0] if fixed else 1
    # Two different names, or an unknown beside a name, may stand for 1 and n.
    return larger[0] if len(set(larger)) == 1 else None


_SEQUENCES = {int: ir.AttributeType.INTS, float: ir.AttributeType.FLOATS, str: ir.AttributeType.STRINGS}


def _attribute(name: str, value: Any) -> ir.Attr:
    """An attribute from what Python has for it.

    What is in a sequence is said here: to find it out takes onnx-ir a third of the time of a whole import.
    """
    listed = isinstance(value, list | tuple) and value
    return ir.convenience.convert_attribute(name, value, _SEQUENCES.get(type(value[0])) if listed else None)


class Names:
    """Gives every value and node a name of its own."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._next: dict[str, int] = {}

    def unique(self, wanted: str) -> str:
        """`wanted`, or `wanted_1`, `wanted_2`, ... if that is taken."""
        name = wanted
        while name in self._taken:
            self._next[wanted] = self._next.get(wanted, 0) + 1
            name = f"{wanted}_{self._next[wanted]}"
        self._taken.add(name)
        return name

    def free(self, names: Iterable[str | None]) -> None:
        """Let names be given once more: what had them is gone."""
        self._taken.difference_update(names)

    def instead(self, name: str, wanted: str) -> str:
        """A new name, as `unique` gives it, for what had this one, which is free then."""
        self._taken.discard(name)
        return self.unique(wanted)


class Builder:
    """Collects the nodes and initializers of one ONNX graph."""

    def __init__(self, opset: int) -> None:
        self.opset = opset
        self.names = Names()
        self.node_names = Names()
        self.nodes: list[ir.Node] = []
        self.spare: set[int] = set()
        self.initializers: list[ir.Value] = []
        self.stand_for: dict[str, str] = {}
        """A name that is wanted for a value -> that of the tensor of the file that it stands for."""
        self._shared: dict[tuple[str, tuple[int, ...], bytes], ir.Value] = {}

    def value(self, name: str, dtype: ir.DataType, shape: Dims) -> ir.Value:
        """A value without a producer, under exactly this name."""
        return ir.val(name, dtype, shape)

    def initializer(self, name: str, tensor: ir.TensorProtocol) -> ir.Value:
        """A constant, under a unique name made from this one."""
        value = ir.val(self.names.unique(name), const_value=tensor)
        tensor.name = value.name
        self.initializers.append(value)
        return value

    def array(self, name: str, array: npt.NDArray[Any]) -> ir.Value:
        """A small constant from a numpy array."""
        return self.initializer(name, ir.Tensor(np.asarray(array)))

    def shared(self, name: str, array: npt.NDArray[Any]) -> ir.Value:
        """A constant that is written once, however often it is asked for."""
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._shared:
            self._shared[key] = self.array(name, array)
        return self._shared[key]

    @contextmanager
    def body(self) -> Iterator[list[ir.Node]]:
        """Collect the nodes that are emitted within in a list of their own: the body of a Scan, Loop or If."""
        outer, self.nodes = self.nodes, []
        try:
            yield self.nodes
        finally:
            self.nodes = outer

    def discard(self, nodes: Sequence[ir.Node]) -> None:
        """Take back nodes that were written only to look at them: no value counts them among its readers.

        Their names are free: those that are written instead would have longer ones, and longer ones after each import.
        """
        for node in nodes:
            for body in bodies(node):
                self.discard(list(body))
                self.names.free(value.name for value in body.inputs)
            node.resize_inputs(0)
            self.names.free(value.name for value in node.outputs)
            self.node_names.free([node.name])

    def emit(
        self,
        op_type: str,  # ONNX operator
        inputs: Iterable[ir.Value | None],  # values, None for an operand left out
        # (name, element type, shape) for each output; the names are made unique
        outputs: Sequence[tuple[str, ir.DataType, Dims]],
        *,
        source: str = "",  # the TFLite operator that this node is a part of
        domain: str = "",  # the operator's, if it is not ONNX's own
        **attributes: Any,  # those that are None are left out
    ) -> tuple[ir.Value, ...]:
        """Append one node."""
        given = list(inputs)
        while given and given[-1] is None:
            given.pop()
        node = ir.Node(
            domain,
            op_type,
            given,
            [_attribute(name, value) for name, value in attributes.items() if value is not None],
            outputs=[self.value(self.names.unique(name), dtype, shape) for name, dtype, shape in outputs],
            name=self.node_names.unique(f"{outputs[0][0][:MAX_NAME]}/{op_type}"),
        )
        if source:
            node.metadata_props[SOURCE] = source
        for made, (name, _, _) in zip(node.outputs, outputs, strict=True):
            if name in self.stand_for:
                node.metadata_props[STANDS_FOR] = made.metadata_props[STANDS_FOR] = self.stand_for[name]
        self.nodes.append(node)
        return tuple(node.outputs)
