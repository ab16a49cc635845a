"""Quantized units as a target claims them: by what their integers mean, whole, and with a reason where it does not."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import relayout
from relayout.graph.quantized_unit import unit_of
from relayout.partition.claims import whole_units
from relayout.partition.regions import Part
from relayout.targets import Kernel, Target, conditions, target
from running import run
from targets.quantized_nets import CHANNELS, QuantizedNet, float_and_int8, residual
from targets.test_parts import run_parts

INT8 = ("INT8",)


def npu(*kernels: Kernel) -> Target:
    return Target("npu", "an NPU of int8", kernels)


CONV = Kernel("Conv", ("NHWC OHWI",), INT8)
SUM = Kernel("Add", types=INT8)


def units_in(part: Part) -> set[ir.Node]:
    return {unit.node for node in part.nodes if (unit := unit_of(node)) is not None}


def test_a_row_of_int8_claims_units_and_no_real_numbers() -> None:
    result = relayout.convert(float_and_int8(), target=npu(CONV))
    domains = Counter(node.domain for node in result.model.graph if node.op_type == "Conv")
    assert domains == {"": 2, "relayout.nhwc.ohwi": 1}


def test_a_row_of_floats_claims_no_unit() -> None:
    result = relayout.convert(float_and_int8(), target=npu(Kernel("Conv", ("NHWC OHWI",), ("FLOAT",))))
    domains = Counter(node.domain for node in result.model.graph if node.op_type == "Conv")
    assert domains == {"": 1, "relayout.nhwc.ohwi": 2}, "weights alone are quantized: it runs on real numbers"
    claims = result.report.claims
    assert claims is not None
    (conv,) = (row for row in claims.operators if row.operator == "Conv")
    assert conv.reasons == {"a quantized unit of INT8; it takes FLOAT": 1}


def test_a_symmetric_network_is_one_part_between_two(tmp_path: Path) -> None:
    result = relayout.convert(residual(), target=npu(CONV, SUM))
    result.save_parts(tmp_path / "parts")
    manifest = json.loads((tmp_path / "parts" / "manifest.json").read_text(encoding="utf-8"))
    assert [part["claimed"] for part in manifest["parts"]] == [False, True, False]
    inner = manifest["parts"][1]
    boundary = onnx.load(tmp_path / "parts" / inner["file"]).graph
    kinds = {value.type.tensor_type.elem_type for value in (*boundary.input, *boundary.output)}
    assert kinds == {onnx.TensorProto.INT8}, "integers cross the border, not real numbers"
    feed = {"x": np.random.default_rng(1).random((1, CHANNELS, 16, 10), np.float32) * 4 - 2}
    for got, want in zip(run_parts(tmp_path / "parts", feed), run(residual(), feed), strict=True):
        np.testing.assert_allclose(got, want, atol=0.051)


@pytest.mark.parametrize("name", ["tensorrt", "qnn", "litert"])
def test_targets_of_the_project_claim_it_whole(name: str) -> None:
    claims = relayout.convert(residual(), target=name).report.claims
    assert claims is not None
    assert claims.claimed_parts == 1
    assert {row.operator for row in claims.operators if row.claimed < row.total} <= {
        "DequantizeLinear",
        "QuantizeLinear",
    }


def test_no_cut_goes_through_a_unit() -> None:
    """A sum of two units, one of them the host's: the DequantizeLinear of the other waits for it."""
    net = QuantizedNet()
    first = net.unit("Conv", net.quantize("x"), kernel=(CHANNELS, CHANNELS, 1, 1))
    host = net.unit("Sigmoid", first)
    result = relayout.convert(net.model(net.dequantize(net.unit("Add", first, host))), target=npu(CONV, SUM))
    found = result.parts()
    places = {node: place for place, part in enumerate(found) for node in part.nodes}
    for node, place in places.items():
        unit = unit_of(node)
        if unit is not None:
            assert {places[member] for member in unit.members if member in places} == {place}
    assert [part.claimed for part in found] == [False, True, False, True, False]


def test_a_shared_dequantize_is_each_units_own_and_one_again() -> None:
    source = residual()
    result = relayout.convert(source, target=npu(CONV, SUM))
    before = [node.name for node in result.model.graph]
    (part,) = (part for part in result.parts() if part.claimed)
    assert len(units_in(part)) == 4
    assert [node.name for node in result.model.graph] == before


def test_an_epilogue_belongs_to_its_unit() -> None:
    result = relayout.convert(residual(), target=npu(CONV, SUM))
    relus = [node for node in result.model.graph if node.op_type == "Relu"]
    assert [unit.node.op_type for node in relus if (unit := unit_of(node)) is not None] == ["Conv"]
    (part,) = (part for part in result.parts() if part.claimed)
    assert "Relu" in part.operators


