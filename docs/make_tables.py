"""Write every generated table of the documents anew, from the registries: `python docs/make_tables.py`.

The tables of operators are made of test cases that run (`tests/formats/tflite/tflite_table.py`, and
`exporting/export_table.py` for `relayout ops --to-tflite`); those of targets of the targets themselves.
"""

from __future__ import annotations

import json
import subprocess
import sys
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
    from relayout.lowering.passes import PASSES
    from relayout.targets import targets
    from relayout.targets.target_passes import TARGET_PASSES

    rows: dict[tuple[str, ...], list[str]] = {}
    for name, each in targets().items():
        for row in each.tflite().over_file:
            cells = (f"`{row.name}`", "file", "quantized tensors as kernels take them", *_facts(row))
            rows.setdefault(cells, []).append(name)
    for row in PASSES.values():
        own = TARGET_PASSES.get(row.name)
        names = [name for name, each in targets().items() if own and own.applies(each) and row.name in each.lowering]
        where = f"{row.stage.name.lower()}{', repeated' if row.repeats else ''}"
        rows[f"`{row.name}`", where, row.line, *_facts(row)] = names or [
            ".tflite",
            *["--dim"] * row.on_fixing,
            *["--target"] * row.for_targets,
        ]
    lines = [" | ".join((*cells, ", ".join(f"`{name}`" for name in names))) for cells, names in rows.items()]
    return PASSES_PAGE + "".join(f"| {line} |\n" for line in lines)


def _facts(row: Any) -> tuple[str, str]:
    return "; ".join(sorted(row.requires)), "; ".join(sorted(row.ends))


PASSES_PAGE = """# Passes

<!-- made by docs/make_tables.py -->

Every rewrite of a graph, in the order in which it runs. *File* is the `.tflite` that is read, *source* the graph as it
was read, *graph* the graph before layouts are chosen, *placed* after; *final* is the graph that is written, *draft* the
operators of a `.tflite` file. A pass that is repeated runs with its neighbours until none of them changes anything. The
last column names the targets for which a pass has something to do; a pass of `.tflite` runs for every such result,
and one of `--dim` for ONNX results of ONNX sources, too, where that option gives extents numbers, or none is open and
there is a target; one of `--target` for such results where there is one.

A target is refused when it is made if a pass requires what an earlier one ends.
[Write a target](how-to/own-target.md) says how a target lists its passes.

| pass | runs on | makes | requires | ends | for |
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
