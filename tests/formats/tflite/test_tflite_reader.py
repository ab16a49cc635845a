"""The reader and damaged files of all kinds."""

from __future__ import annotations

import random
import struct
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tflite_cases import every
from tflite_cases_matrix import dense
from tflite_cases_moving import joins, strided_slices
from tflite_cases_spatial import conv
from tflite_writing import Net, options

from relayout.errors import ReadError, RelayoutError, UnsupportedError
from relayout.formats.onnx.parts import to_proto
from relayout.formats.stored import PIECE, FileWindow, StoredArray, open_stored
from relayout.formats.tflite import read
from relayout.formats.tflite.container.loading import load
from relayout.formats.tflite.importing.program import Choices

# Damaged files. Whatever the bytes are: a model, or one typed error, and soon.


def small() -> list[bytes]:
    nets = [conv("int8", per_channel=True), dense((2, 3, 6)), next(joins()), list(strided_slices())[6]]
    nets[1].sign({"in": nets[1].graph.inputs[0]}, {"out": nets[1].graph.outputs[0]})
    return [net.bytes() for net in nets]


def survives(data: bytes) -> str:
    start, outcome = time.process_time(), "read"
    try:
        read(data)
    except (ReadError, UnsupportedError) as error:
        outcome = type(error).__name__
    assert time.process_time() - start < 5
    return outcome


def test_truncation_at_every_byte() -> None:
    for data in small():
        outcomes = {survives(data[:length]) for length in range(len(data))}
        # The last bytes may be padding that nothing points at.
        assert "ReadError" in outcomes


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.sampled(every=2)
def test_random_damage(seed: int) -> None:
    random = np.random.default_rng(seed)
    outcomes: dict[str, int] = {}
    originals = small()
    for _ in range(4000):
        data = bytearray(originals[random.integers(len(originals))])
        for _ in range(random.integers(1, 4)):
            _damage(data, random)
        outcome = survives(bytes(data))
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    assert outcomes["ReadError"] > 100
    assert outcomes["read"] > 100


@pytest.mark.slow
def test_random_damage_to_every_operator() -> None:
    random = np.random.default_rng(5)
    for net in every().values():
        original = net.bytes()
        for _ in range(60):
            data = bytearray(original)
            for _ in range(random.integers(1, 3)):
                _damage(data, random)
            survives(bytes(data))


def _damage(data: bytearray, random: np.random.Generator) -> None:
    place = int(random.integers(0, len(data) - 8))
    kind = random.integers(4)
    if kind == 0:
        data[place] = int(random.integers(256))
    elif kind == 1:
        data[place] ^= 1 << int(random.integers(8))
    elif kind == 2:
        place -= place % 4
        choices = [0, 1, 2, 0x7FFFFFFF, 0xFFFFFFFF, 0x80000000, len(data), len(data) // 4, int(random.integers(300))]
        data[place : place + 4] = struct.pack("<I", choices[random.integers(len(choices))])
    else:
        other = int(random.integers(0, len(data) - 8))
        data[place : place + 4] = data[other : other + 4]


def test_what_is_no_model() -> None:
    for data in (b"", b"x", b"TFL3", bytes(8), b"\x08\x00\x00\x00TFL2" + bytes(40), bytes(1000)):
        with pytest.raises(ReadError):
            read(data)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match=r"nothing\.tflite"):
        read(tmp_path / "nothing.tflite")
    (tmp_path / "empty.tflite").write_bytes(b"")
    with pytest.raises(ReadError):
        read(str(tmp_path / "empty.tflite"))


def edited(edit: Any) -> bytes:
    """A convolution with one field changed."""
    net = conv("int8", per_channel=True)
    edit(net)
    return net.bytes()


def _set(target: str, value: Any) -> Any:
    def edit(net: Net) -> None:
        parts = target.split(".")
        thing: Any = net.graph
        for part in parts[:-1]:
            thing = thing[int(part)] if part.isdigit() else getattr(thing, part)
        setattr(thing, parts[-1], value)

    return edit


