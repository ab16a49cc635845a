"""Tables of a `.tflite` come back from ONNX as tables, filled with the same, and texts between them as texts."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from tflite_cases_tables import filled, found, tables, texts_cut, texts_moved
from tflite_running import interpreter
from tflite_writing import Net, options

import relayout
from litert_runs import operators
from relayout.formats.tflite.container.loading import load
from relayout.formats.tflite.container.model import texts

WAYS = ("through ONNX", "at once")


def counted_up() -> Net:
    """A table beside a resource variable, which LiteRT counts together."""
    net = Net()
    with net.subgraph() as index:
        handle = net.tensor((1,), type_name="RESOURCE")
        net.op("VAR_HANDLE", [], [handle], options("VarHandleOptions", sharedName="total"))
        net.op("ASSIGN_VARIABLE", [handle, net.const([0.0], "float32")], [])
    net.op("CALL_ONCE", [], [], options("CallOnceOptions", initSubgraphIndex=index))
    filled(net, 5, [1, 2], ["one", "two"])
    filled(net, 7, ["one", "two"], [10, 20])
    x = net.input((2, 3), "int64", low=0, high=3)
    names = found(net, 5, x, "many", (2, 3))
    handle, before, after = (net.tensor((1,), type_name="RESOURCE"), net.tensor((1,)), net.tensor((1,)))
    net.op("VAR_HANDLE", [], [handle], options("VarHandleOptions", sharedName="total"))
    net.op("READ_VARIABLE", [handle], [before])
    net.op("ADD", [before, net.const([1.0], "float32")], [after], options("AddOptions"))
    net.op("ASSIGN_VARIABLE", [handle, after], [])
    net.graph.outputs = [found(net, 7, names, -1, (2, 3)), after]
    return net


NETS = {
    "tables": next(tables()),
    "texts_moved": next(texts_moved()),
    "texts_cut": next(texts_cut()),
    "counted_up": counted_up(),
}


def runs(content: bytes, shape: tuple[int, ...]) -> list[list[Any]]:
    """Return the results of three runs of one interpreter, the input of each another one."""
    made, results = interpreter(content), []
    for seed in range(3):
        x = np.random.default_rng(seed).integers(-3, 9, shape)
        made.set_tensor(made.get_input_details()[0]["index"], x)
        made.invoke()
        results.append([made.get_tensor(each["index"]) for each in made.get_output_details()])
    return results


def back(source: bytes, way: str) -> bytes:
    given: Any = relayout.convert(source).proto if way == "through ONNX" else source
    return relayout.convert(given, format="tflite").tflite


def contents(content: bytes) -> list[tuple[Any, ...]]:
    """Return the texts of each table that a file fills."""
    found = []
    for graph in load(content).subgraphs:
        imports = [op for op in graph.operators if op.name == "HASHTABLE_IMPORT"]
        listed = [[graph.tensors[i] for i in op.inputs[1:]] for op in imports]
        found += [tuple(tuple(texts(each)) for each in pair if each.type.name == "STRING") for pair in listed]
    return sorted(found)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", NETS)
def test_tables_come_back_and_give_what_they_gave(name: str, way: str) -> None:
    source = NETS[name].bytes()
    result = back(source, way)
    (main,) = (graph for graph in load(source).subgraphs[:1])
    shape = main.tensors[main.inputs[0]].shape
    for wanted, got in zip(runs(source, shape), runs(result, shape), strict=True):
        for one, other in zip(wanted, got, strict=True):
            np.testing.assert_array_equal(other, one)
            assert other.dtype == one.dtype
    before, after = Counter(operators(source)), Counter(operators(result))
    assert after["HASHTABLE_FIND"] == before["HASHTABLE_FIND"]
    assert after["HASHTABLE_IMPORT"] <= before["HASHTABLE_IMPORT"]
    assert after.total() <= before.total()


@pytest.mark.parametrize("way", WAYS)
def test_of_texts_moved_every_operator_comes_back(way: str) -> None:
    source = NETS["texts_moved"].bytes()
    before, after = Counter(operators(source)), Counter(operators(back(source, way)))
    assert before - after == Counter({"CALL_ONCE": 1})  # one fills both tables
    assert not after - before
    assert contents(back(source, way)) == contents(source) == [(("one", "two"),), (("one", "two"),)]


def test_texts_are_compared_from_opset_19_on() -> None:
    source = NETS["texts_cut"].bytes()
    assert relayout.convert(source).model.opset_imports[""] == 19
    with pytest.raises(relayout.UnsupportedError, match=r"EQUAL \(texts need opset 19\)"):
        relayout.convert(source, opset=18)
    assert relayout.convert(NETS["texts_moved"].bytes()).model.opset_imports[""] == 18


def test_planted_texts_that_were_exchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    from relayout.formats.tflite.container import model as module

    source, packed = NETS["texts_moved"].bytes(), module.packed_texts
    monkeypatch.setattr(module, "packed_texts", lambda listed: packed(listed[::-1]))
    assert contents(back(source, "at once")) != contents(source)
