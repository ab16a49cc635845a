"""The .tflite side: names, dynamic sizes, hybrid operators, state, and models that do not run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from flatbuffers import flexbuffers
from onnx import parser

from conftest import KERAS
from formats.tflite.tflite_writing import Net, Scale, options
from products import EXACT_CPU
from relayout import convert
from relayout.errors import MissingRuntimeError, ReadError, RelayoutError
from relayout.pipeline import diff
from relayout.verification import Verdict, litert_runtime, verify
from relayout.verification.benching import bench
from relayout.verification.compare import Spread, moved_by_rounding
from relayout.verification.litert import LiteRTSide
from relayout.verification.litert_runtime import DEFAULT, OPTIMIZED, WITHOUT_DELEGATE, LiteRTFile, LiteRTRunner
from relayout.verification.side import Feeds, RunError, open_side

MODELS = Path(__file__).parents[2] / "models"


def onnx_of(text: str) -> bytes:
    return parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> g {text}').SerializeToString()


def test_signature_names_are_names() -> None:
    net = Net()
    x, y = net.input((2, 3), name="predict_x:0"), net.output((2, 3), name="Identity")
    net.op("NEG", [x], [y], options("NegOptions")).sign({"x": x}, {"result": y})
    report = verify(net.bytes(), onnx_of("(float[2,3] x) => (float[2,3] result) { result = Neg(x) }"))
    assert report.ok
    assert [(row.name, row.source, row.other, row.operator) for row in report.rows] == [
        ("result", "Identity", "result", "NEG")
    ]
    assert [fed.name for fed in report.inputs] == ["x"]


def test_a_name_that_two_signatures_give_to_different_tensors_names_neither() -> None:
    net = Net()
    x, y, z = net.input((2, 3), name="a"), net.output((2, 3), name="b"), net.output((2, 3), name="c")
    net.op("NEG", [x], [y], options("NegOptions")).op("ABS", [x], [z], options("AbsOptions"))
    net.sign({"x": x}, {"result": y}, "one").sign({"x": x}, {"result": z}, "two")
    text = "(float[2,3] x) => (float[2,3] b, float[2,3] c) { b = Neg(x) c = Abs(x) }"
    report = verify(net.bytes(), onnx_of(text))
    assert report.ok
    assert [row.name for row in report.rows] == ["b", "c"]


def test_what_the_default_delegate_does_not_take_runs_without() -> None:
    """A pool that moves integers from one scale to another: LiteRT's kernel takes it, and XNNPACK ends the run."""
    net = Net()
    x = net.input((1, 4, 6, 3), "int8", q=Scale(0.05))
    y = net.output((1, 2, 3, 3), "int8", q=Scale(0.04, 3))
    table = options("Pool2DOptions", padding=1, strideW=2, strideH=2, filterWidth=2, filterHeight=2)
    content = net.op("MAX_POOL_2D", [x], [y], table, version=2).bytes()
    report = verify(content, convert(content).proto)
    assert report.ok
    assert [note for note in report.notes if "XNNPACK" in note]
    with pytest.raises(ReadError, match="LiteRT cannot run the model"):
        LiteRTSide(Net().op("CUSTOM Other", [], []).bytes())


def test_a_run_that_the_default_delegate_ends_is_repeated_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """The failure is planted: of convolutions of no elements XNNPACK reads extents that are not set, at random."""
    failing = [DEFAULT]

    class Failing(litert_runtime.Interpreter):
        def __init__(self, package: str, source: str | bytes, kernels: str, preserve: bool) -> None:
            super().__init__(package, source, kernels, preserve)
            self.kernels = kernels

        def invoke(self) -> None:
            if self.kernels in failing:
                raise RuntimeError(f"{self.kernels} failed to reshape runtime")
            self.ask("call", ("invoke",), ())

    monkeypatch.setattr(litert_runtime, "Interpreter", Failing)
    text = "(float[2,3] x) => (float[2,3] y) { y = Neg(x) }"
    result = convert(onnx_of(text), format="tflite")
    report = verify(onnx_of(text), result)
    assert report.ok
    assert [note for note in report.notes if "XNNPACK" in note] == [WITHOUT_DELEGATE]
    assert not verify(onnx_of(text.replace("Neg", "Abs")), result).ok
    failing.append(OPTIMIZED)
    with pytest.raises(RunError, match=f"{DEFAULT} failed to reshape"):
        verify(onnx_of(text), result)


