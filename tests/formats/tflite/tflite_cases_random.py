"""Random numbers: what does not depend on the stream. Ranges, and moments so coarsely rounded that they are certain."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from tflite_cases import cases
from tflite_cases_tensorflow import left
from tflite_writing import Net, options

COUNT = (40, 50)


def rounded(net: Net, x: int, factor: float) -> int:
    """The mean of all numbers, times a factor, as a whole number."""
    net.op("MEAN", [x, net.const([0, 1], "int32")], [mean := net.tensor(())], options("ReducerOptions"))
    net.op("MUL", [mean, net.const(np.array(factor))], [more := net.tensor(())], options("MulOptions"))
    net.op("ROUND", [more], [whole := net.tensor(())])
    # Whole numbers near zero have a sign of their own.
    net.op("ABS", [whole], [y := net.output(())])
    return y


def extreme(net: Net, name: str, x: int) -> int:
    net.op(name, [x, net.const([0, 1], "int32")], [most := net.tensor(())], options("ReducerOptions"))
    return most


@cases("RANDOM_UNIFORM", "RANDOM_STANDARD_NORMAL")
def randoms() -> Iterator[Net]:
    for seed in (0, 7):
        for computed in (False, True):
            for name in ("RANDOM_UNIFORM", "RANDOM_STANDARD_NORMAL"):
                net = Net()
                net.input((1,))
                shape = net.const(COUNT, "int32")
                if computed:
                    table = options("ShapeOptions", outType=2)
                    net.op("SHAPE", [net.input(COUNT)], [shape := net.tensor((2,), "int32")], table)
                x = net.tensor(COUNT)
                net.op(name, [shape], [x], options("RandomOptions", seed=seed, seed2=seed))
                net.op("MUL", [x, x], [squares := net.tensor(COUNT)], options("MulOptions"))
                if name == "RANDOM_UNIFORM":
                    rounded(net, x, 10)  # 1/2, deviation 0.0065
                    rounded(net, squares, 9)  # 1/3
                    for end in ("REDUCE_MIN", "REDUCE_MAX"):
                        most = extreme(net, end, x)
                        net.op("MUL", [most, net.const(np.array(10))], [more := net.tensor(())], options("MulOptions"))
                        net.op("ROUND", [more], [net.output(())])
                else:
                    rounded(net, x, 4)  # 0, deviation 0.022
                    rounded(net, squares, 3)  # 1, deviation 0.032
                yield net


@cases("MULTINOMIAL")
def multinomials() -> Iterator[Net]:
    for large in (False, True):
        net = Net()
        # Large ones show whether exp(x) is taken as it is.
        logits = net.const([[-300, 300, -300], [300, -300, -300]]) if large else net.input((2, 3), low=-0.01, high=0.01)
        if large:
            net.input((1,))
        drawn = net.output((2, 600), "int32") if large else net.tensor((2, 600), "int32")
        net.op("MULTINOMIAL", [logits, net.const(np.array(600), "int32")], [drawn], options("RandomOptions", seed=3))
        if not large:
            net.op("CAST", [drawn], [real := net.tensor((2, 600))], options("CastOptions"))
            rounded(net, real, 2)  # 1, deviation 0.024
        yield net


@cases("CUSTOM FlexRandomUniform", "CUSTOM FlexRandomStandardNormal", "CUSTOM FlexMultinomial")
def flex_randoms() -> Iterator[Net]:
    for name, factor, mean in (("RandomUniform", 10, 5), ("RandomStandardNormal", 4, 0)):
        net = Net()
        net.input((1,))
        left(net, name, [net.const(COUNT, "int32")], [drawn := net.tensor(COUNT)], seed=7, seed2=1)
        rounded(net, drawn, factor)
        net.expected = lambda _, mean=mean: np.float32(mean)
        yield net
    for kind in ("int32", "int64"):
        net = Net()
        logits = net.input((2, 3), low=-0.01, high=0.01)
        left(net, "Multinomial", [logits, net.const(np.array(600), "int32")], [drawn := net.tensor((2, 600), kind)])
        net.op("CAST", [drawn], [real := net.tensor((2, 600))], options("CastOptions"))
        rounded(net, real, 2)
        net.expected = lambda _: np.float32(2)
        yield net
