"""What is asked for: by function, node, operator, layout of all, target; in this order."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import onnx
import onnx.parser
import pytest

import relayout
from relayout.errors import LayoutError, ReadError
from relayout.targets import DesiredLayouts, read_desired_layouts, target, targets
from relayout.targets.registry import aliases
from relayout.targets.testing import claiming
from targets.nets import blocked, cnn

LAYOUT = {
    "": "NCHW",
    "relayout.nhwc": "NHWC",
    "relayout.nhwc.ohwi": "NHWC OHWI",
    "relayout.nhwc.hwio": "NHWC HWIO",
    "relayout.nhwc.ihwo": "NHWC IHWO",
}
CONVOLUTIONS = ("first", "depthwise", "grouped", "point")


def layouts(**wishes: object) -> dict[str, str]:
    """Node -> the layout in which it runs, of the nodes of `cnn` that have one."""
    proto = relayout.convert(cnn(), **wishes).proto  # type: ignore[arg-type]
    named = (*CONVOLUTIONS, "max", "average", "up", "resize", "norm", "pool")
    return {node.name: LAYOUT[node.domain] for node in proto.graph.node if node.name in named}


def test_all() -> None:
    assert set(layouts(to="NHWC").values()) == {"NHWC"}


def test_an_operator_before_all() -> None:
    found = layouts(to="NHWC", desired_layouts={"Conv": ["NHWC", "OHWI"], "MaxPool": "NCHW"})
    assert {found[name] for name in CONVOLUTIONS} == {"NHWC OHWI"}
    assert (found["max"], found["average"]) == ("NCHW", "NHWC")


def test_a_node_before_its_operator() -> None:
    found = layouts(to="NHWC", desired_layouts={"Conv": "NHWC"}, node_layouts={"point": "NCHW"})
    assert (found["point"], found["first"]) == ("NCHW", "NHWC")


def test_a_node_by_the_name_of_its_output() -> None:
    assert layouts(to="NHWC", node_layouts={"p1": "NCHW"})["point"] == "NCHW"


def test_a_function_before_a_node() -> None:
    def large(node: object) -> str | None:
        return "NHWC" if node.name == "point" else None  # type: ignore[attr-defined]

    found = layouts(layout_for=large, node_layouts={"point": "NCHW", "first": ["NHWC", "HWIO"]})
    assert (found["point"], found["first"], found["grouped"]) == ("NHWC", "NHWC HWIO", "NCHW")


def test_default_lets_the_target_choose() -> None:
    target = claiming({"Conv": ["NHWC OHWI", "NCHW"], "MaxPool": ["NHWC"]})
    found = layouts(target=target, desired_layouts={"Conv": ["NCHW", "default"], "MaxPool": ["default"]})
    assert {found[name] for name in CONVOLUTIONS} == {"NCHW"}
    assert found["max"] == "NHWC"


def test_default_without_a_target_is_the_standard() -> None:
    found = layouts(to="NHWC", desired_layouts={"Conv": "default"})
    assert {found[name] for name in CONVOLUTIONS} == {"NCHW"}
    assert found["max"] == "NHWC"


def test_the_layout_of_all_is_for_what_the_target_claims() -> None:
    found = layouts(to="NHWC", target=claiming({"Conv": ["NHWC OHWI", "NCHW"]}))
    assert {found[name] for name in CONVOLUTIONS} == {"NHWC OHWI"}
    assert (found["max"], found["norm"]) == ("NCHW", "NCHW")


def test_the_target_has_not_what_is_asked_for() -> None:
    result = relayout.convert(cnn(), target="xnnpack", node_layouts={"point": "NCHW"})
    domains = {node.name: node.domain for node in result.proto.graph.node}
    assert domains["point"] == "relayout.nhwc.ohwi"
    assert "point does not run as asked: xnnpack runs Conv in NHWC OHWI" in result.report.notes


def test_channels_that_do_not_fall_into_tiles_are_said() -> None:
    """16 does not divide the 6 and 10 channels of this network."""
    result = relayout.convert(cnn(), to="NCHW16c")
    assert {node.domain for node in result.proto.graph.node} == {""}
    blocks = "channels are no multiple of the block of 16"
    assert result.report.notes == (
        f"first does not run as asked: 6 {blocks}",
        f"depthwise and 2 more do not run as asked: 8 {blocks}",
        f"max and 1 more do not run as asked: 12 {blocks}",
        f"up does not run as asked: 24 {blocks}",
        f"resize and 2 more do not run as asked: 10 {blocks}",
    )


def test_what_a_target_leaves_is_said() -> None:
    claims = relayout.convert(cnn(), target="arm-compute-library").report.claims
    assert claims is not None
    reasons = {row.operator: row.reasons for row in claims.operators}
    assert reasons["ConvTranspose"] == {"ConvTranspose is not in its table": 1}
    assert reasons["Conv"] == {"it runs Conv only with: no groups, depthwise": 1}


def test_a_layout_is_known_at_any_rank() -> None:
    """The target writes NHWC, the wish NWC: one layout."""
    target = claiming({"Conv": ["NHWC OHWI", "NCHW"]})
    found = layouts(target=target, desired_layouts={"Conv": ["NWC", "OWI"]})
    assert {found[name] for name in CONVOLUTIONS} == {"NHWC OHWI"}


def test_an_operator_that_onnx_does_not_define_is_no_function() -> None:
    source = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]> g (float[2,3,8,9] x, float[5,3,3,3] w) =>'
        ' (float[2,5,6,7] y) { [fused] y = com.microsoft.FusedConv<activation="Relu">(x, w) }'
    )
    result = relayout.convert(source, to="NHWC")
    assert [node.op_type for node in result.proto.graph.node] == ["FusedConv"]
    (note,) = result.report.notes
    assert note.startswith("fused does not run as asked: com.microsoft:FusedConv in NHWC is no function of ONNX")


def test_one_side_in_tiles_is_no_decline() -> None:
    result = relayout.convert(blocked(), to="NCHW16c")
    assert "relayout.nchw_nchw16c" in {node.domain for node in result.proto.graph.node}
    assert [note for note in result.report.notes if "in bodies of functions" not in note] == []


BAD = [
    ({"to": "NHWX!"}, "'NHWX!' is not a layout"),
    ({"to": "NHHC"}, "'NHHC' is not a layout"),
    ({"target": "xnnpak"}, "there is no target 'xnnpak'; did you mean 'xnnpack'?"),
    ({"target": "zz"}, "there is no target 'zz'; there are 'arm-compute-library'"),
    ({"desired_layouts": {"Conv": ["NHWC", "OHWI", "x"]}}, "is no desired layout: "),
    ({"desired_layouts": {"Conv": []}}, "is no desired layout: "),
    ({"desired_layouts": {"Conv": 3}}, "is no desired layout: "),
    ({"desired_layouts": {"Conv": ["NHWC", "NCHW"]}}, "NCHW is no layout of kernels"),
    ({"node_layouts": {"point": "OHWI"}}, "OHWI is no layout of images"),
    ({"to": "OIHW"}, "OIHW is no layout of images: it names C, N, and some of D, H and W"),
    ({"to": "NC"}, "NC is no layout of images"),
    ({"to": "NHCW"}, "NHCW is no usual layout of images; did you mean 'NHWC'"),
    ({"to": "nwhc"}, "NWHC is no usual layout of images; did you mean 'NHWC'"),
    ({"to": "CNHW"}, "did you mean 'NCHW'"),
    ({"to": "NHDWC"}, "did you mean 'NDHWC'"),
    ({"desired_layouts": {"Conv": ["NHWC", "OHIW"]}}, "OHIW is no usual layout of kernels; did you mean 'OIHW'"),
    ({"desired_layouts": {"Cnov": ["NHWC"]}}, "'Cnov' is no operator with layouts of its own; did you mean 'Conv'?"),
    ({"desired_layouts": {"Relu": ["NHWC"]}}, "'Relu' is no operator with layouts of its own"),
    ({"node_layouts": {"pont": "NHWC"}}, "the model has no node 'pont'; did you mean 'point'?"),
]


@pytest.mark.parametrize(("wishes", "message"), BAD, ids=lambda item: str(item)[:40])
def test_bad_wishes_are_one_clear_error(wishes: dict[str, object], message: str) -> None:
    with pytest.raises(LayoutError) as caught:
        relayout.convert(cnn(), **wishes)  # type: ignore[arg-type]
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("to", ["NHWC", "NCHW", "nhwc", "n h w c", "CHWN", "HWCN", "NWC", "NDHWC", "NHCW16c"])
def test_usual_layouts_are_taken(to: str) -> None:
    assert DesiredLayouts.of(to).to == to


def test_one_tensor_is_stored_in_any_order() -> None:
    result = relayout.convert(cnn(), layouts={"x": ("NCHW", "n h c w")}, io="convert")
    assert result.report.interface[0].layout == "n c h w -> n h c w"


# The command line, files, plans.


def test_a_target_that_is_named_loads_no_other() -> None:
    """An import of all tables was a twentieth of a small conversion."""
    code = "import sys; from relayout.targets.registry import target; target('litert'); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "relayout.targets.litert.table" in loaded
    assert not {"relayout.targets.ethos_u.table", "relayout.targets.tosa", "relayout.targets.qnn"} & set(loaded)


def cli(*arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(Path(relayout.__file__).parents[1]), "COLUMNS": "200"}
    words = [sys.executable, "-m", "relayout", *map(str, arguments)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture
def source(tmp_path: Path) -> Path:
    onnx.save(cnn(), tmp_path / "cnn.onnx")
    return tmp_path / "cnn.onnx"


TOML = """
to = "NHWC"
target = "litert"

