"""Every registered operator, over its options, against the interpreter."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from tflite_cases import CASES, WITHOUT_KERNEL, every
from tflite_running import check_model, compare, feed, interpreter, read, run_interpreter, session

from relayout.errors import UnsupportedError
from relayout.formats.tflite.importing.registry import entries

MODELS = every()


@pytest.mark.parametrize("name", MODELS)
def test_import_computes_what_the_interpreter_computes(name: str) -> None:
    net = MODELS[name]
    for result in compare(net.bytes(), net.ranges, expected=net.expected):
        quantized = any(t.quantization is not None for t in net.graph.tensors)
        assert result.error <= result.tolerance(quantized) + net.slack, result


QUANTIZED = [
    name for name, net in MODELS.items() if net.meant and any(t.quantization is not None for t in net.graph.tensors)
]


@pytest.mark.parametrize("name", QUANTIZED)
def test_dequantized_import_computes_what_the_integers_mean(name: str) -> None:
    net = MODELS[name]
    content, tensors, rng = net.bytes(), net.graph.tensors, np.random.default_rng(0)
    plain = session(check_model(read(content, quant="float")))
    made = interpreter(content)
    details = made.get_input_details()
    inputs = [feed(rng, tuple(d["shape"]), d["dtype"], *r) for d, r in zip(details, net.ranges, strict=True)]
    wanted = run_interpreter(made, inputs)
    given = [real(tensors[i], value) for i, value in zip(net.graph.inputs, inputs, strict=True)]
    got = plain.run(None, dict(zip([i.name for i in plain.get_inputs()], given, strict=True)))
    for index, a, b in zip(net.graph.outputs, got, wanted, strict=True):
        tensor = tensors[index]
        assert a.dtype == real(tensor, b).dtype
        assert a.shape == b.shape
        if not a.size:
            continue
        if tensor.quantization is None:
            assert np.abs(a.astype(float) - b.astype(float)).max() <= 1e-4 + net.slack
            continue
        info = np.iinfo(b.dtype)
        low, high = (real(tensor, np.full_like(b, end)) for end in (info.min, info.max))
        unit = np.max(tensor.quantization.scale) if a.dtype.kind == "f" else 1
        steps = np.abs(np.clip(a, low, high) - real(tensor, b)) / unit
        assert steps.max() <= 1.01


def real(tensor: Any, value: Any) -> Any:
    """What a tensor's integers mean."""
    q = tensor.quantization
    if q is None or value.dtype not in (np.int8, np.uint8, np.int16):
        return value
    shape = [1] * value.ndim
    if len(q.scale) > 1:
        shape[q.quantizedDimension] = -1
    scale, zero = (np.asarray(v, np.float32).reshape(shape if len(q.scale) > 1 else ()) for v in (q.scale, q.zeroPoint))
    return ((value.astype(np.float32) - zero) * scale).astype(np.float32)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_oldest_opset(name: str) -> None:
    net = MODELS[name]
    try:
        results = compare(net.bytes(), net.ranges, opset=18, expected=net.expected)
    except UnsupportedError as error:
        assert "needs opset 21" in str(error)  # noqa: PT017 - either outcome is right
        return
    for result in results:
        assert result.error <= result.tolerance(name in QUANTIZED) + net.slack, result


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_unknown_leading_dimension(name: str) -> None:
    """The same numbers although the file leaves the first extent of every input open."""
    net = copy.deepcopy(MODELS[name])
    for index in (*net.graph.inputs, *net.graph.outputs):
        tensor = net.graph.tensors[index]
        if tensor.shape:
            tensor.shapeSignature = [-1, *tensor.shape[1:]]
    try:
        results = compare(net.bytes(), net.ranges, expected=net.expected)
    except UnsupportedError as error:
        assert "unknown dimension" in str(error)  # noqa: PT017 - either outcome is right
        return
    for result in results:
        assert result.error <= result.tolerance(name in QUANTIZED) + net.slack, result


def test_every_operator_has_a_case() -> None:
    exercised = {name for name, functions in CASES.items() if functions}
    assert set(entries()) == exercised | WITHOUT_KERNEL.keys()


def test_the_cases_exercise_what_they_are_named_for() -> None:
    from ai_edge_litert import schema_py_generated as schema

    names = {v: k for k, v in vars(schema.BuiltinOperator).items() if isinstance(v, int)}
    used = {
        names[code.builtinCode] + (f" {code.customCode}" if code.customCode else "")
        for net in MODELS.values()
        for code in net.model.operatorCodes
    }
    assert used == set(CASES)
