"""Random networks of TensorFlow's operators as .tflite, in six number formats: what no network of people combines.

    python bench/make_random.py OUT [--networks 500] [--first 0]
    relayout convert OUT/*.tflite --out-dir RESULTS --jobs 2 --verify

Wants TensorFlow (2.19). Network n is always the same but for what TensorFlow's converter makes of it. An operator takes
some of the values that are there, mostly late ones; the last three values are outputs. Files that LiteRT does not run
either (an int16 SQUARED_DIFFERENCE, say) are refused by `--verify`, with its reason.
"""

from __future__ import annotations

import argparse
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

Tensor = Any
FORMATS = ("float", "float", "dynamic", "float16", "int8", "int8", "int8_float", "int16")
MOST_ELEMENTS, MOST_AXES = 6000, 5
STEPS = (4, 6, 8, 10, 12)
EXTENTS = (4, 5, 6, 7, 8, 9)
CHANNELS = (3, 4, 6, 8)


class Network:
    """A network while it grows."""

    def __init__(self, seed: int, inputs: list[Tensor]) -> None:
        self.random, self.numbers = random.Random(seed), np.random.default_rng(seed)
        self.values = list(inputs)

    def weights(self, *shape: int) -> Tensor:
        return tf.constant(self.numbers.normal(0, 0.5, shape).astype(np.float32))

    def one_of(self, *choices: Any) -> Any:
        return self.random.choice(choices)

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def pick(self, *ranks: int, such: Callable[[Tensor], bool] = lambda x: True) -> Tensor:
        """A value of one of these ranks (any, if none is given), late ones first.

        Raises:
            LookupError: there is none.
        """
        fit = [x for x in self.values if (not ranks or x.shape.rank in ranks) and such(x)]
        if not fit:
            raise LookupError
        return self.random.choice(fit[-4:] if self.chance(0.7) else fit)

    def activated(self, x: Tensor) -> Tensor:
        functions = (tf.identity, tf.nn.relu, tf.nn.relu6, tf.tanh, tf.sigmoid, tf.nn.gelu, tf.nn.leaky_relu)
        return self.one_of(*functions)(x)

    def axis(self, x: Tensor, first: int = 0) -> int:
        return self.random.randrange(first, x.shape.rank)

    def grow(self) -> None:
        """Take one more step, if the operator that it falls on finds what it takes."""
        try:
            made = self.random.choice(OPERATORS)(self)
        except LookupError:
            return
        for x in made if isinstance(made, list | tuple) else [made]:
            if 0 < int(np.prod(x.shape)) <= MOST_ELEMENTS and x.shape.rank <= MOST_AXES and x.dtype == tf.float32:
                self.values.append(x)


OPERATORS: list[Callable[[Network], Any]] = []


def step(times: int = 1) -> Callable[[Callable[[Network], Any]], Callable[[Network], Any]]:
    """Register an operator; it is taken so many times as often as another."""

    def register(function: Callable[[Network], Any]) -> Callable[[Network], Any]:
        OPERATORS.extend([function] * times)
        return function

    return register


def is_image(least: int) -> Callable[[Tensor], bool]:
    return lambda x: min(x.shape[1], x.shape[2]) >= least


@step(4)
def convolution(net: Network) -> Tensor:
    x = net.pick(4, such=is_image(3))
    height, width, made = net.one_of(1, 2, 3), net.one_of(1, 2, 3), net.one_of(3, 4, 5, 8)
    stride = net.one_of(1, 1, 2)
    dilation = net.one_of(1, 1, 2) if stride == 1 else 1
    padding = net.one_of("SAME", "VALID") if dilation == 1 else "SAME"
    kernel = net.weights(height, width, x.shape[3], made)
    y = tf.nn.conv2d(x, kernel, stride, padding, dilations=dilation)
    return net.activated(y + net.weights(made) if net.chance(0.7) else y)


@step(2)
def depthwise(net: Network) -> Tensor:
    x, stride, many = net.pick(4, such=is_image(3)), net.one_of(1, 2), net.one_of(1, 1, 2)
    kernel = net.weights(3, net.one_of(1, 3), x.shape[3], many)
    y = tf.nn.depthwise_conv2d(x, kernel, [1, stride, stride, 1], net.one_of("SAME", "VALID"))
    return net.activated(y + net.weights(x.shape[3] * many))


@step()
def transposed_convolution(net: Network) -> Tensor:
    x, made, stride = net.pick(4), net.one_of(3, 4), net.one_of(1, 2)
    n, h, w, c = x.shape
    return tf.nn.conv2d_transpose(x, net.weights(3, 3, made, c), [n, h * stride, w * stride, made], stride, "SAME")


@step(2)
def pool(net: Network) -> Tensor:
    x, kind = net.pick(4, such=is_image(3)), net.one_of(tf.nn.max_pool2d, tf.nn.avg_pool2d)
    strides = [net.one_of(1, 2), net.one_of(1, 2)]
    return kind(x, [net.one_of(2, 3), net.one_of(1, 2)], strides, net.one_of("SAME", "VALID"))


