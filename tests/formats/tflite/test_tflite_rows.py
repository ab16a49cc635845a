"""Loops that take the rows of tensors one after the other become Scans; all that only looks like it stays a Loop."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from tflite_cases_control import binary, constant, loop, subgraph
from tflite_running import FAST, agree, read
from tflite_writing import Net, Scale, options

from relayout.errors import ReadError
from relayout.pipeline import convert
from relayout.verification import verify

TIME, BATCH, WIDTH, UNITS = 5, 2, 3, 4


def vector(net: Net, first: int, rest: list[int]) -> int:
    """A counter and constants, put together."""
    net.op("RESHAPE", [first, net.const([1], "int32")], [head := net.tensor((1,), "int32")], options("ReshapeOptions"))
    operands = [head, net.const(np.array(rest), "int32")]
    net.op("CONCATENATION", operands, [y := net.tensor((3,), "int32")], options("ConcatenationOptions", axis=0))
    return y


def put(net: Net, rows: int, now: int, after: int, row: int, count: int, other: str) -> int:
    """The list with a row in the place of the counter."""
    shape = (1, BATCH, UNITS)
    net.op("RESHAPE", [row, net.const(shape, "int32")], [new := net.tensor(shape)], options("ReshapeOptions"))
    y = net.tensor((count, BATCH, UNITS))
    if other in ("update", "twos", "read update"):
        net.op("DYNAMIC_UPDATE_SLICE", [rows, new, vector(net, now, [0, 0])], [y])
        return y
    if other == "behind":
        now, after = after, binary(net, "ADD", after, constant(net, 1, "int32"), (), "int32")
    begin, end = vector(net, now, [-1, -1]), vector(net, after, [0, 0])
    before, behind = net.tensor((1, 1, 1), signature=(-1, -1, -1)), net.tensor((1, 1, 1), signature=(-1, -1, -1))
    net.op("SLICE", [rows, net.const([0, 0, 0], "int32"), begin], [before], options("SliceOptions"))
    net.op("SLICE", [rows, end, net.const([-1, -1, -1], "int32")], [behind], options("SliceOptions"))
    parts = [behind, new, before] if other == "turned" else [before, new, behind]
    net.op("CONCATENATION", parts, [y], options("ConcatenationOptions", axis=0))
    return y


def weighed(net: Net, x: int, kernel: Any, bias: Any, form: str) -> int:
    """A product with constants: real ones, halves, or bytes."""
    if form == "bytes":
        weights = net.const(np.rint(kernel * 50), "int8", q=Scale(0.02))
    elif form == "halves":
        narrow, weights = net.const(kernel, "float16"), net.tensor(kernel.shape)
        net.op("DEQUANTIZE", [narrow], [weights], version=3)
    else:
        weights = net.const(kernel)
    operands = [x, weights, net.const(bias) if bias is not None else -1]
    net.op("FULLY_CONNECTED", operands, [y := net.tensor((BATCH, UNITS))], options("FullyConnectedOptions"), version=9)
    return y


def recurrent(other: str = "", form: str = "real", *, start: int = 0, rounds: int = TIME, count: int = TIME) -> Net:
    """`h = -tanh(x[t] W + h U + b)` over the rows of x, all h in a list; `other` spoils or changes something."""
    rng, net = np.random.default_rng(3), Net()
    kernels = [rng.normal(size=(UNITS, extent)) for extent in (WIDTH, UNITS)]
    scalar, sequence, hidden, rows = ((), "int32"), ((count, BATCH, WIDTH), "float32"), (BATCH, UNITS), None
    rows = (count, BATCH, UNITS)
    kinds = [scalar, scalar, (rows, "float32"), (hidden, "float32"), sequence]

    def test(n: Net, t: list[int]) -> list[int]:
        limits = [binary(n, "LESS", t[i], constant(n, rounds + i, "int32"), (), "bool") for i in (0, 1)]
        n.op("LOGICAL_AND", limits, [y := n.tensor((), "bool")])
        return [y]

    def step(n: Net, t: list[int]) -> list[int]:
        more = constant(n, 2 if other == "twos" else 1, "int32")
        after = [binary(n, "ADD", i, more, (), "int32") for i in t[:2]]
        index = after[1] if other == "next" else t[1]
        n.op("GATHER", [t[4], index], [row := n.tensor((BATCH, WIDTH))], options("GatherOptions"))
        sums = [weighed(n, row, kernels[0], rng.normal(size=UNITS), form), weighed(n, t[3], kernels[1], None, form)]
        total = binary(n, "ADD", *sums, hidden)
        if other == "counted":
            n.op("CAST", [t[0]], [number := n.tensor(())], options("CastOptions"))
            total = binary(n, "MUL", total, number, hidden)
        if other.startswith("read"):
            n.op("REDUCE_MAX", [t[2], n.const([0, 1, 2], "int32")], [top := n.tensor(())], options("ReducerOptions"))
            total = binary(n, "ADD", total, top, hidden)
        n.op("TANH", [total], [tanh := n.tensor(hidden)])
        n.op("NEG", [tanh], [h := n.tensor(hidden)])
        found = put(n, t[2], t[1], after[1], h, count, other)
        whole = binary(n, "ADD", t[4], t[4], sequence[0]) if other == "changing" else t[4]
        return [*after, found, h, whole]

    begun = [net.const(start, "int32"), net.const(start, "int32")]
    operands = [*begun, net.const(np.ones(rows)), net.input(hidden, name="h"), net.input(sequence[0], name="x")]
    results = [net.output(shape, kind) for shape, kind in kinds]
    return loop(net, operands, results, (subgraph(net, kinds, test), subgraph(net, kinds, step)))


def found(content: bytes) -> Counter[str]:
    return Counter(node.op_type for node in read(content).graph)


@pytest.mark.parametrize("form", ["real", "halves", "bytes"])
@pytest.mark.parametrize("other", ["", "update"])
def test_rows_of_a_known_number_are_a_scan(other: str, form: str) -> None:
    content = recurrent(other, form).bytes()
    model = read(content)
    (scan,) = [node for node in model.graph if node.op_type == "Scan"]
    inside = Counter(node.op_type for node in scan.attributes["body"].as_graph())
    assert not {"Gather", "Slice", "Concat", "Less", "Cast"} & set(inside) - ({"Cast"} if form == "bytes" else set())
    # One product is left in the body: that of the rows is computed before.
    assert inside["Gemm"] == 1
    assert verify(content, convert(model).model).ok
    agree(content, target=FAST)
    if form != "bytes":  # beside bytes LiteRT rounds rows, as is done for the target alone
        agree(content)


def test_a_counter_that_is_read_is_a_state() -> None:
    content = recurrent("counted").bytes()
    model = read(content)
    (scan,) = [node for node in model.graph if node.op_type == "Scan"]
    assert "Cast" in {node.op_type for node in scan.attributes["body"].as_graph()}
    agree(content)


def test_a_list_that_a_round_reads_is_a_state() -> None:
    content = recurrent("read update").bytes()
    (scan,) = [node for node in read(content).graph if node.op_type == "Scan"]
    assert "Where" in {node.op_type for node in scan.attributes["body"].as_graph()}
    agree(content)


@pytest.mark.parametrize(
    "more",
    [
        {"start": 1},
        {"rounds": TIME - 1},
        {"other": "read"},
        {"other": "turned"},
        {"other": "behind", "rounds": TIME - 1},
        {"other": "twos"},
        {"other": "next", "rounds": TIME - 1},
        {"other": "changing"},
    ],
)
def test_other_loops_stay(more: dict[str, Any]) -> None:
    content = recurrent(**more).bytes()
    assert (found(content)["Loop"], found(content)["Scan"]) == (1, 0)
    agree(content)


def test_a_loop_over_rows_moves_no_more_bytes() -> None:
    assert convert(read(recurrent().bytes())).report.bytes == 0


def test_options_of_another_operator_are_refused_wherever_they_are_looked_at() -> None:
    """Of every operator in the loop: its rows are looked at before any of them is translated, and some never are."""
    refused = []
    for graph, operators in enumerate(s.operators for s in recurrent().model.subgraphs):
        for place, operator in enumerate(operators):
            if operator.builtinOptions is None:
                continue
            net = recurrent()
            wrong = net.model.subgraphs[graph].operators[place]
            kind = type(operator.builtinOptions).__name__.removesuffix("T")
            wrong.builtinOptionsType = schema.BuiltinOptions.LSHProjectionOptions
            wrong.builtinOptions = options("LSHProjectionOptions")
            try:
                read(net.bytes())
            except ReadError as error:
                assert f"LSHProjectionOptions, not {kind}" in str(error)  # noqa: PT017 - either outcome is right
                refused.append(kind)
    assert {"GatherOptions", "ConcatenationOptions", "AddOptions", "FullyConnectedOptions"} <= set(refused)
