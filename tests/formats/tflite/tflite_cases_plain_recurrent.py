"""Small recurrent networks without gates."""

from __future__ import annotations

from collections.abc import Iterator

from tflite_cases import cases, rng
from tflite_cases_recurrent import BATCH, COLUMNS, RELU, RELU6, TANH, TIME, UNITS, Weights
from tflite_writing import Net, Scale, options


@cases("RNN", "UNIDIRECTIONAL_SEQUENCE_RNN")
def rnns() -> Iterator[Net]:
    for name, major in (("RNN", False), ("UNIDIRECTIONAL_SEQUENCE_RNN", False), ("UNIDIRECTIONAL_SEQUENCE_RNN", True)):
        for activation, hybrid in ((TANH, False), (RELU, False), (RELU6, False), (0, False), (TANH, True)):
            net = Net()
            weights = Weights(net, rng(), hybrid)
            lead = (BATCH,) if name == "RNN" else (TIME, BATCH) if major else (BATCH, TIME)
            operands = [net.input((*lead, COLUMNS)), weights(UNITS, COLUMNS), weights(UNITS, UNITS), weights(UNITS)]
            operands += [net.tensor((BATCH, UNITS), variable=True)]
            more = {} if name == "RNN" else {"timeMajor": major}
            kind = "RNNOptions" if name == "RNN" else "SequenceRNNOptions"
            table = options(kind, fusedActivationFunction=activation, **more)
            net.slack = 0.05 if hybrid else 0
            yield net.op(name, operands, [net.output((*lead, UNITS))], table, version=2)


@cases("BIDIRECTIONAL_SEQUENCE_RNN")
def bidirectional_rnns() -> Iterator[Net]:
    for merge, major, auxiliary, hybrid in (
        (False, False, "", False),
        (True, True, "", False),
        (True, False, "both", False),
        (False, True, "backward", False),
        (False, False, "", True),
    ):
        net = Net()
        weights = Weights(net, rng(), hybrid)
        shape = (TIME, BATCH, COLUMNS) if major else (BATCH, TIME, COLUMNS)
        operands = [net.input(shape)]
        for _ in range(2):
            operands += [weights(UNITS, COLUMNS), weights(UNITS, UNITS), weights(UNITS)]
            operands += [net.tensor((BATCH, UNITS), variable=True)]
        operands += [net.input(shape) if auxiliary else -1]
        operands += [weights(UNITS, COLUMNS) if auxiliary == "both" else -1 for _ in range(2)]
        table = options(
            "BidirectionalSequenceRNNOptions", fusedActivationFunction=TANH, mergeOutputs=merge, timeMajor=major
        )
        results = [net.output((*shape[:2], UNITS * (2 if merge else 1))) for _ in range(1 if merge else 2)]
        net.slack = 0.05 if hybrid else 0
        yield net.op("BIDIRECTIONAL_SEQUENCE_RNN", operands, results, table, version=3)


@cases("SVDF")
def svdfs() -> Iterator[Net]:
    memory = 5
    for rank in (1, 2):
        for activation, bias, hybrid in ((0, True, False), (RELU, False, False), (0, True, True)):
            net, units = Net(), 4
            weights, filters = Weights(net, rng(), hybrid), units * rank
            operands = [net.input((BATCH, COLUMNS)), weights(filters, COLUMNS)]
            operands += [Weights(net, rng(3), hybrid)(filters, memory), weights(units) if bias else -1]
            operands += [net.tensor((BATCH, filters * memory), variable=True)]
            net.slack = 0.05 if hybrid else 0
            table = options("SVDFOptions", rank=rank, fusedActivationFunction=activation)
            yield net.op("SVDF", operands, [net.output((BATCH, units))], table, version=2)
        net, random, units = Net(), rng(), 4
        filters = units * rank
        x, w, s, fine = Scale(0.02, 5), Scale(0.01), Scale(0.0005), 2e-5
        operands = [net.input((BATCH, COLUMNS), "int8", q=x)]
        operands += [net.const(random.integers(-127, 128, (filters, COLUMNS)), "int8", q=w)]
        operands += [net.const(random.integers(-30000, 30000, (filters, memory)), "int16", q=Scale(fine))]
        operands += [net.const(random.integers(-900, 900, units), "int32", q=Scale(s.scale * fine))]
        operands += [net.tensor((BATCH, filters * memory), "int16", q=s, variable=True)]
        table = options("SVDFOptions", rank=rank, fusedActivationFunction=RELU)
        y = net.output((BATCH, units), "int8", q=Scale(0.005, -20))
        yield net.op("SVDF", operands, [y], table, version=3)
