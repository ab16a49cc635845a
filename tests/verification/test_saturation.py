"""Products of integers are computed in full, also on a CPU on which ONNX Runtime's saturate."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import relayout
from products import SATURATES, by_default
from relayout.lowering.int8_weights_to_uint8 import KERNELS, unsigned_kernels
from relayout.pipeline import read
from relayout.verification import ort, verify

MODELS = Path(__file__).parents[2] / "models"
INT8 = MODELS / "tinynet_int8.tflite"
X = np.random.default_rng(0).integers(200, 256, (3, 8), np.uint8)
KERNEL = np.random.default_rng(1).integers(90, 128, (8, 5), np.int8)


def constants(*arrays: tuple[str, object]) -> list[onnx.TensorProto]:
    return [numpy_helper.from_array(np.asarray(array), name) for name, array in arrays]


def model(node: onnx.NodeProto, x: np.ndarray, kernel: np.ndarray, kind: int, zero: object) -> onnx.ModelProto:
    """A node that reads x, kernel and their parameters."""
    parameters = [("xs", np.float32(1)), ("xz", np.uint8(3)), ("ws", np.float32(1)), ("ys", np.float32(2000))]
    known = constants(*parameters, ("yz", np.uint8(0)), ("wz", zero), ("w", kernel))
    ends = [helper.make_tensor_value_info(*end) for end in (("x", TensorProto.UINT8, x.shape), ("y", kind, None))]
    graph = helper.make_graph([node], "g", ends[:1], ends[1:], [k for k in known if k.name in node.input])
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def moved(source: onnx.ModelProto) -> onnx.ModelProto:
    made = ir.from_proto(source)
    assert unsigned_kernels(made) == 1
    result = ir.to_proto(made)
    assert {t.name for t in result.graph.initializer} <= set(result.graph.node[0].input), "what nobody reads is gone"
    assert all(t.data_type != TensorProto.INT8 for t in result.graph.initializer)
    return result


UNITS = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"]


IMAGE, FILTER = X.reshape(3, 8, 1, 1), KERNEL.T.reshape(5, 8, 1, 1)


@pytest.mark.parametrize("zero", [np.int8(0), np.int8(-7)])
@pytest.mark.parametrize("key", [key for key in KERNELS if key != ("", "DequantizeLinear")])
def test_kernels_of_uint8_give_the_numbers_in_full(key: tuple[str, str], zero: np.int8) -> None:
    """Beside numpy, in ONNX Runtime as it starts."""
    domain, name = key
    inputs, more = {
        ("", "MatMulInteger"): (["x", "w", "xz", "wz"], {}),
        ("com.microsoft", "QGemm"): ([*UNITS[:6], "", *UNITS[6:]], {}),
        ("com.microsoft", "QLinearConv"): (UNITS, {"channels_last": 1}),
    }.get(key, (UNITS, {}))
    kind = TensorProto.INT32 if name == "MatMulInteger" else TensorProto.UINT8
    x, w = (IMAGE, FILTER) if name == "QLinearConv" else (X, KERNEL)
    x = x.reshape(3, 1, 1, 8) if more else x
    node = helper.make_node(name, inputs, ["y"], domain=domain, **more)
    source = model(node, x, w, kind, zero)
    (found,) = by_default(moved(source).SerializeToString()).run(None, {"x": x})
    sums = (X.astype(int) - 3) @ (KERNEL.astype(int) - int(zero))
    wanted = sums if kind == TensorProto.INT32 else np.clip(np.rint(sums / 2000), 0, 255)
    np.testing.assert_array_equal(np.asarray(found).reshape(3, 5), wanted)
    (plain,) = by_default(source.SerializeToString()).run(None, {"x": x})
    assert np.array_equal(np.asarray(plain).reshape(3, 5), wanted) is not SATURATES


@pytest.mark.parametrize("zeros", [None, [1, -2, 3, 0, 127]])
def test_what_is_dequantized_means_the_same(zeros: list[int] | None) -> None:
    """A zero point that is left out has the shape of the scale."""
    given = [("w", KERNEL), ("s", np.linspace(0.1, 0.5, 5, dtype=np.float32))]
    given += [] if zeros is None else [("z", np.array(zeros, np.int8))]
    nodes = [
        helper.make_node("DequantizeLinear", [name for name, _ in given], ["d"], axis=1),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [3, n]) for name, n in (("x", 8), ("y", 5)))
    graph = helper.make_graph(nodes, "g", [x], [y], constants(*given))
    source = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)])
    feed = {"x": X.astype(np.float32)}
    results = [ReferenceEvaluator(each).run(None, feed)[0] for each in (source, moved(source))]
    shapes = {tensor.name: list(tensor.dims) for tensor in moved(source).graph.initializer}
    assert [5] in [dims for name, dims in shapes.items() if "unsigned" in name], "a zero for each scale"
    np.testing.assert_array_equal(*results)


def test_what_is_no_kernel_stays() -> None:
    """A vector, a kernel beside int8, one that is fed."""
    fed = helper.make_node("MatMulInteger", ["x", "w", "xz", "wz"], ["y"])
    source = model(fed, X, KERNEL, TensorProto.INT32, np.int8(0))
    source.graph.input.append(helper.make_tensor_value_info("w", TensorProto.INT8, KERNEL.shape))
    signed = model(fed, X, KERNEL, TensorProto.INT32, np.int8(0))
    signed.graph.input[0].type.tensor_type.elem_type = TensorProto.INT8
    vector = model(fed, X, KERNEL[:, 0], TensorProto.INT32, np.int8(0))
    for each in (source, signed, vector):
        made = ir.from_proto(each)
        before = ir.to_proto(made).SerializeToString()
        assert unsigned_kernels(made) == 0
        assert ir.to_proto(made).SerializeToString() == before


@pytest.mark.parametrize("target", ["onnxruntime-cpu-avx2", "onnxruntime-cpu-nchwc8"])
def test_a_target_whose_products_saturate_has_kernels_of_uint8(target: str) -> None:
    result = relayout.convert(INT8, target=target)
    kernels = [t for t in result.proto.graph.initializer if len(t.dims) > 1 and t.data_type == TensorProto.INT8]
    assert not kernels
    assert any("do not saturate" in note for note in result.report.notes)
    assert {t.data_type for t in result.proto.graph.initializer if len(t.dims) == 4} == {TensorProto.UINT8}


def test_that_target_is_verified_on_any_cpu(tmp_path: Path) -> None:
    """The operators are those of `onnxruntime-cpu`, and as many bytes are transposed."""
    result, other = (relayout.convert(INT8, target=name) for name in ("onnxruntime-cpu-avx2", "onnxruntime-cpu"))
    assert result.report.operators == other.report.operators
    assert result.report.bytes == other.report.bytes
    result.save(tmp_path / "m.onnx")
    report = verify(INT8, tmp_path / "m.onnx")
    assert report.ok
    assert not any("saturate" in note for note in report.notes)


@pytest.mark.parametrize("here", [False, True])
def test_verification_says_what_it_set(here: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a model with kernels of int8, where products saturate."""
    monkeypatch.setattr("relayout.verification.ort.saturates", lambda opened: here)
    for name, wanted in (("tinynet_int8", here), ("tinynet_float", False)):
        source = MODELS / f"{name}.tflite"
        report = verify(source, relayout.convert(source).model, tensors=False)
        assert any(f"a program must set the session option {ort.OPTION}=1" in note for note in report.notes) is wanted
    report = verify(INT8, relayout.convert(INT8, target="onnxruntime-cpu").model, tensors=False)
    assert any("--target onnxruntime-cpu-avx2 is exact" in note for note in report.notes) is here


