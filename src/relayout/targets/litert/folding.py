"""Folding into the weights of LiteRT's convolutions: scales and shifts per channel that follow them."""

from relayout.lowering.fusion_rows import Fusion

FOLDED = (Fusion("Conv", (), "", "Conv", (), 0, {}),)
"""Nothing becomes a part of the kernel's operator here; activations are taken in when the file is written."""
