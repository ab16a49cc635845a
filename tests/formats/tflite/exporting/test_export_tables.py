"""Tables in a `.tflite`: filled once, of texts too, counted apart from variables, and refused with a reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from export_cases_tables import DOMAIN, NUMBERS, REALS, WORDS
from export_running import agrees
from node_tests import NodeTest, node_tests, run, verdict
from onnx import TensorProto, helper

import relayout
from litert_runs import operators
from relayout.errors import UnsupportedError
from relayout.formats.tflite.container.loading import load
from relayout.formats.tflite.exporting.operators import tables

KINDS = {np.dtype(np.int64): TensorProto.INT64, np.dtype(np.float32): TensorProto.FLOAT}


def listed(array: list[Any], kind: int) -> onnx.TensorProto:
    return helper.make_tensor("listed", kind, [len(array)], array)


def labelled(x: Any, kind: int, *more: onnx.NodeProto, version: int = 4, **attributes: Any) -> onnx.ModelProto:
    """Return a model that looks `x` up, and what other nodes make of the result."""
    nodes = [helper.make_node("LabelEncoder", ["x"], ["y" if not more else "t"], domain=DOMAIN, **attributes), *more]
    given = helper.make_tensor_value_info("x", KINDS.get(x.dtype, TensorProto.STRING), x.shape)
    graph = helper.make_graph(nodes, "table", [given], [helper.make_tensor_value_info("y", kind, None)])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, version)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9)


def test_lists_that_are_tensors() -> None:
    given = {"keys_tensor": listed([b"one", b""], TensorProto.STRING)}
    given |= {"values_tensor": listed([3, 4], TensorProto.INT16), "default_tensor": listed([42], TensorProto.INT16)}
    agrees(labelled(WORDS, TensorProto.INT16, **given), {"x": WORDS})
    given = {"keys_tensor": listed([1, -5], TensorProto.INT64), "values_tensor": listed([7, 8], TensorProto.INT64)}
    agrees(labelled(NUMBERS, TensorProto.INT64, **given), {"x": NUMBERS})
    agrees(labelled(NUMBERS, TensorProto.INT64, **given, default_tensor=listed([9], TensorProto.INT64)), {"x": NUMBERS})


def test_int32_is_looked_up_by_its_place() -> None:
    """ONNX Runtime has no such table, so the values are written out."""
    for keys in ([5, -1, 3], [5, -1, 1 << 30]):
        given = {"keys_tensor": listed(keys, TensorProto.INT32), "values_tensor": listed([1, 2, 3], TensorProto.INT32)}
        model = labelled(np.zeros(4), TensorProto.INT32, **given, default_tensor=listed([0], TensorProto.INT32))
        model.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", TensorProto.INT32, [5]))
        x = np.array([keys[2], 5, -1, -(1 << 31), (1 << 31) - 1], np.int32)
        agrees(model, {"x": x}, expected=[np.array([3, 1, 2, 0, 0], np.int32)])


TWO = {"keys_strings": ["one", "two"], "values_int64s": [1, 2]}


def test_two_tables_are_two_and_equal_ones_are_one() -> None:
    def model(second: dict[str, Any]) -> onnx.ModelProto:
        texts = helper.make_node("LabelEncoder", ["t"], ["s"], domain=DOMAIN, **second)
        return labelled(NUMBERS, TensorProto.INT64, texts, again, keys_int64s=[1, 7], values_strings=["one", "b"])

    again = helper.make_node("LabelEncoder", ["s"], ["y"], domain=DOMAIN, keys_int64s=[1], values_int64s=[10])
    different = model({"keys_strings": ["one", "two"], "values_int64s": [1, 2]})
    agrees(different, {"x": NUMBERS})
    assert operators(relayout.convert(different, format="tflite").tflite).count("HASHTABLE_IMPORT") == 2
    twice = [helper.make_node("LabelEncoder", ["x"], ["s"], domain=DOMAIN, **TWO)]
    twice.append(helper.make_node("Sub", ["t", "s"], ["y"]))
    equal = labelled(WORDS, TensorProto.INT64, *twice, **TWO)
    agrees(equal, {"x": WORDS})
    assert operators(relayout.convert(equal, format="tflite").tflite).count("HASHTABLE_IMPORT") == 1


def test_a_table_in_a_branch() -> None:
    def branch(values: list[int]) -> onnx.GraphProto:
        node = helper.make_node("LabelEncoder", ["x"], ["z"], domain=DOMAIN, keys_strings=["one"], values_int64s=values)
        return helper.make_graph([node], "branch", [], [helper.make_tensor_value_info("z", TensorProto.INT64, None)])

    node = helper.make_node("If", ["q"], ["y"], then_branch=branch([1]), else_branch=branch([2]))
    model = labelled(WORDS, TensorProto.INT64, **TWO)
    model.graph.node[0].CopyFrom(node)
    model.graph.input.append(helper.make_tensor_value_info("q", TensorProto.BOOL, []))
    with pytest.raises(UnsupportedError, match="IF of texts"):  # its kernel copies no texts
        relayout.convert(model, format="tflite")


MOVED: dict[str, tuple[list[Any], dict[str, Any], bool]] = {
    "Reshape": ([np.array([3, 2])], {}, True),
    "Slice": ([np.array([0, 1]), np.array([2, 3])], {}, True),
    "Tile": ([np.array([2, 1])], {}, True),
    "Unsqueeze": ([np.array([0])], {}, True),
    "GatherND": ([np.array([[1, 0], [0, 2]])], {}, True),
    "Flatten": ([], {"axis": 0}, True),
    "Identity": ([], {}, True),
    "Gather": ([np.array([1, 0])], {"axis": 0}, False),
    "Transpose": ([], {"perm": [1, 0]}, False),
    "Expand": ([np.array([2, 2, 3])], {}, False),
    "Concat": ([WORDS], {"axis": 0}, False),
}
"""Operator -> its constants and attributes, and whether LiteRT has a kernel for texts."""


@pytest.mark.parametrize("name", MOVED)
@pytest.mark.parametrize("is_input", [False, True])
def test_texts_are_moved_where_there_is_a_kernel(name: str, *, is_input: bool) -> None:
    """Texts that a table gives, and those of an input."""
    constants, attributes, has_kernel = MOVED[name]
    read = "x" if is_input else "t"
    node = helper.make_node(name, [read, *(f"c{i}" for i in range(len(constants)))], ["y"], **attributes)
    given = {"keys_strings": ["one", "é"], "values_strings": ["1", ""]}
    model = labelled(WORDS, TensorProto.STRING, node, **given)
    if is_input:
        del model.graph.node[0]
        model.opset_import.pop()
    for place, array in enumerate(constants):
        kind = TensorProto.STRING if array.dtype == object else TensorProto.INT64
        model.graph.initializer.append(helper.make_tensor(f"c{place}", kind, array.shape, array.reshape(-1).tolist()))
    if has_kernel:
        agrees(model, {"x": WORDS}, kernels=("default",))  # the reference kernel of STRIDED_SLICE is an older one
    else:
        with pytest.raises(UnsupportedError, match=r"of texts|STRING"):
            relayout.convert(model, format="tflite")


def test_a_table_is_filled_in_the_first_run_and_stays() -> None:
    from ai_edge_litert.interpreter import Interpreter

    model = labelled(NUMBERS, TensorProto.STRING, keys_int64s=[1, 7], values_strings=["one", ""])
    made = Interpreter(model_content=relayout.convert(model, format="tflite").tflite)
    made.allocate_tensors()
    first = [b"one", b"_Unused", b"_Unused", b"", b"_Unused", b"_Unused"]
    for x, wanted in ((NUMBERS, first), (NUMBERS * 0 + 7, [b""] * 6)):
        made.set_tensor(made.get_input_details()[0]["index"], x)
        made.invoke()
        assert made.get_tensor(made.get_output_details()[0]["index"]).reshape(-1).tolist() == wanted


def test_numbers_of_tables_are_none_of_variables() -> None:
    """LiteRT counts both together, and variables from 0 on."""
    result = load(relayout.convert(labelled(WORDS, TensorProto.INT64, **TWO), format="tflite").tflite)
    made = [op for graph in result.subgraphs for op in graph.operators if op.name == "HASHTABLE"]
    assert {op.options.table_id for op in made} == {1 << 16}


REFUSED: dict[str, tuple[Any, dict[str, Any], str]] = {
    "doubles": (
        REALS.astype(np.float64),
        {"keys_tensor": listed([1.0], TensorProto.DOUBLE), "values_tensor": listed([1], TensorProto.INT64)},
        "elements of FLOAT64",
    ),
    "lengths": (NUMBERS, {"keys_int64s": [1, 2], "values_int64s": [1]}, "a table without keys, or without a value"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_table_is_refused_with_its_reason(name: str) -> None:
    x, given, reason = REFUSED[name]
    model = labelled(x, TensorProto.INT64, **given)
    if x.dtype == np.float64:
        model.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", TensorProto.DOUBLE, x.shape))
    with pytest.raises(UnsupportedError, match=reason):
        relayout.convert(model, format="tflite")


def test_keys_that_are_no_numbers_are_found_from_version_4_on() -> None:
    for version in (2, 4):
        given = {"keys_floats": [float("nan")], "values_floats": [5.0]}
        model = labelled(REALS, TensorProto.FLOAT, version=version, **given)
        agrees(model, {"x": REALS})
        agrees(model, {"x": REALS}, expected=[np.where(np.isnan(REALS) & (version == 4), 5.0, -0.0).astype(np.float32)])


def test_too_many_pairs_are_refused() -> None:
    x = np.zeros(1 << 20, np.float32)
    model = labelled(x, TensorProto.FLOAT, keys_floats=list(map(float, range(300))), values_floats=[0.0] * 300)
    with pytest.raises(UnsupportedError, match="more elements and keys than can be compared"):
        relayout.convert(model, format="tflite")


def test_one_text_without_axes() -> None:
    """LiteRT's Python interface reads the address of such an array of objects; verification feeds bytes."""
    word = np.array("one", object)
    model = labelled(word, TensorProto.STRING, helper.make_node("Reshape", ["x", "c"], ["y"]), **TWO)
    del model.graph.node[0]
    model.graph.initializer.append(helper.make_tensor("c", TensorProto.INT64, [1], [1]))
    agrees(model, {"x": word})
    result = relayout.convert(model, format="tflite").tflite
    assert relayout.verify(model, result).ok


