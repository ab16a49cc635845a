"""A target's table in a file: TOML, Python, or a list of operators; errors that name file and line."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import onnx_ir as ir
import pytest

import relayout
from relayout import rules
from relayout.errors import LayoutError, ReadError, UnsupportedError
from relayout.pipeline import check_plan
from relayout.rules.registry import registry
from relayout.targets import target
from relayout.targets.table_file import CONDITION_FUNCTIONS, example, named_conditions, read_table
from targets.quantized_nets import float_and_int8, residual

NPU = """\
name = "my-npu"
line = "my NPU: int8"

[[kernels]]
op_types = "Conv"
layouts = ["NHWC OHWI"]
types = ["int8"]
limits = ["constant-kernel", { window = 3 }]

[[kernels]]
op_types = ["Add", "Relu"]
types = ["INT8"]
"""


WITHOUT_LAYOUTS = """\
[[kernels]]
op_types = "Swish"
domain = "vendor"
[[kernels]]
op_types = "MaxPool AveragePool"
[[kernels]]
op_types = "Add Relu"
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "npu.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_table_in_a_file_is_the_table_in_python(tmp_path: Path) -> None:
    found = target(str(written(tmp_path, NPU)))
    assert (found.name, found.line) == ("my-npu", "my NPU: int8")
    conv, others = found.kernels
    assert (conv.op_types, conv.layouts, conv.types) == ("Conv", ("NHWC OHWI",), ("INT8",))
    assert [str(limit) for limit in conv.limits] == ["constant kernel and bias", "a window of at most 3"]
    assert (others.op_types, others.types) == ("Add Relu", ("INT8",))


def test_types_of_a_condition_are_written_as_those_of_a_row(tmp_path: Path) -> None:
    found = read_table(written(tmp_path, NPU.replace("window = 3", 'weights_of = ["int8"]')))
    assert str(found.kernels[0].limits[1]) == "weights of INT8"


def test_fifteen_lines_claim_integers_and_no_real_numbers(tmp_path: Path) -> None:
    path = written(tmp_path, NPU)
    result = relayout.convert(float_and_int8(), target=str(path))
    assert [node.domain for node in result.model.graph if node.op_type == "Conv"] == ["", "relayout.nhwc.ohwi", ""]


