"""A `.tflite` in LiteRT with each of its kernel sets: its operators, and several runs of one interpreter."""

from __future__ import annotations

from collections.abc import Sequence

from ai_edge_litert.interpreter import Interpreter, OpResolverType

from relayout.formats.tflite.container.loading import load
from rules.law import Array

KERNELS = (OpResolverType.AUTO, OpResolverType.BUILTIN_REF)
FUSED = "UNIDIRECTIONAL_SEQUENCE_LSTM"


def operators(content: bytes) -> list[str]:
    """Return the operators of all subgraphs, by name."""
    return [operator.name for graph in load(content).subgraphs for operator in graph.operators]


def results_of_runs(content: bytes, feeds: Sequence[Array], kernels: OpResolverType) -> list[Array]:
    """Return the first output of several runs of one interpreter, whose input may have other extents in each."""
    interpreter = Interpreter(model_content=content, experimental_op_resolver_type=kernels)
    interpreter.allocate_tensors()
    results = []
    for feed in feeds:
        if feed.shape != tuple(interpreter.get_input_details()[0]["shape"]):
            interpreter.resize_tensor_input(interpreter.get_input_details()[0]["index"], feed.shape)
            interpreter.allocate_tensors()
        interpreter.set_tensor(interpreter.get_input_details()[0]["index"], feed)
        interpreter.invoke()
        results.append(interpreter.get_tensor(interpreter.get_output_details()[0]["index"]))
    return results


def every_result_of_runs(
    content: bytes, feeds: Sequence[Sequence[Array]], kernels: OpResolverType
) -> list[list[Array]]:
    """Return all outputs of several runs of one interpreter, each of which is fed all inputs."""
    interpreter = Interpreter(model_content=content, experimental_op_resolver_type=kernels)
    interpreter.allocate_tensors()
    results = []
    for feed in feeds:
        for place, array in zip(interpreter.get_input_details(), feed, strict=True):
            interpreter.set_tensor(place["index"], array)
        interpreter.invoke()
        results.append([interpreter.get_tensor(place["index"]) for place in interpreter.get_output_details()])
    return results