def test_texts_without_elements_are_refused() -> None:
    node = helper.make_node("Slice", ["t", "c", "c"], ["y"])
    model = labelled(WORDS, TensorProto.STRING, node, keys_strings=["one"], values_strings=["1"])
    model.graph.initializer.append(helper.make_tensor("c", TensorProto.INT64, [1], [0]))
    with pytest.raises(UnsupportedError, match="texts without elements"):
        relayout.convert(model, format="tflite")


NAMED = "label_encoder equal_string array_feature_extractor binarizer string_concat string_split regex strnormalizer"


def test_the_standards_tests_of_texts_are_right_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are none of the tests that are counted, whose types are numbers."""
    import node_tests as module

    monkeypatch.setattr(module, "KINDS", module.KINDS | {"string"})
    tests = [test for test in node_tests() if isinstance(test, NodeTest) and any(p in test.name for p in NAMED.split())]
    found = {test.name.removeprefix("test_"): verdict(test)[0] for test in tests}
    right = {name for name, each in found.items() if each == "right"}
    wanted = {f"ai_onnx_ml_label_encoder_{each}" for each in ("string_int", "string_int_no_default", "tensor_mapping")}
    wanted |= {"ai_onnx_ml_label_encoder_tensor_value_only_mapping", "equal_string", "equal_string_broadcast"}
    assert right == wanted | {"ai_onnx_ml_array_feature_extractor", "ai_onnx_ml_binarizer"}
    assert set(found.values()) == {"right", "refused"}


def test_planted_a_key_that_comes_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of such a key the first value counts: a table that takes the last one is found."""
    given = {"keys_int64s": [1, 1], "values_floats": [0.5, 1.5], "version": 2}
    agrees(labelled(NUMBERS, TensorProto.FLOAT, **given), {"x": NUMBERS})
    right = tables._table
    last = lambda op: right(op)._replace(values=np.array([1.5], np.float32))  # noqa: E731
    monkeypatch.setattr(tables, "_table", last)
    with pytest.raises(AssertionError):
        agrees(labelled(NUMBERS, TensorProto.FLOAT, **given), {"x": NUMBERS})


