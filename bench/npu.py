"""From ONNX and `.tflite` to an NPU: what Arm's compiler Vela leaves to the CPU of relayout's files, and of others'.

    python bench/npu.py [--vela PROGRAM] [--onnx2tf PYTHON] [--out DIRECTORY] [--page PAGE.md] MODELS ...

MODELS are float `.onnx` files (`bench/make_npu.py` makes some), which ONNX Runtime quantizes here, `.onnx` files that
are quantized (`*.qdq.onnx`), and `.tflite` files; or folders of them. Of a float NETWORK.float32.tflite with
NETWORK.int8.tflite beside it (`bench/make_keras.py` makes both) the first becomes float ONNX, and the second is what
TensorFlow's own converter makes of the network. `--vela` (or RELAYOUT_VELA) is the program of
`pip install ethos-u-vela`. `--onnx2tf` (or ONNX2TF_PYTHON) is a Python that has onnx2tf, with

    python3.12 -m venv onnx2tf && onnx2tf/bin/pip install onnx2tf==2.6.9

without which its columns are left out. `--asymmetric` quantizes as `quantize_static` does by default.
`--again NPU.json` only writes the page of an earlier run.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from by_vela import PROGRAM, RefusedError, judge
from processes import record
from quantizing_onnx import integer_ends, quantize, samples
from tables import table, write_page

import relayout
from relayout.errors import RelayoutError
from relayout.formats.tflite.container.loading import load

Row = dict[str, Any]
RELAYOUT, PEER, ITSELF, CONVERTER = "relayout", "onnx2tf", "the source itself", "TensorFlow"
FLOAT, INTEGER = ".float32.tflite", ".int8.tflite"
LAYOUT_OPERATORS = ("TRANSPOSE", "RESHAPE")
KNOWN_CUSTOM = ("TFLite_Detection_PostProcess",)
"""Custom operators that relayout has in ONNX's words."""
LIMIT_SECONDS = 600


def converted(source: Path, path: Path) -> dict[str, Any]:
    """Convert by relayout: integers in and out, the interface in the layout that costs nothing."""
    ends: dict[str, Any] = {}
    if source.suffix == ".onnx":
        ends["inputs"], ends["outputs"] = integer_ends(source)
    else:
        names = [name.removeprefix("CUSTOM ") for name in operators(source) if name.startswith("CUSTOM ")]
        ends["custom_ops"] = dict.fromkeys((name for name in names if name not in KNOWN_CUSTOM), "tflite.custom")
    result = relayout.convert(source, format="tflite", target="ethos-u", io="convert", **ends)
    result.save(path)
    claims = result.report.claims
    assert claims is not None
    return {"claimed": claims.claimed, "of": claims.total, "operators": result.report.operators}


def by_peer(python: str, source: Path, path: Path) -> dict[str, Any]:
    """Convert a float model by onnx2tf, which quantizes it itself, calibrated on random numbers."""
    with tempfile.TemporaryDirectory() as scratch:
        given = Path(scratch) / source.name
        shutil.copy(source, given)
        command = ["timeout", str(LIMIT_SECONDS), python, "-m", "onnx2tf", "-i", str(given), "-o", scratch, "-oiqt"]
        command += ["-iqd", "int8", "-oqd", "int8", "-qt", "per-tensor", *calibration(source, Path(scratch))]
        done = subprocess.run(command, capture_output=True, text=True, cwd=scratch)
        made = sorted(Path(scratch).glob("*full_integer_quant.tflite"))
        if not made:
            lines = [line for line in (*done.stdout.splitlines(), *done.stderr.splitlines()) if line.strip()]
            raise RefusedError(lines[-1][:200] if lines else f"exit {done.returncode}")
        shutil.copy(made[0], path)
    return {"operators": operators(path)}


def calibration(source: Path, folder: Path) -> list[str]:
    """Return onnx2tf's options for the numbers that ONNX Runtime is calibrated on, images with channels last."""
    options: list[str] = []
    given = samples(source)
    for name, first in given[0].items():
        arrays = np.concatenate([each[name] for each in given])
        np.save(folder / f"{name}.npy", np.moveaxis(arrays, 1, -1) if first.ndim > 2 else arrays)
        options += ["-cind", name, str(folder / f"{name}.npy"), "[0.0]", "[1.0]"]
    return options


def operators(path: Path) -> dict[str, int]:
    return dict(Counter(operator.name for graph in load(path).subgraphs for operator in graph.operators).most_common())


