"""The semantics that converters get wrong, one section each, against the interpreter.

Extents differ in every dimension and data are random, so that no slip of axes goes unnoticed. Where a case stands with
its operator already, it is taken from there.
"""

from __future__ import annotations

import copy
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from tflite_cases import every, rng
from tflite_cases_matrix import dense
from tflite_cases_recurrent import lstm
from tflite_cases_spatial import conv, transpose_conv
from tflite_dynamic import MODELS as OPEN
from tflite_running import check_model, compare, feed, interpreter, read, run_interpreter, session
from tflite_writing import Net, Scale, options

import relayout
from relayout.errors import ReadError, UnsupportedError
from relayout.formats.tflite.container.enums import ActivationFunctionType

SAME, VALID = 0, 1
CASES = every()


def holds(net: Net, **more: Any) -> None:
    """The import computes what the interpreter computes."""
    quantized = any(t.quantization is not None for t in net.graph.tensors)
    for result in compare(net.bytes(), net.ranges, **more):
        assert result.error <= result.tolerance(quantized) + net.slack, result


def named(*functions: str) -> Any:
    """The cases that some functions yield, as parameters."""
    return pytest.mark.parametrize("name", [n for n in CASES if n.partition("[")[0] in functions])


def ways(count: int, **choices: Any) -> Any:
    """So many random combinations of options, always the same ones."""
    random, names = np.random.default_rng(20), list(choices)
    rows = list(itertools.product(*choices.values()))
    picked = [rows[i] for i in sorted(random.permutation(len(rows))[:count])]
    return pytest.mark.parametrize(names, picked)


# 1. SAME padding with strides and dilations.


