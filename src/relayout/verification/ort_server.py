"""Run ONNX models for another process: `python ort_server.py FRAMES`.

ONNX Runtime ends its process over some models, and over some inputs. It is run as a file of its own; nothing imports
it. Questions and answers are messages of FRAMES, a file of functions; see `sessions.py` for what they hold.
"""

from __future__ import annotations

import sys

del sys.path[0]  # this file's folder: what lies there is not for others to import

import pickle  # noqa: E402
from importlib.util import module_from_spec, spec_from_file_location  # noqa: E402
from typing import Any  # noqa: E402

CPU = ["CPUExecutionProvider"]


def main(place: str) -> None:
    """Answer until standard input ends."""
    frames = _module(place)
    import onnxruntime

    sessions: dict[int, Any] = {}
    while True:
        try:
            head, *buffers = frames.receive(sys.stdin.buffer)
        except EOFError:
            return
        closed, kind, *given = pickle.loads(head, buffers=buffers)
        for number in closed:
            sessions.pop(number, None)
        try:
            found = "", _answer(onnxruntime, sessions, kind, *given)
        except Exception as error:  # a dozen types of onnxruntime's own, without a common base
            found = str(error) or type(error).__name__, None
        views: list[Any] = []
        head = pickle.dumps(found, protocol=5, buffer_callback=views.append)
        frames.send(sys.stdout.buffer, [head, *(view.raw() for view in views)])


def _answer(onnxruntime: Any, sessions: dict[int, Any], kind: str, *given: Any) -> Any:
    if kind == "version":
        return str(onnxruntime.__version__)
    number, *rest = given
    if kind == "run":
        return sessions[number].run(*rest)
    source, optimized = rest
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    if not optimized:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = sessions[number] = onnxruntime.InferenceSession(source, options, providers=CPU)
    return tuple([(end.name, end.type) for end in ends] for ends in (session.get_inputs(), session.get_outputs()))


def _module(place: str) -> Any:
    spec = spec_from_file_location("frames", place)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main(*sys.argv[1:])
