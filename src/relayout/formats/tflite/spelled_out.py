"""A builtin that ONNX has no operator for and spells out, and how its nodes say which builtin they were.

The node in the middle of them (a Scan) has the description of the builtin in its metadata `tflite.builtin`: options,
operands by the names of their values, and what integers mean. Whoever writes a `.tflite` again writes that builtin. The
description is true of the nodes as they were written alone: `tflite.digest` is a digest of them, and after any change
of theirs the description counts for nothing. Another extent of the batch is no such change, where relayout makes it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir

from relayout.formats.tflite.container.builtin_options import OPTIONS
from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import Quantization, Tensor
from relayout.formats.tflite.container.schema import SCHEMA
from relayout.graph.source_names import SOURCE
from relayout.layout.stored_as import Holds

BUILTIN, DIGEST = "tflite.builtin", "tflite.digest"
"""Metadata of the node in the middle."""
DOMAIN = "tflite"
"""The domain of nodes that are builtins, before a `.tflite` is written."""
SMALL = 64
"""Elements of constants up to which they count for the digest: scales and limits, and no weights."""
LARGEST_OPTION = 127
"""Numbers of options are enumerations, switches and limits."""
VIEWS = ("Reshape", "Transpose")
"""Operators that layouts put between others."""
REORDERED = re.compile(r"(.*)__p(\d+)")
"""The name of a value that is stored in another order of axes: the source's name, and the order."""
SHORT = 32
"""Hexadecimal digits of a digest."""


class Operand(NamedTuple):
    """A tensor of a builtin.

    Args:
        type: its element type.
        shape: its extents.
        quantization: what its integers mean.
        name: the value that it is, or that a variable begins each run with; "": the runtime keeps it from run to run.
            A value holds it that has this name, or says so in its metadata.
        variable: whether it is a variable.
    """

    type: TensorType
    shape: tuple[int, ...]
    quantization: Quantization | None
    name: str = ""
    variable: bool = False

    @staticmethod
    def of(tensor: Tensor, name: str = "") -> Operand:
        """Describe a tensor of a file."""
        return Operand(tensor.type, tensor.shape, tensor.quantization, name, tensor.is_variable)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        found: dict[str, Any] = {"type": self.type.name, "shape": list(self.shape)}
        if self.quantization is not None:
            scale, zero, axis = self.quantization
            found |= {"scale": [float(each) for each in scale], "zero_point": zero.tolist(), "axis": int(axis)}
        return found | ({"name": self.name} if self.name else {}) | ({"variable": True} if self.variable else {})

    @staticmethod
    def from_json(found: Mapping[str, Any]) -> Operand:
        """Read what `to_json` wrote."""
        meaning = None
        if "scale" in found:
            scale, zero = np.array(found["scale"], np.float32), np.array(found["zero_point"], np.int64)
            meaning = Quantization(scale, zero, int(found["axis"]))
        shape = tuple(int(dim) for dim in found["shape"])
        kind, variable = TensorType[found["type"]], bool(found.get("variable"))
        return Operand(kind, shape, meaning, str(found.get("name", "")), variable)


