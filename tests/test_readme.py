"""What the README and CONTRIBUTING list and quote is what there is; `test_docs.py` runs their blocks."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import documents
import relayout
from relayout.formats.tflite.container.enums import BUILTIN_OPERATORS
from relayout.formats.tflite.importing.registry import entries

ROOT = Path(__file__).parents[1]
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return [block.text for block in documents.blocks(ROOT / "README.md") if block.language == language]


def run(arguments: list[str], directory: Path) -> str:
    """Run Python elsewhere, with the same relayout that this test imports."""
    environment = os.environ | {"PYTHONPATH": str(Path(relayout.__file__).resolve().parents[1])}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=directory, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, f"{arguments}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_the_operators_that_are_read_are_counted() -> None:
    custom = [name for name in entries() if name.startswith("CUSTOM ")]
    known, read = len(BUILTIN_OPERATORS), len(entries()) - len(custom)
    said = f"Of TensorFlow Lite's {known} builtin operators {read} are read, and {len(custom)} custom ones"
    assert said in (ROOT / "docs" / "limits.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("docs/limits.md", "of which {} are\n  TensorFlow's"),
        ("docs/tflite.md", "So are {} operators that TensorFlow's converter leaves to the Flex delegate"),
        ("docs/how-to/tflite-to-onnx.md", "(`SELECT_TF_OPS`, the Flex delegate) | nothing: {} are read"),
    ],
)
def test_the_operators_of_tensorflow_are_counted_alike(page: str, said: str) -> None:
    flex = sum(name.startswith("CUSTOM Flex") for name in entries())
    assert said.format(flex) in (ROOT / page).read_text(encoding="utf-8")


def test_listed_commands_and_options_exist() -> None:
    """The block that lists the command line names commands and options that `--help` knows."""
    page = documents.blocks(ROOT / "docs" / "cli.md")
    (listed,) = [block.text for block in page if block.language == "text" and block.text.startswith("relayout FILE")]
    for line in re.sub(r"\n +\[", " [", listed).splitlines():
        name = line.split()[1].replace("FILE", "info")
        shown = run(["-m", "relayout", name, "--help"], ROOT)
        assert [option for option in re.findall(r"--\w+", line) if option not in shown] == [], name


def test_installed_extras_exist() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    extras = [extra for block in blocks("sh") for extra in re.findall(r"pip install '\.\[(\w+)\]'", block)]
    assert sorted(extras) == ["test", "verify"]
    assert [extra for extra in extras if not re.search(rf"^{extra} = \[", project, re.MULTILINE)] == []


def test_code_in_contributing_is_the_code_in_the_source() -> None:
    quoted = re.findall(
        r"`(src/[^`]+\.py)` has\n\n<!-- .*? -->\n\n```python\n(.*?)^```$", CONTRIBUTING, re.MULTILINE | re.DOTALL
    )
    assert len(quoted) == 3
    for path, code in quoted:
        assert code in (ROOT / path).read_text(encoding="utf-8"), path


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 900


def test_one_file_defines_the_addresses_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f'repository-code: "{project["urls"]["Repository"]}"' in cited
    assert f'url: "{project["urls"]["Homepage"]}"' in cited


def test_one_sentence_says_what_it_is_everywhere() -> None:
    said = "models between ONNX and TensorFlow Lite with the fewest transposed bytes"
    for name in ("README.md", "docs/index.md", "pyproject.toml", "mkdocs.yml", "src/relayout/__init__.py"):
        assert said in (ROOT / name).read_text(encoding="utf-8"), name
    assert said in " ".join(run(["-m", "relayout", "--help"], ROOT).split())
