"""There and back: `.tflite` to ONNX to `.tflite` computes in LiteRT what the first file computes, run after run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from ai_edge_litert.interpreter import OpResolverType
from tflite_cases_plain_recurrent import bidirectional_rnns, rnns, svdfs
from tflite_cases_recurrent import (
    LSTMS,
    basic,
    bidirectional_lstm,
    bidirectional_lstms,
    lstm,
    lstms,
    quantized_lstm,
    quantized_lstms,
    single_steps,
)
from tflite_writing import Net

import relayout
from conftest import KERAS
from litert_runs import FUSED, KERNELS, every_result_of_runs, operators, results_of_runs
from relayout.errors import UnsupportedError
from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.loading import load
from relayout.formats.tflite.container.model import Tensor
from relayout.formats.tflite.spelled_out import BUILTIN, STATES, Builtin
from rules.law import Array, with_runtime
from targets.vela import judge, needs_vela
from text_form import floats


def there_and_back(source: bytes, folder: Path, *, keep_mark: bool = True) -> bytes:
    relayout.convert(source).save(folder / "there.onnx")
    model = onnx.load(folder / "there.onnx")
    for node in () if keep_mark else model.graph.node:
        del node.metadata_props[:]
    result = relayout.convert(model, format="tflite")
    result.save(folder / "back.tflite")
    return (folder / "back.tflite").read_bytes()


KINDS = [*LSTMS, {"time_major": True}]
INTEGER_KINDS: list[dict[str, Any]] = [
    {},
    {"cifg": True},
    {"projection": 3},
    {"normalized": True},
    {"clip": 0.5},
]
WAYS = ("through ONNX", "at once")


def back(source: bytes, folder: Path, way: str) -> bytes:
    if way == "through ONNX":
        return there_and_back(source, folder)
    relayout.convert(source, format="tflite").save(folder / "back.tflite")
    return (folder / "back.tflite").read_bytes()


def assert_same_runs(source: bytes, result: bytes, kernels: OpResolverType) -> None:
    graph = load(source).subgraphs[0]
    feeds = [[feed_of(graph.tensors[index], run + index) for index in graph.inputs] for run in range(3)]
    pairs = zip(*(every_result_of_runs(content, feeds, kernels) for content in (source, result)), strict=True)
    for run in pairs:
        for wanted, array in zip(*run, strict=True):
            np.testing.assert_array_equal(array, wanted)


def feed_of(tensor: Tensor, seed: int) -> Array:
    feed = floats(*tensor.shape, seed=seed)
    return np.clip(feed * 60, -128, 127).astype(np.int8) if tensor.type == TensorType.INT8 else feed


PLAIN = [net for net in rnns() if load(net.bytes()).subgraphs[0].operators[0].name != "RNN"]
FAMILIES: dict[str, Callable[[], Iterable[Net]]] = {
    "basic LSTM": basic,
    "bidirectional LSTM": bidirectional_lstms,
    "bidirectional RNN": bidirectional_rnns,
    "integer LSTM": quantized_lstms,
    "LSTM": lstms,
    "LSTM of one step": single_steps,
    "RNN": rnns,
    "SVDF": svdfs,
}
DIAGONAL = "LSTM 1"
"""A case with diagonal weights, of which LiteRT's reference kernels know no version."""
CASES = {f"{name} {number}": net for name, nets in FAMILIES.items() for number, net in enumerate(nets())}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", CASES)
def test_a_recurrent_builtin_is_that_of_the_source_over_several_runs(name: str, way: str, tmp_path: Path) -> None:
    source = CASES[name].bytes()
    result = back(source, tmp_path, way)
    assert operators(result) == operators(source)
    assert len(operators(source)) == 1
    for kernels in KERNELS[: 1 if name == DIAGONAL else None]:
        assert_same_runs(source, result, kernels)


