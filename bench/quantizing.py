"""Quantize float networks to int8 `.tflite` by three ways, and write a page that compares them.

    python bench/quantizing.py FOLDER [NAME ...]

FOLDER has networks of real numbers and fixed extents as `bench/make_quantizing.py` writes them: NAME.onnx, NAME.litert
by litert-torch, and inputs. The ways are `relayout convert --quantize int8`; ONNX Runtime's `quantize_static` and
`relayout convert` of what that makes; and ai-edge-quantizer on litert-torch's file. All see the same random samples.
Both float `.tflite` go through the same quantizer with the same rule of ranges. Each network runs in a process of its
own.

The signal to noise of a way is that of all inputs together: the sum of squares of an output over the sum of squares of
what is wrong with it. A ratio of one input depends on the input, by 0.8 dB in a TasNet, and by more where an output has
few numbers; a mean of ratios would count one that is right by luck for many.

 What was measured is in `bench/quantizing.json`, from which the page is made. With names only these networks are
measured, also those that are known. Vela judges, where it is installed, and TensorFlow Lite Micro, if `RELAYOUT_TFLM`
names a Python that has it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from tables import table, write_page

import relayout

SAMPLES = 4
"""Inputs that calibrate; all others are measured."""
ROUNDS, TURN = 7, 0.02
"""Turns in which files run one after the other, and the seconds of each turn."""
COPIES = 3
"""How often a file is loaded: equal files differ by 5 % in time, by where in memory they lie."""
LIMIT_SECONDS = 900
WAYS = {"quantize": "`--quantize int8`", "qdq": "QDQ", "peer": "litert-torch"}
REALS = ("float32",)
TARGETS = {"vela": "ethos-u", "tflm": "tflite-micro"}
"""Judge -> the target of the file that it gets."""
JSON = Path(__file__).with_suffix(".json")
PAGE = Path(__file__).parents[1] / "docs" / "int8-benchmark.md"
TFLM = os.environ.get("RELAYOUT_TFLM")


def feeds_of(source: Path) -> list[dict[str, Any]]:
    """Return the random inputs that lie beside a network."""
    arrays = np.load(source.with_suffix(".npz"))
    count = len(next(iter(arrays.values())))
    return [{name: arrays[name][place] for name in arrays} for place in range(count)]


def quantized_by_runtime(source: Path, path: Path, feeds: list[dict[str, Any]]) -> None:
    """Write ONNX Runtime's QDQ model: int8, a scale for each channel of the weights."""
    import onnx
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.rest = iter(feeds)

        def get_next(self) -> dict[str, Any] | None:
            return next(self.rest, None)

    prepared = path.with_suffix(".prepared")
    quant_pre_process(str(source), str(prepared), skip_symbolic_shape=True)
    model = onnx.load(prepared)
    # A bias that several operators share gets a copy for each, whose name has a number more: that may be another value.
    names = {each.name: f"{each.name}_" for each in model.graph.initializer}
    for each in model.graph.initializer:
        each.name = names[each.name]
    for node in model.graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
    onnx.save(model, prepared)
    kinds = {"activation_type": QuantType.QInt8, "weight_type": QuantType.QInt8}
    quantize_static(str(prepared), str(path), Reader(), quant_format=QuantFormat.QDQ, per_channel=True, **kinds)


def quantized_peer(source: Path, path: Path, feeds: list[dict[str, Any]]) -> None:
    """Write litert-torch's file as the quantizer's own recipe has it, with the ranges that relayout takes."""
    from ai_edge_litert.interpreter import Interpreter
    from ai_edge_quantizer import recipe

    from relayout.quantization.quantize import quantized_file

    interpreter = Interpreter(str(source))
    (key,) = interpreter.get_signature_list()
    details = interpreter.get_signature_runner(key).get_input_details()
    samples = [
        {name: value.astype(put["dtype"]) for (name, put), value in zip(details.items(), feed.values(), strict=True)}
        for feed in feeds
    ]
    quantized_file(source, path, recipe.static_wi8_ai8(), key, samples, lambda _: ({}, []))


