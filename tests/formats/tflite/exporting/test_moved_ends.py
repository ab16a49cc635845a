"""Inputs and outputs have the names and scales of the `.tflite` that was converted, which apps read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from export_running import agrees

import relayout
from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.loading import load
from relayout.formats.tflite.container.model import Model, Quantization, Tensor
from relayout.formats.tflite.exporting.draft import Draft
from relayout.formats.tflite.exporting.integers import give_meaning
from relayout.layout.normalization import NORMALIZE
from text_form import model

SCALED = {"s": np.array(0.02, np.float32), "z": np.array(-5, np.int8), "t": np.array(0.05, np.float32)}
X = np.arange(-12, 12, dtype=np.int8).reshape(2, 3, 4)


def file_of(source: onnx.ModelProto | Path | str, tmp_path: Path, **options: object) -> Model:
    relayout.convert(source, format="tflite", **options).save(tmp_path / "out.tflite")  # type: ignore[arg-type]
    return load(tmp_path / "out.tflite")


def ends(file: Model) -> tuple[list[Tensor], list[Tensor]]:
    graph = file.subgraphs[0]
    return [graph.tensors[index] for index in graph.inputs], [graph.tensors[index] for index in graph.outputs]


def meaning(quantization: Quantization | None) -> tuple[float, int] | None:
    if quantization is None:
        return None
    return round(float(quantization.scale[0]), 6), int(quantization.zero_point[0])


@pytest.mark.parametrize("moved", ["Reshape(x, shape)", "Transpose<perm = [2, 0, 1]>(x)", "Slice(x, one, two, one)"])
def test_an_input_that_is_moved_first_means_what_is_moved(moved: str, tmp_path: Path) -> None:
    body = f"m = {moved}  d = DequantizeLinear(m, s, z)  r = Relu(d)  q = QuantizeLinear(r, s, z)  y = Reshape(q, flat)"
    shape = {"shape": np.array([6, 4]), "one": np.array([1]), "two": np.array([2]), "flat": np.array([-1])}
    source = model(f"g (int8[2,3,4] x) => (int8[n] y) {{ {body} }}", **SCALED, **shape)
    agrees(source, {"x": X})
    (first,), (last,) = ends(file_of(source, tmp_path))
    assert meaning(first.quantization) == meaning(last.quantization) == (0.02, -5)


def test_what_is_not_dequantized_has_no_meaning(tmp_path: Path) -> None:
    source = model(
        "g (int8[2,3,4] x) => (int8[1,3,4] y) { y = Slice(x, zero, one) }", zero=np.array([0]), one=np.array([1])
    )
    agrees(source, {"x": X})
    (first,), (last,) = ends(file_of(source, tmp_path))
    assert first.quantization is None
    assert last.quantization is None


@pytest.mark.parametrize(
    ("scales", "name", "expected"),
    [
        ((0.02, 0.02), "RESHAPE", (0.02, 0)),
        ((0.02, 0.05), "RESHAPE", None),  # two meanings
        ((0.02, None), "RESHAPE", None),
        ((0.02, 0.02), "PACK", None),  # more than moved
        ((), "RESHAPE", None),
    ],
)
def test_an_input_means_what_all_its_readers_mean(
    scales: tuple[float | None, ...], name: str, expected: tuple[float, int] | None
) -> None:
    draft = Draft()
    tensor = draft.tensor("x", TensorType.INT8, (2, 3))
    draft.inputs.append(tensor)
    for scale in scales:
        known = None if scale is None else Quantization(np.array([scale], np.float32), np.array([0]), 0)
        draft.add(name, [tensor], [draft.tensor("y", TensorType.INT8, (6,), known)])
    value = ir.Value(name="x")
    model = ir.Model(ir.Graph([value], [], nodes=[]), ir_version=8)
    give_meaning([draft], model)
    assert meaning(tensor.quantization) == expected
    tensor.quantization, value.metadata_props[NORMALIZE] = None, "its own"
    give_meaning([draft], model)
    assert tensor.quantization is None


@pytest.mark.parametrize("through", [True, False])
def test_tensors_keep_their_names(through: bool, tmp_path: Path) -> None:
    source = Path(__file__).parents[3] / "data/keras/group_norm.int8.tflite"
    before = load(source)
    assert ends(before)[0][0].name != before.signatures[0].inputs[0][0], "its signature has other names"
    whole: Path = source
    if through:
        whole = tmp_path / "whole.onnx"
        relayout.convert(source).save(whole)
    after = file_of(whole, tmp_path)
    assert [each.name for side in ends(after) for each in side] == [each.name for side in ends(before) for each in side]
    assert [name for name, _ in after.signatures[0].inputs] == [name for name, _ in before.signatures[0].inputs]
    assert relayout.verify(source, tmp_path / "out.tflite").ok


def test_what_is_renamed_or_stored_otherwise_has_its_own_name(tmp_path: Path) -> None:
    source = Path(__file__).parents[3] / "data/keras/group_norm.int8.tflite"
    (name, _), *_ = load(source).signatures[0].inputs
    assert ends(file_of(source, tmp_path, rename={name: "picture"}))[0][0].name == "picture"
    (tmp_path / "out.tflite").unlink()
    own = ends(load(source))[0][0].name
    assert ends(file_of(source, tmp_path, io="NCHW"))[0][0].name != own
    assert relayout.verify(source, tmp_path / "out.tflite").ok
