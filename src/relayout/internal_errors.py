"""The last handler: whatever a library or a fault of relayout raises over a model becomes one error that says where."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from relayout import progress
from relayout.errors import ReadError, RelayoutError, printable, shortened

MOST_SAID = 300  # characters of what a library says


class InternalError(RelayoutError):
    """A fault of relayout, or of a library that it calls: a model that nobody had tried, most likely."""

    def __init__(
        self,
        cause: BaseException,  # what was raised
        step: str,  # what relayout was doing, such as `planning`
        node: str,  # the node that it was looking at; empty where that is not known
    ) -> None:
        self.cause, self.step, self.node = cause, step, node
        at = f" while reading {node}" if node else ""
        words = shortened(" ".join(str(cause).split()), MOST_SAID)
        said = ": ".join(filter(None, (type(cause).__name__, words)))
        super().__init__(printable(f"internal error in {step}{at}: {said}"))


@contextmanager
def one_error() -> Iterator[None]:
    """Let nothing out but `RelayoutError`, errors of the system (`OSError`), and those of a caller's own code.

    Raises:
        InternalError: anything else was raised inside.
    """
    try:
        yield
    except (RelayoutError, OSError):
        raise
    except Exception as error:
        frames = list(_frames(error.__traceback__))
        is_call = frames[-1].f_code.co_filename.endswith(("arguments.py", "contextlib.py"))  # with wrong arguments
        if is_call or any(map(_is_callers, frames)):
            raise
        raise internal_error(error) from error


def internal_error(error: Exception) -> RelayoutError:
    """Return the one error that stands for what was raised."""
    if isinstance(error, RelayoutError):
        return error
    if isinstance(error, MemoryError):
        return RelayoutError(f"the memory of this machine does not suffice for {progress.last_stage()}")
    frames = list(_frames(error.__traceback__))
    nodes = (name for frame in reversed(frames) for value in frame.f_locals.values() if (name := _node_name(value)))
    node = next(nodes, "")
    attribute: Any = frames[-1].f_locals.get("self")
    if isinstance(error, TypeError) and type(attribute).__name__ == "Attr":
        # The standard's attributes have been checked. Operators of other domains have no schema.
        return ReadError(f"attribute '{attribute.name}' is of the type {attribute.type.name}", where=node)
    return InternalError(error, progress.last_stage(), node)


def _frames(trace: TracebackType | None) -> Iterator[FrameType]:
    while trace is not None:
        yield trace.tb_frame
        trace = trace.tb_next


PACKAGE = str(Path(__file__).parent)
LIBRARIES = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))


def _is_callers(frame: FrameType) -> bool:
    """Tell whether a frame is code of the program that calls relayout: no library's, and not relayout's own."""
    file = frame.f_code.co_filename
    is_library = file.startswith((PACKAGE, *LIBRARIES, "<")) or "-packages" in file
    return not is_library and frame.f_globals.get("__name__", "").partition(".")[0] not in sys.stdlib_module_names


def _node_name(value: Any) -> str:
    """Return how a message calls a local variable that is a node, or has one; empty for anything else."""
    if (type(value).__module__ or "").partition(".")[0] not in ("onnx", "onnx_ir", "relayout"):
        return ""
    with suppress(Exception):  # a model may be damaged, and this is a message about it
        if type(value).__name__ == "NodeProto":
            return f"{value.op_type} {(value.name or next(iter(value.output), ''))!r}"
        if type(value).__name__ == "Node":
            return f"{value.op_type} {(value.name or value.outputs[0].name)!r}"
        if isinstance(place := getattr(value, "place", None), str) and place:
            return f"{value.operator.name} at {place}"
        return _node_name(value.node) if type(value.node).__name__ == "Node" else ""
    return ""
