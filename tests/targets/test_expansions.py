"""Operators that a target runs as others: equal to the last bit, and where they are no more than noise they stay."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from numpy.typing import NDArray

import relayout
from relayout.errors import ExtensionError, LayoutError
from relayout.graph.source_names import known_as, label
from relayout.lowering.decompose import expand
from relayout.rules import Step
from relayout.targets import Condition, Expansion, Kernel, Target, targets
from relayout.targets.onnxruntime.decompositions import LEAST_ELEMENTS
from running import run
from targets.blocked import run_anywhere
from text_form import floats, model

EXPANDING = [target for target in targets().values() if target.expansions and target.name.startswith("onnxruntime")]
BY_CHANNEL = {"Conv": 3, "Relu": 2, "Add": 1}
PLAIN = {"Relu": 1, "Min": 1, "Mul": 1, "Add": 1}

CASES: dict[str, tuple[tuple[int, ...], NDArray[Any], dict[str, int]]] = {
    "image": ((1, 32, 9, 8), floats(32, 1, 1), BY_CHANNEL),
    "batch": ((3, 16, 9, 8), floats(1, 16, 1, 1), BY_CHANNEL),
    "channels last": ((1, 9, 8, 32), floats(32), BY_CHANNEL),
    "no whole blocks": ((1, 21, 11, 9), floats(21, 1, 1), BY_CHANNEL),
    "a volume": ((1, 16, 4, 6, 8), floats(16, 1, 1, 1), PLAIN),
    "one slope": ((1, 32, 9, 8), floats(1), {"LeakyRelu": 1}),
    "a slope for each place": ((1, 32, 9, 8), floats(32, 9, 8), PLAIN),
    "a slope for each row": ((1, 4, 32, 24), floats(32, 1), PLAIN),
    "a sequence": ((2, 32, 40), floats(32, 1), PLAIN),
    "few": ((1, 16, 11, 11), floats(16, 1, 1), {"PRelu": 1}),
}


def prelu(shape: tuple[int, ...], slope: NDArray[Any], *, extents: str = "") -> onnx.ModelProto:
    """A PRelu."""
    said = extents or ",".join(map(str, shape))
    return model(f"g (float[{said}] x) => (float[{said}] y) {{ y = PRelu(x, slope) }}", slope=slope)


def special(shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Numbers of all sizes and both signs, also none, and nothing."""
    array = floats(*shape, seed=1) * 10.0 ** np.random.default_rng(2).integers(-30, 30, shape)
    array.reshape(-1)[:4] = [0.0, -0.0, 1e-45, -1e-45]
    return array.astype(np.float32)


@pytest.mark.parametrize("target", EXPANDING, ids=lambda target: target.name)
@pytest.mark.parametrize("name", CASES)
def test_what_is_others_is_equal(name: str, target: Target) -> None:
    shape, slope, expected = CASES[name]
    assert (np.prod(shape) >= LEAST_ELEMENTS) == ("PRelu" not in expected)
    source, feed = prelu(shape, slope), {"x": special(shape)}
    result = relayout.optimize(source, target=target)
    if target.name == "onnxruntime-cpu":
        found = Counter(node.op_type for node in result.proto.graph.node)
        assert {name: count for name, count in found.items() if name != "Transpose"} == expected
    told = "operators replaced by others: 1 PRelu" in result.report.notes
    assert told == ("PRelu" not in expected)
    np.testing.assert_array_equal(run_anywhere(result.proto, feed)[0], run(source, feed)[0])


SMOOTH = {
    "Softplus": {"Abs": 1, "Neg": 1, "Exp": 1, "Add": 2, "Log": 1, "Relu": 1},
    "Mish": {"Min": 1, "Exp": 1, "Add": 2, "Mul": 2, "Div": 1},
}


