"""ORT-format files: made by ONNX Runtime, and changed by the schema's rows."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import onnxruntime

from relayout.formats.flatbuffer import Table, read_root
from relayout.formats.flatbuffer_writer import Flatbuffer, table
from relayout.formats.ort.loading import SCHEMA
from relayout.formats.recognition import ORTM

LEVELS = {
    "none": onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "full": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
}
MOST = 1 << 28


def saved(model: onnx.ModelProto | Path, level: str = "basic", form: str = "ORT", **settings: str) -> bytes:
    """Return the file that ONNX Runtime saves of a model.

    Args:
        model: the model; a path where it has data in other files.
        level: of optimization; blocks of channels are left out, as ONNX Runtime's converter does.
        form: `ORT` or `ONNX`.
        settings: of the session, with `__` in the place of each dot.
    """
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = LEVELS[level]
    options.add_session_config_entry("session.save_model_format", form)
    for name, value in settings.items():
        options.add_session_config_entry(name.replace("__", "."), value)
    source = str(model) if isinstance(model, Path) else model.SerializeToString()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "saved")
        options.optimized_model_filepath = str(path)
        onnxruntime.InferenceSession(
            source, options, providers=["CPUExecutionProvider"], disabled_optimizers=["NchwcTransformer"]
        )
        return path.read_bytes()


def tables(data: bytes) -> Table:
    """Return the root table of a file."""
    return read_root(memoryview(data), SCHEMA, "InferenceSession", ORTM, repeated=MOST)


def made(kind: str, **fields: Any) -> Table:
    """Return a new table."""
    return table(SCHEMA, kind, **fields)


def changed(held: Table, **fields: Any) -> Table:
    """Return a table with other fields."""
    return Table(held.kind, held.byte, {**held.fields, **fields})


def written(root: Table) -> bytes:
    """Return the file of a root table, with what the rows name."""
    return b"".join(map(bytes, Flatbuffer(root, SCHEMA, ORTM).chunks()))


def in_graph(data: bytes, change: Callable[[Table], Table]) -> bytes:
    """Return a file with another main graph."""
    root = tables(data)
    return written(changed(root, model=changed(root.model, graph=change(root.model.graph))))
