"""A hook of MkDocs that adds to the pages of `docs/`: documents of the root, tables, every verb's help, docstrings.

A page links to its long tables, which are CSV files; on the site each stands under its link, and `tables.js` puts a
search field there. `cli.md` ends with what `--help` prints and `api.md` has signature and docstring under each name, so
that neither can be out of date.
"""

from __future__ import annotations

import json
import posixpath
import re
import sys
from pathlib import Path
from typing import Any

import click
from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "bench"))

from tables import with_tables  # noqa: E402

BROUGHT = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "models/README.md": "models.md",
    "examples/README.md": "examples.md",
    "examples/tinynet.ipynb": "notebook.md",
}
"""Document of the repository -> page of the site."""
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def on_files(files: Any, config: Any) -> Any:
    """Add the documents that lie outside `docs/`."""
    for source, page in BROUGHT.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        if source.endswith(".ipynb"):
            text = _notebook(text)
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Lead links to where they lead on the site, and add what is generated."""
    place = page.file.src_uri
    sources = {target: source for source, target in BROUGHT.items()}
    at = sources.get(place) or f"docs/{place}"
    markdown = with_tables(markdown, (ROOT / at).parent)
    markdown = LINK.sub(lambda match: _link(match, at, place), markdown)
    if place == "cli.md":
        markdown += _help()
    return _docstrings(markdown) if place == "api.md" else markdown


def _notebook(text: str) -> str:
    """A notebook as Markdown: its text, its code, and what that printed."""
    parts = []
    for cell in json.loads(text)["cells"]:
        code = "".join(cell["source"])
        parts.append(code if cell["cell_type"] == "markdown" else f"```python\n{code}\n```")
        texts = ("".join(output.get("text") or output["data"]["text/plain"]) for output in cell.get("outputs", ()))
        if printed := "".join(texts).rstrip("\n"):
            parts.append(f"```text\n{printed}\n```")
    return "\n\n".join(parts)


def _link(match: re.Match[str], at: str, place: str) -> str:
    """One link of the document `at`, for the page `place`; to a file that is not on the site, only its text."""
    mark, text, link = match.groups()
    path, sharp, anchor = link.partition("#")
    if "://" in link or not path:
        return match[0]
    target = posixpath.normpath(posixpath.join(posixpath.dirname(at), path))
    if target not in BROUGHT and not target.startswith("docs/"):
        return text
    page = BROUGHT.get(target) or target.removeprefix("docs/")
    return f"{mark}[{text}]({posixpath.relpath(page, posixpath.dirname(place) or '.')}{sharp}{anchor})"


def _help() -> str:
    from relayout.cli.entry import cli

    whole, parts = click.Context(cli, info_name="relayout", **cli.context_settings), ["", "", "## Every verb", ""]
    for name, command in sorted(cli.every_command().items()):
        context = click.Context(
            command, whole, name, max_content_width=88, terminal_width=88, **command.context_settings
        )
        parts += [f"### `relayout {name}`", "", "```text", command.get_help(context), "```", ""]
    return "\n".join(parts)


def _docstrings(markdown: str) -> str:
    """Behind what `api.md` says of a name, its signature and docstring."""
    parts = re.split(r"^(?=## `)", markdown, flags=re.MULTILINE)
    made = [f"{part.rstrip()}\n\n::: relayout.{part[4 : part.index('`', 4)]}\n" for part in parts[1:]]
    return "\n".join([parts[0], *made])
