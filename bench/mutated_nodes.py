"""Random variants of the standard's node tests as `.tflite` files: right in LiteRT, or one error says why not.

    python bench/mutated_nodes.py --variants 3000 [--first 0] [--only Conv,Resize] [--json FILE] [--show N]

`node_mutations.py` changes a test; a variant counts if ONNX's checker and strict inference accept it and ONNX Runtime
runs it (ONNX's own reference where the runtime lacks the operator or type). Each is converted with open extents as they
are, runs with LiteRT's usual and with its reference kernels, and is compared value by value. Variant n is always the
same: of operator n modulo their number. All run in processes that may die. Exit code 1 if anything was found.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import json
import os
import re
import signal
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import numpy as np
import onnx
from node_mutant import Mutant
from node_mutations import mutate
from node_tests import NodeTest, difference, node_tests, run
from numpy.typing import NDArray

Arrays = Mapping[str, NDArray[Any]]
LIMIT = 60
"""Seconds after which a variant is given up."""
TRIES = 12
"""How many variants are drawn until one is valid."""
LARGEST = 1 << 20
"""Elements of a result that is compared."""
RUNTIME = "ONNX Runtime"
HARMLESS = ("right", "refused", "invalid", "empty", "as the reference", "other reference", "infinite")
"""Verdicts that are no findings: `empty` is what a kernel does with no elements, known only at run time, and
`infinite` what several do with infinities."""
OTHER_REFERENCE = frozenset(["LRN", "Attention"])
"""Operators that LiteRT's reference kernels compute otherwise: LOCAL_RESPONSE_NORMALIZATION leaves out the last channel
of its window, and ADD bounds infinities, by which fully masked rows are found."""
OTHERS = frozenset(
    [
        "Multinomial",
        "RandomUniform",
        "ImageDecoder",
        "If",
        "Loop",
        "Scan",
        "SequenceMap",
        "TfIdfVectorizer",
        "Momentum",
        "Adam",
    ]
)
"""Operators that are not changed: bodies, pictures and training."""
STAGES = ("drawing", "convert", "usual", "reference")


class Outcome(NamedTuple):
    """The outcome of one variant.

    Args:
        number: the variant's number.
        operator: of the node.
        verdict: in a word or two.
        reason: more about it.
    """

    number: int
    operator: str
    verdict: str
    reason: str = ""


class Variant(NamedTuple):
    """A valid model with what it is fed and gives.

    Args:
        model: the model.
        feed: its inputs.
        wanted: its outputs.
        by: the runtime that computed them.
    """

    model: onnx.ModelProto
    feed: dict[str, NDArray[Any]]
    wanted: list[NDArray[Any]]
    by: str


@cache
def tests_by_operator() -> dict[str, list[NodeTest]]:
    """The tests of one node, by operator."""
    tests: dict[str, list[NodeTest]] = {}
    for test in node_tests():
        if not isinstance(test, str) and len(test.model.graph.node) == 1:
            tests.setdefault(test.model.graph.node[0].op_type, []).append(test)
    return {name: tests[name] for name in sorted(tests.keys() - OTHERS)}


def variant_of(number: int, operators: Iterable[str] = ()) -> tuple[str, Variant | None]:
    """Return the operator of a number, and its variant; None where no valid one was drawn."""
    tests = tests_by_operator()
    names = sorted(operators) or list(tests)
    name, rng = names[number % len(names)], np.random.default_rng(number)
    for _ in range(TRIES):
        try:
            mutant = mutate(tests[name][int(rng.integers(len(tests[name])))], rng)
            model = mutant.model()
            return name, computed(model, mutant)
        except Exception:  # of any kind: it is not valid
            continue
    return name, None


def computed(model: onnx.ModelProto, mutant: Mutant) -> Variant:
    """Run a model in ONNX Runtime, or in ONNX's reference where that has no kernel."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    feed = {name: array for name, array in mutant.feed.items() if name not in mutant.constants}
    names = [value.name for value in model.graph.output]
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    except Exception as error:
        if "NOT_IMPLEMENTED" not in str(error) and "NotImplemented" not in type(error).__name__:
            raise
        from onnx.reference import ReferenceEvaluator

        outputs = [np.asarray(array) for array in ReferenceEvaluator(model).run(names, feed)]  # type: ignore[union-attr]
        return Variant(model, feed, outputs, "the reference")
    wanted = [np.asarray(array) for array in session.run(names, feed)]
    if any(array.size > LARGEST for array in wanted):
        raise ValueError("more than is worth comparing")
    for value, array in zip(model.graph.output, wanted, strict=True):
        pairs = zip(value.type.tensor_type.shape.dim, array.shape, strict=True)
        if any(dim.HasField("dim_value") and dim.dim_value != extent for dim, extent in pairs):
            raise ValueError("ONNX Runtime gives other extents than ONNX says")
    return Variant(model, feed, wanted, RUNTIME)


