"""Reading ONNX: what is refused, in one line each, and that weights stay where they are."""

from __future__ import annotations

import os
import random
import re
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from relayout.errors import InvalidModelError, ReadError
from relayout.formats.onnx import checking
from relayout.formats.onnx.checking import check
from relayout.formats.onnx.parts import to_proto
from relayout.formats.onnx.reading import read
from relayout.formats.onnx.wire import fields, varint
from relayout.formats.stored import StoredArray
from relayout.graph.facts import facts_of


def text(body: str, types: str = "(float[2,3] x) => (float[2,3] y)") -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17, "f" : 1]> g {types} {body}')


def weighty(rows: int = 64) -> onnx.ModelProto:
    """x @ w + b with a weight that is large enough to stay in its file."""
    weight = np.random.default_rng(0).normal(size=(rows, 48)).astype(np.float32)
    model = text("{ h = MatMul(x, w)  y = Add(h, b) }", f"(float[2,{rows}] x) => (float[2,48] y)")
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    model.graph.initializer.append(numpy_helper.from_array(np.arange(48, dtype=np.float32), "b"))
    return model


def external(directory: Path, name: str = "m.onnx") -> Path:
    onnx.save(weighty(), directory / name, save_as_external_data=True, location=name + ".data", size_threshold=0)
    return directory / name


def relocate(path: Path, **keys: str) -> Path:
    """Write other external_data entries into the first tensor."""
    model = onnx.load(path, load_external_data=False)
    tensor = model.graph.initializer[0]
    old = {entry.key: entry.value for entry in tensor.external_data}
    del tensor.external_data[:]
    for key, value in {**old, **keys}.items():
        if value:
            tensor.external_data.add(key=key, value=value)
    path.write_bytes(model.SerializeToString())
    return path


def values(model: ir.Model) -> dict[str, np.ndarray]:
    return {name: value.const_value.numpy() for name, value in model.graph.initializers.items()}


