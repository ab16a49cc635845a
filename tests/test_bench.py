"""`bench/run.py` on the shipped models, with no peer: every part runs, judges, and says what was left out."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tables

from small import build

ROOT = Path(__file__).parents[1]
RUN = ROOT / "bench" / "run.py"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, str(RUN), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path})


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bench")
    done = run("--quick", "--out", str(folder))
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def found(out: Path, part: str) -> Any:
    return json.loads((out / part / f"{part}.json").read_text(encoding="utf-8"))


def test_what_stands_on_a_page_by_hand_stays(tmp_path: Path) -> None:
    """A run of the optimizers writes what is above the mark."""
    page = tmp_path / "page.md"
    page.write_text(
        "made\n\n<!-- what follows is not made by bench/optimizing.py -->\n\n## By hand\n", encoding="utf-8"
    )
    empty = tmp_path / "new.md"
    empty.write_text("made\n", encoding="utf-8")
    script = "import sys, pathlib, optimizing; print(repr(optimizing.kept(pathlib.Path(sys.argv[1]))))"
    for source, kept in (
        (page, "\n<!-- what follows is not made by bench/optimizing.py -->\n\n## By hand\n"),
        (empty, ""),
    ):
        command = [sys.executable, "-c", script, str(source)]
        done = subprocess.run(command, cwd=ROOT / "bench", capture_output=True, text=True)
        assert done.stdout.strip() == repr(kept), done.stderr


def test_the_page_has_the_figures_that_are_kept() -> None:
    script = "import figures; print(figures.shown(figures.kept()))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT / "bench", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") > 10
    page = ROOT / "docs" / "measured.md"
    before, begin, rest = page.read_text(encoding="utf-8").partition("<!-- made by bench/figures.py -->\n\n")
    _, end, after = rest.partition("\n<!-- end -->")
    files = tables.files_of(page, f"{before}{begin}{done.stdout}{end}{after}")
    assert {path: path.read_text(encoding="utf-8") for path in files} == files


def test_parts_that_were_not_run_may_keep_their_figures(tmp_path: Path) -> None:
    """Lines of one part may read alike ("of these, ..."), and another run has other lines: parts are kept whole."""
    for name, right in (("a", 1), ("b", 3)):
        (tmp_path / name / "conversion").mkdir(parents=True)
        (tmp_path / name / "conversion" / "conversion.json").write_text(json.dumps({"models": conversions(right)}))
    before = json.loads((ROOT / "bench" / "figures.json").read_text(encoding="utf-8"))
    command = [sys.executable, str(ROOT / "bench" / "figures.py"), "--keep", str(tmp_path / "a"), str(tmp_path / "b")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()[2:]
    assert [line.split(" | ")[1:] for line in lines[:10]] == [
        ["1, 0 wrong", "tf2onnx 1, 0 wrong, tflite2onnx 1, 0 wrong |"],
        ["0.00", "tf2onnx 0.00 |"],
        ["0", "tf2onnx 1 |"],
        ["0.00", "tflite2onnx 0.00 |"],
        ["0", "tflite2onnx 0 |"],
        ["3, 0 wrong", "tf2onnx 3, 0 wrong, tflite2onnx 3, 0 wrong |"],
        ["0.00", "tf2onnx 0.00 |"],
        ["0", "tf2onnx 3 |"],
        ["0.00", "tflite2onnx 0.00 |"],
        ["0", "tflite2onnx 0 |"],
    ]
    others = [each["what"] for name, part in before.items() if name != "conversion" for each in part]
    assert [line.removeprefix("| ").split(" | ")[0] for line in lines[10:]] == others


def conversions(count: int) -> list[Any]:
    """So many models that all tools get right, with a byte for tf2onnx to transpose."""
    row = {"converted": True, "seconds": [], "processor": [], "peak_mb": [], "proved": None}
    rows = {
        name: row | {"verdict": {"runs": True, "numerics": "ok", "transposes": moved, "bytes": moved}}
        for name, moved in (("relayout", 0), ("relayout --io convert", 0), ("tflite2onnx", 0), ("tf2onnx", 1))
    }
    return [{"model": f"operators/{place}", "litert_ms": 0.1, "rows": rows} for place in range(count)]


def test_latency_with_a_target_has_a_figure_of_its_own() -> None:
    """Beside the default's in the same line, and a column of the page; it is no peer."""
    (record,) = conversions(1)
    row = record["rows"]["relayout"]
    for name, ratio in (("relayout", 1.5), ("relayout --target onnxruntime-cpu", 0.75), ("tf2onnx", 3.0)):
        record["rows"][name] = row | {"verdict": row["verdict"] | {"latency": ratio}}
    record |= {"model": "keras_models/unet.dynamic", "litert_ms": 1.0}
    alone = record | {"rows": {"relayout": row | {"verdict": row["verdict"] | {"latency": 4.0}}}}
    script = "import sys, json, benchmark_page, figures; r = json.load(sys.stdin); "
    script += "print(benchmark_page.latencies(r)); print(*(f'{f.ours} | {f.peers}' for f in figures.latencies(r)))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT / "bench",
        capture_output=True,
        text=True,
        input=json.dumps([record, alone]),
    )
    assert done.returncode == 0, done.stderr
    head, _, line, figure = done.stdout.splitlines()
    found = dict(zip(head.strip("| ").split(" | "), line.strip("| ").split(" | "), strict=True))
    assert found["relayout --target onnxruntime-cpu : LiteRT"] == "0.75 (1)"
    assert (found["relayout : LiteRT"], found["tf2onnx : LiteRT"], found["relayout : tf2onnx"]) == (
        "2.75 (2)",
        "3.00 (1)",
        "0.50 (1)",
    )
    assert "relayout : relayout --target onnxruntime-cpu" not in found
    ours, peers = figure.split(" | ")
    assert ours == "2.75 (2), with `--target onnxruntime-cpu` 0.75 (1)"
    assert peers == "{'tf2onnx': '3.00 (1), where relayout has 1.50'}"


