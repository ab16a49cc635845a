"""Compare the results of two checkouts byte by byte: a commit that only moves or renames must change none.

    python bench/same_results.py OLD NEW [FOLDER ...] [--target onnxruntime-cpu]

OLD and NEW are checkouts of this project. Each converts the models of its own `models/` folder and those of the folders
that are given, once without a target and once with each target that is named, in a process of its own. The exit code is
1 if a result differs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

WORKER = """
import contextlib, hashlib, json, sys, tempfile
from pathlib import Path
import relayout
digests = {}
for name, target in json.load(sys.stdin):
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "result.onnx"
        try:
            relayout.convert(name, target=target).save(out)
            digest = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(Path(folder).iterdir()))).hexdigest()
        except relayout.RelayoutError as error:
            digest = type(error).__name__
    digests[f"{name} {target or ''}"] = digest
print(json.dumps(digests))
"""


def digests(checkout: Path, jobs: list[tuple[str, str | None]]) -> dict[str, str]:
    """Return the digest of each result of a checkout, or the name of the error."""
    environment = {**os.environ, "PYTHONPATH": str(checkout.resolve() / "src")}
    command = [sys.executable, "-c", WORKER]
    done = subprocess.run(
        command, input=json.dumps(jobs), env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("folders", type=Path, nargs="*")
    parser.add_argument("--target", action="append", default=[])
    arguments = parser.parse_args()
    folders = [arguments.new / "models", *arguments.folders]
    models = sorted(
        str(path.resolve()) for folder in folders for kind in ("tflite", "onnx") for path in folder.rglob(f"*.{kind}")
    )
    jobs = [(model, target) for model in models for target in (None, *arguments.target)]
    old, new = digests(arguments.old, jobs), digests(arguments.new, jobs)
    different = [job for job in old if old[job] != new[job]]
    for job in different:
        print(f"different: {job}")
    summary = hashlib.sha256(json.dumps(new, sort_keys=True).encode()).hexdigest()[:12]
    print(f"{len(old)} results, {len(different)} different ({summary})")
    return bool(different)


if __name__ == "__main__":
    sys.exit(main())
