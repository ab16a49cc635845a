"""The version of each operator, and the oldest runtime that knows it.

An operator's version is the highest that one of its properties asks for: each new version of an operator takes more
than the last one (a type, a rank, an option). So a rule is a row (property, version), and rows need no order. A runtime
registers the versions that it knows, and refuses a model with a higher one.

Facts from LiteRT's `op_version.cc`, which the converter asks. These rows differ from it where it states a version that
is too low, or one that no runtime has:

- Several properties count together: a hybrid FULLY_CONNECTED without bias, say.
- Activations of int16 ask for the version that brought them with weights of int8, too; there for weights of int16 only.
- SELECT and SELECT_V2 choose among values of a type; there the condition's type is looked at. The first operand of
  TRANSPOSE_CONV is a shape, so there a wide bias is never found.
- A kernel of one row has one scale, as one without scales for its rows.
- No runtime registers version 5 of the LSTMs.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import Model, Operator, Subgraph, Tensor
from relayout.formats.tflite.container.runtimes import first_runtime, parsed

MIN_RUNTIME_VERSION = "min_runtime_version"
"""The metadata buffer that states the oldest runtime, in `_STATED` bytes filled up with zeros."""

_STATED = 16

_BY_TYPE = """
in0 INT8=2
    DEPTH_TO_SPACE GREATER LESS_EQUAL LOG_SOFTMAX SPACE_TO_DEPTH SPLIT_V SQUARED_DIFFERENCE SUM
in0 INT8=2 INT16=2
    EXP FLOOR_MOD LOG REDUCE_PROD SQRT
in0 INT8=2 INT16=3
    AVERAGE_POOL_2D BATCH_MATMUL GREATER_EQUAL LESS LOGISTIC MAX_POOL_2D MEAN MIRROR_PAD PACK PAD PADV2 REDUCE_MAX
    REDUCE_MIN RELU6 RSQRT SOFTMAX TANH TOPK_V2
in0 INT8=2 INT16=4
    BATCH_TO_SPACE_ND GATHER MAXIMUM MINIMUM MUL RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR SLICE SPACE_TO_BATCH_ND
in0 INT8=2 INT64=4 FLOAT16=6
    ADD
in0 INT64=5 COMPLEX64=6 UINT32=7 FLOAT16=8
    MUL
in0 INT8=2 INT64=4
    SUB
in0 INT8=2 UINT8=2 INT32=5
    ABS
in0 INT8=2 UINT8=2 INT16=3
    RELU
in0 INT8=2 UINT8=2 FLOAT16=3
    GELU
in0 INT8=2 UINT8=2 BOOL=3 INT16=4 FLOAT16=5 BFLOAT16=5 FLOAT8=6
    UNPACK
in0 INT8=2 INT16=3 UINT32=4 INT4=5 FLOAT16=6 FLOAT8=7
    CONCATENATION
in0 INT8=2 INT16=3 FLOAT16=3 INT4=6 INT2=7 UINT4=8 FLOAT8=9
    DEQUANTIZE
in0 INT8=2 BOOL=3
    ARG_MAX ARG_MIN GATHER STRIDED_SLICE TRANSPOSE
in0 INT8=2 STRING=3 INT16=5
    EQUAL
in0 INT8=2 STRING=3 INT16=4
    NOT_EQUAL
in0 INT8=3 INT16=3 FLOAT32=2
    FLOOR_DIV
in0 INT8=3 INT16=3 FLOAT8=4
    BROADCAST_TO
in0 INT8=3 INT16=4
    CONV_2D
in0 INT8=3 INT16=5
    DEPTHWISE_CONV_2D
in0 INT8=4 INT16=7
    FULLY_CONNECTED
in0 INT8=3
    SVDF
in0 INT16=5 INT4=7 BFLOAT16=8 FLOAT16=9
    TRANSPOSE
in0 INT16=2
    LEAKY_RELU
in0 INT32=2
    SIGN
in0 INT64=2
    RANGE
in0 FLOAT16=2
    COS SIN
in0 FLOAT16=4
    SOFTMAX
in0 UINT32=4 FLOAT8=5
    PACK
in0 BOOL=5 FLOAT8=6
    PAD PADV2
in0 BOOL=2 INT8=3 FLOAT8=4
    REVERSE_V2
in0 STRING=2 INT8=3
    TILE
in0 STRING=2
    SQUEEZE
in0 STRING=3 UINT32=6 INT4=7 FLOAT16=8
    SLICE
