"""Paths that tests share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

from relayout import cli

sys.path.insert(0, str(Path(__file__).parent))

SHARED = Path(__file__).parents[2] / "shared" / "models" / "tflite"
"""Real models, beside the project; tests that need them skip where they are absent."""


KERAS = Path(__file__).parent / "data" / "keras"
"""Tiny Keras networks, made by `bench/make_keras.py --tiny`."""


def shared_models(*folders: str) -> list[Path]:
    """The models of some folders, in order; none where they are absent."""
    return [path for folder in folders for path in sorted((SHARED / folder).glob("*.tflite"))]


HELD = (1, 31)
"""The ONNX Runtime that the tests are held to. An older one (the last for Python 3.10 is 1.23) lacks some kernels."""
OLDER = tuple(map(int, version("onnxruntime").split(".")[:2])) < HELD

LACKS = ("NOT_IMPLEMENTED", "opset", "Opset", "IR version", "ValidateNoTransposeReduce", "is not a registered function")

WRONG = (
    "test_any_options[reductions-4]",  # QuantizeLinear fails, or uint8 results are four steps apart
    "test_any_options_of_open_extents[reductions-4]",
    "test_any_options_of_open_extents[upsampled-0]",
    "test_rows_far_from_zero_keep_their_digits",  # LayerNormalization loses them
    "test_a_scale_for_each_place_keeps_a_normalization_in_its_order",  # LayerNormalization refuses the scale
    "test_operators_whose_shapes_nobody_states[",
    "test_nothing_is_moved[an average]",
    "test_run_of_relaid_equals_relaid_run[Einsum-21-",  # Einsum fails
    "[convert-coral/keras_lstm_mnist_ptq.tflite]",  # its optimizer loses a graph's output
    "[keep-coral/keras_lstm_mnist_ptq.tflite]",
    "test_deployed_models_agree[",
    "test_functions_shared.py::test_operators_that_give_different_outputs",  # it knows no overloads of functions
    "test_functions_shared.py::test_the_way_back_and_again",
    "test_a_resize_of_blocks_by_a_whole_number_stays_there[2-b = HardSwish(a)-True]",  # it has none in blocks
)
"""Tests that ONNX Runtime 1.23 fails and 1.31 passes."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Skip, and say so, what an older ONNX Runtime than the one that the tests are held to lacks or gets wrong."""
    try:
        return (yield)
    except Exception as error:
        from_it = type(error).__module__.startswith("onnxruntime")
        if OLDER and from_it and any(word in str(error) for word in LACKS):
            pytest.skip(f"ONNX Runtime {version('onnxruntime')} lacks it: {str(error).splitlines()[0][:120]}")
        if OLDER and any(name in item.nodeid for name in WRONG):
            pytest.skip(f"ONNX Runtime {version('onnxruntime')} gets it wrong: {str(error).strip()[:120]}")
        raise


TERMINAL = ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLORTERM", "COLUMNS", "LINES")
"""What a caller's terminal says of itself, to which `rich` listens."""


@pytest.fixture(autouse=True)
def plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever terminal the tests are called from, they see the same."""
    for name in TERMINAL:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


class Ran:
    """Exit code and what was printed."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


@pytest.fixture
def relayout(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> object:
    def call(*arguments: object) -> Ran:
        monkeypatch.setattr("sys.argv", ["relayout", *map(str, arguments)])
        monkeypatch.setenv("COLUMNS", "200")
        code = 0
        try:
            cli.main()
        except SystemExit as stopped:
            code = int(stopped.code or 0)
        printed = capsys.readouterr()
        return Ran(code, printed.out, printed.err)

    return call
