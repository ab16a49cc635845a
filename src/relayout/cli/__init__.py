"""The command line, one module a verb. Heavy imports wait until a verb needs them."""

from relayout.cli.starting import deferred_imports

with deferred_imports():
    from relayout.cli.entry import cli, main

__all__ = ["cli", "main"]
