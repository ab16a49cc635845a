"""An LRN adds squares up over windows of channels: a convolution of one element with a band matrix does so, too."""

import numpy as np
from numpy.typing import NDArray


def channel_windows(channels: int, size: int, weight: float) -> NDArray[np.float32]:
    """Return a matrix `o i` that sums channels up.

    Args:
        channels: how many there are.
        size: channels in a window, of which an even one has one more behind the middle.
        weight: what each channel of a window is multiplied by.
    """
    ahead = np.subtract.outer(np.arange(channels), np.arange(channels))  # how far `i` lies before `o`
    inside = (ahead <= (size - 1) // 2) & (-ahead <= size - 1 - (size - 1) // 2)
    return np.where(inside, np.float32(weight), np.float32(0))
