"""A PAD of zeros as the border of the convolution or pool behind it, for which every runtime has an attribute."""

from __future__ import annotations

from relayout.formats.tflite.importing.operation import Operation


class FoldingOperation(Operation):
    """An operator whose borders become those of the windows that slide over it."""

    folds_borders = True