@pytest.mark.slow
def test_the_page_holds_every_part_and_names_what_is_missing(out: Path) -> None:
    page = (out / "benchmark.md").read_text(encoding="utf-8")
    parts = json.loads((out / "benchmark.json").read_text(encoding="utf-8"))["parts"]
    assert list(parts) == ["starting", "conversion", "latency", "optimizing", "claiming", "scale", "throughput"]
    assert all(part["command"] in page for part in parts.values())
    assert str(out) not in page
    assert [name for name in ("tensorflow", "torch", "openvino", "tvm") if f"| {name} | left out |" not in page] == []


@pytest.mark.slow
def test_the_figures_are_those_of_the_parts(out: Path) -> None:
    table = (out / "benchmark.md").read_text(encoding="utf-8")
    assert "| TensorFlow Lite models converted and right or nearly, of 2 | 2, 0 wrong |  |" in table
    assert "| transposed bytes that are left of 1 ONNX models, of 1, that all get right |" in table
    assert "ONNX Runtime 1 100 % |" in table
    assert "in 0 networks" not in table


@pytest.mark.slow
def test_a_part_of_an_earlier_run_stays_on_the_page(out: Path) -> None:
    before = json.loads((out / "benchmark.json").read_text(encoding="utf-8"))["parts"]
    assert run("--quick", "--out", str(out), "--parts", "scale").returncode == 0
    after = json.loads((out / "benchmark.json").read_text(encoding="utf-8"))["parts"]
    assert list(after) == list(before)
    assert "## Optimizing ONNX" in (out / "benchmark.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_conversions_are_judged(out: Path) -> None:
    rows = [record["rows"]["relayout"] for record in found(out, "conversion")["models"]]
    assert [(row["converted"], row["proved"], row["verdict"]["numerics"]) for row in rows] == [(True, True, "ok")] * 2
    assert [row["verdict"]["bytes"] for row in rows] == [23_040, 5_760]


@pytest.mark.slow
def test_optimizers_are_judged_by_one_counter(out: Path) -> None:
    (item,) = found(out, "optimizing")
    ours, runtime = item["tools"]["relayout"], item["tools"]["onnxruntime"]
    assert item["faults"] == []
    assert (ours["valid"], ours["equal"], ours["report"]["proved"]) == (True, True, True)
    assert ours["bytes"] == ours["report"]["bytes"] < item["source"]["bytes"] == runtime["bytes"]


@pytest.mark.slow
def test_what_is_measured_is_there(out: Path) -> None:
    (latency,) = found(out, "latency")
    assert len(latency["milliseconds"]["relayout"]) == len(latency["milliseconds"]["LiteRT"]) == 2
    claimed = found(out, "claiming")
    assert [row["claim"] for row in claimed] == ["convolutions", "all layout-sensitive", "half of the convolutions"]
    built = any(map(shutil.which, ("cc", "gcc", "clang")))
    runtime = [row["onnxruntime" if built else "emulated"] for row in claimed]
    assert [ours["relayout"]["bytes"] <= theirs["bytes"] for ours, theirs in zip(claimed, runtime, strict=True)] == [
        True
    ] * 3
    if built:
        assert [theirs["in_nhwc"] for theirs in runtime] == [row["claimed"] for row in claimed]
        assert max(theirs["difference"] for theirs in runtime) < 1e-5
    assert [row["nodes"] for row in found(out, "scale")["nodes"]] == [60, 120]
    stages = found(out, "scale")["nodes"][1]["relayout"]["seconds"]
    assert sum(stages.values()) == pytest.approx(2 * stages["total"])
    assert {"read", "build", "solve", "apply", "write"} <= set(stages)
    (chain,) = found(out, "scale")["orders"]
    assert (chain["orders"], chain["proved"]) == (2, True)
    many = found(out, "throughput")
    assert [(row["jobs"], row["models"], row["converted"]) for row in many["rows"]] == [(1, 4, 4)] * 2 + [(2, 4, 4)] * 2
    assert {row["how"] for row in many["rows"]} == {"relayout, one command", "relayout, a process each"}
    runs = found(out, "starting")["runs"]
    assert [name for name, row in runs.items() if "why" in row] == []
    assert "relayout convert" in runs
    assert "tf2onnx" not in runs


def test_models_that_the_target_makes_slower_are_told_and_judged_twice() -> None:
    records = []
    for place, ratio in enumerate((1.05, 1.2, 4.0)):
        (record,) = conversions(1)
        row = record["rows"]["relayout"]
        for name, took in (("relayout", 2.0), ("relayout --target onnxruntime-cpu", 2.0 * ratio)):
            record["rows"][name] = row | {"verdict": row["verdict"] | {"latency": took}}
        records.append(record | {"model": f"keras_models/{place}", "litert_ms": 1.0})
    script = "import sys, json, benchmark_page as b; r = json.load(sys.stdin); "
    script += "print(b.targeted(r)); print(*map(b.suspect, r))"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT / "bench", capture_output=True, text=True, input=json.dumps(records)
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "- keras_models/2: 4.00 times",
        "- keras_models/1: 1.20 times",
        "False True True",
    ]


