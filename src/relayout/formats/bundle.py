"""Models inside of a file: MediaPipe's tasks, which are ZIP archives, and LiteRT-LM's containers.

A path leads on into them: `gesture_recognizer.task/hand_landmarker.task/hand_detector.tflite`. What is a model, and
what a bundle in a bundle, is told by its first bytes, not by its name.

Source: the LITERTLM header of LiteRT-LM (`litertlm_header_schema.fbs`).
"""

import os
import re
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from relayout.errors import ReadError, nearest, printable
from relayout.formats import archive
from relayout.formats.flatbuffer import Schema, read_root, rows
from relayout.formats.stored import FileWindow, StoredFile, open_stored

HEAD = 64  # bytes by which a file is known

TFL3 = b"TFL3"  # bytes 4 to 8 of every `.tflite`

_ZIP, _LITERTLM = b"PK\x03\x04", b"LITERTLM"
_MOST_FILES, _MOST_DEPTH = 10_000, 3
_MOST_UNPACKED = 1 << 31  # bytes of a packed model; one that is read in place may be longer
_UNPACKED_PER_BYTE, _UNPACKED_ANYWAY = 64, 1 << 24
"""Bytes that a file explains when it is unpacked: so many for each of its own, and so many more. Weights of a network
become 1.1 to 10 times as long; deflate can make 1,000 bytes of each."""

_HEADER, _END_AT, _MOST_HEADER = 32, 24, 1 << 24
"""Of a LITERTLM: where its tables begin, where it says where they end, and how long they may be."""
_TFLITE_MODEL, _STRING = 3, 9

_SCHEMA = Schema(
    tables={
        name: rows(text)
        for name, text in {
            "LiteRTLMMetaData": "_ sections:Sections",
            "Sections": "objects:[Section]",
            "Section": "items:[Item] begin:uint64 end:uint64 data_type:uint8",
            "Item": "key:string value_type:uint8 value:Value",
            "Text": "value:string",
            "Number": "",
        }.items()
    },
    unions={"Value": ("NONE", *["Number"] * (_STRING - 1), "Text", *["Number"] * 3)},
    enums={},
)


class _Budget:
    """The bytes that may be unpacked of one file, bundles in bundles together."""

    def __init__(self, size: int) -> None:
        self.remaining = min(_MOST_UNPACKED, size * _UNPACKED_PER_BYTE + _UNPACKED_ANYWAY)

    def take(self, size: int, path: str) -> None:
        """Count what is going to be unpacked.

        Raises:
            ReadError: it is more than the file explains.
        """
        if size > self.remaining:
            said = f"{path} would have {size:,} bytes when it is unpacked, more than a file of this size explains"
            raise ReadError(said, hint="unpack it first")
        self.remaining -= size


class _Part(NamedTuple):
    """A file in a bundle: its name there, its first bytes, and how to open it."""

    name: str
    head: bytes
    opened: Callable[[], StoredFile]


def outermost(path: Path) -> Path:
    """Return the file that a path leads to, or into; the path itself where there is none."""
    return next((place for place in path.parents if os.path.isfile(place)), path)


def open_model(path: Path) -> StoredFile:
    """Open a file, or the model in a bundle that a path leads to; a bundle of one model stands for that one.

    Raises:
        ReadError: there is no such file, it is empty or damaged; a bundle holds several, or not the one that is named.
    """
    outer = outermost(path)
    file = open_stored(outer)
    try:
        models = dict(_models(file, str(outer)))
    except ReadError as error:
        raise error.within(str(outer)) from None
    if path != outer:
        name = path.relative_to(outer).as_posix()
        if name not in models:
            raise ReadError(printable(f"there is no model {name!r} in {outer}{nearest(name, models)}"))
        return models[name]()
    if len(models) > 1:
        first = printable(str(outer / next(iter(models))))
        names = printable(", ".join(models))
        raise ReadError(f"{path} holds {len(models)} models: {names}", hint=f"name one of them: {first}")
    return next(iter(models.values()))() if models else file


