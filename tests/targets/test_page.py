"""The target of docs/targets.md can be installed; `test_docs.py` runs blocks."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import documents
import relayout
from relayout.targets import read_desired_layouts, targets
from relayout.targets.registry import GROUP

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "targets.md"


def blocks(language: str) -> list[str]:
    return [block.text for block in documents.blocks(PAGE) if block.language == language]


def run(arguments: list[str], directory: Path, code: int = 0) -> str:
    """Run Python in a directory, with what lies there importable: what it prints, or its error."""
    path = os.pathsep.join((str(Path(relayout.__file__).parents[1]), str(directory)))
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=directory,
        env=os.environ | {"PYTHONPATH": path, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == code, f"{arguments}\n{done.stdout}\n{done.stderr}"
    return done.stderr if code else done.stdout


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "models").mkdir()
    for name in ("tinynet_float.tflite", "tinynet_int8.tflite"):
        shutil.copy(ROOT / "models" / name, tmp_path / "models" / name)
    return tmp_path


def own_target() -> str:
    (found,) = [block for block in blocks("python") if "TARGET =" in block]
    return found


JUDGED = ("ethos-u", "litert", "onnx", "onnxruntime-cpu", "openvino", "rknn", "tflite-micro", "tosa")
"""Tables of targets that tests run, or ask; the standard has none to ask."""


def test_a_table_that_no_tool_has_judged_says_so() -> None:
    for name, found in targets().items():
        is_judged = name.startswith(JUDGED)
        unjudged = "from documents of November 2026, never run"
        assert (unjudged in found.line) != is_judged, f"{name}: its line says {unjudged!r} if no tool has judged it"


def test_the_file_of_wishes_has_every_kind(directory: Path) -> None:
    wishes, *_ = blocks("toml")
    (directory / "wishes.toml").write_text(wishes, encoding="utf-8")
    assert set(read_desired_layouts(directory / "wishes.toml")) == {"to", "target", "desired_layouts", "node_layouts"}


def installed(directory: Path, point: str) -> None:
    """What pip leaves of a package with an entry point."""
    info = directory / "my_backend-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-backend\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(f"[{GROUP}]\n{point}\n", encoding="utf-8")


@pytest.mark.parametrize(
    ("module", "message"),
    [
        ("raise ValueError('planted')", "entry point 'mine' of relayout.targets cannot be loaded (planted)"),
        ("TARGET = 3", "entry point 'mine' of relayout.targets names int, not a Target"),
        (
            "from relayout.targets import Target\nTARGET = Target('nnapi', 'again', ())",
            "two targets are called 'nnapi'",
        ),
        (
            "from relayout.targets import Kernel, Target\nTARGET = Target('x', 'y', (Kernel('Conv', ('NHHC',)),))",
            "'NHHC' is not a layout",
        ),
    ],
)
def test_a_bad_entry_point_is_one_clear_error(directory: Path, module: str, message: str) -> None:
    (directory / "mine.py").write_text(module, encoding="utf-8")
    installed(directory, "mine = mine:TARGET")
    done = run(["-m", "relayout", "targets"], directory, code=2)
    assert message in done
    assert done.count("\n") == 1


def test_a_target_of_ones_own_is_known_by_its_entry_point(directory: Path) -> None:
    *_, points = blocks("toml")
    (group, name, module) = re.match(r'\[project\.entry-points\."(.*)"\]\n(\S+) = "(.*)"', points).groups()  # type: ignore[union-attr]
    assert group == GROUP
    (directory / "my_backend.py").write_text(own_target(), encoding="utf-8")
    assert len([line for line in own_target().splitlines() if line.strip()]) <= 20
    installed(directory, f"{name} = {module}")
    assert "NHWC IHWO" in run(["-m", "relayout", "targets", name], directory)
    source = "models/tinynet_float.tflite"
    shown = run(["-m", "relayout", "convert", source, "mine.onnx", "--target", name, "--verify"], directory)
    assert "relayout.nhwc.ohwi:Conv" in shown
