"""Convolutions of real numbers with strides above 3 and a border, as Vela takes them once a quantizer was there.

    CONV_2D(PAD(x))  ->  CONV_2D(CONCATENATION(zeros, x, zeros)), along each axis that has a border

Vela 5.2 puts a PAD back into the convolution, and then compiles nothing. Units of integers get the same before layouts
are chosen (`table.py`).
"""

import numpy as np

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.exporting.draft import DraftTensor
from relayout.formats.tflite.exporting.rewriting import Rewriting

LONGEST_STRIDE = 3
"""The longest stride that Vela takes together with a border."""


def write_border(op: Rewriting) -> DraftTensor | None:
    """Write the border of a convolution with long strides as constants; None of any other operator."""
    options = op.operator.options
    strides = (options.get("stride_h", 1), options.get("stride_w", 1))
    if op.operator.name != "CONV_2D" or max(strides) <= LONGEST_STRIDE or op.result.type != TensorType.FLOAT32:
        return None
    image, *others = op.operator.inputs
    pad = next((each for each in op.draft.operators if each.name == "PAD" and image in each.outputs), None)
    source, pads = (None, None) if pad is None else pad.inputs[:2]
    if source is None or pads is None or pads.array is None or not source.is_static:
        return None
    last = source
    for axis, (before, behind) in enumerate(pads.array.tolist()):
        borders = [
            op.const(np.zeros((*last.shape[:axis], extent, *last.shape[axis + 1 :]), np.float32))
            for extent in (before, behind)
        ]
        last = op.concat([each for each in (borders[0], last, borders[1]) if each.dims[axis]], axis)
    return op.same(last, *others)
