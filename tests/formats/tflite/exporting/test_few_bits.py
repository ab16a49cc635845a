"""Weights of 2, 4 and 8 bits between real numbers: they stay integers in the file, and the numbers are exact."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from export_running import agrees
from onnx import TensorProto as T
from onnx import helper, numpy_helper

import relayout
from relayout.formats.tflite.container.loading import load
from relayout.formats.tflite.exporting.blocks import PIECE, FlippedContent

ROWS, COLUMNS, BLOCK = 64, 96, 32
RANGES = {T.INT4: (-8, 8), T.UINT4: (0, 16), T.INT8: (-128, 128), T.UINT8: (0, 256), T.INT2: (-2, 2), T.UINT2: (0, 4)}
NAMES = {kind: T.DataType.Name(kind) for kind in RANGES}
RNG = np.random.default_rng(0)


def weights(
    kind: int, axis: int, block: int, *, real: int = T.FLOAT, zero: bool = True
) -> tuple[list[onnx.TensorProto], onnx.NodeProto]:
    """Return the constants of a DequantizeLinear of `ROWS COLUMNS` and the node; a block of -1 is one scale for all."""
    low, high = RANGES[kind]
    count = [ROWS, COLUMNS]
    count[axis] //= max(block, 1)
    dims = [] if block < 0 else count if block else [(ROWS, COLUMNS)[axis]]
    attributes = {"axis": axis, "block_size": block} if block > 0 else {"axis": axis}
    signs = RNG.choice([-1, 1], dims) if block > 0 else 1.0  # as a quantizer by blocks chooses them
    scales = (signs * (RNG.random(dims) * 0.1 + 0.01)).astype(np.float32 if real == T.FLOAT else np.float16)
    constants = [
        helper.make_tensor("w", kind, (ROWS, COLUMNS), RNG.integers(low, high, ROWS * COLUMNS).tolist()),
        numpy_helper.from_array(scales, "s"),
    ]
    if zero:
        zeros = RNG.integers(low, high, dims or 1).reshape(-1).tolist()
        constants.append(helper.make_tensor("z", kind, dims, zeros))
    return constants, helper.make_node("DequantizeLinear", [each.name for each in constants], ["d"], **attributes)


def product(op: str, constants: list[onnx.TensorProto], node: onnx.NodeProto, real: int = T.FLOAT) -> onnx.ModelProto:
    """Return `x` times the weights, or times them as `n k` with Gemm."""
    inner, outer = (COLUMNS, ROWS) if op == "Gemm" else (ROWS, COLUMNS)
    made = helper.make_node(op, ["x", "d"], ["y"], **({"transB": 1} if op == "Gemm" else {}))
    graph = helper.make_graph(
        [node, made],
        "few_bits",
        [helper.make_tensor_value_info("x", real, [5, inner])],
        [helper.make_tensor_value_info("y", real, [5, outer])],
        constants,
    )
    opset = 25 if constants[0].data_type in (T.INT2, T.UINT2) else 21
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10 + 3 * (opset == 25))


def fed(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    (dims,) = ([each.dim_value for each in value.type.tensor_type.shape.dim] for value in model.graph.input)
    return {"x": RNG.standard_normal(dims).astype(np.float32)}


@pytest.mark.parametrize("op", ["MatMul", "Gemm"])
@pytest.mark.parametrize("block", [BLOCK, 0, -1])
@pytest.mark.parametrize("kind", [T.INT4, T.UINT4, T.INT8, T.UINT8], ids=NAMES.get)
def test_weights_stay_integers(kind: int, block: int, op: str, tmp_path: Path) -> None:
    axis = 1 if (op == "Gemm") == (block > 0) else 0
    model = product(op, *weights(kind, axis, block))
    agrees(model, fed(model))
    result = relayout.convert(model, format="tflite")
    result.save(tmp_path / "result.tflite")
    stored = load(tmp_path / "result.tflite").subgraphs[0]
    kinds = [each.type.name for each in stored.tensors if each.quantization is not None]
    assert kinds == ["INT4" if kind in (T.INT4, T.UINT4) else "UINT8" if kind == T.UINT8 and block < 0 else "INT8"]
    names = Counter(each.name for each in stored.operators)
    assert names == Counter(["DEQUANTIZE", "FULLY_CONNECTED", *["RESHAPE"] * (block > 0)])


@pytest.mark.parametrize("kind", [T.INT2, T.UINT2], ids=NAMES.get)
def test_weights_of_two_bits_are_stored_in_four(kind: int) -> None:
    constants, node = weights(kind, 0, BLOCK)
    model = product("MatMul", constants, node)
    integers, scales, zeros = (numpy_helper.to_array(each).astype(np.float32) for each in constants)
    feed = fed(model)
    spread = (np.repeat(each, BLOCK, 0) for each in (zeros, scales))
    agrees(model, feed, expected=[feed["x"] @ ((integers - next(spread)) * next(spread))])


@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize("kind", [T.UINT4, T.INT8], ids=NAMES.get)
def test_blocks_of_weights_in_half_precision(kind: int, zero: bool) -> None:
    model = product("MatMul", *weights(kind, 0, BLOCK, real=T.FLOAT16, zero=zero), real=T.FLOAT16)
    agrees(model, {"x": fed(model)["x"].astype(np.float16)})


@pytest.mark.parametrize("size", [24, 1])
def test_blocks_that_do_not_make_up_a_row_or_have_one_element_are_real_numbers(size: int) -> None:
    constants, node = weights(T.INT8, 1, 1)
    count = -(-COLUMNS // size) if size > 1 else COLUMNS
    scales = (RNG.random((ROWS, count)) * 0.1).astype(np.float32)
    constants[1] = numpy_helper.from_array(scales, "s")
    constants[2] = numpy_helper.from_array(np.ones((ROWS, count), np.int8), "z")
    node.attribute[1].i = size
    model = product("Gemm", constants, node)
    agrees(model, fed(model))


def test_a_kernel_in_blocks_of_channels_is_real_numbers() -> None:
    kernel = helper.make_tensor("w", T.INT4, (8, 4, 3, 3), RNG.integers(-8, 8, 288).tolist())
    scales = numpy_helper.from_array((RNG.random((8, 2, 3, 3)) * 0.1).astype(np.float32), "s")
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["d"], axis=1, block_size=2),
        helper.make_node("Conv", ["x", "d"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info("x", 1, [1, 4, 6, 5])], [helper.make_tensor_value_info("y", 1, None)]
    graph = helper.make_graph(nodes, "kernel", *ends, [kernel, scales])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    agrees(model, fed(model))


@pytest.mark.parametrize(
    ("bits", "zero"),
    [(bits, zero) for bits in (2, 4, 8) for zero in ("none", "packed", "real") if (bits, zero) != (8, "real")],
)
def test_weights_of_matmul_nbits_stay_integers(bits: int, zero: str) -> None:
    rows, columns = 16, 64
    count = columns // BLOCK
    packed = RNG.integers(0, 256, (rows, count, BLOCK * bits // 8)).astype(np.uint8)
    scales = (RNG.choice([-1, 1], (rows, count)) * RNG.random((rows, count))).astype(np.float32)
    zeros = {
        "packed": RNG.integers(0, 256, (rows, -(-count * bits // 8))).astype(np.uint8),
        "real": (RNG.random((rows, count)) * 3).astype(np.float32),
    }
    constants = {"w": packed, "s": scales} | ({"z": zeros[zero]} if zero in zeros else {})
    options = {"K": columns, "N": rows, "bits": bits, "block_size": BLOCK}
    node = helper.make_node("MatMulNBits", ["x", *constants], ["y"], domain="com.microsoft", **options)
    graph = helper.make_graph(
        [node],
        "nbits",
        [helper.make_tensor_value_info("x", 1, [5, columns])],
        [helper.make_tensor_value_info("y", 1, [5, rows])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    agrees(model, fed(model), tolerance=10.0)
    report = relayout.convert(model, format="tflite").report
    assert ("DEQUANTIZE" in dict(report.operators or {})) == (bits > 2 and zero != "real")


def test_unsigned_integers_that_are_read_with_two_zero_points() -> None:
    """Each reader has its own signed copy: one of them was given the other's zero point."""
    constants, first = weights(T.UINT4, 0, -1)
    constants.append(helper.make_tensor("z2", T.UINT4, [], [(constants[2].int32_data[0] + 5) % 16]))
    second = helper.make_node("DequantizeLinear", ["w", "s", "z2"], ["e"])
    model = product("MatMul", constants, first)
    model.graph.node.extend([second, helper.make_node("MatMul", ["x", "e"], ["t"])])
    model.graph.node.append(helper.make_node("Sub", ["y", "t"], ["v"]))
    model.graph.output[0].name = "v"
    agrees(model, fed(model))


