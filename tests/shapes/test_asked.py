"""Dimensions and names that a user asks for: fixing is as if the file had the number, names may be new ones."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

import relayout
from relayout.cli import cli
from relayout.layout.stored_as import OPENED_BATCH, OpenedBatch
from relayout.pipeline.names import SourceNames, refuse_unusual_layouts
from relayout.shapes.parts import OpeningError
from running import operators, run
from small import build

MODELS = Path(__file__).parents[2] / "models"
GRAPHS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "plain": ("float[b,3,8,8] x", "c = Conv(x, w) y = GlobalAveragePool(c)", {"w": (4, 3, 3, 3)}),
    "computed shape": (
        "float[b,3,4] x",
        "s = Shape(x) n = Slice(s, zero, one, zero) t = Concat<axis=0>(n, rest) y = Reshape(x, t)",
        {"zero": [0], "one": [1], "rest": [12]},
    ),
    "transposed": ("float[b,h,8,3] x", "t = T0312(x) c = Conv(t, w) y = T0231(c)", {"w": (4, 3, 3, 3)}),
    "expanded": (
        "float[b,4] x, float[1,4] z",
        "s = Shape(x) e = Expand(z, s) m = Mul(e, x) y = T10(m)",
        {},
    ),
    "flattened": ("float[b,3,4] x", "f = Flatten(x) y = MatMul(f, w)", {"w": (12, 5)}),
    "a mask": (
        "float[b,h] x",
        "s = Shape(x) n = Gather(s, one) r = Range(zero, n, one) f = Cast<to=1>(r) y = Add(x, f)",
        {"zero": np.array(0), "one": np.array(1)},
    ),
}
COMPUTED = ("computed shape", "expanded", "a mask")
"""Those of them that compute with extents: where these are fixed by `--dim`, nothing computes with them any more."""


WRITTEN = {
    "nothing to win": """
        <ir_version: 10, opset_import: ["": 21]> g (float[b,3,8,8] x) => (float[b,3,4,4] y)
        <float[b,3,8,8] r> { r = Relu(x) y = MaxPool<kernel_shape=[2,2], strides=[2,2]>(r) }
    """,
    "branches": """
        <ir_version: 10, opset_import: ["": 21]> g (float[b,4] x, bool c) => (float[b,4] y) {
            y = If<
                then_branch = t () => (float[b,4] u) { u = Relu(x) },
                else_branch = e () => (float[b,4] v) { v = Abs(x) }
            >(c)
        }
    """,
    "a function": """
        <ir_version: 10, opset_import: ["": 21, "acme": 1]> g (float[b,4] x) => (float[b,4] y) { y = acme.F(x) }
        <domain: "acme", opset_import: ["": 21]> F (a) => (r) { r = Relu(a) }
    """,
}


def numbered(model: onnx.ModelProto, **numbers: int) -> onnx.ModelProto:
    """The model as an exporter would have written it with numbers."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    bodies = [each.g for node in result.graph.node for each in node.attribute if each.HasField("g")]
    for value in (value for graph in (result.graph, *bodies) for value in (*graph.input, *graph.output)):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in numbers:
                dim.dim_value = numbers[dim.dim_param]
    del result.graph.value_info[:]
    outputs = list(result.graph.output)
    result = onnx.shape_inference.infer_shapes(result, data_prop=True)
    for value, before in zip(result.graph.output, outputs, strict=True):
        for dim in value.type.tensor_type.shape.dim:
            assert dim.HasField("dim_value") or before.type.tensor_type.shape.dim, value.name
    del result.graph.value_info[:]
    return result


