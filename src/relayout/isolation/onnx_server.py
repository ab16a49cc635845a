"""Answer questions to ONNX's C++ code: `python -I -S onnx_server.py EXTENSION`.

It is run as a file of its own, and loads nothing but that extension module, so that it starts in 20 ms. Each question
is one message on standard input, each answer one on standard output. See `calls.py` for what they hold.
"""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import Any

ROOM, LESS_ROOM = 1 << 29, 1 << 28
"""Bytes of memory that a question may take, besides some for each of its own bytes; and where values are followed."""
LONGEST = 3600  # seconds of a question
FOR_EACH = 256  # bytes of memory that a question may take for each of its own


def main(extension: str) -> None:
    """Answer until standard input ends."""
    folder = os.path.dirname(os.path.abspath(__file__))
    sys.path.insert(0, folder)
    frames: Any = __import__("frames")
    native = _native(extension)
    questions, answers = sys.stdin.buffer, sys.stdout.buffer
    while True:
        try:
            kind, *parts = frames.receive(questions)
        except EOFError:
            return
        _limit_time(LONGEST)
        _limit_memory((LESS_ROOM if kind == b"propagate" else ROOM) + FOR_EACH * sum(map(len, parts)))
        try:
            answer = [b"", *_answer(native, kind.decode(), parts)]
        except Exception as error:  # onnx raises types of its own
            answer = [type(error).__name__.encode(), str(error).encode(errors="replace")]
        _limit_time(0)
        frames.send(answers, answer)


def _native(extension: str) -> Any:
    """ONNX's extension module, without its package: that takes three times as long to load."""
    package = ModuleType("onnx")
    package.__path__ = [os.path.dirname(extension)]
    sys.modules["onnx"] = package
    try:
        return __import__("onnx.onnx_cpp2py_export").onnx_cpp2py_export
    except ImportError:
        del sys.modules["onnx"]
        sys.path.append(os.path.dirname(os.path.dirname(extension)))
        return __import__("onnx").onnx_cpp2py_export


def _answer(native: Any, kind: str, parts: list[bytes]) -> list[bytes]:
    if kind in ("infer", "strict", "propagate"):
        return [native.shape_inference.infer_shapes(parts[0], False, kind == "strict", kind == "propagate")]
    if kind == "check":
        native.checker.check_model(parts[0], True, False, False)
        return []
    name, version, domain, format_version, node, count, *rest = parts
    pairs = rest[: int(count)], rest[int(count) :]  # types, then data
    types, data = (dict(zip(keys[::2], keys[1::2])) for keys in pairs)  # noqa: B905
    schema = native.defs.get_schema(name.decode(), int(version), domain.decode())
    named_inputs = [{key.decode(): value for key, value in values_by_name.items()} for values_by_name in (types, data)]
    values_by_name = schema._infer_node_outputs(
        node, *named_inputs, {}, {domain.decode(): int(version)}, int(format_version)
    )
    return [part for key, value in values_by_name.items() for part in (key.encode(), value)]


def _limit_time(seconds: int) -> None:
    """End this process after so long, or never (0): the one that asked ends it much sooner, if it is still there."""
    import signal

    if hasattr(signal, "alarm"):  # not on Windows
        signal.alarm(seconds)


def _limit_memory(size: int) -> None:
    """Let a question take so much memory: beyond, an allocation fails, and that is an answer."""
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (size, resource.getrlimit(resource.RLIMIT_AS)[1]))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, ValueError, OSError):  # Windows has none; a limit of the user's own may be lower
        pass


if __name__ == "__main__":
    main(*sys.argv[1:])
