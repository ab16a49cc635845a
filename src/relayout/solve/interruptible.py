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


def run(highs: Any, columns: int) -> None:
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
    stop = threading.Event()

    def asked(event: Any) -> None:
        if stop.is_set():
            event.interrupt()

    solving = threading.Thread(target=highs.run, daemon=True, name="HiGHS")
    highs.cbSimplexInterrupt += asked
    try:
        solving.start()
        while solving.is_alive():
            solving.join(LOOK)
    except BaseException:
        stop.set()
        solving.join(PATIENCE)
        raise
    finally:
        if not solving.is_alive():
            highs.cbSimplexInterrupt -= asked