@ways(24, h=(5, 6, 7, 8), w=(9, 10, 11), stride=((1, 1), (2, 3), (3, 2)), dilation=(1, 2), padding=(SAME, VALID))
def test_01_padding_of_convolutions(h: int, w: int, stride: Any, dilation: int, padding: int) -> None:
    dilation = 1 if stride != (1, 1) else dilation
    sizes = [
        -(-e // s) if padding == SAME else (e - (k - 1) * dilation - 1) // s + 1
        for e, s, k in zip((h, w), stride, (3, 4), strict=True)
    ]
    net = Net()
    table = options(
        "Conv2DOptions",
        padding=padding,
        strideH=stride[0],
        strideW=stride[1],
        dilationHFactor=dilation,
        dilationWFactor=dilation,
    )
    operands = [net.input((2, h, w, 3)), net.const(rng().normal(size=(5, 3, 4, 3))), net.const(rng().normal(size=5))]
    holds(net.op("CONV_2D", operands, [net.output((2, *sizes, 5))], table, version=2))


@ways(24, name=("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D"), h=(5, 6, 8), w=(7, 9, 10), stride=((1, 2), (3, 2)))
def test_01_a_pool_does_not_count_its_border(name: str, h: int, w: int, stride: tuple[int, int]) -> None:
    net = Net()
    table = options("Pool2DOptions", padding=SAME, strideH=stride[0], strideW=stride[1], filterHeight=3, filterWidth=4)
    y = net.output((2, -(-h // stride[0]), -(-w // stride[1]), 3))
    # All negative, so that a border of zeros would win every maximum.
    holds(net.op(name, [net.input((2, h, w, 3), low=-9, high=-1)], [y], table))


@pytest.mark.parametrize("name", ["branches, same", "pools, same", "dilated", "dilated, strides", "depthwise, int8"])
def test_01_padding_of_open_extents(name: str) -> None:
    build, sizes = OPEN[name]
    for size in sizes:
        holds(build(), resize={0: size})


# 2. Fused activations.

_WITH_ACTIVATION = {
    "ADD": "AddOptions",
    "SUB": "SubOptions",
    "MUL": "MulOptions",
    "DIV": "DivOptions",
    "CONV_2D": "Conv2DOptions",
    "DEPTHWISE_CONV_2D": "DepthwiseConv2DOptions",
    "FULLY_CONNECTED": "FullyConnectedOptions",
    "TRANSPOSE_CONV": "TransposeConvOptions",
    "AVERAGE_POOL_2D": "Pool2DOptions",
    "MAX_POOL_2D": "Pool2DOptions",
    "L2_POOL_2D": "Pool2DOptions",
    "CONV_3D": "Conv3DOptions",
}
NONE, RELU, RELU_N1_TO_1, RELU6, TANH, SIGN_BIT = range(6)


def activated(name: str, fused: int, kind: str = "float32") -> Net:
    """One operator with an activation; quantized results reach well beyond what it leaves."""
    net, kw = Net(), dict.fromkeys(("strideH", "strideW"), 1)
    quantized = kind != "float32"
    q, out = (Scale(0.06, 3), Scale(0.09, -9)) if quantized else (None, None)

    def x(*shape: int, low: float = -4, high: float = 9) -> int:
        return net.input(shape, kind, *((-2, 2) if quantized else (low, high)), q=q)

    def weights(*shape: int, axis: int = 0) -> list[int]:
        if not quantized:
            return [net.const(rng().normal(size=shape)), net.const(rng().normal(size=shape[axis]))]
        scales = list(0.01 + 0.004 * np.arange(shape[axis]))
        kernel = net.const(rng().integers(-90, 90, shape), kind, q=Scale(scales, 0, axis))
        bias = net.const(rng().integers(-900, 900, shape[axis]), "int32", q=Scale([0.06 * s for s in scales]))
        return [kernel, bias]

    def y(*shape: int) -> int:
        return net.output(shape, kind, q=q if name.endswith("POOL_2D") else out)

    if name in ("ADD", "SUB", "MUL", "DIV"):
        operands, result, kw = [x(2, 3, 4), x(3, 1, low=1, high=3)], y(2, 3, 4), {}
    elif name == "FULLY_CONNECTED":
        operands, result, kw = [x(3, 6), *weights(5, 6)], y(3, 5), {}
    elif name == "TRANSPOSE_CONV":
        operands, result = [net.const([2, 8, 15, 3], "int32"), *weights(3, 3, 2, 4), x(2, 4, 5, 4)], y(2, 8, 15, 3)
        operands, kw = [operands[0], operands[1], operands[3], operands[2]], {"strideH": 2, "strideW": 3}
    elif name == "CONV_3D":
        kernel, bias = net.const(rng().normal(size=(2, 3, 2, 3, 4))), net.const(rng().normal(size=4))
        operands, result, kw = [x(2, 4, 5, 6, 3), kernel, bias], y(2, 3, 3, 5, 4), {"padding": VALID}
        kw |= {"strideD": 1, "strideH": 1, "strideW": 1}
    elif name.endswith("POOL_2D"):
        operands, result = [x(2, 7, 9, 4)], y(2, 5, 8, 4)
        kw |= {"padding": VALID, "filterHeight": 3, "filterWidth": 2}
    elif name == "CONV_2D":
        operands, result, kw = [x(2, 7, 9, 4), *weights(5, 3, 2, 4)], y(2, 5, 8, 5), {**kw, "padding": VALID}
    else:
        operands, result = [x(2, 7, 9, 4), *weights(1, 3, 2, 8, axis=3)], y(2, 5, 8, 8)
        kw |= {"padding": VALID, "depthMultiplier": 2}
    table = options(_WITH_ACTIVATION[name], fusedActivationFunction=fused, **kw)
    version = {"ADD": 2, "SUB": 2, "MUL": 2, "FULLY_CONNECTED": 5, "TRANSPOSE_CONV": 4, "CONV_2D": 3}.get(name, 1)
    version = (
        {"AVERAGE_POOL_2D": 2, "MAX_POOL_2D": 2, "DEPTHWISE_CONV_2D": 3}.get(name, version) if quantized else version
    )
    return net.op(name, operands, [result], table, version=version)


@pytest.mark.parametrize("fused", [NONE, RELU, RELU_N1_TO_1, RELU6])
@pytest.mark.parametrize("name", _WITH_ACTIVATION)
def test_02_activations(name: str, fused: int) -> None:
    holds(activated(name, fused))


@pytest.mark.parametrize("fused", [NONE, RELU, RELU_N1_TO_1, RELU6])
@pytest.mark.parametrize("name", [n for n in _WITH_ACTIVATION if n not in ("DIV", "L2_POOL_2D", "CONV_3D")])
def test_02_activations_of_integers(name: str, fused: int) -> None:
    holds(activated(name, fused, "int8"))


@pytest.mark.parametrize("fused", [TANH, SIGN_BIT])
@pytest.mark.parametrize("name", _WITH_ACTIVATION)
def test_02_what_the_kernels_ignore_is_refused(name: str, fused: int) -> None:
    net, plain = activated(name, fused), activated(name, NONE)
    inputs = [
        np.random.default_rng(0).uniform(1, 3, net.graph.tensors[i].shape).astype(np.float32) for i in net.graph.inputs
    ]
    try:
        (ignored,) = run_interpreter(interpreter(net.bytes()), inputs)
    except (ValueError, RuntimeError):
        pass  # LiteRT refuses it, too
    else:
        (unfused,) = run_interpreter(interpreter(plain.bytes()), inputs)
        np.testing.assert_allclose(ignored, unfused, atol=1e-5)
    with pytest.raises(UnsupportedError, match=r"fused activation (TANH|SIGN_BIT)"):
        read(net.bytes())


# 3. Resizes.


@pytest.mark.parametrize("mode", [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("name", ["RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"])
def test_03_coordinates(name: str, mode: tuple[bool, bool]) -> None:
    kind = "ResizeBilinearOptions" if name == "RESIZE_BILINEAR" else "ResizeNearestNeighborOptions"
    random = np.random.default_rng(3)
    for _ in range(12):
        h, w, to_h, to_w = (int(v) for v in random.integers(2, 14, 4))
        net = Net()
        table = options(kind, alignCorners=mode[0], halfPixelCenters=mode[1])
        operands = [net.input((2, h, w, 3)), net.const([to_h, to_w], "int32")]
        holds(net.op(name, operands, [net.output((2, to_h, to_w, 3))], table, version=3))


# 4. Transposed convolutions.


@ways(40, padding=(SAME, VALID), stride=((1, 1), (2, 3), (3, 2)), window=((3, 2), (2, 5), (1, 4)), more=(0, 1, 2))
def test_04_transposed_convolutions(padding: int, stride: Any, window: Any, more: int) -> None:
    holds(transpose_conv(padding, stride, window, (11 + more, 14 + more)))


# 5. Depthwise and grouped convolutions.


@pytest.mark.parametrize("stale", [None, 0, 7])
@pytest.mark.parametrize("multiplier", [1, 3])
def test_05_the_multiplier_is_in_the_shape(multiplier: int, stale: int | None) -> None:
    holds(conv(depthwise=multiplier, stale_multiplier=stale))


@pytest.mark.parametrize("groups", [1, 2])
def test_05_groups_are_in_the_shape(groups: int) -> None:
    holds(conv(groups=groups, strides=(2, 1)))


# 6. Fully connected layers.


@ways(20, shape=((3, 6), (2, 3, 6), (2, 3, 4), (5, 3, 2, 1)), keep=(False, True), bias=("given", "absent", "none"))
def test_06_rows_and_bias(shape: tuple[int, ...], keep: bool, bias: str) -> None:
    holds(dense(shape, keep=keep and shape[-1] == 6, bias=bias))


def test_06_shuffled_weights_are_refused() -> None:
    net = dense((3, 6), "uint8")
    net.graph.operators[0].builtinOptions.weightsFormat = 1
    with pytest.raises(UnsupportedError, match="shuffled weights"):
        read(net.bytes())


# 7. Full-integer quantization.


@pytest.mark.parametrize("depthwise", [0, 1, 2])
@pytest.mark.parametrize("kind", ["int8", "int16"])
def test_07_a_scale_for_each_channel(kind: str, depthwise: int) -> None:
    holds(conv(kind, VALID, (2, 1), depthwise=depthwise, per_channel=True))


@named("scales_along_an_axis", "requantizations", "quantization", "sixteen_bits", "sixteen_bit_products", "copies")
def test_07_scales(name: str) -> None:
    holds(CASES[name])


def test_07_scales_of_parts_that_are_joined() -> None:
    net = Net()
    parts = [net.input((2, n, 4), "uint8", q=Scale(0.02 * n, 128 + n)) for n in (1, 3, 2)]
    y = net.output((2, 6, 4), "uint8", q=Scale(0.05, 121))
    holds(net.op("CONCATENATION", parts, [y], options("ConcatenationOptions", axis=1), version=2))


@pytest.mark.parametrize("kind", ["int8", "uint8", "int16"])
def test_07_a_border_is_the_zero_point(kind: str) -> None:
    net, q = Net(), {"int8": Scale(0.05, -9), "uint8": Scale(0.05, 99), "int16": Scale(0.001)}[kind]
    x, amounts = net.input((2, 3, 4), kind, q=q), net.const([[1, 0], [0, 2], [1, 1]], "int32")
    holds(net.op("PAD", [x, amounts], [net.output((3, 5, 6), kind, q=q)], version=2))


@pytest.mark.parametrize("stated", [0.7, 1.3, None])
@pytest.mark.parametrize("kind", ["int8", "int16"])
@pytest.mark.parametrize("name", ["CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV"])
def test_07_a_bias_counts_in_steps_of_the_product(name: str, kind: str, stated: float | None) -> None:
    """The kernels add its integers, whatever scale the file gives them: operators with other operands may share it."""
    net, x, w, y = (
        Net(),
        Scale(0.02),
        list(np.float32([0.01, 0.03, 0.02, 0.05])),
        Scale(0.5 if kind == "int8" else 1e-2),
    )
    product = [np.float32(x.scale) * scale for scale in w]
    off = None if stated is None else Scale([stated * scale for scale in product])
    bias = net.const([900, -700, 500, -300], "int32" if kind == "int8" else "int64", q=off)
    if name == "FULLY_CONNECTED":
        operand, axis, shape, out = net.input((3, 20), kind, -900, 900, q=x), 0, (4, 20), (3, 4)
        table = options("FullyConnectedOptions")
    else:
        depthwise = name.startswith("DEPTHWISE")
        operand = net.input((2, 6, 7, 4), kind, -900, 900, q=x)
        axis, shape, out = 3 if depthwise else 0, (1, 2, 3, 4) if depthwise else (4, 2, 3, 4), (2, 5, 5, 4)
        out = (2, 7, 9, 4) if name.startswith("TRANSPOSE") else out
        kind_ = "TransposeConvOptions" if name.startswith("TRANSPOSE") else f"{_camel(name)}Options"
        table = options(kind_, padding=VALID, strideH=1, strideW=1)
    kernel = net.const(rng().integers(-100, 100, shape), "int8", q=Scale(w, 0, axis))
    result = net.output(out, kind, q=y)
    if name == "TRANSPOSE_CONV":
        return holds(net.op(name, [net.const(out, "int32"), kernel, operand, bias], [result], table, version=3))
    return holds(net.op(name, [operand, kernel, bias], [result], table, version=5))


def integer_biases(net: Net) -> list[Any]:
    return [t for t in net.graph.tensors if t.type == schema.TensorType.INT32 and t.quantization is not None]


@pytest.mark.parametrize(
    "name", [n for n, net in CASES.items() if n.startswith(("quantized_lstms", "svdfs")) and integer_biases(net)]
)
def test_07_so_does_that_of_a_gate_or_a_filter(name: str) -> None:
    """Of operand and weights, of what was normalized (in steps of 2^-10) and its weights, of hidden and projection."""
    net = every()[name]
    for tensor in integer_biases(net):
        tensor.quantization.scale = np.asarray(tensor.quantization.scale) * 3000
    holds(net)


# 8. Weights of 8 bits beside real numbers.


def test_08_rows_of_different_ranges() -> None:
    """The runtime rounds each row to 255 steps of its own; one scale for all of them would lose the small one."""
    net, weights = Net(), rng().integers(-90, 90, (5, 6))
    x = net.input((3, 6))
    operands = [x, net.const(weights, "int8", q=Scale(0.05)), net.const(rng().normal(size=5))]
    net.op("FULLY_CONNECTED", operands, [net.output((3, 5))], options("FullyConnectedOptions"), version=3)
    rows = (np.random.default_rng(0).uniform(-1, 1, (3, 6)) * [[0.01], [1], [100]]).astype(np.float32)
    (wanted,) = run_interpreter(interpreter(net.bytes()), [rows])
    (got,) = session(check_model(read(net.bytes()))).run(None, {"t0": rows})
    step = np.ptp(np.append(rows, np.zeros((3, 1)), axis=1), axis=1) / 255
    assert np.all(np.abs(got - wanted) <= step[:, None] * np.abs(weights).sum(1) * 0.05 + 1e-5)


@named("hybrid", "hybrids")
def test_08_convolutions(name: str) -> None:
    holds(CASES[name])


@pytest.mark.parametrize("name", ["CONV_2D", "FULLY_CONNECTED"])
def test_08_bytes_without_a_sign_have_one(name: str) -> None:
    """Old converters call them UINT8 and mean INT8."""
    net, values = Net(), rng().integers(-90, 90, (5, 6))
    net.slack = float(4 / 255 * np.abs(values).sum(1).max() * 0.05)
    data = values.astype(np.int8).view(np.uint8)
    if name == "CONV_2D":
        kernel, x, y = (
            net.const(data.reshape(5, 1, 2, 3), "uint8", q=Scale(0.05)),
            net.input((2, 4, 7, 3)),
            (2, 4, 6, 5),
        )
        table = options("Conv2DOptions", padding=VALID, strideH=1, strideW=1)
    else:
        kernel, x, y = net.const(data, "uint8", q=Scale(0.05)), net.input((3, 6)), (3, 5)
        table = options("FullyConnectedOptions")
    holds(net.op(name, [x, kernel, net.const(rng().normal(size=5))], [net.output(y)], table, version=2))


_RECURRENT = [n for n, net in CASES.items() if n.partition("[")[0] in (
    "rnns", "bidirectional_rnns", "svdfs", "lstms", "single_steps", "bidirectional_lstms"
) and net.slack]  # fmt: skip


@pytest.mark.parametrize("name", _RECURRENT)
def test_08_recurrent_weights_without_a_sign(name: str) -> None:
    net = copy.deepcopy(CASES[name])
    for tensor in net.graph.tensors:
        if tensor.type == schema.TensorType.INT8 and tensor.buffer:
            tensor.type = schema.TensorType.UINT8
    holds(net)


# 9. Compressed constants.


@named("half_weights", "two_bits", "four_bits", "four_bit_kernels", "sparse", "densified")
def test_09_constants(name: str) -> None:
    holds(CASES[name])


def test_09_weights_behind_the_flatbuffer() -> None:
    """A buffer may be a place in the file instead of bytes."""
    net = dense((3, 6))
    buffer = net.model.buffers[net.graph.tensors[net.graph.operators[0].inputs[1]].buffer]
    data, buffer.data = bytes(buffer.data), None
    buffer.offset, buffer.size = 2, len(data)
    place = (len(net.bytes()) + 15) // 16 * 16
    buffer.offset = place
    content = net.bytes()
    assert len(content) <= place
    content = content.ljust(place, b"\0") + data
    for result in compare(content, net.ranges):
        assert result.error <= result.tolerance(False), result


# 10. Softmax and norms.


@pytest.mark.parametrize("shape", [(7,), (3, 5), (2, 3, 4, 5), (2, 3, 2, 2, 6)])
@pytest.mark.parametrize("beta", [1.0, 0.3, 2.5])
def test_10_softmax_of_beta_times_x(shape: tuple[int, ...], beta: float) -> None:
    net = Net()
    holds(net.op("SOFTMAX", [net.input(shape)], [net.output(shape)], options("SoftmaxOptions", beta=beta)))


@pytest.mark.parametrize("largest", [1.0, 1e-6, 1e-9])
def test_10_a_length_has_a_floor(largest: float) -> None:
    net = Net()
    x = net.input((3, 4, 5), low=-largest, high=largest)
    holds(net.op("L2_NORMALIZATION", [x], [net.output((3, 4, 5))], options("L2NormOptions")))


@named("norms", "parametrized", "prelu")
def test_10_norms(name: str) -> None:
    holds(CASES[name])


# 11. Strided slices and others.


@pytest.mark.parametrize("seed", range(60))
def test_11_masks(seed: int) -> None:
    """Random specifications of a tensor of rank 4: masks speak of positions, not of axes."""
    random = np.random.default_rng(seed)
    extents = (5, 6, 7, 4)
    count = int(random.integers(1, 5))
    ellipsis = int(random.integers(0, count)) if random.random() < 0.4 else -1
    new = 1 << int(random.integers(0, count)) if random.random() < 0.4 else 0
    new = 0 if ellipsis >= 0 and new == 1 << ellipsis else new
    begin, end, strides = (random.integers(low, high, count) for low, high in ((-3, 3), (-4, 5), (-2, 3)))
    strides[strides == 0] = 1
    shrink = int(random.integers(0, 1 << count)) & ~new if random.random() < 0.5 else 0
    shrink &= ~(1 << ellipsis) if ellipsis >= 0 else ~0
    masks = _masks(random, count, shrink, ellipsis, new)
    strides[[bool(shrink >> i & 1) for i in range(count)]] = 1
    net = Net()
    x, bounds = net.input(extents), [net.const(v, "int32") for v in (begin, end, strides)]
    net.op("STRIDED_SLICE", [x, *bounds], [net.output(())], options("StridedSliceOptions", **masks), version=4)
    net.graph.tensors[net.graph.outputs[0]].shape = shape = _result_shape(net)
    if len(shape) <= 6:
        holds(net)


def _masks(random: np.random.Generator, count: int, shrink: int, ellipsis: int, new: int) -> dict[str, int]:
    begin, end = (int(v) & ~shrink for v in random.integers(0, 1 << count, 2))
    return {
        "beginMask": begin,
        "endMask": end,
        "ellipsisMask": 1 << ellipsis if ellipsis >= 0 else 0,
        "newAxisMask": new,
        "shrinkAxisMask": shrink,
    }


def _result_shape(net: Net) -> list[int]:
    made = interpreter(net.bytes())
    return [int(d) for d in made.get_output_details()[0]["shape"]]


@named("slices", "strided_slices", "splits", "gathers", "one_hot", "extremes", "shapes", "joins")
def test_11_indices(name: str) -> None:
    holds(CASES[name])


# 12. Space operators, borders.


@named("batches", "depth", "pads", "borders")
def test_12_blocks_and_borders(name: str) -> None:
    holds(CASES[name])


@pytest.mark.parametrize("mode", [0, 1])
def test_12_a_mirror_with_or_without_its_edge(mode: int) -> None:
    net = Net()
    operands = [net.input((3, 4, 5)), net.const([[1, 2], [2, 0], [3, 1]], "int32")]
    holds(net.op("MIRROR_PAD", operands, [net.output((6, 6, 9))], options("MirrorPadOptions", mode=mode)))


@pytest.mark.parametrize("name", ["open blocks", "open blocks, computed margins"])
def test_12_blocks_of_open_extents(name: str) -> None:
    build, sizes = OPEN[name]
    for size in sizes:
        holds(build(), resize={0: size})


BYTE = {"float32": None, "int8": Scale(0.05, -9), "uint8": Scale(0.05, 0)}


def bordered(
    name: str,
    kind: str,
    padding: int,
    around: Any,
    *,
    open_: bool = False,
    value: float | None = None,
    before: Any = None,
) -> Net:
    """PAD, then windows of 3 x 2 elements over `n h w c`; `value` makes it PADV2, `before` is another PAD."""
    net, q, n, (h, w), c = Net(), BYTE[kind], 2, (9, 11), 4
    signature = {"signature": (-1, -1, -1, c)} if open_ else {}
    grown = [e + sum(amounts) for e, amounts in zip((h, w), around, strict=True)]
    extents = [-(-e // 2) if padding == SAME else (e - k) // 2 + 1 for e, k in zip(grown, (3, 2), strict=True)]
    inner = (h, w) if before is None else [e - sum(amounts) for e, amounts in zip((h, w), before, strict=True)]
    x = net.input((n, *inner, c), kind, *((-3, -1) if q is None else (-2, 2)), q=q, **signature)
    if before is not None:
        source, x = x, net.tensor((n, h, w, c), kind, q=q, **signature)
        net.op("PAD", [source, net.const([[0, 0], *before, [0, 0]], "int32")], [x], version=2)
    middle = net.tensor((n, *grown, c), kind, q=q, **signature)
    amounts = net.const([[0, 0], *around, [0, 0]], "int32")
    if value is None:
        net.op("PAD", [x, amounts], [middle], version=2)
    else:
        net.op("PADV2", [x, amounts, net.const(np.array(value), kind, q=q)], [middle], version=2)
    more = {"padding": padding, "strideH": 2, "strideW": 2}
    depth = 5 if name == "CONV_2D" else c
    after = Scale(0.4, 7) if q is not None and name.endswith("CONV_2D") else q
    y = net.output((n, *extents, depth), kind, q=after, **({"signature": (-1, -1, -1, depth)} if open_ else {}))
    if name.endswith("POOL_2D"):
        return net.op(name, [middle], [y], options("Pool2DOptions", filterHeight=3, filterWidth=2, **more))
    shape = (5, 3, 2, c) if name == "CONV_2D" else (1, 3, 2, c)
    zero = 120 if kind == "uint8" else 0
    kernel = rng().normal(size=shape) if q is None else rng().integers(-100, 100, shape) + zero
    kernel = net.const(kernel, kind, q=None if q is None else Scale(0.01, zero))
    bias = net.const(rng().integers(-50, 50, depth), "float32" if q is None else "int32", q=q and Scale(q.scale * 0.01))
    return net.op(name, [middle, kernel, bias], [y], options(f"{_camel(name)}Options", **more), version=3)


def _camel(name: str) -> str:
    return "DepthwiseConv2D" if name.startswith("DEPTHWISE") else "Conv2D"


SLIDING = ("CONV_2D", "DEPTHWISE_CONV_2D", "AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D")


def converted(net: Net, path: Path, resize: dict[int, tuple[int, ...]] | None = None) -> tuple[list[str], float]:
    """Operators of the whole conversion, and how far what it computes is from the interpreter's results."""
    path.write_bytes(net.bytes())
    model = relayout.convert(path).proto
    made = interpreter(net.bytes(), resize=resize)
    inputs = [
        feed(rng(1), tuple(d["shape"]), d["dtype"], *r)
        for d, r in zip(made.get_input_details(), net.ranges, strict=True)
    ]
    wanted = run_interpreter(made, inputs)
    got = session(model.SerializeToString()).run(None, {f"t{i}": x for i, x in enumerate(inputs)})
    far = max(float(np.abs(a.astype(float) - b).max()) for a, b in zip(got, wanted, strict=True))
    return [node.op_type for node in model.graph.node], far


@pytest.mark.parametrize("open_", [False, True])
@pytest.mark.parametrize("kind", BYTE)
@pytest.mark.parametrize("name", SLIDING)
def test_12_a_border_becomes_an_attribute(name: str, kind: str, open_: bool, tmp_path: Path) -> None:
    if name == "L2_POOL_2D" and kind != "float32":
        pytest.skip("there is no such kernel")
    net = bordered(name, kind, VALID, [[1, 2], [1, 0]], open_=open_)
    operators, far = converted(net, tmp_path / "model.tflite", {0: (3, 8, 13, 4)} if open_ else None)
    assert far <= (1e-4 if kind == "float32" else 1)
    # A maximum's own border is below all, and that of a PAD is 0: the same where nothing is below 0.
    assert ("Pad" in operators) == (name == "MAX_POOL_2D" and kind != "uint8")


@pytest.mark.parametrize("kind", ["float32", "int8"])
@pytest.mark.parametrize(
    ("padding", "around", "value"),
    [
        (SAME, [[1, 2], [1, 0]], None),  # a border of the windows' own around it
        (VALID, [[3, 0], [0, 1]], None),  # as long as a window
        (VALID, [[1, 1], [1, 1]], 5),  # of another number than 0
    ],
)
@pytest.mark.parametrize("name", SLIDING[:4])
def test_12_a_border_that_stays(
    name: str, padding: int, around: Any, value: float | None, kind: str, tmp_path: Path
) -> None:
    net = bordered(name, kind, padding, around, value=value)
    operators, far = converted(net, tmp_path / "model.tflite")
    assert far <= (1e-4 if kind == "float32" else 1)
    assert "Pad" in operators


@pytest.mark.parametrize("zero", [True, False])
def test_12_a_border_with_a_value(zero: bool, tmp_path: Path) -> None:
    """The integer -9 is the real number 0 here; the integer 0 is not."""
    net = bordered("CONV_2D", "int8", VALID, [[1, 1], [1, 1]], value=-9 if zero else 0)
    operators, far = converted(net, tmp_path / "model.tflite")
    assert far <= 1
    assert ("Pad" in operators) != zero


@pytest.mark.parametrize("kind", BYTE)
@pytest.mark.parametrize("name", SLIDING)
def test_12_a_border_around_a_border(name: str, kind: str, tmp_path: Path) -> None:
    """Of both ONNX Runtime makes one when it loads a model, and a pool has none as long as its window."""
    if name == "L2_POOL_2D" and kind != "float32":
        pytest.skip("there is no such kernel")
    net = bordered(name, kind, VALID, [[2, 1], [1, 1]], before=[[1, 0], [0, 1]])
    _, far = converted(net, tmp_path / "model.tflite")
    assert far <= (1e-4 if kind == "float32" else 1)


def test_12_a_border_that_others_read(tmp_path: Path) -> None:
    net = bordered("MAX_POOL_2D", "float32", VALID, [[1, 1], [1, 1]])
    (y,) = net.graph.outputs
    net.op("NEG", [1], [net.output((2, 11, 13, 4))])
    assert y != 1
    operators, far = converted(net, tmp_path / "model.tflite")
    assert far <= 1e-6
    assert "Pad" in operators


@pytest.mark.parametrize("fused", ["RELU", "RELU_N1_TO_1"])
def test_12_a_border_around_what_a_convolution_gives(fused: str, tmp_path: Path) -> None:
    """As ResNets begin: behind a RELU nothing is below 0, and the border is the maximum's own."""
    net = Net()
    x, y = net.input((2, 8, 9, 3)), net.output((2, 4, 5, 4))
    one, two = net.tensor((2, 8, 9, 4)), net.tensor((2, 10, 11, 4))
    kernel, bias = net.const(rng().normal(size=(4, 3, 3, 3))), net.const(rng().normal(size=4))
    activation = ActivationFunctionType[fused]
    sliding = options("Conv2DOptions", padding=SAME, strideH=1, strideW=1, fusedActivationFunction=activation)
    net.op("CONV_2D", [x, kernel, bias], [one], sliding)
    net.op("PAD", [one, net.const([[0, 0], [1, 1], [1, 1], [0, 0]], "int32")], [two])
    window = options("Pool2DOptions", padding=VALID, strideH=2, strideW=2, filterHeight=3, filterWidth=3)
    operators, far = converted(net.op("MAX_POOL_2D", [two], [y], window), tmp_path / "model.tflite")
    assert far <= 1e-4
    assert ("Pad" in operators) == (fused != "RELU")


# 13. Shapes.


@pytest.mark.parametrize(
    ("operand", "option", "shape"),
    [([4, 6], [9, 9], (4, 6)), (None, [4, 6], (4, 6)), ([-1, 3], None, (8, 3)), ([[2, 12]], None, (2, 12))],
)
def test_13_where_the_target_of_a_reshape_stands(operand: Any, option: Any, shape: tuple[int, ...]) -> None:
    net = Net()
    operands = [net.input((2, 3, 4))] + ([net.const(operand, "int32")] if operand is not None else [])
    table = options("ReshapeOptions", newShape=option) if option else options("ReshapeOptions")
    net.op("RESHAPE", operands, [net.output(shape)], table)
    if np.ndim(operand or []) == 2:  # LiteRT reads its first extent only
        (output,) = read(net.bytes()).graph.outputs
        assert output.shape == list(shape)
        return
    holds(net)


def test_13_an_old_scalar() -> None:
    net = Net()
    holds(net.op("RESHAPE", [net.input((1, 1))], [net.output(())], options("ReshapeOptions", newShape=[0])))


@pytest.mark.parametrize(
    "shapes", [((2, 3, 4, 5), (4, 5)), ((5, 4), (2, 3, 5, 4)), ((3, 1, 1), (2, 1, 4, 5)), ((), (3, 4))]
)
@pytest.mark.parametrize("name", ["ADD", "SUB", "MUL", "SQUARED_DIFFERENCE"])
def test_13_broadcasting_from_the_right(name: str, shapes: Any) -> None:
    net = Net()
    table = None if name == "SQUARED_DIFFERENCE" else options(_WITH_ACTIVATION[name])
    y = net.output(np.broadcast_shapes(*shapes))
    holds(net.op(name, [net.input(shapes[0]), net.const(rng().normal(size=shapes[1]))], [y], table))


@pytest.mark.parametrize("name", ["flatten", "heads", "left over", "tokens", "filled"])
def test_13_a_placeholder_is_no_extent(name: str) -> None:
    build, sizes = OPEN[name]
    for size in sizes:
        holds(build(), resize={0: size})


# 14. What a file says about itself.


def test_14_names_may_be_empty_or_the_same() -> None:
    net = Net()
    a, b = (net.input((3, 4), name=name) for name in ("x", "x"))
    total, twice = net.tensor((3, 4), name=""), net.output((3, 4), name="x")
    net.op("SUB", [a, b], [total], options("SubOptions"))
    net.op("ADD", [total, total], [twice], options("AddOptions"))
    net.graph.outputs += [a, net.const(rng().normal(size=(2,)), name="x"), twice]
    model = read(net.bytes())
    names = [v.name for v in (*model.graph.inputs, *model.graph.outputs)]
    assert len(set(names)) == len(names) == 6
    inputs = [rng(i).normal(size=(3, 4)).astype(np.float32) for i in range(2)]
    wanted = run_interpreter(interpreter(net.bytes()), inputs)
    got = session(check_model(model)).run(None, dict(zip(names, inputs, strict=False)))
    for x, y in zip(got, wanted, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-6)


def test_14_the_signature_has_the_names() -> None:
    net = Net()
    x, y = net.input((2, 3), name="serving_x:0"), net.output((2, 3), name="call:0")
    net.op("EXP", [x], [y]).sign({"img": x}, {"prob": y})
    model = read(net.bytes())
    assert [v.name for v in (*model.graph.inputs, *model.graph.outputs)] == ["img", "prob"]


def test_14_the_larger_of_two_codes() -> None:
    """Operators above 127 have their number in the second field, older files in the first alone."""
    net = Net()
    net.op("GELU", [net.input((2, 3))], [net.output((2, 3))], options("GeluOptions", approximate=True))
    holds(net)
    net = Net()
    net.op("EXP", [net.input((2, 3))], [net.output((2, 3))])
    net.model.operatorCodes[0].builtinCode = 0
    holds(net)


# 15. State and control flow.


@pytest.mark.parametrize(
    "how",
    [{}, {"time_major": True}, {"cifg": True}, {"peephole": True}, {"clip": 0.3}, {"projection": 3},
     {"normalized": True},
     {"peephole": True, "cifg": True, "projection": 5, "projection_clip": 0.4}],
    ids=str,
)  # fmt: skip
def test_15_lstm(how: Any) -> None:
    holds(lstm(**how))


def test_15_state_persists() -> None:
    """Three runs: with the state as inputs and outputs each goes on where the one before it ended."""
    net = lstm()
    made, ours = interpreter(net.bytes()), read(net.bytes(), state="io")
    run, names = session(check_model(ours)), [v.name for v in ours.graph.inputs]
    held: dict[str, Any] = {
        name: np.full(
            [int(d) for d in v.shape or ()], json.loads(v.metadata_props.get("relayout.initial", "0")), np.float32
        )
        for name, v in zip(names[1:], ours.graph.inputs[1:], strict=True)
    }
    outputs = []
    for seed in range(3):
        x = np.random.default_rng(seed).normal(size=made.get_input_details()[0]["shape"]).astype(np.float32)
        (wanted,) = run_interpreter(made, [x])
        got, *after = run.run(None, {names[0]: x, **held})
        held = dict(zip(held, after, strict=True))
        np.testing.assert_allclose(got, wanted, atol=1e-5)
        outputs.append(wanted)
    assert np.abs(outputs[1] - outputs[0]).max() > 0.01


@named("ifs", "loops", "nested_ifs", "nested_loops", "swaps", "variables_inside")
def test_15_control_flow(name: str) -> None:
    holds(CASES[name])


# 16. Layouts: what becomes of the axes behind a convolution, decided by the optimiser.


def after_convolution(name: str) -> Net:
    net = Net()
    x, q = net.input((2, 7, 9, 3)), net.const(rng().normal(size=(6, 3, 2, 3)))
    y = net.tensor((2, 5, 8, 6))
    table = options("Conv2DOptions", padding=VALID, strideH=1, strideW=1)
    net.op("CONV_2D", [x, q, net.const(rng().normal(size=6))], [y], table)

    def ints(values: Any) -> int:
        return net.const(values, "int32")

    if name in ("MEAN", "SUM"):
        return net.op(name, [y, ints([1])], [net.output((2, 8, 6))], options("ReducerOptions", keepDims=False))
    if name == "ARG_MAX":
        table = options("ArgMaxOptions", outputType=2)
        return net.op(name, [y, ints(3)], [net.output((2, 5, 8), "int32")], table)
    if name == "TRANSPOSE":
        return net.op(name, [y, ints([3, 0, 2, 1])], [net.output((6, 2, 8, 5))])
    if name == "RESHAPE":
        return net.op(name, [y, ints([10, 48])], [net.output((10, 48))], options("ReshapeOptions"))
    if name == "FULLY_CONNECTED":
        weights = net.const(rng().normal(size=(4, 240)))
        return net.op(name, [y, weights, -1], [net.output((2, 4))], options("FullyConnectedOptions"))
    if name == "PACK":
        return net.op(name, [y, y], [net.output((2, 5, 2, 8, 6))], options("PackOptions", axis=2, valuesCount=2))
    if name in ("SOFTMAX", "L2_NORMALIZATION"):
        kind = "SoftmaxOptions" if name == "SOFTMAX" else "L2NormOptions"
        return net.op(name, [y], [net.output((2, 5, 8, 6))], options(kind))
    if name == "PRELU":
        return net.op(name, [y, net.const(rng().normal(size=(8, 6)))], [net.output((2, 5, 8, 6))])
    if name == "ADD":
        return net.op(
            name, [y, net.const(rng().normal(size=(8, 6)))], [net.output((2, 5, 8, 6))], options("AddOptions")
        )
    if name == "CONCATENATION":
        other = net.const(rng().normal(size=(2, 5, 8, 4)))
        return net.op(name, [y, other], [net.output((2, 5, 8, 10))], options("ConcatenationOptions", axis=-1))
    if name == "SPLIT":
        return net.op(
            name, [ints(3), y], [net.output((2, 5, 8, 3)) for _ in range(2)], options("SplitOptions", numSplits=2)
        )
    if name == "GATHER":
        return net.op(name, [y, ints([5, 0, 2])], [net.output((2, 5, 8, 3))], options("GatherOptions", axis=3))
    if name == "STRIDED_SLICE":
        bounds = [ints([0, 1, 0, 0]), ints([2, 2, 8, 6]), ints([1, 1, 3, 2])]
        return net.op(name, [y, *bounds], [net.output((2, 3, 3))], options("StridedSliceOptions", shrinkAxisMask=2))
    assert name == "PAD"
    return net.op(name, [y, ints([[0, 0], [1, 0], [0, 2], [3, 0]])], [net.output((2, 6, 10, 9))])


BEHIND = ("MEAN", "SUM", "ARG_MAX", "TRANSPOSE", "RESHAPE", "FULLY_CONNECTED", "PACK", "SOFTMAX", "L2_NORMALIZATION",
          "PRELU",
          "ADD", "CONCATENATION", "SPLIT", "GATHER", "STRIDED_SLICE", "PAD")  # fmt: skip


@pytest.mark.parametrize("name", BEHIND)
def test_16_behind_a_convolution(name: str, tmp_path: Path) -> None:
    net = after_convolution(name)
    path = tmp_path / "model.tflite"
    path.write_bytes(net.bytes())
    x = rng(1).normal(size=(2, 7, 9, 3)).astype(np.float32)
    wanted = run_interpreter(interpreter(net.bytes()), [x])
    got = session(relayout.convert(path).proto.SerializeToString()).run(None, {"t0": x})
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


# 17. Integers.


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(("FLOOR_DIV", kind) for kind in ("int8", "int16", "int32")),
        *(("FLOOR_MOD", kind) for kind in ("int8", "int16", "int32", "int64")),
        ("DIV", "int32"),
    ],
)
def test_17_division_of_negative_numbers(name: str, kind: str) -> None:
    for low, high in ((-7, -1), (1, 7)):
        net = Net()
        operands = [net.input((5, 40), kind, -50, 50), net.input((40,), kind, low, high)]
        table = options("DivOptions") if name == "DIV" else None
        holds(net.op(name, operands, [net.output((5, 40), kind)], table, version=3 if name == "FLOOR_DIV" else 2))


def test_17_halves_go_to_the_even_number() -> None:
    net = Net()
    net.op("ROUND", [net.input((9,))], [net.output((9,))])
    halves = (np.arange(-4, 5) + 0.5).astype(np.float32)
    (wanted,) = run_interpreter(interpreter(net.bytes()), [halves])
    (got,) = session(check_model(read(net.bytes()))).run(None, {"t0": halves})
    assert np.array_equal(got, wanted)


@pytest.mark.parametrize("kind", ["int8", "int16", "int32", "uint8", "uint16", "uint32"])
def test_17_shifts_keep_the_sign(kind: str) -> None:
    net = Net()
    info = np.iinfo(kind)
    operands = [net.input((5, 40), kind, info.min, info.max), net.input((40,), kind, 0, 6)]
    holds(net.op("RIGHT_SHIFT", operands, [net.output((5, 40), kind)]))


@named("suppressions", "detections", "counted_segments")
def test_17_boxes(name: str) -> None:
    holds(CASES[name])


def test_every_trap_has_a_test() -> None:
    numbers = {name[5:7] for name in globals() if name.startswith("test_") and name[5:7].isdigit()}
    assert numbers == {f"{i:02}" for i in range(1, 18)}


@pytest.mark.parametrize("bits", [-1, 1, 17, 200, 5000])
def test_steps_of_bits_that_nobody_quantizes_to_are_refused(bits: int) -> None:
    """Two to the power of a damaged number is no float."""
    net = Net()
    table = options("FakeQuantOptions", min=-1.0, max=1.0, numBits=bits)
    net.op("FAKE_QUANT", [net.input((2, 3))], [net.output((2, 3))], table)
    with pytest.raises(ReadError, match=f"{bits} bits between"):
        read(net.bytes())
