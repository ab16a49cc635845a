"""The ONNX graph under construction: unique names, values with type and shape, nodes, initializers, state."""

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from relayout.formats.tflite.container.model import MAX_NAME, Model, Operator
from relayout.formats.tflite.importing.registry import Unsupported
from relayout.formats.tflite.spelled_out import Variable
from relayout.graph.source_names import SOURCE, STANDS_FOR
from relayout.graph.subgraphs import bodies
from relayout.layout.stored_as import INITIAL

Dim = int | str | None
"""A dimension: its extent, the name of an extent known at run time, or None where nothing is known."""

Dims = tuple[Dim, ...]


def dims(value: ir.Value) -> Dims:
    """Return the shape of a value."""
    if value.shape is None:
        raise ValueError(f"{value.name} has no shape")
    return tuple(dim if isinstance(dim, int) else dim.value for dim in value.shape)


def broadcast(*shapes: Dims) -> Dims:
    """Return the shape of an elementwise operator's output, aligned from the right.

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
    """Return an attribute from what Python has for it.

    What is in a sequence is said here: to find it out takes onnx-ir a third of the time of a whole import.
    """
    listed = isinstance(value, list | tuple) and value
    return ir.convenience.convert_attribute(name, value, _SEQUENCES.get(type(value[0])) if listed else None)


class Names:
    """Gives every value and node a name of its own."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._next: dict[str, int] = {}

    def unique(self, stem: str) -> str:
        """Return `stem`, or `stem_1`, `stem_2`, ... if that is taken."""
        name = stem
        while name in self._taken:
            self._next[stem] = self._next.get(stem, 0) + 1
            name = f"{stem}_{self._next[stem]}"
        self._taken.add(name)
        return name

    def free(self, names: Iterable[str | None]) -> None:
        """Let names be given once more: what had them is gone."""
        self._taken.difference_update(names)

    def instead(self, name: str, stem: str) -> str:
        """Return a new name, as `unique` gives it, for what had this one, which is free then."""
        self._taken.discard(name)
        return self.unique(stem)


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
        """Return a value without a producer, under exactly this name."""
        return ir.val(name, dtype, shape)

    def initializer(self, name: str, tensor: ir.TensorProtocol) -> ir.Value:
        """Return a constant, under a unique name made from this one."""
        value = ir.val(self.names.unique(name), const_value=tensor)
        tensor.name = value.name
        self.initializers.append(value)
        return value

    def array(self, name: str, array: npt.NDArray[Any]) -> ir.Value:
        """Return a small constant from a numpy array."""
        return self.initializer(name, ir.Tensor(np.asarray(array)))

    def shared(self, name: str, array: npt.NDArray[Any]) -> ir.Value:
        """Return a constant that is written once, however often it is asked for."""
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
        operands = list(inputs)
        while operands and operands[-1] is None:
            operands.pop()
        node = ir.Node(
            domain,
            op_type,
            operands,
            [_attribute(name, value) for name, value in attributes.items() if value is not None],
            outputs=[self.value(self.names.unique(name), dtype, shape) for name, dtype, shape in outputs],
            name=self.node_names.unique(f"{outputs[0][0][:MAX_NAME]}/{op_type}"),
        )
        if source:
            node.metadata_props[SOURCE] = source
        for output, (name, _, _) in zip(node.outputs, outputs, strict=True):
            if name in self.stand_for:
                node.metadata_props[STANDS_FOR] = output.metadata_props[STANDS_FOR] = self.stand_for[name]
        self.nodes.append(node)
        return tuple(node.outputs)


# State: what a TFLite runtime keeps from one run to the next, and ONNX does not.

MAX_INITIAL = 4096  # elements of an initial value that goes into the metadata


class Handle(NamedTuple):
    """The variable or the table that a resource tensor refers to, by the name that all its users share."""

    kind: str
    name: str

    @property
    def key(self) -> str:
        """Return what tells it from all other state."""
        return f"{self.kind} {self.name}"


