"""TOSA 1.0, an operator set of NPUs: what a `.tflite` is legalized to, in the profiles PRO-INT and PRO-FP.

Operators, types and limits: `.tflite` files of single operators, legalized by tosa-converter-for-tflite 2026.2,
validated and run by tosa-tools 2026.8, and compared with LiteRT (`tests/targets/test_tosa.py`). A quantized unit runs
in PRO-INT with the extensions EXT-INT16 and EXT-DOUBLEROUND, real numbers in PRO-FP. Version 1.0 has no integers of 64
bits, no open extents, and no arithmetic of uint8. Three operators are wrong there, and no row
claims them: RESIZE_NEAREST_NEIGHBOR takes other elements than LiteRT, a QUANTIZE of real numbers wraps around where it
saturates, and GELU ends the reference model.
"""

from __future__ import annotations

import onnx_ir as ir

from relayout.lowering.conditions import (
    COUNTED_BORDER,
    COUNTED_ELEMENTS,
    NO_DILATIONS,
    NO_INDICES,
    NOT_DEPTHWISE,
    SPATIAL_ONLY,
    STATIC,
    Condition,
    attribute,
    constant,
)
from relayout.rules import Operator
from relayout.targets.litert.quantized_units import INTEGER_KERNEL
from relayout.targets.litert.table import beside_litert
from relayout.targets.target_table import Kernel, convolutions

FLOAT32 = ("FLOAT",)
INTEGERS = ("INT8", "INT16")
TYPES = (*FLOAT32, *INTEGERS)
IMAGE = (3, 4)
ANY = (STATIC, INTEGER_KERNEL)


def _is_forward(operator: Operator) -> bool:
    """Tell whether a Slice goes forward, or backward over all of an axis: that is a REVERSE_V2."""
    steps = operator.integers(4)
    x, y = operator.shape(), operator.outputs[0]
    if steps is None or x is None or y is None:
        return steps is None
    axes = operator.integers(3) or range(len(steps))
    return all(step > 0 or (step == -1 and x[axis] == y[axis]) for step, axis in zip(steps, axes, strict=True))


def _has_whole_extents(operator: Operator) -> bool:
    """Tell whether a Resize gives sizes, or scales without a remainder: LiteRT's builtin counts in extents."""
    if operator.has(3):
        return True
    scales, x, y = operator.constant(2) if operator.has(2) else None, operator.shape(), operator.outputs[0]
    if scales is None or x is None or y is None:
        return False
    axes = operator.ints("axes") or tuple(range(len(x)))
    extents = [(x[axis], y[axis]) for axis in axes]
    return all(
        isinstance(before, int) and before * float(scale) == after
        for (before, after), scale in zip(extents, scales.reshape(-1), strict=False)
    )


def _has_equal_batches(operator: Operator) -> bool:
    """Tell whether the converter can multiply: it does not broadcast batches, nor a vector to them."""
    a, b = operator.shape(), operator.shape(1)
    if a is None or b is None:
        return False
    return len(b) <= 2 or len(a) == 2 or (len(a) > 2 and a[:-2] == b[:-2])


def _is_unsmoothed(operator: Operator) -> bool:
    """Tell whether a Resize smooths nothing: `antialias` counts where an image becomes smaller."""
    x, y = operator.shape(), operator.outputs[0]
    is_stretched = operator.string("keep_aspect_ratio_policy", "stretch") == "stretch"
    if x is None or y is None or operator.int("exclude_outside", 0) or not is_stretched:
        return False
    pairs = zip(x, y, strict=True)
    return not operator.int("antialias", 0) or all(
        isinstance(before, int) and isinstance(after, int) and before <= after for before, after in pairs
    )


UNSMOOTHED = Condition(
    "no antialias of an image that becomes smaller, no exclude_outside, keep_aspect_ratio_policy stretch",
    _is_unsmoothed,
)
COARSEST_TANH = 1 / 300
"""The scale of int16 up to which TOSA's table of a Tanh, of each 128th number, is right to a step. From about 1/80 on
the reference model cannot hold its slopes."""


def _is_tabled(operator: Operator) -> bool:
    unit = operator.unit()
    operand = None if unit is None else unit.operands[0]
    scale = None if operand is None else operand.meaning
    return scale is None or scale.dtype != ir.DataType.INT16 or bool(scale.scale.max() <= COARSEST_TANH)


