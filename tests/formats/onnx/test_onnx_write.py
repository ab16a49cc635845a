"""Writing ONNX: the same model, the same bytes, little memory, and all of it or nothing."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

import relayout
from relayout.errors import WriteError
from relayout.formats.onnx import atomic
from relayout.formats.onnx.checking import check
from relayout.formats.onnx.parts import to_proto
from relayout.formats.onnx.reading import read
from relayout.formats.onnx.wire import varint
from relayout.formats.onnx.writing import write


def model_of(*weights: TensorProto, body: str = "{ y = Relu(x) }", ir_version: int = 10) -> onnx.ModelProto:
    proto = parser.parse_model(
        f'<ir_version: {ir_version}, opset_import: ["" : 21, "f" : 1]> g (float[2,3] x) => (float[2,3] y) {body}'
    )
    proto.graph.initializer.extend(weights)
    return proto


def all_kinds() -> onnx.ModelProto:
    """One initializer of every element type, large and small, one a graph input, one without elements."""
    rng = np.random.default_rng(0)
    weights = []
    for name, kind in TensorProto.DataType.items():
        if name in ("UNDEFINED", "STRING") or name.startswith(("FLOAT6", "INT2", "UINT2")):
            continue
        dtype = ir.DataType(kind)
        for shape in ((3, 5), (70, 90)):
            array = rng.integers(0, 2, shape).astype(dtype.numpy())
            weights.append(ir.to_proto(ir.Tensor(array, dtype, name=f"{name}{shape[0]}")))
    weights.append(helper.make_tensor("strings", TensorProto.STRING, [2], [b"one", b"two"]))
    weights.append(numpy_helper.from_array(np.zeros((0, 4), np.float32), "nothing"))
    weights.append(numpy_helper.from_array(np.float32(3), "scalar"))
    weights.append(numpy_helper.from_array(np.ones(3, np.float32), "also_input"))
    model = model_of(*weights)
    model.graph.input.append(helper.make_tensor_value_info("also_input", 1, [3]))
    model.graph.initializer[3].metadata_props.add(key="k", value="v")
    model.graph.metadata_props.add(key="graph", value="note")
    return model


def text(proto: onnx.ModelProto) -> str:
    return onnx.printer.to_text(proto)


@pytest.mark.parametrize("external", [False, True])
def test_what_is_written_is_what_was_there(tmp_path: Path, external: bool) -> None:
    proto = all_kinds()
    path = tmp_path / "m.onnx"
    write(read(proto), path, external_data=external)
    assert (tmp_path / "m.onnx.data").exists() == external
    assert sorted(os.listdir(tmp_path)) == ["m.onnx"] + ["m.onnx.data"] * external
    onnx.checker.check_model(str(path))
    for again in (onnx.load(path), to_proto(read(path)), to_proto(read(proto))):
        for a, b in zip(proto.graph.initializer, again.graph.initializer, strict=True):
            assert (a.name, a.data_type, a.dims) == (b.name, b.data_type, b.dims)
            if a.data_type != TensorProto.STRING:
                assert ir.from_proto(a).tobytes() == b.raw_data
        assert [e.value for e in again.graph.initializer[3].metadata_props] == ["v"]
        del again.graph.initializer[:]
        rest = onnx.ModelProto()
        rest.CopyFrom(proto)
        del rest.graph.initializer[:]
        assert text(again) == text(rest)


def test_external_offsets_are_aligned(tmp_path: Path) -> None:
    big, mid = np.ones(300_000, np.float32), np.ones(300, np.float32)
    write(
        read(model_of(*(numpy_helper.from_array(a, f"w{i}") for i, a in enumerate((mid, big, mid, mid))))),
        tmp_path / "m",
        external_data=True,
    )
    tensors = onnx.load(tmp_path / "m", load_external_data=False).graph.initializer
    spans = [{e.key: e.value for e in t.external_data} for t in tensors]
    assert {span["location"] for span in spans} == {"m.data"}
    assert [int(span["offset"]) for span in spans] == [0, 1 << 16, 309 << 12, 310 << 12]
    onnx.load(tmp_path / "m")


def test_notes_on_initializers_are_kept(tmp_path: Path) -> None:
    model = read(model_of(*(numpy_helper.from_array(np.ones(3, np.float32), name) for name in "ws")))
    value = model.graph.initializers["w"]
    value.metadata_props["b"] = "2"
    value.metadata_props["a"] = "1"
    value.meta["quant_parameter_tensor_names"] = {"SCALE_TENSOR": "s"}
    write(model, tmp_path / "m")
    again = onnx.load(tmp_path / "m")
    assert [(e.key, e.value) for e in again.graph.value_info[0].metadata_props] == [("a", "1"), ("b", "2")]
    assert again.graph.quantization_annotation[0].tensor_name == "w"


def test_functions_and_opsets_are_kept_in_a_fixed_order() -> None:
    proto = model_of(body="{ y = f.g(x) }")
    proto.functions.append(parser.parse_function('<opset_import: ["" : 21], domain: "f"> g (a) => (b) { b = Relu(a) }'))
    model = read(proto)
    model.graph.opset_imports.clear()
    model.graph.opset_imports.update({"z": 1, "f": 1, "": 21})
    again = to_proto(model)
    assert [(o.domain, o.version) for o in again.opset_import] == [("", 21), ("f", 1), ("z", 1)]
    assert again.functions[0].name == "g"


def test_arrays_in_any_order_are_written_in_c_order(tmp_path: Path) -> None:
    base = np.random.default_rng(0).normal(size=(700, 30, 40)).astype(np.float32)
    for view in (base.T, base[::-1], base.transpose(1, 0, 2), base[:, ::2]):
        model = read(model_of())
        lazy = ir.LazyTensor(lambda view=view: ir.Tensor(view), ir.DataType.FLOAT, ir.Shape(view.shape), name="w")
        model.graph.register_initializer(
            ir.Value(name="w", const_value=lazy, shape=lazy.shape, type=ir.TensorType(lazy.dtype))
        )
        write(model, tmp_path / "m")
        np.testing.assert_array_equal(numpy_helper.to_array(onnx.load(tmp_path / "m").graph.initializer[0]), view)


def test_big_endian_machines_swap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "byteorder", "big")
    array = np.random.default_rng(0).normal(size=600_000).astype(np.float32)
    model = read(model_of(numpy_helper.from_array(array, "w")))
    model.graph.initializers["w"].const_value = ir.Tensor(array, name="w")
    assert to_proto(model).graph.initializer[0].raw_data == array.astype("<f4").tobytes()


@pytest.mark.parametrize("external", [False, True])
def test_output_may_be_the_input(tmp_path: Path, external: bool) -> None:
    path = tmp_path / "m.onnx"
    proto = model_of(
        *(
            numpy_helper.from_array(np.random.default_rng(i).normal(size=600_000).astype(np.float32), f"w{i}")
            for i in range(2)
        )
    )
    data = proto.graph.initializer[1].raw_data  # onnx.save takes it out of the proto
    onnx.save(proto, path, save_as_external_data=external, location="m.onnx.data")
    model = read(path)
    model.graph.initializers.pop("w0")
    before = path.read_bytes()
    with pytest.raises(WriteError, match=r"would be replaced by its own result.*--overwrite"):
        write(model, path, external_data=external)
    assert path.read_bytes() == before
    write(model, path, external_data=external, overwrite=True)
    (left,) = onnx.load(path).graph.initializer
    assert left.raw_data == data


def lying(shape: tuple[int, ...] = (9, 999), fail: BaseException | None = None) -> ir.Model:
    """A model whose second weight is not what it says."""
    model = read(model_of(numpy_helper.from_array(np.ones((9, 1000), np.float32), "fine")))

    def evaluate() -> ir.Tensor:
        if fail:
            raise fail
        return ir.Tensor(np.ones(shape, np.float32))

    lazy = ir.LazyTensor(evaluate, ir.DataType.FLOAT, ir.Shape((9, 1000)), name="w")
    model.graph.register_initializer(
        ir.Value(name="w", const_value=lazy, shape=lazy.shape, type=ir.TensorType(lazy.dtype))
    )
    return model


@pytest.mark.parametrize("external", [False, True])
@pytest.mark.parametrize("before", [None, b"old"])
def test_a_failure_leaves_everything_as_it_was(tmp_path: Path, external: bool, before: bytes | None) -> None:
    path = tmp_path / "m.onnx"
    if before:
        path.write_bytes(before)
    for model, error in (
        (lying(), WriteError),
        (lying((9, 1001)), WriteError),
        (lying(fail=RuntimeError("lost")), WriteError),
        (lying(fail=OSError(28, "No space left on device")), WriteError),
        (lying(fail=KeyboardInterrupt()), KeyboardInterrupt),
    ):
        with pytest.raises(error):
            write(model, path, external_data=external)
        assert os.listdir(tmp_path) == (["m.onnx"] if before else [])
        assert not before or path.read_bytes() == before
    with pytest.raises(WriteError, match="36000 bytes, and gave 35964"):
        to_proto(lying())


def test_a_failing_rename_takes_the_data_file_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    renames = []

    def replace(source: Path, target: Path) -> None:
        if renames:
            raise KeyboardInterrupt
        renames.append(target)
        source.rename(target)

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(KeyboardInterrupt):
        write(read(all_kinds()), tmp_path / "m.onnx", external_data=True)
    assert [path.name for path in renames] == ["m.onnx.data"]
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="which file a descriptor is of is asked of Linux")
@pytest.mark.parametrize("there", [(), ("m.onnx",), ("m.onnx.data",)])
def test_what_is_replaced_is_durable_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: tuple[str, ...]
) -> None:
    """Where a file is lost by it, all that is written is on the disk before the first rename; else nothing waits."""
    for name in there:
        (tmp_path / name).write_bytes(b"old")
    done: list[str] = []
    synced, renamed = os.fsync, os.replace

    def fsync(descriptor: int) -> None:
        done.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        synced(descriptor)

    def replace(source: Path, target: Path) -> None:
        done.append("renamed")
        renamed(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    with atomic.Replacement() as files:
        files.write(tmp_path / "m.onnx.data", [b"data"])
        files.write(tmp_path / "m.onnx", [b"model"])
    if not there:
        assert done == ["renamed", "renamed"]
        return
    assert [name.rpartition(".")[0].rpartition(".")[0] for name in done[:2]] == [".m.onnx.data", ".m.onnx"]
    assert done[2:] == ["renamed", "renamed", tmp_path.name]


def test_permissions_follow_the_umask(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        write(read(model_of()), tmp_path / "m.onnx")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "m.onnx").stat().st_mode) == 0o640


def test_places_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = read(model_of())
    with pytest.raises(WriteError, match="there is no directory"):
        write(model, tmp_path / "none" / "m.onnx")
    with pytest.raises(WriteError, match="it is a directory; give the name of a file"):
        write(model, tmp_path)
    with pytest.raises(WriteError, match="it is not the name of a file"):
        write(model, f"{tmp_path / 'none'}/")
    with pytest.raises(WriteError, match="not a regular file"):
        write(model, "/dev/null")
    assert not Path("/dev/null").is_file()
    monkeypatch.setattr(atomic, "DEVICES", os.path.realpath(tmp_path / "dev"))
    (tmp_path / "dev").mkdir()
    (tmp_path / "redirected").touch()
    (tmp_path / "dev" / "stdout").symlink_to(tmp_path / "redirected")
    (tmp_path / "dev" / "closed").symlink_to(tmp_path / "nothing")
    for name in ("stdout", "closed"):  # whoever may write there, as root may, would replace the system's link
        with pytest.raises(WriteError, match="it stands for a device"):
            write(model, tmp_path / "dev" / name)
        assert (tmp_path / "dev" / name).is_symlink()
    write(model, tmp_path / "m.onnx")
    (tmp_path / "f").write_bytes(b"")
    with pytest.raises(WriteError, match="cannot write"):
        write(model, tmp_path / "f" / "m.onnx")


def test_models_that_cannot_be_serialized(tmp_path: Path) -> None:
    model = read(model_of(numpy_helper.from_array(np.ones(3, np.float32), "w")))
    model.graph.initializers["w"].const_value = None
    with pytest.raises(WriteError, match="'w' has no data"):
        write(model, tmp_path / "m")
    model = read(model_of())
    model.graph[0].attributes["a"] = ir.Attr("a", ir.AttributeType.GRAPH, "text")
    with pytest.raises(WriteError, match="cannot be serialized"):
        write(model, tmp_path / "m")


def huge() -> ir.Model:
    """Three gigabytes that are nowhere."""
    model = read(model_of())

    def never() -> ir.Tensor:
        raise AssertionError("evaluated")

    lazy = ir.LazyTensor(never, ir.DataType.FLOAT, ir.Shape((3, 2**28)), name="w")
    model.graph.register_initializer(
        ir.Value(name="w", const_value=lazy, shape=lazy.shape, type=ir.TensorType(lazy.dtype))
    )
    return model


def test_two_gigabytes_are_the_limit(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match="above protobuf's 2 GiB"):
        write(huge(), tmp_path / "m", external_data=False)
    with pytest.raises(WriteError, match="above 2 GiB"):
        to_proto(huge())
    with pytest.raises(WriteError, match="evaluated"):  # by default it would have been written beside
        write(huge(), tmp_path / "m")
    check(huge())


def test_varints_are_protobufs() -> None:
    for value in (0, 1, 127, 128, 300, 2**31, 2**40 - 1):
        assert onnx.ModelProto(ir_version=value).SerializeToString() in (b"\x08" + varint(value), b"")


DETERMINISM = """
import sys, numpy as np
sys.path.insert(0, {tests!r})
from test_onnx_write import all_kinds
from relayout.formats.onnx.reading import read
from relayout.formats.onnx.writing import write
write(read(all_kinds()), {path!r})
"""


def test_equal_models_give_equal_bytes(tmp_path: Path) -> None:
    written = []
    for seed in ("1", "2"):
        path = str(tmp_path / seed)
        code = DETERMINISM.format(tests=str(Path(__file__).parent), path=path)
        subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONHASHSEED": seed})
        written.append(Path(path).read_bytes())
    assert written[0] == written[1]


MEMORY = """
import resource, sys
import onnx_ir as ir, numpy as np
from relayout.formats.onnx.checking import check
from relayout.formats.onnx.reading import read
from relayout.formats.onnx.writing import write
base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
model = read({source!r})
check(model)
old = model.graph.initializers["w3"].const_value
model.graph.initializers["w3"].const_value = ir.LazyTensor(
    lambda: ir.Tensor(np.ascontiguousarray(old.numpy().T)), old.dtype, ir.Shape(old.shape[::-1]), name="w3")
