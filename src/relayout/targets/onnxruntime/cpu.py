"""ONNX Runtime's CPU provider: what it has on integers, channels last included, and what its kernels cost.

Operators and their types: ONNX Runtime, "OperatorKernels.md", the tables of the CPU provider, and "ContribOperators.md"
for `com.microsoft`; that the provider has them was seen by running each (`tests/targets/test_onnxruntime_cpu.py`).
Prices: measured by `bench/measure_prices.py` and `bench/measure_float_prices.py`, kept in `prices.py` and
`float_prices.py`.

A quantized unit becomes the operator on integers that ONNX Runtime's own optimizer would make of it, and some that it
makes not: a Sum of two, a constant border, and a scale and shift per channel (BatchNormalization, Mul or Add with
constants), which run as a depthwise convolution of one element, so that nothing has to be brought back to channels
first for them. A convolution in three dimensions of few channels stays on floats, as a FusedConv, which the optimizer
does not look for (seen by running 1.32: `tests/targets/test_reals.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Set
from functools import partial
from itertools import groupby
from math import prod
from typing import TypeVar

import onnx_ir as ir

from relayout.infer.graph_sites import Sites
from relayout.infer.sites import Form, Port, Root
from relayout.layout import Extent, product
from relayout.lowering.conditions import (
    CONSTANT_KERNEL,
    CONSTANT_MODE,
    INFERENCE,
    NO_DILATIONS,
    NO_INDICES,
    PLAIN_PRODUCT,
    RESIZE_PLAIN,
    SPATIAL_ONLY,
    Condition,
    attribute,
    inputs,
)
from relayout.lowering.fuse_epilogue import Fusion
from relayout.lowering.unit_rows import Unit
from relayout.rules import Attribute, Operator, Placement, Signature, Written
from relayout.rules.views import listed_axes
from relayout.targets.onnxruntime.blocked import BLOCKED, STEM, lies_in_blocks
from relayout.targets.onnxruntime.decompositions import EXPANSIONS
from relayout.targets.onnxruntime.float_prices import LEAST_IN_VOLUMES, REDUCED, STRETCHED
from relayout.targets.onnxruntime.import_list import with_vnni
from relayout.targets.onnxruntime.prices import CHANNELS_FIRST, LEAST_CHANNELS, LEAST_RUN
from relayout.targets.target_table import INT8, Kernel, Target

# Values of int8 that keep a single consumer in the result, as a view gave them one in the source.
#
# On x64 ONNX Runtime makes int8 unsigned, and multiplies it as such, where one reader alone is behind the
# DequantizeLinear that is alone behind its QuantizeLinear; otherwise the operators around it compute with floats. Where
# a Transpose or Reshape stood between, as a unit of its own, and is gone, a Reshape stands there: it moves no byte.


def single_consumers(
    sites: Sites,  # the source graph, as it was
    units: Mapping[Root, ir.Node],  # integers between quantized units -> the QuantizeLinear that gives them
    forms: Mapping[Port, Form],  # operand -> the dimensions in which it is stored
) -> tuple[set[Port], set[Root]]:
    """Return the operands that get integers of their own, and the integers behind which a Reshape stays."""
    own = own_readers(sites, units, forms)
    return own, shared_integers(sites, units, forms, own)


def own_readers(sites: Sites, units: Mapping[Root, ir.Node], forms: Mapping[Port, Form]) -> set[Port]:
    """Return the ports where int8 has a DequantizeLinear of its own, as in the source, though others want the same."""
    alone: dict[tuple[Root, Form], list[Port]] = {}
    beside: Counter[tuple[Root, Form]] = Counter()
    for site in sites.sites:
        if site.signature.with_reader:
            (port,) = (port for port in site.free_ports() if not port.output)
            root = port.view.root
            if root in units and root.value.dtype == ir.DataType.INT8:
                beside[root, forms[port]] += 1
                # Nobody else reads what the DequantizeLinear reads, and one node alone what it gives.
                assert site.node is not None
                value = site.node.inputs[0]
                if value is not None and len(value.uses()) == len(site.node.outputs[0].uses()) == 1:
                    alone.setdefault((root, forms[port]), []).append(port)
    return {port for key, ports in alone.items() if beside[key] > 1 for port in ports}


def shared_integers(
    sites: Sites, units: Mapping[Root, ir.Node], forms: Mapping[Port, Form], own: Set[Port]
) -> set[Root]:
    """Return the int8 integers that a view alone read in the source, and that several read in the result."""
    signed = {root: node for root, node in units.items() if root.value.dtype == ir.DataType.INT8}
    views = {node for node, _, _ in sites.viewing} if signed else set()
    view_only_roots = set()
    for root, node in signed.items():  # whose one DequantizeLinear has one reader, a view
        readers = [use.node for use in node.outputs[0].uses()]
        behind = [use.node for reader in readers for use in reader.outputs[0].uses()]
        if len(readers) == len(behind) == 1 and behind[0] in views:
            view_only_roots.add(root)
    if not view_only_roots:
        return view_only_roots
    form_of: dict[Root, Form] = {}
    read: dict[Root, list[tuple[Form, Root | None, bool]]] = {}
    for site in sites.sites:
        (result_root,) = (
            [port.view.root for port in site.ports if port.output] if site.signature.with_reader else [None]
        )
        for port in site.ports:
            if port.output:
                form_of[port.view.root] = forms[port]
            else:
                read.setdefault(port.view.root, []).append((forms[port], result_root, port in own))

    def count(root: Root) -> int:
        """Count the readers of a value, or of what is dequantized of it; those that want one other form count once."""
        behind = read.get(root, [])
        others = {form for form, _, alone in behind if form != form_of[root] and not alone}
        direct = (result_root for form, result_root, alone in behind if form == form_of[root] and not alone)
        return len(others) + sum(alone for *_, alone in behind) + sum(1 if to is None else count(to) for to in direct)

    return {root for root in view_only_roots if count(root) > 1}


# Where elements lie that a kernel works on together: how often it begins anew, and whether it gathers.
#
# Seen by running ONNX Runtime 1.32 (`bench/measure_float_prices.py`), whose kernels are the ones that this is asked of.

TOGETHER = frozenset(("", "K", "R", "KR", "KRK"))
"""Axes that are kept and reduced, in stored order, where a reduction adds up vectors or whole rows."""
VECTOR = 8  # elements that a reduction adds up at once
LONGEST = 16  # elements of a short run: as many channels as a group has that is normalized by itself

Kind = TypeVar("Kind")


def gathers(placement: Placement) -> bool:
    """Return whether a reduction collects every element that it gives from places that lie apart.

    `R K` of one image it does (`1 h w c` over `h w`), whatever goes to and fro more than `K R K`, and what ends in a
    few elements.
    """
    image, kept_dims = placement.inputs[0] or (), placement.outputs[0] or ()
    parts = _parts(("K" if dim in kept_dims else "R", dim[1]) for dim in image)
    order = "".join(part for part, _ in parts)
    if len(parts) > 1 and _is_under(parts[-1][1], VECTOR):
        return True
    return order not in TOGETHER and (order != "RK" or image[0][1].is_one)


def short_runs(placement: Placement) -> int:
    """Return how often an operator begins anew as it goes over an operand that is one element for a few of another's.

    `h w g 4` beside `g 1` has a run of 4 for each `h w g`. Rows are no such runs: ONNX Runtime makes one operator of
    those that normalize a row (`n c` beside `n 1`), and of a product with its scale and bias (`n c` beside `c`).
    """
    out = placement.extents(output=True)
    operands = [[extent for _, extent in dims] for dims in placement.inputs if dims is not None]
    ones = [
        [len(out) - len(shape) > axis or shape[axis - len(out)].is_one for shape in operands]
        for axis in range(len(out))
    ]
    parts = _parts(zip(map(tuple, ones), out, strict=True))
    if len(parts) < 2 or not any(parts[-1][0]) or not _is_under(parts[-1][1], LONGEST + 1):
        return 0
    return prod(extent.number for _, extent in parts[:-1])


def _parts(dims: Iterable[tuple[Kind, Extent]]) -> list[tuple[Kind, Extent]]:
    """Dimensions in a row of one kind as one; axes of one element are of no kind."""
    several = ((kind, extent) for kind, extent in dims if not extent.is_one)
    return [(kind, product(extent for _, extent in group)) for kind, group in groupby(several, lambda dim: dim[0])]


def _is_under(extent: Extent, bound: int) -> bool:
    """Return whether an extent is known to be less."""
    return extent.is_static and extent.number < bound


CONTRIBUTED = "com.microsoft"
IMAGES = (3, 4, 5)
CHANNELS_LAST = Written(CONTRIBUTED, "QLinearConv", {"channels_last": 1})
RESIZED = Written("", "Resize")
LINEAR = attribute("mode", ("linear",), "nearest")
LAST_POOL = Written(CONTRIBUTED, "NhwcMaxPool", {"storage_order": None})
ON_INTEGERS = Condition("on integers themselves", lambda operator: operator.dtype(0).kind in "iu")
"""A unit whose ends have two scales is not: its operator reads real numbers."""
FLOAT32 = ("FLOAT",)
REALS = (*FLOAT32, "INT8", "UINT8", "INT16", "UINT16")
"""Element types of real numbers: floats, and quantized units that no pass made one operator on integers."""
BOTH_ENDS, FAR_END = ("NCHW", "NHWC", "NCHW->NHWC", "NHWC->NCHW"), ("NCHW", "NCHW->NHWC")
"""A convolution of floats reorders what it reads into blocks, and what it gives out of them, from and to any order."""
PRICED = {name: FLOAT32 if name == "Resize" else INT8 for name in CHANNELS_FIRST}
"""Operator of the measured table -> the types that it was measured on."""
UNSIGNED = ("UINT8",)
"""The data's type for which there is a depthwise kernel; for int8 every channel is a product of its own."""
COORDINATES = "coordinate_transformation_mode"
ONE_OUTPUT = Condition("one output", lambda operator: not operator.gives(1))
COUNTED = Condition(  # the kernel on integers also counts what lies beyond the pads
    "ceil_mode 0 or count_include_pad 0",
    lambda operator: not (operator.int("ceil_mode", 0) and operator.int("count_include_pad", 0)),
)
INSIDE = Condition("no tf_crop_and_resize", lambda operator: operator.string(COORDINATES, "") != "tf_crop_and_resize")
"""What lies beyond an image is a real number there (`extrapolation_value`), and no integer."""


