"""Random graphs as `.tflite` models: LiteRT's numbers are ONNX Runtime's, or one error says what cannot be written.

    python bench/export_properties.py --graphs 300 [--first 0] [--of windows,quantized,mixed,moving,opened]

Each graph is written with the interface kept and converted, and runs with LiteRT's usual kernels and with its reference
kernels. That is done in another process, which may end: the next one goes on with the next graph. What is far off in a
quantized graph is excused only if its source shows the same spread by itself ("within spread"): `verify` says so, or it
does with the real numbers that it quantizes moved by up to a step. Means of no elements, which ONNX does not define,
are counted apart ("undefined"). Graph n is always the same. The graphs are those of
`tests/formats/tflite/exporting/random_*.py` and of `tests/infer/`. Exit code 1 if anything was found.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/formats/tflite/exporting"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import onnxruntime
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from random_quantized import quantized_model
from random_windows import window_model

import relayout
from infer.graphs import random_model
from infer.mixed import mixed_model
from infer.opened import opened_model
from products import in_full
from relayout.graph.subgraphs import all_nodes
from relayout.verification.forced_graph import move_at_random

Arrays = Mapping[str, NDArray[Any]]
AXIS = re.compile(r"\([^)]*\)|\S+")
"""An axis of a layout; several that are one are in parentheses."""
LIMIT, STOPPED = 120, 1200
"""Processor seconds, and seconds of the clock, after which a graph is given up, by ending the process."""
KERNELS = {"usual": OpResolverType.AUTO, "reference": OpResolverType.BUILTIN_REF}
EXPECTED = ("right", "within spread", "without elements", "undefined", "refused", "unusable")
MEANS = ("ReduceMean", "GlobalAveragePool")
"""Operators whose result ONNX leaves undefined where they read no elements."""
DISTURBANCES, SPREADS = 8, 2
"""Disturbed runs of the source, and the multiple of its spread by which a computed number may be off."""
KERNEL_STEPS = 1.0
"""Steps of its result by which a kernel's number is off at most, before that is rounded."""
STRETCH = 500
"""Graphs for one process."""
STEPS = 12
"""How many steps of its scale a number in a quantized graph may be off: kernels round as they like."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=int, default=300, help="how many of each family (default 300)")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--of", default=",".join(FAMILIES), help=f"families (default {','.join(FAMILIES)})")
    parser.add_argument("--out", type=Path, help="a folder for the models of what is found")
    given = parser.parse_args()
    tally: Counter[str] = Counter()
    jobs = [(family, seed) for family in given.of.split(",") for seed in range(given.first, given.first + given.graphs)]
    for family, seed, verdict in verdicts(jobs, given.out):
        tally[verdict.split(":")[0]] += 1
        if not verdict.startswith(EXPECTED):
            print(f"{family} {seed}: {verdict}", flush=True)
    print(dict(tally))
    sys.exit(any(kind not in EXPECTED for kind in tally))


def verdicts(jobs: Sequence[tuple[str, int]], out: Path | None) -> Iterator[tuple[str, int, str]]:
    """Return what came of each graph. A process takes one after the other, and where it ends another goes on."""
    place = 0
    while place < len(jobs):
        stretch = jobs[place : place + STRETCH]
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            os.close(reader)
            attempt_all(stretch, out, writer)
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as lines:
            for job, line in zip(stretch, lines, strict=False):
                yield *job, json.loads(line)
                place += 1
        _, status = os.waitpid(child, 0)
        if status:
            yield *jobs[place], f"died: {os.waitstatus_to_exitcode(status)}"
            place += 1


def attempt_all(jobs: Sequence[tuple[str, int]], out: Path | None, writer: int) -> None:
    """Write a line for each graph: what came of it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    for family, seed in jobs:
        signal.setitimer(signal.ITIMER_PROF, LIMIT)
        signal.alarm(STOPPED)
        with tempfile.TemporaryDirectory() as folder:
            try:
                verdict = attempt(family, seed, Path(folder), out)
            except BaseException:
                verdict = f"traceback: {traceback.format_exc()[-1500:]}"
        os.write(writer, f"{json.dumps(verdict)}\n".encode())


