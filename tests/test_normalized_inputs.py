"""Inputs that the result normalizes (`--normalize`): the numbers are the source's on normalized ones."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import relayout
from relayout.errors import LayoutError, NamesError
from relayout.layout.normalization import NORMALIZE, Normalization
from relayout.pipeline import check_plan
from running import run
from text_form import model

ROOT = Path(__file__).parents[1]
FLOAT = ROOT / "models" / "tinynet_float.tflite"
INT8 = ROOT / "models" / "tinynet_int8.tflite"
MEAN, STD = (123.5, 116.0, 104.0), (58.0, 57.0, 57.5)
EACH = {"image": (MEAN, STD)}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network with NHWC images, as ONNX."""
    path = tmp_path_factory.mktemp("source") / "source.onnx"
    relayout.convert(FLOAT).save(path)
    return path


@pytest.mark.parametrize("io", ["keep", "convert"])
def test_the_result_computes_what_the_source_computes_of_normalized_numbers(source: Path, io: str) -> None:
    """Not by verification: numpy normalizes for the source."""
    pixels = np.random.default_rng(0).integers(0, 256, (2, 24, 40, 3)).astype(np.float32)
    expected = run(onnx.load(source), {"image": (pixels - np.float32(MEAN)) / np.float32(STD)})[0]
    result = relayout.convert(source, normalize=EACH, io=io).proto
    stored = pixels if io == "keep" else pixels.transpose(0, 3, 1, 2)
    found = run(result, {"image": stored})[0]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert np.abs(run(result, {"image": stored / 255})[0] - expected).max() > 1e-3


@pytest.mark.parametrize(("io", "suffix"), list(product(["keep", "convert", "NCHW"], ["onnx", "tflite"])))
@pytest.mark.parametrize(
    "numbers", [{"image": (127.5, 127.5)}, EACH, {"image": (MEAN, 58.0)}], ids=["one", "each", "mixed"]
)
def test_verify_undoes_it(source: Path, io: str, suffix: str, numbers: dict[str, object], tmp_path: Path) -> None:
    path = tmp_path / f"m.{suffix}"
    relayout.convert(source, normalize=numbers, io=io, format="tflite" if suffix == "tflite" else "onnx").save(path)
    assert relayout.verify(source, path).ok
    assert relayout.verify(path, source).ok
    assert relayout.verify(FLOAT, path).ok


@pytest.mark.parametrize(("io", "suffix"), list(product(["keep", "convert", "NCHW"], ["onnx", "tflite"])))
@pytest.mark.parametrize("numbers", [{"image": (127.5, 127.5)}, EACH], ids=["one", "each"])
def test_a_float_model_takes_pixels(
    source: Path, io: str, suffix: str, numbers: dict[str, tuple[float, float]], tmp_path: Path
) -> None:
    path = tmp_path / f"m.{suffix}"
    made = relayout.convert(
        source, normalize=numbers, input_type="uint8", io=io, format="tflite" if suffix == "tflite" else "onnx"
    )
    made.save(path)
    assert relayout.verify(source, path).ok
    assert relayout.verify(path, source).ok
    assert relayout.verify(path, path).ok
    relayout.convert(source, normalize=numbers).save(tmp_path / "real.onnx")
    assert relayout.verify(tmp_path / "real.onnx", path).ok
    if suffix == "onnx":
        pixels = np.random.default_rng(0).integers(0, 256, (2, 24, 40, 3)).astype(np.uint8)
        mean, std = (np.float32(each) for each in numbers["image"])
        expected = run(onnx.load(source), {"image": (pixels - mean) / std})[0]
        stored = pixels if io == "keep" else pixels.transpose(0, 3, 1, 2)
        np.testing.assert_allclose(run(made.proto, {"image": stored})[0], expected, atol=1e-5)


