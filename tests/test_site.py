"""Long tables of the documents are CSV files; the site has each in its page, with a field that searches it."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import tables

from documents import ROOT
from reports.pages import CHROMIUM, DRIVER, opened
from test_docs import script

DOCS = ROOT / "docs"

PAGE = """# Page

## Each `model`: 3

| model | bytes | more |
|---|---:|---|
| a \\| b | 1 | [Index](index.md) |
| `c` | 2,000 | |
| d | – | "x", y |
"""


def test_a_long_table_becomes_a_file_and_comes_back(tmp_path: Path) -> None:
    assert tables.files_of(tmp_path / "page.md", PAGE, most=3) == {tmp_path / "page.md": PAGE}
    files = tables.files_of(tmp_path / "page.md", PAGE, most=2)
    tables.write_files(files)
    link = "[Each model: 3 rows](tables/page-each-model.csv)"
    table = "| model | bytes | more |\n| --- | ---: | --- |\n| a \\| b | 1 | [Index](index.md) |\n| `c` | 2,000 |  |\n"
    assert files[tmp_path / "page.md"] == f"# Page\n\n## Each `model`: 3\n\n{link}\n"
    shown = tables.with_tables(files[tmp_path / "page.md"], tmp_path)
    assert shown == f'# Page\n\n## Each `model`: 3\n\n{link}\n\n{table}| d | – | "x", y |\n'


def test_every_file_belongs_to_a_page_and_no_page_has_a_long_table() -> None:
    pages = {path.relative_to(DOCS).as_posix(): path.read_text(encoding="utf-8") for path in DOCS.rglob("*.md")}
    links = [link for text in pages.values() for link in tables.LINK.findall(text)]
    assert sorted(links) == sorted(path.relative_to(DOCS).as_posix() for path in DOCS.glob("tables/*"))
    assert not [page for page, text in pages.items() if max(map(len, text_tables(text)), default=0) > 25]


def text_tables(text: str) -> list[list[str]]:
    return [block.splitlines()[2:] for block in tables.TABLE.findall(text)]


@pytest.mark.skipif(not importlib.util.find_spec("mkdocs"), reason="needs mkdocs (the extra `docs`)")
def test_the_site_shows_the_rows_and_a_field_searches_them(tmp_path: Path) -> None:
    from markdown import markdown

    place = SimpleNamespace(file=SimpleNamespace(src_uri="operators-tflite.md"))
    text = script("site").on_page_markdown((DOCS / "operators-tflite.md").read_text(encoding="utf-8"), place)
    page = tmp_path / "page.html"
    code = f"<script>{(DOCS / 'tables.js').read_text(encoding='utf-8')}</script>"
    page.write_text(f'<meta charset="utf-8">{markdown(text, extensions=["tables"])}{code}', encoding="utf-8")
    names = re.findall(r"<tr>\n<td>(\w+)", page.read_text(encoding="utf-8"))
    assert len(names) > 370
    if not (CHROMIUM and DRIVER and importlib.util.find_spec("selenium")):
        pytest.skip("needs chromium, chromedriver and selenium (the extra `browser`)")
    with opened(page) as driver:
        driver.find_element("css selector", "input[type=search]").send_keys("depthwise ONV_2d")
        rows = driver.find_elements("css selector", "table:first-of-type tbody tr:not([hidden])")
        assert [row.text.split()[0] for row in rows] == ["DEPTHWISE_CONV_2D"]