def test_extents_that_the_delegate_leaves_unset_are_a_missing_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extents are planted: beside an extent of 0 XNNPACK leaves others as the memory was."""

    class Unset:
        def get_tensor(self, index: int) -> None:
            raise ValueError("array is too big")

        def _get_tensor_details(self, index: int, subgraph: int) -> dict[str, object]:
            return {"shape": [0, *3 * [2**31 - 1]], "dtype": np.float32}

    side = LiteRTSide(MODELS / "tinynet_float.tflite")
    runner = LiteRTRunner(side, DEFAULT, preserve=False)
    monkeypatch.setattr(runner, "_interpreter", Unset())
    feeds: Feeds = {}
    monkeypatch.setattr(runner, "_fed", feeds)
    assert runner.run(feeds, [side.outputs[0].name]) == {}


def test_a_model_that_ends_litert_is_one_error() -> None:
    """Calibration gives a constant of zeros a scale of 0, of which LiteRT makes no multiplier, and aborts."""
    net = Net()
    zeros = net.const(np.zeros(4), "int16", q=Scale(0.0))
    x, y = net.input((2, 4), "int16", q=Scale(0.01)), net.output((2, 4), "int16", q=Scale(0.01))
    net.op("SUB", [zeros, x], [y], options("SubOptions", potScaleInt16=False))
    with pytest.raises(RelayoutError, match="LiteRT aborts"):
        verify(net.bytes(), convert(net.bytes()).proto)


def test_an_abort_that_nobody_expects_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LiteRTFile, "_try", lambda *_: None)
    net = Net()
    zeros = net.const(np.zeros(4), "int16", q=Scale(0.0))
    x, y = net.input((2, 4), "int16", q=Scale(0.01)), net.output((2, 4), "int16", q=Scale(0.01))
    net.op("ADD", [x, zeros], [y], options("AddOptions"))
    with pytest.raises(ReadError, match=r"LiteRT cannot run the model: it ends its process \(signal"):
        verify(net.bytes(), onnx_of("(int16[2,4] x) => (int16[2,4] y) { y = Identity(x) }"))
    net = Net()
    net.op("NEG", [net.input((2, 3), name="x")], [net.output((2, 3), name="y")], options("NegOptions"))
    assert verify(net.bytes(), onnx_of("(float[2,3] x) => (float[2,3] y) { y = Neg(x) }")).ok


@pytest.mark.parametrize(("term", "result"), [(1.3e36, 0.01), (1.0, 1e-6)])
def test_scales_too_far_apart_are_one_error(term: float, result: float) -> None:
    """A mask of the least real number, a sum that is next to nothing: LiteRT's sum has no multiplier, and aborts."""
    net = Net()
    x, y = net.input((2, 4), "int8", q=Scale(term)), net.output((2, 4), "int8", q=Scale(result))
    net.op("ADD", [x, x], [y], options("AddOptions", potScaleInt16=False))
    with pytest.raises(RelayoutError, match="LiteRT aborts"):
        verify(net.bytes(), convert(net.bytes()).proto)


def test_tensor_names_are_read_from_metadata() -> None:
    net = Net()
    x, m, y = net.input((2, 3), name="x"), net.tensor((2, 3), name="m"), net.output((2, 3), name="y")
    net.op("ABS", [x], [m], options("AbsOptions")).op("NEG", [m], [y], options("NegOptions"))
    proto = parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[2,3] p) => (float[2,3] q) <float[2,3] r> '
        "{ r = Abs(p)  q = Neg(r) }"
    )
    for value, name in ((proto.graph.input[0], "x"), (proto.graph.output[0], "y"), (proto.graph.value_info[0], "m")):
        value.metadata_props.add(key="relayout.tensor", value=name)
    report = verify(net.bytes(), proto)
    assert [(row.name, row.other) for row in report.rows] == [("m", "r"), ("y", "q")]


def test_duplicate_and_empty_names_go_by_place() -> None:
    net = Net()
    a, b = net.input((2, 3), name="t"), net.input((2, 3), name="t")
    m, y = net.tensor((2, 3), name=""), net.output((2, 3), name="t")
    net.op("SUB", [a, b], [m], options("SubOptions")).op("NEG", [m], [y], options("NegOptions"))
    good = onnx_of("(float[2,3] t, float[2,3] t_1) => (float[2,3] y) { m = Sub(t, t_1)  y = Neg(m) }")
    assert verify(net.bytes(), good).ok
    swapped = onnx_of("(float[2,3] t, float[2,3] t_1) => (float[2,3] y) { m = Sub(t_1, t)  y = Neg(m) }")
    assert not verify(net.bytes(), swapped).ok


def test_one_tensor_may_be_two_outputs_and_an_input() -> None:
    net = Net()
    x, y = net.input((2, 3), name="x"), net.output((2, 3), name="y")
    net.op("NEG", [x], [y], options("NegOptions"))
    net.graph.outputs += [y, x]
    proto = onnx_of("(float[2,3] x) => (float[2,3] y, float[2,3] z, float[2,3] x) { y = Neg(x)  z = Identity(y) }")
    assert verify(net.bytes(), proto).ok


def dynamic_net(fixed: bool) -> bytes:
    net = Net()
    x = net.input((1, 4, 3), name="x", signature=(-1, 4, 3))
    y = net.output((1, 12), name="y", signature=(-1, 12))
    shape = net.const([1, 12] if fixed else [-1, 12], "int32", name="s")
    net.op("RESHAPE", [x, shape], [y], options("ReshapeOptions"))
    return net.bytes()