class Builtin(NamedTuple):
    """A builtin that was spelled out.

    Args:
        name: the builtin.
        options: its options, where they are not the schema's defaults.
        inputs: its operands; None for one left out.
        outputs: its results, in the file's order of axes.
        intermediates: what it computes between them.
    """

    name: str
    options: Mapping[str, int | float | bool]
    inputs: tuple[Operand | None, ...]
    outputs: tuple[Operand, ...]
    intermediates: tuple[Operand, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        """The names of its operands."""
        return frozenset(each.name for each in self.inputs if each is not None and each.name)

    def dump(self) -> str:
        """Return it as a text."""
        data = {
            "name": self.name,
            "options": dict(self.options),
            "inputs": [None if each is None else each.to_json() for each in self.inputs],
            "outputs": [each.to_json() for each in self.outputs],
            "intermediates": [each.to_json() for each in self.intermediates],
        }
        return json.dumps(data, separators=(",", ":"))

    @staticmethod
    def parse(text: str) -> Builtin | None:
        """Read what `dump` wrote; None where it is something else."""
        try:
            data = json.loads(text)
            found = Builtin(
                str(data["name"]),
                dict(data["options"]),
                tuple(None if each is None else Operand.from_json(each) for each in data["inputs"]),
                tuple(map(Operand.from_json, data["outputs"])),
                tuple(map(Operand.from_json, data["intermediates"])),
            )
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            return None
        return found if found.is_sound else None

    @property
    def known_options(self) -> frozenset[str]:
        """The names of the options that the schema has."""
        return frozenset(row.name for row in SCHEMA.tables.get(OPTIONS.get(self.name, ""), ()))

    @property
    def is_sound(self) -> bool:
        """True if a file can state it: the schema has its options, and no number is out of range."""
        fits = self.options.keys() <= self.known_options
        small = all(isinstance(each, int | float) and abs(each) <= LARGEST_OPTION for each in self.options.values())
        tensors = [each for each in (*self.inputs, *self.outputs, *self.intermediates) if each is not None]
        dims = [dim for each in tensors for dim in each.shape]
        return fits and small and len(tensors) <= SMALL and all(0 <= dim < 1 << 31 for dim in dims)


def nodes_of(graph: ir.Graph, source: str) -> list[ir.Node]:
    """Return the nodes that an operator of a `.tflite` was spelled out in, with the views between them."""
    found = {node for node in graph if node.metadata_props.get(SOURCE) == source}
    for node in graph:
        before = node.inputs[0].producer() if node.op_type in VIEWS and node.inputs[0] is not None else None
        users = [use.node for value in node.outputs for use in value.uses()]
        if SOURCE not in node.metadata_props and before in found and users and all(each in found for each in users):
            found.add(node)
    return [node for node in graph if node in found]


def stamp_builtins(model: ir.Model) -> None:
    """Say of each builtin that is spelled out what its nodes are now, in place."""
    for node, current in _digests(model):
        node.metadata_props[DIGEST] = current


@contextmanager
def restamping(model: ir.Model) -> Iterator[None]:
    """Change nodes so that each builtin that they spell out is the same: what was true of it before is said again."""
    described = {node for node, current in _digests(model) if node.metadata_props.get(DIGEST) == current}
    yield
    for node, current in _digests(model) if described else ():
        if node in described:
            node.metadata_props[DIGEST] = current


def _digests(model: ir.Model) -> Iterator[tuple[ir.Node, str]]:
    """Yield the nodes that describe a builtin, each with the digest of the nodes that spell it out."""
    for node in model.graph:
        builtin = Builtin.parse(node.metadata_props.get(BUILTIN, ""))
        if builtin is not None:
            yield node, digest(nodes_of(model.graph, node.metadata_props.get(SOURCE, "")), builtin.names)


def digest(nodes: Iterable[ir.Node], operands: Collection[str]) -> str:
    """Return a digest of nodes: their operators, attributes, names, and the small constants that they read.

    Args:
        nodes: the nodes.
        operands: names of constants that may change: the builtin reads what they hold.
    """
    import hashlib  # few models need it

    found = hashlib.sha256()
    for node in nodes:
        for part in _parts(node, operands):
            found.update(part + b"\0")
    return found.hexdigest()[:SHORT]


def name_and_order(name: str) -> tuple[str, list[int] | None]:
    """Return the name of the source's value, and the order of axes in which it is stored, if it is another one."""
    found = REORDERED.fullmatch(name)
    return (name, None) if found is None else (found[1], [int(digit) for digit in found[2]])


def _parts(node: ir.Node, operands: Collection[str]) -> Iterator[bytes]:
    yield f"{node.domain}:{node.op_type}".encode()
    for value in node.inputs:
        name = "" if value is None else value.name or ""
        yield name.encode()
        is_computed = value is None or value.producer() is not None  # what extents give is known after inference alone
        constant = None if value is None or is_computed else value.const_value
        if constant is not None and constant.size <= SMALL and name_and_order(name)[0] not in operands:
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
                yield from _parts(inner, operands)
        else:
            yield ir.serde.serialize_attribute(attribute).SerializeToString(deterministic=True)
