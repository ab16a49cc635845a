"""Judge .tflite files beside the ONNX model that they were made from; print what was found as JSON.

    python bench/judge_tflite.py static MODEL.onnx ...
    python bench/judge_tflite.py judge MODEL.onnx RESULT.tflite[=LAYOUTS] ...
    python bench/judge_tflite.py time ROUNDS MODEL.onnx RESULT.tflite[=LAYOUTS] ...

LAYOUTS is JSON: input or output -> `n c h w -> n h w c`. A value without one is read as in the source, or with channels
last, whichever fits its shape better: some tools do not say what they did.

The reference is ONNX Runtime on the source. `right` is within 1e-4 of the largest value, or within one step where a
DequantizeLinear gives the output; `close` is within 2 % of the largest, three steps, or twice what a
quantized source's own outputs move by with inputs moved by a millionth. Both sets of LiteRT's kernels run.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from counting import first_line, session_of
from judge import AXIS, Array, axis_order, distance, image_like, litert_runner
from onnx import numpy_helper

SHORT_RUN = 16
"""Bytes. A CONCATENATION that copies shorter runs moves elements one by one, as a Transpose does."""
KERNELS = {"default": OpResolverType.AUTO, "reference": OpResolverType.BUILTIN_REF}
PLAIN = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
CLOSE, CLOSE_STEPS = 0.02, 3

Layouts = dict[str, str]


def is_static(path: str) -> bool:
    graph = onnx.load(path, load_external_data=False).graph
    constants = {tensor.name for tensor in graph.initializer}
    dims = [dim for put in graph.input if put.name not in constants for dim in put.type.tensor_type.shape.dim]
    return all(dim.dim_value > 0 for dim in dims)


def is_quantized(path: str) -> bool:
    """Tell whether activations are quantized: some QuantizeLinear or QLinear operator is there."""
    kinds = {node.op_type for node in onnx.load(path, load_external_data=False).graph.node}
    return any(kind.startswith(("QuantizeLinear", "QLinear", "DynamicQuantize")) for kind in kinds)


def source_feeds(path: str) -> dict[str, Array]:
    """Return one array for each input of the source: smooth images, and indices between 0 and 3."""
    rng, arrays = np.random.default_rng(7), {}
    for put in session_of(path).get_inputs():
        dtype = onnx.helper.tensor_dtype_to_np_dtype(onnx.TensorProto.DataType.Value(put.type[7:-1].upper()))
        steps = np.ones(1) if dtype.itemsize == 1 and dtype.kind in "iu" else np.ones(0)
        detail = {"shape": put.shape, "dtype": dtype, "quantization_parameters": {"scales": steps}}
        arrays[put.name] = image_like(detail, rng)
    return arrays


def output_steps(path: str) -> dict[str, float]:
    """Return the scale of every output that a DequantizeLinear gives, behind Reshapes and Transposes."""
    graph = onnx.load(path).graph
    producers = {name: node for node in graph.node for name in node.output}
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    steps = {}
    for output in graph.output:
        node = producers.get(output.name)
        while node is not None and node.op_type in ("Reshape", "Transpose", "Flatten", "Squeeze", "Identity"):
            node = producers.get(node.input[0])
        if node is not None and node.op_type == "DequantizeLinear" and node.input[1] in tensors:
            steps[output.name] = float(numpy_helper.to_array(tensors[node.input[1]]).max())
    return steps


def own_spread(path: str, feeds: dict[str, Array], outputs: dict[str, Array]) -> dict[str, float]:
    """Return how far the source's own outputs move: not optimized by ONNX Runtime, with inputs moved by a millionth."""
    session = session_of(onnx.load(path), optimized=False)
    moved = {
        name: array + np.asarray(1e-6, array.dtype) if array.dtype.kind == "f" else array
        for name, array in feeds.items()
    }
    spread = dict.fromkeys(outputs, 0.0)
    for fed in (feeds, moved):
        for name, array in zip(outputs, session.run(list(outputs), fed), strict=True):
            apart = distance(outputs[name].astype(np.float64), np.asarray(array).astype(np.float64))
            spread[name] = max(spread[name], apart)
    return spread


def stored_candidates(array: Array, shape: list[int], layout: str | None, *, back: bool) -> list[Array]:
    """Return the ways to read a value in another layout; `back` goes from the result's layout to the source's."""
    if layout is not None:
        perm = axis_order(*(AXIS.findall(side) for side in layout.split(" -> ")))
        return [array.transpose(np.argsort(perm) if back else perm)]
    readings = [array, np.moveaxis(array, *((-1, 1) if back else (1, -1)))] if array.ndim > 2 else [array]
    return [reading for reading in readings if list(reading.shape) == shape] or readings[:1]


