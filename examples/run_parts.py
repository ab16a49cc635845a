"""Run a model in parts: LiteRT what it can, ONNX Runtime the rest, one after another.

`relayout convert MODEL.onnx --format tflite --partition-dir DIR` writes such parts.
"""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from ai_edge_litert.interpreter import Interpreter

import relayout

MODEL = """
<ir_version: 10, opset_import: ["": 21]>
network (float[1,3,34,34] image) => (float[1,8,32,32] y)
<float[8,3,3,3] w1 = {%s}, float[8,8,1,1] w2 = {%s}, int64[2] ends = {2, 3}> {
    a = Conv(image, w1)
    determinant = Det(a)
    scale = Unsqueeze(determinant, ends)
    b = Relu(a)
    c = Conv(b, w2)
    y = Mul(c, scale)
}
"""
"""LiteRT has no operator that computes a determinant."""


def run_parts(folder: Path, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the model's outputs: each part is fed with what was given before it."""
    manifest = json.loads((folder / "manifest.json").read_text())
    values = dict(feeds)
    for part in manifest["parts"]:
        path, fed = str(folder / part["file"]), {name: values[name] for name in part["inputs"]}
        if path.endswith(".tflite"):
            values |= Interpreter(model_path=path).get_signature_runner()(**fed)
        else:
            found = onnxruntime.InferenceSession(path).run(part["outputs"], fed)
            values |= dict(zip(part["outputs"], found, strict=True))
        print(part["file"], "->", ", ".join(part["outputs"]))
    return {name: values[name] for name in manifest["outputs"]}


def example() -> onnx.ModelProto:
    """Return a small network with an operator that LiteRT does not have."""
    rng = np.random.default_rng(0)
    weights = (", ".join(f"{number:.4f}" for number in rng.normal(0, 0.1, size)) for size in (216, 64))
    return onnx.parser.parse_model(MODEL % tuple(weights))


if __name__ == "__main__":
    model = onnx.load(sys.argv[1]) if len(sys.argv) > 1 else example()
    session = onnxruntime.InferenceSession(model.SerializeToString())
    rng = np.random.default_rng(1)
    feeds = {each.name: rng.normal(size=each.shape).astype(np.float32) for each in session.get_inputs()}
    with tempfile.TemporaryDirectory() as place:
        relayout.convert(model, format="tflite", parts=True).save_parts(Path(place, "parts"))
        found = run_parts(Path(place, "parts"), feeds)
    for each, expected in zip(session.get_outputs(), session.run(None, feeds), strict=True):
        assert np.allclose(found[each.name], expected, rtol=1e-3, atol=1e-5 * np.abs(expected).max())
    print("as ONNX Runtime computes the whole")
