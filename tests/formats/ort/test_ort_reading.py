"""An ORT-format file is read as the ONNX that ONNX Runtime saves of the same session."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import relayout as package
from conftest import KERAS
from relayout.errors import ReadError, WriteError
from relayout.formats.flatbuffer import Table
from relayout.formats.onnx.reading import read
from relayout.formats.ort import loading
from relayout.formats.stored import StoredArray
from relayout.graph.facts import facts_of
from text_form import floats, model

sys.path.insert(0, str(Path(__file__).parents[2] / "fuzz"))

import ort_files
import written
from ort_files import changed, in_graph, made, saved, tables

Run = Any
LEVELS = ("none", "basic", "full")
NET = """g (float[1,32,24,16] x) => (float[1,12,16,32] y) {
    a = Transpose<perm=[0,3,2,1]>(x)  b = Conv<pads=[1,1,1,1]>(a, w)  c = Relu(b)
    d = Transpose<perm=[0,2,3,1]>(c)  e = Sin(d)  f = Transpose<perm=[0,3,1,2]>(e)
    m = MaxPool<kernel_shape=[2,2], strides=[2,2]>(f)  y = Transpose<perm=[0,2,3,1]>(m) }"""


def net() -> onnx.ModelProto:
    return model(NET, w=floats(32, 16, 3, 3))


def put(folder: Path, data: bytes, name: str = "m.ort") -> Path:
    (folder / name).write_bytes(data)
    return folder / name


# The law.


def content(tensor: ir.TensorProtocol) -> tuple[Any, ...]:
    elements = tuple(tensor.numpy().ravel()) if tensor.dtype == ir.DataType.STRING else tensor.tobytes()
    return tensor.dtype, tuple(tensor.shape.numpy()), elements


def attribute(held: ir.Attr) -> Any:
    if held.type == ir.AttributeType.GRAPH:
        return graph(held.value)
    return content(held.value) if held.type == ir.AttributeType.TENSOR else repr(held.value)


def is_default(node: ir.Node, held: ir.Attr, imports: dict[str, int]) -> bool:
    """Return whether an attribute is the operator's default: ONNX Runtime's own file may state it or not."""
    version = imports.get(node.domain, 1)
    if not onnx.defs.has(node.op_type, version, node.domain):
        return False
    known = onnx.defs.get_schema(node.op_type, version, node.domain).attributes.get(held.name)
    if known is None or not known.default_value.name:
        return False
    proto = ir.serde.serialize_attribute(held)
    return proto == known.default_value or (held.type == ir.AttributeType.FLOAT and proto.f == known.default_value.f)


def graph(held: ir.Graph, imports: dict[str, int] | None = None) -> dict[Any, Any]:
    """Nodes by what they give, constants by name, and the ends' names; a Constant is a constant."""
    imports = held.opset_imports if imports is None else imports
    found: dict[Any, Any] = {name: content(value.const_value) for name, value in held.initializers.items()}
    for node in held:
        given = tuple(value.name for value in node.outputs)
        if node.op_type == "Constant" and "value" in node.attributes:
            found[given[0]] = content(node.attributes["value"].value)
            continue
        said = {
            name: graph(each.value, imports) if each.type == ir.AttributeType.GRAPH else attribute(each)
            for name, each in node.attributes.items()
            if not is_default(node, each, imports)
        }
        read = tuple("" if value is None else value.name for value in node.inputs)
        found[given] = (node.domain, node.op_type, node.name, read, said)
    found["ends"] = [value.name for value in held.inputs], [value.name for value in held.outputs]
    return found


def types(held: ir.Model) -> list[str]:
    return [str(value.type) for value in (*held.graph.inputs, *held.graph.outputs)]


def held_to_the_law(folder: Path, source: onnx.ModelProto | Path, level: str) -> ir.Model:
    theirs = read(put(folder, saved(source, level, "ONNX"), "m.onnx"))
    ours = read(put(folder, saved(source, level)))
    assert graph(ours.graph) == graph(theirs.graph)
    assert types(ours) == types(theirs)
    domains = {node.domain for node in ours.graph.all_nodes()} | {""}
    assert dict(ours.opset_imports) == {name: theirs.opset_imports[name] for name in domains}
    assert ours.ir_version == theirs.ir_version
    assert facts_of(ours).ort_format == 6
    return ours


