"""Run models for another process: `python runtime_server.py FRAMES`.

ONNX Runtime and LiteRT end their process over some models, and over some inputs. It is run as a file of its own.
Questions and answers are messages of FRAMES, a file of functions; see `runtimes.py` for what they hold.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    del sys.path[0]  # this file's folder: what lies there is not for others to import

import os
import pickle
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from time import perf_counter
from typing import Any

CPU = ["CPUExecutionProvider"]


def main(place: str) -> None:
    """Answer until standard input ends."""
    frames = _module(place)
    questions, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what a runtime prints goes nowhere: that stream is for answers
    models: dict[int, Any] = {}
    while True:
        try:
            head, *buffers = frames.receive(questions)
        except EOFError:
            return
        found = answer(models, *pickle.loads(head, buffers=buffers))
        views: list[pickle.PickleBuffer] = []
        head = pickle.dumps(found, protocol=5, buffer_callback=views.append)
        frames.send(answers, [head, *(view.raw() for view in views)])


def answer(models: dict[int, Any], closed: list[int], kind: str, *given: Any) -> tuple[str, str, Any]:
    """Return the kind of an error and what it says, both empty where there is none, and what was asked for.

    Args:
        models: number -> a session or an interpreter; it grows.
        closed: numbers that nobody has any longer.
        kind: which of the functions below.
        given: what they are given.
    """
    for number in closed:
        models.pop(number, None)
    try:
        return "", "", ASKED[kind](models, *given)
    except Exception as error:  # a dozen types of onnxruntime's own, without a common base
        return type(error).__name__, str(error) or type(error).__name__, None


def _version(_: dict[int, Any], package: str) -> str:
    return str(getattr(import_module(package), "__version__", "?"))


def _session(models: dict[int, Any], number: int, source: str | bytes, optimized: bool, entries: dict[str, str]) -> Any:
    onnxruntime = import_module("onnxruntime")
    options = _options(onnxruntime, source)
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    for entry, setting in entries.items():
        options.add_session_config_entry(entry, setting)
    if not optimized:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = models[number] = onnxruntime.InferenceSession(source, options, providers=CPU)
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


def _run(models: dict[int, Any], number: int, names: list[str] | None, feeds: dict[str, Any]) -> Any:
    return models[number].run(names, feeds)


def _interpreter(models: dict[int, Any], number: int, package: str, kernels: str, options: dict[str, Any]) -> None:
    runtime = import_module(f"{package}.interpreter")
    resolver = getattr(runtime.OpResolverType, kernels)
    models[number] = runtime.Interpreter(experimental_op_resolver_type=resolver, num_threads=1, **options)


def _call(models: dict[int, Any], number: int, path: tuple[str, ...], given: tuple[Any, ...]) -> Any:
    found = models[number]
    for name in path:
        found = getattr(found, name)
    return found(*given)


def _signature(models: dict[int, Any], number: int, key: str, method: str, feeds: dict[str, Any]) -> Any:
    runner = models[number].get_signature_runner(key)
    return getattr(runner, method)(**feeds)


def _prepared(
    models: dict[int, Any], number: int, runtime: str, source: str | bytes, threads: int, feeds: dict[str, Any]
) -> None:
    """Make a model ready to be run again and again on the same inputs, in its runtime's usual way."""
    if runtime == "onnxruntime":
        onnxruntime = import_module(runtime)
        options = _options(onnxruntime, source)
        options.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(source, options, providers=CPU)
        models[number] = lambda: session.run(None, feeds)
    else:
        model = {"model_content" if isinstance(source, bytes) else "model_path": source}
        interpreter = import_module(f"{runtime}.interpreter").Interpreter(**model, num_threads=threads)
        places = {each["name"]: each for each in interpreter.get_input_details()}
        for name, array in feeds.items():
            if tuple(places[name]["shape"]) != array.shape:
                interpreter.resize_tensor_input(places[name]["index"], array.shape)
        interpreter.allocate_tensors()
        for name, array in feeds.items():
            interpreter.set_tensor(places[name]["index"], array)
        models[number] = interpreter.invoke
    models[number]()


def _timed(models: dict[int, Any], number: int, seconds: float) -> float:
    """Return how long a run takes: the mean of those that fit into some seconds, one at least."""
    run, count = models[number], 0
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
    "call": _call,
    "signature": _signature,
    "prepared": _prepared,
    "timed": _timed,
}


def _module(place: str) -> Any:
    spec = spec_from_file_location("frames", place)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main(*sys.argv[1:])
