"""Quantize float ONNX networks to int8 `.tflite` by two ways, and write a page that compares them.

    python bench/quantizing.py FOLDER OUT.md

FOLDER has `.onnx` networks of real numbers and fixed extents, as `bench/make_timm.py`, `bench/make_transformers.py` and
`bench/torch_exports.py` write them. One way is `relayout convert --quantize int8`, the other ONNX Runtime's
`quantize_static` and `relayout convert` of what that makes. Both see the same random samples. Each network runs in a
process of its own; what was measured lies beside it as `NAME.json`, and is not measured again. Vela and TensorFlow Lite
Micro judge files with integers at the interface, where they are installed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from datetime import date
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnx
from tables import table

import relayout

SAMPLES, SEED, UNSEEN = 8, 5, 99
ROUNDS, TURN = 15, 0.02
"""Turns in which files run one after the other, and the seconds of each turn."""
WAYS = ("quantize", "qdq")
REALS = ("float32",)


def feeds_of(source: Path, count: int, seed: int) -> list[dict[str, Any]]:
    """Return random inputs of a network: integers are small."""
    rng = np.random.default_rng(seed)
    graph = onnx.load(source, load_external_data=False).graph
    constants = {tensor.name for tensor in graph.initializer}
    ends = [put for put in graph.input if put.name not in constants]
    types = {put.name: onnx.helper.tensor_dtype_to_np_dtype(put.type.tensor_type.elem_type) for put in ends}
    shapes = {put.name: [dim.dim_value or 1 for dim in put.type.tensor_type.shape.dim] for put in ends}

    def one(name: str) -> Any:
        if types[name].kind == "f":
            return rng.standard_normal(shapes[name]).astype(types[name])
        return rng.integers(0, 7, shapes[name]).astype(types[name])

    return [{name: one(name) for name in shapes} for _ in range(count)]


def quantized_by_runtime(source: Path, path: Path, feeds: list[dict[str, Any]]) -> None:
    """Write ONNX Runtime's QDQ model: int8, a scale for each channel of the weights."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.rest = iter(feeds)

        def get_next(self) -> dict[str, Any] | None:
            return next(self.rest, None)

    kinds = {"activation_type": QuantType.QInt8, "weight_type": QuantType.QInt8}
    quantize_static(str(source), str(path), Reader(), quant_format=QuantFormat.QDQ, per_channel=True, **kinds)


def measured(source: Path, folder: Path) -> dict[str, Any]:
    """Quantize a network by both ways, and measure what came of it."""
    import onnxruntime

    feeds = feeds_of(source, SAMPLES, SEED)
    (unseen,) = feeds_of(source, 1, UNSEEN)
    session = onnxruntime.InferenceSession(str(source), providers=["CPUExecutionProvider"])
    expected = session.run(None, unseen)
    files = {"float": folder / "float.tflite"}
    relayout.convert(source, format="tflite").save(files["float"])
    found: dict[str, Any] = {"name": source.stem, "ways": {}}
    for way in WAYS:
        files[way] = folder / f"{way}.tflite"
        try:
            if way == "quantize":
                options: dict[str, Any] = {"quantize": "int8", "calibrate": feeds}
                origin = source
            else:
                origin, options = folder / "qdq.onnx", {}
                quantized_by_runtime(source, origin, feeds)
            relayout.convert(origin, format="tflite", **options).save(files[way])
            got = run(files[way], unseen)
            found["ways"][way] = {
                "snr": min(decibels(one, other) for one, other in zip(expected, got, strict=True)),
                "floats": float_operators(files[way]),
                "size": files[way].stat().st_size,
            }
            npu = folder / f"{way}_npu.tflite"
            relayout.convert(
                origin,
                format="tflite",
                input_type="int8",
                output_type="int8",
                **({} if way == "quantize" else NPU),
                **options,
            ).save(npu)
            found["ways"][way] |= judged(npu, folder)
        except Exception as error:  # of either quantizer, or of a runtime: a row says it
            told = f"{type(error).__name__}: {' '.join(str(error).split())}"
            found["ways"].setdefault(way, {})["error"] = told[:120]
    present = {name: path for name, path in files.items() if path.exists()}
    found["ms"] = milliseconds(present, unseen)
    return found


NPU = {"target": "ethos-u"}
"""Options for an NPU, of a model that is quantized already."""


def run(path: Path, feed: dict[str, Any]) -> list[Any]:
    runner = _runner(path)
    names = runner.get_input_details()
    results = runner(**{name: feed[name].astype(put["dtype"]) for name, put in names.items()})
    return [results[name] for name in runner.get_output_details()]


def _runner(path: Path) -> Any:
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(path), num_threads=1)
    interpreter.allocate_tensors()
    return interpreter.get_signature_runner()


def decibels(expected: Any, got: Any) -> float:
    wrong = np.square(expected.astype(np.float64) - got).sum()
    return float(10 * np.log10(max(np.square(expected.astype(np.float64)).sum(), 1e-30) / max(wrong, 1e-30)))