def test_an_environment_nobody_knows_is_refused(tmp_path: Path) -> None:
    done = run("--python", "tensorfow=python", "--out", str(tmp_path))
    assert done.returncode == 2
    assert "no environment 'tensorfow'; there are relayout, tensorflow" in done.stderr
    assert not any(tmp_path.iterdir())


def test_the_page_of_claims_tells_losses_and_what_was_not_taken(tmp_path: Path) -> None:
    def told(count: int, size: int, **more: object) -> dict[str, object]:
        return {"transposes": count, "bytes": size, "proved": True, "difference": 0.0, **more}

    def claimed(model: str, ours: int, theirs: int, **more: object) -> dict[str, object]:
        row = {"model": model, "claim": "all layout-sensitive", "claimed": 2}
        return row | {"relayout": told(1, ours), "onnxruntime": told(2, theirs)} | more

    rows = [
        claimed("a.script", 1_000_000, 3_000_000),
        claimed("a.dynamo", 1_000_000, 5_000_000),
        claimed("b", 2_000_000, 1_000_000, following=told(1, 1), tvm={"refused": "no"}),
    ]
    found, page = tmp_path / "claiming.json", tmp_path / "claims.md"
    found.write_text(json.dumps(rows), encoding="utf-8")
    command = [sys.executable, "claiming_page.py", str(found), "--extended", str(found), "--page", str(page)]
    done = subprocess.run(command, cwd=ROOT / "bench", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    text = page.read_text(encoding="utf-8")
    assert text.count("| all layout-sensitive | ONNX Runtime | 3 | 3 / 4.00 | 6 / 9.00 | 2 | 1 |") == 2
    assert text.count("* `b`, all layout-sensitive: 1 / 2.000, ONNX Runtime 2 / 1.000") == 2
    assert "| `a.dynamo` | 1.00 | 5.00 |" in text
    assert "| `a.script` |" not in text
    assert "relayout 0, ONNX Runtime 0, TVM 1" in text
    assert "| b |  |  | 1 / 2.000 | 2 / 1.000 |  |  |" in text


def test_rows_that_say_the_same_are_one() -> None:
    from tables import merged

    assert merged([["a", "1"], ["b", "2"], ["c", "1"]]) == [["a, c", "1"], ["b", "2"]]


@pytest.mark.parametrize(("rows", "is_undefined"), [(0, True), (2, False)])
def test_random_graphs_know_means_of_no_elements(rows: int, is_undefined: bool) -> None:
    import export_properties

    model = build("float[n,3] x", "y = ReduceMean<keepdims=0>(x, first)", {"first": [0]})
    assert export_properties.averages_nothing(model, {"x": np.zeros((rows, 3), np.float32)}) == is_undefined


@pytest.mark.parametrize("form", ["onnx", "tflite"])
def test_opened_batches_run_with_other_batches(form: str) -> None:
    import opening

    assert opening.opened(ROOT / "models" / "tinynet_float.tflite", form) == (opening.OPENED, "")
