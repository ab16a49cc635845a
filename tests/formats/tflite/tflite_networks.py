"""Random networks of the operators that the importer writes otherwise for the sake of their neighbours.

Convolutions, pools, borders, sums and products of images, in any order, read once or twice, seen in the middle or not;
integers with any scales and zero points, halves, weights of 8 bits beside real numbers. Every result's scale is chosen
from what LiteRT makes of the network so far without it, so that a step of rounding stays about a step.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tflite_writing import Net, Scale, options

Random = np.random.Generator
KINDS = ("int8", "int8", "int8", "uint8", "float32", "float16", "hybrid")
SPREAD = 3.0
"""Of the real numbers of every image, about; its standard deviation is a third of that."""


class Network(Net):
    """A network under construction; `images` are what the next operator may read: tensor, shape, parameters."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = np.random.default_rng([977, seed])
        self.kind = self.pick(*KINDS)
        self.whole = self.kind in ("int8", "uint8")
        self.type = self.kind if self.whole else "float32"
        n, c = int(self.random.integers(1, 3)), self.pick(3, 3, 4, 16, 24)
        h, w = (self.pick(8, 9, 10, 12) for _ in range(2))
        self.open = self.chance(0.2)
        q = self.scale(2.0)
        x = self.input((n, h, w, c), self.type, q=q, signature=self.signature((n, h, w, c)))
        self.images: list[tuple[int, tuple[int, ...], Scale | None]] = [(x, (n, h, w, c), q)]
        self.shared: dict[tuple[int, ...], int] = {}

    def pick(self, *choices: Any) -> Any:
        return choices[int(self.random.integers(len(choices)))]

    def chance(self, of: float) -> bool:
        return bool(self.random.random() < of)

    def signature(self, shape: tuple[int, ...]) -> tuple[int, ...] | None:
        return (-1, -1, -1, *shape[3:]) if self.open and len(shape) == 4 else None

    def scale(self, reach: float) -> Scale | None:
        """Parameters of numbers up to about `reach`."""
        if not self.whole:
            return None
        zero = int(self.random.integers(-60, 60)) + (128 if self.kind == "uint8" else 0)
        if self.chance(0.3):
            zero = 0 if self.kind == "uint8" else -128
        away = max(zero, 255 - zero) if self.kind == "uint8" else max(zero + 128, 127 - zero)
        return Scale(float(np.float32(reach / max(away / 2, 100) * self.random.uniform(0.9, 1.3))), zero)

    # Constants.

    def real(self, values: Any) -> int:
        """Real numbers, halves behind a DEQUANTIZE in some networks."""
        if self.kind != "float16":
            return self.const(values)
        narrow, wide = self.const(values, "float16"), self.tensor(np.shape(values))
        self.op("DEQUANTIZE", [narrow], [wide], version=3)
        return wide

    def kernel(self, shape: tuple[int, ...], axis: int, fan: int) -> tuple[int, Any]:
        """Weights that keep the spread of what they are multiplied with; and their steps, one or one for each unit."""
        step = 3.0 / 127 / np.sqrt(fan)
        units = shape[axis]
        if self.kind in ("float32", "float16"):
            return self.real(self.random.normal(0, 1 / np.sqrt(fan), shape)), None
        wide = self.kind != "uint8" and (self.chance(0.7) or (axis == 3 and self.kind == "hybrid"))
        steps = np.float32(step * (self.random.uniform(0.5, 1.5, units) if wide else np.ones(1)))
        zero = int(self.random.integers(100, 150)) if self.kind == "uint8" else 0
        values = np.clip(self.random.normal(0, 42, shape), -99, 99).astype(int) + zero
        q = Scale(steps.tolist(), zero, axis)
        return self.const(values, "uint8" if self.kind == "uint8" else "int8", q=q), steps

    def bias(self, units: int, q: Scale | None, steps: Any) -> int:
        """A bias, now and then in steps of another product, or another operator's."""
        if q is None or steps is None:
            return self.real(self.random.normal(0, 0.5, units))
        if (units, steps.size) in self.shared and self.chance(0.3):
            return self.shared[units, steps.size]
        product = np.float32(q.scale) * steps
        values = self.random.normal(0, 0.5, units) / product
        stated = product * (self.pick(1, 1, 1, 100) if self.kind == "int8" else 1)
        made = self.const(np.rint(values), "int32", q=Scale(stated.tolist()))
        if self.kind == "int8":  # kernels of uint8 refuse steps of another product
            self.shared.setdefault((units, steps.size), made)
        return made

    # Images.

    def image(self) -> tuple[int, tuple[int, ...], Scale | None]:
        """What an operator reads: the last image most of the time."""
        return self.images[-1] if self.chance(0.75) else self.pick(*self.images)

    def add(
        self,
        name: str,
        operands: list[int],
        shape: tuple[int, ...],
        table: Any = None,
        *,
        q: Any = "own",
        version: int = 2,
    ) -> int:
        """One more operator and its result."""
        q = self.scale(SPREAD) if isinstance(q, str) else q
        y = self.tensor(shape, self.type, q=q, signature=self.signature(shape))
        self.op(name, operands, [y], table, version=version)
        self.images.append((y, shape, q))
        return y

    def fused(self) -> int:
        return self.pick(0, 0, 0, 1, 3)

    def convolution(self) -> None:
        x, (n, h, w, c), q = self.image()
        depthwise, same = self.chance(0.4), self.chance(0.6)
        kh, kw = (self.pick(1, 2, 3, 3, 5) for _ in range(2))
        sh, sw = self.pick((1, 1), (1, 1), (2, 2), (2, 1), (3, 3))
        dh, dw = self.pick((1, 1), (1, 1), (1, 1), (2, 2)) if (sh, sw) == (1, 1) else (1, 1)
        if not same and ((kh - 1) * dh >= h or (kw - 1) * dw >= w):
            same = True
        out = [
            -(-e // s) if same else (e - (k - 1) * d - 1) // s + 1 for e, k, s, d in ((h, kh, sh, dh), (w, kw, sw, dw))
        ]
        multiplier = self.pick(1, 1, 1, 2)
        units = c * multiplier if depthwise else self.pick(5, 8, 16, 16, 20, 24, 32)
        if depthwise:
            kernel, steps = self.kernel((1, kh, kw, units), 3, kh * kw)
        else:
            kernel, steps = self.kernel((units, kh, kw, c), 0, kh * kw * c)
        operands = [x, kernel, self.bias(units, q, steps)]
        table = options(
            "DepthwiseConv2DOptions" if depthwise else "Conv2DOptions",
            padding=0 if same else 1,
            strideH=sh,
            strideW=sw,
            dilationHFactor=dh,
            dilationWFactor=dw,
            fusedActivationFunction=self.fused(),
        )
        if depthwise:
            table.depthMultiplier = multiplier
        self.add("DEPTHWISE_CONV_2D" if depthwise else "CONV_2D", operands, (n, *out, units), table, version=3)

    def separable(self) -> None:
        """A convolution to any number of channels, a depthwise one, and one behind it."""
        x, (n, h, w, c), q = self.image()
        units = self.pick(9, 16, 20, 24, 33)
        one, own = options("Conv2DOptions", strideH=1, strideW=1), self.fused()
        kernel, steps = self.kernel((units, 1, 1, c), 0, c)
        self.add("CONV_2D", [x, kernel, self.bias(units, q, steps)], (n, h, w, units), one, version=3)
        x, shape, q = self.images[-1]
        kernel, steps = self.kernel((1, 3, 2, units), 3, 6)
        table = options("DepthwiseConv2DOptions", strideH=1, strideW=1, depthMultiplier=1, fusedActivationFunction=own)
        self.add("DEPTHWISE_CONV_2D", [x, kernel, self.bias(units, q, steps)], shape, table, version=3)
        if self.chance(0.3):
            self.pair()
        x, shape, q = self.images[-1]
        kernel, steps = self.kernel((8, 1, 1, shape[3]), 0, shape[3])
        self.add("CONV_2D", [x, kernel, self.bias(8, q, steps)], (*shape[:3], 8), one, version=3)

    def stem(self) -> None:
        """A first convolution of a few channels, in steps of two."""
        x, (n, h, w, c), q = self.images[0]
        same, units = self.chance(0.5), self.pick(16, 32)
        if self.chance(0.3):
            h, w = h + 1, w + 1
            amounts = self.const(self.pick([[0, 0], [0, 1], [0, 1], [0, 0]], [[0, 0], [1, 0], [1, 0], [0, 0]]), "int32")
            x, same = self.add("PAD", [x, amounts], (n, h, w, c), options("PadOptions"), q=q), False
        kh, kw = (self.pick(2, 3, 5) for _ in range(2))
        out = [-(-e // 2) if same else (e - k) // 2 + 1 for e, k in ((h, kh), (w, kw))]
        kernel, steps = self.kernel((units, kh, kw, c), 0, kh * kw * c)
        more = {"padding": 0 if same else 1, "strideH": 2, "strideW": 2, "fusedActivationFunction": self.fused()}
        operands = [x, kernel, self.bias(units, q, steps)]
        self.add("CONV_2D", operands, (n, *out, units), options("Conv2DOptions", **more), version=3)

    def normalized(self) -> None:
        """A factor and a summand for each channel, an activation, and a convolution or a pool."""
        x, shape, _ = self.image()
        rows = self.pick((shape[3],), (1, 1, 1, shape[3]))
        for name in ("MUL", "ADD"):
            table = options(f"{name.capitalize()}Options", fusedActivationFunction=self.fused() if name == "ADD" else 0)
            x = self.add(name, self.pick([x, row := self.row(rows)], [row, x]), shape, table)
            if self.chance(0.1):
                self.graph.outputs.append(x)
        if self.chance(0.5):
            x = self.add("HARD_SWISH", [x], shape, version=1)
        q = self.images[-1][2]
        kernel, steps = self.kernel((16, 1, 1, shape[3]), 0, shape[3])
        table = options("Conv2DOptions", strideH=1, strideW=1)
        self.add("CONV_2D", [x, kernel, self.bias(16, q, steps)], (*shape[:3], 16), table, version=3)

    def row(self, shape: tuple[int, ...]) -> int:
        """A constant beside an image."""
        numbers, q = self.random.normal(0, 1, shape), self.scale(2.0)
        if q is None:
            return self.real(numbers)
        low, high = (0, 255) if self.kind == "uint8" else (-128, 127)
        return self.const(np.clip(np.rint(numbers / q.scale) + q.zero, low, high), self.type, q=q)

    def bordered(self) -> None:
        """A border, and windows that have none of their own."""
        self.border()
        x, (n, h, w, c), q = self.images[-1]
        if h < 5 or w < 5:
            return
        name, stride, window = (
            self.pick("CONV_2D", "MAX_POOL_2D", "AVERAGE_POOL_2D"),
            self.pick(1, 2),
            self.pick(2, 3, 5),
        )
        out = [(e - window) // stride + 1 for e in (h, w)]
        more = {"padding": 1, "strideH": stride, "strideW": stride, "fusedActivationFunction": self.fused()}
        if name == "CONV_2D":
            kernel, steps = self.kernel((16, window, window, c), 0, window * window * c)
            operands = [x, kernel, self.bias(16, q, steps)]
            self.add(name, operands, (n, *out, 16), options("Conv2DOptions", **more), version=3)
        else:
            table = options("Pool2DOptions", filterHeight=window, filterWidth=window, **more)
            self.add(name, [x], (n, *out, c), table, q=q)

    def transposed(self) -> None:
        x, (n, h, w, c), q = self.image()
        if self.open or h * w > 100:
            return
        stride, same, units = self.pick(2, 2, 3), self.chance(0.5), self.pick(5, 16, 24)
        kh, kw = (self.pick(2, 3, 4) for _ in range(2))
        out = [e * stride if same else (e - 1) * stride + max(k, stride) for e, k in ((h, kh), (w, kw))]
        kernel, steps = self.kernel((units, kh, kw, c), 0, max(1, kh * kw * c // stride**2))
        operands = [self.const([n, *out, units], "int32"), kernel, x]
        operands += [self.bias(units, q, steps)] if self.chance(0.8) else []
        table = options(
            "TransposeConvOptions",
            padding=0 if same else 1,
            strideH=stride,
            strideW=stride,
            fusedActivationFunction=self.fused(),
        )
        self.add("TRANSPOSE_CONV", operands, (n, *out, units), table, version=4)

    def border(self) -> None:
        x, (n, h, w, c), q = self.image()
        around = self.random.integers(0, 3, (2, 2))
        amounts = self.const([[0, 0], *around.tolist(), [0, 0]], "int32")
        shape = (n, int(h + around[0].sum()), int(w + around[1].sum()), c)
        if self.chance(0.6):
            self.add("PAD", [x, amounts], shape, options("PadOptions"), q=q)
            return
        number = 0.0 if self.chance(0.5) else -1.0
        if q is None:
            value = self.const(np.float32(number))
        else:
            low, high = (0, 255) if self.kind == "uint8" else (-128, 127)
            zero = int(np.clip(q.zero if number == 0 else q.zero - 20, low, high))
            value = self.const(zero, self.type, q=q)
        self.add("PADV2", [x, amounts, value], shape, options("PadV2Options"), q=q)

    def pool(self) -> None:
        x, (n, h, w, c), q = self.image()
        name, same = self.pick("MAX_POOL_2D", "AVERAGE_POOL_2D"), self.chance(0.4)
        kh, kw = (self.pick(1, 2, 2, 3) for _ in range(2))
        stride = self.pick(1, 2, 2)
        if kh > h or kw > w:
            same = True
        out = [-(-e // stride) if same else (e - k) // stride + 1 for e, k in ((h, kh), (w, kw))]
        table = options(
            "Pool2DOptions",
            padding=0 if same else 1,
            filterHeight=kh,
            filterWidth=kw,
            strideH=stride,
            strideW=stride,
            fusedActivationFunction=self.fused(),
        )
        self.add(name, [x], (n, *out, c), table, q=q)

    def unary(self) -> None:
        x, shape, _ = self.image()
        name = self.pick("HARD_SWISH", "LOGISTIC", "RELU", "RELU6", "TANH", "LEAKY_RELU", "ABS")
        fixed: Any = "own"
        if self.whole and name in ("LOGISTIC", "TANH"):
            low, middle = (0, 128) if self.kind == "uint8" else (-128, 0)
            fixed = Scale(1 / 256, low) if name == "LOGISTIC" else Scale(1 / 128, middle)
        if self.kind == "uint8" and name == "ABS":
            return
        table = options("LeakyReluOptions", alpha=0.2) if name == "LEAKY_RELU" else None
        self.add(name, [x], shape, table, q=fixed, version=1)

    def constants(self) -> None:
        """A product or a sum with a constant for each channel, or both."""
        names = self.pick(("MUL",), ("ADD",), ("MUL", "ADD"), ("MUL", "ADD"), ("SUB",))
        for name in names:
            x, shape, _ = self.images[-1] if name != names[0] else self.image()
            rows = self.pick((shape[3],), (1, 1, 1, shape[3]), (1, shape[3]), (1,), ())
            row = self.row(rows)
            operands = [x, row] if self.chance(0.7) or name == "SUB" else [row, x]
            table = options(f"{name.capitalize()}Options", fusedActivationFunction=self.fused() if name == "ADD" else 0)
            self.add(name, operands, shape, table)

    def pair(self) -> None:
        """A sum or product of two images, or of an image and one pixel of each."""
        x, shape, _ = self.image()
        fits = [i for i in self.images if i[1] == shape or i[1] == (shape[0], 1, 1, shape[3])]
        other, _, _ = self.pick(*fits)
        name = self.pick("ADD", "MUL", "SUB")
        operands = [x, other] if name == "SUB" or self.chance(0.5) else [other, x]
        self.add(name, operands, shape, options(f"{name.capitalize()}Options", fusedActivationFunction=self.fused()))

    def excited(self) -> None:
        """The mean over height and width, a convolution of it, and its product with what it is of."""
        x, (n, h, w, c), _ = self.image()
        axes = self.const(self.pick([1, 2], [2, 1], [-3, -2]), "int32")
        self.add("MEAN", [x, axes], (n, 1, 1, c), options("ReducerOptions", keepDims=True))
        mean, _, q = self.images[-1]
        kernel, steps = self.kernel((c, 1, 1, c), 0, c)
        operands = [mean, kernel, self.bias(c, q, steps)]
        self.add("CONV_2D", operands, (n, 1, 1, c), options("Conv2DOptions", strideH=1, strideW=1), version=3)
        self.add("MUL", [x, self.images[-1][0]], (n, h, w, c), options("MulOptions"))

    def joined(self) -> None:
        x, shape, q = self.image()
        fits = [i for i in self.images if i[1][:3] == shape[:3] and i[2] == q]
        other, theirs, _ = self.pick(*fits)
        table = options("ConcatenationOptions", axis=self.pick(3, -1))
        self.add("CONCATENATION", [x, other], (*shape[:3], shape[3] + theirs[3]), table, q=q)

    def requantized(self) -> None:
        x, shape, _ = self.image()
        if self.whole:
            self.add("QUANTIZE", [x], shape, options("QuantizeOptions"))


STEPS = (
    ("convolution", 8),
    ("separable", 3),
    ("bordered", 2),
    ("stem", 2),
    ("normalized", 2),
    ("transposed", 2),
    ("border", 3),
    ("pool", 2),
    ("unary", 2),
    ("constants", 3),
    ("pair", 2),
    ("excited", 1),
    ("joined", 1),
    ("requantized", 1),
)


def network(seed: int) -> Network:
    """The network of one seed: up to eight operators; the last image is an output, and now and then others are."""
    net = Network(seed)
    chances = np.array([weight for _, weight in STEPS], float)
    if net.images[0][1][3] == 3 and net.chance(0.6):
        net.stem()
    for _ in range(int(net.random.integers(2, 9))):
        name = STEPS[int(net.random.choice(len(STEPS), p=chances / chances.sum()))][0]
        getattr(net, name)()
    if len(net.images) == 1:
        net.convolution()
    made = [index for index, _, _ in net.images[1:]]
    read = {i for operator in net.graph.operators for i in operator.inputs}
    seen = set(net.graph.outputs)
    net.graph.outputs = [i for i in made if i not in read or i in seen or net.chance(0.05)]
    return net