write(model, {target!r}, external_data={external})
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base) // 1024)
print([m for m in ("onnxruntime", "ai_edge_litert", "rich", "scipy", "tensorflow") if m in sys.modules])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in kilobytes on Linux")
@pytest.mark.parametrize("external", [False, True])
def test_memory_follows_the_largest_weight(tmp_path: Path, external: bool) -> None:
    """100 MB in twelve weights: 8 MB each. Reading, checking and writing take a few of them, not all."""
    arrays = [np.random.default_rng(i).integers(0, 99, (1024, 2048)).astype(np.float32) for i in range(12)]
    proto = model_of(*(numpy_helper.from_array(array, f"w{i}") for i, array in enumerate(arrays)))
    onnx.save(proto, tmp_path / "in.onnx", save_as_external_data=external, location="in.data")
    code = MEMORY.format(source=str(tmp_path / "in.onnx"), target=str(tmp_path / "out.onnx"), external=external)
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    grown, imported = result.stdout.splitlines()
    assert int(grown) < 50, f"{grown} MB"
    assert imported == "[]"
    again = onnx.load(tmp_path / "out.onnx").graph.initializer
    np.testing.assert_array_equal(numpy_helper.to_array(again[3]), arrays[3].T)
    np.testing.assert_array_equal(numpy_helper.to_array(again[11]), arrays[11])


