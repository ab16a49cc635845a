"""Passes over a `.tflite` that becomes another one, beside its literal import."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from relayout.targets.portable import portable

if TYPE_CHECKING:
    from relayout.formats.tflite.importing.import_passes import ImportPasses

LOOPS = "relayout.targets.litert.loops", "rows_of_reals"


def passes() -> ImportPasses:
    """Return what is done for any runtime, but to loops that round rows to integers."""
    from relayout.formats.tflite.importing.import_passes import on_use

    found = portable()
    return replace(found, alternatives={**found.alternatives, "WHILE": (on_use(*LOOPS),)})
