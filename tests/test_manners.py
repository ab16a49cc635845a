"""How the command line and the Python interface answer a person: help, habits of other tools, JSON, notebooks, logs."""

from __future__ import annotations

import io
import json
import logging
import pydoc
import re
from pathlib import Path

import click
import onnx
import pytest

import relayout
from relayout.cli.entry import cli
from relayout.cli.options import LayoutName, TargetName
from relayout.foreign_options import COMMAND_LINE, PYTHON
from relayout.targets import targets

ROOT = Path(__file__).parents[1]
INT8 = ROOT / "models" / "tinynet_int8.tflite"
ran = pytest.fixture(name="ran")(lambda request: request.getfixturevalue("relayout"))


def test_help_of_a_verb_is_its_help(ran) -> None:  # type: ignore[no-untyped-def]
    assert ran("help", "convert").out == ran("convert", "--help").out
    assert "optimize" in ran("help").out
    assert "did you mean 'convert'" in ran("help", "convret").err.lower()


OWN_OF_CONVERT = {name for each in cli.every_command()["convert"].params for name in each.opts}
OPTION = re.compile(r"(?<![\w-])--?[a-z][\w-]*")


def test_the_help_of_a_format_speaks_of_the_verb(ran) -> None:  # type: ignore[no-untyped-def]
    assert "Format of the result, where no suffix says it: with --out-dir" in " ".join(ran("convert", "-h").out.split())
    shown = ran("explain", "--help").out
    assert "--format" in shown
    assert "--out-dir" not in shown


@pytest.mark.parametrize("option", COMMAND_LINE)
def test_an_option_of_another_tool_is_answered(ran, option: str) -> None:  # type: ignore[no-untyped-def]
    """And is none of ours, else the answer would never be seen."""
    assert option not in OWN_OF_CONVERT
    refused = ran("convert", INT8, "out.onnx", option, "x")
    assert refused.code == 2
    assert COMMAND_LINE[option] in refused.err


def rows_of(page: str) -> list[tuple[str, str]]:
    """Return what one wrote and what one writes now, of the first table of a migration page."""
    text = (ROOT / "docs" / "migrate" / page).read_text(encoding="utf-8")
    table = text[text.index("| what you wrote") :].split("\n\n")[0]
    return [(row.split("|")[1], row.split("|")[2]) for row in table.splitlines()[2:]]


@pytest.mark.parametrize(("before", "now"), [*rows_of("onnx2tf.md"), *rows_of("tf2onnx.md")])
def test_the_command_line_answers_what_a_migration_page_answers(ran, before: str, now: str) -> None:  # type: ignore[no-untyped-def]
    written = OPTION.findall(before.replace("python -m", ""))
    foreign = [option for option in written if option not in OWN_OF_CONVERT]
    if not foreign:
        return
    refused = ran("convert", INT8, "out.onnx", *foreign)
    assert refused.code == 2
    assert all(option in refused.err.split(". Here: ")[0] for option in foreign)
    answers = [COMMAND_LINE[option.replace("_", "-")] for option in foreign]
    assert all(answer in refused.err for answer in answers)
    expected = set(OPTION.findall(re.sub("see `[^`]*`", "", now))) - set(OPTION.findall(before))
    assert {option for answer in answers for option in OPTION.findall(answer)} == expected


def test_a_line_of_another_tool_is_answered_whole(ran, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)
    refused = ran("-i", INT8, "-o", "saved_model", "-oiqt", "-osd", "-b", "1")
    assert (refused.code, list(tmp_path.iterdir())) == (2, [])
    assert "-i, -oiqt, -osd, -b are options of another tool. Here: " in refused.err
    assert "-b: --batch N" in refused.err
    assert COMMAND_LINE["-oiqt"] in ran("convert", INT8, "x5.tflite", "-oiqt").err
    assert "-oiqt" in ran("convert", INT8, "-oiqt").err, "else it is -o with a file called iqt"
    assert ran("convert", INT8, "-oiqt.onnx").code == 0, "which is no option of another tool"
    assert [path.name for path in tmp_path.iterdir()] == ["iqt.onnx"]
    assert ran("reduce", "none.onnx", "--output", "x.onnx").err.startswith("relayout: none.onnx does not exist")


