"""Reasons for which a `.tflite` that comes back has more operators than its source, found from the operators alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

UNKNOWN = "no reason is known"


class Reason(NamedTuple):
    """One kind of reason.

    Args:
        why: the reason.
        gone: at least one of these operators is gone; empty: any.
        came: at least one of these operators is new; empty: any.
        only: whether no other operators came.
        beside: operators that may come beside those, with `only`.
    """

    why: str
    gone: frozenset[str] = frozenset()
    came: frozenset[str] = frozenset()
    only: bool = False
    beside: frozenset[str] = frozenset()

    def fits(self, gone: Mapping[str, int], added: Mapping[str, int]) -> bool:
        """Return whether a file came back for this reason with more operators."""
        went = not self.gone or any(name in self.gone for name in gone)
        came = not self.came or any(name in self.came for name in added)
        return went and came and not (self.only and set(added) - self.came - self.beside)


def names(text: str) -> frozenset[str]:
    return frozenset(text.split())


REASONS = (
    Reason(
        "ONNX has no operator with the state or the gates of this recurrent one",
        names("BIDIRECTIONAL_SEQUENCE_LSTM BIDIRECTIONAL_SEQUENCE_RNN LSTM RNN SVDF UNIDIRECTIONAL_SEQUENCE_LSTM"),
    ),
    Reason("a loop of a known number of steps is written step by step", names("WHILE")),
    Reason(
        "the cell of a loop is ONNX's, with its own gates, and its results are written at a computed place",
        names("CONCATENATION"),
        names("PACK"),
    ),
    Reason(
        "the builtin rounds its integers in a way of its own, which ONNX has to spell out",
        names("EXP GELU LOG LOGISTIC RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR RSQRT SOFTMAX TANH"),
        names("GATHER FLOOR SUB"),
    ),
    Reason("a detection that is custom in the file is written in builtins", names("CUSTOM"), frozenset()),
    Reason(
        "an operator of StableHLO is written in TensorFlow Lite's own",
        names(
            "STABLEHLO_ADD STABLEHLO_CASE STABLEHLO_GATHER STABLEHLO_MAXIMUM STABLEHLO_MINIMUM STABLEHLO_MULTIPLY "
            "STABLEHLO_PAD STABLEHLO_REDUCE_WINDOW STABLEHLO_SCATTER STABLEHLO_SORT REDUCE_WINDOW"
        ),
    ),
    Reason(
        "ONNX has no such operator, or one with another meaning",
        names(
            "ADD_N BROADCAST_ARGS COMPLEX_ABS DILATE EMBEDDING_LOOKUP EMBEDDING_LOOKUP_SPARSE FAKE_QUANT FLOOR_DIV "
            "FLOOR_MOD IMAG L2_POOL_2D MATRIX_DIAG MATRIX_SET_DIAG MIRROR_PAD NON_MAX_SUPPRESSION_V4 "
            "NON_MAX_SUPPRESSION_V5 ONE_HOT REAL REDUCE_ALL REDUCE_ANY RFFT2D SEGMENT_SUM SPARSE_TO_DENSE "
            "UNSORTED_SEGMENT_MAX UNSORTED_SEGMENT_MIN UNSORTED_SEGMENT_PROD UNSORTED_SEGMENT_SUM"
        ),
    ),
    Reason(
        "ONNX joins and splits along axes that are there: each part gets a RESHAPE",
        names("PACK UNPACK"),
        names("RESHAPE"),
    ),
    Reason(
        "TensorFlow Lite's kernel takes no weights in half precision",
        names("FULLY_CONNECTED"),
        names("BATCH_MATMUL"),
    ),
    Reason("a depthwise convolution of one channel is a plain one", names("DEPTHWISE_CONV_2D"), names("CONV_2D")),
    Reason(
        "an axis is split or joined at another place: a RESHAPE, which moves nothing",
        came=names("DEPTHWISE_CONV_2D RESHAPE SQUARED_DIFFERENCE SQUARE SUB MUL"),
        only=True,
        beside=names("SELECT_V2"),
    ),
    Reason(
        "weights of 8 bits between floats (dynamic range) are real numbers in ONNX",
        came=names("DEQUANTIZE RELU"),
        only=True,
    ),
    Reason(
        "weights of 4 bits with a scale for each block are real numbers in ONNX",
        came=names("DEQUANTIZE"),
        only=True,
        beside=names("RESHAPE"),
    ),
    Reason(
        "an operator on integers computes with real numbers, or with another scale",
        came=names("DEQUANTIZE QUANTIZE"),
        only=True,
        beside=names("RESHAPE"),
    ),
    Reason(
        "elements along an axis are written backwards by an operator of their own",
        came=names("REVERSE_V2"),
    ),
    Reason(
        "integers are compared or chosen as the numbers that they mean, by a table",
        came=names("FLOOR_MOD"),
    ),
    Reason("an order of axes is chosen that this way does not find back", came=names("TRANSPOSE")),
    Reason("indices, extents or counts have other types in ONNX", came=names("CAST SHAPE")),
    Reason("a border that operators have by themselves in ONNX is a PAD for each", came=names("PAD"), only=True),
    Reason("extents behind a transposed convolution are computed otherwise", names("PACK"), names("ADD MUL")),
)
"""The first one that fits counts."""


def reason_of(gone: Mapping[str, int], added: Mapping[str, int]) -> str:
    """Return the first reason that fits; without one, the operators themselves."""
    went = {name.partition(" ")[0]: count for name, count in gone.items()}
    for reason in REASONS:
        if reason.fits(went, added):
            return reason.why
    said = [", ".join(sorted(part)) or "none" for part in (gone, added)]
    return f"{UNKNOWN}: {said[0]} became {said[1]}"


MOVED = (
    Reason("a spectrum is a product with a matrix, whose axis comes last", names("RFFT2D")),
    Reason("ONNX Runtime lacks DepthToSpace for such types: a TRANSPOSE between Reshapes", names("DEPTH_TO_SPACE")),
    Reason("ONNX has channels shuffled in the weights, and joins short rows", names("TRANSPOSE")),
    Reason("coordinates are listed in another order, once each way", came=names("GATHER")),
)
"""Reasons for more transposed bytes, before those for more operators."""


def reason_of_bytes(gone: Mapping[str, int], added: Mapping[str, int]) -> str:
    """Return the first reason that fits a file that comes back with more transposed bytes."""
    went = {name.partition(" ")[0]: count for name, count in gone.items()}
    found = next((reason.why for reason in MOVED if reason.fits(went, added)), "")
    return found or reason_of(gone, added)
