"""Every code block of every document is run, and what it is shown to print is what it prints (`documents.py`)."""

from __future__ import annotations

import html
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

import relayout
from conftest import SHARED
from documents import ROOT, Block, Reader, agrees, blocks, commands, documents, sentences
from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.loading import load

NOT_RUN = {
    "README.md": 1,  # torch is not among what the tests install
    "CONTRIBUTING.md": 3,  # quoted from the source: tests/test_readme.py
    "docs/design.md": 1,  # a drawing
    "docs/cli.md": 2,  # completion is evaluated by a shell; the list of verbs: tests/test_readme.py
    "docs/how-to/batch.md": 1,  # an error
    "docs/how-to/int8.md": 3,  # the installation, an excerpt of a report, and PyTorch
    "docs/how-to/jax.md": 1,  # nor is JAX
    "docs/how-to/npu.md": 2,  # Vela and the converter to TOSA: tests/targets/test_ethos_u.py, test_tosa.py
    "docs/how-to/onnx-to-litert.md": 3,  # nor is ai-edge-quantizer, which is run below; Kotlin
    "docs/how-to/pytorch.md": 4,  # Kotlin, Swift; torch is not among what the tests install
    "docs/onnx-to-tflite-benchmark.md": 1,  # onnx2tf needs an environment of its own
    "docs/there-and-back.md": 1,  # nor is it here
    "docs/targets.md": 1,  # an entry point: tests/targets/test_page.py
}
"""Document -> how many of its blocks are shown only."""

MOBILENET = SHARED / "tflite2onnx" / "mobilenet_v1_0.25_128.tflite"

WANTS = {"docs/how-to/int8.md": "ai_edge_quantizer"}
"""Document -> the package that its blocks run."""

