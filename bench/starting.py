"""What a command costs before it computes anything: imports, `--help`, the conversion of a small model, and its peers'.

    python bench/starting.py [--peers PYTHON] [--model MODEL.tflite] [--repeats 9] [--out DIRECTORY]

Every run is a process of its own, and they take turns. Processor seconds count, the process's own start among them;
medians, with the quartiles. The small model is one that tflite2onnx converts: `bench/make_keras.py` makes them, or
`models/tinynet_float.tflite`, on which it fails.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from processes import HERE, last_line, measure, record
from tables import table

PACKAGES = (
    "relayout",
    "onnx",
    "onnx_ir",
    "numpy",
    "ml_dtypes",
    "sympy",
    "mpmath",
    "click",
    "rich",
    "google",
    "highspy",
)


def commands(python: str, peers: str | None, model: Path, result: Path, back: Path) -> dict[str, list[str]]:
    """Return name in the table -> command; `back` is the model as ONNX, which becomes a `.tflite` again."""
    ours = [python, "-m", "relayout"]
    found = {
        "an empty program": [python, "-c", "pass"],
        "import relayout": [python, "-c", "import relayout"],
        "relayout --help": [*ours, "--help"],
        "import onnx": [python, "-c", "import onnx"],
        "import onnx_ir": [python, "-c", "import onnx_ir"],
        "relayout convert": [*ours, "convert", str(model), str(result), "--quiet"],
        "relayout convert, and back": [*ours, "convert", str(back), str(back.with_suffix(".tflite")), "--quiet"],
    }
    if peers:
        small = "import sys, tflite2onnx; tflite2onnx.convert(*sys.argv[1:3])"
        large = ["-m", "tf2onnx.convert", "--opset", "18", "--tflite", str(model), "--output", str(result)]
        found |= {"tflite2onnx": [peers, "-c", small, str(model), str(result)], "tf2onnx": [peers, *large]}
    return found


def imports(python: str, model: Path, result: Path, log: Path) -> dict[str, float]:
    """Package -> milliseconds that its modules take to load in one conversion, each without what it loads itself."""
    measure([python, "-X", "importtime", "-m", "relayout", "convert", str(model), str(result), "--quiet"], log)
    found: dict[str, float] = {}
    for line in log.with_name(log.name + ".err").read_text(errors="replace").splitlines():
        fields = line.removeprefix("import time:").split("|")
        if line.startswith("import time:") and fields[0].strip().isdigit():
            package = fields[2].strip().partition(".")[0]
            package = package if package in PACKAGES else "others"
            found[package] = found.get(package, 0) + int(fields[0]) / 1000
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def taken(known: dict[str, list[str]], result: Path, log: Path, repeats: int) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {name: {"seconds": [], "peak_mb": 0.0} for name in known}
    for turn in range(repeats + 1):
        for name, command in known.items():
            if "why" in found[name]:
                continue
            result.unlink(missing_ok=True)
            done = measure(command, log)
            if done.code:
                found[name] = {"why": last_line(log) or f"exit {done.code}"}
            elif turn:  # the first fills caches
                found[name]["seconds"].append(done.processor)
                found[name]["peak_mb"] = max(found[name]["peak_mb"], done.peak_mb)
    return found


def shown(found: dict[str, dict[str, Any]]) -> str:
    lines = []
    for name, row in found.items():
        if "why" in row:
            lines.append([name, "fails", "", ""])
            continue
        low, middle, high = statistics.quantiles(row["seconds"], n=4)
        lines.append([name, f"{middle:.2f}", f"{low:.2f}–{high:.2f}", f"{row['peak_mb']:.0f}"])
    return table(["process", "processor s", "quartiles", "peak MB"], lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=os.environ.get("RELAYOUT_PYTHON", sys.executable))
    parser.add_argument("--peers", default=os.environ.get("PEERS_PYTHON"))
    parser.add_argument("--model", type=Path, default=HERE.parent / "models" / "tinynet_float.tflite")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--out", type=Path, default=Path("out"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result, log = Path(folder, "result.onnx"), Path(folder, "log")
        back = result.with_name("back.onnx")
        measure([options.python, "-m", "relayout", "convert", str(options.model), str(back), "--quiet"], log)
        known = commands(options.python, options.peers, options.model, result, back)
        found = {"model": options.model.name, "runs": taken(known, result, log, max(2, options.repeats))}
        found["imports"] = imports(options.python, options.model, result, log)
    text = shown(found["runs"]) + "\n\n"
    text += (
        table(["loaded by a conversion", "ms"], [[name, f"{ms:.0f}"] for name, ms in found["imports"].items()]) + "\n"
    )
    record(options.out, "starting", found, text, text)
    print(text)


if __name__ == "__main__":
    main()