def test_a_result_that_somebody_else_reads_makes_no_unit() -> None:
    net = QuantizedNet()
    value = net.add("Relu", [net.dequantize(net.quantize("x"))])
    net.quantize(value)
    model = ir.from_proto(net.model(net.add("Neg", [value])))
    assert not any(unit_of(node) for node in model.graph)


LIMITS = {
    "SYMMETRIC_ACTIVATIONS": (lambda: residual(), lambda: residual(zero=3)),
    "POWER_OF_TWO_SCALES": (lambda: scaled(0.25), lambda: scaled(0.3)),
    "PER_TENSOR_WEIGHTS": (lambda: weighted(1), lambda: weighted(CHANNELS)),
    "SYMMETRIC_WEIGHTS": (lambda: weighted(1), lambda: weighted(1, zero=2)),
    "SAME_SCALES": (lambda: scaled(0.25), lambda: scaled(0.25, 0.5)),
}


def scaled(scale: float, result: float | None = None) -> onnx.ModelProto:
    """A pool between scales."""
    net = QuantizedNet()
    integers = net.add("QuantizeLinear", ["x", *net.ends(scale=scale)])
    value = net.add("MaxPool", [net.add("DequantizeLinear", [integers, *net.ends(scale=scale)])], kernel_shape=[2, 2])
    return net.model(net.dequantize(net.add("QuantizeLinear", [value, *net.ends(scale=result or scale)])))


def weighted(scales: int, zero: int = 0) -> onnx.ModelProto:
    """A convolution whose kernel has one scale, or one per channel."""
    net = QuantizedNet()
    integers = net.constant("w", net.rng.integers(-9, 9, (CHANNELS, CHANNELS, 1, 1)).astype(np.int8))
    shape = () if scales == 1 else (scales,)
    ends = [
        net.constant("s", np.full(shape, 0.1, np.float32)),
        net.constant("z", np.full(shape, zero, np.int8)),
    ]
    kernel = net.add("DequantizeLinear", [integers, *ends], **({"axis": 0} if scales > 1 else {}))
    value = net.add("Conv", [net.dequantize(net.quantize("x")), kernel])
    return net.model(net.dequantize(net.quantize(value)))


@pytest.mark.parametrize("name", LIMITS)
def test_conditions_see_what_integers_mean(name: str) -> None:
    limit = getattr(conditions, name)
    fits, other = (make() for make in LIMITS[name])
    target = npu(Kernel("Conv MaxPool", types=INT8, limits=(limit,)))
    claimed = [relayout.convert(model, target=target).report.claims for model in (fits, other)]
    assert all(claims is not None for claims in claimed)
    counts = [sum(row.claimed for row in claims.operators) for claims in claimed if claims is not None]
    totals = [
        sum(row.total for row in claims.operators if row.operator in ("Conv", "MaxPool"))
        for claims in claimed
        if claims is not None
    ]
    assert counts == [totals[0], 0]
    assert claimed[1] is not None
    assert f"it wants {limit}" in {reason for row in claimed[1].operators for reason in row.reasons}


def test_types_of_weights_bias_and_fixed_results() -> None:
    fits = npu(Kernel("Conv", types=INT8, limits=(conditions.weights_of("INT8"), conditions.bias_of("INT32"))))
    wide = npu(Kernel("Conv", types=INT8, limits=(conditions.weights_of("INT4"),)))
    fixed = npu(Kernel("MaxPool", types=INT8, limits=(conditions.results_of(0.25, 0),)))
    other = npu(Kernel("MaxPool", types=INT8, limits=(conditions.results_of(1 / 256, -128),)))
    for model, table, count in (
        (weighted(1), fits, 1),
        (weighted(1), wide, 0),
        (scaled(0.25), fixed, 1),
        (scaled(0.25), other, 0),
    ):
        claims = relayout.convert(model, target=table).report.claims
        assert claims is not None
        assert claims.claimed == count


def test_more_transposes_are_told_with_the_operators_that_cause_them() -> None:
    """Depthwise convolutions that the NPU does not have, between those that it has."""
    net = QuantizedNet()
    value = net.quantize("x")
    for _ in range(2):
        value = net.unit("Conv", value, kernel=(CHANNELS, CHANNELS, 1, 1))
        value = net.unit("Conv", value, kernel=(CHANNELS, 1, 3, 3), group=CHANNELS)
    value = net.unit("Conv", value, kernel=(CHANNELS, CHANNELS, 1, 1))
    target = npu(Kernel("Conv", ("NHWC OHWI",), INT8, when=conditions.NOT_DEPTHWISE))
    report = relayout.convert(net.model(net.dequantize(value)), target=target).report
    assert report.claims is not None
    assert report.claims.borders["Conv"] == 2
    lines = list(report.claims.lines(report.transposes - report.source_transposes))
    assert lines[0] == "npu runs 3 of 7 operators, in 3 parts of 7"
    assert "not on npu: 2 of 5 Conv: it runs Conv only with: not depthwise" in lines
    assert any(line.startswith(f"{report.transposes} more Transposes than the source") for line in lines)
    assert json.loads(json.dumps(report.to_dict()))["claims"]["claimed"] == 3


