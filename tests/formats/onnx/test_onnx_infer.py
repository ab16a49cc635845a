"""Shape inference takes no more memory than a small file may cost."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import onnx
import pytest
from onnx import helper, parser

import relayout
from relayout.formats.onnx.inferring import MOST_PROPAGATED, infer_shapes

GIBIBYTE = 1 << 30


@contextmanager
def within(more: int) -> Iterator[None]:
    """A limit on the address space: what the process has now, and so much more."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + more, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def vectors(extent: int, body: str) -> onnx.ModelProto:
    return parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21]> g (int64[{extent}] v, bool c) => (int64[{extent}] z) {{ {body} }}'
    )


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the size of the process is read in /proc")
@pytest.mark.parametrize(
    "body",
    [
        "z = Add(v, v)",
        "z = Cast<to = 7>(v)",
        "z = Gather(v, v)",
        """z = If(c) <then_branch = t () => (int64[n] o) { o = Mul(v, v) },
                      else_branch = e () => (int64[n] p) { p = Neg(v) }>""",
    ],
)
def test_long_vectors_cost_nothing(body: str, tmp_path: Path) -> None:
    extent, before = 10**7, peak()
    with within(4 * GIBIBYTE):
        result = relayout.optimize(vectors(extent, body.replace("n]", f"{extent}]")))
        result.save(tmp_path / "m.onnx", external_data=False)
    assert peak() - before < GIBIBYTE // 2
    assert list(result.model.graph.outputs[0].shape) == [extent]


def test_shapes_are_followed_beside_short_vectors() -> None:
    def model(extent: int) -> onnx.ModelProto:
        return parser.parse_model(
            f"""<ir_version: 10, opset_import: ["" : 21]> g (float[2, 3, 4] x, float[{extent}] v) => (y, w) {{
              w = Neg(v)  s = Shape(x)  i = Constant<value_ints = [2, 0, 1]>()
              t = Gather(s, i)  y = Reshape(x, t) }}"""
        )

    def extents(extent: int) -> list[int]:
        return [dim.dim_value for dim in infer_shapes(model(extent)).graph.output[0].type.tensor_type.shape.dim]

    assert extents(5000) == [4, 2, 3]
    assert extents(MOST_PROPAGATED) == [0, 0, 0]  # not known, not wrong


STATED = """
    g (float[2,3,n] x) => (float[6,n] y) {
        s = Shape(x)
        a = Slice(s, two, three)
        b = Concat<axis=0>(six, a)
        y = Reshape(x, b)
    }"""


def stated_model(**shapes: list[int]) -> onnx.ModelProto:
    """What the file says of its values, beside the model."""
    proto = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {STATED}')
    constants = {"two": 2, "three": 3, "six": 6}
    proto.graph.initializer.extend(helper.make_tensor(name, 7, [1], [value]) for name, value in constants.items())
    proto.graph.value_info.extend(helper.make_tensor_value_info(name, 7, shape) for name, shape in shapes.items())
    return proto


@pytest.mark.parametrize(
    ("shapes", "inferences"),
    [
        ({"s": [3], "a": [1], "b": [2]}, 1),
        ({"s": [3], "a": [1]}, 2),
        ({"s": [3], "a": [1], "b": [MOST_PROPAGATED + 1]}, 2),
    ],
)
def test_lengths_that_are_stated_are_not_inferred(
    shapes: dict[str, list[int]], inferences: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, infer = [], onnx.shape_inference.infer_shapes
    bare, given = stated_model(), stated_model(**shapes)
    expected = infer_shapes(bare)

    def counted(model: onnx.ModelProto, **options: bool) -> onnx.ModelProto:
        calls.append(options)
        return infer(model, **options)

    monkeypatch.setattr(onnx.shape_inference, "infer_shapes", counted)
    assert infer_shapes(bare, given.graph) == expected
    assert len(calls) == inferences


def test_a_length_that_is_a_lie_is_not_believed(tmp_path: Path) -> None:
    """Data propagation would make 10**9 symbols."""
    proto = vectors(10**9, "a = Add(v, v) z = Neg(a)")
    proto.graph.value_info.append(helper.make_tensor_value_info("a", 7, [5]))
    with within(4 * GIBIBYTE):
        result = relayout.convert(proto, io="convert")
        result.save(tmp_path / "m.onnx")
    assert "the operator gives another type or shape than the source states: a" in result.report.notes


@pytest.mark.parametrize("stated", [70, 69, None])
@pytest.mark.parametrize("opset", [10, 18])
def test_extents_of_a_resize_are_those_of_runtimes(opset: int, stated: int | None) -> None:
    """100 * 0.7 is 70 in float32, and so for PyTorch and ONNX Runtime; in float64, as ONNX infers it, 69.99 or so."""
    operands = "x, s" if opset == 10 else "x, , s"
    model = parser.parse_model(
        f'<ir_version: 7, opset_import: ["": {opset}]> g (float[1,3,100,100] x) => (float[a,b,c,d] y)'
        f"<float[4] s = {{1, 1, 0.7, 0.7}}> {{ r = Resize({operands}) a = Relu(r)"
        " k = Constant<value = float[4] {1, 1, 1.9, 1.9}>()"
        f" y = Resize({operands.replace('s', 'k').replace('x', 'a')}) }}"
    )
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    model.graph.output[0].type.tensor_type.ClearField("shape")
    if stated is not None:
        model.graph.value_info.append(
            helper.make_tensor_value_info("r", onnx.TensorProto.FLOAT, [1, 3, stated, stated])
        )
    for result in (relayout.convert(model, format="tflite"), relayout.convert(model, to="NHWC")):
        assert relayout.verify(model, result).ok
