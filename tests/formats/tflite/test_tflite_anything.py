"""Random models of single operators, over their option space, against the interpreter."""

from __future__ import annotations

import pytest
from tflite_anything import FAMILIES, model
from tflite_running import compare

from relayout.errors import UnsupportedError

FEW, MANY = range(5), range(5, 60)


def seeds() -> list[object]:
    return [*FEW, *(pytest.param(seed, marks=pytest.mark.slow) for seed in MANY)]


@pytest.mark.parametrize("seed", seeds())
@pytest.mark.parametrize("name", FAMILIES)
def test_any_options(name: str, seed: int) -> None:
    net = model(name, seed)
    quantized = any(t.quantization is not None for t in net.graph.tensors)
    for result in compare(net.bytes(), net.ranges):
        assert result.error <= result.tolerance(quantized) + net.slack, result


@pytest.mark.parametrize("seed", seeds())
@pytest.mark.parametrize("name", FAMILIES)
def test_any_options_of_open_extents(name: str, seed: int) -> None:
    """The same although the file states no extent at all; only a number of channels has to be known."""
    net = model(name, seed, opened=True)
    quantized = any(t.quantization is not None for t in net.graph.tensors)
    try:
        results = compare(net.bytes(), net.ranges)
    except UnsupportedError as error:
        assert "number of channels" in str(error)  # noqa: PT017 - either outcome is right
        return
    for result in results:
        assert result.error <= result.tolerance(quantized) + net.slack, result
