"""What is covered, from the registries."""

from __future__ import annotations

from relayout.formats.tflite.impossible import untranslated
from relayout.formats.tflite.registry import entries
from relayout.rules import registry

Tables = dict[str, list[dict[str, str]]]
"""Table -> rows; every row of a table has the same columns."""

TITLES = {
    "onnx": "ONNX operators with a layout rule",
    "tflite": "TensorFlow Lite operators that are read",
    "tflite_refused": "TensorFlow Lite operators that are not",
}


def tables() -> Tables:
    """ONNX operators with class and signature; TensorFlow Lite operators with what they become, or why they do not."""
    return {
        "onnx": [
            {"operator": f"{rule.domain}:{name}" if rule.domain else name, "class": rule.kind, "signature": rule.line}
            for (_, name), rule in registry().items()
        ],
        "tflite": [{"operator": entry.name, "becomes": entry.summary} for entry in entries().values()],
        "tflite_refused": [{"operator": name, "reason": reason} for name, reason in untranslated().items()],
    }


def show(found: Tables) -> None:
    """Print the tables."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    for name, rows in found.items():
        title = f"{TITLES[name]}: {len(rows)}"
        table = Table(*(rows[0] if rows else ()), title=title, box=None, title_justify="left", pad_edge=False)
        for row in rows:
            table.add_row(*row.values())
        console.print(table)