def test_verify_sees_pixels_that_are_taken_otherwise(source: Path, tmp_path: Path) -> None:
    relayout.convert(source, normalize=EACH, input_type="uint8").save(tmp_path / "m.onnx")
    result = onnx.load(tmp_path / "m.onnx")
    notes = next(each for each in result.graph.input[0].metadata_props if each.key == NORMALIZE)
    notes.value = notes.value.replace("116.0", "117.0")
    onnx.save(result, tmp_path / "other.onnx")
    assert not relayout.verify(source, tmp_path / "other.onnx").ok


@pytest.mark.parametrize("numbers", [(0, 1), (0, 255), (128, 0.01)])
def test_verify_feeds_many_pixels(source: Path, numbers: tuple[float, float], tmp_path: Path) -> None:
    """What is random for the source, rounded to pixels, was two of them; a result that loses the bright ones passed."""
    relayout.convert(source, normalize={"image": numbers}, input_type="uint8", io="NCHW").save(tmp_path / "m.onnx")
    result = onnx.load(tmp_path / "m.onnx")
    assert relayout.verify(source, tmp_path / "m.onnx").ok
    for node in result.graph.node:
        node.input[:] = ["dark" if name == "image" else name for name in node.input]
    result.graph.initializer.append(onnx.numpy_helper.from_array(np.array(9, np.uint8), "least"))
    result.graph.node.insert(0, onnx.helper.make_node("Clip", ["image", "", "least"], ["dark"]))
    onnx.save(result, tmp_path / "dark.onnx")
    assert not relayout.verify(source, tmp_path / "dark.onnx").ok
    assert not relayout.verify(tmp_path / "dark.onnx", source).ok


def test_a_given_image_is_fed_in_whole_pixels_which_is_said(source: Path, tmp_path: Path) -> None:
    relayout.convert(source, normalize={"image": (127.5, 127.5)}, input_type="uint8").save(tmp_path / "m.onnx")
    given = np.random.default_rng(0).random((2, 24, 40, 3)).astype(np.float32)
    found = relayout.verify(source, tmp_path / "m.onnx", inputs={"image": given})
    assert found.ok
    assert any("image: both are fed whole pixels, off by 0.00" in note for note in found.notes)


def test_quantized_numbers_are_fed_as_pixels(tmp_path: Path) -> None:
    """The source's int8 stand for numbers from 0 to 1; 128 more of each is no pixel that is divided by 255."""
    path = tmp_path / "m.onnx"
    relayout.convert(INT8, quant="float", normalize={"image": (0, 255)}, input_type="uint8").save(path)
    assert relayout.verify(INT8, path).ok


@pytest.mark.parametrize("kind", ["float16", "double"])
def test_verify_feeds_numbers_of_the_inputs_type(kind: str, tmp_path: Path) -> None:
    onnx.save(model(f"g ({kind}[2,3] x) => ({kind}[2,3] y) {{ y = Sin(x) }}"), tmp_path / "s.onnx")
    relayout.convert(tmp_path / "s.onnx", normalize={"x": (1, 2)}, input_type="uint8").save(tmp_path / "m.onnx")
    assert relayout.verify(tmp_path / "s.onnx", tmp_path / "m.onnx").ok
    assert relayout.verify(tmp_path / "m.onnx", tmp_path / "s.onnx").ok


@pytest.mark.parametrize("kind", ["float16", "double"])
def test_pixels_become_numbers_of_the_inputs_type(kind: str) -> None:
    source = model(f"g ({kind}[2,3] x) => ({kind}[2,3] y) {{ y = Sin(x) }}")
    result = relayout.convert(source, normalize={"x": (1, 2)}, input_type="uint8").proto
    assert [node.op_type for node in result.graph.node] == ["Cast", "Sub", "Div", "Sin"]
    pixels = np.arange(6, dtype=np.uint8).reshape(2, 3)
    np.testing.assert_allclose(run(result, {"x": pixels})[0], np.sin((pixels - 1.0) / 2), atol=1e-2)