@pytest.mark.parametrize("rank", [2, 4])
@pytest.mark.parametrize("op_type", SMOOTH)
def test_what_is_smooth_is_close(op_type: str, rank: int) -> None:
    """Of numbers from none to far beyond where it is straight; infinities and what is no number stay, too."""
    shape = (1, 40, 8, 8)[:rank] if rank == 4 else (40, 64)
    said = ",".join(map(str, shape))
    source = model(f"g (float[{said}] x) => (float[{said}] y) {{ y = {op_type}(x) }}")
    result = relayout.optimize(source, target="onnxruntime-cpu")
    assert Counter(node.op_type for node in result.proto.graph.node) == SMOOTH[op_type]
    array = np.linspace(-120, 120, 2560, dtype=np.float32).reshape(shape)
    array.reshape(-1)[:6] = [0, 1e-30, -1e-30, 3e38, np.inf, np.nan]
    (expected,), (got,) = run(source, {"x": array}), run(result.proto, {"x": array})
    np.testing.assert_allclose(got, expected, rtol=2e-6, atol=2e-7)
    numbers = [tuple(held.dims) for held in result.proto.graph.initializer]
    assert set(numbers) == {(1,) * rank}  # over a last extent of 1 a scalar is stretched element by element
    few = model(f"g (float[9,9] x) => (float[9,9] y) {{ y = {op_type}(x) }}")
    kept = relayout.optimize(few, target="onnxruntime-cpu").proto
    assert [node.op_type for node in kept.graph.node] == [op_type]


def test_infinities_stay() -> None:
    """But for what is less than any number and has a slope of 0: no number, as by the definition."""
    shape, slope = (1, 16, 16, 8), np.array([1, -1, 0, 0.5, *[2] * 12], np.float32).reshape(16, 1, 1)
    array = floats(*shape)
    array[0, :, 0, 0], array[0, :, 0, 1], array[0, :2, 0, 1] = np.inf, np.inf, -np.inf
    source, feed = prelu(shape, slope), {"x": array}
    with np.errstate(invalid="ignore"):
        expected = np.where(array < 0, slope * array, array)  # the PRelu of ONNX Runtime 1.23 loses infinities
    (got,) = run(relayout.optimize(source, target="onnxruntime-cpu").proto, feed)
    assert np.isinf(expected).sum() == 32
    np.testing.assert_array_equal(got, expected)


def test_open_extents() -> None:
    source = prelu((1, 16, 64, 64), floats(16, 1, 1), extents="n,16,64,w")
    result = relayout.optimize(source, target="onnxruntime-cpu")
    assert [node.op_type for node in result.proto.graph.node].count("Conv") == 0  # 16 × 64 elements may be all
    source = prelu((1, 16, 64, 64), floats(16, 1, 1), extents="n,16,64,64")
    result = relayout.optimize(source, target="onnxruntime-cpu")
    assert [node.op_type for node in result.proto.graph.node].count("Conv") == 3
    feed = {"x": floats(2, 16, 64, 64)}
    np.testing.assert_array_equal(run(result.proto, feed)[0], run(source, feed)[0])


def test_a_slope_that_is_computed_stays() -> None:
    text = "g (float[1,32,9,8] x, float[32,1,1] s) => (float[1,32,9,8] y) { y = PRelu(x, s) }"
    result = relayout.optimize(model(text), target="onnxruntime-cpu")
    assert [node.op_type for node in result.proto.graph.node] == ["PRelu"]


NETWORK = """
    g (float[1,12,12,32] x) => (float[1,12,12,32] y) {
        a = Transpose<perm=[0,3,1,2]>(x)
        b = Conv(a, kernel)
        c = Transpose<perm=[0,2,3,1]>(b)
        d = PRelu(c, slope)
        e = Transpose<perm=[0,3,1,2]>(d)
        f = Conv(e, kernel)
        y = Transpose<perm=[0,2,3,1]>(f)
    }"""