def test_dynamic_sizes_are_resized_or_given_up() -> None:
    good = onnx_of(
        "(float[N,4,3] x) => (float[N,12] y) { s = Constant<value = int64[2] {-1, 12}>()  y = Reshape(x, s) }"
    )
    report = verify(dynamic_net(fixed=False), good)
    assert report.ok
    assert report.inputs[0].shape == (2, 4, 3)
    report = verify(dynamic_net(fixed=True), good)
    assert report.ok
    assert report.inputs[0].shape == (1, 4, 3)
    assert "the source does not run " in report.notes[0]
    with pytest.raises(RelayoutError, match="LiteRT fails on 'the given bytes'"):
        verify(dynamic_net(fixed=True), good, inputs={"x": np.ones((2, 4, 3))})


def test_extents_that_only_an_input_that_is_given_tells() -> None:
    """A constant shape asks for 24 elements: neither 1 nor any extent that is guessed prepares a kernel."""
    source = onnx_of(
        "(float[n,m] x) => (float[3,8] y) { s = Constant<value = int64[2] {3, 8}>()  r = Reshape(x, s)  y = Tanh(r) }"
    )
    result = convert(source, format="tflite").tflite
    assert verify(source, result, inputs={"x": np.ones((4, 6), np.float32)}).ok
    assert verify(result, source, inputs={"x": np.ones((4, 6), np.float32)}).ok
    with pytest.raises(RelayoutError, match="--input x="):
        verify(result, source)


def test_indices_that_differ_are_shares() -> None:
    net = Net()
    x, axis = net.input((9, 40), name="x"), net.const([1], "int32", name="axis")
    y = net.output((9,), "int64", name="y")
    net.op("ARG_MAX", [x, axis], [y], options("ArgMaxOptions", outputType=4))
    same = "(float[9,40] x) => (int64[9] y) { y = ArgMax<axis = 1, keepdims = 0>(x) }"
    assert verify(net.bytes(), onnx_of(same)).rows[0].verdict is Verdict.EQUAL
    report = verify(net.bytes(), onnx_of(same.replace("ArgMax", "ArgMin")))
    assert report.rows[0].verdict is Verdict.DIFFERS
    assert report.rows[0].spread is not None  # it was asked whether the kernels agree; they do
    assert report.rows[0].spread.share == 0


def test_operators_that_round_alike_in_all_kernels_are_recognized() -> None:
    assert LiteRTSide(MODELS / "tinynet_dynamic.tflite").levels == 255
    for precision in ("float", "float16", "int8"):
        assert LiteRTSide(MODELS / f"tinynet_{precision}.tflite").levels == 0
    assert LiteRTSide(KERAS / "keywords.int16x8.tflite").levels == 65535
    assert not LiteRTSide(MODELS / "tinynet_float16.tflite").rounds


@EXACT_CPU
def test_a_hybrid_operator_in_a_loop_is_allowed_what_it_rounds_off(tmp_path: Path) -> None:
    net, weights = Net(), np.random.default_rng(3).integers(-127, 128, (40, 40))
    operands = [net.const(np.array(0), "int32"), net.input((2, 40))]
    with net.subgraph() as test:
        count, _ = net.input((), "int32"), net.input((2, 40))
        net.op("LESS", [count, net.const(np.array(3), "int32")], [net.output((), "bool")], options("LessOptions"))
    with net.subgraph() as body:
        count, x = net.input((), "int32"), net.input((2, 40))
        after, y = net.output((), "int32"), net.output((2, 40))
        net.op("ADD", [count, net.const(np.array(1), "int32")], [after], options("AddOptions"))
        kernel = net.const(weights, "int8", q=Scale(0.002))
        net.op("FULLY_CONNECTED", [x, kernel, -1], [y], options("FullyConnectedOptions"), version=9)
    both = options("WhileOptions", condSubgraphIndex=test, bodySubgraphIndex=body)
    net.op("WHILE", operands, [net.tensor((), "int32"), net.output((2, 40))], both)
    assert LiteRTSide(net.bytes()).levels == 255
    (tmp_path / "loop.tflite").write_bytes(net.bytes())
    report = verify(tmp_path / "loop.tflite", convert(tmp_path / "loop.tflite", quant="float").model)
    assert report.outputs[0].verdict is Verdict.SPREAD, report.verdict
    assert report.outputs[0].spread.max_rel < 0.05
    assert verify(tmp_path / "loop.tflite", convert(tmp_path / "loop.tflite").model).ok
    # Products of integers round as LiteRT does.
    report = verify(tmp_path / "loop.tflite", convert(tmp_path / "loop.tflite", target="onnxruntime-cpu").model)
    assert report.outputs[0].verdict is Verdict.CLOSE, report.verdict