@pytest.mark.parametrize("number", [1, 2, 5])
@pytest.mark.parametrize("graph", GRAPHS)
def test_a_fixed_dimension_gives_the_bytes_of_a_source_with_the_number(graph: str, number: int) -> None:
    inputs, text, constants = GRAPHS[graph]
    model = build(inputs, text, constants)
    del model.graph.value_info[:]
    numbers = {
        name: number + 3 * place
        for place, name in enumerate(("b", "h"))
        if f"{name}," in inputs or f"{name}]" in inputs
    }
    # With `io`, since a source of which nothing is asked is given back as it was written.
    fixed = relayout.convert(model, dims=numbers, io="convert").proto
    source = numbered(model, **numbers)
    stated = relayout.convert(source, io="convert").proto
    if graph not in COMPUTED:
        assert fixed.SerializeToString(deterministic=True) == stated.SerializeToString(deterministic=True)
        return
    feed = {
        value.name: np.random.default_rng(0).random([dim.dim_value for dim in value.type.tensor_type.shape.dim], "f")
        for value in source.graph.input
    }
    assert "Shape" not in operators(fixed)
    assert [end.name for end in fixed.graph.output] == [end.name for end in stated.graph.output]
    for found, expected in zip(run(fixed, feed), run(stated, feed), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("graph", [*sorted(GRAPHS.keys() - {*COMPUTED}), *WRITTEN])
def test_optimize_gives_the_bytes_of_a_source_with_the_number(graph: str, tmp_path: Path) -> None:
    """Also where nothing is won, and the source is given back as it was written."""
    model = build(*GRAPHS[graph]) if graph in GRAPHS else onnx.parser.parse_model(WRITTEN[graph])
    del model.graph.value_info[:]
    named = {dim.dim_param for value in model.graph.input for dim in value.type.tensor_type.shape.dim}
    numbers = {name: number for name, number in (("b", 3), ("h", 5)) if name in named}
    for name, source, dims in (("open", model, numbers), ("stated", numbered(model, **numbers), None)):
        onnx.save(source, tmp_path / f"{name}.onnx")
        relayout.optimize(tmp_path / f"{name}.onnx", dims=dims).save(tmp_path / f"{name}.result.onnx")
    found, expected = ((tmp_path / f"{name}.result.onnx").read_bytes() for name in ("open", "stated"))
    assert found == expected
    assert "dim_param" not in str(onnx.load_from_string(found).graph.output)


def test_a_dimension_that_takes_a_name_is_changed_in_place(tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(WRITTEN["nothing to win"]), tmp_path / "a.onnx")
    relayout.optimize(tmp_path / "a.onnx", dims={"b": "n"}).save(tmp_path / "b.onnx")
    found = onnx.load(tmp_path / "b.onnx")
    assert found == onnx.parser.parse_model(WRITTEN["nothing to win"].replace("[b,", "[n,"))


def test_branches_may_have_other_values_of_one_name(tmp_path: Path) -> None:
    text = """<ir_version: 10, opset_import: ["": 21]> g (float[N,K] x, bool c) => (float[P,Q] y) { y = If<
        then_branch = a () => (float[N,K] p) <float[N,K] t> { t = Relu(x) p = Neg(t) },
        else_branch = b () => (float[K,N] q) <float[K,N] t> { t = Transpose(x) q = Neg(t) }>(c) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "a.onnx")
    relayout.optimize(tmp_path / "a.onnx", dims={"N": 4}).save(tmp_path / "b.onnx")
    x = np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32)
    for which, expected in ((True, -np.maximum(x, 0)), (False, -x.T)):
        np.testing.assert_array_equal(run(onnx.load(tmp_path / "b.onnx"), {"x": x, "c": np.array(which)})[0], expected)


def test_a_function_may_have_another_value_of_one_name(tmp_path: Path) -> None:
    source = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["": 21, "acme": 1]> g (float[N,K] x) => (float[K,N] y) { y = acme.F(x) }
        <domain: "acme", opset_import: ["": 21]> F (a) => (r) { x = Transpose(a) r = Neg(x) }
    """)
    source.functions[0].value_info.append(onnx.helper.make_tensor_value_info("x", 1, ["K", "N"]))
    onnx.save(source, tmp_path / "a.onnx")
    relayout.optimize(tmp_path / "a.onnx", dims={"N": 4}).save(tmp_path / "b.onnx")
    (stated,) = onnx.load(tmp_path / "b.onnx").functions[0].value_info
    assert [dim.dim_param or dim.dim_value for dim in stated.type.tensor_type.shape.dim] == ["K", 4]


