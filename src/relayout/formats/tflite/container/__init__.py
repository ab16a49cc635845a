"""Write `.tflite` files: the container alone, from the values that the verified reader gives.

`writer` makes the file, `comparing` holds what is read back against what was written. `versions` knows what each
operator asks of a runtime, `runtimes` which runtime has it. `model` has constants that are streamed, `metadata`
what relayout says in a file for itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from relayout.lazy_exports import loaded_later

if TYPE_CHECKING:
    from relayout.formats.tflite.container.comparing import first_difference
    from relayout.formats.tflite.container.metadata import record, with_record
    from relayout.formats.tflite.container.model import TensorContent, array_content
    from relayout.formats.tflite.container.versions import finished
    from relayout.formats.tflite.container.writer import options, save, to_bytes, write

__all__ = [
    "TensorContent",
    "array_content",
    "finished",
    "first_difference",
    "options",
    "record",
    "save",
    "to_bytes",
    "with_record",
    "write",
]

_HOMES = {
    "comparing": ("first_difference",),
    "metadata": ("record", "with_record"),
    "model": ("TensorContent", "array_content"),
    "versions": ("finished",),
    "writer": ("options", "save", "to_bytes", "write"),
}
__getattr__ = loaded_later(__name__, {name: f"{__name__}.{home}" for home, names in _HOMES.items() for name in names})
