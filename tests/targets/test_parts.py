"""What a target runs as parts of a graph: whole, connected, in an order, and together the same model."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import parser

import relayout
from products import in_full
from relayout import rules
from relayout.errors import LayoutError, WriteError
from relayout.partition.regions import parts
from relayout.rules import Operator
from relayout.targets.testing import claiming
from running import run
from text_form import floats, model

NPU = claiming({"Conv": ["NHWC OHWI"], "Relu": [], "MaxPool": ["NHWC"], "Transpose": []}, name="npu")


def branching() -> tuple[onnx.ModelProto, dict[str, NDArray[Any]]]:
    """Two branches of convolutions; a Softmax on one of them has to come back from the host before they meet."""
    source = model(
        """g (float[2,3,8,10] x) => (float[2,5,8,10] y, float[2,4,8,10] z) {
            a = Conv(x, u)
            b = Relu(a)
            s = Softmax<axis=1>(b)
            c = Conv(s, v)
            d = Conv(b, v)
            e = Add(c, d)
            y = Relu(e)
            z = Tanh(b)
        }""",
        u=floats(4, 3, 1, 1),
        v=floats(5, 4, 1, 1, seed=1),
    )
    return source, {"x": floats(2, 3, 8, 10, seed=2)}


def run_parts(directory: Path, feed: dict[str, NDArray[Any]]) -> list[NDArray[Any]]:
    """The outputs of the manifest's parts, each run by itself in order on what was given before."""
    manifest = json.loads((directory / "manifest.json").read_text(encoding="utf-8"))
    known = dict(feed)
    for part in manifest["parts"]:
        content = in_full((directory / part["file"]).read_bytes())
        session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
        given = session.run(part["outputs"], {name: known[name] for name in part["inputs"]})
        known.update(zip(part["outputs"], given, strict=True))
    return [known[name] for name in manifest["outputs"]]