def test_pixels_are_no_int8_and_need_numbers(source: Path) -> None:
    with pytest.raises(LayoutError, match="pixels are 0 to 255"):
        relayout.convert(source, normalize=EACH, input_type="int8")
    with pytest.raises(LayoutError, match="--normalize INPUT=MEAN:STD beside it"):
        relayout.convert(source, input_type="uint8")


def test_verify_sees_other_numbers(source: Path, tmp_path: Path) -> None:
    result = relayout.convert(source, normalize=EACH).proto
    notes = next(each for each in result.graph.input[0].metadata_props if each.key == NORMALIZE)
    notes.value = notes.value.replace("116.0", "117.0")
    onnx.save(result, tmp_path / "m.onnx")
    assert not relayout.verify(source, tmp_path / "m.onnx").ok


@pytest.mark.parametrize(("right", "wrong"), [('"axis":3', '"axis":9'), ('"axis":3', '"axis":-1'), ("123.5,", "")])
def test_metadata_that_does_not_fit_is_one_error(source: Path, right: str, wrong: str, tmp_path: Path) -> None:
    result = relayout.convert(source, normalize=EACH, io="convert").proto
    notes = next(each for each in result.graph.input[0].metadata_props if each.key == NORMALIZE)
    assert right in notes.value
    notes.value = notes.value.replace(right, wrong)
    if not wrong:
        notes.value = notes.value.replace("58.0,", "")
    onnx.save(result, tmp_path / "m.onnx")
    with pytest.raises(LayoutError, match=r"relayout\.normalize"):
        relayout.verify(source, tmp_path / "m.onnx")


def test_one_after_the_other_through_both_formats_and_orders_of_axes(source: Path, tmp_path: Path) -> None:
    """The metadata tells of the first source, whatever lies between."""
    a, b, c, d = (tmp_path / name for name in ("a.onnx", "b.tflite", "c.onnx", "d.onnx"))
    relayout.convert(source, normalize=EACH, io="convert").save(a)
    relayout.convert(a, format="tflite", io="convert").save(b)
    relayout.convert(b, normalize={"image": (0.5, (2.0, 4.0, 0.5))}, io="keep").save(c)
    relayout.convert(a, normalize={"image": (7.0, (2.0, 4.0, 0.5))}, io="NHWC").save(d)
    for first, second in ((a, b), (b, c), (source, c), (FLOAT, b), (c, a), (a, d), (d, source), (d, c)):
        assert relayout.verify(first, second).ok, (first.name, second.name)


