"""Operators of ONNX Runtime's internal domain for channels last, as its layout transformation makes them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import relayout as package
from relayout.errors import RelayoutError
from relayout.formats.onnx.reading import read
from relayout.graph.domains import INTERNAL_NHWC
from relayout.rules.internal_nhwc import OPERATORS
from running import run
from text_form import floats, model

sys.path.insert(0, str(Path(__file__).parents[1] / "fuzz"))

from ort_files import changed, made, saved, tables
from ort_files import written as as_file

Array = NDArray[Any]


def with_internal(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Put images of operators in the internal domain between Transposes, as the layout transformation does first."""
    found = onnx.ModelProto()
    found.CopyFrom(proto)
    values = {value.name: value.type.tensor_type for value in (*proto.graph.input, *proto.graph.value_info)}
    values |= {value.name: value.type.tensor_type for value in proto.graph.output}
    del found.graph.node[:]
    for node in proto.graph.node:
        if node.op_type not in OPERATORS and not node.op_type.startswith("QLinear"):
            found.graph.node.append(node)
            continue
        rank = len(values[node.input[0]].shape.dim)
        inner = onnx.NodeProto()
        inner.CopyFrom(node)
        inner.domain, inner.name = INTERNAL_NHWC, f"node_{node.output[0]}"
        inner.input[0], inner.output[0] = f"{node.output[0]}_in", f"{node.output[0]}_out"
        to_last, to_first = [0, *range(2, rank), 1], [0, rank - 1, *range(1, rank - 1)]
        found.graph.node.append(helper.make_node("Transpose", [node.input[0]], [inner.input[0]], perm=to_last))
        found.graph.node.append(inner)
        found.graph.node.append(helper.make_node("Transpose", [inner.output[0]], [node.output[0]], perm=to_first))
    found.opset_import.append(helper.make_opsetid(INTERNAL_NHWC, proto.opset_import[0].version))
    return found


def quantized() -> dict[str, Array]:
    return {
        "s": np.array(0.02, np.float32),
        "z": np.array(120, np.uint8),
        "ws": np.array([0.01, 0.02, 0.03, 0.01, 0.02], np.float32),
        "wz": np.zeros(5, np.int8),
        "w": np.random.default_rng(2).integers(-99, 99, (5, 3, 3, 3)).astype(np.int8),
    }


X = "float[2,3,9,8] x"
CASES: dict[str, tuple[str, dict[str, Array]]] = {
    "AveragePool": (f"({X}) => (float[2,3,4,3] y) {{ y = AveragePool<kernel_shape=[3,3], strides=[2,2]>(x) }}", {}),
    "BatchNormalization": (
        f"({X}) => (float[2,3,9,8] y) {{ y = BatchNormalization(x, a, b, a, c) }}",
        {"a": floats(3), "b": floats(3, seed=1), "c": np.abs(floats(3)) + 1},
    ),
    "Conv": (
        f"({X}) => (float[2,5,5,8] y) {{ y = Conv<strides=[2,1], pads=[1,1,1,1]>(x, w, b) }}",
        {"w": floats(5, 3, 3, 3), "b": floats(5)},
    ),
    "Conv of a line": ("(float[2,3,9] x) => (float[2,5,8] y) { y = Conv(x, w) }", {"w": floats(5, 3, 2)}),
    "ConvTranspose": (
        f"({X}) => (float[2,5,18,16] y) {{ y = ConvTranspose<strides=[2,2]>(x, w) }}",
        {"w": floats(3, 5, 2, 2)},
    ),
    "DepthToSpace": ("(float[2,12,3,5] x) => (float[2,3,6,10] y) { y = DepthToSpace<blocksize=2>(x) }", {}),
    "GlobalAveragePool": (f"({X}) => (float[2,3,1,1] y) {{ y = GlobalAveragePool(x) }}", {}),
    "GlobalLpPool": (f"({X}) => (float[2,3,1,1] y) {{ y = GlobalLpPool(x) }}", {}),
    "GlobalMaxPool": (f"({X}) => (float[2,3,1,1] y) {{ y = GlobalMaxPool(x) }}", {}),
    "GridSample": (f"({X}, float[2,4,5,2] g) => (float[2,3,4,5] y) {{ y = GridSample(x, g) }}", {}),
    "InstanceNormalization": (
        f"({X}) => (float[2,3,9,8] y) {{ y = InstanceNormalization(x, a, b) }}",
        {"a": floats(3), "b": floats(3, seed=1)},
    ),
    "LRN": (f"({X}) => (float[2,3,9,8] y) {{ y = LRN<size=3>(x) }}", {}),
    "LpPool": (f"({X}) => (float[2,3,4,4] y) {{ y = LpPool<kernel_shape=[2,2], strides=[2,2]>(x) }}", {}),
    "MaxPool": (f"({X}) => (float[2,3,4,4] y) {{ y = MaxPool<kernel_shape=[2,2], strides=[2,2]>(x) }}", {}),
    "QLinearConv": (
        "(uint8[2,3,9,8] x) => (uint8[2,5,7,6] y) { y = QLinearConv(x, s, z, w, ws, wz, s, z) }",
        quantized(),
    ),
    "SpaceToDepth": ("(float[2,3,6,8] x) => (float[2,12,3,4] y) { y = SpaceToDepth<blocksize=2>(x) }", {}),
}