def test_parts_run_one_after_another_compute_what_the_model_does(tmp_path: Path) -> None:
    source, feed = branching()
    result = relayout.convert(source, target=NPU)
    assert result.report.proved
    result.save_parts(tmp_path / "parts")
    for want, got in zip(run(source, feed), run_parts(tmp_path / "parts", feed), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_a_part_is_shown_in_a_line() -> None:
    host, ours = relayout.convert(in_a_row(), target=NPU).parts()
    assert repr(ours) == "<Part 01_npu: the target's, 2 operators, 1 input, 1 output>"
    assert repr(host) == "<Part 00_host: the host's, 1 operator, 1 input, 1 output>"


def in_a_row() -> onnx.ModelProto:
    """An operator of the host, and two of the target behind it."""
    return model("g (float[2,3] x) => (float[2,3] y) { a = Tanh(x) b = Relu(a) y = Relu(b) }")


def test_parts_replace_earlier_parts_alone(tmp_path: Path) -> None:
    """Earlier parts have more files than the new ones: none of them stays. Anything else in the folder does."""
    source, feed = branching()
    folder = tmp_path / "parts"
    relayout.convert(source, target=NPU).save_parts(folder)
    result = relayout.convert(source, target=claiming({"Tanh": []}, name="other"))
    before = sorted(path.name for path in folder.iterdir())
    with pytest.raises(WriteError, match="holds parts already: --overwrite"):
        result.save_parts(folder)
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(WriteError, match=r"does not name 'notes\.txt'"):
        result.save_parts(folder, overwrite=True)
    assert sorted(path.name for path in folder.iterdir()) == sorted([*before, "notes.txt"])
    (folder / "notes.txt").unlink()
    made = result.save_parts(folder, overwrite=True)
    assert {path.name for path in folder.iterdir()} == {"manifest.json", *(f"{part.name}.onnx" for part in made)}
    assert len(made) + 1 < len(before)
    for want, got in zip(run(source, feed), run_parts(folder, feed), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "text", ["{}", "[]", '{"format": "another", "parts": []}', "no JSON", '{"format": "relayout-parts-1"}']
)
def test_a_folder_without_a_manifest_of_parts_is_not_replaced(text: str, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(text)
    result = relayout.convert(branching()[0], target=NPU)
    with pytest.raises(WriteError, match="not empty: parts want a directory of their own"):
        result.save_parts(tmp_path, overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]


def test_a_manifest_names_no_files_elsewhere(tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    folder.mkdir()
    (tmp_path / "precious").write_text("mine")
    row = {"file": "../precious"}
    (folder / "manifest.json").write_text(json.dumps({"format": "relayout-parts-1", "parts": [row]}))
    relayout.convert(branching()[0], target=NPU).save_parts(folder, overwrite=True)
    assert (tmp_path / "precious").read_text() == "mine"


def test_a_part_is_claimed_as_a_whole_or_not_at_all() -> None:
    source, _ = branching()
    result = relayout.convert(source, target=NPU)
    found = result.parts()
    nodes = [node for part in found for node in part.nodes]
    assert sorted(id(node) for node in nodes) == sorted(id(node) for node in result.model.graph)
    claimed = {node.op_type for part in found if part.claimed for node in part.nodes}
    assert claimed == {"Conv", "Relu", "Transpose"}, "Transposes came with the conversion, and are the target's, too"
    assert {node.op_type for part in found if not part.claimed for node in part.nodes} == {"Softmax", "Add", "Tanh"}


def test_what_waits_for_the_host_is_another_part() -> None:
    source, _ = branching()
    found = relayout.convert(source, target=NPU).parts()
    (before,) = (part for part in found if any(node.outputs[0].name.startswith("a") for node in part.nodes))
    after = [part for part in found if part.claimed and found.index(part) > found.index(before)]
    assert after, "the convolution of the Softmax cannot run with that of its operand: a cycle"
    made: set[ir.Value] = set()
    inputs = {value for part in found for value in part.inputs if value.is_graph_input()}
    for part in found:
        assert set(part.inputs) <= made | inputs
        made.update(part.outputs)


def test_what_follows_from_constants_is_in_each_part_that_reads_it(tmp_path: Path) -> None:
    """A dequantized kernel of two convolutions, one the target's and one the host's: neither gets it as an input."""
    source = model(
        """g (float[1,3,6,6] x) => (float[1,3,6,6] y, float[3,3,6,6] z) {
            wide = DequantizeLinear(w, s, zero)
            k = Transpose<perm=[0,1,3,2]>(wide)
            a = Conv(x, k)
            b = Softmax<axis=1>(a)
            far = DequantizeLinear(v, s, zero)
            y = Conv<pads=[1,1,1,1]>(b, far)
            z = Mul(b, k)
        }""",
        w=np.random.default_rng(0).integers(-9, 9, (3, 3, 1, 1)).astype(np.int8),
        v=np.random.default_rng(1).integers(-9, 9, (3, 3, 3, 3)).astype(np.int8),
        s=np.array(0.1, np.float32),
        zero=np.array(0, np.int8),
    )
    target = claiming({"Conv": ["NHWC OHWI"]}, name="npu")
    feed = {"x": floats(1, 3, 6, 6)}
    result = relayout.convert(source, target=target)
    found = result.parts()
    passed = {str(value.name).partition("__")[0] for part in found for value in part.inputs}
    assert passed <= {"x", "a", "b", "y"}
    result.save_parts(tmp_path / "parts")
    for want, got in zip(run(source, feed), run_parts(tmp_path / "parts", feed), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    for part in (part for part in found if part.claimed):
        made = onnx.load(tmp_path / "parts" / f"{part.name}.onnx")
        assert {node.op_type for node in made.graph.node} > {"DequantizeLinear"}
        assert len(made.graph.input) == 1
    functions = relayout.convert(source, target=target, regions="functions")
    for want, got in zip(run(source, feed), run(functions.proto, feed), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_what_is_drawn_is_drawn_once() -> None:
    source = model(
        """g (float[1,3,6,6] x) => (float[1,3,6,6] y, float[3,3,6,6] z) {
            k = RandomNormalLike(w)
            a = Conv(x, k)
            y = Softmax<axis=1>(a)
            z = Mul(y, k)
        }""",
        w=floats(3, 3, 1, 1),
    )
    found = relayout.convert(source, target=claiming({"Conv": ["NHWC OHWI"]}, name="npu")).parts()
    assert [part.operators.get("RandomNormalLike", 0) for part in found].count(1) == 1
    assert sum(len(part.copied) for part in found) == 0


def test_regions_as_functions(tmp_path: Path) -> None:
    source, feed = branching()
    result = relayout.convert(source, target=NPU, regions="functions")
    result.save(tmp_path / "functions.onnx")
    proto = onnx.load(tmp_path / "functions.onnx")
    onnx.checker.check_model(proto, full_check=True)
    left = {node.op_type for node in proto.graph.node if not node.domain.startswith("regions.")}
    assert left == {"Softmax", "Add", "Tanh"}
    assert [node.domain for node in proto.graph.node].count("regions.npu") >= 2
    for want, got in zip(run(source, feed), run(proto, feed), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_an_operator_that_became_the_targets_own_is_claimed_in_the_second_round() -> None:
    """Softmax over channels: the target has it for the last axis only, where channels lie once all is NHWC."""

    def unless(operator: Operator) -> str:
        if operator.name != "Softmax":
            return ""
        last = operator.int("axis", -1) % len(operator.inputs[0] or ()) == len(operator.inputs[0] or ()) - 1
        return "" if last else "its axis is not the last"

    target = claiming({"Conv": ["NHWC"], "Softmax": []}, name="npu", unless=unless)
    source = model(
        "g (float[2,3,8,10] x) => (float[2,5,8,10] y) { a = Conv(x, u) s = Softmax<axis=1>(a) y = Conv(s, v) }",
        u=floats(4, 3, 1, 1),
        v=floats(5, 4, 1, 1, seed=1),
    )
    result = relayout.convert(source, target=target)
    (part,) = (part for part in result.parts() if part.claimed)
    assert part.operators == {"Softmax": 1, "relayout.nhwc:Conv": 2}
    assert not any(part.claimed and "Softmax" in part.operators for part in parts(ir.from_proto(source), target))


def test_a_partial_claim_inside_a_branch() -> None:
    source = model(
        """g (float[2,3,8,10] x, bool c) => (float[2,4,8,10] y) {
            y = If (c) <
                then_branch = g1 () => (float[2,4,8,10] p) { a = Conv(x, u) p = Tanh(a) },
                else_branch = g2 () => (float[2,4,8,10] q) { b = Conv(x, u) d = Relu(b) q = Sigmoid(d) }
            >
        }""",
        u=floats(4, 3, 1, 1),
    )
    result = relayout.convert(source, target=NPU)
    bodies = [node for node in result.model.graph.all_nodes() if node.op_type == "Conv"]
    assert {node.domain for node in bodies} == {"relayout.nhwc.ohwi"}
    assert result.report.proved
    for taken in (True, False):
        feed = {"x": floats(2, 3, 8, 10, seed=3), "c": np.array(taken)}
        np.testing.assert_allclose(run(result.proto, feed)[0], run(source, feed)[0], rtol=1e-5, atol=1e-6)


def in_bodies() -> onnx.ModelProto:
    """A Loop in a branch of an If; both read convolutions of the main graph, one of them through a host's Tanh."""
    return model(
        """g (float[2,3,8,10] x, bool c) => (float[2,4,8,10] y) {
            a = Conv(x, u)
            r = Relu(a)
            t = Tanh(r)
            y = If (c) <
                then_branch = g1 () => (float[2,4,8,10] p) {
                    d = Conv(t, v) e = Softmax<axis=1>(d) f = Conv(e, v) p = Add(f, r)
                },
                else_branch = g2 () => (float[2,4,8,10] q) {
                    q = Loop (trips, go, r) <
                        body = g3 (int64 i, bool k, float[2,4,8,10] s) => (bool k2, float[2,4,8,10] s2) {
                            k2 = Identity(k)
                            l = Conv(s, v) m = Relu(l) n = Softmax<axis=1>(m) o = Conv(t, v) s2 = Add(n, o)
                        }
                    >
                }
            >
        }""",
        u=floats(4, 3, 1, 1),
        v=floats(4, 4, 1, 1, seed=1),
        trips=np.array(3, np.int64),
        go=np.array(True),
    )


def feeds() -> Iterator[dict[str, NDArray[Any]]]:
    for taken in (True, False):
        yield {"x": floats(2, 3, 8, 10, seed=3), "c": np.array(taken)}


def test_parts_of_bodies_are_functions_that_these_call(tmp_path: Path) -> None:
    source = in_bodies()
    result = relayout.convert(source, target=NPU, regions="functions")
    result.save(tmp_path / "functions.onnx")
    proto = onnx.load(tmp_path / "functions.onnx")
    onnx.checker.check_model(proto, full_check=True)
    left = [node for node in result.model.graph.all_nodes() if node.domain != "regions.npu"]
    assert {node.op_type for node in left} == {"Tanh", "If", "Loop", "Softmax", "Add", "Identity"}
    calls = [node.op_type for node in result.model.graph.all_nodes() if node.domain == "regions.npu"]
    assert len(calls) == len(set(calls)) == 6
    for feed in feeds():
        np.testing.assert_allclose(run(proto, feed)[0], run(source, feed)[0], rtol=1e-5, atol=1e-6)


def test_a_body_is_the_hosts_in_files_and_the_manifest_says_what_is_in_it(tmp_path: Path) -> None:
    source = in_bodies()
    relayout.convert(source, target=NPU).save_parts(tmp_path / "parts")
    rows = json.loads((tmp_path / "parts" / "manifest.json").read_text(encoding="utf-8"))["parts"]
    (row,) = (row for row in rows if "If" in row["operators"])
    assert (row["claimed"], row["claimed_in_bodies"]["relayout.nhwc.ohwi:Conv"]) == (False, 4)
    assert [each["claimed_in_bodies"] for each in rows if each is not row] == [{}] * (len(rows) - 1)
    for feed in feeds():
        np.testing.assert_allclose(run_parts(tmp_path / "parts", feed)[0], run(source, feed)[0], rtol=1e-5, atol=1e-6)


def test_files_of_functions_hold_what_they_call(tmp_path: Path) -> None:
    source = in_bodies()
    result = relayout.convert(source, target=NPU, regions="functions")
    result.save_parts(tmp_path / "parts")
    rows = json.loads((tmp_path / "parts" / "manifest.json").read_text(encoding="utf-8"))["parts"]
    called = [*(row["operators"] for row in rows if row["claimed"]), *(row["claimed_in_bodies"] for row in rows)]
    assert {name: 1 for row in called for name in row} == {f"regions.npu:region_{place:02}": 1 for place in range(6)}
    for feed in feeds():
        np.testing.assert_allclose(run_parts(tmp_path / "parts", feed)[0], run(source, feed)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("within", "claimed"), [("Relu", True), ("Tanh", False)])
def test_a_node_with_bodies_is_claimed_with_all_that_is_inside(within: str, claimed: bool) -> None:
    source = model(
        f"""g (float[2,3] x, bool c) => (float[2,3] y) {{
            y = If (c) <
                then_branch = g1 () => (float[2,3] p) {{ p = Relu(x) }},
                else_branch = g2 () => (float[2,3] q) {{ a = Relu(x) q = {within}(a) }}
            >
        }}"""
    )
    (part,) = relayout.convert(source, target=claiming({"If": [], "Relu": []}, name="npu")).parts()
    assert part.claimed == claimed
    assert [node.op_type for node in part.within] == ([] if claimed else ["Relu", "Relu"])


CALLED = """<ir_version: 10, opset_import: ["": 21, "own": 1]>
g (float[2,3,8,10] x) => (float[2,4,8,10] y) {{
    a = own.block(x, u)
    b = Relu(a)
    y = own.block(b, v)
}}
<domain: "own", opset_import: ["": 21]>
block (x, w) => (y) {{ c = Conv(x, w) r = Relu(c) {rest} }}"""


def called(rest: str) -> onnx.ModelProto:
    """Two calls of a function of the model's own."""
    proto = parser.parse_model(CALLED.format(rest=rest))
    weights = {"u": floats(4, 3, 1, 1), "v": floats(4, 4, 1, 1, seed=1)}
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in weights.items())
    return proto


def test_a_part_begins_inside_of_a_call_and_ends_in_another(tmp_path: Path) -> None:
    """Calls that a target was to see through are spelled out, and stay so."""
    source = called("y = Tanh(r)")
    result = relayout.convert(source, target=claiming({"Conv": ["NCHW"], "Relu": []}, name="npu"))
    found = [(part.claimed, part.operators) for part in result.parts()]
    assert found == [
        (True, {"Conv": 1, "Relu": 1}),
        (False, {"Tanh": 1}),
        (True, {"Conv": 1, "Relu": 2}),
        (False, {"Tanh": 1}),
    ]
    result.save_parts(tmp_path / "parts")
    feed = {"x": floats(2, 3, 8, 10, seed=2)}
    np.testing.assert_allclose(run_parts(tmp_path / "parts", feed)[0], run(source, feed)[0], rtol=1e-5, atol=1e-6)


CLOSED = {
    "all of it": ("y = Neg(r)", {"Conv": ["NCHW"], "Relu": [], "Neg": []}, [True], {}),
    "some of it": ("y = Tanh(r)", {"Conv": ["NCHW"], "Relu": []}, [False, True, False], {"Conv": 2, "Relu": 2}),
    "none of it": ("y = Tanh(r)", {"Softmax": []}, [False], {}),
    "its name": ("y = Tanh(r)", {"own:block": [], "Relu": []}, [True], {}),
}


@pytest.mark.parametrize(("rest", "claims", "sides", "within"), CLOSED.values(), ids=CLOSED.keys())
def test_a_call_that_stays_one_is_claimed_as_a_whole(
    rest: str, claims: dict[str, list[str]], sides: list[bool], within: dict[str, int], tmp_path: Path
) -> None:
    """There is a rule for its operator, so that it needs no body to be understood, and is not spelled out."""
    source = called(rest)
    with rules.scope():
        rules.register("own:block", kind="axis attributes")(lambda operator: None)
        result = relayout.convert(source, target=claiming(claims, name="npu"))
        functions = relayout.convert(source, target=claiming(claims, name="npu"), regions="functions").proto
        found = result.parts()
    assert result.report.operators.get("own:block") == 2
    assert [part.claimed for part in found] == sides
    counted = [part.to_dict()["claimed_in_bodies"] for part in found]
    assert {name: sum(row.get(name, 0) for row in counted) for row in counted for name in row} == within
    feed = {"x": floats(2, 3, 8, 10, seed=2)}
    onnx.checker.check_model(functions)
    np.testing.assert_allclose(run(functions, feed)[0], run(source, feed)[0], rtol=1e-5, atol=1e-6)
    result.save_parts(tmp_path / "parts")
    np.testing.assert_allclose(run_parts(tmp_path / "parts", feed)[0], run(source, feed)[0], rtol=1e-5, atol=1e-6)


def test_functions_of_parts_are_put_beside_those_that_are_there(tmp_path: Path) -> None:
    """A model that has parts already, with a further convolution behind them."""
    source, feed = branching()
    relayout.convert(source, target=NPU, regions="functions").save(tmp_path / "once.onnx")
    again = relayout.convert(tmp_path / "once.onnx", target=NPU, regions="functions").proto
    onnx.checker.check_model(again, full_check=True)
    for want, got in zip(run(source, feed), run(again, feed), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def lines_of(rng: random.Random, known: list[str], stem: str, depth: int) -> list[str]:
    """Operators on values of one shape, some with bodies that read values around them; `stem` is the sum of all."""
    names, lines = list(known), []
    for place in range(9 if depth == 0 else 3):
        name = f"{stem}_{place}"
        first, second = rng.choice(names[-4:]), rng.choice(names[-4:])
        with_bodies = ["If", "Loop"] if depth < 2 else []
        operator = rng.choice(["Relu", "Tanh", "Sigmoid", "Add", "Conv", "Conv", *with_bodies])
        if operator == "If":
            graphs = (
                f"{end}_branch = g () => (float[1,4,5,6] {name}_{end}) "
                f"{{ {' '.join(lines_of(rng, names, f'{name}_{end}', depth + 1))} }}"
                for end in ("then", "else")
            )
            lines.append(f"{name} = If (c) <{', '.join(graphs)}>")
        elif operator == "Loop":
            state, given = f"{name}_in", f"{name}_out"
            body = " ".join(lines_of(rng, [*names, state], given, depth + 1))
            ends = f"(int64 {name}_i, bool {name}_k, float[1,4,5,6] {state}) => (bool {name}_l, float[1,4,5,6] {given})"
            lines.append(
                f"{name} = Loop (trips, go, {first}) <body = g {ends} {{ {name}_l = Identity({name}_k) {body} }}>"
            )
        else:
            operands = {"Add": f"{first}, {second}", "Conv": f"{first}, w"}.get(operator, first)
            lines.append(f"{name} = {operator}({operands})")
        names.append(name)
    return [*lines, f"{stem} = Mean({', '.join(names[len(known) :])})"]


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.sampled(every=3)
def test_random_claims_on_random_graphs(seed: int, tmp_path: Path) -> None:
    """Any set of claims falls into parts that run in order, and together compute the model, with bodies and without."""
    rng = random.Random(seed)
    lines = lines_of(rng, ["x"], "y", 0 if seed % 2 else 2)
    source = model(
        f"g (float[1,4,5,6] x, bool c) => (float[1,4,5,6] y) {{ {chr(10).join(lines)} }}",
        w=floats(4, 4, 1, 1) / 4,
        trips=np.array(2, np.int64),
        go=np.array(True),
    )
    pool = ["Relu", "Tanh", "Sigmoid", "Add", "Identity", "If", "Loop"]
    claims = {name: [] for name in rng.sample(pool, rng.randint(2, len(pool)))} | {"Conv": ["NHWC"]}
    target = claiming(claims, name="npu")
    feed = {"x": floats(1, 4, 5, 6, seed=seed), "c": np.array(seed % 4 < 2)}
    relayout.convert(source, target=target).save_parts(tmp_path / "parts")
    functions = relayout.convert(source, target=target, regions="functions")
    functions.save_parts(tmp_path / "calls")
    want = run(source, feed)[0]
    np.testing.assert_allclose(run_parts(tmp_path / "parts", feed)[0], want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(run_parts(tmp_path / "calls", feed)[0], want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(run(functions.proto, feed)[0], want, rtol=1e-4, atol=1e-5)
    left = [node for node in functions.model.graph.all_nodes() if node.domain != "regions.npu"]
    assert {node.op_type for node in left} & (set(claims) - {"If", "Loop"}) == set()


def test_a_value_of_unknown_rank_passes_between_no_parts(tmp_path: Path) -> None:
    """Nobody knows the rank of what a vendor's operator gives; a file has to say it of its inputs and outputs."""
    source = parser.parse_model(
        '<ir_version: 10, opset_import: ["": 20, "vendor": 1]>'
        "g (float[2,3] x) => (float[2,3] y) { a = vendor.Mystery(x) y = Relu(a) }"
    )
    result = relayout.convert(source, target=claiming({"Relu": []}, name="npu"))
    assert [part.claimed for part in result.parts()] == [False, True]
    with pytest.raises(WriteError, match="not known of a: state its shape"):
        result.save_parts(tmp_path / "parts")
    assert not (tmp_path / "parts").exists()


TINYNET = Path(__file__).parents[2] / "models" / "tinynet_int8.tflite"


def test_parts_of_an_inlined_model_are_written(tmp_path: Path) -> None:
    """A function states no shapes; its body, written in place, has those that follow."""
    result = relayout.convert(TINYNET, to="NHWC", target="qnn", inline=True)
    result.save_parts(tmp_path / "parts")
    assert len(list((tmp_path / "parts").glob("*.onnx"))) > 1
    assert all(value.shape is not None for node in result.model.graph for value in node.outputs)


def test_an_inlined_value_says_what_it_holds() -> None:
    def held(*, inline: bool) -> dict[str | None, str]:
        model = relayout.convert(TINYNET, to="NHWC", inline=inline).model
        values = (value for node in model.graph for value in node.outputs)
        return {v.name: v.metadata_props["relayout.holds"] for v in values if "relayout.holds" in v.metadata_props}

    plain = held(inline=False)
    assert len(plain) > 5
    assert held(inline=True).items() >= plain.items()


def test_a_model_whose_parts_are_refused_is_not_written(relayout, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    source = parser.parse_model(
        '<ir_version: 10, opset_import: ["": 20, "vendor": 1]>'
        "g (float[2,3] x) => (float[2,3] y) { a = vendor.Mystery(x) y = Relu(a) }"
    )
    onnx.save(source, tmp_path / "m.onnx")
    ran = relayout(
        "convert", tmp_path / "m.onnx", tmp_path / "o.onnx", "--target", "qnn", "--parts", tmp_path / "parts"
    )
    assert ran.code == 2
    assert "not known of a" in ran.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.onnx"]


@pytest.mark.parametrize("quant", ["qdq", "float"])
def test_what_is_in_functions_of_parts_is_verified_from_a_file(quant: str, tmp_path: Path) -> None:
    result = relayout.convert(TINYNET, quant=quant, target="onnx", regions="functions")
    result.save(tmp_path / "m.onnx")
    written = onnx.load(tmp_path / "m.onnx")
    (function,) = written.functions
    assert any(entry.metadata_props for entry in function.value_info)
    report = relayout.verify(TINYNET, tmp_path / "m.onnx")
    assert report.ok
    assert report.unmatched == 0
    assert len(report.rows) == 14


def test_parts_want_a_target_and_a_directory_of_their_own(tmp_path: Path) -> None:
    source, _ = branching()
    with pytest.raises(LayoutError, match="target"):
        relayout.convert(source, to="NHWC").parts()
    with pytest.raises(LayoutError, match="target"):
        relayout.convert(source, regions="functions")
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(WriteError, match="not empty"):
        relayout.convert(source, target=NPU).save_parts(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.txt"]
