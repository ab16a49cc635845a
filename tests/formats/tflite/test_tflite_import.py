"""What an imported model looks like: names, units of quantization, edges of the graph."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from tflite_cases_matrix import dense
from tflite_cases_spatial import conv, pools, resizes
from tflite_running import FAST, agree, check_model, compare, read, session
from tflite_writing import Net, Scale, options

import relayout
from relayout.formats.tflite.container.loading import load
from relayout.formats.tflite.importing.operators import convolution, pooling, resize
from relayout.formats.tflite.importing.registry import entries, operator

SOURCE = Path(__file__).parents[3] / "src"


def types(model: ir.Model) -> list[str]:
    return [node.op_type for node in model.graph]


def chain() -> Net:
    """conv - relu6 - conv, quantized, the middle one read twice."""
    net = Net()
    q = Scale(6 / 255, -128)
    x = net.input((1, 6, 5, 3), "int8", q=Scale(0.04, 3), name="image")
    kernel = net.const(np.ones((4, 1, 1, 3)), "int8", q=Scale([0.1, 0.2, 0.3, 0.4]), name="kernel")
    bias = net.const(np.zeros(4), "int32", q=Scale([0.004, 0.008, 0.012, 0.016]), name="bias")
    middle = net.tensor((1, 6, 5, 4), "int8", q=q, name="middle")
    table = options("Conv2DOptions", strideH=1, strideW=1, fusedActivationFunction=3)
    net.op("CONV_2D", [x, kernel, bias], [middle], table, version=3)
    y = net.output((1, 6, 5, 4), "int8", q=Scale(0.1, 0), name="sum")
    return net.op("ADD", [middle, middle], [y], options("AddOptions"), version=2)


def test_quantized_operators_are_units() -> None:
    model, tuned = read(chain().bytes()), read(chain().bytes(), target=FAST)
    # RELU6 leaves no trace: the result's integers reach from 0 to 6 as it is.
    units = [
        *["Transpose", "DequantizeLinear", "Transpose", "DequantizeLinear", "DequantizeLinear"],
        *["Conv", "QuantizeLinear", "Transpose"],
        *["DequantizeLinear", "DequantizeLinear", "Add", "QuantizeLinear"],
    ]
    assert types(model) == units
    assert types(tuned) == ["DequantizeLinear", "QuantizeLinear", *units, "DequantizeLinear", "QuantizeLinear"]
    dequantized = [node.inputs[0] for node in model.graph if node.op_type == "DequantizeLinear"]
    for node in model.graph:
        if node.op_type == "DequantizeLinear":
            assert len(node.outputs[0].uses()) == 1
    names = [value.name for value in dequantized if value is not None]
    assert names.count("middle") == 2
    middle = next(v for n in model.graph for v in n.outputs if v.name == "middle")
    assert middle.dtype == ir.DataType.INT8
    assert [v.dtype for v in (*model.graph.inputs, *model.graph.outputs)] == [ir.DataType.INT8] * 2
    assert middle.shape == [1, 6, 5, 4]
    per_channel = [n for n in model.graph if n.op_type == "DequantizeLinear" and "axis" in n.attributes]
    assert [n.attributes["axis"].as_int() for n in per_channel] == [0, 0]


def test_weights_keep_their_bytes() -> None:
    net = conv("int8", per_channel=True)
    content = {bytes(buffer.data) for buffer in net.model.buffers if buffer.data is not None}
    constants = {v.const_value.tobytes() for v in read(net.bytes()).graph.initializers.values() if v.const_value}
    assert content <= constants


@pytest.mark.parametrize(("target", "producer"), [(None, "Conv"), (FAST, "QuantizeLinear")])
def test_a_clamp_that_the_range_does_not_imply_is_within_its_unit(target: str | None, producer: str) -> None:
    """For the target it is one of integers, behind it."""
    net = chain()
    net.graph.tensors[3].quantization.scale = [7 / 255]
    model = read(net.bytes(), target=target)
    clip = next(node for node in model.graph if node.op_type == "Clip")
    assert clip.outputs[0].dtype == (ir.DataType.UINT8 if target else ir.DataType.FLOAT)
    made = clip.inputs[0].producer() if clip.inputs[0] is not None else None
    assert made is not None
    assert made.op_type == producer
    assert "Clip" not in types(read(chain().bytes(), target=target))
    agree(net.bytes(), target=target)


def test_a_convolution_without_bias() -> None:
    rng = np.random.default_rng(0)
    for build in (conv, lambda **more: conv(depthwise=2, **more)):
        bare, given = build(bias=False), build()
        for tensor in given.graph.tensors[-1:]:
            buffer = given.model.buffers[tensor.buffer]
            buffer.data = np.zeros_like(buffer.data)
        feed = {"t0": rng.normal(size=(2, 7, 9, 4)).astype(np.float32)}
        a, b = (session(check_model(read(net.bytes()))).run(None, feed)[0] for net in (bare, given))
        assert np.array_equal(a, b)


def test_signature_names_the_interface() -> None:
    net = dense((3, 6)).sign({"features": 0}, {"scores": 1})
    net.graph.tensors[2].name = "scores"  # some other tensor has that name already
    model = read(net.bytes())
    (x,), (y,) = model.graph.inputs, model.graph.outputs
    assert (x.name, y.name) == ("features", "scores")
    assert (x.metadata_props["relayout.tensor"], y.metadata_props["relayout.tensor"]) == ("t0", "t1")
    assert model.metadata_props["relayout.source_format"] == "tflite"
    assert model.producer_name == "relayout"
    agree(net.bytes())


@pytest.mark.parametrize("key", [None, "rank"])
def test_a_result_keeps_the_key_of_its_signature(key: str | None) -> None:
    """A program asks for it by that: `get_signature_runner("score")`. The other signature is named in a note."""
    net = dense((3, 6)).sign({"features": 0}, {"scores": 1}, key="score").sign({"x": 0}, {"y": 1}, key="rank")
    model = relayout.convert(net.bytes(), signature=key)
    direct = relayout.convert(net.bytes(), signature=key, format="tflite")
    for result in (direct, relayout.convert(model.proto, format="tflite")):
        assert [signature.key for signature in load(result.tflite).signatures] == [key or "score"]
    notes = [note for note in model.report.notes if "signature" in note]
    assert notes == ([] if key else ["of several signatures this is 'score'; --signature reads 'rank'"])


def test_empty_and_repeated_names() -> None:
    net = Net()
    x = net.input((2, 3), name="")
    a, b = net.tensor((2, 3), name="same"), net.tensor((2, 3), name="same")
    net.op("ABS", [x], [a]).op("NEG", [a], [b]).op("EXP", [b], [net.output((2, 3), name="same")])
    model = read(net.bytes())
    assert [v.name for v in model.graph.inputs] == ["tensor_0"]
    assert [v.name for n in model.graph for v in n.outputs] == ["same", "same_1", "same_2"]
    for result in compare(net.bytes()):
        assert result.error <= result.tolerance(False)


def test_outputs_that_no_node_computes() -> None:
    net = Net()
    x = net.input((2, 3), name="x")
    constant = net.const(np.arange(6).reshape(2, 3), name="constant")
    y = net.output((2, 3), name="y")
    net.op("ABS", [x], [y])
    net.graph.outputs = [x, constant, y, y]
    model = read(net.bytes())
    assert len({v.name for v in (*model.graph.inputs, *model.graph.outputs)}) == 5
    got = session(check_model(model)).run(None, {"x": np.full((2, 3), -2, np.float32)})
    assert [int(g[0, 1]) for g in got] == [-2, 1, 2, 2]


def test_signature_names_what_is_given_twice_and_what_is_constant() -> None:
    net = Net()
    x, y, c = net.input((2, 3), name="x"), net.output((2, 3), name="y"), net.const([1.0, 2.0], name="c")
    net.op("NEG", [x], [y], options("NegOptions"))
    net.graph.outputs += [y, c]
    signed = read(net.sign({"x": x}, {"one": y, "other": y, "c": c}).bytes()).graph
    assert [value.name for value in signed.outputs] == ["one", "other", "c"]
    net.model.signatureDefs = None
    assert [value.name for value in read(net.bytes()).graph.outputs] == ["y", "y_1", "c"]
    agree(net.bytes())


def test_shape_signature_becomes_a_name() -> None:
    net = Net()
    x = net.input((1, 6, 5, 3), signature=(-1, 6, 5, 3))
    kernel = net.const(np.random.default_rng(0).normal(size=(4, 3, 3, 3)))
    c, r = net.tensor((1, 3, 3, 4), signature=(-1, 3, 3, 4)), net.tensor((1, 36), signature=(-1, 36))
    table = options("Conv2DOptions", strideH=2, strideW=2)
    net.op("CONV_2D", [x, kernel, net.const(np.zeros(4))], [c], table)
    net.op("RESHAPE", [c, net.const([-1, 36], "int32")], [r], options("ReshapeOptions"))
    weights = net.const(np.random.default_rng(1).normal(size=(7, 36)))
    y = net.output((1, 7), signature=(-1, 7))
    net.op("FULLY_CONNECTED", [r, weights, -1], [y], options("FullyConnectedOptions"))
    model = read(net.bytes())
    values = [*model.graph.inputs, *(v for n in model.graph for v in n.outputs)]
    leading = {v.name: str(v.shape[0]) for v in values if v.shape is not None}
    assert leading.pop("t1/transposed") == "4"
    assert len(leading) == 6
    assert set(leading.values()) == {"batch"}
    for batch in (1, 3):
        for result in compare(net.bytes(), resize={0: (batch, 6, 5, 3)}):
            assert result.error <= result.tolerance(False)


def test_unknown_height_pads_at_run_time() -> None:
    net = Net()
    x = net.input((1, 1, 1, 3), signature=(1, -1, -1, 3))
    kernel = net.const(np.random.default_rng(0).normal(size=(4, 3, 3, 3)))
    y = net.output((1, 1, 1, 4), signature=(1, -1, -1, 4))
    table = options("Conv2DOptions", strideH=2, strideW=2)
    net.op("CONV_2D", [x, kernel, net.const(np.zeros(4))], [y], table)
    for size in ((6, 7), (9, 4)):
        for result in compare(net.bytes(), resize={0: (1, *size, 3)}):
            assert result.error <= result.tolerance(False)


def test_same_bytes_whatever_the_hash_seed(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(chain().bytes())
    script = (
        "import sys, onnx_ir; from relayout.formats.tflite import read;"
        f"sys.stdout.buffer.write(onnx_ir.to_proto(read({str(path)!r})).SerializeToString())"
    )
    digests = set()
    for seed in ("0", "1", "77"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(SOURCE)}
        out = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, check=True).stdout
        digests.add(hashlib.sha256(out).hexdigest())
    assert len(digests) == 1


def test_the_reader_imports_no_runtime() -> None:
    script = (
        "import sys; from relayout.formats.tflite.importing.registry import entries; entries();"
        "heavy = 'onnxruntime', 'tflite', 'ai_edge_litert', 'flatbuffers', 'tensorflow';"
        "print([m for m in heavy if m in sys.modules])"
    )
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    out = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, check=True, text=True)
    assert out.stdout.strip() == "[]"


def test_every_operator_says_what_it_becomes() -> None:
    assert len(entries()) > 100
    assert all(entry.summary for entry in entries().values())


def test_an_operator_is_registered_once() -> None:
    entries()
    with pytest.raises(ValueError, match="CONV_2D is registered twice"):
        operator("CONV_2D")(lambda op: None)


def _worst(nets: list[Net]) -> float:
    return max(r.error - r.tolerance(True) for net in nets for r in compare(net.bytes(), net.ranges))


def test_planted_faults_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were these comparisons blind, they would prove nothing."""
    with monkeypatch.context() as patch:
        right = pooling.pads

        def swapped(*arguments: object) -> list[int]:
            both = right(*arguments)  # type: ignore[arg-type]
            return both[2:] + both[:2]

        patch.setattr(pooling, "pads", swapped)
        assert _worst([conv(strides=(2, 1))]) > 0
    with monkeypatch.context() as patch:
        patch.setattr(convolution, "TO_LAST", (0, 3, 2, 1))
        with pytest.raises(Exception, match=r"shape|Mismatch|dimension|\("):
            _worst([conv()])
    with monkeypatch.context() as patch:
        emit = resize.resized

        def other_rounding(*arguments: object, **attributes: str) -> ir.Value:
            attributes.pop("nearest_mode", None)
            return emit(*arguments, **attributes)  # type: ignore[arg-type]

        patch.setattr(resize, "resized", other_rounding)
        assert _worst(list(resizes())) > 0
    assert _worst(list(pools())[:4]) <= 0
