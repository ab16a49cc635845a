"""Scale a network's random weights until its outputs depend on its inputs: what a comparison of values needs.

    python bench/lively.py IN.onnx OUT.onnx

Freshly initialized networks often shrink what they are fed with every layer: behind fifty of them the output is the
last bias, and a wrong graph gives it, too. Each layer's weights are divided by what the layer makes of the standard
deviation of its input, a few times over, since layers are not linear together.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np
import onnx
from counting import Array, session_of
from judge_optimized import difference, inputs_of
from onnx import numpy_helper

LAYERS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
ALIVE = 0.02
"""What two different inputs change of the outputs, as a part of the largest value."""
ROUNDS = 40


def layers(graph: onnx.GraphProto) -> Iterator[tuple[str, str, str]]:
    """Input, weights and output of every layer whose weights are floats of its own."""
    weights = {tensor.name for tensor in graph.initializer if tensor.data_type == onnx.TensorProto.FLOAT}
    for node in graph.node:
        if node.op_type in LAYERS and node.input[1] in weights:
            yield node.input[0], node.input[1], node.output[0]


def sensitivity(model: onnx.ModelProto) -> float:
    """How far outputs are apart for two inputs, in parts of the largest value."""
    session = session_of(model)
    names = [put.name for put in session.get_outputs()]
    return difference(*(session.run(names, inputs_of(session, seed)) for seed in (3, 4)))


def deviations(model: onnx.ModelProto, names: list[str]) -> dict[str, float]:
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    known = {put.name for put in (*shown.graph.output, *shown.graph.input)}
    shown.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in known)
    session = session_of(shown)
    fed = inputs_of(session)
    asked = [name for name in names if name not in fed]
    found: dict[str, Array] = fed | dict(zip(asked, session.run(asked, fed), strict=True))
    return {name: float(np.std(found[name].astype(np.float64))) for name in names}


def enliven(model: onnx.ModelProto) -> float:
    """Scale the weights in place until the outputs depend on the inputs; how much they do."""
    found = list(layers(model.graph))
    reached, best = 0.0, (sensitivity(model), model.SerializeToString())
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    for _ in range(ROUNDS):
        reached = sensitivity(model)
        best = max(best, (reached, model.SerializeToString()), key=lambda pair: pair[0])
        if reached >= ALIVE:
            break
        spread = deviations(model, list(dict.fromkeys(name for given, _, made in found for name in (given, made))))
        for name in dict.fromkeys(name for _, name, _ in found):
            # Towards 1 for what the layer gives, but no more than the layer itself is short of.
            made = [spread[made] for _, weights, made in found if weights == name]
            given = [spread[given] for given, weights, _ in found if weights == name]
            gain = max(made) / max(max(given), 1e-30)
            factor = np.clip(1 / max(gain, 1e-30), 0.1, 20) * np.clip(1 / max(max(given), 1e-30), 0.5, 2)
            array = numpy_helper.to_array(tensors[name])
            tensors[name].CopyFrom(numpy_helper.from_array((array * factor).astype(array.dtype), name))
    if reached < ALIVE:
        model.ParseFromString(best[1])
    return best[0]


def main() -> None:
    source, target = sys.argv[1:]
    model = onnx.load(source)
    before, after = sensitivity(model), enliven(model)
    onnx.save(model, target)
    print(f"{source}: {before:.1e} -> {after:.1e}", flush=True)


if __name__ == "__main__":
    main()
