"""Custom operators: MediaPipe's against their kernels written out in numpy, others carried over; FlexBuffers.

The interpreter at hand has no kernel for MediaPipe's operators. What MediaPipe makes of small models is recorded
(`test_tflite_mediapipe`); all ways to pad and to stride are compared here with loops.
"""

from __future__ import annotations

import contextlib
import itertools
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from flatbuffers import flexbuffers
from tflite_cases import CASES, I8, WITHOUT_KERNEL, every
from tflite_cases_custom import cepstrum, detection, flexible, spectrogram
from tflite_cases_tables import texts
from tflite_cases_tensorflow import flex_strided_slices, left
from tflite_cases_tensorflow_detection import combined
from tflite_cases_tensorflow_images import patches
from tflite_running import check_model, feed, interpreter, read, run_interpreter, session
from tflite_writing import Net, options

from relayout.errors import ReadError, UnsupportedError
from relayout.formats.tflite.container.flexbuffer import parse
from relayout.formats.tflite.container.nodedef import NodeDef
from relayout.graph.facts import facts_of

SAME, VALID = 1, 2


def packed(net: Net, *numbers: int) -> Net:
    net.graph.operators[-1].customOptions = list(struct.pack(f"<{len(numbers)}i", *numbers))
    return net


def run(net: Net, *inputs: Any) -> list[Any]:
    made = session(check_model(read(net.bytes())))
    return list(made.run(None, dict(zip([i.name for i in made.get_inputs()], inputs, strict=True))))


def test_the_interpreter_has_no_kernel() -> None:
    for name in WITHOUT_KERNEL:
        net = Net()
        net.op(name, [net.input((1, 2, 2, 1))], [net.output((1, 2, 2, 1))])
        with pytest.raises((RuntimeError, ValueError)):
            interpreter(net.bytes())


def pooled(x: Any, out: tuple[int, int], before: tuple[int, int], window: tuple[int, int], stride: Any) -> Any:
    """Greatest elements, and where each lies in its window."""
    n, rows, columns, channels = x.shape
    values, places = np.zeros((n, *out, channels), np.float32), np.zeros((n, *out, channels), np.float32)
    for b, i, j, c in np.ndindex(*values.shape):
        best, place = -np.inf, 0
        for p in range(window[0]):
            for q in range(window[1]):
                row, column = i * stride[0] - before[0] + p, j * stride[1] - before[1] + q
                if 0 <= row < rows and 0 <= column < columns and x[b, row, column, c] > best:
                    best, place = x[b, row, column, c], p * window[1] + q
        values[b, i, j, c], places[b, i, j, c] = best, np.float32(place) + np.float32(0.1)
    return values, places


