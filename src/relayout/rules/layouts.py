"""Layouts by name (`NHWC`, `OHWI`, `NCHW16c`) as the variants of operators on images.

An operator on images has a standard variant and, for every other layout, a *model-local function* in a domain that
names it: `relayout.nhwc` for images, `relayout.nhwc.ohwi` where kernels lie in an order of their own. Its body is the
standard operator between Transposes, so that every runtime can run it and a backend can match its name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from functools import lru_cache

from relayout.errors import LayoutError
from relayout.layout import Dim, Extent, Factor, Layout, product
from relayout.light_dataclass import dataclass
from relayout.rules.operator import Operator, Shape
from relayout.rules.registry import FUNCTIONS, Rule, variants_of
from relayout.rules.signature import Letters, Signature, Variant, Written, part_of

SPATIAL = "DHW"
STANDARD = Layout.parse("NCHW")
SHAPES = 9  # opset from which a Constant may hold integers, as the shapes in a function of a blocked layout


@dataclass(frozen=True)
class OperatorLayouts:
    """The layouts in which an operator on images runs.

    Args:
        data: of the images that it reads.
        kernel: of its kernel; None: the standard's.
        result: of the images that it gives; None: as it reads them.
        written: the node that runs it so, where a backend has one; None: a registered variant, or a function.
    """

    data: Layout
    kernel: Layout | None = None
    result: Layout | None = None
    written: Written | None = field(default=None, compare=False)

    @property
    def in_tiles(self) -> bool:
        """True if any of the layouts is blocked."""
        return not all(layout.is_plain for layout in (self.data, self.kernel, self.result) if layout is not None)

    @property
    def output(self) -> Layout:
        """The layout of the images that it gives."""
        return self.result or self.data

    @staticmethod
    def of_domain(domain: str) -> OperatorLayouts:
        """Read a function's domain.

        Raises:
            LayoutError: it names no layouts.
        """
        images, _, kernel = domain.removeprefix(FUNCTIONS).partition(".")
        data, _, result = images.partition("_")
        return OperatorLayouts(
            Layout.parse(data), Layout.parse(kernel) if kernel else None, Layout.parse(result) if result else None
        )

    @staticmethod
    def parse(text: str) -> OperatorLayouts:
        """Read `NHWC`, `NHWC OHWI` or `NCHW->NCHW16c OIHW`.

        Raises:
            LayoutError: it is not so written.
        """
        words = text.split()
        if not 1 <= len(words) <= 2:
            raise LayoutError(f"{text!r}: a layout of images, and that of the kernel where there is one")
        data, _, result = words[0].partition("->")
        kernel = Layout.parse(words[1]) if len(words) == 2 else None
        return OperatorLayouts(Layout.parse(data), kernel, Layout.parse(result) if result else None)

    @property
    def domain(self) -> str:
        """The domain of functions in these layouts."""
        images = str(self.data) + (f"_{self.result}" if self.result not in (None, self.data) else "")
        return FUNCTIONS + ".".join(word.lower() for word in (images, str(self.kernel or "")) if word)

    def __str__(self) -> str:
        images = f"{self.data}->{self.result}" if self.result not in (None, self.data) else str(self.data)
        return f"{images} {self.kernel}" if self.kernel else images


def fitted(layout: Layout, rank: int) -> Layout:
    """Return the layout for operands of another rank: `NHWC` is `NWC` at rank 3 and `NDHWC` at rank 5.

    Raises:
        LayoutError: there is no such layout.
    """
    axes = [factor.axis for factor in layout.factors if not factor.tile]
    spatial_axes = [axis for axis in axes if axis in SPATIAL]
    count = rank - len(axes) + len(spatial_axes)
    if count == len(spatial_axes):
        return layout
    first = next((i for i, factor in enumerate(layout.factors) if factor.axis in SPATIAL), 0)
    is_contiguous = [factor.axis for factor in layout.factors[first : first + len(spatial_axes)]] == spatial_axes
    if not (spatial_axes and is_contiguous and 1 <= count <= len(SPATIAL)):
        raise LayoutError(f"{layout} cannot name the axes of a tensor of rank {rank}")
    spatial_factors = [Factor(axis) for axis in SPATIAL[len(SPATIAL) - count :]]
    return Layout((*layout.factors[:first], *spatial_factors, *layout.factors[first + len(spatial_axes) :]))


@lru_cache(maxsize=256)
def standard(named: str, rank: int) -> Layout:
    """Return the standard layout of an operand: the names of its first two axes, then the spatial ones."""
    return fitted(Layout.parse(f"{named}W"), rank)


CHANNELS = frozenset("CIO")  # axes of images and kernels that are channels


def tokens(
    letters: Letters,  # its letters in the standard order
    named: str,  # the standard names of its first two axes
    layout: Layout,  # the layout asked for, of the operand's rank
    extents: Sequence[Extent],  # its extents in the standard order
) -> Letters:
    """Return the dimensions of an operand in `layout`.

    Raises:
        LayoutError: the layout names other axes, or a tile does not divide its axis.
    """
    axes = standard(named, len(letters)).axes
    if set(layout.axes) != set(axes):
        raise LayoutError(f"{layout} does not name the axes {', '.join(axes)}")
    dim_tokens: list[str] = []
    for factor in layout.factors:
        position = axes.index(factor.axis)
        letter, extent, tile = letters[position], extents[position], layout.tiles.get(factor.axis, 0)
        if tile and (not extent.is_static or extent.number % tile):
            what = "channels" if factor.axis in CHANNELS else f"elements of axis {factor.axis}"
            raise LayoutError(f"{extent} {what} are no multiple of the block of {tile}")
        dim_tokens.append(f"{letter}%{tile}" if factor.tile else f"{letter}/{tile}" if tile else letter)
    return tuple(dim_tokens)


def variant_in_layouts(
    rule: Rule,  # the operator's rule
    operator: Operator,  # the node, its operands in the standard's order
    signature: Signature,  # what the rule says of it
    layouts: OperatorLayouts,  # of any rank; they are fitted to the node's
) -> Variant:
    """Return the variant of an operator on images that runs in the given layouts.

    Raises:
        LayoutError: a layout does not fit: other axes, or a tile that does not divide its axis; or nothing runs it.
    """
    plain = signature.standard
    inputs, outputs = list(plain.inputs), list(plain.outputs)
    kernel: Layout | None = None
    rank = 0
    for slot, named, letters, shape in images(rule, operator, signature):
        extents = [Extent.of(dim) for dim in shape]
        if named != "NC":
            kernel = None if layouts.kernel is None else fitted(layouts.kernel, len(letters))
            if kernel is not None:
                kernel = _whole(kernel, named, extents)
                inputs[slot] = tokens(letters, named, kernel, extents)
                kernel = kernel if kernel != standard(named, len(letters)) else None
        elif slot >= 0:
            # What is added to the result lies as the result does.
            lies = layouts.output if slot and letters == plain.outputs[0] else layouts.data
            inputs[slot] = tokens(letters, named, fitted(lies, len(letters)), extents)
            rank = len(letters)
        else:
            outputs[~slot] = tokens(letters, named, fitted(layouts.output, len(letters)), extents)
            rank = len(letters)
    own = Written(rule.domain, rule.op_type, dict.fromkeys(_layout_attributes(rule)))
    body = Variant(plain.inputs, plain.outputs, written=own)
    if (tuple(inputs), tuple(outputs)) == (body.inputs, body.outputs):
        return body
    fitted_layouts = OperatorLayouts(
        fitted(layouts.data, rank), kernel, None if layouts.result is None else fitted(layouts.result, rank)
    )
    written = layouts.written or _registered(rule, fitted_layouts, rank)
    if written is None and rule.domain:
        raise LayoutError(
            f"{rule.domain}:{rule.op_type} in {fitted_layouts} is no function of ONNX, and no variant of a user's"
        )
    if written is None and fitted_layouts.in_tiles and operator.version < SHAPES:
        raise LayoutError(f"{fitted_layouts} needs constants that ONNX has from opset {SHAPES} on")
    if written is None:
        written = Written(fitted_layouts.domain, rule.op_type, dict.fromkeys(_layout_attributes(rule)), body)
    return Variant(tuple(inputs), tuple(outputs), str(fitted_layouts), written)


def _registered(rule: Rule, layouts: OperatorLayouts, rank: int) -> Written | None:
    """Return the node that was registered to run an operator in layouts of a rank, before a function does."""
    for variant in variants_of(rule):
        if str(layouts) == str(at_rank(OperatorLayouts.parse(variant.layouts), rank, kernels=rule)):
            others = dict.fromkeys(_layout_attributes(rule) - variant.attributes.keys())
            return Written(variant.domain, variant.op_type, others | dict(variant.attributes))
    return None


def _whole(layout: Layout, named: str, extents: Sequence[Extent]) -> Layout:
    """A kernel's layout without the tiles of axes of extent 1: a depthwise kernel has no input channels to tile."""
    ones = {axis for axis, extent in zip(standard(named, len(extents)).axes, extents, strict=True) if extent.is_one}
    return Layout(tuple(factor for factor in layout.factors if not (factor.tile and factor.axis in ones)))


