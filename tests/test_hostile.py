"""Files and options that were made to break something, through the command line: 2, and nothing written."""

from __future__ import annotations

import json
import os
import time
import tracemalloc
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

import relayout as package
from infer.mixed import mixed_model
from relayout.errors import MOST_CHARACTERS
from relayout.internal_errors import InternalError

HEADER = '<ir_version: 10, opset_import: ["": 21]>\n'
WON = """g (float[2,3,4,5] x) => (float[2,3,4,5] y) {
    a = Transpose<perm=[0,2,3,1]>(x)  b = Relu(a)  y = Transpose<perm=[0,3,1,2]>(b) }"""
"""Something is to be won, so that a result is made and checked."""

Run = Any


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "m.onnx"
    onnx.save(parser.parse_model(HEADER + WON), path)
    return path


def refused(relayout: Run, folder: Path, *arguments: object) -> str:
    """The message of a run that is refused, changes nothing in the folder, and takes no time to speak of."""
    before = {path: path.lstat().st_mtime_ns for path in folder.rglob("*")}
    began = time.process_time()
    ran = relayout(*arguments)
    assert time.process_time() - began < 20
    assert ran.code == 2, ran.out[-500:]
    assert {path: path.lstat().st_mtime_ns for path in folder.rglob("*")} == before
    assert len(ran.err) < MOST_CHARACTERS + 200
    return str(ran.err)


def changed(path: Path, change: Callable[[onnx.ModelProto], object]) -> Path:
    proto = onnx.load(path)
    change(proto)
    path.write_bytes(proto.SerializeToString())
    return path


def rename(proto: onnx.ModelProto) -> None:
    proto.graph.node[0].output[0] = proto.graph.node[1].input[0] = "n" * 10_000_000


def divide(proto: onnx.ModelProto) -> None:
    """A convolution with strides of 0 beside what is won."""
    proto.graph.initializer.append(numpy_helper.from_array(np.ones((3, 3, 1, 1), np.float32), "w"))
    proto.graph.node.append(helper.make_node("Conv", ["x", "w"], ["z"], strides=[0, 0]))
    proto.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, (None,) * 4))


def strange_function(proto: onnx.ModelProto) -> None:
    """One whose operators are of a version that ONNX cannot count."""
    function = proto.functions.add(name="f", domain="mine", output=["b"])
    function.node.append(helper.make_node("Neg", ["a"], ["b"]))
    function.input.append("a")
    function.opset_import.append(onnx.OperatorSetIdProto(version=-(1 << 63)))


def nothing_given(proto: onnx.ModelProto) -> None:
    """A call of a function without outputs."""
    function = proto.functions.add(name="f", domain="mine")
    function.input.append("a")
    function.node.append(helper.make_node("Neg", ["a"], ["b"]))
    function.opset_import.extend(proto.opset_import)
    proto.opset_import.append(helper.make_opsetid("mine", 1))
    proto.graph.node[1].CopyFrom(
        helper.make_node("f", list(proto.graph.node[1].input), list(proto.graph.node[1].output))
    )
    proto.graph.node[1].domain = "mine"


def contract(proto: onnx.ModelProto) -> None:
    """An equation for which ONNX's shape inference does not end."""
    proto.graph.node[1].CopyFrom(helper.make_node("Einsum", ["a"], ["b"], equation="...a...->a"))


