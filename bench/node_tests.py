"""The standard's node tests as `.tflite` files: how many are right in LiteRT.

    python bench/node_tests.py [--constants] [--only PART] [--json FILE] [--list VERDICT]
                               [--onnx2tf PYTHON [--peer-every 12]]

Each test of `onnx.backend.test.case.node` whose inputs and outputs are tensors of types that LiteRT has is converted,
run and compared with the outputs that come with it. Where these are not ONNX Runtime's and the file's are, it says so.
With `--constants` all integer inputs but the first input are constants of the model, as exporters of networks write
them. Tests run in a process that may die. onnx2tf takes every so many tests; `node_tests_peer.py` says how it is
judged. What FILE has of it stays in a run without it. `there_and_back.py` writes the page of FILE.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper
from processes import versions

VERDICTS = ("right", "as ONNX Runtime", "refused", "wrong", "does not run", "died", "other types")
RANDOM = ("bernoulli", "dropout_random", "training_dropout", "randomuniform", "randomnormal")
"""Parts of the names of tests that draw at random."""
KINDS = frozenset(
    ["float32", "float16", "int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8", "bool"]
)
MESSAGE = "a TensorProto"
TEXTS = "string"
"""The type of texts, which LiteRT takes and gives, and few of its kernels compute with."""
SECONDS = 120
"""Longest time of one test."""


class NodeTest(NamedTuple):
    """One test of the standard.

    Args:
        name: its name.
        model: its graph.
        inputs: name -> what it is fed.
        outputs: what it gives.
    """

    name: str
    model: onnx.ModelProto
    inputs: dict[str, NDArray[Any]]
    outputs: list[NDArray[Any]]


def node_tests(*, constants: bool = False) -> Iterator[NodeTest | str]:
    """Yield the tests whose inputs and outputs LiteRT has types for; of the others the name.

    Args:
        constants: integer inputs but the first one become constants.
    """
    for case in _cases():
        if any(part in case.name for part in RANDOM):
            continue
        if other_types(case):
            yield case.name
            continue
        given, expected = case.data_sets[0]
        names = [value.name for value in case.model.graph.input]
        feed = {name: np.asarray(array) for name, array in zip(names, given, strict=True)}
        model = onnx.ModelProto()
        model.CopyFrom(case.model)
        if constants:
            _fix(model, feed)
        yield NodeTest(case.name, model, feed, [np.asarray(array) for array in expected])


@cache
def _cases() -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        return sorted(collect_testcases(None), key=lambda case: str(case.name))


def other_types(case: Any) -> str:
    """Return the types of a test that LiteRT does not take and give, as a text; empty where it takes all."""
    given, expected = case.data_sets[0]
    if len(case.model.graph.input) != len(given):
        return "inputs that are left out"
    kinds = {_kind(array) for array in (*given, *expected)} - KINDS - {TEXTS}
    return ", ".join(sorted(kinds - {MESSAGE} or kinds))


def _kind(value: Any) -> str:
    if isinstance(value, onnx.TensorProto):
        name: str = onnx.helper.tensor_dtype_to_np_dtype(value.data_type).name
        return MESSAGE if name in KINDS else name
    if not isinstance(value, np.ndarray | np.generic):
        return "sequence or optional"
    return TEXTS if value.dtype.kind in "OUS" else value.dtype.name


def _fix(model: onnx.ModelProto, feed: dict[str, NDArray[Any]]) -> None:
    for value in list(model.graph.input)[1:]:
        if feed[value.name].dtype.kind in "iu":
            model.graph.initializer.append(numpy_helper.from_array(feed.pop(value.name), value.name))
            model.graph.input.remove(value)


def verdict(test: NodeTest, *, reference: bool = False) -> tuple[str, str]:
    """Convert a test, run it and compare: a verdict of `VERDICTS`, and what is to be said about it.

    Args:
        test: the test.
        reference: whether LiteRT's reference kernels run it.
    """
    import relayout

    try:
        with TemporaryDirectory() as folder:
            path = Path(folder) / "model.tflite"
            relayout.convert(test.model, format="tflite").save(path)
            content = path.read_bytes()
    except relayout.RelayoutError as error:
        return "refused", str(error).replace("\n", " ")
    return verdict_of(test, partial(run, content, test.inputs, reference=reference))


def verdict_of(test: NodeTest, run: Callable[[], list[NDArray[Any]]]) -> tuple[str, str]:
    """Run a file and compare its outputs with those of the test."""
    try:
        found = run()
    except (RuntimeError, ValueError) as error:
        return "does not run", str(error).strip().replace("\n", " ")[:300]
    problem = next(filter(None, map(difference, found, test.outputs)), "")
    if not problem:
        return "right", ""
    given = with_runtime(test)
    alike = given is not None and not any(map(difference, found, given))
    return ("as ONNX Runtime" if alike else "wrong"), problem


def verdict_of_peer(test: NodeTest, content: bytes) -> tuple[str, str]:
    """Return the best verdict of all ways to read a file that may have other types and layouts."""
    from node_tests_peer import ways

    shapes = [array.shape for array in test.outputs]
    found = []
    for run in ways(content, test.inputs, shapes):
        cast = lambda run=run: [a.astype(b.dtype) for a, b in zip(run(), test.outputs, strict=True)]  # noqa: E731
        found.append(verdict_of(test, cast))
    return min(found, key=lambda row: VERDICTS.index(row[0]))


def with_runtime(test: NodeTest) -> list[NDArray[Any]] | None:
    """Return what ONNX Runtime gives for a test; None where it does not run it."""
    import onnxruntime
    from counting import in_full

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(in_full(test.model), options, ["CPUExecutionProvider"])
        return [np.asarray(array) for array in session.run(None, test.inputs)]
    except Exception:  # of a type for each kind of failure
        return None


def run(content: bytes, feed: dict[str, NDArray[Any]], *, reference: bool = False) -> list[NDArray[Any]]:
    """Run a `.tflite` in LiteRT and return its outputs."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    kernels = OpResolverType.BUILTIN_REF if reference else OpResolverType.AUTO
    made = Interpreter(model_content=content, num_threads=1, experimental_op_resolver_type=kernels)
    inputs = made.get_input_details()
    for detail in inputs:
        if tuple(detail["shape"]) != feed[detail["name"]].shape:
            made.resize_tensor_input(detail["index"], feed[detail["name"]].shape)
    made.allocate_tensors()
    for detail in inputs:
        made.set_tensor(detail["index"], _encoded(feed[detail["name"]]))
    made.invoke()
    # The interpreter has no tensor for a result without elements.
    return [
        _decoded(made.get_tensor(detail["index"]))
        if np.prod(detail["shape"])
        else np.zeros(detail["shape"], detail["dtype"])
        for detail in made.get_output_details()
    ]