in0 STRING=5 UINT32=7
    STRIDED_SLICE
in0 STRING=2 INT16=3 BOOL=5 FLOAT8=6
    GATHER_ND
in0 INT4=7 FLOAT8=8
    GATHER
in0 FLOAT16=3 INT16=4 INT4=5 BFLOAT16=6
    DYNAMIC_UPDATE_SLICE
in0 FLOAT8=3
    SPLIT_V
in0 INT4=4 UINT4=5
    QUANTIZE
in0 UINT32=2 INT8=3 UINT16=4 FLOAT64=5 FLOAT16=5 INT4=6 BFLOAT16=7 INT2=8 UINT4=8 FLOAT8=9
    CAST
in1 INT8=2 UINT32=4
    SELECT
in1 UINT32=2
    SELECT_V2
in1 INT8=2
    TRANSPOSE_CONV
in1 INT8=2 INT32=3 INT16=4 FLOAT8=5
    SPLIT
in1 INT4=4 INT2=5
    EMBEDDING_LOOKUP
in1 INT4=7
    CONV_2D DEPTHWISE_CONV_2D
in1 INT4=10 INT2=14
    FULLY_CONNECTED
in1 BOOL=2 STRING=2 INT8=3 INT16=3 FLOAT16=4 FLOAT8=5
    FILL
in1 INT16=3
    TOPK_V2
in1 INT16=4
    GATHER_ND
in1 INT16=6
    GATHER
in2 INT64=2 INT8=3 UINT8=3
    SPARSE_TO_DENSE
in2 INT64=2
    DYNAMIC_UPDATE_SLICE
out0 INT8=2
    L2_NORMALIZATION
out0 INT16=2 INT4=4 UINT4=5
    QUANTIZE
out0 UINT32=2 INT8=3 UINT16=4 FLOAT64=5 FLOAT16=5 BFLOAT16=7 INT2=8 UINT4=8 FLOAT8=9
    CAST
out1 INT16=3
    TOPK_V2
"""
"""The version that an operand's type asks for, and below it of which operators."""


class _Use(NamedTuple):
    """An operator with its tensors; None for an operand left out."""

    operator: Operator
    inputs: tuple[Tensor | None, ...]
    outputs: tuple[Tensor, ...]

    def input(self, i: int) -> Tensor | None:
        return self.inputs[i] if i < len(self.inputs) else None

    def output(self, i: int) -> Tensor | None:
        return self.outputs[i] if i < len(self.outputs) else None

    def types(self, *types: TensorType) -> bool:
        """Tell whether the first operands are of these types."""
        return tuple(tensor and tensor.type for tensor in self.inputs[: len(types)]) == types

    def rank(self, i: int = 0) -> int:
        tensor = self.input(i)
        return len(tensor.shape) if tensor else 0

    def option(self, name: str) -> Any:
        """Return an option's value; None if the operator states no options, or has no such one."""
        return self.operator.options.fields.get(name) if self.operator.options else None

    def is_quantized(self, i: int) -> bool:
        tensor = self.input(i)
        return tensor is not None and tensor.quantization is not None

    def is_hybrid(self, weights: int = 1) -> bool:
        """Tell whether reals meet weights of 8 bits, and reals come out."""
        operands = (self.input(0), self.input(weights), self.output(0))
        return [tensor and tensor.type for tensor in operands] == [
            TensorType.FLOAT32,
            TensorType.INT8,
            TensorType.FLOAT32,
        ]


_Property = Callable[[_Use], object]


def _rank_above(rank: int) -> _Property:
    return lambda use: use.rank() > rank


def _stretched(use: _Use) -> bool:
    """Tell whether operands of different shapes meet, and one has more than four axes."""
    first, second = use.input(0), use.input(1)
    if first is None or second is None:
        return False
    return first.shape != second.shape and max(len(first.shape), len(second.shape)) > 4


def _option(name: str) -> _Property:
    return lambda use: use.option(name)


def _both(*properties: _Property) -> _Property:
    return lambda use: all(has(use) for has in properties)


def _has_scales(tensor: Tensor | None) -> bool:
    """Tell whether the tensor has a scale for each index of an axis."""
    return tensor is not None and tensor.quantization is not None and tensor.quantization.per_channel


def _is_grouped(use: _Use) -> bool:
    x, weights = use.input(0), use.input(1)
    if x is None or weights is None or not x.shape:
        return False
    return x.shape[-1:] != weights.shape[-1:]


