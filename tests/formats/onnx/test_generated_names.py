"""Constants of a model that a runtime's optimizer wrote: every result loads at every level of optimization."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import relayout
from running import run
from text_form import floats, model

LEVELS = [
    ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
]
USES = {
    "Reshapes that go": ("r{place} = Reshape({before}, {name})  q{place} = Relu(r{place})", np.array([1, 5, 8])),
    "constants that are folded": ("f{place} = Neg({name})  q{place} = Add({before}, f{place})", floats(1, 5, 8)),
    "nobody": ("q{place} = Abs({before})", floats(1, 5, 8)),
}


def source(names: list[str], use: str) -> onnx.ModelProto:
    """Products of matrices, which the optimizer makes Gemms between Reshapes; constants have the names of these."""
    body, array = USES[use]
    values = ["d", *(f"q{place}" for place in range(len(names)))]
    text = "  ".join(body.format(place=place, name=name, before=values[place]) for place, name in enumerate(names))
    layers = "a = MatMul(x, w)  b = Add(a, v)  c = MatMul(b, u)  d = Add(c, t)"
    proto = model(
        f"g (float[1,5,8] x) => (float[1,5,8] y) {{ {layers}  {text}  y = Relu({values[-1]}) }}",
        w=floats(8, 8),
        v=floats(8),
        u=floats(8, 8, seed=1),
        t=floats(8, seed=1),
        **dict.fromkeys(names, array),
    )
    del proto.graph.value_info[:]
    return proto


def load(proto: onnx.ModelProto, level: ort.GraphOptimizationLevel) -> np.ndarray:
    options = ort.SessionOptions()
    options.log_severity_level, options.graph_optimization_level = 4, level
    session = ort.InferenceSession(proto.SerializeToString(), options, ["CPUExecutionProvider"])
    return session.run(None, {"x": floats(1, 5, 8)})[0]


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("kind", ["gemm_input_shape", "gemm_output_shape"])
def test_a_result_loads_at_every_level(kind: str, use: str) -> None:
    proto = source([f"{kind}_token_{number}" for number in range(30)], use)
    (expected,) = run(proto, {"x": floats(1, 5, 8)})
    for options in ({}, {"to": "NHWC"}):
        result = relayout.convert(proto, **options).proto  # type: ignore[arg-type]
        assert not [tensor.name for tensor in result.graph.initializer if "_token_" in tensor.name]
        for level in LEVELS:
            np.testing.assert_allclose(load(result, level), expected, rtol=1e-5, atol=1e-6)


def test_the_source_itself_does_not() -> None:
    """The fault that this is about; where a later runtime has mended it, the names may stay."""
    with pytest.raises(Exception, match="initializer"):
        load(source([f"gemm_input_shape_token_{number}" for number in range(30)], "nobody"), LEVELS[-1])


@pytest.mark.parametrize("suffix", ["onnx", "ort"])
def test_a_file_that_the_optimizer_wrote_is_optimized_again(suffix: str, tmp_path: Path) -> None:
    options = ort.SessionOptions()
    options.log_severity_level, options.graph_optimization_level = 4, LEVELS[1]
    options.optimized_model_filepath = str(tmp_path / f"basic.{suffix}")
    if suffix == "ort":
        options.add_session_config_entry("session.save_model_format", "ORT")
    proto = source(["own"], "Reshapes that go")
    ort.InferenceSession(proto.SerializeToString(), options, ["CPUExecutionProvider"])
    result = relayout.optimize(tmp_path / f"basic.{suffix}")
    result.save(tmp_path / "result.onnx")
    written = onnx.load(tmp_path / "result.onnx")
    assert [tensor.name for tensor in written.graph.initializer if "gemm_input_shape" in tensor.name]
    assert not [tensor.name for tensor in written.graph.initializer if "_token_" in tensor.name]
    for level in LEVELS:
        np.testing.assert_allclose(load(written, level), run(proto, {"x": floats(1, 5, 8)})[0], rtol=1e-5, atol=1e-6)