def _encoded(array: NDArray[Any]) -> NDArray[Any]:
    """Return texts as LiteRT takes them; other arrays as they are. Of one text it reads an array of bytes alone."""
    if array.dtype.kind not in "OUS":
        return array
    if array.ndim == 0:
        return np.array(str(array).encode())
    listed = [each if isinstance(each, bytes) else str(each).encode() for each in array.reshape(-1).tolist()]
    return np.array([*listed, None], object)[:-1].reshape(array.shape)


def _decoded(array: NDArray[Any]) -> NDArray[Any]:
    """Return texts as ONNX Runtime gives them; other arrays as they are."""
    if array.dtype.kind not in "OUS":
        return array
    return np.array([*(each.decode() for each in array.reshape(-1).tolist()), None], object)[:-1].reshape(array.shape)


def difference(got: NDArray[Any], wanted: NDArray[Any]) -> str:
    """Return how an output differs from what it must be; empty where it does not."""
    wanted = wanted.astype(object) if wanted.dtype.kind in "US" else wanted
    if got.shape != wanted.shape or got.dtype != wanted.dtype:
        return f"{got.dtype}{list(got.shape)} instead of {wanted.dtype}{list(wanted.shape)}"
    if wanted.dtype.kind != "f":
        return "" if np.array_equal(got, wanted) else f"{np.mean(got != wanted):.0%} of the elements differ"
    a, b = got.astype(np.float64), wanted.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    finite = np.isfinite(b)
    largest = float(np.abs(b[finite]).max(initial=0.0))
    step = 2e-3 if wanted.dtype == np.float16 else 2e-5
    with np.errstate(invalid="ignore"):
        close = same | (np.abs(a - b) <= step * largest + 1e-3 * np.abs(b))
    if close.all():
        return ""
    with np.errstate(invalid="ignore"):
        return f"{np.mean(~close):.0%} of the elements differ, by {np.nanmax(np.abs(a - b)) / (largest or 1):.2g}"


