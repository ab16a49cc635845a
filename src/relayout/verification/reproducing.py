"""The smallest models around the first value that diverges, with what goes in and a script that fails by itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import numpy as np
import onnx_ir as ir

from relayout.errors import RelayoutError
from relayout.formats.onnx.completing import complete
from relayout.formats.onnx.writing import write
from relayout.formats.tflite.container.loading import load
from relayout.light_dataclass import dataclass
from relayout.verification.compare import Kind, Tolerance, difference, judge, kind_of
from relayout.verification.comparison import Comparison
from relayout.verification.feeds import user_feeds
from relayout.verification.pairs import Pair
from relayout.verification.report import Row, VerifyReport
from relayout.verification.side import Array, RunnableModel, Source, open_side

SCRIPT = '''"""{file} should compute expected.npy from its inputs, and does not. Written by `relayout verify --repro`.

Needs numpy and {needs}. Exits with 1 as long as the difference is there.
"""

import sys
from pathlib import Path

import numpy as np

CASE = {case}
HERE = Path(__file__).resolve().parent


def run_onnx(path, feeds, output):
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (result,) = session.run([output], feeds)
    return result


def run_tflite(path, feeds, output):
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=path)
    places = [details["index"] for details in interpreter.get_input_details()]  # fed in this order
    for place, array in zip(places, feeds.values()):
        interpreter.resize_tensor_input(place, array.shape)
    interpreter.allocate_tensors()
    for place, array in zip(places, feeds.values()):
        interpreter.set_tensor(place, array)
    interpreter.invoke()
    return interpreter.get_tensor(interpreter.get_output_details()[0]["index"])


def run(model):
    case = CASE[model]
    feeds = {{name: np.load(HERE / file) for name, file in case["inputs"].items()}}
    path = str(HERE / case["file"])
    result = (run_tflite if path.endswith(".tflite") else run_onnx)(path, feeds, case["output"])
    expected = np.load(HERE / case["expected"])
    if result.shape != expected.shape:
        print(f"{{case['file']}} gives the shape {{result.shape}} and not {{expected.shape}}")
        return False
    wide = expected.astype(np.float64), result.astype(np.float64)
    unlike = np.isfinite(wide[0]) != np.isfinite(wide[1])
    far = float(np.max(np.abs(np.nan_to_num(wide[0]) - np.nan_to_num(wide[1])), initial=0.0))
    good = far <= CASE["allowed"] and not unlike.any()
    print(f"{{case['file']}} {{'agrees' if good else 'DIFFERS'}}: at most {{far:g}} off, {{CASE['allowed']:g}} allowed")
    return good


print("the value that diverges:", CASE["value"])
if "a" in CASE:
    run("a")
sys.exit(0 if run("b") else 1)
'''


@dataclass(frozen=True)
class Reproduction:
    """The files that were written."""

    directory: Path  # where
    nodes: int  # how many nodes of the second model are in it
    whole: bool  # the nodes since the last values that agree did not fail alone, so that all that leads there is in it
    value: str  # the value that diverges, by the source's name
    made_by: str  # the operator of the second model that makes it


def reproduce(
    a: Source,
    b: Source,
    report: VerifyReport,
    directory: str | Path,
    *,
    inputs: Mapping[str, Array | str | Path] | None = None,
    layouts: Mapping[str, tuple[str, str]] | None = None,
) -> Reproduction:
    """Cut the neighbourhood of the first divergence out of both models and write it down.

    Between the last values that agree and the first that does not: `b.onnx` or `b.tflite` with its inputs, what it
    should compute, and `run.py`, which fails by itself; beside it `a.onnx` or `a.tflite`, the same part of the source,
    if its runtime takes that.

    Args:
        a: the source.
        b: the model that was held against it.
        report: what `verify(a, b)` returned.
        directory: where to write; made where it does not exist, else empty.
        inputs: what `verify` was given.
        layouts: likewise.

    Raises:
        RelayoutError: nothing diverges, the difference cannot be cut out, or the directory is not empty.
    """
    row, folder = report.first, Path(directory)
    if row is None or row.difference is None:
        what = "the two models agree" if row is None else f"'{row.name}' is {row.verdict.value}, which no part shows"
        what = what if report.loss is None else "every operator of a quantized file loses a part of the signal"
        raise RelayoutError(f"--repro: {what}: there is nothing to reproduce")
    refuse_reproduction(folder)
    with open_side(b) as right, open_side(a, right.signature, other=right) as left:
        return _Reproducing(left, right, report, row, folder, layouts or {}).run(inputs)


def refuse_reproduction(folder: Path) -> None:
    """Refuse a reproduction that could not be made, before anything is run.

    Raises:
        RelayoutError: the directory is there and not empty.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RelayoutError(f"--repro {folder}: it exists and is not an empty directory")


