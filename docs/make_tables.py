"""Write every generated table of the documents anew, from the registries: `python docs/make_tables.py`.

The tables of operators are made of test cases that run (`tests/formats/tflite/tflite_table.py`, and
`exporting/export_table.py` for `relayout ops --to-tflite`); those of targets of the targets themselves.
"""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "bench"))

from tables import files_of, write_files  # noqa: E402


def pages() -> dict[Path, str]:
    """Return `docs/target-tables.md` and `docs/passes.md` with their tables: path -> content.

    Raises:
        SystemExit: the first has no line behind which the tables stand.
    """
    from relayout.reports.backends import MARK, markdown

    page = ROOT / "docs" / "target-tables.md"
    head, mark, _ = page.read_text(encoding="utf-8").partition(MARK)
    if not mark:
        raise SystemExit(f"{page} has no line {MARK!r}")
    tables = files_of(page, f"{head}{mark}\n\n{markdown().strip()}\n", most=7)
    return tables | files_of(ROOT / "docs" / "passes.md", passes_page())


def passes_page() -> str:
    """Return every pass in order, what it requires and ends, and the targets that it works for."""
    from relayout.lowering.passes import FOR_TARGETS, LISTED_STAGES, ON_FIXING, PASSES, REPEATED, passes_for
    from relayout.targets import targets

    uses: dict[Any, list[str]] = {row: [] for row in PASSES.values()}
    for name, target in targets().items():
        for row in (*target.tflite().over_file, *passes_for(target)):
            uses.setdefault(row, []).append(name)
    lines = []
    for row, names in sorted(uses.items(), key=lambda use: use[0].stage):
        others = {".tflite": True, "--dim": row.name in ON_FIXING, "--target": row.name in FOR_TARGETS}
        always = [name for name, holds in others.items() if holds and row in PASSES.values()]
        users = names if row.stage in LISTED_STAGES else names or always
        stage = f"{row.stage.name.lower()}{', repeated' if row.name in REPEATED else ''}"
        facts = ("; ".join(sorted(each)) for each in (row.requires, row.ends))
        cells = (f"`{row.name}`", stage, does(row.loaded()), *facts, ", ".join(f"`{user}`" for user in users))
        lines.append(f"| {' | '.join(cells)} |\n")
    return PASSES_PAGE + "".join(lines)


def does(function: Callable[..., Any]) -> str:
    """Return what a pass does: the first sentence of its docstring, without what goes for all passes."""
    sentence = (inspect.getdoc(function) or "").partition("\n\n")[0].partition(".\n")[0]
    return re.sub(r",? in place(?! of)|[;,]( and)? return .*|\.$", "", " ".join(sentence.split()))


PASSES_PAGE = """# Passes

<!-- made by docs/make_tables.py -->

Every rewrite, in the order in which it runs. *File* is the `.tflite` that is read, *source* the graph as it was read,
*graph* the graph before layouts are chosen, *placed* after; *final* is the graph that is written, *export* one that
becomes a `.tflite`, *draft* the operators of that file, and *written* the file, behind quantization. A repeated pass
runs with its neighbours until none changes anything. The last column names targets. A pass of `.tflite` runs for every
such result. For ONNX results of ONNX sources one of `--dim` runs where that option gives numbers, or a target gets no
open extent; one of `--target` for any target.

A target that lists a pass behind one that ends what it requires [is refused](targets.md#a-pass-of-its-own).

| pass | runs on | does | requires | ends | for |
|---|---|---|---|---|---|
"""


def rules() -> None:
    """The list of modules that have rules, which lets a process load those alone that its model needs."""
    (ROOT / "src" / "relayout" / "rules" / "modules.json").write_text(modules_of_rules(), encoding="utf-8")


def modules_of_rules() -> str:
    """Return operator -> the module that has its rule, and whether it has layouts of its own: a line each."""
    from relayout.rules.registry import IMAGES, registry

    rows = {
        f"{rule.domain}:{rule.op_type}".removeprefix(":"): [
            rule.facts.__module__.rpartition(".")[2],  # the decorator stands on the rule itself
            *([IMAGES] if rule.layouts else []),
        ]
        for rule in registry().values()
        if not rule.place
    }
    return "{\n" + ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in sorted(rows.items())) + "\n}\n"


if __name__ == "__main__":
    write_files(pages())
    rules()
    tests = ROOT / "tests" / "formats" / "tflite"
    scripts = (tests / "tflite_table.py", tests / "exporting" / "export_table.py")
    codes = [subprocess.run([sys.executable, str(script)], check=False).returncode for script in scripts]
    raise SystemExit(max(codes))