@pytest.mark.parametrize(
    ("inputs", "text", "constants"),
    [
        ("float[N,3] x", "y = Add(x, c)", {"c": (5, 3)}),
        ("float[N,6] x", "y = Reshape(x, s)", {"s": [5, -1]}),
    ],
)
def test_a_number_that_does_not_fit_is_refused(
    inputs: str, text: str, constants: dict[str, Any], tmp_path: Path
) -> None:
    onnx.save(build(inputs, text, constants), tmp_path / "a.onnx")
    with pytest.raises(relayout.RelayoutError):
        relayout.optimize(tmp_path / "a.onnx", dims={"N": 4}).save(tmp_path / "b.onnx")
    assert not (tmp_path / "b.onnx").exists()


@pytest.mark.parametrize(
    ("inputs", "options", "message"),
    [
        ("float[1,3] x", {"batch": "n", "dims": {"x:0": "m"}}, "dimension x:0: it cannot be both n and m"),
        ("float[1,3] x", {"dims": {"x:1": 4, "x:-1": 5}}, "dimension x:1: it cannot be both 4 and 5"),
        ("float[1,n] x", {"batch": "n"}, "batch n: axis 1 of input 'x' has that name; take another"),
        ("float[1,4,6] x", {"dims": {"x:1": "m", "x:2": "m"}}, "m cannot be the name of different extents"),
    ],
)
def test_what_contradicts_itself_is_refused(inputs: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(relayout.LayoutError, match=re.escape(message)):
        relayout.convert(build(inputs, "y = Relu(x)", {}), **options)


def test_a_name_that_no_dimension_has_is_answered_with_few() -> None:
    sizes = ", ".join(f"float[batch,s{i}] x{i}" for i in range(130))
    with pytest.raises(relayout.LayoutError) as raised:
        relayout.convert(build(sizes, "y = Relu(x0)", {}), dims={"bach": 1})
    text = "did you mean 'batch'? (dynamic dimensions: batch, s0, s1, s2, s3, s4, s5, s6, s7, s8 and 121 more)"
    assert text in str(raised.value)


def test_a_dimension_of_an_input_without_a_name() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["": 21]>
        g (float[?,3,?] x, float[?,3,4] z) => (float[?,3,?] y, float[?,3,4] w) { y = Relu(x) w = Relu(z) }
    """)

    def shapes(**options: Any) -> list[list[str | int]]:
        graph = relayout.convert(model, **options).proto.graph
        return [
            [dim.dim_param or dim.dim_value for dim in end.type.tensor_type.shape.dim]
            for end in (*graph.input, *graph.output)
        ]

    assert shapes(batch="n")[1] == ["n", 3, 4]
    assert shapes(batch=5)[1::2] == [[5, 3, 4]] * 2
    assert [shape[2] for shape in shapes(dims={"x:2": 6})] == [6, 4, 6, 4]
    assert [shape[2] for shape in shapes(dims={"x:-1": "width"})][:2] == ["width", 4]
    with pytest.raises(
        relayout.LayoutError, match="without a name in the model; x:0=6, x:2=6, z:0=6 names one of an input"
    ):
        relayout.convert(model, dims={"?1": 6})


def test_inputs_that_keep_their_first_axis_are_named() -> None:
    result = relayout.convert(
        build("float[7] k, float[1,7] x, float[3,7] z", "y = Mul(x, k) w = Mul(z, k)", {}), batch="n"
    )
    assert [dim.dim_param or dim.dim_value for dim in result.proto.graph.input[1].type.tensor_type.shape.dim] == [
        "n",
        7,
    ]
    assert "note: batch: inputs that keep their first axis: k (7), z (3)" in str(result.report)


def test_integers_of_one_scale_bind_the_batch() -> None:
    """Also where nobody reads the scale: it is that of all rows."""
    model = build(
        "float[1,4] x", "q, s, z = DynamicQuantizeLinear(x) y = MatMulInteger(q, w)", {"w": np.ones((4, 2), np.uint8)}
    )
    with pytest.raises(relayout.RelayoutError, match=r"DynamicQuantizeLinear .* computes along it"):
        relayout.convert(model, batch="n")


def test_many_inputs_that_hold_the_same_axis_are_opened(tmp_path: Path) -> None:
    count = 80
    inputs = ", ".join(["float[1,1,8] x", *(f"float[1,4,8] p{i}" for i in range(count))])
    text = " ".join(f"c{i} = Concat<axis=1>(p{i}, x)" for i in range(count))
    result = relayout.convert(build(inputs, text, {}), dims={"x:0": "n"}).proto
    assert {value.type.tensor_type.shape.dim[0].dim_param for value in (*result.graph.input, *result.graph.output)} == {
        "n"
    }


def test_a_value_that_many_paths_lead_to_is_looked_at_once() -> None:
    """One look for each path would be 2^50 looks."""
    text = "t0 = Transpose(w) " + " ".join(f"t{i} = Add(t{i - 1}, t{i - 1})" for i in range(1, 51)) + " y = Add(x, t50)"
    alike = np.repeat(np.arange(8, dtype=np.float32)[:, None], 4, 1)
    result = relayout.convert(build("float[4,8] x", text, {"w": alike}), batch="n").proto
    assert result.graph.output[0].type.tensor_type.shape.dim[0].dim_param == "n"


def test_new_names_mean_the_source() -> None:
    names = SourceNames({"image": "pic", "a": "b", "b": "a"})
    assert names.listed(["pic", "image", "a", "x"]) == ["image", "image", "a", "x"]
    assert names.places({"pic:0": 1, "batch": 2}) == {"image:0": 1, "batch": 2}
    model = build("float[1,3,4,4] image", "y = Relu(image)", {})
    result = relayout.convert(model, rename={"image": "pic"}, dims={"pic:0": "n"}, layouts={"pic": ("NCHW", "NHWC")})
    (end,) = result.proto.graph.input
    assert [dim.dim_param or dim.dim_value for dim in end.type.tensor_type.shape.dim] == ["n", 4, 4, 3]


def test_an_unusual_layout_is_refused_unless_it_is_spelled_out() -> None:
    usual = {"x": ("NHWC", "NCHW"), "z": ("n h w c", "n c w h"), "k": ("OIHW", "OHWI"), "s": ("NC", "CN")}
    refuse_unusual_layouts(usual | {"b": ("NCHW", "NCHW16c")})
    model = build("float[1,3,4,5] x", "y = Relu(x)", {})
    with pytest.raises(relayout.LayoutError) as caught:
        relayout.convert(model, layouts={"x": ("NCWH", "NHWC")})
    assert str(caught.value) == (
        "--layout x=NCWH:NHWC: NCWH is no usual layout of images; did you mean 'NCHW'? If you mean it, write it in"
        " lower case with spaces: 'n c w h'"
    )
    result = relayout.convert(model, layouts={"x": ("n c w h", "NHWC")})
    assert result.report.interface[0].shape == (1, 5, 4, 3)


def test_a_name_that_contradicts_the_operators_is_refused_unless_it_is_spelled_out() -> None:
    kernel = {"w": np.ones((2, 3, 1, 1), np.float32)}
    model = build("float[1,3,4,5] image", "y = Conv(image, w)", kernel)
    expected = "image is NCHW here; you called it NHWC"
    for io in ("keep", "convert"):
        with pytest.raises(relayout.LayoutError, match=f"an operator shows that {expected}. Write --layout image=NCHW"):
            relayout.convert(model, layouts={"image": ("NHWC", "NCHW")}, io=io)
    notes = relayout.convert(model, layouts={"image": ("n h w c", "n c h w")}, io="convert").report.notes
    assert f"{expected}: --layout image=NCHW:… names its axes as they are" in notes
    assert relayout.convert(model, layouts={"image": ("NCHW", "NHWC")}).report.notes == ()
    anything = build("float[1,3,4,5] x", "y = Relu(x)", {})
    assert relayout.convert(anything, layouts={"x": ("NHWC", "NCHW")}).report.notes == ()


def test_an_image_of_a_tflite_is_nhwc_where_an_operator_says_so() -> None:
    with pytest.raises(relayout.LayoutError, match="an operator shows that image is NHWC here; you called it NCHW"):
        relayout.convert(MODELS / "tinynet_float.tflite", layouts={"image": ("NCHW", "NHWC")})


@pytest.mark.parametrize("suffix", ["onnx", "tflite"])
@pytest.mark.parametrize("model", ["tinynet_float", "tinynet_int8"])
def test_a_network_of_batch_two_takes_any(tmp_path: Path, model: str, suffix: str) -> None:
    source, target = MODELS / f"{model}.tflite", tmp_path / f"m.{suffix}"
    done = CliRunner().invoke(cli, ["convert", str(source), str(target), "--batch", "n", "--verify", "--json"])
    assert done.exit_code == 0, done.output
    found = relayout.verify(source, target)  # the file says what was opened
    assert [row.name for row in found.outputs if "batch" in row.name] == ["output_0 at batch 3", "output_0 at batch 7"]
    assert found.ok
    assert found.verdict.startswith("PASSED: 1 output agrees at batches 2, 3 and 7 within")
    assert found.to_dict()["batches"] == [2, 3, 7]
    number = tmp_path / f"four.{suffix}"
    done = CliRunner().invoke(cli, ["convert", str(source), str(number), "--batch", "4", "--verify", "--json"])
    assert done.exit_code == 0, done.output
    found = relayout.verify(source, number)
    assert [row.name for row in found.outputs] == ["output_0 at batch 4"]
    assert found.ok
    assert found.verdict.startswith("PASSED: 1 output agrees at batch 4 within")
    assert [fed.shape for fed in found.inputs] == [(4, 24, 40, 3)]
    zeros = np.zeros((2, 24, 40, 3), np.float32 if "float" in model else np.int8)
    found = relayout.verify(source, number, inputs={"image": zeros})
    assert [fed.how for fed in found.inputs] == ["random"]
    assert "inputs that were given have the source's batch, and the result takes another: all are random" in found.notes


def test_rows_that_depend_on_each_other_do_not_verify(tmp_path: Path) -> None:
    """A batch that was opened by hand where an operator mixes its rows."""
    text = "m = ReduceMean<keepdims=1>(x, zero) y = Sub(x, m)"
    source, changed = (build(f"float[{batch},4] x", text, {"zero": [0]}) for batch in (1, "n"))
    opened = changed.metadata_props.add()
    opened.key, opened.value = OPENED_BATCH, OpenedBatch({"x": 0}, {"y": (0, 1)}).dump()
    found = relayout.verify(source, changed)
    assert not found.ok
    assert [row.ok for row in found.outputs] == [True, False, False]


def test_a_batch_that_is_bound_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "x.onnx"
    onnx.save(build("float[2,3] x", "y = Softmax<axis=0>(x)", {}), path)
    command = [sys.executable, "-m", "relayout", "convert", str(path), str(tmp_path / "y.onnx"), "--batch", "n"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    binds = "relayout: the batch (axis 0 of 'x') cannot be opened: Softmax 'y' computes along it"
    assert done.stderr == f"{binds}; cut the graph before it with --outputs (docs/how-to/batch.md says more)\n"
    assert not (tmp_path / "y.onnx").exists()
    table = build("float[2,3] x", "y = Add(x, t)", {"t": np.arange(6, dtype=np.float32).reshape(2, 3)})
    with pytest.raises(OpeningError, match=r"^axis 0 of 'x' cannot become 33: Add 'y' reads 't'"):
        relayout.convert(table, dims={"x:0": 33})
    with pytest.raises(OpeningError, match=r"^the batch \(axis 0 of 'x'\) cannot become 3: Softmax"):
        relayout.convert(path, batch=3)


def test_a_plan_opens_the_batch_again(tmp_path: Path) -> None:
    path, plan = tmp_path / "x.onnx", tmp_path / "p.json"
    onnx.save(
        build("float[1,2,4,4] x", "t = T0231(x) r = Relu(t) f = T0312(r) y = Reshape(f, s)", {"s": [1, 32]}), path
    )
    done = CliRunner().invoke(
        cli, ["convert", str(path), str(tmp_path / "y.onnx"), "--batch", "n", "--plan", str(plan)]
    )
    assert done.exit_code == 0, done.output
    assert CliRunner().invoke(cli, ["check", str(plan), str(path)]).exit_code == 0