def test_a_quantized_model_takes_raw_real_numbers(tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    relayout.convert(INT8, format="tflite", input_type="float32", normalize={"image": (127.5, 127.5)}).save(path)
    assert relayout.verify(INT8, path).ok
    with pytest.raises(LayoutError, match=r"the input is int8, not float.*Raw pixels"):
        relayout.convert(INT8, normalize={"image": (127.5, 127.5)})
    with pytest.raises(LayoutError, match=r"the input is int8, not float \(--input-type uint8 alone takes pixels"):
        relayout.convert(INT8, normalize={"image": (127.5, 127.5)}, input_type="uint8")
    real = relayout.convert(INT8, input_type="float32").proto
    with pytest.raises(LayoutError, match=r"the input is float and quantized \(--input-type uint8 alone"):
        relayout.convert(real, normalize={"image": (127.5, 127.5)}, input_type="uint8")


@pytest.mark.parametrize("dims", [(1, 3, 8, 8), (1, 3, 3, 3), (1, 3, 1, 8), (2, 3, 8, 8)])
@pytest.mark.parametrize(("io", "suffix"), [("NHWC", "onnx"), ("convert", "tflite"), ("keep", "tflite")])
def test_axes_of_one_element_and_a_second_conversion(
    dims: tuple[int, ...], io: str, suffix: str, tmp_path: Path
) -> None:
    numbers = {"x": ((1.0, 2.0, 3.0), (4.0, 5.0, 6.0))}
    if dims.count(3) > 1:
        numbers = {"x": (2.0, 5.0)}
    first, second, last = (tmp_path / name for name in ("first.onnx", f"second.{suffix}", "last.onnx"))
    onnx.save(_convolution(dims), first)
    relayout.convert(first, normalize=numbers, io=io, format=suffix, rename={"x": "image"}).save(second)
    assert relayout.verify(first, second).ok
    relayout.convert(second, normalize={"image": (0.5, 2.0)}, io="convert").save(last)
    assert relayout.verify(second, last).ok


@pytest.mark.parametrize("suffix", ["onnx", "tflite"])
@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("is_nhwc", [False, True])
@pytest.mark.parametrize(("pads", "dtype", "left"), [(0, 1, []), (1, 1, ["Sub"]), (0, 10, [])])
def test_kernels_normalize(
    *, pads: int, dtype: int, left: list[str], is_nhwc: bool, group: int, suffix: str, tmp_path: Path
) -> None:
    """A convolution that puts zeros around its image leaves the mean to a Sub."""
    onnx.save(_padded(pads, group, dtype, is_nhwc=is_nhwc), tmp_path / "a.onnx")
    result = relayout.convert(tmp_path / "a.onnx", format=suffix, normalize={"x": ((1, 2, 3, 4), (3, 4, 5, 6))})
    names = {name.lower() for name in result.report.operators} & {"sub", "div", "mul", "add"}
    if dtype == 1 or suffix == "onnx":
        assert names == {name.lower() for name in left}
    if suffix == "onnx":  # what the source calls t holds normalized numbers
        assert not any("t" in node.output for node in result.proto.graph.node)
    result.save(tmp_path / f"b.{suffix}")
    assert relayout.verify(tmp_path / "a.onnx", tmp_path / f"b.{suffix}").ok


@pytest.mark.parametrize(
    "text",
    [
        "z = Conv(x, w) y = Conv<pads=[1,1,1,1]>(x, v)",  # one of two has borders: both leave the mean
        "z = Conv(x, w) y = Identity(x)",  # the second reader wants normalized numbers
        "z = Conv(x, w) y = Transpose<perm=[0,1,3,2]>(x)",
        "t = Transpose<perm=[0,1,3,2]>(x) z = Conv(t, w) y = Relu(t)",
        'z = Conv<auto_pad="SAME_UPPER">(x, w) y = Conv<auto_pad="VALID">(x, w)',
        "t = Transpose<perm=[0,2,1,3]>(x) z = Conv(t, u) y = Conv(x, v)",  # its channels are not the input's
        "k = Relu(w) z = Conv(x, k) y = Conv(x, v)",
        "z = Conv(x, w) y = Conv(r, x)",  # the input is a kernel, too
        "z = ConvTranspose(x, w) y = Conv(x, v)",
    ],
)
@pytest.mark.parametrize("numbers", [((1.0, 2.0, 3.0), (3.0, 4.0, 5.0)), (7.0, 3.0)], ids=["each", "one"])
def test_what_kernels_cannot_do_stays(text: str, numbers: tuple[object, object], tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    dims = {"w": (3, 3, 3, 3), "v": (3, 3, 1, 1), "u": (2, 4, 3, 3), "r": (1, 3, 6, 6)}
    kernels = {name: rng.normal(size=each).astype(np.float32) for name, each in dims.items()}
    source = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 21]> g (float[3,3,4,5] x) => (float y, float z) {{ {text} }}'
    )
    source.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in kernels.items())
    for end in source.graph.output:
        end.type.tensor_type.ClearField("shape")
    source = onnx.shape_inference.infer_shapes(source)
    onnx.save(source, tmp_path / "a.onnx")
    relayout.convert(tmp_path / "a.onnx", normalize={"x": numbers}).save(tmp_path / "b.onnx")
    x = rng.normal(size=(3, 3, 4, 5)).astype(np.float32)
    mean, std = (np.array(each, np.float32).reshape(-1, 1, 1) for each in numbers)
    for expected, found in zip(
        run(source, {"x": (x - mean) / std}), run(onnx.load(tmp_path / "b.onnx"), {"x": x}), strict=True
    ):
        np.testing.assert_allclose(found, expected, atol=2e-5)
    assert relayout.verify(tmp_path / "a.onnx", tmp_path / "b.onnx").ok