def test_weights_in_the_file_are_mapped(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(weighty(), path)
    model = read(path)
    assert isinstance(model.graph.initializers["w"].const_value.raw, StoredArray)
    for name, array in values(model).items():
        np.testing.assert_array_equal(
            array, next(numpy_helper.to_array(t) for t in weighty().graph.initializer if t.name == name)
        )


def test_a_large_weight_is_mapped_and_unmapped(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(weighty(8192), path)
    tensor = read(str(path)).graph.initializers["w"].const_value
    path.unlink()  # the open file stays
    array = tensor.numpy()
    np.testing.assert_array_equal(array, numpy_helper.to_array(weighty(8192).graph.initializer[0]))
    assert not array.flags.writeable


def test_external_data_is_mapped(tmp_path: Path) -> None:
    model = read(external(tmp_path))
    assert isinstance(model.graph.initializers["w"].const_value.raw, StoredArray)
    assert to_proto(model).graph.initializer[0].raw_data == weighty().graph.initializer[0].raw_data


@pytest.mark.parametrize("kind", [TensorProto.INT4, TensorProto.UINT4, TensorProto.BFLOAT16, TensorProto.FLOAT8E4M3FN])
def test_small_types_from_the_file(tmp_path: Path, kind: int) -> None:
    data = np.random.default_rng(1).integers(0, 7, (101, 203)).astype(np.float32)
    tensor = helper.make_tensor("w", kind, data.shape, data.reshape(-1))
    raw = ir.from_proto(tensor).tobytes()
    kept = TensorProto(name="w", data_type=kind, dims=data.shape, raw_data=raw)
    model = text("{ y = Relu(x) }")
    model.graph.initializer.append(kept)
    onnx.save(model, tmp_path / "m.onnx")
    mapped = read(tmp_path / "m.onnx").graph.initializers["w"].const_value
    np.testing.assert_array_equal(mapped.numpy().astype(np.float32), data)
    assert mapped.tobytes() == raw


def test_a_proto_is_not_changed_and_not_copied() -> None:
    proto = weighty()
    before = proto.SerializeToString()
    model = read(proto)
    model.graph.initializers["w"].name = "other"
    model.graph.name = "other"
    to_proto(model)
    assert proto.SerializeToString() == before
    again = to_proto(read(proto))
    assert onnx.printer.to_text(again) == onnx.printer.to_text(proto)


def test_a_model_is_cloned() -> None:
    source = ir.from_proto(weighty())
    copy = read(source)
    copy.graph[0].op_type = "Gemm"
    assert source.graph[0].op_type == "MatMul"


def test_unsorted_nodes_are_sorted() -> None:
    assert [node.op_type for node in read(text("{ y = Neg(a)  a = Relu(x) }")).graph] == ["Relu", "Neg"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("{ a = Add(x, b)  b = Relu(a)  y = Neg(b) }", "cycle"),
        ("{ a = Relu(zz)  b = Neg(ww)  y = Add(a, b) }", "nothing makes: 'zz', 'ww'.*Relu 'a'"),
        ("{ a = Relu(x)  a = Neg(x)  y = Neg(a) }", "'a' is made twice"),
        ("{ y = Add(x) }", "Add has 1 operand and needs 2.*Add 'y'"),
        ("{ y = Transpose() }", "Transpose has 0 operands and needs 1"),
        ("{ y = com.microsoft.QuantizeLinear(x) }", "QuantizeLinear has 1 operand and needs 2"),
        ("{ x = Relu(y)  y = Neg(x) }", "'x' is made twice"),
        ("{ a = Relu(x) }", "output 'y' is made by nothing"),
    ],
)
def test_what_is_not_a_graph_is_refused(body: str, message: str) -> None:
    with pytest.raises(ReadError, match=message):
        read(text(body))


BRANCH = """{ c = Constant<value = bool {1}>()
  y = If(c) <then_branch = t () => (float[2,3] o) { %s }, else_branch = e () => (float[2,3] p) { p = Neg(x) }> }"""


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ("y = GatherND<batch_dims=-2>(x, i)", "-2 is no axis of an operand of rank 2"),
        ("y = Softmax<axis=2147483648>(x)", "2147483648 is no axis of an operand of rank 2"),
        ("y = Softmax<axis=-9>(x)", "-9 is no axis of an operand of rank 2"),
        ("r = Relu(x) y = Softmax<axis=300>(r)", "300 is no axis of any operand"),
        ("y = Transpose<perm=[0,9223372036854775807]>(x)", "9223372036854775807 is no axis of an operand of rank 2"),
        ("y = Concat<axis=-9223372036854775808>(x, x)", "-9223372036854775808 is no axis"),
        (
            "y = If<then_branch=g () => (float t) { t = Softmax<axis=1000>(x) }, else_branch=g () => (float e)"
            " { e = Relu(x) }>(b)",
            "1000 is no axis of any operand at the given ModelProto, If 'y', then_branch, Softmax 't', axis",
        ),
    ],
)
def test_axes_that_nothing_has_are_refused_before_anything_is_inferred(
    node: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checking.isolation, "infer_shapes", lambda *_, **__: pytest.fail("inferred"))
    text = f'<ir_version: 10, opset_import: ["": 21]> g (float[2,3] x, int64[2,1] i, bool b) => (float y) {{ {node} }}'
    with pytest.raises(ReadError, match=re.escape(message)):
        read(parser.parse_model(text))


