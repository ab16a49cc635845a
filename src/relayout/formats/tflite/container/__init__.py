"""Write `.tflite` files: the container alone, from the values that the verified reader gives.

`writer` makes the file, `comparing` holds what is read back against what was written. `versions` knows what each
operator asks of a runtime, `runtimes` which runtime has it. `contents` streams what is not in memory.
"""

from relayout.formats.tflite.container.comparing import first_difference
from relayout.formats.tflite.container.contents import TensorContent
from relayout.formats.tflite.container.versions import finished
from relayout.formats.tflite.container.writer import options, save, to_bytes, write

__all__ = ["TensorContent", "finished", "first_difference", "options", "save", "to_bytes", "write"]
