"""Resource variables come back as they were: four runs in a row give what the source gives in four runs.

In LiteRT what READ_VARIABLE gives lies where the variable lies, so no net here reads it after an assignment; and an
operator of two operands that are both a variable ends the process.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from tflite_cases import Scale
from tflite_cases_control import binary, loop, subgraph
from tflite_cases_variables import initialised, sums, variable, variables_inside
from tflite_running import feed, interpreter, run_interpreter
from tflite_writing import Net, options

import relayout
from litert_runs import operators
from relayout.formats.tflite.spelled_out import VARIABLES

WAYS = ("through ONNX", "at once")


def read(net: Net, name: str, shape: tuple[int, ...], dtype: str = "float32", **more: Any) -> int:
    old = net.tensor(shape, dtype, **more)
    net.op("READ_VARIABLE", [variable(net, name)], [old], options("ReadVariableOptions"))
    return old


def assign(net: Net, name: str, value: int) -> None:
    net.op("ASSIGN_VARIABLE", [variable(net, name), value], [], options("AssignVariableOptions"))


def window() -> Net:
    """The last rows of the run before stand in front of a strip of an image, as in streaming networks."""
    net = initialised(Net(), {"rows": np.full((1, 2, 5, 3), 0.5)})
    x = net.input((1, 4, 5, 3))
    both = net.tensor((1, 6, 5, 3))
    net.op("CONCATENATION", [read(net, "rows", (1, 2, 5, 3)), x], [both], options("ConcatenationOptions", axis=1))
    kernel = net.const(np.random.default_rng(0).normal(size=(4, 3, 3, 3)))
    table = options("Conv2DOptions", strideH=1, strideW=1, dilationHFactor=1, dilationWFactor=1, padding=1)
    net.op("CONV_2D", [both, kernel, net.const(np.arange(4))], [net.output((1, 4, 3, 4))], table)
    last = net.tensor((1, 2, 5, 3))
    begin, end, step = (net.const(each, "int32") for each in ([0, 4, 0, 0], [1, 6, 5, 3], [1, 1, 1, 1]))
    net.op("STRIDED_SLICE", [both, begin, end, step], [last], options("StridedSliceOptions"))
    assign(net, "rows", last)
    return net


def of_two() -> Net:
    """The images of this run and of the last one, in two orders of axes."""
    net = initialised(Net(), {"image": np.random.default_rng(1).normal(size=(1, 4, 5, 3))})
    x, last = net.input((1, 4, 5, 3)), read(net, "image", (1, 4, 5, 3))
    net.op("MUL", [both := binary(net, "ADD", last, x, (1, 4, 5, 3)), x], [now := net.tensor((1, 4, 5, 3), name="now")])
    net.op("TRANSPOSE", [now, net.const([0, 3, 1, 2], "int32")], [net.output((1, 3, 4, 5))])
    kernel = net.const(np.random.default_rng(0).normal(size=(4, 3, 3, 3)))
    table = options("Conv2DOptions", strideH=1, strideW=1, dilationHFactor=1, dilationWFactor=1, padding=1)
    net.op("CONV_2D", [both, kernel, net.const(np.arange(4))], [net.output((1, 2, 3, 4))], table)
    assign(net, "image", now)
    return net


def exchanged() -> Net:
    """Two variables that take each other's place. Both begin with one constant of the file."""
    net = Net()

    def start(n: Net, _: list[int]) -> list[int]:
        first = n.const([1, 2, 3])
        assign(n, "one", first)
        assign(n, "other", first)
        return []

    net.op("CALL_ONCE", [], [], options("CallOnceOptions", initSubgraphIndex=subgraph(net, [], start)))
    one, other, x = read(net, "one", (3,)), read(net, "other", (3,)), net.input((3,))
    net.graph.outputs = [binary(net, "ADD", other, x, (3,)), binary(net, "MUL", one, x, (3,))]
    for name, value in zip(("one", "other"), net.graph.outputs, strict=True):
        assign(net, name, value)
    return net