def test_the_example_is_a_table(tmp_path: Path) -> None:
    found = read_table(written(tmp_path, example("mine")))
    assert found.name == "mine"
    assert all(f"#   {name} " in example("mine") for name in named_conditions())
    assert all(f"{{ {name} = " in example("mine") for name in CONDITION_FUNCTIONS)
    with pytest.raises(LayoutError, match="no name for a target"):
        example("a b")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (('layouts = ["NHWC OHWI"]', 'layouts = ["NHWX"]'), r"npu.toml, line \d+: .*NHWX"),
        (
            ('layouts = ["NHWC OHWI"]', 'layouts = "NHWC OHWI"'),
            r'line 6: layouts is no list: write .* = \["NHWC OHWI"\]$',
        ),
        (('types = ["int8"]', 'types = "int8"'), r'line 7: types is no list: write types = \["int8"\]$'),
        (('types = ["int8"]', "ranks = 4"), r"line 7: ranks is no list: write ranks = \[4\]$"),
        (('["constant-kernel", { window = 3 }]', "{ window = 3 }"), r"line 8: .*no list: .* = \[\{ window = 3 \}\]$"),
        (("window = 3", 'weights_of = ["INT9"]'), "line 8: the condition weights_of: no element type 'INT9'"),
        (("window = 3", "weights_of = []"), "line 8: .*weights_of.*a list of texts"),
        (('types = ["int8"]', 'types = ["INT9"]'), r"npu.toml, line \d+: .*INT9.*INT"),
        (
            ('"constant-kernel"', '"CONSTANT_KERNELS"'),
            "line 8: there is no condition 'CONSTANT_KERNELS'.*CONSTANT_KERNEL",
        ),
        (("window = 3", "windows = 3"), "line 8: .*window"),
        (("window = 3", 'window = "3"'), "line 8: .*window='3': it takes a whole number"),
        (("window = 3", "window = 3, sides = 2"), "line 8: the condition window takes no sides"),
        (("{ window = 3 }", '{ attribute = "mode" }'), "line 8: the condition attribute needs allowed, default"),
        (("{ window = 3 }", "3"), "line 8: limits has 3"),
        (('op_types = "Conv"', 'op_type = "Conv"'), "line 5: there is no key 'op_type'.*op_types"),
        (('op_types = "Conv"', 'op_types = "Convs"'), r"npu.toml, line \d+: .*Convs.*Conv"),
        (
            ('op_types = "Conv"', 'op_types = "vendor:Swish"'),
            "line 5: ONNX has no operator 'vendor:Swish'; a row for one of another domain has its name, Swish, and"
            ' domain = "vendor"',
        ),
        (
            ('layouts = ["NHWC OHWI"]', 'layouts = ["NHWC", "OHWI"]'),
            "line 6: OHWI is a layout of kernels: write it behind that of images, as in 'NHWC OHWI'",
        ),
        (
            ('types = ["int8"]', 'types = ["fp32"]'),
            "line 7: .*no element type 'FP32'; they are called FLOAT, FLOAT16, ",
        ),
        (('op_types = "Conv"', "ranks = [4]"), "line 4: a row has no op_types"),
        (('line = "my NPU: int8"', 'lines = "x"'), "line 2: there is no key 'lines'.*line"),
        (('line = "my NPU: int8"', "per_transpose = -1"), "line 2: .*per_transpose=-1"),
        (("[[kernels]]", "[[kernel]]"), r"npu.toml, line 4: there is no key 'kernel'.*kernels"),
        (('name = "my-npu"', "name = my-npu"), "cannot be read as TOML: .*line 1"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(tmp_path: Path, change: tuple[str, str], said: str) -> None:
    assert change[0] in NPU
    with pytest.raises((LayoutError, ReadError), match=said):
        target(str(written(tmp_path, NPU.replace(*change))))


HUGE = f"0x{'f' * 9000}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[[kernels]]\ntypes = ["INT8"]\nop_types = "Convv"', "line 3: ONNX has no operator 'Convv'"),
        ('[[kernels]]\nop_types = "Conv"\ntypes = [\n"INT8",\n"INT9"]', "line 5: .*no element type 'INT9'"),
        ('[[kernels]]\nop_types = "Relu"\nlayouts = ["NHWC OHWI"]', "line 3: a row for Relu: NHWC OHWI"),
        ('[[kernels]]\nop_types = "Conv"\nlimits = [\n"NO_INDICES",\n{ windows = 3 }]', "line 5: .*'window'"),
        (
            '[[kernels]]\nop_types = "Conv"\nlimits = [\n{ window = 3 },\n{ window = "a" }]',
            "line 5: the condition window: window='a'",
        ),
        ('kernels = [\n{ op_types = "Conv" },\n{ op_types = "Foo" }]', "line 3: ONNX has no operator 'Foo'"),
        ('[[kernels]]\nop_types = "Conv"\n[kernels.when]\nwindow = 0', "line 4: the condition window: window=0"),
        (f'per_transpose = {HUGE}\n[[kernels]]\nop_types = "Conv"', "line 1: 'per_transpose' holds a whole number"),
        (f'[[kernels]]\nop_types = "Conv"\nlimits = [{HUGE}]', "line 3: 'limits' holds a whole number"),
        (f'[[kernels]]\nop_types = "Conv"\nlimits = [{{ window = {HUGE} }}]', "line 3: 'limits' holds a whole number"),
        (f"kernels = [{HUGE}]", "line 1: 'kernels' holds a whole number"),
        (".".join("a" * 2000) + " = 1", "line 1: there is no key 'a'"),
        ('[[kernels]]\nop_types = "Conv"\nlimits = [', "at line 3, the last"),
        ('line = """\n[[kernels]]\nranks = 1"""\n[[kernels]]\nop_types = "Conv"\nranks = ["x"]', "line 6: .*ranks="),
        ('[[kernels]]\nop_types = "Conv"\nlayouts = ["NHCW OHWI"]', "line 3: NHCW is no usual layout of images"),
        ('[[kernels]]\nop_types = "Conv"\n\nlayouts = ["NHWC OHIW"]', "line 4: OHIW is no usual layout of kernels"),
        ('[[kernels]]\nop_types = "Conv"\n[[kernel]]\nlayouts = "NHWC"', "line 3: there is no key 'kernel'"),
        ('name = "../mine"\n[[kernels]]\nop_types = "Conv"', "line 1: .*name='../mine': it takes a name of at most"),
    ],
)
def test_texts_that_python_reads_and_no_table_can_hold(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises((LayoutError, ReadError), match=said):
        target(str(written(tmp_path, text)))


def test_a_table_is_called_by_its_file_in_letters_that_names_of_parts_can_have(tmp_path: Path) -> None:
    path = tmp_path / "my npu é.toml"
    path.write_text('\ufeff[[kernels]]\nop_types = "Conv"\n', encoding="utf-8")  # as editors on Windows begin a file
    assert target(str(path)).name == "my-npu--"
    with pytest.raises(ReadError, match="cannot read"):
        target("a\0.toml")


def test_a_file_that_is_no_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="relayout targets --new"):
        target(str(tmp_path / "none.toml"))
    with pytest.raises(LayoutError, match="no rows"):
        target(str(written(tmp_path, 'name = "x"')))
    (tmp_path / "npu.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ReadError, match="is not text"):
        target(str(tmp_path / "npu.toml"))
    (tmp_path / "npu.toml").write_text("#" * (1 << 21), encoding="utf-8")
    with pytest.raises(ReadError, match="too long"):
        target(str(tmp_path / "npu.toml"))


PYTHON = """\
from relayout.targets import Kernel, Target
NPU = Target("py-npu", "in Python", (Kernel("Conv", ("NHWC OHWI",), ("INT8",)),))
"""


def test_a_target_of_a_python_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(PYTHON, encoding="utf-8")
    assert target(f"{path}:NPU").name == "py-npu"
    with pytest.raises(LayoutError, match=r"makes no Target 'NPV'.*NPU"):
        target(f"{path}:NPV")
    path.write_text(PYTHON + "1 / 0\n", encoding="utf-8")
    with pytest.raises(LayoutError, match="line 3: ZeroDivisionError"):
        target(f"{path}:NPU")
    path.write_text("x = (", encoding="utf-8")
    with pytest.raises(LayoutError, match="line 1: SyntaxError"):
        target(f"{path}:NPU")
    with pytest.raises(LayoutError, match="no file"):
        target(f"{tmp_path / 'none.py'}:NPU")
    with pytest.raises(LayoutError, match=r"say which Target of the file: .*mine\.py:NAME"):
        target(str(path))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import sys\nsys.exit(0)", "line 2: SystemExit: 0"),
        ("class End(BaseException): pass\nraise End('now')", "line 2: End: now"),
        ("class Odd(Exception):\n    def __str__(self): raise ValueError\nraise Odd", "line 3: Odd$"),
        ("from relayout.targets import Kernel\nKernel('Convs')", "line 2: ONNX has no operator 'Convs'"),
        (PYTHON.replace('",)),))', '",)),), fallback="litert")'), "line 2: .*fallback='litert': it takes a Target"),
        ("#" * (1 << 21), "too long"),
    ],
)
def test_a_python_file_ends_nothing_and_is_told_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    path = tmp_path / "mine.py"
    path.write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for name in (path, "mine.py"):
        with pytest.raises(LayoutError, match=rf"mine\.py.*{said}"):
            target(f"{name}:NPU")