def test_integers_that_get_another_scale_are_a_unit() -> None:
    net = QuantizedNet()
    integers = net.add("DequantizeLinear", [net.quantize("x"), *net.ends()])
    again = net.add("QuantizeLinear", [integers, *net.ends(scale=0.1)])
    model = net.model(net.add("DequantizeLinear", [again, *net.ends(scale=0.1)]))
    claims = relayout.convert(model, target=npu(Kernel("QuantizeLinear", types=INT8))).report.claims
    assert claims is not None
    assert (claims.claimed, claims.total) == (1, 3)


def test_what_the_npu_lacks_runs_as_the_fallback_has_it() -> None:
    """Beside an NPU for convolutions alone, LiteRT's kernels run the pool: channels last, too."""
    net = QuantizedNet()
    value = net.unit(
        "MaxPool", net.unit("Conv", net.quantize("x"), kernel=(CHANNELS, CHANNELS, 1, 1)), kernel_shape=[2, 2]
    )
    model = net.model(net.dequantize(value))
    alone = relayout.convert(model, target=npu(CONV), io="convert").report
    beside = replace(npu(CONV), fallback=target("litert"))
    result = relayout.convert(model, target=beside, io="convert")
    assert result.report.transposes < alone.transposes
    assert result.report.claims is not None
    assert result.report.claims.claimed == 1
    assert relayout.convert(model, target=beside, format="tflite").report.operators["MAX_POOL_2D"] == 1


def agree_in_parts(model: onnx.ModelProto, table: Target, directory: Path) -> list[Part]:
    """Return the parts of a model, whose files were run in order and gave what the model does."""
    result = relayout.convert(model, target=table)
    result.save_parts(directory)
    feed = {"x": np.random.default_rng(1).random((1, CHANNELS, 16, 10), np.float32) * 4 - 2}
    for got, want in zip(run_parts(directory, feed), run(model, feed), strict=True):
        np.testing.assert_allclose(got, want, atol=0.051)
    return result.parts()


def test_a_unit_waits_for_the_latest_of_its_operands(tmp_path: Path) -> None:
    """The operand that is ready first is dequantized last: it does not bring the unit before the other operand."""
    net = QuantizedNet()
    early = net.quantize("x")
    late = net.quantize(
        net.add("Sigmoid", [net.dequantize(net.unit("Conv", early, kernel=(CHANNELS, CHANNELS, 1, 1)))])
    )
    model = net.model(net.dequantize(net.unit("Add", late, early)))
    found = agree_in_parts(model, npu(CONV, SUM), tmp_path / "parts")
    assert [part.claimed for part in found] == [False, True, False, True, False]


@pytest.mark.parametrize("claimed", ["Conv Add", "Conv", "Add"])
def test_units_behind_a_view_that_others_read(claimed: str, tmp_path: Path) -> None:
    """Two units and a sigmoid read one view of what is dequantized: each unit has a view of its own in its part."""
    net = QuantizedNet()
    shape = net.constant("shape", np.array([1, CHANNELS, 10, 16]))
    view = net.add("Reshape", [net.dequantize(net.quantize("x")), shape])
    conv = net.quantize(net.add("Conv", [view, net.kernel(CHANNELS, CHANNELS, 1, 1)]))
    late = net.dequantize(net.quantize(net.add("Sigmoid", [view])))
    total = net.quantize(net.add("Add", [view, late]))
    model = net.model(net.dequantize(net.unit("Mul", conv, total)))
    before = model.SerializeToString()
    found = agree_in_parts(model, npu(*(Kernel(name, types=INT8) for name in claimed.split())), tmp_path / "parts")
    assert sum(part.claimed for part in found) == len(claimed.split())
    for part in (part for part in found if part.claimed):
        types = {value.dtype for value in (*part.inputs, *part.outputs)}
        assert types == {ir.DataType.INT8}, "integers cross the border, not real numbers"
    assert model.SerializeToString() == before


