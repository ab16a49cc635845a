"""`convert --quantize`: kinds, samples, types of the interface, what stays float, and what a user gets wrong."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from calibrating import decibels, float_operators, operators, quantized, run_reals, samples_of, signal_to_noise
from click.testing import CliRunner

import relayout
from relayout.cli import cli
from relayout.errors import LayoutError, NamesError, RelayoutError
from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.loading import load
from relayout.isolation.process import DiedError, Process
from relayout.partition.claims import Claims
from relayout.quantization.findings import JoinedOutput
from relayout.quantization.quantize import QuantizationError, _ask
from relayout.quantization.samples import SampleError
from rules.law import with_runtime
from small import build

pytest.importorskip("ai_edge_quantizer")


@pytest.fixture(scope="module")
def image() -> onnx.ModelProto:
    """Two convolutions of an image, in ONNX's order."""
    text = "c = Conv<pads = [1, 1, 1, 1]>(x, w) r = Relu(c) y = Conv(r, v)"
    return build("float[1,3,8,10] x", text, {"w": (8, 3, 3, 3), "v": (4, 8, 1, 1)})


def types_of_ends(result: relayout.Result) -> tuple[TensorType, TensorType]:
    graph = load(result.tflite).subgraphs[0]
    return graph.tensors[graph.inputs[0]].type, graph.tensors[graph.outputs[0]].type


def test_integers_of_8_bits(image: onnx.ModelProto) -> None:
    """The interface is that of the source; inner tensors are integers."""
    result = quantized(image)
    assert types_of_ends(result) == (TensorType.FLOAT32, TensorType.FLOAT32)
    assert float_operators(result) == {}
    assert min(signal_to_noise(image, result.tflite)) > 30
    summary = result.report.quantization
    assert summary is not None
    assert (summary.kind, summary.samples, summary.floats) == ("int8", 8, ())
    assert str(summary) == "quantized: 4 operators on integers of 8 bits from 8 samples, 0 float"
    assert str(summary) in str(result)


def test_a_transpose_that_remains_moves_what_the_file_moves(image: onnx.ModelProto) -> None:
    report = quantized(image).report
    assert [each.bytes for each in report.remaining] == [3 * 8 * 10, 4 * 8 * 10]
    assert report.bytes == sum(cause.bytes for each in report.remaining for cause in each.causes)


@pytest.mark.parametrize("target", ["ethos-u", "litert-gpu"])
def test_what_a_target_runs_is_told_of_the_integers_of_the_file(
    image: onnx.ModelProto, target: str, tmp_path: Path
) -> None:
    result = quantized(image, target=target)
    result.save(tmp_path / "int8.tflite")
    claims = relayout.convert(tmp_path / "int8.tflite", format="tflite", target=target).report.claims
    assert claims is not None
    assert result.report.claims == claims
    assert (claims.claimed > 0) == (target == "ethos-u"), "the GPU takes no quantized activations"
    dynamic = relayout.convert(image, format="tflite", target=target, quantize="dynamic")
    assert dynamic.report.claims is not None


def test_an_npu_runs_a_normalization_of_integers_as_a_whole() -> None:
    """Vela places all but the QUANTIZE and the DEQUANTIZE of the interface: RSQRT is one operator, not two."""
    network = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 20]> g (float[1,6,16] x) => (float[1,6,16] y)
        <float[16] scale = {1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1}> { y = LayerNormalization(x, scale) }"""
    )
    claims = quantized(network, target="ethos-u").report.claims
    assert isinstance(claims, Claims)
    assert {row.operator for row in claims.operators if row.claimed < row.total} == {
        "DequantizeLinear",
        "QuantizeLinear",
    }
    assert (claims.claimed_parts, claims.parts) == (1, 3)


def test_integers_of_16_bits(image: onnx.ModelProto) -> None:
    result = quantized(image, kind="int16x8")
    assert min(signal_to_noise(image, result.tflite)) > 38


@pytest.mark.parametrize(("kind", "least"), [("dynamic", 35), ("float16", 60)])
def test_weights_alone(image: onnx.ModelProto, kind: str, least: float) -> None:
    """No samples are needed, and activations stay float."""
    whole = relayout.convert(image, format="tflite")
    result = relayout.convert(image, format="tflite", quantize=kind)  # type: ignore[arg-type]
    assert types_of_ends(result) == (TensorType.FLOAT32, TensorType.FLOAT32)
    assert min(signal_to_noise(image, result.tflite)) > least
    types = {tensor.type for tensor in load(result.tflite).subgraphs[0].tensors}
    assert {"dynamic": TensorType.INT8, "float16": TensorType.FLOAT16}[kind] in types
    assert result.report.operators.keys() >= whole.report.operators.keys()


@pytest.mark.parametrize(("kind", "least"), [("dynamic", 35), ("int16x8", 50)])
@pytest.mark.parametrize("rows", [2, 64])
def test_a_product_by_weights_that_come_first(kind: Any, least: float, rows: int) -> None:
    """Mamba's step: LiteRT mixes weights of 8 bits with other numbers as the second matrix alone."""
    network = build("float[1,12,9] x", "y = MatMul(w, x)", {"w": (rows, 12)})
    samples = samples_of(network) if kind == "int16x8" else None
    result = relayout.convert(network, format="tflite", quantize=kind, calibrate=samples)
    assert min(signal_to_noise(network, result.tflite)) > least


