"""The form of an operator of a `.tflite`, and the accelerator's answer about that form.

A form is a text: the builtin, and what the accelerator looks at. Of each operand these are its element type, its rank,
whether its first extent is 1, whether it is a constant, and how it stretches to the result; then what `DETAILS` has.

    ADD(x[2 5 8], constant[8])  ->  "ADD f= fcx"
    MEAN(x[2 5 8], [2])         ->  "MEAN f3n axes 2"

`answers.json` holds the answer about each form that was asked for, as `bench/gpu_table.py` writes it: "" where the
accelerator takes the operator and computes what LiteRT's CPU kernels do, else the reason.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.exporting.draft import DraftOperator, DraftTensor

MOST_AXES = 4  # axes of the accelerator's tensors
TOO_MANY = "Tensor dimensions must be less than 5"  # the accelerator's words about a tensor of more axes
NOT_ASKED = "the accelerator was not asked about this form"
QUANTIZED = "quantized activations, which it computes as real numbers: up to 18 % off in a ResNet-50"
"""The measured reason why operators on quantized integers are not taken."""
TYPES: Mapping[TensorType, str] = {
    TensorType.FLOAT32: "f",
    TensorType.FLOAT16: "h",
    TensorType.INT32: "i",
    TensorType.BOOL: "b",
    TensorType.INT8: "q",
    TensorType.UINT8: "u",
}
"""Element types that the accelerator has; the rest are refused whatever the operator is."""
REDUCTIONS = ("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD", "REDUCE_ANY", "REDUCE_ALL")
PARAMETERS: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(REDUCTIONS, (1,)),
    **dict.fromkeys(("RESHAPE", "TRANSPOSE", "PAD", "MIRROR_PAD", "TILE", "BROADCAST_TO", "REVERSE_V2"), (1,)),
    "PADV2": (1, 2),
    **dict.fromkeys(("ARG_MAX", "ARG_MIN", "CUMSUM", "TOPK_V2", "EXPAND_DIMS"), (1,)),
    **dict.fromkeys(("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"), (1,)),
    "SLICE": (1, 2),
    "STRIDED_SLICE": (1, 2, 3),
    "SPLIT": (0,),
    "SPLIT_V": (1, 2),
    "TRANSPOSE_CONV": (0,),
    "ONE_HOT": (1, 2, 3),
    "FILL": (0,),
}
"""Builtin -> the places of operands that say how it works; they are constants, or the form says so."""
PLAIN = frozenset({"CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "FULLY_CONNECTED"})
"""Builtins whose weights and bias are told by whether they are constants."""
MANY = frozenset({"CONCATENATION", "PACK"})  # builtins of any number of operands: of those that are alike one is told
_NAMES = """
    ADD SUB MUL DIV MAXIMUM MINIMUM POW SQUARED_DIFFERENCE FLOOR_DIV FLOOR_MOD EQUAL NOT_EQUAL LESS LESS_EQUAL GREATER
    GREATER_EQUAL LOGICAL_AND LOGICAL_OR SELECT SELECT_V2
"""
STRETCHED = frozenset(_NAMES.split())  # builtins whose operands stretch to the result: their ranks do not matter
_NAMES = """
    ABS NEG EXP LOG SQRT RSQRT SIN COS TANH LOGISTIC FLOOR CEIL ROUND SQUARE SIGN RELU RELU6 RELU_N1_TO_1 RELU_0_TO_1
    ELU HARD_SWISH GELU LEAKY_RELU CAST LOGICAL_NOT ZEROS_LIKE ADD_N