def test_what_the_source_has_is_told_without_what_was_added() -> None:
    """Four Transposes and no more; those of the PRelu with channels last are the target's, and gone with the others."""
    source = model(NETWORK, kernel=floats(32, 32, 1, 1), slope=floats(32))
    feed = {"x": floats(1, 12, 12, 32, seed=3)}
    for target in ("onnxruntime-cpu", "onnxruntime-cpu-nchwc8"):
        report = relayout.optimize(source, target=target).report
        assert (report.source_transposes, report.source_bytes) == (4, 4 * 12 * 12 * 32 * 4)
    result = relayout.optimize(source, target="onnxruntime-cpu")
    operators = Counter(node.op_type for node in result.proto.graph.node)
    assert operators["Conv"] == 5
    assert operators["Transpose"] <= 2
    holds = [value.name for value in result.proto.graph.value_info if value.metadata_props]
    assert not [name for name in holds if name.startswith("d__") and name != "d__sum"]
    np.testing.assert_allclose(run(result.proto, feed)[0], run(source, feed)[0], rtol=1e-4, atol=1e-4)


def test_what_is_made_is_known_as_the_source_has_it() -> None:
    """Reports speak of the PRelu, whatever it has become; where it stood in a file is said of each of its parts."""
    source = ir.from_proto(model(NETWORK, kernel=floats(32, 32, 1, 1), slope=floats(32)))
    (node,) = (node for node in source.graph if node.op_type == "PRelu")
    node.name, before = "turned", set(source.graph)
    node.metadata_props["file"] = "operator 3"
    assert expand(source, targets()["onnxruntime-cpu"].expansions) == {"PRelu": 1}
    made = [other for other in source.graph if other not in before or other is node]
    assert len(made) == 8
    assert {label(other) for other in made} == {"turned"}
    assert {known_as(value) for other in made for value in other.outputs} == {"d"}
    assert {other.metadata_props["file"] for other in made} == {"operator 3"}


def mine(*steps: Step) -> Target:
    """A target of one's own that has no Elu."""
    return Target("mine", "a target", (), expansions=(Expansion("Elu", (), lambda *_: steps),))


def test_a_target_of_ones_own() -> None:
    """`max(x, 0) + exp(min(x, 0)) - 1`."""
    zero, one = np.zeros(1, np.float32), np.ones(1, np.float32)
    below = Step("Min", (0, zero), "below"), Step("Exp", ("below",), "power"), Step("Sub", ("power", one), "curve")
    source = model("g (float[2,3,4] x) => (float[2,3,4] y) { y = Elu(x) }")
    target = mine(*below, Step("Max", (0, zero), "above"), Step("Add", ("above", "curve"), "y"))
    result = relayout.convert(source, target=target).proto
    assert [node.op_type for node in result.graph.node] == ["Min", "Exp", "Sub", "Max", "Add"]
    feed = {"x": floats(2, 3, 4)}
    np.testing.assert_allclose(run(result, feed)[0], run(source, feed)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (Step("Add", (0, "gone"), "y"), "Add reads 'gone', which nothing gives"),
        (Step("Add", (0, 1), "y"), "Add reads 1, which nothing gives"),
        (Step("Eluh", (0,), "y"), "ONNX has no operator 'Eluh'; did you mean 'Elu'"),
    ],
)
def test_steps_that_cannot_be_written(step: Step, message: str) -> None:
    source = model("g (float[2,3,4] x) => (float[2,3,4] y) { y = Elu(x) }")
    with pytest.raises(ExtensionError, match=message):
        relayout.convert(source, target=mine(step))


def test_a_table_is_checked() -> None:
    with pytest.raises(LayoutError, match="expansions"):
        Target("mine", "a target", (), expansions=(Expansion,))  # type: ignore[arg-type]
    with pytest.raises(LayoutError, match="ONNX has no operator 'PReluh'; did you mean 'PRelu'"):
        Expansion("PReluh", (), lambda *_: ())
    with pytest.raises(LayoutError, match="an expansion: limits"):
        Expansion("PRelu", ("floats",), lambda *_: ())  # type: ignore[arg-type]


NORMED = {"by roots": "", "by a square root": "beta=0.5, bias=2.0", "by a logarithm": "alpha=1.0, beta=0.6, bias=0.3"}


