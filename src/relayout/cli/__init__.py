"""The command line, one module a verb. Heavy imports wait until a verb needs them."""

from __future__ import annotations

import sys

from relayout.lazy_exports import loaded_later

__all__ = ["cli", "main"]

__getattr__ = loaded_later(__name__, {"cli": "relayout.cli.entry"})

INTERRUPTED = 130
"""The exit code after Ctrl-C."""


def main() -> None:
    """Run the command line. Ctrl-C ends it with one line, also while it still loads."""
    try:
        from relayout.cli.starting import deferred_imports

        with deferred_imports():
            from relayout.cli import entry
        entry.main()
    except KeyboardInterrupt:
        print("relayout: interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