def worker(constants: bool, reference: bool) -> None:
    """Answer each line with a verdict: the name of a test, and the file of a peer where it is not to be converted."""
    tests = {test.name: test for test in node_tests(constants=constants) if isinstance(test, NodeTest)}
    print("ready", flush=True)
    for line in sys.stdin:
        name, _, path = line.strip().partition("\t")
        try:
            if path:
                found, reason = verdict_of_peer(tests[name], Path(path).read_bytes())
            else:
                found, reason = verdict(tests[name], reference=reference)
        except Exception as error:  # a defect, as if the process had ended
            found, reason = "died", f"{type(error).__name__}: {error}"
        print(json.dumps([found, reason]), flush=True)


class Worker:
    """A process that runs tests, and another one after it dies."""

    def __init__(self, options: Sequence[str]) -> None:
        self.options = list(options)
        self.process: subprocess.Popen[str] | None = None

    def run(self, name: str, path: Path | None = None) -> tuple[str, str]:
        """Run one test: relayout's file, or that of a peer."""
        if self.process is None:
            command = [sys.executable, __file__, "--worker", *self.options]
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
            self._line()
        assert self.process.stdin is not None
        self.process.stdin.write(f"{name}\t{path}\n" if path else f"{name}\n")
        self.process.stdin.flush()
        line = self._line()
        if not line:
            code = self.process.wait()
            self.process = None
            return "died", f"the process ended with {code}"
        found, reason = json.loads(line)
        return found, reason

    def _line(self) -> str:
        assert self.process is not None
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        while line and line != "ready" and not line.startswith("["):
            line = self.process.stdout.readline().strip()
        return line


def peers_rows(python: str, names: Sequence[str], worker: Worker) -> dict[str, tuple[str, str]]:
    """Convert some tests by onnx2tf and judge its files."""
    tests = {test.name: test.model for test in node_tests(constants=True) if isinstance(test, NodeTest)}
    from node_tests_peer import Peer

    peer, rows = Peer(python), {}
    for name in names:
        with TemporaryDirectory() as folder:
            found = peer.convert(tests[name], Path(folder))
            rows[name] = ("refused", found) if isinstance(found, str) else worker.run(name, found)
        print(name, rows[name], file=sys.stderr, flush=True)
    peer.close()
    return rows


def main() -> None:
    """Run the tests and print how many have which verdict, and which operators are refused most often."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--constants", action="store_true", help="integer inputs but the first become constants")
    parser.add_argument("--reference", action="store_true", help="LiteRT's reference kernels")
    parser.add_argument("--only", default="", help="a part of the names of tests")
    parser.add_argument("--json", type=Path, help="where to write all verdicts")
    parser.add_argument("--list", action="append", default=[], choices=VERDICTS, help="print these tests")
    parser.add_argument("--onnx2tf", metavar="PYTHON", help="a Python that has onnx2tf; its files are of constants")
    parser.add_argument("--peer-every", type=int, default=12, metavar="N", help="onnx2tf takes every N-th test")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.worker:
        worker(asked.constants, asked.reference)
        return
    options = [f"--{name}" for name in ("constants", "reference") if getattr(asked, name)]
    process = Worker(options)
    reasons = {case.name: other_types(case) for case in _cases()}
    rows: dict[str, tuple[str, str]] = {}
    for test in node_tests(constants=asked.constants):
        name = test if isinstance(test, str) else test.name
        if asked.only in name:
            rows[name] = ("other types", reasons[name]) if isinstance(test, str) else process.run(name)
    before = json.loads(asked.json.read_text()) if asked.json and asked.json.exists() else {}
    found: dict[str, Any] = {"constants": asked.constants, "tests": rows}
    found |= {name: before[name] for name in ("peer_every", "peer", "peer_date") if name in before}
    today = dt.datetime.now(dt.UTC).date().isoformat()
    if asked.onnx2tf:
        sample = [name for name, (verdict, _) in rows.items() if verdict != "other types"][:: asked.peer_every]
        rows_of_peer = peers_rows(asked.onnx2tf, sample, process)
        found |= {"peer_every": asked.peer_every, "peer": rows_of_peer, "peer_date": today}
    if asked.json:
        used = before.get("versions", {}) | used_versions(asked.onnx2tf)
        found |= {"date": today, "versions": used}
        asked.json.write_text(json.dumps(found, indent=1))
    for name, (verdict, reason) in rows.items():
        if verdict in asked.list:
            print(f"{name}: {verdict}: {reason}")
    counts = Counter(verdict for verdict, _ in rows.values())
    print({each: counts[each] for each in VERDICTS})


def used_versions(peer: str | None) -> dict[str, str]:
    return versions(sys.executable, "onnx", "ai-edge-litert") | (versions(peer, "onnx2tf") if peer else {})


if __name__ == "__main__":
    main()
