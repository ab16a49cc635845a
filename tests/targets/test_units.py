"""Quantized units as operators on integers: every row of every target, held to the unit that it stands for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import relayout
from relayout.lowering.quantized_units import fuse_units
from relayout.pipeline import read
from relayout.targets import Target, Unit, targets
from relayout.targets.onnxruntime.prices import LEAST_CHANNELS
from rules.cases.making import f
from rules.law import Array, Case
from running import run
from targets.quantizing import integers, model, parameters, quantized
from targets.row_cases import real_cases

ROWS = [(target, unit) for target in targets().values() for unit in target.units if not unit.reals]
BYTES = (np.uint8, np.int8)
WIDE = max(LEAST_CHANNELS.values()) + 1


def named(item: object) -> str:
    return item.name if isinstance(item, Target) else f"{item.op_types.split()[0]}-{item.written or 'itself'}"  # type: ignore[attr-defined]


def of_units() -> Iterator[Case]:
    """Units that the cases of rules and rows do not have."""
    image, wide, channels = f(2, 6, 9, 8), f(2, WIDE, 9, 8), np.abs(f(WIDE, 1, 1)) + 0.2
    for op in ("Mul", "Add", "Sub", "Div"):
        yield Case(op, {"x": wide, "c": channels}, ("c",))
    yield Case("Sub", {"c": channels, "x": wide}, ("c",))
    parameters = {name: np.abs(f(WIDE)) + 0.2 for name in ("scale", "bias", "mean", "variance")}
    yield Case("BatchNormalization", {"x": wide, **parameters}, tuple(parameters), {"epsilon": 0.01})
    yield Case("Sum", {"a": image, "b": f(2, 6, 9, 8)})
    yield Case("Add", {"a": image, "b": f(6, 1, 8)})
    yield Case("Mul", {"a": image, "b": f(2, 6, 1, 1)})
    yield Case("AveragePool", {"x": image}, (), {"kernel_shape": [2, 3], "dilations": [1, 1]})
    axes = np.array([2, 3])
    yield Case("ReduceMean", {"x": image, "a": axes}, ("a",))
    yield Case("ReduceMean", {"x": image, "a": axes - 4}, ("a",), {"keepdims": 0})
    yield Case("ReduceMean", {"x": image}, (), {"axes": [3, 2], "keepdims": 0}, opset=17)
    yield Case(
        "Conv", {"x": image, "w": f(4, 6, 3, 2), "b": f(4)}, ("w", "b"), {"strides": [2, 1], "pads": [1, 0, 1, 1]}
    )
    yield Case("Conv", {"x": f(2, 6, 9), "w": f(4, 6, 3)}, ("w",))
    yield Case("Gemm", {"x": f(3, 4), "w": f(5, 4), "b": f(5)}, ("w", "b"), {"transB": 1})
    pads = np.array([0, 0, 1, 2, 0, 0, 0, 1])
    yield Case("Pad", {"x": image, "p": pads, "v": np.array(0.7, np.float32)}, ("p", "v"))
    sizes = np.array([2, 6, 18, 16])
    nearest = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    yield Case("Resize", {"x": image, "r": None, "c": None, "s": sizes}, ("s",), nearest)


def fused(source: onnx.ModelProto, target: Target) -> tuple[onnx.ModelProto, dict[str, int]]:
    """A model with its units on integers, layouts as they were."""
    from relayout.formats.onnx.checking import check
    from relayout.formats.onnx.parts import to_proto

    made = read(source)
    counts = fuse_units(made, target.units, target.unsigned)
    check(made)
    return to_proto(made), counts


def steps(source: onnx.ModelProto, result: onnx.ModelProto, feed: dict[str, Array]) -> int:
    """The largest difference of what two models give, in steps."""
    pairs = zip(run(source, feed), run(result, feed), strict=True)
    return max(int(np.abs(a.astype(np.int64) - b.astype(np.int64)).max()) for a, b in pairs)


def candidates(unit: Unit) -> Iterator[tuple[str, onnx.ModelProto, dict[str, Array]]]:
    """Units of a row's operators."""
    found = (case for case in (*of_units(), *real_cases()) if not case.domain and case.op_type in unit.op_types.split())
    for case in found:
        floats = [name for name, array in case.arrays.items() if array.dtype == np.float32]
        if (
            any(name not in case.constants for name in floats)
            and not case.dynamic
            and case.outputs == 1
            and case.opset >= 13
        ):
            for dtype in BYTES:
                yield case.op_type, *quantized(case, dtype, alike="=" in unit.operands)