def test_answers_name_options_that_there_are() -> None:
    ours = {name for command in cli.every_command().values() for each in command.params for name in each.opts}
    named = {word for answer in COMMAND_LINE.values() for word in re.findall(r"(?<![\w-])--?[a-z][a-z-]*", answer)}
    assert named <= ours


def test_an_argument_of_another_tool_is_answered_in_python() -> None:
    for name, answer in PYTHON.items():
        with pytest.raises(TypeError, match=re.escape(answer)):
            relayout.convert(INT8, **{name: 1})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="did you mean 'io'"):
        relayout.convert(INT8, ios="keep")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="did you mean 'dims'"):
        relayout.optimize(INT8, dim={})  # type: ignore[call-arg]
    with pytest.raises(relayout.RelayoutError, match=re.escape(".save('model.onnx')")):
        relayout.convert(INT8, "model.onnx")  # type: ignore[misc]


def test_a_row_of_a_comparison_is_one_line() -> None:
    found = relayout.verify(INT8, relayout.convert(INT8).model)
    assert repr(found.outputs[0]) == "<Row: 'output_0' of SOFTMAX, int8[2, 6]: agrees>"


def test_help_on_a_result_is_for_its_user() -> None:
    text = pydoc.render_doc(relayout.Result, renderer=pydoc.plaintext)
    lines = [line.strip(" |") for line in text.splitlines()]
    assert lines[2] == "class Result(builtins.object)", lines[:5]
    assert lines[3].startswith("A converted model and its report")
    for attribute in ("model", "report", "target", "format"):
        assert any(line.startswith(f"{attribute}: ") for line in lines[:20]), attribute