[operators]
Conv = ["NHWC", "OHWI"]
MaxPool = "default"

[nodes]
point = "NHWC"
"""


def test_a_file_of_wishes(tmp_path: Path) -> None:
    (tmp_path / "wishes.toml").write_text(TOML)
    given = read_desired_layouts(tmp_path / "wishes.toml")
    as_json = {
        "to": "NHWC",
        "target": "litert",
        "operators": {"Conv": ["NHWC", "OHWI"], "MaxPool": "default"},
        "nodes": {"point": "NHWC"},
    }
    (tmp_path / "wishes.json").write_text(json.dumps(as_json))
    assert read_desired_layouts(tmp_path / "wishes.json") == given
    assert layouts(**given)["first"] == "NHWC OHWI"


@pytest.mark.parametrize(
    "text",
    ["to = 3", "[operators]\nConv = 3", "operators = 3", "wish = 'NHWC'", "to = ", "[nodes]\nx = ['NHWC', 3]"],
)
def test_a_bad_file_of_wishes(tmp_path: Path, text: str) -> None:
    (tmp_path / "wishes.toml").write_text(text)
    with pytest.raises((ReadError, LayoutError)):
        read_desired_layouts(tmp_path / "wishes.toml")


def test_a_plan_is_checked_with_its_wishes(source: Path, tmp_path: Path) -> None:
    plan, out = tmp_path / "plan.json", tmp_path / "out.onnx"
    (tmp_path / "wishes.toml").write_text(TOML)
    cli("convert", source, out, "--desired-layouts", tmp_path / "wishes.toml", "--plan", plan, "--quiet")
    written = json.loads(plan.read_text())
    assert written["options"]["wishes"]["target"] == "litert"
    assert "proved minimal" in cli("check", plan, source).stdout
    # Without its wishes the plan is of another problem.
    written["options"]["wishes"] = {"to": None, "desired_layouts": {}, "node_layouts": {}}
    plan.write_text(json.dumps(written))
    assert "plan" in cli("check", plan, source, code=2).stderr


def test_a_plan_of_a_function_is_checked_with_its_answers(tmp_path: Path) -> None:
    source = cnn()
    result = relayout.convert(source, layout_for=lambda node: "NHWC" if node.name == "point" else None)
    (tmp_path / "plan.json").write_text(json.dumps(result.plan))
    found = relayout.pipeline.check_plan(tmp_path / "plan.json", source)
    assert found.proved
    assert found.bytes == result.report.bytes > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--target", "xnnpak"], "did you mean 'xnnpack'?"),
        (["--to", "NHWQ8"], "is not a layout"),
        (["--to", "OIHW"], "OIHW"),
    ],
)
def test_the_command_line_refuses(source: Path, tmp_path: Path, options: list[str], message: str) -> None:
    done = cli("convert", source, tmp_path / "out.onnx", *options, code=2)
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out.onnx").exists()


def test_targets_on_the_command_line() -> None:
    listed = cli("targets").stdout
    assert all(name in listed for name in ("xnnpack", "litert", "tensorrt", "onnx"))
    rows = json.loads(cli("targets", "nnapi", "--json").stdout)["rows"]
    assert rows[0]["operators"] == ["Conv"]
    assert rows[0]["layouts"] == ["NHWC OHWI"]
    assert "every operator" in cli("targets", "onnx").stdout
    assert "did you mean 'nnapi'" in cli("targets", "nnapy", code=2).stderr
    assert {*targets(), *aliases()} == {row["name"] for row in json.loads(cli("targets", "--json").stdout)["targets"]}


def test_a_file_of_the_targets_name_is_proposed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LayoutError, match="there is no target 'npu'; there are 'arm"):
        target("npu")
    (tmp_path / "npu.toml").write_text("")
    with pytest.raises(LayoutError, match=r"there is no target 'npu'; there is a file of that name: npu\.toml$"):
        target("npu")


def test_what_no_layout_names_stays_as_it_is() -> None:
    """A BatchNormalization behind a Gemm, of rank 2: an image has 3 to 5 axes."""
    proto = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
        g (float[2,3,6,5] x, float[4,3,3,3] w, float[4] k) => (float[2,4] y) {
            c = Conv(x, w)
            pooled = GlobalAveragePool(c)
            flat = Flatten(pooled)
            [flat_norm] y = BatchNormalization(flat, k, k, k, k)
        }""")
    for layout, domain in (("NHWC", "relayout.nhwc"), ("NCHW4c", "relayout.nchw_nchw4c")):
        result = relayout.convert(proto, to=layout)
        written = {node.op_type: node.domain for node in result.proto.graph.node}
        assert (written["Conv"], written["BatchNormalization"]) == (domain, "")
        assert (
            f"flat_norm does not run as asked: {layout} cannot name the axes of a tensor of rank 2"
            in result.report.notes
        )