def test_hybrid_operators_of_ids_are_allowed_what_they_round_off(tmp_path: Path) -> None:
    """No input is real, so that moving inputs shows nothing of it."""
    net, rng = Net(), np.random.default_rng(4)
    ids, x = net.input((5,), "int32", name="ids"), net.tensor((5, 40))
    net.op("GATHER", [net.const(rng.normal(size=(9, 40))), ids], [x], options("GatherOptions"))
    for last in (False, False, True):
        kernel = net.const(rng.integers(-127, 128, (40, 40)), "int8", q=Scale(0.002))
        y = net.output((5, 40), name="y") if last else net.tensor((5, 40))
        net.op(
            "FULLY_CONNECTED",
            [x, kernel, -1],
            [y],
            options("FullyConnectedOptions", asymmetricQuantizeInputs=True),
            version=9,
        )
        x = y
    (tmp_path / "ids.tflite").write_bytes(net.bytes())
    model = convert(tmp_path / "ids.tflite", quant="float").model
    report = verify(tmp_path / "ids.tflite", model)
    assert report.ok, report.verdict
    assert 1e-4 < report.outputs[0].spread.max_rel < 0.05
    weights = next(node.inputs[1] for node in model.graph if node.op_type in ("Gemm", "MatMul"))
    weights.const_value = ir.tensor(weights.const_value.numpy() * np.float32(1.1), name=weights.name)
    assert not verify(tmp_path / "ids.tflite", model).ok