@pytest.mark.parametrize(
    ("field", "value", "where"),
    [
        ("tensors.0.shape", [2, -7, 9, 4], r"'t0', tensor 0 of subgraph 0, shape, byte \d+"),
        ("tensors.1.shape", [6, 3, 2, 5], r"tensor 1 of subgraph 0"),
        ("tensors.1.shape", [2**31 - 1] * 4, r"tensor 1 of subgraph 0"),
        ("tensors.0.shape", [1] * 40, r"tensor 0 of subgraph 0, shape"),
        ("tensors.0.buffer", 99, r"tensor 0 of subgraph 0, buffer"),
        ("tensors.0.type", 77, r"tensor 0 of subgraph 0, type"),
        ("tensors.1.quantization.scale", [0.1, 0.2], r"tensor 1 of subgraph 0, quantization"),
        ("tensors.1.quantization.scale", [0.1, float("nan")] * 3, r"tensor 1 of subgraph 0, quantization\.scale"),
        ("tensors.1.quantization.zeroPoint", [1000] * 6, r"tensor 1 of subgraph 0, quantization\.zero_point"),
        ("tensors.1.quantization.quantizedDimension", 9, r"tensor 1 of subgraph 0, quantization"),
        ("tensors.0.shapeSignature", [-1, 7], r"tensor 0 of subgraph 0"),
        ("operators.0.inputs", [0, 1, 9], r"CONV_2D '\w+' \(operator 0 of subgraph 0, inputs\[2\]"),
        ("operators.0.inputs", [0, -2, 1], r"CONV_2D '\w+' \(operator 0 of subgraph 0, inputs\[1\]"),
        ("operators.0.inputs", [0], r"CONV_2D '\w+' \(operator 0 of subgraph 0, inputs"),
        ("operators.0.outputs", [-1], r"CONV_2D \(operator 0 of subgraph 0, outputs\[0\]"),
        ("operators.0.outputs", [], r"CONV_2D \(operator 0 of subgraph 0, outputs\)"),
        ("operators.0.opcodeIndex", 4, r"'t3', operator 0 of subgraph 0, opcode_index"),
        ("inputs", [7], r"subgraphs\[0\]\.inputs"),
        ("outputs", [-1], r"subgraphs\[0\]\.outputs"),
        ("operators.0.builtinOptionsType", 2, r"CONV_2D '\w+' \(operator 0 of subgraph 0"),
        ("tensors.0.shape", [2, 7, 9, 5], r"CONV_2D '\w+' \(operator 0 of subgraph 0"),
        ("tensors.0.shape", [2, 7, 9], r"CONV_2D '\w+' \(operator 0 of subgraph 0"),
        ("operators.0.builtinOptions.strideH", 0, r"CONV_2D '\w+' \(operator 0 of subgraph 0"),
    ],
)
def test_each_error_says_where(field: str, value: Any, where: str) -> None:
    with pytest.raises(ReadError, match=where):
        read(edited(_set(field, value)))


@pytest.mark.parametrize("name", ["ADD", "CONCATENATION", "MAXIMUM", "SELECT_V2"])
def test_extents_that_do_not_fit_are_refused_where_they_meet(name: str) -> None:
    """As LiteRT does; it was an invalid graph, and its error spoke of ONNX."""
    net = Net()
    operands = [net.input((2, 3, 4)), net.input((2, 5, 4))]
    if name == "SELECT_V2":
        operands.insert(0, net.input((1,), "bool"))
    table = {"ADD": "AddOptions", "CONCATENATION": "ConcatenationOptions"}.get(name)
    fields = {"axis": 2} if name == "CONCATENATION" else {}
    net.op(name, operands, [net.output((2, 3, 4))], options(table, **fields) if table else None)
    with pytest.raises(ReadError, match=rf"{name} '\w+' \(operator 0 of subgraph 0\)"):
        read(net.bytes())


def test_name_that_is_not_text() -> None:
    with pytest.raises(ReadError, match="UTF-8"):
        read(edited(_set("tensors.0.name", b"\xff\xfe")))


def bomb(count: int) -> bytes:
    """A small file that says: `count` subgraphs, each of `count` tensors, by mentioning one of each over and over."""
    out = bytearray(b"\0\0\0\0TFL3")

    def table(slot: int | None) -> int:
        """A table with one offset in this slot, still to be filled in; returns where the table is."""
        slots = 0 if slot is None else slot + 1
        vtable = struct.pack("<HH", 4 + 2 * slots, 8) + bytes(2 * max(slots - 1, 0)) + struct.pack("<H", 4)[: 2 * slots]
        vtable += bytes(-len(vtable) % 4)
        out.extend(vtable + struct.pack("<i", len(vtable)) + bytes(4))
        return len(out) - 8

    def mentions(owner: int, thing: int) -> None:
        start = len(out)
        struct.pack_into("<I", out, owner + 4, start - (owner + 4))
        out.extend(struct.pack("<I", count))
        waiting.append((start, thing))

    waiting: list[tuple[int, int]] = []
    root = table(2)  # Model.subgraphs
    struct.pack_into("<I", out, 0, root)
    mentions(root, 0)
    out.extend(bytes(4 * count))
    graph = table(0)  # SubGraph.tensors
    mentions(graph, 1)
    out.extend(bytes(4 * count))
    tensor = table(None)
    for (start, _), thing in zip(waiting, (graph, tensor), strict=True):
        for i in range(count):
            struct.pack_into("<I", out, start + 4 + 4 * i, thing - (start + 4 + 4 * i))
    return bytes(out)


def test_sharing_costs_no_more_than_the_file() -> None:
    assert len(load(bomb(3)).subgraphs[2].tensors) == 3
    start = time.process_time()
    with pytest.raises(ReadError, match="overlap"):
        load(bomb(50_000))
    assert time.process_time() - start < 5