def _is_rescaled_up(use: _Use) -> bool:
    """Tell whether the product of two scales is at least the result's."""
    tensors = (*use.inputs[:2], *use.outputs[:1])
    scales = [float(t.quantization.scale[0]) for t in tensors if t and t.quantization]
    return len(scales) == 3 and 0 not in scales and scales[0] * scales[1] >= scales[2]


def _typed(is_input: bool, place: int, types: frozenset[TensorType]) -> _Property:
    def has_type(use: _Use) -> bool:
        tensor = use.input(place) if is_input else use.output(place)
        return tensor is not None and tensor.type in types

    return has_type


def _reads(*types: TensorType) -> _Property:
    return lambda use: use.types(*types)


_INT16 = _reads(TensorType.INT16)
_PLAIN_INT16 = _both(_INT16, lambda use: not use.is_quantized(0))
_HYBRID = _Use.is_hybrid
_HYBRID_BY_CHANNEL = _both(_HYBRID, lambda use: _has_scales(use.input(1)))
_HYBRID_LSTM = _both(lambda use: use.is_hybrid(weights=2), lambda use: not use.option("kernel_type"))
_ASYMMETRIC = _option("asymmetric_quantize_inputs")
_RNNS = "RNN UNIDIRECTIONAL_SEQUENCE_RNN BIDIRECTIONAL_SEQUENCE_RNN BIDIRECTIONAL_SEQUENCE_LSTM"

_BY_PROPERTY: tuple[tuple[str, int, _Property], ...] = (  # the version that a property asks for, of which operators
    ("ABS", 3, _INT16),
    ("ABS", 4, _PLAIN_INT16),
    ("ADD", 3, _both(_INT16, lambda use: use.option("pot_scale_int16") is False)),
    ("ADD", 5, _PLAIN_INT16),
    ("SUB", 5, _both(_INT16, lambda use: use.option("pot_scale_int16") is False)),
    ("MUL", 3, _is_rescaled_up),
    ("MUL", 7, _PLAIN_INT16),
    ("DIV", 2, _stretched),
    ("MAXIMUM MINIMUM SUB", 3, _stretched),
    ("CONV_2D", 2, _HYBRID),
    ("CONV_2D", 5, _HYBRID_BY_CHANNEL),
    ("CONV_2D", 6, _is_grouped),
    ("CONV_2D", 8, _both(_INT16, _option("quantized_bias_type"))),
    ("DEPTHWISE_CONV_2D", 2, lambda use: (use.option("dilation_w_factor") or 1) != 1),
    ("DEPTHWISE_CONV_2D", 2, lambda use: (use.option("dilation_h_factor") or 1) != 1),
    ("DEPTHWISE_CONV_2D", 4, _HYBRID),
    ("DEPTHWISE_CONV_2D", 6, _HYBRID_BY_CHANNEL),
    ("TRANSPOSE_CONV", 3, lambda use: use.input(3) is not None),
    ("TRANSPOSE_CONV", 4, _option("fused_activation_function")),
    ("TRANSPOSE_CONV", 5, _both(_typed(False, 0, frozenset([TensorType.INT16])), _option("quantized_bias_type"))),
    ("FULLY_CONNECTED", 2, _option("weights_format")),
    ("FULLY_CONNECTED", 3, _HYBRID),
    ("FULLY_CONNECTED", 5, _option("keep_num_dims")),
    ("FULLY_CONNECTED", 6, lambda use: len(use.inputs) == 2),
    ("FULLY_CONNECTED", 8, lambda use: (weights := use.input(1)) and weights.sparsity),
    ("FULLY_CONNECTED", 9, _both(_HYBRID, _ASYMMETRIC)),
    ("FULLY_CONNECTED", 11, _both(_INT16, _option("quantized_bias_type"))),
    ("FULLY_CONNECTED", 12, _HYBRID_BY_CHANNEL),
    ("FULLY_CONNECTED", 13, _reads(TensorType.INT16, TensorType.INT4)),
    ("BATCH_MATMUL", 4, _both(_HYBRID, _ASYMMETRIC)),
    ("EMBEDDING_LOOKUP", 4, lambda use: _has_scales(use.input(1))),
    ("DEQUANTIZE", 5, lambda use: _has_scales(use.input(0))),
    ("QUANTIZE", 3, lambda use: _has_scales(use.output(0))),
    ("FAKE_QUANT", 2, _option("narrow_range")),
    ("GATHER", 5, _option("batch_dims")),
    ("PAD PADV2 STRIDED_SLICE TRANSPOSE", 4, _rank_above(4)),
    ("SLICE", 5, _rank_above(4)),
    ("TRANSPOSE", 6, _rank_above(5)),
    ("TRANSPOSE", 8, _rank_above(6)),
    ("SPACE_TO_BATCH_ND BATCH_TO_SPACE_ND", 3, lambda use: use.rank() != 4),
    ("SELECT", 3, lambda use: max(map(use.rank, range(3))) == 5),
    ("STRIDED_SLICE", 6, lambda use: use.option("ellipsis_mask") or use.option("new_axis_mask")),
    ("STRIDED_SLICE", 8, _option("offset")),
    ("RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR", 3, _option("half_pixel_centers")),
    ("RESIZE_NEAREST_NEIGHBOR", 3, _option("align_corners")),
    ("WHERE", 2, lambda use: not use.types(TensorType.BOOL)),
    ("BROADCAST_TO", 2, lambda use: True),
    ("SVDF", 2, _HYBRID),
    ("SVDF", 4, _both(_HYBRID, _ASYMMETRIC)),
    (_RNNS, 2, _HYBRID),
    (_RNNS, 3, _both(_HYBRID, _ASYMMETRIC)),
    ("LSTM", 2, _option("kernel_type")),
    ("LSTM", 3, _HYBRID_LSTM),
    ("LSTM", 4, _both(_HYBRID_LSTM, _ASYMMETRIC)),
    ("UNIDIRECTIONAL_SEQUENCE_LSTM", 2, _HYBRID_LSTM),
    ("UNIDIRECTIONAL_SEQUENCE_LSTM", 3, _both(_HYBRID_LSTM, _ASYMMETRIC)),
    ("UNIDIRECTIONAL_SEQUENCE_LSTM", 4, _option("diagonal_recurrent_tensors")),
)