@pytest.mark.parametrize("extents", [(2, 2), (2, 3)])
def test_a_hybrid_operator_rounds_each_part_of_a_divided_image_by_itself(
    tmp_path: Path, extents: tuple[int, int]
) -> None:
    """A dilated convolution in a file of TensorFlow's: in the model it is one of the whole image."""
    net, rng = Net(), np.random.default_rng(1)
    sides, count = [12 + 2 * extent for extent in extents], extents[0] * extents[1]
    inner = [side // extent for side, extent in zip(sides, extents, strict=True)]
    block, pads = (net.const(np.array(each), "int32") for each in (extents, [[e, e] for e in extents]))
    x, parts = net.input((1, 12, 12, 8), name="x"), net.tensor((count, *inner, 8))
    net.op("SPACE_TO_BATCH_ND", [x, block, pads], [parts], options("SpaceToBatchNDOptions"))
    kernel = net.const(rng.integers(-127, 128, (16, 3, 3, 8)), "int8", q=Scale(0.01))
    found = net.tensor((count, *(side - 2 for side in inner), 16))
    strides = {"strideW": 1, "strideH": 1, "dilationWFactor": 1, "dilationHFactor": 1}
    valid = options("Conv2DOptions", padding=1, **strides)
    net.op("CONV_2D", [parts, kernel, net.const(np.zeros(16))], [found], valid, version=5)
    crops = net.const(np.zeros((2, 2)), "int32")
    y = net.output((1, 12, 12, 16), name="y")
    net.op("BATCH_TO_SPACE_ND", [found, block, crops], [y], options("BatchToSpaceNDOptions"))
    (tmp_path / "dilated.tflite").write_bytes(net.bytes())
    model = convert(tmp_path / "dilated.tflite", quant="float").model
    assert [node.op_type for node in model.graph if node.op_type == "Conv"] == ["Conv"]
    report = verify(tmp_path / "dilated.tflite", model)
    assert report.ok, report.verdict
    assert report.outputs[0].alone.max_rel < 1e-5
    weights = next(node.inputs[1] for node in model.graph if node.op_type == "Conv")
    wrong = weights.const_value.numpy().copy()
    wrong[0] *= 1.1
    weights.const_value = ir.tensor(wrong, name=weights.name)
    assert not verify(tmp_path / "dilated.tflite", model).ok


def test_disturbances_are_small_and_stay_in_range() -> None:
    feeds = {"x": np.linspace(-1, 1, 99, dtype=np.float32), "i": np.arange(5), "e": np.zeros((0,), np.float32)}
    moved = moved_by_rounding(feeds, 1, levels=255)
    assert moved["i"] is feeds["i"]
    assert moved["x"].dtype == np.float32
    assert 0 < np.abs(moved["x"] - feeds["x"]).max() <= 1 / 255
    assert (moved["x"].min(), moved["x"].max()) >= (-1, -1)
    assert moved["x"].max() <= 1


def test_the_spread_is_asked_for_once_per_feeds() -> None:
    with open_side(MODELS / "tinynet_dynamic.tflite") as side:
        name = side.outputs[0].name
        spread, runner = Spread(side, [v.name for v in side.interiors], side), side.runner()
        for seed in range(2):
            feeds = {side.inputs[0].name: np.random.default_rng(seed).random((2, 24, 40, 3), np.float32)}
            values = runner.run(feeds, [name])
            first = spread.of(values, feeds)
            assert first == spread.of(values, feeds)
            assert 0 < first[name].max_rel < 0.05
        assert spread.of({}, feeds) == {}


def test_operators_without_reference_kernels_have_a_spread() -> None:
    net = Net()
    x, y = net.input((2, 3), name="x"), net.output((2, 3), name="y")
    net.op("CEIL", [x], [y])
    with open_side(net.bytes()) as side:
        feeds = {"x": np.ones((2, 3), np.float32)}
        assert side.runner(reference=True).run(feeds, ["y"]).keys() == {"y"}


def softmax_of_many() -> Net:
    """LiteRT 2.3 aborts in its reference kernel for a row of 1000 bytes that are alike."""
    net = Net()
    x, y = (
        net.input((1, 1000), "int8", q=Scale(0.0034, -12), name="x"),
        net.output((1, 1000), "int8", q=Scale(1 / 256, -128), name="y"),
    )
    return net.op("SOFTMAX", [x], [y], options("SoftmaxOptions", beta=1.0), version=2)


def test_kernels_that_abort_do_not_end_the_process() -> None:
    content = softmax_of_many().bytes()
    feeds = {"x": np.zeros((1, 1000), np.int8)}
    with open_side(content) as side:
        (wanted,) = side.runner().run(feeds, ["y"]).values()
        np.testing.assert_allclose(side.runner(reference=True).run(feeds, ["y"])["y"], wanted, atol=1)


@pytest.mark.parametrize(
    ("survives", "notes", "kernels"), [(True, 0, "BUILTIN_REF"), (None, 1, OPTIMIZED), (False, 0, OPTIMIZED)]
)
def test_reference_kernels_are_tried_in_another_process(
    monkeypatch: pytest.MonkeyPatch, survives: bool | None, notes: int, kernels: str
) -> None:
    asked: list[str] = []
    plain = LiteRTFile.interpreter

    def interpreter(file: LiteRTFile, name: str, preserve: bool = False) -> object:
        asked.append(name)
        return plain(file, name, preserve)

    monkeypatch.setattr(litert_runtime, "survives", lambda *_: survives)
    monkeypatch.setattr(LiteRTFile, "interpreter", interpreter)
    with open_side(MODELS / "tinynet_int8.tflite") as side:
        assert side.notes == []
        feeds = {side.inputs[0].name: np.zeros((2, 24, 40, 3), np.int8)}
        asked.clear()
        runner = side.runner(reference=True)
        runner.run(feeds, [side.outputs[0].name])
        runner.run(feeds, [side.outputs[0].name])
        assert (asked, len(side.notes)) == ([kernels], notes)


def test_custom_operators_and_damage_are_one_line(tmp_path: Path) -> None:
    net = Net()
    x, y = net.input((2, 3), name="x"), net.output((2, 3), name="y")
    net.op("CUSTOM Nope", [x], [y])
    good = net.bytes()
    (tmp_path / "empty.tflite").write_bytes(b"")
    for source, message in (
        (good, "unresolved custom op: Nope"),
        (good[:100], "not a valid Flatbuffer"),
        (tmp_path / "empty.tflite", "is empty"),
        (tmp_path / "none.tflite", "does not exist"),
    ):
        with pytest.raises(ReadError, match=message) as error:
            verify(source, source)
        assert "\n" not in str(error.value)
        assert "http" not in str(error.value)


def test_state_does_not_leak_between_runs() -> None:
    """A variable that a run leaves behind would make the second of two equal runs differ from a fresh one."""
    net = Net()
    x, state = net.input((1, 4), name="x"), net.tensor((1, 6), name="s", variable=True)
    weights = [
        net.const(np.random.default_rng(i).normal(size=s).astype("float32"))
        for i, s in enumerate(((6, 4), (6, 6), (6,)))
    ]
    y = net.output((1, 6), name="y")
    net.op("RNN", [x, *weights, state], [y], options("RNNOptions", fusedActivationFunction=4))
    with open_side(net.bytes()) as side:
        runner = side.runner()
        feeds = [{"x": np.ones((1, 4), np.float32)} for _ in range(2)]
        first, second = (runner.run(each, ["y"])["y"] for each in feeds)
        np.testing.assert_array_equal(first, second)


def test_dequantized_models_are_held_against_their_integers() -> None:
    net = Net()
    quantization = Scale(0.05, 3)
    x = net.input((2, 9), "int8", name="x", q=quantization)
    y = net.output((2, 9), "int8", name="y", q=quantization)
    net.op("RELU", [x], [y])
    assert verify(net.bytes(), onnx_of("(float[2,9] x) => (float[2,9] y) { y = Relu(x) }")).ok
    assert not verify(net.bytes(), onnx_of("(float[2,9] x) => (float[2,9] y) { y = Neg(x) }")).ok


def test_tflite_against_itself() -> None:
    path = MODELS / "tinynet_int8.tflite"
    report = verify(path, path)
    assert report.counts == {"equal": len(report.rows)}
    assert len(report.rows) == 14


def test_nothing_but_the_result_is_printed() -> None:
    path = str(MODELS / "tinynet_float.tflite")
    code = f"from relayout.verification import verify; print(verify({path!r}, {path!r}).ok)"
    result = subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, capture_output=True, text=True)
    assert (result.stdout, result.stderr) == ("True\n", "")