def attempt(family: str, seed: int, folder: Path, out: Path | None) -> str:
    """Return what comes of a graph."""
    warnings.simplefilter("ignore")
    model, feed = FAMILIES[family](seed)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        onnx.save(model, out / f"{family}_{seed}.onnx")
    try:
        expected = in_onnxruntime(model, feed)
    except Exception as error:
        return f"unusable: {error}"
    source, verdict = folder / "source.onnx", "right"
    onnx.save(model, source)
    for io in ("keep", "convert"):
        try:
            result = relayout.convert(source, format="tflite", io=io)
        except relayout.RelayoutError as error:
            return f"refused: {error}"
        target = folder / f"{io}.tflite"
        result.save(target)
        if out is not None:
            result.save(out / f"{family}_{seed}_{io}.tflite")
        for kernels, resolver in KERNELS.items():
            try:
                got = in_litert(target, feed, resolver, result.report.interface)
            except Exception as error:
                if kernels == "reference" and "Didn't find op for builtin" in str(error):
                    continue  # there is no reference kernel
                if kernels == "usual" and not all(wanted.size for wanted in expected.values()):
                    verdict = "without elements"  # XNNPACK prepares no window over nothing
                    continue
                return f"does not run: {io} {kernels} {str(error)[:300]}"
            plain = {end.name for end in result.report.interface if " -> " not in end.layout or perm_of(end.layout)}
            for name, wanted in expected.items():
                if not wanted.size and not got[name].size:
                    verdict = "without elements"
                    continue
                if name not in plain and io == "convert":
                    continue  # its layout has no perm
                if said := differs(wanted, got[name], family):
                    if is_quantized(model) and (
                        is_within_spread(model, feed, name, wanted, got[name])
                        or relayout.verify(source, target, inputs=feed).ok
                    ):
                        verdict = "within spread"
                        continue
                    if averages_nothing(model, feed):
                        return f"undefined: {io} {kernels} {name} {said}"
                    return f"wrong: {io} {kernels} {name} {said}"
    return verdict


def is_within_spread(model: onnx.ModelProto, feed: Arrays, name: str, wanted: NDArray[Any], got: NDArray[Any]) -> bool:
    """Tell whether the source differs as much from itself where what it quantizes is moved at random on the way."""
    if wanted.shape != got.shape or wanted.dtype.kind not in "iuf":
        return False
    spread = np.zeros(wanted.shape)
    for seed in range(DISTURBANCES):
        moved = ir.from_proto(model)
        quantized = [node.outputs[0].name or "" for node in all_nodes(moved.graph) if node.op_type == "QuantizeLinear"]
        move_at_random(moved.graph, dict.fromkeys(quantized, KERNEL_STEPS), seed)
        other = in_onnxruntime(ir.to_proto(moved), feed)[name]
        spread = np.maximum(spread, np.abs(wanted.astype(np.float64) - other.astype(np.float64)))
    return bool(np.abs(wanted.astype(np.float64) - got.astype(np.float64)).max() <= SPREADS * spread.max())


def averages_nothing(model: onnx.ModelProto, feed: Arrays) -> bool:
    """Tell whether a node of the main graph averages nothing, which ONNX does not define."""
    read = list(dict.fromkeys(node.input[0] for node in model.graph.node if node.op_type in MEANS))
    opened = onnx.ModelProto.FromString(model.SerializeToString())
    known = {value.name for value in opened.graph.output}
    opened.graph.output.extend(onnx.ValueInfoProto(name=name) for name in read if name not in known)
    return any(not array.size for name, array in in_onnxruntime(opened, feed).items() if name in read)


def is_quantized(model: onnx.ModelProto) -> bool:
    """Tell whether a node quantizes, also in a body."""
    return b"QuantizeLinear" in model.SerializeToString()


