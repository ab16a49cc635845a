"""The schema's rows against the bindings that the `onnxruntime` package carries."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import pytest

from relayout.formats.ort.loading import SCHEMA

FOLDER = Path(onnxruntime.__file__).parent / "tools" / "ort_format_model" / "ort_flatbuffers_py" / "fbs"
CALLS = {"UOffsetTRelative": "", "Int8": "int8", "Uint8": "uint8", "Int32": "int32", "Int64": "int64"} | {
    "Uint32": "uint32",
    "Float32": "float32",
    "Bool": "bool",
}
PASSED_OVER = {
    "InferenceSession": {3},
    "Graph": {3, 4},
    "Node": {4, 6, 7, 11, 12},
    "RuntimeOptimizationRecordContainerEntry": {1},
}
"""Table -> slots that are not read."""


@cache
def published(kind: str) -> dict[int, tuple[str, str, float, str]]:
    """Slot -> name, number (empty: a reference), default, and the accessor, of one table."""
    text = (FOLDER / f"{kind}.py").read_text()
    pattern = r"def (?:\w+?)Add(\w+)\(builder, \w+\):\n\s+builder\.Prepend(\w+?)Slot\((\d+), .*, (\S+)\)"
    found = {}
    for name, call, slot, default in re.findall(pattern, text):
        accessor = re.search(rf"    def {name}\(self.*?\):\n(.*?)(?=\n    # |\n    def |\Z)", text, re.S)
        found[int(slot)] = (name, CALLS[call], float(default), accessor.group(1) if accessor else "")
    return found


def named(text: str) -> str:
    return text.replace("_", "").lower()


@pytest.mark.parametrize("kind", SCHEMA.tables)
def test_rows_equal_the_published_schema(kind: str) -> None:
    theirs, ours = published(kind), {row.slot: row for row in SCHEMA.tables[kind]}
    assert set(theirs) == set(ours) | PASSED_OVER.get(kind, set())
    for slot, row in ours.items():
        name, number, default, accessor = theirs[slot]
        assert named(row.name) == named(name), (kind, slot)
        element = row.type.strip("[]")
        assert SCHEMA.enums.get(row.type, row.type if number else "") == number, (kind, name)
        assert row.type.startswith("[") == ("self._tab.Vector(o)" in accessor), (kind, name)
        if number:
            assert row.default == default, (kind, name)
        elif element in ("string", "bytes"):
            assert "self._tab.String(" in accessor, (kind, name)
        elif element in SCHEMA.unions:
            assert "self._tab.Union(" in accessor, (kind, name)
        elif element in SCHEMA.tables:
            assert f"obj = {element}()" in accessor, (kind, name)
        else:
            assert f"number_types.{element.capitalize()}Flags" in accessor, (kind, name)


def members(kind: str) -> dict[str, int]:
    return {name: int(value) for name, value in re.findall(r"(\w+) = (\d+)", (FOLDER / f"{kind}.py").read_text())}


def test_the_union_has_the_published_members() -> None:
    names = ["NONE", "tensor_type", "sequence_type", "map_type"]
    assert members("TypeInfoValue") == {name: number for number, name in enumerate(names)}
    assert SCHEMA.unions["TypeInfoValue"] == ("NONE", "TensorTypeAndShape", "SequenceType", "MapType")


@pytest.mark.parametrize(
    ("kind", "theirs"), [("AttributeType", onnx.AttributeProto.AttributeType), ("TensorDataType", onnx.TensorProto)]
)
def test_numbers_of_types_are_those_of_onnx(kind: str, theirs: Any) -> None:
    assert all(
        getattr(theirs, name, None) == number or theirs.Value(name) == number for name, number in members(kind).items()
    )


def test_dimensions_are_numbers_or_names() -> None:
    from relayout.formats.ort import loading

    assert members("DimensionValueType") == {"UNKNOWN": 0, "VALUE": loading._VALUE, "PARAM": loading._NAME}