TRANSPOSED = {
    "bidirectional LSTM": partial(bidirectional_lstm, time_major=True),
    "bidirectional LSTM, one result": partial(bidirectional_lstm, time_major=True, merge=True),
    "LSTM of one step": partial(lstm, one_step=True, clip=0.3),
    "LSTM": partial(lstm, clip=0.3),
    "SVDF": lambda: next(svdfs()),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", TRANSPOSED)
def test_a_builtin_between_transposes_is_that_of_the_source(name: str, way: str, tmp_path: Path) -> None:
    net = TRANSPOSED[name]()
    graph = net.graph
    perm = net.const(np.array([1, 0, 2][: len(graph.tensors[graph.inputs[0]].shape)]), "int32")
    for index in (graph.inputs[0], *graph.outputs):
        shape = graph.tensors[index].shape
        turned = net.tensor([shape[1], shape[0], *shape[2:]])
        ends = [turned, index] if index in graph.inputs else [index, turned]
        net.op("TRANSPOSE", [ends[0], perm], ends[1:])
        side = graph.inputs if index in graph.inputs else graph.outputs
        side[side.index(index)] = turned
    graph.operators.insert(0, graph.operators.pop(1))
    source = net.bytes()
    result = back(source, tmp_path, way)
    (builtin,) = set(operators(source)) - {"TRANSPOSE"}
    assert operators(result).count(builtin) == 1
    assert len(operators(result)) <= len(operators(source))
    assert set(operators(result)) <= {"TRANSPOSE", builtin}
    for kernels in KERNELS:
        assert_same_runs(source, result, kernels)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("merge", [False, True])
def test_both_halves_of_one_layer_are_the_sequences_of_the_next(merge: bool, way: str, tmp_path: Path) -> None:
    first = bidirectional_lstm(time_major=True, merge=merge)
    graph = first.graph
    operator, halves = graph.operators[0], list(graph.outputs)
    random = np.random.default_rng(1)
    graph.outputs.clear()
    operands = []
    for place, index in enumerate(operator.inputs):
        tensor = graph.tensors[index] if index >= 0 else None
        if place in (0, 39):
            operands.append(halves[0] if place == 0 else -1 if merge else halves[1])
        elif tensor is None:
            operands.append(-1)
        elif tensor.isVariable:
            operands.append(first.tensor(tensor.shape, variable=True))
        else:
            columns = [8 if merge else 4] if tensor.shape[-1] == 3 else tensor.shape[1:]
            operands.append(first.const(random.normal(size=[tensor.shape[0], *columns])))
    results = [first.output(graph.tensors[index].shape) for index in halves]
    source = first.op("BIDIRECTIONAL_SEQUENCE_LSTM", operands, results, operator.builtinOptions, version=3).bytes()
    result = back(source, tmp_path, way)
    assert operators(result) == ["BIDIRECTIONAL_SEQUENCE_LSTM"] * 2
    for kernels in KERNELS:
        assert_same_runs(source, result, kernels)


def test_both_halves_in_one_result_are_two_builtins_where_litert_spoils_them(tmp_path: Path) -> None:
    source = bidirectional_lstm(merge=True).bytes()
    result = back(source, tmp_path, "through ONNX")
    assert operators(result).count(FUSED) == 2
    turned = bidirectional_lstm(merge=True, time_major=True).bytes()
    feed = feed_of(load(source).subgraphs[0].tensors[0], 0)
    for kernels in KERNELS:
        (wanted,) = results_of_runs(turned, [feed.transpose(1, 0, 2).copy()], kernels)
        np.testing.assert_allclose(results_of_runs(result, [feed], kernels)[0], wanted.transpose(1, 0, 2), atol=1e-6)


def test_a_value_that_holds_another_tensor_since_is_none_of_the_builtin(tmp_path: Path) -> None:
    relayout.convert(next(svdfs()).bytes()).save(tmp_path / "there.onnx")
    model = onnx.load(tmp_path / "there.onnx")
    (value,) = (each for each in model.graph.value_info if each.name == "t5/unsqueeze")
    (row,) = (row for row in value.metadata_props if row.key == "relayout.holds")
    assert '"name":"t2"' in row.value
    row.value = row.value.replace("[0,1]", "[1,0]")
    assert "SVDF" not in operators(relayout.convert(model, format="tflite").tflite)


NETWORKS = [
    "lstm_fused.float32",
    "lstm_fused.int8",
    "lstm_fused.float16",
    "bidirectional_lstm_fused.float32",
    "bidirectional_lstm_fused.int8",
    "bidirectional_lstm_fused.float16",
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_of_keras_has_no_more_operators_and_gives_the_same(name: str, way: str, tmp_path: Path) -> None:
    source = (KERAS / f"{name}.tflite").read_bytes()
    result = back(source, tmp_path, way)
    assert len(operators(result)) <= len(operators(source))
    assert operators(result).count(FUSED) == operators(source).count(FUSED)
    for kernels in KERNELS:
        assert_same_runs(source, result, kernels)


def test_a_changed_loop_is_written_as_it_is_now(tmp_path: Path) -> None:
    relayout.convert(lstm(clip=0.3).bytes()).save(tmp_path / "there.onnx")
    model = onnx.load(tmp_path / "there.onnx")
    (loop,) = (node for node in model.graph.node if node.op_type == "Scan")
    for node in loop.attribute[0].g.node if loop.attribute[0].name == "body" else loop.attribute[-1].g.node:
        node.op_type = "Sigmoid" if node.op_type == "Tanh" else node.op_type
    assert any(node.op_type == "Scan" for node in model.graph.node)
    content = relayout.convert(model, format="tflite").tflite
    assert FUSED not in operators(content)
    feed = floats(2, 5, 3)
    (wanted,) = with_runtime(model, {model.graph.input[0].name: feed})
    np.testing.assert_allclose(results_of_runs(content, [feed], KERNELS[0])[0], wanted, atol=1e-6)


def test_changed_weights_are_those_of_the_result(tmp_path: Path) -> None:
    relayout.convert(lstm(clip=0.3).bytes()).save(tmp_path / "there.onnx")
    model = onnx.load(tmp_path / "there.onnx")
    for tensor in model.graph.initializer:
        array = onnx.numpy_helper.to_array(tensor)
        if array.ndim == 2 and array.dtype == np.float32:
            tensor.CopyFrom(onnx.numpy_helper.from_array(array * np.float32(0.5), tensor.name))
    content = relayout.convert(model, format="tflite").tflite
    assert operators(content) == [FUSED]
    feed = floats(2, 5, 3)
    (wanted,) = with_runtime(model, {model.graph.input[0].name: feed})
    np.testing.assert_allclose(results_of_runs(content, [feed], KERNELS[0])[0], wanted, atol=1e-6)


def test_changed_weights_without_gates_are_those_of_the_result(tmp_path: Path) -> None:
    source = load(PLAIN[0].bytes()).subgraphs[0]
    relayout.convert(PLAIN[0].bytes()).save(tmp_path / "there.onnx")
    model = onnx.load(tmp_path / "there.onnx")
    for tensor in model.graph.initializer:
        array = onnx.numpy_helper.to_array(tensor)
        if array.dtype == np.float32 and array.size > 1:
            tensor.CopyFrom(onnx.numpy_helper.from_array(array * np.float32(0.5), tensor.name))
    content = relayout.convert(model, format="tflite").tflite
    feed = floats(*source.tensors[source.inputs[0]].shape)
    (wanted,) = with_runtime(model, {model.graph.input[0].name: feed})
    np.testing.assert_allclose(results_of_runs(content, [feed], KERNELS[0])[0], wanted, atol=1e-6)


RECURRENT = {
    **{f"lstm {kind}": partial(lstm, **kind) for kind in KINDS},
    **{f"lstm int8 {kind}": partial(quantized_lstm, **kind) for kind in INTEGER_KINDS},
    **{f"rnn {number}": partial(PLAIN.__getitem__, number) for number in range(len(PLAIN))},
    **{f"bidirectional lstm {kind}": partial(bidirectional_lstm, **kind) for kind in ({}, {"hybrid": True})},
    **{f"svdf {number}": partial(list(svdfs()).__getitem__, number) for number in range(3)},
    "lstm of one step": partial(lstm, one_step=True),
}
PIECES = 0.05
"""How far a result may be from the file's where its weights are integers: the kernel then rounds the sequence, too."""


@pytest.mark.parametrize("batch", [4, 1, "n"])
@pytest.mark.parametrize("name", RECURRENT)
@pytest.mark.sampled(every=4)
def test_another_batch_has_variables_of_its_own(name: str, batch: int | str) -> None:
    source = RECURRENT[name]().bytes()
    graph = load(source).subgraphs[0]
    tensor, axis = graph.tensors[graph.inputs[0]], int(bool(graph.operators[0].options.fields.get("time_major")))
    content = relayout.convert(source, format="tflite", dims={f"{tensor.name}:{axis}": batch}).tflite
    few, count = tensor.shape[axis], batch if isinstance(batch, int) else 4
    runs = 2 if operators(content) == operators(source) else 1  # the states are kept
    feeds = [floats(*(count if place == axis else dim for place, dim in enumerate(tensor.shape))) for _ in range(runs)]
    if tensor.type == TensorType.INT8:
        feeds = [np.clip(feed * 60, -128, 127).astype(np.int8) for feed in feeds]
    slack = 1 if tensor.type == TensorType.INT8 else PIECES
    for first in range(0, count, few):
        rows = np.arange(first, first + few) % count
        wanted = results_of_runs(source, [feed.take(rows, axis) for feed in feeds], KERNELS[0])
        for result, array in zip(results_of_runs(content, feeds, KERNELS[0]), wanted, strict=True):
            np.testing.assert_allclose(result.take(rows, axis).astype(float), array.astype(float), atol=slack)


def test_variables_take_the_extent_of_a_batch_that_is_a_number() -> None:
    for source in (lstm().bytes(), PLAIN[0].bytes(), quantized_lstm().bytes()):
        for batch in (4, 1):
            content = relayout.convert(source, format="tflite", batch=batch).tflite
            assert set(operators(content)) - {"RESHAPE"} == set(operators(source))


@pytest.mark.parametrize("batch", [4, "n"])
def test_another_batch_runs_through_onnx_too(batch: int | str) -> None:
    for source in (lstm().bytes(), PLAIN[0].bytes()):
        content = relayout.convert(relayout.convert(source, batch=batch).proto, format="tflite").tflite
        feed = floats(4, 5, 3)
        halves = [results_of_runs(source, [half], KERNELS[0])[0] for half in (feed[:2], feed[2:])]
        (result,) = results_of_runs(content, [feed], KERNELS[0])
        np.testing.assert_allclose(result, np.concatenate(halves), atol=1e-6)


@pytest.mark.parametrize("where", ["there", "back"])
@pytest.mark.parametrize("kind", INTEGER_KINDS, ids=str)
def test_another_batch_of_integers_is_the_operator_of_the_source(kind: dict[str, Any], where: str) -> None:
    source = quantized_lstm(**kind).bytes()
    there, back = ({"batch": 4}, {}) if where == "there" else ({}, {"batch": 4})
    content = relayout.convert(relayout.convert(source, **there).proto, format="tflite", **back).tflite
    assert operators(content) == operators(source) == [FUSED]
    feeds = [np.clip(floats(4, 5, 3) * 60, -128, 127).astype(np.int8) for _ in range(3)]
    halves = [results_of_runs(source, [feed[rows] for feed in feeds], KERNELS[0]) for rows in (slice(2), slice(2, 4))]
    for result, *parts in zip(results_of_runs(content, feeds, KERNELS[0]), *halves, strict=True):
        np.testing.assert_array_equal(result, np.concatenate(parts))


def test_another_batch_of_a_changed_loop_is_written_as_it_is_now(tmp_path: Path) -> None:
    """A description that a change made untrue does not become true where the batch is opened."""
    relayout.convert(quantized_lstm().bytes()).save(tmp_path / "there.onnx")
    model = onnx.load(tmp_path / "there.onnx")
    (scan,) = (node for node in model.graph.node if node.op_type == "Scan")
    (body,) = (attribute.g for attribute in scan.attribute if attribute.name == "body")
    next(node for node in body.node if node.op_type == "Sigmoid").op_type = "Tanh"
    assert FUSED not in operators(relayout.convert(model, format="tflite", batch=4).tflite)


@needs_vela
@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", [*INTEGER_KINDS, {"peephole": True}], ids=str)
def test_vela_takes_an_integer_lstm_where_the_table_claims_it(kind: dict[str, Any], way: str, tmp_path: Path) -> None:
    source = quantized_lstm(**kind).bytes()
    (tmp_path / "source.tflite").write_bytes(source)
    given: Any = relayout.convert(source).proto if way == "through ONNX" else source
    result = relayout.convert(given, format="tflite", target="ethos-u")
    result.save(tmp_path / "result.tflite")
    judgement = judge(tmp_path / "result.tflite", tmp_path)
    assert judgement == judge(tmp_path / "source.tflite", tmp_path)
    claims = result.report.claims
    assert claims is not None
    assert claims.claimed == (not judgement.on_cpu)


def described(**options: Any) -> str:
    (node,) = (node for node in relayout.convert(lstm(clip=0.3).bytes()).model.graph if BUILTIN in node.metadata_props)
    data = json.loads(node.metadata_props[BUILTIN])
    data["options"] |= options
    return json.dumps(data)


@pytest.mark.parametrize("options", [{"unknown": 1}, {"cell_clip": 1e39}, {"time_major": "yes"}, {"cell_clip": None}])
def test_a_description_that_no_file_can_say_counts_for_nothing(options: dict[str, Any], tmp_path: Path) -> None:
    test_a_damaged_description_counts_for_nothing(described(**options), tmp_path)
    assert Builtin.parse(described()) is not None


def test_a_node_that_was_read_from_no_file_is_refused() -> None:
    node = onnx.helper.make_node(FUSED, ["x"], ["y"], domain="tflite", description=described(), time_major=0)
    ends = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2, 5, 3]) for name in "xy"]
    graph = onnx.helper.make_graph([node], "alone", ends[:1], ends[1:])
    imports = [onnx.helper.make_opsetid("", 18), onnx.helper.make_opsetid("tflite", 1)]
    model = onnx.helper.make_model(graph, opset_imports=imports, ir_version=8)
    with pytest.raises(UnsupportedError, match=r"it was read from no \.tflite"):
        relayout.convert(model, format="tflite")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"name":"UNIDIRECTIONAL_SEQUENCE_LSTM"}', "nonsense"])
