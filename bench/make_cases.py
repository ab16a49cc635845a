"""Write the models that the importer's tests make as .tflite files, with the ranges of their inputs beside them.

PYTHONPATH=src python bench/make_cases.py OUT
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests/formats/tflite")]

from tflite_cases import every  # noqa: E402


def main(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for name, net in every().items():
        path = out / f"{name}.tflite"
        path.write_bytes(net.bytes())
        Path(f"{path}.ranges.json").write_text(json.dumps(net.ranges))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