def since(version: int) -> Condition:
    """An operator of an opset."""
    return Condition(f"opset {version} or later", lambda operator: operator.version >= version)


def at_least(least: int) -> Condition:
    """Enough channels for a depthwise convolution of one element to be no slower than what it stands for."""

    def holds(operator: Operator) -> bool:
        shape = operator.outputs[0] or ()
        return len(shape) > 1 and isinstance(shape[1], int) and shape[1] >= least

    return Condition(f"at least {least} channels", holds)


def _depthwise(operator: Operator) -> Mapping[str, Attribute | None]:
    shape = next(shape for shape in operator.outputs if shape is not None)
    assert isinstance(shape[1], int)
    return {"group": shape[1], "kernel_shape": (1,) * (len(shape) - 2)}


def price(operator: Operator, signature: Signature, placement: Placement) -> int:
    """Return the extra cost of an operator with channels first: it transposes inside, or works element by element.

    At least a byte: ONNX Runtime's own optimizer would write Transposes around such a node, even of one element.
    """
    value = operator.node.inputs[0] if operator.node.inputs else None
    if value is None or value.dtype is None or value.dtype.name not in PRICED.get(operator.name, ()):
        return 0
    letters = placement.letters()
    standard = signature.inputs[0] or ()
    channel = "c" if "c" in letters else standard[1]
    if letters.index(channel) != 1:
        return 0
    return max(1, round(CHANNELS_FIRST[operator.name] * elements_of(placement) * value.dtype.itemsize))


