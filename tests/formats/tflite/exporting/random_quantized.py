"""Random graphs between DequantizeLinear and QuantizeLinear, with other operators on the raw integers between them."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from products import in_full

Feed = dict[str, NDArray[np.generic]]
RANGES = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-32768, 32767), "uint16": (0, 65535)}
KINDS = {"int8": np.int8, "uint8": np.uint8, "int16": np.int16, "uint16": np.uint16}
TYPES = {kind: onnx.TensorProto.DataType.Value(kind.upper()) for kind in KINDS}
WORDS = ("int16", "uint16")


class Integers(NamedTuple):
    """A value of integers, and what they mean."""

    name: str
    kind: str
    scale: str
    zero: str
    shape: tuple[int, ...]


def quantized_model(seed: int) -> tuple[onnx.ModelProto, Feed]:
    """Return a quantized model and an input; the same for the same seed."""
    made = _Quantized(seed)
    return made.model(3 + seed % 7), made.feed


class _Quantized:
    def __init__(self, seed: int) -> None:
        self.rng, self.numbers = random.Random(f"quantized {seed}"), np.random.default_rng(seed)
        kinds = (
            ("int8",),
            ("uint8",),
            ("int8", "uint8"),
            ("int16",),
            ("int8", "int16"),
            ("uint16",),
            ("uint8", *WORDS),
        )
        self.kinds = self.rng.choice(kinds)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.values: list[Integers] = []
        self.feed: Feed = {}
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: dict[str, int] = {}
        self.count = 0
        for _ in range(self.rng.choice((1, 1, 2))):
            self.add_input()

    def name(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def constant(self, array: NDArray[Any]) -> str:
        name = self.name("c")
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def node(self, kind: str, inputs: list[str], count: int = 1, **attributes: Any) -> list[str]:
        outputs = [self.name(kind.lower()) for _ in range(count)]
        self.nodes.append(helper.make_node(kind, inputs, outputs, name=outputs[0], **attributes))
        return outputs

    def scales(self, low: float, high: float, kind: str) -> tuple[str, str]:
        """Return the names of a scale and a zero point that hold a range."""
        low, high = min(low, 0.0), max(high, 0.0, low + 0.01)
        least, most = RANGES[kind]
        if self.rng.random() < (0.8 if kind in WORDS else 0.2):
            scale = max(-low, high, 0.01) / (most - (least + most + 1) // 2)
            zero = (least + most + 1) // 2
        else:
            scale = max(high - low, 0.01) / (most - least)
            zero = int(np.clip(round(least - low / scale), least, most))
        return self.constant(np.array(scale, np.float32)), self.constant(np.array(zero, KINDS[kind]))

    def add_input(self) -> None:
        shape = (self.rng.choice((1, 1, 2)), self.rng.choice((2, 4, 4, 6)), *(self.rng.choice((4, 5, 6)) for _ in "hw"))
        name, kind = self.name("x"), self.rng.choice(self.kinds)
        reals = self.numbers.standard_normal(shape).astype(np.float32)
        scale, zero = self.scales(-3, 3, kind)
        if self.rng.random() < 0.6:
            self.inputs.append(helper.make_tensor_value_info(name, 1, shape))
            self.feed[name] = reals
            (made,) = self.node("QuantizeLinear", [name, scale, zero])
        else:
            self.inputs.append(helper.make_tensor_value_info(name, TYPES[kind], shape))
            least, most = RANGES[kind]
            self.feed[name] = self.numbers.integers(least, most + 1, shape).astype(KINDS[kind])
            made = name
        self.values.append(Integers(made, kind, scale, zero, shape))

    def model(self, steps: int) -> onnx.ModelProto:
        done = 0
        for _ in range(steps * 4):
            if done < steps and self.step():
                done += 1
        read = {name for node in self.nodes for name in node.input}
        for value in self.values:
            if value.name not in read and value.name not in self.feed:
                self.finish(value)
        if not self.outputs:
            self.finish(self.values[-1])
        return self.built(self.outputs)

    def finish(self, value: Integers) -> None:
        if self.rng.random() < 0.4 and value.name not in self.feed:
            self.outputs[value.name] = TYPES[value.kind]
            return
        (real,) = self.node("DequantizeLinear", [value.name, value.scale, value.zero])
        if self.rng.random() < 0.3:
            (real,) = self.node(self.rng.choice(("Abs", "Neg", "Sigmoid")), [real])
        self.outputs[real] = 1

    def built(self, outputs: dict[str, int]) -> onnx.ModelProto:
        ends = [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()]
        graph = helper.make_graph(self.nodes, "quantized", self.inputs, ends, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)

    def run(self, names: list[str], kind: int) -> list[NDArray[Any]]:
        options = onnxruntime.SessionOptions()
        options.log_severity_level, options.intra_op_num_threads = 4, 1
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        model = self.built(dict.fromkeys(names, kind))
        session = onnxruntime.InferenceSession(in_full(model), options, ["CPUExecutionProvider"])
        found: list[NDArray[Any]] = session.run(names, self.feed)
        return found

    def step(self) -> bool:
        """Add a unit, or an operator on raw integers; return whether it was one that the runtime takes."""
        nodes, constants, known = len(self.nodes), len(self.constants), len(self.values)
        value = self.rng.choice(self.values[-3:])
        try:
            if self.rng.random() < 0.3:
                self.raw(value)
            else:
                self.unit(value)
        except Exception:
            del self.nodes[nodes:], self.constants[constants:], self.values[known:]
            return False
        return True

    # Operators on raw integers.

    def raw(self, value: Integers) -> None:
        names, attributes, results = self.moving(value, self.rng.choice(MOVES))
        outputs = self.node(names[0], [value.name, *names[1:]], results, **attributes)
        for name, array in zip(outputs, self.run(outputs, TYPES[value.kind]), strict=True):
            if not array.size:
                raise ValueError
            self.values.append(Integers(name, value.kind, value.scale, value.zero, array.shape))

    def moving(self, value: Integers, kind: str) -> tuple[list[str], dict[str, Any], int]:
        """Return an operator's name and operands besides the first, its attributes and how many results it has."""
        rng, rank, shape = self.rng, len(value.shape), value.shape
        axis = rng.randrange(rank)
        if kind == "Reshape":
            wanted = rng.choice(
                ([shape[0], -1], [0, -1, shape[-1]], [shape[0], shape[1], -1], [*shape[:-1], 1, shape[-1]])
            )
            return [kind, self.constant(np.array(wanted))], {}, 1
        if kind == "Transpose":
            return [kind], {"perm": rng.sample(range(rank), rank)}, 1
        if kind == "Slice":
            begin = rng.randrange(max(shape[axis] // 2, 1))
            ends = [self.constant(np.array([each])) for each in (begin, shape[axis], axis, rng.choice((1, 1, 2)))]
            return [kind, *ends], {}, 1
        if kind == "Split":
            if shape[axis] % 2:
                raise ValueError
            return [kind], {"axis": axis, "num_outputs": 2}, 2
        if kind == "Gather":
            places = self.numbers.integers(-shape[axis], shape[axis], 3)
            return [kind, self.constant(places)], {"axis": axis}, 1
        if kind == "MaxPool":
            pads = [rng.choice((0, 1)) for _ in "hw"] * 2
            return [kind], {"kernel_shape": [2, 2], "strides": [rng.choice((1, 2))] * 2, "pads": pads}, 1
        if kind == "Resize":
            scales = self.constant(np.array([1, 1, *[rng.choice((1, 2))] * (rank - 2)], np.float32))
            nearest = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor", "mode": "nearest"}
            return [kind, "", scales], nearest, 1
        if kind == "Concat":
            others = [each for each in self.values if each.shape == shape and each.kind == value.kind]
            return [kind, rng.choice(others).name], {"axis": axis}, 1
        if kind == "Pad":
            pads = [rng.randint(0, 1) for _ in range(2 * rank)]
            return [kind, self.constant(np.array(pads)), value.zero], {}, 1
        return [kind], {}, 1

    # Units.

    def real(self, value: Integers) -> str:
        return self.node("DequantizeLinear", [value.name, value.scale, value.zero])[0]

    def unit(self, value: Integers) -> None:
        kind = self.rng.choice(UNITS)
        results, attributes = 1, {}
        if kind in MOVES and kind not in ("Concat", "Pad"):
            names, attributes, results = self.moving(value, kind)
            inputs = [self.real(value), *names[1:]]
        else:
            inputs, attributes = self.operands(value, kind)
        outputs = self.node(kind, inputs, results, **attributes)
        if results == 1 and self.rng.random() < 0.3:
            if self.rng.random() < 0.5:
                outputs = self.node("Relu", outputs)
            else:
                bounds = [
                    self.constant(np.array(each, np.float32)) for each in self.rng.choice(((0, 6), (-1, 1), (-2, 3)))
                ]
                outputs = self.node("Clip", [outputs[0], *bounds])
        for name, array in zip(outputs, self.run(outputs, 1), strict=True):
            if not array.size:
                raise ValueError
            self.quantize(name, array, value)

    def quantize(self, name: str, array: NDArray[Any], value: Integers) -> None:
        kind, scale, zero = self.rng.choice(self.kinds), value.scale, value.zero
        if self.rng.random() < 0.35 and abs(array).max() < 6:
            kind = value.kind
        else:
            scale, zero = self.scales(float(array.min()), float(array.max()), kind)
        (made,) = self.node("QuantizeLinear", [name, scale, zero])
        self.values.append(Integers(made, kind, scale, zero, array.shape))
        extra = self.rng.random()
        if extra < 0.06:
            self.outputs[name] = 1
        elif extra < 0.12:
            self.outputs[made] = TYPES[kind]
        elif extra < 0.18:
            self.outputs[self.node("Abs", [name])[0]] = 1

    def operands(self, value: Integers, kind: str) -> tuple[list[str], dict[str, Any]]:
        rng, shape = self.rng, value.shape
        first = self.real(value)
        if kind in ("Conv", "ConvTranspose"):
            return self.convolution(value, first, kind)
        if kind in ("MatMul", "Gemm"):
            count = rng.choice((3, 4))
            if kind == "Gemm" and len(shape) != 2:
                raise ValueError
            weights = self.weights((shape[-1], count), 1, shape[-1], value.kind)
            inputs = [first, weights]
            if kind == "Gemm" and rng.random() < 0.6:
                inputs.append(self.constant(self.numbers.standard_normal(count).astype(np.float32)))
            return inputs, {}
        if kind in ("Add", "Sub", "Mul", "Max", "Min"):
            if rng.random() < 0.4:
                small = rng.choice(
                    (shape, (1,) * len(shape), tuple(s if a == 1 else 1 for a, s in enumerate(shape)), ())
                )
                other = self.integers(self.numbers.uniform(-2, 2, small), value.kind)
            else:
                other = self.real(rng.choice([each for each in self.values if each.shape == shape]))
            return ([first, other] if rng.random() < 0.8 else [other, first]), {}
        if kind == "Concat":
            others = [each for each in self.values if each.shape == shape]
            return [first, *(self.real(rng.choice(others)) for _ in range(rng.choice((1, 1, 2))))], {
                "axis": rng.randrange(len(shape))
            }
        if kind == "Pad":
            pads = [rng.randint(0, 1) for _ in range(2 * len(shape))]
            return [first, self.constant(np.array(pads))], {}
        if kind in ("ReduceMean", "ReduceMax", "ReduceMin"):
            axes = rng.choice(([2, 3], [1], [len(shape) - 1]))
            return [first, self.constant(np.array(axes))], {"keepdims": rng.choice((0, 1))}
        if kind == "AveragePool":
            pads = rng.choice(([0] * 4, [1] * 4, [0, 0, 1, 1]))
            return [first], {
                "kernel_shape": [2, 2],
                "strides": [rng.choice((1, 2))] * 2,
                "pads": pads,
                "count_include_pad": rng.choice((0, 0, 1)),
            }
        if kind in ("Softmax", "LogSoftmax"):
            return [first], {"axis": rng.choice((1, -1))}
        if kind == "LeakyRelu":
            return [first], {"alpha": rng.choice((0.1, 0.3))}
        if kind == "DepthToSpace":
            return [first], {"blocksize": 2, "mode": rng.choice(("DCR", "CRD"))}
        return [first], {}

    def convolution(self, value: Integers, first: str, kind: str) -> tuple[list[str], dict[str, Any]]:
        rng, channels = self.rng, value.shape[1]
        if len(value.shape) not in (3, 4):
            raise ValueError
        axes = len(value.shape) - 2
        group = rng.choice((1, 1, 2, channels))
        part = rng.choice((1, 2))
        sizes = [rng.randint(1, 3) for _ in range(axes)]
        per = channels // group
        shape = (group * part, per, *sizes) if kind == "Conv" else (channels, part, *sizes)
        inputs = [first, self.weights(shape, 0 if kind == "Conv" else 1, per * int(np.prod(sizes)), value.kind)]
        if rng.random() < 0.7:
            bias = self.numbers.standard_normal(group * part)
            inputs.append(
                self.bias(bias, value, inputs[1]) if rng.random() < 0.7 else self.constant(bias.astype(np.float32))
            )
        attributes: dict[str, Any] = {"group": group, "strides": [rng.choice((1, 2))] * axes}
        if rng.random() < 0.7:
            attributes["pads"] = [rng.randint(0, size - 1) for size in sizes] * 2
        return inputs, attributes

    def bias(self, bias: NDArray[Any], value: Integers, weights: str) -> str:
        """Return a bias in steps of the accumulators."""
        known = {tensor.name: numpy_helper.to_array(tensor) for tensor in self.constants}
        maker = next(node for node in self.nodes if weights in node.output)
        scale = (known[value.scale] * known[maker.input[1]]).astype(np.float32)
        array = np.rint(bias / scale).astype(np.int32)
        scale_name = self.constant(np.asarray(scale, np.float32))
        attributes = {"axis": 0} if scale.ndim else {}
        return self.node("DequantizeLinear", [self.constant(array), scale_name], **attributes)[0]

    def weights(self, shape: tuple[int, ...], axis: int, fan: int, beside: str) -> str:
        """Return dequantized constants, of one scale or of one per channel."""
        reals = self.numbers.standard_normal(shape) / max(fan, 1) ** 0.5
        kind = "int8" if beside == "int16" or self.rng.random() < 0.7 else "uint8"
        if kind == "uint8" or self.rng.random() < 0.4:
            return self.integers(reals, kind, symmetric=self.rng.random() < 0.6)
        others = tuple(each for each in range(len(shape)) if each != axis)
        scale = np.maximum(np.abs(reals).max(axis=others) / 127, 1e-3).astype(np.float32)
        spread = scale.reshape([-1 if each == axis else 1 for each in range(len(shape))])
        array = np.clip(np.rint(reals / spread), -127, 127).astype(np.int8)
        zero = self.constant(np.zeros(scale.shape, np.int8))
        return self.node("DequantizeLinear", [self.constant(array), self.constant(scale), zero], axis=axis)[0]

    def integers(self, reals: NDArray[Any], kind: str, *, symmetric: bool = False) -> str:
        """Return dequantized constants of one scale."""
        least, most = RANGES[kind]
        middle = (least + most + 1) // 2
        bound = max(float(np.abs(reals).max()), 0.01)
        scale = bound / (most - middle)
        zero = middle if symmetric or kind == "int16" else int(np.clip(middle + self.rng.randint(-20, 20), least, most))
        array = np.clip(np.rint(reals / scale) + zero, least, most).astype(KINDS[kind])
        names = [
            self.constant(np.asarray(each))
            for each in (array, np.array(scale, np.float32), np.array(zero, KINDS[kind]))
        ]
        return self.node("DequantizeLinear", names)[0]


MOVES = ("Reshape", "Transpose", "Slice", "Split", "Gather", "MaxPool", "Resize", "Concat", "Pad", "Identity")
UNITS = (
    *("Conv", "Conv", "Conv", "ConvTranspose", "MatMul", "Gemm", "Add", "Add", "Sub", "Mul", "Max", "Min", "Concat"),
    *("Pad", "ReduceMean", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "Softmax", "LeakyRelu", "DepthToSpace"),
    *("Relu", "Sigmoid", "Tanh", "HardSwish", "Reshape", "Transpose", "Slice", "Split", "Gather", "MaxPool", "Resize"),
    *("Elu", "Gelu", "LogSoftmax", "ReduceMax", "ReduceMin"),
)
