"""The writer: what it refuses and streams, and that its results appear whole or not at all."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from tflite_running import run_interpreter
from tflite_written import BEHIND, INSIDE, Pieces, added, sum_of

from relayout.errors import ReadError, WriteError
from relayout.formats.flatbuffer import Schema, Table, read_root, rows
from relayout.formats.flatbuffer_writer import Flatbuffer, table
from relayout.formats.onnx.atomic import identity
from relayout.formats.stored import CHUNK, Content
from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.loading import load
from relayout.formats.tflite.container.model import (
    Model,
    Operator,
    Quantization,
    Subgraph,
    Tensor,
    TensorContent,
    array_content,
    packed_texts,
    texts,
)
from relayout.formats.tflite.container.schema import SCHEMA
from relayout.formats.tflite.container.writer import (
    difference,
    file_chunks,
    first_difference,
    options,
    save,
    to_bytes,
    write,
)

# What cannot be written.


def test_options_are_held_to_the_schema() -> None:
    made = options("Conv2DOptions", padding=1, stride_w=2)
    assert (made.padding, made.stride_w, made.stride_h, made.dilation_w_factor) == (1, 2, 0, 1)
    with pytest.raises(ValueError, match="Conv2DOptions has no field 'stride'; it has padding, stride_w"):
        options("Conv2DOptions", stride=2)
    with pytest.raises(ValueError, match="there is no table 'ConvOptions'"):
        options("ConvOptions")
    with pytest.raises(ValueError, match="Buffer is no member of BuiltinOptions"):
        table(SCHEMA, "Operator", builtin_options=table(SCHEMA, "Buffer"))


ANY = rows("byte:int8 number:float32 text:string longs:[int64] flags:[bool] table:Any tables:[Any]")
ANY_SCHEMA = Schema({"Any": ANY, "Other": ()}, {}, {})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"byte": 128}, "byte cannot be 128"),
        ({"byte": "1"}, "byte cannot be '1'"),
        ({"number": 1e39}, r"number cannot be 1e\+39"),
        ({"text": "\ud800"}, "text cannot be written as UTF-8"),
        ({"longs": [1 << 63]}, "longs does not fit int64"),
        ({"longs": [0.5]}, "longs does not fit int64"),
        ({"longs": [float("nan")]}, "longs does not fit int64"),
        ({"table": Table("Other", 0, {})}, "table is no Any: Other"),
        ({"tables": (Table("Other", 0, {}),)}, r"tables\[0\] is no Any: Other"),
        ({"tables": (None,)}, r"tables\[0\] is no Any: None"),
        ({"text": b"bytes"}, "text cannot be written as UTF-8: b'bytes'"),
        ({"tables": (Table("Any", 0, {"byte": -129}),)}, r"tables\[0\].byte cannot be -129"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_its_place(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(WriteError, match=message):
        Flatbuffer(Table("Any", 0, fields), ANY_SCHEMA)


def test_numbers_that_are_given_are_those_that_are_read() -> None:
    """So that a table compares equal with what is read back."""
    leaky = options("LeakyReluOptions", alpha=0.1)
    assert leaky.alpha == np.float32(0.1)
    tensors = (Tensor(0, "x", TensorType.FLOAT32, (2,), (2,)),)
    kinds = (
        leaky,
        options("ReshapeOptions", new_shape=[2]),
        options("BucketizeOptions", boundaries=[0.1, 0.7]),
        options("StableHLOCompositeOptions", name="n", composite_attributes=b"abc"),
        options("SqueezeOptions", squeeze_dims=None),
    )
    operators = tuple(Operator("CUSTOM any", 1, (0,), (0,), options=kind) for kind in kinds)
    model = Model("", (Subgraph("", tensors, (0,), (0,), operators),), ())
    assert first_difference(load(to_bytes(model)), model, bytewise=True) == ""
    with pytest.raises(WriteError, match=r"LeakyReluOptions\.alpha cannot be 1e"):
        options("LeakyReluOptions", alpha=1e39)
    with pytest.raises(WriteError, match=r"ReshapeOptions\.new_shape does not fit int32"):
        options("ReshapeOptions", new_shape=[1 << 40])


def test_values_of_every_kind_are_read_back() -> None:
    inner = table(ANY_SCHEMA, "Any", byte=-128, number=-0.0, text="é", longs=[1 << 62, -1], flags=[True, False])
    outer = table(ANY_SCHEMA, "Any", table=inner, tables=(inner, table(ANY_SCHEMA, "Any")), number=float("inf"))
    data = b"".join(Flatbuffer(outer, ANY_SCHEMA).chunks())
    found = read_root(memoryview(data), ANY_SCHEMA, "Any")
    assert difference(found, outer) == ""
    assert np.signbit(found.table.number)
    assert found.tables[0].longs.tolist() == [1 << 62, -1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shifted": True}, "not as files have it"),
        ({"shape": (1 << 31,)}, r"shape does not fit int32"),
    ],
)
def test_a_tensor_that_no_file_can_hold_is_refused(change: dict[str, Any], message: str) -> None:
    tensor = Tensor(**{**vars(Tensor(0, "x", TensorType.FLOAT32, (1,), (1,))), **change})
    with pytest.raises(WriteError, match=message):
        to_bytes(Model("", (Subgraph("", (tensor,), (), (), ()),), ()))


def test_an_operator_that_nobody_has_is_refused() -> None:
    model = Model("", (Subgraph("", (), (), (), (Operator("CONV2D", 1, (), ()),)),), ())
    with pytest.raises(WriteError, match="there is no operator 'CONV2D'"):
        to_bytes(model)


# Contents that are streamed.


@pytest.mark.parametrize("limit", [INSIDE, BEHIND])
def test_a_large_constant_is_never_in_memory(limit: int, tmp_path: Path) -> None:
    size, path = 300 << 20, tmp_path / "large.tflite"
    model = sum_of(size // 4, Pieces(size))
    tracemalloc.start()
    try:
        save(model, path, limit=limit)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20
    data = load(path).subgraphs[0].tensors[1].data
    assert data is not None
    assert not isinstance(data, np.ndarray)
    assert data.nbytes == size
    assert all(chunk == given for chunk, given in zip(data.chunks(), Pieces(size).chunks(), strict=True))


@pytest.mark.parametrize("limit", [INSIDE, BEHIND])
def test_streamed_and_held_constants_give_the_same_file(limit: int) -> None:
    size = 3 * CHUNK + 400
    held = np.frombuffer(b"".join(Pieces(size).chunks()), np.uint8)
    assert to_bytes(sum_of(size // 4, Pieces(size)), limit=limit) == to_bytes(sum_of(size // 4, held), limit=limit)


def test_a_streamed_constant_has_its_bytes_like_any_other() -> None:
    tensor = sum_of(100, Pieces(400)).subgraphs[0].tensors[1]
    assert tensor.content.tobytes() == (bytes(range(256)) * 2)[:400]


def test_a_file_is_written_from_where_the_file_object_is(tmp_path: Path) -> None:
    with (tmp_path / "two").open("wb") as file:
        file.write(b"before")
        write(added(), file)
    assert (tmp_path / "two").read_bytes() == b"before" + to_bytes(added())


def test_no_flatbuffer_is_above_2_gb() -> None:
    model = sum_of(1 << 29, Pieces(1 << 31))
    with pytest.raises(WriteError, match=r"would have 2147484\d+ bytes, and may have 2147483647"):
        next(file_chunks(model, limit=1 << 40))
    flatbuffer = next(file_chunks(model))
    assert read_root(memoryview(flatbuffer), SCHEMA, "Model").buffers[1].size == 1 << 31


@pytest.mark.slow
def test_a_model_above_2_gb(tmp_path: Path) -> None:
    """Two tables of 1.1 GB, of which LiteRT reads rows: it maps the file."""
    rows_of, path = 4_400_000, tmp_path / "large.tflite"
    shape = (rows_of, 64)
    tensors = (
        Tensor(0, "i", TensorType.INT32, (2,), (2,)),
        Tensor(1, "a", TensorType.FLOAT32, shape, shape, Pieces(rows_of * 256)),
        Tensor(2, "b", TensorType.FLOAT32, shape, shape, Pieces(rows_of * 256)),
        Tensor(3, "y", TensorType.FLOAT32, (2, 64), (2, 64)),
        Tensor(4, "z", TensorType.FLOAT32, (2, 64), (2, 64)),
    )
    gathers = tuple(Operator("GATHER", 1, (i, 0), (i + 2,), options=options("GatherOptions")) for i in (1, 2))
    save(Model("", (Subgraph("", tensors, (0,), (3, 4), gathers),), ()), path)
    from ai_edge_litert.interpreter import Interpreter

    made = Interpreter(model_path=str(path))
    made.allocate_tensors()
    row = np.frombuffer(bytes(range(256)), np.float32)
    for found in run_interpreter(made, [np.array([0, rows_of - 1], np.int32)]):
        assert np.array_equal(found, np.stack([row, row]), equal_nan=True)


@pytest.mark.parametrize("dtype", [ir.DataType.FLOAT, ir.DataType.INT4, ir.DataType.BOOL, ir.DataType.FLOAT16])
def test_a_tensor_of_onnx_is_a_content(dtype: ir.DataType) -> None:
    integers = np.arange(15).reshape(3, 5) % 8
    array = integers.astype(dtype.numpy())
    lazy = ir.LazyTensor(lambda: ir.Tensor(array, dtype), dtype, ir.Shape((3, 5)))
    content: Content = TensorContent(lazy)
    data = b"".join(content.chunks())
    assert len(data) == content.nbytes == -(-15 * dtype.bitwidth // 8)
    if dtype == ir.DataType.INT4:
        low_first = np.frombuffer(data, np.uint8)
        assert np.stack([low_first & 15, low_first >> 4], 1).reshape(-1)[:15].tolist() == integers.reshape(-1).tolist()
    else:
        assert data == array.tobytes()


@pytest.mark.parametrize(
    "array",
    [np.float32(1.5), np.arange(6, dtype=">i4").reshape(2, 3), np.arange(6.0).reshape(2, 3).T, np.array([True])],
)
def test_an_array_is_a_content(array: Any) -> None:
    array = np.asarray(array)
    data = array_content(array)
    little = array.dtype.newbyteorder("<")
    assert np.array_equal(np.frombuffer(data.tobytes(), little).reshape(array.shape), array)


def test_bytes_that_are_in_order_are_not_copied() -> None:
    array = np.arange(6.0)
    assert np.shares_memory(array_content(array), array)


def test_texts_are_a_content() -> None:
    given = ["", "a", "Größe"]
    data = packed_texts([text.encode() for text in given])
    assert texts(Tensor(0, "t", TensorType.STRING, (3,), (3,), data)) == given
    with pytest.raises(WriteError, match="strings"):
        TensorContent(ir.StringTensor([b"a"], shape=ir.Shape((1,))))


# Results appear whole or not at all.


class Stop(BaseException):
    """An interruption."""


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (sum_of(CHUNK, Pieces(4 * CHUNK, error=ValueError("no more"))), "cannot write .*: no more"),
        (sum_of(CHUNK, Pieces(4 * CHUNK, error=OSError(28, "no space"))), "cannot write .*: no space"),
        (sum_of(CHUNK, Pieces(4 * CHUNK, missing=4)), "a constant of 1048576 bytes gave 1048572"),
        (sum_of(CHUNK, Pieces(2 * CHUNK)), r"not be a sound file: .*needs 1048576 bytes, its buffer has 524288"),
        (added()._replace(subgraphs=()), "not be a sound file: the model has no subgraph"),
    ],
)
@pytest.mark.parametrize("there", [False, True])
def test_what_fails_leaves_everything_as_it_was(model: Model, message: str, there: bool, tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    if there:
        path.write_bytes(b"old")
    with pytest.raises(WriteError, match=message):
        save(model, path)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == ({"model.tflite": b"old"} if there else {})


def test_a_source_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    save(added(), path)
    own = identity(path)
    assert own
    with pytest.raises(WriteError, match="replaced by its own result"):
        save(added(), path, sources={own})


def test_an_interruption_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(Stop):
        save(sum_of(CHUNK, Pieces(4 * CHUNK, error=Stop())), tmp_path / "model.tflite")  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_what_the_file_would_not_say_is_an_error(tmp_path: Path) -> None:
    """A signature of extents that the reader would not give: a constant has none of its own."""
    model = added()
    constant = Tensor(**{**vars(model.subgraphs[0].tensors[1]), "signature": (-1,)})
    tensors = (model.subgraphs[0].tensors[0], constant, model.subgraphs[0].tensors[2])
    wrong = model._replace(subgraphs=(model.subgraphs[0]._replace(tensors=tensors),))
    with pytest.raises(WriteError, match=r"would not say .*subgraphs\.0\.tensors\.1\.signature\.0: 1000 and -1"):
        save(wrong, tmp_path / "model.tflite")
    assert list(tmp_path.iterdir()) == []


def test_a_quantization_that_does_not_fit_is_found_when_it_is_read_back(tmp_path: Path) -> None:
    quantization = Quantization(np.array([1, 2], np.float32), np.zeros(2, np.int64), 0)
    tensor = Tensor(0, "x", TensorType.INT8, (3,), (3,), None, quantization)
    with pytest.raises(WriteError, match="2 scales do not fit axis 0 of shape"):
        save(Model("", (Subgraph("", (tensor,), (), (), ()),), ()), tmp_path / "model.tflite")


def test_a_saved_file_is_what_to_bytes_gives(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(b"old")
    save(added(), path)
    assert path.read_bytes() == to_bytes(added())
    with pytest.raises(WriteError, match="not the name of a file"):
        save(added(), f"{tmp_path}/")
    with pytest.raises(ReadError):
        load(b"")