def elements_of(placement: Placement) -> int:
    """Return how many elements an operator reads from its first operand, and gives."""
    return sum(prod(extent.number for extent in placement.extents(output=each)) for each in (False, True))


UPSAMPLED = ("align_corners", "asymmetric", "half_pixel")  # what a Resize in blocks takes for the place of an element


def _upsampled(operator: Operator) -> bool:
    """Tell whether ONNX Runtime resizes in blocks: the operand lies in them, and the sides grow by whole factors."""
    read, result_shape = operator.inputs[0], operator.outputs[0]
    if read is None or result_shape is None or not lies_in_blocks(operator.node.inputs[0]):
        return False
    sides = zip(read, result_shape, strict=True)
    whole = all(isinstance(old, int) and isinstance(new, int) and new % old == 0 for old, new in sides)
    return whole and operator.string(COORDINATES, "half_pixel") in UPSAMPLED


SCALES = Fusion("Conv", (), CONTRIBUTED, "FusedConv", (), 3, {})
"""Scales and shifts per channel are folded, so that no Transpose comes between them and their convolution."""


def _price(operator: Operator, signature: Signature, placement: Placement) -> int:
    """Return `price`, or the cost of strided floats; 0 for a Resize in blocks, as fast as with channels last."""
    if operator.name == "Resize" and _upsampled(operator):
        return 0
    return price(operator, signature, placement) or _price_apart(operator, signature, placement)