def test_onnx_may_be_the_source() -> None:
    net = Net()
    x, y = net.input((2, 3), name="x"), net.output((2, 3), name="y")
    net.op("NEG", [x], [y], options("NegOptions"))
    assert verify(onnx_of("(float[2,3] x) => (float[2,3] y) { y = Neg(x) }"), net.bytes()).ok


def test_tensors_that_were_not_kept_are_left_out() -> None:
    path = MODELS / "tinynet_float.tflite"
    with open_side(path) as side:
        names = [value.name for value in (*side.interiors, *side.outputs)]
        feeds = {side.inputs[0].name: np.ones((2, 24, 40, 3), np.float32)}
        found = side.runner().run(feeds, names)  # one delegate for all: nothing but the output is there
        assert set(found) < set(names)
        assert side.outputs[0].name in found


def test_a_tensor_without_elements_is_none_of_the_missing() -> None:
    """The interpreter keeps no data of it."""
    net = Net()
    nothing = net.const(np.zeros((0, 4), np.float32), "float32")
    net.graph.outputs.append(nothing)
    net.op("NEG", [net.input((2, 3))], [net.output((2, 3))], options("NegOptions"))
    report = verify(net.bytes(), convert(net.bytes()).model)
    assert report.ok
    assert [row.verdict for row in report.outputs] == [Verdict.EQUAL, Verdict.EQUAL]


def signed() -> Net:
    """Two subgraphs and a signature for each; the second is quantized inside, and its signature names an end twice."""
    net = Net()
    x, y = net.input((2, 3), name="x"), net.output((2, 3), name="y")
    net.op("NEG", [x], [y], options("NegOptions")).sign({"x": x}, {"y": y}, "first")
    with net.subgraph() as other:
        p, q, out = net.input((5, 4), name="p"), net.input((5, 4), name="q"), net.output((5, 4), name="out")
        inner = [net.tensor((5, 4), "int8", q=Scale(0.02)) for _ in range(3)]
        net.op("QUANTIZE", [p], [inner[0]]).op("QUANTIZE", [q], [inner[1]])
        net.op("SUB", inner[:2], [inner[2]], options("SubOptions")).op("DEQUANTIZE", [inner[2]], [out])
    net.sign({"a": p, "b": q}, {"result": out, "again": out}, "second", other)
    return net.sign({"b": p, "a": q}, {"result": out}, "turned", other)


def test_a_signature_of_another_subgraph(tmp_path: Path) -> None:
    source = tmp_path / "two.tflite"
    source.write_bytes(signed().bytes())
    results = {key: convert(source, signature=key).proto for key in ("first", "second", "turned")}
    reports = {key: verify(source, proto) for key, proto in results.items()}
    assert all(report.ok for report in reports.values())
    assert [(row.name, row.other) for row in reports["second"].outputs] == [("again", "result")]
    assert any(row.operator == "SUB" for row in reports["second"].interiors)
    (told,) = (entry for entry in results["turned"].metadata_props if entry.key == "relayout.signature")
    assert told.value == "turned"
    told.value = "third"
    with pytest.raises(ReadError, match="no signature 'third'"):
        verify(source, results["turned"])
    (sub,) = (node for node in results["second"].graph.node if node.op_type == "Sub")
    sub.op_type = "Add"
    assert [row.verdict for row in verify(source, results["second"]).outputs] == [Verdict.DIFFERS]


def test_a_signature_whose_body_stands_first(tmp_path: Path) -> None:
    """The first subgraph is that of a signature, and a branch of the second one's."""
    net = Net()
    x, y = net.input((2, 3), name="x"), net.output((2, 3), name="y")
    net.op("NEG", [x], [y], options("NegOptions")).sign({"x": x}, {"y": y}, "branch")
    with net.subgraph() as other:
        net.op("ABS", [net.input((2, 3))], [net.output((2, 3))], options("AbsOptions"))
    with net.subgraph() as main:
        c, p, out = net.input((), "bool", name="c"), net.input((2, 3), name="p"), net.output((2, 3), name="out")
        net.op("IF", [c, p], [out], options("IfOptions", thenSubgraphIndex=0, elseSubgraphIndex=other))
    source = tmp_path / "branches.tflite"
    source.write_bytes(net.sign({"c": c, "p": p}, {"out": out}, "main", main).bytes())
    for fed in (True, False):
        result = convert(source, signature="main").proto
        assert verify(source, result, inputs={"c": np.array(fed)}).ok
        (branches,) = (node for node in result.graph.node if node.op_type == "If")
        for each in branches.attribute:
            each.g.node[0].op_type = "Relu"
        assert not verify(source, result, inputs={"c": np.array(fed)}).ok


def test_times_and_differences_are_of_the_signature_that_a_result_was_made_of(tmp_path: Path) -> None:
    source = tmp_path / "two.tflite"
    source.write_bytes(signed().bytes())
    for name in ("second.onnx", "second.tflite"):
        result = tmp_path / name
        convert(source, signature="second", format=result.suffix.removeprefix(".")).save(result)
        with pytest.raises(RelayoutError, match="there are ") as raised:
            bench(source, result, inputs={"zz": np.ones((5, 4), np.float32)})
        assert "'p'" in str(raised.value)
        assert "'x'" not in str(raised.value)
        compared = diff(source, result)
        assert not compared.only_first
        assert not compared.only_second


