"""State: what a TFLite runtime keeps from one run to the next, and ONNX does not."""

import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from copy import copy
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from relayout.formats.tflite.container.model import Model, Operator
from relayout.formats.tflite.importing.builder import Builder, Dims, dims
from relayout.formats.tflite.importing.registry import Unsupported
from relayout.formats.tflite.spelled_out import Variable
from relayout.layout.stored_as import INITIAL

MAX_INITIAL = 4096  # elements of an initial value that goes into the metadata


class Handle(NamedTuple):
    """What a resource tensor refers to: a variable or a table, by the name that all its users share."""

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
        """A variable's value; None if it has none yet."""
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

    def held(self, key: str, like: ir.Value) -> ir.Value:
        """Return what a variable holds before it is assigned such a value, for the case that it is not."""
        value = self.load(key, self._names[key], like.dtype, dims(like)) if like.dtype is not None else None
        if value is None:
            raise Unsupported("a variable without a value before a branch or loop assigns to it")
        return value

    def assigned(self, before: dict[str, ir.Value]) -> list[str]:
        """The variables that hold another value than before; to become an input is no assignment."""
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
    def apart(self) -> Iterator[dict[str, ir.Value]]:
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
        made = []
        for key, value in self.current.items() if self.io else ():
            if value.dtype is None:
                raise ValueError(f"{value.name} has no type")
            given = self.inputs.get(key)
            name = f"{given.name if given is not None else self._names[key]}_next"
            (last,) = self.builder.emit("Identity", [value], [(name, value.dtype, dims(value))])
            last.metadata_props["relayout.state"] = key
            if given is not None:
                given.metadata_props["relayout.state"] = key
                if self.initial.get(key):
                    given.metadata_props[INITIAL] = self.initial[key]
            made.append(last)
        return made


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