"""
EACH = frozenset(_NAMES.split())  # builtins that compute each element of one operand: its rank does not matter


def form_of(operator: DraftOperator) -> str:
    """Return the form of an operator, as a text."""
    parameters = PARAMETERS.get(operator.name, ())
    parts = [operator.name]
    if operator.name in MANY:
        kinds = {_operand(operator, place, each) for place, each in enumerate(operator.inputs) if each is not None}
        return " ".join([operator.name, *sorted(kinds), _own_axis(operator)])
    for place, tensor in enumerate(operator.inputs):
        if tensor is None:
            continue
        if place in parameters:
            if tensor.data is None:
                parts.append(f"computed{place}")
        else:
            parts.append(_operand(operator, place, tensor))
    if operator.name == "CAST":
        parts.append(TYPES.get(operator.outputs[0].type, "?"))
    detail = DETAILS.get(operator.name)
    return " ".join([*parts, *([detail_text] if detail is not None and (detail_text := detail(operator)) else [])])


def reason_of(operator: DraftOperator) -> str:
    """Return why the accelerator does not take an operator, or does not compute it right; "" where it does."""
    tensors = [each for each in (*operator.inputs, *operator.outputs) if each is not None]
    if any(len(tensor.dims) > MOST_AXES for tensor in tensors):
        return TOO_MANY
    other = next((each.type.name for each in tensors if each.type not in TYPES and each.data is None), "")
    if other:
        return f"Tensor type({other}) is not supported"
    if any(tensor.quantization is not None and tensor.data is None for tensor in tensors):
        return QUANTIZED
    if not all(tensor.is_static for tensor in tensors):
        return "an extent that is known only at run time"
    return answers().get(form_of(operator), NOT_ASKED)


@cache
def answers() -> Mapping[str, str]:
    """Return form -> the accelerator's answer."""
    text = files("relayout.targets.litert_gpu").joinpath("answers.json").read_text(encoding="utf-8")
    answer_by_form: dict[str, str] = json.loads(text)
    return answer_by_form


def _operand(operator: DraftOperator, place: int, tensor: DraftTensor) -> str:
    """Return what is told of one operand."""
    constant = "c" if tensor.data is not None else ""
    kind = TYPES.get(tensor.type, "?")
    if operator.name in PLAIN and place != (2 if operator.name == "TRANSPOSE_CONV" else 0):
        return f"{kind}{constant}"
    if operator.name in STRETCHED or operator.name in EACH or operator.name == "RESHAPE":
        return f"{kind}{constant}{_stretch(operator, tensor)}"
    rank = len(tensor.dims)
    first = "" if rank < 2 or constant else "1" if tensor.dims[0] == 1 else "n"
    return f"{kind}{rank}{first}{constant}{_stretch(operator, tensor)}"


def _stretch(operator: DraftOperator, tensor: DraftTensor) -> str:
    """Return how an operand stretches to the result: `=` not at all, `s` as a number, `x` along some axes.

    The accelerator reads the first axis of a constant of less than four axes as rows, not as the batch: `b`. Of fewer
    axes than the result has: `l`.
    """
    if operator.name not in STRETCHED:
        return ""
    rank, dims = len(tensor.dims), operator.outputs[0].dims
    mark = "="
    if tensor.dims != dims:
        mark = "s" if all(dim == 1 for dim in tensor.dims) else "x"
    if tensor.data is not None and rank == len(dims) and 0 < rank < MOST_AXES and tensor.dims[0] != 1:
        return f"{mark}b"
    return f"{mark}l" if operator.name.startswith("SELECT") and 0 < rank < len(dims) and mark != "s" else mark


def _data(operator: DraftOperator) -> DraftTensor:
    """Return the operand that holds the elements."""
    places = PARAMETERS.get(operator.name, ())
    return next(each for place, each in enumerate(operator.inputs) if each is not None and place not in places)


def _named_axes(operator: DraftOperator) -> str:
    """Return the axes that an operand names."""
    stated, rank = operator.inputs[PARAMETERS[operator.name][-1]], max(len(_data(operator).dims), 1)
    axes = () if stated is None or stated.array is None else {int(axis) % rank for axis in stated.array.reshape(-1)}
    return "axes " + ",".join(map(str, sorted(axes)))


