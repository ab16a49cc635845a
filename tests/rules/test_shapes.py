"""Types and shapes of what ONNX infers none for: what is told of an operator's outputs is what a run gives."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import onnx
import onnx_ir as ir
import pytest

import relayout
from relayout import rules
from relayout.rules import outputs_of, registry
from relayout.rules.shape_functions import CONTRIBUTED, UNINFERRED
from rules.cases import cases
from rules.law import Case, with_runtime
from text_form import model

CASES = [case for case in cases() if (case.domain == "com.microsoft" or case.op_type in UNINFERRED) and not case.split]
UNKNOWN_EXTENTS = {
    "Attention": "which part of the weights makes values is said in attributes",
    "ConvTransposeWithDynamicPads": "pads are read when it runs",
    "Crop": "attributes say what is cut off",
    "CropAndResize": "the size is read when it runs",
    "DynamicQuantizeLSTM": "the hidden size is a product of the weights' axes",
    "MatMulBnb4": "the weights are packed",
    "MatMulNBits": "the weights are packed",
}
"""Operators of which the rank alone is known, and why."""


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_is_told_is_what_a_run_gives(case: Case) -> None:
    model = case.bare()
    feed = {name: array for name, array in case.arrays.items() if name not in case.constants}
    arrays = dict(zip([name for name in case.results if name], with_runtime(model, feed), strict=True))
    read = ir.from_proto(model)
    (node,) = read.graph
    told = outputs_of(node, read.opset_imports)
    assert None not in told[0], f"no row for {case.op_type} in rules/shape_functions.py, and no shapes= in its rule"
    for value, (kind, shape) in zip(node.outputs, told, strict=True):
        if not value.name:
            continue
        array = arrays[value.name]
        assert kind is None or kind.numpy() == array.dtype
        assert shape is None or len(shape) == array.ndim
        for dim, extent in zip(shape or (), array.shape, strict=False):
            assert not isinstance(dim, int) or dim == extent
    computed = case.op_type == "Pad" and not case.constants
    if not case.dynamic and not computed and _is_plain(node):
        assert all(isinstance(dim, int) for dim in told[0][1]), told


WINDOWED = onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["" : 20, "com.example" : 1]>
network (float[2, 17, 3] x) => (y) { y = com.example.Windows <size = 4, step = 2> (x) }
""")


def windows(operator: rules.Operator) -> list[tuple[ir.DataType | None, tuple[int | str, ...] | None]]:
    """`x[n t c] -> y[n w c size]`: w is `(t - size) / step + 1`."""
    size, step, (n, t, c) = operator.int("size", 1), operator.int("step", 1), operator.inputs[0] or ("", "", "")
    count = (t - size) // step + 1 if isinstance(t, int) else ""
    return [(operator.kind(0), (n, count, c, size))]


def test_a_rule_may_say_shapes() -> None:
    with rules.scope():

        @rules.register("com.example:Windows", kind="axis attributes", shapes=windows)
        def facts(operator: rules.Operator) -> None:
            """Not looked at here."""

        (value,) = relayout.optimize(WINDOWED).model.graph.outputs
    assert (value.dtype, value.shape) == (ir.DataType.FLOAT, ir.Shape([2, 7, 3, 4]))


@pytest.mark.parametrize("outputs", [None, 3, [3], [(ir.DataType.FLOAT, 3)], [("FLOAT", (2,))], [(None, (2.5,))]])
def test_shapes_of_a_user_are_looked_at(outputs: object) -> None:
    with rules.scope():
        decorate = rules.register("com.example:Windows", kind="axis attributes", shapes=lambda _: outputs)  # type: ignore[arg-type, return-value]
        decorate(lambda _: None)
        with pytest.raises(relayout.RelayoutError, match=r"the shapes of com.example:Windows.*test_shapes"):
            relayout.optimize(WINDOWED)


def _is_plain(node: ir.Node) -> bool:
    """Whether the extents of what a node gives are known before it runs."""
    return node.op_type not in UNKNOWN_EXTENTS


