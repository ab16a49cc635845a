"""Layouts for people: by the name that they have (`NHWC`), else as letters (`n b h w`); and sizes in one unit."""

from __future__ import annotations

from relayout.terminal import count_of

IMAGES = ("ncw", "nchw", "ncdhw")
"""The axes of images, in any order."""
KERNELS = ("oiw", "oihw", "oidhw")
"""The axes of kernels."""
NAMED = frozenset("".join(sorted(axes)) for axes in (*IMAGES, *KERNELS))
UNITS = ("bytes", "KB", "MB", "GB", "TB")


def layout_name(letters: str) -> str:
    """Return the name of a layout in einops' notation where it has one, and its letters where it has none.

    >>> layout_name("n h w c"), layout_name("o h w i"), layout_name("n (h w) c"), layout_name("n c")
    ('NHWC', 'OHWI', 'n (h w) c', 'n c')
    """
    axes = letters.split(" ")
    named = all(len(axis) == 1 for axis in axes) and "".join(sorted(axes)) in NAMED
    return "".join(axes).upper() if named else letters


def layout_names(change: str) -> str:
    """Return a change of layouts with their names: `n h w c -> n c h w` is `NHWC -> NCHW`."""
    return " -> ".join(map(layout_name, change.split(" -> ")))


def size_name(count: int) -> str:
    """Return a number of bytes in the decimal unit that people say it in.

    >>> size_name(0), size_name(999), size_name(150_528), size_name(4_339_058)
    ('0 bytes', '999 bytes', '151 KB', '4.34 MB')
    """
    value, unit = float(count), 0
    while value >= 999.5 and unit < len(UNITS) - 1:
        value, unit = value / 1000, unit + 1
    if not unit:
        return count_of(count, "byte")
    return f"{value:.3g} {UNITS[unit]}"
