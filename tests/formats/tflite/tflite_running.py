"""Run a TFLite model and its import on the same inputs, and measure how far apart they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from products import in_full
from relayout.formats import tflite
from relayout.formats.tflite.container.loading import load
from relayout.formats.tflite.importing.program import Choices
from relayout.formats.tflite.importing.tensors import DTYPES
from relayout.targets import DesiredLayouts

SHARED = Path(__file__).parents[3].parent / "shared" / "models" / "tflite"

FAST = "onnxruntime-cpu"
"""The target that tunes what is imported."""


def read(source: Path | str | bytes, *, target: str | None = None, **reading: Any) -> ir.Model:
    """A model as a conversion reads it: for a target, or for every runtime."""
    return tflite.read(source, Choices(passes=DesiredLayouts.of(target=target).tflite, **reading))


@dataclass(frozen=True)
class Comparison:
    """One output: the largest difference from the interpreter, and from one of its kernels to the other."""

    dtype: np.dtype[Any]
    error: float
    spread: float
    largest: float
    unequal: float

    def tolerance(self, quantized: bool) -> float:
        if self.dtype == np.float16:
            return 2**-9 * max(self.largest, 1.0) + self.spread  # two units in the last place
        if self.dtype.kind == "f":
            return 1e-5 * max(self.largest, 1.0) + self.spread
        return self.spread + (1 if quantized and self.dtype.kind != "b" else 0)


def interpreter(content: bytes, *, reference: bool = False, resize: dict[int, tuple[int, ...]] | None = None) -> Any:
    kind = OpResolverType.BUILTIN_REF if reference else OpResolverType.AUTO
    made = Interpreter(model_content=content, num_threads=1, experimental_op_resolver_type=kind)
    for position, shape in (resize or {}).items():
        made.resize_tensor_input(made.get_input_details()[position]["index"], shape)
    made.allocate_tensors()
    return made


def feed(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any, low: float = -2, high: float = 2) -> Any:
    """Random numbers; smooth ones where the tensor looks like an image, since noise saturates quantized networks."""
    dtype = np.dtype(dtype)
    if dtype == np.bool_:
        return rng.integers(0, 2, shape).astype(bool)
    if len(shape) == 4 and shape[3] in (1, 3) and shape[1] * shape[2] >= 1024:
        return _image(rng, shape, dtype)
    if dtype.kind == "f":
        return rng.uniform(low, high, shape).astype(dtype)
    info = np.iinfo(dtype)
    if dtype.itemsize == 1 and (low, high) == (-2, 2):
        low, high = info.min, info.max
    return rng.integers(max(int(low), info.min), min(int(high), info.max) + 1, shape).astype(dtype)


def _image(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    n, h, w, c = shape
    y, x = np.mgrid[0:h, 0:w]
    waves = np.zeros(shape)
    for _ in range(4):
        fx, fy, phase = rng.uniform(0, 6, 3)
        wave = np.sin(2 * np.pi * (fx * x / w + fy * y / h) + phase)
        waves += wave[None, :, :, None] * rng.uniform(0.3, 1, (n, 1, 1, c))
    waves = (waves - waves.min()) / np.ptp(waves)
    if dtype.kind == "f":
        return (waves * 2 - 1).astype(dtype)
    info = np.iinfo(dtype)
    return (waves * 255 + (info.min if dtype.itemsize == 1 else 0)).astype(dtype)


def run_interpreter(made: Any, inputs: list[Any]) -> list[Any]:
    for detail, value in zip(made.get_input_details(), inputs, strict=True):
        made.set_tensor(detail["index"], value)
    made.invoke()
    # The interpreter has no tensor for a result without elements.
    details = made.get_output_details()
    return [
        made.get_tensor(detail["index"]) if np.prod(detail["shape"]) else np.zeros(detail["shape"], detail["dtype"])
        for detail in details
    ]


def check_model(model: ir.Model) -> bytes:
    """The model's bytes, after ONNX's checker, and checks of what that leaves out.

    Nothing is without type and shape, and the axis of scales is one that there is: where a runtime fuses a unit of
    integers it does not look.
    """
    proto = ir.to_proto(model)
    onnx.checker.check_model(proto, full_check=True)
    for node in model.graph.all_nodes():
        if node.op_type in ("DequantizeLinear", "QuantizeLinear") and len(node.inputs[1].shape) > 0:
            rank = len(node.inputs[0].shape)
            assert -rank <= node.attributes.get_int("axis", 1) < rank, node
        for value in node.outputs:
            assert value.dtype is not None, value
            assert value.shape is not None, value
    return proto.SerializeToString()


def session(content: bytes) -> onnxruntime.InferenceSession:
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    settings.log_severity_level = 3
    return onnxruntime.InferenceSession(in_full(content), settings, providers=["CPUExecutionProvider"])


def compare(
    content: bytes,
    ranges: list[tuple[float, float]] | None = None,
    *,
    seed: int = 0,
    resize: dict[int, tuple[int, ...]] | None = None,
    expected: Callable[..., Any] | None = None,
    **reading: Any,
) -> list[Comparison]:
    """Import a model, run both, and compare output by output; shapes and types must be equal.

    `reading` are options of `read`; `expected` stands in for the interpreter, which then must have refused the model
    for want of a kernel.
    """
    rng = np.random.default_rng(seed)
    imported = session(check_model(read(content, **reading)))
    if expected is not None:
        with pytest.raises((ValueError, RuntimeError), match=r"Didn't find op for builtin opcode|Flex delegate"):
            interpreter(content)
        return _compare_with(imported, content, expected, ranges or [], rng)
    default = interpreter(content, resize=resize)
    details = default.get_input_details()
    limits = ranges or [(-2.0, 2.0)] * len(details)
    inputs = [feed(rng, tuple(d["shape"]), d["dtype"], *limit) for d, limit in zip(details, limits, strict=True)]
    wanted = run_interpreter(default, inputs)
    try:
        reference = run_interpreter(interpreter(content, reference=True, resize=resize), inputs)
    except (ValueError, RuntimeError):
        reference = wanted  # some operators have no reference kernel
    names = [i.name for i in imported.get_inputs()]
    got = imported.run(None, dict(zip(names, inputs, strict=True)))
    assert len(got) == len(wanted)
    return [_compare(*three) for three in zip(got, wanted, reference, strict=True)]


def agree(content: bytes, ranges: list[tuple[float, float]] | None = None, **more: Any) -> None:
    """Assert that a model's import and the interpreter are as close as their kernels allow."""
    for result in compare(content, ranges, **more):
        assert result.error <= result.tolerance(quantized=True), result