@pytest.mark.parametrize("value", [0, -2])
@pytest.mark.parametrize("name", ["strides", "dilations", "kernel_shape"])
@pytest.mark.parametrize("node", ["Conv<{}>(x, w)", "ConvTranspose<{}>(x, w)", "MaxPool<{}>(x)", "AveragePool<{}>(x)"])
def test_windows_that_do_not_move_are_refused(node: str, name: str, value: int) -> None:
    shape = {} if name == "kernel_shape" else {"kernel_shape": [3, 3]}
    said = ", ".join(f"{key}={each}" for key, each in {**shape, name: [1, value]}.items())
    graph = f"g (float[1,2,8,9] x, float[2,2,3,3] w) => (float y) {{ y = {node.format(said)} }}"
    with pytest.raises(ReadError, match=re.escape(f"{name} is 1, {value}, and must be at least 1 at ")):
        read(parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> {graph}'))


def test_axes_that_an_operator_adds_are_read() -> None:
    text = '<ir_version: 10, opset_import: ["": 11]> g (float[2,3] x) => (float[n,m,k,l,o] y) { y = '
    assert read(parser.parse_model(text + "Unsqueeze<axes=[2,3,4]>(x) }")).graph.outputs[0].shape is not None


def test_subgraphs_see_outer_values() -> None:
    assert len(read(text(BRANCH % "o = Relu(x)")).graph) == 1
    with pytest.raises(ReadError, match=r"'zz'.*If 'y', then_branch, Relu 'o'"):
        read(text(BRANCH % "o = Relu(zz)"))
    with pytest.raises(ReadError, match="cycle"):
        read(text(BRANCH % "o = Relu(y)"))


def test_functions_are_checked() -> None:
    def model(body: str) -> onnx.ModelProto:
        whole = text("{ y = f.g(x) }")
        whole.functions.append(
            parser.parse_function(f'<opset_import: ["" : 17, "f" : 1], domain: "f"> g (a) => (b) {body}')
        )
        return whole

    assert len(read(model("{ b = Relu(a) }")).functions) == 1
    with pytest.raises(ReadError, match=r"nothing makes: 'zz' at .*function 'g'"):
        read(model("{ b = Relu(zz) }"))
    with pytest.raises(ReadError, match="calls itself"):
        read(model("{ b = f.g(a) }"))
    twice = model("{ b = Relu(a) }")
    twice.functions.append(twice.functions[0])
    with pytest.raises(ReadError, match=r"function 'f.g' occurs twice"):
        read(twice)


def test_repeated_names_are_refused() -> None:
    model = weighty()
    model.graph.initializer.append(model.graph.initializer[0])
    with pytest.raises(ReadError, match="initializer 'w' occurs twice"):
        read(model)
    model = weighty()
    model.graph.input.append(model.graph.input[0])
    with pytest.raises(ReadError, match="graph input 'x' occurs twice"):
        read(model)


def test_nameless_are_refused() -> None:
    model = weighty()
    model.graph.initializer[0].name = ""
    with pytest.raises(ReadError, match="no name"):
        read(model)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dims": [10**6, 10**6]}, "needs 4000000000000 bytes"),
        ({"dims": [-1]}, "no tensor can have the shape"),
        ({"dims": [2**40, 2**40]}, "no tensor can have the shape"),
        ({"data_type": 999}, "unknown element type 999"),
        ({"data_type": TensorProto.STRING}, "strings cannot be raw"),
    ],
)
def test_tensors_without_their_data_are_refused(tmp_path: Path, change: dict[str, object], message: str) -> None:
    for rows in (1, 64):  # a small tensor is parsed, a large one lifted
        model = weighty(rows)
        tensor = model.graph.initializer[0]
        for key, value in change.items():
            tensor.ClearField(key)
            tensor.MergeFrom(TensorProto(**{key: value}))
        path = tmp_path / "m.onnx"
        path.write_bytes(model.SerializeToString())
        for source in (path, model):
            with pytest.raises(ReadError, match="do not fit|" + message):
                read(source)


def test_typed_data_is_counted() -> None:
    for kind, field, data in (
        ("FLOAT", "float_data", [1.0]),
        ("INT4", "int32_data", [1]),
        ("COMPLEX64", "float_data", [1.0, 2.0]),
    ):
        model = text("{ y = Relu(x) }")
        tensor = TensorProto(name="t", data_type=TensorProto.DataType.Value(kind), dims=[1])
        getattr(tensor, field).extend(data)
        model.graph.initializer.append(tensor)
        read(model)
        model.graph.initializer[0].dims[0] = 9
        with pytest.raises(ReadError, match=r"needs .* elements of data"):
            read(model)


def test_attribute_tensors_are_checked() -> None:
    model = text("{ y = Relu(x) }")
    bad = TensorProto(name="t", data_type=1, dims=[9])
    model.graph.node.append(helper.make_node("Constant", [], ["c"], name="k", value=bad))
    with pytest.raises(ReadError, match="Constant 'k', attribute 'value'"):
        read(model)


def test_files_that_are_not_models(tmp_path: Path) -> None:
    def refused(data: bytes) -> str:
        path = tmp_path / "m.onnx"
        path.write_bytes(data)
        with pytest.raises(ReadError) as error:
            read(path)
        assert "\n" not in str(error.value)
        assert str(path) in str(error.value)
        return str(error.value)

    assert "empty" in refused(b"")
    assert "TensorFlow Lite" in refused(b"\x1c\0\0\0TFL3" + bytes(50))
    assert "no graph" in refused(varint(1 << 3) + varint(8))
    refused(b"not a model at all, but a text")
    refused(b"\xff" * 40)
    refused(b"\x00" * 40)
    with pytest.raises(ReadError, match="is a directory"):
        read(tmp_path)
    with pytest.raises(ReadError, match="does not exist"):
        read(tmp_path / "none.onnx")
    with pytest.raises(ReadError, match="cannot be opened"):
        read("a\0b")
    with pytest.raises(ReadError, match="not an ONNX model"):
        read(onnx.ModelProto())


