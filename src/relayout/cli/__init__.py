"""The command line, one module a verb. Heavy imports wait until a verb needs them."""

from __future__ import annotations

import sys

from relayout.lazy_exports import loaded_later

__all__ = ["cli", "main"]

__getattr__ = loaded_later(__name__, {"cli": "relayout.cli.entry"})

INTERRUPTED = 130  # the exit code after Ctrl-C


def main() -> None:
    """Run the command line. Ctrl-C ends it with one line, also while it still loads."""
    signals: list[int] = []
    try:
        _load(signals)
        from relayout.cli import entry

        entry.main()
    except BaseException as error:
        # What is raised while a module is compiled or loaded may come out as another error, such as a SyntaxError.
        if not signals and not isinstance(error, KeyboardInterrupt):
            raise
        print("relayout: interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)


def _load(signals: list[int]) -> None:
    """Load the command line; what interrupts it meanwhile goes into a list."""
    import signal

    def note(number: int, _: object) -> None:
        signals.append(number)
        raise KeyboardInterrupt

    is_interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_interruptible:
        signal.signal(signal.SIGINT, note)
    from relayout.cli.starting import deferred_imports

    with deferred_imports():
        from relayout.cli import entry  # noqa: F401 - loaded here
    if is_interruptible:
        signal.signal(signal.SIGINT, signal.default_int_handler)
