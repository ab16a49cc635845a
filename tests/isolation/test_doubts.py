"""ONNX survives all that is not doubted; what exporters write is not doubted."""

from __future__ import annotations

import mmap
import os
import random
import resource
import sys
from pathlib import Path

import onnx
import pytest
from onnx import parser
from questions import models, schemas

from relayout.isolation.calls import doubt_of_model, doubt_of_node

ROOT = Path(__file__).parents[2]
ROOM = 4 << 30
"""Bytes of address space: what takes more ends the child process, too."""


def answered(seed: int, count: int) -> tuple[int, int, str]:
    """How many questions there are, how many are not doubted, and the one that ends a process to which they are put."""
    shared = mmap.mmap(-1, 1 << 16)
    child = os.fork()
    if not child:
        resource.setrlimit(resource.RLIMIT_AS, (ROOM, ROOM))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        _ask(seed, count, shared)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    asked, sure, length = (int.from_bytes(shared[place : place + 8], "little") for place in (0, 8, 16))
    last = shared[24 : 24 + length]
    return asked, sure, str(onnx.ModelProto.FromString(last)) if status else ""


def _ask(seed: int, count: int, shared: mmap.mmap) -> None:
    asked = sure = 0
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what C++ says of a vector
    for schema in schemas():
        for model in models(schema, count, random.Random(f"{seed} {schema.name} {schema.since_version}")):
            asked += 1
            content = b"" if doubt_of_model(model) else model.SerializeToString()
            sure += bool(content)
            shared[:24] = b"".join(number.to_bytes(8, "little") for number in (asked, sure, len(content)))
            shared[24 : 24 + len(content)] = content
            for strict, propagates in ((True, False), (False, True)) if content else ():
                try:
                    onnx.shape_inference.infer_shapes(content, strict_mode=strict, data_prop=propagates)
                    onnx.checker.check_model(content, full_check=True)
                except Exception:  # an answer
                    pass


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
@pytest.mark.parametrize("count", [15, pytest.param(1000, marks=pytest.mark.slow)])
def test_what_is_not_doubted_is_survived(count: int) -> None:
    asked, sure, last = answered(7, count)
    assert last == ""
    assert asked > 250 * count
    assert asked / 8 < sure < asked  # most questions are odd in one way or another


@pytest.mark.parametrize(
    ("node", "doubt"),
    [
        ("y = GatherND<batch_dims=-2>(x, i)", "GatherND 'y': batch_dims = -2"),
        ("y, m, s = LayerNormalization<axis=2147483648>(x, x)", "LayerNormalization 'y': axis = 2147483648"),
        ("y, z = Split<num_outputs=1>(x)", "Split 'y': it has another number of outputs than num_outputs"),
        ("y = DepthToSpace<blocksize=0>(x)", "DepthToSpace 'y': blocksize = 0"),
        ("y = Concat(x, x)", "Concat 'y': it has no attribute axis"),
        ("y = Relu<axis=1>(x)", "Relu 'y': its attribute axis"),
        ("y = Add(x)", "Add 'y': 1 inputs and 1 outputs"),
        ("y = Relu(z) z = Relu(x)", "Relu 'y': it reads what no node before it gives"),
        (
            "y = If<then_branch=g () => () {}, else_branch=g () => (float e) { e = Relu(x) }>(b)",
            "If 'y': it has a body",
        ),
        ("y = f.f(x)", "function 'f'"),
        ("y = Relu(x)", ""),
    ],
)
def test_what_is_doubted_is_named(node: str, doubt: str) -> None:
    function = '<opset_import: ["": 18], domain: "f"> f (a) => (b) { b = GatherND<batch_dims=-2>(a, a) }'
    text = f"g (float[2,3,4,5] x, int64[2,1] i, bool b) => (float[?] y) {{ {node} }}"
    model = parser.parse_model(
        '<ir_version: 10, opset_import: ["": 18, "f": 1]>' + text + (function if "f.f" in node else "")
    )
    assert doubt_of_model(model).startswith(doubt)
    assert bool(doubt_of_model(model)) == bool(doubt)


@pytest.mark.parametrize(
    ("shape", "doubted"), [("[2,3]", False), ("[n]", False), ("[0]", False), ("[4294967296]", True), ("", False)]
)
def test_extents_are_doubted_too(shape: str, doubted: bool) -> None:
    model = parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 18]> g (float{shape} x) => (float y) {{ y = Relu(x) }}'
    )
    assert bool(doubt_of_model(model)) == doubted


def test_what_a_node_reads_is_doubted() -> None:
    node, schema = onnx.helper.make_node("Relu", ["x"], ["y"], name="r"), onnx.defs.get_schema("Relu", 18)
    types = [onnx.helper.make_tensor_type_proto(1, [2, extent]) for extent in (3, 1 << 40)]
    assert doubt_of_node(node, schema, types[:1]) == ""
    assert doubt_of_node(node, schema, types) == "Relu 'r': what it reads"


def test_what_exporters_write_is_not_doubted() -> None:
    light = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    paths = [*light.glob("*.onnx"), *(ROOT / "models").glob("*.onnx")]
    assert len(paths) >= 9
    assert {path.name: doubt_of_model(onnx.load(path)) for path in paths} == {path.name: "" for path in paths}


FAR = "int64[1] {} = {{9223372036854775807}}"


@pytest.mark.parametrize(
    ("constants", "body"),
    [
        (FAR.format("t"), "y = Slice(x, s, e, a, t)"),
        ("", "t = Constant<value = int64[1] {-9223372036854775808}>()  y = Slice(x, s, e, a, t)"),
    ],
)
def test_steps_that_overflow_are_doubted(constants: str, body: str) -> None:
    """ONNX ends the process over them, where it follows the values of shapes."""
    listed = ", ".join(filter(None, (constants, "int64[1] e = {9}", "int64[1] a = {0}")))
    inputs = "float[2] x, int64[1] s, bool c"
    text = f'<ir_version: 8, opset_import: ["": 13]> g ({inputs}) => (float[n] y) <{listed}> {{ {body} }}'
    assert doubt_of_model(parser.parse_model(text)) == "the steps of a Slice"
    assert not doubt_of_model(
        parser.parse_model(text.replace("9223372036854775807", "7").replace("-9223372036854775808", "-2"))
    )