def of_the_run_before() -> Net:
    """A result is the input of the run before; what is assigned is an input."""
    net = initialised(Net(), {"before": np.full(3, 7)})
    x, old = net.input((3,)), read(net, "before", (3,))
    net.op("MUL", [old, x], [net.output((3,))], options("MulOptions"))
    assign(net, "before", x)
    return net


def constant_after_the_first() -> Net:
    net = initialised(Net(), {"first": np.ones(3)})
    old = read(net, "first", (3,))
    net.op("ADD", [net.input((3,)), old], [net.output((3,))], options("AddOptions"))
    assign(net, "first", net.const(np.zeros(3)))
    return net


def on_integers() -> Net:
    """A variable of integers with a scale."""
    scale, net = Scale(0.05, 3), Net()

    def start(n: Net, _: list[int]) -> list[int]:
        first = n.const(np.arange(-3, 3).reshape(2, 3), "int8", q=scale)
        n.op("ASSIGN_VARIABLE", [variable(n, "total"), first], [], options("AssignVariableOptions"))
        return []

    net.op("CALL_ONCE", [], [], options("CallOnceOptions", initSubgraphIndex=subgraph(net, [], start)))
    old = read(net, "total", (2, 3), "int8", q=scale)
    y = net.output((2, 3), "int8", q=scale)
    net.op("ADD", [old, net.input((2, 3), "int8", q=Scale(0.02, -4))], [y], options("AddOptions"))
    assign(net, "total", y)
    return net


def inside() -> Net:
    """A branch reads a variable to which the graph around it assigns."""
    net = initialised(Net(), {"total": np.full(3, 5)})
    condition, x = net.input((), "bool"), net.input((3,))
    then = subgraph(net, [((3,), "float32")], lambda n, t: [binary(n, "MUL", t[0], read(n, "total", (3,)), (3,))])
    other = subgraph(net, [((3,), "float32")], lambda n, t: [t[0]])
    table = options("IfOptions", thenSubgraphIndex=then, elseSubgraphIndex=other)
    net.op("IF", [condition, x], [y := net.output((3,))], table)
    assign(net, "total", y)
    return net


def counter() -> Net:
    """Nothing of the first run depends on what is assigned: only a file that was read from another one can keep it."""
    net = Net()

    def start(n: Net, _: list[int]) -> list[int]:
        assign(n, "count", n.const([3], "int32"))
        return []

    net.op("CALL_ONCE", [], [], options("CallOnceOptions", initSubgraphIndex=subgraph(net, [], start)))
    old = read(net, "count", (1,), "int32")
    assign(net, "count", binary(net, "ADD", old, net.const([2], "int32"), (1,), "int32"))
    net.op("CAST", [old], [as_real := net.tensor((1,))], options("CastOptions"))
    net.op("ADD", [net.input((3,)), as_real], [net.output((3,))], options("AddOptions"))
    return net


def unread() -> Net:
    """The sum is assigned, and nothing else reads it."""
    net = initialised(Net(), {"total": np.full(3, 5)})
    old, x = read(net, "total", (3,)), net.input((3,))
    assign(net, "total", binary(net, "ADD", old, x, (3,)))
    net.op("MUL", [old, x], [net.output((3,))], options("MulOptions"))
    return net