def in_onnxruntime(model: onnx.ModelProto, feed: Arrays) -> dict[str, NDArray[Any]]:
    """Return the outputs, without optimizations of the runtime's own."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(in_full(model), options, ["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, map(np.asarray, session.run(names, dict(feed))), strict=True))


def in_litert(path: Path, feed: Arrays, resolver: Any, ends: Sequence[Any]) -> dict[str, NDArray[Any]]:
    """Return the outputs, all in the source's layouts."""
    interpreter = Interpreter(model_path=str(path), experimental_op_resolver_type=resolver, num_threads=1)
    (signature,) = interpreter._get_full_signature_list().values()
    perms = {end.name: perm_of(end.layout) for end in ends}
    arrays = {index: turned(feed[name], perms.get(name)) for name, index in signature["inputs"].items()}
    for index, array in arrays.items():
        interpreter.resize_tensor_input(index, array.shape)
    interpreter.allocate_tensors()
    for index, array in arrays.items():
        interpreter.set_tensor(index, array)
    interpreter.invoke()
    results = {name: result_of(interpreter, index) for name, index in signature["outputs"].items()}
    return {name: turned(array, perms.get(name), back=True) for name, array in results.items()}


def result_of(interpreter: Interpreter, index: int) -> NDArray[Any]:
    """Return a tensor; LiteRT's Python has no array of one without elements."""
    details = interpreter._get_tensor_details(index, 0)
    if 0 in details["shape"]:
        return np.zeros(details["shape"], details["dtype"])
    return np.asarray(interpreter.get_tensor(index))


def perm_of(layout: str) -> list[int] | None:
    """Return what a layout such as `n c h w -> n h w c` says; None where it names no axes of both."""
    before, arrow, after = (AXIS.findall(side) for side in layout.partition(" -> "))
    if not arrow or sorted(before) != sorted(after) or len(set(before)) != len(before):
        return None
    return [before.index(letter) for letter in after]


def turned(array: NDArray[Any], perm: list[int] | None, *, back: bool = False) -> NDArray[Any]:
    """Return an array as the model has it, or back."""
    if perm is None:
        return array
    return np.ascontiguousarray(array.transpose(np.argsort(perm) if back else perm))


def differs(wanted: NDArray[Any], got: NDArray[Any], family: str) -> str:
    if wanted.shape != got.shape:
        return f"has extents {got.shape}, not {wanted.shape}"
    if wanted.dtype.kind not in "iuf" or not wanted.size:
        return "" if np.array_equal(wanted, got) else "has other elements"
    off = np.atleast_1d(np.abs(wanted.astype(np.float64) - got.astype(np.float64)))
    off[np.atleast_1d((wanted == got) | ((wanted != wanted) & (got != got)))] = 0
    off[off != off] = np.inf
    if family == "quantized":
        few = STEPS if wanted.dtype.kind in "iu" else 0.06 * max(float(np.abs(wanted).max()), 1e-6)
        if wanted.dtype.itemsize == 2:
            few = 256 * STEPS  # it may be made of bytes
        mean = few / 5
        return (
            "" if off.max() <= few and off.mean() <= mean else f"is off by {off.max():.3g}, {off.mean():.3g} on average"
        )
    if wanted.dtype.kind in "iu":
        return "" if not off.any() else f"is off by {off.max():.3g}"
    finite = np.abs(wanted[np.isfinite(wanted)])
    most = 2e-4 * max(float(finite.max()) if finite.size else 0.0, 1e-3)
    return "" if off.max() <= most else f"is off by {off.max():.3g} of {most / 2e-4:.3g}"


def steps(seed: int) -> int:
    """How many nodes graph n has at least."""
    return 3 + seed % 9


def _mixed(seed: int) -> tuple[onnx.ModelProto, Arrays]:
    made = mixed_model(seed, steps(seed))
    return made.model, made.feed


def _opened(seed: int) -> tuple[onnx.ModelProto, Arrays]:
    model, feeds = opened_model(seed, steps(seed))
    return model, feeds[0]


FAMILIES: dict[str, Any] = {
    "windows": window_model,
    "quantized": quantized_model,
    "moving": lambda seed: random_model(seed, steps(seed)),
    "mixed": _mixed,
    "opened": _opened,
}

if __name__ == "__main__":
    main()
