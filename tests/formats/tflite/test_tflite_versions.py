"""Operators' versions against what converters state, what LiteRT registers, and property by property."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter
from tflite_running import interpreter
from tflite_written import FILES, FINDINGS, OWN

from relayout.formats.flatbuffer import Table
from relayout.formats.tflite.container.enums import BUILTIN_OPERATORS, TensorType
from relayout.formats.tflite.container.loading import load
from relayout.formats.tflite.container.model import Model, Operator, Quantization, Subgraph, Tensor
from relayout.formats.tflite.container.runtimes import first_runtime, operators, parsed
from relayout.formats.tflite.container.versions import (
    _BY_PROPERTY,
    _RULES,
    MIN_RUNTIME_VERSION,
    finished,
    min_runtime_version,
    version,
)
from relayout.formats.tflite.container.writer import first_difference, options, to_bytes

F32, F16, BF16, I4, I8, I16, I32, I64, U8, U32 = (
    TensorType[name]
    for name in ["FLOAT32", "FLOAT16", "BFLOAT16", "INT4", "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT32"]
)  # fmt: skip


def one(name: str, inputs: tuple[Tensor | None, ...], outputs: tuple[Tensor, ...], table: Table | None = None) -> int:
    """The version of an operator with these operands."""
    tensors = (*(tensor for tensor in inputs if tensor), *outputs)
    places = {id(tensor): i for i, tensor in enumerate(tensors)}
    operator = Operator(
        name, 1, tuple(places[id(t)] if t else -1 for t in inputs), tuple(places[id(t)] for t in outputs), options=table
    )
    return version(operator, tensors)


def of(kind: TensorType, *shape: int, scales: int = 0, scale: float = 0.5, axis: int = 0, **more: Any) -> Tensor:
    quantization = (
        Quantization(np.full(scales, scale, np.float32), np.zeros(scales, np.int64), axis) if scales else None
    )
    return Tensor(0, "", kind, shape or (2,), shape or (2,), quantization=quantization, **more)


IMAGE, HALF = (1, 8, 8, 4), (1, 4, 4, 6)
CONV = options("Conv2DOptions")
WIDE = options("Conv2DOptions", quantized_bias_type=I64)
DENSE = options("FullyConnectedOptions")
ASYMMETRIC = {"asymmetric_quantize_inputs": True}
FULL, BASIC = options("LSTMOptions"), options("LSTMOptions", kernel_type=1)
HYBRID_LSTM = (of(F32), None, of(I8))


def convolutions() -> Iterator[tuple[str, int, tuple[Tensor | None, ...], tuple[Tensor, ...], Table | None]]:
    x, y, bias = of(F32, *IMAGE), of(F32, *HALF), of(F32, 6)
    yield "CONV_2D", 1, (x, of(F32, 6, 1, 1, 4), bias), (y,), CONV
    yield "CONV_2D", 2, (x, of(I8, 6, 1, 1, 4, scales=1), bias), (y,), CONV
    yield "CONV_2D", 3, (of(I8, *IMAGE), of(I8, 6, 1, 1, 4, scales=6), bias), (of(I8, *HALF),), CONV
    yield "CONV_2D", 4, (of(I16, *IMAGE), of(I8, 6, 1, 1, 4, scales=6), bias), (of(I16, *HALF),), CONV
    yield "CONV_2D", 5, (x, of(I8, 6, 1, 1, 4, scales=6), bias), (y,), CONV
    yield "CONV_2D", 6, (x, of(F32, 6, 1, 1, 2), bias), (y,), CONV
    yield "CONV_2D", 7, (of(I8, *IMAGE), of(I4, 6, 1, 1, 4, scales=6), bias), (of(I8, *HALF),), CONV
    yield "CONV_2D", 8, (of(I16, *IMAGE), of(I8, 6, 1, 1, 4, scales=6), bias), (of(I16, *HALF),), WIDE
    kernel, name = of(F32, 1, 3, 3, 4), "DepthwiseConv2DOptions"
    yield "DEPTHWISE_CONV_2D", 1, (x, kernel, bias), (x,), options(name)
    yield "DEPTHWISE_CONV_2D", 2, (x, kernel, bias), (x,), options(name, dilation_h_factor=2)
    yield "DEPTHWISE_CONV_2D", 2, (x, kernel, bias), (x,), options(name, dilation_w_factor=2)
    yield "DEPTHWISE_CONV_2D", 3, (of(I8, *IMAGE), kernel, bias), (x,), options(name, dilation_w_factor=2)
    yield "DEPTHWISE_CONV_2D", 4, (x, of(I8, 1, 3, 3, 4, scales=1), bias), (x,), options(name)
    yield "DEPTHWISE_CONV_2D", 6, (x, of(I8, 1, 3, 3, 4, scales=4, axis=3), bias), (x,), options(name)
    shape, name = of(I32, 4), "TransposeConvOptions"
    yield "TRANSPOSE_CONV", 1, (shape, kernel, x), (x,), options(name)
    yield "TRANSPOSE_CONV", 2, (shape, of(I8, 1, 3, 3, 4), of(I8, *IMAGE)), (of(I8, *IMAGE),), options(name)
    yield "TRANSPOSE_CONV", 3, (shape, kernel, x, bias), (x,), options(name)
    yield "TRANSPOSE_CONV", 3, (shape, kernel, x, bias), (x,), None
    yield "TRANSPOSE_CONV", 1, (shape, kernel, x, None), (x,), options(name)
    wide = options(name, quantized_bias_type=I64)
    yield "TRANSPOSE_CONV", 5, (shape, of(I8, 1, 3, 3, 4), of(I16, *IMAGE)), (of(I16, *IMAGE),), wide
    yield "TRANSPOSE_CONV", 4, (shape, kernel, x, bias), (x,), options(name, fused_activation_function=1)


def products() -> Iterator[tuple[str, int, tuple[Tensor | None, ...], tuple[Tensor, ...], Table | None]]:
    x, y, w, bias, name = of(F32, 1, 4), of(F32, 1, 6), of(F32, 6, 4), of(F32, 6), "FullyConnectedOptions"
    hybrid = (x, of(I8, 6, 4, scales=1), bias)
    yield "FULLY_CONNECTED", 1, (x, w, bias), (y,), DENSE
    yield "FULLY_CONNECTED", 1, (x, w, None), (y,), DENSE
    yield "FULLY_CONNECTED", 2, (x, w, bias), (y,), options(name, weights_format=1)
    yield "FULLY_CONNECTED", 3, hybrid, (y,), DENSE
    yield "FULLY_CONNECTED", 4, (of(I8, 1, 4), of(I8, 6, 4), bias), (of(I8, 1, 6),), DENSE
    yield "FULLY_CONNECTED", 5, (x, w, bias), (y,), options(name, keep_num_dims=True)
    yield "FULLY_CONNECTED", 6, (x, w), (y,), DENSE
    yield "FULLY_CONNECTED", 6, (of(I8, 1, 4), of(I8, 6, 4)), (of(I8, 1, 6),), options(name, keep_num_dims=True)
    yield "FULLY_CONNECTED", 7, (of(I16, 1, 4), of(I8, 6, 4), bias), (of(I16, 1, 6),), DENSE
    yield "FULLY_CONNECTED", 8, (x, of(F32, 6, 4, sparsity=Table("SparsityParameters", 0, {})), bias), (y,), DENSE
    yield "FULLY_CONNECTED", 9, hybrid, (y,), options(name, **ASYMMETRIC)
    yield "FULLY_CONNECTED", 10, (of(I8, 1, 4), of(I4, 6, 4), bias), (of(I8, 1, 6),), DENSE
    wide = options(name, quantized_bias_type=I64)
    yield "FULLY_CONNECTED", 11, (of(I16, 1, 4), of(I8, 6, 4), bias), (of(I16, 1, 6),), wide
    yield "FULLY_CONNECTED", 12, (x, of(I8, 6, 4, scales=6), bias), (y,), options(name, **ASYMMETRIC)
    yield "FULLY_CONNECTED", 13, (of(I16, 1, 4), of(I4, 6, 4), bias), (of(I16, 1, 6),), DENSE
    yield "FULLY_CONNECTED", 14, (x, of(TensorType.INT2, 6, 4, scales=6), bias), (y,), DENSE
    product = options("BatchMatMulOptions", **ASYMMETRIC)
    yield "BATCH_MATMUL", 1, (x, w), (y,), product
    yield "BATCH_MATMUL", 4, (x, of(I8, 4, 6, scales=1)), (y,), product
    yield "BATCH_MATMUL", 2, (of(I8, 1, 4), of(I8, 4, 6)), (of(I8, 1, 6),), options("BatchMatMulOptions")
    yield "EMBEDDING_LOOKUP", 1, (of(I32), of(I8, 6, 4, scales=1)), (x,), None
    yield "EMBEDDING_LOOKUP", 4, (of(I32), of(I8, 6, 4, scales=6)), (x,), None
    yield "SVDF", 2, (x, of(I8, 6, 4), bias), (y,), options("SVDFOptions")
    yield "SVDF", 4, (x, of(I8, 6, 4), bias), (y,), options("SVDFOptions", **ASYMMETRIC)
    yield "SVDF", 3, (of(I8), of(I8)), (of(I8),), options("SVDFOptions")
    for kind in ("RNN", "UNIDIRECTIONAL_SEQUENCE_RNN", "BIDIRECTIONAL_SEQUENCE_RNN", "BIDIRECTIONAL_SEQUENCE_LSTM"):
        yield kind, 1, (x, w), (y,), options("RNNOptions", **ASYMMETRIC)
        yield kind, 2, (x, of(I8, 6, 4)), (y,), options("RNNOptions")
        yield kind, 3, (x, of(I8, 6, 4)), (y,), options("RNNOptions", **ASYMMETRIC)
    yield "LSTM", 1, (x, None, w), (y,), FULL
    yield "LSTM", 2, (x, None, w), (y,), BASIC
    yield "LSTM", 3, HYBRID_LSTM, (y,), FULL
    yield "LSTM", 4, HYBRID_LSTM, (y,), options("LSTMOptions", **ASYMMETRIC)
    name = "UnidirectionalSequenceLSTMOptions"
    yield "UNIDIRECTIONAL_SEQUENCE_LSTM", 1, (x, None, w), (y,), options(name)
    yield "UNIDIRECTIONAL_SEQUENCE_LSTM", 2, HYBRID_LSTM, (y,), options(name)
    yield "UNIDIRECTIONAL_SEQUENCE_LSTM", 3, HYBRID_LSTM, (y,), options(name, **ASYMMETRIC)
    yield "UNIDIRECTIONAL_SEQUENCE_LSTM", 4, (x, None, w), (y,), options(name, diagonal_recurrent_tensors=True)


def others() -> Iterator[tuple[str, int, tuple[Tensor | None, ...], tuple[Tensor, ...], Table | None]]:
    x, five, six, seven = (of(F32, *[2] * rank) for rank in (4, 5, 6, 7))
    i16 = of(I16, scales=1)
    yield "ABS", 3, (i16,), (i16,), None
    yield "ABS", 4, (of(I16),), (of(I16),), None
    yield "ABS", 5, (of(I32),), (of(I32),), None
    yield "ADD", 1, (i16, i16), (i16,), options("AddOptions")
    yield "ADD", 3, (i16, i16), (i16,), options("AddOptions", pot_scale_int16=False)
    yield "ADD", 5, (of(I16), of(I16)), (of(I16),), options("AddOptions", pot_scale_int16=False)
    yield "ADD", 1, (five, x), (five,), options("AddOptions")
    yield "SUB", 5, (i16, i16), (i16,), options("SubOptions", pot_scale_int16=False)
    yield "SUB", 3, (five, x), (five,), options("SubOptions")
    yield "SUB", 1, (five, five), (five,), options("SubOptions")
    yield "DIV", 2, (x, five), (five,), options("DivOptions")
    yield "DIV", 1, (x, of(F32)), (x,), options("DivOptions")
    yield "MAXIMUM", 3, (x, five), (five,), None
    yield "MINIMUM", 3, (five, x), (five,), None
    yield "MINIMUM", 4, (i16, i16), (i16,), None
    yield "MUL", 3, tuple(of(U8, scales=1, scale=1.0) for _ in range(2)), (of(U8, scales=1, scale=1.0),), None
    yield "MUL", 1, tuple(of(U8, scales=1, scale=0.5) for _ in range(2)), (of(U8, scales=1, scale=0.5),), None
    yield "MUL", 7, (of(I16), of(I16)), (of(I16),), None
    yield "MUL", 4, (i16, i16), (of(I16, scales=1, scale=1.0),), None
    yield "DEQUANTIZE", 2, (of(I8, 4, scales=1),), (x,), None
    yield "DEQUANTIZE", 5, (of(I8, 4, scales=4),), (x,), None
    yield "DEQUANTIZE", 3, (of(F16),), (x,), None
    yield "QUANTIZE", 1, (x,), (of(I8, 4, scales=1),), None
    yield "QUANTIZE", 2, (x,), (i16,), None
    yield "QUANTIZE", 3, (x,), (of(I8, 4, scales=4),), None
    yield "QUANTIZE", 4, (of(I8),), (of(I4),), None
    yield "FAKE_QUANT", 2, (x,), (x,), options("FakeQuantOptions", narrow_range=True)
    yield "GATHER", 5, (of(I8), of(I32)), (of(I8),), options("GatherOptions", batch_dims=1)
    yield "GATHER", 6, (of(I8), of(I16)), (of(I8),), options("GatherOptions", batch_dims=1)
    yield "GATHER", 4, (of(I16), of(I32)), (of(I16),), options("GatherOptions")
    for kind in ("PAD", "PADV2", "STRIDED_SLICE", "TRANSPOSE"):
        yield kind, 4, (five,), (five,), None
        yield kind, 1, (x,), (x,), None
    yield "SLICE", 5, (five,), (five,), None
    yield "TRANSPOSE", 6, (six,), (six,), None
    yield "TRANSPOSE", 8, (seven,), (seven,), None
    yield "TRANSPOSE", 8, (of(BF16),), (of(BF16),), None
    yield "SPACE_TO_BATCH_ND", 3, (of(F32, 2, 4, 4),), (x,), None
    yield "BATCH_TO_SPACE_ND", 3, (of(F32, 2, 4, 4),), (x,), None
    yield "BATCH_TO_SPACE_ND", 2, (of(I8, *IMAGE),), (x,), None
    yield "SELECT", 3, (of(TensorType.BOOL), x, five), (five,), None
    yield "SELECT", 2, (of(TensorType.BOOL), of(I8), of(I8)), (of(I8),), None
    yield "STRIDED_SLICE", 6, (x,), (x,), options("StridedSliceOptions", ellipsis_mask=2)
    yield "STRIDED_SLICE", 6, (x,), (x,), options("StridedSliceOptions", new_axis_mask=1)
    yield "STRIDED_SLICE", 8, (x,), (x,), options("StridedSliceOptions", offset=True)
    yield "STRIDED_SLICE", 1, (x,), (x,), options("StridedSliceOptions", shrink_axis_mask=1)
    yield "RESIZE_BILINEAR", 3, (of(I8),), (of(I8),), options("ResizeBilinearOptions", half_pixel_centers=True)
    yield "RESIZE_BILINEAR", 1, (x,), (x,), options("ResizeBilinearOptions", align_corners=True)
    near = "ResizeNearestNeighborOptions"
    yield "RESIZE_NEAREST_NEIGHBOR", 3, (x,), (x,), options(near, align_corners=True)
    yield "RESIZE_NEAREST_NEIGHBOR", 3, (x,), (x,), options(near, half_pixel_centers=True)
    yield "RESIZE_NEAREST_NEIGHBOR", 4, (i16,), (i16,), options(near, half_pixel_centers=True)
    yield "WHERE", 1, (of(TensorType.BOOL),), (x,), None
    yield "WHERE", 2, (x,), (x,), None
    yield "BROADCAST_TO", 2, (x, of(I32)), (x,), None
    yield "BROADCAST_TO", 3, (of(I8), of(I32)), (of(I8),), None
    yield "CAST", 1, (of(F32),), (of(I32),), None
    yield "CAST", 3, (of(F32),), (of(I8),), None
    yield "CAST", 5, (of(I8),), (of(F16),), None
    yield "CAST", 9, (of(F32),), (of(TensorType.FLOAT8_E5M2),), None
    yield "SPLIT", 3, (of(I32), of(I32)), (of(I32),), None
    yield "SPLIT", 1, (of(I32), x), (x,), None
    yield "GELU", 2, (of(I8),), (of(I8),), None
    yield "L2_NORMALIZATION", 2, (of(I8),), (of(I8),), None
    yield "SPARSE_TO_DENSE", 2, (of(I32), of(I32), of(I64)), (of(I64),), None
    yield "TOPK_V2", 3, (x, of(I32)), (x, of(I16)), None
    yield "SOFTMAX", 3, (i16,), (i16,), None
    yield "SELECT_V2", 2, (of(TensorType.BOOL), of(U32), of(U32)), (of(U32),), None
    yield "RESHAPE", 1, (of(I8, *[2] * 7),), (of(I8),), None


CASES = [*convolutions(), *products(), *others()]


@pytest.mark.parametrize(
    ("name", "expected", "inputs", "outputs", "table"),
    [pytest.param(*case, id=f"{i}-{case[0]}-{case[1]}") for i, case in enumerate(CASES)],
)
def test_the_version_of(
    name: str, expected: int, inputs: tuple[Tensor | None, ...], outputs: tuple[Tensor, ...], table: Table | None
) -> None:
    assert one(name, inputs, outputs, table) == expected


def test_every_property_has_a_case() -> None:
    asked = {(name, number) for names, number, _ in _BY_PROPERTY for name in names.split()}
    assert asked - {(name, number) for name, number, *_ in CASES} == set()


def test_rules_are_of_operators_and_versions_that_runtimes_have() -> None:
    highest = operators()
    assert set(_RULES) <= set(highest) <= set(BUILTIN_OPERATORS)
    asked = {(name, number) for name, rows in _RULES.items() for number, _ in rows}
    assert [(name, number) for name, number in asked if not first_runtime(name, number)] == []


# What converters state.

OTHERWISE: dict[tuple[str, str], tuple[int, int]] = {
    ("coral/traffic_model.tflite", "MUL"): (1, 3),
    ("coral/traffic_model.tflite", "SPLIT"): (3, 1),
    ("operators/FLOOR_DIV.tflite", "FLOOR_DIV"): (1, 2),
    ("operators/RESIZE_BILINEAR.tflite", "RESIZE_BILINEAR"): (1, 3),
    ("tflite2onnx/conv-quant-fp16.float32.tflite", "DEQUANTIZE"): (2, 3),
    ("tflite2onnx/split.float32.tflite", "SPLIT"): (3, 1),
    ("wild/kazuhito_point_history_lstm.tflite", "FULLY_CONNECTED"): (3, 1),
    ("wild/mp_face_detection_front.tflite", "DEQUANTIZE"): (2, 3),
    ("wild/terryky_blazeface_full_int8.tflite", "QUANTIZE"): (2, 1),
    ("wild/terryky_style_transfer_dynamic.tflite", "QUANTIZE"): (2, 1),
}
"""What a file states, and what the rule says: converters before the rule of today, and files made by hand."""


def highest_of(model: Model, *, stated: bool) -> dict[str, int]:
    """The highest version of each operator: converters give all uses of an operator one code."""
    found: dict[str, int] = {}
    for subgraph in model.subgraphs:
        for operator in subgraph.operators:
            number = operator.version if stated else version(operator, subgraph.tensors)
            found[operator.name] = max(found.get(operator.name, 0), number)
    return {name: number for name, number in found.items() if not name.startswith("CUSTOM")}


SIXTEEN = ".int16x8."
"""The quantizer to 16 bits leaves the versions of 8 bits."""


def name_of(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


@pytest.mark.parametrize("path", [path for path in FILES if path not in FINDINGS], ids=name_of)
def test_the_versions_that_converters_state(path: Path) -> None:
    model, file = load(path), name_of(path)
    stated, ruled = highest_of(model, stated=True), highest_of(model, stated=False)
    different = {(file, name): (stated[name], ruled[name]) for name in stated if stated[name] != ruled[name]}
    if SIXTEEN in file:
        assert all(said < needed for said, needed in different.values())
    else:
        assert different == {key: value for key, value in OTHERWISE.items() if key[0] == file}


# What runtimes have.

ELSEWHERE = {("BROADCAST_TO", 1), ("STABLEHLO_CBRT", 1)}
"""A version that was taken back, which LiteRT lacks, too; an operator that it lacks."""


def test_litert_has_the_versions_of_the_table() -> None:
    """Each version of each operator is registered, and the one above the highest is not."""
    more = installed("ai-edge-litert").startswith("2.3.")  # newer ones may have more
    for name, highest in operators().items():
        for number in range(1, highest + 1 + more):
            tensors = (Tensor(0, "x", TensorType.FLOAT32, (1,), (1,)),)
            operator = Operator(name, number, (0,), (0,))
            data = to_bytes(Model("", (Subgraph("", tensors, (0,), (0,), (operator,)),), ()))
            try:
                Interpreter(model_content=data)
                lacks = False
            except (RuntimeError, ValueError) as error:
                lacks = f"Didn't find op for builtin opcode '{name}' version '{number}'" in str(error)
            assert lacks == (number > highest or (name, number) in ELSEWHERE), (name, number)


def test_runtimes_rise_with_versions() -> None:
    for name, highest in operators().items():
        runtimes = [parsed(first_runtime(name, number)) for number in range(1, highest + 1)]
        assert runtimes == sorted(runtimes), name
    assert first_runtime("CONV_2D", 6) == "2.9.0"
    assert first_runtime("BROADCAST_TO", 1) == first_runtime("CONV_2D", 0) == first_runtime("CONV_2D", 99) == ""
    assert parsed("2.10.0") > parsed("2.9.0") > parsed("") == ()


def test_the_oldest_runtime_is_the_one_that_converters_state() -> None:
    agree = 0
    for path in FILES:
        model = load(path)
        stated = {name: np.asarray(data).tobytes() for name, data in model.metadata if data is not None}
        text = stated.get(MIN_RUNTIME_VERSION, b"").rstrip(b"\0").decode()
        agree += bool(text) and text == min_runtime_version(model)
        if text and path in OWN:
            assert text == min_runtime_version(model), path.name
    assert agree >= 20


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.name)
def test_a_finished_model_runs_and_says_what_it_needs(path: Path) -> None:
    operators = load(path).subgraphs[0].operators
    bare = load(path)._replace(
        metadata=((MIN_RUNTIME_VERSION, np.zeros(3, np.uint8)), ("more", np.ones(2, np.uint8)), ("none", None))
    )
    subgraph = bare.subgraphs[0]._replace(operators=tuple(o._replace(version=1) for o in operators))
    model = finished(bare._replace(subgraphs=(subgraph,)))
    assert [name for name, _ in model.metadata] == [MIN_RUNTIME_VERSION, "more", "none"]
    stated = np.asarray(model.metadata[0][1]).tobytes()
    assert stated == min_runtime_version(model).encode().ljust(16, b"\0")
    assert first_difference(finished(model), model, bytewise=True) == ""
    interpreter(to_bytes(model))


def test_a_version_that_is_stated_is_never_lowered() -> None:
    tensors = (Tensor(0, "x", TensorType.FLOAT32, (1,), (1,)),)
    operator = Operator("RELU", 2, (0,), (0,))
    model = finished(Model("", (Subgraph("", tensors, (0,), (0,), (operator,)),), ()))
    assert model.subgraphs[0].operators[0].version == 2
