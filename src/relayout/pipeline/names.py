"""Names that a user gives: those of `--rename` mean the source's, and layouts that are more likely a slip."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TypeVar

from relayout.errors import LayoutError
from relayout.infer.graph_sites import Sites
from relayout.layout import Layout
from relayout.reports.layouts import Axes, layout_name
from relayout.reports.report import Interface
from relayout.rules.layouts import IMAGES, parsed_as

# One layout for all images that a model reads and gives: `--io NHWC`, `--io NCHW`.

SPATIAL = {3: "w", 4: "hw", 5: "dhw"}  # the spatial axes of an image, by its rank
IMAGE_LAYOUTS = ("NCHW", "NHWC")  # the layouts that can be asked for; images of other ranks follow: NWC, NCDHW


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


def image_pins(
    sites: Sites,  # the source graph
    axes: Axes,  # the names of its axes
    layout: str,  # `NCHW` or `NHWC`
) -> dict[str, tuple[str, str]]:
    """Return a pin for each image-like input and output: its name -> (its layout in the source, the one asked for).

    Image-like is what an operator of the graph takes as an image: its axes are n, c and one to three spatial ones. A
    table of boxes, a sequence or an embedding stays as it is.
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


T = TypeVar("T")


class SourceNames:
    """The names of the source, by those that a user gives."""

    def __init__(
        self,
        rename: Mapping[str, str] | None,  # name of the source -> name in the result
    ) -> None:
        new_names = rename or {}
        self._old = {new: old for old, new in new_names.items() if new not in new_names}

    def one(self, name: str) -> str:
        """Return the source's name of a value that may be given by its new one."""
        return self._old.get(name, name)

    def listed(self, names: Sequence[str] | None) -> list[str]:
        """Return the source's names of several."""
        return [self.one(name) for name in names or ()]

    def keys(self, options: Mapping[str, T] | None) -> dict[str, T]:
        """Return options by the source's names."""
        return {self.one(name): value for name, value in (options or {}).items()}

    def places(self, dims: Mapping[str, T] | None) -> dict[str, T]:
        """Return what is asked of dimensions, `input:axis` by the source's name of the input."""
        renamed = {}
        for key, value in (dims or {}).items():
            name, mark, axis = key.rpartition(":")
            renamed[f"{self.one(name)}{mark}{axis}" if mark else key] = value
        return renamed


def refuse_unusual_layouts(layouts: Mapping[str, tuple[str, str]]) -> None:
    """Refuse layouts of images that nobody stores images in: `NCWH` is more likely `NCHW` with a slip.

    Letters in lower case with spaces (`n c w h`) mean any order.

    Raises:
        LayoutError: a word of N, C, D, H and W names an unusual order.
    """
    for name, pair in layouts.items():
        for text in pair:
            if not set("NC") < set(text) <= set("NCDHW"):
                continue
            try:
                parsed_as(text, IMAGES, "images")
            except LayoutError as error:
                fault, letters = str(error).partition(" (")[0], " ".join(text.lower())
                raise LayoutError(
                    f"--layout {name}={pair[0]}:{pair[1]}: {fault} If you mean it, write it in lower case with spaces:"
                    f" '{letters}'"
                ) from error


def contradicted_names(
    # tensor -> the layout that the user calls it by, and the one to store it in
    layouts: Mapping[str, tuple[str, str]],
    interface: Sequence[Interface],  # the inputs and outputs of the model
    images: Collection[str],  # those of them that operators take as images; of others a layout is a guess
) -> Iterator[str]:
    """Say where the layout that a user calls an image's is not the one that the model shows.

    Raises:
        LayoutError: an operator shows another one.
    """
    shown = {end.name: layout_name(end.layout.partition(" -> ")[0]) for end in interface}
    for name, (source, stored) in layouts.items():
        known, named = shown.get(name, ""), "".join(Layout.parse(source).axes)
        if known.isupper() and named != known and sorted(named) == sorted(known):
            fault = f"{name} is {known} here; you called it {named}"
            if name in images and source.isupper():
                raise LayoutError(
                    f"--layout {name}={source}:{stored}: an operator shows that {fault}. Write --layout"
                    f" {name}={known}:… with the layout that you want, or '{' '.join(source.lower())}' if you mean it"
                )
            yield f"{fault}: --layout {name}={known}:… names its axes as they are"
