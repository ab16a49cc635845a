"""Recurrent operators of integers, and hybrid ones, held against LiteRT's step by step."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from tflite_cases_recurrent import lstm, quantized_lstm

import relayout
from relayout.verification import Verdict, verify
from relayout.verification.compare import Tolerance
from relayout.verification.feeds import random_feed
from relayout.verification.matching import match_interface
from relayout.verification.side import open_side
from relayout.verification.stepwise import JudgedValue, Stepwise


def step(source: bytes, model: ir.Model, seed: int) -> JudgedValue:
    with open_side(source) as left, open_side(model) as right:
        inputs, _, _ = match_interface(left.inputs, right.inputs)
        outputs, _, _ = match_interface(left.outputs, right.outputs)
        rng = np.random.default_rng(seed)
        feeds = {v.name: random_feed(v, v.fallback or (), rng, True) for v in left.inputs}
        (found,) = Stepwise(left, right, inputs, outputs, Tolerance(1e-5, 1e-6)).judge(feeds).values()
        return found


@pytest.mark.parametrize("quant", ["qdq", "float"])
@pytest.mark.slow
def test_each_step_of_an_integer_lstm_is_a_step_off_at_most(quant: str) -> None:
    """A Scan on integers, an LSTM or a Scan on floats."""
    for net in (quantized_lstm(), quantized_lstm(projection=3), quantized_lstm(cifg=True)):
        model = relayout.convert(net.bytes(), quant=quant).model
        for seed in range(3):
            found = step(net.bytes(), model, seed)
            assert found.verdict.passes
            assert found.difference.max_abs <= 1


@pytest.mark.parametrize("kind", ["LSTM", "projected"])
def test_a_wrong_recurrent_kernel_is_found(kind: str) -> None:
    net = quantized_lstm(projection=3 if kind == "projected" else 0)
    model = relayout.convert(net.bytes(), quant="float").model
    weights = [value for value in model.graph.initializers.values() if value.shape is not None and len(value.shape) > 1]
    for value in weights:
        assert value.const_value is not None
        value.const_value = ir.tensor(np.array(value.const_value.numpy()) * np.float32(1.2), name=value.name)
    assert not step(net.bytes(), model, 0).verdict.passes


def test_a_hybrid_lstm_rounds_its_own_results_as_it_does_its_operand() -> None:
    content = lstm(hybrid=True).bytes()
    model = relayout.convert(content, quant="float").model
    found = step(content, model, 0)
    assert found.verdict is Verdict.CLOSE
    assert found.difference.max_rel < 1e-5
    plain = verify(content, model, rtol=1e-7, atol=0).outputs[0].difference
    assert plain is not None
    assert plain.max_rel > 1e-3
