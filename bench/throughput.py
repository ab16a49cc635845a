"""Many models at once: how many a core converts in a second, in one command and in a process of their own each.

    python bench/throughput.py [MODEL.tflite | FOLDER …] [--count 1000] [--jobs 1,2] [--peers PYTHON] [--out DIRECTORY]

There are `--count` files, links to the models in turn. One command converts all (`--out-dir --jobs N`); then each has a
command of its own, N at a time (`xargs -P N`), as a build farm would start them, or a step of a build. Peers have no
command for many; they convert the first `--peer-count` files so. Wall and processor seconds count everything that was
started; the largest process gives the peak memory.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from processes import HERE, measure, models, record
from tables import table

SHIPPED = HERE.parent / "models"
LIMIT = 7200
"""Seconds that one measurement may take."""
SMALL = "import sys, tflite2onnx; tflite2onnx.convert(*sys.argv[1:3])"


def linked(sources: list[Path], count: int, folder: Path) -> list[Path]:
    """`count` names in a new folder, links to the models in turn."""
    folder.mkdir()
    names = [folder / f"{number:05d}_{source.name}" for number, source in enumerate(islice(cycle(sources), count))]
    for name, source in zip(names, cycle(sources), strict=False):
        name.symlink_to(source.resolve())
    return names


def together(files: list[Path], out: Path, jobs: int) -> list[str]:
    """One command for all."""
    ours = [sys.executable, "-m", "relayout", "convert", *map(str, files)]
    return [*ours, "--out-dir", str(out), "--jobs", str(jobs), "--quiet"]


def apart(command: list[str], files: list[Path], out: Path, jobs: int) -> list[str]:
    """A process for each file, `jobs` at a time; `command` has SOURCE and TARGET in the places of a file's ends."""
    listed = out.with_suffix(".txt")
    listed.write_text("".join(f"{file} {out / file.stem}.onnx\n" for file in files), encoding="utf-8")
    script = " ".join(f'"${each}"' if each in ("1", "2") else f"'{each}'" for each in command)
    return ["xargs", "-a", str(listed), "-P", str(jobs), "-n", "2", "sh", "-c", f"{script} || true", "sh"]


def measured(name: str, command: list[str], files: list[Path], out: Path, jobs: int) -> dict[str, Any]:
    """Convert all files and return what that takes; files without a result failed."""
    out.mkdir(exist_ok=True)
    taken = measure(command, out.with_suffix(".log"), LIMIT)
    done = len(list(out.glob("*.onnx")))
    print(f"{name}, {jobs} at a time: {taken.wall:.0f} s", file=sys.stderr, flush=True)
    figures = {"wall": taken.wall, "processor": taken.processor, "peak_mb": taken.peak_mb}
    return {"how": name, "jobs": jobs, "models": len(files), "converted": done, **figures}


def line(row: dict[str, Any]) -> list[str]:
    rate = row["models"] / row["wall"]
    counted = [
        f"{row['jobs']}",
        f"{row['converted']:,} of {row['models']:,}",
        f"{rate:.1f}",
        f"{rate / row['jobs']:.1f}",
    ]
    return [row["how"], *counted, f"{row['processor'] / row['models']:.3f}", f"{row['peak_mb']:.0f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", type=Path, default=[SHIPPED])
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--jobs", default="1,2")
    parser.add_argument("--peers", help="a Python with tf2onnx and tflite2onnx")
    parser.add_argument("--peer-count", type=int, default=60)
    parser.add_argument("--out", type=Path, default=Path("out"))
    options = parser.parse_args()
    sources, ours = (
        models(options.models, ".tflite"),
        [sys.executable, "-m", "relayout", "convert", "1", "2", "--quiet"],
    )
    options.out.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    for jobs in map(int, options.jobs.split(",")):
        with tempfile.TemporaryDirectory(dir=options.out) as scratch:
            folder = Path(scratch).absolute()
            files = linked(sources, options.count, folder / "sources")
            ways = {"relayout, one command": together(files, folder / "way0", jobs)}
            ways["relayout, a process each"] = apart(ours, files, folder / "way1", jobs)
            few = files[: options.peer_count]
            if options.peers:
                ways["tflite2onnx, a process each"] = apart(
                    [options.peers, "-c", SMALL, "1", "2"], few, folder / "way2", jobs
                )
                large = [options.peers, "-m", "tf2onnx.convert", "--opset", "18", "--tflite", "1", "--output", "2"]
                ways["tf2onnx, a process each"] = apart(large, few, folder / "way3", jobs)
            for number, (name, command) in enumerate(ways.items()):
                given = files if name.startswith("relayout") else few
                rows.append(measured(name, command, given, folder / f"way{number}", jobs))
    head = ["", "at a time", "converted", "models a second", "of them a core", "processor s a model", "peak MB"]
    text = table(head, map(line, rows))
    record(options.out, "throughput", {"sources": len(sources), "rows": rows}, text, text)
    print(text)


if __name__ == "__main__":
    main()