# The source is not replaced, and links are not followed.


def names_of(path: Path) -> list[Path]:
    """Other names of a file: a symbolic link, a hard link, a link to its directory, a detour."""
    folder = path.parent
    (folder / "symbolic.onnx").symlink_to(path.name)
    (folder / "hard.onnx").hardlink_to(path)
    (folder / "linked").symlink_to(folder)
    return [folder / "symbolic.onnx", folder / "hard.onnx", folder / "linked" / path.name, folder / "." / path.name]


@pytest.mark.parametrize("external", [False, True])
def test_a_source_is_known_under_every_name(tmp_path: Path, external: bool) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(all_kinds(), path, save_as_external_data=external, location="weights", size_threshold=0)
    model = read(path)
    places = names_of(path)
    if external:  # its own data files are sources, too
        (tmp_path / "other.onnx.data").symlink_to("weights")
        places += [tmp_path / "weights", tmp_path / "other.onnx"]
    before = {name: (tmp_path / name).read_bytes() for name in ("m.onnx", "weights") if (tmp_path / name).exists()}
    for place in (path, *places):
        with pytest.raises(WriteError, match="would be replaced by its own result"):
            write(model, place, external_data=external)
    assert {name: (tmp_path / name).read_bytes() for name in before} == before
    write(model, tmp_path / "new.onnx", external_data=external)
    assert not list(tmp_path.glob(".*"))


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    """Somebody who can put a link where a result goes must not choose what is overwritten."""
    (tmp_path / "victim").write_bytes(b"precious")
    (tmp_path / "victim").chmod(0o600)
    for name in ("m.onnx", "m.onnx.data"):
        (tmp_path / name).symlink_to("victim")
    (tmp_path / "dangling.onnx").symlink_to("nowhere")
    write(read(all_kinds()), tmp_path / "m.onnx", external_data=True)
    write(read(all_kinds()), tmp_path / "dangling.onnx")
    assert (tmp_path / "victim").read_bytes() == b"precious"
    assert not (tmp_path / "nowhere").exists()
    for name in ("m.onnx", "m.onnx.data", "dangling.onnx"):
        assert (tmp_path / name).is_file()
        assert not (tmp_path / name).is_symlink()


