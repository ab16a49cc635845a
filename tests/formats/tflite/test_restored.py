"""Builtins that ONNX spells out come back as they were: the file's operators, and results equal bit for bit."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from tflite_cases import every
from tflite_cases_cells import gru_after, looped
from tflite_cases_control import binary, counting, loop, subgraph
from tflite_running import feed, interpreter, run_interpreter
from tflite_writing import Net, Scale, options

import relayout
from litert_runs import operators
from relayout.errors import RelayoutError
from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.loading import load
from relayout.formats.tflite.spelled_out import BUILTIN, RESTORABLE_CUSTOM, Builtin, restamping

WAYS = ("through ONNX", "at once")
OTHERS = {
    "detections[10]": "a GatherND of no operator orders indices anew; not so at once",
    "distinct[2]": "UNIQUE gives its indices without the CAST that the file has",
    "distinct[3]": "UNIQUE gives its indices without the CAST that the file has",
    "gathers_of_windows[2]": "a Gather of other nodes orders the columns of its indices anew; not so at once",
    "gathers_of_windows[4]": "a Gather of other nodes orders the columns of its indices anew; not so at once",
    "two_bits[0]": "ONNX has no type of 2 bits before opset 25",
    "two_bits[1]": "ONNX has no type of 2 bits before opset 25",
    "two_bits[3]": "ONNX has no type of 2 bits before opset 25",
}
"""Cases that come back as other builtins, and why."""
WITHOUT_RESULT = ("randoms", "multinomials", "moved")
"""Cases whose results are random, or whose other operators no way back has."""


def described(model: onnx.ModelProto) -> list[Any]:
    """Return the rows of metadata that describe builtins."""
    return [row for node in model.graph.node for row in node.metadata_props if row.key == BUILTIN]


def runs(net: Net) -> bool:
    try:
        interpreter(net.bytes())
    except (RuntimeError, ValueError):
        return False
    return True


def back(source: bytes, way: str, **asked: Any) -> bytes:
    given: Any = relayout.convert(source).proto if way == "through ONNX" else source
    return relayout.convert(given, format="tflite", **asked).tflite


def results(content: bytes, ranges: list[tuple[float, float]], seed: int) -> list[Any]:
    made, rng = interpreter(content), np.random.default_rng(seed)
    details = made.get_input_details()
    return run_interpreter(
        made, [feed(rng, tuple(d["shape"]), d["dtype"], *r) for d, r in zip(details, ranges, strict=True)]
    )


ALL = every()
ALONE: dict[str, dict[str, Net]] = {}
"""Builtin -> the cases that are that operator alone."""
for each, case in ALL.items():
    if len(case.graph.operators) == 1 and case.expected is None and not each.startswith(WITHOUT_RESULT):
        ALONE.setdefault(load(case.bytes()).subgraphs[0].operators[0].name, {})[each] = case
BUILTINS = """
ADD ADD_N ARG_MAX ARG_MIN ATAN2 BATCH_TO_SPACE_ND BIDIRECTIONAL_SEQUENCE_LSTM BIDIRECTIONAL_SEQUENCE_RNN BITCAST
BUCKETIZE CONV_2D DEPTHWISE_CONV_2D DILATE DYNAMIC_UPDATE_SLICE EMBEDDING_LOOKUP EMBEDDING_LOOKUP_SPARSE EQUAL
FAKE_QUANT FLOOR_DIV FLOOR_MOD FULLY_CONNECTED GATHER GATHER_ND GREATER GREATER_EQUAL HASHTABLE_LOOKUP
L2_NORMALIZATION L2_POOL_2D LESS LESS_EQUAL LSTM MATRIX_DIAG MATRIX_SET_DIAG MAXIMUM MINIMUM MIRROR_PAD MUL
NON_MAX_SUPPRESSION_V4 NON_MAX_SUPPRESSION_V5 NOT_EQUAL ONE_HOT PACK PAD QUANTIZE REDUCE_ALL REDUCE_ANY REDUCE_WINDOW
RESIZE_NEAREST_NEIGHBOR REVERSE_SEQUENCE RIGHT_SHIFT RNN RSQRT SCATTER_ND SEGMENT_SUM SELECT SELECT_V2 SLICE SUM
SOFTMAX SPACE_TO_BATCH_ND SPARSE_TO_DENSE SQUARED_DIFFERENCE STABLEHLO_GATHER STABLEHLO_PAD STABLEHLO_SHIFT_LEFT
SVDF TOPK_V2 UNIDIRECTIONAL_SEQUENCE_LSTM UNIDIRECTIONAL_SEQUENCE_RNN UNPACK UNSORTED_SEGMENT_MAX
UNSORTED_SEGMENT_MIN UNSORTED_SEGMENT_PROD UNSORTED_SEGMENT_SUM WHERE ZEROS_LIKE
"""
SPELLED_OUT = [*BUILTINS.split(), *(f"CUSTOM {name}" for name in sorted(RESTORABLE_CUSTOM))]
"""The builtins of which a case, at least, has a description in ONNX."""


def marked(builtin: str) -> dict[str, Net]:
    """Return the cases of a builtin that are described in ONNX; the nodes of the others are that builtin again."""
    found = {}
    for name, net in ALONE[builtin].items():
        with suppress(RelayoutError):
            if described(relayout.convert(net.bytes()).proto) and runs(net):
                found[name] = net
    return found


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("builtin", SPELLED_OUT)
def test_a_described_builtin_is_that_of_the_source(builtin: str, way: str) -> None:
    cases = marked(builtin)
    assert cases
    for name, net in cases.items():
        source = net.bytes()
        result = back(source, way)
        is_restored = name not in OTHERS or (way == "at once" and "not so at once" in OTHERS[name])
        assert (operators(result) == operators(source)) == is_restored, name
        for seed in range(2) if is_restored else ():
            for wanted, array in zip(*(results(each, net.ranges, seed) for each in (source, result)), strict=True):
                np.testing.assert_array_equal(array, wanted, name)
                assert array.dtype == wanted.dtype


@pytest.mark.slow
def test_no_other_builtin_is_described() -> None:
    assert [builtin for builtin in ALONE if builtin not in SPELLED_OUT and marked(builtin)] == []


UNSIGNED_ELSEWHERE = {
    "depthwise_convolutions[14]": "a delegate runs one of both files, by their versions, and rounds otherwise",
    "fully_connected[14]": "a RESHAPE, which moves nothing, stands before it",
    "fully_connected[15]": "a RESHAPE, which moves nothing, stands before it",
    "pads[9]": "what is around the image has a scale of its own",
}
"""Cases of unsigned integers that do not come back as they were, and why."""
ALIKE = {"EXPAND_DIMS": "RESHAPE", "SQUEEZE": "RESHAPE", "SLICE": "STRIDED_SLICE"}
"""Builtin -> another one that moves the same elements."""


def kinds_of_integers(net: Net) -> set[TensorType]:
    (graph,) = load(net.bytes()).subgraphs
    return {tensor.type for tensor in graph.tensors if tensor.quantization is not None}


UNSIGNED = [
    name
    for cases in ALONE.values()
    for name, net in cases.items()
    if name not in UNSIGNED_ELSEWHERE
    and len(net.model.subgraphs) == 1
    and TensorType.UINT8 in (kinds := kinds_of_integers(net))
    and TensorType.INT8 not in kinds
]


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("name", UNSIGNED)
def test_unsigned_integers_come_back_unsigned_and_bit_for_bit(name: str) -> None:
    """Kernels of int8 round otherwise than those of uint8: pools, resizes."""
    net = ALL[name]
    if not runs(net):
        pytest.skip("LiteRT has no kernel for it")
    source = net.bytes()
    for way in WAYS:
        result = back(source, way)
        pairs = zip(*(results(each, net.ranges, 3) for each in (source, result)), strict=True)
        assert all(np.array_equal(*pair) for pair in pairs)
        wanted, found = ([ALIKE.get(each, each) for each in operators(content)] for content in (source, result))
        assert found == wanted


def test_an_npu_is_given_signed_integers() -> None:
    source = ALL["pools[11]"].bytes()
    assert operators(source) == ["AVERAGE_POOL_2D"]
    for way in WAYS:
        assert operators(back(source, way, target="ethos-u")) == ["QUANTIZE", "AVERAGE_POOL_2D", "QUANTIZE"]


TINYNET = Path(__file__).parents[3] / "models" / "tinynet_dynamic.tflite"
RANGES = [(-1.0, 1.0)]


@pytest.mark.parametrize("way", WAYS)
def test_a_network_with_weights_of_8_bits_computes_what_it_did(way: str) -> None:
    source = TINYNET.read_bytes()
    result = back(source, way)
    assert operators(result) == operators(source)
    np.testing.assert_array_equal(results(result, RANGES, 0)[0], results(source, RANGES, 0)[0])


def moved_between_scales() -> Net:
    """Integers that lie between a PACK and another one, and mean less before the Reshape than behind it."""
    net, one, other = Net(), Scale(0.05, 3), Scale(0.051, 3)
    parts = [net.input((2, 3), "int8", q=one) for _ in range(2)]
    net.op("PACK", parts, [packed := net.tensor((2, 2, 3), "int8", q=one)], options("PackOptions", valuesCount=2))
    shape = net.const([4, 3], "int32")
    net.op("RESHAPE", [packed, shape], [rows := net.tensor((4, 3), "int8", q=other)], options("ReshapeOptions"))
    net.op("PACK", [rows, rows], [net.output((2, 4, 3), "int8", q=other)], options("PackOptions", valuesCount=2))
    return net.op("DEQUANTIZE", [rows], [net.output((4, 3))])


@pytest.mark.parametrize("way", WAYS)
def test_integers_are_read_with_two_scales(way: str) -> None:
    net = moved_between_scales()
    result = back(net.bytes(), way)
    for wanted, got in zip(*(results(each, net.ranges, 0) for each in (net.bytes(), result)), strict=True):
        np.testing.assert_array_equal(got, wanted)


def rounded(net: Net, x: int) -> int:
    """A product of rows with weights of 8 bits, a scale for each of their rows: the kernel rounds the others."""
    weights = np.random.default_rng(0).integers(-127, 128, (8, 8))
    y = net.tensor((4, 8))
    operands = [x, net.const(weights, "int8", q=Scale(np.linspace(0.01, 0.02, 8), 0)), -1]
    net.op("FULLY_CONNECTED", operands, [y], options("FullyConnectedOptions"), version=12)
    return y


def branch_with_rounded_rows() -> Net:
    net, kinds = Net(), [((4, 8), "float32")]
    then = subgraph(net, kinds, lambda n, t: [rounded(n, t[0])])
    other = subgraph(net, kinds, lambda n, t: [binary(n, "ADD", t[0], t[0], (4, 8))])
    operands = [net.input((), "bool", low=1, high=1), net.input((4, 8))]
    table = options("IfOptions", thenSubgraphIndex=then, elseSubgraphIndex=other)
    return net.op("IF", operands, [net.output((4, 8))], table)


def loop_with_rounded_rows() -> Net:
    net, kinds = Net(), [((), "int32"), ((4, 8), "float32")]
    pair = counting(net, lambda n, t: [rounded(n, t[1])], kinds, 3)
    return loop(
        net, [net.const(np.array(0), "int32"), net.input((4, 8))], [net.tensor((), "int32"), net.output((4, 8))], pair
    )


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("network", [branch_with_rounded_rows, loop_with_rounded_rows])
def test_builtins_in_bodies_are_restored(network: Callable[[], Net], way: str) -> None:
    net = network()
    result = back(net.bytes(), way)
    assert "DEQUANTIZE" not in operators(result)
    for seed in range(3):
        wanted, got = (results(each, net.ranges, seed)[-1] for each in (net.bytes(), result))
        np.testing.assert_array_equal(got, wanted)


def test_a_recurrent_loop_that_rounds_rows_stays_one() -> None:
    """As an operator of ONNX its weights would be real numbers: 1.5 % off. Of real numbers it is written anew, with one
    activation for two gates."""
    for form, anew in (("bytes", 0), ("real", 1)):
        net = looped(gru_after, form=form)
        source = net.bytes()
        assert "GRU" in [node.op_type for node in relayout.convert(source).proto.graph.node]
        result = back(source, "at once")
        assert operators(result).count("WHILE") == 1
        assert operators(result).count("LOGISTIC") == 2 - anew
        for wanted, got in zip(*(results(each, net.ranges, 0) for each in (source, result)), strict=True):
            np.testing.assert_allclose(got, wanted, atol=1e-5 * anew)


@pytest.mark.parametrize("way", WAYS)
def test_channels_first_at_the_interface_are_one_transpose(way: str) -> None:
    source = TINYNET.read_bytes()
    result = back(source, way, io="NCHW")
    assert sorted(operators(result)) == sorted([*operators(source), "TRANSPOSE"])
    image = np.random.default_rng(0).uniform(-1, 1, (2, 24, 40, 3)).astype(np.float32)
    (wanted,) = run_interpreter(interpreter(source), [image])
    (got,) = run_interpreter(interpreter(result), [image.transpose(0, 3, 1, 2).copy()])
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("way", WAYS)
def test_a_runtime_that_lacks_the_builtin_gets_others(way: str) -> None:
    new, old = (operators(back(TINYNET.read_bytes(), way, runtime=runtime)) for runtime in ("2.17", "2.16"))
    assert new == operators(TINYNET.read_bytes())
    assert old.count("DEQUANTIZE") == 1


def test_a_changed_node_is_written_as_it_is_now() -> None:
    model = relayout.convert(TINYNET).proto
    clip = next(node for node in model.graph.node if any(row.key == BUILTIN for row in node.metadata_props))
    assert clip.op_type == "Clip"
    del clip.input[1:]
    clip.op_type = "Relu"
    assert operators(relayout.convert(model, format="tflite").tflite).count("DEQUANTIZE") == 1


def test_changed_weights_and_scales_are_those_of_the_result() -> None:
    model = relayout.convert(TINYNET).proto
    for tensor in model.graph.initializer:
        array = onnx.numpy_helper.to_array(tensor)
        if array.dtype == np.int8 and array.size > 64:
            tensor.CopyFrom(onnx.numpy_helper.from_array(-array, tensor.name))
    result = relayout.convert(model, format="tflite").tflite
    assert operators(result) == operators(TINYNET.read_bytes())
    before, after = (load(each).subgraphs[0] for each in (TINYNET.read_bytes(), result))
    for one, other in zip(before.operators, after.operators, strict=True):
        pair = (before.tensors[one.inputs[1]], after.tensors[other.inputs[1]]) if len(one.inputs) > 2 else None
        if pair and pair[0].type.name == "INT8":
            np.testing.assert_array_equal(pair[1].content.view(np.int8), -pair[0].content.view(np.int8))


def mirrored(batch: int = 1) -> Net:
    net = Net()
    pads = net.const([[0, 0], [1, 2], [0, 1]], "int32")
    return net.op(
        "MIRROR_PAD", [net.input([batch, 4, 3]), pads], [net.output([batch, 7, 4])], options("MirrorPadOptions", mode=1)
    )


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("batch", [3, "n"])
def test_another_batch_of_a_builtin_with_constants_of_its_own(batch: int | str, way: str) -> None:
    result = back(mirrored().bytes(), way, batch=batch)
    made = interpreter(result, resize={0: (3, 4, 3)})
    data = np.random.default_rng(0).normal(size=(3, 4, 3)).astype(np.float32)
    (got,) = run_interpreter(made, [data])
    np.testing.assert_array_equal(got, run_interpreter(interpreter(mirrored(3).bytes()), [data])[0])


@pytest.mark.parametrize("is_changed", [False, True])
def test_a_change_makes_constants_of_a_description_untrue(is_changed: bool) -> None:
    """Where relayout opens an extent, too: what was padded by then may be another number of elements."""
    model = relayout.convert(mirrored().bytes()).model
    middle = next(node for node in model.graph if BUILTIN in node.metadata_props)
    with restamping(model):
        if is_changed:
            value = next(value for value in model.graph.initializers.values() if value.uses())
            value.const_value = ir.tensor(value.const_value.numpy() + 1, name=value.name)
    assert (BUILTIN in middle.metadata_props) != is_changed


def mutated(text: str, rng: random.Random) -> str:
    """Change one thing in a description."""
    data = json.loads(text)
    place: Any = data
    while isinstance(place, dict | list) and place:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = rng.choice(keys)
        if not isinstance(place[key], dict | list) or rng.random() < 0.3:
            values = (-1, 0, 7, 2**40, 1e39, "", "t0", None, [], {}, True, "INT8", "ADD", "CONV_2D", [1] * 99)
            place[key] = rng.choice(values)
            if rng.random() < 0.3:
                del place[key]
            break
        place = place[key]
    return json.dumps(data)


HOSTILE = ["hybrids[0]", "joins[2]", "pads[6]", "norms[1]", "extremes[0]", "selections[1]", "splits[2]"]


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("seed", range(80))
def test_any_description_gives_a_file_or_a_typed_error(seed: int) -> None:
    rng = random.Random(seed)
    marked = [name for name in HOSTILE if name in ALL]
    for name in marked:
        model = relayout.convert(ALL[name].bytes()).proto
        for row in described(model):
            for _ in range(rng.randint(1, 2)):
                row.value = mutated(row.value, rng)
        with suppress(RelayoutError):
            load(relayout.convert(model, format="tflite").tflite)


@pytest.mark.parametrize(
    "change",
    [
        {"numbers": [1, 2, 3]},
        {"numbers": [1e300] * 6},
        {"numbers": [1 << 40] * 6},
        {"numbers": ["one"] * 6},
        {"type": "STRING"},
        {"shape": [1 << 31]},
    ],
    ids=str,
)
def test_numbers_that_no_tensor_has_count_for_nothing(change: dict[str, Any]) -> None:
    (row,) = described(relayout.convert(mirrored().bytes()).proto)
    data = json.loads(row.value)
    assert Builtin.parse(row.value) is not None
    assert "numbers" in data["inputs"][1]
    data["inputs"][1] |= change
    assert Builtin.parse(json.dumps(data)) is None


def test_no_pass_counts_on_the_operands_of_a_description() -> None:
    """It says that nodes of three operands are an ADD; passes of the export know that ADD has two."""
    model = relayout.convert(ALL["joins[2]"].bytes()).proto
    (row,) = described(model)
    data = json.loads(row.value) | {"name": "ADD", "options": {}}
    assert len(data["inputs"]) > 2
    row.value = json.dumps(data)
    assert operators(relayout.convert(model, format="tflite").tflite) == ["ADD"]
