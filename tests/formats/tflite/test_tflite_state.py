"""State from run to run, several signatures, subgraphs that do not fit, operators carried over."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter
from tflite_cases_control import constant, counting, loop, nested_loops, subgraph
from tflite_cases_plain_recurrent import bidirectional_rnns, rnns, svdfs
from tflite_cases_recurrent import bidirectional_lstm, lstm, quantized_lstm
from tflite_cases_tables import filled, found, texts
from tflite_cases_variables import initialised, running_sum, sums, variable, variables_inside
from tflite_running import check_model, compare, feed, interpreter, read, run_interpreter, session
from tflite_writing import Net, options

import relayout
from relayout.errors import ReadError, RelayoutError, UnsupportedError
from relayout.formats.tflite.container.loading import load
from relayout.formats.tflite.provenance import load_provenance

STATEFUL = [
    lstm(),
    lstm(time_major=True, clip=0.3, projection=3),
    lstm(one_step=True, peephole=True, cifg=True),
    lstm(one_step=True, normalized=True),
    quantized_lstm(),
    bidirectional_lstm(),
    next(rnns()),
    list(rnns())[7],
    list(bidirectional_rnns())[1],
    next(svdfs()),
    list(svdfs())[3],
    list(svdfs())[4],
    *sums(),
    *variables_inside(),
]


@pytest.mark.parametrize("number", range(len(STATEFUL)))
def test_the_first_of_all_runs_is_verified(number: int) -> None:
    content = STATEFUL[number].bytes()
    result = relayout.convert(content, state="io")
    assert all(
        "relayout.initial" in v.metadata_props
        for v in result.model.graph.inputs
        if "relayout.state" in v.metadata_props
    )
    assert relayout.verify(content, result).ok


@pytest.mark.parametrize("number", [9, 11, 12, 13])
def test_state_between_two_tflite_files(number: int) -> None:
    """Inputs that are state are fed what they begin with, as the file's metadata says."""
    content = STATEFUL[number].bytes()
    for state in ("zero", "io"):
        result = relayout.convert(content, format="tflite", state=state)
        assert bool(load_provenance(load(result.tflite)).initial) == (state == "io")
        assert relayout.verify(content, result.tflite).ok


@pytest.mark.parametrize("number", range(len(STATEFUL)))
def test_state_goes_in_and_out(number: int) -> None:
    """Three runs in a row, each fed what the one before left, are three runs of the interpreter."""
    net = STATEFUL[number]
    content = net.bytes()
    model = read(content, state="io")
    run, made, rng = session(check_model(model)), interpreter(content), np.random.default_rng(0)
    states: dict[str, Any] = {}
    for value in model.graph.inputs:
        if "relayout.state" in value.metadata_props:
            initial = json.loads(value.metadata_props.get("relayout.initial", "0"))
            shape = [dim for dim in value.shape or () if isinstance(dim, int)]
            assert value.name
            assert value.dtype is not None
            states[value.name] = np.broadcast_to(np.array(initial, value.dtype.numpy()), shape)
    assert states
    details = made.get_input_details()
    names = [i.name for i in run.get_inputs() if i.name not in states]
    for _ in range(3):
        inputs = [feed(rng, tuple(d["shape"]), d["dtype"], *r) for d, r in zip(details, net.ranges, strict=True)]
        wanted = run_interpreter(made, inputs)
        results = run.run(None, dict(zip(names, inputs, strict=True)) | states)
        outputs = dict(zip([o.name for o in run.get_outputs()], results, strict=True))
        for a, b in zip(list(outputs.values())[: len(wanted)], wanted, strict=True):
            slack = 2 if a.dtype.kind == "i" else 2e-5
            assert np.abs(a.astype(float) - b.astype(float)).max() <= slack
        assert len(outputs) == len(wanted) + len(states)
        states = {name: outputs[f"{name}_next"] for name in states}


def test_without_state_the_interface_is_the_file_s() -> None:
    for net in STATEFUL:
        model = read(net.bytes())
        assert len(model.graph.inputs) == len(net.graph.inputs)
        assert len(model.graph.outputs) == len(net.graph.outputs)
    with pytest.raises(RelayoutError, match="there is no state 'on'"):
        read(STATEFUL[0].bytes(), state="on")  # type: ignore[arg-type]


def test_a_note_names_variables_that_begin_every_run_anew() -> None:
    for net in (*sums(), *variables_inside()):
        notes = "".join(relayout.convert(net.bytes()).report.notes)
        assert re.search(r"variables? (other, )?total begins? every run anew.*--state io", notes)
        assert "anew" not in "".join(relayout.convert(net.bytes(), state="io").report.notes)
    net = initialised(Net(), {"total": np.full(3, 5)})
    kept = net.tensor((3,))
    net.op("READ_VARIABLE", [variable(net, "total")], [kept], options("ReadVariableOptions"))
    net.op("ADD", [net.input((3,)), kept], [net.output((3,))], options("AddOptions"))
    assert "anew" not in "".join(relayout.convert(net.bytes()).report.notes), "nothing assigns to it"