TABLED = Condition(f"of int16 a scale of at most 1/{1 / COARSEST_TANH:.0f}", _is_tabled)
BOUNDS = Condition(
    "constant bounds, axes and steps",
    lambda operator: all(
        operator.constant(slot) is not None for slot in range(1, len(operator.inputs)) if operator.has(slot)
    ),
)
FORWARD = Condition("steps forward, or -1 over all of an axis", _is_forward)
WHOLE_EXTENTS = Condition("sizes, or scales that give whole extents", _has_whole_extents)
EQUAL_BATCHES = Condition("batches alike, or an operand of rank 2", _has_equal_batches)
AXES = constant(1, "list of axes")
LINEAR = attribute("mode", ("linear",), "nearest")
RESIZED = (SPATIAL_ONLY, UNSMOOTHED)

TARGET = beside_litert(
    name="tosa",
    line="TOSA 1.0: int8 and int16 (PRO-INT) and float32 (PRO-FP), NHWC; LiteRT's kernels run the rest",
    kernels=(
        *convolutions(TYPES, IMAGE, ANY),
        Kernel("Conv", ("NDHWC DHWIO",), FLOAT32, (5,), (STATIC,), NOT_DEPTHWISE),
        Kernel("ConvTranspose", ("NHWC OHWI",), TYPES, IMAGE, ANY),
        Kernel("MaxPool", ("NHWC",), TYPES, IMAGE, (NO_INDICES, *ANY)),
        Kernel("AveragePool", ("NHWC",), INTEGERS, IMAGE, (NO_DILATIONS, COUNTED_ELEMENTS, *ANY)),
        Kernel("AveragePool", ("NHWC",), INTEGERS, (4,), (NO_DILATIONS, COUNTED_BORDER, *ANY)),
        Kernel("AveragePool", ("NHWC",), FLOAT32, IMAGE, (STATIC,)),
        Kernel("GlobalAveragePool GlobalMaxPool", ("NHWC",), TYPES, IMAGE, ANY),
        Kernel("Resize", ("NHWC",), TYPES, (4,), (*RESIZED, WHOLE_EXTENTS, *ANY), LINEAR),
        Kernel("DepthToSpace", ("NHWC",), TYPES, (4,), ANY),
        Kernel("SpaceToDepth", ("NHWC",), FLOAT32, (4,), (STATIC,)),
        Kernel("Gemm", types=TYPES, limits=ANY),
        Kernel("MatMul", types=TYPES, limits=(EQUAL_BATCHES, *ANY)),
        Kernel("Add Mul Sub Max Min Concat", types=TYPES, limits=ANY),
        Kernel("Flatten Reshape Split Squeeze Transpose Unsqueeze", types=TYPES, limits=ANY),
        Kernel("Pad", types=TYPES, limits=(BOUNDS, *ANY)),
        Kernel("Slice", types=TYPES, limits=(BOUNDS, FORWARD, *ANY)),
        Kernel("Clip HardSwish LeakyRelu Relu", types=TYPES, limits=ANY),
        Kernel("Tanh", types=TYPES, limits=(TABLED, *ANY)),
        Kernel("Sigmoid", types=("FLOAT", "INT8"), limits=ANY),
        Kernel("ReduceMax ReduceMean ReduceMin", types=TYPES, limits=(AXES, *ANY)),
        Kernel("Gelu", types=("INT8",), limits=ANY),
        Kernel("Gelu", types=("INT8",), limits=ANY, domain="com.microsoft"),
        Kernel("Softmax", types=TYPES, limits=ANY, trailing="axis"),
        Kernel("LogSoftmax", types=FLOAT32, limits=(STATIC,), trailing="axis"),
        Kernel("QuantizeLinear", types=INTEGERS, limits=(STATIC,)),
        Kernel("Abs Acos Acosh Asin Asinh Atan Atanh Ceil Celu Cos Cosh", types=FLOAT32, limits=(STATIC,)),
        Kernel("Elu Exp Floor HardSigmoid Log Mish Neg Reciprocal Round", types=FLOAT32, limits=(STATIC,)),
        Kernel("Selu Shrink Sign Sin Sinh", types=FLOAT32, limits=(STATIC,)),
        Kernel("Softplus Softsign Sqrt Swish Tan ThresholdedRelu", types=FLOAT32, limits=(STATIC,)),
        Kernel("Div Mean PRelu Pow Sum", types=FLOAT32, limits=(STATIC,)),
        Kernel("Equal Greater GreaterOrEqual Less LessOrEqual", types=(*FLOAT32, "INT32"), limits=(STATIC,)),
        Kernel("LayerNormalization LpNormalization", types=FLOAT32, limits=(STATIC,)),
        Kernel("ReduceL1 ReduceL2 ReduceProd ReduceSum", types=FLOAT32, limits=(AXES, STATIC)),
    ),
)
