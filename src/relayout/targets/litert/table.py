"""LiteRT (TensorFlow Lite): what its builtin operators take, or a few of them together.

Layouts: TensorFlow, the operations of the `tfl` dialect (`tfl.conv_2d`, `tfl.depthwise_conv_2d`, `tfl.transpose_conv`),
and the kernels of ai-edge-litert 2.3, run by this project's tests of the exporter
(`relayout/formats/tflite/exporting/operators`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import Subgraph
from relayout.formats.tflite.exporting import attention_definitions, standard_definitions
from relayout.formats.tflite.exporting.registry import modules
from relayout.formats.tflite.importing.operation import Operation, gives_others_for_integers
from relayout.formats.tflite.spelled_out import ASSIGN, DOMAIN, READ, RESTORABLE, RESTORABLE_CUSTOM
from relayout.graph.domains import MICROSOFT
from relayout.lowering.conditions import DEPTH_FIRST, NO_DILATIONS, NO_INDICES
from relayout.lowering.fuse_epilogue import Fusion
from relayout.lowering.recognise_recurrent.rows import by_rows
from relayout.rules.registry import has_layouts, has_rule
from relayout.targets.litert.convolutions import FAST_MULTIPLIER, FAST_TRANSPOSED_CONVOLUTION
from relayout.targets.litert.decompositions import DECOMPOSITIONS
from relayout.targets.litert.prices import PRICES
from relayout.targets.portable import portable
from relayout.targets.target_table import INT8, Kernel, Target, convolutions

if TYPE_CHECKING:
    from relayout.formats.tflite.importing.import_passes import ImportPasses

# Folding into the weights of LiteRT's convolutions: scales and shifts per channel that follow them.

FOLDED = tuple(Fusion(name, (), "", name, (), 0, {}) for name in ("Conv", "ConvTranspose"))
"""Nothing becomes a part of the kernel's operator here; activations are taken in when the file is written."""

# Passes over a `.tflite` that becomes another one, beside its literal import.

LOOPS = "relayout.targets.litert.table", "rows_of_reals"


def passes() -> ImportPasses:
    """Return what is done for any runtime, but to loops that round rows to integers."""
    from relayout.formats.tflite.importing.import_passes import on_use

    portable_passes = portable()
    return replace(portable_passes, alternatives={**portable_passes.alternatives, "WHILE": (on_use(*LOOPS),)})


# Loops of a `.tflite` that stay loops, since its kernels compute other numbers in them than with real weights.


def rows_of_reals(op: Operation) -> bool:
    """Hand over a WHILE as rows are, or as one recurrent operator, unless its kernels round rows to integers."""
    body = op.program.subgraph(op.options.body_subgraph_index, op.place)
    return not _rounds_rows(body) and by_rows(op)


def _rounds_rows(body: Subgraph) -> bool:
    """Tell whether an operator reads integers beside real numbers, which its kernel rounds then."""
    for operator in body.operators:
        operands, results = ([body.tensors[i] for i in ends if i >= 0] for ends in (operator.inputs, operator.outputs))
        has_reals = any(each.type == TensorType.FLOAT32 for each in operands)
        if has_reals and gives_others_for_integers(operands, results):
            return True
    return False


FLOAT32 = ("FLOAT", "FLOAT16")
INTEGERS = (*INT8, "INT16", "UINT16")
"""Types of quantized units; what has no integer kernel there stays on real numbers, between its ends."""
BYTES_TOO = (*FLOAT32, *INTEGERS)
ONE_OR_TWO = (3, 4)  # ranks of images with one or two axes of space
IMAGE = (4,)
VOLUME = (5,)
ANY_IMAGE = (3, 4, 5)

