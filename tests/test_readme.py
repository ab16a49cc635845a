"""What the documents show is run: the README's Python, its commands, and every link to a file."""

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

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "models").glob("*.md")])


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def commands(block: str) -> list[list[str]]:
    """The words of each command in a block of shell, in order."""
    lines = [line for text in block.splitlines() for line in text.split("&&")]
    return [words for words in (shlex.split(line, comments=True) for line in lines) if words]


def run(arguments: list[str], directory: Path) -> str:
    """Run Python elsewhere, with the same relayout that this test imports."""
    environment = os.environ | {"PYTHONPATH": str(Path(relayout.__file__).resolve().parents[1])}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=directory, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, f"{arguments}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory that looks like a clone, as far as the README's commands read it."""
    shutil.copytree(ROOT / "models", tmp_path / "models", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def test_python_of_the_readme_runs(directory: Path) -> None:
    script = "\n".join(blocks("python"))
    assert "relayout.convert(" in script
    run(["-c", script], directory)


def test_commands_of_the_readme_run(directory: Path) -> None:
    ours = [words[1:] for block in blocks("sh") for words in commands(block) if words[0] == "relayout"]
    assert [words[0] for words in ours].count("convert") >= 2
    for words in ours:
        run(["-m", "relayout", *words], directory)


def test_listed_commands_and_options_exist() -> None:
    """The block that lists the command line names commands and options that `--help` knows."""
    (listed,) = [block for block in blocks("text") if block.startswith("relayout ")]
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
    quoted = re.findall(r"`(src/[^`]+\.py)` has\n\n```python\n(.*?)^```$", CONTRIBUTING, re.MULTILINE | re.DOTALL)
    assert len(quoted) == 2
    for path, code in quoted:
        assert code in (ROOT / path).read_text(encoding="utf-8"), path


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_to_files(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)#\s]+)", text) if "://" not in link]
    assert [link for link in links if not (document.parent / link).exists()] == []
