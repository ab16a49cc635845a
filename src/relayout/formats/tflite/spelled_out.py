"""A builtin that ONNX has no operator for and spells out, and how its nodes say which builtin they were.

The node in the middle of them (a Scan) has the description of the builtin in its metadata `tflite.builtin`: options,
operands by the names of their values, and what integers mean. Whoever writes a `.tflite` again writes that builtin. The
description is true of the nodes as they were written alone: `tflite.digest` is a digest of them, and after any change
of theirs the description counts for nothing. Another extent of the batch is no such change, where relayout makes it.
"""

import json
import math
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from relayout.formats.flatbuffer import SCALARS, FieldRow
from relayout.formats.tflite.container.builtin_options import OPTIONS
from relayout.formats.tflite.container.enums import BUILTIN_OPERATORS, TensorType
from relayout.formats.tflite.container.model import Quantization, Tensor
from relayout.formats.tflite.container.schema import SCHEMA

BUILTIN, DIGEST = "tflite.builtin", "tflite.digest"
"""Metadata of the node in the middle."""
ROUNDED, ASYMMETRIC, SYMMETRIC = "tflite.rounded", "asymmetric", "symmetric"
"""Metadata of the DequantizeLinear of weights in a loop that is one operator: products with them round rows to 8 bits,
around zero or not. It counts where a recurrent operator reads these weights."""
DOMAIN = "tflite"
"""The domain of nodes that are builtins, before a `.tflite` is written."""
SMALL = 64
"""Elements of constants up to which they count for the digest: scales and limits, and no weights."""
LARGEST_ENUMERATION = 127
"""Enumerations of options are bytes."""
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
LONGEST_OPTIONS = 1 << 12
"""Bytes of a custom operator's options."""
VIEWS = ("Reshape", "Transpose")
"""Operators that layouts put between others."""


def is_restorable(name: str) -> bool:
    """Return whether nodes may say that they were this builtin, or `CUSTOM` operator."""
    return name in RESTORABLE or (name.startswith(CUSTOM) and name.removeprefix(CUSTOM) in RESTORABLE_CUSTOM)


class Operand(NamedTuple):
    """A tensor of a builtin.

    Args:
        type: its element type.
        shape: its extents.
        quantization: what its integers mean.
        name: the value that it is, or that a variable begins each run with; "": the runtime keeps it from run to run.
            A value holds it that has this name, or says so in its metadata.
        variable: whether it is a variable.
        scales: the value that holds its scales, where it is a constant with several; its zero points are 0.
        numbers: the elements of a small constant, row-major, which no value holds.
    """

    type: TensorType
    shape: tuple[int, ...]
    quantization: Quantization | None
    name: str = ""
    variable: bool = False
    scales: str = ""
    numbers: tuple[int | float, ...] | None = None

    @staticmethod
    def of(tensor: Tensor, name: str = "") -> "Operand":
        """Describe a tensor of a file."""
        return Operand(tensor.type, tensor.shape, tensor.quantization, name, tensor.is_variable)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        found: dict[str, Any] = {"type": self.type.name, "shape": list(self.shape)}
        if self.quantization is not None:
            scale, zero, axis = self.quantization
            numbers = {"scale": [float(each) for each in scale], "zero_point": zero.tolist()}
            found |= {**({"scales": self.scales} if self.scales else numbers), "axis": int(axis)}
        if self.numbers is not None:
            found["numbers"] = list(self.numbers)
        return found | ({"name": self.name} if self.name else {}) | ({"variable": True} if self.variable else {})

    @staticmethod
    def from_json(found: Mapping[str, Any]) -> "Operand":
        """Read what `to_json` wrote."""
        meaning = None
        if "scale" in found:
            scale, zero = np.array(found["scale"], np.float32), np.array(found["zero_point"], np.int64)
            meaning = Quantization(scale, zero, int(found["axis"]))
        elif "scales" in found:
            meaning = Quantization(
                np.ones(2, np.float32), np.zeros(2, np.int64), int(found["axis"])
            )  # until they are read
        shape = tuple(int(dim) for dim in found["shape"])
        kind, variable = TensorType[found["type"]], bool(found.get("variable"))
        listed = found.get("numbers")
        numbers = None if listed is None else tuple(n if isinstance(n, float) else int(n) for n in listed)
        name, scales = str(found.get("name", "")), str(found.get("scales", ""))
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
    """A builtin that was spelled out.

    Args:
        name: the builtin, or `CUSTOM` and the code of a custom operator.
        options: its options, where they are not the schema's defaults.
        inputs: its operands; None for one left out.
        outputs: its results, in the file's order of axes.
        intermediates: what it computes between them.
        custom_options: those of a custom operator.
    """

    name: str
    options: Mapping[str, int | float | bool]
    inputs: tuple[Operand | None, ...]
    outputs: tuple[Operand, ...]
    intermediates: tuple[Operand, ...] = ()
    custom_options: bytes = b""

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
            found = Builtin(
                str(data["name"]),
                dict(data["options"]),
                tuple(None if each is None else Operand.from_json(each) for each in data["inputs"]),
                tuple(map(Operand.from_json, data["outputs"])),
                tuple(map(Operand.from_json, data.get("intermediates", ()))),
                bytes.fromhex(data.get("custom_options", "")),
            )
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            return None
        return found if found.is_sound else None

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
