"""Rockchip's NPUs of the RK3588: quantized units of bytes, as ONNX has them.

Operators and limits: what rknn-toolkit2 2.5.0 puts on the NPU as int8, of single operators compiled for the `rk3588`
(`tests/targets/test_rknn.py`). Reshapes run on its CPU cores: no row is about them.
"""

from __future__ import annotations

from relayout.lowering.conditions import (
    FLOOR,
    NO_INDICES,
    PADS,
    SPATIAL_ONLY,
    STATIC,
    Condition,
    attribute,
    constant_slice,
    is_unpadded,
    strides,
    window_sides,
)
from relayout.rules import Operator
from relayout.targets.target_table import INT8, Kernel, Target

IMAGE = (3, 4)
LARGEST_WINDOW, LONGEST_STRIDE = 16, 7
SPREADS = (1, 2, 4, 8)
UP_TO_4 = (1, 2, 3, 4)


def _is_small(operator: Operator) -> bool:
    sides = window_sides(operator)
    return bool(sides) and all(isinstance(side, int) and side <= LARGEST_WINDOW for side in sides)


WINDOW = Condition(f"a window of at most {LARGEST_WINDOW} elements on each side, undilated", _is_small)
SPREAD = Condition(
    f"strides of {', '.join(map(str, SPREADS))}",
    lambda operator: all(step in SPREADS for step in operator.ints("strides") or ()),
)
COUNTED_PADS = Condition(
    "no pads, or count_include_pad 1",
    lambda operator: operator.int("count_include_pad", 0) == 1 or is_unpadded(operator),
)


def _is_whole(operator: Operator) -> bool:
    """Tell whether an image becomes a whole number of times as high and wide, as the operator counts."""
    less = int(operator.string("coordinate_transformation_mode", "half_pixel") == "align_corners")
    pairs = list(zip((operator.shape() or ())[2:], (operator.outputs[0] or ())[2:], strict=False))
    return bool(pairs) and all(
        isinstance(x, int) and isinstance(y, int) and (y - less) % max(x - less, 1) == 0 for x, y in pairs
    )


WHOLE_FACTORS = Condition("whole factors", _is_whole)
PIXELS = attribute("coordinate_transformation_mode", ("half_pixel", "asymmetric", "align_corners"), "half_pixel")
NO_CORNERS = attribute("coordinate_transformation_mode", ("half_pixel", "asymmetric"), "half_pixel")
EDGES = Condition(
    "mode constant or reflect, or no pads of the batch",
    lambda operator: (
        operator.string("mode", "constant") in ("constant", "reflect")
        or (
            operator.string("mode", "constant") == "edge"
            and not any((operator.integers(1) or (1,))[:: operator.rank()])
        )
    ),
)
LINEAR, NEAREST = attribute("mode", ("linear",), "nearest"), attribute("mode", ("nearest",), "nearest")
STEPS_OF_1 = constant_slice("steps of 1", lambda step: step == 1)

TARGET = Target(
    "rknn",
    "Rockchip RK3588, by rknn-toolkit2: int8, NCHW, kernels OIHW, as ONNX has them",
    (
        Kernel("Conv", ("NCHW",), INT8, IMAGE, (STATIC, WINDOW, strides(LONGEST_STRIDE))),
        Kernel("ConvTranspose", ("NCHW",), INT8, IMAGE, (STATIC, WINDOW, SPREAD)),
        Kernel("MaxPool", ("NCHW",), INT8, IMAGE, (STATIC, NO_INDICES)),
        Kernel("AveragePool", ("NCHW",), INT8, IMAGE, (STATIC, FLOOR, COUNTED_PADS, WINDOW, strides(LONGEST_STRIDE))),
        Kernel("GlobalAveragePool GlobalMaxPool", ("NCHW",), INT8, IMAGE, (STATIC,)),
        Kernel("Resize", ("NCHW",), INT8, (4,), (STATIC, NO_CORNERS), NEAREST),
        Kernel("Resize", ("NCHW",), INT8, (4,), (SPATIAL_ONLY, PIXELS, WHOLE_FACTORS), LINEAR),
        Kernel("DepthToSpace", ("NCHW",), INT8, (4,), (STATIC,)),
        Kernel(
            "Abs Clip Elu HardSigmoid HardSwish LeakyRelu Neg Relu Sigmoid Softplus Tanh", types=INT8, limits=(STATIC,)
        ),
        Kernel("Add Mul Sub", types=INT8, limits=(STATIC,)),
        Kernel("Max", types=INT8, ranks=UP_TO_4, limits=(STATIC,)),
        Kernel("Gemm MatMul", types=INT8, limits=(STATIC,)),
        Kernel("ReduceMean Softmax", types=INT8, limits=(STATIC,)),
        Kernel("Concat Split Transpose QuantizeLinear", types=INT8, limits=(STATIC,)),
        Kernel("Slice", types=INT8, limits=(STATIC, STEPS_OF_1)),
        Kernel("Pad", types=INT8, limits=(STATIC, PADS, EDGES)),
    ),
)