def _layout_attributes(rule: Rule) -> set[str]:
    """Return the attributes by which the registered variants of an operator say their layouts."""
    return {name for variant in variants_of(rule) for name in variant.attributes}


def at_rank(layouts: OperatorLayouts, rank: int, kernels: Rule) -> OperatorLayouts:
    """Layouts as `laid` calls them for operands of a rank; those of another rank stay as they are."""
    named = next((axes for axes in kernels.layouts.values() if axes != "NC"), "OI")
    try:
        data, result = fitted(layouts.data, rank), None if layouts.result is None else fitted(layouts.result, rank)
        kernel = None if layouts.kernel is None else fitted(layouts.kernel, rank)
        return OperatorLayouts(data, None if kernel == standard(named, rank) else kernel, result)
    except LayoutError:
        return layouts


def images(rule: Rule, operator: Operator, signature: Signature) -> Iterator[tuple[int, str, Letters, Shape]]:
    """Yield the operands that layouts name: (slot, or its complement for an output; standard names, letters, shape).

    Letters and shape are in the standard's order.
    """
    plain = signature.standard
    for slot, named in sorted(rule.layouts.items()):
        letters, shape = plain.inputs[slot] if slot < len(plain.inputs) else None, operator.shape(slot)
        if letters is not None and shape is not None:
            yield slot, named, letters, _ordered(shape, signature.inputs[slot], letters)
    for slot, letters in enumerate(plain.outputs):
        shape = operator.outputs[slot]
        if letters is not None and shape is not None and len(letters) > 2:
            yield ~slot, "NC", letters, _ordered(shape, signature.outputs[slot], letters)


