"""Cubic Resizes that ONNX Runtime's CPU provider does along one axis after the other: the values of its own kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import numpy_helper, parser

import relayout
from relayout.targets.onnxruntime.decompositions import MOST_MULTIPLIED, PLACES
from running import run
from text_form import floats

SOURCE = (20, 24)
SIDES = {"more": (40, 61), "fewer": (11, 17), "both": (13, 48), "one": (1, 9)}
OTHERS = "cubic_coeff_a=-0.5, exclude_outside=1"


def resize(
    call: str, opset: int = 20, shape: tuple[object, ...] = (1, 8, *SOURCE), **given: NDArray[Any]
) -> onnx.ModelProto:
    said = ",".join(map(str, shape))
    text = f'g (float[{said}] x) => (float[a,b,c,d] y) {{ y = Resize<mode="cubic"{call} }}'
    source = parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]>\n{text}')
    region = np.zeros(0, np.float32)
    source.graph.initializer.extend(numpy_helper.from_array(a, k) for k, a in (given | {"region": region}).items())
    return source


def operators(source: onnx.ModelProto) -> list[str]:
    """Operators of the result, which has the values of the source."""
    result = relayout.optimize(source, target="onnxruntime-cpu")
    told = "operators replaced by others: 1 Resize" in result.report.notes
    before, after = ([*proto.graph.node] for proto in (source, result.proto))
    assert told == (before[0].attribute != after[0].attribute or len(after) > 1)
    feed = {"x": floats(*(each.dim_value or 40 for each in source.graph.input[0].type.tensor_type.shape.dim))}
    np.testing.assert_allclose(run(result.proto, feed)[0], run(source, feed)[0], rtol=0, atol=1e-5)
    return [node.op_type for node in after] if told else []


@pytest.mark.parametrize("opset", [11, 13, 18])
@pytest.mark.parametrize("others", ["", f", {OTHERS}"], ids=["as it is", "beyond the border"])
@pytest.mark.parametrize("coordinates", PLACES)
@pytest.mark.parametrize("name", SIDES)
def test_an_image(name: str, coordinates: str, others: str, opset: int) -> None:
    """Its extents, or how many times they become as long, are asked for."""
    sides = SIDES[name]
    expected = ["Resize"] if opset >= 18 and name == "more" else ["MatMul", "MatMul"]
    said = f', coordinate_transformation_mode="{coordinates}"{others}>(x, region, '
    sizes, scales = np.array([1, 8, *sides], np.int64), np.array([1, 1, *np.divide(sides, SOURCE)], np.float32)
    none = "region" if opset == 11 else ""  # an empty tensor, where no operand may be left out
    assert operators(resize(f"{said}{none}, sizes)", opset, sizes=sizes)) == expected
    assert operators(resize(f"{said}scales)", opset, scales=scales)) == expected


def test_some_axes() -> None:
    assert operators(resize(", axes=[2,3]>(x, , , sides)", sides=np.array([40, 61], np.int64))) == ["Resize"]
    assert operators(resize(", axes=[2,3]>(x, , , sides)", sides=np.array([11, 61], np.int64))) == ["MatMul"] * 2


MORE, FEWER = np.array([1, 1, 2, 1.5], np.float32), np.array([1, 1, 0.5, 0.75], np.float32)
STAYS = {
    "a part of the image": resize(
        ', coordinate_transformation_mode="tf_crop_and_resize">(x, part, scales)',
        part=np.array([0, 0, 0, 0, 1, 1, 1, 1], np.float32),
        scales=MORE,
    ),
    "antialias": resize(", antialias=1>(x, , scales)", scales=FEWER),
    "proportions that are kept": resize(
        ', keep_aspect_ratio_policy="not_larger", axes=[2,3]>(x, , , sides)', sides=np.array([40, 61], np.int64)
    ),
    "open sides, fewer": resize(">(x, , scales)", shape=(1, 8, "h", "w"), scales=FEWER),
    "long sides, fewer": resize(">(x, , scales)", shape=(1, 1, 2, MOST_MULTIPLIED), scales=FEWER),
}


def test_channels_too_stay() -> None:
    """No kernel of ONNX Runtime's makes more of them."""
    source = resize(">(x, , scales)", scales=np.array([1, 2, 0.5, 1], np.float32))
    result = relayout.optimize(source, target="onnxruntime-cpu").proto
    assert [node.op_type for node in result.graph.node] == ["Resize"]


@pytest.mark.parametrize("name", STAYS)
def test_what_stays(name: str) -> None:
    assert operators(STAYS[name]) == []


def test_open_sides_become_longer() -> None:
    assert operators(resize(">(x, , scales)", shape=(1, 2048, "h", "w"), scales=MORE)) == ["Resize"]
