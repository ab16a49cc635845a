"""Open the batch of many networks, run each at several batches against its source row by row, and write the page.

    python bench/opening.py OUT.json FILE|FOLDER …      open and run the models, add what is found to OUT.json
    python bench/opening.py OUT.json --page PAGE.md     write the page of all that OUT.json holds

Every model goes to ONNX and to `.tflite` with `--batch N`. The result runs with the source's batch, where every value
is compared, and with batches of 3 and 7, which the source runs batch after batch. Folders are searched at any depth.
"""

from __future__ import annotations

import json
import multiprocessing
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tables import write_page

LIMIT_SECONDS = 300
FORMATS = ("onnx", "tflite")
OPENED, OPEN, BOUND, REFUSED, WRONG, UNLIKE = "opened", "open", "bound", "refused", "wrong", "unlike"
"""Of a model: its batch was opened and runs as it should; it was open; an operator binds it; it cannot be read, written
or run; numbers differ; they differ without an opened batch, too."""


def models(places: Sequence[str]) -> Iterator[Path]:
    for place in map(Path, places):
        if not place.exists():
            print(f"{place} is not there: left out", file=sys.stderr)
        elif place.is_dir():
            yield from sorted(path for path in place.rglob("*") if path.suffix in (".tflite", ".onnx"))
        else:
            yield place


def opened(path: Path, form: str) -> tuple[str, str]:
    """Open one model's batch and run the result: what became of it, and why."""
    import relayout
    from relayout.errors import RelayoutError
    from relayout.layout.stored_as import OPENED_BATCH
    from relayout.shapes import OpeningError

    try:
        result = relayout.convert(path, format=form, batch="N")
    except OpeningError as error:
        return BOUND, f"{error.operator} {error.reason}"
    except RelayoutError as error:
        return REFUSED, str(error)
    if OPENED_BATCH not in result.model.metadata_props:
        return OPEN, ""
    try:
        found = verified(path, result)
        wrong = [f"{row.name}: {row.verdict}" for row in found.outputs if not row.ok]
        if wrong and not verified(path, relayout.convert(path, format=form)).ok:
            return UNLIKE, wrong[0]
    except RelayoutError as error:
        return REFUSED, str(error)
    if not found.batches:
        wrong.append("it ran with the source's batch alone")
    return (WRONG, "; ".join(wrong)) if wrong else (OPENED, "")


def verified(path: Path, result: Any) -> Any:
    """Hold a result against its source, and return the report."""
    import relayout

    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / f"result.{result.format}"
        result.save(target)
        return relayout.verify(path, target)


def _child(path: Path, form: str, pipe: Any) -> None:
    try:
        pipe.send(opened(path, form))
    except BaseException as error:
        pipe.send(("failed", f"{type(error).__name__}: {error}"))


def judged(path: Path, form: str) -> tuple[str, str]:
    """Judge one model in a process of its own, which may crash or take too long."""
    mine, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=_child, args=(path, form, theirs))
    process.start()
    theirs.close()
    try:
        answer: tuple[str, str] = mine.recv() if mine.poll(LIMIT_SECONDS) else ("failed", "it takes too long")
    except EOFError:
        answer = ("failed", "the process ended")
    process.kill()
    process.join()
    return answer


def run(out: Path, places: Sequence[str]) -> None:
    rows: dict[str, dict[str, Any]] = json.loads(out.read_text()) if out.exists() else {}
    for path in models(places):
        row: dict[str, Any] = {"group": path.parent.name}
        for form in FORMATS:
            row[form] = judged(path, form)
        rows[path.name] = row
        print(path.name, *(row[form] for form in FORMATS), flush=True)
        out.write_text(json.dumps(rows, indent=1) + "\n")


def main() -> None:
    out, *places = sys.argv[1:]
    if places[:1] == ["--page"]:
        write_page(Path(places[1]), page(json.loads(Path(out).read_text())))
    else:
        run(Path(out), places)


HEAD = """# Networks whose batch opens

`relayout convert MODEL RESULT --batch N` was run on {models} networks, {onnx} of ONNX and {tflite} of TensorFlow Lite,
to ONNX and to `.tflite`. Each result runs with the source's batch, and with batches of 3 and 7, which the source runs
batch after batch. `python bench/opening.py` writes this page ([how to open a batch](how-to/batch.md)).

![Networks whose batch relayout opens](plots/opening.svg)

| | to ONNX | to `.tflite` |
|---|---:|---:|
"""
ROWS = {
    OPENED: "opened, and all outputs agree",
    OPEN: "the batch is open already",
    BOUND: "an operator binds the batch",
    REFUSED: "refused by a converter or a runtime, opened or not",
    UNLIKE: "an output differs, opened or not",
    WRONG: "an output differs",
    "failed": "failed",
}


def page(rows: dict[str, dict[str, Any]]) -> str:
    """Write the page: how many networks open, and each that does not, with the reason."""
    kinds = {name: sum(each.endswith(f".{name}") for each in rows) for name in FORMATS}
    text = HEAD.format(models=len(rows), **kinds)
    for kind, words in ROWS.items():
        counts = [sum(row[form][0] == kind for row in rows.values()) for form in FORMATS]
        if any(counts):
            text += f"| {words} | {counts[0]} | {counts[1]} |\n"
    text += "\n## Networks that do not open\n\n| network | result | why |\n|---|---|---|\n"
    for name, row in sorted(rows.items()):
        alike = row["onnx"] == row["tflite"]
        found = [("both", *row["onnx"])] if alike else [(form, *row[form]) for form in FORMATS]
        for form, kind, why in found:
            if kind not in (OPENED, OPEN):
                text += f"| `{name}` | {form} | {_told(why)} |\n"
    return text


def _told(why: str) -> str:
    """Shorten a reason to what a table holds: names of operators that are lists of names keep their first."""
    words = re.sub(r"'([^';]*);[^']*'", r"'\1'", " ".join(why.split())).partition("; --custom-op")[0]
    words = re.sub(r"'/\S*/result", "'result", words)
    return (words if len(words) < 240 else words[:240] + " …").replace("|", "\\|")


if __name__ == "__main__":
    main()
