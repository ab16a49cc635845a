"""There and back: `.tflite` to ONNX to `.tflite` computes in LiteRT what the first file computes, run after run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from tflite_cases_recurrent import lstm

import relayout
from relayout.formats.tflite.container.loading import load
from relayout.formats.tflite.states import STATES
from rules.law import Array
from text_form import floats

KERNELS = (OpResolverType.AUTO, OpResolverType.BUILTIN_REF)
FUSED = "UNIDIRECTIONAL_SEQUENCE_LSTM"


def operators(content: bytes) -> list[str]:
    return [operator.name for graph in load(content).subgraphs for operator in graph.operators]


def results_of_runs(content: bytes, feeds: Sequence[Array], kernels: OpResolverType) -> list[Array]:
    """Return the first output of several runs of one interpreter."""
    interpreter = Interpreter(model_content=content, experimental_op_resolver_type=kernels)
    interpreter.allocate_tensors()
    found = []
    for feed in feeds:
        interpreter.set_tensor(interpreter.get_input_details()[0]["index"], feed)
        interpreter.invoke()
        found.append(interpreter.get_tensor(interpreter.get_output_details()[0]["index"]))
    return found


def there_and_back(source: bytes, folder: Path, *, keep_mark: bool = True) -> bytes:
    relayout.convert(source).save(folder / "there.onnx")
    model = onnx.load(folder / "there.onnx")
    for node in () if keep_mark else model.graph.node:
        del node.metadata_props[:]
    result = relayout.convert(model, format="tflite")
    result.save(folder / "back.tflite")
    return (folder / "back.tflite").read_bytes()


KINDS = [
    {},
    {"time_major": True},
    {"cifg": True},
    {"peephole": True},
    {"peephole": True, "cifg": True},
    {"activation": 1},
]


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_there_and_back_is_the_operator_of_the_source_over_several_runs(
    kind: dict[str, bool], kernels: OpResolverType, tmp_path: Path
) -> None:
    source = lstm(**kind).bytes()  # type: ignore[arg-type]
    back = there_and_back(source, tmp_path)
    assert operators(back) == operators(source) == [FUSED]
    shape = load(source).subgraphs[0].tensors[load(source).subgraphs[0].inputs[0]].shape
    feeds = [floats(*shape) for _ in range(3)]
    pairs = zip(results_of_runs(source, feeds, kernels), results_of_runs(back, feeds, kernels), strict=True)
    for wanted, result in pairs:
        np.testing.assert_array_equal(result, wanted)


def test_an_lstm_that_does_not_say_that_its_states_are_kept_begins_anew(tmp_path: Path) -> None:
    source = lstm().bytes()
    back = there_and_back(source, tmp_path, keep_mark=False)
    assert operators(back) == ["UNPACK", FUSED]
    first, second = results_of_runs(back, [floats(2, 5, 3)] * 2, KERNELS[0])
    np.testing.assert_array_equal(first, second)


def test_a_state_that_is_an_input_is_not_said_to_be_kept() -> None:
    model = relayout.convert(lstm().bytes(), state="io").model
    assert not any(STATES in node.metadata_props for node in model.graph)
    zero = relayout.convert(lstm().bytes()).model
    assert any(STATES in node.metadata_props for node in zero.graph)