def judged(make: Callable[[], dict[str, Any]], path: Path, program: str) -> dict[str, Any]:
    """Make a file and compile it; {"why": …} where one of the two refuses."""
    try:
        made = make()
        found = judge(path, path.parent, program=program)
    except (RelayoutError, RefusedError, subprocess.TimeoutExpired) as error:
        return {"why": str(error).splitlines()[0][:200]}
    return {**made, "on_cpu": found.on_cpu, "on_npu": found.on_npu, "cycles": found.cycles}


def rows(models: list[Path], program: str, peer: str | None, out: Path, symmetric: bool) -> Iterator[Row]:
    for model in models:
        name = model.name.removesuffix(".onnx").removesuffix(".qdq").removesuffix(".tflite").removesuffix(".float32")
        is_float = model.name.endswith(FLOAT)
        row: Row = {"model": name, "source": FLOAT if is_float else model.suffix, "by": {}}
        source = model
        if is_float:
            source = out / f"{name}.qdq.onnx"
            relayout.convert(model, io="NCHW").save(out / f"{name}.float.onnx")
            quantize(out / f"{name}.float.onnx", source, symmetric=symmetric)
        elif model.suffix == ".onnx" and not model.name.endswith(".qdq.onnx"):
            source = out / f"{name}.qdq.onnx"
            if not source.exists():
                quantize(model, source, symmetric=symmetric)
        path = out / f"{name}.relayout.tflite"
        row["by"][RELAYOUT] = judged(lambda source=source, path=path: converted(source, path), path, program)
        if model.suffix == ".tflite":
            copy = out / f"{name}.itself.tflite"
            shutil.copy(model.with_name(f"{name}{INTEGER}") if is_float else model, copy)
            beside = CONVERTER if is_float else ITSELF
            row["by"][beside] = judged(lambda copy=copy: {"operators": operators(copy)}, copy, program)
        elif peer:
            path = out / f"{name}.onnx2tf.tflite"
            row["by"][PEER] = judged(lambda model=model, path=path: by_peer(peer, model, path), path, program)
        print(name, row["by"], file=sys.stderr)
        yield row


def cells(found: dict[str, Any] | None) -> list[str]:
    """Operators on the NPU, those on the CPU by name, layout operators, cycles."""
    if found is None:
        return ["–"] * 4
    if "why" in found:
        return ["refused", found["why"].replace("|", "/"), "–", "–"]
    on_cpu = ", ".join(f"{count} {name}" for name, count in found["on_cpu"].items()) or "none"
    moves = sum(found["operators"].get(name, 0) for name in LAYOUT_OPERATORS)
    return [f"{found['on_npu']:,}", on_cpu, str(moves), f"{found['cycles']:,}"]


def ratio(row: Row) -> str:
    """Return relayout's cycles by those of the file beside it, where both leave as many operators to the CPU."""
    some = list(row["by"].values())
    if len(some) < 2 or any("why" in each for each in some):
        return "–"
    (ours, *_), beside = some, some[1]
    same = sum(ours["on_cpu"].values()) == sum(beside["on_cpu"].values())
    return f"{ours['cycles'] / beside['cycles']:.3f}" if same and beside["cycles"] else "–"


def page(found: dict[str, Any]) -> str:
    """Return the page of the documentation."""
    all_rows: list[Row] = found["rows"]
    ours = [row["by"][RELAYOUT] for row in all_rows if "why" not in row["by"][RELAYOUT]]
    whole = [each for each in ours if not each["on_cpu"]]
    sources = {kind: [row for row in all_rows if row["source"] == kind] for kind in (".onnx", FLOAT, ".tflite")}
    lines = [
        "# Measured: networks on an NPU",
        f"{len(all_rows)} networks from ONNX or TensorFlow Lite to a `.tflite` for Arm's Ethos-U, compiled by Vela"
        f" {found['versions']['ethos-u-vela']} for an Ethos-U55 with 256 multipliers ({found['date']})."
        f" Of {len(ours)} files of relayout {len(whole)} run on the NPU as a whole.",
        "![Vela's cycles of relayout's files, the peer's = 1](plots/npu-benchmark.svg)",
        "Cycles are Vela's estimates, and count the NPU alone: a file with operators on the CPU takes longer than its"
        " cycles say. The ratio is relayout's cycles by those of the file below it, where both leave as many operators"
        " to the CPU.",
    ]
    if sources[".onnx"]:
        lines += from_onnx(sources[".onnx"], found["versions"].get("onnx2tf", ""))
    if sources[FLOAT]:
        lines += from_keras(sources[FLOAT])
    if sources[".tflite"]:
        lines += from_tflite(sources[".tflite"])
    lines.append(
        "Made by `bench/npu.py`; [how to do it with a model of yours](how-to/npu.md). Vela judged each row of the"
        " target's [table](target-tables.md#ethos-u), too."
    )
    return "<!-- made by bench/npu.py -->\n\n" + "\n\n".join(lines) + "\n"