def measured(source: Path, folder: Path) -> dict[str, Any]:
    """Quantize a network by all ways, and measure what came of it."""
    import onnxruntime

    every = feeds_of(source)
    feeds, others = every[:SAMPLES], every[SAMPLES:]
    unseen = others[0]
    session = onnxruntime.InferenceSession(str(source), providers=["CPUExecutionProvider"])
    expected = [session.run(None, feed) for feed in others]
    answer: dict[str, Any] = {"name": source.stem, "inputs": len(others), "ways": {way: {} for way in WAYS}}
    files: dict[str, Path] = {}
    peer = source.with_suffix(".litert")
    if peer.exists():
        files["peer_float"] = peer
    files["float"] = folder / "float.tflite"
    relayout.convert(source, format="tflite").save(files["float"])

    qdq = folder / "qdq.onnx"

    def of_relayout(origin: Path, path: Path, **options: Any) -> Path:
        own = {"quantize": "int8", "calibrate": feeds} if origin == source else {}
        ends = {"input_type": "int8"} if all(each.dtype.kind == "f" for each in unseen.values()) else {}
        for asked in ({"output_type": "int8", **ends}, {}):
            try:
                relayout.convert(origin, format="tflite", **asked, **own, **options).save(path)
            except relayout.LayoutError:  # the quantizer left an end float
                if not asked or own:
                    raise
            else:
                break
        return path

    def by_qdq(path: Path) -> Path:
        quantized_by_runtime(source, qdq, feeds)
        return of_relayout(qdq, path)

    def by_peer(path: Path) -> Path:
        quantized_peer(peer, path, feeds)
        return path

    makers: dict[str, Callable[[Path], Path]] = {"quantize": lambda path: of_relayout(source, path), "qdq": by_qdq}
    makers |= {"peer": by_peer} if peer.exists() else {}
    for way, make in makers.items():
        row = answer["ways"][way]
        try:
            path = make(folder / f"{way}.tflite")
            row["snr"] = signal_to_noise(expected, run(path, others))
            row |= {"floats": float_operators(path), "size": path.stat().st_size}
            files[way] = path
        except Exception as error:  # of either quantizer, or of a runtime: a row says it
            row["error"] = _told(error)
            if way == "peer" or not (way == "quantize" or qdq.exists()):
                continue
        for judge, target in TARGETS.items():
            try:
                path = folder / f"{way}_{target}.tflite"
                origin = source if way == "quantize" else qdq
                path = files["peer"] if way == "peer" else of_relayout(origin, path, target=target)
                row |= vela_answer(path, folder) if judge == "vela" else micro_answer(path, unseen)
            except Exception as error:
                row[judge] = _told(error)
    answer["ms"] = milliseconds(files, unseen)
    return answer


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]


def run(path: Path, feeds: list[dict[str, Any]]) -> Iterator[list[Any]]:
    """Yield a file's results of each input, as real numbers."""
    runner = _runner(path)
    details = runner.get_output_details()
    for feed in feeds:
        results = runner(**_fed(runner, feed))
        yield [_as_real(results[name], put) for name, put in details.items()]


def _fed(runner: Any, feed: dict[str, Any]) -> dict[str, Any]:
    """Return inputs by the names of a file, quantized where it takes integers."""
    details = runner.get_input_details()
    by_place = zip(details, feed.values(), strict=True)
    values = {name: feed[name] for name in details} if feed.keys() == details.keys() else dict(by_place)
    return {name: _as_stored(values[name], put) for name, put in details.items()}


def _as_stored(value: Any, put: dict[str, Any]) -> Any:
    scale, zero = put["quantization"]
    if not scale or value.dtype.kind != "f" or put["dtype"] == np.float32:
        return value.astype(put["dtype"])
    limits = np.iinfo(put["dtype"])
    return np.clip(np.round(value / scale) + zero, limits.min, limits.max).astype(put["dtype"])


def _as_real(value: Any, put: dict[str, Any]) -> Any:
    scale, zero = put["quantization"]
    return value if not scale or value.dtype.kind == "f" else (value.astype(np.float64) - zero) * scale


def _runner(path: Path) -> Any:
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(path), num_threads=1)
    interpreter.allocate_tensors()
    return interpreter.get_signature_runner()


def signal_to_noise(expected: Iterable[list[Any]], results: Iterable[list[Any]]) -> float:
    """Return the decibels of the worst output, of all inputs together."""
    signal, noise = 0.0, 0.0
    for rows, others in zip(expected, results, strict=True):
        pairs = [(row.astype(np.float64), other) for row, other in zip(rows, others, strict=True)]
        signal += np.array([np.square(row).sum() for row, _ in pairs])
        noise += np.array([np.square(row - other).sum() for row, other in pairs])
    return float(10 * np.log10(np.maximum(signal, 1e-30) / np.maximum(noise, 1e-30)).min())


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