def handed_in() -> Net:
    """A loop that assigns by a handle that it is given: nothing there names the variable."""
    net = initialised(Net(), {"total": np.full(3, 5)})
    pair = []
    for part in ("test", "step"):
        with net.subgraph() as index:
            count, x, handle = net.input((), "int32"), net.input((3,)), net.tensor((1,), type_name="RESOURCE")
            net.graph.inputs.append(handle)
            if part == "test":
                net.graph.outputs = [binary(net, "LESS", count, net.const(np.array(3), "int32"), (), "bool")]
            else:
                net.op("READ_VARIABLE", [handle], [old := net.tensor((3,))], options("ReadVariableOptions"))
                new = binary(net, "ADD", old, x, (3,))
                net.op("ASSIGN_VARIABLE", [handle, new], [], options("AssignVariableOptions"))
                count = binary(net, "ADD", count, net.const(np.array(1), "int32"), (), "int32")
                net.graph.outputs = [count, binary(net, "ADD", x, x, (3,)), handle]
        pair.append(index)
    results = [net.tensor((), "int32"), net.tensor((3,)), net.tensor((1,), type_name="RESOURCE")]
    loop(net, [net.const(np.array(0), "int32"), net.input((3,)), variable(net, "total")], results, (pair[0], pair[1]))
    net.graph.outputs = [read(net, "total", (3,)), results[1]]
    return net


NETS: dict[str, Callable[[], Net]] = {
    each.__name__: each for each in (of_two, exchanged, of_the_run_before, on_integers, inside, handed_in)
}
NETS |= {f"sums {i}": (lambda i=i: list(sums())[i]) for i in range(2)}
NETS |= {f"inside {i}": (lambda i=i: list(variables_inside())[i]) for i in range(2)}
ONLY_AT_ONCE: dict[str, Callable[[], Net]] = {
    each.__name__: each for each in (window, counter, unread, constant_after_the_first)
}
"""No output of one run needs what these assign: a model without state that was changed elsewhere has lost it."""


def back(content: bytes, way: str, **asked: Any) -> relayout.Result:
    given: Any = relayout.convert(content).proto if way == "through ONNX" else content
    return relayout.convert(given, format="tflite", **asked)


def four_runs(content: bytes, net: Net) -> list[Any]:
    made, rng = interpreter(content), np.random.default_rng(0)
    details = made.get_input_details()
    return [
        run_interpreter(
            made, [feed(rng, tuple(d["shape"]), d["dtype"], *r) for d, r in zip(details, net.ranges, strict=True)]
        )
        for _ in range(4)
    ]


def is_kept(source: bytes, result: bytes, net: Net) -> bool:
    """Return whether four runs of both give the same, and not four times that of the first run."""
    pairs = zip(four_runs(source, net), four_runs(result, net), strict=True)
    return all(np.array_equal(a, b) for wanted, got in pairs for a, b in zip(wanted, got, strict=True))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", NETS)
def test_runs_go_on_where_the_last_one_ended(name: str, way: str) -> None:
    net = NETS[name]()
    result = back(net.bytes(), way)
    assert is_kept(net.bytes(), result.tflite, net)
    assert not any("anew" in note for note in result.report.notes)
    assert relayout.verify(net.bytes(), result.tflite).ok


def test_what_no_run_changes_is_a_constant() -> None:
    """A permutation has to be known, in a model whose other variable changes."""
    net = Net()

    def start(n: Net, _: list[int]) -> list[int]:
        assign(n, "order", n.const([1, 0], "int32"))
        assign(n, "total", n.const(np.zeros((2, 3))))
        return []

    net.op("CALL_ONCE", [], [], options("CallOnceOptions", initSubgraphIndex=subgraph(net, [], start)))
    y = binary(net, "ADD", net.input((2, 3)), read(net, "total", (2, 3)), (2, 3))
    net.op("TRANSPOSE", [y, read(net, "order", (2,), "int32")], [net.output((3, 2))])
    assign(net, "total", y)
    assert is_kept(net.bytes(), back(net.bytes(), "at once").tflite, net)


@pytest.mark.parametrize("name", ONLY_AT_ONCE)
def test_what_no_output_needs_is_kept_at_once(name: str) -> None:
    net = ONLY_AT_ONCE[name]()
    assert is_kept(net.bytes(), back(net.bytes(), "at once").tflite, net)
    through = back(net.bytes(), "through ONNX").tflite
    assert not is_kept(net.bytes(), through, net)
    assert np.array_equal(four_runs(through, net)[0][0], four_runs(net.bytes(), net)[0][0])


