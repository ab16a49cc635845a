"""A builtin that ONNX has no operator for and spells out, and how its nodes say which builtin they were.

The node in the middle of them (a Scan) has the description of the builtin in its metadata `tflite.builtin`: options,
operands by the names of their values, and what integers mean. Whoever writes a `.tflite` again writes that builtin. The
description is true of the nodes as they were written alone: `tflite.digest` is a digest of them, and after any change
of theirs the description counts for nothing. Another extent of the batch is no such change, where relayout makes it.
"""

import json
import math
import re
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.formats.flatbuffer import SCALARS, FieldRow
from relayout.formats.tflite.container.enums import BUILTIN_OPERATORS, TensorType
from relayout.formats.tflite.container.model import Quantization, Tensor
from relayout.formats.tflite.container.schema import OPTIONS, SCHEMA
from relayout.graph.source_names import SOURCE
from relayout.graph.subgraphs import all_graphs
from relayout.layout.stored_as import Holds

BUILTIN, DIGEST = "tflite.builtin", "tflite.digest"  # metadata of the node in the middle
ROUNDED, ASYMMETRIC, SYMMETRIC = "tflite.rounded", "asymmetric", "symmetric"
"""Metadata of the DequantizeLinear of weights in a loop that is one operator: products with them round rows to 8 bits,
around zero or not. It counts where a recurrent operator reads these weights."""
DOMAIN = "tflite"  # the domain of nodes that are builtins, before a `.tflite` is written
SMALL = 64  # elements of constants up to which they count for the digest: scales and limits, and no weights
LARGEST_ENUMERATION = 127  # Enumerations of options are bytes
_OTHERS = """
CALL CALL_ONCE IF WHILE STABLEHLO_CASE STABLEHLO_COMPOSITE STABLEHLO_REDUCE STABLEHLO_REDUCE_WINDOW STABLEHLO_SCATTER
STABLEHLO_SORT STABLEHLO_WHILE STABLEHLO_CUSTOM_CALL
VAR_HANDLE READ_VARIABLE ASSIGN_VARIABLE HASHTABLE HASHTABLE_FIND HASHTABLE_IMPORT HASHTABLE_SIZE
CUSTOM DELEGATE PLACEHOLDER_FOR_GREATER_OP_CODES
RESHAPE SQUEEZE EXPAND_DIMS TRANSPOSE CAST DEQUANTIZE DENSIFY SHAPE RANK STABLEHLO_RESHAPE STABLEHLO_TRANSPOSE
STABLEHLO_CONVERT
"""
RESTORABLE = frozenset(BUILTIN_OPERATORS) - frozenset(_OTHERS.split())
"""Builtins that nodes may say that they were: none with subgraphs or resources, and none that only views a tensor."""
CUSTOM = "CUSTOM "
RESTORABLE_CUSTOM = frozenset(["AudioSpectrogram", "Mfcc", "TFLite_Detection_PostProcess"])
"""Custom operators that nodes may say that they were: those that LiteRT has kernels for."""
LONGEST_OPTIONS = 1 << 12  # bytes of a custom operator's options
VIEWS = ("Reshape", "Transpose")  # operators that layouts put between others


def is_restorable(name: str) -> bool:
    """Return whether nodes may say that they were this builtin, or `CUSTOM` operator."""
    return name in RESTORABLE or (name.startswith(CUSTOM) and name.removeprefix(CUSTOM) in RESTORABLE_CUSTOM)


