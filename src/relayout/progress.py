"""What long work says of how far it is, to whoever listens. Without `heard` nobody does, and nothing is said."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias

LOG = logging.getLogger("relayout")
"""Where the library says what it does: stages at level INFO. Nothing is shown unless the program that uses it asks."""
Listener: TypeAlias = Callable[[str, int, int], None]
"""Hears which stage work is in, how many of its parts are done, and of how many; 0 of 0 where that is not counted."""

_listener: ContextVar[Listener | None] = ContextVar("relayout.progress", default=None)

_stage: ContextVar[str] = ContextVar("relayout.stage", default="reading")


def last_stage() -> str:
    """Return the stage that was said last: what an error may have happened in."""
    return _stage.get()


def say(stage: str, done: int = 0, total: int = 0) -> None:
    """Tell the listener, if there is one, what is being done: `reading`, or `comparing` 3 of 40."""
    if not total:
        LOG.info("%s", stage)
        _stage.set(stage)
    listener = _listener.get()
    if listener is not None:
        listener(stage, done, total)


@contextmanager
def heard(listener: Listener) -> Iterator[None]:
    """Listen to what is done inside. The listener outside hears nothing until the end."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