def case(name: str) -> onnx.ModelProto:
    text, constants = CASES[name]
    return model(f"g {text}", **constants)


def feeds(proto: onnx.ModelProto) -> dict[str, Array]:
    found: dict[str, Array] = {}
    for value in proto.graph.input:
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        kind = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        array = np.random.default_rng(1).uniform(-0.9, 0.9, shape)
        found[value.name] = (array * 100 + 128 if kind == np.uint8 else array).astype(kind)
    return found


def test_every_operator_has_a_case() -> None:
    assert {name.partition(" ")[0] for name in CASES} == OPERATORS


@pytest.mark.parametrize("to", ["NCHW", "NHWC"])
@pytest.mark.parametrize("name", CASES)
def test_back_to_the_standard(name: str, to: str) -> None:
    """The law: what comes back gives what the graph gave before the layout transformation."""
    proto = case(name)
    result = package.convert(with_internal(proto), to=to)
    assert INTERNAL_NHWC not in {node.domain for node in result.proto.graph.node}
    if to == "NCHW":
        assert not result.report.transposes
        assert [node.op_type for node in result.proto.graph.node if node.op_type != "Transpose"] == [
            node.op_type for node in proto.graph.node
        ]
    fed = feeds(proto)
    for ours, theirs in zip(run(result.proto, fed), run(proto, fed), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


NET = """g (float[1,16,12,8] x) => (float[1,20,1,1] y) {
    a = Conv<pads=[1,1,1,1]>(x, w)  b = Relu(a)  c = MaxPool<kernel_shape=[2,2], strides=[2,2]>(b)
    d = Conv(c, v)  y = GlobalAveragePool(d) }"""


def net() -> onnx.ModelProto:
    return model(NET, w=floats(24, 16, 3, 3), v=floats(20, 24, 1, 1))


def ort_file(folder: Path) -> Path:
    """The network in the format in which ONNX Runtime saves it, behind a layout transformation, without its shapes."""
    proto = with_internal(net())
    data = saved(net(), "none")
    root = tables(data)
    nodes = tuple(
        made(
            "Node",
            name=node.name,
            op_type=node.op_type,
            domain=node.domain,
            since_version=onnx.defs.get_schema(node.op_type, 21).since_version,
            inputs=tuple(node.input),
            outputs=tuple(node.output),
            attributes=tuple(
                made("Attribute", name=each.name, type=each.type, ints=list(each.ints), i=each.i, s=each.s)
                for each in node.attribute
            ),
        )
        for node in proto.graph.node
    )
    graph = changed(root.model.graph, nodes=nodes)
    path = folder / "m.ort"
    path.write_bytes(as_file(changed(root, model=changed(root.model, graph=graph))))
    return path


def test_a_saved_file_comes_back(tmp_path: Path) -> None:
    onnx.save(net(), tmp_path / "before.onnx")
    path = ort_file(tmp_path)
    result = package.convert(path, to="NCHW")
    result.save(tmp_path / "after.onnx")
    assert not result.report.transposes
    assert package.verify(tmp_path / "before.onnx", tmp_path / "after.onnx").ok
    assert package.verify(path, tmp_path / "after.onnx").ok


def test_a_saved_file_goes_on_to_tensorflow_lite(tmp_path: Path) -> None:
    path = ort_file(tmp_path)
    onnx.save(net(), tmp_path / "before.onnx")
    package.convert(path, format="tflite").save(tmp_path / "after.tflite")
    assert package.verify(tmp_path / "before.onnx", tmp_path / "after.tflite").ok
    assert package.verify(path, tmp_path / "after.tflite").ok


def test_nothing_asked_nothing_changed(tmp_path: Path) -> None:
    """Operators stay what they are; Transposes between them go, and a note says that no runtime loads the result."""
    path = ort_file(tmp_path)
    result = package.optimize(path)
    result.save(tmp_path / "r.onnx")
    internal = [node.op_type for node in result.proto.graph.node if node.domain == INTERNAL_NHWC]
    assert internal == ["Conv", "MaxPool", "Conv", "GlobalAveragePool"]
    assert result.report.transposes == 1
    assert any("convert --to NCHW" in note for note in result.report.notes)
    told = package.verify(path, tmp_path / "r.onnx")
    assert told.ok
    assert any("run as the standard's" in note for note in told.notes)


def test_a_wrong_kernel_is_not_verified(tmp_path: Path) -> None:
    path = ort_file(tmp_path)
    wrong = package.optimize(path).proto
    (kernel,) = (tensor for tensor in wrong.graph.initializer if list(tensor.dims) == [24, 16, 3, 3])
    kernel.CopyFrom(numpy_helper.from_array(floats(24, 16, 3, 3, seed=5), kernel.name))
    onnx.save(wrong, tmp_path / "r.onnx")
    assert not package.verify(path, tmp_path / "r.onnx").ok


def conv_node(proto: onnx.ModelProto) -> onnx.NodeProto:
    return next(node for node in proto.graph.node if node.domain == INTERNAL_NHWC)


def test_an_activation_that_was_taken_in() -> None:
    proto = with_internal(case("Conv"))
    conv_node(proto).attribute.append(helper.make_attribute("activation", "Relu"))
    result = package.convert(proto, to="NCHW")
    assert [(node.domain, node.op_type) for node in result.proto.graph.node] == [("com.microsoft", "FusedConv")]
    fed = feeds(case("Conv"))
    expected = np.maximum(run(case("Conv"), fed)[0], 0)
    np.testing.assert_allclose(run(result.proto, fed)[0], expected, rtol=1e-5, atol=1e-6)


def test_an_activation_that_is_none() -> None:
    proto = with_internal(case("Conv"))
    conv_node(proto).attribute.extend(
        [helper.make_attribute("activation", ""), helper.make_attribute("activation_params", [], attr_type=6)]
    )
    result = package.convert(proto, to="NCHW")
    assert [(node.domain, node.op_type) for node in result.proto.graph.node] == [("", "Conv")]


def a_fourth_operand(proto: onnx.ModelProto) -> None:
    proto.graph.initializer.append(numpy_helper.from_array(floats(2, 5, 5, 8), "r"))
    conv_node(proto).input.append("r")


def an_activation_elsewhere(proto: onnx.ModelProto) -> None:
    conv_node(proto).op_type = "AveragePool"
    del conv_node(proto).input[1:]
    conv_node(proto).attribute.append(helper.make_attribute("activation", "Relu"))


def indices(proto: onnx.ModelProto) -> None:
    proto.CopyFrom(with_internal(case("MaxPool")))
    conv_node(proto).output.append("i")
    proto.graph.output.append(helper.make_tensor_value_info("i", TensorProto.INT64, [2, 4, 4, 3]))


def a_stranger(proto: onnx.ModelProto) -> None:
    conv_node(proto).op_type = "MaxUnpool"


@pytest.mark.parametrize("change", [a_fourth_operand, an_activation_elsewhere, indices, a_stranger])
def test_what_is_not_known_is_a_barrier(change: Any) -> None:
    proto = with_internal(case("Conv"))
    change(proto)
    result = package.convert(proto, to="NCHW")
    assert conv_node(result.proto).op_type == conv_node(proto).op_type
    assert result.report.transposes == result.report.source_transposes == 2


# Operators that other domains have, too.


def resize(counts: dict[str, Array], *operands: str, mode: str = "half_pixel") -> onnx.ModelProto:
    read_too = ", ".join(operands)
    text = f"""g (float[1,3,4,5] x) => (float[1,3,8,15] y) {{
        a = Transpose<perm=[0,2,3,1]>(x)  b = {INTERNAL_NHWC.replace(".", "_")}.Resize<mode="nearest",
        coordinate_transformation_mode="{mode}">(a, {read_too})  y = Transpose<perm=[0,3,1,2]>(b) }}"""
    proto = onnx.parser.parse_model('<ir_version: 10, opset_import: ["": 18, "com_ms_internal_nhwc": 1]>\n' + text)
    proto.graph.node[1].domain = proto.opset_import[1].domain = INTERNAL_NHWC
    proto.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in counts.items())
    return proto