@pytest.mark.parametrize(("asked", "stored"), [("int8", TensorType.INT8), ("uint8", TensorType.UINT8)])
def test_types_of_the_interface(image: onnx.ModelProto, asked: str, stored: TensorType) -> None:
    result = quantized(image, input_type=asked, output_type=asked)
    assert types_of_ends(result) == (stored, stored)
    assert min(signal_to_noise(image, result.tflite)) > 25
    ends = {end.name: end for end in result.report.interface}
    assert ends["x"].dtype == asked
    assert ends["x"].scale


def test_a_layout_of_its_own_and_another_name(image: onnx.ModelProto) -> None:
    """Samples are those of the source, whatever the result's layout and names are."""
    result = quantized(image, io="NHWC", rename={"x": "camera"})
    (feed,) = samples_of(image, 1, seed=99)
    (got,) = run_reals(result.tflite, {"camera": feed["x"].transpose(0, 2, 3, 1)})
    (expected,) = run_reals(relayout.convert(image, format="tflite").tflite, feed)
    assert decibels(expected.transpose(0, 2, 3, 1), got) > 30


def test_pixels(image: onnx.ModelProto, tmp_path: Path) -> None:
    """A camera's bytes are the input: scale 1 and zero point 0, and samples are pictures."""
    images = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    for place in range(4):
        images.fromarray(rng.integers(0, 256, (8, 10, 3), np.uint8)).save(tmp_path / f"{place}.png")
    options = {"normalize": {"x": (127.5, 64.0)}, "io": "NHWC", "input_type": "uint8"}
    result = relayout.convert(image, format="tflite", quantize="int8", calibrate=tmp_path, **options)  # type: ignore[arg-type]
    (end,) = [end for end in result.report.interface if end.name == "x"]
    assert (end.dtype, end.scale, end.zero_point) == ("uint8", 1.0, 0)
    pixels = rng.integers(0, 256, (1, 8, 10, 3), np.uint8)
    normal = ((pixels - 127.5) / 64).astype(np.float32)
    (got,) = run_reals(result.tflite, {"x": pixels})
    whole = relayout.convert(image, format="tflite", io="NHWC")
    (expected,) = run_reals(whole.tflite, {"x": normal})
    assert decibels(expected, got) > 25


def test_pictures_without_normalize_are_0_to_1(image: onnx.ModelProto, tmp_path: Path) -> None:
    images = pytest.importorskip("PIL.Image")
    white = np.full((5, 5, 3), 255, np.uint8)
    white[0, 0] = 0
    images.fromarray(white).save(tmp_path / "white.PNG")
    result = relayout.convert(image, format="tflite", quantize="int8", calibrate=tmp_path, input_type="int8")
    (end,) = [end for end in result.report.interface if end.name == "x"]
    assert end.scale == pytest.approx(1 / 255, rel=0.02)


def test_operators_that_stay_float(image: onnx.ModelProto) -> None:
    result = quantized(image, keep_float=["y"])
    assert float_operators(result) == {"CONV_2D": 1, "TRANSPOSE": 1}
    assert result.report.quantization is not None
    assert result.report.quantization.integers == 2
    assert result.report.quantization.floats[0].reason == "--keep-float"
    with pytest.raises(NamesError, match="--keep-float z: there is no operator or value of that name"):
        quantized(image, keep_float=["z"])


@pytest.mark.parametrize("name", ["a", "b"])
def test_an_operator_of_several_results_stays_float(name: str) -> None:
    """Any of them names it."""
    text = "m = MatMul(x, w) a, b = Split<axis = 2, num_outputs = 2>(m) c = Concat<axis = 2>(b, a) y = MatMul(c, w)"
    model = build("float[1,8,16] x", text, {"w": (16, 16)})
    assert float_operators(quantized(model, keep_float=[name])) == {"SPLIT": 1}
    assert not float_operators(quantized(model))


