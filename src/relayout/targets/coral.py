"""Google Coral's Edge TPU: units of bytes that its compiler maps, with LiteRT's kernels for the rest.

Operators and limits: Google, "TensorFlow models on the Edge TPU", table "Supported operations"
(coral.ai/docs/edgetpu/models-intro), from which Axis's list for ARTPEC-7 is copied. Its compiler maps a file up to the
first operator that it lacks, and takes tensors of three dimensions: of more axes the outer ones have one element.
Builtins: those of TensorFlow Lite 2.5, of which its runtime was built.
"""

from __future__ import annotations

from relayout.formats.tflite.container.enums import BUILTIN_OPERATORS
from relayout.formats.tflite.container.runtimes import Builtins, first_runtime, parsed
from relayout.lowering.conditions import (
    CONSTANT_KERNEL,
    CONSTANT_MODE,
    COUNTED_ELEMENTS,
    NO_DILATIONS,
    NO_INDICES,
    SPATIAL_ONLY,
    STATIC,
    Condition,
    constant,
)
from relayout.rules import Operator
from relayout.targets.litert.quantized_units import INTEGER_KERNEL
from relayout.targets.litert.table import beside_litert
from relayout.targets.target_table import Kernel, convolutions

BYTES = ("INT8", "UINT8")
IMAGE = (3, 4)
RUNTIME = (2, 5, 0)
MOST_SOFTMAX = 16_000


def _leaves_batch(operator: Operator) -> bool:
    """Tell whether a reduction leaves the first axis, and of more than one axis all that are not space."""
    axes, rank = operator.integers(1) or operator.ints("axes"), operator.rank()
    return bool(axes) and bool(rank) and all(axis % (rank or 1) for axis in axes or ())


def _is_along_few(operator: Operator) -> bool:
    shape = operator.shape() or ()
    axis = operator.int("axis", -1)
    others = [extent for place, extent in enumerate(shape) if shape and place != axis % len(shape)]
    last = shape[axis] if shape else None
    return all(extent == 1 for extent in others) and isinstance(last, int) and last <= MOST_SOFTMAX


def _pads_no_batch(operator: Operator) -> bool:
    pads, rank = operator.integers(1), operator.rank()
    return not operator.has(3) and pads is not None and rank is not None and not pads[0] and not pads[rank]


THREE_DIMS = Condition(
    "three dimensions: of more axes the outer ones have one element",
    lambda operator: (
        {extent for shape in (operator.shape(), *operator.outputs) for extent in (shape or ())[:-3]} <= {1}
    ),
)
LEAVES_BATCH = Condition("no reduction of the batch", _leaves_batch)
ONE_ROW = Condition(f"one row of at most {MOST_SOFTMAX:,} elements", _is_along_few)
STEPS_OF_ONE = Condition(
    "steps of 1",
    lambda operator: not operator.has(4) or ((steps := operator.integers(4)) is not None and {*steps} <= {1}),
)
NO_BATCH_PADS = Condition("constant pads, none of the batch", _pads_no_batch)
NO_BATCH_SPLIT = Condition(
    "no split of the batch", lambda operator: bool(operator.int("axis", 0) % (operator.rank() or 1))
)
NO_CONSTANTS = Condition(
    "no constant operands",
    lambda operator: all(operator.constant(slot) is None for slot in range(len(operator.inputs))),
)
EQUAL_DILATIONS = Condition(
    "one dilation for all axes", lambda operator: len(set(operator.ints("dilations") or (1,))) == 1
)
UNIT = (STATIC, THREE_DIMS, INTEGER_KERNEL)
CONVOLUTION = (*UNIT, CONSTANT_KERNEL)

TARGET = beside_litert(
    name="coral",
    line="Google Coral's Edge TPU: 8 bits, NHWC; LiteRT for the rest; from documents of November 2026, never run",
    kernels=(
        *convolutions(BYTES, IMAGE, (*CONVOLUTION, EQUAL_DILATIONS)),
        Kernel("ConvTranspose", ("NHWC OHWI",), BYTES, IMAGE, CONVOLUTION),
        Kernel("MaxPool", ("NHWC",), BYTES, IMAGE, (NO_INDICES, NO_DILATIONS, *UNIT)),
        Kernel("AveragePool", ("NHWC",), BYTES, IMAGE, (NO_DILATIONS, COUNTED_ELEMENTS, *UNIT)),
        Kernel("GlobalAveragePool GlobalMaxPool", ("NHWC",), BYTES, IMAGE, UNIT),
        Kernel("Resize", ("NHWC",), BYTES, (4,), (SPATIAL_ONLY, *UNIT)),
        Kernel("Gemm MatMul", types=BYTES, limits=(constant(1, "second operand"), *UNIT)),
        Kernel("Add Mul Sub Max Min", types=BYTES, limits=UNIT),
        Kernel("Concat", types=BYTES, limits=(NO_CONSTANTS, *UNIT)),
        Kernel("Flatten Reshape Squeeze Unsqueeze", types=BYTES, limits=UNIT),
        Kernel("Pad", types=BYTES, limits=(CONSTANT_MODE, NO_BATCH_PADS, *UNIT)),
        Kernel("Slice", types=BYTES, limits=(STEPS_OF_ONE, *UNIT)),
        Kernel("Split", types=BYTES, limits=(NO_BATCH_SPLIT, *UNIT)),
        Kernel("Clip Relu Sigmoid Tanh", types=BYTES, limits=UNIT),
        Kernel("ReduceMax ReduceMean ReduceMin", types=BYTES, limits=(LEAVES_BATCH, *UNIT)),
        Kernel("Softmax", types=BYTES, limits=(ONE_ROW, *UNIT), trailing="axis"),
        Kernel("QuantizeLinear", types=BYTES, limits=(STATIC, THREE_DIMS)),
    ),
    builtins=Builtins(
        "the runtime of Coral's Edge TPU, TensorFlow Lite 2.5,",
        frozenset(
            name for name in BUILTIN_OPERATORS if not (first := first_runtime(name, 1)) or parsed(first) <= RUNTIME
        ),
    ),
)
ALIASES = dict.fromkeys(("edgetpu", "edge-tpu"), "coral")