@step()
def dense(net: Network) -> Tensor:
    x = net.pick(2, 3, 4)
    return net.activated(tf.tensordot(x, net.weights(x.shape[-1], net.one_of(4, 6, 8)), 1))


@step()
def flattened(net: Network) -> Tensor:
    x = net.pick(3, 4, 5)
    rows = tf.reshape(x, [x.shape[0], -1])
    return tf.matmul(rows, net.weights(rows.shape[1], net.one_of(4, 6)))


@step(3)
def transposition(net: Network) -> Tensor:
    x = net.pick()
    return tf.transpose(x, net.random.sample(range(x.shape.rank), x.shape.rank))


@step(3)
def reshape(net: Network) -> Tensor:
    x = net.pick()
    shape, axis = list(x.shape), net.axis(x)
    parts = [part for part in (2, 3, 4) if shape[axis] % part == 0 and shape[axis] > part]
    if parts and net.chance(0.4):
        part = net.one_of(*parts)
        shape[axis : axis + 1] = net.one_of([part, shape[axis] // part], [shape[axis] // part, part])
    elif axis + 1 < len(shape) and net.chance(0.6):
        shape[axis : axis + 2] = [shape[axis] * shape[axis + 1]]
    else:
        shape.insert(axis, 1)
    return tf.reshape(x, shape)


@step(3)
def of_two(net: Network) -> Tensor:
    x = net.pick()
    kind = net.one_of(tf.add, tf.multiply, tf.subtract, tf.maximum, tf.minimum, tf.math.squared_difference)
    others = [y for y in net.values if y is not x and y.shape == x.shape]
    if others and net.chance(0.7):
        return kind(x, net.one_of(*others))
    y = net.weights(*[extent if net.chance(0.6) else 1 for extent in x.shape][net.one_of(0, 0, 1) :])
    return kind(x, y) if net.chance(0.6) else kind(y, x)


@step()
def gate(net: Network) -> Tensor:
    x = net.pick()
    return x * tf.sigmoid(tf.reduce_mean(x, net.axis(x), keepdims=True))


@step(2)
def concatenation(net: Network) -> Tensor:
    x = net.pick()
    axis = net.axis(x)

    def fits(y: Tensor) -> bool:
        pairs = enumerate(zip(y.shape, x.shape, strict=True)) if y.shape.rank == x.shape.rank else [(-1, (0, 1))]
        return all(a == b for i, (a, b) in pairs if i != axis)

    return tf.concat([net.pick(such=fits) for _ in range(net.one_of(2, 3))], axis - net.one_of(0, x.shape.rank))


@step()
def pad(net: Network) -> Tensor:
    x, mode = net.pick(1, 2, 3, 4), net.one_of("CONSTANT", "REFLECT", "SYMMETRIC")
    return tf.pad(x, [[net.one_of(0, 0, 1) if extent > 1 else 0 for _ in range(2)] for extent in x.shape], mode)


@step(2)
def part(net: Network) -> Tensor:
    x = net.pick()
    whole = slice(None)
    ways = (whole, whole, whole, slice(1, None), slice(None, None, 2), slice(None, None, -1))
    return x[tuple(net.one_of(*ways) if extent > 1 else whole for extent in x.shape)]


@step()
def resize(net: Network) -> Tensor:
    x = net.pick(4)
    size = [net.one_of(x.shape[1] * 2, x.shape[1] + 1, 5), net.one_of(x.shape[2] * 2, 3, x.shape[2])]
    if net.chance(0.3):
        return tf.compat.v1.image.resize_bilinear(x, size, align_corners=net.chance(0.5))
    return tf.image.resize(x, size, net.one_of("bilinear", "nearest"))


@step()
def softmax(net: Network) -> Tensor:
    x = net.pick()
    return tf.nn.softmax(x, axis=net.one_of(-1, -1, net.axis(x)))


@step(2)
def reduction(net: Network) -> Tensor:
    x = net.pick(3, 4, 5)
    axes = sorted(net.random.sample(range(1, x.shape.rank), net.one_of(1, 1, 2)))
    kind = net.one_of(tf.reduce_mean, tf.reduce_max, tf.reduce_sum, tf.reduce_min)
    return kind(x, axes, keepdims=net.chance(0.5))


@step()
def split(net: Network) -> list[Tensor]:
    x = net.pick(such=lambda x: any(extent % 2 == 0 for extent in x.shape))
    return list(tf.split(x, 2, net.one_of(*[axis for axis, extent in enumerate(x.shape) if extent % 2 == 0])))


@step(2)
def of_one(net: Network) -> Tensor:
    x = tf.clip_by_value(net.pick(), -3.0, 3.0)
    kinds = (tf.exp, tf.abs, tf.square, tf.nn.elu, tf.sin, tf.floor, tf.nn.softplus, tf.negative, tf.nn.swish)
    return net.one_of(*kinds, net.activated, lambda x: tf.math.rsqrt(tf.square(x) + 1.0))(x)


@step()
def gather(net: Network) -> Tensor:
    x = net.pick()
    axis = net.axis(x)
    return tf.gather(x, net.numbers.integers(0, x.shape[axis], net.one_of((3,), (2, 2))).astype(np.int32), axis=axis)


@step()
def attention(net: Network) -> Tensor:
    x = net.pick(3, 4, 5)
    weights = tf.matmul(x, x, transpose_b=True)
    return net.one_of(weights, tf.matmul(x, x, transpose_a=True), tf.matmul(tf.nn.softmax(weights), x))


@step()
def depth_and_space(net: Network) -> Tensor:
    if net.chance(0.5):
        return tf.nn.space_to_depth(net.pick(4, such=lambda x: x.shape[1] % 2 == x.shape[2] % 2 == 0), 2)
    return tf.nn.depth_to_space(net.pick(4, such=lambda x: x.shape[3] % 4 == 0), 2)


@step()
def normalization(net: Network) -> Tensor:
    x = net.pick(2, 3, 4, 5)
    axis = net.one_of(-1, -1, 1)
    mean = tf.reduce_mean(x, axis, keepdims=True)
    spread = tf.reduce_mean(tf.math.squared_difference(x, mean), axis, keepdims=True)
    return (x - mean) * tf.math.rsqrt(spread + 1e-3) * net.weights(x.shape[-1]) + net.weights(x.shape[-1])


@step()
def choice(net: Network) -> Tensor:
    x = net.pick()
    return tf.where(x > 0.1, x, net.one_of(tf.zeros_like(x), x * 0.5))


@step()
def other(net: Network) -> Any:
    x = net.pick(2, 3, 4)
    axis = net.axis(x)
    kinds: tuple[Callable[[], Any], ...] = (
        lambda: tf.tile(x, [net.one_of(1, 1, 2) for _ in x.shape]),
        lambda: tf.stack([x, net.activated(x)], axis),
        lambda: tf.unstack(x, axis=axis) if x.shape[axis] <= 4 else x,
        lambda: tf.cast(tf.argmax(x, axis, output_type=tf.int32), tf.float32),
        lambda: tf.cumsum(x, axis, exclusive=net.chance(0.5), reverse=net.chance(0.5)),
        lambda: tf.reverse(x, [axis]),
        lambda: tf.math.top_k(x, min(2, x.shape[-1]))[0],
    )
    return net.one_of(*kinds)()


def converted(seed: int) -> tuple[bytes, str]:
    """The file of one network, and its format."""
    chosen = random.Random(seed)
    batch = chosen.choice((1, 1, 2, 3))
    specs = [
        tf.TensorSpec([batch, *chosen.choices(EXTENTS, k=chosen.choice((2, 2, 2, 1, 0))), chosen.choice(CHANNELS)])
        for _ in range(chosen.choice((1, 1, 2)))
    ]
    form, steps = chosen.choice(FORMATS), chosen.choice(STEPS)

    @tf.function(input_signature=specs)
    def network(*inputs: Tensor) -> dict[str, Tensor]:
        net = Network(seed, list(inputs))
        for _ in range(steps):
            net.grow()
        last = net.values[len(inputs) :][-3:] or [inputs[0] + 1.0]
        return {f"y{place}": tf.identity(x) for place, x in enumerate(last)}

    def data() -> Any:
        numbers = np.random.default_rng(0)
        return ([numbers.normal(0, 1, spec.shape).astype(np.float32) for spec in specs] for _ in range(8))

    converter = tf.lite.TFLiteConverter.from_concrete_functions([network.get_concrete_function()], network)
    kinds = tf.lite.OpsSet
    if form != "float":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if form == "float16":
        converter.target_spec.supported_types = [tf.float16]
    if form.startswith("int"):
        converter.representative_dataset = data
    if form == "int8":
        converter.target_spec.supported_ops = [kinds.TFLITE_BUILTINS_INT8]
        converter.inference_input_type = converter.inference_output_type = tf.int8
    if form == "int16":
        narrow = kinds.EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8
        converter.target_spec.supported_ops = [narrow, kinds.TFLITE_BUILTINS]
    return converter.convert(), form


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--networks", type=int, default=500)
    parser.add_argument("--first", type=int, default=0)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for seed in range(given.first, given.first + given.networks):
        try:
            content, form = converted(seed)
        except Exception as error:  # TensorFlow's converter refuses some
            print(f"{seed}: {type(error).__name__}: {(str(error).splitlines() or [''])[0][:100]}")
            continue
        (given.out / f"{seed}_{form}.tflite").write_bytes(content)


if __name__ == "__main__":
    main()