_ON_IMAGES = (
    *convolutions(BYTES_TOO, ONE_OR_TWO),
    Kernel("Conv", ("NDHWC DHWIO",), BYTES_TOO, VOLUME),
    Kernel("ConvTranspose", ("NHWC OHWI",), BYTES_TOO, ONE_OR_TWO),
    Kernel("ConvTranspose", ("NDHWC DHWOI",), BYTES_TOO, VOLUME),
    Kernel("MaxPool", ("NHWC",), BYTES_TOO, ANY_IMAGE, (NO_INDICES,)),
    Kernel("AveragePool LpPool", ("NHWC",), BYTES_TOO, ANY_IMAGE, (NO_DILATIONS,)),
    Kernel("GlobalAveragePool GlobalLpPool GlobalMaxPool", ("NHWC",), BYTES_TOO, ANY_IMAGE),
    Kernel("DepthToSpace", ("NHWC",), BYTES_TOO, IMAGE, (DEPTH_FIRST,)),
    Kernel("SpaceToDepth", ("NHWC",), BYTES_TOO, IMAGE),
    Kernel("LRN", ("NHWC",), BYTES_TOO, IMAGE),
    Kernel("Resize Upsample", ("NHWC",), BYTES_TOO, IMAGE),
    Kernel("GridSample", ("NHWC",), (), (4, 5)),
    Kernel("DeformConv", ("NHWC OHWI",), (), IMAGE),
    Kernel("RoiAlign", ("NHWC",), (), IMAGE),
    Kernel("BatchNormalization", ("NHWC",), BYTES_TOO),
)
_IN_ORDER = (  # operators on images that are written as others, in ONNX's own order
    Kernel("MaxUnpool", ("NCHW",)),
    Kernel("GridSample", ("NCHW",), domain="com.microsoft"),  # the standard's before a file is written
)
DEFINED = {"": standard_definitions.DEFINITIONS, MICROSOFT: attention_definitions.DEFINITIONS}
"""Domain -> operators that have a definition in place of an export."""
_BUILTINS = (Kernel(" ".join(sorted({*RESTORABLE, *RESTORABLE_CUSTOM, READ, ASSIGN})), domain=DOMAIN),)
"""Builtins that ONNX spells out, which a model was read with."""
_LAST = (Kernel("Hardmax LogSoftmax Softmax TopK", trailing="axis"),)
"""Operators along an axis that the builtin wants last."""


def _rows() -> Iterator[Kernel]:
    """Yield a row for each domain, of all operators that are written and have no layouts of their own."""
    named = {
        (row.domain, name) for row in (*_ON_IMAGES, *_LAST, *_IN_ORDER, *_BUILTINS) for name in row.op_types.split()
    }
    rows: dict[str, list[str]] = {}
    definitions = ((domain, name) for domain, names in DEFINED.items() for name in names)
    for domain, name in sorted({*modules(), *definitions}):
        key = domain, name
        if key not in named and has_rule(key) and not has_layouts(key):
            rows.setdefault(domain, []).append(name)
    yield from (Kernel(" ".join(names), domain=domain) for domain, names in rows.items())


TARGET = Target(
    "litert",
    "LiteRT (TensorFlow Lite), its builtin operators: NHWC, kernels OHWI, depthwise 1HWC",
    (*_ON_IMAGES, *_LAST, *_rows(), *_IN_ORDER, *_BUILTINS),
    expansions=(FAST_TRANSPOSED_CONVOLUTION, FAST_MULTIPLIER, *DECOMPOSITIONS),
    fusions=FOLDED,
    price=PRICES,
    transposed_products=True,
    lowering=("qlinear-to-qdq", "recognise-gelu", "drop-expand", *Target.lowering),
    tflite=passes,
    is_litert=True,
)

ALIASES = {"tflite": "litert"}


def beside_litert(name: str, line: str, kernels: tuple[Kernel, ...], **columns: Any) -> Target:
    """Return a target of some units of integers, beside which LiteRT's kernels run the rest of a graph."""
    own: dict[str, Any] = {
        "fallback": TARGET,
        "prefers_integers": True,
        "is_litert": False,
        "expansions": DECOMPOSITIONS,
    }
    return replace(TARGET, name=name, line=line, kernels=kernels, **(own | columns))