def test_a_skip_that_is_stretched_over_the_batch_keeps_the_shape() -> None:
    """No order but the source's is known to be right there; what reads it is told its shape, and the sum's."""
    dims = {"x": (2, 5, 6), "skip": (1, 5, 6), "s": (6,)}
    given = [ir.Value(name=n, type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape(d)) for n, d in dims.items()]
    node = ir.Node("com.microsoft", "SkipLayerNormalization", given, num_outputs=4)
    like = (ir.DataType.FLOAT, (2, 5, 6))
    assert outputs_of(node, {"com.microsoft": 1}) == [like, (None, None), (None, None), like]


def test_a_mark_that_is_no_integer_says_nothing() -> None:
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.UINT8), shape=ir.Shape((1, 4, 8, 8)))
    scale, zero = (ir.Value(name=name, type=ir.TensorType(kind), shape=ir.Shape(()))
                   for name, kind in (("s", ir.DataType.FLOAT), ("z", ir.DataType.UINT8)))  # fmt: skip
    for mark, shape in (
        (ir.AttrString("channels_last", "yes"), (1, 4, 7, 7)),
        (ir.AttrInt64("channels_last", 1), (1, 3, 7, 8)),
    ):
        attributes = [mark, ir.AttrInt64s("kernel_shape", (2, 2))]
        node = ir.Node("com.microsoft", "QLinearAveragePool", [x, scale, zero, scale, zero], attributes)
        assert outputs_of(node, {"com.microsoft": 1}) == [(ir.DataType.UINT8, shape)]


def test_every_contributed_operator_is_told() -> None:
    rules = [rule for rule in registry().values() if rule.domain == "com.microsoft" and rule.kind != "opaque"]
    assert {rule.op_type for rule in rules if rule.shapes is None} == set(CONTRIBUTED)
    assert {case.op_type for case in CASES} >= {rule.op_type for rule in rules} - {"QLinearReduceMean"}


def test_an_operator_of_nobody_tells_nothing() -> None:
    value = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([2, 3]))
    node = ir.Node("some.where", "Unknown", [value])
    assert outputs_of(node, {}) == []


@pytest.mark.parametrize("name", ["EfficientNMS_TRT", "FAKE!", "Upsample2"])
def test_what_the_standard_does_not_have_says_nothing_and_is_carried_through(name: str, tmp_path: Path) -> None:
    """Plugins of a runtime are often nodes of the standard's domain. Their operands are fixed; others' vanish."""
    source = model(
        """g (float[1,3,4,5] x) => (float[1,3,4,5] y) {
            a = Transpose<perm=[0,2,3,1]>(x)
            b = Relu(a)
            c = Transpose<perm=[0,3,1,2]>(b)
            d = Transpose<perm=[0,2,3,1]>(c)
            e = Plugin(d)
            f = Neg(e)
            y = Transpose<perm=[0,3,1,2]>(f)
        }"""
    )
    source.graph.node[4].op_type = name
    result = relayout.optimize(source)
    assert (result.report.source_transposes, result.report.transposes, result.report.proved) == (4, 2, True)
    result.save(tmp_path / "model.onnx")
    written = onnx.load(tmp_path / "model.onnx")
    assert [node.op_type for node in written.graph.node].count(name) == 1
    (node,) = (node for node in ir.from_proto(source).graph if node.op_type == name)
    assert outputs_of(node, {"": 17}) == []


def test_what_the_standard_does_not_have_is_written_in_parts_and_functions_too(tmp_path: Path) -> None:
    source = model(
        """g (float[1,3,4,5] x) => (float[1,3,4,5] y) {
            a = EfficientNMS_TRT(x)
            b = Relu(x)
            c = EfficientNMS_TRT(b)
            d = Add(b, a)
            y = Add(d, c)
        }"""
    )
    source.graph.value_info.extend(onnx.helper.make_tensor_value_info(n, 1, (1, 3, 4, 5)) for n in "abcd")
    parted = relayout.convert(source, target="onnxruntime-cpu", regions="functions")
    parted.save(tmp_path / "functions.onnx")
    relayout.convert(source, target="onnxruntime-cpu").save_parts(tmp_path / "parts")
    whole = onnx.load(tmp_path / "functions.onnx")
    parts = [onnx.load(path) for path in sorted((tmp_path / "parts").glob("*.onnx"))]
    for graphs in ([whole.graph, *whole.functions], [part.graph for part in parts]):
        operators = Counter(node.op_type for graph in graphs for node in graph.node)
        assert [operators[name] for name in ("EfficientNMS_TRT", "Relu", "Add")] == [2, 1, 2]