def test_a_float_tflite(image: onnx.ModelProto, tmp_path: Path) -> None:
    relayout.convert(image, format="tflite").save(tmp_path / "float.tflite")
    source = str(tmp_path / "float.tflite")
    result = relayout.convert(source, format="tflite", quantize="int8", calibrate=samples_of(image))
    assert min(signal_to_noise(image, result.tflite)) > 30
    result.save(tmp_path / "int8.tflite")
    with pytest.raises(LayoutError, match="the source is quantized already"):
        relayout.convert(tmp_path / "int8.tflite", format="tflite", quantize="int8", calibrate=samples_of(image))


def test_an_open_batch() -> None:
    model = build("float[n,6] x", "y = MatMul(x, w)", {"w": (6, 5)})
    rows = np.random.default_rng(0).normal(size=(16, 6)).astype(np.float32)
    result = relayout.convert(model, format="tflite", quantize="int8", calibrate=[rows])
    (got,) = run_reals(result.tflite, {"x": rows[:1]})
    (expected,) = run_reals(relayout.convert(model, format="tflite").tflite, {"x": rows[:1]})
    assert decibels(expected, got) > 25


def test_ids_of_32_bits() -> None:
    model = build("int64[1,5] i", "e = Gather<axis = 0>(t, i) y = MatMul(e, w)", {"t": (300, 32), "w": (32, 8)})
    ids = np.random.default_rng(0).integers(0, 300, (8, 5))
    result = relayout.convert(model, format="tflite", quantize="int8", calibrate={"i": ids}, input_type="int32")
    assert types_of_ends(result) == (TensorType.INT32, TensorType.FLOAT32)
    assert result.report.quantization is not None
    assert result.report.quantization.samples == 8
    assert relayout.verify(model, result, inputs={"i": ids[:1]}).ok


def test_the_command(image: onnx.ModelProto, tmp_path: Path) -> None:
    onnx.save(image, tmp_path / "image.onnx")
    (tmp_path / "samples").mkdir()
    np.save(tmp_path / "samples" / "a.npy", np.stack([each["x"][0] for each in samples_of(image)]))
    arguments = ["convert", str(tmp_path / "image.onnx"), str(tmp_path / "int8.tflite"), "--quantize", "int8"]
    done = CliRunner().invoke(cli, [*arguments, "--calibrate", str(tmp_path / "samples")], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "from 8 samples" in done.output
    assert min(signal_to_noise(image, (tmp_path / "int8.tflite").read_bytes())) > 30


def test_verification_feeds_a_sample(image: onnx.ModelProto, tmp_path: Path) -> None:
    """Samples here are a hundred times as large as random inputs: on these the integers would be nothing but 0."""
    onnx.save(image, tmp_path / "image.onnx")
    np.save(tmp_path / "a.npy", np.concatenate([100 * each["x"] for each in samples_of(image)]))
    arguments = [
        "convert",
        str(tmp_path / "image.onnx"),
        str(tmp_path / "int8.tflite"),
        "--quantize",
        "int8",
        "--verify",
    ]
    given = ["--calibrate", str(tmp_path / "a.npy"), "--io", "NHWC"]
    done = CliRunner().invoke(cli, [*arguments, *given], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "PASSED" in done.output


def test_archives_of_several_inputs(tmp_path: Path) -> None:
    model = build("float[1,6] a, float[1,6] b", "s = Add(a, b) y = MatMul(s, w)", {"w": (6, 5)})
    feeds = samples_of(model)
    arrays = {name: np.concatenate([feed[name] for feed in feeds]) for name in "ab"}
    np.savez(tmp_path / "samples.npz", **arrays)
    result = relayout.convert(model, format="tflite", quantize="int8", calibrate=tmp_path / "samples.npz")
    assert result.report.quantization is not None
    assert result.report.quantization.samples == 8
    result = relayout.convert(model, format="tflite", quantize="int8", calibrate=arrays)
    assert result.report.quantization is not None
    assert result.report.quantization.samples == 8
    np.savez(tmp_path / "one.npz", a=arrays["a"])
    with pytest.raises(SampleError, match=r"it lacks 'b'; a sample is the inputs 'a' float32 1 × 6, 'b' float32 1 × 6"):
        relayout.convert(model, format="tflite", quantize="int8", calibrate=tmp_path / "one.npz")
    with pytest.raises(SampleError, match="one array, and the model has 2 inputs"):
        relayout.convert(model, format="tflite", quantize="int8", calibrate=[arrays["a"]])


WANTED = "'x' float32 1 × 3 × 8 × 10"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (None, f"give --calibrate DATA .calibrate=.; a sample is input {WANTED}"),
        ([], f"there is no sample; a sample is input {WANTED}"),
        ([{"z": np.zeros((1, 3, 8, 10), np.float32)}], "sample 0: 'z' is no input"),
        ([np.zeros((1, 3, 9, 10), np.float32)], f"an array of 1 × 3 × 9 × 10, and the model wants {WANTED}"),
        (
            [np.zeros((1, 8, 10, 3), np.float32)],
            f"wants {WANTED}, since a sample has the source's layout: transpose it",
        ),
        ([np.full((1, 3, 8, 10), np.nan, np.float32)], "sample 0: 'x' has NaN or infinities"),
        ([np.zeros((1, 3, 8, 10), np.uint8)], f"uint8, and the model wants {WANTED}"),
        ("nowhere", "nowhere: there is no such file or folder"),
        (3, "calibrate=int: it takes a path"),
    ],
)
def test_samples_that_do_not_fit(image: onnx.ModelProto, given: object, said: str) -> None:
    with pytest.raises(SampleError, match=said):
        relayout.convert(image, format="tflite", quantize="int8", calibrate=given)


