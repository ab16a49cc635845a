"""Documents that are run: the code blocks of a Markdown file, in order, as a reader would run them.

- `sh`: each line is a command. `console`: each line behind `$ ` is a command, and what follows it is what it prints.
- `python`: runs with what the blocks before it have defined. A `text` block right behind it is what it prints.
- Any block with `title="NAME"` becomes that file. A `toml` or `json` block without one is only read.
- A block behind `<!-- not run: REASON -->` is shown only.
- A notebook's code cells run in order, and print what is under them; of a cell with the tag `first-line`, that line.

In what is printed, `...` alone on a line stands for any lines, `…` for any part of one; seconds are not compared.
"""

from __future__ import annotations

import ast
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from contextlib import nullcontext, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import relayout
from relayout import cli, rules

ROOT = Path(__file__).parents[1]
WIDTH = "88"
"""Columns of the terminal that the documents show."""

ENVIRONMENT = ("pip", "python -m venv", ".", "pytest", ".ci/run", "mkdocs", "python bench/")
"""Commands that install or test relayout itself: shown, not run here."""
CODE = re.compile(r" +# exit code (\d+)$")
FENCE = re.compile(
    r'^(?:<!-- not run: (?P<reason>[^\n]*) -->\n\n?)?^```(?P<language>\w*)(?: title="(?P<title>[^"]+)")?\n'
    r"(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """One fenced block.

    Args:
        language: of the fence. text: what is in it.
        title: the file that it is, if any.
        reason: why it is not run, if it is not.
        adjacent: whether nothing but an empty line is between it and the block before.
    """

    language: str
    text: str
    title: str | None
    reason: str | None
    adjacent: bool


def blocks(document: Path) -> list[Block]:
    """All fenced blocks of a document; every fence must be understood."""
    text, found, end = document.read_text(encoding="utf-8"), [], 0
    for match in FENCE.finditer(text):
        adjacent = bool(found) and not text[end : match.start()].strip()
        found.append(Block(match["language"], match["text"], match["title"], match["reason"], adjacent))
        end = match.end()
    assert 2 * len(found) == len(re.findall(r"^\s*```", text, re.MULTILINE)), f"{document}: a fence is not understood"
    return found


def documents() -> list[Path]:
    """Every document of the project but what others wrote."""
    places = (ROOT, ROOT / "docs", ROOT / "models", ROOT / "examples")
    return sorted({path for place in places for path in place.glob("*.md" if place == ROOT else "**/*.md")})


def shown_by(cell: dict[str, Any]) -> str:
    """What a notebook shows under a code cell."""
    texts = ("".join(output.get("text") or [*output["data"]["text/plain"], "\n"]) for output in cell["outputs"])
    return "".join(texts)


def echoing(code: str) -> str:
    """The code of a cell, the value of its last expression printed, unless that is None."""
    tree = ast.parse(code)
    if tree.body and isinstance(last := tree.body[-1], ast.Expr):
        tree.body[-1:] = ast.parse("__value = 0\nif __value is not None: print(repr(__value))").body
        tree.body[-2].value = last.value  # type: ignore[attr-defined]
    return ast.unparse(ast.fix_missing_locations(tree))


def agrees(expected: str, printed: str) -> bool:
    """Whether what was printed is what a document shows."""
    lines = [_bare(line) for line in expected.strip("\n").splitlines()]
    pattern = "".join(r"(?:.*\n)*?" if line == "..." else _line(line) for line in lines)
    return re.fullmatch(pattern, "".join(f"{_bare(line)}\n" for line in printed.strip("\n").splitlines())) is not None


def _bare(line: str) -> str:
    return re.sub(r"\d+\.\d+ s\b", "N s", line.rstrip())


def _line(line: str) -> str:
    return r".*".join(map(re.escape, line.split("…"))) + r"\n"


def pythonpath(directory: Path) -> str:
    return os.pathsep.join((str(Path(relayout.__file__).parents[1]), str(directory)))


class Reader:
    """Somebody who follows one document in an empty directory with the shipped models and examples.

    Args:
        directory: where to run. monkeypatch: undoes what this changes.
    """

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory, self.monkeypatch = directory, monkeypatch
        self.defined: dict[str, Any] = {"__name__": "__main__"}
        ignored = shutil.ignore_patterns("__pycache__", "*.py")
        shutil.copytree(ROOT / "models", directory / "models", ignore=ignored)
        shutil.copytree(ROOT / "examples", directory / "examples", ignore=shutil.ignore_patterns("__pycache__"))
        monkeypatch.chdir(directory)
        monkeypatch.syspath_prepend(str(directory))
        monkeypatch.setenv("COLUMNS", WIDTH)
        monkeypatch.setenv("NO_COLOR", "1")

    def follow(self, document: Path) -> int:
        """Run every block of a document; how many were run."""
        found, count = blocks(document), 0
        for number, block in enumerate(found):
            if block.reason is not None:
                assert block.reason.strip(), f"{document}: why is a block not run?"
                continue
            behind = found[number + 1] if number + 1 < len(found) else None
            shown = behind.text if behind and behind.adjacent and behind.language == "text" else None
            if block.language == "text":
                before = found[number - 1] if number and block.adjacent else None
                assert before is not None, f"{document}: nothing prints\n{block.text}"
                assert before.language == "python", f"{document}: nothing prints\n{block.text}"
                continue
            self.run(block, shown)
            count += 1
        return count

    def run(self, block: Block, shown: str | None) -> None:
        """Run one block; `shown` is what a Python block prints, where the document says."""
        if block.title:
            path = self.directory / block.title
            assert not path.exists() or path.read_text(encoding="utf-8") == block.text, f"{block.title} is another text"
            path.write_text(block.text, encoding="utf-8")
        if block.language == "python":
            with rules.scope() if block.title else nullcontext():  # a file is run by itself
                printed = self.python(block.text)
            assert shown is None or agrees(shown, printed), f"shown:\n{shown}\nprinted:\n{printed}"
        elif block.language in ("sh", "console"):
            self.shell(block)
        elif block.language in ("toml", "json"):
            (tomllib if block.language == "toml" else json).loads(block.text)
        else:
            raise AssertionError(f"a block of {block.language or 'no language'} is not run:\n{block.text}")

    def python(self, code: str) -> str:
        printed = io.StringIO()
        with redirect_stdout(printed):
            exec(compile(code, "<block>", "exec"), self.defined)
        return printed.getvalue()

    def notebook(self, document: Path) -> int:
        """Run every code cell of a notebook; how many."""
        found = [
            cell for cell in json.loads(document.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"
        ]
        for cell in found:
            shown, printed = shown_by(cell), self.python(echoing("".join(cell["source"])))
            if "first-line" in cell["metadata"].get("tags", ()):
                shown, printed = (text.partition("\n")[0] for text in (shown, printed))
            assert agrees(shown, printed), f"shown:\n{shown}\nprinted:\n{printed}"
        return len(found)

    def shell(self, block: Block) -> None:
        for command, expected in commands(block):
            printed = self.command(command)
            assert expected is None or agrees(expected, printed), (
                f"$ {command}\nshown:\n{expected}\nprinted:\n{printed}"
            )

    def command(self, command: str) -> str:
        """Run one command line; what it prints."""
        wanted = CODE.search(command)
        words = shlex.split(command, comments=True)
        if command.startswith(ENVIRONMENT):
            return ""
        words = [name for word in words for name in (sorted(map(str, self.glob(word))) if "*" in word else [word])]
        if words[0] == "relayout":
            code, printed = self.relayout(words[1:])
        elif words[0] == "python":
            code, printed = self.script(words[1:])
        else:
            raise AssertionError(f"do not know how to run: {command}")
        assert code == (int(wanted[1]) if wanted else 0), f"$ {command}\nexit code {code}\n{printed}"
        return printed

    def glob(self, pattern: str) -> list[Path]:
        return [path.relative_to(self.directory) for path in self.directory.glob(pattern)]

    def relayout(self, arguments: list[str]) -> tuple[int, str]:
        printed = io.StringIO()
        self.monkeypatch.setattr("sys.argv", ["relayout", *arguments])
        code = 0
        with redirect_stdout(printed), redirect_stderr(printed), rules.scope():
            try:
                cli.main()
            except SystemExit as stopped:
                code = int(stopped.code or 0)
        return code, printed.getvalue()

    def script(self, arguments: list[str]) -> tuple[int, str]:
        environment = os.environ | {"PYTHONPATH": pythonpath(self.directory)}
        done = subprocess.run(
            [sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        return done.returncode, done.stdout + done.stderr


def commands(block: Block) -> list[tuple[str, str | None]]:
    """The commands of a block of shell, each with what it prints where the document shows that."""
    if block.language == "sh":
        lines = [part.strip() for line in block.text.splitlines() for part in line.split("&&")]
        return [(line, None) for line in lines if line and not line.startswith("#")]
    head, *rest = re.split(r"^\$ ", block.text, flags=re.MULTILINE)
    assert not head, f"something stands before the first command:\n{block.text}"
    return [(command.strip(), printed) for command, _, printed in (part.partition("\n") for part in rest)]


def sentences(markdown: str) -> list[str]:
    """Return the sentences of a page's prose: no code blocks, tables, headings or comments; a link is its text."""
    for apart in (r"```.*?```", r"<!--.*?-->"):
        markdown = re.sub(apart, "", markdown, flags=re.DOTALL)
    markdown = re.sub(r"(?m)^[|#].*$", "\n", markdown)
    markdown = re.sub(r"(?m)^\s*(?:[-*]|\d+\.) ", "\n\n", markdown)
    markdown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", markdown)
    markdown = re.sub(r"`[^`]*`", "code", markdown)
    paragraphs = re.split(r"\n\s*\n", markdown)
    return [each for text in paragraphs for each in re.split(r"(?<=[.!?])\s+", " ".join(text.split())) if each]
