"""`--target onnxruntime-cpu`: whole networks on integers, channels last, and what ONNX Runtime makes of the result."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto

import relayout
from relayout import pipeline
from relayout.layout import Extent
from relayout.lowering.quantized_units import fuse_units
from relayout.rules import Placement, Signature, Variant, facts
from relayout.targets import DesiredLayouts, targets
from relayout.targets.onnxruntime.prices import CHANNELS_FIRST
from rules.law import Array
from running import run
from targets.nets import feed, qdq
from targets.row_cases import operator
from text_form import HEADER, model

BLOCK = """
block (float[1,3,20,22] x) => (float[1,24] y) {
    [q0] i0 = QuantizeLinear(x, s0, z)      [d0] f0 = DequantizeLinear(i0, s0, z)
    [dw1] v1 = DequantizeLinear(w1, sw, zw)
    [stem] c1 = Conv<pads=[1,1,1,1]>(f0, v1)
    [r1] a1 = Relu(c1)
    [q1] i1 = QuantizeLinear(a1, s1, zero)  [d1] f1 = DequantizeLinear(i1, s1, zero)
    [max] m1 = MaxPool<kernel_shape=[3,3], strides=[2,2]>(f1)
    [q2] i2 = QuantizeLinear(m1, s1, zero)  [d2] f2 = DequantizeLinear(i2, s1, zero)
    [norm] b1 = BatchNormalization(f2, gamma, beta, mean, var)
    [r2] a2 = Relu(b1)
    [q3] i3 = QuantizeLinear(a2, s2, zero)  [d3] f3 = DequantizeLinear(i3, s2, zero)
    [dw2] v2 = DequantizeLinear(w2, sw, zw)
    [grow] c2 = Conv<pads=[1,1,1,1]>(f3, v2)
    [q4] i4 = QuantizeLinear(c2, s3, z)     [d4] f4 = DequantizeLinear(i4, s3, z)
    [join] k1 = Concat<axis=1>(f2, f4)
    [q5] i5 = QuantizeLinear(k1, s3, z)     [d5] f5 = DequantizeLinear(i5, s3, z)
    [down] p1 = AveragePool<kernel_shape=[2,2], strides=[2,2]>(f5)
    [q6] i6 = QuantizeLinear(p1, s3, z)     [d6] f6 = DequantizeLinear(i6, s3, z)
    [dw3] v3 = DequantizeLinear(w3, sw, zw)
    [skip] c3 = Conv(f6, v3)
    [q7] i7 = QuantizeLinear(c3, s3, z)     [d7] f7 = DequantizeLinear(i7, s3, z)
    [sum] t1 = Sum(f7, f6)
    [q8] i8 = QuantizeLinear(t1, s3, z)     [d8] f8 = DequantizeLinear(i8, s3, z)
    [mean1] g1 = GlobalAveragePool(f8)
    [q9] i9 = QuantizeLinear(g1, s3, z)     [d9] f9 = DequantizeLinear(i9, s3, z)
    [flat] y = Flatten(f9)
}"""
"""A stem, half of a dense block, a transition and a sum of two: what exported int8 networks consist of."""


def block() -> onnx.ModelProto:
    rng = np.random.default_rng(7)

    def scale(value: float) -> Array:
        return np.array(value, np.float32)

    constants: dict[str, Array] = {f"s{number}": scale(0.02 * (number + 1)) for number in range(4)}
    constants |= {"sw": scale(0.01), "z": np.array(121, np.uint8), "zero": np.array(0, np.uint8)}
    constants |= {"zw": np.array(0, np.int8)}
    for name, shape in {"w1": (16, 3, 3, 3), "w2": (8, 16, 3, 3), "w3": (24, 24, 1, 1)}.items():
        constants[name] = rng.integers(-40, 40, shape).astype(np.int8)
    for name in ("gamma", "beta", "mean", "var"):
        constants[name] = (rng.random(16) + 0.3).astype(np.float32)
    proto = onnx.parser.parse_model(HEADER + BLOCK)
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in constants.items())
    return onnx.shape_inference.infer_shapes(proto)


def test_what_only_relayout_knows_is_stated() -> None:
    """ONNX infers nothing of what the runtime's own operators give; without shapes behind them it could no longer."""
    source = block()
    del source.graph.value_info[:]
    proto = relayout.convert(source, target="onnxruntime-cpu").proto
    shaped = {value.name for value in proto.graph.value_info if value.type.tensor_type.HasField("shape")}
    own = {name for node in proto.graph.node if node.domain for name in node.output}
    assert shaped == own - {value.name for value in proto.graph.output}
    assert own < {name for node in proto.graph.node for name in node.output}