SCALES = {"s": np.array([1, 2, 3, 1], np.float32)}
SIZES = {"n": np.array([1, 8, 15, 3], np.int64)}


@pytest.mark.parametrize(("counts", "operands"), [(SCALES, ("", "s")), (SIZES, ("", "", "n"))])
def test_a_resize_is_the_standard_s(counts: dict[str, Array], operands: tuple[str, ...]) -> None:
    proto = resize(counts, *operands)
    assert [node.domain for node in read(proto).graph] == ["", "", ""]
    assert INTERNAL_NHWC not in read(proto).opset_imports
    result = package.convert(proto, to="NCHW")
    assert not result.report.transposes
    x = floats(1, 3, 4, 5)
    np.testing.assert_array_equal(run(result.proto, {"x": x})[0], x.repeat(2, axis=2).repeat(3, axis=3))


@pytest.mark.parametrize(
    ("counts", "operands", "mode"),
    [
        ({"s": np.array([2, 3], np.float32)}, ("", "s"), "half_pixel"),
        (SCALES | {"r": np.zeros(8, np.float32)}, ("r", "s"), "tf_crop_and_resize"),
    ],
)
def test_a_resize_of_unknown_order(counts: dict[str, Array], operands: tuple[str, ...], mode: str) -> None:
    assert [node.domain for node in read(resize(counts, *operands, mode=mode)).graph] == ["", INTERNAL_NHWC, ""]


