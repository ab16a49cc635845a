"""The smallest models around the first value that diverges, with what goes in and a script that fails by itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx_ir as ir

from relayout.errors import NamesError, RelayoutError
from relayout.formats.onnx import complete, cut, write
from relayout.formats.recognition import is_tflite
from relayout.graph.subgraphs import captured
from relayout.verification.compare import Kind, Tolerance, difference, judge, kind_of
from relayout.verification.feeds import given_feeds
from relayout.verification.ort import OrtSide
from relayout.verification.pairs import Pair
from relayout.verification.report import Row, VerifyReport
from relayout.verification.side import Array, Side, Source, opened
from relayout.verification.verifying import Comparison

SCRIPT = '''"""b.onnx should compute expected.npy from its inputs, and does not. Written by `relayout verify --repro`.

Needs numpy and onnxruntime. Exits with 1 as long as the difference is there.
"""

import sys
from pathlib import Path

import numpy as np
import onnxruntime

CASE = {case}
HERE = Path(__file__).resolve().parent


def run(model):
    feeds = {{name: np.load(HERE / file) for name, file in CASE[model]["inputs"].items()}}
    session = onnxruntime.InferenceSession(str(HERE / f"{{model}}.onnx"), providers=["CPUExecutionProvider"])
    (result,) = session.run([CASE[model]["output"]], feeds)
    expected = np.load(HERE / CASE[model]["expected"])
    if result.shape != expected.shape:
        print(f"{{model}}.onnx gives the shape {{result.shape}} and not {{expected.shape}}")
        return False
    wide = expected.astype(np.float64), result.astype(np.float64)
    unlike = np.isfinite(wide[0]) != np.isfinite(wide[1])
    far = float(np.max(np.abs(np.nan_to_num(wide[0]) - np.nan_to_num(wide[1])), initial=0.0))
    good = far <= CASE["allowed"] and not unlike.any()
    print(f"{{model}}.onnx {{'agrees' if good else 'DIFFERS'}}: at most {{far:g}} off, {{CASE['allowed']:g}} allowed")
    return good


print("the value that diverges:", CASE["value"])
if "a" in CASE:
    run("a")
sys.exit(0 if run("b") else 1)
'''


@dataclass(frozen=True)
class Reproduction:
    """What was written.

    Args:
        directory: where.
        nodes: how many nodes of the second model are in it.
        whole: the nodes since the last values that agree did not fail alone, so that all that leads there is in it.
        value: the value that diverges, by the source's name.
        made_by: the operator of the second model that makes it.
    """

    directory: Path
    nodes: int
    whole: bool
    value: str
    made_by: str


def reproduce(
    a: Source,
    b: Source,
    found: VerifyReport,
    directory: str | Path,
    *,
    inputs: Mapping[str, Array | str | Path] | None = None,
    layouts: Mapping[str, tuple[str, str]] | None = None,
) -> Reproduction:
    """Cut the neighbourhood of the first divergence out of both models and write it down.

    Between the last values that agree and the first that does not: `b.onnx` with its inputs, what it should compute,
    and `run.py`, which fails by itself; `a.onnx` beside it where the source is ONNX, too.

    Args:
        a: the source.
        b: the model that was held against it.
        found: what `verify(a, b)` found.
        directory: where to write; made where it does not exist, else empty.
        inputs: what `verify` was given.
        layouts: likewise.

    Raises:
        RelayoutError: nothing diverges, the difference cannot be cut out, or the directory is not empty.
    """
    row, folder = found.first, Path(directory)
    if row is None or row.difference is None:
        what = "the two models agree" if row is None else f"'{row.name}' is {row.verdict.value}, which no part shows"
        raise RelayoutError(f"--repro: {what}: there is nothing to reproduce")
    refuse_reproduction(b, folder)
    with opened(a) as left, opened(b) as right:
        if not isinstance(right, OrtSide):
            raise RelayoutError("--repro cuts the second model into parts, so that it has to be ONNX")
        return _Reproducing(left, right, found, row, folder, layouts or {}).run(inputs)


def refuse_reproduction(b: Source, folder: Path) -> None:
    """Refuse a reproduction that could not be made, before anything is run.

    Raises:
        RelayoutError: the second model is no ONNX, or the directory is there and not empty.
    """
    if isinstance(b, str | Path) and is_tflite(b):
        raise RelayoutError("--repro cuts the second model into parts, so that it has to be ONNX")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RelayoutError(f"--repro {folder}: it exists and is not an empty directory")


@dataclass
class _Part:
    """A part of a model with what goes in and what should come out."""

    model: ir.Model
    feeds: dict[str, Array]
    output: str
    expected: Array


class _Reproducing:
    def __init__(
        self,
        left: Side,
        right: OrtSide,
        found: VerifyReport,
        row: Row,
        folder: Path,
        layouts: Mapping[str, tuple[str, str]],
    ) -> None:
        self.left, self.right, self.found, self.row, self.folder = left, right, found, row, folder
        self.tolerance = Tolerance(found.rtol, found.atol)
        self.comparison = Comparison(left, right, self.tolerance, tensors=True, layouts=layouts)
        every = (*self.comparison.inputs, *self.comparison.begun, *self.comparison.interiors, *self.comparison.outputs)
        self.pairs: dict[str, Pair] = {pair.right.name: pair for pair in every}

    def run(self, inputs: Mapping[str, Array | str | Path] | None) -> Reproduction:
        given = given_feeds(inputs, self.left.inputs)
        agreed = {row.other for row in self.found.rows if row.ok} & set(self.pairs)
        for whole in (False, True):
            for number in range(self.found.runs):
                arrays = self.comparison.values(given, self.found.seed, number)
                part = self._second(set() if whole else agreed, arrays)
                if self._fails(part):
                    self._write(part, self._first(part, arrays))
                    made_by = f"{self.row.other_operator} {self.row.other_node}".strip()
                    return Reproduction(self.folder, len(part.model.graph), whole, self.row.name, made_by)
        raise RelayoutError(f"--repro: the part of the second model up to '{self.row.other}' does not differ by itself")

    def _second(self, agreed: set[str], arrays: Mapping[str, Array]) -> _Part:
        model = self.right.model.clone()
        complete(model)
        model = cut(model, _starts(model.graph, self.row.other, agreed), [self.row.other])
        names = [value.name or "" for value in model.graph.inputs]
        feeds = {name: array for name, array in self.right.initial.items() if name in names}
        for name in names:
            if name in self.pairs:
                feeds[name] = self.pairs[name].carried(arrays[self.pairs[name].left.name])
        expected = self.pairs[self.row.other].carried(arrays[self.row.source])
        return _Part(model, feeds, self.row.other, expected)

    def _first(self, part: _Part, arrays: Mapping[str, Array]) -> _Part | None:
        """The same part of the source, where it can be cut."""
        if not isinstance(self.left, OrtSide):
            return None
        model = self.left.model.clone()
        complete(model)
        own = {value.name for value in model.graph.inputs}
        starts = [
            name
            for name in dict.fromkeys(self.pairs[n].left.name for n in part.feeds if n in self.pairs)
            if name not in own
        ]
        try:
            model = cut(model, starts, [self.row.source])
        except NamesError:
            return None
        names = [value.name or "" for value in model.graph.inputs]
        return _Part(model, {name: arrays[name] for name in names}, self.row.source, arrays[self.row.source])

    def _fails(self, part: _Part) -> bool:
        with OrtSide(part.model) as side:
            got = side.runner().run(part.feeds, [part.output])[part.output]
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

    def _write(self, second: _Part, first: _Part | None) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        case: dict[str, object] = {"value": self.row.name, "allowed": self._allowed(second)}
        for side, part in (("b", second), ("a", first)):
            if part is None:
                continue
            write(part.model, self.folder / f"{side}.onnx")
            files = {name: f"{side}_input_{i}.npy" for i, name in enumerate(part.feeds)}
            for name, file in files.items():
                np.save(self.folder / file, part.feeds[name])
            expected = "expected.npy" if side == "b" else "a_expected.npy"
            np.save(self.folder / expected, part.expected)
            case[side] = {"inputs": files, "output": part.output, "expected": expected}
        (self.folder / "run.py").write_text(SCRIPT.format(case=json.dumps(case, indent=4)), encoding="utf-8")


def _starts(graph: ir.Graph, end: str, agreed: set[str]) -> list[str]:
    """The values that agree from which, and from inputs, `end` is computed; nearest first."""
    known = {value.name: value for node in graph for value in node.outputs}
    waiting, seen, found = [known[end]], {known[end]}, []
    while waiting:
        node = waiting.pop(0).producer()
        for value in () if node is None else (*node.inputs, *captured(node)):
            if value is None or value in seen or value.producer() is None:
                continue
            seen.add(value)
            if value.name in agreed:
                found.append(value.name)
            else:
                waiting.append(value)
    return found
