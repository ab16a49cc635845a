"""A model end to end: what it is, the conversion, the proof, the numbers, and its layout map.

    python examples/end_to_end.py [MODEL.tflite] [OUT_DIR]

Any MobileNet will do; without one it takes the small network in models/.
"""

import sys
from pathlib import Path

import relayout

source = Path(sys.argv[1] if len(sys.argv) > 1 else "models/tinynet_float.tflite")
out = Path(sys.argv[2] if len(sys.argv) > 2 else ".")

result = relayout.convert(source, io="keep")
report = result.report
print(f"Transposes: {report.source_transposes} -> {report.transposes}")
print(f"bytes: {report.source_bytes:,} -> {report.bytes:,}, {report.verdict}")
for remaining in report.remaining:
    print(f"remains: {remaining.tensor}, {remaining.layout}, {remaining.bytes:,} bytes")

free = relayout.explain(source, io="convert")
print(f"with the interface converted: {free.bytes:,} bytes")

model = out / f"{source.stem}.onnx"
result.save(model)
(out / f"{source.stem}.html").write_text(result.html(source.stem), encoding="utf-8")

checked = relayout.verify(source, model)
print("outputs agree" if checked.ok else f"first divergence: {checked.first.name if checked.first else ''}")
sys.exit(0 if checked.ok else 1)