HEAD = ["network", "by", "on the NPU", "on the CPU", "Transposes and Reshapes", "cycles", "ratio"]


def from_onnx(some: list[Row], peer: str) -> list[str]:
    """Return the paragraphs on float networks."""
    beside = BESIDE.format(peer) if peer else ABSENT
    return [
        "## From float ONNX",
        "ONNX Runtime's `quantize_static` makes QDQ models of int8: symmetric, a scale for each channel of the weights,"
        " calibrated on random numbers. `relayout convert --target ethos-u` writes the `.tflite`, from the first"
        f" integers to the last. {beside}",
        table(HEAD, table_lines(some), left=4),
    ]


BESIDE = (
    "Beside it stands onnx2tf {}, which quantizes by itself: `-oiqt -qt per-tensor`, since its own check refuses scales"
    " for channels. Its weights compress better then, and take fewer cycles to fetch."
)
ABSENT = "onnx2tf was not installed where this was measured."


def from_keras(some: list[Row]) -> list[str]:
    """Return the paragraphs on networks of Keras, beside TensorFlow's own converter."""
    return [
        "## From float ONNX, beside TensorFlow's own converter",
        "Networks of Keras: float ONNX, channels first, quantized and converted as above. Below it stands the int8 file"
        " that TensorFlow's converter makes of the same network, which it quantizes by itself.",
        table(HEAD, table_lines(some), left=4),
    ]


def from_tflite(some: list[Row]) -> list[str]:
    """Return the paragraphs on networks that are quantized `.tflite` files."""
    same = sum(map(is_no_worse, some))
    return [
        "## From `.tflite`",
        "The same with files that TensorFlow quantized: relayout reads each, and writes it again. Below it stands what"
        " Vela makes of the source itself.",
        table(HEAD, table_lines(some), left=4),
        f"Of {len(some)} files {same} have no more operators on the CPU than the source, and at most 1% more cycles.",
    ]


def is_no_worse(row: Row) -> bool:
    ours, source = row["by"][RELAYOUT], row["by"][ITSELF]
    if "why" in ours or "why" in source:
        return "why" in source
    more_on_cpu = sum(ours["on_cpu"].values()) > sum(source["on_cpu"].values())
    return not more_on_cpu and ours["cycles"] <= 1.01 * source["cycles"]


def table_lines(all_rows: list[Row]) -> Iterator[list[str]]:
    for row in all_rows:
        for place, (tool, found) in enumerate(row["by"].items()):
            yield ["" if place else row["model"], tool, *cells(found), "" if place else ratio(row)]


def versions(program: str, peer: str | None) -> dict[str, str]:
    found = {"relayout": relayout.__version__, "onnxruntime": version("onnxruntime")}
    said = subprocess.run([program, "--version"], capture_output=True, text=True)
    found["ethos-u-vela"] = said.stdout.strip().splitlines()[-1] if said.stdout.strip() else ""
    if peer:
        ask = "from importlib.metadata import version; print(version('onnx2tf'))"
        found["onnx2tf"] = subprocess.run([peer, "-c", ask], capture_output=True, text=True).stdout.strip()
    return found


def files(path: Path) -> list[Path]:
    """Return the models in a folder; a file alone is one."""
    if not path.is_dir():
        return [path]
    floats = sorted(path.glob(f"*{FLOAT}"))
    beside = {each.with_name(each.name.removesuffix(FLOAT) + INTEGER) for each in floats}
    return sorted({*path.glob("*.onnx"), *path.glob("*.tflite")} - beside)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--vela", default=PROGRAM)
    parser.add_argument("--onnx2tf", default=os.environ.get("ONNX2TF_PYTHON"))
    parser.add_argument("--out", type=Path, default=Path("build/npu"))
    parser.add_argument("--page", type=Path)
    parser.add_argument("--again", type=Path)
    parser.add_argument("--asymmetric", action="store_true")
    given = parser.parse_args()
    if given.again:
        found = json.loads(given.again.read_text(encoding="utf-8"))
    else:
        if not given.vela:
            parser.error("no vela: pip install ethos-u-vela, and name it by --vela")
        warnings.simplefilter("ignore")
        given.out.mkdir(parents=True, exist_ok=True)
        models = [path for given_path in given.models for path in files(given_path)]
        all_rows = list(rows(models, given.vela, given.onnx2tf, given.out, not given.asymmetric))
        found = {"date": dt.date.today().isoformat(), "versions": versions(given.vela, given.onnx2tf), "rows": all_rows}
    text = page(found)
    record(given.out, "npu", found, text, text)
    if given.page:
        write_page(given.page, text)
    print(text)


if __name__ == "__main__":
    main()
