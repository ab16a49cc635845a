"""What a .tflite says of itself to people, and what becomes of damage there."""

from __future__ import annotations

import base64
import io
import json
import re
import struct
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from test_tflite_reader import _damage
from tflite_writing import Net

import relayout
from conftest import SHARED
from relayout.errors import ReadError
from relayout.formats.archive import MOST_BYTES, files
from relayout.formats.tflite import read
from relayout.graph.facts import facts_of

LABELS = "cat\nHündin\n馬\n"


class Packed:
    """A metadata flatbuffer, written slot by slot: independent of the rows that the reader goes by."""

    def __init__(self) -> None:
        self.builder = flatbuffers.Builder(256)

    def text(self, value: str) -> int:
        return int(self.builder.CreateString(value))

    def floats(self, values: list[float]) -> int:
        return int(self.builder.CreateNumpyVector(np.array(values, np.float32)))

    def offsets(self, items: list[int]) -> int:
        self.builder.StartVector(4, len(items), 4)
        for item in reversed(items):
            self.builder.PrependUOffsetTRelative(item)
        return int(self.builder.EndVector())

    def table(self, slots: dict[int, int], numbers: dict[int, tuple[str, Any]] | None = None) -> int:
        numbers = numbers or {}
        self.builder.StartObject(max([*slots, *numbers], default=-1) + 1)
        for slot, offset in slots.items():
            self.builder.PrependUOffsetTRelativeSlot(slot, offset, 0)
        for slot, (kind, value) in numbers.items():
            getattr(self.builder, f"Prepend{kind}Slot")(slot, value, 0)
        return int(self.builder.EndObject())

    def done(self, root: int) -> bytes:
        self.builder.Finish(root, file_identifier=b"M001")
        return bytes(self.builder.Output())


def described() -> bytes:
    p = Packed()
    normalization = p.table({0: p.floats([127.5, 0.1]), 1: p.floats([128.0])})
    unit = p.table({1: normalization}, {0: ("Uint8", 1)})
    size = p.table({}, {0: ("Uint32", 224), 1: ("Uint32", 192)})
    image = p.table({1: size}, {0: ("Int8", 1)})
    content = p.table({1: image}, {0: ("Uint8", 2)})
    stats = p.table({0: p.floats([255.0]), 1: p.floats([0.0])})
    names = p.offsets([p.text("batch"), p.text("feature")])
    source = p.table(
        {0: p.text("picture"), 1: p.text("what is seen"), 2: names, 3: content, 4: p.offsets([unit]), 5: stats}
    )
    labels = p.table({0: p.text("labels.txt"), 1: p.text("all animals"), 3: p.text("en")}, {2: ("Int8", 2)})
    threshold = p.table({}, {0: ("Float32", 0.25)})
    unit = p.table({1: threshold}, {0: ("Uint8", 3)})
    result = p.table({0: p.text("animal"), 1: p.text("scores"), 4: p.offsets([unit]), 6: p.offsets([labels])})
    graph = p.table({0: p.text("net"), 2: p.offsets([source]), 3: p.offsets([result])})
    root = p.table(
        {
            0: p.text("Animals"),
            1: p.text("Which animal?"),
            2: p.text("v3"),
            3: p.offsets([graph]),
            4: p.text("A. Author"),
            5: p.text("Apache 2.0"),
            7: p.text("1.0.0"),
        }
    )
    return p.done(root)


def plain() -> Net:
    net = Net()
    x = net.input((2, 3), name="x")
    net.op("NEG", [x], [net.output((2, 3), name="y")])
    net.model.description = "made by hand"
    return net


def model(buffers: dict[str, bytes], archive: bytes = b"") -> bytes:
    net = plain()
    net.model.metadata = []
    for name, content in buffers.items():
        entry, buffer = schema.MetadataT(), schema.BufferT()
        entry.name, entry.buffer = name, len(net.model.buffers)
        buffer.data = np.frombuffer(content, np.uint8)
        net.model.buffers.append(buffer)
        net.model.metadata.append(entry)
    return net.bytes() + archive


