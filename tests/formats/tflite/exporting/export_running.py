"""Export a model to `.tflite`, run it in LiteRT and hold it against ONNX Runtime."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
from node_tests import run

import relayout
from relayout.formats.tflite.container.loading import load
from rules.law import Array, with_runtime

KERNELS = ("default", "reference")
"""Kernels that LiteRT has."""
LACKING = re.compile(
    r"Didn't find op for builtin opcode "
    r"'(ELU|ROUND|CEIL|TILE|DEPTH_TO_SPACE|RANGE|HASHTABLE|STABLEHLO_AND|STABLEHLO_SHIFT_LEFT)'"
)
"""Builtins of which LiteRT has no reference kernel."""
FLOATS = {"float32": 1e-5, "float16": 2e-3, "float64": 1e-5}
"""Type -> how far apart floats may be, as a part of the largest one."""


def agrees(
    model: onnx.ModelProto,
    feed: Mapping[str, Array],
    *,
    expected: Sequence[Array] | None = None,
    kernels: Sequence[str] = KERNELS,
    tolerance: float = 1.0,
    **options: str,
) -> None:
    """Assert that the `.tflite` of a model computes what ONNX Runtime computes.

    Args:
        model: the source.
        feed: its inputs.
        expected: its outputs; None: ONNX Runtime's.
        kernels: which kernels run the file, of `KERNELS`.
        tolerance: a factor of `FLOATS`.
        options: of the conversion.

    Raises:
        UnsupportedError: the model cannot be exported.
    """
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.tflite"
        relayout.convert(model, format="tflite", **options).save(path)  # type: ignore[arg-type]  # which reads it back
        content = path.read_bytes()
    assert not same_names(content)
    names = [value.name for value in model.graph.output]
    wanted = with_runtime(model, feed) if expected is None else expected
    for kind in kernels:
        try:
            got = run(content, feed, reference=kind == "reference")
        except ValueError as error:
            if kind == "reference" and LACKING.search(str(error)):
                continue
            raise
        for name, result, array in zip(names, got, wanted, strict=True):
            assert_close(result, array, f"{name} with {kind} kernels", tolerance)


def same_names(content: bytes) -> list[str]:
    """The names that several tensors of a graph have: quantizers look tensors up by their names."""
    graphs = (Counter(tensor.name for tensor in graph.tensors) for graph in load(content).subgraphs)
    return [name for names in graphs for name, count in names.items() if count > 1]


def run_close(content: bytes, feed: Mapping[str, Array], wanted: Sequence[Array]) -> None:
    """Assert that a `.tflite` computes some arrays, with its usual kernels."""
    for place, (result, array) in enumerate(zip(run(content, dict(feed)), wanted, strict=True)):
        assert_close(result, array, f"output {place}")


def assert_close(got: Array, wanted: Array, what: str, tolerance: float = 1.0) -> None:
    """Assert that two arrays are equal, floats up to a part of the largest."""
    assert got.dtype == wanted.dtype, f"{what}: {got.dtype} instead of {wanted.dtype}"
    assert got.shape == wanted.shape, f"{what}: {got.shape} instead of {wanted.shape}"
    if wanted.dtype.kind != "f":
        np.testing.assert_array_equal(got, wanted, what)
        return
    finite = np.abs(wanted[np.isfinite(wanted)]).astype(np.float64)
    largest = float(finite.max(initial=0.0))
    step = FLOATS[wanted.dtype.name] * tolerance
    np.testing.assert_allclose(got, wanted, rtol=0, atol=step * (largest or 1.0), err_msg=what)