def _compare_with(
    imported: onnxruntime.InferenceSession, content: bytes, expected: Callable[..., Any], ranges: Any, rng: Any
) -> list[Comparison]:
    subgraph = load(content).subgraphs[0]
    tensors = [subgraph.tensors[i] for i in subgraph.inputs]
    inputs = [feed(rng, t.shape, DTYPES[t.type].numpy(), *r) for t, r in zip(tensors, ranges, strict=True)]
    wanted = expected(*inputs)
    wanted = list(wanted) if isinstance(wanted, tuple) else [wanted]
    types = [DTYPES[subgraph.tensors[i].type].numpy() for i in subgraph.outputs]
    wanted = [np.asarray(w).astype(t) for w, t in zip(wanted, types, strict=True)]
    got = imported.run(None, {i.name: value for i, value in zip(imported.get_inputs(), inputs, strict=True)})
    return [_compare(a, b, b) for a, b in zip(got, wanted, strict=True)]


def _compare(got: Any, wanted: Any, reference: Any) -> Comparison:
    assert got.shape == wanted.shape, (got.shape, wanted.shape)
    assert got.dtype == wanted.dtype, (got.dtype, wanted.dtype)
    if not got.size:
        return Comparison(got.dtype, 0.0, 0.0, 0.0, 0.0)
    with np.errstate(invalid="ignore"):  # bits that are no number
        a, b, c = (np.asarray(v, np.float64) for v in (got, wanted, reference))
        apart = np.abs(b - c) if b.shape == c.shape else np.zeros(1)
    spread = float(np.max(apart, initial=0.0, where=np.isfinite(apart)))
    assert np.array_equal(np.isnan(a), np.isnan(b))
    if got.dtype.kind in "iu":  # exact, also beyond 53 bits
        high, low = (f(got, wanted).astype(np.uint64) for f in (np.maximum, np.minimum))
        difference = (high - low).astype(np.float64)
    else:
        with np.errstate(invalid="ignore"):  # infinity less infinity
            difference = np.where((a == b) | np.isnan(a), 0.0, np.abs(a - b))
    largest = float(np.max(np.abs(b), initial=0.0, where=np.isfinite(b)))
    return Comparison(got.dtype, float(difference.max()), spread, largest, float((got != wanted).mean()))
