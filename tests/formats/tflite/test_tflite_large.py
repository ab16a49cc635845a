"""Weights outside of the flatbuffer, as files above 2 GB have them, and how much memory such a file takes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from tflite_running import compare, read
from tflite_writing import LIMIT, chain, laid_out

import relayout
from relayout.errors import ReadError


def weights(width: int, layer: int) -> np.ndarray:
    return (np.random.default_rng(layer).standard_normal((width, width)) / width**0.5).astype(np.float32)


def test_weights_outside_of_the_flatbuffer_are_those_that_the_interpreter_reads() -> None:
    net, outside = chain(3, 16)
    data, offsets = laid_out(net, outside, 16 * 16 * 4)
    content = data.ljust(offsets[0], b"\0") + b"".join(weights(16, k).tobytes() for k in range(3))
    (result,) = compare(content, net.ranges)
    assert result.error <= result.tolerance(False)
    assert result.largest > 0.1
    arrays = [v.const_value.numpy() for v in read(content).graph.initializers.values() if v.const_value is not None]
    assert [any(np.array_equal(a, weights(16, k)) for a in arrays) for k in range(3)] == [True] * 3


@pytest.mark.parametrize("offset", [-1, 2, 1 << 31, (1 << 64) - 1])
def test_weights_that_lie_past_the_end_are_refused(offset: int) -> None:
    net, outside = chain(1, 16)
    data, _ = laid_out(net, outside, 16 * 16 * 4)
    size = len(data)
    outside[0].offset = size + offset if offset < 2 else offset
    outside[0].size = 16 * 16 * 4 if offset != 2 else 1 << 62
    with pytest.raises(ReadError, match=r"the file ends at byte \d+, and buffers\[1\] points to bytes \d+ to \d+"):
        read(net.bytes())


HELD = 400 << 20
"""Bytes that a conversion may hold of its own. Pages of mapped files are not among them: the system takes those back
when it likes. Modules, stacks and a small model's graph take about 100 MB."""

LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_DATA, (int(sys.argv.pop(1)),) * 2)
"""
CONVERT = """
import relayout
relayout.convert(sys.argv[1], outputs=sys.argv[3:]).save(sys.argv[2])
"""
LOAD = """
from pathlib import Path
Path(sys.argv[1]).read_bytes()
"""


def limited(code: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run code in a process whose private writable memory the system bounds (Linux does), files mapped apart."""
    return subprocess.run(
        [sys.executable, "-c", LIMITED + code, str(HELD), *map(str, arguments)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(Path(relayout.__file__).parents[1]), "OMP_NUM_THREADS": "1"},
    )


def convert(source: Path, target: Path, *outputs: str) -> None:
    done = limited(CONVERT, source, target, *outputs)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_file_above_2_gb(tmp_path: Path) -> None:
    pytest.importorskip("resource")
    width, layers = 4096, 34
    size = width * width * 4
    if shutil.disk_usage(tmp_path).free < 3 * layers * size:
        pytest.skip("not enough room on the disk for a model of more than 2 GB, twice")
    net, outside = chain(layers, width)
    data, offsets = laid_out(net, outside, size)
    assert offsets[-1] > LIMIT
    source, target = tmp_path / "large.tflite", tmp_path / "large.onnx"
    known = {0: weights(width, 0), layers - 1: weights(width, layers - 1)}
    with source.open("wb") as file:  # what is between the first and the last stays a hole: zeros
        file.write(data)
        for layer, array in known.items():
            file.seek(offsets[layer])
            file.write(array.tobytes())

    if sys.platform == "linux":
        assert "MemoryError" in limited(LOAD, source).stderr
    convert(source, target)
    model = onnx.load(target, load_external_data=False)
    assert target.stat().st_size < 1 << 20
    assert Path(f"{target}.data").stat().st_size >= layers * size
    onnx.checker.check_model(str(target))
    for layer, array in known.items():
        (tensor,) = (t for t in model.graph.initializer if t.name == f"weights{layer}")
        place = {entry.key: entry.value for entry in tensor.external_data}
        stored = np.memmap(f"{target}.data", np.float32, "r", int(place["offset"]), (width, width))
        assert np.array_equal(stored, array) or np.array_equal(stored.T, array)
    for path in (target, Path(f"{target}.data")):
        path.unlink()

    # A part of it runs: what the first layer computes, and the file of one layer is one file again.
    convert(source, target, "h0")
    assert not Path(f"{target}.data").exists()
    x = np.random.default_rng(1).standard_normal((1, width)).astype(np.float32)
    (got,) = onnxruntime.InferenceSession(target).run(None, {"x": x})
    assert np.abs(got - x @ known[0].T).max() < 1e-4