def test_the_operators_are_those_of_the_source() -> None:
    for net, ways in ((window(), WAYS[1:]), (of_two(), WAYS)):
        for way in ways:
            result, source = (Counter(operators(each)) for each in (back(net.bytes(), way).tflite, net.bytes()))
            assert result.pop("VAR_HANDLE") < source.pop("VAR_HANDLE")
            assert result == source


def test_a_note_says_where_one_is_not_kept() -> None:
    """Its first value is computed."""
    net, shape = Net(), (100,)

    def start(n: Net, _: list[int]) -> list[int]:
        table = options("FillOptions")
        n.op("FILL", [n.const(shape, "int32"), n.const(np.array(2))], [first := n.tensor(shape)], table)
        assign(n, "total", first)
        return []

    net.op("CALL_ONCE", [], [], options("CallOnceOptions", initSubgraphIndex=subgraph(net, [], start)))
    net.graph.outputs = [y := binary(net, "ADD", read(net, "total", shape), net.input(shape), shape)]
    assign(net, "total", y)
    result = back(net.bytes(), "at once")
    (note,) = [each for each in result.report.notes if "anew" in each]
    assert note.startswith("variable total begins every run anew")
    assert not is_kept(net.bytes(), result.tflite, net)


def test_state_that_goes_in_and_out_is_no_variable() -> None:
    result = back(window().bytes(), "at once", state="io")
    assert "READ_VARIABLE" not in operators(result.tflite)
    assert len(interpreter(result.tflite).get_input_details()) == 2


@pytest.mark.parametrize("kind", [None, "dynamic", "float16", "int8"])
@pytest.mark.parametrize("target", ["litert", "ethos-u"])
def test_a_file_for_a_target_keeps_it_quantized_or_not(target: str, kind: Any) -> None:
    """Operators that assign have no results."""
    net, rng = window(), np.random.default_rng(0)  # of the seed of the four runs
    samples = [feed(rng, (1, 4, 5, 3), np.float32, *net.ranges[0]) for _ in range(4)] if kind == "int8" else None
    result = relayout.convert(net.bytes(), format="tflite", target=target, quantize=kind, calibrate=samples)
    assert operators(result.tflite).count("ASSIGN_VARIABLE") == 2
    for (expected,), (got,) in zip(four_runs(net.bytes(), net), four_runs(result.tflite, net), strict=True):
        assert np.abs(expected - got).max() < 0.05 * np.abs(expected).max()


def test_renamed_ends_keep_it() -> None:
    net = of_two()
    (name,) = [each["name"] for each in interpreter(net.bytes()).get_input_details()]
    assert is_kept(net.bytes(), back(net.bytes(), "at once", rename={name: "strip"}).tflite, net)


def test_a_part_that_reads_it_keeps_it() -> None:
    """A part without the Conv."""
    net = of_two()
    part = relayout.convert(net.bytes(), format="tflite", outputs=["now"]).tflite
    wanted = [runs[0].transpose(0, 2, 3, 1) for runs in four_runs(net.bytes(), net)]
    for run, result in zip(wanted, four_runs(part, net), strict=True):
        assert np.array_equal(run, result[0])


def changed(model: onnx.ModelProto, change: Callable[[onnx.ModelProto], None]) -> list[str]:
    copied = onnx.ModelProto()
    copied.CopyFrom(model)
    change(copied)
    return operators(relayout.convert(copied, format="tflite").tflite)


