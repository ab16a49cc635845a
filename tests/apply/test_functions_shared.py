"""One function for all calls that it can serve, and an overload for those that it cannot."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

import relayout

PLAIN = "{} = BatchNormalization (x, s, b, m, v)"
TRAINING = "{}, mean, var = BatchNormalization <training_mode = 1> (x, s, b, m, v)"


def network(first: str, second: str, opset: int = 15) -> onnx.ModelProto:
    """Two operators, the second on what the first gives."""
    lines = first.format("a"), second.replace("(x,", "(a,").format("c")
    return onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : {opset}]>
    g (float[2, 4, 6, 3] x) => (float[2, 4, 6, 3] y, float[4] mean, float[4] var)
    <float[4] s = {{1, 2, 3, 4}}, float[4] b = {{0, 1, 0, 1}},
     float[4] m = {{0, 0, 1, 1}}, float[4] v = {{1, 2, 1, 2}}> {{
        {lines[0]}
        {lines[1]}
        y = Relu (c)
    }}""")


@pytest.mark.parametrize("to", ["NHWC", "NCHW2c"])
@pytest.mark.parametrize("pair", [(PLAIN, TRAINING), (TRAINING, PLAIN)], ids=["plain first", "training first"])
def test_operators_that_give_different_outputs_are_different_functions(pair: tuple[str, str], to: str) -> None:
    source = network(*pair)
    result = relayout.convert(source, to=to)
    onnx.checker.check_model(result.proto, full_check=True)
    counts = {function.overload: len(function.output) for function in result.proto.functions}
    assert sorted(counts.values()) == [1, 3]
    called = {node.overload: len(node.output) for node in result.proto.graph.node if node.domain}
    assert called == counts
    assert result.proto.ir_version == 10
    assert relayout.verify(source, result).ok


def test_the_way_back_and_again(tmp_path: Path) -> None:
    source = network(PLAIN, TRAINING)
    relayout.convert(source, to="NHWC").save(tmp_path / "a.onnx")
    back = relayout.convert(tmp_path / "a.onnx", to="NCHW").proto
    assert [(node.domain, node.op_type, node.overload) for node in back.graph.node] == [
        ("", "BatchNormalization", ""),
        ("", "BatchNormalization", ""),
        ("", "Relu", ""),
    ]
    again = relayout.convert(tmp_path / "a.onnx", to="NHWC")
    onnx.checker.check_model(again.proto, full_check=True)
    assert relayout.verify(source, again).ok
    inlined = relayout.convert(source, to="NHWC", inline=True)
    assert not inlined.proto.functions
    assert relayout.verify(source, inlined).ok


def test_operators_of_one_kind_share_a_function() -> None:
    pools = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 15]>
    g (float[2, 4, 6, 3] x) => (float[2, 4, 6, 3] y, int64[2, 4, 6, 3] i) {
        a = MaxPool <kernel_shape = [1, 1]> (x)
        y, i = MaxPool <kernel_shape = [1, 1]> (a)
    }""")
    plain = network(PLAIN, PLAIN)
    del plain.graph.output[1:]
    for source in (plain, pools):
        result = relayout.convert(source, to="NHWC")
        assert len(result.proto.functions) == 1
        assert result.proto.ir_version == 8
        onnx.checker.check_model(result.proto, full_check=True)


@pytest.mark.parametrize("opset", [6, 7, 8, 9])
def test_a_blocked_layout_before_constants_of_integers_is_declined(opset: int) -> None:
    source = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : {opset}]>
    g (float[2, 4, 6, 3] x, float[8, 4, 3, 1] w) => (float[2, 8, 4, 3] y) {{
        a = Conv <kernel_shape = [3, 1]> (x, w)
        y = Relu (a)
    }}""")
    result = relayout.convert(source, to="NCHW4c")
    onnx.checker.check_model(result.proto, full_check=True)
    assert relayout.verify(source, result).ok
    declined = "a does not run as asked: NCHW4c needs constants that ONNX has from opset 9 on"
    assert (declined in result.report.notes) == (opset < 9)
    assert ("relayout.nchw4c:Conv" in result.report.operators) == (opset >= 9)
    assert "relayout.nhwc:Conv" in relayout.convert(source, to="NHWC").report.operators