def test_a_shared_state_passes_from_one_operator_to_the_next() -> None:
    net = Net()
    x, h = net.input((2, 3)), net.tensor((2, 4), variable=True)
    weights = [net.const(np.random.default_rng(i).normal(size=s)) for i, s in enumerate([(4, 3), (4, 4), (4,)])]
    for _ in range(2):
        net.op("RNN", [x, *weights, h], [net.output((2, 4))], options("RNNOptions", fusedActivationFunction=4))
    content, value = net.bytes(), np.ones((2, 3), np.float32)
    for model in (read(content), read(content, state="io")):
        inputs = {i.name: np.zeros((2, 4), np.float32) for i in model.graph.inputs[1:]} | {"t0": value}
        got = session(check_model(model)).run(None, inputs)
        for a, b in zip(got, run_interpreter(interpreter(content), [value]), strict=False):
            assert np.allclose(a, b, atol=1e-5)


# Signatures.


def two_signatures() -> Net:
    """`add` gathers in a variable; `half` is another subgraph without one."""
    net = initialised(Net(), {"total": np.full(3, 5)})
    net.graph.outputs = [running_sum(net, net.input((3,)), (3,))]

    def halve(n: Net, t: list[int]) -> list[int]:
        n.op("MUL", [t[0], constant(n, 0.5)], [y := n.tensor((3,))], options("MulOptions"))
        return [y]

    index = subgraph(net, [((3,), "float32")], halve)
    net.sign({"x": net.graph.inputs[0]}, {"y": net.graph.outputs[0]}, "add")
    return net.sign({"whole": 0}, {"half": net.model.subgraphs[index].outputs[0]}, "half", index)


def test_each_signature_can_be_read() -> None:
    content, value = two_signatures().bytes(), np.float32([1, -2, 3])
    for key, inputs, outputs in (("add", ["x"], ["y"]), ("half", ["whole"], ["half"]), (None, ["x"], ["y"])):
        model = read(content, signature=key)
        assert [v.name for v in model.graph.inputs] == inputs
        assert [v.name for v in model.graph.outputs] == outputs
        runner = Interpreter(model_content=content).get_signature_runner(key or "add")
        (got,) = session(check_model(model)).run(None, {inputs[0]: value})
        assert np.array_equal(got, runner(**{inputs[0]: value})[outputs[0]])
    with pytest.raises(ReadError, match=r"there is no signature 'ad'; did you mean 'add'\?"):
        read(content, signature="ad")


# What does not fit.


def test_subgraphs_that_do_not_fit_are_refused() -> None:
    def net(index: int, operands: int = 1) -> Net:
        made = Net()
        condition, x = made.input((), "bool"), made.input((3,))
        then = subgraph(made, [((3,), "float32")], lambda n, t: [t[0]])
        table = options("IfOptions", thenSubgraphIndex=then, elseSubgraphIndex=index)
        return made.op("IF", [condition, *[x] * operands], [made.output((3,))], table)

    for wrong in (net(7), net(-1), net(0), net(1, 2)):
        with pytest.raises(ReadError):
            read(wrong.bytes())
    read(net(1).bytes())
    # A subgraph that contains itself.
    made = net(1)
    inner = made.model.subgraphs[1]
    made.graph, outer = inner, made.graph
    table = options("IfOptions", thenSubgraphIndex=1, elseSubgraphIndex=1)
    made.op("IF", [made.const(np.array(True), "bool"), inner.inputs[0]], [y := made.tensor((3,))], table)
    inner.outputs, made.graph = [y], outer
    with pytest.raises(ReadError, match="contains itself"):
        read(made.bytes())


def test_an_operator_inside_a_body_is_counted_once() -> None:
    net = Net()
    start, x = net.const(np.array(0), "int32"), net.input((3,))

    def body(n: Net, t: list[int]) -> list[int]:
        n.op("CUSTOM Unheard", [t[1]], [y := n.tensor((3,))])
        return [y]

    both = counting(net, body, [((), "int32"), ((3,), "float32")], 2)
    loop(net, [start, x], [net.output((), "int32"), net.output((3,))], both)
    with pytest.raises(UnsupportedError) as caught:
        read(net.bytes())
    assert list(caught.value.found) == ["CUSTOM Unheard"]
    assert caught.value.found["CUSTOM Unheard"][0] == 1


def test_a_subgraph_written_twice_shares_its_weights() -> None:
    (net,) = nested_loops()
    content = net.bytes()
    model = read(content)
    weights = [v for v in model.graph.initializers.values() if v.shape == [3, 3]]
    assert len(weights) == 1
    # Once more with a second loop over the same subgraphs.
    net.graph.operators.append(copy.deepcopy(net.graph.operators[-1]))
    net.graph.operators[-1].outputs = [net.output((), "int32"), net.output((2, 3))]
    model = read(net.bytes())
    assert [n.op_type for n in model.graph].count("Loop") == 2
    assert len([v for v in model.graph.initializers.values() if v.shape == [3, 3]]) == 1
    for result in compare(net.bytes()):
        assert result.error <= result.tolerance(False)


