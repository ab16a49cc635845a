"""Run one `.tflite` on the inputs of the model that it was made from, and say what is in it.

    python bench/judge_back.py SOURCE.tflite FILE.tflite OUT MODES [last|same]

MODES is JSON, a list of kernels (`default` or `reference`) and what each open extent becomes; 0 leaves the file's own.
Of the n-th mode `OUT.n.npz` gets the outputs of three runs of one interpreter (of the reference kernels, which are
slow, of one), whose inputs differ: variables that are kept from run to run show. A last argument reads a file by its
names and shapes, in other types: `last` with channels last where that fits, `same` as in the source where that fits.
Without it places count alone.

It prints JSON: for each mode an error or nothing; and operators of all graphs, transposed bytes of the main one, and
all that a user names. `SOURCE.ranges.json`, where it is there, has the lowest and the greatest number for each input.
"""

from __future__ import annotations

import json
import sys
import warnings
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

warnings.filterwarnings("ignore")
from ai_edge_litert.interpreter import Interpreter  # noqa: E402  (it warns when imported)
from counting import first_line  # noqa: E402
from judge import Array, image_like  # noqa: E402
from judge_tflite import KERNELS, Graph, outputs_by_name, result_feeds  # noqa: E402

from relayout.errors import ReadError  # noqa: E402
from relayout.formats.archive import files  # noqa: E402
from relayout.formats.tflite.container.enums import TensorType  # noqa: E402
from relayout.formats.tflite.container.loading import load  # noqa: E402
from relayout.formats.tflite.container.model import Model, Tensor  # noqa: E402

RUNS = {"default": 3, "reference": 1}
WIDE = 4
"""Bytes of integers that no input takes in their whole range."""
FLOATS = {TensorType.FLOAT16, TensorType.FLOAT32, TensorType.FLOAT64, TensorType.BFLOAT16}
FLOATS |= {TensorType.COMPLEX64, TensorType.COMPLEX128}
OF_THE_FILE = {"min_runtime_version", "OfflineMemoryAllocation", "LiteRtStamp", "relayout"}
"""Metadata that is not about the model: versions, places in memory, compiled operators, notes on layouts."""


def ranges_of(source: str, count: int) -> list[tuple[float, float] | None]:
    path = Path(source + ".ranges.json")
    return [tuple(each) for each in json.loads(path.read_text())] if path.exists() else [None] * count


def fed(detail: dict[str, Any], given: tuple[float, float] | None, run: int) -> Array:
    """Return the input of one run: smooth, of both signs but in the first run, or in the range that is given."""
    array = image_like(detail, np.random.default_rng(7 + run))
    dtype = array.dtype
    if given is None:
        return array * dtype.type(4) - dtype.type(2) if run and dtype.kind == "f" else array
    quantized = dtype.itemsize < WIDE and detail["quantization_parameters"]["scales"].size
    if dtype == np.bool_ or dtype.kind not in "fiu" or quantized:
        return array
    unit = image_like(detail | {"dtype": np.float64}, np.random.default_rng(7 + run))
    spread = given[0] + unit * (given[1] - given[0])
    return (np.floor(spread) if dtype.kind in "iu" else spread).astype(dtype)


def opened(interpreter: Interpreter, extent: int) -> Interpreter:
    """Give each open extent of the inputs a number."""
    for detail in interpreter.get_input_details():
        signature = [int(each) for each in detail["shape_signature"]]
        if extent and -1 in signature:
            shape = [extent if each == -1 else each for each in signature]
            interpreter.resize_tensor_input(detail["index"], shape, strict=True)
    interpreter.allocate_tensors()
    return interpreter


def made(path: str, kernels: str, extent: int = 0) -> Interpreter:
    return opened(Interpreter(path, num_threads=1, experimental_op_resolver_type=KERNELS[kernels]), extent)


def feeds_of(source: str, extent: int, run: int = 0) -> dict[str, Array]:
    """Return the inputs by name, in the source's order; a name that stands twice gets its place."""
    details = opened(Interpreter(source), extent).get_input_details()
    names = [detail["name"] for detail in details]
    unique = [name if names.count(name) == 1 else f"{name} {place}" for place, name in enumerate(names)]
    rows = zip(unique, details, ranges_of(source, len(details)), strict=True)
    return {name: fed(detail, given, run) for name, detail, given in rows}


def run(source: str, path: str, kernels: str, extent: int, out: str, loose: str = "") -> None:
    interpreter = made(path, kernels, 0 if loose else extent)
    names = [detail["name"] for detail in Interpreter(source).get_output_details()]
    arrays: dict[str, Array] = {}
    for number in range(RUNS[kernels]):
        feeds = feeds_of(source, extent, number)
        given = loose_feeds(interpreter, feeds, loose) if loose else list(feeds.values())
        for detail, array in zip(interpreter.get_input_details(), given, strict=True):
            interpreter.set_tensor(detail["index"], array)
        interpreter.invoke()
        found = outputs_of(interpreter, names) if loose else stored(interpreter)
        arrays |= {f"{number}.{place}": array for place, array in enumerate(found)}
    for place, detail in enumerate(interpreter.get_output_details()):
        arrays[f"scale.{place}"] = np.array(detail["quantization"], np.float64)
    np.savez(out, **arrays)


