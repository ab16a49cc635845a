"""Write every generated table of the documents anew, from the registries: `python docs/make_tables.py`.

The tables of operators are made of test cases that run (`tests/formats/tflite/tflite_table.py`, and
`exporting/export_table.py` for `relayout ops --to-tflite`); those of targets of the targets themselves.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MARK = "<!-- From here on: written by `relayout.reports.backends.markdown`. -->\n"


def targets() -> None:
    """Write the tables of `docs/target-tables.md`."""
    from relayout.reports.backends import markdown

    page = ROOT / "docs" / "target-tables.md"
    head, mark, _ = page.read_text(encoding="utf-8").partition(MARK)
    if not mark:
        raise SystemExit(f"{page} has no line {MARK.strip()!r}")
    page.write_text(f"{head}{mark}\n{markdown().strip()}\n", encoding="utf-8")


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
    targets()
    rules()
    tests = ROOT / "tests" / "formats" / "tflite"
    scripts = (tests / "tflite_table.py", tests / "exporting" / "export_table.py")
    codes = [subprocess.run([sys.executable, str(script)], check=False).returncode for script in scripts]
    raise SystemExit(max(codes))