def zipped(content: dict[str, bytes | str], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", method) as archive:
        for name, data in content.items():
            archive.writestr(name, data)
    return target.getvalue()


def appended(data: bytes, content: dict[str, bytes | str]) -> bytes:
    """As the tools do it: offsets count from the beginning of the model's file."""
    target = io.BytesIO(data)
    with zipfile.ZipFile(target, "a", zipfile.ZIP_DEFLATED) as archive:
        for name, text in content.items():
            archive.writestr(name, text)
    return target.getvalue()


def test_what_a_model_says_is_carried_over() -> None:
    data = appended(
        model({"TFLITE_METADATA": described(), "min_runtime_version": b"2.3.0\0\0", "other": b"\xff\x00\x01"}),
        {"labels.txt": LABELS, "model.bin": b"\xff\xfe"},
    )
    result = read(data)
    found = result.metadata_props
    assert facts_of(result).notes == ()
    assert result.doc_string == found["tflite.description"] == "Which animal?"
    assert [found[f"tflite.{key}"] for key in ("name", "version", "author", "license")] == [
        *("Animals", "v3", "A. Author", "Apache 2.0")
    ]
    assert found["tflite.metadata.min_runtime_version"] == "2.3.0"
    assert base64.b64decode(found["tflite.metadata.other;base64"]) == b"\xff\x00\x01"
    assert found["tflite.file.labels.txt"] == LABELS
    assert base64.b64decode(found["tflite.file.model.bin;base64"]) == b"\xff\xfe"
    (source,), (result_,) = json.loads(found["tflite.inputs"]), json.loads(found["tflite.outputs"])
    assert source == {
        "tensor": "x",
        "name": "picture",
        "description": "what is seen",
        "dimension_names": ["batch", "feature"],
        "content": {
            "content_properties": {
                "kind": "ImageProperties",
                "color_space": "RGB",
                "default_size": {"width": 224, "height": 192},
            }
        },
        "process_units": [{"options": {"kind": "NormalizationOptions", "mean": [127.5, 0.1], "std": [128.0]}}],
        "stats": {"max": [255.0], "min": [0.0]},
    }
    assert result_["process_units"] == [
        {"options": {"kind": "ScoreThresholdingOptions", "global_score_threshold": 0.25}}
    ]
    assert result_["associated_files"] == [
        {"name": "labels.txt", "description": "all animals", "type": "TENSOR_AXIS_LABELS", "locale": "en"}
    ]
    assert (result.graph.inputs[0].doc_string, result.graph.outputs[0].doc_string) == ("what is seen", "scores")
    assert json.loads(found["tflite.graph"]) == {"name": "net"}


def test_it_survives_the_conversion_and_can_be_read_by_the_runtime(tmp_path: Path) -> None:
    (tmp_path / "a.tflite").write_bytes(appended(model({"TFLITE_METADATA": described()}), {"labels.txt": LABELS}))
    relayout.convert(tmp_path / "a.tflite", rename={"x": "image"}).save(tmp_path / "a.onnx")
    session = pytest.importorskip("onnxruntime").InferenceSession(tmp_path / "a.onnx")
    found = session.get_modelmeta()
    assert found.custom_metadata_map["tflite.file.labels.txt"] == LABELS
    assert found.description == "Which animal?"
    again = relayout.optimize(tmp_path / "a.onnx")
    assert again.model.metadata_props["tflite.author"] == "A. Author"


def test_without_metadata_there_is_the_description() -> None:
    result = read(plain().bytes())
    assert result.doc_string == "made by hand"
    assert set(result.metadata_props) == {"relayout.source_format", "tflite.description"}


def notes(data: bytes, tmp_path: Path) -> list[str]:
    """What a conversion says in its report; the model itself has to be good."""
    (tmp_path / "a.tflite").write_bytes(data)
    result = relayout.convert(tmp_path / "a.tflite")
    assert [node.op_type for node in result.model.graph] == ["Neg"]
    return list(result.report.notes)


@pytest.mark.parametrize(
    ("buffer", "said"),
    [
        (b"", "too few for a model at byte"),
        (b"nonsense" * 8, "no M001 flatbuffer"),
        (described()[:40], "points|lies outside|declares|impossible"),
        (described()[:8] + b"\xff" * 60, "points|impossible"),
    ],
)
def test_damaged_metadata_is_a_note_with_its_place(buffer: bytes, said: str, tmp_path: Path) -> None:
    data = model({"TFLITE_METADATA": buffer, "min_runtime_version": b"1.0"})
    (note,) = notes(data, tmp_path)
    assert note.startswith("metadata left out (TFLITE_METADATA): ")
    assert re.search(said, note), note
    assert 8 < int(re.findall(r"byte (\d+)", note)[0]) <= len(data)


def test_a_buffer_that_is_not_there(tmp_path: Path) -> None:
    net = plain()
    entry = schema.MetadataT()
    entry.name, entry.buffer = "TFLITE_METADATA", 99
    net.model.metadata = [entry]
    assert notes(net.bytes(), tmp_path) == ["metadata 'TFLITE_METADATA' is left out: there is no such buffer"]


def test_metadata_of_another_interface_is_left_out(tmp_path: Path) -> None:
    net = plain()
    second = net.input((2, 3), name="z")
    net.op("ABS", [second], [net.output((2, 3), name="w")])
    entry, buffer = schema.MetadataT(), schema.BufferT()
    entry.name, entry.buffer, buffer.data = "TFLITE_METADATA", 1, np.frombuffer(described(), np.uint8)
    net.model.metadata, net.model.buffers = [entry], [*net.model.buffers, buffer]
    result = read(net.bytes())
    assert facts_of(result).notes == tuple(
        f"metadata left out: it describes 1 {side}, the model has 2" for side in ("inputs", "outputs")
    )
    assert result.metadata_props["tflite.name"] == "Animals"


def test_archives() -> None:
    content: dict[str, bytes | str] = {"a.txt": "a" * 5000, "folder/b.txt": "b", "c.txt": ""}
    wanted = {name: text.encode() for name, text in content.items() if isinstance(text, str)}
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        assert files(memoryview(b"model" * 9 + zipped(content, method))) == wanted
    assert files(memoryview(appended(plain().bytes(), content))) == wanted
    assert files(memoryview(plain().bytes())) == {}
    assert files(memoryview(b"")) == {}


def patched(data: bytes, mark: bytes, offset: int, value: bytes) -> bytes:
    place = data.rindex(mark) + offset
    return data[:place] + value + data[place + len(value) :]


GOOD = zipped({"labels.txt": LABELS * 50})
END, ENTRY, LOCAL = b"PK\x05\x06", b"PK\x01\x02", b"PK\x03\x04"


@pytest.mark.parametrize(
    ("archive", "said"),
    [
        (patched(GOOD, END, 8, struct.pack("<2H", 9, 9)), "cut short|damaged"),
        (patched(GOOD, END, 8, struct.pack("<2H", 60000, 60000)), "more than"),
        (patched(GOOD, END, 4, b"\1\0"), "several parts"),
        (patched(GOOD, END, 12, struct.pack("<I", 0xFFFFFFFF)), "outside"),
        (patched(GOOD, END, 16, struct.pack("<I", 0xFFFFFFF0)), "outside"),
        (patched(GOOD, ENTRY, 0, b"XX"), "damaged"),
        (patched(GOOD, ENTRY, 8, b"\1\0"), "encrypted"),
        (patched(GOOD, ENTRY, 10, b"\x0e\0"), "unknown way"),
        (patched(GOOD, ENTRY, 16, b"\0\0\0\0"), "checksum"),
        (patched(GOOD, ENTRY, 20, struct.pack("<I", 1 << 30)), "damaged or cut short"),
        (patched(GOOD, ENTRY, 24, struct.pack("<I", 3)), "checksum"),
        (patched(GOOD, ENTRY, 24, struct.pack("<I", MOST_BYTES + 1)), "above"),
        (patched(GOOD, ENTRY, 42, struct.pack("<I", 1 << 30)), "outside"),
        (patched(GOOD, LOCAL, 0, b"XX"), "damaged or cut short"),
        (patched(GOOD, LOCAL, 44, b"\xff" * 8), "cannot be unpacked|checksum"),
        (zipped({"bomb": bytes(MOST_BYTES + 1)}), "above"),
    ],
)
def test_damaged_archives_are_a_note(archive: bytes, said: str, tmp_path: Path) -> None:
    with pytest.raises(ReadError, match=said):
        files(memoryview(archive))
    (note,) = notes(plain().bytes() + archive, tmp_path)
    assert note.startswith("metadata left out (files behind the model): ")
    assert "byte " in note


def test_a_bomb_that_lies_about_its_size_is_not_unpacked() -> None:
    """64 MB that claim to be 5 bytes: not more than 6 of them are ever in memory."""
    archive = patched(zipped({"bomb": bytes(1 << 26)}), ENTRY, 24, struct.pack("<I", 5))
    tracemalloc.start()
    with pytest.raises(ReadError, match="checksum"):
        files(memoryview(archive))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


@pytest.mark.parametrize("seed", range(3))
def test_random_damage_never_harms_the_model(seed: int) -> None:
    random = np.random.default_rng(seed)
    good, archive, damaged = described(), zipped({"labels.txt": LABELS, "b": b"1"}), 0
    for _ in range(600):
        buffer, behind = bytearray(good), bytearray(archive)
        _damage(buffer, random)
        _damage(behind, random)
        result = read(model({"TFLITE_METADATA": bytes(buffer)}, bytes(behind)))
        assert [node.op_type for node in result.graph] == ["Neg"]
        damaged += bool(facts_of(result).notes)
    assert damaged > 200


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared models are not beside the project")
def test_labels_and_normalization_of_a_published_model() -> None:
    path = SHARED / "coral" / "mobilenet_v1_0.25_128_quant.tflite"
    found = read(path).metadata_props
    assert found["tflite.name"] == "ImageClassifier"
    (source,), (result,) = json.loads(found["tflite.inputs"]), json.loads(found["tflite.outputs"])
    assert source["process_units"] == [{"options": {"kind": "NormalizationOptions", "mean": [127.5], "std": [127.5]}}]
    assert source["content"]["content_properties"]["color_space"] == "RGB"
    labels = found[f"tflite.file.{result['associated_files'][0]['name']}"]
    assert len(labels.splitlines()) == 1001
    with zipfile.ZipFile(path) as archive:
        (name,) = archive.namelist()
        assert archive.read(name).decode() == labels