def test_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "p.onnx")
    with pytest.raises(ReadError, match="not a regular file"):
        read(tmp_path / "p.onnx")


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    whole = weighty().SerializeToString()
    path = tmp_path / "m.onnx"
    for length in [*range(1, 200, 7), *range(200, len(whole), 997), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(ReadError):
            read(path)


def test_damage_is_refused_or_harmless(tmp_path: Path) -> None:
    whole = weighty().SerializeToString()
    rng = random.Random(0)
    path = tmp_path / "m.onnx"
    for _ in range(400):
        data = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(160) if rng.random() < 0.5 else rng.randrange(len(data))] = rng.randrange(256)
        path.write_bytes(data)
        try:
            values(read(path))
        except ReadError as error:
            assert "\n" not in str(error)  # noqa: PT017


def test_split_graphs_merge_as_protobuf_says(tmp_path: Path) -> None:
    model = weighty()
    whole = model.SerializeToString()
    second = onnx.ModelProto()
    second.graph.initializer.append(numpy_helper.from_array(np.ones(5000, np.float32), "z"))
    path = tmp_path / "m.onnx"
    path.write_bytes(whole + second.SerializeToString())
    assert list(values(read(path))) == ["w", "b", "z"]


def test_the_wire_is_bounded() -> None:
    for data in (b"\x0a\x05abc", b"\x0b", b"\x80" * 12, b"\x08", b"\x09abc", b"\x02\x00"):
        with pytest.raises(ReadError, match="byte"):
            list(fields(memoryview(data), 0, len(data)))
    fixed = b"\x0d" + bytes(4) + b"\x11" + bytes(8)
    assert [field.number for field in fields(memoryview(fixed), 0, len(fixed))] == [1, 2]


# External data: inside the directory, or not at all.


@pytest.mark.parametrize(
    "location", ["../secret", "a/../../secret", "/etc/hostname", "C:\\x", "\\x", "..\\secret", "", "."]
)
def test_locations_outside_are_refused(tmp_path: Path, location: str) -> None:
    (tmp_path / "secret").write_bytes(bytes(20000))
    (tmp_path / "in").mkdir()
    with pytest.raises(ReadError):
        read(relocate(external(tmp_path / "in"), location=location))


def test_links_out_are_refused(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    path = external(tmp_path / "in")
    secret = tmp_path / "secret"
    (tmp_path / "in" / "m.onnx.data").rename(secret)
    (tmp_path / "in" / "m.onnx.data").symlink_to(secret)
    with pytest.raises(ReadError, match="leads out of the model's directory"):
        read(path)
    (tmp_path / "in" / "m.onnx.data").unlink()
    (tmp_path / "in" / "m.onnx.data").hardlink_to(secret)
    with pytest.raises(ReadError, match="hard links"):
        read(path)
    (tmp_path / "in" / "m.onnx.data").unlink()
    (tmp_path / "in" / "sub").symlink_to(tmp_path)
    with pytest.raises(ReadError, match="leads out"):
        read(relocate(path, location="sub/secret"))
    (tmp_path / "in" / "here").symlink_to(".")
    with pytest.raises(ReadError, match="not a regular file"):
        read(relocate(path, location="here"))


def test_links_within_work(tmp_path: Path) -> None:
    path = external(tmp_path)
    (tmp_path / "m.onnx.data").rename(tmp_path / "real")
    (tmp_path / "m.onnx.data").symlink_to("real")
    assert "w" in values(read(path))


def test_a_linked_model_finds_its_data(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    path = external(tmp_path / "real")
    (tmp_path / "link.onnx").symlink_to(path)
    assert "w" in values(read(tmp_path / "link.onnx"))


def hub(root: Path) -> Path:
    """The Hugging Face cache: every file of a snapshot is a link to a blob named by its hash."""
    blobs, snapshot = root / "models--a--b" / "blobs", root / "models--a--b" / "snapshots" / "abc123"
    blobs.mkdir(parents=True)
    (snapshot / "onnx").mkdir(parents=True)
    path = external(snapshot / "onnx")
    for name, digest in (("m.onnx", "a" * 40), ("m.onnx.data", "b" * 64)):
        (snapshot / "onnx" / name).rename(blobs / digest)
        (snapshot / "onnx" / name).symlink_to(f"../../../blobs/{digest}")
    return path


def test_the_hub_cache_works_and_nothing_beside_it(tmp_path: Path) -> None:
    path = hub(tmp_path)
    assert "w" in values(read(path))
    data = path.with_name("m.onnx.data")
    for other in ("models--a--b/blobs/notahash", "models--c--d/blobs/" + "b" * 64, "blobs/" + "b" * 64):
        target = tmp_path / other
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(bytes(20000))
        data.unlink()
        data.symlink_to(target)
        with pytest.raises(ReadError, match="leads out"):
            read(path)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"offset": "999999"}, "are asked for"),
        ({"length": "9" * 30}, "external data with the length"),
        ({"length": "77"}, "needs 12288 bytes"),
        ({"offset": "-8"}, "external data with the offset '-8'"),
        ({"offset": "x"}, "external data with the offset 'x'"),
        ({"location": "other"}, "is not in"),
    ],
)
def test_spans_are_checked(tmp_path: Path, keys: dict[str, str], message: str) -> None:
    with pytest.raises(ReadError, match=message):
        read(relocate(external(tmp_path), **keys))