@pytest.mark.parametrize(("target", "unit"), ROWS, ids=named)
def test_a_row_runs_its_units_within_a_step(target: Target, unit: Unit) -> None:
    alone = Target("alone", "one row", target.kernels, rest=True, units=(unit,))
    seen = set()
    for op_type, source, feed in candidates(unit):
        result, counts = fused(source, alone)
        if not counts:
            continue
        node, *rest = result.graph.node
        assert {other.op_type for other in rest} <= {"Squeeze"}, f"{op_type}: more than the operator on integers"
        written = unit.written or op_type
        assert (f"{node.domain}:{node.op_type}" if node.domain else node.op_type) == written
        assert steps(source, result, feed) <= (0 if "=" in unit.operands else 1), op_type
        seen.add((op_type, source.graph.output[0].type.tensor_type.elem_type))
    wanted = {(op, TensorProto.DataType.Value(kind)) for op in unit.op_types.split() for kind in unit.types}
    assert seen == wanted, f"no unit was seen of {wanted - seen}"


@pytest.mark.parametrize(("opset", "read"), [(12, 1), (13, 2)])
def test_a_mean_without_the_axes_of_space_is_a_pool_and_a_squeeze(opset: int, read: int) -> None:
    """The axes of a Squeeze are an attribute before opset 13."""
    mean = Case("ReduceMean", {"x": f(2, 6, 9, 8)}, (), {"axes": [2, 3], "keepdims": 0}, opset=opset)
    source, feed = quantized(mean, np.uint8, alike=False)
    result, counts = fused(source, CPU)
    assert counts == {"com.microsoft:QLinearGlobalAveragePool": 1}
    assert [node.op_type for node in result.graph.node] == ["QLinearGlobalAveragePool", "Squeeze"]
    assert len(result.graph.node[1].input) == read
    assert steps(source, result, feed) <= 1


def test_a_wrong_row_is_seen() -> None:
    """Planted: a row that says the wrong operator differs by more than a step."""
    wrong = Target("wrong", "a test's", (), units=(Unit("Sum", "com.microsoft:QLinearMul", "0 1 y"),))
    source, feed = quantized(Case("Sum", {"a": f(2, 3, 4), "b": f(2, 3, 4)}), np.uint8, alike=False)
    assert steps(source, fused(source, wrong)[0], feed) > 1


# What is left as it is

X, W = f(2, 6, 9, 8), f(6, 6, 3, 2)