RESIZED = """<ir_version: 10, opset_import: ["": 20]>
g (float[1,9,10,20] x) => (float[1,18,20,20] y) {
    a = Transpose<perm=[0,3,1,2]>(x)  b = Resize<mode="linear">(a, , scales)  y = Transpose<perm=[0,2,3,1]>(b)
}"""


def resized() -> onnx.ModelProto:
    source = onnx.parser.parse_model(RESIZED)
    scales = np.array([1, 1, 2, 2], np.float32)
    source.graph.initializer.append(onnx.numpy_helper.from_array(scales, "scales"))
    return onnx.shape_inference.infer_shapes(source)


def counts(proto: onnx.ModelProto) -> dict[str, int]:
    found: dict[str, int] = {}
    for node in proto.graph.node:
        found[node.op_type] = found.get(node.op_type, 0) + 1
    return found


def optimized(proto: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    """What ONNX Runtime runs of a model at full optimization."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = str(folder / "optimized.onnx")
    onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return onnx.load(options.optimized_model_filepath)


def test_a_network_runs_on_integers_with_channels_last() -> None:
    source = block()
    result = relayout.convert(source, target="onnxruntime-cpu")
    assert result.report.proved
    found = counts(result.proto)
    assert "BatchNormalization" not in found
    assert found["QLinearConv"] == 4, "three convolutions, and the normalization"
    assert (found["QuantizeLinear"], found["DequantizeLinear"]) == (1, 1), "at the ends only"
    (transpose,) = (node for node in result.proto.graph.node if node.op_type == "Transpose")
    types = {value.name: value.type.tensor_type.elem_type for value in result.proto.graph.value_info}
    assert types[transpose.input[0]] == TensorProto.UINT8, "it moves bytes, and of the smallest value"
    assert result.report.bytes == 3 * 20 * 22
    for node in result.proto.graph.node:
        said = {attribute.name: attribute.i for attribute in node.attribute}
        if node.op_type.startswith("QLinear") and node.op_type not in ("QLinearAdd", "QLinearConcat"):
            assert (node.domain, said["channels_last"]) == ("com.microsoft", 1)
    assert [node.domain for node in result.proto.graph.node if node.op_type == "NhwcMaxPool"] == ["com.microsoft"]


def test_the_result_is_within_a_step_value_by_value() -> None:
    result = relayout.convert(block(), target="onnxruntime-cpu").proto
    report = relayout.verify(block(), result)
    assert report.ok, report.first
    inputs = feed(block())
    for want, got in zip(run(block(), inputs), run(result, inputs), strict=True):
        np.testing.assert_allclose(got, want, atol=0.08 + 1e-6, err_msg="more than a step of the last QuantizeLinear")


def test_full_optimization_adds_nothing_to_the_result(tmp_path: Path) -> None:
    """ONNX Runtime's own pass on the source brings the normalization back to channels first; here nothing is left."""
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    after.mkdir()
    assert counts(optimized(block(), before))["Transpose"] >= 4
    result = relayout.convert(block(), target="onnxruntime-cpu").proto
    assert counts(optimized(result, after)) == counts(result)


def test_a_second_time_changes_nothing() -> None:
    for net in (qdq, block):
        once = relayout.convert(net(), target="onnxruntime-cpu").proto
        twice = relayout.convert(once, target="onnxruntime-cpu").proto
        assert [(n.name, n.op_type) for n in twice.graph.node] == [(n.name, n.op_type) for n in once.graph.node]


def test_a_plan_is_checked_from_the_source(tmp_path: Path) -> None:
    source, plan = tmp_path / "block.onnx", tmp_path / "plan.json"
    onnx.save(block(), source)
    result = relayout.convert(source, target="onnxruntime-cpu")
    plan.write_text(json.dumps(result.plan), encoding="utf-8")
    checked = pipeline.check_plan(plan, source)
    assert (checked.bytes, checked.transposes, checked.proved) == (result.report.bytes, 1, True)


def test_what_is_asked_for_goes_before_the_target() -> None:
    result = relayout.convert(block(), target="onnxruntime-cpu", node_layouts={"stem": "NCHW"})
    stem = next(node for node in result.proto.graph.node if node.name == "stem")
    assert (stem.domain, stem.op_type) == ("", "QLinearConv")


def test_floats_stay_as_onnx_has_them() -> None:
    text = """<ir_version: 10, opset_import: ["": 20]>
    g (float[1,3,8,10] x) => (float[1,5,7,9] y) { a = Conv(x, w) y = MaxPool<kernel_shape=[2,2]>(a) }"""
    source = onnx.parser.parse_model(text)
    weights = np.ones((5, 3, 1, 1), np.float32)
    source.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    proto = relayout.convert(source, target="onnxruntime-cpu").proto
    assert [(node.domain, node.op_type) for node in proto.graph.node] == [("", "Conv"), ("", "MaxPool")]


HYBRID = """<ir_version: 10, opset_import: ["": 20]>
g (float[1,20,8,10] x) => (float[1,24,8,10] y) {
    a = Conv(x, w1)  b = Transpose<perm=[0,2,3,1]>(a)  c = LayerNormalization(b, s)
    d = Transpose<perm=[0,3,1,2]>(c)  y = Conv<group=GROUPS>(d, w2)
}"""
"""A normalization of channels between convolutions, as hybrids of convolutions and attention have it."""


def hybrid(groups: int) -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    inner = 48 if groups > 1 else 20
    text = HYBRID.replace("GROUPS", str(groups)).replace("float[1,24", f"float[1,{48 if groups > 1 else 24}")
    source = onnx.parser.parse_model(text)
    last = (48, 1, 1, 1) if groups > 1 else (24, inner, 1, 1)
    for name, shape in {"w1": (inner, 20, 1, 1), "w2": last, "s": (inner,)}.items():
        array = rng.normal(size=shape).astype(np.float32)
        source.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return onnx.shape_inference.infer_shapes(source)


@pytest.mark.parametrize("groups", [1, 48])
def test_transposes_beside_blocked_convolutions_become_reorders(groups: int, tmp_path: Path) -> None:
    """They cost nothing: ONNX Runtime reads and gives either order when it reorders into blocks and back."""
    source = hybrid(groups)
    if "ReorderInput" not in counts(optimized(source, tmp_path)):
        pytest.skip("ONNX Runtime has no blocked kernels for this processor")
    result = relayout.convert(source, target="onnxruntime-cpu")
    assert (result.report.bytes, result.report.proved) == (0, True)
    assert not result.proto.functions
    assert "Transposes from bodies of functions, which the runtime cancels or runs: 2" in result.report.notes
    runs = counts(optimized(result.proto, tmp_path))
    reorders = ("ReorderInput", "ReorderOutput", "Transpose")
    assert {name: runs.get(name, 0) for name in reorders} == {"ReorderInput": 2, "ReorderOutput": 2, "Transpose": 0}
    inputs = feed(source)
    np.testing.assert_allclose(run(result.proto, inputs)[0], run(source, inputs)[0], rtol=1e-4, atol=1e-5)


def constants_of(source: onnx.ModelProto, **shapes: tuple[int, ...]) -> onnx.ModelProto:
    """The same with random numbers for names, and its shapes."""
    rng = np.random.default_rng(0)
    for name, shape in shapes.items():
        array = np.abs(rng.normal(size=shape)).astype(np.float32)
        source.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return onnx.shape_inference.infer_shapes(source)


@pytest.mark.parametrize(
    ("between", "folded"),
    [("b = Add(a, s)", 1), ("p = Mul(a, s)  b = BatchNormalization(p, n, n, n, n)", 2)],
)
def test_what_a_blocked_convolution_takes_in_is_in_it_before_the_transpose(
    between: str, folded: int, tmp_path: Path
) -> None:
    """A Transpose between a convolution and a bias that is added to it would keep ONNX Runtime from joining the two."""
    text = f"""<ir_version: 10, opset_import: ["": 20]>
    g (float[1,20,8,10] x) => (float[1,24,8,10] y) {{
        a = Conv(x, w1)  {between}  c = Transpose<perm=[0,2,3,1]>(b)  d = LayerNormalization(c, n)
        e = Transpose<perm=[0,3,1,2]>(d)  y = Conv(e, w2)
    }}"""
    source = constants_of(onnx.parser.parse_model(text), w1=(20, 20, 1, 1), w2=(24, 20, 1, 1), s=(20, 1, 1), n=(20,))
    if "ReorderInput" not in counts(optimized(source, tmp_path)):
        pytest.skip("ONNX Runtime has no blocked kernels for this processor")
    result = relayout.convert(source, target="onnxruntime-cpu")
    assert (result.report.bytes, result.report.proved) == (0, True)
    assert counts(result.proto) == {"Conv": 2, "Transpose": 2, "LayerNormalization": 1}
    (note,) = (note for note in result.report.notes if note.startswith("scales and shifts in"))
    assert sum(int(word) for word in note.split() if word.isdigit()) == folded
    assert not {"Transpose", "Add", "Mul"} & counts(optimized(result.proto, tmp_path)).keys()
    inputs = feed(source)
    np.testing.assert_allclose(run(result.proto, inputs)[0], run(source, inputs)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("scale", "between", "blocked"),
    [("2", "b = HardSwish(a)", True), ("1.5", "b = HardSwish(a)", False), ("2", "b = PRelu(a, s)", False)],
)
def test_a_resize_of_blocks_by_a_whole_number_stays_there(
    scale: str, between: str, blocked: bool, tmp_path: Path
) -> None:
    """ONNX Runtime runs it in blocks, which takes about as long as channels last, with no reorder beside it."""
    text = f"""<ir_version: 10, opset_import: ["": 20]>
    g (float[1,20,8,10] x) => (y) {{
        k = Constant<value_floats=[1.0, 1.0, {scale}, {scale}]>()
        a = Conv(x, w1)  {between}  c = Resize<mode="linear">(b, , k)  d = Relu(c)  y = Conv(d, w2)
    }}"""
    source = constants_of(onnx.parser.parse_model(text), w1=(20, 20, 1, 1), w2=(24, 20, 1, 1), s=(20, 1, 1))
    if "ReorderInput" not in counts(optimized(source, tmp_path)):
        pytest.skip("ONNX Runtime has no blocked kernels for this processor")
    assert ("Upsample" in counts(optimized(source, tmp_path))) == blocked
    result = relayout.convert(source, target="onnxruntime-cpu")
    assert counts(result.proto).get("Transpose", 0) == (0 if blocked else 2)
    assert ("Upsample" in counts(optimized(result.proto, tmp_path))) == blocked
    inputs = feed(source)
    np.testing.assert_allclose(run(result.proto, inputs)[0], run(source, inputs)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("opset", [17, 20])
def test_a_resize_between_elements_runs_with_channels_last(opset: int) -> None:
    """The standard's operator, its scales in the image's order: the kernel for that is several times faster."""
    source = resized()
    source.opset_import[0].version = opset
    result = relayout.convert(source, target="onnxruntime-cpu")
    (node,) = result.proto.graph.node
    assert (node.domain, node.op_type, result.report.bytes) == ("", "Resize", 0)
    (scales,) = (onnx.numpy_helper.to_array(t) for t in result.proto.graph.initializer if t.name == node.input[2])
    assert scales.tolist() == [1, 2, 2, 1]
    inputs = feed(source)
    np.testing.assert_allclose(run(result.proto, inputs)[0], run(source, inputs)[0], rtol=1e-5, atol=1e-6)


def test_a_call_without_bias_has_none_when_it_is_inlined() -> None:
    """An empty input in the place of the bias would keep ONNX Runtime from blocking the convolution."""
    result = relayout.convert(hybrid(1), to="NHWC", inline=True)
    convolutions = [node for node in result.proto.graph.node if node.op_type == "Conv"]
    assert [len(node.input) for node in convolutions] == [2, 2]


@pytest.mark.parametrize("name", sorted(CHANNELS_FIRST))
def test_prices_are_of_integers_with_channels_first(name: str) -> None:
    """Every operator of the measured table has its price in one order, and none in the other."""
    model, target = pipeline.read(resized() if name == "Resize" else block()), targets()["onnxruntime-cpu"]
    fuse_units(model, target.units, target.unsigned)
    wishes = DesiredLayouts.of(target=target)
    (index, *_) = (index for index, node in enumerate(model.graph) if node.op_type == name)
    found = operator(model, index)
    known = facts(found)
    assert isinstance(known, Signature)
    signature = wishes(found, known)
    costs = {}
    for variant in signature.variants:
        assert signature.price is not None
        standard = known.inputs[0] or ()
        channel = "c" if "c" in standard else standard[1]
        costs[(variant.inputs[0] or ()).index(channel) == 1] = signature.price(_placed(variant))
    assert costs.keys() == {False, True}
    assert costs[False] == 0 < costs[True]


def _placed(variant: Variant) -> Placement:
    def dims(given: tuple[tuple[str, ...] | None, ...]) -> tuple[tuple[tuple[str, Extent], ...] | None, ...]:
        return tuple(None if letters is None else tuple((t, Extent.of(4)) for t in letters) for letters in given)

    return Placement(dims(variant.inputs), dims(variant.outputs))


@pytest.mark.parametrize("length", ["8", "k"])
def test_a_region_follows_a_turned_resize_whatever_is_known_of_its_length(length: str) -> None:
    source = model(
        f"""g (float[1,7,9,3] x, float[{length}] roi) => (float[1,14,18,3] y) {{
            a = Transpose<perm=[0,3,1,2]>(x)
            b = Resize<mode="linear", coordinate_transformation_mode="tf_crop_and_resize">(a, roi, , sizes)
            y = Transpose<perm=[0,2,3,1]>(b)
        }}""",
        sizes=np.array([1, 3, 14, 18], np.int64),
    )
    result = relayout.convert(source, target="onnxruntime-cpu")
    assert result.report.transposes == 0
    given = {"x": np.random.default_rng(0).normal(size=(1, 7, 9, 3)).astype(np.float32)}
    given["roi"] = np.array([0, 0, -0.2, 0.1, 1, 1, 1.3, 0.9], np.float32)
    np.testing.assert_allclose(run(result.proto, given)[0], run(source, given)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("target", ["onnxruntime-cpu", "onnxruntime-cpu-avx2", "onnxruntime-cpu-nchwc16"])
def test_what_reads_nothing_has_no_price(target: str) -> None:
    """A network that draws numbers: of a node without inputs the price was an IndexError."""
    source = model(
        """g (float[2,3,4,5] x) => (float[2,3,4,5] y) {
            n = RandomNormal<shape=[2,3,4,5], seed=1.0>()
            a = Transpose<perm=[0,2,3,1]>(n)
            b = Transpose<perm=[0,3,1,2]>(a)
            y = Add(x, b)
        }"""
    )
    result = relayout.convert(source, target=target)
    assert [node.op_type for node in result.model.graph] == ["RandomNormal", "Add"]


def test_a_pool_between_two_scales_stays_on_real_numbers(tmp_path: Path) -> None:
    """ONNX Runtime refused a NhwcMaxPool of floats: nothing makes one pool on integers of a unit with two scales."""
    source = model(
        """g (float[1,1,4,6] x) => (int8[6,1,4,1] y) {
            p = QuantizeLinear(x, s, z)
            q = Transpose<perm=[2,3,0,1]>(p)
            d = DequantizeLinear(q, s, z)
            m = MaxPool<kernel_shape=[1,1]>(d)
            u = Transpose<perm=[1,2,0,3]>(m)
            y = QuantizeLinear(u, t, z)
        }""",
        s=np.array(0.05, np.float32),
        t=np.array(0.02, np.float32),
        z=np.array(0, np.int8),
    )
    onnx.save(source, tmp_path / "m.onnx")
    relayout.convert(source, target="onnxruntime-cpu").save(tmp_path / "r.onnx")
    assert relayout.verify(tmp_path / "m.onnx", tmp_path / "r.onnx").ok
