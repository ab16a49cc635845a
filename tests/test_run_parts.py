"""`examples/run_parts.py`: what it says of parts that agree with the whole model, and of parts that do not."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import pytest

from relayout import convert
from targets.quantized_nets import residual


@pytest.fixture(scope="module")
def script() -> ModuleType:
    path = Path(__file__).parents[1] / "examples" / "run_parts.py"
    found = importlib.util.spec_from_file_location("run_parts", path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.fixture
def parts(tmp_path: Path) -> tuple[Path, Path]:
    """The parts of a quantized network, and the whole network."""
    onnx.save(residual(), tmp_path / "whole.onnx")
    convert(residual(), target="ethos-u").save_parts(tmp_path / "parts")
    return tmp_path / "parts", tmp_path / "whole.onnx"


def test_parts_of_integers_agree(
    script: ModuleType, parts: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert script.main(list(parts)) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("PASSED: ")


def test_a_part_with_other_numbers_fails_without_a_traceback(
    script: ModuleType, parts: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, whole = parts
    model = onnx.load(whole)
    constant = max((each for each in model.graph.initializer if each.data_type == onnx.TensorProto.INT8), key=len_of)
    constant.CopyFrom(onnx.numpy_helper.from_array(-onnx.numpy_helper.to_array(constant), constant.name))
    onnx.save(model, whole)
    assert script.main([folder, whole]) == 1
    assert "FAILED: " in capsys.readouterr().out


def len_of(constant: onnx.TensorProto) -> int:
    return int(np.prod(constant.dims))


def test_a_model_with_other_inputs_is_refused_in_words(
    script: ModuleType, parts: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _ = parts
    onnx.save(script.example(), folder.parent / "other.onnx")
    assert script.main([folder, folder.parent / "other.onnx"]) == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("FAILED: the parts take x ")
    assert last.endswith("other.onnx takes image float32 [1, 3, 34, 34]")


WHOLE = np.array([0, 64, 127], np.int8)


@pytest.mark.parametrize(
    ("part", "whole", "step", "said"),
    [
        (WHOLE, WHOLE, 0, ""),
        (WHOLE - np.int8(1), WHOLE, 0, ""),
        (WHOLE - np.int8(2), WHOLE, 0, "is off by 2 steps"),
        (WHOLE.astype(np.int64) + 1, WHOLE.astype(np.int64), 0, "has 100% other elements"),
        (WHOLE.astype(np.float32) * 0.1 + 0.1, WHOLE.astype(np.float32) * 0.1, 0.1, ""),
        (WHOLE.astype(np.float32) * 0.1 + 0.3, WHOLE.astype(np.float32) * 0.1, 0.1, "is off by 3 steps"),
        (WHOLE.astype(np.float32) + 0.5, WHOLE.astype(np.float32), 0, "is off by 0.5; its largest value is 1.3e+02"),
        (WHOLE[:2], WHOLE, 0, "is int8 [2], and int8 [3] in the whole model"),
        (WHOLE > 1, WHOLE > 100, 0, "has 33% other elements"),
    ],
)
def test_integers_are_compared_by_steps(
    script: ModuleType, part: np.ndarray, whole: np.ndarray, step: float, said: str
) -> None:
    assert script.difference(part, whole, step) == said


def test_a_nan_is_seen(script: ModuleType) -> None:
    whole = WHOLE.astype(np.float32)
    assert script.difference(np.where(whole > 100, np.nan, whole).astype(np.float32), whole, 0) != ""
