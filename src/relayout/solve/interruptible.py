"""HiGHS run so that Ctrl-C is heard while it works: in a thread of its own, asked to stop, and waited for.

Python answers a signal between two of its own instructions, in the main thread, and HiGHS is one instruction. Where
the program is small enough to be solved at once, there is nothing to interrupt and no thread.
"""

from __future__ import annotations

import threading
from typing import Any

SMALL = 1000
"""A program of so few columns takes some milliseconds."""

LOOK, PATIENCE = 0.05, 0.8
"""Seconds between two looks at what the main thread is sent, and seconds that HiGHS has to stop when it is asked to."""


def run_solver(highs: Any, columns: int) -> None:
    """Solve the program that HiGHS was given.

    Args:
        highs: the solver; its options and its result are the caller's.
        columns: how large the program is.

    Raises:
        BaseException: whatever a signal's handler raises meanwhile (`KeyboardInterrupt`, `SystemExit`).
    """
    if columns <= SMALL:
        highs.run()
        return
    stop, done = threading.Event(), threading.Event()

    def asked(event: Any) -> None:
        if stop.is_set():
            event.interrupt()

    def work() -> None:
        try:
            highs.run()
        finally:
            done.set()

    highs.cbSimplexInterrupt += asked
    try:
        threading.Thread(target=work, daemon=True, name="HiGHS").start()
        # Not `Thread.join`: interrupted in it, Python 3.11 takes a thread that runs for one that has ended.
        while not done.wait(LOOK):
            pass
    except BaseException:
        stop.set()
        done.wait(PATIENCE)
        raise
    finally:
        if done.is_set():
            highs.cbSimplexInterrupt -= asked