def test_kernels_that_would_lose_precision_leave_it_to_operators(tmp_path: Path) -> None:
    source = _padded(0, 1, 10, is_nhwc=False)
    onnx.save(source, tmp_path / "a.onnx")
    result = relayout.convert(tmp_path / "a.onnx", normalize={"x": (0.0, 1e-5)})
    assert "Div" in result.report.operators  # the kernel would be infinite
    result = relayout.convert(tmp_path / "a.onnx", normalize={"x": (0.0, 5e4)})
    assert "Div" in result.report.operators  # the kernel would be subnormal


def _padded(pads: int, group: int, dtype: int, *, is_nhwc: bool) -> onnx.ModelProto:
    helper = onnx.helper
    rng = np.random.default_rng(0)
    of = helper.tensor_dtype_to_np_dtype(dtype)
    made = [
        onnx.numpy_helper.from_array(rng.normal(size=dims).astype(of), name)
        for name, dims in (("w", (6, 4 // group, 3, 3)), ("b", (6,)))
    ]
    x = helper.make_tensor_value_info("x", dtype, (1, 7, 9, 4) if is_nhwc else (1, 4, 7, 9))
    y = helper.make_tensor_value_info("y", dtype, (1, 6, 5 + 2 * pads, 7 + 2 * pads))
    read = "t" if is_nhwc else "x"
    nodes = [helper.make_node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2])] if is_nhwc else []
    nodes.append(helper.make_node("Conv", [read, "w", "b"], ["y"], group=group, pads=[pads] * 4))
    graph = helper.make_graph(nodes, "g", [x], [y], made)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _convolution(dims: tuple[int, ...]) -> onnx.ModelProto:
    helper = onnx.helper
    weights = np.random.default_rng(0).normal(size=(4, 3, 1, 1)).astype(np.float32)
    ends = [helper.make_tensor_value_info("x", 1, dims), helper.make_tensor_value_info("y", 1, (dims[0], 4, *dims[2:]))]
    made = [onnx.numpy_helper.from_array(weights, "w")]
    graph = helper.make_graph([helper.make_node("Conv", ["x", "w"], ["y"])], "g", ends[:1], ends[1:], made)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize(("mean", "std"), [(0.0, 1e-50), (0.0, 1e39), (1e39, 1.0)])
def test_numbers_that_the_input_cannot_hold_are_refused(mean: float, std: float) -> None:
    with pytest.raises(LayoutError, match="float cannot hold these numbers"):
        relayout.convert(_convolution((1, 3, 8, 8)), normalize={"x": (mean, std)})


def test_an_old_opset_and_a_default_are_refused() -> None:
    old = _convolution((1, 3, 8, 8))
    old.opset_import[0].version = 6
    with pytest.raises(LayoutError, match="opset 7 or newer"):
        relayout.convert(old, normalize={"x": (1.0, 2.0)})
    default = _convolution((1, 3, 8, 8))
    default.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((1, 3, 8, 8), np.float32), "x"))
    with pytest.raises(LayoutError, match="has a default"):
        relayout.convert(default, normalize={"x": (1.0, 2.0)})


def test_other_readers_and_bodies_read_normalized_numbers() -> None:
    net = _with_body()
    x = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    expected = run(net, {"x": (x - 2) / 4})
    for found, wanted in zip(
        run(relayout.convert(net, normalize={"x": (2, 4)}).proto, {"x": x}), expected, strict=True
    ):
        np.testing.assert_allclose(found, wanted, atol=1e-6)