# Files as they are found.


def test_data_outside_the_tables() -> None:
    net = conv("float32")
    whole = load(net.bytes()).subgraphs[0].tensors[2].data
    assert whole is not None
    buffer = net.model.buffers[net.graph.tensors[2].buffer]
    content, buffer.data = bytes(buffer.data), None
    buffer.offset, buffer.size = 2**40, len(content)
    size = len(net.bytes())
    buffer.offset = size
    data = net.bytes()
    assert len(data) == size
    assert np.array_equal(load(data + content).subgraphs[0].tensors[2].data, whole)
    with pytest.raises(ReadError, match=r"buffers\[\d+\]"):
        load(data + content[:-1])


def test_constants_are_views_into_the_file(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(conv("float32").bytes())
    data = load(path).subgraphs[0].tensors[2].data
    assert data is not None
    assert not data.flags.owndata
    assert not data.flags.writeable
    kernel = next(v for v in read(path).graph.initializers.values() if v.shape is not None and len(v.shape) == 4)
    assert not kernel.const_value.numpy().flags.owndata  # type: ignore[union-attr]


@pytest.mark.parametrize("path", sorted((Path(__file__).parents[3] / "models").glob("*.tflite")), ids=lambda p: p.stem)
def test_a_file_read_in_pieces_is_the_same_model(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As those above `MOST_READ` are: weights stay in the file, and what is short is in memory."""
    whole = to_proto(read(path))
    monkeypatch.setattr("relayout.formats.tflite.container.loading.MOST_READ", 0)
    monkeypatch.setattr("relayout.formats.stored.PIECE", 100)
    pieces = read(path)
    assert to_proto(pieces) == whole
    raws = [getattr(value.const_value, "raw", None) for value in pieces.graph.initializers.values()]
    assert {raw.cached_bytes is None for raw in raws if isinstance(raw, StoredArray)} == {True, False}


def test_any_part_of_a_file_is_seen_through_a_window(tmp_path: Path) -> None:
    content = np.random.default_rng(0).bytes(5 * PIECE + 17)
    (tmp_path / "file").write_bytes(content)
    window = FileWindow(open_stored(tmp_path / "file"))
    assert len(window) == len(content)
    rng = random.Random(0)
    for _ in range(2000):
        start, length = rng.randrange(len(content) + 3), rng.choice([0, 1, 2, 4, 100, PIECE, 2 * PIECE])
        assert window[start : start + length] == content[start : start + length]
        assert window[start % len(content)] == content[start % len(content)]


def test_unknown_operators_are_all_reported() -> None:
    net = Net()
    a, b, c, d = (net.tensor((2, 3)) for _ in range(4))
    x = net.input((2, 3))
    net.op("CUSTOM Mystery", [x], [a]).op("SKIP_GRAM", [x], [b]).op("CUSTOM Mystery", [a], [c])
    net.op("ADD", [c, b], [d], options("AddOptions", fusedActivationFunction=4))
    net.op("MUL", [x, x], [net.output((2, 3))], options("MulOptions", fusedActivationFunction=5))
    with pytest.raises(UnsupportedError) as caught:
        read(net.bytes())
    assert caught.value.found == {
        "CUSTOM Mystery": (2, "'t0', operator 0 of subgraph 0"),
        "SKIP_GRAM": (1, "'t1', operator 1 of subgraph 0"),
        "MUL (fused activation SIGN_BIT, which the kernels ignore or refuse)": (1, "'t5', operator 4 of subgraph 0"),
    }


@pytest.mark.parametrize("count", [1, 2])
def test_a_part_before_the_only_custom_operator_is_proposed(count: int) -> None:
    net = Net()
    x, three = net.input((2, 3)), net.tensor((3,), data=np.zeros(3, np.float32))
    a, b = net.tensor((2, 3), name="a;1"), net.tensor((2, 3), name="b")
    net.op("ABS", [x], [a], options("AbsOptions")).op("EXP", [a], [b], options("ExpOptions"))
    for _ in range(count):
        net.op("CUSTOM Mystery", [a, b, x, three, a], [net.output((2, 3))])
    with pytest.raises(UnsupportedError) as caught:
        read(net.bytes())
    ends = "'a;1,b'" if count == 1 else "VALUE,…"
    assert (
        f"--custom-op Mystery=DOMAIN keeps a custom operator as a node of that domain, and --outputs {ends} ends"
        in (str(caught.value))
    )
    part = read(net.bytes(), Choices(outputs=("a;1", "b")))
    assert [value.name for value in part.graph.outputs] == ["a;1", "b"]


def test_an_opset_that_cannot_be_written() -> None:
    with pytest.raises(RelayoutError, match="opset 17"):
        read(dense((3, 6)).bytes(), Choices(opset=17))