def test_an_incomplete_data_file(tmp_path: Path) -> None:
    path = external(tmp_path)
    data = tmp_path / "m.onnx.data"
    data.write_bytes(data.read_bytes()[:-100])
    with pytest.raises(ReadError, match="incomplete"):
        read(path)
    data.unlink()
    os.mkfifo(data)
    with pytest.raises(ReadError, match="not a regular file"):
        read(path)


def test_a_file_that_shrinks_later_is_an_error_not_a_crash(tmp_path: Path) -> None:
    path = external(tmp_path)
    model = read(path)
    os.truncate(tmp_path / "m.onnx.data", 100)
    with pytest.raises(ReadError, match="could be read"):
        values(model)


def test_a_proto_cannot_have_external_data(tmp_path: Path) -> None:
    path = external(tmp_path)
    with pytest.raises(ReadError, match="pass the model's path"):
        read(onnx.load(path, load_external_data=False))
    read(onnx.load(path))


def test_external_attributes_are_resolved(tmp_path: Path) -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    (tmp_path / "d").write_bytes(array.tobytes())
    tensor = TensorProto(name="t", data_type=1, dims=[2, 3], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="d")
    model = text("{ y = Relu(x) }")
    model.graph.node.insert(0, helper.make_node("Constant", [], ["c"], value=tensor))
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    np.testing.assert_array_equal(values(read(tmp_path / "m.onnx"))["c"], array)
    model.graph.output.add(name="c").type.tensor_type.elem_type = 1  # an initializer is no output: it stays a node
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    np.testing.assert_array_equal(read(tmp_path / "m.onnx").graph[0].attributes["value"].value.numpy(), array)


def test_tensors_of_constants_are_initializers() -> None:
    body = "b = Add(x, k) k2 = Constant<value=float[1] {3}>() o = Mul(b, k2)"
    model = text(BRANCH % body)
    model.graph.node.insert(0, helper.make_node("Constant", [], ["k"], value_float=2.0))
    graph = read(model).graph
    branch = next(node for node in graph if node.op_type == "If").attributes["then_branch"].value
    assert [node.op_type for node in branch] == ["Add", "Mul"]
    np.testing.assert_array_equal(branch.initializers["k2"].const_value.numpy(), [3])
    assert graph[0].op_type == "Constant", "what holds no tensor stays a node"


def test_large_tensors_of_constants_are_not_copied_into_initializers() -> None:
    nodes = "a = Relu(x) s = Constant<value=float[1] {3}>() b = Neg(a) c = Mul(b, s) y = Add(c, w)"
    model = text(f"{{ {nodes} }}")
    weight = helper.make_tensor("w", TensorProto.FLOAT, [2000, 3], np.zeros(6000, np.float32).tobytes(), raw=True)
    model.graph.node.insert(2, helper.make_node("Constant", [], ["w"], value=weight))
    graph = read(model).graph
    assert [node.op_type for node in graph] == ["Relu", "Constant", "Neg", "Mul", "Add"]
    assert list(graph.initializers) == ["s"]


def test_what_the_ir_cannot_hold_is_one_line() -> None:
    model = text("{ y = Relu(x) }")
    body = helper.make_graph([helper.make_node("Relu", ["x"], ["m"])], "body", [], [])
    body.output.add(name="m").type.map_type.key_type = TensorProto.INT64
    model.graph.node[0].attribute.append(helper.make_attribute("body", body))
    with pytest.raises(ReadError, match=r"not a valid ONNX model: Map types are not supported yet at ") as error:
        read(model)
    assert "\n" not in str(error.value)