def test_rows_without_layouts_are_listed_by_what_their_operators_do(relayout, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    listed = relayout("targets", written(tmp_path, WITHOUT_LAYOUTS)).out
    assert "vendor:Swish          any order of axes" in listed
    assert "MaxPool, AveragePool  as ONNX has it" in listed
    assert "Add, Relu             any order of axes" in listed


def test_a_row_may_be_about_another_domain(tmp_path: Path) -> None:
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 24, "vendor" : 1]>
        g (float[2, 3] x) => (float[2, 3] y) { a = vendor.Swish (x)  y = Swish (a) }""")
    claims = relayout.explain(model, target=str(written(tmp_path, WITHOUT_LAYOUTS))).claims
    assert claims is not None
    assert (claims.claimed, claims.total) == (1, 2)


def test_a_python_file_with_a_rule_runs_for_each_model(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    rule = """
from relayout import rules
rules.register("vendor:Swish", kind="layout-agnostic")(lambda operator: rules.aligned(operator, (0,)))
rules.register_variant("Conv", layouts="NHWC OHWI", written="vendor:ConvNhwc")
"""
    with rules.scope():
        for text in (rule, rule, "\n" + rule.replace("vendor:", "seller:"), rule):
            path.write_text(PYTHON + text, encoding="utf-8")
            assert target(f"{path}:NPU").name == "py-npu"
            assert (("vendor", "Swish") in registry()) == (("seller", "Swish") not in registry()) == ("vendor" in text)
        path.write_text(PYTHON + rule + rule, encoding="utf-8")
        with pytest.raises(LayoutError, match="line 9: vendor:Swish has a rule already"):
            target(f"{path}:NPU")


def test_a_python_file_may_print_and_have_dataclasses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.py"
    begin = "from __future__ import annotations\nfrom dataclasses import dataclass\n"
    path.write_text(f"{begin}@dataclass\nclass Chip:\n    rows: int = 1\nprint('here')\n{PYTHON}", encoding="utf-8")
    assert target(f"{path}:NPU").name == "py-npu"
    assert capsys.readouterr() == ("", "here\n"), "standard output is for reports and models"


def test_a_condition_of_a_python_file_that_fails_is_told_with_its_line(relayout, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    onnx.save(residual(), tmp_path / "net.onnx")
    path = tmp_path / "mine.py"
    begin = "from relayout.lowering.conditions import Condition\nODD = Condition('odd', lambda node: 1 / 0)\n"
    path.write_text(begin + PYTHON.replace('",)),))', '",), limits=(ODD,)),))'), encoding="utf-8")
    ran = relayout("explain", tmp_path / "net.onnx", "--target", f"{path}:NPU")
    said = (
        f"target 'py-npu': the condition 'odd' ({path}:2), asked of node 'conv11': ZeroDivisionError: division by zero"
    )
    assert (ran.code, ran.err) == (2, f"relayout: {said}\n")


def test_operators_alone_are_a_target(tmp_path: Path) -> None:
    result = relayout.convert(residual(), target="ops:Conv,Add", to="NHWC")
    assert result.report.claims is not None
    assert result.report.claims.claimed == 4
    with pytest.raises(LayoutError, match="Conv"):
        target("ops:Convs")
    with pytest.raises(LayoutError, match="no operators"):
        target("ops:")


def test_a_plan_for_a_table_in_a_file_is_checked_again(tmp_path: Path) -> None:
    path, plan = written(tmp_path, NPU), tmp_path / "plan.json"
    plan.write_text(json.dumps(relayout.convert(residual(), target=str(path)).plan), encoding="utf-8")
    assert check_plan(plan, residual()).ok


def test_the_command_line_takes_files_and_operators(relayout, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    onnx.save(residual(), tmp_path / "net.onnx")
    path, out = written(tmp_path, NPU), tmp_path / "out.onnx"
    ran = relayout("convert", tmp_path / "net.onnx", out, "--target", path)
    assert ran.code == 0, ran.err
    assert "my-npu runs 4 of 6 operators" in ran.out
    assert (
        "ops runs 3 of 6 operators" in relayout("explain", tmp_path / "net.onnx", "--ops", "Conv", "--to", "NHWC").out
    )
    ran = relayout("explain", out, "--ops", "Conv", "--target", "xnnpack")
    assert ran.code
    assert "one of the two" in ran.err
    assert relayout("targets", "--new", "mine").out == example("mine")
    assert relayout("targets", path).out.startswith("my NPU: int8\n"), "the name once"


def test_the_pass_takes_a_target(tmp_path: Path) -> None:
    path = written(tmp_path, NPU)
    model = ir.from_proto(residual())
    result = relayout.OptimizeLayouts(target=str(path))(model)
    assert result.modified
    assert [node.domain for node in model.graph if node.op_type == "Conv"].count("relayout.nhwc.ohwi") == 3
    other = relayout.convert(residual(), target=str(path)).model
    assert [node.op_type for node in model.graph] == [node.op_type for node in other.graph]
    with pytest.raises(LayoutError, match="there is no target"):
        relayout.OptimizeLayouts(target="xnnpac")


def test_a_table_in_a_file_has_a_host_beside_it(tmp_path: Path) -> None:
    """Operators that the NPU lacks run as LiteRT has them, so the result can be a .tflite."""
    rows = NPU.replace('line = "my NPU: int8"', 'fallback = "litert"')
    result = relayout.convert(float_and_int8(), target=str(written(tmp_path, rows)), format="tflite")
    assert result.report.operators["CONV_2D"] == 3
    assert result.report.claims is not None
    assert result.report.claims.claimed == 1
    with pytest.raises(LayoutError, match=r"line 2: fallback='litrt': it takes the name of a target.*litert") as error:
        target(str(written(tmp_path, rows.replace('"litert"', '"litrt"'))))
    assert str(error.value).count("line 2") == 1


def test_a_tflite_result_for_a_table_without_a_host_is_refused_with_the_line_that_cures_it(tmp_path: Path) -> None:
    path = written(tmp_path, NPU)
    with pytest.raises(
        UnsupportedError, match=r"of --target my-npu, .*LiteRT's: fallback = \"litert\" in the target's"
    ):
        relayout.convert(float_and_int8(), target=str(path), format="tflite")
    path.write_text(f'fallback = "litert"\n{NPU}', encoding="utf-8")
    assert relayout.convert(float_and_int8(), target=str(path), format="tflite").tflite
    with pytest.raises(UnsupportedError, match=r"of --target tensorrt, .* LiteRT's: leave --target out"):
        relayout.convert(float_and_int8(), target="tensorrt", format="tflite")