WRITTEN = ("folded", "functions", "if", "loop", "quantized", "scan", "shapes", "sparse")


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", WRITTEN)
def test_the_law(tmp_path: Path, name: str, level: str) -> None:
    if (name, level) == ("quantized", "full"):
        pytest.skip("ONNX Runtime's own optimizer makes a graph of it that is not valid")
    held_to_the_law(tmp_path, onnx.ModelProto.FromString(written.models()[f"{name}.onnx"]), level)


def test_external_data_is_inside(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(np.arange(64, dtype=np.float32).tobytes())
    (tmp_path / "s.onnx").write_bytes(written.models()["external.onnx"])
    held_to_the_law(tmp_path, tmp_path / "s.onnx", "none")


KINDS = "BFLOAT16 BOOL DOUBLE FLOAT FLOAT16 FLOAT8E4M3FN FLOAT8E5M2 INT16 INT32 INT64 INT8 UINT16 UINT32 UINT64 UINT8"


def test_every_kind_of_element(tmp_path: Path) -> None:
    proto = onnx.ModelProto.FromString(written.models()["kinds.onnx"])
    names = {name for kind in KINDS.split() for name in (kind, f"{kind}_RAW")}
    for held in (proto.graph.initializer, proto.graph.node, proto.graph.output):
        kept = [each for each in held if getattr(each, "name", "").removesuffix("_out") in names]
        kept = [each for each in held if set(each.input) & names] if held is proto.graph.node else kept
        del held[:]
        held.extend(kept)
    assert len(held_to_the_law(tmp_path, proto, "none").graph.initializers) == len(names)


def strings() -> onnx.ModelProto:
    """Bytes that are no text, in a constant, and strings in attributes: all are what FlatBuffers calls strings."""
    words = helper.make_tensor("words", TensorProto.STRING, [2], [b"\xff\xfe", "é".encode()])
    nodes = [
        helper.make_node("Identity", ["words"], ["w"]),
        helper.make_node("RNN", ["x", "k", "r"], ["", "y"], activations=["Relu"], hidden_size=2),
    ]
    shapes = {"x": (3, 1, 4), "k": (1, 2, 4), "r": (1, 2, 2), "y": (1, 1, 2)}
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    ends.append(helper.make_tensor_value_info("w", TensorProto.STRING, [2]))
    return helper.make_model(
        helper.make_graph(nodes, "g", ends[:3], ends[3:], [words]),
        opset_imports=[helper.make_opsetid("", 21)],
        ir_version=10,
    )


def test_strings_are_bytes(tmp_path: Path) -> None:
    held = held_to_the_law(tmp_path, strings(), "none")
    assert list(held.graph.initializers["words"].const_value.numpy()) == [b"\xff\xfe", "é".encode()]


LIGHT = sorted((Path(onnx.__file__).parent / "backend" / "test" / "data" / "light").glob("*.onnx"))


@pytest.mark.slow
@pytest.mark.parametrize("path", LIGHT, ids=lambda path: path.stem)
def test_networks_are_held_to_the_law(tmp_path: Path, path: Path) -> None:
    held_to_the_law(tmp_path, path, "basic")


@pytest.mark.slow
def test_the_standard_s_own_suite_is_held_to_the_law(tmp_path: Path) -> None:
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the suite's own arithmetic
        cases = collect_testcases(None)
    count = 0
    for case in cases:
        try:
            saved(case.model, "full")
        except Exception:  # ONNX Runtime has no kernel
            continue
        held_to_the_law(tmp_path, case.model, "full")
        count += 1
    assert count > 1_500


# What the format has besides.


def test_imports_and_attributes_that_say_nothing_are_left_out(tmp_path: Path) -> None:
    data = saved(net(), "none")
    root = tables(data).model
    assert len(root.opset_import) > 5
    conv = next(node for node in root.graph.nodes if node.op_type == "Conv")
    assert {"auto_pad", "group"} <= {each.name for each in conv.attributes}
    held = read(put(tmp_path, data))
    assert list(held.opset_imports) == [""]
    assert set(held.graph.node("b").attributes if held.graph[1].name else held.graph[1].attributes) == {"pads"}


def test_weights_stay_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(tmp_path, saved(net(), "none"))
    weights = read(path).graph.initializers["w"].const_value
    assert np.array_equal(weights.numpy(), floats(32, 16, 3, 3))
    monkeypatch.setattr(loading, "MOST_READ", 0)
    lazy = read(path).graph.initializers["w"].const_value
    assert isinstance(lazy.raw, StoredArray)
    assert np.array_equal(lazy.numpy(), weights.numpy())


def test_weights_beside_the_file(tmp_path: Path) -> None:
    def outside(graph: Table) -> Table:
        (weight,) = graph.initializers
        return changed(graph, initializers=(changed(weight, raw_data=None, external_data_offset=64),))

    path = put(tmp_path, in_graph(saved(net(), "none"), outside))
    with pytest.raises(ReadError, match=r"'m\.ort\.data' is not in"):
        read(path)
    (tmp_path / "m.ort.data").write_bytes(bytes(64) + floats(32, 16, 3, 3).tobytes())
    assert np.array_equal(read(path).graph.initializers["w"].const_value.numpy(), floats(32, 16, 3, 3))
    (tmp_path / "m.ort.data").write_bytes(bytes(64) + floats(32, 16, 3, 3).tobytes()[1:])
    with pytest.raises(ReadError, match="the file is incomplete"):
        read(path)


def versioned(version: str) -> bytes:
    return ort_files.written(changed(tables(saved(net(), "none")), ort_version=version))


@pytest.mark.parametrize("version", [4, 5, 6])
def test_versions_that_are_read(tmp_path: Path, version: int) -> None:
    held = read(put(tmp_path, versioned(str(version))))
    assert facts_of(held).ort_format == version
    assert len(list(held.graph)) == 8


@pytest.mark.parametrize("version", ["3", "7", "", "6 "])
def test_versions_that_are_not_read(tmp_path: Path, version: str) -> None:
    with pytest.raises(ReadError, match="4 to 6 are read"):
        read(put(tmp_path, versioned(version)))


def test_runtime_optimizations_are_passed_over_with_a_note(tmp_path: Path) -> None:
    def later(graph: Table) -> Table:
        record = made("RuntimeOptimizationRecordContainerEntry", optimizer_name="ConvActivationFusion")
        return changed(graph, runtime_optimizations=made("RuntimeOptimizations", records=(record,)))

    notes = package.explain(put(tmp_path, in_graph(saved(net(), "none"), later))).notes
    assert any("passed over" in note and "ConvActivationFusion" in note for note in notes)
    assert not package.explain(put(tmp_path, saved(net(), "none"))).notes


def test_runtime_optimizations_that_onnx_runtime_saves(tmp_path: Path) -> None:
    """A quantized product, which ONNX Runtime fuses when it loads the file."""
    text = """g (float[4,8] x) => (float[4,6] y) {
        q = QuantizeLinear(x, s, z)  a = DequantizeLinear(q, s, z)  b = DequantizeLinear(w, s, z)
        c = MatMul(a, b)  r = QuantizeLinear(c, s, z)  y = DequantizeLinear(r, s, z) }"""
    weights = np.arange(48, dtype=np.uint8).reshape(8, 6)
    proto = model(text, s=np.array(0.5, np.float32), z=np.array(3, np.uint8), w=weights)
    data = saved(proto, "full", optimization__minimal_build_optimizations="save")
    path = put(tmp_path, data)
    records = tables(data).model.graph.runtime_optimizations
    assert records is not None
    assert records.records
    result = package.optimize(path)
    assert any("passed over" in note for note in result.report.notes)
    result.save(tmp_path / "r.onnx")
    assert package.verify(path, tmp_path / "r.onnx").ok


def test_a_node_of_another_version_is_refused(tmp_path: Path) -> None:
    def older(graph: Table) -> Table:
        return changed(graph, nodes=tuple(changed(node, since_version=1) for node in graph.nodes))

    with pytest.raises(ReadError, match=r"of version 1, and the file imports that of version \d+"):
        read(put(tmp_path, in_graph(saved(net(), "none"), older)))


# Damage that no fuzzer is sure to find.


def shared_elements(graph: Table) -> Table:
    """One table of elements, mentioned as attribute after attribute."""
    zeros = made("Tensor", name="t", dims=[1 << 16], data_type=TensorProto.UINT8, raw_data=bytes(1 << 16))
    held = made("Attribute", name="a", type=onnx.AttributeProto.TENSORS, tensors=(zeros,))
    return changed(graph, nodes=(changed(graph.nodes[0], attributes=(held,) * 3), *graph.nodes[1:]))


def unlike_type(graph: Table) -> Table:
    node = graph.nodes[0]
    return changed(graph, nodes=(changed(node, attributes=(changed(node.attributes[0], type=11),)), *graph.nodes[1:]))


def hollow(graph: Table) -> Table:
    held = made("Attribute", name="g", type=onnx.AttributeProto.GRAPH)
    return changed(graph, nodes=(changed(graph.nodes[0], attributes=(held,)), *graph.nodes[1:]))


def short(graph: Table) -> Table:
    (weight,) = graph.initializers
    return changed(graph, initializers=(changed(weight, dims=[32, 16, 3, 4]),))


def unread(graph: Table) -> Table:
    return changed(graph, nodes=graph.nodes[1:])


DAMAGE: dict[str, tuple[Callable[[Table], Table], str]] = {
    "an attribute of a type that is not written": (unlike_type, "an attribute of type 11"),
    "an attribute without its graph": (hollow, "an attribute without its g"),
    "a weight of another shape": (short, r"18432 bytes of data do not fit FLOAT\[32, 16, 3, 4\]"),
    "a value that nothing makes": (unread, "values are read that nothing makes"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage(relayout: Run, tmp_path: Path, damage: str) -> None:
    change, message = DAMAGE[damage]
    path = put(tmp_path, in_graph(saved(net(), "none"), change))
    with pytest.raises(ReadError, match=message):
        read(path)
    ran = relayout("optimize", path, tmp_path / "r.onnx")
    assert ran.code == 2
    assert not (tmp_path / "r.onnx").exists()


def test_elements_that_tensors_share_are_not_copied_without_end() -> None:
    """A file of 300 kB that mentions 64 kB of elements again and again."""
    root = tables(in_graph(saved(net(), "none"), shared_elements))
    tensor = root.model.graph.nodes[0].attributes[0].tensors[0]
    held = loading._Loading("", 0, room=3 << 16)
    for _ in range(3):
        held.tensor(tensor, "t")
    with pytest.raises(ReadError, match="share more elements than the file holds"):
        held.tensor(tensor, "t")


def test_a_long_name_that_is_read_often(tmp_path: Path) -> None:
    """A name lies in the file once, and each mention of it takes four bytes."""
    name = "n" * 600
    nodes = [helper.make_node("Exp", ["x"], [name]), helper.make_node("Concat", [name] * 500, ["y"], axis=0)]
    ends = [helper.make_tensor_value_info(end, TensorProto.FLOAT, [size]) for end, size in (("x", 1), ("y", 500))]
    proto = helper.make_model(
        helper.make_graph(nodes, "g", ends[:1], ends[1:]), opset_imports=[helper.make_opsetid("", 21)], ir_version=10
    )
    assert len(read(put(tmp_path, saved(proto, "none"))).graph[1].inputs) == 500


# Every verb.


@pytest.mark.parametrize("level", LEVELS)
def test_optimized_and_verified(relayout: Run, tmp_path: Path, level: str) -> None:
    path, result = put(tmp_path, saved(net(), level)), tmp_path / "r.onnx"
    ran = relayout("optimize", path, result, "--verify")
    assert ran.code == 0, ran.err
    assert "PASSED" in ran.out
    names = {node.op_type for node in onnx.load(result).graph.node}
    assert ("FusedConv" in names) == (level == "full")


def test_a_wrong_result_is_not_verified(tmp_path: Path) -> None:
    path = put(tmp_path, saved(net(), "basic"))
    wrong = onnx.load_model_from_string(saved(net(), "basic", "ONNX"))
    wrong.graph.initializer[0].CopyFrom(numpy_helper.from_array(floats(32, 16, 3, 3, seed=1), "w"))
    onnx.save(wrong, tmp_path / "r.onnx")
    assert not package.verify(path, tmp_path / "r.onnx").ok


def test_the_file_itself_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from relayout.verification import ort

    ran: list[object] = []
    session = ort.Session

    def noted(source: Any, *arguments: Any, **named: Any) -> Any:
        ran.append(source)
        return session(source, *arguments, **named)

    monkeypatch.setattr(ort, "Session", noted)
    path = put(tmp_path, saved(net(), "basic"))
    package.optimize(path).save(tmp_path / "r.onnx")
    assert package.verify(path, tmp_path / "r.onnx").ok
    assert path in ran


def test_nothing_to_win_is_still_onnx(relayout: Run, tmp_path: Path) -> None:
    """Where a source is as good as can be, an ONNX result is a copy of its file; not so of one in another format."""
    proto = model("g (float[2,3] x) => (float[2,3] y) { y = Relu(x) }")
    path, result = put(tmp_path, saved(proto, "none")), tmp_path / "r.onnx"
    assert relayout("optimize", path, result).code == 0
    onnx.checker.check_model(onnx.load(result))
    session = onnxruntime.InferenceSession(str(result), providers=["CPUExecutionProvider"])
    assert session.run(None, {"x": np.full((2, 3), -1, np.float32)})[0].max() == 0


def test_to_tensorflow_lite(relayout: Run, tmp_path: Path) -> None:
    path = put(tmp_path, saved(net(), "basic"))
    ran = relayout("convert", path, tmp_path / "r.tflite", "--verify")
    assert ran.code == 0, ran.err
    assert "PASSED" in ran.out


def test_inspected(relayout: Run, tmp_path: Path) -> None:
    ran = relayout(put(tmp_path, saved(net(), "basic")))
    assert ran.code == 0, ran.err
    assert "ORT format, " in " ".join(ran.out.split())
    assert "Conv 1" in ran.out


def test_the_other_verbs(relayout: Run, tmp_path: Path) -> None:
    path = put(tmp_path, saved(net(), "none"))
    for arguments in (("explain", path), ("diff", path, path), ("optimize", path, tmp_path / "r.onnx")):
        ran = relayout(*arguments)
        assert ran.code == 0, ran.err


@pytest.mark.parametrize("verb", ["optimize", "convert"])
def test_none_is_written(relayout: Run, tmp_path: Path, verb: str) -> None:
    path = put(tmp_path, saved(net(), "basic"))
    ran = relayout(verb, path, tmp_path / "r.ort")
    assert ran.code == 2
    assert "onnxruntime.tools.convert_onnx_models_to_ort" in ran.err
    with pytest.raises(WriteError, match="ONNX Runtime's own converter"):
        package.optimize(path).save(tmp_path / "r.ort")
    assert not (tmp_path / "r.ort").exists()


def test_under_the_name_of_another_format(relayout: Run, tmp_path: Path) -> None:
    """The first bytes tell: an ending promises at most that it is no `.tflite`."""
    data = saved(net(), "basic")
    assert relayout("optimize", put(tmp_path, data, "m.onnx"), tmp_path / "r.onnx", "--verify").code == 0
    ran = relayout("optimize", put(tmp_path, data, "m.tflite"), tmp_path / "r.onnx")
    assert ran.code == 2
    assert "not a TensorFlow Lite model but an ORT-format model" in ran.err
    assert "give it the ending .ort" in ran.err


@pytest.mark.parametrize("level", ["basic", "full"])
@pytest.mark.parametrize("path", sorted(KERAS.glob("*.tflite"))[:6], ids=lambda path: path.stem)
def test_small_networks(tmp_path: Path, path: Path, level: str) -> None:
    proto = package.convert(path).proto
    source = put(tmp_path, saved(proto, level))
    package.optimize(source).save(tmp_path / "r.onnx")
    assert package.verify(source, tmp_path / "r.onnx").ok