def test_files_that_do_not_fit(image: onnx.ModelProto, tmp_path: Path) -> None:
    with pytest.raises(SampleError, match=r"the folder has no \.npy, \.npz"):
        relayout.convert(image, format="tflite", quantize="int8", calibrate=tmp_path)
    (tmp_path / "broken.npy").write_bytes(b"broken")
    with pytest.raises(SampleError, match="no file that numpy"):
        relayout.convert(image, format="tflite", quantize="int8", calibrate=tmp_path)
    (tmp_path / "broken.npy").unlink()
    (tmp_path / "broken.png").write_bytes(b"broken")
    with pytest.raises(SampleError, match="no image can be read"):
        relayout.convert(image, format="tflite", quantize="int8", calibrate=tmp_path)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"format": "onnx", "quantize": "int8"}, "is for a .tflite result"),
        ({"quantize": "dynamic", "calibrate": []}, "needs no samples"),
        ({"calibrate": []}, "--calibrate is for --quantize"),
        ({"keep_float": ["x"]}, "--keep-float is for --quantize"),
        ({"quantize": "int16x8", "input_type": "int8"}, "have 16 bits"),
        ({"quantize": "int8", "input_type": "int32", "calibrate": []}, "no input is int64"),
        ({"quantize": "int8", "output_type": "int32", "calibrate": []}, "no output is int64"),
        ({"quantize": "int4"}, "it takes 'int8' or"),
        ({"quantize": "int8", "parts": True}, "leave --partition-dir out"),
    ],
)
def test_options_that_do_not_fit(image: onnx.ModelProto, options: dict[str, object], said: str) -> None:
    with pytest.raises(RelayoutError, match=said):
        relayout.convert(image, **{"format": "tflite", **options})  # type: ignore[arg-type]