WITH_CODE = [path for path in documents() if blocks(path)]


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("document", WITH_CODE, ids=name)
def test_blocks_run(document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if (package := WANTS.get(name(document))) is not None:
        pytest.importorskip(package)
    run = Reader(tmp_path, monkeypatch).follow(document)
    assert run or all(block.reason for block in blocks(document))


@pytest.mark.parametrize("notebook", sorted((ROOT / "examples").glob("*.ipynb")), ids=name)
def test_notebooks_run_and_show_what_they_print(
    notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Reader(tmp_path, monkeypatch).notebook(notebook) > 3
    assert notebook.stat().st_size < 60_000
    for link in re.findall(r"\]\(([^)\s:]+)\)", notebook.read_text(encoding="utf-8")):
        assert (notebook.parent / link).exists(), link


@pytest.mark.parametrize(
    ("right", "wrong"), [("245,760", "245,761"), ("(2, 6)", "(2, 7)"), ("1 output agrees", "2 outputs agree")]
)
def test_a_wrong_notebook_is_seen(right: str, wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "examples" / "tinynet.ipynb").read_text(encoding="utf-8")
    assert right in text
    (tmp_path / "wrong.ipynb").write_text(text.replace(right, wrong), encoding="utf-8")
    with pytest.raises(AssertionError, match="shown"):
        Reader(tmp_path, monkeypatch).notebook(tmp_path / "wrong.ipynb")


def test_what_is_not_run_is_known() -> None:
    shown = {name(path): sum(block.reason is not None for block in blocks(path)) for path in WITH_CODE}
    assert {path: count for path, count in shown.items() if count} == NOT_RUN


@pytest.mark.parametrize("document", documents(), ids=name)
def test_links_lead_to_files_and_headings(document: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", document.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = document.parent / path if path else document
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def anchors(document: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def script(name: str) -> ModuleType:
    """A script of `docs/`, not run."""
    found = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_the_terminal_in_the_picture_is_current_and_asks_nobody() -> None:
    """Its words; the drawing is `rich`'s, and versions of runtimes and last digits are those of the day."""

    def words(svg: str) -> str:
        text = " ".join(html.unescape(each) for each in re.findall(r"<text[^>]*>([^<]*)</text>", svg)).replace(
            "\xa0", " "
        )
        return " ".join(re.sub(r"\d+\.\d+\.\d+|\d\.\de-\d+|\d+ (equal|close),?", "…", text).split())

    written = (ROOT / "docs" / "terminal.svg").read_text(encoding="utf-8")
    assert words(written) == words(script("draw_terminal").terminal()), "python docs/draw_terminal.py"
    assert "proved minimal" in words(written)
    assert not re.search(r"(href|src)=|url\((?!#)|@import|@font-face", written)


def test_drawings_are_current() -> None:
    drawing = script("draw_concepts")
    for name in ("layouts", "remains"):
        written = (ROOT / "docs" / "concepts" / f"{name}.svg").read_text(encoding="utf-8")
        assert getattr(drawing, name)() == written, "python docs/draw_concepts.py"


def test_each_benchmark_page_shows_the_plot_of_its_table() -> None:
    plots = script("draw_benchmarks").PLOTS
    for page, draw in plots.items():
        assert (ROOT / "docs" / "plots" / f"{page}.svg").read_text(encoding="utf-8") == draw(), (
            "python docs/draw_benchmarks.py"
        )
        begin = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8").partition("\n## ")[0]
        assert begin.count(f"](plots/{page}.svg)") == 1, f"{page} begins with its plot"


def test_a_target_of_ones_own_takes_20_lines() -> None:
    text = (ROOT / "examples" / "own_target.py").read_text(encoding="utf-8")
    assert len([line for line in text.splitlines() if line.strip()]) <= 20


@pytest.mark.skipif(not MOBILENET.exists(), reason="no MobileNet beside the project")
def test_a_mobilenet_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    printed = Reader(tmp_path, monkeypatch).command(f"python examples/end_to_end.py {MOBILENET}")
    assert "with the interface converted: 0 bytes\noutputs agree" in printed
    assert (tmp_path / f"{MOBILENET.stem}.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_the_recipe_of_ai_edge_quantizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A float result is what Google's quantizer wants, and what it makes of it is read."""
    pytest.importorskip("ai_edge_quantizer", reason="ai-edge-quantizer is not installed")
    page = ROOT / "docs" / "how-to" / "onnx-to-litert.md"
    (recipe,) = (block for block in blocks(page) if "ai_edge_quantizer" in block.text)
    monkeypatch.chdir(tmp_path)
    source = relayout.convert(ROOT / "models" / "tinynet_float.tflite")
    relayout.convert(source.proto, format="tflite").save("network.tflite")
    exec(recipe.text, {"__name__": "__main__"})
    (subgraph,) = load(Path("quantized_by_google.tflite")).subgraphs
    types = {subgraph.tensors[index].type for operator in subgraph.operators for index in operator.outputs}
    assert types == {TensorType.INT8}
    assert relayout.verify("quantized_by_google.tflite", relayout.convert("quantized_by_google.tflite").proto).ok


def test_every_page_is_in_the_navigation() -> None:
    navigation = re.findall(r"(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    brought = {"contributing.md", "changelog.md", "models.md", "examples.md", "notebook.md"}
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert sorted(navigation) == sorted(pages | brought)


def test_the_first_page_leads_to_every_page() -> None:
    links = re.findall(r"\]\(([^)#]+\.md)", (ROOT / "docs" / "index.md").read_text(encoding="utf-8"))
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert sorted(pages - {"index.md"} - set(links)) == []


@pytest.mark.parametrize(
    ("shown", "printed", "equal"),
    [
        ("a\nb\n", "a\nb\n", True),
        ("a\nb\n", "a\nc\n", False),
        ("a\n...\nc\n", "a\nb\nb\nc\n", True),
        ("a\n...\n", "b\n", False),
        ("read … in 0.1 s\n", "read 7 in 2.25 s\n", True),
        ("1 Transpose\n", "1 Transposes\n", False),
    ],
)
def test_what_is_shown_is_compared(shown: str, printed: str, equal: bool) -> None:
    assert agrees(shown, printed) is equal


def test_a_wrong_document_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader(tmp_path, monkeypatch)
    for fault in (
        Block("python", "assert 1 == 2\n", None, None, False),
        Block("sh", "relayout convert models/absent.tflite x.onnx\n", None, None, False),
        Block("console", "$ relayout --version\nrelayout, version 0\n", None, None, False),
        Block("sh", "rm model.onnx\n", None, None, False),
        Block("yaml", "a: 1\n", None, None, False),
    ):
        with pytest.raises(AssertionError):
            reader.run(fault, None)
    with pytest.raises(AssertionError):
        reader.run(Block("python", "print(1)\n", None, None, False), "2\n")
    assert commands(Block("console", "$ a\n1\n$ b\n", None, None, False)) == [("a", "1\n"), ("b", "")]


def test_sentences_are_short() -> None:
    """At most 3 % of the sentences of all documents have more than 30 words."""
    every = [(name(path), each) for path in documents() for each in sentences(path.read_text(encoding="utf-8"))]
    long = [f"{page}: {each}" for page, each in every if len(each.split()) > 30]
    assert len(every) > 1000
    assert len(long) <= 0.03 * len(every), "\n".join(long)


@pytest.mark.parametrize("document", [path for path in documents() if path.name != "CHANGELOG.md"], ids=name)
def test_a_page_has_at_most_1500_words_of_prose(document: Path) -> None:
    """Without code, tables and headings; a table that a command writes may be long."""
    assert sum(len(each.split()) for each in sentences(document.read_text(encoding="utf-8"))) <= 1500


def test_a_release_has_at_most_25_lines_of_one_sentence() -> None:
    for release in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").split("\n## ")[1:]:
        name, *lines = release.splitlines()
        entries = [line for line in lines if line.startswith("- ")]
        assert len(entries) <= 25, name
        assert [entry for entry in entries if re.search(r"[.!?] [A-Z`]", entry)] == []


def test_a_long_sentence_is_seen() -> None:
    long = "word " * 31 + "ends."
    page = f"# {long}\n\nShort.  {long}\n- {long}\n\n| {long} |\n```\n{long}\n```\n"
    assert [len(each.split()) for each in sentences(page)] == [1, 32, 32]