def test_a_quantized_pool_says_where_channels_are() -> None:
    text = """g (uint8[1,4,6,3] x) => (uint8[1,1,1,3] y) { y = Identity(x) }"""
    proto = onnx.parser.parse_model('<ir_version: 10, opset_import: ["": 18]>\n' + text)
    proto.graph.node[0].CopyFrom(
        helper.make_node("QLinearGlobalAveragePool", ["x", "s", "z", "s", "z"], ["y"], domain=INTERNAL_NHWC)
    )
    proto.graph.initializer.append(numpy_helper.from_array(np.array(0.5, np.float32), "s"))
    proto.graph.initializer.append(numpy_helper.from_array(np.array(3, np.uint8), "z"))
    result = package.optimize(proto)
    x = np.random.default_rng(3).integers(0, 255, (1, 4, 6, 3)).astype(np.uint8)
    expected = np.rint(x.astype(np.float64).mean(axis=(1, 2), keepdims=True))
    assert np.abs(run(result.proto, {"x": x})[0] - expected).max() <= 1


def test_blocks_of_channels_with_their_stamp(tmp_path: Path) -> None:
    """A stamped model that ONNX Runtime saves keeps its stamp: metadata goes through its format."""
    result = package.convert(net(), target="onnxruntime-cpu-nchwc")
    assert "com.microsoft.nchwc" in {node.domain for node in result.proto.graph.node}
    (tmp_path / "m.ort").write_bytes(saved(result.proto, "none"))
    again = package.optimize(tmp_path / "m.ort")
    again.save(tmp_path / "r.onnx")
    assert any("right only on CPUs" in note for note in again.report.notes)
    assert package.verify(tmp_path / "m.ort", tmp_path / "r.onnx").ok


def test_blocks_of_channels_need_their_stamp(tmp_path: Path) -> None:
    """Nothing in a file that ONNX Runtime saved with its own blocks says how large these are."""
    onnx.save(net(), tmp_path / "m.onnx")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = str(tmp_path / "m.ort")
    onnxruntime.InferenceSession(str(tmp_path / "m.onnx"), options, providers=["CPUExecutionProvider"])
    assert {node.domain for node in read(tmp_path / "m.ort").graph} >= {"com.microsoft.nchwc"}
    with pytest.raises(RelayoutError, match="does not say"):
        package.optimize(tmp_path / "m.ort")
