"""Forms of a builtin that ONNX spells otherwise come back as that builtin, with no operator more, and equal results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from ai_edge_litert.interpreter import OpResolverType
from node_tests import run
from onnx import helper, numpy_helper
from test_integers_back import MOST, network
from tflite_cases_control import ifs
from tflite_cases_elementwise import prelu
from tflite_cases_formats import plain_integers
from tflite_cases_moving import pads
from tflite_cases_picking import selections
from tflite_cases_spatial import transpose_convolutions
from tflite_writing import Net, options

import relayout
from litert_runs import KERNELS, every_result_of_runs, operators
from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.loading import load
from relayout.formats.tflite.container.model import Tensor
from relayout.formats.tflite.spelled_out import Spellings
from relayout.graph.source_names import SOURCE
from rules.law import Array
from small import build
from text_form import floats

FORMS: dict[str, tuple[Callable[[], Iterator[Net]], int]] = {
    "an If that gives what it reads": (ifs, 0),
    "a slope for each channel": (prelu, 1),
    "a sum of integers that are kept above 0": (plain_integers, 15),
    "a border of another integer than zero": (pads, 5),
    "a border of bytes": (pads, 9),
    "a choice of whole rows": (selections, 9),
    "a transposed convolution that gives less than extent · stride": (transpose_convolutions, 4),
}
BYTES = {TensorType.INT8: np.int8, TensorType.UINT8: np.uint8, TensorType.INT32: np.int32, TensorType.INT64: np.int64}


def feed_of(tensor: Tensor, seed: int) -> Array:
    feed = floats(*tensor.shape, seed=seed)
    if tensor.type == TensorType.BOOL:
        return feed > 0
    if tensor.type in BYTES:
        kind = BYTES[tensor.type]
        return np.clip(np.rint(feed * 60) + 60 * (kind is np.uint8), np.iinfo(kind).min, 255).astype(kind)
    return feed


def through_onnx(source: bytes, folder: Path) -> bytes:
    relayout.convert(source).save(folder / "there.onnx")
    return relayout.convert(folder / "there.onnx", format="tflite").tflite


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("name", FORMS)
def test_a_form_comes_back_as_it_was(name: str, kernels: OpResolverType, tmp_path: Path) -> None:
    nets, number = FORMS[name]
    source = list(nets())[number].bytes()
    result = through_onnx(source, tmp_path)
    assert operators(result) == operators(source)
    graph = load(source).subgraphs[0]
    feeds = [[feed_of(graph.tensors[index], run + index) for index in graph.inputs] for run in range(3)]
    pairs = zip(*(every_result_of_runs(content, feeds, kernels) for content in (source, result)), strict=True)
    for wanted, arrays in pairs:
        for each, array in zip(wanted, arrays, strict=True):
            np.testing.assert_allclose(array, each, rtol=0, atol=1e-6 if array.dtype == np.float32 else 0)


def test_a_transposed_convolution_of_integers_applies_the_activation_that_it_applied(tmp_path: Path) -> None:
    """TensorFlow Lite Micro leaves it out: there, for older runtimes and of other models it is one of its own."""
    source = network("TRANSPOSE_CONV", MOST["long"], activation=1)
    relayout.convert(source).save(tmp_path / "there.onnx")
    onnx_model = onnx.load(tmp_path / "there.onnx")

    def written(model: bytes | onnx.ModelProto, **more: str) -> list[str]:
        return operators(relayout.convert(model, format="tflite", **more).tflite)

    for model in (source, onnx_model):
        assert written(model) == ["TRANSPOSE_CONV"]
        assert written(model, target="tflite-micro") == ["TRANSPOSE_CONV", "RELU"]
        assert written(model, runtime="2.12") == ["TRANSPOSE_CONV", "RELU"]
    for node in onnx_model.graph.node:
        del node.metadata_props[:]
    assert written(onnx_model) == ["TRANSPOSE_CONV", "RELU"]


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("name", ["GATHER", "GATHER_ND"])
def test_a_gather_of_a_tflite_reads_no_place_from_the_end(name: str, kernels: OpResolverType, tmp_path: Path) -> None:
    """LiteRT refuses such a place, so that the way back needs no FLOOR_MOD; an ONNX model has one."""
    net = Net()
    places = net.input((2, 1), "int32")
    shape = (2, 1, 3) if name == "GATHER" else (2, 3)
    more = [options("GatherOptions", axis=0)] if name == "GATHER" else []
    source = net.op(name, [net.input((4, 3)), places], [net.output(shape)], *more).bytes()
    result = through_onnx(source, tmp_path)
    assert operators(result) == operators(source) == [name]
    model = onnx.load(tmp_path / "there.onnx")
    for node in model.graph.node:
        del node.metadata_props[:]
    assert "FLOOR_MOD" in operators(relayout.convert(model, format="tflite").tflite)
    data = floats(4, 3)
    graph = load(source).subgraphs[0]
    kinds = [graph.tensors[index].type for index in graph.inputs]

    def feed(*rows: int) -> list[Array]:
        return [np.array(rows, np.int32)[:, None] if kind == TensorType.INT32 else data for kind in kinds]

    (wanted,), (got,) = (every_result_of_runs(each, [feed(3, 1)], kernels)[0] for each in (source, result))
    np.testing.assert_array_equal(got, wanted)
    with pytest.raises(RuntimeError):
        every_result_of_runs(source, [feed(3, -1)], kernels)


def test_views_between_the_nodes_of_a_builtin_are_its_own_however_many() -> None:
    text = """
        a = Relu(x)  b = Reshape(a, s)  c = T10(b)  d = Reshape(c, s)  e = Neg(d)
        f = Reshape(a, s)  g = T10(f)  h = Abs(g)
    """
    model = ir.serde.deserialize_model(build("float[2,3] x", text, {"s": [3, 2]}))
    nodes = {node.outputs[0].name: node for node in model.graph}
    for name in ("a", "e", "h"):
        nodes[name].metadata_props[SOURCE] = "here" if name != "h" else "elsewhere"
    assert [node.outputs[0].name for node in Spellings(model.graph).of(nodes["a"])] == ["a", "b", "c", "d", "e"]
    assert [node.outputs[0].name for node in Spellings(model.graph).of(nodes["h"])] == ["h"]


def kept_above_zero(zero: Array, shape: list[int]) -> onnx.ModelProto:
    ends = [helper.make_tensor_value_info(n, 6, [4]) for n in "ab"], [helper.make_tensor_value_info("y", 6, shape)]
    nodes = [helper.make_node("Add", ["a", "b"], ["s"]), helper.make_node("Max", ["s", "zero"], ["y"])]
    graph = helper.make_graph(nodes, "zero", *ends, [numpy_helper.from_array(zero, "zero")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize(("target", "count"), [("litert", 1), ("tflite-micro", 2), ("ethos-u", 2)])
def test_a_sum_keeps_integers_above_zero_where_its_kernel_does(target: str, count: int) -> None:
    """TensorFlow Lite Micro's kernel leaves the activation out, also beside an NPU."""
    made = relayout.convert(kept_above_zero(np.array(0, np.int32), [4]), format="tflite", target=target)
    assert len(load(made.tflite).subgraphs[0].operators) == count


@pytest.mark.parametrize(("target", "name"), [("litert", "SELECT"), ("tflite-micro", "SELECT_V2")])
def test_whole_rows_are_chosen_by_an_operator_that_the_runtime_has(target: str, name: str) -> None:
    """TensorFlow Lite Micro has no SELECT."""
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        rows (bool[5] rows, float[5,3] a, float[5,3] b) => (float[5,3] y) <int64[1] last = {1}> {
            column = Unsqueeze(rows, last)
            y = Where(column, a, b)
        }
    """)
    made = load(relayout.convert(model, format="tflite", target=target).tflite)
    assert name in [operator.name for operator in made.subgraphs[0].operators]


def test_a_zero_of_more_axes_stays_an_operator() -> None:
    """Its result has the axes of the zero, which a sum that is kept above 0 by an activation does not have."""
    model = kept_above_zero(np.zeros((1, 1), np.int32), [1, 4])
    feed = {"a": np.array([1, -5, 3, -7], np.int32), "b": np.array([1, 2, -9, 3], np.int32)}
    (found,) = run(relayout.convert(model, format="tflite").tflite, feed)
    assert found.tolist() == [[2, 0, 0, 0]]