def test_a_variable_that_nothing_sets_is_refused_or_an_input() -> None:
    net = Net()
    net.graph.outputs = [running_sum(net, net.input((3,)), (3,))]
    with pytest.raises(UnsupportedError, match="read before anything assigns"):
        read(net.bytes())
    assert [v.name for v in read(net.bytes(), state="io").graph.inputs][1:] == ["total"]


def test_doubling_subgraphs_are_refused_in_time() -> None:
    """Each subgraph runs the next in both branches: 2 to the 40th copies of the last."""
    net = Net()
    net.input((), "bool")
    x = net.input((3,))
    kinds = [((), "bool"), ((3,), "float32")]
    index = subgraph(net, kinds, lambda n, t: [t[1]])
    for _ in range(40):

        def again(n: Net, t: list[int], index: int = index) -> list[int]:
            table = options("IfOptions", thenSubgraphIndex=index, elseSubgraphIndex=index)
            n.op("IF", [t[0], *t], [y := n.tensor((3,))], table)
            return [y]

        index = subgraph(net, kinds, again)
    table = options("IfOptions", thenSubgraphIndex=index, elseSubgraphIndex=index)
    net.op("IF", [0, 0, x], [net.output((3,))], table)
    with pytest.raises(UnsupportedError, match="used too often"):
        read(net.bytes())


def test_opset_without_16_bits() -> None:
    """The cell is rounded by arithmetic, so only as an input it needs opset 21."""
    content = quantized_lstm().bytes()
    read(content, opset=18)
    with pytest.raises(UnsupportedError, match="needs opset 21"):
        read(content, opset=18, state="io")


def test_recurrent_kinds_without_a_sound_kernel_are_refused() -> None:
    def changed(net: Net, operand: int, kind: str) -> Net:
        tensor = net.graph.tensors[net.graph.operators[0].inputs[operand]]
        tensor.type = getattr(schema.TensorType, kind)
        return net

    wrong = [
        (lstm(activation=0), "a cell without activation"),
        (changed(next(rnns()), 0, "INT32"), "an operand of INT32"),
        (changed(bidirectional_lstm(), 0, "INT32"), "an operand of INT32"),
        (changed(quantized_lstm(), 19, "INT8"), "a cell state of 8 bits"),
        (changed(list(svdfs())[3], 4, "INT8"), "a state of 8 bits"),
    ]
    for net, reason in wrong:
        with pytest.raises(UnsupportedError, match=reason):
            read(net.bytes())


@pytest.mark.parametrize("clip", [0, 0.3])
def test_a_gate_of_an_lstm_without_bias_is_refused(clip: float) -> None:
    """LiteRT crashes there, and what one gate lacks would be taken from another."""
    net = lstm(clip=clip)
    net.graph.operators[0].inputs[12] = -1
    with pytest.raises(ReadError, match="UNIDIRECTIONAL_SEQUENCE_LSTM lacks operand 12"):
        read(net.bytes())


# Tables.


def test_texts_go_in_and_out() -> None:
    for number, keys, values, x in (
        (1, [5, 7], ["five", "sieben \u00fc"], np.array([[5, 1], [7, 7]])),
        (2, ["a", "b\u00df"], [3, 4], np.array([["b\u00df", "q"], ["a", ""]], object)),
    ):
        net = Net()
        filled(net, number, keys, values)  # type: ignore[arg-type]
        numbers = isinstance(keys[0], int)
        given = net.input((2, 2), "int64") if numbers else net.tensor((2, 2), type_name="STRING")
        net.graph.inputs = [given]
        net.graph.outputs = [found(net, number, given, "none" if numbers else -1, (2, 2))]
        (wanted,) = run_interpreter(interpreter(net.bytes()), [x])
        if numbers:
            wanted = np.vectorize(bytes.decode, otypes=[object])(wanted)
        model = read(net.bytes())
        (got,) = session(check_model(model)).run(None, {str(model.graph.inputs[0].name): x})
        assert got.tolist() == wanted.tolist()


def test_texts_are_refused_elsewhere_and_damage_is_seen() -> None:
    net = Net()
    net.op("NEG", [texts(net, ["a"])], [y := net.tensor((1,), type_name="STRING")])
    net.graph.outputs = [y]
    with pytest.raises(UnsupportedError, match=r"NEG \(texts\)"):
        read(net.bytes())
    for words in ([1], [2, 12, 12], [1, 0, 1], [1, 12, 400], [1, 13, 12], [-1, 12, 12]):
        net = Net()
        constant = net.tensor((1,), type_name="STRING", data=np.array(words, np.int32))
        net.graph.outputs = [constant]
        with pytest.raises(ReadError):
            read(net.bytes())