@pytest.mark.skipif(not SATURATES, reason="nothing saturates on this CPU")
def test_the_option_is_what_computes_in_full() -> None:
    """What the note says of it."""
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry(ort.OPTION, "1")
    node = helper.make_node("MatMulInteger", ["x", "w", "", "wz"], ["y"])
    source = model(node, X, KERNEL, TensorProto.INT32, np.int8(0))
    (found,) = onnxruntime.InferenceSession(source.SerializeToString(), options).run(None, {"x": X})
    np.testing.assert_array_equal(found, X.astype(int) @ KERNEL.astype(int))


def test_a_verification_leaves_what_a_program_cannot_mend() -> None:
    """Kernels of com.microsoft:QLinearConv, which the option does not reach: on such a CPU the result is wrong."""
    made = relayout.convert(INT8, target="onnxruntime-cpu")
    assert unsigned_kernels(made.model, leaving=ort.BEYOND) > 0, "of products"
    left = [node for node in made.model.graph if (node.domain, node.op_type) in ort.BEYOND]
    assert left
    assert all(node.inputs[3].dtype == ir.DataType.INT8 for node in left)


def test_reading_the_result_again_keeps_the_kernels() -> None:
    result = relayout.convert(INT8, target="onnxruntime-cpu-avx2")
    again = read(result.proto)
    assert unsigned_kernels(again) == 0


