"""Real models end to end: converted, checked, run beside the interpreter; and never more bytes than the peers leave."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import relayout
from conftest import SHARED, shared_models

pytestmark = pytest.mark.skipif(not SHARED.is_dir(), reason="the shared models are not beside the project")

REFUSED: dict[str, str] = {
    "coral/invalid_model_invoking_error.tflite": "fake-op-double",
    "coral/posenet_mobilenet_v1_075_353_481_16_quant_decoder.tflite": "PosenetDecoderOp",
    "coral/bodypix_mobilenet_v1_075_512_512_16_quant_decoder.tflite": "CUSTOM PosenetDecoderOp",
    "coral/posenet_mobilenet_v1_075_481_641_16_quant_decoder.tflite": "CUSTOM PosenetDecoderOp",
}
"""Custom operators that no ONNX operator expresses."""

CLASSIFIERS = (
    "coral/mobilenet_v1_0.25_128_quant.tflite",
    "coral/mobilenet_v1_0.5_160_quant.tflite",
    "coral/mobilenet_v2_1.0_224_inat_bird_quant.tflite",
    "coral/mobilenet_v2_1.0_224_quant.tflite",
    "coral/tf2_mobilenet_v2_1.0_224_ptq.tflite",
    "tflite2onnx/mobilenet_v1_0.25_128.tflite",
    "tflite2onnx/mobilenet_v1_0.25_128_quant.tflite",
)

NHWC_TO_NCHW = {
    "abs.float32": ("NHWC", "NCHW"),
    "abs-sqrt.float32": ("NHWC", "NCHW"),
    "add.float32": ("NHWC", "NCHW"),
    "add-broadcast.float32": ("NHWC", "NCHW"),
    "add-broadcast2.float32": ("NHWC", "NCHW"),
    "concat.float32": ("n h w d c", "n d c h w"),
    "concat2.float32": ("NHWC", "NCHW"),
    "mean.float32": ("NHWC", "NCHW"),
    "padding.float32": ("NHWC", "NCHW"),
    "stridedslice.float32": ("NHWC", "NCHW"),
    "stridedslice-beginmask.float32": ("NHWC", "NCHW"),
    "stridedslice-endmask.float32": ("NHWC", "NCHW"),
    "stridedslice-stride.float32": ("NHWC", "NCHW"),
}
"""tflite2onnx's explicit layouts."""


def name_of(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


RANDOM = {"operators/RANDOM_UNIFORM.tflite"}
"""No two runs agree: what is drawn is held by the importer's own tests."""


def models(*folders: str) -> list[pytest.param]:  # type: ignore[valid-type]
    large = 1_000_000
    return [
        pytest.param(path, id=name_of(path), marks=[pytest.mark.slow] if path.stat().st_size > large else [])
        for path in shared_models(*folders)
        if name_of(path) not in {*REFUSED, *RANDOM}
    ]


@pytest.mark.parametrize("path", models("tflite2onnx", "coral", "operators"))
@pytest.mark.parametrize("io", ["keep", "convert"])
@pytest.mark.sampled(every=2)
def test_converts_and_equals_the_interpreter(path: Path, io: str, tmp_path: Path) -> None:
    result = relayout.convert(path, io=io)  # type: ignore[arg-type]
    assert result.report.proved
    assert result.report.bytes <= result.report.source_bytes
    result.save(tmp_path / "model.onnx")
    found = relayout.verify(path, tmp_path / "model.onnx", runs=1)
    assert found.ok, [row for row in found.rows if row.output]
    assert any(row.output for row in found.rows)


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_expressed_is_refused_by_name(name: str) -> None:
    with pytest.raises(relayout.UnsupportedError, match=REFUSED[name]):
        relayout.convert(SHARED / name)


@pytest.mark.slow
def test_no_model_keeps_more_bytes_than_the_peers_leave() -> None:
    peers = json.loads((Path(__file__).parent / "data" / "peers.json").read_text(encoding="utf-8"))
    compared = 0
    for name, left in peers.items():
        if name in REFUSED:
            continue
        ours = relayout.convert(SHARED / name, io="keep").report
        freed = relayout.convert(SHARED / name, io="convert").report
        # tf2onnx keeps the interface as `keep` does; tflite2onnx changes it to NCHW as `convert` does.
        for peer, report in (("tf2onnx", ours), ("tflite2onnx", freed)):
            if peer in left:
                compared += 1
                assert report.bytes <= left[peer][1], f"{name}: {report.bytes} bytes, {peer} leaves {left[peer]}"
    assert compared > 90


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifiers_keep_at_most_the_transpose_of_their_interface(name: str) -> None:
    freed = relayout.explain(SHARED / name, io="convert")
    assert (freed.transposes, freed.bytes, freed.proved) == (0, 0, True)
    kept = relayout.explain(SHARED / name, io="keep")
    assert kept.proved
    assert kept.transposes <= 1
    for remaining in kept.remaining:
        assert remaining.reason.startswith("Needed because you keep input ")


@pytest.mark.parametrize("name", NHWC_TO_NCHW)
@pytest.mark.parametrize("same", [True, False], ids=["same", "nchw"])
def test_explicit_layouts_of_tflite2onnx(name: str, same: bool, tmp_path: Path) -> None:
    """Each with source = destination and with NHWC:NCHW, on every tensor of the interface of that rank."""
    path = SHARED / "tflite2onnx" / f"{name}.tflite"
    source, target = NHWC_TO_NCHW[name]
    plain = relayout.explain(path)
    ends = [end for end in plain.interface if len(end.shape) == len(source.replace(" ", ""))]
    layouts = {end.name: (source, source if same else target) for end in ends}
    result = relayout.convert(path, layouts=layouts)
    result.save(tmp_path / "model.onnx")
    assert relayout.verify(path, tmp_path / "model.onnx").ok
    before_axes, axes = (text.replace(" ", "") for text in (source, source if same else target))
    perm = [before_axes.index(axis) for axis in axes]
    for before, after in zip(plain.interface, result.report.interface, strict=True):
        if before.name in layouts:
            assert after.shape == tuple(before.shape[axis] for axis in perm)
    assert ends
    if same:
        assert result.report.transposes == 0


@pytest.mark.parametrize("path", [path for path in shared_models("coral") if name_of(path) not in REFUSED], ids=name_of)
def test_no_transpose_comes_between_an_operator_and_its_quantization(path: Path) -> None:
    """The integer side carries what must be moved: a quarter of the bytes, and units that runtimes recognise."""
    model = relayout.convert(path).model
    for node in model.graph:
        if node.op_type == "Transpose":
            (value,) = node.inputs
            assert value is not None
            producer = value.producer()
            users = [user.op_type for user, _ in node.outputs[0].uses()]
            # A unit of its own, from integers to integers, moves integers, too.
            is_behind = producer is not None and producer.op_type == "DequantizeLinear"
            assert is_behind == ("QuantizeLinear" in users)
            assert not is_behind or set(users) == {"QuantizeLinear"}
