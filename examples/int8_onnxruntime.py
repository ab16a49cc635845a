"""An int8 model for ONNX Runtime: integers at both ends, channels first inside, no Transpose left.

python examples/int8_onnxruntime.py [MODEL.tflite]
"""

import sys

import numpy as np
import onnxruntime

import relayout

source = sys.argv[1] if len(sys.argv) > 1 else "models/tinynet_int8.tflite"
result = relayout.convert(source, io="convert")
report = result.report
print(f"{report.transposes} Transposes, {report.bytes} bytes, {report.verdict}")

(image,) = result.model.graph.inputs
print(f"feed {image.name}: {image.dtype.name} {list(image.shape.numpy())}, stored {result.layouts[image.name]}")

result.save("int8.onnx")
session = onnxruntime.InferenceSession("int8.onnx", providers=["CPUExecutionProvider"])
n, c, h, w = image.shape.numpy()
limits = np.iinfo(image.dtype.numpy())
nhwc = np.random.default_rng(0).integers(limits.min, limits.max, (n, h, w, c), limits.dtype, endpoint=True)
(scores,) = session.run(None, {image.name: nhwc.transpose(0, 3, 1, 2)})
print(f"scores: {scores.dtype} {scores.shape}")

checked = relayout.verify(source, "int8.onnx")
print("as LiteRT computes it" if checked.ok else "not as LiteRT computes it")
sys.exit(0 if checked.ok else 1)
