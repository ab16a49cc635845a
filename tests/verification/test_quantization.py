"""Signal to noise of a quantized model against its float source: what is measured, what is an alarm, what is listed."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import numpy_helper, parser

import relayout
from relayout.cli.entry import cli
from relayout.errors import RelayoutError
from relayout.verification import QuantizationLoss, quantization_loss, verify
from relayout.verification.compare import Spread, top1_agreement
from relayout.verification.side import Precision, open_side

MODELS = Path(__file__).parents[2] / "models"
FLOAT = """
    <ir_version: 10, opset_import: ["" : 21]>
    g (float[1,3,8,8] x) => (float[1,4] scores) {
        a = Conv<pads=[1,1,1,1]>(x, w)
        r = Relu(a)
        m = GlobalAveragePool(r)
        f = Flatten(m)
        scores = MatMul(f, v)
    }
"""
QDQ = """
    <ir_version: 10, opset_import: ["" : 21]>
    g (float[1,3,8,8] x) => (float[1,4] scores) {
        xi = QuantizeLinear(x, xs, xz)
        xd = DequantizeLinear(xi, xs, xz)
        wd = DequantizeLinear(wi, ws)
        a = Conv<pads=[1,1,1,1]>(xd, wd)
        r = Relu(a)
        ri = QuantizeLinear(r, rs, rz)
        rd = DequantizeLinear(ri, rs, rz)
        m = GlobalAveragePool(rd)
        f = Flatten(m)
        scores = MatMul(f, v)
    }
