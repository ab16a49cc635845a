"""Normalizations in orders that they have not: as several operators, where their parameters are constants."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from numpy.typing import NDArray
from onnx import numpy_helper

import relayout
from relayout.layout.stored_as import Holds
from relayout.pipeline import check_plan
from relayout.rules.normalization import LEAST_CHANNELS
from running import converted, operators
from text_form import floats, model

CONVOLUTIONS = {"Conv": ["NHWC"]}
STATISTICS = {name: floats(8, seed=seed) for seed, name in enumerate("sbm", 1)} | {"v": np.abs(floats(8)) + 0.5}


def between_convolutions(norm: str = "BatchNormalization", dtype: str = "float", **given: str) -> onnx.ModelProto:
    """`x -> Conv -> norm -> Relu -> Conv -> y`; `given` are parameters that are inputs, by their types."""
    cast = np.float32 if dtype == "float" else np.float16
    constants: dict[str, NDArray[np.floating]] = {name: a.astype(cast) for name, a in STATISTICS.items()}
    kernels = {"k": floats(8, 3, 3, 3).astype(cast), "l": floats(5, 8, 1, 1).astype(cast)}
    more = "".join(f", {dtype}{shape} {name}" for name, shape in given.items())
    return model(
        f"""g ({dtype}[n,3,9,7] x{more}) => ({dtype}[n,5,9,7] y) {{
            a = Conv<pads=[1,1,1,1]>(x, k)
            [norm] c = {norm}<epsilon=0.01>(a, s, b, m, v)
            d = Relu(c)
            y = Conv(d, l)
        }}""",
        **kernels,
        **{name: array for name, array in constants.items() if name not in given},
    )


def test_between_claimed_convolutions_nothing_is_moved() -> None:
    result = converted(between_convolutions(), desired_layouts=CONVOLUTIONS)
    assert (result.report.bytes, result.report.proved) == (4 * 9 * 7 * (3 + 5), True)  # input and output, for one image
    found = operators(result.proto)
    assert (found.count("BatchNormalization"), found.count("Mul"), found.count("Add")) == (0, 1, 1)
    assert {value.name for value in result.proto.graph.value_info if not value.metadata_props} == {"c__scaled"}
    assert [node.name for node in result.proto.graph.node if node.op_type in ("Mul", "Add")] == ["norm/scaled", "norm"]


def test_outputs_that_nobody_asks_for_go() -> None:
    source = between_convolutions()
    source.opset_import[0].version = 11
    source.graph.node[1].output.extend([""] * 4)  # which ONNX Runtime does not survive
    result = relayout.convert(source, desired_layouts=CONVOLUTIONS).proto
    onnx.checker.check_model(result, full_check=True)
    assert [len(node.output) for node in result.graph.node if node.op_type == "Mul"] == [1]


def test_what_an_earlier_conversion_said_is_said_of_the_sum() -> None:
    source = between_convolutions()
    named = source.graph.value_info.add()
    named.CopyFrom(onnx.helper.make_tensor_value_info("c", onnx.TensorProto.FLOAT, ["n", 8, 9, 7]))
    held = Holds.dump([Holds.as_is("earlier", ir.Shape(["n", 8, 9, 7]))])
    named.metadata_props.add(key=Holds.KEY, value=held)
    values = converted(source, desired_layouts=CONVOLUTIONS).proto.graph.value_info
    saying = {value.name: "earlier" in str(value.metadata_props) for value in values}
    assert [name for name, says in saying.items() if says] == ["earlier__nhwc"]


def test_halves_are_normalized_in_single_precision_and_keep_their_order() -> None:
    halves = relayout.convert(between_convolutions(dtype="float16"), desired_layouts=CONVOLUTIONS)
    assert "BatchNormalization" in operators(halves.proto)


def test_without_a_variance_it_is_as_infinite_as_it_was() -> None:
    source = between_convolutions()
    source.graph.node[1].attribute[0].f = 0.0
    (variance,) = (tensor for tensor in source.graph.initializer if tensor.name == "v")
    variance.CopyFrom(numpy_helper.from_array(np.zeros(8, np.float32), "v"))
    found = converted(source, desired_layouts=CONVOLUTIONS)
    assert "Mul" in operators(found.proto)


def test_parameters_that_are_shared_by_an_identity() -> None:
    source = between_convolutions()
    for slot, name in enumerate("sbmv", 1):
        source.graph.node[-3].input[slot] = f"{name}2"
        source.graph.node.insert(0, onnx.helper.make_node("Identity", [name], [f"{name}1"]))
        source.graph.node.insert(1, onnx.helper.make_node("Identity", [f"{name}1"], [f"{name}2"]))
    found = operators(converted(source, desired_layouts=CONVOLUTIONS).proto)
    assert "BatchNormalization" not in found
    assert "Identity" not in found


def test_an_identity_of_others_is_no_constant() -> None:
    source = between_convolutions()
    source.graph.node[1].input[1] = "s1"
    source.graph.node.insert(0, onnx.helper.make_node("Identity", ["s"], ["s1"], domain="some.where"))
    source.graph.value_info.append(onnx.helper.make_tensor_value_info("s1", onnx.TensorProto.FLOAT, [8]))
    source.opset_import.append(onnx.helper.make_opsetid("some.where", 1))
    assert "BatchNormalization" in operators(relayout.convert(source, desired_layouts=CONVOLUTIONS).proto)


def test_before_a_product_it_is_arithmetic_and_of_opset_6_it_trains() -> None:
    source = rows("d = Transpose<perm=[0,2,1]>(c) y = MatMul(d, w)")
    source.opset_import[0].version = 7
    assert "BatchNormalization" not in operators(relayout.optimize(source).proto)
    source.opset_import[0].version = 6
    with pytest.raises(relayout.RelayoutError, match="of opset 6"):
        relayout.optimize(source)


@pytest.mark.parametrize("given", ["m", "s"])
def test_parameters_that_are_computed_keep_it_where_it_is(given: str) -> None:
    source = between_convolutions(**{given: "[8]"})
    result = relayout.convert(source, desired_layouts=CONVOLUTIONS)
    assert "BatchNormalization" in operators(result.proto)
    assert result.report.bytes > relayout.convert(between_convolutions(), desired_layouts=CONVOLUTIONS).report.bytes


def test_in_training_it_keeps_its_order() -> None:
    source = between_convolutions()
    source.graph.node[1].attribute.append(onnx.helper.make_attribute("training_mode", 1))
    source.graph.node[1].output.extend(["mean", "variance"])
    assert "BatchNormalization" in operators(relayout.convert(source, desired_layouts=CONVOLUTIONS).proto)


def rows(behind: str, channels: int = LEAST_CHANNELS) -> onnx.ModelProto:
    """`n w c` through a dense layer, normalized along c between two Transposes."""
    statistics = {name: np.resize(array, channels) for name, array in STATISTICS.items()}
    return model(
        f"""g (float[4,6,{channels}] x) => (float[4,6,{channels}] y) {{
            a = MatMul(x, w)
            t = Transpose<perm=[0,2,1]>(a)
            c = BatchNormalization(t, s, b, m, v)
            {behind}
        }}""",
        w=floats(channels, channels) / channels,
        **statistics,
    )


def test_between_dense_layers_two_transposes_go(tmp_path: Path) -> None:
    source = rows("d = Transpose<perm=[0,2,1]>(c) y = MatMul(d, w)")
    result = converted(source)
    assert (result.report.source_bytes, result.report.bytes) == (2 * 4 * 4 * 6 * LEAST_CHANNELS, 0)
    assert operators(result.proto) == ["MatMul", "Mul", "Add", "MatMul"]
    (tmp_path / "plan.json").write_text(json.dumps(result.plan))
    assert check_plan(tmp_path / "plan.json", source).bytes == 0


def test_of_few_channels_it_is_quicker_between_transposes() -> None:
    source = rows("d = Transpose<perm=[0,2,1]>(c) y = MatMul(d, w)", LEAST_CHANNELS - 1)
    for options in ({}, {"target": "onnxruntime-cpu"}):
        assert operators(converted(source, **options).proto).count("Transpose") == 2
    assert "Transpose" not in operators(converted(source, to="NHWC").proto)


def test_an_output_has_its_name_and_what_it_holds() -> None:
    result = converted(rows("y = Transpose<perm=[0,2,1]>(c)"))
    assert operators(result.proto) == ["MatMul", "Mul", "Add"]
    assert [(value.name, len(value.type.tensor_type.shape.dim)) for value in result.proto.graph.output] == [("y", 3)]


def test_where_nothing_is_won_it_stays() -> None:
    """The one Transpose is as cheap before it, where the channels would be last, as behind."""
    source = rows("y = Neg(c)")
    source.graph.output[0].CopyFrom(
        onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, (4, LEAST_CHANNELS, 6))
    )
    result = converted(source)
    assert operators(result.proto) == ["MatMul", "Transpose", "BatchNormalization", "Neg"]


@pytest.mark.parametrize("outer", [False, True])
def test_in_the_body_of_a_node(outer: bool) -> None:
    source = between_convolutions()
    body = onnx.helper.make_graph(
        list(source.graph.node),
        "body",
        [],
        [onnx.helper.make_empty_tensor_value_info("y")],
        [] if outer else list(source.graph.initializer),
    )
    other = onnx.helper.make_graph(
        [onnx.helper.make_node("Conv", ["x", "p"], ["z"])], "other", [], [onnx.helper.make_empty_tensor_value_info("z")]
    )
    node = onnx.helper.make_node("If", ["c0"], ["r"], then_branch=body, else_branch=other)
    constants = [numpy_helper.from_array(np.array(True), "c0"), numpy_helper.from_array(floats(5, 3, 1, 1), "p")]
    del source.graph.node[:]
    source.graph.node.append(node)
    source.graph.output[0].name = "r"
    if not outer:
        del source.graph.initializer[:]
    source.graph.initializer.extend(constants)
    (branch,) = (
        attribute.g
        for node in converted(source, desired_layouts=CONVOLUTIONS).proto.graph.node
        for attribute in node.attribute
        if attribute.name == "then_branch"
    )
    assert {"Mul", "Add"} <= {node.op_type for node in branch.node}


GROUPED = """
    r = Reshape(a, groups)
    i = InstanceNormalization<epsilon=0.01>(r, one, zero)
    j = Reshape(i, back)
    m = Mul(j, s)
    c = Add(m, b)
