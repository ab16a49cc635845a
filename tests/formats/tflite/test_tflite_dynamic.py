"""Models whose extents are open: run at two sizes, each against the interpreter, and the names that dimensions get."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tflite_dynamic import (
    MODELS,
    apart,
    blocks,
    branches,
    counted_boxes,
    data_dependent,
    equation,
    filled,
    flatten,
    heads,
    image,
    left_over,
    pyramid,
    sparse_conv,
    upward,
    upward_to,
    windows,
)
from tflite_running import Comparison, check_model, compare, interpreter, read, run_interpreter, session
from tflite_writing import Net, options

import relayout
from relayout.errors import UnsupportedError
from relayout.formats.tflite.importing.extents import divided, product, shifted, shrunk, times, total
from relayout.graph.facts import facts_of


def check(results: list[Comparison], quantized: bool) -> None:
    for result in results:
        assert result.error <= result.tolerance(quantized), result


@pytest.mark.parametrize("name", MODELS)
def test_two_sizes(name: str) -> None:
    build, sizes = MODELS[name]
    net = build()
    for size in sizes:
        check(compare(net.bytes(), net.ranges, resize={0: size}), name.endswith(("int8", "int16")))


@pytest.mark.parametrize("name", MODELS)
def test_one_size_that_is_given_when_the_file_is_read(name: str) -> None:
    """Every extent is a number then, as far as extents follow from those of inputs."""
    build, sizes = MODELS[name]
    net = build()
    shapes = [value.shape for value in read(net.bytes()).graph.inputs if value.shape is not None]
    for size in sizes:
        dims = {str(d.value): n for d, n in zip(shapes[0], size, strict=True) if not isinstance(d, int)}
        model = read(net.bytes(), dims=dims | {"other": 3})
        assert facts_of(model).fixed_dims == set(dims)
        assert model.graph.inputs[0].shape == list(size)
        check(compare(net.bytes(), net.ranges, resize={0: size}, dims=dims), name.endswith(("int8", "int16")))


def test_an_extent_that_a_file_does_not_fit_is_said_to_be_given(tmp_path: Path) -> None:
    net = Net()
    a, b = (net.input((1, 4), name=name, signature=(1, -1)) for name in "ab")
    net.op("ADD", [a, b], [net.output((1, 4), signature=(1, -1))], options("AddOptions"))
    path = tmp_path / "two.tflite"
    path.write_bytes(net.bytes())
    assert relayout.convert(path, dims={"a_1": 4, "b_1": 4}).report.interface[0].shape == (1, 4)
    with pytest.raises(relayout.ReadError, match=r"extents of 4 and 5 .* at .*it was read with --dim a_1=4, b_1=5$"):
        relayout.convert(path, dims={"a_1": 4, "b_1": 5})
    for dims, said in (({"c": 4}, "no dimension"), ({"a_1": 0}, "at least 1"), ({"a_1": 4, "c": 4}, "no dimension")):
        with pytest.raises(relayout.LayoutError, match=said):
            relayout.convert(path, dims=dims)


APART = [((1, 1), (2, 3)), ((2, 1), (3, 4)), ((3, 2), (4, 5)), ((3, 2), (2, 4))]
EXTENTS = [(4, 4), (5, 8), (6, 11), (7, 10), (9, 6), (10, 5), (12, 13)]
"""Among them every remainder of 2, 3, 4 and 5."""


@pytest.mark.parametrize("extents", EXTENTS)
@pytest.mark.parametrize(("window", "strides"), APART)
@pytest.mark.parametrize("operator", ["AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D", "CONV_2D"])
def test_windows_shorter_than_strides(
    operator: str, window: tuple[int, int], strides: tuple[int, int], extents: tuple[int, int]
) -> None:
    built = sparse_conv(window, strides) if operator == "CONV_2D" else apart(operator, window, strides)
    check(compare(built.bytes(), built.ranges, resize={0: (2, *extents, 3)}), False)


@pytest.mark.parametrize("extents", EXTENTS)
@pytest.mark.parametrize("operator", ["AVERAGE_POOL_2D", "MAX_POOL_2D"])
def test_windows_shorter_than_strides_on_bytes(operator: str, extents: tuple[int, int]) -> None:
    built = apart(operator, (3, 2), (4, 5), quantized=True)
    (result,) = compare(built.bytes(), resize={0: (2, *extents, 3)})
    assert result.error <= (1 if operator == "AVERAGE_POOL_2D" else 0)


def outputs(net: Net) -> list[list[int | str | None]]:
    shapes = [v.shape for v in read(net.bytes()).graph.outputs]
    return [[d if isinstance(d, int) else d.value for d in s] for s in shapes if s is not None]


def test_extents_that_are_equal_have_one_name() -> None:
    assert outputs(branches(0)) == [["batch", "ceil(height/4)", "ceil(width/4)", 4]]
    assert outputs(branches(1))[0][1] == "floor((floor((height - 3)/2) - 2)/2) + 1"
    assert outputs(upward()) == [["batch", "2*height", "2*width", 5]]
    assert outputs(pyramid()) == [["batch", "2*ceil(height/2)", "2*ceil(width/2)", 4]]
    assert outputs(blocks()) == [["batch", 2, 4, 2]]
    assert outputs(windows()) == [["batch", 2, 2, 2, 2, 3]]
    assert outputs(filled()) == [["batch", 3], ["batch"]]


@pytest.mark.parametrize(
    ("build", "target"), [(flatten, [-1, 24]), (equation, [-1, 4, 3]), (heads, [0, 0, 3, 4]), (left_over, [-1, 4, 6])]
)
def test_a_computed_target_becomes_constant(build: Callable[[], Net], target: list[int]) -> None:
    model = read(build().bytes())
    (node,) = [n for n in model.graph if n.op_type == "Reshape"]
    shape = node.inputs[1]
    assert shape is not None
    assert shape.const_value is not None
    assert shape.const_value.numpy().tolist() == target


def test_a_placeholder_is_no_claim() -> None:
    net = data_dependent()
    model = read(net.bytes())
    for output in model.graph.outputs:
        assert output.shape is not None
        assert not isinstance(output.shape[0], int)
        assert output.shape[1] == 2
    ours, theirs = session(check_model(model)), interpreter(net.bytes())
    for seed in range(4):
        x = np.random.default_rng(seed).normal(size=(4, 3)).astype(np.float32)
        for a, b in zip(ours.run(None, {"t0": x}), run_interpreter(theirs, [x]), strict=True):
            assert np.array_equal(a, b)


def test_a_number_that_depends_on_data_is_no_extent() -> None:
    content = counted_boxes().bytes()
    (y,) = read(content).graph.outputs
    assert y.shape is not None
    assert not isinstance(y.shape[0], int)
    sizes = set()
    for seed in range(6):
        check(compare(content, [(0, 1), (0, 1)], seed=seed), False)
        made = interpreter(content)
        rng = np.random.default_rng(seed)
        inputs = [rng.uniform(0, 1, s).astype(np.float32) for s in ((9, 4), (9,))]
        sizes.add(run_interpreter(made, inputs)[0].shape)
    assert len(sizes) > 1


def test_distinct_values_have_an_open_extent() -> None:
    net = Net()
    outputs_ = [net.output((9,), "int64"), net.output((9,), "int32")]
    net.op("UNIQUE", [net.input((9,), "int64", 0, 3)], outputs_, options("UniqueOptions"))
    first, second = read(net.bytes()).graph.outputs
    assert first.shape is not None
    assert not isinstance(first.shape[0], int)
    assert second.shape == [9]


def test_no_padding_comes_from_a_placeholder() -> None:
    model = read(branches(0).bytes())
    pads = [n.attributes for n in model.graph if n.op_type == "Conv"]
    assert all(a["auto_pad"].as_string() == "SAME_UPPER" and "pads" not in a for a in pads)


@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize("target", [(8, 20), (9, 21), (11, 24), (7, 19)])
def test_a_target_of_its_own(padding: int, target: tuple[int, int]) -> None:
    h, w = (-(-t // s) if padding == 0 else (t + s - k) // s for t, s, k in zip(target, (2, 3), (3, 4), strict=True))
    check(compare(upward_to(padding).bytes(), resize={0: (2, h, w, 4), 1: (2, *target, 5)}), False)


def test_a_block_that_is_computed_is_refused() -> None:
    net = Net()
    x, block, none = image(net), net.input((2,), "int32"), net.const([[0, 0], [0, 0]], "int32")
    net.op("SPACE_TO_BATCH_ND", [x, block, none], [net.output((4, 1, 1, 3), signature=(-1, -1, -1, 3))])
    with pytest.raises(UnsupportedError, match="a block size that is computed"):
        read(net.bytes())


def test_a_shape_that_nobody_reads_is_not_computed() -> None:
    assert [n.op_type for n in read(flatten().bytes()).graph] == ["Reshape", "Gemm"]


def test_names_of_expressions() -> None:
    assert shrunk(shrunk("h", 2), 2) == "ceil(h/4)"
    assert shifted(shifted("h", -2), 3) == "h + 1"
    assert shifted(shifted("h", -2), 2) == "h"
    assert times(times("h", 2), 3) == "6*h"
    assert divided(times("h", 6), 3) == "2*h"
    assert shrunk(times("h", 2), 2) == "h"
    assert product([2, "h", 3]) == "6*h"
    assert total([2, "h", 3]) == "h + 5"
    assert product(["w", 2, "h"]) == "2*(h*w)"
    assert divided(product(["w", 2, "h"]), 2) == "h*w"
    assert times("h" * 100, 2) is None


def stale() -> Net:
    """Shapes by arithmetic on constants of all types, as onnx2tf writes them; what depends on one states extents of 1.

    The target of a Reshape is (1, s, s, -1) for s = sqrt(9), but for a first extent of 0 that of the operand; a mask
    has that of a vector where it equals another, ones elsewhere; paddings are turned around.
    """
    net = Net()
    x = net.input((2, 9, 4))
    root, side = net.tensor((1,)), net.tensor((1,), "int32")
    net.op("SQRT", [net.const([9.0])], [root])
    net.op("CAST", [root], [side], options("CastOptions"))
    target, shape = net.tensor((4,), "int32"), net.tensor((3,), "int32")
    net.op(
        "CONCATENATION",
        [net.const([0], "int32"), side, side, net.const([-1], "int32")],
        [target],
        options("ConcatenationOptions"),
    )
    net.op("SHAPE", [x], [shape], options("ShapeOptions", outType=2))
    is_zero, first, chosen = net.tensor((1,), "bool"), net.tensor((1,), "int32"), net.tensor((1,), "int32")
    net.op("SLICE", [target, net.const([0], "int32"), net.const([1], "int32")], [first])
    net.op("EQUAL", [first, net.const([0], "int32")], [is_zero])
    mine, rest, whole = net.tensor((1,), "int32"), net.tensor((3,), "int32"), net.tensor((4,), "int32")
    net.op("SLICE", [shape, net.const([0], "int32"), net.const([1], "int32")], [mine])
    net.op("SELECT", [is_zero, mine, first], [chosen])
    net.op("SLICE", [target, net.const([1], "int32"), net.const([3], "int32")], [rest])
    net.op("CONCATENATION", [chosen, rest], [whole], options("ConcatenationOptions"))
    image_ = net.tensor((1, 1, 1, 1))
    net.op("RESHAPE", [x, whole], [image_], options("ReshapeOptions"))
    pairs, turned = net.tensor((2, 4), "int32"), net.tensor((4, 2), "int32")
    zeros = net.tensor((2, 2), "int32")
    net.op("FILL", [net.const([2, 2], "int32"), net.const(0, "int32")], [zeros])
    net.op(
        "CONCATENATION", [net.const([[0, 1], [0, 2]], "int32"), zeros], [pairs], options("ConcatenationOptions", axis=1)
    )
    net.op("TRANSPOSE", [pairs, net.const([1, 0], "int32")], [turned])
    padded = net.tensor((1, 1, 1, 1))
    net.op("PAD", [image_, turned], [padded])
    rng = np.random.default_rng(3)
    weights, bias = net.const(rng.normal(size=(5, 3, 3, 4))), net.const(np.zeros(5))
    conv = options("Conv2DOptions", strideW=1, strideH=1, padding=0)
    return net.op("CONV_2D", [padded, weights, bias], [net.output((1, 1, 1, 5))], conv)


def test_what_follows_from_constants_is_a_constant() -> None:
    content = stale().bytes()
    model = read(content)
    (y,) = model.graph.outputs
    assert y.shape == [2, 6, 3, 5]
    assert {n.op_type for n in model.graph} <= {"Reshape", "Pad", "Transpose", "Conv"}
    check(compare(content), False)


ROWS = {
    "ABS": "float32",
    "ADD": "int32 float32",
    "CEIL": "float32",
    "DIV": "int32 float32",
    "EQUAL": "int32",
    "FLOOR": "float32",
    "FLOOR_DIV": "float32",
    "GREATER": "float32",
    "GREATER_EQUAL": "int32",
    "LESS": "int32",
    "LESS_EQUAL": "float32",
    "MAXIMUM": "int32 float32",
    "MINIMUM": "int64",
    "MUL": "int32 int64 float32",
    "NEG": "int64",
    "NOT_EQUAL": "float32",
    "ROUND": "float32",
    "SIGN": "float32",
    "SQRT": "float32",
    "SUB": "int64 float32",
}
"""Operators whose numbers are known in advance, and types of theirs."""
ONE_OPERAND = ("ABS", "CEIL", "FLOOR", "NEG", "ROUND", "SIGN", "SQRT")
YIELDING_TRUTH = ("EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL", "NOT_EQUAL")


@pytest.mark.parametrize(("name", "dtype"), [(name, kind) for name, kinds in ROWS.items() for kind in kinds.split()])
def test_numbers_known_in_advance_are_the_interpreters(name: str, dtype: str) -> None:
    """Added to an input, for an interpreter wants one; odd quotients, halves and numbers that round are among them."""
    left = np.array([7.0, 0.5, 2.5, 1.1, 100000.1, 3.0, 16777217.0, 0.3], dtype)
    right = np.array([2.0, 0.5, 1.5, 3.3, 7.0, 3.0, 3.0, 0.1], dtype)
    if np.dtype(dtype).kind == "f" and name != "SQRT":
        left[::2] *= -1
    right[right == 0] = 1
    net = Net()
    kind = "bool" if name in YIELDING_TRUTH else dtype
    operands = [net.const(left, dtype)] if name in ONE_OPERAND else [net.const(left, dtype), net.const(right, dtype)]
    made, number = net.tensor((8,), kind), net.tensor((8,), dtype)
    table = {"ADD": "AddOptions", "DIV": "DivOptions", "MUL": "MulOptions", "SUB": "SubOptions"}.get(name)
    net.op(name, operands, [made], options(table) if table else None)
    if kind == "bool":
        net.op("CAST", [made], [number], options("CastOptions"))
    x, y = net.input((8,), dtype, 0, 0), net.output((8,), dtype)
    content = net.op("ADD", [x, number if kind == "bool" else made], [y], options("AddOptions")).bytes()
    assert [n.op_type for n in read(content).graph] == ["Add"]
    for result in compare(content, net.ranges):
        assert result.error <= result.spread, result  # two sets of kernels have two square roots