def unit(
    x: tuple[Array, Array],
    w: tuple[Array, Array],
    y: tuple[Array, Array],
    between: tuple[onnx.NodeProto, ...] = (),
    shape: tuple[int, ...] = (2, 6, 7, 7),
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A convolution between integers of any kind; `between` leads from `c` to `r`."""
    feed = {"x": integers(X, *x)}
    constants = {"w": integers(W, *w), "xs": x[0], "xz": x[1], "ws": w[0], "wz": w[1], "ys": y[0], "yz": y[1]}
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "xs", "xz"], ["xr"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wr"]),
        helper.make_node("Conv", ["xr", "wr"], ["c"], name="conv"),
        *between,
        helper.make_node("QuantizeLinear", ["r" if between else "c", "ys", "yz"], ["y"]),
    ]
    return model(nodes, constants, feed, {"y": np.zeros(shape, y[1].dtype)}), feed


U, S = parameters(np.uint8, 0.05), parameters(np.int8, 0.05)
WORDS = np.array(0.05, np.float32), np.array(0, np.int16)
CPU = targets()["onnxruntime-cpu"]
SIGNED = replace(CPU, unsigned=False)
"""The same, with int8 as it is."""


@pytest.mark.parametrize(
    ("x", "w", "y", "fuses"),
    [(U, S, U, True), (S, S, S, True), (U, U, U, True), (S, U, S, False), (U, S, S, False), (WORDS, S, WORDS, False)],
)
def test_only_kinds_of_integers_that_have_a_kernel_are_fused(x: object, w: object, y: object, fuses: bool) -> None:
    source, feed = unit(x, w, y)  # type: ignore[arg-type]
    result, counts = fused(source, SIGNED)
    assert counts == ({"QLinearConv": 1} if fuses else {})
    assert steps(source, result, feed) <= fuses


def test_int8_between_units_is_stored_as_uint8_and_means_the_same() -> None:
    """The interface keeps its int8; a constant operand follows."""
    source, feed = unit(S, S, S)
    last = source.graph.node.pop()
    source.graph.node[-1].output[0], last.input[0] = "c1", "total"
    nodes = [
        helper.make_node("QuantizeLinear", ["c1", "ys", "yz"], ["i1"]),
        helper.make_node("DequantizeLinear", ["i1", "ys", "yz"], ["r1"]),
        helper.make_node("DequantizeLinear", ["k", "ys", "yz"], ["kr"]),
        helper.make_node("Add", ["r1", "kr"], ["total"], name="add"),
    ]
    source.graph.node.extend([*nodes, last])
    constant = np.arange(-3, 3, dtype=np.int8).reshape(6, 1, 1)
    source.graph.initializer.append(onnx.numpy_helper.from_array(constant, "k"))
    source = onnx.shape_inference.infer_shapes(source)
    result, counts = fused(source, CPU)
    assert counts == {"QLinearConv": 1, "com.microsoft:QLinearAdd": 1}
    ends = (*result.graph.input, *result.graph.output)
    assert {value.type.tensor_type.elem_type for value in ends} == {TensorProto.INT8}
    types = {value.name: value.type.tensor_type.elem_type for value in result.graph.value_info}
    made = [node.output[0] for node in result.graph.node if node.op_type.startswith("QLinear")]
    assert {types[name] for name in made} == {TensorProto.UINT8}
    assert steps(source, result, feed) <= 2
    compared = {row.name: row for row in relayout.verify(source, result).rows}
    assert compared["i1"].ok
    assert compared["i1"].kind == "steps"


def test_int8_whose_reader_names_no_zero_point_stays_int8() -> None:
    source, feed = unit(S, S, S)
    last = source.graph.node.pop()
    source.graph.node[-1].output[0], last.input[0] = "c1", "total"
    nodes = [
        helper.make_node("QuantizeLinear", ["c1", "ys", "none"], ["i1"]),
        helper.make_node("DequantizeLinear", ["i1", "ys"], ["r1"]),
        helper.make_node("Sigmoid", ["r1"], ["total"], name="sigmoid"),
    ]
    source.graph.node.extend([*nodes, last])
    source.graph.initializer.append(onnx.numpy_helper.from_array(np.array(0, np.int8), "none"))
    source = onnx.shape_inference.infer_shapes(source)
    result, _ = fused(source, CPU)
    assert steps(source, result, feed) <= 2


RELU = helper.make_node("Relu", ["c"], ["r"])
CLIP = helper.make_node("Clip", ["c", "low", "high"], ["r"])


@pytest.mark.parametrize("zero", [0, 117])
def test_an_activation_goes_where_the_integers_end_before_it(zero: int) -> None:
    """From a zero point of 0 on nothing below 0 can be stored; from another one on it can."""
    source, feed = unit(U, S, (np.array(0.2, np.float32), np.array(zero, np.uint8)), (RELU,))
    result, counts = fused(source, CPU)
    assert counts == ({"QLinearConv": 1} if zero == 0 else {})
    assert steps(source, result, feed) <= (zero == 0)


@pytest.mark.parametrize(("high", "fuses"), [(6.0, False), (255 * 0.2, True), (254 * 0.2, False)])
def test_a_clip_goes_where_both_bounds_are_beyond_the_integers(high: float, fuses: bool) -> None:
    source, feed = unit(U, S, (np.array(0.2, np.float32), np.array(0, np.uint8)), (CLIP,))
    for name, bound in (("low", 0.0), ("high", high)):
        source.graph.initializer.append(onnx.numpy_helper.from_array(np.array(bound, np.float32), name))
    result, counts = fused(source, CPU)
    assert bool(counts) == fuses
    assert steps(source, result, feed) <= fuses


WINDOW = {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1]}
POOL = helper.make_node("MaxPool", ["c"], ["r"], **WINDOW)


def pooled(nodes: tuple[onnx.NodeProto, ...] = (POOL,)) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A convolution, pooled before it is quantized."""
    return unit(U, S, (np.array(0.2, np.float32), np.array(117, np.uint8)), nodes, (2, 6, 4, 4))


def test_a_pool_of_reals_is_quantized_before_it() -> None:
    source, feed = pooled()
    result, counts = fused(source, CPU)
    assert counts == {"QLinearConv": 1, "MaxPool": 1}
    assert steps(source, result, feed) <= 1
    assert "DequantizeLinear" not in {node.op_type for node in result.graph.node}


def test_a_pool_of_reals_picks_the_same_integers() -> None:
    source, feed = pooled((helper.make_node("Tanh", ["c"], ["t"]), helper.make_node("MaxPool", ["t"], ["r"], **WINDOW)))
    result, counts = fused(source, CPU)
    assert counts == {"MaxPool": 1}
    assert steps(source, result, feed) == 0


def test_a_pool_of_reals_that_is_read_as_a_float_too_stays_one() -> None:
    source, feed = pooled()
    source.graph.output.append(helper.make_tensor_value_info("r", TensorProto.FLOAT, (2, 6, 4, 4)))
    result, counts = fused(source, CPU)
    assert counts == {}
    assert steps(source, result, feed) == 0


def test_what_is_read_as_a_float_too_stays_one() -> None:
    source, feed = unit(U, S, U)
    source.graph.output.append(helper.make_tensor_value_info("c", TensorProto.FLOAT, (2, 6, 7, 7)))
    result, counts = fused(source, CPU)
    assert counts == {}
    assert [node.op_type for node in result.graph.node] == [node.op_type for node in source.graph.node]
    assert steps(source, result, feed) == 0


def test_a_shift_that_integers_cannot_hold_stays_a_float() -> None:
    """The bias is of 32 bits, in steps of what the weights and the data say."""
    shifts = np.linspace(1, 2, WIDE, dtype=np.float32).reshape(WIDE, 1, 1)
    for largest, fuses in ((2.0, True), (5e9, False)):
        shifts[-1] = largest
        case = Case("Add", {"x": f(2, WIDE, 9, 8), "c": shifts}, ("c",))
        source, feed = quantized(case, np.uint8, alike=True)
        result, counts = fused(source, CPU)
        assert bool(counts) == fuses
        assert steps(source, result, feed) <= 1


def test_a_mean_of_padded_windows_that_end_beyond_the_pads_stays_a_float() -> None:
    said = {"kernel_shape": [2, 3], "strides": [2, 2], "ceil_mode": 1, "count_include_pad": 1, "pads": [1, 1, 0, 0]}
    source, feed = quantized(Case("AveragePool", {"x": f(2, 6, 9, 8)}, (), said), np.uint8, alike=False)
    result, counts = fused(source, CPU)
    assert counts == {}
    assert steps(source, result, feed) == 0


CROP = np.array([0, 0, -0.5, 0, 1, 1, 1.5, 1], np.float32)


def test_what_lies_beyond_a_cropped_image_stays_a_float() -> None:
    """`extrapolation_value` is a real number."""
    said = {"mode": "nearest", "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 1.5}
    given = {"x": f(2, 6, 9, 8), "r": CROP, "c": None, "s": np.array([2, 6, 18, 16])}
    source, feed = quantized(Case("Resize", given, ("r", "s"), said), np.uint8, alike=True)
    result, counts = fused(source, CPU)
    assert counts == {}
    assert steps(source, result, feed) == 0


def test_scales_along_the_only_axis_of_a_factor_stay_floats() -> None:
    """They lie along what is summed over."""
    weights = np.arange(-4, 4, dtype=np.int8)
    constants = {"w": weights, "xs": U[0], "xz": U[1], "ws": np.linspace(0.01, 0.08, 8, dtype=np.float32)}
    constants |= {"wz": np.zeros(8, np.int8)}
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "xs", "xz"], ["xr"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wr"], axis=0),
        helper.make_node("MatMul", ["xr", "wr"], ["m"]),
        helper.make_node("QuantizeLinear", ["m", "xs", "xz"], ["y"]),
    ]
    feed = {"x": integers(X, *U)}
    source = model(nodes, constants, feed, {"y": np.zeros((2, 6, 9), np.uint8)})
    result, counts = fused(source, CPU)
    assert counts == {}
    assert steps(source, result, feed) == 0


def test_a_body_of_a_loop_has_units_too() -> None:
    source, feed = unit(U, S, U)
    inner = helper.make_graph(list(source.graph.node), "inner", [], [helper.make_empty_tensor_value_info("y")])
    nodes = [helper.make_node("If", ["b"], ["z"], then_branch=inner, else_branch=inner)]
    constants = {t.name: onnx.numpy_helper.to_array(t) for t in source.graph.initializer}
    whole = model(nodes, constants, {**feed, "b": np.array(True)}, {"z": np.zeros((2, 6, 7, 7), np.uint8)})
    result, counts = fused(whole, CPU)
    assert counts == {"QLinearConv": 2}
    assert steps(whole, result, {**feed, "b": np.array(True)}) <= 1


def test_the_report_says_what_runs_on_integers() -> None:
    source, _ = unit(U, S, U)
    report = relayout.explain(source, target="onnxruntime-cpu")
    assert "quantized units that run on integers: 1 QLinearConv" in report.notes
