"""Forms for which ONNX Runtime has fast kernels: each is there where it should be, and is what it stands for."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from tflite_cases_recurrent import RELU, TIME, lstm
from tflite_running import FAST, agree, check_model, compare, feed, interpreter, read, run_interpreter, session
from tflite_writing import Net, Scale, options

import relayout
from relayout.formats.tflite.container.loading import load
from relayout.formats.tflite.container.model import Model
from relayout.formats.tflite.importing.window import slid
from relayout.graph.passes import Pass, Stage
from relayout.targets.onnxruntime import hybrid_products as unrolled
from relayout.targets.onnxruntime import import_list, uint8_activations
from relayout.targets.onnxruntime import merge_conv_groups as widened
from relayout.targets.onnxruntime.uint8_activations import aligned
from relayout.verification import verify

MODELS = Path(__file__).parents[3] / "models"
SAME, VALID = 0, 1
IN, MIDDLE, OUT = Scale(0.04, 3), Scale(0.05, -11), Scale(0.1, 7)


def count(model: ir.Model) -> Counter[str]:
    return Counter(node.op_type for node in model.graph)


def run(model: ir.Model, fed: Any) -> Any:
    made = session(check_model(model))
    return made.run(None, {made.get_inputs()[0].name: fed})[0]


def read_without(module: str, content: bytes, monkeypatch: pytest.MonkeyPatch) -> ir.Model:
    """A model as it is read for the target without the translations of one module."""
    with monkeypatch.context() as changed:
        for name, written in import_list.ALTERNATIVES.items():
            rest = tuple(each for each in written if not each.startswith(f"{module}."))
            changed.setitem(import_list.ALTERNATIVES, name, rest)
        return read(content, target=FAST)


def given(content: bytes) -> Any:
    (detail,) = interpreter(content).get_input_details()
    return feed(np.random.default_rng(4), tuple(detail["shape"]), detail["dtype"])


class Nets(Net):
    """A network of int8 images, one operator after the other."""

    def __init__(self, shape: tuple[int, ...], seed: int = 0, **more: Any) -> None:
        super().__init__()
        self.rng = np.random.default_rng(seed)
        self.shape = shape
        self.last = self.input(shape, "int8", q=IN, name="x", **more)
        self.step = IN.scale

    def image(self, channels: int, spatial: tuple[int, ...], output: bool, q: Scale = OUT) -> int:
        self.shape = (self.shape[0], *spatial, channels)
        make = self.output if output else self.tensor
        self.last = make(self.shape, "int8", q=q if output else MIDDLE)
        return self.last

    def convolved(
        self,
        channels: int,
        window: tuple[int, int],
        stride: int = 1,
        padding: int = SAME,
        *,
        depthwise: bool = False,
        groups: int = 1,
        output: bool = False,
        q: Scale = OUT,
        off: float = 1,
    ) -> Nets:
        """A convolution; `off` is what the bias's steps are divided by, in the file alone."""
        scales = (0.004 + 0.001 * (np.arange(channels) % 7)).tolist()
        steps = Scale([self.step * scale / off for scale in scales])
        shape = (1, *window, channels) if depthwise else (channels, *window, self.shape[3] // groups)
        kernel = self.const(self.rng.integers(-127, 128, shape), "int8", q=Scale(scales, 0, 3 if depthwise else 0))
        bias = self.const(self.rng.integers(-500, 500, channels), "int32", q=steps)
        places = [
            -(-e // stride) if padding == SAME else (e - k) // stride + 1
            for e, k in zip(self.shape[1:3], window, strict=True)
        ]
        table = "DepthwiseConv2DOptions" if depthwise else "Conv2DOptions"
        more = {"depthMultiplier": channels // self.shape[3]} if depthwise else {}
        given = options(table, padding=padding, strideH=stride, strideW=stride, **more)
        operands = [self.last, kernel, bias]
        y = self.image(channels, tuple(places), output, q)
        self.op("DEPTHWISE_CONV_2D" if depthwise else "CONV_2D", operands, [y], given, version=3)
        self.step = MIDDLE.scale
        return self

    def padded(self, before: int, after: int) -> Nets:
        amounts = self.const(np.array([[0, 0], [before, after], [before, after], [0, 0]]), "int32")
        h, w = (e + before + after for e in self.shape[1:3])
        x, self.shape = self.last, (self.shape[0], h, w, self.shape[3])
        self.last = self.tensor(self.shape, "int8", q=IN)
        self.op("PAD", [x, amounts], [self.last], options("PadOptions"))
        return self


# Blocks.


@pytest.mark.parametrize(("height", "width"), [(12, 16), (14, 10)])
@pytest.mark.parametrize("window", [(2, 3), (3, 3), (5, 4), (7, 7), (1, 3)])
@pytest.mark.parametrize("padding", [SAME, VALID, (0, 1), (1, 0), (2, 3)])
def test_blocks_give_the_same_integers(
    padding: Any, window: tuple[int, int], height: int, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = Nets((2, height, width, 3))
    if isinstance(padding, tuple):
        net.padded(*padding)
    content = net.convolved(16, window, 2, padding if isinstance(padding, int) else VALID, output=True).bytes()
    model, x = read(content, target=FAST), given(content)
    plain = read_without("space_to_depth_stem", content, monkeypatch)
    agree(content, target=FAST)
    # A PAD too wide for a border stays, and what it makes of an even extent may be odd.
    wide = isinstance(padding, tuple) and max(padding) >= min(window)
    assert count(model)["SpaceToDepth"] == (0 if wide and sum(padding) % 2 else 1)
    assert count(plain)["SpaceToDepth"] == count(read(content))["SpaceToDepth"] == 0
    np.testing.assert_array_equal(run(model, x), run(plain, x))


@pytest.mark.parametrize(
    ("shape", "channels", "stride"), [((1, 13, 16, 3), 16, 2), ((1, 12, 16, 4), 16, 2), ((1, 12, 16, 3), 12, 2)]
)
def test_other_convolutions_read_no_blocks(shape: tuple[int, ...], channels: int, stride: int) -> None:
    content = Nets(shape).convolved(channels, (3, 3), stride, output=True).bytes()
    assert count(read(content, target=FAST))["SpaceToDepth"] == 0
    agree(content, target=FAST)


def test_a_bias_in_steps_of_its_own_counts_in_those_of_the_product_of_blocks() -> None:
    content = Nets((1, 12, 16, 3)).convolved(16, (3, 3), 2, output=True, q=Scale(0.01), off=1000).bytes()
    assert count(read(content, target=FAST))["SpaceToDepth"] == 1
    agree(content, target=FAST)


def test_blocks_are_read_for_a_target_that_has_them_and_for_no_other(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(Nets((1, 12, 16, 3)).convolved(16, (3, 3), 2).convolved(16, (1, 1), output=True).bytes())
    found = {target: relayout.convert(path, target=target) for target in (None, "onnxruntime-cpu", "litert")}
    assert {name: count(result.model)["SpaceToDepth"] for name, result in found.items()} == {
        None: 0,
        "onnxruntime-cpu": 1,
        "litert": 0,
    }
    assert found[None].report.bytes == 12 * 16 * 3 + 6 * 8 * 16  # the image and the result, once each


# Windows as rows.


def hybrid(
    window: tuple[int, int] = (3, 3),
    strides: tuple[int, int] = (1, 1),
    dilations: tuple[int, int] = (1, 1),
    *,
    padding: int = SAME,
    channels: int = 64,
    units: int = 64,
    count: int = 1,
    height: int = 11,
    border: tuple[int, int] = (0, 0),
    per_channel: bool = True,
    depthwise: str = "",
    batch: bool = False,
) -> bytes:
    """A convolution of real numbers and int8 weights, perhaps behind a PAD, or beside depthwise ones."""
    rng, net = np.random.default_rng(6), Net()
    shape = (count, height, 9, channels)
    x = net.input(shape, name="x", signature=(-1, *shape[1:]) if batch else None)

    def weighted(x: int, y: int, channels: int) -> int:
        kernel, table = net.const(rng.normal(size=(1, 1, 1, channels))), "DepthwiseConv2DOptions"
        given = options(table, strideH=1, strideW=1, depthMultiplier=1)
        net.op("DEPTHWISE_CONV_2D", [x, kernel, net.const(np.zeros(channels))], [y], given)
        return y

    if "before" in depthwise:
        x = weighted(x, net.tensor(shape), channels)
    if any(border):
        amounts = net.const(np.array([[0, 0], list(border), list(border), [0, 0]]), "int32")
        shape = (count, *(e + sum(border) for e in shape[1:3]), channels)
        padded = net.tensor(shape)
        net.op("PAD", [x, amounts], [padded], options("PadOptions"))
        x = padded
    scale = Scale((0.004 + 0.001 * (np.arange(units) % 7)).tolist() if per_channel else 0.005, 0)
    kernel = net.const(rng.integers(-127, 128, (units, *window, channels)), "int8", q=scale)
    out = tuple(
        slid(e, k, s, d, padding == SAME) for e, k, s, d in zip(shape[1:3], window, strides, dilations, strict=True)
    )
    table = options(
        "Conv2DOptions",
        padding=padding,
        strideH=strides[0],
        strideW=strides[1],
        dilationHFactor=dilations[0],
        dilationWFactor=dilations[1],
        fusedActivationFunction=1,
    )
    found = (count, *out, units)
    last = net.output(found, name="y", signature=(-1, *found[1:]) if batch else None)
    y = net.tensor(found) if "behind" in depthwise else last
    net.op("CONV_2D", [x, kernel, net.const(rng.normal(size=units))], [y], table, version=5)
    if "behind" in depthwise:
        weighted(y, last, units)
    return net.bytes()


@pytest.mark.parametrize(
    "given_",
    [
        {},
        {"window": (1, 2), "strides": (2, 2)},
        {"window": (2, 5), "strides": (2, 3), "per_channel": False},
        {"window": (3, 2), "dilations": (2, 3)},
        {"window": (1, 1), "strides": (2, 1)},
        {"window": (3, 1), "height": 3, "padding": VALID},
        {"padding": VALID, "strides": (1, 2)},
        {"padding": VALID, "border": (1, 2)},
        {"padding": VALID, "border": (3, 4), "window": (2, 2)},
        {"channels": 65, "window": (5, 5)},
        {"window": (4, 1), "strides": (3, 2)},
        {"window": (1, 4), "dilations": (1, 2), "padding": VALID},
        {"window": (11, 9), "padding": VALID, "channels": 17},
    ],
)
@pytest.mark.parametrize("form", ["SLICES", "COLUMNS", "PIXELS"])
def test_hybrid_convolutions_are_products_as_the_interpreter_computes_them(
    given_: Any, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unrolled, "MARGIN", np.inf)
    monkeypatch.setattr(unrolled._Windows, "costs", lambda *_: {getattr(unrolled, form): 0.0})
    holds(hybrid(**given_), (1, given_.get("height", 11), 9, given_.get("channels", 64)))


def holds(content: bytes, shape: tuple[int, ...]) -> None:
    """The only convolution is a product, and LiteRT's numbers, of which those of a float Conv are not."""
    model, plain = read(content, target=FAST), read(content)
    assert (count(model)["MatMulInteger"], count(model)["Conv"], count(plain)["Conv"]) == (1, 0, 1)
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    (wanted,) = run_interpreter(interpreter(content), [x])
    error, float_error = (np.abs(run(each, x) - wanted).max() / np.abs(wanted).max() for each in (model, plain))
    assert error < 1e-6
    assert float_error > 1e-4
    assert verify(content, model).ok


@pytest.mark.parametrize(
    "given_",
    [
        {"window": (7, 7), "strides": (2, 2), "channels": 3},
        {"window": (2, 3), "strides": (1, 2), "padding": VALID},
        {"window": (2, 5), "strides": (2, 3), "per_channel": False},
        {"window": (3, 4), "strides": (3, 4), "dilations": (2, 1)},
        {"window": (3, 2), "strides": (1, 3), "channels": 5},
        {"window": (1, 1), "strides": (2, 2)},
        {"window": (3, 3), "strides": (2, 2), "padding": VALID, "border": (1, 2)},
        {"window": (1, 9), "strides": (1, 2), "padding": VALID},
    ],
)
@pytest.mark.parametrize("form", ["SLICES", "COLUMNS", "PIXELS"])
def test_columns_as_far_apart_as_windows_are_one(given_: Any, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ways = unrolled._Windows.ways
    monkeypatch.setattr(unrolled, "MARGIN", np.inf)
    monkeypatch.setattr(unrolled._Windows, "ways", lambda self: ways(self)[1:])
    monkeypatch.setattr(unrolled._Windows, "costs", lambda *_: {getattr(unrolled, form): 0.0})
    holds(hybrid(**given_), (1, 11, 9, given_.get("channels", 64)))


def test_columns_that_a_window_leaves_out_are_not_one_with_others() -> None:
    given_ = {"window": (3, 4), "strides": (1, 2), "dilations": (1, 2), "height": 99, "channels": 16}
    holds(hybrid(**given_), (1, 99, 9, 16))


def test_a_first_convolution_of_three_channels_reads_columns_as_one() -> None:
    """As of ResNet: 7 columns are 4 of 6 channels."""
    rng, net = np.random.default_rng(6), Net()
    kernel = net.const(rng.integers(-127, 128, (64, 7, 7, 3)), "int8", q=Scale(0.005, 0))
    x, y, table = net.input((1, 64, 64, 3)), net.output((1, 32, 32, 64)), options("Conv2DOptions", strideH=2, strideW=2)
    net.op("CONV_2D", [x, kernel, net.const(rng.normal(size=64))], [y], table, version=5)
    model = read(net.bytes(), target=FAST)
    (product,) = (node for node in model.graph if node.op_type == "MatMulInteger")
    assert [value.shape for value in product.inputs[:2] if value] == [(1, 32, 32, 4 * 7 * 6), (4 * 7 * 6, 64)]
    agree(net.bytes(), target=FAST)


@pytest.mark.parametrize(
    ("target", "products"), [("onnxruntime-cpu", (1, 1)), ("onnxruntime-cpu-avx2", (0, 1)), ("litert", (0, 0))]
)
def test_without_vnni_only_large_convolutions_are_products(target: str, products: tuple[int, int]) -> None:
    """Products of uint8 by uint8 take three times as long there as those of uint8 by int8 with VNNI."""
    contents = [hybrid(channels=48, units=32, height=20), hybrid(channels=128, units=128, height=20)]
    found = [count(relayout.convert(content, target=target).model)["MatMulInteger"] for content in contents]
    assert tuple(found) == products


@pytest.mark.parametrize("both", [True, False])
def test_an_image_that_two_convolutions_read_is_quantized_once(both: bool) -> None:
    """As of a residual block: the one in its shortcut is a product for it."""
    rng, net = np.random.default_rng(6), Net()
    x = net.input((1, 40, 40, 64))
    for window in (1, 3)[: 1 + both]:
        kernel = net.const(rng.integers(-127, 96, (96, window, window, 64)), "int8", q=Scale(0.005, 0))
        table = options("Conv2DOptions", strideH=2, strideW=2)
        net.op("CONV_2D", [x, kernel, net.const(rng.normal(size=96))], [net.output((1, 20, 20, 96))], table, version=5)
    found = count(read(net.bytes(), target=FAST))
    assert (found["Conv"], found["MatMulInteger"]) == ((0, 2) if both else (1, 0))


@pytest.mark.parametrize(
    ("given_", "slices", "concats", "gathers"),
    [
        ({"height": 5}, 0, 0, 1),  # a few windows: the fewest nodes
        ({"height": 99}, 3, 1, 1),
        ({"height": 99, "channels": 16}, 6, 2, 0),  # short runs, which Concat copies faster than Gather
        ({"height": 99, "channels": 16, "strides": (1, 2)}, 5, 2, 0),  # two columns as one, of which there are two
        ({"height": 99, "channels": 32, "strides": (1, 2)}, 3, 1, 1),
        ({"window": (1, 1), "units": 256}, 0, 0, 0),
        ({"window": (1, 3), "height": 99}, 3, 1, 0),
        ({"window": (1, 3), "height": 99, "channels": 256}, 0, 0, 1),
        ({"window": (3, 1), "height": 99}, 3, 1, 0),
        ({"height": 202, "channels": 256}, 0, 0, 1),
        ({"height": 203, "channels": 256}, 3, 1, 1),  # 203 x 9 windows of 9 pixels would be more than 16384 places
    ],
)
def test_windows_are_put_side_by_side_as_takes_the_least_time(
    given_: Any, slices: int, concats: int, gathers: int
) -> None:
    found = count(read(hybrid(**given_), target=FAST))
    assert (found["Slice"], found["Concat"], found["Gather"]) == (slices, concats, gathers)


def test_places_that_are_the_same_are_written_once() -> None:
    rng, net = np.random.default_rng(6), Net()
    x = net.input((1, 7, 7, 64))
    for y in (net.tensor((1, 7, 7, 64)), net.output((1, 7, 7, 64))):
        kernel = net.const(rng.integers(-127, 128, (64, 3, 3, 64)), "int8", q=Scale(0.005, 0))
        table = options("Conv2DOptions", strideH=1, strideW=1)
        net.op("CONV_2D", [x, kernel, net.const(rng.normal(size=64))], [y], table, version=5)
        x = y
    model = read(net.bytes(), target=FAST)
    gathers = [node for node in model.graph if node.op_type == "Gather"]
    assert len(gathers) == 2
    assert gathers[0].inputs[1] is gathers[1].inputs[1]
    agree(net.bytes(), target=FAST)


def test_windows_of_one_pixel_are_rounded_with_their_image() -> None:
    """As LiteRT's kernels do without its delegate, which rounds pixel by pixel: that is another number, by a bit."""
    content = hybrid((1, 1), units=96)
    model = read(content, target=FAST)
    assert count(model)["MatMulInteger"] == 1
    x = np.random.default_rng(1).normal(size=(1, 11, 9, 64)).astype(np.float32)
    found = run(model, x)
    errors = []
    for reference in (True, False):
        (wanted,) = run_interpreter(interpreter(content, reference=reference), [x])
        errors.append(np.abs(found - wanted).max() / np.abs(wanted).max())
    assert errors[0] < 1e-6
    assert 1e-4 < errors[1] < 2e-2
    assert verify(content, model).ok


@pytest.mark.parametrize(
    ("given_", "products"),
    [
        ({}, 1),
        ({"window": (1, 1)}, 1),
        ({"window": (1, 1), "height": 2, "units": 8}, 0),
        ({"window": (1, 1), "units": 48}, 1),
        ({"window": (1, 1), "units": 48, "depthwise": "before"}, 0),
        ({"window": (1, 1), "units": 48, "depthwise": "behind"}, 0),
        ({"window": (1, 1), "channels": 256, "units": 256, "depthwise": "before, behind"}, 1),
        ({"units": 8}, 0),
        ({"channels": 16, "units": 256}, 1),
        ({"channels": 12, "units": 256}, 1),
        ({"channels": 3, "units": 32}, 0),
        ({"count": 2}, 0),
    ],
)
def test_hybrid_convolutions_are_products_where_that_takes_less_time(given_: Any, products: int) -> None:
    assert count(read(hybrid(**given_), target=FAST))["MatMulInteger"] == products
    assert count(read(hybrid(**given_)))["MatMulInteger"] == 0


@pytest.mark.parametrize(("kind", "normalized"), [("int8", 0), ("float32", 1)])
def test_scale_and_shift_are_no_batch_normalization_where_images_are_channels_last(kind: str, normalized: int) -> None:
    """That wants channels first; products of hybrid convolutions do not."""
    net, rng = Net(), np.random.default_rng(3)
    x, shape = net.input((1, 6, 5, 64)), (1, 6, 5, 64)
    scaled, shifted, y = net.tensor(shape), net.tensor(shape), net.output(shape)
    net.op("MUL", [x, net.const(rng.normal(size=64))], [scaled], options("MulOptions"))
    net.op("ADD", [scaled, net.const(rng.normal(size=64))], [shifted], options("AddOptions"))
    kernel = rng.integers(-127, 128, (64, 3, 3, 64))
    weights = net.const(kernel, "int8", q=Scale(0.01, 0)) if kind == "int8" else net.const(kernel / 100)
    table = options("Conv2DOptions", strideH=1, strideW=1)
    net.op("CONV_2D", [shifted, weights, net.const(rng.normal(size=64))], [y], table, version=5)
    assert count(read(net.bytes(), target=FAST))["BatchNormalization"] == normalized


def test_an_open_batch_keeps_its_convolutions_unless_it_is_fixed(tmp_path: Path) -> None:
    """LiteRT rounds each image of a batch by itself."""
    path = tmp_path / "model.tflite"
    path.write_bytes(hybrid(batch=True))
    found = [relayout.convert(path, target="onnxruntime-cpu", dims=dims) for dims in (None, {"batch": 1})]
    assert [count(result.model)["MatMulInteger"] for result in found] == [0, 1]
    assert verify(path, found[1].model).ok


# Channels in sixteens.


def squeezed(channels: int = 24, seed: int = 0) -> Nets:
    """Expansion, depthwise convolution, squeeze and excitation, projection."""
    net = Nets((1, 6, 7, 4), seed).convolved(channels, (1, 1)).convolved(channels, (3, 2), depthwise=True)
    image, spatial = net.last, net.shape[1:3]
    axes = net.const(np.array([1, 2]), "int32")
    x = net.last
    net.op("MEAN", [x, axes], [net.image(channels, (1, 1), False)], options("ReducerOptions", keepDims=True), version=2)
    net.convolved(5, (1, 1)).convolved(channels, (1, 1))
    x = net.last
    net.op("HARD_SWISH", [x], [net.image(channels, (1, 1), False)])
    excited = net.last
    net.op("MUL", [image, excited], [net.image(channels, spatial, False)], options("MulOptions"), version=2)
    row = net.const(net.rng.integers(-128, 128, channels), "int8", q=Scale(0.03, 5))
    x = net.last
    net.op("ADD", [x, row], [net.image(channels, spatial, False)], options("AddOptions"), version=2)
    return net.convolved(6, (3, 3), output=True, q=Scale(2.0, 7))


def widths(model: Model) -> list[tuple[int, ...]]:
    return [t.shape for t in model.subgraphs[0].tensors if t.data is None and t.name.endswith("/wider")]


@pytest.mark.parametrize("channels", [8, 17, 24, 33])
def test_more_channels_give_the_same_integers(channels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    content = squeezed(channels).bytes()
    more = -(-channels // 16) * 16
    found = widths(aligned(load(content)))
    assert len(found) == 7
    assert {shape[3] for shape in found} == {more}
    model, x = read(content, target=FAST), given(content)
    agree(content, target=FAST)
    agree(content)
    (interior,) = verify(content, model).interiors  # the one between the two convolutions that excite
    assert interior.ok
    monkeypatch.setattr(uint8_activations, "PADDING_PASS", Pass("nothing", lambda model: model, stage=Stage.FILE))
    np.testing.assert_array_equal(run(model, x), run(read(content, target=FAST), x))


def untouched(content: bytes) -> bool:
    model = load(content)
    return all(a is b for a, b in zip(aligned(model).subgraphs, model.subgraphs, strict=True))


def separable(channels: int = 24, *, seen: bool = False) -> Nets:
    """A convolution and a depthwise one."""
    net = Nets((1, 6, 7, 4)).convolved(channels, (1, 1))
    return net.convolved(channels, (3, 2), depthwise=True, output=seen)


def test_channels_that_somebody_sees_stay() -> None:
    assert not untouched(separable().convolved(6, (1, 1), output=True).bytes())
    for enough_or_few in (32, 7):
        assert untouched(separable(enough_or_few).convolved(6, (1, 1), output=True).bytes())
    assert untouched(separable(seen=True).bytes())
    first = Nets((1, 6, 7, 24)).convolved(24, (3, 3), depthwise=True)
    assert untouched(first.convolved(6, (1, 1), output=True).bytes())


def test_channels_that_an_operator_mixes_stay() -> None:
    shaped = separable()
    flat = shaped.output((6, 7, 24), "int8", q=MIDDLE)
    shaped.op("RESHAPE", [shaped.last, shaped.const([6, 7, 24], "int32")], [flat], options("ReshapeOptions"))
    assert untouched(shaped.bytes())
    reduced = separable()
    operands = [reduced.last, reduced.const(np.array([1, 3]), "int32")]
    y = reduced.output((1, 1, 7, 1), "int8", q=OUT)
    assert untouched(reduced.op("MEAN", operands, [y], options("ReducerOptions", keepDims=True)).bytes())


def test_a_part_has_the_channels_of_the_file() -> None:
    content = squeezed().bytes()
    name = load(content).subgraphs[0].tensors[load(content).subgraphs[0].operators[1].outputs[0]].name
    part = read(content, outputs=[name], target=FAST)
    assert [d if isinstance(d, int) else None for d in part.graph.outputs[0].shape or ()] == [1, 6, 7, 24]


# Groups.


def groups(model: ir.Model) -> list[int]:
    return [node.attributes["group"].as_int() for node in model.graph if node.op_type == "Conv"]


def multiplied(kind: str = "int8", channels: int = 6, multiplier: int = 3, extent: int = 12, zero: int = 0) -> bytes:
    """A depthwise convolution of which each channel gives several."""
    net, rng, middle = Net(), np.random.default_rng(5), 128 if kind == "uint8" else 0
    unsigned, units = kind == "uint8", channels * multiplier
    lowest, highest = (0, 256) if unsigned else (-127, 128)
    weights = rng.integers(lowest, highest, (1, 3, 2, units))
    scales = Scale(0.01, zero) if unsigned else Scale((0.004 + 0.001 * np.arange(units)).tolist(), 0, 3)
    x = net.input((1, extent, extent, channels), kind, q=Scale(0.04, 3 + middle))
    y = net.output((1, extent, extent, units), kind, q=Scale(0.4, 5 + middle))
    table = options(
        "DepthwiseConv2DOptions", padding=SAME, strideH=1, strideW=1, dilationHFactor=2, depthMultiplier=multiplier
    )
    steps = np.float32(0.04) * np.asarray(scales.scale, np.float32)
    bias = net.const(rng.integers(-500, 500, units), "int32", q=Scale(steps.tolist()))
    return net.op("DEPTHWISE_CONV_2D", [x, net.const(weights, kind, q=scales), bias], [y], table, version=3).bytes()


@pytest.mark.parametrize(
    ("channels", "units", "count", "depthwise", "left"),
    [
        (8, 16, 8, True, 1),
        (6, 18, 6, True, 1),
        (64, 128, 64, True, 4),
        (7, 28, 7, True, 1),
        (32, 64, 8, False, 1),
        (128, 128, 32, False, 4),
        (12, 6, 6, False, 1),
    ],
)
@pytest.mark.parametrize(("window", "stride", "padding"), [((3, 2), 1, SAME), ((2, 3), 2, VALID)])
def test_fewer_groups_give_the_same_integers(
    channels: int,
    units: int,
    count: int,
    depthwise: bool,
    left: int,
    window: Any,
    stride: int,
    padding: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    net = Nets((2, 18, 15, channels))
    kind = {"depthwise": True} if depthwise else {"groups": count}
    content = net.convolved(units, window, stride, padding, output=True, **kind).bytes()
    model, x = read(content, target=FAST), given(content)
    plain = read_without("merge_conv_groups", content, monkeypatch)
    assert (groups(model), groups(plain), groups(read(content))) == ([left], [count], [count])
    np.testing.assert_array_equal(run(model, x), run(plain, x))
    agree(content)
    agree(content, target=FAST)


@pytest.mark.parametrize(("kind", "zero"), [("int8", 0), ("uint8", 128), ("uint8", 119), ("uint8", 0), ("uint8", 255)])
def test_what_stands_between_joined_groups_means_0(kind: str, zero: int, monkeypatch: pytest.MonkeyPatch) -> None:
    content = multiplied(kind, zero=zero)
    plain = read_without("merge_conv_groups", content, monkeypatch)
    model, x = read(content, target=FAST), given(content)
    assert (groups(model), groups(plain)) == ([1], [6])
    np.testing.assert_array_equal(run(model, x), run(plain, x))
    agree(content)
    agree(content, target=FAST)


def test_groups_are_joined_where_that_takes_less_time() -> None:
    """By prices: as `bench/measure_groups.py` prints them, of 128 channels sixteen together take the least."""
    assert widened.groups_in_one(8, 16, 1, (3, 5), 240) == 8
    assert widened.groups_in_one(128, 256, 1, (3, 3), 28 * 28) == 16
    assert widened.groups_in_one(32, 128, 4, (3, 3), 14 * 14) == 8
    for alone in (
        (128, 128, 1, (3, 3), 28 * 28),
        (8, 16, 1, (3, 3), 1),
        (4, 128, 32, (3, 3), 784),
        (1, 8, 8, (3, 3), 784),
    ):
        assert widened.groups_in_one(*alone) == 1
    # Five is a divisor, but nothing from 2 to 4 is; a kernel of half a megabyte is not four times as long.
    assert widened.groups_in_one(5, 10, 1, (3, 3), 784) == 5
    assert widened.groups_in_one(512, 512 * 16, 4, (4, 4), 784) == 1
    assert widened.groups_in_one(2**40, 2**41, 1, (1, 1), 784) == 1  # and looks at no more counts than may be


@pytest.mark.parametrize("widths", [(1, 1, 3), (8, 16, 3), (16, 48, 5)])
def test_no_kernel_grows_beyond_what_is_said(widths: tuple[int, int, int]) -> None:
    depth, units, side = widths
    for count in (2, 64, 1024):
        found = widened.groups_in_one(count, count * units, depth, (side, side), 56 * 56)
        assert count * units * depth * side**2 * (found - 1) <= widened.MOST


def test_convolutions_that_are_not_of_integers_keep_their_groups() -> None:
    content = multiplied()
    assert groups(read(content, quant="float", target=FAST)) == [6]
    assert groups(read(multiplied(multiplier=1), target=FAST)) == [6]
    assert groups(read(multiplied(extent=1), target=FAST)) == [6]
    for kind, data in (("int8", "float32"), ("float32", "float32"), ("int8", "int16")):
        net, rng = Net(), np.random.default_rng(2)
        weights = net.const(rng.integers(-127, 128, (1, 3, 3, 16)), kind, q=Scale(0.01, 0) if kind == "int8" else None)
        q = Scale(0.01, 0) if data == "int16" else None
        x, y = net.input((1, 14, 14, 8), data, q=q), net.output((1, 14, 14, 16), data, q=q)
        table = options("DepthwiseConv2DOptions", padding=SAME, strideH=1, strideW=1, depthMultiplier=2)
        net.op("DEPTHWISE_CONV_2D", [x, weights], [y], table, version=3)
        assert groups(read(net.bytes(), target=FAST)) == [8]


def test_targets_other_than_onnx_runtimes_cpu_get_the_groups_of_the_file(tmp_path: Path) -> None:
    """NNAPI's kernels for integers take depthwise convolutions and those without groups, and none between."""
    path = tmp_path / "model.tflite"
    path.write_bytes(multiplied(channels=64, multiplier=2))

    def of(**how: Any) -> list[int]:
        nodes = relayout.convert(path, **how).model.graph
        return [n.attributes["group"].as_int() for n in nodes if n.op_type in ("Conv", "QLinearConv")]

    assert [of(), of(to="NHWC")] == [[64], [64]]
    assert [of(target=name) for name in ("onnxruntime-cpu", "nnapi", "qnn", "xnnpack")] == [[4], [64], [64], [64]]


# Pools.


@pytest.mark.parametrize("kind", ["int8", "uint8"])
@pytest.mark.parametrize(("window", "stride", "padding"), [((2, 2), 2, SAME), ((3, 2), 1, VALID), ((2, 3), 3, VALID)])
def test_average_pools_of_bytes_are_convolutions(kind: str, window: tuple[int, int], stride: int, padding: int) -> None:
    net, q = Net(), Scale(0.05, 3 if kind == "int8" else 131)
    x = net.input((2, 6, 8, 5), kind, q=q)
    places = [
        -(-e // stride) if padding == SAME else (e - k) // stride + 1 for e, k in zip((6, 8), window, strict=True)
    ]
    table = options(
        "Pool2DOptions", padding=padding, filterHeight=window[0], filterWidth=window[1], strideH=stride, strideW=stride
    )
    net.op("AVERAGE_POOL_2D", [x], [net.output((2, *places, 5), kind, q=q)], table, version=2)
    found, plain = count(read(net.bytes(), target=FAST)), count(read(net.bytes()))
    assert (found["Conv"], found["AveragePool"]) == (1, 0)
    assert (plain["Conv"], plain["AveragePool"]) == (0, 1)
    agree(net.bytes(), target=FAST)
    agree(net.bytes())


@pytest.mark.parametrize("zero", [0, 131, 255])
@pytest.mark.parametrize("window", [(1, 2), (2, 2), (3, 3), (4, 6)])
def test_averages_between_two_integers_of_uint8_are_the_greater_one(window: tuple[int, int], zero: int) -> None:
    net, q = Net(), Scale(0.05, zero)
    table = options("Pool2DOptions", padding=VALID, filterHeight=window[0], filterWidth=window[1], strideH=1, strideW=1)
    places = [e - k + 1 for e, k in zip((9, 8), window, strict=True)]
    x, y = net.input((2, 9, 8, 5), "uint8", q=q), net.output((2, *places, 5), "uint8", q=q)
    net.op("AVERAGE_POOL_2D", [x], [y], table, version=2)
    assert [result.error for result in compare(net.bytes(), target=FAST)] == [0]
    assert [result.error <= 1 for result in compare(net.bytes())] == [True]


def test_average_pools_with_a_border_are_pools() -> None:
    net = Net()
    x = net.input((2, 6, 8, 5), "int8", q=IN)
    table = options("Pool2DOptions", padding=SAME, filterHeight=3, filterWidth=3, strideH=1, strideW=1)
    net.op("AVERAGE_POOL_2D", [x], [net.output((2, 6, 8, 5), "int8", q=IN)], table, version=2)
    assert count(read(net.bytes(), target=FAST))["AveragePool"] == 1
    agree(net.bytes(), target=FAST)


# Constants for each channel.


def normalized(*, half: bool = False, read_twice: bool = False, behind: str = "CONV_2D") -> Net:
    """MUL and ADD with a constant for each channel, then a convolution, or a TANH that takes any order of axes."""
    rng, net = np.random.default_rng(6), Net()
    x = net.input((2, 5, 6, 4), name="x")
    rows = []
    for shape in ((1, 1, 1, 4), (4,)):
        row = net.const(rng.normal(size=shape), "float16" if half else "float32")
        if half:
            wide = net.tensor(shape)
            net.op("DEQUANTIZE", [row], [wide], version=3)
            row = wide
        rows.append(row)
    product, total = net.tensor((2, 5, 6, 4), name="product"), net.tensor((2, 5, 6, 4), name="total")
    net.op("MUL", [rows[0], x], [product], options("MulOptions"))
    net.op("ADD", [product, rows[1]], [total], options("AddOptions", fusedActivationFunction=1))
    if read_twice:
        net.op("TANH", [product], [net.output((2, 5, 6, 4))])
    if behind == "RESHAPE":
        flat = net.tensor((2, 5, 4, 6))
        net.op("RESHAPE", [total, net.const([2, 5, 4, 6], "int32")], [flat], options("ReshapeOptions"))
        kernel, bias = net.const(rng.normal(size=(3, 3, 3, 6))), net.const(rng.normal(size=3))
        table = options("Conv2DOptions", strideH=1, strideW=1)
        return net.op("CONV_2D", [flat, kernel, bias], [net.output((2, 5, 4, 3))], table)
    if behind == "CONV_2D":
        kernel, bias = net.const(rng.normal(size=(3, 3, 3, 4))), net.const(rng.normal(size=3))
        table = options("Conv2DOptions", strideH=1, strideW=1)
        return net.op("CONV_2D", [total, kernel, bias], [net.output((2, 5, 6, 3))], table)
    return net.op(behind, [total], [net.output((2, 5, 6, 4))])


@pytest.mark.parametrize("half", [False, True])
def test_scale_and_shift_before_a_convolution_are_a_normalization(half: bool) -> None:
    content = normalized(half=half).bytes()
    found, plain = count(read(content, target=FAST)), count(read(content))
    assert (found["BatchNormalization"], found["Mul"], found["Add"]) == (1, 0, 0)
    assert (plain["BatchNormalization"], plain["Mul"], plain["Add"]) == (0, 1, 1)
    agree(content, target=FAST)
    agree(content)


@pytest.mark.parametrize("more", [{"read_twice": True}, {"behind": "TANH"}, {"behind": "RESHAPE"}])
def test_elsewhere_they_stay(more: dict[str, Any]) -> None:
    content = normalized(**more).bytes()
    found = count(read(content, target=FAST))
    assert (found["BatchNormalization"], found["Mul"], found["Add"]) == (0, 1, 1)
    agree(content, target=FAST)


@pytest.mark.parametrize("channels", [16, 5])
def test_a_factor_for_each_channel_of_bytes(channels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    net = Nets((2, 4, 5, channels))
    numbers = net.rng.integers(-128, 128, channels)
    numbers[:2] = 5, -128
    row, x = net.const(numbers, "int8", q=Scale(0.03, 5)), net.last
    net.op("MUL", [x, row], [net.image(channels, (4, 5), False)], options("MulOptions"), version=2)
    content = net.convolved(3, (2, 2), output=True).bytes()
    model, fed = read(content, target=FAST), given(content)
    assert (count(model)["Conv"], count(model)["Mul"]) == ((2, 0) if channels == 16 else (1, 1))
    agree(content)
    agree(content, target=FAST)
    difference = run(model, fed).astype(int) - run(read_without("channel_constants", content, monkeypatch), fed).astype(
        int
    )
    assert np.abs(difference).max() <= 1
    assert np.mean(difference != 0) < 0.01


# Weights of uint8.


@pytest.mark.parametrize("zero", [0, 100, 128, 255])
@pytest.mark.parametrize("name", ["CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"])
def test_weights_of_uint8_are_int8(name: str, zero: int) -> None:
    rng, net = np.random.default_rng(7), Net()
    flat = name == "FULLY_CONNECTED"
    x = net.input((3, 12) if flat else (1, 5, 6, 12), "uint8", q=Scale(0.04, 20))
    shape = {"CONV_2D": (7, 3, 2, 12), "DEPTHWISE_CONV_2D": (1, 3, 2, 12), "FULLY_CONNECTED": (7, 12)}[name]
    # Far from the zero point, so that one step of the weights' is seen in the sums.
    kernel = net.const(rng.integers(0, 256, shape), "uint8", q=Scale(0.01, zero), name="kernel")
    units = shape[3] if name == "DEPTHWISE_CONV_2D" else 7
    bias = net.const(rng.integers(-900, 900, units), "int32", q=Scale(0.0004))
    y = net.output((3, 7) if flat else (1, 5, 6, units), "uint8", q=Scale({100: 0.4, 128: 0.4}.get(zero, 2.0), 110))
    table = {
        "CONV_2D": options("Conv2DOptions", strideH=1, strideW=1),
        "DEPTHWISE_CONV_2D": options("DepthwiseConv2DOptions", strideH=1, strideW=1, depthMultiplier=1),
        "FULLY_CONNECTED": options("FullyConnectedOptions"),
    }[name]
    net.op(name, [x, kernel, bias], [y], table, version=1)
    for target, kind in ((FAST, ir.DataType.INT8), (None, ir.DataType.UINT8)):
        constants = read(net.bytes(), target=target).graph.initializers.values()
        assert {v.dtype for v in constants if v.const_value and v.const_value.size == np.prod(shape)} == {kind}
        agree(net.bytes(), target=target)


# Layer normalization.


def layered(
    *,
    gamma: bool = True,
    beta: bool = True,
    half: bool = False,
    swapped: bool = False,
    other: str = "",
    far: float = 0,
    patches: bool = False,
) -> Net:
    """The pieces that Keras makes of a layer normalization; `other` spoils one of them."""
    rng, net = np.random.default_rng(8), Net()
    shape, rows, count = (2, 3, 5), (2, 3, 1), 5
    x = net.input((2, 1, 3, 5) if patches else shape, low=far - 2, high=far + 2, name="x")
    if patches:
        image, x = x, net.tensor(shape)
        net.op("RESHAPE", [image, net.const(np.array(shape), "int32")], [x])
    axes = net.const(np.array([1 if other == "axis" else 2]), "int32")
    kept = (2, 1, 5) if other == "axis" else rows

    def constant(values: Any) -> int:
        made = net.const(values, "float16" if half else "float32")
        if not half:
            return made
        net.op("DEQUANTIZE", [made], [net.tensor(np.shape(values))], version=3)
        return made + 1

    def computed(name: str, operands: list[int], shape: tuple[int, ...], table: Any = None) -> int:
        y = net.tensor(shape)
        net.op(name, operands[::-1] if swapped and name in ("ADD", "MUL") else operands, [y], table)
        return y

    mean = computed("MEAN", [x, axes], kept, options("ReducerOptions", keepDims=True))
    squares = computed("SQUARED_DIFFERENCE", [x, mean], shape)
    variance = computed("MEAN", [squares, axes], kept, options("ReducerOptions", keepDims=True))
    factor = computed("RSQRT", [computed("ADD", [variance, constant(1e-3)], kept, options("AddOptions"))], kept)
    if gamma:
        factor = computed("MUL", [factor, constant(rng.normal(size=(1, 1, count)))], shape, options("MulOptions"))
    negative = computed(
        "NEG", [factor if other == "negative" else mean], shape if gamma else kept, options("NegOptions")
    )
    shift = computed("MUL", [negative, factor], shape if gamma else kept, options("MulOptions"))
    if beta:
        shift = computed("ADD", [shift, constant(rng.normal(size=count))], shape, options("AddOptions"))
    product = computed("MUL", [x, factor], shape, options("MulOptions"))
    y = net.output(shape, name="y")
    net.op("ADD", [product, shift], [y], options("AddOptions", fusedActivationFunction=1))
    if other == "seen":
        net.op("TANH", [factor], [net.output(shape)])
    return net


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize(("gamma", "beta"), [(False, False), (False, True), (True, False), (True, True)])
def test_the_pieces_of_a_layer_normalization(gamma: bool, beta: bool, half: bool, swapped: bool) -> None:
    content = layered(gamma=gamma, beta=beta, half=half, swapped=swapped).bytes()
    assert set(count(read(content))) == {"LayerNormalization", "Relu"}
    assert set(count(read(content, target=FAST))) == {"LayerNormalization", "Relu", "Reshape"}
    assert set(count(read(content, target="none"))) > {"Mul", "Relu"}
    for target in (None, FAST, "none"):
        agree(content, target=target)


@pytest.mark.parametrize("square", ["MUL", "SQUARE"])
@pytest.mark.parametrize("order", ["in turn", "factor first"])
def test_the_pieces_that_relayout_makes_of_a_layer_normalization(order: str, square: str) -> None:
    """`(x - m) f + beta`, whose product by gamma stands behind or before that by the distances."""
    rng, net, shape, rows = np.random.default_rng(8), Net(), (2, 3, 5), (2, 3, 1)

    def computed(name: str, operands: list[int], dims: tuple[int, ...] = shape, table: Any = None) -> int:
        y = net.tensor(dims)
        net.op(name, operands, [y], table)
        return y

    reducer = options("ReducerOptions", keepDims=True)
    gamma, beta = (net.const(rng.normal(size=5), "float32") for _ in range(2))
    axes, least = net.const(np.array([2]), "int32"), net.const(1e-3, "float32")
    x = net.input(shape, low=-2, high=2, name="x")
    distance = computed("SUB", [x, computed("MEAN", [x, axes], rows, reducer)], shape, options("SubOptions"))
    squares = computed(square, [distance] * (2 if square == "MUL" else 1), shape)
    variance = computed("ADD", [computed("MEAN", [squares, axes], rows, reducer), least], rows, options("AddOptions"))
    factors = [computed("RSQRT", [variance], rows), gamma]
    if order == "in turn":
        product = distance
        for factor in factors:
            product = computed("MUL", [product, factor], shape, options("MulOptions"))
    else:
        product = computed("MUL", [distance, computed("MUL", factors, shape, options("MulOptions"))], shape)
    net.op("ADD", [product, beta], [net.output(shape, name="y")], options("AddOptions"))
    content = net.bytes()
    assert set(count(read(content))) == {"LayerNormalization"}
    for target in (None, FAST, "none"):
        agree(content, target=target)


def in_flat_rows(*, gamma: bool = True, beta: bool = True, image: bool = False, other: str = "") -> Net:
    """The pieces that litert-torch makes of a layer normalization; `other` spoils one of them."""
    rng, net = np.random.default_rng(8), Net()
    shape, column, flat = (1, 5, 5), (1, 5, 1), (5,)
    add, mul, sub = (options(f"{name}Options") for name in ("Add", "Mul", "Sub"))

    def computed(name: str, operands: list[int], dims: tuple[int, ...], table: Any = None) -> int:
        y = net.tensor(dims)
        net.op(name, operands, [y], table)
        return y

    def as_column(x: int) -> int:
        dims = (1, 1, 5) if other == "row" else column
        return computed("RESHAPE", [x, net.const(np.array(dims), "int32")], dims)

    x = net.input((1, 1, 5, 5) if image else shape, low=-2, high=2, name="x")
    x = computed("RESHAPE", [x, net.const(np.array(shape), "int32")], shape) if image else x
    axes = net.const(np.array([0, 2]), "int32")
    mean = computed("MEAN", [x, axes], flat, options("ReducerOptions"))
    squares = computed("SQUARED_DIFFERENCE", [x, as_column(mean)], shape)
    variance = computed("MEAN", [squares, axes], flat, options("ReducerOptions"))
    factor = computed("RSQRT", [computed("ADD", [variance, net.const(1e-3, "float32")], flat, add)], flat)
    begin = net.const(0.5 if other == "begin" else 0.0, "float32")
    operands = [factor, factor if other == "square" else mean]
    shift = computed("SUB", [begin, computed("MUL", operands, flat, mul)], flat, sub)
    column_factor = as_column(factor)
    if other == "flat mean":  # which is broadcast along the rows, and not beside them
        shift = computed("MUL", [computed("NEG", [mean], flat), column_factor], shape, mul)
    else:
        shift = as_column(shift)
    y = computed("ADD", [computed("MUL", [x, column_factor], shape, mul), shift], shape, add)
    y = computed("MUL", [y, net.const(rng.normal(size=5), "float32")], shape, mul) if gamma else y
    y = computed("ADD", [y, net.const(rng.normal(size=5), "float32")], shape, add) if beta else y
    net.op("RELU", [y], [net.output(shape, name="y")])
    return net


@pytest.mark.parametrize(("gamma", "beta"), [(False, False), (False, True), (True, False), (True, True)])
def test_the_pieces_that_litert_torch_makes_of_a_layer_normalization(gamma: bool, beta: bool) -> None:
    content = in_flat_rows(gamma=gamma, beta=beta).bytes()
    others = {"Mul"} if gamma and not beta else {"Add"} if beta and not gamma else set()
    assert set(count(read(content))) == {"LayerNormalization", "Relu", *others}
    for target in (None, FAST, "none"):
        agree(content, target=target)


@pytest.mark.parametrize("other", ["row", "begin", "square", "flat mean"])
def test_other_flat_pieces_are_no_layer_normalization(other: str) -> None:
    content = in_flat_rows(other=other).bytes()
    assert "LayerNormalization" not in count(read(content))
    agree(content)


def test_patches_of_an_image_are_rows() -> None:
    content = layered(patches=True).bytes()
    assert count(read(content))["LayerNormalization"] == 1
    agree(content)


def test_pixels_in_flat_rows_stay_in_pieces() -> None:
    content = in_flat_rows(image=True).bytes()
    assert "LayerNormalization" not in count(read(content))
    agree(content)


def test_pieces_that_are_seen_stay_beside_it() -> None:
    content = layered(other="seen").bytes()
    found = count(read(content))
    assert (found["LayerNormalization"], found["Reciprocal"], found["Mul"]) == (1, 1, 2)
    agree(content)


@pytest.mark.parametrize("other", ["axis", "negative"])
def test_other_pieces_are_no_layer_normalization(other: str) -> None:
    content = layered(other=other).bytes()
    assert "LayerNormalization" not in count(read(content))
    agree(content)


def test_many_products_before_an_addition_are_soon_looked_through() -> None:
    """Each multiplies the last one with itself: twice as many ways with every one of them."""
    net = Net()
    last = net.input((2, 3, 5), low=-1, high=1)
    for _ in range(1200):
        product = net.tensor((2, 3, 5))
        net.op("MUL", [last, last], [product], options("MulOptions"))
        last = product
    net.op("ADD", [last, last], [net.output((2, 3, 5))], options("AddOptions"))
    content = net.bytes()
    assert "LayerNormalization" not in count(read(content))
    agree(content, net.ranges)


def test_rows_far_from_zero_keep_their_digits() -> None:
    content = layered(far=1000.0).bytes()
    x = np.random.default_rng(1).uniform(999, 1001, (2, 3, 5)).astype(np.float32)
    (pieces,) = interpreted(content, x)
    exact = x.astype(np.float64)
    centred = exact - exact.mean(-1, keepdims=True)
    rng = np.random.default_rng(8)
    gamma, beta = (rng.normal(size=n).astype(np.float32) for n in ((1, 1, 5), 5))
    wanted = np.maximum(centred / np.sqrt(exact.var(-1, keepdims=True) + np.float32(1e-3)) * gamma + beta, 0)
    ours = np.abs(run(read(content), x) - wanted).max()
    assert ours < 1e-3
    assert ours < np.abs(pieces - wanted).max()


def interpreted(content: bytes, fed: Any) -> list[Any]:
    return run_interpreter(interpreter(content), [fed])


# Transposed convolutions.


def grown_up(
    window: tuple[int, int],
    stride: int,
    padding: int,
    target: tuple[int, int],
    channels: int = 16,
    *,
    off: float = 1,
    q: Scale = OUT,
) -> Net:
    """A transposed convolution; `off` is what the bias's steps are divided by, in the file alone."""
    rng, net = np.random.default_rng(9), Net()
    x = net.input((2, 5, 4, 3), "int8", q=IN, name="x")
    shape = net.const(np.array([2, *target, channels]), "int32")
    scales = (0.004 + 0.001 * (np.arange(channels) % 7)).tolist()
    kernel = net.const(rng.integers(-127, 128, (channels, *window, 3)), "int8", q=Scale(scales))
    bias = net.const(rng.integers(-500, 500, channels), "int32", q=Scale([IN.scale * scale / off for scale in scales]))
    y = net.output((2, *target, channels), "int8", q=q)
    table = options("TransposeConvOptions", padding=padding, strideH=stride, strideW=stride, fusedActivationFunction=1)
    return net.op("TRANSPOSE_CONV", [shape, kernel, x, bias], [y], table, version=3)


@pytest.mark.parametrize("stride", [2, 3])
@pytest.mark.parametrize("window", [(1, 2), (2, 2), (3, 3), (4, 3), (5, 7)])
@pytest.mark.parametrize("padding", [SAME, VALID])
def test_transposed_convolutions_of_bytes_are_convolutions(
    padding: int, window: tuple[int, int], stride: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rest = [0 if padding == SAME else max(k - stride, 0) for k in window]
    target = (5 * stride + rest[0], 4 * stride + rest[1])
    content = grown_up(window, stride, padding, target).bytes()
    model, x = read(content, target=FAST), given(content)
    agree(content, target=FAST)
    assert count(read(content))["DepthToSpace"] == 0
    whole = not any(extent % stride for extent in target) and max(window) > stride  # else no two windows overlap
    assert (count(model)["DepthToSpace"], count(model)["ConvTranspose"]) == ((1, 0) if whole else (0, 1))
    difference = run(model, x).astype(int) - run(
        read_without("subpixel_transposed_conv", content, monkeypatch), x
    ).astype(int)
    assert np.abs(difference).max() <= 1
    assert np.mean(difference != 0) < 0.01


@pytest.mark.parametrize("off", [None, 1000])
def test_a_bias_in_steps_of_its_own_counts_in_those_of_the_product_of_places(off: float | None) -> None:
    net = grown_up((3, 3), 2, SAME, (10, 8), off=off or 1, q=Scale(0.01))
    if off is None:
        net.graph.tensors[net.graph.operators[0].inputs[3]].quantization = None
    assert count(read(net.bytes(), target=FAST))["DepthToSpace"] == 1
    agree(net.bytes(), target=FAST)
    agree(net.bytes())


def test_transposed_convolutions_to_few_channels_stay() -> None:
    content = grown_up((3, 3), 2, SAME, (10, 8), channels=6).bytes()
    assert count(read(content, target=FAST))["ConvTranspose"] == 1
    agree(content, target=FAST)


# Repetition.


def test_a_few_copies_along_one_axis_are_put_together() -> None:
    for repeats, wanted in (((1, 3, 1), "Concat"), ((1, 9, 1), "Tile"), ((2, 3, 1), "Tile"), ((1, 1, 1), "Tile")):
        net = Net()
        shape = tuple(d * r for d, r in zip((2, 3, 4), repeats, strict=True))
        net.op("TILE", [net.input((2, 3, 4)), net.const(np.array(repeats), "int32")], [net.output(shape)])
        assert count(read(net.bytes())) == {"Tile": 1}
        assert count(read(net.bytes(), target=FAST)) == {wanted: 1}
        agree(net.bytes(), target=FAST)


# Computed slices.


@pytest.mark.parametrize("kind", ["int32", "int64"])
@pytest.mark.parametrize(
    ("begin", "size"), [((0, 0), None), ((1, 2), None), (None, (-1, 2)), (None, (1, -1)), (None, None)]
)
def test_computed_slices(begin: tuple[int, int] | None, size: tuple[int, int] | None, kind: str) -> None:
    net = Net()
    x, operands = net.input((4, 5), name="x"), []
    for constant, low, high, name in ((begin, 0, 1, "begin"), (size, -1, 2, "size")):
        operands.append(net.input((2,), kind, low, high, name=name) if constant is None else net.const(constant, kind))
    net.op("SLICE", [x, *operands], [net.output((4, 5), signature=(-1, -1))], options("SliceOptions"))
    found = count(read(net.bytes()))
    assert not {"Where", "Less"} & set(found)
    assert found["BitwiseAnd"] == (size is None)
    assert found["Add"] == (begin != (0, 0))
    assert found["Cast"] == 0
    for seed in range(4):
        agree(net.bytes(), [(-2, 2), *[(0, 1)] * (begin is None), *[(-1, 2)] * (size is None)], seed=seed)


@pytest.mark.parametrize(
    ("kind", "reading", "operator"),
    [
        ({"clip": TIME}, {}, "LSTM"),
        ({"clip": TIME, "cifg": True, "peephole": True, "time_major": True}, {}, "LSTM"),
        ({"clip": TIME - 0.1}, {}, "Scan"),  # the last step may reach it
        ({"clip": TIME}, {"state": "io"}, "Scan"),  # the cell begins with anything
        ({"clip": TIME, "activation": RELU}, {}, "Scan"),  # which may add any amount
    ],
)
def test_limits_that_a_cell_cannot_reach_are_none(kind: Any, reading: Any, operator: str) -> None:
    """A cell that begins with 0 grows by less than 1 a step: with no more steps than its limit it is ONNX's LSTM."""
    content = lstm(**kind).bytes()
    assert operator in count(read(content, **reading))
    if not reading:
        agree(content, [(-90, 90)])


@pytest.mark.parametrize("kind", [{"clip": 0.3}, {"projection": 3, "cifg": True}, {"hybrid": True, "clip": 1.0}])
def test_a_step_multiplies_once(kind: Any) -> None:
    """What the gates make of the operand is known before the first step, and what they make of the output is one."""
    model = read(lstm(**kind).bytes())
    (body,) = [node.attributes["body"].as_graph() for node in model.graph if node.op_type == "Scan"]
    products = Counter(node.op_type for node in body)["Gemm"]
    assert products == 1 + ("projection" in kind)


@pytest.mark.parametrize("half", [False, True], ids=["float", "half"])
@pytest.mark.parametrize("slopes", [(1, 1, 8), (8,), (1,)])
def test_a_prelu_between_convolutions(slopes: tuple[int, ...], half: bool) -> None:
    """With the target it is convolutions itself, in their order of axes, or a LeakyRelu."""
    rng, net, shape = np.random.default_rng(2), Net(), (1, 20, 18, 8)
    x, kernel = net.input(shape), net.const(rng.normal(size=(8, 1, 1, 8)), "float32")
    bias, slope = (
        net.const(np.zeros(8), "float32"),
        net.const(rng.normal(size=slopes), "float16" if half else "float32"),
    )
    if half:
        wide = net.tensor(slopes)
        net.op("DEQUANTIZE", [slope], [wide], version=3)
        slope = wide
    table = options("Conv2DOptions", padding=VALID, strideH=1, strideW=1)
    values = [x, *(net.tensor(shape) for _ in range(2)), net.output(shape)]
    net.op("CONV_2D", [values[0], kernel, bias], values[1:2], table, version=3)
    net.op("PRELU", [values[1], slope], values[2:3])
    net.op("CONV_2D", [values[2], kernel, bias], values[3:], table, version=3)
    content = net.bytes()
    plain, found = (count(relayout.convert(content, target=target).model) for target in (None, "onnxruntime-cpu"))
    assert (plain["PRelu"], plain["Cast"], plain["Transpose"]) == (1, 0, 2)
    several = {"Conv": 2, "LeakyRelu": 1} if slopes == (1,) else {"Conv": 5, "Relu": 2, "Add": 1}
    assert {name: number for name, number in found.items() if name != "Transpose"} == several
    for target in (None, "onnxruntime-cpu"):
        assert verify(content, relayout.convert(content, target=target).model).ok


def test_a_prelu_between_integers() -> None:
    """With the target it is on real numbers, in the order of axes of the integers around it; its slopes are floats."""
    net = Nets((1, 20, 18, 8)).convolved(8, (1, 1))
    slope = net.const(np.arange(-4, 4).reshape(1, 1, 8) * 20, "int8", q=Scale(0.01))
    read = net.last
    net.op("PRELU", [read, slope], [net.image(8, net.shape[1:3], output=False)])
    content = net.convolved(8, (1, 1), output=True).bytes()
    result = relayout.convert(content, target="onnxruntime-cpu-avx2")  # whose products are exact on every CPU
    found = count(result.model)
    names = ("PRelu", "Conv", "QLinearConv", "Relu", "Min", "Mul", "Add", "DequantizeLinear")
    assert [found[name] for name in names] == [0, 0, 2, 1, 1, 1, 1, 3]  # with int8 to uint8 and back at the interface
    assert verify(content, result.model).ok


def test_a_resize_between_convolutions_stays_in_blocks() -> None:
    """The target knows that, though the file has channels last: a Transpose is no reason to leave them."""
    rng, net = np.random.default_rng(3), Net()
    x, bias = net.input((1, 6, 5, 16)), net.const(np.zeros(16), "float32")
    kernel = net.const(rng.normal(size=(16, 1, 1, 16)), "float32")
    small, large, y = net.tensor((1, 6, 5, 16)), net.tensor((1, 12, 10, 16)), net.output((1, 12, 10, 16))
    table = options("Conv2DOptions", padding=VALID, strideH=1, strideW=1)
    net.op("CONV_2D", [x, kernel, bias], [small], table, version=3)
    resized = options("ResizeBilinearOptions", halfPixelCenters=True)
    net.op("RESIZE_BILINEAR", [small, net.const([12, 10], "int32")], [large], resized, version=3)
    net.op("CONV_2D", [large, kernel, bias], [y], table, version=3)
    result = relayout.convert(net.bytes(), target="onnxruntime-cpu")
    (resize,) = (node for node in result.model.graph if node.op_type == "Resize")
    assert list(resize.outputs[0].shape or ()) == [1, 16, 12, 10]
    assert verify(net.bytes(), result.model).ok
