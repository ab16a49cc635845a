"""Opening a fixed dimension: what is stated anew, what stays, and who binds it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest

import relayout
from relayout.errors import LayoutError, RelayoutError
from relayout.layout.stored_as import OPENED_BATCH
from relayout.shapes import OpeningError
from relayout.shapes.rewriting import STATED
from running import run
from small import build

Array = np.ndarray[Any, Any]


def opened(model: onnx.ModelProto, **options: Any) -> onnx.ModelProto:
    return relayout.optimize(model, **{"batch": "n", **options}).proto


def shapes(model: onnx.ModelProto) -> dict[str, list[int | str]]:
    ends = (*model.graph.input, *model.graph.output)
    return {end.name: [dim.dim_param or dim.dim_value for dim in end.type.tensor_type.shape.dim] for end in ends}


def floats(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def agrees(source: onnx.ModelProto, result: onnx.ModelProto, feed: Mapping[str, Array], axis: int = 0) -> None:
    """The result on several batches at once gives what the source does, batch after batch."""
    before = {end.name: end.type.tensor_type.shape.dim[axis].dim_value for end in source.graph.input}
    for count in (1, 2, 3, 7):
        rows = {name: np.concatenate([(1 + i) * array for i in range(count)], axis) for name, array in feed.items()}
        assert all(rows[name].shape[axis] == count * before[name] for name in rows)
        wanted = [
            run(source, {name: ((1 + i) * array).astype(array.dtype) for name, array in feed.items()})
            for i in range(count)
        ]
        for index, array in enumerate(
            run(result, {name: array.astype(feed[name].dtype) for name, array in rows.items()})
        ):
            joined = np.concatenate([each[index] for each in wanted])
            np.testing.assert_allclose(array, joined, rtol=1e-5, atol=1e-5)


def test_baked_reshape_of_a_classifier() -> None:
    text = "p = GlobalAveragePool(x) r = Reshape(p, s) y = Gemm(r, w)"
    model = build("float[1,3,4,5] x", text, {"s": [1, -1], "w": (3, 6)})
    result = opened(model)
    assert shapes(result) == {"x": ["n", 3, 4, 5], "y": ["n", 6]}
    agrees(model, result, {"x": floats(1, 3, 4, 5)})


@pytest.mark.parametrize("batch", [1, 2])
def test_heads_that_are_merged_with_the_batch(batch: int) -> None:
    text = """
        h = Reshape(x, apart) t = T0213(h) m = Reshape(t, merged) k = T021(m) s = MatMul(m, k) a = Softmax<axis=-1>(s)
        v = MatMul(a, m) u = Reshape(v, unmerged) o = T0213(u) y = Reshape(o, joined)
    """
    shape = {"apart": [batch, 5, 2, 3], "merged": [2 * batch, 5, 3], "unmerged": [batch, 2, 5, 3]}
    model = build(f"float[{batch},5,6] x", text, {**shape, "joined": [batch, 5, 6]})
    result = opened(model)
    assert shapes(result)["y"] == ["n", 5, 6]
    agrees(model, result, {"x": floats(batch, 5, 6)})


def test_a_state_of_zeros_is_made_as_long_as_the_batch() -> None:
    text = "t = T102(x) y, h, c = LSTM<hidden_size=3>(t, w, r, b, , h0, c0) q = Squeeze(h, axes)"
    constants = {"w": (1, 12, 4), "r": (1, 12, 3), "b": (1, 24), "axes": [0]}
    state = {name: np.zeros((1, 2, 3), np.float32) for name in ("h0", "c0")}
    model = build("float[2,5,4] x", text, {**constants, **state}, outputs=("q",))
    del model.graph.output[:]
    model.graph.output.append(onnx.helper.make_tensor_value_info("q", onnx.TensorProto.FLOAT, [2, 3]))
    result = opened(model)
    assert shapes(result)["q"] == ["n", 3]
    agrees(model, result, {"x": floats(2, 5, 4)})


def test_a_state_that_differs_from_row_to_row_binds_the_batch() -> None:
    text = "t = T102(x) y, h = GRU<hidden_size=3>(t, w, r, b, , h0)"
    model = build("float[2,5,4] x", text, {"w": (1, 9, 4), "r": (1, 9, 3), "b": (1, 18), "h0": (1, 2, 3)})
    with pytest.raises(OpeningError, match=r"GRU 'y' reads 'h0', which holds other elements"):
        opened(model)


def test_what_is_drawn_at_random_does_not_repeat() -> None:
    text = "z = ConstantOfShape(s) r = RandomUniformLike(z) y = Add(x, r)"
    with pytest.raises(OpeningError, match="Add 'y' reads 'r'"):
        opened(build("float[2,3] x", text, {"s": [2, 3]}))


def test_what_is_stretched_over_one_row_stays() -> None:
    model = build("float[1,3,4] x", "a = Add(x, c) y = Concat<axis=1>(a, t)", {"c": (1, 3, 4), "t": (1, 1, 4)})
    result = opened(model)
    assert "Expand" in [node.op_type for node in result.graph.node]  # of t, which a Concat does not stretch
    assert len([node for node in result.graph.node if node.op_type == "Expand"]) == 1
    agrees(model, result, {"x": floats(1, 3, 4)})


def test_a_class_token_that_is_expanded_to_a_fixed_batch() -> None:
    model = build("float[2,3,4] x", "e = Expand(c, s) y = Concat<axis=1>(e, x)", {"c": (1, 1, 4), "s": [2, 1, 4]})
    result = opened(model)
    assert shapes(result)["y"] == ["n", 4, 4]
    agrees(model, result, {"x": floats(2, 3, 4)})


def test_a_mask_that_is_made_for_as_many_rows_as_there_are() -> None:
    """As Swin's: what it holds with the source's batch was known, and stayed."""
    text = """
        s = Shape(x) b = Slice(s, zero, one) t = Concat<axis=0>(b, dims) e = Expand(c, t) m = Reshape(e, flat)
        n = Add(m, d) r = Reshape(x, flat) y = Add(r, n)
    """
    constants = {"zero": [0], "one": [1], "dims": [3, 4], "flat": [-1, 4], "c": (1, 3, 4), "d": (1, 4)}
    model = build("float[2,3,4] x", text, constants)
    result = opened(model)
    assert shapes(result)["y"] == ["3*n", 4]
    agrees(model, result, {"x": floats(2, 3, 4)})


@pytest.mark.parametrize(
    ("opset", "mean"),
    [
        (21, "m = ReduceMean<keepdims=0>(r, both)"),
        (13, "m = ReduceMean<keepdims=0, axes=[0,1]>(r)"),
        (21, "k = ReduceMean(r, both) m = Reshape(k, row)"),
    ],
)
def test_a_mean_over_channels_and_a_batch_of_one(opset: int, mean: str) -> None:
    """As litert-torch writes a normalization of the channels of an image."""
    constants = {"flat": [1, 3, 20], "both": [0, 1], "image": [4, 5], "row": [20]}
    text = f"r = Reshape(x, flat) {mean} q = Reshape(m, image) y = Sub(x, q)"
    model = build(
        "float[1,3,4,5] x", text, {name: each for name, each in constants.items() if name in text}, opset=opset
    )
    result = opened(model)
    assert shapes(result)["y"] == ["n", 3, 4, 5]
    agrees(model, result, {"x": floats(1, 3, 4, 5)})


@pytest.mark.parametrize(
    "text",
    ["r = ReduceSum<keepdims=0>(x, zero) y = Add(x, r)", "t = Transpose(x) y = MatMul(x, t)"],
    ids=["stretched", "products"],
)
def test_a_row_that_meets_all_others_is_not_computed_by_itself(text: str) -> None:
    model = build("float[1,1] x", text, {"zero": [1]})
    with pytest.raises(OpeningError, match="pairs each element along it with all others"):
        opened(model)


def test_what_is_repeated_along_an_axis_of_another_open_extent() -> None:
    """How many rows there are cannot be read from an axis that holds them and an extent that is not known."""
    text = "a = Compress<axis=1>(x, kept) r = Reshape(a, flat) y = ScatterND(r, at, u)"
    constants = {"kept": np.array([True, True]), "flat": [1, 1, -1], "at": [[[0, 0]]], "u": (1, 1, 2)}
    model = build("float[1,2] x", text, constants, opset=18)
    for value in (*model.graph.value_info, *model.graph.output):
        value.type.tensor_type.ClearField("shape")
    with pytest.raises(OpeningError, match="cannot be opened: ScatterND 'y'"):
        opened(model)


def test_a_slice_that_ends_at_the_batch() -> None:
    constants = {"from": [0, 1], "to": [2, 3], "axes": [0, 1]}
    model = build("float[2,3,4] x", "y = Slice(x, from, to, axes)", constants)
    agrees(model, opened(model), {"x": floats(2, 3, 4)})


def test_a_resize_by_sizes() -> None:
    for sizes in ([2, 3, 8, 10], [2, 3, 7, 9]):
        model = build("float[2,3,4,5] x", "y = Resize(x, , , s)", {"s": sizes})
        result = opened(model)
        assert shapes(result)["y"] == ["n", *sizes[1:]]
        agrees(model, result, {"x": floats(2, 3, 4, 5)})


def test_rows_that_are_squeezed_away_and_come_back() -> None:
    text = "s = Squeeze(x, zero) g = MatMul(s, w) u = Unsqueeze(g, zero) y = Relu(u)"
    model = build("float[1,3,4] x", text, {"zero": [0], "w": (4, 5)})
    result = opened(model)
    assert shapes(result)["y"] == ["n", 3, 5]
    agrees(model, result, {"x": floats(1, 3, 4)})


def test_the_axis_that_an_unsqueeze_adds_is_not_the_batch() -> None:
    model = build(
        "float[1,4] x",
        "t = Unsqueeze(x, zero) y, h = RNN<hidden_size=3>(t, w, r)",
        {"zero": [0], "w": (1, 3, 4), "r": (1, 3, 3)},
    )
    assert shapes(opened(model))["h"] == [1, "n", 3]


def test_another_way_is_taken_where_the_first_leads_nowhere() -> None:
    # The batch goes into the first of two dimensions of 1, and only the second leads through the RNN.
    text = "t = Reshape(x, s) y, h = RNN<hidden_size=3>(t, w, r)"
    model = build("float[1,4] x", text, {"s": [1, 1, 4], "w": (1, 3, 4), "r": (1, 3, 3)})
    assert shapes(opened(model))["h"] == [1, "n", 3]


def test_a_reshape_that_was_a_transpose_of_one_row() -> None:
    text = "t = Reshape(x, s) a, b = Split<axis=0, num_outputs=2>(t) c = Sub(a, b) y = Reshape(c, back)"
    model = build("float[1,2,4] x", text, {"s": [2, 1, 4], "back": [1, 4]})
    result = opened(model)
    assert shapes(result)["y"] == ["n", 4]
    agrees(model, result, {"x": floats(1, 2, 4)})


def test_a_row_that_is_dropped_and_stretched_again() -> None:
    text = "s = Squeeze(x, zero) t = MatMul(x, w) y = Add(t, s)"
    model = build("float[1,4] x", text, {"zero": [0], "w": (4, 4)})
    agrees(model, opened(model), {"x": floats(1, 4)})
    model = build(
        "float[1,3,4] x", "s = Squeeze(x, zero) t = Unsqueeze(x, one) y = Mul(t, s)", {"zero": [0], "one": [1]}
    )
    agrees(model, opened(model), {"x": floats(1, 3, 4)})


def test_shapes_that_the_graph_computes_stay_computed() -> None:
    text = "s = Shape(x) b = Slice(s, zero, one, zero) t = Concat<axis=0>(b, rest) y = Reshape(x, t)"
    model = build("float[2,3,4] x", text, {"zero": [0], "one": [1], "rest": [12]})
    agrees(model, opened(model), {"x": floats(2, 3, 4)})


def test_a_loop_carries_the_batch() -> None:
    body = "body = b (int64 i, bool go, float[1,4] s) => (bool on, float[1,4] n) { on = Identity(go) n = Add(s, x) }"
    text = f"y = Loop<{body.replace('body = b', 'body = b')}>(three, , zero)"
    model = build("float[1,4] x", text, {"three": np.array(3), "zero": np.zeros((1, 4), np.float32)})
    result = opened(model)
    assert shapes(result)["y"] == ["n", 4]
    agrees(model, result, {"x": floats(1, 4)})


def test_a_state_that_an_operator_of_a_body_pairs_with_the_batch_is_opened() -> None:
    body = "body = b (float[2,4] s, float[2,4] row) => (float[2,4] t, float[2,4] y) { t = Add (row, s)  y = Neg (t) }"
    text = f"rows = T102(x)  last, all = Scan<num_scan_inputs=1, {body}>(zero, rows)  z = T102(all)"
    model = build("float[2,3,4] x", text, {"zero": np.zeros((2, 4), np.float32)})
    result = opened(model)
    assert shapes(result)["last"] == ["n", 4]
    agrees(model, result, {"x": floats(2, 3, 4)})


def test_inputs_that_hold_the_axis_are_opened_together() -> None:
    model = build("float[2,3] x, float[2,3] z", "y = Add(x, z)", {})
    result = opened(model, batch=None, dims={"x:0": "n"})
    assert shapes(result) == {"x": ["n", 3], "z": ["n", 3], "y": ["n", 3]}


BOUND = {
    "Softmax 'y' computes along it": "y = Softmax<axis=0>(x)",
    "ReduceMean 'y' computes along it": "y = ReduceMean<keepdims=1>(x, zero)",
    "Gather 'y' slices, pads, joins or picks along it": "y = Gather(x, two)",
    "DynamicQuantizeLinear 'y' computes along it": "y, s, z = DynamicQuantizeLinear(x)",
    "NonZero 'y' has no rule": "y = NonZero(x)",
    "MatMul 'y' adds up along it": "y = MatMul(w, x)",
    r"Reshape 'y' mixes it with other axes: \[2, 3\] becomes \[3, 2\]": "y = Reshape(x, mixed)",
    "Mul 'y' computes with 'f', which depends on the extent itself": (
        "s = Shape(x) c = Gather(s, one) f = Cast<to=1>(c) y = Mul(x, f)"
    ),
}


@pytest.mark.parametrize("reason", BOUND)
def test_what_binds_the_batch_is_named(reason: str) -> None:
    constants = {"zero": [0], "two": np.array([1, 0]), "one": np.array(0), "w": (4, 2), "mixed": [3, 2]}
    read = {
        name: value for name, value in constants.items() if f"{name})" in BOUND[reason] or f"({name}" in BOUND[reason]
    }
    model = build("float[2,3] x", BOUND[reason], read)
    with pytest.raises(OpeningError, match=rf"the batch \(axis 0 of 'x'\) cannot be opened: {reason}"):
        opened(model)


def test_the_length_of_a_sequence_opens_where_nothing_counts_it() -> None:
    text = """
        h = Reshape(x, apart) t = T0213(h) k = T0231(h) s = MatMul(t, k) a = Softmax<axis=-1>(s) v = MatMul(a, t)
        o = T0213(v) j = Reshape(o, joined) y = LayerNormalization(j, scale) m = ReduceMean<keepdims=0>(y, one)
    """
    constants = {"apart": [2, 5, 2, 3], "joined": [2, 5, 6], "scale": (6,), "one": [1]}
    model = build("float[2,5,6] x", text, constants, outputs=("y",))
    result = opened(model, batch=None, dims={"x:1": "length"})
    assert shapes(result) == {"x": [2, "length", 6], "m": [2, 6], "y": [2, "length", 6]}
    longer = floats(2, 9, 6)
    changed = build("float[2,9,6] x", text, {**constants, "apart": [2, 9, 2, 3], "joined": [2, 9, 6]}, outputs=("y",))
    for array, wanted in zip(run(result, {"x": longer}), run(changed, {"x": longer}), strict=True):
        np.testing.assert_allclose(array, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("axis", [2, 3])
def test_height_and_width_of_a_fully_convolutional_network_open(axis: int) -> None:
    text = """
        a = Conv<pads=[1,1,1,1], strides=[2,2]>(x, w) r = Relu(a) b = Conv<strides=[2,2]>(x, one) s = Add(r, b)
        p = MaxPool<kernel_shape=[2,2]>(s) u = ConvTranspose<strides=[2,2]>(p, back) v = Resize(u, , scales)
        d = SpaceToDepth<blocksize=2>(v) e = DepthToSpace<blocksize=2>(d)
        y = Conv<auto_pad="SAME_UPPER">(e, k) g = GlobalAveragePool(y) m = Softmax(g)
    """
    weights = {"w": (4, 3, 3, 3), "one": (4, 3, 1, 1), "back": (4, 5, 2, 2), "k": (5, 5, 3, 3)}
    constants = {**weights, "scales": np.array([1, 1, 2, 2], np.float32)}
    model = build("float[1,3,12,16] x", text, constants, outputs=("y",))
    result = opened(model, batch=None, dims={f"x:{axis}": "length"})
    for extent in (8, 13, 30):
        shape = [1, 3, 12, 16]
        shape[axis] = extent
        other = build(f"float[{','.join(map(str, shape))}] x", text, constants, outputs=("y",))
        feed = {"x": floats(*shape)}
        for array, wanted in zip(run(result, feed), run(other, feed), strict=True):
            np.testing.assert_allclose(array, wanted, rtol=1e-4, atol=1e-5)


def test_an_image_that_is_pooled_and_stretched_again() -> None:
    text = "g = GlobalAveragePool(x) b = Resize(g, , , sizes) y = Concat<axis=1>(x, b)"
    model = build("float[1,3,6,8] x", text, {"sizes": [1, 3, 6, 8]})
    result = opened(model, batch=None, dims={"x:2": "h"})
    assert shapes(result)["y"] == [1, 6, "h", 8]
    other = build("float[1,3,9,8] x", text, {"sizes": [1, 3, 9, 8]})
    feed = {"x": floats(1, 3, 9, 8)}
    np.testing.assert_allclose(run(result, feed)[0], run(other, feed)[0], rtol=1e-5, atol=1e-6)


def test_a_residual_block_keeps_the_name_of_an_axis() -> None:
    text = "a = Conv<pads=[1,1,1,1]>(x, w) y = Add(a, x)"
    model = build("float[1,3,8,8] x", text, {"w": (3, 3, 3, 3)})
    assert shapes(opened(model, batch=None, dims={"x:2": "h"}))["y"] == [1, 3, "h", 8]
    wider = build("float[1,3,8,8] x", "y = Conv<pads=[1,1,1,1]>(x, w)", {"w": (3, 3, 2, 2)})
    assert shapes(opened(wider, batch=None, dims={"x:2": "h"}))["y"] == [1, 3, "h_1", 9]


LENGTHS = {
    "MaxPool 'y' leaves one element of it": "p = Unsqueeze(x, one) y = MaxPool<kernel_shape=[5,6]>(p)",
    "Add 'y' reads 'table', which holds other elements for each of 5": "y = Add(x, table)",
    "Slice 'y' slices, pads, joins or picks along it by number": "y = Slice(x, zero, two, one)",
    "TopK 'y' slices, pads, joins or picks along it by number": "y, i = TopK<axis=1>(x, two)",
    "Gemm 'y' reads 'w', which holds other elements": "f = Reshape(x, flat) y = Gemm(f, w)",
}


@pytest.mark.parametrize("reason", LENGTHS)
def test_what_counts_a_length_is_named(reason: str) -> None:
    constants = {"table": (1, 5, 6), "zero": [0], "two": [2], "one": [1], "flat": [2, 30], "w": (30, 4)}
    read = {name: value for name, value in constants.items() if f" {name}" in LENGTHS[reason]}
    read |= {"zero": [0]} if "Slice" in reason else {}
    model = build("float[2,5,6] x", LENGTHS[reason], read)
    with pytest.raises(OpeningError, match=rf"axis 1 of 'x' cannot be opened: {reason}"):
        opened(model, batch=None, dims={"x:1": "length"})


def test_a_rule_of_a_user_binds_what_it_keeps_together() -> None:
    def soft(_: relayout.rules.Operator) -> relayout.rules.Signature:
        """Any order."""
        return relayout.rules.Signature((("n", "c"),), (("n", "c"),), block=frozenset("c"))

    with relayout.rules.scope():
        relayout.rules.register("some.where:Soft", kind="axis attributes")(soft)
        model = build("float[2,3] x", "y = some.where.Soft(x)", {})
        del model.graph.output[:]
        model.graph.output.append(onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2, 3]))
        assert shapes(opened(model))["y"] == ["n", 3]
        results = [relayout.optimize(model, dims={f"x:{axis}": "n"}).model for axis in (0, 1)]
        # Along the other axis it may be a Softmax: nobody compares it column by column.
        assert [OPENED_BATCH in result.metadata_props for result in results] == [True, False]


def test_an_open_batch_is_fixed_or_renamed() -> None:
    model = build("float[b,3] x", "y = Relu(x)", {})
    assert shapes(opened(model, batch=4)) == {"x": [4, 3], "y": [4, 3]}
    assert shapes(opened(model, batch="rows")) == {"x": ["rows", 3], "y": ["rows", 3]}


def test_another_number() -> None:
    model = build("float[2,3,4] x", "y = Reshape(x, s)", {"s": [2, 12]})
    result = opened(model, batch=5)
    assert shapes(result) == {"x": [5, 3, 4], "y": [5, 12]}
    assert run(result, {"x": floats(5, 3, 4)})[0].shape == (5, 12)


def test_what_does_not_exist_is_an_error_with_advice() -> None:
    model = build("float[2,3] image", "y = Relu(image)", {})
    with pytest.raises(LayoutError, match="no input 'imag'; did you mean 'image'"):
        opened(model, batch=None, dims={"imag:0": "n"})
    with pytest.raises(LayoutError, match="input 'image' has 2 axes"):
        opened(model, batch=None, dims={"image:2": "n"})
    with pytest.raises(LayoutError, match=r"--batch 4 \(in Python batch=4\) or --dim INPUT:AXIS=4 "):
        opened(model, batch=None, dims={"batch": 4})


def test_a_contradiction_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A constant that nobody states anew is found by the inference with another number."""
    monkeypatch.delitem(STATED, ("", "Expand"))  # type: ignore[arg-type]
    model = build("float[2,3] x", "e = Expand(x, s) y = Relu(e)", {"s": [2, 3]})
    with pytest.raises(RelayoutError, match="would contradict itself"):
        opened(model)


def test_the_source_is_not_changed() -> None:
    model = build("float[1,3,4,5] x", "y = Reshape(x, s)", {"s": [1, -1]})
    before = model.SerializeToString()
    opened(model)
    assert model.SerializeToString() == before
