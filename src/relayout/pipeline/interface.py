"""One layout for all images that a model reads and gives: `--io NHWC`, `--io NCHW`."""

from __future__ import annotations

from relayout.infer import Sites
from relayout.reports import Axes

SPATIAL = {3: "w", 4: "hw", 5: "dhw"}
"""The spatial axes of an image, by its rank."""
IMAGE_LAYOUTS = ("NCHW", "NHWC")
"""The layouts that can be asked for; images of other ranks follow: NWC, NCDHW."""


def images(sites: Sites, axes: Axes) -> dict[str, str]:
    """Return the inputs and outputs that operators take as images: name -> layout."""
    layouts: dict[str, str] = {}
    for site in sites.sites:
        if site.kind not in ("input", "output"):
            continue
        (port,) = site.ports
        root = port.view.root
        value = root.value if site.kind == "input" else sites.graph.outputs[port.slot]
        layout = _image_layout(axes.form(root, port.view.form))
        if layout and value.name and axes.are_of_image(root, len(layout)):
            layouts[value.name] = layout
    return layouts


def image_pins(sites: Sites, axes: Axes, layout: str) -> dict[str, tuple[str, str]]:
    """Return a pin for each image-like input and output: its name -> (its layout in the source, the one asked for).

    Image-like is what an operator of the graph takes as an image: its axes are n, c and one to three spatial ones. A
    table of boxes, a sequence or an embedding stays as it is.

    Args:
        sites: the source graph.
        axes: the names of its axes.
        layout: `NCHW` or `NHWC`.
    """
    return {name: (stored, _of_rank(layout, len(stored))) for name, stored in images(sites, axes).items()}


def _image_layout(form: str) -> str:
    """Return `NCHW` for `n c h w`, numbers of axes left out; empty where the axes are not those of an image."""
    letters = [word.rstrip("0123456789") for word in form.split()]
    spatial = SPATIAL.get(len(letters))
    return "".join(letters).upper() if spatial and sorted(letters) == sorted(f"nc{spatial}") else ""


def _of_rank(layout: str, rank: int) -> str:
    """Return a layout of images of another rank: NHWC of rank 5 is NDHWC.

    >>> _of_rank("NCHW", 3), _of_rank("NHWC", 5)
    ('NCW', 'NDHWC')
    """
    return layout.replace("HW", SPATIAL[rank].upper())