def result_feeds(interpreter: Interpreter, feeds: dict[str, Array], layouts: Layouts) -> list[Array]:
    """Return the source's feeds in the order, layout and type that the interpreter wants."""
    details = interpreter.get_input_details()
    names = [detail["name"].removeprefix("serving_default_").partition(":")[0] for detail in details]
    if sorted(names) != sorted(feeds):
        names = list(feeds)
    arrays = []
    for name, detail in zip(names, details, strict=True):
        wanted = [int(extent) for extent in detail["shape"]]
        candidates = stored_candidates(feeds[name], wanted, layouts.get(name), back=False)
        arrays.append(np.array(candidates[-1], detail["dtype"], order="C"))
    return arrays


def outputs_by_name(interpreter: Interpreter, names: list[str]) -> dict[str, Array]:
    details = interpreter.get_output_details()
    given = [detail["name"].partition(":")[0] for detail in details]
    signatures = list(interpreter.get_signature_list())
    if sorted(given) != sorted(names) and len(signatures) == 1:
        runner = interpreter.get_signature_runner(signatures[0])
        by_index = {detail["index"]: name for name, detail in runner.get_output_details().items()}
        given = [by_index.get(detail["index"], "") for detail in details]
    if sorted(given) != sorted(names):
        given = names
    arrays = (interpreter.get_tensor(detail["index"]) for detail in details)
    return dict(zip(given, arrays, strict=True))


def error_of(expected: Array, array: Array, layout: str | None, step: float, spread: float) -> tuple[str, float]:
    """Return the verdict on one output and its largest difference as a part of the largest value."""
    readings = stored_candidates(array, list(expected.shape), layout, back=True)
    fitting = [reading for reading in readings if reading.shape == expected.shape]
    if not fitting:
        return "wrong", math.inf
    if expected.dtype.kind in "iub":
        error, largest = min(float(np.mean(expected != reading)) for reading in fitting), 1.0
        allowed = 0.0
    else:
        real = expected.astype(np.float64)
        error = min(distance(real, reading.astype(np.float64)) for reading in fitting)
        largest = float(np.abs(real[np.isfinite(real)]).max(initial=0)) or 1.0
        allowed = max(1.01 * step, 1e-4 * largest + 1e-6)
    limit = max(CLOSE * largest, CLOSE_STEPS * 1.01 * step, 2 * spread)
    verdict = "right" if error <= allowed else "close" if error <= limit else "wrong"
    return verdict, error / largest


def by_kernels(path: str, kernels: OpResolverType, source: SimpleNamespace, layouts: Layouts) -> dict[str, Any]:
    """Run a result with one set of LiteRT's kernels and compare every output."""
    try:
        interpreter = Interpreter(path, num_threads=1, experimental_op_resolver_type=kernels)
        interpreter.allocate_tensors()
        arrays = result_feeds(interpreter, source.feeds, layouts)
        for detail, array in zip(interpreter.get_input_details(), arrays, strict=True):
            interpreter.set_tensor(detail["index"], array)
        interpreter.invoke()
        outputs = outputs_by_name(interpreter, list(source.outputs))
    except (RuntimeError, ValueError) as error:
        return {"verdict": "does not run", "why": first_line(error)}
    if len(outputs) != len(source.outputs):
        return {"verdict": "wrong", "why": f"{len(outputs)} of {len(source.outputs)} outputs"}
    judged = [
        error_of(expected, outputs[name], layouts.get(name), source.steps.get(name, 0.0), source.spread.get(name, 0.0))
        for name, expected in source.outputs.items()
    ]
    worst = max(error for _, error in judged)
    verdicts = [verdict for verdict, _ in judged]
    verdict = next(v for v in ("wrong", "close", "right") if v in verdicts)
    return {"verdict": verdict, "error": worst if math.isfinite(worst) else None}