def test_json_has_a_schema_and_errors_are_objects(ran, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    assert json.loads(ran("explain", INT8, "--json").out)["schema"] == 1
    refused = ran("explain", tmp_path / "none.tflite", "--json")
    told = json.loads(refused.out)
    assert (told["schema"], told["error"]["kind"]) == (1, "ReadError")
    assert told["error"]["message"] in refused.err
    (tmp_path / "cut.tflite").write_bytes(INT8.read_bytes()[:4000])
    assert json.loads(ran("explain", tmp_path / "cut.tflite", "--json").out)["error"]["where"]
    assert json.loads(ran("explain", INT8, "--io", "x", "--json").out)["error"]["kind"] == "UsageError"
    assert ran("explain", tmp_path / "none.tflite").out == ""
    assert ran("convert", tmp_path / "none.tflite", "-", "--json").out == "", "standard output is the model's"


def test_the_page_of_json_names_every_verb_that_prints_it() -> None:
    page = (ROOT / "docs" / "json.md").read_text(encoding="utf-8")
    commands = cli.every_command()
    verbs = {name for name, command in commands.items() if any("--json" in each.opts for each in command.params)}
    assert {name for name in verbs - {"info"} if f"`{name}`" not in page} == set()


def test_names_are_completed() -> None:
    context, option = click.Context(cli), click.Option(["--x"])
    found = [item.value for item in TargetName().shell_complete(context, option, "onnxruntime")]
    assert found == [name for name in targets() if name.startswith("onnxruntime")]
    assert [item.type for item in TargetName().shell_complete(context, option, "npu.")] == ["file"]
    assert [item.value for item in LayoutName().shell_complete(context, option, "NH")] == ["NHWC"]


def test_the_api_is_listed_before_it_is_loaded() -> None:
    assert {"convert", "optimize", "explain", "verify", "Result", "Report"} <= set(dir(relayout))
    assert all(hasattr(relayout, name) for name in dir(relayout))


def test_notebooks_show_tables() -> None:
    result = relayout.convert(INT8, io="convert")
    assert result._repr_html_() == result.report._repr_html_()
    assert "<pre" in result._repr_html_()
    assert "proved minimal" in result._repr_html_()
    assert "PASSED" in relayout.verify(INT8, result)._repr_html_()


def test_the_library_logs_its_stages(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="relayout"):
        relayout.convert(INT8)
    assert [record.message for record in caplog.records][:2] == ["reading", "planning"]


def test_a_url_is_not_fetched(ran) -> None:  # type: ignore[no-untyped-def]
    assert "fetch the file first" in ran("convert", "https://example.com/m.tflite", "o.onnx").err


class OwnPath:
    """A path of another library's."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __fspath__(self) -> str:
        return self.path


@pytest.mark.parametrize("suffix", ["tflite", "onnx"])
def test_models_are_taken_as_people_hold_them(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"model.{suffix}"
    relayout.convert(INT8, format="tflite" if suffix == "tflite" else "onnx").save(path)
    want = relayout.explain(path).to_dict() | {"seconds": 0}
    content = path.read_bytes()
    with path.open("rb") as file:
        in_memory = content, bytearray(content), memoryview(content), io.BytesIO(content)
        for source in (str(path), OwnPath(path), file, *in_memory):
            assert relayout.explain(source).to_dict() | {"seconds": 0} == want  # type: ignore[arg-type]
    assert relayout.verify(content, bytearray(content)).ok  # type: ignore[arg-type]


def test_what_is_no_model_in_memory_is_refused(tmp_path: Path) -> None:
    for content in (b"", b"\x08", b"hello", b"\x08\x08hello", bytes(100), b"abcdORTM" + bytes(50)):
        with pytest.raises(relayout.ReadError):
            relayout.explain(content)
    (tmp_path / "a.txt").write_text("text", encoding="utf-8")
    with (tmp_path / "a.txt").open(encoding="utf-8") as file, pytest.raises(relayout.ReadError, match="mode 'rb'"):
        relayout.explain(file)  # type: ignore[arg-type]
    with pytest.raises(relayout.ReadError, match="give its path"):
        relayout.explain(b"abcdORTM" + bytes(50))
    whole = onnx.helper.make_model(onnx.helper.make_graph([], "cut in the middle", [], [])).SerializeToString()
    with pytest.raises(relayout.ReadError, match=r"nor a serialized ONNX model, or one that is cut short"):
        relayout.explain(whole[: len(whole) // 2])
    with (tmp_path / "b.onnx").open("wb") as file, pytest.raises(relayout.ReadError, match=r"cannot be read"):
        relayout.explain(file)  # type: ignore[arg-type]
    closed = io.BytesIO(whole)
    closed.close()
    with pytest.raises(relayout.ReadError, match=r"cannot be read: .*closed file"):
        relayout.explain(closed)  # type: ignore[arg-type]
    with pytest.raises(relayout.ReadError, match="int is no model"):
        relayout.explain(3)  # type: ignore[arg-type]


def test_an_option_of_another_verb_is_answered_with_that_verb(relayout) -> None:  # type: ignore[no-untyped-def]
    """A report of `optimize` says that --io convert removes a Transpose, and `convert` has that option."""
    ran = relayout("optimize", "a.onnx", "b.onnx", "--io", "convert")
    assert (ran.code, ran.err) == (
        2,
        "relayout: --io is no option of optimize, but of relayout convert, relayout explain\n",
    )
    assert "did you mean" in relayout("optimize", "a.onnx", "b.onnx", "--exchang").err.lower()


@pytest.mark.parametrize("options", ["--io nchw", "--io Keep --quant QDQ", "--format ONNX --output-type Float32"])
def test_choices_are_taken_in_any_case(ran, options: str) -> None:  # type: ignore[no-untyped-def]
    asked = ran("explain", INT8, *options.split(), "--json")
    assert asked.code == 0, asked.err
    assert json.loads(asked.out)["interface"][0]["layout"] == ("n h w c -> n c h w" if "nchw" in options else "n h w c")


def test_names_that_python_does_not_have_lead_to_what_there_is() -> None:
    with pytest.raises(AttributeError, match="'diff': it is a command: relayout diff FIRST SECOND"):
        relayout.diff  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError, match=r"'passed': \.ok tells whether the outputs agree"):
        relayout.verify(INT8, INT8).passed  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError, match=r"no attribute 'nothing'$"):
        relayout.nothing  # type: ignore[attr-defined]  # noqa: B018


def test_json_has_a_line_for_each_key_and_for_each_row(ran) -> None:  # type: ignore[no-untyped-def]
    text = ran("explain", INT8, "--json").out
    report = json.loads(text)
    assert [json.loads(f"{{{line.removesuffix(',')}}}") for line in text.splitlines() if line.startswith('  "schema')]
    rows = [json.loads(line.strip().removesuffix(",")) for line in text.splitlines() if line.startswith("    {")]
    assert rows == [*report["remaining"], *report["interface"]]
    keys = [line.split('"')[1] for line in text.splitlines() if line.startswith('  "')]
    assert keys == list(report)
