"""Slices whose places are known at run time or count over open axes: the standard clamps each place into the axis."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from ai_edge_litert.interpreter import Interpreter
from onnx import numpy_helper

import relayout
from litert_runs import KERNELS
from rules.law import Array
from text_form import model

FAR = 2**63 - 1
PLACES = (-FAR - 1, -(2**31), -5, -4, -3, -1, 0, 2, 3, 4, 2**31, FAR)
STEPS = (1, 2, -1, -2, FAR, -FAR - 1)
OPERANDS = ("s", "e", "a", "t")


def sliced(
    array: Array, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int], steps: Sequence[int]
) -> Array:
    """A Slice by the standard's words: places from behind count from the end, and all are clamped."""
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        extent = array.shape[axis]
        start, end = (place + extent if place < 0 else place for place in (start, end))
        low, high = (0, extent) if step > 0 else (-1, extent - 1)
        first = min(max(start, 0), high)
        array = np.take(array, range(first, min(max(end, low), high), step) if extent else [], axis=axis)
    return array


def run(interpreter: Interpreter, feeds: dict[str, Array]) -> Array:
    """The first output, also of no elements, of which LiteRT gives no array."""
    places = {each["name"]: each["index"] for each in interpreter.get_input_details()}
    interpreter.resize_tensor_input(places["x"], feeds["x"].shape)
    interpreter.allocate_tensors()
    for name, index in places.items():
        interpreter.set_tensor(index, feeds[name])
    interpreter.invoke()
    (output,) = interpreter.get_output_details()
    return interpreter.get_tensor(output["index"]) if all(output["shape"]) else np.zeros(output["shape"], np.float32)


def source(dims: Sequence[int | str], values: dict[str, list[int]], computed: Sequence[str]) -> onnx.ModelProto:
    count = len(values["a"])
    shape, result = ",".join(map(str, dims)), ",".join(f"m{axis}" for axis in range(len(dims)))
    inputs = "".join(f", int64[{count}] {name}" for name in computed)
    made = model(f"g (float[{shape}] x{inputs}) => (float[{result}] y) {{ y = Slice(x, s, e, a, t) }}")
    constants = {name: np.array(each) for name, each in values.items() if name not in computed}
    made.graph.initializer.extend(numpy_helper.from_array(each, name) for name, each in constants.items())
    return made


@pytest.mark.parametrize("extent", [3, "n"])
def test_computed_places_are_clamped_as_the_standard_does(extent: int | str) -> None:
    proto = source([extent], {"s": [0], "e": [0], "a": [0], "t": [1]}, ["s", "e", "t"])
    content = relayout.convert(proto, format="tflite").tflite
    for kernels in KERNELS:
        interpreter = Interpreter(model_content=content, experimental_op_resolver_type=kernels)
        for count in (3,) if extent == 3 else (1, 3):
            array = np.arange(count, dtype=np.float32)
            for start, end, step in itertools.product(PLACES, PLACES, STEPS):
                feeds = {"x": array, "s": np.array([start]), "e": np.array([end]), "t": np.array([step])}
                wanted = sliced(array, [start], [end], [0], [step])
                assert np.array_equal(run(interpreter, feeds), wanted), (start, end, step)


@pytest.mark.parametrize("seed", range(40))
def test_random_slices_are_right(seed: int) -> None:
    rng = random.Random(seed)
    dims = [rng.choice([f"n{axis}", rng.choice([1, 2, 3, 4])]) for axis in range(rng.choice([1, 2, 3]))]
    axes = rng.sample(range(len(dims)), rng.randint(1, len(dims)))
    axes = [axis - len(dims) if rng.random() < 0.3 else axis for axis in axes]
    starts, ends, steps = ([rng.choice(each) for _ in axes] for each in (PLACES, PLACES, STEPS))
    values = dict(zip(OPERANDS, (starts, ends, axes, steps), strict=True))
    computed = [name for name in OPERANDS if rng.random() < 0.4] if seed % 3 else []
    content = relayout.convert(source(dims, values, computed), format="tflite").tflite
    for kernels in KERNELS:
        interpreter = Interpreter(model_content=content, experimental_op_resolver_type=kernels)
        shape = [rng.choice([1, 2, 3, 4]) if isinstance(dim, str) else dim for dim in dims]
        array = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        feeds = {"x": array, **{name: np.array(values[name]) for name in computed}}
        assert np.array_equal(run(interpreter, feeds), sliced(array, starts, ends, axes, steps)), (values, dims, shape)


@pytest.mark.parametrize("start", [-5, -1, 0, 2])
def test_slices_of_an_open_axis_up_to_its_begin_are_empty(start: int) -> None:
    """XNNPACK takes an end of 0 for the end of the axis."""
    content = relayout.convert(source(["n"], {"s": [start], "e": [0], "a": [0], "t": [1]}, []), format="tflite").tflite
    for kernels in KERNELS:
        interpreter = Interpreter(model_content=content, experimental_op_resolver_type=kernels)
        for count in (1, 3, 4):
            assert run(interpreter, {"x": np.arange(count, dtype=np.float32)}).shape == (0,)
