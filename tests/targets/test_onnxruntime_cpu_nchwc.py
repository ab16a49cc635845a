"""`--target onnxruntime-cpu-nchwc`: kernels for blocks of channels, stamped, and refused where blocks are others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import relayout
from relayout import pipeline
from relayout.errors import LayoutError
from relayout.lowering.pad_channels import join_tiles
from relayout.targets import BlockSizes, targets
from relayout.targets.onnxruntime import cpu_guard
from relayout.targets.onnxruntime.blocked_prices import KERNELS
from running import run
from targets.blocked import DOMAIN, run_anywhere, spelled_out, tile_of
from targets.nets import Array, blocked, feed, floats
from text_form import model

HERE = cpu_guard.block_here()
TILES = (8, 16)
RESIDUAL = """
residual (float[2,3,13,11] x) => (float[2,32,1,1] y, float[2,32,4,3] z) {
    [stem] c1 = Conv<pads=[1,1,1,1], strides=[2,2]>(x, w1, b1)
    [r1] a1 = Relu(c1)
    [body1] c2 = Conv<pads=[1,1,1,1]>(a1, w2, b2)
    [r2] a2 = LeakyRelu<alpha=0.2>(c2)
    [body2] c3 = Conv<pads=[1,1,1,1]>(a2, w3)
    [sum] s1 = Add(a1, c3)
    [r3] a3 = Clip(s1, low, high)
    [depthwise] c4 = Conv<pads=[1,1,1,1], group=32>(a3, w4, b4)
    [r4] a4 = HardSigmoid<alpha=0.3>(c4)
    [grouped] c5 = Conv<pads=[1,1,1,1], group=2>(a4, w5)
    [wave] e1 = Sin(c5)
    [scale] e2 = Mul(e1, half)
    [max] m1 = MaxPool<kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]>(e2)
    [mean] p1 = AveragePool<kernel_shape=[3,3], pads=[1,1,1,1], count_include_pad=1>(m1)
    [last] z = Conv(p1, w6)
    [pool] y = GlobalAveragePool(z)
}"""
"""A stem, a residual sum, a depthwise and a grouped kernel, pools: each kind of kernel, with operators between."""


def residual() -> onnx.ModelProto:
    kernels = {"w1": floats(32, 3, 3, 3), "w2": floats(32, 32, 3, 3), "w3": floats(32, 32, 3, 3, seed=1)}
    kernels |= {"w4": floats(32, 1, 3, 3), "w5": floats(32, 16, 3, 3), "w6": floats(32, 32, 1, 1)}
    bounds = {"low": np.array(-1, np.float32), "high": np.array(2, np.float32), "half": np.array(0.5, np.float32)}
    return model(RESIDUAL, b1=floats(32), b2=floats(32, seed=2), b4=floats(32, seed=4), **bounds, **kernels)


def converted(source: onnx.ModelProto | str, tile: int = HERE, **options: object) -> relayout.Result:
    """The result for a size of blocks: valid, proved, stamped, and equal to its source on any CPU."""
    result = relayout.convert(source, target=f"onnxruntime-cpu-nchwc{tile}", **options)  # type: ignore[arg-type]
    onnx.checker.check_model(result.proto, full_check=True)
    assert result.report.proved
    return result


def agree(source: onnx.ModelProto, result: onnx.ModelProto, given: Mapping[str, Array] | None = None) -> None:
    inputs = feed(source) if given is None else given
    for want, got in zip(run(source, inputs), run_anywhere(result, inputs), strict=True):
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def counts(proto: onnx.ModelProto) -> Counter[str]:
    return Counter(f"{node.domain}:{node.op_type}" if node.domain else node.op_type for node in proto.graph.node)


def kernels(**named: int) -> Counter[str]:
    return Counter({f"{DOMAIN}:{name}": count for name, count in named.items()})


# What ONNX Runtime has


@pytest.mark.skipif(HERE not in TILES, reason="ONNX Runtime has no blocks on this CPU")
def test_what_relayout_writes_is_what_onnx_runtime_writes_itself(tmp_path: Path) -> None:
    """The same kernels and weights, byte for byte, on a network that needs no choice."""
    source = residual()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = str(tmp_path / "own.onnx")
    onnxruntime.InferenceSession(source.SerializeToString(), options, ["CPUExecutionProvider"])
    own, ours = onnx.load(tmp_path / "own.onnx"), converted(source).proto
    described = [kernels_of(own), kernels_of(ours)]
    assert len(described[0]) == 6
    assert described[0] == described[1]


def kernels_of(proto: onnx.ModelProto) -> set[tuple[object, ...]]:
    """The constants of convolutions in blocks."""
    found = set()
    for node in proto.graph.node:
        if (node.domain, node.op_type) == (DOMAIN, "Conv"):
            found.add(tuple(weights(proto, name) for name in node.input[1:3]))
    return found


def weights(proto: onnx.ModelProto, name: str) -> tuple[object, ...]:
    tensor = next((tensor for tensor in proto.graph.initializer if tensor.name == name), None)
    return () if tensor is None else (tuple(tensor.dims), numpy_helper.to_array(tensor).tobytes())


@pytest.mark.skipif(HERE not in TILES, reason="ONNX Runtime has no blocks on this CPU")
def test_with_the_wrong_blocks_results_are_wrong_without_a_word() -> None:
    """Why there is a stamp, and why what runs elsewhere is spelled out in these tests."""
    source = residual()
    other = converted(source, next(tile for tile in TILES if tile != HERE)).proto
    want, got = run(source, feed(source)), run(other, feed(source))
    assert [a.shape for a in want] == [a.shape for a in got]
    assert all(np.abs(a - b).max() > 0.1 for a, b in zip(want, got, strict=True))
    agree(source, other)


# Whole networks


@pytest.mark.parametrize("tile", TILES)
def test_a_network_stays_in_blocks_without_a_reshape(tile: int) -> None:
    source = residual()
    result = converted(source, tile)
    found = counts(result.proto)
    assert found == kernels(Conv=6, MaxPool=1, AveragePool=1, GlobalAveragePool=1, ReorderOutput=1) + Counter(
        ["Sin", "Mul", "Reshape"]
    )
    agree(source, result.proto)
    assert tile_of(result.proto) == tile


LEVELS = ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL")


@pytest.mark.skipif(HERE not in TILES, reason="ONNX Runtime has no blocks on this CPU")
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("net", [residual, blocked])
def test_every_level_of_optimization_gives_the_same(net: object, level: str) -> None:
    source = net()  # type: ignore[operator]
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    proto = converted(source).proto
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, ["CPUExecutionProvider"])
    for want, got in zip(run(source, feed(source)), session.run(None, feed(source)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


LAST = """
last (float[2,13,11,32] x) => (float[2,13,11,32] y, float[2,143,32] z) {
    t = Transpose<perm=[0,3,1,2]>(x)  c = Conv<pads=[1,1,1,1]>(t, w)  y = Transpose<perm=[0,2,3,1]>(c)
    s = Sigmoid(y)  z = Reshape(s, shape)
}"""


@pytest.mark.parametrize("tile", TILES)
def test_images_with_channels_last_are_reordered_from_there(tile: int) -> None:
    source = model(LAST, w=floats(32, 32, 3, 3), shape=np.array([2, 143, 32], np.int64))
    proto = converted(source, tile).proto
    said = {node.op_type: [a.i for a in node.attribute if a.name == "channels_last"] for node in proto.graph.node}
    assert said["ReorderInput"] == said["ReorderOutput"] == [1]
    assert "Transpose" not in counts(proto)
    agree(source, proto)


def test_a_reshape_reads_an_image_under_whatever_shape() -> None:
    """Of an image of one pixel blocks are no other order: the Reshape out of them is the only one."""
    nodes = converted(residual()).proto.graph.node
    (reshape,) = [node for node in nodes if node.op_type == "Reshape"]
    assert [node.op_type for node in nodes if node.output[0] == reshape.input[0]] == ["GlobalAveragePool"]


def test_a_batch_that_is_not_known() -> None:
    source = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> g (float[N,32,H,9] x) => (float[N,32,H,9] y) {'
        " a = Conv<pads=[1,1,1,1]>(x, w) b = Sin(a) c = Softmax<axis=1>(b) y = Conv<pads=[1,1,1,1]>(c, w) }"
    )
    source.graph.initializer.append(numpy_helper.from_array(floats(32, 32, 3, 3), "w"))
    result = converted(onnx.shape_inference.infer_shapes(source))
    assert counts(result.proto)[f"{DOMAIN}:Conv"] == 2
    agree(source, result.proto, {"x": floats(3, 32, 7, 9)})


BROADCAST = """
squeeze (float[2,32,13,11] x) => (float[2,32,13,11] y) {
    c = Conv<pads=[1,1,1,1]>(x, w1)  p = GlobalAveragePool(c)  e = Conv(p, w2)  s = Sigmoid(e)
    m = Mul(c, s)  a = Add(m, shift)  y = Conv<pads=[1,1,1,1]>(a, w3)
}"""


@pytest.mark.parametrize("tile", TILES)
def test_what_broadcasts_does_so_in_tiles(tile: int) -> None:
    """A squeeze and excitation: a number per channel times an image, for which a joined shape would be wrong."""
    kernels = {"w1": floats(32, 32, 3, 3), "w2": floats(32, 32, 1, 1), "w3": floats(32, 32, 3, 3, seed=5)}
    source = model(BROADCAST, shift=floats(1, 32, 1, 1), **kernels)
    free = replace(targets()[f"onnxruntime-cpu-nchwc{tile}"], price=None, joins=False)
    proto = relayout.convert(source, target=free).proto
    found = counts(proto)
    assert found[f"{DOMAIN}:ReorderInput"] == found[f"{DOMAIN}:ReorderOutput"] == 1
    assert found["Reshape"] == 3  # of the image and of the numbers into tiles, and of the sum back
    agree(source, proto)


def test_what_broadcasts_leaves_blocks_where_that_is_cheaper() -> None:
    """In tiles nothing but 16 elements lie together: a large image is brought out of blocks for that, and back."""
    kernels = {"w1": floats(32, 32, 3, 3), "w2": floats(32, 32, 1, 1), "w3": floats(32, 32, 3, 3, seed=5)}
    found = []
    for side in ((13, 11), (5, 3)):
        text = BROADCAST.replace("13,11", ",".join(map(str, side)))
        source = model(text, shift=floats(1, 32, 1, 1), **kernels)
        proto = converted(source, 16).proto
        agree(source, proto)
        found.append(counts(proto)[f"{DOMAIN}:ReorderOutput"])
    assert found == [2, 1]


@pytest.mark.parametrize("tile", TILES)
def test_images_are_laid_one_after_another_without_a_reshape(tile: int) -> None:
    """Along channels, of two images: blocks of the second follow those of the first, image by image."""
    text = "a = Conv(x, w1) b = Conv(x, w2) c = Concat<axis=1>(a, b) y = Conv<pads=[1,1,1,1]>(c, w3)"
    shapes = {"w1": floats(16, 32, 1, 1), "w2": floats(32, 32, 1, 1, seed=1), "w3": floats(16, 48, 3, 3)}
    source = model(f"g (float[2,32,9,7] x) => (float[2,16,9,7] y) {{ {text} }}", **shapes)
    proto = converted(source, tile).proto
    assert "Reshape" not in counts(proto)
    agree(source, proto)


BRANCHES = """
branches (float[1,32,9,7] x, bool on) => (float[1,32,9,7] y) {
    c = Conv<pads=[1,1,1,1]>(x, w1)
    k = If (on) <
        then_branch = then () => (float[1,32,9,7] a) { a = Conv<pads=[1,1,1,1]>(c, w2) },
        else_branch = other () => (float[1,32,9,7] b) { b = Sin(c) }
    >
    y = Conv<pads=[1,1,1,1]>(k, w3)
}"""


@pytest.mark.parametrize("on", [True, False])
def test_bodies_of_an_if_are_in_blocks_too(on: bool) -> None:
    shapes = {"w1": 1, "w2": 2, "w3": 3}
    source = model(BRANCHES, **{name: floats(32, 32, 3, 3, seed=seed) for name, seed in shapes.items()})
    result = converted(source)
    assert result.report.operators[f"{DOMAIN}:Conv"] >= 2
    if HERE in TILES:
        given = {"x": floats(1, 32, 9, 7), "on": np.array(on)}
        np.testing.assert_allclose(run(result.proto, given)[0], run(source, given)[0], rtol=1e-3, atol=1e-3)


def test_a_kernel_that_is_read_twice_is_kept_for_both() -> None:
    source = model(
        "g (float[1,32,9,7] x) => (float[1,32,9,7] y, float[32,32,3,3] z) {"
        " y = Conv<pads=[1,1,1,1]>(x, w) z = Neg(w) }",
        w=floats(32, 32, 3, 3),
    )
    agree(source, converted(source).proto)


# What is not fused, or not in blocks


def test_an_operator_of_the_same_name_of_others_is_not_taken_in() -> None:
    text = "g (float[1,32,9,7] x) => (float[1,32,9,7] y) { c = Conv<pads=[1,1,1,1]>(x, w) y = Relu(c) }"
    source = model(text, w=floats(32, 32, 3, 3))
    source.graph.node[-1].domain = "com.example"
    source.opset_import.add(domain="com.example", version=1)
    assert counts(converted(source).proto)["com.example:Relu"] == 1


KEPT = {
    "a sum with one image for all channels": "c = Conv<pads=[1,1,1,1]>(x, w) y = Add(c, k)",
    "what is read twice": "c = Conv<pads=[1,1,1,1]>(x, w) r = Relu(c) y = Add(c, r)",
    "a sum of a convolution with itself": "c = Conv<pads=[1,1,1,1]>(x, w) y = Add(c, c)",
    "a Clip whose bounds are computed": "c = Conv<pads=[1,1,1,1]>(x, w) b = ReduceMax<keepdims=0>(x) y = Clip(c, b)",
    "an activation that the kernel has not": "c = Conv<pads=[1,1,1,1]>(x, w) y = Elu(c)",
}


@pytest.mark.parametrize("text", KEPT.values(), ids=KEPT.keys())
def test_what_a_kernel_does_not_take_in(text: str) -> None:
    constants = {"w": floats(32, 32, 3, 3), "k": floats(1, 1, 9, 7)}
    source = model(f"g (float[1,32,9,7] x) => (float[1,32,9,7] y) {{ {text} }}", **constants)
    result = converted(source)
    before, after = counts(source), counts(result.proto)
    assert {name: after[name] for name in before if name != "Conv"} == {
        name: count for name, count in before.items() if name != "Conv"
    }
    agree(source, result.proto)


DECLINED = {
    "channels": ("float[1,20,9,7] x", "y = Conv<pads=[1,1,1,1]>(x, w)", {"w": floats(16, 20, 3, 3)}),
    "a kernel that is computed": ("float[1,32,9,7] x, float[16,32,3,3] w", "y = Conv<pads=[1,1,1,1]>(x, w)", {}),
    "rank 3": ("float[1,32,9] x", "y = Conv<pads=[1,1]>(x, w)", {"w": floats(32, 32, 3)}),
    "doubles": ("double[1,32,9,7] x", "y = Conv<pads=[1,1,1,1]>(x, w)", {"w": floats(32, 32, 3, 3).astype(np.float64)}),
    "indices": ("float[1,32,9,7] x", "y, i = MaxPool<kernel_shape=[3,3]>(x)", {}),
    "ceil_mode": ("float[1,32,9,7] x", "y = AveragePool<kernel_shape=[3,3], strides=[2,2], ceil_mode=1>(x)", {}),
}


@pytest.mark.parametrize(("inputs", "text", "constants"), DECLINED.values(), ids=DECLINED.keys())
def test_what_does_not_fit_stays_as_it_is(inputs: str, text: str, constants: dict[str, Array]) -> None:
    kind = "double" if "double" in inputs else "float"
    source = model(f"g ({inputs}) => ({kind}[a,b,c,d] y) {{ {text} }}".replace("[a,b,c,d]", "[]"), **constants)
    del source.graph.output[0].type.tensor_type.shape.dim[:]
    source.graph.output[0].type.tensor_type.ClearField("shape")
    target = targets()["onnxruntime-cpu-nchwc16"]
    proto = relayout.convert(source, target=replace(target, joins=False)).proto
    assert not any(node.domain == DOMAIN for node in proto.graph.node)
    assert not any(item.key.startswith("relayout.nchwc") for item in proto.metadata_props)


def test_what_stays_in_onnx_s_layout_is_counted() -> None:
    """20 channels, of which a logarithm is taken, cannot be made up to whole blocks."""
    text = "c = Conv<pads=[1,1,1,1]>(x, w) d = Conv(c, u) e = Log(d) y = Conv(e, v)"
    kernels = {"w": floats(32, 32, 3, 3), "u": floats(20, 32, 1, 1), "v": floats(32, 20, 1, 1)}
    source = model(f"g (float[1,32,9,7] x) => (float[1,32,9,7] y) {{ {text} }}", **kernels)
    (line,) = [line for line in converted(source, 16).report.notes if "not in blocks" in line]
    assert line.endswith(": 2")


def test_sums_of_unnamed_extents_are_not_taken_in() -> None:
    """What has no name may be stretched."""
    source = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> g (float[1,32,9,7] x, float[?,32,?,?] z) => (float[?,32,?,?] y) {'
        " c = Conv<pads=[1,1,1,1]>(x, w) y = Add(c, z) }"
    )
    source.graph.initializer.append(numpy_helper.from_array(floats(32, 32, 3, 3), "w"))
    proto = converted(source).proto
    assert counts(proto)["Add"] == 1
    agree(source, proto, {"x": floats(1, 32, 9, 7), "z": floats(1, 32, 1, 1)})


def test_never_by_default() -> None:
    for options in ({}, {"to": "NCHW16c"}, {"target": "onnxruntime-cpu"}):
        proto = relayout.convert(residual(), **options).proto  # type: ignore[arg-type]
        assert not any(node.domain == DOMAIN for node in proto.graph.node)


# Channels up to whole blocks

PADDED = {
    "an activation": "a = Conv<pads=[1,1,1,1]>(x, w24, b24) c = Sigmoid(a) y = Conv<pads=[1,1,1,1]>(c, w32)",
    "a sum": "a = Conv<pads=[1,1,1,1]>(x, w24) c = Conv(a, p24, b24) d = Add(a, c) y = Conv(d, p32)",
    "depthwise": "a = Conv<pads=[1,1,1,1]>(x, w24) c = Conv<pads=[1,1,1,1], group=24>(a, g24, b24) y = Conv(c, p32)",
    "a pool": "a = Conv<pads=[1,1,1,1]>(x, w24) c = MaxPool<kernel_shape=[2,2], strides=[2,2]>(a) y = Conv(c, p32)",
    "numbers": "a = Conv(x, v24) c = Mul(a, k24) d = Add(c, half) y = Conv<pads=[1,1,1,1]>(d, w32)",
    "a squeeze": "a = Conv(x, v24) q = GlobalMaxPool(a) e = Conv(q, p24) s = Tanh(e) m = Mul(a, s) y = Conv(m, p32)",
}
WIDTHS: dict[str, Array] = {
    "w24": floats(24, 32, 3, 3),
    "v24": floats(24, 32, 1, 1),
    "p24": floats(24, 24, 1, 1),
    "g24": floats(24, 1, 3, 3),
    "b24": floats(24),
    "k24": floats(1, 24, 1, 1),
    "w32": floats(32, 24, 3, 3),
    "p32": floats(32, 24, 1, 1),
    "half": np.array(0.5, np.float32),
}


@pytest.mark.parametrize("text", PADDED.values(), ids=PADDED.keys())
def test_channels_are_made_up_to_whole_blocks(text: str) -> None:
    """24 channels are whole blocks of 8, and with eight of zeros whole blocks of 16."""
    side = "[1,32,4,3]" if "MaxPool" in text else "[1,32,9,7]"
    source = model(f"g (float[1,32,9,7] x) => (float{side} y) {{ {text} }}", **WIDTHS)
    results = {tile: converted(source, tile) for tile in TILES}
    for result in results.values():
        agree(source, result.proto)
        found = counts(result.proto)
        assert found[f"{DOMAIN}:Conv"] >= 2
        if "GlobalMaxPool" not in text:  # where numbers are stretched, blocks are a matter of price
            assert found[f"{DOMAIN}:Conv"] == text.count("Conv")
            assert found[f"{DOMAIN}:ReorderInput"] == found[f"{DOMAIN}:ReorderOutput"] == 1
    assert not any("more channels" in line for line in results[8].report.notes)
    assert any("more channels" in line for line in results[16].report.notes)


@pytest.mark.parametrize(("channels", "padded"), [(7, False), (8, True), (12, True)])
def test_channels_of_half_a_block_are_made_up_to_one(channels: int, padded: bool) -> None:
    """With fewer, most of what is computed would be zeros."""
    kernels = {"u": floats(channels, 32, 3, 3), "v": floats(32, channels, 1, 1)}
    text = "a = Conv<pads=[1,1,1,1]>(x, u) y = Conv(a, v)"
    source = model(f"g (float[1,32,9,7] x) => (float[1,32,9,7] y) {{ {text} }}", **kernels)
    result = converted(source, 16)
    agree(source, result.proto)
    assert any("more channels" in line for line in result.report.notes) is padded


NOT_PADDED = {
    "what is divided by": "a = Conv(x, v24) c = Conv(x, v24) d = Div(a, c) y = Conv(d, p32)",
    "a logarithm": "a = Conv(x, v24) c = Log(a) y = Conv(c, p32)",
    "a norm over channels": "a = Conv(x, v24) c = Softmax<axis=1>(a) y = Conv(c, p32)",
    "an output": "y = Conv(x, v24)",
    "a group": "a = Conv(x, v24) c = Conv<group=3>(a, n24) y = Conv(c, p32)",
}


@pytest.mark.parametrize("text", NOT_PADDED.values(), ids=NOT_PADDED.keys())
def test_what_must_not_have_more_channels(text: str) -> None:
    """Zeros divided by zeros, or in a mean, are no longer nothing."""
    channels = 24 if "p32" not in text else 32
    constants = {**WIDTHS, "n24": floats(24, 8, 1, 1)}
    source = model(f"g (float[1,32,9,7] x) => (float[1,{channels},9,7] y) {{ {text} }}", **constants)
    given = {"x": np.abs(floats(1, 32, 9, 7)) + 1}
    proto = converted(source, 16).proto
    widths = {next(iter(tensor.dims)) for tensor in proto.graph.initializer if len(tensor.dims) == 4}
    assert widths <= {24, 32, 1}
    if "Log" not in text:
        agree(source, proto, given)
    else:  # of negative numbers
        for want, got in zip(run(source, given), run_anywhere(proto, given), strict=True):
            assert np.array_equal(np.isnan(want), np.isnan(got))


FOLDED = {
    "a normalization": "a = Conv<pads=[1,1,1,1]>(x, w, b) c = BatchNormalization(a, g, h, m, v) y = Relu(c)",
    "a scale": "a = Conv<pads=[1,1,1,1]>(x, w) c = Mul(a, k) d = Add(k, c) y = Relu(d)",
    "a division and a difference": "a = Conv<pads=[1,1,1,1]>(x, w) c = Div(a, k) d = Sub(k, c) y = Relu(d)",
    "one number": "a = Conv<pads=[1,1,1,1]>(x, w) c = Mul(a, half) y = Relu(c)",
    "behind a Relu": "a = Conv<pads=[1,1,1,1]>(x, w) r = Relu(a) c = Mul(r, k) y = Conv(c, u)",
    "before two": "n = Mul(x, k) r = Relu(n) c = Conv(r, u) d = Conv(r, u) e = Add(c, d) y = Relu(e)",
    "before": "n = BatchNormalization(x, g, h, m, v) r = Relu(n) y = Conv<pads=[1,1,1,1]>(r, w, b)",
}


@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("text", FOLDED.values(), ids=FOLDED.keys())
def test_scales_and_shifts_are_folded(text: str, tile: int) -> None:
    constants: dict[str, Array] = {name: np.abs(floats(32, seed=seed)) + 0.5 for seed, name in enumerate("bghmv")}
    constants |= {"w": floats(32, 32, 3, 3), "u": floats(32, 32, 1, 1), "k": np.abs(floats(32, 1, 1)) + 0.5}
    constants["half"] = np.array(0.5, np.float32)
    source = model(f"g (float[2,32,9,7] x) => (float[2,32,9,7] y) {{ {text} }}", **constants)
    proto = converted(source, tile).proto
    agree(source, proto)
    kinds = {node.op_type for node in proto.graph.node}
    assert kinds == {"Conv", "ReorderInput", "ReorderOutput"}
    assert {node.output[0] for node in proto.graph.node} >= {"y"}


KEPT_SCALES = {
    "what is read twice": "a = Conv<pads=[1,1,1,1]>(x, w) c = Mul(a, k) y = Add(a, c)",
    "one number a row": "a = Conv<pads=[1,1,1,1]>(x, w) y = Mul(a, rows)",
    "two variances": "a = Conv<pads=[1,1,1,1]>(x, w) y, n, o = BatchNormalization<training_mode=1>(a, k0, k0, k0, k0)",
}


@pytest.mark.parametrize("text", KEPT_SCALES.values(), ids=KEPT_SCALES.keys())
def test_what_is_no_scale_per_channel_stays(text: str) -> None:
    constants = {"w": floats(32, 32, 3, 3), "k": floats(32, 1, 1), "half": np.array(0.5, np.float32)}
    constants |= {"rows": floats(9, 1), "k0": np.abs(floats(32)) + 1}
    source = model(f"g (float[2,32,9,7] x) => (float[2,32,9,7] y) {{ {text} }}", **constants)
    proto = converted(source, 16).proto
    agree(source, proto)
    assert {node.op_type for node in proto.graph.node} & {"Mul", "Add", "BatchNormalization"}


# Planted faults


def _faults() -> dict[str, onnx.ModelProto]:
    """The result with one thing wrong each."""
    found = {}
    for name in ("kernel", "order", "shape"):
        proto = converted(model(LAST, w=floats(32, 32, 3, 3), shape=np.array([2, 143, 32], np.int64)), 16).proto
        for tensor in proto.graph.initializer:
            if name == "kernel" and len(tensor.dims) == 4:
                array = numpy_helper.to_array(tensor).reshape(2, 2, 3, 3, 16, 16).swapaxes(4, 5)
                tensor.CopyFrom(numpy_helper.from_array(array.reshape(32, 32, 3, 3).copy(), tensor.name))
        for node in proto.graph.node:
            for attribute in node.attribute:
                if name == "order" and node.op_type == "ReorderInput":
                    attribute.i = 1 - attribute.i
            if name == "shape" and node.op_type == "Conv":
                node.op_type, node.domain = "Sin", ""
                del node.input[1:], node.attribute[:]
        found[name] = proto
    return found


@pytest.mark.parametrize("name", ["kernel", "shape"])
def test_a_planted_fault_is_seen(name: str) -> None:
    source = model(LAST, w=floats(32, 32, 3, 3), shape=np.array([2, 143, 32], np.int64))
    with pytest.raises(AssertionError):
        agree(source, _faults()[name])


def test_a_planted_order_is_seen() -> None:
    """NHWC read as NCHW: the channels are 13 then, and do not fit the kernel."""
    source = model(LAST, w=floats(32, 32, 3, 3), shape=np.array([2, 143, 32], np.int64))
    with pytest.raises(Exception, match=r"(?i)channels|dimension|shape"):
        agree(source, _faults()["order"])


# The stamp


@pytest.fixture
def stored(tmp_path: Path) -> tuple[Path, Path]:
    """A source and its result in blocks, as files."""
    source, result = tmp_path / "source.onnx", tmp_path / "blocked.onnx"
    onnx.save(residual(), source)
    relayout.convert(source, target=f"onnxruntime-cpu-nchwc{HERE}").save(result)
    return source, result


def test_a_result_says_where_it_is_right(stored: tuple[Path, Path]) -> None:
    said = {item.key: item.value for item in onnx.load(stored[1]).metadata_props}
    assert said[cpu_guard.BLOCK] == str(HERE)
    assert "x64" in said[cpu_guard.FEATURES]
    assert any(f"blocks of {HERE} channels" in line for line in relayout.explain(stored[1]).notes)


def test_a_result_is_verified_here_and_optimized_again(stored: tuple[Path, Path], tmp_path: Path) -> None:
    source, result = stored
    assert relayout.verify(source, result).ok
    again = relayout.optimize(result)
    again.save(tmp_path / "again.onnx")
    assert cpu_guard.stamped(pipeline.read(tmp_path / "again.onnx")) == HERE
    assert relayout.verify(source, tmp_path / "again.onnx").ok


def test_a_result_is_not_run_where_blocks_are_others(
    stored: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_guard, "block_here", lambda: 24 - HERE)
    with pytest.raises(LayoutError, match=f"computes in blocks of {HERE} channels .* has blocks of {24 - HERE} on"):
        relayout.verify(*stored)
    assert relayout.optimize(stored[1]).report.notes  # it may be rewritten anywhere


def _stamped(path: Path, value: str | None) -> Path:
    proto = onnx.load(path)
    kept = [item for item in proto.metadata_props if item.key != cpu_guard.BLOCK]
    del proto.metadata_props[:]
    proto.metadata_props.extend(kept)
    if value is not None:
        proto.metadata_props.add(key=cpu_guard.BLOCK, value=value)
    other = path.with_name("other.onnx")
    onnx.save(proto, other)
    return other


@pytest.mark.parametrize("value", [None, "", "seven", "-16", "32", "16 "])
def test_what_does_not_say_its_blocks_is_not_read(stored: tuple[Path, Path], value: str | None) -> None:
    other = _stamped(stored[1], value)
    for act in (relayout.optimize, relayout.explain, lambda path: relayout.verify(stored[0], path)):
        with pytest.raises(LayoutError, match=r"nchwc_block.*convert its source"):
            act(other)
    assert "nchwc_block" in (pipeline.inspect(other).problem or "")


def test_a_function_with_such_kernels_is_seen() -> None:
    source = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21, "own": 1]> g (float[1,32,9,7] x) => (float[1,32,9,7] y) {'
        ' y = own.block(x) } <domain: "own", opset_import: ["": 21, "com.microsoft.nchwc": 1]>'
        " block (a) => (b) { b = com.microsoft.nchwc.ReorderInput(a) }"
    )
    with pytest.raises(LayoutError, match="nchwc_block"):
        relayout.optimize(source)


def test_blocks_of_two_sizes_do_not_come_together(stored: tuple[Path, Path]) -> None:
    with pytest.raises(
        LayoutError, match=f"in blocks of {HERE} channels already, and the target has them of {24 - HERE}"
    ):
        relayout.convert(stored[1], target=f"onnxruntime-cpu-nchwc{24 - HERE}")
    again = relayout.convert(stored[1], target=f"onnxruntime-cpu-nchwc{HERE}").proto
    agree(onnx.load(stored[0]), again)


def test_parts_are_stamped_too(stored: tuple[Path, Path], tmp_path: Path) -> None:
    result = relayout.convert(stored[0], target=f"onnxruntime-cpu-nchwc{HERE}")
    result.save_parts(tmp_path / "parts")
    for path in sorted((tmp_path / "parts").glob("*.onnx")):
        assert cpu_guard.stamped(pipeline.read(path)) == HERE


@pytest.mark.skipif(HERE not in TILES, reason="ONNX Runtime has no blocks on this CPU")
def test_the_size_of_blocks_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert relayout.convert(residual(), target="onnxruntime-cpu-nchwc").plan["options"]["wishes"]["target"] == (
        f"onnxruntime-cpu-nchwc{HERE}"
    )
    monkeypatch.setattr("relayout.targets.onnxruntime.cpu_nchwc.block_here", lambda: 1)
    with pytest.raises(LayoutError, match="no kernels for blocks"):
        relayout.convert(residual(), target="onnxruntime-cpu-nchwc")


# Parts


def test_prices_are_measured_for_every_kernel() -> None:
    rows = targets()["onnxruntime-cpu-nchwc16"].kernels
    named = {row.op_types for row in rows if row.written is not None and row.written.domain == DOMAIN}
    assert named - {"FusedConv"} == KERNELS.keys()


def test_a_model_without_blocks_is_left_alone() -> None:
    found = pipeline.read(residual())
    before = [node.op_type for node in found.graph]
    assert join_tiles(found) == 0
    assert [node.op_type for node in found.graph] == before
    assert cpu_guard.note(found) == ""
    cpu_guard.refuse_others(found, BlockSizes(16, DOMAIN, "ReorderInput", "ReorderOutput", ""))


def test_the_spelling_of_these_tests_is_right() -> None:
    """Where this CPU has a model's blocks, spelled out and run as it is are the same."""
    if HERE in TILES:
        proto = converted(residual()).proto
        for want, got in zip(run(proto, feed(proto)), run(spelled_out(proto, HERE), feed(proto)), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


# Random networks


def _random(seed: int) -> onnx.ModelProto:
    """A random graph of convolutions, pools, sums and elementwise operators on images of 8 to 48 channels."""
    rng = np.random.default_rng(seed)
    images: list[tuple[str, int, int]] = [("x", int(rng.choice([3, 16, 32])), 12)]
    nodes: list[onnx.NodeProto] = []
    constants: list[onnx.TensorProto] = []

    def emit(op_type: str, inputs: list[str], channels: int, side: int, **said: object) -> None:
        name = f"v{len(nodes)}"
        nodes.append(helper.make_node(op_type, inputs, [name], name=name, **said))
        images.append((name, channels, side))

    def constant(*shape: int) -> str:
        constants.append(numpy_helper.from_array(floats(*shape, seed=len(constants)), f"k{len(constants)}"))
        return constants[-1].name

    for _ in range(int(rng.integers(4, 12))):
        value, c, side = images[int(rng.integers(max(0, len(images) - 4), len(images)))]
        kind = int(rng.integers(0, 9))
        if kind <= 2:
            groups = int(rng.choice([1, 1, 1, c])) if c % 8 == 0 else 1
            given = c if groups > 1 else int(rng.choice([8, 16, 20, 32, 48]))
            taps = int(rng.choice([1, 3]))
            inputs = [value, constant(given, c // groups, taps, taps)]
            inputs += [constant(given)] if rng.random() < 0.5 else []
            emit("Conv", inputs, given, side, group=groups, pads=[taps // 2] * 4)
        elif kind == 3:
            emit(str(rng.choice(["Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSigmoid", "Sin"])), [value], c, side)
        elif kind == 4:
            name = str(rng.choice(["MaxPool", "AveragePool"]))
            emit(name, [value], c, side, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
        elif kind == 5:
            others = [name for name, channels, _ in images if channels == c]
            emit(str(rng.choice(["Add", "Mul"])), [value, str(rng.choice(others))], c, side)
        elif kind == 6:
            other, more, _ = images[int(rng.integers(0, len(images)))]
            emit("Concat", [value, other], c + more, side, axis=1)
        elif kind == 7:
            emit("Mul", [value, constant(1, c, 1, 1)], c, side)
        else:
            emit("Softmax", [value], c, side, axis=int(rng.choice([1, 3])))
    read = {name for node in nodes for name in node.input}
    ends = [(name, c, side) for name, c, side in images[1:] if name not in read]
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, c, s, s - 1]) for n, c, s in (images[0], *ends)]
    graph = helper.make_graph(nodes, "random", infos[:1], infos[1:], constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return onnx.shape_inference.infer_shapes(made)


@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("seed", range(20))
def test_random_networks(seed: int, tile: int) -> None:
    source = _random(seed)
    result = converted(source, tile)
    agree(source, result.proto)


def test_random_networks_are_of_use() -> None:
    """Most have kernels in blocks, and some what cannot be."""
    found = [counts(converted(_random(seed)).proto) for seed in range(20)]
    assert sum(any(name.startswith(DOMAIN) for name in each) for each in found) > 12
    assert sum(each["Conv"] + each["com.microsoft:FusedConv"] > 0 for each in found) > 4
    assert sum(each[f"{DOMAIN}:ReorderOutput"] > 1 for each in found) > 2
