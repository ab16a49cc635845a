"""Write `.tflite` files: the container alone, from the values that the verified reader gives.

`writer` makes the file, `comparing` holds what is read back against what was written.
"""

from relayout.formats.tflite.container.comparing import first_difference
from relayout.formats.tflite.container.writer import save, to_bytes, write

__all__ = ["first_difference", "save", "to_bytes", "write"]