"""
RNG = np.random.default_rng(3)
KERNEL = RNG.normal(size=(4, 3, 3, 3)).astype(np.float32)
PRODUCT = RNG.normal(size=(4, 4)).astype(np.float32)


def model(text: str, **constants: Any) -> bytes:
    proto = parser.parse_model(text)
    for name, array in constants.items():
        proto.graph.initializer.append(numpy_helper.from_array(array, name))
    return bytes(proto.SerializeToString())


def float_model() -> bytes:
    return model(FLOAT, w=KERNEL, v=PRODUCT)


def quantized(activation: float = 8 / 255, kernel: float = 1.0) -> bytes:
    scale = np.float32(np.abs(KERNEL).max() / 127)
    return model(
        QDQ,
        v=PRODUCT,
        wi=np.rint(kernel * KERNEL / scale).clip(-127, 127).astype(np.int8),
        ws=scale,
        xs=np.float32(2 / 255),
        xz=np.int8(0),
        rs=np.float32(activation),
        rz=np.int8(-128),
    )


def test_eight_bits_cost_tens_of_decibels_and_say_what_stays_in_float() -> None:
    loss = quantization_loss(float_model(), quantized())
    assert loss.ok
    (scores,) = loss.outputs
    assert scores.decibels is not None
    assert 25 < scores.decibels < 70
    assert scores.agreement == 1.0
    assert {row.name for row in loss.rows} == {"a", "r", "m", "f", "scores"}
    assert loss.in_float == {"GlobalAveragePool": ("m",), "Flatten": ("f",), "MatMul": ("scores",)}
    assert loss.verdict.startswith("PASSED: 1 output with a signal to noise of ")


def test_a_clipped_activation_is_an_alarm_and_the_worst_tensor_is_where_it_happens() -> None:
    loss = quantization_loss(float_model(), quantized(activation=0.1 / 255))
    assert not loss.ok
    assert "below 10 dB; most is lost at 'm'" in loss.verdict  # `a` and `r` are seen before they are rounded
    assert loss.worst[0].name == "m"
    assert loss.worst[0].lost > 30


def test_a_kernel_twice_as_large_is_an_alarm() -> None:
    loss = quantization_loss(float_model(), quantized(kernel=-1.0))
    assert not loss.ok
    assert loss.worst[0].name == "a"


def test_samples_are_given_one_by_one_and_their_powers_add_up() -> None:
    samples = [{"x": np.full((1, 3, 8, 8), value, np.float32)} for value in (0.2, -0.7, 0.9)]
    loss = quantization_loss(float_model(), quantized(), inputs=iter(samples))
    plain = quantization_loss(float_model(), quantized(), inputs=[sample["x"] for sample in samples])
    assert plain.worst == loss.worst
    assert loss.samples == 3
    assert loss.ok
    with pytest.raises(RelayoutError, match="no input is called 'y'"):
        quantization_loss(float_model(), quantized(), inputs=[{"y": samples[0]["x"]}])


def test_random_inputs_lie_in_the_range_of_the_quantizer() -> None:
    """What lies beyond is clipped, which is the fault of the input, and not of the model."""
    narrow = quantization_loss(float_model(), quantized())
    (wide,) = quantization_loss(
        float_model(), quantized(), inputs={"x": RNG.uniform(-5, 5, (1, 3, 8, 8)).astype(np.float32)}
    ).outputs
    assert narrow.outputs[0].decibels is not None
    assert wide.decibels is not None
    assert wide.decibels < narrow.outputs[0].decibels - 10


def test_a_limit_of_ones_own() -> None:
    assert not quantization_loss(float_model(), quantized(), limit=90.0).ok
    assert quantization_loss(float_model(), quantized(kernel=-1.0), limit=0.0).limit == 0.0


@pytest.mark.parametrize("precision", ["int8", "dynamic", "float16"])
def test_networks_of_the_converter(precision: str) -> None:
    loss = quantization_loss(MODELS / "tinynet_float.tflite", MODELS / f"tinynet_{precision}.tflite")
    assert loss.ok
    assert len(loss.rows) in (13, 14)
    assert len(loss.worst) <= 5
    assert loss.in_float == {}
    assert loss.limit == (30 if precision == "float16" else 10)


def test_verify_of_a_float_model_and_a_quantized_one_measures() -> None:
    report = verify(float_model(), quantized())
    assert report.ok
    assert isinstance(report.loss, QuantizationLoss)
    text = str(report)
    assert "signal to noise" in text
    assert "computed in float: 1 GlobalAveragePool, 1 Flatten, 1 MatMul" in text
    found = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert found["quantization"]["outputs"][0]["decibels"] > 25
    assert verify(quantized(), quantized()).loss is None
    assert verify(float_model(), float_model()).loss is None


def test_noise_fails_on_the_command_line(tmp_path: Path) -> None:
    for name, content in (("float.onnx", float_model()), ("int8.onnx", quantized(activation=0.1 / 255))):
        (tmp_path / name).write_bytes(content)
    verify_both = ["verify", str(tmp_path / "float.onnx"), str(tmp_path / "int8.onnx")]
    ran = CliRunner().invoke(cli, verify_both)
    assert ran.exit_code == 1
    assert "FAILED: output 'scores' has a signal to noise of" in ran.output
    ran = CliRunner().invoke(cli, [*verify_both, "--repro", str(tmp_path / "part")])
    assert "every operator of a quantized file loses a part of the signal" in ran.output


def test_an_exact_output_is_infinite_and_null_in_json() -> None:
    text = '<ir_version: 10, opset_import: ["" : 21]> g (float[2,4] x) => (float[2,4] y, int64[2] z) '
    body = "{ y = Relu(x)  z = ArgMax<axis=1, keepdims=0>(x) }"
    halves = (
        "{ xi = QuantizeLinear(x, s, p)  xd = DequantizeLinear(xi, s, p)"
        "  y = Relu(x)  z = ArgMax<axis=1, keepdims=0>(xd) }"
    )
    scale = {"s": np.float32(1 / 64), "p": np.int8(0)}
    loss = quantization_loss(model(text + body), model(text + halves, **scale))
    y, z = loss.outputs
    assert y.decibels == math.inf
    assert y.to_dict()["decibels"] is None
    assert y.to_dict()["exact"]
    assert z.decibels is None
    assert z.agreement == 1.0


def test_another_shape_is_a_failure() -> None:
    other = onnx.load_from_string(quantized())
    other.graph.node[-1].op_type, other.graph.node[-1].input[1] = "Concat", "f"
    attribute = other.graph.node[-1].attribute.add()
    attribute.name, attribute.type, attribute.i = "axis", onnx.AttributeProto.INT, 1
    other.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 8
    loss = quantization_loss(float_model(), other.SerializeToString())
    assert not loss.ok
    assert "its shape is [1, 8], and [1, 4] in the source" in loss.verdict


def test_the_best_class_counts_also_where_another_is_as_good() -> None:
    a = np.array([[1.0, 2.0, 0.0], [3.0, 1.0, 0.0]])
    assert top1_agreement(a, np.array([[0, 1, 1], [0, 0, 1]])) == (1, 2)
    assert top1_agreement(a[0], a[0]) is None
    assert top1_agreement(a[:, :1], a[:, :1]) is None


LOOP = """
    <ir_version: 10, opset_import: ["" : 21]>
    g (float[1,16] x, int64 n) => (float[1,16] y)
    <bool always = {1}, float step = {0.1}, int8 zero = {0}> {
        y = Loop(n, always, x) <body = turn (int64 i, bool c, float[1,16] s) => (bool d, float[1,16] t) {
            d = Identity(c)
            q = QuantizeLinear(s, step, zero)
            r = DequantizeLinear(q, step, zero)
            t = Tanh(r) }>
    }
