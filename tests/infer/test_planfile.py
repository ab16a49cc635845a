"""Plans that others can check, and what single constraints cost."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import onnx
import pytest

import relayout
from infer.graphs import random_model
from relayout.infer import plan_file
from relayout.pipeline import check_plan
from relayout.solve.certificate import MOST_DEPTH, JoinedProofs
from relayout.solve.solver import solve
from solve.problems import dense_problem
from text_form import model as written_as

MODELS = Path(__file__).parents[2] / "models"


def written(tmp_path: Path, data: object) -> Path:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


def test_a_plan_is_checked_without_the_solver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(40):
        model, _ = random_model(seed, steps=10)
        result = relayout.optimize(model)
        with monkeypatch.context() as patch:
            patch.setattr("relayout.infer.plans.solve", None)
            found = check_plan(written(tmp_path, result.plan), model)
        assert (found.bytes, found.transposes) == (result.report.bytes, result.report.transposes)
        assert (found.bound, found.proved) == (result.report.lower_bound, True)
        assert (found.misstated, found.ok) == ((), True)


def test_a_plan_of_a_tflite_result_is_checked_on_the_prepared_graph(tmp_path: Path) -> None:
    model = written_as("g (float[1,4,6,6] x) => (int64[4,k] y) { t = Relu(x) y = NonZero(t) }")
    plan = relayout.convert(model, format="tflite").plan
    assert check_plan(written(tmp_path, plan), model).ok
    plan["options"] |= {"format": "onnx", "wishes": {}}
    with pytest.raises(relayout.ReadError, match="of another model"):
        check_plan(written(tmp_path, plan), model)


def costly() -> tuple[onnx.ModelProto, dict[str, object]]:
    for seed in range(100):
        model, _ = random_model(seed, steps=10)
        result = relayout.optimize(model)
        if result.report.bytes and result.plan["certificate"]:
            return model, result.plan
    raise AssertionError("no random graph keeps a Transpose")


def test_faults_in_a_plan_are_found(tmp_path: Path) -> None:
    model, plan = costly()
    less = copy.deepcopy(plan)
    less["certificate"] = []
    found = check_plan(written(tmp_path, less), model)
    assert not found.proved
    assert [wrong.figure for wrong in found.misstated] == ["lower_bound"]
    dear = copy.deepcopy(plan)
    dear["certificate"][0][3] *= 1000  # type: ignore[index]
    with pytest.raises(relayout.ReadError, match="exceed"):
        check_plan(written(tmp_path, dear), model)
    with pytest.raises(relayout.ReadError, match="another model"):
        check_plan(written(tmp_path, plan), random_model(12345, steps=9)[0])
    for broken in ({}, [], {**plan, "choice": [99] * len(plan["sites"])}, {**plan, "certificate": [[1]]}):  # type: ignore[arg-type]
        with pytest.raises(relayout.ReadError):
            check_plan(written(tmp_path, broken), model)
    with pytest.raises(relayout.ReadError):
        check_plan(tmp_path / "nothing.json", model)


def test_a_plan_is_not_checked_against_its_result(tmp_path: Path) -> None:
    result = relayout.convert(MODELS / "tinynet_float.tflite")
    result.save(tmp_path / "a.onnx")
    with pytest.raises(relayout.ReadError, match="of another model: its values differ; give the source that the plan"):
        check_plan(written(tmp_path, result.plan), tmp_path / "a.onnx")
    choice = [99] * len(result.plan["sites"])
    with pytest.raises(relayout.ReadError, match="an order that its operator does not have"):
        check_plan(written(tmp_path, {**result.plan, "choice": choice}), MODELS / "tinynet_float.tflite")


def deep(levels: int) -> object:
    tree: object = []
    for _ in range(levels):
        tree = {"node": 0, "parts": [[0]], "children": [tree]}
    return tree


HOSTILE = {
    "denominator 0": [[0, 0, 0, 1, 0]],
    "negative": [[0, 0, 0, -1, 1]],
    "a number with a point": [[0, 0, 0, 1.5, 1]],
    "infinite": [[0, 0, 0, float("inf"), 1]],
    "a text": [[0, 0, 0, "1", 1]],
    "true": [[True, 0, 0, 1, 1]],
    "no such value": [[10**30, 0, 0, 1, 1]],
    "no such reader": [[0, 0, 10**30, 1, 1]],
    "denominators without end": [[0, 0, 0, 1, 2**61 - 1], [0, 1, 0, 1, 2**31 - 1]],
    "deep": deep(MOST_DEPTH + 2),
    "no such node": {"node": 10**9, "parts": [[0]], "children": [[]]},
    "a node before the first": {"node": -1, "parts": [[0]], "children": [[]]},
    "a branch without labels": {"node": 0, "parts": [[]], "children": [[]]},
    "parts within a branch": {"node": 0, "parts": [[0]], "children": [{"together": []}]},
    "parts that share a value": {"together": [[[0, 0, 0, 0, 1]], [[0, 1, 0, 0, 1]]]},
    "parts that are none": {"together": 7},
    "nothing": None,
}


@pytest.mark.parametrize("certificate", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_certificate_is_refused(tmp_path: Path, certificate: object) -> None:
    model, plan = costly()
    with pytest.raises(relayout.ReadError, match="certificate is not valid"):
        check_plan(written(tmp_path, {**plan, "certificate": certificate}), model)


def test_a_proof_with_branches_is_written_and_read() -> None:
    certificate = solve(dense_problem(20, 4)).certificate
    assert isinstance(certificate, JoinedProofs)
    assert plan_file._read(json.loads(json.dumps(plan_file._write(certificate)))) == certificate


@pytest.mark.parametrize(
    ("part", "option", "value"),
    [
        ("", "dims", {"N": "x y"}),
        ("", "dims", {"N": [1]}),
        ("", "dims", {"N": 10**400}),
        ("", "layouts", {"x": "NCHW"}),
        ("", "io", 3),
        ("", "format", "exe"),
        ("read", "inputs", "x"),
        ("read", "custom_ops", 7),
        ("wishes", "to", 7),
        ("wishes", "desired_layouts", 7),
        ("wishes", "layout_for", 7),
    ],
)
def test_hostile_options_of_a_plan_are_refused(tmp_path: Path, part: str, option: str, value: object) -> None:
    model, plan = costly()
    options = {**plan["options"]}
    if part:
        options[part] = {**options[part], option: value}
    else:
        options[option] = value
    with pytest.raises(relayout.RelayoutError, match=f"{option}=.*it takes "):
        check_plan(written(tmp_path, {**plan, "options": options}), model)


def test_a_plan_nested_without_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text("[" * 100_000 + "]" * 100_000)
    with pytest.raises(relayout.ReadError, match="is no plan: it is not JSON"):
        check_plan(path, random_model(0, steps=3)[0])


def test_a_key_that_no_plan_has_is_an_error(tmp_path: Path) -> None:
    model, plan = costly()
    with pytest.raises(relayout.ReadError, match="there is no key 'chioce' in a plan"):
        check_plan(written(tmp_path, {**plan, "chioce": 1}), model)
    with pytest.raises(relayout.ReadError, match="there is no option 'layout' of a plan; did you mean 'layouts'"):
        check_plan(written(tmp_path, {**plan, "options": {**plan["options"], "layout": {}}}), model)  # type: ignore[dict-item]


def test_a_figure_that_a_plan_misstates_is_named(tmp_path: Path) -> None:
    model, plan = costly()
    size = plan["bytes"]
    for figure, stated, said in (
        ("bytes", 1, f"bytes: the plan states 1, counted are {size:,}"),
        ("transposes", 77, "transposes: the plan states 77, counted are "),
        ("lower_bound", None, "lower_bound: the plan states nothing, counted are "),
        ("terminals", [], "terminals: the plan states 0 of them, counted are "),
        ("values", plan["values"][1:], "values: the plan states "),  # type: ignore[index]
    ):
        (wrong,) = (found := check_plan(written(tmp_path, {**plan, figure: stated}), model)).misstated
        assert (wrong.figure, wrong.stated, found.proved, found.ok) == (figure, stated, True, False)
        assert str(wrong).startswith(said)
    for key, stated in (("tensor", "other"), ("bytes", 3), ("orders", [[0]]), ("tensors", 1)):
        wrongly = copy.deepcopy(plan)
        value = wrongly["values"][0]  # type: ignore[index]
        name = value["tensor"]
        value[key] = stated
        (wrong,) = check_plan(written(tmp_path, wrongly), model).misstated
        assert wrong.figure == f"{key} of value '{name}'"


def test_what_if_names_the_constraint_that_costs() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["": 21]>
        g (float[2,3,4,5] x) => (float[2,3,4,5] y) {
            a = LRN<size=3>(x)
            b = Transpose<perm=[0,2,3,1]>(a)
            c = Einsum<equation="nhwc->nhwc">(b)
            d = Transpose<perm=[0,3,1,2]>(c)
            y = LRN<size=3>(d)
        }""")
    model = onnx.shape_inference.infer_shapes(model)
    model.graph.node[2].op_type, model.graph.node[2].domain = "Strange", "some.where"
    del model.graph.node[2].attribute[:]
    model.opset_import.append(onnx.helper.make_opsetid("some.where", 1))
    report = relayout.convert(model, what_if=True).report
    assert report.bytes == 2 * 480
    assert report.what_if[0].site.startswith("Strange")
    assert report.what_if[0].bytes == 960


def test_orders_count_from_the_axes_of_their_own_value() -> None:
    """Relu reads x behind a Transpose, and has its pieces: in the order of x it is `0 3 1 2` of its own axes."""
    graph = written_as("""
    g (float[2,3,4,5] x) => (float[2,4,5,3] y) {
        t = Transpose<perm=[0,2,3,1]>(x)
        a = Relu(t)
        y = Softmax<axis=3>(a)
    }""")
    values = relayout.optimize(graph).plan["values"]
    orders = {value["tensor"]: sorted(value["orders"]) for value in values}
    last = [[0, 1, 2, 3], [0, 3, 1, 2]]
    assert orders == {"x": [[0, 1, 2, 3], [0, 2, 3, 1]], "a": last, "y": last}