def test_a_kernel_behind_views_is_moved_where_it_lies() -> None:
    """As a literal import has it: nothing is folded yet."""
    turned = np.ascontiguousarray(KERNEL.reshape(2, 4, 5).transpose(2, 0, 1))
    nodes = [
        helper.make_node("Transpose", ["w"], ["t"], perm=[1, 2, 0]),
        helper.make_node("Reshape", ["t", "shape"], ["k"]),
        helper.make_node("MatMulInteger", ["x", "k", "xz", "wz"], ["y"]),
    ]
    ends = [("x", TensorProto.UINT8, [3, 8]), ("y", TensorProto.INT32, [3, 5])]
    x, y = (helper.make_tensor_value_info(*end) for end in ends)
    known = constants(("w", turned), ("shape", np.array([8, 5])), ("xz", np.uint8(3)), ("wz", np.int8(-7)))
    graph = helper.make_graph(nodes, "g", [x], [y], known)
    source = onnx.shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), data_prop=True
    )
    made = ir.from_proto(source)
    assert unsigned_kernels(made) == 1
    assert [node.op_type for node in made.graph] == ["MatMulInteger"]
    (found,) = by_default(ir.to_proto(made).SerializeToString()).run(None, {"x": X})
    np.testing.assert_array_equal(found, (X.astype(int) - 3) @ (KERNEL.astype(int) + 7))


def test_what_a_file_leaves_out_or_open_is_no_traceback() -> None:
    """A scale of no known extent beside no zero point, and a node that lacks operands, which no checker looks at."""
    node = helper.make_node("DequantizeLinear", ["w", "s"], ["y"], axis=1)
    s, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in (("s", ["n"]), ("y", None))
    )
    short = helper.make_node("QLinearConv", ["s"], ["z"], domain="com.microsoft")
    z = helper.make_tensor_value_info("z", TensorProto.UINT8, None)
    graph = helper.make_graph([node, short], "g", [s], [y, z], constants(("w", KERNEL)))
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    made = ir.from_proto(helper.make_model(graph, opset_imports=imports, ir_version=10))
    assert unsigned_kernels(made) == 0
    assert ort.compute_in_full(made, lambda: True) == ()


@pytest.mark.parametrize("axis_of_scales", [None, 1])
def test_products_with_weights_of_8_bits_leave_the_other_operand_as_it_is(axis_of_scales: int | None) -> None:
    """Beside the same product with weights of float, from which ONNX Runtime by default is one in a hundred away."""
    generator = np.random.default_rng(0)
    kernel = generator.integers(-127, 128, (64, 32), np.int8)
    scales = np.float32(0.01) if axis_of_scales is None else np.full(32, 0.01, np.float32)
    ends = [helper.make_tensor_value_info(*end) for end in (("x", 1, (4, 64)), ("y", 1, (4, 32)))]
    attributes = {} if axis_of_scales is None else {"axis": axis_of_scales}
    product = helper.make_node("MatMul", ["x", "k"], ["y"])
    dequantized = [helper.make_node("DequantizeLinear", ["w", "s"], ["k"], **attributes), product]
    models = [
        helper.make_model(
            helper.make_graph(nodes, "g", ends[:1], ends[1:], constants(*weights)),
            opset_imports=[helper.make_opsetid("", 21)],
            ir_version=10,
        )
        for nodes, weights in (
            (dequantized, [("w", kernel), ("s", scales)]),
            ([product], [("k", kernel.astype(np.float32) * scales)]),
        )
    ]
    report = verify(*models)
    assert report.ok, str(report)
    changed = kernel.copy()
    changed[3, 5] += 1
    models[0].graph.initializer[0].CopyFrom(numpy_helper.from_array(changed, "w"))
    assert not verify(*models).ok