class Variables:
    """The value of each variable at the place in the graph that is now being written.

    With `io` a variable that is read before it is assigned becomes an input of the model, `NAME`, and what it holds in
    the end an output, `NAME_next`. Without it every run starts from the initial values.
    """

    def __init__(self, builder: Builder, model: Model, *, io: bool) -> None:
        self.builder, self.model, self.io = builder, model, io
        self.current: dict[str, ir.Value] = {}
        self.initial: dict[str, str] = {}
        self.inputs: dict[str, ir.Value] = {}
        self.read: set[str] = set()  # names of variables that an operator reads
        self.changed: set[str] = set()  # names of variables that a run assigns to, besides what sets them up
        self._names: dict[str, str] = {}
        self._in_runs: Collection[str] | None = None
        """The names of variables that runs assign to, once they were asked for."""
        self._set_up: Collection[str] | None = None  # those names while variables are set up; None at all other times
        self._begun: dict[str, tuple[ir.Value, ir.TensorProtocol]] = {}
        """Variable -> its value at the beginning, and the constant that this is: known to nobody until the end."""

    def load(self, key: str, name: str, dtype: ir.DataType, shape: Dims) -> ir.Value | None:
        """Return a variable's value; None if it has none yet."""
        if key not in self.current and self.io:
            self._names[key] = name
            value = self.builder.value(self.builder.names.unique(name), dtype, shape)
            self.current[key] = self.inputs[key] = value
        return self.current.get(key)

    def store(self, key: str, name: str, value: ir.Value) -> None:
        """Assign to a variable."""
        self._names.setdefault(key, name)
        tensor, kind = value.const_value, value.dtype
        if self._set_up is not None and name in self._set_up and not self.io and tensor is not None and kind:
            value = self.builder.value(self.builder.names.unique(name), kind, dims(value))
            self._begun[key] = value, tensor
        self.current[key] = value

    def initial_value(self, key: str, like: ir.Value) -> ir.Value:
        """Return what a variable holds before it is assigned such a value, for the case that it is not."""
        value = self.load(key, self._names[key], like.dtype, dims(like)) if like.dtype is not None else None
        if value is None:
            raise Unsupported("a variable without a value before a branch or loop assigns to it")
        return value

    def assigned(self, before: dict[str, ir.Value]) -> list[str]:
        """Return the variables that hold another value than before; to become an input is no assignment."""
        return [k for k, v in self.current.items() if before.get(k, self.inputs.get(k)) is not v]

    @property
    def begun_anew(self) -> list[str]:
        """The names of variables that would go on with what the run before left in them, and begin each run anew."""
        return [] if self.io else sorted(self.read & self.changed)

    @contextmanager
    def setting_up(self) -> Iterator[None]:
        """Assign within what the variables begin with."""
        if self._in_runs is None:
            self._in_runs = _assigned_in_runs(self.model)
        before, self._set_up = set(self.changed), self._in_runs
        yield
        self.changed, self._set_up = before, None

    @contextmanager
    def forgetting(self) -> Iterator[dict[str, ir.Value]]:
        """Forget what is assigned within, which may not run: yields the values before.

        Variables that became inputs within stay inputs.
        """
        before = dict(self.current)
        try:
            yield before
        finally:
            self.current = {**self.inputs, **before}

    def finish(self) -> list[Variable]:
        """Make first values constants of the model; return the variables that begin each run anew."""
        anew, described = set(self.begun_anew), []
        for key, (value, tensor) in self._begun.items():
            name, assigned = self._names[key], self.current[key]
            value.const_value = copy(tensor)
            value.const_value.name = value.name
            self.builder.initializers.append(value)
            if name in anew and assigned is not value:
                described.append(Variable(name, value.name or "", assigned.name or "", len(value.uses())))
        return described

    def outputs(self) -> list[ir.Value]:
        """`NAME_next` for every variable that was read or assigned; the runs' interface is complete after this."""
        next_values = []
        for key, value in self.current.items() if self.io else ():
            if value.dtype is None:
                raise ValueError(f"{value.name} has no type")
            graph_input = self.inputs.get(key)
            name = f"{graph_input.name if graph_input is not None else self._names[key]}_next"
            (last,) = self.builder.emit("Identity", [value], [(name, value.dtype, dims(value))])
            last.metadata_props["relayout.state"] = key
            if graph_input is not None:
                graph_input.metadata_props["relayout.state"] = key
                if self.initial.get(key):
                    graph_input.metadata_props[INITIAL] = self.initial[key]
            next_values.append(last)
        return next_values


def variable_name(operator: Operator) -> str:
    """Return the name of the variable to which a VAR_HANDLE refers."""
    fields = operator.options.fields if operator.options else {}
    return "/".join(part for part in (fields.get("container"), fields.get("shared_name")) if part) or "variable"


def _assigned_in_runs(model: Model) -> set[str]:
    """Return the names of variables that some operator may assign to outside of what sets them up."""
    operators = [(index, each) for index, graph in enumerate(model.subgraphs) for each in graph.operators]
    handles = {
        (index, each.outputs[0]): variable_name(each)
        for index, each in operators
        if each.name == "VAR_HANDLE" and each.outputs
    }
    calls = (each.options for _, each in operators if each.name == "CALL_ONCE")
    setting_up = {options.fields.get("init_subgraph_index") for options in calls if options is not None}
    assigned = {
        handles.get((index, each.inputs[0]))
        for index, each in operators
        if each.name == "ASSIGN_VARIABLE" and each.inputs and index not in setting_up
    }
    return set(handles.values()) if None in assigned else {name for name in assigned if name is not None}


def initial_text(value: ir.Value) -> str:
    """A constant as JSON: the one number that it holds everywhere, or all of them if they are few; else nothing."""
    if value.const_value is None or 0 in dims(value) or value.const_value.size > MAX_INITIAL:
        return ""
    numbers = value.const_value.numpy()
    first = numbers.reshape(-1)[0]
    return json.dumps(first.item() if np.all(numbers == first) else numbers.tolist())