def loose_feeds(interpreter: Interpreter, feeds: dict[str, Array], reading: str) -> list[Array]:
    """Return the inputs in the types and layouts that a file wants; where two layouts fit, in the one that is asked."""
    given = result_feeds(interpreter, feeds, {})
    names = [
        each["name"].removeprefix("serving_default_").partition(":")[0] for each in interpreter.get_input_details()
    ]
    if reading == "last" or set(names) != set(feeds):
        return given
    return [
        feeds[name].astype(array.dtype) if feeds[name].shape == array.shape else array
        for name, array in zip(names, given, strict=True)
    ]


def outputs_of(interpreter: Interpreter, names: list[str]) -> list[Array]:
    found = outputs_by_name(interpreter, names)
    return [found[name] for name in names]


def stored(interpreter: Interpreter) -> list[Array]:
    """Return all outputs; the interpreter has no tensor for one without elements."""
    return [
        interpreter.get_tensor(each["index"]) if np.prod(each["shape"]) else np.zeros(each["shape"], each["dtype"])
        for each in interpreter.get_output_details()
    ]


def facts(source: str, path: str) -> dict[str, Any]:
    model = load(Path(path))
    found: dict[str, Any] = {"operators": dict(Counter(op.name for graph in model.subgraphs for op in graph.operators))}
    found |= {"integer": is_integer(model), "open": is_open(model), "names": named(model, Path(path).read_bytes())}
    try:
        graph = Graph(path, feeds_of(source, 0), {})
        found["bytes"] = sum(size for _, size in graph.moved_bytes())
    except (RuntimeError, ValueError, KeyError) as error:
        found["not_counted"] = first_line(error)
    return found


def is_integer(model: Model) -> bool:
    """True if no operator reads or writes a float."""
    rows = [(graph.tensors, [*op.inputs, *op.outputs]) for graph in model.subgraphs for op in graph.operators]
    return not any(tensors[index].type in FLOATS for tensors, indices in rows for index in indices if index >= 0)


def is_open(model: Model) -> bool:
    main = model.subgraphs[0]
    return any(-1 in main.tensors[index].signature for index in main.inputs)


def named(model: Model, content: bytes) -> dict[str, Any]:
    """Return what a user of the file refers to, a list of texts for each kind."""
    main = model.subgraphs[0]
    ends = [main.tensors[index] for index in (*main.inputs, *main.outputs)]
    variables = [described(tensor) for graph in model.subgraphs for tensor in graph.tensors if tensor.is_variable]
    metadata = [(name, checksum(np.asarray(raw).tobytes())) for name, raw in model.metadata if raw is not None]
    return {
        "tensor names": [tensor.name for tensor in ends],
        "types": [f"{place} {described(tensor)}" for place, tensor in enumerate(ends)],
        "open extents": [f"{place} {list(tensor.signature)}" for place, tensor in enumerate(ends)],
        "signatures": [signature_text(model, place) for place in range(len(model.signatures))],
        "variables": sorted(variables),
        "metadata": [f"{name} {found}" for name, found in metadata if name not in OF_THE_FILE],
        "files": [f"{name} {checksum(content)}" for name, content in files(content).items()],
    }


def described(tensor: Tensor) -> str:
    meaning = tensor.quantization
    scale = "" if meaning is None else f" {meaning.scale.tolist()} {meaning.zero_point.tolist()}"
    return f"{tensor.stated.name}{list(tensor.shape)}{scale}"


def signature_text(model: Model, place: int) -> str:
    """Return key and names of a signature, with the places of the inputs and outputs that they are."""
    each = model.signatures[place]
    graph = model.subgraphs[each.subgraph]
    sides = ((each.inputs, graph.inputs), (each.outputs, graph.outputs))
    return json.dumps([each.key, *(sorted([name, ends.index(index)] for name, index in side) for side, ends in sides)])


def checksum(content: bytes) -> int:
    return zlib.crc32(content.rstrip(b"\0"))


def main(source: str, path: str, out: str, modes: str, loose: str = "") -> None:
    said = []
    for number, (kernels, extent) in enumerate(json.loads(modes)):
        try:
            run(source, path, kernels, extent, f"{out}.{number}.npz", loose)
            said.append("")
        except (RuntimeError, ValueError, KeyError, TypeError) as error:
            said.append(first_line(error))
    try:
        found = facts(path if loose else source, path)
    except ReadError as error:
        found = {"why": first_line(error)}
    print(json.dumps({"modes": said, "facts": found}))


if __name__ == "__main__":
    main(*sys.argv[1:])