def test_a_damaged_description_counts_for_nothing(text: str, tmp_path: Path) -> None:
    relayout.convert(lstm(clip=0.3).bytes()).save(tmp_path / "there.onnx")
    model = onnx.load(tmp_path / "there.onnx")
    for node in model.graph.node:
        for row in node.metadata_props:
            if row.key == BUILTIN:
                row.value = text
    assert FUSED not in operators(relayout.convert(model, format="tflite").tflite)


def test_an_lstm_that_does_not_say_that_its_states_are_kept_begins_anew(tmp_path: Path) -> None:
    source = lstm().bytes()
    back = there_and_back(source, tmp_path, keep_mark=False)
    assert operators(back) == ["UNPACK", FUSED]
    first, second = results_of_runs(back, [floats(2, 5, 3)] * 2, KERNELS[0])
    np.testing.assert_array_equal(first, second)


def test_a_state_that_is_an_input_is_not_said_to_be_kept() -> None:
    model = relayout.convert(lstm().bytes(), state="io").model
    assert not any(STATES in node.metadata_props for node in model.graph)
    zero = relayout.convert(lstm().bytes()).model
    assert any(STATES in node.metadata_props for node in zero.graph)


def test_a_restored_builtin_is_a_part_of_litert(tmp_path: Path) -> None:
    source = (KERAS / "lstm_fused.int8.tflite").read_bytes()
    relayout.convert(source, format="tflite", parts=True).save_parts(tmp_path)
    (part,) = tmp_path.glob("*.tflite")
    assert operators(part.read_bytes()) == operators(source)


def test_a_real_number_that_the_file_leaves_out_is_one_in_onnx() -> None:
    """A flatbuffer has no zeros: an attribute of type INT was no valid model, and a traceback on the way back."""
    source = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
        g (float[1, 4, 2, 3] x) => (float[1, 4, 2, 3] y) { y = LeakyRelu<alpha = 0.0>(x) }""")
    model = relayout.convert(relayout.convert(source, format="tflite", io="convert").tflite).proto
    onnx.checker.check_model(model, full_check=True)
    kinds = {each.name: each.type for node in model.graph.node for each in node.attribute}
    assert kinds["alpha"] == onnx.AttributeProto.FLOAT