def test_typed_data_stays_in_the_proto(tmp_path: Path) -> None:
    model = text("{ y = Relu(x) }")
    model.graph.initializer.append(helper.make_tensor("w", TensorProto.FLOAT, [5000], [0.5] * 5000))
    onnx.save(model, tmp_path / "m.onnx")
    for source in (tmp_path / "m.onnx", model):
        np.testing.assert_array_equal(values(read(source))["w"], np.full(5000, 0.5, np.float32))


def test_notes_on_large_tensors_are_kept(tmp_path: Path) -> None:
    model = weighty()
    tensor = model.graph.initializer[0]
    tensor.doc_string = "a weight"
    tensor.segment.begin, tensor.segment.end = 0, 1
    tensor.metadata_props.add(key="k", value="v")
    onnx.save(model, tmp_path / "m.onnx")
    for source in (tmp_path / "m.onnx", model):
        again = to_proto(read(source)).graph.initializer[0]
        assert (again.doc_string, again.metadata_props[0].value) == ("a weight", "v")


def test_lists_of_tensors_are_resolved(tmp_path: Path) -> None:
    (tmp_path / "d").write_bytes(np.arange(2, dtype=np.float32).tobytes())
    tensor = TensorProto(name="t", data_type=1, dims=[2], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="d")
    model = text("{ y = Relu(x) }")
    model.graph.node.insert(0, helper.make_node("Many", [], ["c"], domain="f", list=[tensor, tensor]))
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    found = read(tmp_path / "m.onnx").graph[0].attributes["list"].value
    assert [list(each.numpy()) for each in found] == [[0, 1], [0, 1]]


def test_recursion_through_a_branch_is_refused() -> None:
    whole = text("{ y = f.g(x) }")
    body = """{ c = Constant<value = bool {1}>()
      b = If(c) <then_branch = t () => (o) { o = f.g(a) }, else_branch = e () => (p) { p = Neg(a) }> }"""
    whole.functions.append(
        parser.parse_function(f'<opset_import: ["" : 17, "f" : 1], domain: "f"> g (a) => (b) {body}')
    )
    with pytest.raises(ReadError, match="calls itself"):
        read(whole)


def test_reading_without_pread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pread")
    model = read(external(tmp_path))
    assert "StoredArray('m.onnx.data', 0, float32" in repr(model.graph.initializers["w"].const_value.raw)
    np.testing.assert_array_equal(values(model)["b"], np.arange(48))


def test_data_that_cannot_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = external(tmp_path)
    real = os.open

    def refuse(name: str | Path, *more: int) -> int:
        if str(name).endswith(".data"):
            raise PermissionError(13, "Permission denied")
        return real(name, *more)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(ReadError, match="cannot be opened: Permission denied"):
        read(path)


@pytest.mark.parametrize("name", ["Relu", "wordy", "x", "g"])
def test_names_that_are_not_text_are_refused(name: str, tmp_path: Path) -> None:
    """Protobuf takes any bytes for a string, and gives back `bytes` where they are no text."""
    whole = text("{ wordy = Relu(x)  y = Neg(wordy) }").SerializeToString()
    path = tmp_path / "m.onnx"
    path.write_bytes(
        whole.replace(
            b"\x01x" if name == "x" else name.encode(), b"\x01\xff" if name == "x" else b"\xff" * len(name), 1
        )
    )
    with pytest.raises(ReadError, match="is not UTF-8 text"):
        read(path)


@pytest.mark.parametrize("swapped", ["file", "directory"])
def test_a_link_put_there_between_check_and_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, swapped: str
) -> None:
    """The path is checked; then the file, or the directory around it, becomes a link out."""
    inside, outside = tmp_path / "in" / "sub", tmp_path / "out"
    inside.mkdir(parents=True)
    outside.mkdir()
    path = external(tmp_path / "in")
    data = (tmp_path / "in" / "m.onnx.data").rename(inside / "data")
    (outside / "data").write_bytes(bytes(data.stat().st_size))
    relocate(path, location="sub/data")
    model = onnx.load(path, load_external_data=False)
    for entry in model.graph.initializer[1].external_data:
        entry.value = "sub/data" if entry.key == "location" else entry.value
    path.write_bytes(model.SerializeToString())
    assert "w" in values(read(path))
    real = os.path.realpath

    def swap(name: str | Path) -> str:
        found = real(name)
        if found.endswith("sub/data") and not inside.is_symlink() and not data.is_symlink():
            if swapped == "file":
                data.unlink()
                data.symlink_to(outside / "data")
            else:
                inside.rename(tmp_path / "in" / "before")
                inside.symlink_to(outside)
        return found

    monkeypatch.setattr(os.path, "realpath", swap)
    with pytest.raises(ReadError, match="cannot be opened"):
        read(path)


