"""Operators that TFLite has, too, but not for such operands, as those of 64 bits: they are left to the Flex delegate.

Operands are those of TFLite's, and so is the translation; attributes take the place of its options.
"""

from __future__ import annotations

from relayout.formats.flatbuffer import Table
from relayout.formats.tflite.importing.emission import options_of
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.operators.tensorflow import attributes
from relayout.formats.tflite.importing.registry import Translation, described, entries, operator

_MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")
_KEEP = {"keep_dims": "keep_dims"}
_SEEDS = {"seed": "seed", "seed2": "seed2"}

ALIKE: dict[str, tuple[str, dict[str, str]]] = {
    "Abs": ("ABS", {}),
    "AddN": ("ADD_N", {}),
    "AddV2": ("ADD", {}),
    "ArgMax": ("ARG_MAX", {}),
    "ArgMin": ("ARG_MIN", {}),
    "BatchMatMulV2": ("BATCH_MATMUL", {"adj_x": "adj_x", "adj_y": "adj_y"}),
    "BitwiseXor": ("BITWISE_XOR", {}),
    "BroadcastTo": ("BROADCAST_TO", {}),
    "Ceil": ("CEIL", {}),
    "Cos": ("COS", {}),
    "Cumsum": ("CUMSUM", {"exclusive": "exclusive", "reverse": "reverse"}),
    "Elu": ("ELU", {}),
    "Equal": ("EQUAL", {}),
    "Exp": ("EXP", {}),
    "Fill": ("FILL", {}),
    "Floor": ("FLOOR", {}),
    "FloorDiv": ("FLOOR_DIV", {}),
    "FloorMod": ("FLOOR_MOD", {}),
    "GatherNd": ("GATHER_ND", {}),
    "Greater": ("GREATER", {}),
    "GreaterEqual": ("GREATER_EQUAL", {}),
    "Less": ("LESS", {}),
    "LessEqual": ("LESS_EQUAL", {}),
    "Log": ("LOG", {}),
    "LogSoftmax": ("LOG_SOFTMAX", {}),
    "MatMul": ("BATCH_MATMUL", {"adj_x": "transpose_a", "adj_y": "transpose_b"}),
    "Max": ("REDUCE_MAX", _KEEP),
    "Maximum": ("MAXIMUM", {}),
    "Mean": ("MEAN", _KEEP),
    "Min": ("REDUCE_MIN", _KEEP),
    "Minimum": ("MINIMUM", {}),
    "Mul": ("MUL", {}),
    "Multinomial": ("MULTINOMIAL", _SEEDS),
    "Neg": ("NEG", {}),
    "NotEqual": ("NOT_EQUAL", {}),
    "Pack": ("PACK", {"axis": "axis"}),
    "Pad": ("PAD", {}),
    "Pow": ("POW", {}),
    "Prod": ("REDUCE_PROD", _KEEP),
    "RandomStandardNormal": ("RANDOM_STANDARD_NORMAL", _SEEDS),
    "RandomUniform": ("RANDOM_UNIFORM", _SEEDS),
    "Range": ("RANGE", {}),
    "RealDiv": ("DIV", {}),
    "Relu": ("RELU", {}),
    "Relu6": ("RELU6", {}),
    "ReverseSequence": ("REVERSE_SEQUENCE", {"seq_dim": "seq_dim", "batch_dim": "batch_dim"}),
    "ReverseV2": ("REVERSE_V2", {}),
    "Round": ("ROUND", {}),
    "Rsqrt": ("RSQRT", {}),
    "ScatterNd": ("SCATTER_ND", {}),
    "SelectV2": ("SELECT_V2", {}),
    "Sigmoid": ("LOGISTIC", {}),
    "Sign": ("SIGN", {}),
    "Sin": ("SIN", {}),
    "Slice": ("SLICE", {}),
    "Split": ("SPLIT", {}),
    "Sqrt": ("SQRT", {}),
    "Square": ("SQUARE", {}),
    "SquaredDifference": ("SQUARED_DIFFERENCE", {}),
    "StridedSlice": ("STRIDED_SLICE", {name: name for name in _MASKS}),
    "Sub": ("SUB", {}),
    "Sum": ("SUM", _KEEP),
    "Tanh": ("TANH", {}),
    "Tile": ("TILE", {}),
    "TopKV2": ("TOPK_V2", {}),
    "Transpose": ("TRANSPOSE", {}),
    "Unique": ("UNIQUE", {}),
    "UniqueWithCounts": ("UNIQUE", {}),
    "Unpack": ("UNPACK", {"axis": "axis"}),
}
"""TensorFlow's operator -> TFLite's, and the attribute for each of its options; others have their defaults."""


def _alike(name: str, options: dict[str, str]) -> Translation:
    def translate(op: Operation) -> None:
        entry, given = entries()[name], attributes(op)
        found = options_of(op.operator, entry)
        op.options = Table(found.kind, 0, {**found.fields, **{o: given.number(a) for o, a in options.items()}})
        entry.translate(op)

    return described(translate, f"as_{name.lower()}", f"As {name}.")


for _name, (_of_tflite, _options) in ALIKE.items():
    operator(f"CUSTOM Flex{_name}")(_alike(_of_tflite, _options))
