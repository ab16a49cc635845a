"""What is covered, from the registries."""

from __future__ import annotations

from typing import TypedDict

from relayout.formats.tflite.registry import entries
from relayout.rules import registry


class Tables(TypedDict):
    """The two tables of `relayout ops`."""

    onnx: list[dict[str, str]]
    tflite: list[dict[str, str]]


def tables() -> Tables:
    """ONNX operators with their class and signature; TensorFlow Lite operators with what they become."""
    onnx = [
        {"operator": f"{rule.domain}:{name}" if rule.domain else name, "class": rule.kind, "signature": rule.line}
        for (_, name), rule in registry().items()
    ]
    tflite = [
        {"operator": name, "becomes": line}
        for name, line in ((entry.name, entry.summary) for entry in entries().values())
    ]
    return {"onnx": onnx, "tflite": tflite}


def show(found: Tables) -> None:
    """Print both tables."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    for title, rows in (
        ("ONNX operators with a layout rule", found["onnx"]),
        ("TensorFlow Lite operators", found["tflite"]),
    ):
        table = Table(*rows[0], title=f"{title}: {len(rows)}", box=None, title_justify="left", pad_edge=False)
        for row in rows:
            table.add_row(*row.values())
        console.print(table)
