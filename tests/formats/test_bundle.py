"""Models inside of files, ZIP archives (MediaPipe's tasks) and LITERTLM containers, by paths that lead into them."""

from __future__ import annotations

import json
import struct
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import pytest

from relayout import convert
from relayout.errors import ReadError, RelayoutError
from relayout.formats.bundle import models_of, name_of, open_model

MODELS = Path(__file__).parents[2] / "models"
FLOAT, INT8 = ((MODELS / f"tinynet_{kind}.tflite").read_bytes() for kind in ("float", "int8"))
SECTION = 16 * 1024
MODEL, TOKENIZER = 3, 4


def zipped(path: Path, content: Mapping[str, bytes], method: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in content.items():
            archive.writestr(name, data)
    return path


def container(path: Path, sections: list[tuple[str, int, bytes]]) -> Path:
    """A LITERTLM, as its builder writes it: `model_type`, kind and bytes of each section."""
    begins, begin = [], SECTION
    for _, _, data in sections:
        begins.append(begin)
        begin += -(-len(data) // SECTION) * SECTION
    header = flatbuffers.Builder(0)
    objects = []
    for (said, kind, data), start in zip(sections, begins, strict=True):
        key, text = header.CreateString("model_type"), header.CreateString(said)
        value = made(header, lambda text=text: header.PrependUOffsetTRelativeSlot(0, text, 0), 1)
        fields = [(header.PrependUOffsetTRelativeSlot, 0, key), (header.PrependUint8Slot, 1, 9)]
        item = table(header, 3, [*fields, (header.PrependUOffsetTRelativeSlot, 2, value)])
        items = vector(header, [item])
        places = [(header.PrependUint64Slot, 1, start), (header.PrependUint64Slot, 2, start + len(data))]
        rest = [(header.PrependUOffsetTRelativeSlot, 0, items), (header.PrependUint8Slot, 3, kind)]
        objects.append(table(header, 4, [*places, *rest]))
    listed = table(header, 1, [(header.PrependUOffsetTRelativeSlot, 0, vector(header, objects))])
    header.Finish(table(header, 2, [(header.PrependUOffsetTRelativeSlot, 1, listed)]))
    said = bytes(header.Output())
    content = bytearray(begin)
    content[:32] = b"LITERTLM" + struct.pack("<3I4xQ", 1, 5, 0, 32 + len(said))
    content[32 : 32 + len(said)] = said
    for (_, _, data), start in zip(sections, begins, strict=True):
        content[start : start + len(data)] = data
    path.write_bytes(content)
    return path


def made(builder: Any, fill: Callable[[], None], slots: int) -> int:
    builder.StartObject(slots)
    fill()
    return int(builder.EndObject())


def table(builder: Any, slots: int, fields: list[tuple[Callable[..., None], int, int]]) -> int:
    def fill() -> None:
        for put, slot, value in fields:
            put(slot, value, 0)

    return made(builder, fill, slots)


def vector(builder: Any, tables: list[int]) -> int:
    builder.StartVector(4, len(tables), 4)
    for each in reversed(tables):
        builder.PrependUOffsetTRelative(each)
    return int(builder.EndVector())


def same(path: Path, content: bytes) -> None:
    """What a path leads to converts as the bytes do."""
    (wanted,), (got,) = ([convert(source).proto.graph] for source in (content, path))
    assert [node.SerializeToString() for node in got.node] == [node.SerializeToString() for node in wanted.node]
    assert [i.SerializeToString() for i in got.initializer] == [i.SerializeToString() for i in wanted.initializer]


def nested(folder: Path, method: int) -> Path:
    inner = zipped(folder / "inner.task", {"landmarks.tflite": INT8, "labels.txt": b"cat"}, method)
    content = {"hand.task": inner.read_bytes(), "detector": FLOAT, "metadata": b"\0" * 8}
    return zipped(folder / "gesture.task", content, method)


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_path_leads_into_an_archive(method: int, tmp_path: Path) -> None:
    bundle = nested(tmp_path, method)
    assert [path.relative_to(bundle).as_posix() for path in models_of(bundle)] == [
        "hand.task/landmarks.tflite",
        "detector",
    ]
    assert list(map(name_of, models_of(bundle))) == ["gesture_hand_landmarks", "gesture_detector"]
    same(bundle / "detector", FLOAT)
    same(bundle / "hand.task" / "landmarks.tflite", INT8)
    same(zipped(tmp_path / "one.task", {"m": FLOAT, "other": b"text"}, method), FLOAT)


def test_archives_above_four_gigabytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their numbers have 64 bits, which `zipfile` writes for small ones, too, if it is told a smaller limit."""
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 10)
    bundle = zipped(tmp_path / "large.task", {"a.tflite": FLOAT, "b.tflite": INT8})
    assert b"PK\x06\x06" in bundle.read_bytes()
    same(bundle / "a.tflite", FLOAT)
    same(bundle / "b.tflite", INT8)


def test_a_container_of_litert_lm(tmp_path: Path) -> None:
    sections = [
        ("tf_lite_prefill_decode", MODEL, FLOAT),
        ("", TOKENIZER, b"x" * 20_000),
        ("tf_lite_aux", MODEL, INT8),
        ("tf_lite_aux", MODEL, FLOAT),
    ]
    bundle = container(tmp_path / "small.litertlm", sections)
    assert [path.name for path in models_of(bundle)] == ["prefill_decode.tflite", "aux.tflite", "aux_2.tflite"]
    same(bundle / "prefill_decode.tflite", FLOAT)
    same(bundle / "aux.tflite", INT8)
    same(bundle / "aux_2.tflite", FLOAT)


def test_what_is_not_named_or_not_there(tmp_path: Path) -> None:
    bundle = nested(tmp_path, zipfile.ZIP_STORED)
    with pytest.raises(ReadError, match=r"holds 2 models: hand.task/landmarks.tflite, detector; name one of them: .*"):
        convert(bundle)
    with pytest.raises(ReadError, match=r"no model 'detectr' in .*gesture.task; did you mean 'detector'"):
        convert(bundle / "detectr")
    with pytest.raises(ReadError, match=r"no model 'hand\.task/labels\.txt'"):
        convert(bundle / "hand.task" / "labels.txt")
    with pytest.raises(ReadError, match=r"a ZIP archive without a \.tflite"):
        convert(zipped(tmp_path / "m.pt", {"data.pkl": b"\x80\x02"}))
    with pytest.raises(ReadError, match=r"a LiteRT-LM container without a \.tflite"):
        convert(container(tmp_path / "none.litertlm", [("", TOKENIZER, b"x")]))
    with pytest.raises(ReadError, match="cannot be opened"):
        convert(tmp_path / ("long" * 999) / "m.tflite")
    with pytest.raises(ReadError, match="no model 'x'"):
        convert(MODELS / "tinynet_int8.tflite" / "x")


def test_archives_in_archives_end(tmp_path: Path) -> None:
    path = zipped(tmp_path / "0.task", {"m.tflite": INT8})
    for depth in range(1, 6):
        path = zipped(tmp_path / f"{depth}.task", {"inner": path.read_bytes()})
    with pytest.raises(ReadError, match=r"a ZIP archive without a \.tflite"):
        convert(path)


@pytest.mark.parametrize("seed", range(4))
def test_damage_is_an_error_of_one_line(seed: int, tmp_path: Path) -> None:
    """Or harms nothing: what is read is what the bundle had. Weights in place have no checksum that is looked at."""
    random, said = np.random.default_rng(seed), set()
    packed = zipped(tmp_path / "a.task", {"m.tflite": INT8, "n.tflite": FLOAT}, zipfile.ZIP_DEFLATED)
    whole = container(tmp_path / "b.litertlm", [("tf_lite_aux", MODEL, INT8), ("x", MODEL, FLOAT)])
    for source, name, looked_at in ((packed, "m.tflite", -200), (whole, "aux.tflite", 400)):
        good = source.read_bytes()
        places = range(len(good))[:looked_at] if looked_at > 0 else range(len(good))[looked_at:]
        for _ in range(150):
            damaged = bytearray(good)
            for place in random.choice(places, 3):
                damaged[place] = random.integers(256)
            cut = len(good) if random.random() < 0.8 else int(random.integers(1, len(good)))
            source.write_bytes(damaged[:cut])
            try:
                file = open_model(source / name)
                assert file.read(0, file.size)[4:8] == b"TFL3"
            except ReadError as error:
                said.add(str(error))
        source.write_bytes(good)
        assert open_model(source / name).size == len(INT8)
    assert said
    assert not any("\n" in error for error in said)


def test_a_bundle_is_not_replaced_by_its_result(relayout, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    bundle = nested(tmp_path, zipfile.ZIP_STORED)
    before = bundle.read_bytes()
    ran = relayout("convert", bundle / "detector", bundle, "--format", "onnx")
    assert (ran.code, "would be replaced by its own result" in ran.err) == (2, True)
    with pytest.raises(RelayoutError, match="would be replaced by its own result"):
        convert(bundle / "detector").save(bundle)
    assert bundle.read_bytes() == before


def test_every_verb_takes_such_a_path(relayout, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    bundle, out = nested(tmp_path, zipfile.ZIP_STORED), tmp_path / "o.onnx"
    assert "19,400 bytes" in relayout(bundle / "hand.task" / "landmarks.tflite").out
    assert relayout(bundle / "detector").code == 0
    assert relayout("convert", bundle / "detector", out, "--verify").code == 0
    assert "agrees" in relayout("verify", bundle / "detector", out).out
    assert relayout("verify", bundle / "hand.task" / "landmarks.tflite", out).code != 0
    assert relayout("explain", bundle / "detector").code == 0
    assert "0 of them differ" in relayout("diff", bundle / "detector", MODELS / "tinynet_float.tflite").out


def test_all_models_of_a_bundle(relayout, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    bundle = nested(tmp_path, zipfile.ZIP_DEFLATED)
    ran = relayout("convert", bundle, tmp_path / "absent.task", "--out-dir", tmp_path / "out", "--verify", "--json")
    rows = json.loads(ran.out)["models"]
    assert [Path(row["target"]).name for row in rows] == [
        "gesture_hand_landmarks.onnx",
        "gesture_detector.onnx",
        "absent.onnx",
    ]
    assert [row["verified"] for row in rows] == [True, True, None]
    assert "does not exist" in rows[2]["error"]
    shown = relayout("convert", bundle, "--out-dir", tmp_path / "out").out
    assert "gesture.task/hand.task/landmarks.tflite" in shown


def test_an_archive_that_explodes_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "bomb.task"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made, made.open("m.tflite", "w") as file:
        file.write(FLOAT)
        for _ in range(24):
            file.write(bytes(1 << 20))
    with pytest.raises(ReadError, match="when it is unpacked, more than a file of this size explains"):
        convert(path)
