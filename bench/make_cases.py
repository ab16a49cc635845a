"""Write the models that the importer's tests make as .tflite files, with the ranges of their inputs beside them.

PYTHONPATH=src python bench/make_cases.py OUT
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/formats/tflite"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from tflite_cases import every


def main(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for name, net in every().items():
        path = out / f"{name}.tflite"
        path.write_bytes(net.bytes())
        Path(f"{path}.ranges.json").write_text(json.dumps(net.ranges))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