def test_models_of_which_one_lacks_the_signature_are_timed_and_compared_as_they_are(tmp_path: Path) -> None:
    source, first, second = (tmp_path / name for name in ("two.tflite", "first.tflite", "second.onnx"))
    source.write_bytes(signed().bytes())
    convert(source, signature="first", format="tflite").save(first)
    convert(source, signature="second").save(second)
    assert bench(first, second, seconds=0.01).turns
    assert diff(first, second).only_first


def test_names_of_another_subgraph_are_no_names_of_this_one() -> None:
    (x,), (y,) = LiteRTSide(signed().bytes()).inputs, LiteRTSide(signed().bytes()).outputs
    assert (x.all_names, y.all_names) == (("x", "x"), ("y", "y"))


def counted() -> Net:
    """What is fed is added to a resource, in the first subgraph and, by a signature of its own, in another."""
    net = Net()

    def count(result: int, x: int, name: str) -> None:
        h, old = net.tensor((1,), type_name="RESOURCE"), net.tensor((2, 3))
        net.op("VAR_HANDLE", [], [h], options("VarHandleOptions", sharedName=name))
        net.op("READ_VARIABLE", [h], [old], options("ReadVariableOptions"))
        net.op("ADD", [old, x], [result], options("AddOptions"))
        net.op("ASSIGN_VARIABLE", [h, result], [], options("AssignVariableOptions"))

    with net.subgraph() as start:
        for name in "ab":
            h = net.tensor((1,), type_name="RESOURCE")
            net.op("VAR_HANDLE", [], [h], options("VarHandleOptions", sharedName=name))
            net.op("ASSIGN_VARIABLE", [h, net.const(np.ones((2, 3)))], [], options("AssignVariableOptions"))
    once = options("CallOnceOptions", initSubgraphIndex=start)
    x, y = net.input((2, 3)), net.output((2, 3))
    net.op("CALL_ONCE", [], [], once)
    count(y, x, "a")
    net.sign({"x": x}, {"y": y}, "first")
    with net.subgraph() as other:
        p, q = net.input((2, 3)), net.output((2, 3))
        net.op("CALL_ONCE", [], [], once)
        count(q, p, "b")
    return net.sign({"x": p}, {"y": q}, "second", other)


@pytest.mark.parametrize("signature", ["first", "second"])
def test_every_run_begins_with_the_initial_state(tmp_path: Path, signature: str) -> None:
    source = tmp_path / "counted.tflite"
    source.write_bytes(counted().bytes())
    assert verify(source, convert(source, signature=signature).proto, runs=3).ok


@pytest.mark.parametrize("io", ["keep", "convert"])
@pytest.mark.parametrize(("shape", "first"), [((2, 3, 5, 4), 0.5), ((2, 3, 5, 4), None), ((), 0.25)], ids=str)
def test_state_that_goes_in_and_out_begins_with_its_initial_value(
    shape: tuple[int, ...], first: float | None, io: str
) -> None:
    """What is fed is added to a resource and transposed; a result reads the resource as an input."""
    net = Net()
    start = np.full(shape, first) if first is not None else np.random.default_rng(0).normal(size=shape)
    x, y = net.input((2, 3, 5, 4), name="x"), net.output((2, 4, 3, 5), name="y")
    h, total, moved = net.tensor((1,), type_name="RESOURCE"), net.tensor(shape), net.tensor((2, 3, 5, 4))
    with net.subgraph() as initial:
        inner = net.tensor((1,), type_name="RESOURCE")
        net.op("VAR_HANDLE", [], [inner], options("VarHandleOptions", sharedName="total"))
        net.op("ASSIGN_VARIABLE", [inner, net.const(start)], [], options("AssignVariableOptions"))
    net.op("CALL_ONCE", [], [], options("CallOnceOptions", initSubgraphIndex=initial))
    net.op("VAR_HANDLE", [], [h], options("VarHandleOptions", sharedName="total"))
    net.op("READ_VARIABLE", [h], [total], options("ReadVariableOptions"))
    net.op("ADD", [x, total], [moved], options("AddOptions"))
    net.op("TRANSPOSE", [moved, net.const([0, 3, 1, 2], "int32")], [y])
    result = convert(net.bytes(), state="io", io=io)  # type: ignore[arg-type]
    assert len(result.model.graph.inputs) == 2
    if io == "convert":
        assert result.report.transposes == 0
    assert verify(net.bytes(), result.proto, runs=2).ok
    state = result.model.graph.inputs[1]
    state.metadata_props["relayout.initial"] = "3.5"
    assert not verify(net.bytes(), result.proto).ok
    del state.metadata_props["relayout.initial"]
    with pytest.raises(RelayoutError, match="inputs that the first has not: 'total'"):
        verify(net.bytes(), result.proto)