def _type_rows() -> Iterator[tuple[str, int, _Property]]:
    """Yield the rows of `_BY_TYPE` one type at a time."""
    named = [(f"{kind.name}_", kind) for kind in TensorType]
    for side, place, types, operators in re.findall(r"^(in|out)(\d) (.*)\n((?:    .*\n)+)", _BY_TYPE, re.MULTILINE):
        for word in types.split():
            name, version = word.split("=")
            kinds = frozenset(kind for begun, kind in named if begun.startswith(f"{name}_"))
            yield operators, int(version), _typed(side == "in", int(place), kinds)


def _by_operator() -> dict[str, list[tuple[int, _Property]]]:
    rules: dict[str, list[tuple[int, _Property]]] = {}
    for operators, version, has in (*_type_rows(), *_BY_PROPERTY):
        for name in operators.split():
            rules.setdefault(name, []).append((version, has))
    return rules


_RULES = _by_operator()


def version(
    operator: Operator,  # the operator; the version that it states is not looked at
    tensors: tuple[Tensor, ...],  # of its subgraph
) -> int:
    """Return the version that the operator needs."""
    use = _Use(
        operator,
        tuple(tensors[i] if i >= 0 else None for i in operator.inputs),
        tuple(tensors[i] for i in operator.outputs),
    )
    return max((number for number, has in _RULES.get(operator.name, ()) if has(use)), default=1)


def min_runtime_version(model: Model) -> str:
    """Return the oldest TensorFlow (from 2.17 on LiteRT) that knows all operators in the versions that they state.

    Operators that no runtime is known to have, custom ones among them, count for nothing; "" if there are no others.
    """
    uses = {(operator.name, operator.version) for subgraph in model.subgraphs for operator in subgraph.operators}
    return max((first_runtime(*use) for use in uses), key=parsed, default="")


def finished(model: Model) -> Model:
    """Return the model with the versions that its operators need, and the oldest runtime for them in its metadata.

    A higher version that an operator states stays.
    """
    model = model._replace(subgraphs=tuple(map(_versioned, model.subgraphs)))
    stated = np.frombuffer(min_runtime_version(model).encode().ljust(_STATED, b"\0"), np.uint8)
    others = tuple(row for row in model.metadata if row[0] != MIN_RUNTIME_VERSION)
    return model._replace(metadata=((MIN_RUNTIME_VERSION, stated), *others))


def _versioned(subgraph: Subgraph) -> Subgraph:
    operators = (
        operator._replace(version=max(operator.version, version(operator, subgraph.tensors)))
        for operator in subgraph.operators
    )
    return subgraph._replace(operators=tuple(operators))