@pytest.mark.parametrize("leaf_first", [False, True])
def test_calls_within_calls_have_a_limit(leaf_first: bool) -> None:
    def chain(depth: int) -> onnx.ModelProto:
        model = text("{ y = m.F0(x) }")
        model.opset_import.add(domain="m", version=1)
        opsets = [onnx.helper.make_opsetid("", 21), onnx.helper.make_opsetid("m", 1)]
        for i in range(depth):
            last = i == depth - 1
            node = onnx.helper.make_node("Relu" if last else f"F{i + 1}", ["a"], ["b"], domain="" if last else "m")
            model.functions.append(onnx.helper.make_function("m", f"F{i}", ["a"], ["b"], [node], opsets))
        if leaf_first:
            functions = list(model.functions)[::-1]
            del model.functions[:]
            model.functions.extend(functions)
        return model

    read(chain(100))
    with pytest.raises(ReadError, match="functions call each other more than 100 deep"):
        read(chain(101))


def test_values_of_absurd_rank_are_refused() -> None:
    def ranked(rank: int) -> onnx.ModelProto:
        dims = ",".join(["1"] * rank)
        return text("{ y = Relu(x) }", f"(float[{dims}] x) => (float[{dims}] y)")

    read(ranked(256))
    with pytest.raises(ReadError, match="value 'x' has 257 dimensions"):
        read(ranked(257))


def test_what_says_nothing_is_refused() -> None:
    outside = "(bool c, float[2,3] x) => (float[2,3] y)"
    with pytest.raises(ReadError, match="output 'x' is a value of the graph outside"):
        read(
            text(
                "{ y = If<then_branch = a () => (float[2,3] x) {}, "
                "else_branch = b () => (float[2,3] z) { z = Abs(x) }>(c) }",
                outside,
            )
        )
    model = text("{ y = Relu(x) }")
    model.graph.node.add(op_type="Relu", input=["x"])
    with pytest.raises(ReadError, match="a node has no outputs"):
        read(model)
    model.graph.node[1].op_type = ""
    with pytest.raises(ReadError, match="a node has no operator"):
        read(model)


def stating(body: str, types: str, **shapes: list[int]) -> ir.Model:
    proto = text(body, types)
    proto.graph.value_info.extend(helper.make_tensor_value_info(name, 1, shape) for name, shape in shapes.items())
    return read(proto)


def stated(model: ir.Model) -> dict[str, list[int]]:
    values = (value for node in model.graph for value in node.outputs if not value.is_graph_output())
    return {value.name or "": [int(dim) for dim in value.shape] for value in values if value.shape is not None}


def test_what_operators_contradict_is_not_read() -> None:
    """As exporters write it that move a Transpose and leave the shapes behind."""
    chain = "{ t = Transpose<perm = [1, 0]>(x)  a = Relu(t)  b = Neg(a)  y = Abs(b) }"
    types = "(float[2,3] x) => (float[3,2] y)"
    told = stating(chain, types, t=[3, 2], a=[2, 3], b=[2, 3])
    assert stated(told) == {"t": [3, 2]}
    assert facts_of(told).contradicted == ["a", "b"]
    assert stated(stating(chain, types, t=[3, 2], a=[3, 2])) == {"t": [3, 2], "a": [3, 2]}


def test_what_no_inference_contradicts_is_read_as_it_is() -> None:
    unknown = stating(
        "{ a = f.Op(x)  b = Relu(a)  y = Neg(b) }", "(float[2,3] x) => (float[7,7] y)", a=[7, 7], b=[2, 3]
    )
    assert stated(unknown) == {"a": [7, 7]}
    assert facts_of(unknown).contradicted == ["b"]
    # Where the operators contradict each other, nobody knows who is right.
    wrong = stating("{ a = Add(x, z)  y = Neg(a) }", "(float[2,3] x, float[2,5] z) => (float[2,3] y)", a=[9, 9])
    assert stated(wrong) == {"a": [9, 9]}


@pytest.mark.parametrize("rank", [1, 2])
def test_an_output_is_of_the_shape_that_its_operator_gives(rank: int) -> None:
    """Runtimes load such models, and go by the operators."""
    types = f"(float[2,3] x) => (float[{'3,2' if rank == 2 else '6'}] y, float[2,3] z)"
    told = stating("{ a = Relu(x)  y = Neg(a)  z = Abs(a) }", types, a=[3, 2])
    assert stated(told) == {}
    assert [list(value.shape or ()) for value in told.graph.outputs] == [[2, 3], [2, 3]]
    assert facts_of(told).contradicted == ["a", "y"]


