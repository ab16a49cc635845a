"""Records of relayout in a file, for relayout: a metadata buffer of JSON, which runtimes do not look at."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from relayout.errors import ReadError
from relayout.formats.flatbuffer_writer import stream
from relayout.formats.tflite.container.model import Model

RECORD = "relayout"
"""The metadata buffer's name."""


def with_record(model: Model, facts: Mapping[str, object]) -> Model:
    """Return the model with a record of these facts, in the place of one that it may have. Equal facts: equal bytes."""
    text = json.dumps(facts, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    others = tuple(row for row in model.metadata if row[0] != RECORD)
    return model._replace(metadata=(*others, (RECORD, np.frombuffer(text.encode(), np.uint8))))


def record(model: Model) -> dict[str, Any]:
    """Return the facts of a model's record; none if it has no record.

    Raises:
        ReadError: the record is damaged.
    """
    for name, content in model.metadata:
        if name == RECORD and content is not None:
            try:
                facts = json.loads(b"".join(stream(content)))
            except (ValueError, RecursionError):
                facts = None
            if not isinstance(facts, dict):
                raise ReadError(f"metadata {RECORD!r} is no record of relayout's")
            return facts
    return {}
