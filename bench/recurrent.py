"""Time of recurrent layers in LiteRT beside ONNX Runtime, and write a page of it: `python bench/recurrent.py`.

Each is one layer of as many elements as its inputs have, of a batch of 1, which gives all steps or its last state. Both
run on one thread, in turns. `dynamic` is the time of the file that `--quantize dynamic` writes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from tables import table, write_page

import relayout

PAGE = Path(__file__).parents[1] / "docs" / "recurrent-benchmark.md"
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
SIZES = ((32, 24), (32, 100), (64, 64), (128, 32), (128, 100), (128, 300), (256, 30), (256, 100), (512, 50))
"""Elements of the state, and steps."""
OPEN_SIZES = ((32, 100), (128, 100), (256, 100))
"""Layers of sequences of open length and batch."""
BOTH_SIZES = ((4, 33), (16, 33), (16, 100), (64, 64))
"""Layers of both directions."""
KINDS = {"all": SIZES, "all, open": OPEN_SIZES, "all, both": BOTH_SIZES, "last": SIZES, "last, open": OPEN_SIZES}
"""What is read, and what is known of a layer -> its sizes."""
ROUNDS, TURN = 9, 0.03
"""Turns of each runtime, and the seconds of each turn."""
Run = Callable[[], object]


def model_of(cell: str, hidden: int, steps: int | str, batch: int | str, kind: str = "all") -> onnx.ModelProto:
    """Return a recurrent layer with random weights."""
    rng, rows, directions = np.random.default_rng(hidden), GATES[cell] * hidden, 1 + ("both" in kind)
    shapes = {"w": (directions, rows, hidden), "r": (directions, rows, hidden), "b": (directions, 2 * rows)}
    arrays = {name: (rng.uniform(-1, 1, shape) / hidden**0.5).astype(np.float32) for name, shape in shapes.items()}
    attributes: dict[str, Any] = {"hidden_size": hidden} | ({"linear_before_reset": 1} if cell == "GRU" else {})
    attributes |= {"direction": "bidirectional"} if directions > 1 else {}
    node = helper.make_node(cell, ["x", *arrays], ["", "y"] if "last" in kind else ["y"], **attributes)
    shape = [directions, batch, hidden] if "last" in kind else [steps, directions, batch, hidden]
    ends = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, dims)
        for name, dims in (("x", [steps, batch, hidden]), ("y", shape))
    ]
    constants = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    graph = helper.make_graph([node], cell, ends[:1], ends[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def by_onnxruntime(model: onnx.ModelProto, x: Any) -> tuple[Run, Any]:
    """Return what runs a model, and its result."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, {"x": x}), session.run(None, {"x": x})[0]


def by_litert(content: bytes, x: Any) -> tuple[Run, Any]:
    """Return what runs a file, and its result."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_content=content, num_threads=1)
    place = interpreter.get_input_details()[0]["index"]
    interpreter.resize_tensor_input(place, x.shape)
    interpreter.allocate_tensors()
    interpreter.set_tensor(place, x)
    interpreter.invoke()
    return interpreter.invoke, interpreter.get_tensor(interpreter.get_output_details()[0]["index"])


def microseconds(runs: dict[str, Run]) -> dict[str, float]:
    """Return the time of each run: the median of turns that take place one after the other."""
    spent: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(ROUNDS):
        for name, run in runs.items():
            begin, count = time.process_time(), 0
            while time.process_time() - begin < TURN:
                run()
                count += 1
            spent[name].append((time.process_time() - begin) / count * 1e6)
    return {name: median(each) for name, each in spent.items()}


def measured(cell: str, hidden: int, steps: int, kind: str) -> dict[str, Any]:
    """Return a row: times, what stands in the file, and how far its numbers are from ONNX Runtime's."""
    model = model_of(cell, hidden, *(("t", "n") if "open" in kind else (steps, 1)), kind)
    x = np.random.default_rng(0).standard_normal((steps, 1, hidden)).astype(np.float32)
    result = relayout.convert(model, format="tflite")
    dynamic = relayout.convert(model, format="tflite", quantize="dynamic")
    runs, results = {}, {}
    runs["onnxruntime"], results["onnxruntime"] = by_onnxruntime(model, x)
    for name, each in (("litert", result), ("dynamic", dynamic)):
        assert each.tflite is not None
        runs[name], results[name] = by_litert(each.tflite, x)
    return {
        "loops": result.report.operators.get("WHILE", 0),
        "off": float(np.abs(results["litert"] - results["onnxruntime"]).max()),
        "dynamic_off": float(np.abs(results["dynamic"] - results["onnxruntime"]).max()),
        **microseconds(runs),
    }


def main() -> None:
    """Measure all, and write the page."""
    lines: list[list[str]] = []
    ratios: list[float] = []
    dynamic: list[float] = []
    for cell in GATES:
        for kind, sizes in KINDS.items():
            for hidden, steps in sizes:
                row = measured(cell, hidden, steps, kind)
                ratios.append(row["litert"] / row["onnxruntime"])
                dynamic.append(row["dynamic"] / row["onnxruntime"])
                name = f"{cell}, {hidden} × {steps}, {kind}"
                form = f"{row['loops']} WHILE" if row["loops"] else "steps"
                times = [f"{row[each]:,.0f}" for each in ("onnxruntime", "litert", "dynamic")]
                shares = [f"{each[-1]:.2f}" for each in (ratios, dynamic)]
                lines.append([name, form, *times, *shares, f"{row['off']:.0e} / {row['dynamic_off']:.0e}"])
                print(*lines[-1], flush=True)
    head = ["layer", "written as", "ONNX Runtime, µs", "LiteRT, µs", "dynamic, µs", "ratio", "of dynamic", "off"]
    write_page(PAGE, page(head, lines, ratios, dynamic))


def page(head: list[str], lines: list[list[str]], ratios: list[float], dynamic: list[float]) -> str:
    """Return the page."""
    return f"""<!-- made by bench/recurrent.py -->

# Measured: recurrent layers

A recurrent layer takes {median(ratios):.2f} of ONNX Runtime's time in LiteRT in the median of {len(ratios)}
({date.today().isoformat()}), {min(ratios):.2f} at least and {max(ratios):.2f} at most. Short sequences with small
weights are written step by step, others as WHILE. With `--quantize dynamic` the median is {median(dynamic):.2f}.

![Time of recurrent layers in LiteRT, ONNX Runtime's = 1](plots/recurrent-benchmark.svg)

{table(head, lines)}

- Processor time on one thread, of a batch of 1, in turns. `all`: the layer gives all steps; `last`: its last state.
- Off: the greatest difference from ONNX Runtime, of the float file and of the dynamic one.
- Open: length and batch are known only at run time. All of its steps are written by two loops, one inside the other.
- Both: both directions of a layer. Those of small states are one recurrence, whose state holds both.
- A round of a loop takes up to 8 steps of light weights. All results are written by several loops where their list is
  long, since a round copies the list of its loop.
- ONNX Runtime has kernels for whole layers. LiteRT's kernel for an LSTM takes 2 to 4 times their time, so relayout
  writes it for other targets, and for one row of open length and few elements.
"""


if __name__ == "__main__":
    main()
