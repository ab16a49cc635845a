"""How long planning takes, for every form of every network, beside the table that the repository keeps.

    python bench/planning.py FOLDER [FOLDER ...]            # compare with bench/planning.json
    python bench/planning.py FOLDER [FOLDER ...] --write    # and write its rows anew

Each network is planned as `optimize` does, with `--to NHWC`, as a `.tflite`, and for targets. Counted are the processor
seconds of `pipeline.planning.planned`, the least of three runs, and whether the plan is proved. Printed is what takes
over a third longer than the table says, and 0.1 s more, and what lost its proof or moves more bytes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from time import process_time
from typing import Any

import relayout
from relayout.pipeline import planning, stages

TABLE = Path(__file__).with_name("planning.json")
FORMS: dict[str, dict[str, Any]] = {
    "optimize": {},
    "--to NHWC": {"to": "NHWC"},
    ".tflite": {"format": "tflite"},
    "--target onnxruntime-cpu": {"target": "onnxruntime-cpu"},
    "--target ethos-u": {"target": "ethos-u"},
}
SLOWER, MORE_SECONDS = 4 / 3, 0.1
RUNS = 3


def planned_in(path: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Return the planning seconds of one form of a network, its bytes, and whether they are proved minimal."""
    seconds: list[float] = []
    plain = planning.planned

    def timed(*arguments: Any, **keywords: Any) -> planning.Planned:
        began = process_time()
        plan = plain(*arguments, **keywords)
        seconds.append(process_time() - began)
        return plan

    stages.planned = timed
    try:
        for _ in range(RUNS):
            report = relayout.convert(path, **options).report
            if seconds[-1] > 1:
                break  # noise is small beside it
    except relayout.RelayoutError as error:
        return {"refused": str(error).splitlines()[0][:100]}
    finally:
        stages.planned = plain
    return {"seconds": round(min(seconds), 3), "bytes": report.bytes, "proved": report.proved}


def rows(folders: list[Path]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield network, form and figures."""
    models = [path for folder in folders for path in sorted(folder.rglob("*")) if path.suffix in (".onnx", ".tflite")]
    for path in models:
        for form, options in FORMS.items():
            if path.suffix == ".tflite" and form == ".tflite":
                continue
            yield path.name, form, planned_in(path, options)


def worse(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Return in which ways a row is worse than the table's."""
    if "refused" in before or "refused" in now:
        return [f"refused: {now['refused']}"] if "refused" in now and "refused" not in before else []
    faults = []
    if now["seconds"] > max(before["seconds"] * SLOWER, before["seconds"] + MORE_SECONDS):
        faults.append(f"{before['seconds']} s before, {now['seconds']} s now")
    if before["proved"] and not now["proved"]:
        faults.append("no longer proved")
    if now["bytes"] > before["bytes"]:
        faults.append(f"{before['bytes']:,} bytes before, {now['bytes']:,} now")
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    table: dict[str, dict[str, Any]] = json.loads(TABLE.read_text()) if TABLE.exists() else {}
    count = 0
    for name, form, now in rows(arguments.folders):
        before = table.get(name, {}).get(form)
        faults = worse(before, now) if before else []
        print(f"{name:40} {form:26} {now.get('seconds', '-'):>8} {now.get('proved', now.get('refused'))}", flush=True)
        for fault in faults:
            count += 1
            print(f"    WORSE: {fault}")
        table.setdefault(name, {})[form] = now
    if arguments.write:
        TABLE.write_text(json.dumps(dict(sorted(table.items())), indent=1) + "\n")
    print(f"{count} rows are worse than the table")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