def windows(length: int) -> bytes:
    """A convolution over a sound of open length, in whose place the file has 1 sample."""
    net = Net()
    x, y = net.input((1, 1), name="x", signature=(-1, -1)), net.output((1, 1, 1, 3), signature=(-1, 1, -1, 3))
    sound = net.tensor((1, 1, 1, 1), signature=(-1, 1, -1, 1))
    net.op("EXPAND_DIMS", [x, net.const(1, "int32")], [row := net.tensor((1, 1, 1), signature=(-1, 1, -1))])
    net.op("EXPAND_DIMS", [row, net.const(-1, "int32")], [sound])
    kernel = net.const(np.random.default_rng(0).normal(size=(3, 1, length, 1)))
    table = options("Conv2DOptions", padding=1, strideW=2, strideH=1)
    net.op("CONV_2D", [sound, kernel, net.const([0, 0, 0])], [y], table)
    return net.bytes()


def test_open_extents_are_tried_where_those_of_the_file_do_not_run() -> None:
    source = windows(200)
    model = convert(source).model
    report = verify(source, model)
    assert report.ok
    assert report.inputs[0].shape == (1, 512)
    assert len(report.rows) > 1
    given = np.random.default_rng(1).normal(size=(2, 300)).astype(np.float32)
    assert verify(source, model, inputs={"x": given}).ok
    with pytest.raises(RelayoutError, match=r"failed to prepare.*--input"):
        verify(windows(100_000), model)


def flexible() -> bytes:
    """An operator that is left to the Flex delegate."""
    net, builder = Net(), flexbuffers.Builder()
    with builder.Vector():
        builder.String("Erf")
        builder.String("\x12\x03Erf\x2a\x07\x0a\x01T\x12\x02\x30\x01")  # a NodeDef: the name, and that T is float32
    net.op("CUSTOM FlexErf", [net.input((2, 3), name="x")], [net.output((2, 3), name="y")])
    net.graph.operators[-1].customOptions = list(builder.Finish())
    return net.bytes()


def test_operators_of_tensorflow_need_its_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    with pytest.raises(MissingRuntimeError, match=r"pip install 'tensorflow==2\.19\.\*'"):
        verify(flexible(), convert(flexible()).model)


def test_an_interpreter_without_the_delegate_is_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of `tensorflow-cpu` says what LiteRT's does."""
    monkeypatch.setattr(litert_runtime, "_is_left_to_flex", lambda source: False)
    with pytest.raises(MissingRuntimeError, match=r"'tensorflow==2\.19\.\*', which is built with that delegate"):
        verify(flexible(), convert(flexible()).model)


def test_operators_of_tensorflow_run_in_its_interpreter() -> None:
    pytest.importorskip("tensorflow.lite.python.interpreter", reason="TensorFlow is not installed")
    report = verify(flexible(), convert(flexible()).model)
    assert report.ok
    assert report.runtimes[0][0] == "TensorFlow"
    assert not verify(flexible(), onnx_of("(float[2,3] x) => (float[2,3] y) { y = Tanh(x) }")).ok


def test_a_sample_rate_is_fed_to_what_reads_one() -> None:
    """LiteRT's Mfcc gives zeros below twice the upper limit, and a rate of 3 is none."""
    net = Net()
    x, rate = net.input((2, 7, 257), low=0.1, high=9, name="x"), net.input((1,), "int32", name="rate")
    net.op("CUSTOM Mfcc", [x, rate], [net.output((2, 7, 13), name="y")])
    limits = {"upper_frequency_limit": 4000, "lower_frequency_limit": 20, "filterbank_channel_count": 40}
    net.graph.operators[-1].customOptions = list(flexbuffers.Dumps(limits | {"dct_coefficient_count": 13}))
    spectrum = np.random.default_rng(0).uniform(0.1, 9, (2, 7, 257)).astype(np.float32)
    assert verify(net.bytes(), convert(net.bytes()).proto, inputs={"x": spectrum}).ok
    assert [(value.name, value.likely) for value in LiteRTSide(net.bytes()).inputs] == [("x", None), ("rate", 16000)]


def test_a_result_that_is_a_tflite_is_run_as_its_file() -> None:
    source = onnx_of("(float[2,3] x) => (float[2,3] result) { result = Neg(x) }")
    result = convert(source, format="tflite")
    report = verify(source, result)
    assert report.ok
    assert [name for name, _ in report.runtimes] == ["ONNX Runtime", "LiteRT"]
    wrong = onnx_of("(float[2,3] x) => (float[2,3] result) { result = Abs(x) }")
    assert not verify(wrong, result).ok


@pytest.mark.parametrize("kind", ["uint8", "int8", "int16", "float"])
def test_a_single_number_is_fed(kind: str) -> None:
    one = (
        f"({kind} x) => ({kind}[1] result) {{ axis = Constant<value = int64[1] {{0}}>() result = Unsqueeze(x, axis) }}"
    )
    assert verify(onnx_of(one), onnx_of(one)).ok
