"""The folder of a result's parts: a model for each part, and the manifest that says how to run them."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from relayout.errors import WriteError
from relayout.partition.regions import Part

if TYPE_CHECKING:
    from relayout.formats.tflite.container.model import Model

FORMAT = "relayout-parts-1"
"""The format of a manifest of parts."""
MANIFEST = "manifest.json"
WEIGHTS = ".data"
"""Suffix of the file with a large ONNX model's weights, behind the model's name."""


def write_parts(
    folder: Path, parts: Sequence[tuple[Part, ir.Model | Model]], header: Mapping[str, Any], overwrite: bool
) -> None:
    """Write a model for each part, and the manifest, all of them or none.

    Args:
        folder: where to; it is made if it is not there.
        parts: the parts, in the order in which they run, and their models.
        header: what the manifest says of the whole model.
        overwrite: whether parts that were written there before may be replaced.

    Raises:
        WriteError: there is something else in the folder, or a file cannot be written.
    """
    from relayout.formats.onnx import write_text

    old = replaceable_files(folder, overwrite)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".relayout-", dir=folder) as place:
        new = Path(place)
        rows = [part.to_dict(_write_part(new, part, model)) for part, model in parts]
        manifest = {"format": FORMAT, **header, "parts": rows}
        write_text(new / MANIFEST, json.dumps(manifest, indent=2) + "\n")
        written = sorted(new.iterdir(), key=lambda path: path.name == MANIFEST)
        names = {path.name for path in written}
        try:
            for path in written:
                path.replace(folder / path.name)
            for path in old:
                if path.name not in names:
                    path.unlink()
        except OSError as error:
            raise WriteError(f"cannot write into '{folder}': {error.strerror or error}") from error


def replaceable_files(folder: Path, overwrite: bool) -> list[Path]:
    """Return the files in a folder that new parts replace: the manifest there and the files that it names.

    Args:
        folder: where parts are to be written; it need not be there.
        overwrite: whether earlier parts may be replaced.

    Raises:
        WriteError: the folder holds earlier parts and `overwrite` is not given, or it holds something else.
    """
    if not folder.is_dir() and folder.exists():
        raise WriteError(f"{folder} is there already, and no directory: parts want a directory of their own")
    entries = sorted(folder.iterdir()) if folder.exists() else []
    if not entries:
        return []
    named = _files_of_manifest(folder / MANIFEST)
    if not named:
        raise WriteError(f"{folder} is there already, and not empty: parts want a directory of their own")
    if not overwrite:
        raise WriteError(f"{folder} holds parts already: --overwrite (in Python overwrite=True) replaces them")
    for entry in entries:
        if entry.name not in named or not entry.is_file():
            raise WriteError(
                f"cannot replace the parts in {folder}: its {MANIFEST} does not name '{entry.name}'; move it away"
            )
    return entries


def _files_of_manifest(path: Path) -> frozenset[str]:
    """Return the names of the manifest, its parts and their weights; none where the file is no manifest of parts."""
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
        if read["format"] != FORMAT:
            return frozenset()
        names = [str(row["file"]) for row in read["parts"]]
    except (OSError, ValueError, TypeError, LookupError, RecursionError):
        return frozenset()
    return frozenset({MANIFEST, *names, *(name + WEIGHTS for name in names)})


def _write_part(folder: Path, part: Part, model: ir.Model | Model) -> str:
    """Write a part's model and return the suffix of its file."""
    from relayout.formats.onnx import write
    from relayout.formats.tflite.container.writer import save

    if isinstance(model, ir.Model):
        write(model, folder / f"{part.name}.onnx", overwrite=False, checked=False)
        return ".onnx"
    save(model, folder / f"{part.name}.tflite")
    return ".tflite"