@pytest.mark.parametrize("padding", [SAME, VALID])
@pytest.mark.parametrize(("window", "stride"), [((2, 2), (2, 2)), ((3, 2), (1, 2)), ((2, 4), (2, 3))])
def test_max_pooling_with_argmax(padding: int, window: Any, stride: Any) -> None:
    net, shape = Net(), (2, 7, 8, 3)
    out, before = [], []
    for extent, k, s in zip(shape[1:3], window, stride, strict=True):
        places = -(-extent // s) if padding == SAME else (extent - k + s) // s
        out.append(places)
        before.append(max((places - 1) * s + k - extent, 0) // 2 if padding == SAME else 0)
    results = [net.output((2, *out, 3)), net.output((2, *out, 3))]
    net.op("CUSTOM MaxPoolingWithArgmax2D", [net.input(shape)], results)
    packed(net, padding, stride[1], stride[0], window[1], window[0], 0, 0)
    x = np.random.default_rng(0).integers(-3, 4, shape).astype(np.float32)  # many are equal: the first counts
    values, places = run(net, x)
    wanted = pooled(x, tuple(out), tuple(before), window, stride)
    assert np.array_equal(values, wanted[0])
    assert np.array_equal(places, wanted[1])


def test_max_unpooling() -> None:
    net, (height, width) = Net(), (2, 3)
    x, places = net.input((2, 4, 3, 5)), net.input((2, 4, 3, 5))
    net.op("CUSTOM MaxUnpooling2D", [x, places], [net.output((2, 8, 9, 5))])
    packed(net, SAME, width, height, width, height, 0, 0)
    rng = np.random.default_rng(0)
    values = rng.normal(size=(2, 4, 3, 5)).astype(np.float32)
    where = rng.integers(0, height * width, values.shape)
    wanted = np.zeros((2, 8, 9, 5), np.float32)
    for b, i, j, c in np.ndindex(*values.shape):
        place = where[b, i, j, c]
        wanted[b, i * height + place // width, j * width + place % width, c] = values[b, i, j, c]
    (got,) = run(net, values, where.astype(np.float32) + np.float32(0.1))
    assert np.array_equal(got, wanted)
    packed(net, SAME, 1, 1, width, height, 0, 0)
    with pytest.raises(UnsupportedError, match="overlap or leave gaps"):
        read(net.bytes())


@pytest.mark.parametrize("padding", [SAME, VALID])
@pytest.mark.parametrize(("window", "stride"), [((2, 2), (2, 2)), ((3, 4), (2, 1)), ((2, 5), (3, 2))])
def test_convolution_transpose_bias(padding: int, window: Any, stride: Any) -> None:
    rng, shape, units = np.random.default_rng(0), (2, 4, 5, 3), 6
    kernel, bias = rng.normal(size=(units, *window, 3)).astype(np.float32), rng.normal(size=units).astype(np.float32)
    over = [
        max(0, k - (e - 1) % s - 1) if padding == SAME else 0
        for e, k, s in zip(shape[1:3], window, stride, strict=True)
    ]
    out = [s * (e - 1) + k - p for e, k, s, p in zip(shape[1:3], window, stride, over, strict=True)]
    net = Net()
    operands = [net.input(shape), net.const(kernel), net.const(bias)]
    net.op("CUSTOM Convolution2DTransposeBias", operands, [net.output((2, *out, units))])
    packed(net, padding, stride[1], stride[0])
    x = rng.normal(size=shape).astype(np.float32)
    wanted = np.broadcast_to(bias, (2, *out, units)).copy()
    for b, i, j in np.ndindex(*shape[:3]):
        for p, q in np.ndindex(*window):
            row, column = i * stride[0] - over[0] // 2 + p, j * stride[1] - over[1] // 2 + q
            if 0 <= row < out[0] and 0 <= column < out[1]:
                wanted[b, row, column] += kernel[:, p, q] @ x[b, i, j]
    (got,) = run(net, x)
    assert np.allclose(got, wanted, atol=1e-5)


def test_structs_are_checked() -> None:
    net = Net()
    net.op("CUSTOM Convolution2DTransposeBias", [net.input((1, 2, 2, 1))] * 3, [net.output((1, 4, 4, 1))])
    for numbers in ((), (1, 2), (0, 2, 2), (3, 2, 2), (1, 0, 2), (1, -2, 2), (1, 2, 2**31 - 1)):
        with pytest.raises(ReadError):
            read(packed(net, *numbers).bytes())


PARTLY_FILLED: list[dict[str, Any]] = [
    {"threshold": 0.93, "overlap": 0.2, "most": 12},
    {"threshold": 1.5},
    {"classes": 1, "overlap": 0.1, "wide": 6, "most": 20},
    {"per_box": 2, "most": 29, "overlap": 0.2},
    {"kind": "uint8", "most": 29, "overlap": 0.2},
]


@pytest.mark.parametrize("kind", PARTLY_FILLED)
def test_detections_are_filled_up_with_zeros(kind: dict[str, Any]) -> None:
    """As many are compared as are meant: the fast kernel leaves the others as they were in memory."""
    net, rng = detection(**kind), np.random.default_rng(0)
    content = net.bytes()
    made = interpreter(content)
    inputs = [feed(rng, tuple(d["shape"]), d["dtype"], 0, 1) for d in made.get_input_details()]
    if "kind" in kind:
        inputs = [rng.integers(0, 256, i.shape).astype(np.uint8) for i in inputs]
    wanted, got = run_interpreter(made, inputs), run(net, *inputs)
    (count,) = wanted[3]
    assert got[3] == count < kind.get("most", 6)
    rows = int(count) * kind.get("per_box", 1)
    for a, b in zip(got[:3], wanted[:3], strict=True):
        assert np.allclose(a[0, :rows], b[0, :rows], atol=1e-5)
        assert not a[0, rows:].any()


# Operators carried over.


def unheard(options: Any = None, q: Any = None) -> Net:
    net = Net()
    kind = "int8" if q else "float32"
    x, y = net.input((2, 3), kind, q=q), net.output((2, 3), kind, q=q)
    net.op("CUSTOM Unheard", [x, -1, x], [y])
    if options is not None:
        flexible(net, options)
    return net


def test_an_unknown_operator_is_refused_or_carried_over() -> None:
    options = {"flag": True, "alpha": 0.5, "mode": "fast", "sizes": [1, 2, 3], "scales": [0.5, 1.5]}
    with pytest.raises(UnsupportedError, match="CUSTOM Unheard"):
        read(unheard(options).bytes())
    with pytest.raises(UnsupportedError, match=r"--custom-op Unherd: .* of that name; did you mean 'Unheard'"):
        read(unheard(options).bytes(), custom_ops={"Unherd": "my.domain"})
    model = read(unheard(options).bytes(), custom_ops={"Unheard": "my.domain", "Other": "my.domain"})
    notes = facts_of(model).notes
    assert notes == ("--custom-op Other: the file has no custom operator of that name; there is only 'Unheard'",)
    (node,) = model.graph
    assert (node.domain, node.op_type, model.opset_imports["my.domain"]) == ("my.domain", "Unheard", 1)
    assert [i and i.name for i in node.inputs] == ["t0", None, "t0"]
    found = {name: attribute.value for name, attribute in node.attributes.items()}
    assert {k: list(v) if isinstance(v, list | tuple) else v for k, v in found.items()} == {
        **options,
        "flag": 1,
    }
    assert model.graph.outputs[0].name == "t1"
    onnx.checker.check_model(ir.to_proto(model))


def test_options_of_another_kind_are_carried_over_as_bytes() -> None:
    for content in (b"\x01\x00\x00\x00\x07\x00\x00\x00", bytes(flexbuffers.Dumps({"a": {"b": 1}}))):
        net = unheard()
        net.graph.operators[-1].customOptions = list(content)
        (node,) = read(net.bytes(), custom_ops={"Unheard": "d"}).graph
        assert node.attributes["custom_options"].value.numpy().tobytes() == content
    (node,) = read(unheard().bytes(), custom_ops={"Unheard": "d"}).graph
    assert not node.attributes


def test_operators_of_texts_are_carried_over() -> None:
    net = Net()
    words = texts(net, ["a text", "!"])
    x, y = net.input((2,), type_name="STRING"), net.output((2,), "bool")
    net.op("CUSTOM Unheard", [x, words], [y])
    with pytest.raises(UnsupportedError, match="CUSTOM Unheard ×1") as refused:
        read(net.bytes())
    assert "--custom-op" in str(refused.value)
    model = read(net.bytes(), custom_ops={"Unheard": "my.domain"})
    (node,) = model.graph
    assert [value.dtype for value in node.inputs] == [ir.DataType.STRING] * 2
    held = node.inputs[1].const_value
    assert held is not None
    assert held.numpy().tolist() == [b"a text", b"!"]
    onnx.checker.check_model(ir.to_proto(model))


def test_operators_carried_over_take_the_file_s_integers() -> None:
    for quant, wanted in (("qdq", ["Unheard"]), ("float", ["QuantizeLinear", "QuantizeLinear", "Unheard"])):
        model = read(unheard(q=I8).bytes(), custom_ops={"Unheard": "d"}, quant=quant)
        node = next(n for n in model.graph if n.op_type == "Unheard")
        assert [n.op_type for n in model.graph][: len(wanted)] == wanted
        assert {v.dtype for v in (*node.inputs, *node.outputs) if v is not None} == {ir.DataType.INT8}


# FlexBuffers.


def test_flexbuffers_of_every_kind() -> None:
    values = [
        {"a": 1, "b": -70000, "c": 2**40, "e": 0.25, "g": None, "h": "text", "i": b"\x00\xff"},
        {"deep": {"er": {"x": True}, "list": [1, 2]}},
        [1, 2, 3],
        [0.5, 1.5],
        ["a", "b"],
        "alone",
        [],
        7,
        -1.5,
    ]
    for value in values:
        assert parse(bytes(flexbuffers.Dumps(value))) == value
    builder = flexbuffers.Builder()
    with builder.Vector():
        builder.TypedVectorFromElements([1, 2, 300])
        builder.FixedTypedVectorFromElements([1.0, 2.0, 3.0])
        builder.IndirectInt(-5)
        builder.IndirectFloat(0.125)
        builder.Bool(True)
    assert parse(bytes(builder.Finish())) == [[1, 2, 300], [1.0, 2.0, 3.0], -5, 0.125, True]


def test_damaged_flexbuffers_are_refused() -> None:
    rng = np.random.default_rng(0)
    original = bytes(flexbuffers.Dumps({"a": [1, 2, {"b": "text"}], "c": 1.5, "d": [0.5, 2.5]}))
    refused = 0
    for length in range(len(original)):
        with pytest.raises(ReadError):
            parse(original[:length][:2])
    for _ in range(20_000):
        data = bytearray(original)
        for place in rng.integers(0, len(data), rng.integers(1, 4)):
            data[place] = rng.integers(256)
        try:
            parse(bytes(data))
        except ReadError:
            refused += 1
    assert refused > 5000


def test_damaged_detection_options_are_refused() -> None:
    rng, net = np.random.default_rng(0), detection(boxes=5)
    original = bytes(net.graph.operators[0].customOptions)
    refused = 0
    for _ in range(400):
        data = bytearray(original)
        data[rng.integers(0, len(data))] = rng.integers(256)
        net.graph.operators[0].customOptions = list(data)
        try:
            read(net.bytes())
        except (ReadError, UnsupportedError):
            refused += 1
    assert refused > 100


def test_damaged_attributes_of_tensorflow_are_refused() -> None:
    """Every way to cut a NodeDef short or to change a byte of it: an error or other numbers, nothing else."""
    net = next(flex_strided_slices())
    options = bytes(net.graph.operators[0].customOptions)
    assert NodeDef(options, "").number("new_axis_mask") == 2
    refused = 0
    for place, value in itertools.product(range(len(options)), (0, 7, 127, 255)):
        net.graph.operators[0].customOptions = [*options[:place], value, *options[place + 1 :]]
        try:
            read(net.bytes())
        except (ReadError, UnsupportedError):
            refused += 1
    assert refused > 100
    for long in (b"\x80" * 3, b"\x80" * 10 + b"\x01\x01"):  # numbers have 64 bits
        with pytest.raises(ReadError, match="a NodeDef is damaged"):
            NodeDef(bytes(flexbuffers.Dumps(["Einsum", long])), "").text("equation")
    with pytest.raises(ReadError, match="no equation"):
        NodeDef(options, "").text("equation")
    for alone in ({"a": 1}, ["StridedSlice"], ["StridedSlice", 3]):
        with pytest.raises(ReadError, match="none of an operator of TensorFlow"):
            NodeDef(bytes(flexbuffers.Dumps(alone)), "")


def test_attributes_of_every_kind_are_read() -> None:
    net = Net()
    numbers = [1, -2, 1 << 40, 300]
    left(net, "Any", [net.input((2,))], net.output((2,)), flag=True, k=-3, alpha=0.75, sizes=numbers, padding="SAME")
    given = NodeDef(bytes(net.graph.operators[0].customOptions), "")
    assert (given.number("flag"), given.number("k"), given.real("alpha")) == (1, -3, 0.75)
    assert (given.numbers("sizes"), given.text("padding")) == (numbers, "SAME")
    assert (given.number("none"), given.real("k"), given.numbers("alpha")) == (0, 0.0, [])


every()
FLEX = sorted(name for name in CASES if name.startswith("CUSTOM Flex"))


@pytest.mark.parametrize("name", FLEX)
@pytest.mark.sampled(every=4)
def test_damaged_operators_of_tensorflow_are_refused(name: str) -> None:
    """Bytes of the attributes and of constants changed at random: an error or another model, soon, and nothing else."""
    rng, net = np.random.default_rng(0), next(CASES[name][0]())
    operators = [o for o in net.graph.operators if o.customOptions is not None]
    buffers = [b for b in net.model.buffers if b.data is not None and len(b.data)]
    kept = [list(o.customOptions) for o in operators], [np.array(b.data) for b in buffers]
    for _ in range(40):
        for operator, options_ in zip(operators, kept[0], strict=True):
            operator.customOptions = list(options_)
        for buffer, data in zip(buffers, kept[1], strict=True):
            buffer.data = data.copy()
        if buffers and rng.integers(2):
            data = buffers[rng.integers(len(buffers))].data
            data[rng.integers(len(data))] = rng.choice([0, 1, 127, 128, 255])
        elif operators:
            changed = operators[rng.integers(len(operators))].customOptions
            changed[rng.integers(len(changed))] = int(rng.choice([0, 7, 127, 255]))
        with contextlib.suppress(ReadError, UnsupportedError):
            read(net.bytes())


REFUSED: dict[str, tuple[str, list[Any], dict[str, Any]]] = {
    "windows over the batch or over channels": (
        "MaxPool3D", [(2, 4, 4, 4, 6)], {"ksize": [1, 2, 2, 2, 2], "strides": [1, 2, 2, 2, 2]},
    ),
    "has the ksize": ("MaxPool3D", [(2, 4, 4, 4, 6)], {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 2, 1]}),
    "has the strides": ("MaxPool3D", [(2, 4, 4, 4, 6)], {"ksize": [1, 2, 2, 2, 1], "strides": [1, 2, 0, 2, 1]}),
    "has rank 4, not 5": ("MaxPool3D", [(2, 4, 4, 6)], {"ksize": [1, 2, 2, 2, 1], "strides": [1, 2, 2, 2, 1]}),
    "padding EXPLICIT": (
        "MaxPool3D", [(2, 4, 4, 4, 6)],
        {"ksize": [1, 2, 2, 2, 1], "strides": [1, 2, 2, 2, 1], "padding": "EXPLICIT"},
    ),
    "the layout NHWC": (
        "MaxPool3D", [(2, 4, 4, 4, 6)],
        {"ksize": [1, 2, 2, 2, 1], "strides": [1, 2, 2, 2, 1], "data_format": "NHWC"},
    ),
    "patches of many": (
        "ExtractImagePatches", [(2, 4, 4, 6)], {"ksizes": [1, 2000, 1, 1], "strides": [1] * 4, "rates": [1] * 4},
    ),
    "do not fit": (
        "ExtractImagePatches", [(2, 4, 4, 6)], {"ksizes": [1, 5, 1, 1], "strides": [1] * 4, "rates": [1] * 4},
    ),
    r"crops of \[4, 0\]": (
        "CropAndResize", [(2, 4, 4, 6), (1, 4), np.zeros(1, np.int32), np.array([4, 0], np.int32)],
        {"method": "bilinear"},
    ),
    "the method bicubic": (
        "CropAndResize", [(2, 4, 4, 6), (1, 4), np.zeros(1, np.int32), np.array([4, 1], np.int32)],
        {"method": "bicubic"},
    ),
    "diagonals 4 to 4": ("MatrixDiagPartV3", [(2, 4, 4), np.array(4, np.int32), np.zeros((), np.float32)], {}),
    r"of shape \[2, 4, 4\]": ("RGBToHSV", [(2, 4, 4)], {}),
    r"a bias of shape \[2, 4\]": ("BiasAdd", [(2, 4), (2, 4)], {"data_format": "NHWC"}),
}  # fmt: skip


@pytest.mark.parametrize("reason", REFUSED)
def test_what_an_operator_of_tensorflow_cannot_be_is_refused(reason: str) -> None:
    name, operands, attributes = REFUSED[reason]
    net = Net()
    inputs = [net.input(o) if isinstance(o, tuple) else net.const(o, o.dtype) for o in operands]
    left(net, name, inputs, net.output((2, 4)), **{"padding": "VALID", "data_format": "NDHWC", **attributes})
    with pytest.raises((ReadError, UnsupportedError), match=reason):
        read(net.bytes())


@pytest.mark.parametrize("name", ["Atan", "Erf", "MatrixDeterminant", "AvgPool3D", "ResizeNearestNeighbor"])
def test_what_onnx_runtime_has_no_kernel_for_is_refused(name: str) -> None:
    net = Net()
    left(net, name, [net.input((2, 4, 4), "float64")], net.output((2, 4, 4), "float64"))
    with pytest.raises(UnsupportedError, match="FLOAT64"):
        read(net.bytes())


def test_windows_over_open_extents_are_cut_as_over_known_ones() -> None:
    """Patches of an image of any size, with VALID; with SAME and strides the border depends on the size."""
    net = Net()
    lists = {"ksizes": [1, 3, 2, 1], "strides": [1, 2, 1, 1], "rates": [1, 1, 2, 1]}
    x, y = net.input((1, 7, 6, 2), signature=(-1, -1, -1, 2)), net.output((1, 3, 4, 12), signature=(-1, -1, -1, 12))
    left(net, "ExtractImagePatches", [x], y, padding="VALID", **lists)
    made = session(check_model(read(net.bytes())))
    for shape in ((2, 7, 6, 2), (1, 4, 3, 2), (3, 10, 5, 2)):
        image = np.random.default_rng(0).uniform(size=shape).astype(np.float32)
        (got,) = made.run(None, {made.get_inputs()[0].name: image})
        np.testing.assert_array_equal(got, patches(image, (3, 2), (2, 1), (1, 2), "VALID"))


@pytest.mark.parametrize("equation", ["ab,bc", "ab,bc->ad", "ab->ab", "...b,bc->...c"])
def test_an_equation_that_does_not_fit_is_refused(equation: str) -> None:
    net = Net()
    left(net, "Einsum", [net.input((2, 3)), net.input((3, 4))], net.output((2, 4)), equation=equation)
    with pytest.raises(UnsupportedError, match="an equation that is no list of axes"):
        read(net.bytes())


@pytest.mark.parametrize("rows", [0, 1, 2, 5])
def test_an_open_axis_is_rolled_whatever_its_extent(rows: int) -> None:
    net = Net()
    left(net, "Roll", [net.input((2, 3)), net.const([5], "int32"), net.const([0], "int32")], net.output((2, 3)))
    for index in (*net.graph.inputs, *net.graph.outputs):
        net.graph.tensors[index].shapeSignature = [-1, 3]
    made = session(check_model(read(net.bytes())))
    x = np.arange(rows * 3, dtype=np.float32).reshape(rows, 3)
    (got,) = made.run(None, {made.get_inputs()[0].name: x})
    np.testing.assert_array_equal(got, np.roll(x, 5, 0))


@pytest.mark.parametrize("rows", [(3, 3), (1, 3), (2, 1)])
def test_parts_of_unknown_rows_broadcast_each_other(rows: tuple[int, int]) -> None:
    net, parts = Net(), []
    for _ in rows:
        operands = [net.input((3, 4)), net.const([0, 0], "int32"), net.input((2,), "int32")]
        parts.append(net.tensor((1, 4), signature=(-1, -1)))
        net.op("SLICE", operands, [parts[-1]], options("SliceOptions"))
    numbers = net.tensor((1, 4), type_name="COMPLEX64", signature=(-1, -1))
    left(net, "Complex", parts, numbers)
    net.op("IMAG", [numbers], [net.output((1, 4), signature=(-1, -1))])
    made = session(check_model(read(net.bytes())))
    x, y = (feed(np.random.default_rng(seed), (3, 4), "float32") for seed in range(2))
    given = (x, np.array([rows[0], 4], np.int32), y, np.array([rows[1], 4], np.int32))
    (got,) = made.run(None, {put.name: value for put, value in zip(made.get_inputs(), given, strict=True)})
    np.testing.assert_array_equal(got, np.broadcast_to(y[: rows[1]], (max(rows), 4)))


def test_an_einsum_keeps_what_is_known_of_an_axis() -> None:
    net = Net()
    open_ = net.input((3, 4))
    left(net, "Einsum", [net.input((3, 4)), open_], net.output((3, 4)), equation="ab,ab->ab", N=2)
    net.graph.tensors[open_].shapeSignature = [-1, 4]
    (y,) = read(net.bytes()).graph.outputs
    assert tuple(y.shape) == (3, 4)


def test_what_follows_from_an_unknown_operator_is_not_called_damaged() -> None:
    """Its result has no shape in the file, and nothing behind it fits."""
    net = Net()
    x, y = net.tensor(()), net.tensor((1,))
    net.op("CUSTOM Strange", [net.input((2, 3))], [x])
    net.op("EXPAND_DIMS", [x, net.const(0, "int32")], [y], options("ExpandDimsOptions"))
    table = options("Pool2DOptions", strideH=1, strideW=1, filterHeight=2, filterWidth=2)
    net.op("MAX_POOL_2D", [y], [net.output((2, 4, 4, 3))], table)
    with pytest.raises(UnsupportedError, match="1 unsupported operator: CUSTOM Strange"):
        read(net.bytes())


def test_of_complex_numbers_only_what_is_read_is_computed() -> None:
    net = Net()
    numbers, product = (net.tensor((3, 4), type_name="COMPLEX64") for _ in range(2))
    left(net, "Complex", [net.input((3, 4)), net.input((3, 4))], numbers)
    net.op("MUL", [numbers, numbers], [product], options("MulOptions"))
    net.op("REAL", [product], [net.output((3, 4))])
    assert [node.op_type for node in read(net.bytes()).graph] == ["Mul", "Mul", "Sub", "Identity"]


def test_complex_numbers_at_the_interface_are_refused() -> None:
    net = Net()
    numbers = net.output((3, 4), type_name="COMPLEX64")
    left(net, "Complex", [net.input((3, 4)), net.input((3, 4))], numbers)
    with pytest.raises(UnsupportedError, match="complex numbers at the interface"):
        read(net.bytes())


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("name", ["MUL", "FlexSub", "FlexConcatV2"])
def test_complex_numbers_beside_real_ones_are_refused(name: str, first: bool) -> None:
    """No kernel takes both; half by half, real numbers would count as imaginary, too."""
    net = Net()
    numbers, result = (net.tensor((3, 4), type_name="COMPLEX64") for _ in range(2))
    real = net.input((3, 4))
    left(net, "Complex", [real, net.input((3, 4))], numbers)
    operands = [real, numbers] if first else [numbers, real]
    if name == "MUL":
        net.op("MUL", operands, [result], options("MulOptions"))
    elif name == "FlexSub":
        left(net, "Sub", operands, result)
    else:
        result = net.tensor((3, 8), type_name="COMPLEX64")
        left(net, "ConcatV2", [*operands, net.const(1, "int32")], result)
    net.op("REAL", [result], [net.output((3, 4))])
    with pytest.raises(UnsupportedError, match=r"real numbers beside|FLOAT32 in place of COMPLEX64"):
        read(net.bytes())


def boxes(own: int = 1, limit: float = 0.5, sides: int = 4, total: int = 20, **signatures: Sequence[int]) -> Net:
    """The best boxes of images, with the numbers that TensorFlow's operator is given."""
    net = Net()
    operands = [net.input((2, 9, own, sides), signature=signatures.get("boxes")), net.input((2, 9, 3))]
    net.graph.tensors[operands[1]].shapeSignature = signatures.get("scores")
    operands += [net.const(n, "int32") for n in (4, total)] + [net.const(n) for n in (limit, 0.1)]
    results = [net.output((2, 20, *rest)) for rest in ((4,), (), ())] + [net.output((2,), "int32")]
    return left(net, "CombinedNonMaxSuppression", operands, results, pad_per_class=False, clip_boxes=True)


@pytest.mark.parametrize(("own", "open_"), [(1, (-1, 9)), (1, (2, -1)), (1, (-1, -1)), (3, (-1, 9)), (3, (2, -1))])
def test_boxes_of_open_extents(own: int, open_: tuple[int, int]) -> None:
    net = boxes(own, boxes=(*open_, own, 4), scores=(*open_, 3))
    made = session(check_model(read(net.bytes())))
    for images, count in ((2, 9), (3, 9), (1, 9), (2, 4), (2, 30), (4, 5)):
        if any(n not in (-1, size) for n, size in zip(open_, (images, count), strict=True)):
            continue
        x, y = (
            feed(np.random.default_rng(k), shape, "float32", 0, 1)
            for k, shape in enumerate(((images, count, own, 4), (images, count, 3)))
        )
        got = made.run(None, dict(zip([put.name for put in made.get_inputs()], (x, y), strict=True)))
        wanted = combined(x, y, 4, 20, 0.5, np.float32(0.1), padded=False, clipped=True)
        for one, other in zip(got, wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.parametrize(
    ("net", "said"),
    [
        (boxes(2), r"boxes of shape \[2, 9, 2, 4\] for 3 classes"),
        (boxes(sides=5), r"boxes of shape \[2, 9, 1, 5\] for 3 classes"),
        (boxes(total=-1), "-1 boxes are wanted"),
        (boxes(limit=1.5), "not between 0 and 1"),
        (boxes(scores=(-1, 9, -1)), "an unknown number of classes"),
        (boxes(3, boxes=(-1, -1, 3, 4), scores=(-1, -1, 3)), "several unknown dimensions"),
    ],
)
def test_boxes_that_are_refused(net: Net, said: str) -> None:
    with pytest.raises((ReadError, UnsupportedError), match=said):
        read(net.bytes())


@pytest.mark.parametrize(
    ("net", "said"),
    [
        (spectrogram(480, 160, samples=300), "a window of 480 in 300 samples"),
        (spectrogram(1, 1), "a window of 1 in"),
        (spectrogram(480, 0x7FFFFFFF + 2), "the option stride is"),
        (cepstrum(0, False), "a sample rate that is not above 0"),
        (cepstrum(16000, False, lower_frequency_limit=4000), "between 4000.0 and 4000.0 Hz"),
        (cepstrum(16000, False, frequencies=1), "1 frequencies"),
        (cepstrum(16000, False, filterbank_channel_count=1 << 20), "filterbank_channel_count is"),
    ],
)
def test_sound_that_is_refused(net: Net, said: str) -> None:
    with pytest.raises((ReadError, UnsupportedError), match=said):
        read(net.bytes())
