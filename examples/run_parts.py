"""Run a model in parts: LiteRT what is a `.tflite`, ONNX Runtime the rest, one after another, on random inputs.

    python examples/run_parts.py FOLDER [MODEL]    the parts in a folder; beside them the whole model, to compare
    python examples/run_parts.py [MODEL.onnx]      an ONNX model, which is parted for LiteRT first

`relayout convert IN OUT --target NAME --partition-dir FOLDER` writes such a folder, and the whole model to OUT. For
LiteRT it is `relayout convert IN.onnx --format tflite --partition-dir FOLDER`.

Exit code 0: the parts ran, and agree with the model if there is one. 1: they differ, or cannot be compared.
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
        return {name: (each["shape"].tolist(), np.dtype(each["dtype"])) for name, each in details.items()}
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
                feeds[name] = random_numbers(rng, shape, kind)
    return feeds


def random_numbers(rng: np.random.Generator, shape: list[int], kind: np.dtype) -> np.ndarray:
    """Return random numbers: any of 8 bits, other integers small, since they may be indices."""
    if np.issubdtype(kind, np.floating):
        return rng.normal(size=shape).astype(kind)
    if kind.name in ("int8", "uint8"):
        return rng.integers(np.iinfo(kind).min, np.iinfo(kind).max + 1, shape).astype(kind)
    return rng.integers(0, 2, shape).astype(kind)


def steps_of(path: Path) -> dict[str, float]:
    """Return the outputs of an ONNX file that are dequantized integers: name -> what one step of the integer means."""
    if path.suffix == ".tflite":
        return {}
    graph = onnx.load(path).graph
    constants = {each.name: onnx.numpy_helper.to_array(each) for each in graph.initializer}
    return {
        node.output[0]: float(constants[node.input[1]].max())
        for node in graph.node
        if node.op_type == "DequantizeLinear" and node.input[1] in constants
    }


def difference(part: np.ndarray, whole: np.ndarray, step: float) -> str:
    """Say how far a result is off; nothing if it is as close as rounding allows.

    Integers of 8 bits may be one step off, and so may floats that were dequantized: the runtime optimizes a part and
    the whole model differently, and then rounds differently. Other integers must be equal.
    """
    if (part.shape, part.dtype) != (whole.shape, whole.dtype):
        return f"is {part.dtype} {list(part.shape)}, and {whole.dtype} {list(whole.shape)} in the whole model"
    if np.array_equal(part, whole):
        return ""
    if whole.dtype.kind == "f":
        largest = np.abs(whole, where=np.isfinite(whole), out=np.zeros_like(whole)).max()
        if np.allclose(part, whole, rtol=1e-3, atol=1e-5 * largest + 1.01 * step, equal_nan=True):
            return ""
        off = np.nanmax(np.abs(part.astype(np.float64) - whole))
        return (
            f"is off by {off / step:.0f} steps" if step else f"is off by {off:.2g}; its largest value is {largest:.2g}"
        )
    if whole.dtype.name not in ("int8", "uint8"):
        return f"has {np.mean(part != whole):.0%} other elements"
    off = np.abs(part.astype(int) - whole.astype(int)).max()
    return f"is off by {off} steps" if off > 1 else ""


def compare(found: dict[str, np.ndarray], model: Path, feeds: dict[str, np.ndarray]) -> int:
    """Print whether the parts give what the whole model does, and return the exit code."""
    wanted = {name: (list(array.shape), array.dtype) for name, array in feeds.items()}
    taken = inputs_of(model)
    if taken != wanted:
        print(f"FAILED: the parts take {described(wanted)}, and {model} takes {described(taken)}")
        return 1
    whole, steps = run_model(model, feeds), steps_of(model)
    missing = [f"{name} is missing" for name in whole if name not in found]
    off = {name: difference(found[name], whole[name], steps.get(name, 0)) for name in whole if name in found}
    faults = missing + [f"{name} {fault}" for name, fault in off.items() if fault]
    if faults:
        print(f"FAILED: {'; '.join(faults)}")
        if any("steps" in fault for fault in faults):
            print("In a deep quantized network steps add up. `relayout verify` compares operator by operator.")
        return 1
    print(f"PASSED: {', '.join(whole)} as the whole model computes it")
    return 0


def described(inputs: dict[str, tuple[list[int], np.dtype]]) -> str:
    """Return inputs in words: name, type and shape."""
    return ", ".join(f"{name} {kind} {shape}" for name, (shape, kind) in inputs.items())


def example() -> onnx.ModelProto:
    """Return a small network with an operator that LiteRT does not have."""
    rng = np.random.default_rng(0)
    weights = (", ".join(f"{number:.4f}" for number in rng.normal(0, 0.1, size)) for size in (216, 64))
    return onnx.parser.parse_model(MODEL % tuple(weights))


def part_and_run(model: onnx.ModelProto) -> int:
    """Part a model for LiteRT, run the parts, compare with the model in ONNX Runtime, and return the exit code."""
    with tempfile.TemporaryDirectory() as place:
        folder, whole = Path(place, "parts"), Path(place, "model.onnx")
        onnx.save(model, whole)
        relayout.convert(model, format="tflite", parts=True).save_parts(folder)
        feeds = random_feeds(folder)
        return compare(run_parts(folder, feeds), whole, feeds)


def main(arguments: list[Path]) -> int:
    """Run what the command line names, and return the exit code."""
    if not arguments or not arguments[0].is_dir():
        return part_and_run(onnx.load(arguments[0]) if arguments else example())
    folder, *models = arguments
    feeds = random_feeds(folder)
    found = run_parts(folder, feeds)
    return compare(found, models[0], feeds) if models else 0


if __name__ == "__main__":
    sys.exit(main([Path(each) for each in sys.argv[1:]]))