def test_what_reads_into_a_loop_is_whose_the_loop_is(tmp_path: Path) -> None:
    """The target has loops, but not what this one holds: its ends are the host's with it."""
    net = QuantizedNet()
    body = onnx.helper.make_graph(
        [onnx.helper.make_node("Identity", ["c"], ["d"]), onnx.helper.make_node("Neg", ["v"], ["w"])],
        "body",
        [onnx.helper.make_tensor_value_info(name, kind, []) for name, kind in (("i", 7), ("c", 9))]
        + [onnx.helper.make_tensor_value_info("v", 1, [1, CHANNELS, 16, 10])],
        [onnx.helper.make_tensor_value_info("d", 9, []), onnx.helper.make_tensor_value_info("w", 1, None)],
    )
    more, count = net.constant("more", np.array(True)), net.constant("count", np.array(50))
    first = net.unit("Add", *2 * [net.quantize("x")])
    value = net.quantize(net.add("Loop", [count, more, net.dequantize(first)], body=body))
    model = net.model(net.dequantize(net.unit("Add", value, first)))
    found = agree_in_parts(model, npu(SUM, Kernel("Loop"), Kernel("Identity")), tmp_path / "parts")
    assert [part.claimed for part in found] == [False, True, False, True, False]
    (loop,) = (part for part in found if "Loop" in part.operators)
    assert loop.operators["DequantizeLinear"] == loop.operators["QuantizeLinear"] == 1


def test_a_chain_of_views_is_each_units_own_and_one_again() -> None:
    net = QuantizedNet()
    first = net.add("Identity", [net.dequantize(net.quantize("x"))])
    second = net.add("Identity", [first])
    ends = [net.quantize(net.add(name, [view])) for name, view in (("Relu", first), ("Neg", second), ("Abs", second))]
    model = ir.from_proto(net.model(net.unit("Sum", *ends)))
    before = ir.to_proto(model).SerializeToString()
    with whole_units(model):
        units = {unit.node: unit for node in model.graph if (unit := unit_of(node)) is not None}
        counts = {node.op_type: len(unit.members) for node, unit in units.items()}
        assert (counts["Relu"], counts["Neg"], counts["Abs"]) == (4, 5, 5)
        assert sum(len(unit.members) for unit in units.values()) == len(
            set().union(*(u.members for u in units.values()))
        )
    assert ir.to_proto(model).SerializeToString() == before


def test_a_unit_that_waits_for_itself_is_the_hosts(tmp_path: Path) -> None:
    """One half of a Split says with which scale the other half is quantized: it cannot be one node of the target."""
    net = QuantizedNet()
    size = net.constant("sizes", np.array([1, CHANNELS - 1]))
    one, other = net.name("half"), net.name("half")
    split = onnx.helper.make_node("Split", [net.dequantize(net.quantize("x")), size], [one, other], axis=1)
    net.nodes.append(split)
    real = net.add("Abs", [net.dequantize(net.quantize(one))])
    top = net.add("ReduceMean", [real], axes=[0, 1, 2, 3], keepdims=0)
    scale = net.add("Add", [top, net.constant("least", np.array(0.01, np.float32))])
    zero = net.constant("zero", np.array(0, np.int8))
    model = net.model(net.add("DequantizeLinear", [net.add("QuantizeLinear", [other, scale, zero]), scale, zero]))
    found = agree_in_parts(model, npu(Kernel("Split", types=INT8)), tmp_path / "parts")
    assert [part.claimed for part in found] == [False]


def test_a_row_without_layouts_is_told_where_a_tflite_wants_one() -> None:
    """The mean of an image in the layout of ONNX, as the row allows."""
    net = QuantizedNet()
    value = net.unit("GlobalAveragePool", net.quantize("x"))
    model = net.model(net.dequantize(value))
    row = Kernel("GlobalAveragePool", types=INT8)
    table = replace(npu(row), fallback=target("litert"))
    with pytest.raises(relayout.UnsupportedError, match=r"a row of --target npu without layouts runs in any"):
        relayout.convert(model, target=table, format="tflite")
    named = replace(table, kernels=(replace(row, layouts=("NHWC",)),))
    assert relayout.convert(model, target=named, format="tflite").report.operators["MEAN"] == 1


def test_one_operator_is_no_operators() -> None:
    claims = relayout.convert(QuantizedNet().model("x"), target=npu(CONV)).report.claims
    assert claims is not None
    assert next(replace(claims, claimed=1, total=1, claimed_parts=1, parts=1).lines(0)) == (
        "npu runs 1 of 1 operator, in 1 part of 1"
    )


def test_a_reason_is_said_once_and_a_model_of_floats_is_told_of_integers() -> None:
    proto = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> g (float[1,2,4,4] x) => (float[1,2,4,4] y) {'
        " a = Relu(x) b = Sigmoid(a) y = Relu(b) }"
    )
    said = list(relayout.convert(proto, target=npu(Kernel("Relu Sigmoid", types=("INT8",)))).report.claims.lines(0))  # type: ignore[union-attr]
    assert said[1].endswith(": 2 of 2 Relu, 1 of 1 Sigmoid: element type FLOAT; it takes INT8")
    assert "--quantize int8 --calibrate DATA" in said[2]
