"""The schema's rows against two published bindings."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import tflite
from ai_edge_litert import schema_py_generated

from relayout.formats.tflite.container.enums import (
    BUILTIN_OPERATORS,
    ActivationFunctionType,
    MirrorPadMode,
    Padding,
    TensorType,
)
from relayout.formats.tflite.container.schema import SCHEMA

WORDS = {"uint8", "int8", "uint16", "int32", "uint32", "int64", "uint64", "float32", "bool", "string"}


def sources(module: ModuleType) -> Iterator[tuple[str, str]]:
    """The classes of a generated binding: one file holds them all, or each has a file of its own."""
    folder = Path(inspect.getfile(module))
    for path in sorted(folder.parent.glob("*.py")) if folder.name == "__init__.py" else [folder]:
        text = path.read_text()
        lines = text.splitlines()
        for node in ast.parse(text).body:
            if isinstance(node, ast.ClassDef) and any(getattr(part, "name", "") == "Init" for part in node.body):
                yield node.name, "\n".join(lines[node.lineno - 1 : node.end_lineno])


@cache
def published(module: ModuleType) -> dict[str, dict[int, tuple[str, str, Any]]]:
    """The rows of a generated binding, read out of its accessors' source."""
    tables: dict[str, dict[int, tuple[str, str, Any]]] = {}
    for name, source in sources(module):
        rows = tables.setdefault(name, {})
        fields = set(re.findall(r"def (\w+)\(", source))
        for field, body in re.findall(r"    def (\w+)\(self(?:, j)?\):\n(.*?)(?=\n    # |\n    def |\Z)", source, re.S):
            base = re.sub(r"(AsNumpy|Length|IsNone)$", "", field)
            slot = re.search(r"Offset\((\d+)\)", body)
            if slot is None or (base != field and base in fields):
                continue
            vector = "self._tab.Vector(o)" in body
            flag, table = re.search(r"number_types\.(\w+)Flags, ", body), re.search(r"obj = (\w+)\(\)", body)
            if "self._tab.Union" in body:
                word = "union"
            elif "_tab.String" in body:
                word = "string"
            else:
                word = table.group(1) if table else flag.group(1).lower() if flag else "?"
            default = re.findall(r"return (\S+)\s*$", body)[-1]
            rows[(int(slot.group(1)) - 4) // 2] = (field, f"[{word}]" if vector else word, default)
    return tables


def plain(name: str) -> str:
    return name.replace("_", "").lower()


@pytest.mark.parametrize("module", [tflite, schema_py_generated], ids=["tflite", "litert"])
def test_rows_equal_the_published_schema(module: ModuleType) -> None:
    theirs = published(module)
    assert len(theirs) > 160
    for name, rows in theirs.items():
        ours = {row.slot: row for row in SCHEMA.tables[name]}
        # A newer schema may add slots at the end, never change one.
        assert set(rows) <= set(ours), name
        for slot, (field, word, default) in rows.items():
            row = ours[slot]
            assert plain(row.name) == plain(field), (name, slot)
            kind = SCHEMA.enums.get(row.type, "union" if row.type in SCHEMA.unions else row.type)
            assert kind == word, (name, field)
            if word in WORDS and word != "string" and default not in ("o", "None"):
                assert float(row.default) == float({"True": 1, "False": 0}.get(default, default)), (name, field)


def test_no_row_is_invented() -> None:
    theirs = published(schema_py_generated)
    assert {n: {r.slot for r in rows} for n, rows in SCHEMA.tables.items()} == {n: set(r) for n, r in theirs.items()}


def test_enums_and_unions_equal_the_published_ones() -> None:
    def members(name: str) -> dict[str, int]:
        return {
            k: v
            for k, v in vars(getattr(schema_py_generated, name)).items()
            if isinstance(v, int) and not k.startswith("__")
        }

    assert {n: i for i, n in enumerate(BUILTIN_OPERATORS)} == members("BuiltinOperator")
    for kind in (TensorType, Padding, ActivationFunctionType, MirrorPadMode):
        assert {m.name: m.value for m in kind} == members(kind.__name__)
    for name, union in SCHEMA.unions.items():
        assert {n: i for i, n in enumerate(union)} == members(name)
