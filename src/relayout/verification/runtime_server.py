"""Run models for another process, by `isolation/frames.py`: ONNX Runtime and LiteRT end theirs over some of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from operator import attrgetter
from time import perf_counter
from typing import Any

CPU = ["CPUExecutionProvider"]
MODELS: dict[int, Any] = {}  # number -> a session, an interpreter, or what runs a prepared model


def answer(
    closed: list[int],  # numbers that nobody has any longer
    kind: str,  # which of the functions below
    *arguments: Any,  # what they are given
) -> tuple[str, str, Any]:
    """Return the kind of an error and what it says, both empty where there is none, and what was asked for."""
    for number in closed:
        MODELS.pop(number, None)
    try:
        return "", "", ASKED[kind](*arguments)
    except Exception as error:  # a dozen types of onnxruntime's own, without a common base
        return type(error).__name__, str(error) or type(error).__name__, None


def _version(package: str) -> str:
    return str(getattr(import_module(package), "__version__", "?"))


def _session(number: int, source: str | bytes, optimized: bool, entries: dict[str, str]) -> Any:
    onnxruntime = import_module("onnxruntime")
    options = _options(onnxruntime, source)
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    for entry, setting in entries.items():
        options.add_session_config_entry(entry, setting)
    if not optimized:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = MODELS[number] = onnxruntime.InferenceSession(source, options, providers=CPU)
    return tuple([(end.name, end.type) for end in ends] for ends in (session.get_inputs(), session.get_outputs()))


def _options(onnxruntime: Any, source: str | bytes) -> Any:
    """Return options for a session that reads a file in its own format, whatever its name ends in."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    if isinstance(source, str) and _is_ort_format(source):
        options.add_session_config_entry("session.load_model_format", "ORT")
    return options


def _is_ort_format(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(8)[4:] == b"ORTM"


def _run(number: int, names: list[str] | None, feeds: dict[str, Any]) -> Any:
    return MODELS[number].run(names, feeds)


def _interpreter(number: int, package: str, kernels: str, options: dict[str, Any]) -> None:
    runtime = import_module(f"{package}.interpreter")
    resolver = getattr(runtime.OpResolverType, kernels)
    MODELS[number] = runtime.Interpreter(experimental_op_resolver_type=resolver, num_threads=1, **options)


def _attempt(package: str, kernels: str, options: dict[str, Any], feeds: dict[int, Any] | None) -> None:
    """Prepare a model, and run it if it is fed: index of an input -> its array."""
    _interpreter(0, package, kernels, options)
    _feed(MODELS[0], feeds or {}, "index")
    if feeds is not None:
        MODELS[0].invoke()


def _feed(interpreter: Any, feeds: Mapping[Any, Any], key: str) -> None:
    """Feed an interpreter: the name or the index of an input -> its array."""
    places = {each[key]: each for each in interpreter.get_input_details()}
    for name, array in feeds.items():
        if tuple(places[name]["shape"]) != array.shape:
            interpreter.resize_tensor_input(places[name]["index"], array.shape)
    interpreter.allocate_tensors()
    for name, array in feeds.items():
        interpreter.set_tensor(places[name]["index"], array)


def _call(number: int, path: tuple[str, ...], arguments: tuple[Any, ...]) -> Any:
    """Call a member of a model, or of one of its members."""
    return attrgetter(".".join(path))(MODELS[number])(*arguments)


def _prepared(number: int, runtime: str, source: str | bytes, threads: int, feeds: dict[str, Any]) -> None:
    """Make a model ready to be run again and again on the same inputs, in its runtime's usual way."""
    if runtime == "onnxruntime":
        onnxruntime = import_module(runtime)
        options = _options(onnxruntime, source)
        options.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(source, options, providers=CPU)
        MODELS[number] = lambda: session.run(None, feeds)
    else:
        model = {"model_content" if isinstance(source, bytes) else "model_path": source}
        interpreter = import_module(f"{runtime}.interpreter").Interpreter(**model, num_threads=threads)
        _feed(interpreter, feeds, "name")
        MODELS[number] = interpreter.invoke
    MODELS[number]()


def _timed(number: int, seconds: float) -> float:
    """Return how long a run takes: the mean of those that fit into some seconds, one at least."""
    run, count = MODELS[number], 0
    begin = end = perf_counter()
    while not count or end - begin < seconds:
        run()
        count += 1
        end = perf_counter()
    return (end - begin) / count


ASKED: Mapping[str, Callable[..., Any]] = {
    "version": _version,
    "session": _session,
    "run": _run,
    "interpreter": _interpreter,
    "attempt": _attempt,
    "call": _call,
    "prepared": _prepared,
    "timed": _timed,
}