def vela_answer(path: Path, folder: Path) -> dict[str, Any]:
    """Return what Vela leaves to the CPU, and its cycles."""
    from by_vela import PROGRAM, RefusedError, judge

    if PROGRAM is None:
        return {}
    try:
        judgement = judge(path, folder)
    except RefusedError as error:
        return {"vela": str(error)[:160]}
    return {"cpu": judgement.on_cpu, "cycles": judgement.cycles}


def micro_answer(path: Path, feed: dict[str, Any]) -> dict[str, Any]:
    """Return how far TensorFlow Lite Micro is off LiteRT, or why it does not run a file."""
    if not TFLM:
        return {}
    runner = _runner(path)
    fed = _fed(runner, feed)
    results = runner(**fed)
    inputs = {f"i{place}": value for place, value in enumerate(fed.values())}
    outputs = {f"o{place}": value for place, value in enumerate(results.values())}
    np.savez(path.with_suffix(".npz"), **inputs, **outputs)
    command = [TFLM, str(Path(__file__).with_name("by_tflm.py")), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    answer = json.loads(done.stdout) if done.stdout.startswith("{") else {}
    missing = [line for line in done.stderr.splitlines() if "find" in line or "support" in line or "rror" in line]
    return {"tflm": answer.get("off", (missing or [answer.get("refused", f"exit {done.returncode}")])[0][:120])}


def milliseconds(files: dict[str, Path], feed: dict[str, Any]) -> dict[str, float]:
    """Return the processor's time of each file's run: the median of turns that take place one after the other."""
    runners = [(name, _runner(path)) for _ in range(COPIES) for name, path in files.items()]
    fed = {name: _fed(runner, feed) for name, runner in runners}
    spent: dict[str, list[float]] = {name: [] for name in files}
    for _ in range(ROUNDS):
        for name, runner in runners:
            runner(**fed[name])
            begin, count = time.process_time(), 0
            while time.process_time() - begin < TURN:
                runner(**fed[name])
                count += 1
            spent[name].append((time.process_time() - begin) / count * 1000)
    return {name: median(each) for name, each in spent.items()}


def page(rows: list[dict[str, Any]]) -> str:
    """Return the page."""
    head = ["network", "signal to noise, dB", "float operators", "time", "Vela: on the CPU", "Vela: cycles", "TFLM"]
    lines = [[row["name"], *_cells(row)] for row in rows]
    worse = [row["name"] for row in rows if _loss(row) > 0.5]
    known = [row for row in rows if "snr" in row["ways"]["peer"] and "snr" in row["ways"]["quantize"]]
    times = [ratio for row in rows if (ratio := _ratio(row, "quantize")) is not None]
    quantized = {way: sum("snr" in row["ways"][way] for row in rows) for way in WAYS}
    inputs = [row.get("inputs", 1) for row in rows]
    whole, peers_whole = (
        sum(not row["ways"][way].get("cpu", {"?": 1}) for row in rows) for way in ("quantize", "peer")
    )
    return f"""<!-- made by bench/quantizing.py -->

# Measured: int8

`--quantize int8` quantizes {quantized["quantize"]} of {len(rows)} networks, and litert-torch's way
{quantized["peer"]}, with the same quantizer and the same {SAMPLES} samples ({date.today().isoformat()}). Of
{len(known)} networks that both quantize, relayout's file loses at most 0.5 dB more on {len(known) - len(worse)}; it
takes {median(times):.2f} of the time in LiteRT in the median, at most {max(times):.2f}. Vela puts {whole} of relayout's
files wholly on the NPU, and {peers_whole} of litert-torch's.

![Time of int8 files in LiteRT, litert-torch's = 1](plots/int8-benchmark.svg)

{table(head, lines)}

Cells have `--quantize int8` / ONNX Runtime's QDQ through `relayout convert` / litert-torch.

`--quantize int8` is behind litert-torch's way here: {_behind(rows)}.

- Signal to noise: of the worst output, beside the float network, on {min(inputs)} to {max(inputs)} inputs that the
  calibration has not seen, taken together. Weights are random: networks with trained weights have other ratios. Measure
  yours with [`relayout verify`](verify.md).
- Float operators: those that compute real numbers in the file.
- Time: the processor's time in LiteRT on one thread, as a part of that of litert-torch's int8 file, and where there is
  none of relayout's float file (in brackets).
- All files have `int8` inputs and outputs. Vela (Ethos-U55-256, its own estimate) gets files written with
  `--target ethos-u`, TensorFlow Lite Micro with `--target tflite-micro`; litert-torch's are judged as they are. TFLM:
  the greatest difference from LiteRT in steps of an integer; – where it does not run the file.
{_faults(rows)}"""


def _loss(row: dict[str, Any]) -> float:
    ours, peers = (row["ways"][way].get("snr") for way in ("quantize", "peer"))
    return 0.0 if ours is None or peers is None else float(peers - ours)


def _ratio(row: dict[str, Any], way: str) -> float | None:
    """Return the time of a way's file as a part of litert-torch's."""
    ms = row["ms"]
    return ms[way] / ms["peer"] if way in ms and "peer" in ms else None


def _cells(row: dict[str, Any]) -> list[str]:
    ways = [row["ways"][way] for way in WAYS]
    times = []
    for way in ("quantize", "qdq"):
        ratio = _ratio(row, way)
        float_ratio = f"({row['ms'][way] / row['ms']['float']:.2f})" if way in row["ms"] else "–"
        times.append(f"{ratio:.2f}" if ratio is not None else float_ratio)
    peer = ways[-1].get("cycles")
    return [
        " / ".join(f"{way['snr']:.1f}" if "snr" in way else "–" for way in ways),
        " / ".join(str(sum(way["floats"].values())) if "floats" in way else "–" for way in ways),
        " / ".join(times),
        " / ".join(str(sum(way["cpu"].values())) if "cpu" in way else "–" for way in ways),
        " / ".join(f"{way['cycles'] / peer:.2f}" if peer and "cycles" in way else "–" for way in ways[:-1]),
        " / ".join(str(way["tflm"]) if isinstance(way.get("tflm"), int) else "–" for way in ways),
    ]


def _behind(rows: list[dict[str, Any]]) -> str:
    """Return the networks on which `--quantize int8` is behind litert-torch."""

    def more(key: str, row: dict[str, Any], factor: float) -> bool:
        ours, peers = (row["ways"][way].get(key) for way in ("quantize", "peer"))
        ours, peers = (sum(each.values()) if isinstance(each, dict) else each for each in (ours, peers))
        return ours is not None and peers is not None and ours > peers * factor

    kinds = {
        "over 0.5 dB": [row["name"] for row in rows if _loss(row) > 0.5],
        "over 1.05 of the time": [row["name"] for row in rows if (_ratio(row, "quantize") or 0) > 1.05],
        "more operators on the CPU": [row["name"] for row in rows if more("cpu", row, 1)],
        "more cycles": [row["name"] for row in rows if more("cycles", row, 1)],
    }
    return "; ".join(f"{kind}: {', '.join(names) or 'none'}" for kind, names in kinds.items())


def _faults(rows: list[dict[str, Any]]) -> str:
    """Return what went wrong, a line for each fault with the networks that have it."""
    names: dict[str, dict[str, list[str]]] = {}
    for row in rows:
        for way, title in WAYS.items():
            found = row["ways"][way]
            said = [found.get("error"), *([f"Vela: {found['vela']}"] if found.get("vela") else [])]
            said += [found["tflm"]] if isinstance(found.get("tflm"), str) else []
            for text in dict.fromkeys(str(text).partition(";")[0] for text in said if text):
                fault = re.sub(r" ×\d+ \(first: [^)]*\)", "", text)
                names.setdefault(fault, {}).setdefault(title, []).append(row["name"])
    lines = []
    for fault, by in names.items():
        listed = "; ".join(f"{title}: {', '.join(found)}" for title, found in by.items())
        lines.append(f"- {fault.rstrip('.')}. {listed}")
    return "\n## What is not written, or not run\n\n" + "\n".join(lines) + "\n" if lines else ""


def main() -> None:
    if len(sys.argv) == 3 and sys.argv[1] == "--one":
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(measured(Path(sys.argv[2]), Path(folder))))
        return
    folder, names = Path(sys.argv[1]), sys.argv[2:]
    known = {row["name"]: row for row in json.loads(JSON.read_text(encoding="utf-8"))} if JSON.exists() else {}
    for source in sorted(folder.glob("*.onnx")):
        if source.stem not in names if names else source.stem in known:
            continue
        command = [sys.executable, __file__, "--one", str(source)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            print(source.stem, "too late", flush=True)
            continue
        print(source.stem, done.returncode, flush=True)
        if done.returncode:
            print("\n".join(done.stderr.splitlines()[-3:]), file=sys.stderr, flush=True)
            continue
        known[source.stem] = json.loads(done.stdout.splitlines()[-1])
        rows = [known[name] for name in sorted(known)]
        JSON.write_text(json.dumps(rows, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    write_page(PAGE, page([known[name] for name in sorted(known)]))


if __name__ == "__main__":
    main()