class Graph:
    """The operators of a result as LiteRT runs them, with the shapes that they have in a run."""

    def __init__(self, path: str, feeds: dict[str, Array], layouts: Layouts) -> None:
        interpreter = Interpreter(
            path, num_threads=1, experimental_op_resolver_type=PLAIN, experimental_preserve_all_tensors=True
        )
        interpreter.allocate_tensors()
        arrays = result_feeds(interpreter, feeds, layouts)
        for detail, array in zip(interpreter.get_input_details(), arrays, strict=True):
            interpreter.set_tensor(detail["index"], array)
        interpreter.invoke()
        self.interpreter = interpreter
        self.operators = [op for op in interpreter._get_ops_details() if op["op_name"] != "DELEGATE"]
        self.computed = {int(detail["index"]) for detail in interpreter.get_input_details()}
        for operator in self.operators:
            if any(int(index) in self.computed for index in operator["inputs"]):
                self.computed.update(int(index) for index in operator["outputs"])

    def array(self, index: int) -> Array:
        return np.asarray(self.interpreter.get_tensor(int(index)))

    def moved_bytes(self) -> Iterator[tuple[str, int]]:
        """Yield the kind and the bytes of every operator that rearranges a computed tensor."""
        tests = {"TRANSPOSE": self._transposes, "GATHER": self._permutes, "CONCATENATION": self._interleaves}
        for operator in self.operators:
            kind, inputs = operator["op_name"], operator["inputs"]
            if kind in tests and any(int(index) in self.computed for index in inputs):
                result = self.array(operator["outputs"][0])
                if tests[kind]([int(index) for index in inputs], result):
                    yield kind, result.nbytes

    def _transposes(self, inputs: list[int], result: Array) -> bool:
        perm = self.array(inputs[1])
        longer = [axis for axis, extent in zip(perm.tolist(), result.shape, strict=True) if extent != 1]
        return longer != sorted(longer)

    def _permutes(self, inputs: list[int], result: Array) -> bool:
        if inputs[1] in self.computed:
            return False
        indices, source = self.array(inputs[1]).ravel().tolist(), self.array(inputs[0])
        count = len(indices)
        return count > 1 and result.size == source.size and indices != sorted(indices) == list(range(count))

    def _interleaves(self, inputs: list[int], result: Array) -> bool:
        parts = [self.array(index) for index in inputs]
        axes = [axis for axis, extent in enumerate(result.shape) if extent != parts[0].shape[axis]]
        if not axes or math.prod(result.shape[: axes[0]]) == 1:
            return False
        return any(math.prod(part.shape[axes[0] :]) * part.itemsize < SHORT_RUN for part in parts)


def judged(result: str, source: SimpleNamespace, layouts: Layouts) -> dict[str, Any]:
    verdicts = {name: by_kernels(result, kernels, source, layouts) for name, kernels in KERNELS.items()}
    found: dict[str, Any] = {"kernels": verdicts}
    try:
        graph = Graph(result, source.feeds, layouts)
    except (RuntimeError, ValueError) as error:
        return found | {"not_counted": first_line(error)}
    moves = list(graph.moved_bytes())
    kinds = sorted({kind for kind, _ in moves})
    return found | {
        "operators": len(graph.operators),
        "moves": {kind: sum(each == kind for each, _ in moves) for kind in kinds},
        "bytes": sum(size for _, size in moves),
    }


def judge(path: str, results: dict[str, Layouts]) -> dict[str, Any]:
    session, feeds = session_of(path), source_feeds(path)
    names = [put.name for put in session.get_outputs()]
    outputs = dict(zip(names, map(np.asarray, session.run(None, feeds)), strict=True))
    spread = own_spread(path, feeds, outputs) if is_quantized(path) else {}
    source = SimpleNamespace(feeds=feeds, outputs=outputs, steps=output_steps(path), spread=spread)
    return {result: judged(result, source, layouts) for result, layouts in results.items()}


def timed(rounds: int, path: str, results: dict[str, Layouts]) -> dict[str, list[float]]:
    """Return milliseconds of every round: the source in ONNX Runtime, the results in LiteRT, one thread each."""
    from latency import Row, take_turns

    session, feeds = session_of(path), source_feeds(path)
    runs: dict[str, Callable[[], Any]] = {path: lambda: session.run(None, feeds)}
    for result, layouts in results.items():
        runs[result] = litert_runner(result, result_feeds(Interpreter(result), feeds, layouts))
    row = Row(path, "", 1)
    take_turns(row, runs, rounds)
    return row.milliseconds


def with_layouts(arguments: list[str]) -> dict[str, Layouts]:
    parts = [argument.partition("=") for argument in arguments]
    return {path: json.loads(layouts or "{}") for path, _, layouts in parts}


def main(task: str, *arguments: str) -> None:
    if task == "static":
        print(json.dumps([path for path in arguments if is_static(path)]))
    elif task == "judge":
        found = judge(arguments[0], with_layouts([*arguments[1:]]))
        print(json.dumps({"quantized": is_quantized(arguments[0]), "results": found}))
    else:
        print(json.dumps(timed(int(arguments[0]), arguments[1], with_layouts([*arguments[2:]]))))


if __name__ == "__main__":
    main(*sys.argv[1:])