def test_what_is_inferred_at_once_is_read_and_outputs_stay_as_they_are_stated() -> None:
    told = stating("{ a = Relu(x)  y = Neg(a) }", "(float[2,3] x) => (float[m,3] y)")
    assert stated(told) == {"a": [2, 3]}
    assert told.graph.outputs[0].shape == ["m", 3]
    assert not to_proto(told).graph.value_info  # as in the source


def test_an_output_of_another_element_type_stays_an_error() -> None:
    """No runtime loads that."""
    wrong = stating("{ a = Relu(x)  y = Neg(a) }", "(float[2,3] x) => (int64[3,2] y)", a=[3, 2])
    assert stated(wrong) == {"a": [3, 2]}
    assert not facts_of(wrong).contradicted
    with pytest.raises(InvalidModelError, match="elem type differs"):
        check(wrong)


def test_an_output_that_is_an_input_states_what_the_input_does() -> None:
    model = text("{ y = Relu(w) }", "(float[N,3,2,1] x, float[4,?] w) => (float[?,?,?,?] x, float[4,?] y)")
    found = read(model)
    assert [str(value.shape) for value in found.graph.inputs] == ["[N,3,2,1]", "[4,None]"]
    assert [value.name for value in found.graph.outputs] == ["x", "y"]
    assert to_proto(found).graph.output[0] == model.graph.input[0]


def test_an_output_of_a_body_that_is_its_input_states_what_the_input_does() -> None:
    model = text(
        "{ y = Loop(m, , x) <body = b (int64 i, bool c, float[N,3] s) => (bool c, float[?,?] s) { }> }",
        "(float[N,3] x, int64 m) => (float[?,?] y)",
    )
    (node,) = read(model).graph
    body = node.attributes.get_graph("body")
    assert body is not None
    assert str(body.outputs[1].shape) == "[N,3]"


def test_texts_of_a_given_proto_that_are_no_utf8() -> None:
    """A proto gives such a text as bytes, and does not take them."""
    model = weighty()
    model.producer_name, model.doc_string = "somebody", "something"
    content = model.SerializeToString()
    damaged = onnx.ModelProto.FromString(content.replace(b"somebody", b"\xffomebody"))
    assert isinstance(damaged.producer_name, bytes)
    assert read(damaged).producer_name == "\ufffdomebody"
    named = onnx.ModelProto.FromString(content.replace(b"\x01g", b"\x01\xff"))
    assert isinstance(named.graph.name, bytes)
    assert read(named).graph.name == "\ufffd"


def test_names_of_weights_of_a_given_proto_that_are_no_utf8() -> None:
    model = weighty()
    model.graph.initializer[0].name = "weight"
    model.graph.node[0].input[1] = "weight"
    damaged = onnx.ModelProto.FromString(model.SerializeToString().replace(b"weight", b"\xffeight"))
    with pytest.raises(ReadError, match="is not UTF-8 text"):
        read(damaged)


def test_a_claim_that_its_operator_contradicts_is_invalid_where_no_shape_is_computed() -> None:
    """The checker alone says so; where shapes are computed, what they give is inferred beside it."""
    claimed = "{ h = Relu(x)  y = Transpose<perm=[1,0]>(h) }"
    check(ir.from_proto(text(claimed, "(float[2,3] x) => (float[3,2] y)")))
    with pytest.raises(InvalidModelError, match="shape"):
        check(ir.from_proto(text(claimed)))
    computed = "{ s = Shape(x)  h = Reshape(x, s)  y = Transpose<perm=[1,0]>(h) }"
    check(ir.from_proto(text(computed, "(float[2,3] x) => (float[3,2] y)")))
    with pytest.raises(InvalidModelError, match="'y'"):
        check(ir.from_proto(text(computed)))


def test_a_statement_of_an_inner_value_without_a_type_is_dropped() -> None:
    source = text("{ t = Transpose<perm=[1,0]>(x)  y = Relu(t) }", "(float[2,3] x) => (float[3,2] y)")
    source.graph.value_info.append(helper.make_tensor_value_info("t", TensorProto.UNDEFINED, [3, 2]))
    assert read(source).graph[0].outputs[0].dtype != ir.DataType.UNDEFINED