def judged(variant: Variant, at: Any) -> tuple[str, str]:
    """Convert a variant, run it and compare: a verdict, and more about it.

    Args:
        variant: the variant.
        at: is told each stage before it begins.
    """
    import relayout

    at("convert")
    try:
        content = converted(variant.model)
    except relayout.RelayoutError as error:
        return "refused", reason_of(error)
    for kernels in ("usual", "reference"):
        at("empty" if is_empty(variant) else kernels)
        try:
            got = run(content, variant.feed, reference=kernels == "reference")
        except (RuntimeError, ValueError) as error:
            if kernels == "reference" and "Didn't find op for builtin" in str(error):
                continue  # there is no such kernel
            return softened("does not run", variant), f"{kernels}: {str(error)[:300]}"
        if kernels == "reference" and variant.model.graph.node[0].op_type in OTHER_REFERENCE:
            continue
        for place, (result, wanted) in enumerate(zip(got, variant.wanted, strict=True)):
            if said := differs(result, wanted):
                kind = "extents" if result.shape != wanted.shape else "wrong"
                if kind == "wrong" and variant.by == RUNTIME and as_the_reference(variant, got):
                    return "as the reference", ""
                return softened(kind, variant), f"{kernels}: output {place}: {said}"
    return "right", ""


def converted(model: onnx.ModelProto) -> bytes:
    """Return the `.tflite` of a model, which was written and read back."""
    import relayout

    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.tflite"
        relayout.convert(model, format="tflite").save(path)
        return path.read_bytes()


def differs(result: NDArray[Any], wanted: NDArray[Any]) -> str:
    """Return how an output differs; what is no number in the source may be anything."""
    if wanted.dtype.kind == "f" and result.shape == wanted.shape:
        result = np.where(np.isnan(wanted), wanted, result).astype(result.dtype)
    return difference(result, wanted)


def as_the_reference(variant: Variant, got: list[NDArray[Any]]) -> bool:
    """Return whether outputs are those of ONNX's reference, where ONNX Runtime's differ."""
    from onnx.reference import ReferenceEvaluator

    try:
        wanted = ReferenceEvaluator(variant.model).run(None, variant.feed)
    except Exception:  # it lacks much
        return False
    return not any(map(differs, got, map(np.asarray, wanted)))  # type: ignore[arg-type]


def softened(verdict: str, variant: Variant) -> str:
    """Return the verdict, unless there are no elements at run time, or ONNX's reference may be at fault."""
    if is_empty(variant):
        return "empty"
    if any(np.isinf(array).any() for array in numbers_of(variant) if array.dtype.kind == "f"):
        return "infinite"
    return verdict if variant.by == RUNTIME else "other reference"


def numbers_of(variant: Variant) -> Iterator[NDArray[Any]]:
    """Yield what a variant reads: its inputs and its constants."""
    yield from variant.feed.values()
    yield from map(onnx.numpy_helper.to_array, variant.model.graph.initializer)
    for node in variant.model.graph.node:
        yield from (onnx.numpy_helper.to_array(each.t) for each in node.attribute if each.HasField("t"))


def is_empty(variant: Variant) -> bool:
    """Return whether a tensor has no elements, as is known only at run time."""
    is_open = any(dim.dim_param for value in variant.model.graph.input for dim in value.type.tensor_type.shape.dim)
    return is_open and any(not array.size for array in (*variant.feed.values(), *variant.wanted))