"""
OVER_SPACE = "[norm] c = InstanceNormalization<epsilon=0.01>(a, s, b)"
IN_GROUPS = "[norm] c = GroupNormalization<num_groups=2, epsilon=0.01>(a, s, b)"


def image_between_convolutions(norm: str, opset: int = 21, dtype: str = "float", **given: str) -> onnx.ModelProto:
    """`x -> Conv -> norm -> Relu -> Conv -> y`; `given` are parameters that are inputs, by their types."""
    cast = np.float32 if dtype == "float" else np.float16
    shape = (8, 1, 1) if norm == GROUPED else 8
    constants = {name: STATISTICS[name].astype(cast).reshape(shape) for name in "sb"}
    if norm == GROUPED:
        constants |= {"one": np.ones(2, cast), "zero": np.zeros(2, cast)}
    elif norm == IN_GROUPS and opset < 21:
        constants = {name: array[:2] for name, array in constants.items()}
    kernels = {"k": floats(8, 3, 3, 3).astype(cast), "l": floats(5, 8, 1, 1).astype(cast)}
    more = "".join(f", {dtype}{shape} {name}" for name, shape in given.items())
    source = model(
        f"""g ({dtype}[n,3,9,7] x{more}) => ({dtype}[n,5,9,7] y) {{
            a = Conv<pads=[1,1,1,1]>(x, k)
            {norm}
            d = Relu(c)
            y = Conv(d, l)
        }}""",
        **kernels,
        **{name: array for name, array in constants.items() if name not in given},
        **({"groups": np.array([0, 2, -1]), "back": np.array([-1, 8, 9, 7])} if norm == GROUPED else {}),
    )
    source.opset_import[0].version = opset
    return source


ENDS = 4 * 9 * 7 * (3 + 5)
"""The bytes of input and output, for one image."""


@pytest.mark.parametrize("opset", [17, 18, 21])
@pytest.mark.parametrize("norm", [GROUPED, OVER_SPACE, IN_GROUPS])
def test_mean_and_variance_between_claimed_convolutions(norm: str, opset: int, tmp_path: Path) -> None:
    if norm == IN_GROUPS and opset < 18:
        pytest.skip("GroupNormalization is of opset 18")
    source = image_between_convolutions(norm, opset)
    result = converted(source, desired_layouts=CONVOLUTIONS)
    assert (result.report.bytes, result.report.proved) == (ENDS, True)
    found = operators(result.proto)
    assert found.count("ReduceMean") == 2
    assert not {"InstanceNormalization", "GroupNormalization"} & {*found}
    if norm != GROUPED:
        assert "norm" in [node.name for node in result.proto.graph.node]
    read = {name for node in result.proto.graph.node for name in node.input}
    assert {tensor.name for tensor in result.proto.graph.initializer} <= read
    assert relayout.optimize(result.proto).report.bytes == ENDS
    (tmp_path / "plan.json").write_text(json.dumps(result.plan))
    assert check_plan(tmp_path / "plan.json", source).bytes == ENDS


def test_what_adds_nothing_is_left_out() -> None:
    """A GroupNorm is exported with a scale and a bias of its own behind it."""
    sums = [operators(converted(image_between_convolutions(norm), desired_layouts=CONVOLUTIONS).proto).count("Add")
            for norm in (GROUPED, OVER_SPACE)]  # fmt: skip
    assert sums == [2, 2]


@pytest.mark.parametrize("norm", [OVER_SPACE, IN_GROUPS])
def test_for_who_asks_for_no_layouts_it_stays_one_operator(norm: str) -> None:
    source = model(
        f"""g (float[4,6,8] x) => (float[4,6,8] y) {{
            e = MatMul(x, w)
            a = Transpose<perm=[0,2,1]>(e)
            {norm}
            d = Transpose<perm=[0,2,1]>(c)
            y = MatMul(d, w)
        }}""",
        w=floats(8, 8),
        s=STATISTICS["s"],
        b=STATISTICS["b"],
    )
    for options in ({}, {"target": "onnxruntime-cpu"}):
        assert operators(converted(source, **options).proto).count("Transpose") == 2
    asked = operators(converted(source, to="NHWC").proto)
    assert "Transpose" not in asked
    assert "ReduceMean" not in asked  # it is called in the layout that is asked of it


def test_groups_of_channels_whose_order_is_fixed() -> None:
    """Behind a convolution a group's channels may lie apart, as `(h w c/2) c%2`, but where channels are cut."""
    source = image_between_convolutions(GROUPED)
    assert "ReduceMean" not in operators(converted(source, to="NHWC").proto)
    source.graph.node[-1].input[:] = ["f", "l"]
    source.graph.node.insert(
        len(source.graph.node) - 1, onnx.helper.make_node("Slice", ["d", "from", "until", "axis"], ["f"])
    )
    for name, number in (("from", 0), ("until", 5), ("axis", 1)):
        source.graph.initializer.append(numpy_helper.from_array(np.array([number]), name))
    (kernel,) = (tensor for tensor in source.graph.initializer if tensor.name == "l")
    kernel.CopyFrom(numpy_helper.from_array(floats(5, 5, 1, 1), "l"))
    result = converted(source, to="NHWC")
    assert (result.report.bytes, operators(result.proto).count("ReduceMean")) == (ENDS, 2)