@pytest.mark.parametrize("size", [1, 3, 5])
@pytest.mark.parametrize("name", NORMED)
def test_squares_of_channels_are_added_up_by_a_convolution(name: str, size: int) -> None:
    """As the definition has it in double precision, from which ONNX Runtime's own is up to 3e-5 away."""
    attributes = f"size={size}" + (f", {NORMED[name]}" if NORMED[name] else "")
    source = model(f"g (float[n,24,10,12] x) => (float[n,24,10,12] y) {{ y = LRN<{attributes}>(x) }}")
    given = {each.name: each.f for each in source.graph.node[0].attribute}
    alpha, beta, bias = given.get("alpha", 1e-4), given.get("beta", 0.75), given.get("bias", 1.0)
    result = relayout.optimize(source, target="onnxruntime-cpu")
    assert "operators replaced by others: 1 LRN" in result.report.notes
    array = 5 * floats(2, 24, 10, 12)
    padded = np.pad(array.astype(np.float64) ** 2, ((0, 0), (size // 2, size // 2), (0, 0), (0, 0)))
    sums = sum(padded[:, place : place + 24] for place in range(size))
    expected = array / (bias + alpha / size * sums) ** beta
    np.testing.assert_allclose(run(result.proto, {"x": array})[0], expected, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("extents", "attributes"),
    [
        ("1,513,8,8", "size=5"),
        ("1,24,10,12", "size=5, bias=0.0"),
        ("1,24,10,12", "size=5, alpha=-1.0"),
        ("9,24,99", "size=5"),
    ],
)
def test_squares_that_are_not_added_up_so(extents: str, attributes: str) -> None:
    source = model(f"g (float[{extents}] x) => (float[{extents}] y) {{ y = LRN<{attributes}>(x) }}")
    result = relayout.optimize(source, target="onnxruntime-cpu").proto
    assert [node.op_type for node in result.graph.node] == ["LRN"]


WRONG = {
    "PRelu(x)": "12,12,24",
    "Pow(x)": "12,12,24",
    "DFT(x, , two)": "12,128,1",
    "DFT(x, two)": "12,128,1",
    "DFT(x, , far)": "12,128,1",
    "DFT(x, , one)": "12,128,3",
    "DFT<onesided=1>(x, , one)": "12,128,2",
    "DFT<onesided=1, inverse=1>(x, , one)": "12,128,1",
    "DFT(x, , one) ": "12,400000007,1",
    "STFT(x, two, , many)": "2,4000,1",
    "STFT(x, below, , many)": "2,4000,1",
    "STFT(x, one, flat)": "2,4000,1",
    "STFT(x, one)": "2,4000,1",
    'Resize<mode="cubic">(x, , , two)': "1,8,20,24",
    'Resize<mode="cubic", axes=[7,8]>(x, , , two)': "1,8,20,24",
    'Resize<mode="cubic">(x, , none)': "1,8,20,24",
    'Resize<mode="cubic">(x, , minus)': "1,8,20,24",
    'Resize<mode="cubic">(x, , nan)': "1,8,20,24",
    'Resize<mode="cubic">(x, , huge)': "1,8,20,24",
    'Resize<mode="cubic", coordinate_transformation_mode="where">(x, , less)': "1,8,20,24",
    "LRN<size=0>(x)": "1,24,20,12",
    "LRN(x)": "1,24,20,12",
    "Einsum(x, flat)": "64,64",
    'Einsum<equation="ab,bc->ad">(x, flat)': "64,64",
    'Einsum<equation="abc,bc->ac">(x, flat)': "64,64",
}
"""Calls that are not as their operators are defined, or of more than is worth it -> what they read."""
OPERANDS: dict[str, NDArray[Any]] = {
    "two": np.array([1, 1], np.int64),
    "one": np.array(1, np.int64),
    "far": np.array(7, np.int64),
    "many": np.array(100, np.int64),
    "below": np.array(-3, np.int64),
    "flat": floats(64, 64),
    "none": np.array([1, 1, 0, 0.5], np.float32),
    "minus": np.array([1, 1, -1, 0.5], np.float32),
    "nan": np.array([1, 1, np.nan, 0.5], np.float32),
    "huge": np.array([1, 1, 1e7, 0.5], np.float32),
    "less": np.array([1, 1, 2, 0.5], np.float32),
}


@pytest.mark.parametrize("call", WRONG)
def test_what_is_not_as_it_is_defined_stays(call: str) -> None:
    text = f"g (float[{WRONG[call]}] x) => (float y) {{ y = {call} }}"
    source = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 20]>\n{text}')
    kept = {name: array for name, array in OPERANDS.items() if f" {name}" in call}
    source.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in kept.items())
    graph = ir.from_proto(source)
    assert expand(graph, targets()["onnxruntime-cpu"].expansions) == {}
    assert [node.op_type for node in graph.graph] == [source.graph.node[0].op_type]


SEVERAL = """
    g (float[2,16,16,128] x, float[2,16,128,24] z) => (float[a,b,c,d,e] y, float[f,g,h,i] q, float[j,k,l,m] s) {
        n = LRN<size=5>(x)
        scaled = Resize<mode="cubic">(n, , larger)
        smaller = Resize<mode="cubic">(scaled, , less)
        columns = Unsqueeze(smaller, last)
        y = DFT<onesided=1>(columns, , axis)
        q = Einsum<equation="bchw,bcwk->bchk">(smaller, z)
        flat = Reshape(smaller, rows)
        s = STFT(flat, step, window)
    }"""


@pytest.mark.parametrize("target", EXPANDING, ids=lambda target: target.name)
def test_all_targets_that_have_them(target: Target) -> None:
    given = {"larger": np.array([1, 1, 2, 1], np.float32), "less": np.array([1, 1, 0.5, 1], np.float32)}
    numbers = {"last": [4], "axis": -2, "rows": [2, 32768, 1], "step": 160}
    given |= {name: np.array(number, np.int64) for name, number in numbers.items()}
    source = model(SEVERAL, window=np.hanning(400).astype(np.float32), **given)
    feed = {"x": 3 * floats(2, 16, 16, 128), "z": floats(2, 16, 128, 24)}
    result = relayout.optimize(source, target=target)
    assert "operators replaced by others: 1 DFT, 1 Einsum, 1 LRN, 2 Resize, 1 STFT" in result.report.notes
    for got, wanted in zip(run_anywhere(result.proto, feed), run(source, feed), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-4 * np.abs(wanted).max())


@pytest.mark.parametrize(("exponent", "expected"), [(0.5, "Sqrt"), (0.25, "Pow"), ([[[0.5]]], "Pow"), ([0.5], "Sqrt")])
def test_a_power_of_a_half_is_a_root(exponent: object, expected: str) -> None:
    said = "1,40,64" if np.ndim(exponent) == 3 else "40,64"
    text = f"g (float[40,64] x) => (float[{said}] y) {{ y = Pow(x, half) }}"
    source = model(text, half=np.array(exponent, np.float32))
    result = relayout.optimize(source, target="onnxruntime-cpu").proto
    assert [node.op_type for node in result.graph.node] == [expected]
    feed = {"x": np.abs(floats(40, 64))}
    np.testing.assert_allclose(run(result, feed)[0], run(source, feed)[0], rtol=1e-6)


def wrong_target(steps: Any) -> Target:
    return Target("mine", "mine", (Kernel("Relu"),), expansions=(Expansion("HardSwish", (), steps),))


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        (lambda operator, _: operator.shape()[7], "IndexError: tuple index out of range"),
        (lambda _: (), "TypeError: "),
        (lambda *_: None, "it returns None, not a tuple of Step"),
        (lambda *_: Step("Relu", (0,), "r"), "not a tuple of Step"),
        (lambda *_: (Step("Rellu", (0,), "r"),), "ONNX has no operator 'Rellu'; did you mean 'Relu'?"),
        (lambda *_: (Step("Relu", (7,), "r"),), "Relu reads 7, which nothing gives"),
        (lambda *_: (Step("Relu", 0, "r"),), "it takes a tuple of operands"),  # type: ignore[arg-type]
        (lambda *_: (Step("Relu", (0,), "r", {"slope": 0.1}),), "no attribute 'slope'; in opset 21 Relu has none"),
        (
            lambda *_: (Step("Elu", (0,), "r", {"alfa": 0.1}),),
            "step 'Elu': no attribute 'alfa'; in opset 21 Elu has alpha",
        ),
        (lambda *_: (Step("Elu", (0,), "r", {"alpha": 1}),), "step 'Elu': alpha=1 is of type INT; Elu takes FLOAT"),
        (
            lambda *_: (Step("Elu", (0,), "r", {"alpha": np.float32(1)}),),  # type: ignore[dict-item]
            "Unsupported attribute type",
        ),
        (lambda *_: (Step("Softmax", (0,), "r", {"axis": 2**70}),), "Value out of range"),
        (lambda *_: (Step("Concat", (0, 0), "r"),), "step 'Concat': Concat needs an attribute 'axis'"),
        (lambda *_: (Step("Relu", (0, 0), "r"),), "step 'Relu': it reads 2 operands; Relu takes 1"),
        (lambda *_: (Step("Clip", (), "r"),), "step 'Clip': it reads 0 operands; Clip takes 1 to 3"),
        (lambda *_: (Step("Swish", (0,), "r"),), "the model's opset is 21, and Swish begins with 24"),
        (lambda *_: (Step("Upsample", (0, 0), "r"),), "opset 21, which the model has, no longer has Upsample"),
        (lambda *_: (Step("Add", (0, 1.0), "r"),), "step 'Add': 1.0 is no operand"),  # type: ignore[arg-type]
        (lambda *_: (Step("Neg", (0,), "r"), Step("Abs", ("r",), "r")), "two steps give 'r'"),
        (lambda *_: (Step("Equal", (0, 0), "r"),), "its steps do not fit: "),
        (lambda *_: (Step("Add", (0, np.zeros(7, np.float32)), "r"),), "its steps do not fit: "),
        (lambda *_: (Step("Add", (0, np.zeros(1)), "r"),), "its steps do not fit: "),
        (lambda *_: (Step("Transpose", (0,), "r", {"perm": (0, 2, 3, 1)}),), "its steps do not fit: "),
        (lambda *_: exit(3), "SystemExit: 3"),
    ],
)
def test_a_slip_in_a_users_steps_is_an_error(steps: Any, said: str) -> None:
    network = model("g (float[1,2,3,4] x) => (float[1,2,3,4] y) { y = HardSwish(x) }")
    with pytest.raises(ExtensionError) as error:
        relayout.convert(network, target=wrong_target(steps))
    assert re.match(
        r"target 'mine': the expansion of HardSwish \(.*test_expansions.py:\d+\), asked of node 'y': ", str(error.value)
    )
    assert said in str(error.value)


def test_a_slip_in_a_price_or_condition_of_a_user_is_an_error() -> None:
    network = model("g (float[1,2,3,4] x) => (float[1,2,3,4] y) { y = HardSwish(x) }")
    text: Any = Condition("odd", lambda _: "yes")
    for target, said in [
        (Target("mine", "mine", (Kernel("HardSwish", limits=(text,)),)), "it returns str, not True or False"),
        (Target("mine", "mine", (Kernel("HardSwish", when=text),)), "target 'mine': the condition 'odd'"),
        (Target("mine", "mine", (Kernel("Relu"),), price=lambda *_: 1.5), "it returns 1.5, not bytes"),  # type: ignore[arg-type, return-value]
        (Target("mine", "mine", (Kernel("Relu"),), price=lambda *_: 1 // 0), "ZeroDivisionError"),
    ]:
        with pytest.raises(ExtensionError, match=re.escape(said)):
            relayout.convert(network, target=target)