"""


def test_integers_in_a_body_are_those_of_the_model() -> None:
    """A model that quantizes in a loop alone is no float model: its result is judged, and not measured."""
    loop = parser.parse_model(LOOP)
    result = relayout.convert(loop, format="tflite").tflite
    feed = {"n": np.array(2, np.int64)}
    for report in (verify(loop, result, inputs=feed), verify(result, loop, inputs={"n": np.array(2, np.int32)})):
        assert report.loss is None
        assert report.ok
    with open_side(result) as side:
        assert side.precision is Precision.QUANTIZED


BYTES_AND_WORDS = """
    <ir_version: 10, opset_import: ["" : 21]>
    g (float[1,4,4,6] x) => (float[1,1,4,6] y)
    <float step = {0.0235}, uint8 zero = {128}, int64[1] channels = {1}, float fine = {0.00002}, int16 none = {0}> {
        a = QuantizeLinear(x, step, zero)
        b = DequantizeLinear(a, step, zero)
        c = ReduceMean(b, channels)
        d = QuantizeLinear(c, step, zero)
        e = DequantizeLinear(d, step, zero)
        f = Tanh(e)
        h = QuantizeLinear(f, fine, none)
        y = DequantizeLinear(h, fine, none)
    }
"""


def test_an_input_of_bytes_moves_by_its_step_also_beside_words() -> None:
    """A MEAN that rounds a tie the other way is within the source's own spread, whatever type comes later."""
    source = parser.parse_model(BYTES_AND_WORDS)
    result = relayout.convert(source, format="tflite").tflite
    with open_side(source.SerializeToString()) as left, open_side(result) as right:
        assert right.levels == 65535
        spread = Spread(left, [], right)
        feeds = {"x": np.random.default_rng(0).normal(size=(1, 4, 4, 6)).astype(np.float32)}
        values = left.runner().run(feeds, ["y"])
        assert 0.01 < spread.of(values, feeds)["y"].max_abs < 0.1
    assert verify(source, result, runs=4).ok


JOINED = """
    <ir_version: 10, opset_import: ["" : 21]>
    g (float[n,2] x) => (float[n,5] y) {
        boxes = MatMul(x, large)
        scores = Sigmoid(x)
        END
    }
"""
LARGE = np.array([[900, -700, 300], [-200, 800, 600]], np.float32)
IN_ONE_SCALE = "j = Concat<axis=1>(boxes, scores) q = QuantizeLinear(j, s, z) y = DequantizeLinear(q, s, z)"


def test_a_part_that_one_scale_loses_is_an_alarm_beside_a_large_one() -> None:
    """The boxes are all of the signal; samples may have different extents."""
    one = model(JOINED.replace("END", "y = Concat<axis=1>(boxes, scores)"), large=LARGE)
    other = model(JOINED.replace("END", IN_ONE_SCALE), large=LARGE, s=np.float32(20), z=np.int8(0))
    samples = [{"x": RNG.normal(size=(count, 2)).astype(np.float32)} for count in (40, 24)]
    loss = quantization_loss(one, other, inputs=samples)
    (output,) = loss.outputs
    assert output.decibels is not None
    assert output.decibels > 30
    assert output.quiet_part is not None
    assert (output.quiet_part.begin, output.quiet_part.end) == (3, 5)
    assert "a signal to noise of 0.0 dB in elements 3 to 4 of axis 1, below 10 dB" in loss.verdict
    assert loss.to_dict()["outputs"][0]["quiet_part"] == {"axis": 1, "begin": 3, "end": 5, "decibels": 0.0}
    apart = "t = QuantizeLinear(scores, u, z) r = DequantizeLinear(t, u, z) y = Concat<axis=1>(boxes, r)"
    close = model(JOINED.replace("END", apart), large=LARGE, u=np.float32(1 / 127), z=np.int8(0))
    assert quantization_loss(one, close, inputs=samples).ok