def models_of(path: Path) -> tuple[Path, ...]:
    """Return the paths of all models in a bundle; the path itself, where it is none or cannot be read."""
    try:
        paths = [path / name for name, _ in _models(open_stored(path), str(path))]
    except ReadError:
        paths = []
    return tuple(paths) or (path,)


def name_of(path: Path) -> str:
    """Return the name of a model's result, without an ending. In a bundle, the name begins with that of the bundle."""
    outer = outermost(path)
    inside = path.relative_to(outer).parts if path != outer else ()
    return "_".join([outer.stem, *(Path(part).stem for part in inside)])


def _models(
    file: StoredFile, path: str, depth: int = 0, budget: _Budget | None = None
) -> Iterator[tuple[str, Callable[[], StoredFile]]]:
    """Yield the models in a bundle: their paths in it, and how to open them."""
    budget = _Budget(file.size) if budget is None else budget
    for part in _parts(file, path, budget):
        if part.head[4:8] == TFL3:
            yield part.name, part.opened
        elif depth < _MOST_DEPTH and part.head.startswith((_ZIP, _LITERTLM)):
            inner = _models(part.opened(), f"{path}/{part.name}", depth + 1, budget)
            yield from ((f"{part.name}/{name}", opened) for name, opened in inner)


def _parts(file: StoredFile, path: str, budget: _Budget) -> Iterator[_Part]:
    begins = file.read(0, min(HEAD, file.size))
    if begins.startswith(_ZIP):
        data = FileWindow(file)
        for entry in archive.entries(data, _MOST_FILES):
            opened = partial(_of_archive, file, data, entry, f"{path}/{entry.name}", budget)
            yield _Part(entry.name, archive.head(data, entry, HEAD), opened)
    elif begins.startswith(_LITERTLM):
        yield from _sections(file, path)


def _of_archive(file: StoredFile, data: FileWindow, entry: archive.Entry, path: str, budget: _Budget) -> StoredFile:
    if entry.stored:
        return file.part(*archive.extent(data, entry), path)
    budget.take(entry.size, path)
    with tempfile.TemporaryFile() as unpacked:
        for piece in archive.pieces(data, entry):
            unpacked.write(piece)
        unpacked.flush()
        return StoredFile(os.dup(unpacked.fileno()), path)


def _sections(file: StoredFile, path: str) -> Iterator[_Part]:
    """Yield the models in a LITERTLM, called by what they are for: `prefill_decode.tflite`."""
    end = int.from_bytes(file.read(_END_AT, 8), "little") if file.size >= _HEADER else 0
    if not _HEADER < end <= min(file.size, _HEADER + _MOST_HEADER):
        raise ReadError("the header is cut short", where=f"byte {_END_AT}")
    header = read_root(memoryview(file.read(_HEADER, end - _HEADER)), _SCHEMA, "LiteRTLMMetaData", base=_HEADER)
    count_of: dict[str, int] = {}
    for section in header.sections.objects if header.sections else ():
        if section.data_type != _TFLITE_MODEL:
            continue
        if not end <= section.begin <= section.end <= file.size:
            raise ReadError("a section lies outside of the file", where=f"byte {_HEADER + section.byte}")
        said = (i.value.value for i in section.items if i.key == "model_type" and i.value and i.value.kind == "Text")
        stem = re.sub(r"\W+", "_", next(said, "").lower().removeprefix("tf_lite_")) or "model"
        count_of[stem] = count_of.get(stem, 0) + 1
        name = f"{stem}.tflite" if count_of[stem] == 1 else f"{stem}_{count_of[stem]}.tflite"
        head = file.read(section.begin, min(HEAD, section.end - section.begin))
        yield _Part(name, head, partial(file.part, section.begin, section.end, f"{path}/{name}"))
