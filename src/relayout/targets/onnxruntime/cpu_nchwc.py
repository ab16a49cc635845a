"""ONNX Runtime's CPU provider with its kernels for blocks of channels, written ahead of time.

Facts: ONNX Runtime's sources (`nchwc_transformer.cc`, `nchwc_ops.cc`, and `platform.cpp` of MLAS), seen by running
1.31 with blocks of 16 and 1.32 with blocks of 8 (`tests/targets/test_onnxruntime_cpu_nchwc.py`): operators of
`com.microsoft.nchwc` on floats of rank 4; images lie `n c/16 h w 16`, kernels `OIHW16i16o`, those of one input channel
a group and those that read a plain image `OIHW16o`. Shapes are stated as if nothing lay in blocks. MLAS has blocks of
16 channels on x64 with AVX-512 F and on ARM64 (that was read only), of 8 on any other x64. No node says which, and with
the wrong ones results are wrong without a word: there is a target for each size, and what it writes is stamped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

from relayout.apply.blocks import BlockSizes
from relayout.errors import LayoutError
from relayout.layout import Extent
from relayout.lowering.conditions import FLOOR, NO_DILATIONS, NO_INDICES, Condition, clip_bounds, constant
from relayout.lowering.fuse_epilogue import Fusion
from relayout.rules import Operator, Placement, Signature, Written
from relayout.targets.onnxruntime import cpu as plain
from relayout.targets.onnxruntime.blocked_prices import IN_BLOCKS, KERNELS, LAST, NODE, PER_TAP, STRETCHED
from relayout.targets.onnxruntime.cpu_guard import DOMAINS, block_here
from relayout.targets.onnxruntime.import_list import with_vnni, without_vnni
from relayout.targets.target_table import Kernel, Target

NAME = "onnxruntime-cpu-nchwc"
(DOMAIN,) = DOMAINS
FEATURES = {8: "x64 without avx512f", 16: "x64 with avx512f, or arm64"}
ITEM = 4  # bytes of a float
KNOWN = (constant(1, "kernel"), constant(2, "bias"))
LARGEST = 3.4028234663852886e38  # the largest float: the bound of a Clip that has none


def _extents(operator: Operator) -> tuple[int, int, int] | None:
    """Output channels, input channels of a group, and groups, where they are numbers."""
    kernel = operator.shape(1)
    if kernel is None or not isinstance(kernel[0], int) or not isinstance(kernel[1], int):
        return None
    return kernel[0], kernel[1], operator.int("group", 1)


NUMBERS = (  # operators that give numbers for numbers, of every channel alone
    "Abs Add AveragePool Clip Cos Elu Erf Gelu GlobalAveragePool GlobalMaxPool HardSigmoid HardSwish LeakyRelu Max"
    " MaxPool Min Mish Mul Neg Relu Sigmoid Sin Softplus Sub Swish Tanh"
)


def _bounds(operator: Operator) -> tuple[float, ...] | None:
    bounds = clip_bounds(operator)
    return None if bounds is None else (max(bounds[0], -LARGEST), min(bounds[1], LARGEST))


ACTIVATIONS: dict[str, Callable[[Operator], tuple[float, ...] | None]] = {
    **dict.fromkeys(("Relu", "Sigmoid", "Tanh"), lambda _: ()),
    "LeakyRelu": lambda operator: (operator.node.attributes.get_float("alpha", 0.01),),
    "HardSigmoid": lambda operator: tuple(
        operator.node.attributes.get_float(name, default) for name, default in (("alpha", 0.2), ("beta", 0.5))
    ),
    "Clip": _bounds,
}


def _rows(tile: int, whole: Condition, stem: Condition) -> tuple[Kernel, ...]:
    data, kernel = f"NCHW{tile}c", f"OIHW{tile}i{tile}o"
    convolution, floats, images = Written(DOMAIN, "Conv", joined=True), plain.REALS, (4,)

    def in_blocks(operator: Operator) -> bool:
        shape = operator.shape() or ()
        return len(shape) > 1 and isinstance(shape[1], int) and shape[1] % tile == 0

    channels = Condition(f"channels in blocks of {tile}", in_blocks)

    def pool(name: str, *limits: Condition) -> Kernel:
        return Kernel(name, (data,), floats, images, limits, channels, written=Written(DOMAIN, name, joined=True))

    rows = []
    for domain, name in (("", "Conv"), (plain.CONTRIBUTED, "FusedConv")):
        for ways, when in ((f"{data} {kernel}", whole), (f"NCHW->{data} OIHW{tile}o", stem)):
            rows.append(Kernel(name, (ways,), floats, images, KNOWN, when, domain, convolution))
    return (
        *rows,
        pool("MaxPool", NO_INDICES),
        pool("AveragePool", NO_DILATIONS, FLOOR),
        pool("GlobalAveragePool"),
        pool("GlobalMaxPool"),
    )


def _priced(tile: int, here: Callable[[Operator], bool]) -> Callable[[Operator, Signature, Placement], int]:
    """Return a function that prices nodes which do not run in blocks, in bytes that might be reordered instead."""

    def price(operator: Operator, signature: Signature, placement: Placement) -> int:
        if not here(operator):
            return plain.price(operator, signature, placement) or _off_plain(operator, signature, placement, tile)
        if len(placement.letters(0, output=True)) > len(signature.outputs[0] or ()):
            return 0
        return max(1, round(_price(operator) * plain.elements_of(placement) * ITEM))

    return price


def _off_plain(operator: Operator, signature: Signature, placement: Placement, tile: int) -> int:
    """Return the cost of an operator that reduces an image or stretches an operand over it, with channels innermost.

    In blocks nothing but the tile lies together. Two nodes that bring an image into another order and back cost
    something, too, which is set against it.
    """
    image = placement.inputs[0] or ()
    if operator.name in IN_BLOCKS:
        has_last_axis = bool(image) and image[-1] in (placement.outputs[0] or ())
        longer = (
            (IN_BLOCKS if _in_tiles(image, tile) else LAST)[operator.name] if has_last_axis and len(image) >= 4 else 0.0
        )
    else:
        image = placement.outputs[0] or ()
        count = _count(image)
        read = [_count(dims) for dims in placement.inputs if dims is not None]
        stretched = signature.broadcast and any(each not in (1, count) for each in read)
        longer = STRETCHED if stretched and _in_tiles(image, tile) else 0.0
    return max(0, round(longer * _count(image) - 2 * NODE) * ITEM)


Dims = tuple[tuple[str, Extent], ...]


def _in_tiles(image: Dims, tile: int) -> bool:
    letters = [letter for letter, _ in image]
    return len(set(letters)) < len(letters) and image[-1][1].number == tile


def _count(image: Dims) -> int:
    return prod(extent.number for _, extent in image)


def _price(operator: Operator) -> float:
    """Per element that is read or given."""
    extents = _extents(operator) if operator.has(1) else None
    if extents is None:
        return KERNELS[operator.name]
    kernel = operator.shape(1) or ()
    taps = prod(side for side in kernel[2:] if isinstance(side, int))
    form = "depthwise" if extents[1] == 1 and extents[2] > 1 else "Conv"
    return KERNELS["Conv"] + PER_TAP[form] * (taps - 1)


def _target(tile: int) -> Target:
    def in_whole_blocks(operator: Operator) -> bool:
        if (extents := _extents(operator)) is None:
            return False
        outputs, read, groups = extents
        if groups > 1 and read == 1:
            return outputs == groups and outputs % tile == 0
        return read % tile == 0 and outputs % groups == 0 and outputs // groups % tile == 0

    def is_stem(operator: Operator) -> bool:
        outputs, read, groups = _extents(operator) or (1, 0, 0)
        return outputs % tile == 0 and read < tile and groups == 1

    whole = Condition(f"in whole blocks of {tile} channels", in_whole_blocks)
    stem = Condition(f"fewer than {tile} channels into blocks", is_stem)
    rows = _rows(tile, whole, stem)

    def here(operator: Operator) -> bool:
        domain = "" if operator.node.domain == "ai.onnx" else operator.node.domain
        return any(row.concerns(operator, domain, operator.name) and not row.lacks(operator) for row in rows)

    blocked = Condition("where blocks do not fit", lambda operator: not here(operator))
    others = tuple(
        replace(row, when=both(row.when, blocked)) if row.types == plain.REALS and row.op_types == "Conv" else row
        for row in plain.TARGET.kernels
    )
    fits = Condition("floats of rank 4 in blocks", here)
    return replace(
        plain.TARGET,
        name=f"{NAME}{tile}",
        line=f"ONNX Runtime's CPU provider on CPUs with blocks of {tile} channels ({FEATURES[tile]}): floats in blocks",
        kernels=(*rows, *others),
        price=_priced(tile, here),
        blocks=BlockSizes(tile, DOMAIN, "ReorderInput", "ReorderOutput", FEATURES[tile], "Conv", NUMBERS, "Concat"),
        lowering=(*["int8-weights-to-uint8"] * (tile == 8), *plain.TARGET.lowering),
        tflite=without_vnni if tile == 8 else with_vnni,
        fusions=(Fusion("Conv", (fits,), plain.CONTRIBUTED, "FusedConv", ("Add", "Sum"), 3, ACTIVATIONS),),
    )


def both(first: Condition | None, second: Condition) -> Condition:
    """Two conditions as one."""
    if first is None:
        return second
    return Condition(f"{first}, {second}", lambda operator: first.holds(operator) and second.holds(operator))


TARGETS = tuple(map(_target, sorted(FEATURES)))


def _here() -> str:
    """Return the name of the target for this CPU; a LayoutError, or a MissingRuntimeError, where there is none."""
    tile = block_here()
    if tile not in FEATURES:
        raise LayoutError("ONNX Runtime has no kernels for blocks of channels on this CPU")
    return f"{NAME}{tile}"


ALIASES = {NAME: _here}
