"""What is covered, from the registries and from what the tests' cases exercised."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from typing import Any

from relayout import terminal
from relayout.formats.tflite.container.enums import BUILTIN_OPERATORS
from relayout.formats.tflite.importing.registry import entries
from relayout.rules import registry
from relayout.terminal import tabled

# Builtin operators that are not translated, and why not.

REASONS = {  # operator -> what stands in the way
    "CALL": "no TFLite runtime has a kernel for it",
    "CONCAT_EMBEDDINGS": "no TFLite runtime has a kernel for it",
    "CUSTOM": "a custom operator is known by its code, not by this number",
    "DELEGATE": "stands for operators that a delegate has swallowed; converters never write it",
    "LSH_PROJECTION": "hashes the bytes of real numbers (FarmHash)",
    "PLACEHOLDER_FOR_GREATER_OP_CODES": "not an operator: numbers above 127 are in another field",
    "SKIP_GRAM": "takes strings apart; ONNX has no string operators for it",
    "STABLEHLO_CUSTOM_CALL": "calls a function of the exporter's own runtime by name",
    "STABLEHLO_RNG_BIT_GENERATOR": "bits of a random generator that ONNX does not have (Philox, Threefry)",
}


def untranslated() -> dict[str, str]:
    """Return every builtin operator without a translation, with the reason."""
    return {name: REASONS.get(name, "not yet") for name in BUILTIN_OPERATORS if name not in entries()}


Row = dict[str, Any]  # column -> a text, or a list of texts or numbers

Tables = dict[str, list[Row]]  # table -> rows; every row of a table has the same columns

TITLES = {
    "onnx": "ONNX operators with a layout rule",
    "tflite": "TensorFlow Lite operators that are read",
    "tflite_refused": "TensorFlow Lite operators that are not",
    "to_tflite": "ONNX operators that are written to TensorFlow Lite",
}


PARTS = {"onnx": ("onnx",), "tflite": ("tflite", "tflite_refused"), "to_tflite": ("to_tflite",)}
"""What can be asked for -> the tables it consists of."""

LEGENDS = {  # what stands above a table
    "onnx": """\
A *layout-sensitive* operator lists the orders that it runs in; a *layout-agnostic* one follows its operands; the
signature says which axes of its operands are the same axis ([design](design.md)). An operator that is not listed is a
barrier: its operands keep the source's order. Every rule is held to its law by running the operator in another order.
""",
    "tflite": """\
- **numbers**: element types of the data in which a case ran and agreed with LiteRT's interpreter. `q` has a scale;
  `float32 × int8 q` is float data with quantized weights.
- **numpy**: the same, held against numpy, because LiteRT has no kernel for it; MediaPipe's, against MediaPipe.
- **becomes**: the last brackets have the ONNX operators that the text does not name, without the Transposes, Reshapes,
  Casts and quantization around them.
- **refused**: the reasons that its translation may give for not taking a use of it. Element types that ONNX lacks, and
  texts, are refused everywhere but where they are named.
""",
}

DEFINED = "The operators by which the standard defines it."
"""How the table lists an operator that has a definition and no exporter."""
LONG = ("numpy", "versions", "ONNX", "refused", "before layouts")
"""Columns that are shown only where one table is asked for."""


def tables(
    part: str | None = None,  # `onnx`, `tflite` or `to_tflite`; by default all
) -> Tables:
    """Return ONNX operators with class and signature, and TensorFlow Lite operators with what they become, or why not.

    Then ONNX operators with what they become in a `.tflite`.
    """
    shown: dict[str, Row] = json.loads((files("relayout.formats.tflite") / "exercised.json").read_text("utf-8"))
    nothing: Row = {"litert": [], "numpy": [], "versions": [], "onnx": [], "refused": []}
    all_tables: Tables = {
        "onnx": [
            {"operator": f"{rule.domain}:{name}" if rule.domain else name, "class": rule.kind, "signature": rule.line}
            for (_, name), rule in registry().items()
        ],
        "tflite": [
            {
                "operator": entry.name,
                "numbers": (row := shown.get(entry.name, nothing))["litert"],
                "numpy": row["numpy"],
                "versions": row["versions"],
                "ONNX": row["onnx"],
                "becomes": entry.summary,
                "refused": row["refused"],
            }
            for entry in entries().values()
        ],
        "tflite_refused": [{"operator": name, "reason": reason} for name, reason in untranslated().items()],
        "to_tflite": _to_tflite(),
    }
    return all_tables if part is None else {name: all_tables[name] for name in PARTS[part]}


def _to_tflite() -> list[Row]:
    """Return the operators of which a case ran in LiteRT: as what it was written, and what was refused."""
    from relayout.formats.tflite.exporting.ml_definitions import summaries
    from relayout.formats.tflite.exporting.registry import entries as exports
    from relayout.targets.litert.table import TARGET

    shown: dict[str, Row] = json.loads((files("relayout.formats.tflite") / "exported.json").read_text("utf-8"))
    lowered = {row.op_type: (row.steps.__doc__ or "").strip().partition("\n")[0] for row in TARGET.expansions}
    named = {f"{domain}:{name}" if domain else name: entry.summary for (domain, name), entry in exports().items()}
    written = {**summaries(), **named}
    return [
        {
            "operator": name,
            "numbers": row["numbers"],
            "becomes": written.get(name) or lowered.get(name) or DEFINED,
            "refused": row["refused"],
            "before layouts": lowered.get(name, ""),
        }
        for name, row in shown.items()
    ]


def show(part: str | None = None) -> None:
    """Print the tables: of one part whole, of all in short."""
    for name, rows in tables(part).items():
        columns = [column for column in (rows[0] if rows else ()) if part is not None or column not in LONG]
        cells = [[_text(row[column]) for column in columns] for row in rows]
        terminal.show(tabled(*columns, rows=cells, title=f"{TITLES[name]}: {len(rows)}"))


def markdown(part: str) -> str:
    """Return the page of documentation for `onnx` or `tflite`."""
    lines = [f"# {TITLES[part]}", "", f"The table is generated; `relayout ops --{part}` prints it, too.", ""]
    lines += [LEGENDS[part].rstrip(), ""]
    for name, rows in tables(part).items():
        lines += [] if name == part else ["", f"## {TITLES[name]}: {len(rows)}", ""]
        lines += [f"| {' | '.join(_on_page(rows[0]))} |", "|---" * len(_on_page(rows[0])) + "|"]
        for row in map(_on_page, rows):
            lines.append("| " + " | ".join(_text(cell).replace("|", "\\|") for cell in row.values()) + " |")
    return "\n".join(lines) + "\n"


def _on_page(row: Row) -> Row:
    """Return a row as the page has it: ONNX operators that `becomes` does not name stand behind it."""
    if "ONNX" not in row:
        return row
    named = set(re.findall(r"\w+", row["becomes"]))
    others = [name for name in row["ONNX"] if name not in named]
    becomes = f"{row['becomes']} ({', '.join(others)})" if others else row["becomes"]
    return {name: cell for name, cell in {**row, "becomes": becomes}.items() if name not in ("versions", "ONNX")}


def _text(cell: Any) -> str:
    return ", ".join(map(str, cell)) if isinstance(cell, list) else str(cell)
