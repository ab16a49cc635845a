"""Random convolutions, transposed convolutions and pools, of every mix of borders, steps and groups."""

from __future__ import annotations

import random

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

Feed = dict[str, NDArray[np.generic]]


def window_model(seed: int) -> tuple[onnx.ModelProto, Feed]:
    """Return a model of one or two operators with windows, and an input; the same for the same seed."""
    made = _Windows(seed)
    return made.model(), {"x": made.numbers.standard_normal(made.extents).astype(np.float32)}


class _Windows:
    def __init__(self, seed: int) -> None:
        self.rng, self.numbers = random.Random(f"windows {seed}"), np.random.default_rng(seed)
        self.axes = self.rng.choice((1, 2, 2, 2, 3))
        most = {1: 12, 2: 9, 3: 6}[self.axes]
        self.group = self.rng.choice((1, 1, 1, 2, 3))
        self.channels = self.group * self.rng.choice((1, 1, 2, 4))
        spatial = [self.rng.randint(3, most) for _ in range(self.axes)]
        self.extents = [self.rng.choice((1, 1, 2)), self.channels, *spatial]
        self.constants: list[onnx.TensorProto] = []

    def model(self) -> onnx.ModelProto:
        kind = self.rng.choice(("Conv", "Conv", "ConvTranspose", "MaxPool", "AveragePool", "AveragePool", "LpPool"))
        attributes = self.window(kind)
        names = ["x"]
        if kind in ("Conv", "ConvTranspose"):
            names += self.weights(kind, attributes)
        node = helper.make_node(kind, names, ["y"], name="window", **attributes)
        nodes = [node]
        result = "y"
        if self.rng.random() < 0.3:
            nodes.append(helper.make_node(self.rng.choice(("Relu", "Sigmoid", "Abs")), ["y"], ["z"], name="after"))
            result = "z"
        graph = helper.make_graph(
            nodes,
            "windows",
            [helper.make_tensor_value_info("x", 1, self.extents)],
            [helper.make_tensor_value_info(result, 1, None)],
            self.constants,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)

    def window(self, kind: str) -> dict[str, object]:
        rng, axes = self.rng, range(self.axes)
        sizes = [rng.randint(1, min(3, self.extents[2 + axis])) for axis in axes]
        found: dict[str, object] = {"kernel_shape": sizes}
        if rng.random() < 0.7:
            found["strides"] = [rng.randint(1, 3) for _ in axes]
        auto = rng.choice(("", "", "", "SAME_UPPER", "SAME_LOWER", "VALID"))
        # ONNX Runtime leaves dilations out when it counts the border of a pool by itself.
        if rng.random() < 0.35 and not (auto.startswith("SAME") and kind.endswith("Pool")):
            found["dilations"] = [rng.randint(1, 2) for _ in axes]
        if auto:
            found["auto_pad"] = auto
        elif rng.random() < 0.8:
            begins = [rng.randint(0, size - 1) for size in sizes]
            ends = list(begins) if rng.random() < 0.5 else [rng.randint(0, size - 1) for size in sizes]
            found["pads"] = [*begins, *ends]
        if kind.endswith("Pool"):
            if auto.startswith("SAME") and max(found.get("strides", [1])) > min(sizes):
                del found["auto_pad"]  # ONNX Runtime counts a border of less than none
            if rng.random() < 0.5:
                found["ceil_mode"] = 1
            if kind == "AveragePool" and rng.random() < 0.5:
                found["count_include_pad"] = 1
            if kind == "LpPool":
                found["p"] = rng.choice((1, 2, 3))
        else:
            found["group"] = self.group
        strides = found.get("strides", [1] * self.axes)
        assert isinstance(strides, list)
        if kind == "ConvTranspose" and rng.random() < 0.4:
            found["output_padding"] = [rng.randint(0, stride - 1) for stride in strides]
        return found

    def weights(self, kind: str, attributes: dict[str, object]) -> list[str]:
        sizes = attributes["kernel_shape"]
        assert isinstance(sizes, list)
        part = self.rng.choice((1, 2, 3))
        per_group = self.channels // self.group
        shape = [self.group * part, per_group, *sizes] if kind == "Conv" else [self.channels, part, *sizes]
        self.constant("w", self.numbers.standard_normal(shape).astype(np.float32))
        if self.rng.random() < 0.5:
            return ["w"]
        self.constant("b", self.numbers.standard_normal(self.group * part).astype(np.float32))
        return ["w", "b"]

    def constant(self, name: str, array: NDArray[np.float32]) -> None:
        self.constants.append(numpy_helper.from_array(array, name))