def float_operators(path: Path) -> dict[str, int]:
    """Return the operators that compute real numbers, but for those between them and integers."""
    from relayout.formats.tflite.container.loading import load

    counts: dict[str, int] = {}
    for graph in load(path).subgraphs:
        for operator in graph.operators:
            kinds = {graph.tensors[each].type.name.lower() for each in operator.outputs}
            if kinds & set(REALS) and operator.name != "DEQUANTIZE":
                counts[operator.name] = counts.get(operator.name, 0) + 1
    return counts


def judged(path: Path, folder: Path) -> dict[str, Any]:
    """Return what Vela leaves to the CPU, and whether TensorFlow Lite Micro loads a file."""
    from by_vela import PROGRAM, RefusedError, judge

    answer: dict[str, Any] = {}
    if PROGRAM is not None:
        try:
            judgement = judge(path, folder)
            answer |= {"cpu": sum(judgement.on_cpu.values()), "cycles": judgement.cycles}
        except RefusedError:
            answer["vela"] = "refuses"
    if find_spec("tflite_micro") is not None:
        script = f"from tflite_micro import runtime; runtime.Interpreter.from_file({str(path)!r}, arena_size=1 << 26)"
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
        answer["tflm"] = done.returncode == 0
    return answer


def milliseconds(files: dict[str, Path], feed: dict[str, Any]) -> dict[str, float]:
    """Return the processor's time of each file's run: the median of turns that take place one after the other."""
    runners = {name: _runner(path) for name, path in files.items()}
    spent: dict[str, list[float]] = {name: [] for name in files}
    for _ in range(ROUNDS):
        for name, runner in runners.items():
            fed = {each: feed[each].astype(put["dtype"]) for each, put in runner.get_input_details().items()}
            runner(**fed)
            begin, count = time.process_time(), 0
            while time.process_time() - begin < TURN:
                runner(**fed)
                count += 1
            spent[name].append((time.process_time() - begin) / count * 1000)
    return {name: median(each) for name, each in spent.items()}


def page(rows: list[dict[str, Any]]) -> str:
    """Return the page."""
    head = ["network", "by", "signal to noise", "float operators", "time", "CPU operators of Vela", "TFLM"]
    lines = []
    for row in rows:
        for way, title in zip(WAYS, ("`--quantize int8`", "ONNX Runtime's QDQ"), strict=True):
            lines.append([row["name"] if way == WAYS[0] else "", title, *_cells(row, way)])
    both = [row for row in rows if all("snr" in row["ways"].get(way, {}) for way in WAYS)]
    better = sum(row["ways"]["quantize"]["snr"] >= row["ways"]["qdq"]["snr"] - 0.5 for row in both)
    times = [row["ms"]["quantize"] / row["ms"]["float"] for row in rows if "quantize" in row["ms"]]
    return f"""<!-- made by bench/quantizing.py -->

# Measured: int8

{len(rows)} networks of random weights, quantized to int8 `.tflite` by two ways on the same {SAMPLES} random samples
({date.today().isoformat()}). Of {len(both)} networks that both ways quantize, `--quantize int8` loses no more than ONNX
Runtime's way, or at most 0.5 dB more, on {better}. Its files take {median(times):.2f} of the float file's time in the
median. Networks with trained weights have other ratios of signal to noise: measure yours with
[`relayout verify`](verify.md).

{table(head, lines, left=2)}

- Signal to noise: of the worst output, beside the float network, on an input that the calibration has not seen.
- Float operators: those that compute real numbers in the file.
- Time: the processor's time in LiteRT on one thread, as a part of the float file's.
- Vela and TensorFlow Lite Micro get files with `int8` inputs and outputs, the QDQ model by `--target ethos-u`.
"""


def _cells(row: dict[str, Any], way: str) -> list[str]:
    found, ms = row["ways"].get(way, {}), row["ms"]
    if "snr" not in found:
        return [found.get("error", "–")[:60], "–", "–", "–", "–"]
    floats = ", ".join(f"{count} {name}" for name, count in sorted(found["floats"].items())) or "none"
    ratio = f"{ms[way] / ms['float']:.2f}" if way in ms else "–"
    loads = {True: "loads", False: "refuses"}.get(found.get("tflm"), "–")
    return [f"{found['snr']:.1f} dB", floats, ratio, str(found.get("cpu", found.get("vela", "–"))), loads]


def main() -> None:
    if len(sys.argv) == 3 and sys.argv[1] == "--one":
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(measured(Path(sys.argv[2]), Path(folder))))
        return
    folder, out = map(Path, sys.argv[1:3])
    rows = []
    for source in sorted(folder.glob("*.onnx")):
        known = source.with_suffix(".json")
        if not known.exists():
            done = subprocess.run([sys.executable, __file__, "--one", str(source)], capture_output=True, text=True)
            print(source.stem, done.returncode, flush=True)
            if done.returncode:
                print("\n".join(done.stderr.splitlines()[-3:]), file=sys.stderr)
                continue
            known.write_text(done.stdout.splitlines()[-1], encoding="utf-8")
        rows.append(json.loads(known.read_text(encoding="utf-8")))
    out.write_text(page(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