class Operand(NamedTuple):
    """A tensor of a builtin."""

    type: TensorType  # its element type
    shape: tuple[int, ...]  # its extents
    quantization: Quantization | None  # what its integers mean
    # the value that it is, or that a variable begins each run with; "": the runtime keeps it from run to run. A value
    # holds it that has this name, or says so in its metadata.
    name: str = ""
    variable: bool = False  # whether it is a variable
    scales: str = ""  # the value that holds its scales, where it is a constant with several; its zero points are 0
    numbers: tuple[int | float, ...] | None = None  # the elements of a small constant, row-major, which no value holds

    @staticmethod
    def of(tensor: Tensor, name: str = "") -> "Operand":
        """Describe a tensor of a file."""
        return Operand(tensor.type, tensor.shape, tensor.quantization, name, tensor.is_variable)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        fields: dict[str, Any] = {"type": self.type.name, "shape": list(self.shape)}
        if self.quantization is not None:
            scale, zero, axis = self.quantization
            numbers = {"scale": [float(each) for each in scale], "zero_point": zero.tolist()}
            fields |= {**({"scales": self.scales} if self.scales else numbers), "axis": int(axis)}
        if self.numbers is not None:
            fields["numbers"] = list(self.numbers)
        return fields | ({"name": self.name} if self.name else {}) | ({"variable": True} if self.variable else {})

    @staticmethod
    def from_json(fields: Mapping[str, Any]) -> "Operand":
        """Read what `to_json` wrote."""
        meaning = None
        if "scale" in fields:
            scale, zero = np.array(fields["scale"], np.float32), np.array(fields["zero_point"], np.int64)
            meaning = Quantization(scale, zero, int(fields["axis"]))
        elif "scales" in fields:
            meaning = Quantization(
                np.ones(2, np.float32), np.zeros(2, np.int64), int(fields["axis"])
            )  # until they are read
        shape = tuple(int(dim) for dim in fields["shape"])
        kind, variable = TensorType[fields["type"]], bool(fields.get("variable"))
        listed = fields.get("numbers")
        numbers = None if listed is None else tuple(n if isinstance(n, float) else int(n) for n in listed)
        name, scales = str(fields.get("name", "")), str(fields.get("scales", ""))
        return Operand(kind, shape, meaning, name, variable, scales, numbers)

    @property
    def array(self) -> NDArray[Any]:
        """The elements of a small constant.

        Raises:
            ValueError: they do not fit its shape.
            TypeError: they are of a type that NumPy does not know.
            OverflowError: one does not fit its type.
        """
        return np.array(self.numbers, np.dtype(self.type.name.lower())).reshape(self.shape)


class Builtin(NamedTuple):
    """A builtin that was spelled out."""

    name: str  # the builtin, or `CUSTOM` and the code of a custom operator
    options: Mapping[str, int | float | bool]  # its options, where they are not the schema's defaults
    inputs: tuple[Operand | None, ...]  # its operands; None for one left out
    outputs: tuple[Operand, ...]  # its results, in the file's order of axes
    intermediates: tuple[Operand, ...] = ()  # what it computes between them
    custom_options: bytes = b""  # those of a custom operator

    @property
    def op_type(self) -> str:
        """The type of the node that it is until a `.tflite` is written."""
        return self.name.removeprefix(CUSTOM)

    @property
    def names(self) -> frozenset[str]:
        """The names of the values that its operands and their scales are."""
        named = [name for each in self.inputs if each is not None for name in (each.name, each.scales)]
        return frozenset(filter(None, named))

    @property
    def has_numbers(self) -> bool:
        """True if it has constants that no value holds: then they must follow from what the nodes are."""
        return any(each is not None and each.numbers is not None for each in self.inputs)

    def dump(self) -> str:
        """Return it as a text."""
        data: dict[str, Any] = {
            "name": self.name,
            "options": dict(self.options),
            "inputs": [None if each is None else each.to_json() for each in self.inputs],
            "outputs": [each.to_json() for each in self.outputs],
        }
        if self.intermediates:
            data["intermediates"] = [each.to_json() for each in self.intermediates]
        if self.custom_options:
            data["custom_options"] = self.custom_options.hex()
        return json.dumps(data, separators=(",", ":"))

    @staticmethod
    def parse(text: str) -> "Builtin | None":
        """Read what `dump` wrote; None where it is something else."""
        try:
            data = json.loads(text)
            builtin = Builtin(
                str(data["name"]),
                dict(data["options"]),
                tuple(None if each is None else Operand.from_json(each) for each in data["inputs"]),
                tuple(map(Operand.from_json, data["outputs"])),
                tuple(map(Operand.from_json, data.get("intermediates", ()))),
                bytes.fromhex(data.get("custom_options", "")),
            )
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            return None
        return builtin if builtin.is_sound else None

    @property
    def known_options(self) -> frozenset[str]:
        """The names of the options that the schema has."""
        return frozenset(row.name for row in SCHEMA.tables.get(OPTIONS.get(self.name, ""), ()))

    @property
    def has_reals(self) -> bool:
        """True if it reads or gives real numbers."""
        return any(each is not None and each.type == TensorType.FLOAT32 for each in (*self.inputs, *self.outputs))

    @property
    def has_variables(self) -> bool:
        """True if it keeps anything from run to run."""
        return any(each is not None and each.variable for each in self.inputs)

    @property
    def counts_elements(self) -> bool:
        """True if it says extents: numbers of its own, lists in its options, or a number of results."""
        return (
            self.has_numbers or "num" in self.options or any(isinstance(each, list) for each in self.options.values())
        )

    def switch(self, name: str) -> int:
        """Return the value of an option that is a switch: the schema's default where the description says none."""
        defaults = {row.name: row.default for row in SCHEMA.tables.get(OPTIONS.get(self.name, ""), ())}
        return int(self.options.get(name, defaults.get(name, 0)))

    @property
    def is_sound(self) -> bool:
        """True if a file can state it: the schema has its options, and no number is out of range."""
        rows = {row.name: row for row in SCHEMA.tables.get(OPTIONS.get(self.name, ""), ())}
        fits = all(name in rows and _fits(rows[name], each) for name, each in self.options.items())
        tensors = [each for each in (*self.inputs, *self.outputs, *self.intermediates) if each is not None]
        dims = [dim for each in tensors for dim in each.shape]
        is_short = len(self.custom_options) <= LONGEST_OPTIONS
        known = fits and is_short and len(tensors) <= SMALL and all(0 <= dim < 1 << 31 for dim in dims)
        return known and all(each.numbers is None or _has_array(each) for each in tensors)