LEAST_LONGER = 100_000
"""What counts as longer in an inference, in transposed elements (some 25 µs): a Transpose that moves single elements,
and not runs, may take so much longer than its bytes say."""


def _price_apart(operator: Operator, signature: Signature, placement: Placement) -> int:
    """Return the extra cost of an operator on floats whose axes of work are not contiguous."""
    output = operator.node.outputs[0]
    if operator.node.domain or output.dtype is None or output.dtype.name not in FLOAT32:
        return 0
    longer = 0.0
    if operator.name in REDUCED and gathers(placement):
        longer = REDUCED[operator.name] * prod(extent.number for extent in placement.extents())
    elif signature.broadcast:
        longer = STRETCHED * short_runs(placement)
    return round(longer * int(output.dtype.itemsize)) if longer * placement.runs >= LEAST_LONGER else 0


def _is_of_few(operator: Operator) -> bool:
    kernel = [side for side in operator.shape(1) or () if isinstance(side, int)]
    return len(kernel) > 2 and kernel[1] < LEAST_IN_VOLUMES and prod(kernel[2:]) > 1


def _whole_image(operator: Operator) -> bool:
    axes, rank = listed_axes(operator), operator.rank() or 0
    return bool(axes) and {axis % rank for axis in axes or ()} == set(range(2, rank))


OF_FEW = Condition(f"fewer than {LEAST_IN_VOLUMES} channels of a group, a window of several elements", _is_of_few)
"""In three dimensions the integers of a window are gathered one by one, which takes longer than their products."""

