"""docs/targets.md: its tables are current, and all that it shows is run."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import relayout
from relayout.reports.backends import MARK, markdown
from relayout.targets import read_wishes
from relayout.targets.registry import GROUP

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "targets.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


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


def test_tables_are_current() -> None:
    """`python -c "from relayout.reports.backends import markdown; print(markdown())"` makes what follows the mark."""
    _, mark, written = PAGE.read_text(encoding="utf-8").partition(MARK)
    assert mark
    assert written.strip() == markdown().strip()


def test_every_block_is_of_a_language_that_is_run() -> None:
    languages = re.findall(r"^```(\w*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert set(languages[::2]) == {"sh", "python", "toml"}
    assert (len(blocks("python")), len(blocks("toml"))) == (5, 2)


def test_python_runs(directory: Path) -> None:
    run(["-W", "error", "-c", "\n".join(block for block in blocks("python") if block != own_target())], directory)


def test_commands_run(directory: Path) -> None:
    wishes, _ = blocks("toml")
    (directory / "wishes.toml").write_text(wishes, encoding="utf-8")
    assert set(read_wishes(directory / "wishes.toml")) == {"to", "target", "desired_layouts", "node_layouts"}
    commands = [shlex.split(line) for block in blocks("sh") for line in block.splitlines()]
    assert len(commands) >= 9
    for words in commands:
        assert words[0] == "relayout"
        run(["-m", "relayout", *words[1:]], directory)


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
    _, points = blocks("toml")
    (group, name, module) = re.match(r'\[project\.entry-points\."(.*)"\]\n(\S+) = "(.*)"', points).groups()  # type: ignore[union-attr]
    assert group == GROUP
    (directory / "my_backend.py").write_text(own_target(), encoding="utf-8")
    assert len([line for line in own_target().splitlines() if line.strip()]) <= 20
    installed(directory, f"{name} = {module}")
    assert "NHWC IHWO" in run(["-m", "relayout", "targets", name], directory)
    source = "models/tinynet_float.tflite"
    shown = run(["-m", "relayout", "convert", source, "mine.onnx", "--target", name, "--verify"], directory)
    assert "relayout.nhwc.ohwi:Conv" in shown