def test_hard_links_to_the_target_keep_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"old")
    (tmp_path / "second").hardlink_to(tmp_path / "m.onnx")
    write(read(model_of()), tmp_path / "m.onnx")
    assert (tmp_path / "second").read_bytes() == b"old"


@pytest.mark.parametrize("mode", [0o600, 0o664, 0o755, 0o4755])
def test_permissions_of_what_is_replaced_are_kept(tmp_path: Path, mode: int) -> None:
    old = os.umask(0o077)
    try:
        for name in ("m.onnx", "m.onnx.data"):
            (tmp_path / name).write_bytes(b"old")
            (tmp_path / name).chmod(mode)
        write(read(all_kinds()), tmp_path / "m.onnx", external_data=True)
    finally:
        os.umask(old)
    for name in ("m.onnx", "m.onnx.data"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == mode & 0o777


def test_what_is_write_protected_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "m.onnx").write_bytes(b"old")
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everything
    with pytest.raises(WriteError, match="write-protected"):
        write(read(model_of()), tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx").read_bytes() == b"old"


def test_a_link_put_there_while_writing(tmp_path: Path) -> None:
    """Between the check and the rename: the link goes, and what it points at stays."""
    (tmp_path / "victim").write_bytes(b"precious")
    model = read(model_of())

    def evaluate() -> ir.Tensor:
        (tmp_path / "m.onnx").symlink_to("victim")
        return ir.Tensor(np.ones((9, 1000), np.float32))

    lazy = ir.LazyTensor(evaluate, ir.DataType.FLOAT, ir.Shape((9, 1000)), name="w")
    model.graph.register_initializer(
        ir.Value(name="w", const_value=lazy, shape=lazy.shape, type=ir.TensorType(lazy.dtype))
    )
    write(model, tmp_path / "m.onnx")
    assert (tmp_path / "victim").read_bytes() == b"precious"
    assert not (tmp_path / "m.onnx").is_symlink()


def test_strings_that_are_made_when_they_are_written(tmp_path: Path) -> None:
    words = np.array([["a", "bc"], ["", "d"], ["ef", "g"]], object)
    raw = np.vectorize(str.encode, otypes=[object])(words)
    turned = ir.Tensor(raw.T.copy(), dtype=ir.DataType.STRING)
    relaid = ir.LazyTensor(lambda: turned, ir.DataType.STRING, ir.Shape((2, 3)))
    found = read(model_of(helper.make_tensor("s", TensorProto.STRING, [3, 2], raw.reshape(-1))))
    found.graph.initializers["s"].const_value = relaid
    write(found, tmp_path / "m.onnx", checked=False)
    for proto in (to_proto(found), onnx.load(tmp_path / "m.onnx")):
        assert (numpy_helper.to_array(proto.graph.initializer[0]) == words.T).all()


def test_calls_have_all_outputs_of_their_functions() -> None:
    """onnx-ir leaves out the last ones that nobody reads, which ONNX Runtime and shape inference refuse."""
    proto = parser.parse_model("""<ir_version: 10, opset_import: ["": 21, "f": 1]>
        g (float[2,3] x, bool c) => (float[2,3] y, float[2,3] z) {
            y, unread = f.Two(x)
            z = If(c)<then_branch = t () => (float[2,3] a) { a, unread_too = f.Outer(x) },
                      else_branch = e () => (float[2,3] b) { b = Relu(x) }>
        }
        <opset_import: ["": 21], domain: "f"> Two (a) => (b, c) { b = Relu(a)  c = Shape(a) }
        <opset_import: ["": 21, "f": 1], domain: "f"> Outer (a) => (b, c) { b, d = f.Two(a)  c = Neg(a) }""")
    branch = next(a.g for a in proto.graph.node[1].attribute if a.name == "then_branch")
    for node in (proto.graph.node[0], branch.node[0], proto.functions[1].node[0]):
        node.output[1] = ""
    found = to_proto(read(proto))
    assert list(found.graph.node[0].output) == ["y", ""]
    onnx.checker.check_model(found, full_check=True)


def test_a_shape_without_a_type_is_not_written_and_nothing_warns(caplog: pytest.LogCaptureFixture) -> None:
    """A Transpose tells the rank of what it reads, also where nobody knows its type."""
    proto = parser.parse_model("""<ir_version: 10, opset_import: ["": 21, "own": 1]>
        g (float[2,3] x) => (float[3,2] y) {
        a = own.Make(x)  b = Transpose<perm=[1,0]>(a)  y = own.Read(b) }""")
    result = relayout.optimize(proto)
    assert result.proto.graph.node[1].op_type == "Transpose"
    assert not caplog.records