def _own_axis(operator: DraftOperator) -> str:
    rank = max(len(_data(operator).dims), 1)
    return f"axis {int(operator.options.get('axis', 0)) % rank}"


def _padded(operator: DraftOperator) -> str:
    """Return whether the first axis gets a border."""
    pads = operator.inputs[1]
    return "first" if pads is not None and pads.array is not None and pads.array[:1].any() else ""


def _window(operator: DraftOperator) -> str:
    """Return whether a convolution has groups, and whether they are whole slices of four channels."""
    data, weights = operator.inputs[:2]
    if data is None or weights is None or data.dims[-1] == weights.dims[-1]:
        return ""
    group, count = int(weights.dims[-1]), int(data.dims[-1]) // max(int(weights.dims[-1]), 1)
    return "groups of slices" if group % 4 == 0 and int(weights.dims[0]) // count % 4 == 0 else "groups"


def _depthwise(operator: DraftOperator) -> str:
    """Return whether a depthwise convolution of one element gives several channels for each."""
    weights = operator.inputs[1]
    if weights is None or int(operator.options.get("depth_multiplier", 1)) == 1:
        return ""
    return "several" if tuple(weights.dims[1:3]) != (1, 1) else "several of 1"


def _batches(operator: DraftOperator) -> str:
    """Return which operands of a product of matrices are transposed, and whether their batch axes differ."""
    first, second = (each.dims[:-2] for each in operator.inputs[:2] if each is not None)
    return _words(operator, "adj_x", "adj_y", stretched=first != second)


def _twice(operator: DraftOperator) -> str:
    """Return whether an operator reads one tensor twice."""
    read = [each for each in operator.inputs if each is not None and each.data is None]
    return "twice" if len(set(read)) < len(read) else ""


def _strided(operator: DraftOperator) -> str:
    """Return what the masks of a STRIDED_SLICE ask for, and whether it runs backwards."""
    steps = operator.inputs[3]
    backwards = steps is not None and steps.array is not None and bool((steps.array < 0).any())
    return _words(operator, "shrink_axis_mask", "new_axis_mask", "ellipsis_mask", backwards=backwards)


def _slopes(operator: DraftOperator) -> str:
    """Return whether the slopes of a PRELU are one for each channel."""
    data, slopes = operator.inputs[:2]
    assert data is not None
    assert slopes is not None
    if slopes.dims[-1] != data.dims[-1]:
        return "stretched"
    return "by channel" if all(dim == 1 for dim in slopes.dims[:-1]) else "by element"


def _words(operator: DraftOperator, *options: str, **others: bool) -> str:
    """Return the names of the options that an operator has, and of other facts that hold."""
    return " ".join(
        [name for name in options if operator.options.get(name)] + [name for name in others if others[name]]
    )


DETAILS: Mapping[str, Callable[[DraftOperator], str]] = {  # builtin -> what else its form says
    **dict.fromkeys((*REDUCTIONS, "ARG_MAX", "ARG_MIN", "CUMSUM", "REVERSE_V2", "SPLIT", "SPLIT_V"), _named_axes),
    **dict.fromkeys(("PAD", "PADV2", "MIRROR_PAD"), _padded),
    "UNPACK": _own_axis,
    **dict.fromkeys(STRETCHED, _twice),
    **dict.fromkeys(
        ("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"), lambda each: _words(each, "align_corners", "half_pixel_centers")
    ),
    "GATHER": lambda operator: f"{_own_axis(operator)} batch {operator.options.get('batch_dims', 0)}",
    "CONV_2D": _window,
    "DEPTHWISE_CONV_2D": _depthwise,
    "BATCH_MATMUL": _batches,
    "STRIDED_SLICE": _strided,
    "PRELU": _slopes,
    "ADD_N": lambda operator: str(len(operator.inputs)) if len(operator.inputs) > 2 else "",
}