def test_what_was_changed_is_no_variable() -> None:
    """A use that was computed beforehand, another initial value, and metadata that is none."""
    model = relayout.convert(of_two().bytes()).proto
    (row,) = [each for each in model.metadata_props if each.key == VARIABLES]
    assert [each["name"] for each in json.loads(row.value)] == ["image"]

    def described(**fields: Any) -> Callable[[onnx.ModelProto], None]:
        def change(copied: onnx.ModelProto) -> None:
            (row,) = [each for each in copied.metadata_props if each.key == VARIABLES]
            row.value = json.dumps([json.loads(row.value)[0] | fields])

        return change

    def broken(copied: onnx.ModelProto) -> None:
        (row,) = [each for each in copied.metadata_props if each.key == VARIABLES]
        row.value = '[{"name":"image"}]'

    assert "READ_VARIABLE" in changed(model, lambda copied: None)
    for change in (described(uses=2), described(initial="nothing"), described(assigned="nothing"), broken):
        assert "READ_VARIABLE" not in changed(model, change)


def test_a_variable_is_described_once() -> None:
    model = relayout.convert(of_two().bytes()).proto
    (row,) = [each for each in model.metadata_props if each.key == VARIABLES]
    row.value = json.dumps(2 * json.loads(row.value))
    result = relayout.convert(model, format="tflite").tflite
    assert operators(result).count("READ_VARIABLE") == 1
    assert is_kept(of_two().bytes(), result, of_two())


@pytest.mark.parametrize(("dtype", "scale"), [("uint8", Scale(0.05, 100)), ("int64", None), ("float16", None)])
def test_a_variable_of_another_type_is_kept_or_named(dtype: str, scale: Scale | None) -> None:
    net = Net()

    def start(n: Net, _: list[int]) -> list[int]:
        assign(n, "held", n.const(np.arange(6).reshape(2, 3), dtype, q=scale))
        return []

    net.op("CALL_ONCE", [], [], options("CallOnceOptions", initSubgraphIndex=subgraph(net, [], start)))
    old, x = read(net, "held", (2, 3), dtype, q=scale), net.input((2, 3), dtype, q=scale)
    shape = net.const([3, 2], "int32")
    net.op("RESHAPE", [old, shape], [net.output((3, 2), dtype, q=scale)], options("ReshapeOptions"))
    assign(net, "held", x)
    for way in WAYS:
        result = back(net.bytes(), way)
        told = any("anew" in note for note in result.report.notes)
        assert is_kept(net.bytes(), result.tflite, net) or told or way == "through ONNX"
        assert np.array_equal(four_runs(result.tflite, net)[0][0], four_runs(net.bytes(), net)[0][0])


def test_a_forged_node_is_refused() -> None:
    node = onnx.helper.make_node("READ_VARIABLE", ["x"], ["y"], domain="tflite", variable="v")
    ends = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2]) for name in "xy"]
    graph = onnx.helper.make_graph([node], "forged", ends[:1], ends[1:])
    opsets = [onnx.helper.make_opsetid("", 20), onnx.helper.make_opsetid("tflite", 1)]
    with pytest.raises(relayout.RelayoutError, match="READ_VARIABLE"):
        relayout.convert(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=9), format="tflite")


@pytest.mark.parametrize("way", WAYS)
def test_another_batch_has_no_variable_of_one(way: str) -> None:
    """A run leaves two images, and the first one begins with one."""
    net = Net()

    def start(n: Net, _: list[int]) -> list[int]:
        assign(n, "image", n.const(np.ones((1, 4))))
        return []

    net.op("CALL_ONCE", [], [], options("CallOnceOptions", initSubgraphIndex=subgraph(net, [], start)))
    net.graph.outputs = [y := binary(net, "ADD", read(net, "image", (1, 4)), net.input((1, 4)), (1, 4))]
    assign(net, "image", y)
    assert "READ_VARIABLE" in operators(back(net.bytes(), way).tflite)
    result = back(net.bytes(), way, batch=2)
    assert "READ_VARIABLE" not in operators(result.tflite)
    assert any("anew" in note for note in result.report.notes) == (way == "at once")
