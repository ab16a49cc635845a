"""Run a model in parts: LiteRT what is a `.tflite`, ONNX Runtime the rest, one after another, on random inputs.

    python examples/run_parts.py FOLDER [MODEL]    the parts in a folder; beside them the whole model, to compare
    python examples/run_parts.py [MODEL.onnx]      an ONNX model, which is parted for LiteRT first

`relayout convert IN OUT --target NAME --partition-dir FOLDER` writes such a folder, and the whole model to OUT. For
LiteRT it is `relayout convert IN.onnx --format tflite --partition-dir FOLDER`.
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


def run_model(path: Path, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the outputs of one file."""
    if path.suffix == ".tflite":
        return Interpreter(model_path=str(path)).get_signature_runner()(**feeds)
    session = onnxruntime.InferenceSession(str(path))
    names = [each.name for each in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


def run_parts(folder: Path, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the model's outputs: each part is fed with what was given before it."""
    manifest = json.loads((folder / "manifest.json").read_text())
    values = dict(feeds)
    for part in manifest["parts"]:
        values |= run_model(folder / part["file"], {name: values[name] for name in part["inputs"]})
        print(part["file"], "->", ", ".join(part["outputs"]))
    return {name: values[name] for name in manifest["outputs"]}


def inputs_of(path: Path) -> dict[str, tuple[list[int], np.dtype]]:
    """Return the inputs of one file: name -> shape, with 1 for an open extent, and element type."""
    if path.suffix == ".tflite":
        details = Interpreter(model_path=str(path)).get_signature_runner().get_input_details()
        return {name: (list(each["shape"]), np.dtype(each["dtype"])) for name, each in details.items()}
    graph = onnx.load(path, load_external_data=False).graph
    types = {each.name: each.type.tensor_type for each in graph.input}
    return {
        name: ([dim.dim_value or 1 for dim in kind.shape.dim], onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type))
        for name, kind in types.items()
    }


def random_feeds(folder: Path) -> dict[str, np.ndarray]:
    """Return random numbers for the inputs of a model in parts; integers are small."""
    manifest = json.loads((folder / "manifest.json").read_text())
    rng = np.random.default_rng(1)
    feeds = {}
    for part in manifest["parts"]:
        for name, (shape, kind) in inputs_of(folder / part["file"]).items():
            if name in manifest["inputs"] and name not in feeds:
                numbers = rng.normal(size=shape) if np.issubdtype(kind, np.floating) else rng.integers(0, 2, shape)
                feeds[name] = numbers.astype(kind)
    return feeds


def compare(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    """See that the parts give what the whole model does."""
    for name, whole in expected.items():
        np.testing.assert_allclose(found[name], whole, rtol=1e-3, atol=1e-5 * np.abs(whole).max())
    print("as the whole model computes it")


def example() -> onnx.ModelProto:
    """Return a small network with an operator that LiteRT does not have."""
    rng = np.random.default_rng(0)
    weights = (", ".join(f"{number:.4f}" for number in rng.normal(0, 0.1, size)) for size in (216, 64))
    return onnx.parser.parse_model(MODEL % tuple(weights))


def part_and_run(model: onnx.ModelProto) -> None:
    """Part a model for LiteRT, run the parts, and compare with the model in ONNX Runtime."""
    with tempfile.TemporaryDirectory() as place:
        folder, whole = Path(place, "parts"), Path(place, "model.onnx")
        onnx.save(model, whole)
        relayout.convert(model, format="tflite", parts=True).save_parts(folder)
        feeds = random_feeds(folder)
        compare(run_parts(folder, feeds), run_model(whole, feeds))


if __name__ == "__main__":
    given = [Path(each) for each in sys.argv[1:]]
    if given and given[0].is_dir():
        feeds = random_feeds(given[0])
        found = run_parts(given[0], feeds)
        if given[1:]:
            compare(found, run_model(given[1], feeds))
    else:
        part_and_run(onnx.load(given[0]) if given else example())
