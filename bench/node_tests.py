"""The standard's node tests as `.tflite` files: how many are right in LiteRT.

    python bench/node_tests.py [--constants] [--only PART] [--json FILE] [--list VERDICT]

Each test of `onnx.backend.test.case.node` whose inputs and outputs are tensors of types that LiteRT has is converted,
run and compared with the outputs that come with it. Where these are not ONNX Runtime's and the file's are, it says so.
With `--constants` all integer inputs but the first input are
constants of the model, as exporters of networks write them. Tests run in a process that may die.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

VERDICTS = ("right", "as ONNX Runtime", "refused", "wrong", "does not run", "died", "other types")
RANDOM = ("bernoulli", "dropout_random", "training_dropout", "randomuniform", "randomnormal")
"""Parts of the names of tests that draw at random."""
KINDS = frozenset(
    ["float32", "float16", "int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8", "bool"]
)
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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        found = collect_testcases(None)
    for case in sorted(found, key=lambda case: str(case.name)):
        if any(part in case.name for part in RANDOM):
            continue
        assert case.model is not None
        assert case.data_sets is not None
        given, expected = case.data_sets[0]
        names = [value.name for value in case.model.graph.input]
        arrays = [*given, *expected]
        if len(names) != len(given) or not all(_is_typed(array) for array in arrays):
            yield case.name
            continue
        feed = {name: np.asarray(array) for name, array in zip(names, given, strict=True)}
        model = onnx.ModelProto()
        model.CopyFrom(case.model)
        if constants:
            _fix(model, feed)
        yield NodeTest(case.name, model, feed, [np.asarray(array) for array in expected])


def _is_typed(array: object) -> bool:
    return isinstance(array, np.ndarray | np.generic) and array.dtype.name in KINDS


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
    try:
        found = run(content, test.inputs, reference=reference)
    except (RuntimeError, ValueError) as error:
        return "does not run", str(error).strip().replace("\n", " ")[:300]
    problem = next(filter(None, map(difference, found, test.outputs)), "")
    if not problem:
        return "right", ""
    given = with_runtime(test)
    alike = given is not None and not any(map(difference, found, given))
    return ("as ONNX Runtime" if alike else "wrong"), problem


def with_runtime(test: NodeTest) -> list[NDArray[Any]] | None:
    """Return what ONNX Runtime gives for a test; None where it does not run it."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(test.model.SerializeToString(), options, ["CPUExecutionProvider"])
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
        made.set_tensor(detail["index"], feed[detail["name"]])
    made.invoke()
    # The interpreter has no tensor for a result without elements.
    return [
        made.get_tensor(detail["index"]) if np.prod(detail["shape"]) else np.zeros(detail["shape"], detail["dtype"])
        for detail in made.get_output_details()
    ]


def difference(got: NDArray[Any], wanted: NDArray[Any]) -> str:
    """Return how an output differs from what it must be; empty where it does not."""
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
    """Answer each line with the name of a test by a line with its verdict."""
    tests = {test.name: test for test in node_tests(constants=constants) if isinstance(test, NodeTest)}
    print("ready", flush=True)
    for line in sys.stdin:
        try:
            found, reason = verdict(tests[line.strip()], reference=reference)
        except Exception as error:  # a defect, as if the process had ended
            found, reason = "died", f"{type(error).__name__}: {error}"
        print(json.dumps([found, reason]), flush=True)


class Worker:
    """A process that runs tests, and another one after it dies."""

    def __init__(self, options: Sequence[str]) -> None:
        self.options = list(options)
        self.process: subprocess.Popen[str] | None = None

    def run(self, name: str) -> tuple[str, str]:
        """Run one test."""
        if self.process is None:
            command = [sys.executable, __file__, "--worker", *self.options]
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
            self._line()
        assert self.process.stdin is not None
        self.process.stdin.write(name + "\n")
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


def main() -> None:
    """Run the tests and print how many have which verdict, and which operators are refused most often."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--constants", action="store_true", help="integer inputs but the first become constants")
    parser.add_argument("--reference", action="store_true", help="LiteRT's reference kernels")
    parser.add_argument("--only", default="", help="a part of the names of tests")
    parser.add_argument("--json", type=Path, help="where to write all verdicts")
    parser.add_argument("--list", action="append", default=[], choices=VERDICTS, help="print these tests")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.worker:
        worker(asked.constants, asked.reference)
        return
    options = [f"--{name}" for name in ("constants", "reference") if getattr(asked, name)]
    process = Worker(options)
    rows: dict[str, tuple[str, str]] = {}
    for test in node_tests(constants=asked.constants):
        name = test if isinstance(test, str) else test.name
        if asked.only in name:
            rows[name] = ("other types", "") if isinstance(test, str) else process.run(name)
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1))
    for name, (found, reason) in rows.items():
        if found in asked.list:
            print(f"{name}: {found}: {reason}")
    counts = Counter(found for found, _ in rows.values())
    print({each: counts[each] for each in VERDICTS})


if __name__ == "__main__":
    main()