_affine = partial(Unit, written="QLinearConv", ranks=IMAGES, types=UNSIGNED, attributes=_depthwise, affine=True)
UNITS = (
    _affine("BatchNormalization", limits=(INFERENCE, ONE_OUTPUT, at_least(LEAST_CHANNELS["BatchNormalization"]))),
    _affine("Add Div Mul Sub", limits=(at_least(LEAST_CHANNELS["constants"]),)),
    Unit("Conv", "com.microsoft:FusedConv", limits=(OF_FEW,), ranks=(5,), reals=True),
    Unit("Conv", "QLinearConv", "0 1w y 2b", limits=(CONSTANT_KERNEL,), ranks=IMAGES),
    Unit("MatMul", "QLinearMatMul", "0 1w y", lambda _: -1),
    Unit(
        "Gemm",
        "com.microsoft:QGemm",
        "0 1w 2b y",
        lambda operator: 0 if operator.int("transB", 0) else 1,
        (PLAIN_PRODUCT,),
        attributes=lambda _: {"beta": None},
    ),
    Unit("Add", "com.microsoft:QLinearAdd", "0 1 y"),
    Unit("Sum", "com.microsoft:QLinearAdd", "0 1 y", limits=(inputs(2),)),
    Unit("Mul", "com.microsoft:QLinearMul", "0 1 y"),
    Unit("Where", "com.microsoft:QLinearWhere", "0. 1 2 y"),
    Unit("Concat", "Concat", "*="),
    Unit("Concat", "com.microsoft:QLinearConcat", "y *"),
    Unit("Sigmoid", "com.microsoft:QLinearSigmoid", "0 y"),
    Unit("LeakyRelu", "com.microsoft:QLinearLeakyRelu", "0 y"),
    Unit(
        "Softmax",
        "com.microsoft:QLinearSoftmax",
        "0 y",
        attributes=lambda each: {"opset": each.version, "axis": each.int("axis", -1 if each.version >= 13 else 1)},
    ),
    Unit(
        "AveragePool",
        "com.microsoft:QLinearAveragePool",
        "0 y",
        limits=(NO_DILATIONS, COUNTED),
        ranks=IMAGES,
        attributes=lambda _: {"dilations": None},
    ),
    Unit("GlobalAveragePool", "com.microsoft:QLinearGlobalAveragePool", "0 y", ranks=IMAGES),
    Unit(
        "ReduceMean",
        "com.microsoft:QLinearGlobalAveragePool",
        "0 y",
        limits=(Condition("all spatial axes", _whole_image),),
        ranks=IMAGES,
        attributes=lambda _: dict.fromkeys(("axes", "keepdims", "noop_with_empty_axes")),
        squeezed=lambda operator: () if operator.int("keepdims", 1) else tuple(range(2, operator.rank() or 0)),
    ),
    Unit("MaxPool", "", "0=", limits=(NO_INDICES, since(12)), early=True),
    Unit("Pad", "", "0= 1. 2q 3.", limits=(CONSTANT_MODE, since(11))),
    Unit("Max Min", "", "*=", limits=(since(12),)),
    Unit("ReduceMax ReduceMin", "", "0= *.", limits=(since(12),)),
    Unit("Resize", "", "0= *.", limits=(attribute("mode", ("nearest",), "nearest"), INSIDE)),
    Unit("DepthToSpace Expand Flatten Gather Reshape Slice SpaceToDepth Squeeze Tile Transpose Unsqueeze", "", "0= *."),
)

TARGET = Target(
    "onnxruntime-cpu",
    "ONNX Runtime's CPU provider: quantized units on integers, images NHWC; all else as ONNX has it",
    (
        Kernel("Conv", BOTH_ENDS, REALS, (4,), (CONSTANT_KERNEL,), BLOCKED),
        Kernel("Conv", FAR_END, REALS, (4,), (CONSTANT_KERNEL,), STEM),
        Kernel("Resize", ("NHWC", "NCHW"), REALS, (4,), (SPATIAL_ONLY, RESIZE_PLAIN), LINEAR, written=RESIZED),
        Kernel("QLinearConv", ("NHWC", "NCHW"), INT8, IMAGES, (CONSTANT_KERNEL,), written=CHANNELS_LAST),
        Kernel("MaxPool", ("NHWC", "NCHW"), INT8, IMAGES, (NO_INDICES, ON_INTEGERS), written=LAST_POOL),
    ),
    joins=True,
    price=_price,
    rest=True,
    units=UNITS,
    unsigned=True,
    per_scattered=1,  # one in two steps moves every byte twice
    least_run=LEAST_RUN,
    inline=True,
    tflite=with_vnni,
    single_consumers=single_consumers,
    expansions=EXPANSIONS,
    fusions=(SCALES,),
)