def test_without_the_quantizer(image: onnx.ModelProto, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ai_edge_quantizer", None)
    with pytest.raises(RelayoutError, match=r"pip install 'onnx-relayout\[quantize\]'"):
        relayout.convert(image, format="tflite", quantize="dynamic")


BOXES_AND_SCORES = """b = MatMul(x, w) boxes = Mul(b, size) s = MatMul(x, v) scores = Sigmoid(s)
    j = Concat<axis = 2>(boxes, scores)"""
DETECTOR = {"w": (8, 4), "v": (8, 3), "size": np.array(640, np.float32)}


TRANSPOSED = "y = Transpose<perm = [0, 2, 1]>(j)"


@pytest.mark.parametrize("last", [TRANSPOSED, "y = Concat<axis = 1>(j, j)", "y = Identity(j)"])
def test_boxes_and_scores_in_one_output(last: str) -> None:
    """Integers of one scale hold 640 or 0.9: real outputs are joined as real numbers, also where they move on."""
    model = build("float[1,24,8] x", f"{BOXES_AND_SCORES} {last}", DETECTOR)
    result = quantized(model)
    assert "CONCATENATION" in float_operators(result)
    assert "one scale leaves a joined value few steps" in str(result)
    (feed,) = samples_of(model, 1, seed=99)
    for one, other in zip(with_runtime(model, feed), run_reals(result.tflite, feed), strict=True):
        scores = [array.swapaxes(1, 2)[..., 4:] if last == TRANSPOSED else array[..., 4:] for array in (one, other)]
        assert decibels(*scores) > 25


def test_integers_of_one_output_that_joins_boxes_and_scores() -> None:
    """One scale for 640 and for 0.9: the report says which values to cut at."""
    model = build("float[1,24,8] x", f"{BOXES_AND_SCORES} {TRANSPOSED}", DETECTOR)
    result = quantized(model, output_type="int8")
    assert result.report.quantization is not None
    (joined,) = result.report.quantization.joined
    assert {name for name, _ in joined.values} == {"boxes", "scores"}
    assert "--outputs boxes,scores gives each its own" in str(result)
    apart = quantized(model, outputs=["boxes", "scores"], output_type="int8")
    assert apart.report.quantization is not None
    assert not apart.report.quantization.joined
    assert "FAILED: output 'y' has a signal to noise of" in str(relayout.verify(model, result))
    assert "in elements 4 to 6 of axis 1, below 10 dB" in str(relayout.verify(model, result)).replace("\n", " ")


def test_joined_values_in_another_layout_have_the_names_of_the_source(tmp_path: Path) -> None:
    body = """c = Conv(x, w) boxes = Mul(c, size) d = Conv(x, v) scores = Sigmoid(d)
        y = Concat<axis = 1>(boxes, scores)"""
    weights = {"w": (4, 3, 1, 1), "v": (2, 3, 1, 1), "size": np.array(640, np.float32)}
    model = build("float[1,3,8,8] x", body, weights)
    onnx.save(model, tmp_path / "m.onnx")
    np.savez(tmp_path / "samples.npz", **samples_of(model, 1)[0])
    arguments = ["convert", str(tmp_path / "m.onnx"), str(tmp_path / "m.tflite"), "--quantize", "int8", "--verify"]
    arguments += ["--calibrate", str(tmp_path / "samples.npz"), "--output-type", "int8"]
    done = CliRunner().invoke(cli, arguments)
    said = done.output.replace("\n", " ")
    assert "--outputs boxes,scores gives each its own" in said
    assert "share one scale with numbers over 32 times as large" in said
    assert "--repro" not in said


@pytest.mark.parametrize(("question", "advised"), [("finish", True), ("sample", False)])
def test_a_process_that_ends_is_an_error_with_advice(question: str, advised: bool) -> None:
    class Dying(Process):
        def __init__(self) -> None:
            pass

        def answer(self, *_: Any) -> Any:
            raise DiedError("signal SIGABRT")

    with pytest.raises(QuantizationError, match=r"LiteRT ends its process while it runs \(signal SIGABRT\)") as raised:
        _ask(Dying(), "it runs", question)
    assert ("--keep-float NAME" in str(raised.value)) == advised


def test_a_joined_value_that_is_always_0_needs_no_steps() -> None:
    joined = JoinedOutput("y", (("a", 8.0), ("b", 1.0), ("zeros", 0.0)))
    assert "leaves 16 steps for the smaller" in str(joined)


def test_products_by_several_constant_matrices() -> None:
    """LiteRT's kernel for BATCH_MATMUL knows one scale: with one for each column it gave its zero point everywhere."""
    model = build("float[1,3,6,8] x", "y = MatMul(x, w)", {"w": (3, 8, 5)})
    result = quantized(model)
    assert operators(result)["BATCH_MATMUL"] == 1
    assert min(signal_to_noise(model, result.tflite)) > 25


def test_quotients_stay_float() -> None:
    """A divisor of 8 bits may be 0, which LiteRT refuses."""
    model = build("float[1,6,8] x", "a = Abs(x) s = ReduceSum<keepdims = 1>(a, i) y = Div(x, s)", {"i": [2]})
    result = quantized(model)
    assert float_operators(result)["DIV"] == 1
    assert min(signal_to_noise(model, result.tflite)) > 20


def test_a_model_without_any_operator_that_has_integers_stays_float() -> None:
    result = quantized(build("float[1,4,6] x", "y = Exp(x)", {}))
    assert types_of_ends(result) == (TensorType.FLOAT32, TensorType.FLOAT32)
    assert float_operators(result) == {"EXP": 1}
    assert "quantized: 0 operators on integers of 8 bits from 8 samples, 1 float" in str(result)