@pytest.mark.parametrize("kind", [T.INT4, T.UINT8], ids=NAMES.get)
@pytest.mark.parametrize(
    ("dims", "axis", "block"),
    [
        ([1, COLUMNS], 0, BLOCK),
        ([5, COLUMNS], 0, BLOCK),
        ([COLUMNS], 1, BLOCK),
        ([2, COLUMNS, 1], 0, BLOCK),
        ([ROWS, 1], 1, 5),
        ([2, COLUMNS], 0, -1),
    ],
)
def test_scales_that_fit_no_blocks_are_one_error(kind: int, dims: list[int], axis: int, block: int) -> None:
    constants, node = weights(kind, axis, BLOCK, zero=False)
    constants[1] = numpy_helper.from_array(np.ones(dims, np.float32), "s")
    node.attribute[1].i = block
    with pytest.raises(relayout.RelayoutError):
        relayout.convert(product("MatMul", constants, node), format="tflite")


@pytest.mark.parametrize("change", [{"block_size": 0}, {"block_size": -32}, {"N": 0}, {"K": 640}, {"bits": 8}], ids=str)
def test_weights_of_another_size_than_matmul_nbits_says_are_one_error(change: dict[str, int]) -> None:
    options = {"K": 64, "N": 16, "bits": 4, "block_size": BLOCK} | change
    node = helper.make_node("MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft", **options)
    ends = [[helper.make_tensor_value_info(name, 1, [5, None])] for name in "xy"]
    arrays = {"w": np.zeros((16, 2, 16), np.uint8), "s": np.ones((16, 2), np.float32)}
    tensors = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "nbits", *ends, tensors)
    with pytest.raises(relayout.RelayoutError, match="weights"):
        relayout.convert(helper.make_model(graph, opset_imports=opsets, ir_version=10), format="tflite")


def test_large_blocks_are_flipped_a_piece_at_a_time() -> None:
    data = ArrayContent(np.arange(3 * PIECE, dtype=np.uint32).view(np.uint8))
    content = FlippedContent(data, np.array([1, 0xFF], np.uint8))
    flipped = np.concatenate([np.frombuffer(chunk, np.uint8) for chunk in content.chunks()])
    half = data.nbytes // 2
    assert np.array_equal(flipped[:half] ^ 1, data.array[:half])
    assert np.array_equal(~flipped[half:], data.array[half:])


class ArrayContent:
    """The bytes of an array, in pieces of uneven length."""

    def __init__(self, array: np.ndarray) -> None:
        self.array, self.nbytes = array, array.nbytes

    def chunks(self) -> Iterator[bytes]:
        for piece in np.array_split(self.array, 7):
            yield piece.tobytes()