@pytest.mark.parametrize("way", ["through ONNX", "at once"])
def test_a_table_comes_back(way: str) -> None:
    """ONNX -> `.tflite` -> ONNX -> `.tflite`: numbers to texts to numbers."""
    node = helper.make_node("LabelEncoder", ["t"], ["y"], domain=DOMAIN, keys_strings=["one"], values_int64s=[3])
    model = labelled(NUMBERS, TensorProto.INT64, node, keys_int64s=[1, 7], values_strings=["one", "b"])
    first = relayout.convert(model, format="tflite").tflite
    given: Any = relayout.convert(first).proto if way == "through ONNX" else first
    second = relayout.convert(given, format="tflite").tflite
    assert operators(second) == operators(first)
    for content in (first, second):
        (got,) = run(content, {"x": NUMBERS})
        np.testing.assert_array_equal(got, np.where(NUMBERS == 1, 3, -1))


def test_of_a_class_that_is_listed_twice_the_last_counts_in_version_1() -> None:
    node = helper.make_node("LabelEncoder", ["x"], ["y"], domain="ai.onnx.ml", classes_strings=["a", "b", "a"])
    ends = [helper.make_tensor_value_info("x", 8, [3])], [helper.make_tensor_value_info("y", 7, [3])]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)]
    model = helper.make_model(helper.make_graph([node], "twice", *ends), opset_imports=opsets, ir_version=8)
    (found,) = run(relayout.convert(model, format="tflite").tflite, {"x": np.array(["a", "b", "c"], object)})
    assert found.tolist() == [2, 1, -1]