DAMAGE: dict[str, tuple[Callable[[onnx.ModelProto], object], str]] = {
    "an endless name": (rename, "a name has 10000000 characters"),
    "an endless operator": (lambda m: setattr(m.graph.node[1], "op_type", "R" * 10_000_000), "a name has"),
    "an endless symbol": (
        lambda m: setattr(m.graph.input[0].type.tensor_type.shape.dim[0], "dim_param", "s" * 10_000_000),
        "a name has",
    ),
    "version 0": (lambda m: setattr(m.opset_import[0], "version", 0), "no version 0 of the operators of 'ai.onnx'"),
    "version 2^31": (lambda m: setattr(m.opset_import[0], "version", 1 << 31), "no version 2147483648"),
    "version -2^63 in a function": (strange_function, "no version -9223372036854775808"),
    "a function that gives nothing": (nothing_given, "1 outputs are asked of a function that has 0"),
    "version -3": (lambda m: setattr(m.opset_import[0], "version", -3), "no version -3"),
    "two ellipses": (contract, "'...a...->a' is no equation"),
    "strides of 0": (divide, "must be at least 1"),
    "another element type": (
        lambda m: setattr(m.graph.input[0].type.tensor_type, "elem_type", 999),
        "",
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_models(relayout: Run, model: Path, damage: str) -> None:
    change, message = DAMAGE[damage]
    changed(model, change)
    assert message in refused(relayout, model.parent, "optimize", model, model.with_name("r.onnx"))


EXTERNAL = {
    "a key twice": ([("location", "data"), ("location", "../data")], "one key twice"),
    "an offset beyond 64 bits": ([("location", "data"), ("offset", str(2**64))], "external data with the offset"),
    "an offset beyond 63 bits": ([("location", "data"), ("offset", str(2**63))], "external data with the offset"),
    "a length below 0": ([("location", "data"), ("length", "-20")], "external data with the length '-20'"),
    "an endless number": ([("location", "data"), ("offset", "0" * 1_000_000)], "external data with the offset"),
    "an endless location": ([("location", "a" * 1_000_000)], ""),
    "no location": ([("offset", "0")], ""),
}


@pytest.mark.parametrize("case", EXTERNAL)
def test_external_data(relayout: Run, model: Path, case: str) -> None:
    entries, message = EXTERNAL[case]
    (model.parent / "data").write_bytes(bytes(20))

    def external(proto: onnx.ModelProto) -> None:
        tensor = proto.graph.initializer.add(name="w", data_type=TensorProto.FLOAT, dims=[5])
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in entries:
            tensor.external_data.add(key=key, value=value)

    changed(model, external)
    assert message in refused(relayout, model.parent, "optimize", model, model.with_name("r.onnx"))


def test_keys_of_external_data_that_nobody_knows_are_passed_over(model: Path) -> None:
    """ONNX Runtime writes keys of its own. None of them is an attribute of anything, nor worth a warning."""
    (model.parent / "data").write_bytes(np.arange(5, dtype=np.float32).tobytes())
    proto = onnx.load(model)
    proto.graph.node[1].CopyFrom(helper.make_node("Mul", ["a", "w"], ["b"]))
    tensor = proto.graph.initializer.add(name="w", data_type=TensorProto.FLOAT, dims=[3])
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("prepacked_0", "0"), ("location", "data"), ("__class__", "x"), ("location_", "/etc")):
        tensor.external_data.add(key=key, value=value)
    model.write_bytes(proto.SerializeToString())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (weights,) = package.optimize(model).proto.graph.initializer
    assert numpy_helper.to_array(weights).ravel().tolist() == [0.0, 1.0, 2.0]


def test_extents_below_0_are_open(model: Path) -> None:
    def open_batch(proto: onnx.ModelProto) -> None:
        for value in (*proto.graph.input, *proto.graph.output):
            value.type.tensor_type.shape.dim[0].dim_value = -1

    report = package.optimize(changed(model, open_batch)).report
    assert (report.transposes, report.bytes, report.source_transposes) == (0, 0, 2)
    assert report.source_bytes == 2 * 3 * 4 * 5 * 4  # an open batch counts as 1


def test_functions_that_call_each_other_twice(relayout: Run, tmp_path: Path) -> None:
    """2^16 nodes in two kilobytes: what spells out to so many times the file stays a call."""
    text = '<ir_version: 10, opset_import: ["": 21, "l": 1]>\n' + WON.replace("Relu", "l.f0")
    for level in range(16):
        inner = f"l.f{level + 1}"
        text += f' <opset_import: ["": 21, "l": 1], domain: "l"> f{level}(x) => (y) {{ t = {inner}(x) y = {inner}(t) }}'
    proto = parser.parse_model(text + ' <opset_import: ["": 21], domain: "l"> f16(x) => (y) { y = Neg(x) }')
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    began = time.process_time()
    ran = relayout("optimize", tmp_path / "m.onnx", tmp_path / "r.onnx", "--json")
    assert time.process_time() - began < 10
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["operators"]["l:f0"] == 1


@pytest.mark.parametrize("key", ["relayout.holds", "relayout.cut", "relayout.layout", "relayout.tensor"])
def test_metadata_nested_without_end(relayout: Run, model: Path, key: str) -> None:
    def note(proto: onnx.ModelProto) -> None:
        value = proto.graph.value_info.add(name="a")
        value.type.CopyFrom(helper.make_tensor_type_proto(TensorProto.FLOAT, (2, 4, 5, 3)))
        for place in (proto, proto.graph, proto.graph.node[0], value):
            place.metadata_props.add(key=key, value="[" * 100_000)

    changed(model, note)
    for arguments in (("optimize", model, model.with_name("r.onnx")), ("verify", model, model), ("explain", model)):
        ran = relayout(*arguments)
        assert ran.code in (0, 2)
        assert "Traceback" not in ran.err


WISHES = (
    "[" * 100_000,
    "{" * 10,
    '{"operators":' + "[" * 5000 + "]" * 5000 + "}",
    "[1]",
    "null",
    "7",
    '{"operators": 5}',
    '{"operators": {"Conv": 5}}',
    '{"operators": {"Conv": ["NHWC", null]}}',
    '{"operators": {"Conv": [1e999]}}',
    '{"operators": {"Conv": ["' + "N" * 100_000 + '"]}}',
    '{"to": 5}',
    '{"target": ["x"]}',
    '{"nodes": []}',
    '{"' + "x" * 100_000 + '": 1}',
    "\x00",
    "",
)


@pytest.mark.parametrize("number", range(len(WISHES)))
@pytest.mark.parametrize("suffix", [".json", ".toml"])
def test_wishes(relayout: Run, model: Path, number: int, suffix: str) -> None:
    if suffix == ".toml" and not WISHES[number]:
        pytest.skip("a TOML file without anything is one")
    path = model.with_name(f"wishes{suffix}")
    path.write_text(WISHES[number])
    refused(relayout, model.parent, "convert", model, model.with_name("r.onnx"), "--desired-layouts", path)


PLANS: dict[str, Any] = {
    "dims that are text": {"dims": "NHWC"},
    "dims that are a list": {"dims": ["ab"]},
    "no dims": {"dims": None},
    "layouts that are a number": {"layouts": 7},
    "layouts without a pair": {"layouts": {"x": "N"}},
    "parts that are numbers": {"read": {"inputs": 5}},
    "wishes that are a list": {"wishes": [1]},
    "a wish that nobody has": {"wishes": {"to": 5}},
}


@pytest.mark.parametrize("change", PLANS)
def test_plans(relayout: Run, model: Path, change: str) -> None:
    plan = package.optimize(model).plan
    path = model.with_name("plan.json")
    path.write_text(json.dumps({**plan, "options": {**plan["options"], **PLANS[change]}}))
    assert "Traceback" not in refused(relayout, model.parent, "check", path, model)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes with names are POSIX's")
def test_a_pipe_is_waited_for_nowhere(relayout: Run, model: Path) -> None:
    pipe, target = model.with_name("pipe"), model.with_name("r.onnx")
    os.mkfifo(pipe)
    for arguments in (
        ("optimize", pipe, target),
        ("optimize", model, pipe),
        ("optimize", model, target, "--plan", pipe),
        ("convert", model, target, "--desired-layouts", pipe),
        ("convert", model, target, "--target", "litert", "--parts", pipe),
        ("info", pipe),
        ("explain", pipe),
        ("diff", model, pipe),
        ("reduce", pipe, target),
        ("check", pipe, model),
        ("verify", pipe, model),
        ("verify", model, pipe),
        ("verify", model, model, "--input", f"x={pipe}"),
    ):
        refused(relayout, model.parent, *arguments)


@pytest.mark.parametrize("target", ["", ".", "/", "..", "/dev/full", "/proc/self/mem", "folder", "a" * 300 + ".onnx"])
def test_places(relayout: Run, model: Path, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (model.parent / "folder").mkdir()
    monkeypatch.chdir(model.parent)
    refused(relayout, model.parent, "optimize", model, target)


ARRAYS = {
    "larger than memory": b"\x93NUMPY\x01\x00\x76\x00"
    + b"{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776,), }".ljust(118),
    "objects": b"\x93NUMPY\x01\x00\x76\x00"
    + b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }".ljust(118)
    + b"cos\nsystem\n",
    "half an archive": b"PK\x03\x04" + bytes(100),
    "nothing": b"",
}


@pytest.mark.parametrize("case", ARRAYS)
def test_arrays(relayout: Run, model: Path, case: str) -> None:
    (model.parent / "x.npy").write_bytes(ARRAYS[case])
    refused(relayout, model.parent, "verify", model, model, "--input", f"x={model.parent / 'x.npy'}")


@pytest.mark.parametrize(
    "options",
    [
        ("--dim", "N=²"),
        ("--dim", "N=" + "9" * 5000),
        ("--dim", "N=-1"),
        ("--to", "N" * 100_000),
        ("--to", "NCHW0c"),
        ("--target", "../../etc/passwd"),
        ("--layout", "x=" + "N" * 100_000 + ":NCHW"),
        ("--layout", "x=a a a a:a a a a"),
        ("--outputs", "a" * 100_000),
        ("--opset", "1" * 5000),
        ("--verify", "--seed", "-1"),
        ("--time-limit", "x" * 100_000),
    ],
    ids=lambda options: " ".join(options)[:20],
)
def test_options(relayout: Run, model: Path, options: tuple[str, ...]) -> None:
    refused(relayout, model.parent, "convert", model, model.with_name("r.onnx"), *options)


@pytest.mark.parametrize("seed", [0, 2, 4, 5, 7, 8, 9, 10])
@pytest.mark.sampled(every=4)
def test_a_node_without_some_of_its_operands_is_one_error(seed: int) -> None:
    """Views and quantization look for what stands around them: no two of them may count on operands."""
    source = mixed_model(seed, 8).model
    refusals = 0
    for place, node in enumerate(source.graph.node):
        for kept in range(len(node.input)):
            damaged = onnx.ModelProto()
            damaged.CopyFrom(source)
            del damaged.graph.node[place].input[kept:]
            for options in ({}, {"target": "onnxruntime-cpu"}, {"target": "tensorrt"}, {"format": "tflite"}):
                try:
                    package.convert(damaged, **options)
                except package.RelayoutError:
                    refusals += 1
    assert refusals


@pytest.mark.parametrize(
    ("node", "said"),
    [
        ("y = LRN(x)", "Required attribute 'size' is missing"),
        ("y = AveragePool(x)", "Required attribute 'kernel_shape' is missing"),
        ("y = Loop(, , x)", "Required attribute 'body' is missing"),
        ("y = Min(, )", "expected to have type"),
        ("y = ConvTranspose<group=-3>(x, x)", "group"),
    ],
)
def test_a_fault_over_what_is_no_valid_onnx_is_the_files(node: str, said: str) -> None:
    """Only then ONNX's checker is asked: a fault of relayout's own stays one."""
    model = parser.parse_model(f"{HEADER}g (float[2,3,4,5] x) => (float[2,3,4,5] y) {{ {node} }}")
    with pytest.raises(package.RelayoutError) as error:
        package.convert(model, format="tflite")
    assert not isinstance(error.value, InternalError)
    assert said in str(error.value)


def test_a_fault_over_valid_onnx_is_relayouts_own(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relayout.pipeline.stages.planned", None)
    for source in (model, onnx.load(model)):
        with pytest.raises(InternalError, match="TypeError: 'NoneType' object is not callable"):
            package.optimize(source)


def test_a_text_that_is_no_utf8_is_an_error(model: Path) -> None:
    proto = onnx.load(model)
    proto.graph.node[1].CopyFrom(helper.make_node("Pad", ["a"], ["b"], mode=b"\xff", pads=[0] * 8))
    with pytest.raises(package.ReadError, match=r"an attribute is not UTF-8 text at .*Pad 'b', mode"):
        package.convert(proto)


SHORT = {
    "Expand": ("a = Expand(one, large)  b = ReduceMax(a)  y = Add(x, b)", [20000, 90000]),
    "Einsum": ('a = Einsum<equation="a,b,c->abc">(k, k, k)  b = ReduceMax(a)  y = Add(x, b)', [1]),
    "MatMul": ("r = Unsqueeze(k, zero)  c = Transpose(r)  a = MatMul(c, r)  b = ReduceMax(a)  y = Add(x, b)", [1]),
    "ConvTranspose": ("a = ConvTranspose<strides=[20000,20000]>(i, i)  b = ReduceMax(a)  y = Add(x, b)", [1]),
    "EyeLike": ("e = ConstantOfShape(large)  a = EyeLike(e)  b = ReduceMax(a)  y = Add(x, b)", [40000, 40000]),
    "Trilu": ("e = Expand(x, large)  a = Trilu(e)  b = ReduceMax(a)  y = Add(x, b)", [30000, 30000]),
    "AveragePool": (
        "e = Expand(x, large)  a = AveragePool<kernel_shape=[3,3],pads=[1,1,0,0]>(e)  b = ReduceMax(a)  y = Add(x, b)",
        [1, 1, 30000, 30000],
    ),
    "Col2Im": (
        "e = Expand(x, large)  a = Col2Im(e, size, two)  b = ReduceMax(a)  y = Add(x, b)",
        [1, 4, 900000000],
    ),
    "Pad": ("a = Pad(x, far)  b = ReduceMax(a)  y = Add(x, b)", [1]),
    "kernel": ("y = AveragePool<kernel_shape=[5000000000,2],pads=[2500000000,0,2500000000,0]>(i)", [1]),
}
"""Operators of a few bytes that ask for much -> how they are called, and extents."""


@pytest.mark.parametrize("name", SHORT)
def test_a_short_file_makes_no_large_constants(name: str) -> None:
    nodes, large = SHORT[name]
    constants = {
        "one": np.ones(1, np.float32), "k": np.ones(2000, np.float32), "i": np.ones((1, 1, 2, 2), np.float32),
        "zero": np.array([0]), "large": np.array(large), "size": np.array([30001, 30001]), "two": np.array([2, 2]),
        "far": np.array([0, 2**40]),
    }  # fmt: skip
    source = parser.parse_model(f"{HEADER}g (float[1] x) => (y) {{ {nodes} }}")
    source.graph.initializer.extend(numpy_helper.from_array(array, each) for each, array in constants.items())
    errors: list[package.RelayoutError] = []
    tracemalloc.start()
    try:
        package.convert(source, format="tflite")
    except package.RelayoutError as error:
        errors.append(error)
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 150 << 20
    assert not any(isinstance(error, InternalError) for error in errors), errors