def _with_body() -> onnx.ModelProto:
    helper = onnx.helper

    def branch(kind: str) -> onnx.GraphProto:
        result = helper.make_tensor_value_info("t", 1, [2, 3])
        return helper.make_graph([helper.make_node(kind, ["x"], ["t"])], kind, [], [result])

    nodes = [
        helper.make_node("Relu", ["x"], ["y"]),
        helper.make_node("If", ["yes"], ["z"], then_branch=branch("Neg"), else_branch=branch("Abs")),
    ]
    ends = [helper.make_tensor_value_info(name, 1, [2, 3]) for name in "xyz"]
    yes = onnx.numpy_helper.from_array(np.array(True), "yes")
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [yes])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize(
    ("numbers", "what"),
    [
        ({"image": ((1.0, 2.0), (3.0, 4.0))}, "2 channels, and no axis of that extent in 2×24×40×3"),
        ({"image": ((1.0, 2.0), (3.0, 4.0, 5.0))}, "as many means as standard deviations"),
        ({"image": (1.0, 0.0)}, "none of the latter 0"),
    ],
)
def test_what_cannot_be_is_one_error(numbers: dict[str, object], what: str) -> None:
    with pytest.raises(LayoutError, match=what):
        relayout.convert(FLOAT, normalize=numbers)


def test_an_unknown_input_and_a_value_of_another_kind() -> None:
    with pytest.raises(NamesError, match="no input 'imag'; did you mean 'image'"):
        relayout.convert(FLOAT, normalize={"imag": (1.0, 2.0)})
    with pytest.raises(NamesError, match="no input 'imag'; did you mean 'image'"):
        relayout.convert(FLOAT, normalize={"imag": (1.0, 2.0)}, input_type="uint8")
    for wrong in (
        {"image": 1.0},
        {"image": ("1", "2")},
        {"image": (10**400, 2)},
        {"image": (float("nan"), 1.0)},
        {"image": (1.0, 2.0, 3.0)},
        {"image": ((), ())},
    ):
        with pytest.raises(relayout.RelayoutError, match="normalize="):
            relayout.convert(FLOAT, normalize=wrong)


UNREADABLE = [
    "",
    "[]",
    "{}",
    '{"mean": [1], "std": [0], "axis": null, "of": "x"}',
    '{"mean": [1], "std": [1], "axis": null, "of": "\\ud800"}',
    '{"mean": [1, 2], "std": [1, 2], "axis": null, "of": "x"}',
]


@pytest.mark.parametrize("text", UNREADABLE)
def test_metadata_that_cannot_be_read_says_nothing(text: str) -> None:
    assert Normalization.load(text) is None


def test_the_command_line(relayout, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    plan = tmp_path / "plan.json"
    ran = relayout(
        "convert", FLOAT, tmp_path / "m.tflite", "--normalize", "image=124,116,104:58,57,57", "--verify", "--plan", plan
    )
    assert ran.code == 0
    assert "normalized here: (image - [124, 116, 104]) / [58, 57, 57]" in " ".join(ran.out.split())
    assert json.loads(plan.read_text())["options"]["normalize"] == {"image": [[124, 116, 104], [58, 57, 57]]}
    assert check_plan(plan, FLOAT).proved
    for wrong in ("image=1", "image=1:2:3", "image=a:b", "=1:2", "image=1:"):
        ran = relayout("convert", FLOAT, tmp_path / "n.onnx", "--normalize", wrong)
        assert ran.code == 2
        assert "INPUT=MEAN:STD" in ran.err


@pytest.mark.parametrize(
    ("numbers", "is_small"),
    [
        (([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]), True),
        ((0.5, 0.5), True),
        ((127.5, 127.5), False),
        ((0, 1), False),
        ((0, 255), False),
    ],
)
def test_numbers_of_images_from_0_to_1_are_noted_where_pixels_are_fed(
    source: Path, numbers: Any, is_small: bool
) -> None:
    def told(**options: Any) -> list[str]:
        notes = relayout.convert(source, normalize={"image": numbers}, **options).report.notes
        return [note for note in notes if "takes pixels from 0 to 255" in note]

    notes = told(input_type="uint8")
    assert len(notes) == is_small
    assert told() == []
    if numbers == (0.5, 0.5):
        assert notes[0].endswith("--normalize image=127.5:127.5")