def _ordered(shape: Shape, dim_letters: Letters | None, letters: Letters) -> Shape:
    """Return a shape whose dimensions are `dim_letters`, with these letters in their order."""
    return (
        shape
        if dim_letters is None or dim_letters == letters
        else tuple(shape[dim_letters.index(letter)] for letter in letters)
    )


def is_function(operator: Operator) -> bool:
    """Tell whether a node calls one of the functions that are made here."""
    return operator.domain.startswith(FUNCTIONS)


def in_standard_order(operator: Operator, rule: Rule, layouts: OperatorLayouts) -> Operator:
    """Return a node in some layouts as the standard's: the same node, with shapes in the standard's order.

    Raises:
        LayoutError: its operands do not lie in them.
    """
    inputs = list(operator.inputs)
    for slot, named in rule.layouts.items():
        layout = layouts.data if named == "NC" else layouts.kernel
        if layout is not None and slot < len(inputs):
            inputs[slot] = _plain(operator.inputs[slot], named, layout)
    outputs = tuple(_plain(shape, "NC", layouts.output) for shape in operator.outputs)
    return replace(operator, inputs=tuple(inputs), outputs=outputs)


def _plain(shape: Shape | None, named: str, layout: Layout) -> Shape | None:
    """Return a stored shape in the standard's order of axes."""
    if shape is None or len(shape) < 3:
        return shape
    if len(shape) != len(layout.factors):
        raise LayoutError(f"a tensor of rank {len(shape)} does not lie in {layout}")
    pieces: dict[str, list[Dim]] = {}
    for factor, dim in zip(layout.factors, shape, strict=True):
        pieces.setdefault(factor.axis, []).append(dim)
    return tuple(_dim(pieces[axis]) for axis in standard(named, len(layout.axes)).axes)