def test_what_is_said_of_one_type_is_not_said_of_another() -> None:
    """Two nodes that are alike but for their types, the one that stays one operator first."""
    source = image_between_convolutions(OVER_SPACE)
    halves = [
        onnx.helper.make_node("Cast", ["x"], ["xh"], to=onnx.TensorProto.FLOAT16),
        onnx.helper.make_node("Conv", ["xh", "kh"], ["ah"], pads=[1, 1, 1, 1]),
        onnx.helper.make_node("InstanceNormalization", ["ah", "sh", "bh"], ["ch"], epsilon=0.01),
        onnx.helper.make_node("Conv", ["ch", "lh"], ["z"]),
    ]
    nodes = [*halves, *source.graph.node]
    del source.graph.node[:]
    source.graph.node.extend(nodes)
    for tensor in list(source.graph.initializer):
        array = numpy_helper.to_array(tensor).astype(np.float16)
        source.graph.initializer.append(numpy_helper.from_array(array, f"{tensor.name}h"))
    source.graph.output.append(onnx.helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT16, ["n", 5, 9, 7]))
    found = operators(relayout.convert(source, desired_layouts=CONVOLUTIONS).proto)
    assert (found.count("InstanceNormalization"), found.count("ReduceMean")) == (1, 2)


def test_steps_have_what_the_source_says_of_the_node() -> None:
    source = image_between_convolutions(OVER_SPACE)
    (node,) = (node for node in source.graph.node if node.op_type == "InstanceNormalization")
    node.metadata_props.add(key="layer", value="first")
    made = relayout.convert(source, desired_layouts=CONVOLUTIONS).proto.graph.node
    assert [entry.value for node in made if "norm" in node.name for entry in node.metadata_props] == ["first"] * 10


@pytest.mark.parametrize("norm", [GROUPED, OVER_SPACE, IN_GROUPS])
def test_halves_keep_their_order(norm: str) -> None:
    source = image_between_convolutions(norm, dtype="float16")
    assert "ReduceMean" not in operators(relayout.convert(source, desired_layouts=CONVOLUTIONS).proto)


@pytest.mark.parametrize("norm", [OVER_SPACE, IN_GROUPS])
@pytest.mark.parametrize("given", ["s", "b"])
def test_what_is_computed_keeps_it_where_it_is(norm: str, given: str) -> None:
    source = image_between_convolutions(norm, **{given: "[8]"})
    assert "ReduceMean" not in operators(converted(source, desired_layouts=CONVOLUTIONS).proto)