@dataclass
class _Part:
    """A part of a model with what goes in and what should come out; of a `.tflite`, the bytes of a file."""

    model: ir.Model | bytes
    feeds: dict[str, Array]
    output: str
    expected: Array
    sources: tuple[str, ...]  # the names that its inputs have in the whole model

    @property
    def suffix(self) -> str:
        """That of its file."""
        return ".tflite" if isinstance(self.model, bytes) else ".onnx"

    @property
    def nodes(self) -> int:
        """The number of nodes in the part."""
        if isinstance(self.model, bytes):
            return len(load(self.model).subgraphs[0].operators)
        return len(self.model.graph)

    def run(self) -> Array:
        """Return what it computes."""
        with open_side(self.model) as side:
            return side.runner().run(self.feeds, [self.output])[self.output]

    def save(self, stem: Path) -> None:
        """Write it."""
        if isinstance(self.model, bytes):
            stem.with_suffix(".tflite").write_bytes(self.model)
        else:
            complete(self.model)  # its ends, which were inner values, state their types
            write(self.model, stem.with_suffix(".onnx"))


class _Reproducing:
    def __init__(
        self,
        left: RunnableModel,
        right: RunnableModel,
        report: VerifyReport,
        row: Row,
        folder: Path,
        layouts: Mapping[str, tuple[str, str]],
    ) -> None:
        self.left, self.right, self.report, self.row, self.folder = left, right, report, row, folder
        self.tolerance = Tolerance(report.rtol, report.atol)
        self.comparison = Comparison(left, right, self.tolerance, tensors=True, layouts=layouts)
        every = (*self.comparison.inputs, *self.comparison.begun, *self.comparison.interiors, *self.comparison.outputs)
        self.pairs: dict[str, Pair] = {pair.right.name: pair for pair in every}

    def run(self, inputs: Mapping[str, Array | str | Path] | None) -> Reproduction:
        fixed_feeds = user_feeds(inputs, self.left.inputs)
        agreed = {row.other for row in self.report.rows if row.ok} & set(self.pairs)
        for whole in (False, True):
            for number in range(self.report.runs):
                arrays = self.comparison.values(fixed_feeds, self.report.seed, number)
                part = self._second(set() if whole else agreed, arrays)
                if self._fails(part):
                    self._write({"b": part} | self._first(part, arrays))
                    made_by = f"{self.row.other_operator} {self.row.other_node}".strip()
                    return Reproduction(self.folder, part.nodes, whole, self.row.name, made_by)
        raise RelayoutError(f"--repro: the part of the second model up to '{self.row.other}' does not differ by itself")

    def _second(self, agreed: set[str], arrays: Mapping[str, Array]) -> _Part:
        def carried(name: str) -> Array:
            pair = self.pairs.get(name)
            return self.right.initial[name] if pair is None else pair.carried(arrays[pair.left.name])

        return _part(self.right, self.row.other, agreed, carried)

    def _first(self, part: _Part, arrays: Mapping[str, Array]) -> dict[str, _Part]:
        """Return the corresponding part of the source; nothing where its runtime refuses that."""
        own = {value.name for value in self.left.inputs}
        entries = {self.pairs[name].left.name for name in part.sources if name in self.pairs} - own
        try:
            return {"a": _part(self.left, self.row.source, entries, {**self.left.initial, **arrays}.__getitem__)}
        except RelayoutError:
            return {}

    def _fails(self, part: _Part) -> bool:
        got = part.run()
        if got.shape != part.expected.shape:
            return True
        return not judge(difference(part.expected, got), self._kind(part), self.tolerance, self.row.spread).passes

    def _kind(self, part: _Part) -> Kind:
        return kind_of(part.expected, self.row.kind is Kind.STEPS)

    def _allowed(self, part: _Part) -> float:
        kind = self._kind(part)
        if kind is Kind.REAL:
            largest = float(np.max(np.abs(part.expected), where=np.isfinite(part.expected), initial=0.0))
            return self.tolerance.atol + self.tolerance.rtol * largest
        return 1.0 if kind is Kind.STEPS else 0.0

    def _write(self, parts: Mapping[str, _Part]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        case: dict[str, object] = {"value": self.row.name, "allowed": self._allowed(parts["b"])}
        for side, part in parts.items():
            part.save(self.folder / side)
            files = {name: f"{side}_input_{i}.npy" for i, name in enumerate(part.feeds)}
            for name, file in files.items():
                np.save(self.folder / file, part.feeds[name])
            expected = "expected.npy" if side == "b" else "a_expected.npy"
            np.save(self.folder / expected, part.expected)
            file = f"{side}{part.suffix}"
            case[side] = {"file": file, "inputs": files, "output": part.output, "expected": expected}
        runtimes = {"onnxruntime": ".onnx", "ai-edge-litert": ".tflite"}
        suffixes = {part.suffix for part in parts.values()}
        text = SCRIPT.format(
            file=f"b{parts['b'].suffix}",
            needs=" and ".join(name for name, suffix in runtimes.items() if suffix in suffixes),
            case=json.dumps(case, indent=4),
        )
        (self.folder / "run.py").write_text(text, encoding="utf-8")


def _part(side: RunnableModel, end: str, entries: Collection[str], array_of: Callable[[str], Array]) -> _Part:
    """Return the part of a model that computes a value of some others, and of inputs, with what these are."""
    forced = side.forced([end], sorted(entries))
    assert forced is not None
    feeds = {name: array_of(source) for name, source in forced.sources.items()}
    return _Part(forced.model, feeds, forced.shown[end], array_of(end), tuple(forced.sources.values()))