def _fits(row: FieldRow, option: object) -> bool:
    """Return whether a file can hold a value of an option: a number, or a list of some."""
    if isinstance(option, list):
        inner = row._replace(type=row.type.strip("[]"))
        return row.type.startswith("[") and len(option) <= SMALL and all(_fits(inner, each) for each in option)
    scalar = SCALARS.get(SCHEMA.enums.get(row.type, row.type))
    if scalar is None or not isinstance(option, int | float) or not math.isfinite(option):
        return False
    try:
        scalar.pack(option)
    except (struct.error, OverflowError):
        return False
    return row.type not in SCHEMA.enums or abs(option) <= LARGEST_ENUMERATION


def _has_array(operand: Operand) -> bool:
    """Return whether the numbers of a small constant are what its type and shape say."""
    numbers = operand.numbers or ()
    try:
        return len(numbers) <= SMALL and operand.array.size == len(numbers)
    except (ValueError, TypeError, OverflowError):
        return False


# The nodes that a builtin was spelled out in, and digests of them: after a change a description counts for nothing.

REORDERED = re.compile(r"(.*)__p(\d+)")
"""The name of a value that is stored in another order of axes: the source's name, and the order."""
SHORT = 32  # Hexadecimal digits of a digest


class Spellings:
    """The nodes of a graph by the operator of a `.tflite` that they were made of, with the views between them."""

    def __init__(self, graph: ir.Graph) -> None:
        self._nodes: dict[str, list[ir.Node]] = {}
        owner: dict[ir.Node | None, str] = {}
        for node in graph:
            source = node.metadata_props.get(SOURCE)
            if source is not None:
                owner[node] = source
        before: dict[ir.Node | None, str] = {}
        """View of no operator -> the operator that gives what it views, over other views."""
        for node in graph:
            if node.op_type in VIEWS and node not in owner and node.inputs[0] is not None:
                producer = node.inputs[0].producer()
                if (source := owner.get(producer) or before.get(producer)) is not None:
                    before[node] = source
        for view, source in reversed(before.items()):
            users = [use.node for output in view.outputs for use in output.uses()] if view is not None else []
            if users and all(owner.get(user) == source for user in users):
                owner[view] = source
        for node in graph:
            if node in owner:
                self._nodes.setdefault(owner[node], []).append(node)

    def of(self, node: ir.Node) -> list[ir.Node]:
        """Return all nodes of the operator that a node was made of, in order."""
        return self._nodes.get(node.metadata_props.get(SOURCE, ""), [])


def stamp_builtins(model: ir.Model) -> None:
    """Say of each builtin that is spelled out what its nodes are now, in place."""
    for node, _, current in _digests(model):
        node.metadata_props[DIGEST] = current


@contextmanager
def restamping(model: ir.Model) -> Iterator[None]:
    """Change nodes so that each builtin that they spell out is the same: what was true of it before is said again.

    Constants that the description alone holds may follow from extents: where the nodes change, it counts for nothing.
    """
    before = {node: current for node, _, current in _digests(model)}
    true = {node for node, current in before.items() if node.metadata_props.get(DIGEST, current) == current}
    yield
    for node, builtin, current in _digests(model) if before else ():
        if node not in true or (builtin.counts_elements and current != before[node]):
            del node.metadata_props[BUILTIN]
        elif DIGEST in node.metadata_props:
            node.metadata_props[DIGEST] = current


