"""The table of ONNX operators that the exporter's cases cover. Run as a program, it writes what the package ships:

    python tests/formats/tflite/exporting/export_table.py

writes two files of `src/relayout/formats/tflite`:

- `exported.json`: for each operator the types of its data, and why some use of it is refused. These come from
  `cases()`, from models with bodies and from models with random numbers. The tests run all of them in LiteRT.
- `exporting/operators/modules.json`: which module registers each operator.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[4]
if __name__ == "__main__":
    sys.path[:0] = [
        str(path)
        for path in (
            ROOT / "src",
            Path(__file__).parent,
            ROOT / "tests",
            ROOT / "bench",
            ROOT / "tests" / "formats" / "tflite",
        )
    ]

from export_cases import cases  # noqa: E402
from export_control import MODELS  # noqa: E402
from export_drawn import DRAWN  # noqa: E402
from export_refused import REFUSED  # noqa: E402

import relayout  # noqa: E402
from registered_modules import modules  # noqa: E402

EXPORTED = ROOT / "src" / "relayout" / "formats" / "tflite" / "exported.json"
MODULES = EXPORTED.parent / "exporting" / "operators" / "modules.json"


def shown() -> Iterator[tuple[str, str]]:
    """Yield an operator and the type of its data, of each case that becomes a `.tflite`."""
    for case in cases():
        if str(case) not in REFUSED:
            kinds = ["string" if array.dtype == object else array.dtype.name for array in case.arrays.values()]
            assert relayout.convert(case.prepared()[0], format="tflite").tflite
            yield named(case.domain, case.op_type), (kinds or ["none"])[0]
    for name, prepared in {**MODELS, **DRAWN}.items():
        assert relayout.convert(prepared()[0], format="tflite").tflite
        yield name, "float32"


def named(domain: str, op_type: str) -> str:
    return f"{domain}:{op_type}" if domain else op_type


def exported() -> dict[str, dict[str, list[str]]]:
    """Return operator -> what its cases show, in alphabetical order."""
    found: dict[str, dict[str, set[str]]] = {}
    for name, kind in shown():
        found.setdefault(name, {"numbers": set(), "refused": set()})["numbers"].add(kind)
    for case in cases():
        reason, name = REFUSED.get(str(case)), named(case.domain, case.op_type)
        if reason is not None and name in found:
            found[name]["refused"].add(reason)
    return {name: {key: sorted(values) for key, values in found[name].items()} for name in sorted(found)}


def text() -> str:
    """Return the content of `exported.json`: a line for each operator."""
    lines = [f"{json.dumps(name)}: {json.dumps(row, ensure_ascii=False)}" for name, row in exported().items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    MODULES.write_text(modules("exporting"), encoding="utf-8")
    EXPORTED.write_text(text(), encoding="utf-8")
