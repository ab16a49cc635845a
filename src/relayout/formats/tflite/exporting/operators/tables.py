"""Tables from keys to values."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.exporting.constants import text_constant
from relayout.formats.tflite.exporting.draft import DraftTensor
from relayout.formats.tflite.exporting.ml_definitions import DOMAIN
from relayout.formats.tflite.exporting.node import NodeExport
from relayout.formats.tflite.exporting.registry import Unwritable, exporter

NAN_IS_A_KEY = 4
"""The version of the domain from which on a key that is not a number is found: before, it is equal to nothing."""
SPARSE = 4  # how many times as many rows as keys a table may have in which each integer has its place
FEW = 1 << 10  # rows that such a table may have in any case
MOST = 1 << 28  # pairs of an element and a key that are compared


class Table(NamedTuple):
    """The keys of a LabelEncoder and their values."""

    keys: NDArray[Any]  # different ones
    values: NDArray[Any]  # one for each key
    default: NDArray[Any]  # the value of all that is no key: one element


@exporter("LabelEncoder", domain="ai.onnx.ml")
def label_encoder(op: NodeExport) -> None:
    """HASHTABLE_FIND between int64 and texts; else GATHER at the place of each key, which EQUAL finds."""
    table, operand = _table(op), op.input(0)
    kinds = {operand.type, op.output(0).type}
    if kinds == {TensorType.INT64, TensorType.STRING}:
        draft = op.draft
        handle = draft.tensor(f"{op.name}/table", TensorType.RESOURCE, (1,))
        draft.tables[handle] = (_constant(op, table.keys), _constant(op, table.values))
        op.result("HASHTABLE_FIND", [handle, operand, _constant(op, table.default)])
        return
    first = _first_row(table.keys)
    if first is not None:
        rows, places = _by_place(op, operand, table, first)
    else:
        rows, places = np.concatenate([table.default, table.values]), _by_comparing(op, operand, table)
    op.result("GATHER", [_constant(op, rows), places], axis=0)


def _constant(op: NodeExport, array: NDArray[Any]) -> DraftTensor:
    return text_constant(op.draft, f"{op.name}/texts", array) if array.dtype == object else op.const(array)


# The table.


def _table(op: NodeExport) -> Table:
    """Return the table of a node. If a key occurs twice, the first wins; of a class of version 1, the last."""
    version = op.graph.model.opset_imports.get(DOMAIN, 1)
    keys, values = _listed(op, "keys"), _listed(op, "values")
    if version == 1:
        classes = _listed(op, "classes")
        numbers = None if classes is None else np.arange(classes.size)
        keys, values = (classes, numbers) if op.input(0).type == TensorType.STRING else (numbers, classes)
    if keys is None or values is None or keys.size != values.size or not keys.size:
        raise Unwritable("a table without keys, or without a value for each")
    listed_keys = list(enumerate(keys.tolist()))
    order = listed_keys if version == 1 else reversed(listed_keys)
    places = {key: place for place, key in order if key == key}
    missing = [place for place, key in enumerate(keys.tolist()) if key != key]
    listed = sorted(places.values()) + (missing[:1] if version >= NAN_IS_A_KEY else [])
    chosen = np.array(listed, np.int64)
    return Table(keys[chosen], values[chosen], _default(op, values))


def _listed(op: NodeExport, name: str) -> NDArray[Any] | None:
    """Return the keys or values of a node, from the attribute that has them."""
    attributes = op.node.attributes
    if (tensor := attributes.get(f"{name}_tensor")) is not None:
        return _without_str(tensor.as_tensor().numpy().reshape(-1))
    if (texts := attributes.get(f"{name}_strings")) is not None:
        return _without_str(np.array(texts.as_strings(), object))
    if (integers := attributes.get(f"{name}_int64s")) is not None:
        return np.array(integers.as_ints(), np.int64)
    numbers = attributes.get(f"{name}_floats")
    return None if numbers is None else np.array(numbers.as_floats(), np.float32)


def _without_str(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array whose texts are `bytes`."""
    if array.dtype.kind not in "OUS":
        return array
    texts = [each.encode() if isinstance(each, str) else bytes(each) for each in array.tolist()]
    return np.array([*texts, None], object)[:-1]


def _default(op: NodeExport, values: NDArray[Any]) -> NDArray[Any]:
    """Return the value of what is no key, as an array of one element."""
    tensor = op.node.attributes.get("default_tensor")
    if tensor is not None:
        default = _without_str(tensor.as_tensor().numpy().reshape(-1))
        if default.dtype != values.dtype or default.size != 1:
            raise Unwritable("a default of another type than the values")
        return default
    if values.dtype == object:
        return _without_str(np.array([op.text("default_string", "_Unused")], object))
    if values.dtype.kind == "f":
        return np.array([op.number("default_float", -0.0)], values.dtype)
    return np.array([op.integer("default_int64", -1)], values.dtype)


# Where a key is.


def _first_row(keys: NDArray[Any]) -> int | None:
    """Return the integer before the smallest key, where a table may have a row for each integer; else None."""
    if keys.dtype.kind not in "iu":
        return None
    first, last = int(keys.min()) - 1, int(keys.max()) + 1
    limits = np.iinfo(keys.dtype)
    fits = limits.min <= first and last <= limits.max
    return first if fits and last - first <= max(FEW, SPARSE * keys.size) else None


def _by_place(op: NodeExport, operand: DraftTensor, table: Table, first: int) -> tuple[NDArray[Any], DraftTensor]:
    """Return a row for each integer from `first` on, and which of them each element has."""
    last = int(table.keys.max()) + 1
    rows = np.repeat(table.default, last - first + 1)
    rows[table.keys.astype(np.int64) - first] = table.values
    limited = op.minimum(op.maximum(operand, first), last)
    if operand.type not in (TensorType.INT64, TensorType.INT32):
        limited = op.cast(limited, TensorType.INT32)
    return rows, op.cast(op.sub(limited, first) if first else limited, TensorType.INT32)


def _by_comparing(op: NodeExport, operand: DraftTensor, table: Table) -> DraftTensor:
    """Return 1 + the place of the key that each element is, and 0 where there is none."""
    dims = operand.dims
    count = op.elements(dims, "elements")
    if isinstance(count, int) and count * table.keys.size > MOST:
        raise Unwritable("more elements and keys than can be compared")
    column = op.reshape(operand, (count, 1))
    is_number = np.array([key == key for key in table.keys.tolist()], np.bool_)
    keys = table.keys[is_number]
    places: DraftTensor | None = None
    if keys.size:
        same = op.compare("EQUAL", column, _constant(op, keys))
        numbered = op.select(same, op.ints(np.arange(1, keys.size + 1)), op.ints(np.array(0)))
        places = op.reduce("REDUCE_MAX", numbered, [1])
    if not is_number.all():
        missing = op.reshape(op.compare("NOT_EQUAL", column, column), (count,))
        otherwise = op.ints(np.array(0)) if places is None else places
        places = op.select(missing, op.ints(np.array(is_number.size)), otherwise)
    if places is None:  # all keys are no numbers, and equal to nothing
        nowhere = op.reshape(op.compare("LESS", column, column), (count,))
        places = op.cast(nowhere, TensorType.INT32)
    return op.reshape(places, dims, like=operand)