def reason_of(error: Exception) -> str:
    """Return the reasons of a refusal, without names and places."""
    return re.sub(r"'[^']*'|\"[^\"]*\"", "…", " ".join(str(error).split()))[:240]


def attempt(number: int, operators: Iterable[str], at: Any) -> Outcome:
    """Return what comes of variant n."""
    at("drawing")
    name, variant = variant_of(number, operators)
    if variant is None:
        return Outcome(number, name, "invalid")
    try:
        return Outcome(number, name, *judged(variant, at))
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(last.filename).name}:{last.lineno}"
        return Outcome(number, name, "traceback", f"{type(error).__name__}: {str(error)[:200]} at {place}")


def portions(begin: int, end: int, operators: list[str]) -> Iterator[Outcome]:
    """Yield what comes of variants, from processes that may die: another one goes on behind the variant."""
    tests_by_operator()
    names = sorted(operators) or list(tests_by_operator())
    while begin < end:
        reads, writes = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of threads, which the child does without
            child = os.fork()
        if not child:
            os.close(reads)
            _work(begin, end, operators, writes)
        os.close(writes)
        stage = ""
        with os.fdopen(reads, encoding="utf-8") as lines:
            for line in lines:
                told = json.loads(line)
                if isinstance(told, str):
                    stage = told
                    continue
                yield Outcome(*told)
                begin, stage = begin + 1, ""
        _, status = os.waitpid(child, 0)
        if status and begin < end:
            code = os.waitstatus_to_exitcode(status)
            verdict = {"drawing": "invalid", "": "invalid", "empty": "empty"}.get(stage, "died")
            verdict = "takes too long" if verdict == "died" and code == -signal.SIGALRM else verdict
            yield Outcome(begin, names[begin % len(names)], verdict, f"{stage}: the process ended with {code}")
            begin += 1


def _work(begin: int, end: int, operators: list[str], writes: int) -> None:
    """Tell what comes of variants, a line each, and end the process."""
    warnings.simplefilter("ignore")
    gc.disable()
    faulthandler.disable()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    with os.fdopen(writes, "w", encoding="utf-8", buffering=1) as out:
        for number in range(begin, end):
            signal.alarm(LIMIT)
            outcome = attempt(number, operators, lambda stage: print(json.dumps(stage), file=out, flush=True))
            print(json.dumps(outcome), file=out, flush=True)
            if not number % 50:
                gc.collect()
    os._exit(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--variants", type=int, default=1000, help="how many (default 1000)")
    parser.add_argument("--first", type=int, default=0, help="the first one's number")
    parser.add_argument("--only", default="", help="operators, as Conv,Resize")
    parser.add_argument("--json", type=Path, help="where to write all verdicts, a line each")
    parser.add_argument("--show", type=int, help="print one variant as a model, and what comes of it")
    options = parser.parse_args()
    operators = [name for name in options.only.split(",") if name]
    if options.show is not None:
        show(options.show, operators)
        return
    counts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for outcome in portions(options.first, options.first + options.variants, operators):
        counts[outcome.verdict] += 1
        if outcome.verdict == "refused":
            reasons[f"{outcome.operator}: {outcome.reason}"] += 1
        if outcome.verdict not in HARMLESS:
            print(f"{outcome.operator} {outcome.number}: {outcome.verdict}: {outcome.reason}", flush=True)
        if options.json:
            with options.json.open("a", encoding="utf-8") as file:
                print(json.dumps(outcome), file=file)
    for reason, count in reasons.most_common(40):
        print(f"{count:5} {reason}")
    print(dict(counts))
    sys.exit(any(kind not in HARMLESS for kind in counts))


def show(number: int, operators: list[str]) -> None:
    """Print a variant, what it is fed, and what comes of it."""
    _, variant = variant_of(number, operators)
    if variant is None:
        print("invalid")
        return
    print(onnx.printer.to_text(variant.model))
    with np.printoptions(precision=4, threshold=60, edgeitems=4):
        for name, array in variant.feed.items():
            print(name, array.dtype, array.shape, array)
        print("wanted of", variant.by, variant.wanted)
        try:
            print(judged(variant, lambda _: None))
            print(run(converted(variant.model), variant.feed))
        except Exception:
            traceback.print_exc()


if __name__ == "__main__":
    main()