def _digests(model: ir.Model) -> Iterator[tuple[ir.Node, Builtin, str]]:
    """Yield the nodes that describe a builtin, each with it and the digest of the nodes that spell it out."""
    for graph in all_graphs(model.graph):
        described = [node for node in graph if BUILTIN in node.metadata_props]
        spellings = Spellings(graph) if described else None
        for node in described:
            builtin = Builtin.parse(node.metadata_props[BUILTIN])
            if builtin is not None and spellings is not None:
                yield node, builtin, digest(spellings.of(node), builtin)


def digest(nodes: Iterable[ir.Node], builtin: Builtin) -> str:
    """Return a digest of nodes: their operators, attributes, names, and constants that they read.

    Constants that the builtin reads itself may change, and so may large ones; but no others where the description
    holds constants that they may follow from.
    """
    import hashlib  # few models need it

    hasher = hashlib.sha256()
    most = None if builtin.has_numbers else SMALL
    for node in nodes:
        for part in _parts(node, builtin.names, most):
            hasher.update(part + b"\0")
    return hasher.hexdigest()[:SHORT]


def name_and_order(name: str) -> tuple[str, list[int] | None]:
    """Return the name of the source's value, and the order of axes in which it is stored, if it is another one."""
    match = REORDERED.fullmatch(name)
    return (name, None) if match is None else (match[1], [int(digit) for digit in match[2]])


def _may_change(value: ir.Value, size: int, operands: Collection[str], most: int | None) -> bool:
    """Return whether a constant is an operand, which the builtin reads as it is, or larger than those that count."""
    if name_and_order(value.name or "")[0] in operands:
        return True
    return size > SMALL and (most is not None or tensor_in(value, operands) is not None)


def tensor_in(value: ir.Value, names: Collection[str]) -> Holds | None:
    """Return which tensor of a file a value holds, of some, and how; None where it holds none of them."""
    if value.name in names and value.shape is not None:
        return Holds.as_is(value.name or "", value.shape)
    return next((each for each in Holds.of(value.metadata_props) if each.name in names), None)


def _parts(node: ir.Node, operands: Collection[str], most: int | None) -> Iterator[bytes]:
    yield f"{node.domain}:{node.op_type}".encode()
    for value in node.inputs:
        yield b"" if value is None else (value.name or "").encode()
        # What extents give is known after inference alone.
        constant = None if value is None or value.producer() is not None else value.const_value
        if value is not None and constant is not None and not _may_change(value, constant.size, operands, most):
            yield constant.numpy().tobytes()
    yield b">"
    yield from ((value.name or "").encode() for value in node.outputs)
    for value in (*node.inputs, *node.outputs):
        yield b"" if value is None else value.metadata_props.get(Holds.KEY, "").encode()
    for name, attribute in sorted(node.attributes.items()):
        yield name.encode()
        if attribute.type == ir.AttributeType.GRAPH:
            body = attribute.as_graph()
            yield from ((value.name or "").encode() for value in (*body.inputs, *body.outputs))
            for inner in body:
                yield from _parts(inner, operands, most)
        else:
            yield ir.serde.serialize_attribute(attribute).SerializeToString(deterministic=True)


# How an ONNX model says that values were a `.tflite`'s state, which runtimes keep from run to run.

STATES = "tflite.states"  # metadata of an LSTM node that begins with zeros in every run
KEPT = "kept"
"""In the `.tflite` that it was read from, each run begins with what the last one left, and the first one with zeros."""
VARIABLES = "tflite.variables"  # metadata of a model whose values were resource variables
READ, ASSIGN = "READ_VARIABLE", "ASSIGN_VARIABLE"
"""Nodes of a model between the choice of layouts and the file: what a run begins with, and what it leaves."""
RESTORED = "tflite.restored"  # in the `meta` of such a node, in memory only: it was made of what the model says


class Variable(NamedTuple):
    """A resource variable."""

    name: str  # what its users share
    initial: str  # the value that holds what the first run begins with
    assigned: str  # the value that holds what a run leaves to the next one
    uses: int  # how often nodes read the first value. Where they are fewer or more, some may be computed beforehand.


def dump_variables(variables: Iterable[Variable]) -> str:
    """Return the metadata's text: a JSON list."""
    return json.dumps([variable._asdict() for variable in variables], separators=(",", ":"))


def load_variables(text: str) -> list[Variable]:
    """Read what `dump_variables` wrote; nothing where it is something else."""
    try:
        return [
            Variable(str(each["name"]), str(each["initial"]), str(each["assigned"]), int(each["uses"]))
            for each in json.loads(text)
        ]
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return []
