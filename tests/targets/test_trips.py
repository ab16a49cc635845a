"""There and back: a network that is converted to a layout and from it is the network that it was."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import onnx.utils
import pytest
from onnx import numpy_helper

import relayout
from running import run
from small import build
from targets.nets import blocked, cnn, feed
from text_form import floats, model


def there(source: onnx.ModelProto, layout: str, **options: object) -> onnx.ModelProto:
    result = relayout.convert(source, to=layout, **options)  # type: ignore[arg-type]
    onnx.checker.check_model(result.proto, full_check=True)
    assert result.report.proved
    inputs = feed(source)
    for want, got in zip(run(source, inputs), run(result.proto, inputs), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    return result.proto


def nodes(proto: onnx.ModelProto, *, names: bool = True) -> list[tuple[object, ...]]:
    found = []
    for n in proto.graph.node:
        values = (tuple(n.input), tuple(n.output)) if names else (len(n.input), len(n.output))
        attributes = sorted((a.name, onnx.helper.get_attribute_value(a)) for a in n.attribute)
        found.append((n.name if names else "", n.domain, n.op_type, *values, attributes))
    return found


def same(first: onnx.ModelProto, second: onnx.ModelProto) -> None:
    """Nodes, names and weights."""
    assert nodes(first) == nodes(second)
    weights = [{w.name: numpy_helper.to_array(w) for w in proto.graph.initializer} for proto in (first, second)]
    assert weights[0].keys() == weights[1].keys()
    for name, array in weights[0].items():
        np.testing.assert_array_equal(array, weights[1][name])
    assert [i.domain for i in first.opset_import] == [i.domain for i in second.opset_import]
    assert len(first.functions) == len(second.functions)


def network() -> onnx.ModelProto:
    """The network up to what Flatten reads: a view comes back as a Reshape of another name."""
    return onnx.utils.Extractor(cnn()).extract_model(["x"], ["h1", "z"])


@pytest.mark.parametrize(("net", "layout"), [(network, "NHWC"), (blocked, "NHWC"), (blocked, "NCHW16c")])
def test_there_and_back_is_the_source(net: object, layout: str) -> None:
    source = net()  # type: ignore[operator]
    moved = there(source, layout)
    assert any(node.domain for node in moved.graph.node)
    same(there(moved, "NCHW"), source)


def test_kernels_come_back_from_another_layout() -> None:
    source = network()
    moved = there(source, "NHWC", desired_layouts={"Conv": ["NHWC", "OHWI"]})
    assert "relayout.nhwc.ohwi" in {node.domain for node in moved.graph.node}
    same(there(moved, "NCHW"), source)


def test_one_layout_to_another_is_the_way_through_the_standard() -> None:
    """NHWC -> NCHW16c gives what NCHW -> NCHW16c gives."""
    source = blocked()
    through, straight = there(there(source, "NHWC"), "NCHW16c"), there(source, "NCHW16c")
    assert nodes(through, names=False) == nodes(straight, names=False)
    weights = [[numpy_helper.to_array(w) for w in proto.graph.initializer] for proto in (through, straight)]
    for one, other in zip(*weights, strict=True):
        np.testing.assert_array_equal(one, other)


def test_inlined_functions_run_as_standard_operators() -> None:
    result = relayout.convert(cnn(), to="NHWC", inline=True)
    assert {node.domain for node in result.proto.graph.node} == {""}
    assert not result.proto.functions
    inputs = feed(cnn())
    for want, got in zip(run(cnn(), inputs), run(result.proto, inputs), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_an_inlined_pool_gives_its_indices_where_they_are_read() -> None:
    """One function for all pools: a call that does not ask for indices has one output, its body two."""
    text = "a = MaxPool<kernel_shape=[2,2]>(x) b, at = MaxPool<kernel_shape=[3,3]>(x)"
    source = build("float[1,2,5,6] x", text, {})
    result = relayout.convert(source, to="NHWC", inline=True)
    onnx.checker.check_model(result.proto, full_check=True)
    assert not result.proto.functions
    fed = feed(source)
    for want, got in zip(run(source, fed), run(result.proto, fed), strict=True):
        np.testing.assert_array_equal(got, want)


CONTESTED = """
    <ir_version: 10, opset_import: ["": 21]>
    g (float[6,2,5,3] x) => (float[6,2,5,3] b, float[6,2,5,3] shuffled, float[6,3,2,5] z, float[3,2,2,5,3] apart,
                             float[5,3] m, float[6,2,5,3] y)
    <float[2,2,1,1] v = {1, 2, 3, 4}, float[2,2,1,1] w = {2, 1, 1, 3}, float[2,2,1,1] u = {3, 1, 4, 2},
     int64[3] axes = {0,1,2}, int64[5] first = {2,3,2,5,3}, int64[5] other = {3,2,2,5,3}, int64[4] flat = {6,2,5,3}> {
        a = Conv(x, v)
        b = Conv(a, w)
        split = Reshape(x, first)
        turned = Transpose<perm=[1,0,2,3,4]>(split)
        shuffled = Reshape(turned, flat)
        z = Transpose<perm=[0,3,1,2]>(shuffled)
        apart = Reshape(b, other)
        m = ReduceMean<keepdims=0>(split, axes)
        y = Conv(shuffled, u)
    }"""


def test_of_two_splits_that_do_not_agree_the_same_is_free_there_and_back() -> None:
    """An axis of 6 is 2 times 3 for one Reshape and 3 times 2 for another, which stand in another order afterwards."""
    source = onnx.parser.parse_model(CONTESTED)
    back = relayout.convert(there(source, "NHWC"), to="NCHW")
    assert back.report.bytes == relayout.optimize(source).report.bytes


@pytest.mark.parametrize(("pool", "reduction"), [("GlobalAveragePool", "ReduceMean"), ("GlobalMaxPool", "ReduceMax")])
def test_a_pool_of_a_whole_image_takes_blocks_of_channels_as_a_reduction(pool: str, reduction: str) -> None:
    """It would take a block for a third axis of the image."""
    source = model(
        f"""g (float[2,32,6,5] x) => (float[2,32,1,1] y) {{
            a = Conv<pads=[1,1,1,1]>(x, k)
            p = {pool}(a)
            y = Conv(p, l)
        }}""",
        k=floats(32, 32, 3, 3),
        l=floats(32, 32, 1, 1, seed=1),
    )
    result = relayout.convert(source, desired_layouts={"Conv": ["NCHW16c", "default"]}, inline=True)
    assert reduction in {node.op_type for node in result.proto.graph.node}
    inputs = feed(source)
    np.testing.assert_allclose(run(result.proto, inputs)[0], run(source, inputs)[0], rtol=1e-4, atol=1e-4)
