"""Write every generated table of the documents anew, from the registries: `python docs/make_tables.py`.

The tables of operators are made of test cases that run (`tests/formats/tflite/tflite_table.py`, and
`exporting/export_table.py` for `relayout ops --to-tflite`); those of targets of the targets themselves.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MARK = "<!-- From here on: written by `relayout.reports.backends.markdown`. -->\n"


def targets() -> None:
    """The tables of `docs/targets.md`."""
    from relayout.reports.backends import markdown

    page = ROOT / "docs" / "targets.md"
    head, mark, _ = page.read_text(encoding="utf-8").partition(MARK)
    if not mark:
        raise SystemExit(f"{page} has no line {MARK.strip()!r}")
    page.write_text(f"{head}{mark}\n{markdown().strip()}\n", encoding="utf-8")


if __name__ == "__main__":
    targets()
    tests = ROOT / "tests" / "formats" / "tflite"
    scripts = (tests / "tflite_table.py", tests / "exporting" / "export_table.py")
    codes = [subprocess.run([sys.executable, str(script)], check=False).returncode for script in scripts]
    raise SystemExit(max(codes))