def _dim(pieces: Sequence[Dim]) -> Dim:
    """Return the extent of an axis: of one in a piece, whatever it is called (`2*height`), as it is."""
    if len(pieces) == 1:
        return pieces[0]
    extent = product(map(Extent.of, pieces))
    if extent.is_static:
        return extent.number
    if extent.number != 1 or len(extent.symbols) != 1:
        raise LayoutError(f"an axis in tiles has the dynamic extent {extent}")
    return extent.symbols[0]


def stored(signature: Signature, variant: Variant) -> Signature:
    """Return the signature of a node that is written as `variant`: its operands' dimensions as the node has them."""

    def letters(operands: Sequence[Letters | None]) -> tuple[Letters | None, ...]:
        return tuple(
            None if operand is None else tuple(part_of(token).letter for token in operand) for operand in operands
        )

    return replace(signature, inputs=letters(variant.inputs), outputs=letters(variant.outputs), variants=(variant,))


# Which layouts there are for images and for kernels; any other is more likely a typing error.

USUAL = {"images": ("N*C", "NC*", "C*N", "*CN", "*NC"), "kernels": ("OI*", "O*I", "*IO", "*OI", "IO*", "I*O")}
"""The orders that images and kernels are stored in anywhere; `*` are the spatial axes, together and as D, H, W."""
IMAGES, KERNELS = frozenset("NC"), frozenset("OI")


def parsed_as(text: str, outer: frozenset[str], what: str) -> Layout:
    """Read a layout of images (N, C and 1 to 3 spatial axes) or of kernels (O, I and these)."""
    layout = Layout.parse(text)
    spatial = set(layout.axes) - outer
    if not outer < set(layout.axes) or not spatial <= set(SPATIAL):
        raise LayoutError(f"{text} is no layout of {what}: it names {', '.join(sorted(outer))}, and some of D, H and W")
    _usual(layout, "".join(axis for axis in "DHW" if axis in spatial), what)
    return layout


def operator_layouts(text: str) -> OperatorLayouts:
    """Read the layouts in which an operator runs: `NHWC`, `NHWC OHWI` or `NCHW->NCHW16c OIHW`.

    Raises:
        LayoutError: it is not so written, is none that images or kernels have, or the two are of different ranks.
    """
    if not isinstance(text, str):
        raise LayoutError(f"{text!r} is no text: layouts are written 'NHWC', or 'NHWC OHWI' with that of the kernel")
    layouts = OperatorLayouts.parse(text)
    images, *kernels = text.split()
    if not kernels and set(images) >= KERNELS:
        raise LayoutError(f"{text} is a layout of kernels: write it behind that of images, as in 'NHWC {text}'")
    data = parsed_as(images.partition("->")[0], IMAGES, "images")
    others = [parsed_as(each, IMAGES, "images") for each in images.split("->")[1:]]
    for other in (*others, *(parsed_as(each, KERNELS, "kernels") for each in kernels)):
        if set(other.axes) & set(SPATIAL) != set(data.axes) & set(SPATIAL):
            raise LayoutError(f"{text}: {data} and {other} name different spatial axes")
    return layouts


def why_not(layouts: OperatorLayouts, rule: Rule) -> str:
    """Return why an operator cannot have such layouts; empty if it can."""
    if not rule.layouts:
        return (
            "it has no layouts of its own and follows its neighbours; a row for it without layouts claims it in"
            " whatever order they have"
        )
    kernel = next((named for named in rule.layouts.values() if named != "NC"), None)
    if layouts.kernel is not None and kernel is None:
        return f"it has no kernel that could lie in {layouts.kernel}; leave that out"
    return ""


def _usual(layout: Layout, spatial: str, what: str) -> None:
    """Refuse an order that nobody stores images or kernels in: more likely a typing error than a request.

    A blocked layout may hold the outer part of an axis anywhere (`NHCW16c`).
    """
    order, usual = "".join(layout.axes), [each.replace("*", spatial) for each in USUAL[what]]
    if layout.is_plain and order not in usual:

        def swaps(other: str) -> int:
            """Count the swaps of neighbours that lead to another order of axes."""
            places = [other.index(axis) for axis in order]
            return sum(place > later for i, place in enumerate(places) for later in places[i + 1 :])

        meant = min(usual, key=swaps)
        raise LayoutError(
            f"{order} is no usual layout of {what}; did you mean {meant!r}? "
            f"(Usual are {', '.join(usual)}; --layout TENSOR=SRC:DST stores one tensor in any order.)"
        )
