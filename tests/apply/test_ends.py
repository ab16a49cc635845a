"""The source's own nodes that give outputs: they stay where the result gives these as the source does."""

from __future__ import annotations

import onnx
import pytest

import relayout

NETWORK = """<ir_version: 10, opset_import: ["" : 20]>
g (float[2, 6, 9, 7] x) => (float[2, 378] y, float[2, 9, 7, 6] z) {
    a = MaxPool <kernel_shape = [1, 1]> (x)
    b = Relu (a)
    [flat] y = Flatten (b)
    [last] z = Transpose <perm = [0, 2, 3, 1]> (b)
}"""


def test_a_view_that_gives_an_output_stays_the_source_s_own() -> None:
    source = onnx.parser.parse_model(NETWORK)
    result = relayout.convert(source, to="NCHW4c").proto  # declined: 6 channels do not fall into tiles of 4
    assert [(node.op_type, list(node.output)) for node in result.graph.node] == [
        (node.op_type, list(node.output)) for node in source.graph.node
    ]
    assert [node.name for node in result.graph.node][-2:] == ["flat", "last"]


@pytest.mark.parametrize("options", [{"io": "convert"}, {"to": "NHWC"}, {"layouts": {"z": ("NHWC", "NCHW")}}], ids=str)
def test_an_output_in_another_order_takes_its_name_from_that_node(options: dict[str, object]) -> None:
    source = onnx.parser.parse_model(NETWORK)
    result = relayout.convert(source, **options)  # type: ignore[arg-type]
    names = [name for node in result.proto.graph.node for name in node.output]
    assert len(set(names)) == len(names)
    assert {"y", "z"} <= set(names)
    onnx.checker.check_model(result.proto, full_check=True)
    assert relayout.verify(source, result).ok
