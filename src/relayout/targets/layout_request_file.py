"""Wishes in a file, TOML or JSON.

to = "NHWC"
target = "xnnpack"

[operators]
Conv = ["NHWC", "OHWI"]
Resize = "default"

[nodes]
"head/conv" = "NCHW"
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from relayout.errors import ReadError
from relayout.targets.layout_requests import layouts_of

KEYS = {"to": "to", "target": "target", "operators": "desired_layouts", "nodes": "node_layouts"}
"""Key of the file -> option of `relayout.convert`."""


def read_wishes(path: Path) -> dict[str, Any]:
    """The options of `relayout.convert` that a file holds.

    Raises:
        ReadError: it is neither TOML nor JSON, or holds other keys.
        LayoutError: a layout in it is none.
    """
    import tomllib

    try:
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        data = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except UnicodeDecodeError:
        raise ReadError(f"{path} is not text", hint="desired layouts are TOML or JSON") from None
    except (OSError, ValueError, RecursionError) as error:
        kind = "JSON" if path.suffix == ".json" else "TOML"
        raise ReadError(f"{path} cannot be read as {kind}: {error}") from error
    if not isinstance(data, dict) or not path.is_file():
        raise ReadError(f"{path} holds no desired layouts", hint=f"known are {', '.join(KEYS)}")
    if set(data) - set(KEYS):
        raise ReadError(f"{path} holds {', '.join(sorted(set(data) - set(KEYS)))}", hint=f"known are {', '.join(KEYS)}")
    for key, such in (("to", "NHWC"), ("target", "xnnpack")):
        if not isinstance(given := data.get(key, ""), str):
            raise ReadError(f"{path}: {key} is {given!r}: it takes a name, such as {such!r}")
    for key, such in (("operators", "Conv"), ("nodes", "conv1")):
        rows = data.get(key, {})
        if not isinstance(rows, dict):
            raise ReadError(f"{path}: {key} is {rows!r}: it takes a table of names and layouts, such as {such}: 'NHWC'")
        for given in rows.values():
            layouts_of(given)
    return {KEYS[key]: value for key, value in data.items()}
