"""Write ONNX models of real architectures, as the usual exporters give them, into a directory.

    torch/bin/python bench/make_onnx.py torch OUT [NAME ...]      both of PyTorch's exporters
    torch/bin/python bench/make_onnx.py light OUT                 the `light` models of the onnx package
    torch/bin/python bench/make_onnx.py lively OUT                scales what ignores its input
    torch/bin/python bench/make_onnx.py quantized OUT             int8 QDQ versions of what is in OUT
    tf/bin/python    bench/make_onnx.py keras OUT [NAME ...]      tf2onnx on Keras models
    tf/bin/python    bench/make_onnx.py tflite OUT FILE.tflite …  tf2onnx on .tflite files

The first environment has torch, transformers, onnxscript, onnxruntime; the second tensorflow-cpu and tf2onnx. No
weights are fetched: every model is made from a configuration, with a fixed seed. Networks are narrower and shallower
than their namesakes, but built alike; those of `bench/wide_networks.py` have the full width. Where a network allows it,
the extents of an image's axes all differ. A model that an exporter refuses is named, and left out.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

OPSET = 18
SEED = 5
KEPT_CONSTANTS = 128
"""Constants of up to this many bytes stay as they are in a `light` model; what is larger gets random weights."""


@dataclass(frozen=True)
class Export:
    """A network and what it is exported with.

    Args:
        module: the network, in evaluation mode.
        inputs: example inputs, in order.
        names: the inputs' names.
        dynamic: input -> {axis: name}: a second export with these axes dynamic; none without.
    """

    module: Any
    inputs: tuple[Any, ...]
    names: tuple[str, ...] = ("image",)
    dynamic: Mapping[str, Mapping[int, str]] = field(default_factory=dict)


Maker = Callable[[], Export]


def image(batch: int = 1, channels: int = 3, height: int = 96, width: int = 128) -> Any:
    import torch

    return torch.randn(batch, channels, height, width)


BATCH = {"image": {0: "batch"}}
SIZES = {"image": {0: "batch", 2: "height", 3: "width"}}


def architectures() -> dict[str, Maker]:
    """Name -> how to make it. Modules are made one at a time: together they would fill the memory."""
    import transformers as hf
    from torch_networks import WITHOUT_WEIGHTS, ShuffleNet, SuperResolution, UNet, Yolo, first_of, mobilenet
    from wide_networks import wide_networks

    def of(model: Any, config: Any) -> Any:
        return first_of(model(config))

    small = {"num_labels": 7}
    return {
        "resnet": lambda: Export(
            of(
                hf.ResNetForImageClassification,
                hf.ResNetConfig(embedding_size=32, hidden_sizes=[64, 96, 128, 160], depths=[2, 2, 2, 2], **small),
            ),
            (image(),),
            dynamic=BATCH,
        ),
        "mobilenet": lambda: Export(mobilenet(), (image(2),), dynamic=SIZES),
        "efficientnet": lambda: Export(
            of(
                hf.EfficientNetForImageClassification,
                hf.EfficientNetConfig(width_coefficient=0.5, depth_coefficient=0.6, hidden_dim=640, image_size=96),
            ),
            (image(),),
        ),
        "convnext": lambda: Export(
            of(
                hf.ConvNextForImageClassification,
                hf.ConvNextConfig(depths=[2, 2, 3, 2], hidden_sizes=[24, 48, 96, 160], **small),
            ),
            (image(),),
            dynamic=BATCH,
        ),
        "convnextv2": lambda: Export(
            of(
                hf.ConvNextV2ForImageClassification,
                hf.ConvNextV2Config(depths=[1, 1, 2, 1], hidden_sizes=[24, 48, 96, 160], **small),
            ),
            (image(),),
        ),
        "swin": lambda: Export(
            of(
                hf.SwinModel,
                hf.SwinConfig(
                    image_size=96, patch_size=3, window_size=4, embed_dim=36, depths=[2, 2], num_heads=[3, 6]
                ),
            ),
            (image(2, 3, 96, 96),),
        ),
        "swinv2": lambda: Export(
            of(
                hf.Swinv2Model,
                hf.Swinv2Config(
                    image_size=96, patch_size=3, window_size=4, embed_dim=36, depths=[2, 2], num_heads=[3, 6]
                ),
            ),
            (image(2, 3, 96, 96),),
        ),
        "segformer": lambda: Export(
            of(
                hf.SegformerForSemanticSegmentation,
                hf.SegformerConfig(
                    depths=[1, 2, 1, 1],
                    hidden_sizes=[16, 32, 80, 96],
                    num_attention_heads=[1, 2, 5, 6],
                    decoder_hidden_size=48,
                    **small,
                ),
            ),
            (image(),),
            dynamic=BATCH,
        ),
        "detr": lambda: Export(
            of(
                hf.DetrForObjectDetection,
                hf.DetrConfig(
                    **WITHOUT_WEIGHTS,
                    backbone_config=hf.ResNetConfig(
                        embedding_size=16, hidden_sizes=[32, 48, 64, 80], depths=[1, 1, 1, 1], out_features=["stage4"]
                    ),
                    d_model=64,
                    encoder_layers=2,
                    decoder_layers=2,
                    encoder_attention_heads=4,
                    decoder_attention_heads=4,
                    encoder_ffn_dim=96,
                    decoder_ffn_dim=96,
                    num_queries=11,
                    **small,
                ),
            ),
            (image(),),
        ),
        "yolo": lambda: Export(Yolo(), (image(),), dynamic=BATCH),
        "vit": lambda: Export(
            of(
                hf.ViTModel,
                hf.ViTConfig(
                    hidden_size=96,
                    num_hidden_layers=3,
                    num_attention_heads=6,
                    intermediate_size=160,
                    image_size=(96, 128),
                    patch_size=8,
                ),
            ),
            (image(2),),
            dynamic=BATCH,
        ),
        "mobilevit": lambda: Export(
            of(hf.MobileViTModel, hf.MobileViTConfig(image_size=(96, 128), hidden_sizes=[48, 64, 80])), (image(),)
        ),
        "mobilevitv2": lambda: Export(
            of(hf.MobileViTV2Model, hf.MobileViTV2Config(image_size=(96, 128), width_multiplier=0.5)), (image(),)
        ),
        "whisper_encoder": lambda: Export(
            first_of(
                hf.models.whisper.modeling_whisper.WhisperEncoder(
                    hf.WhisperConfig(
                        d_model=96,
                        encoder_layers=2,
                        encoder_attention_heads=6,
                        encoder_ffn_dim=160,
                        num_mel_bins=40,
                        max_source_positions=150,
                    )
                )
            ),
            (image()[0, 0, :40].repeat(1, 3)[None, :, :300],),
            ("features",),
        ),
        "llama": lambda: Export(
            of(
                hf.LlamaModel,
                hf.LlamaConfig(
                    hidden_size=96,
                    intermediate_size=160,
                    num_hidden_layers=2,
                    num_attention_heads=6,
                    num_key_value_heads=2,
                    vocab_size=500,
                    use_cache=False,
                ),
            ),
            (tokens(2, 37),),
            ("tokens",),
            {"tokens": {1: "length"}},
        ),
        "bert": lambda: Export(
            of(
                hf.BertModel,
                hf.BertConfig(
                    vocab_size=500,
                    hidden_size=96,
                    num_hidden_layers=3,
                    num_attention_heads=6,
                    intermediate_size=160,
                    max_position_embeddings=64,
                ),
            ),
            (tokens(2, 37),),
            ("tokens",),
            {"tokens": {0: "batch", 1: "length"}},
        ),
        "shufflenet": lambda: Export(ShuffleNet(), (image(),), dynamic=BATCH),
        "superresolution": lambda: Export(SuperResolution(), (image(1, 3, 40, 56),), dynamic=SIZES),
        "focalnet": lambda: Export(
            of(
                hf.FocalNetModel,
                hf.FocalNetConfig(
                    image_size=96,
                    patch_size=4,
                    embed_dim=32,
                    depths=[1, 2, 1],
                    focal_levels=[2, 2, 2],
                    focal_windows=[3, 3, 3],
                    use_conv_embed=False,
                ),
            ),
            (image(height=96, width=128),),
        ),
        "dpt": lambda: Export(
            of(
                hf.DPTForDepthEstimation,
                hf.DPTConfig(
                    hidden_size=96,
                    num_hidden_layers=4,
                    num_attention_heads=6,
                    intermediate_size=160,
                    image_size=112,
                    patch_size=16,
                    backbone_out_indices=[0, 1, 2, 3],
                    neck_hidden_sizes=[24, 32, 48, 64],
                    fusion_hidden_size=32,
                    is_hybrid=False,
                ),
            ),
            (image(2, 3, 112, 112),),
        ),
        "pvtv2": lambda: Export(
            of(
                hf.PvtV2Model,
                hf.PvtV2Config(
                    image_size=(96, 128),
                    hidden_sizes=[16, 32, 80, 96],
                    num_attention_heads=[1, 2, 5, 6],
                    depths=[1, 2, 1, 1],
                    mlp_ratios=[4, 4, 2, 2],
                ),
            ),
            (image(),),
        ),
        "cvt": lambda: Export(
            of(
                hf.CvtModel,
                hf.CvtConfig(embed_dim=[24, 48, 96], num_heads=[1, 3, 6], depth=[1, 2, 3]),
            ),
            (image(),),
        ),
        "unet": lambda: Export(UNet(), (image(),), dynamic=BATCH),
        **{name: partial(wide, make) for name, make in wide_networks().items()},
    }


def wide(make: Callable[[], tuple[Any, tuple[Any, ...], str]]) -> Export:
    """One of `bench/wide_networks.py`."""
    network, inputs, name = make()
    return Export(network, inputs, (name,))


def tokens(batch: int, length: int) -> Any:
    import torch

    return torch.randint(0, 500, (batch, length))


# Exporters


def from_torch(out: Path, names: Sequence[str]) -> None:
    import torch

    torch.set_num_threads(1)
    for name, make in architectures().items():
        if names and name not in names:
            continue
        for kind in ("dynamo", "script"):
            for dynamic in (False, True):
                torch.manual_seed(SEED)
                try:
                    export = make()
                except Exception as error:
                    say(name, "model", error)
                    break
                if dynamic and not export.dynamic:
                    continue
                path = out / f"{name}.{kind}{'.dynamic' if dynamic else ''}.onnx"
                try:
                    export_torch(export, path, kind, dynamic)
                except Exception as error:
                    say(name, path.name, error)
                else:
                    say(name, path.name)


def export_torch(export: Export, path: Path, kind: str, dynamic: bool) -> None:
    """One export, without what the exporter prints."""
    import torch

    module = export.module.eval()
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        if kind == "dynamo":
            shapes = tuple(dict(export.dynamic.get(name, {})) for name in export.names) if dynamic else None
            program = torch.onnx.export(
                module, export.inputs, dynamo=True, input_names=export.names, dynamic_shapes=shapes, verbose=False
            )
            program.save(str(path))
        else:
            axes = {name: dict(value) for name, value in export.dynamic.items()} if dynamic else None
            torch.onnx.export(
                module,
                export.inputs,
                str(path),
                dynamo=False,
                opset_version=OPSET,
                input_names=list(export.names),
                dynamic_axes=axes,
            )


def say(name: str, what: str, error: Exception | None = None) -> None:
    reason = "" if error is None else f": {type(error).__name__}: {str(error).strip().splitlines()[0][:160]}"
    print(f"{name}: {what}{reason}", file=sys.stderr, flush=True)


def light(out: Path, _: Sequence[str]) -> None:
    """The onnx package's `light` models: their weights are ConstantOfShape nodes, made random initializers here."""
    import numpy as np
    import onnx
    import onnx.backend.test
    from onnx import helper, numpy_helper

    folder = Path(onnx.backend.test.__file__).parent / "data" / "light"
    for path in sorted(folder.glob("*.onnx")):
        model = onnx.load(path)
        graph, rng = model.graph, np.random.default_rng(SEED)
        known = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
        nodes, weights, replaced = [], [], set()
        for node in graph.node:
            if node.op_type != "ConstantOfShape" or node.input[0] not in known:
                nodes.append(node)
                continue
            shape = tuple(int(extent) for extent in known[node.input[0]])
            scale = (2 / max(1, int(np.prod(shape[1:])))) ** 0.5 if len(shape) > 1 else 0.1
            array = (rng.normal(0, scale, shape) if len(shape) > 1 else rng.uniform(0.5, 1, shape)).astype(np.float32)
            weights.append(numpy_helper.from_array(array, node.output[0]))
            replaced.add(node.input[0])
        del graph.node[:]
        graph.node.extend(nodes)
        graph.initializer.extend(weights)
        read = {name for node in nodes for name in node.input}
        kept = [tensor for tensor in graph.initializer if tensor.name in read]
        del graph.initializer[:]
        graph.initializer.extend(kept)
        inputs = [value for value in graph.input if value.name not in {tensor.name for tensor in kept} | replaced]
        del graph.input[:]
        graph.input.extend(inputs)
        model.ir_version = max(model.ir_version, 8)
        helper.set_model_props(model, {})
        onnx.save(model, out / path.name.replace("_", ".", 1))
        say(path.stem, "written")


def lively(out: Path, _: Sequence[str]) -> None:
    """What random weights make deaf to its input: a comparison of values would see nothing."""
    import onnx
    from lively import ALIVE, enliven, sensitivity

    for path in sorted(out.glob("*.onnx")):
        if path.name.endswith(".qdq.onnx") or path.name.startswith("tflite_"):
            continue  # made from others; trained
        try:
            model = onnx.load(path)
            if (before := sensitivity(model)) >= ALIVE:
                continue
            after = enliven(model)
            onnx.save(model, path)
            say(path.stem, f"{before:.1e} -> {after:.1e}")
        except Exception as error:
            say(path.stem, "lively", error)


QUANTIZED = ("resnet.dynamo", "mobilenet.script", "yolo.dynamo", "segformer.dynamo", "swin.script", "vit.dynamo")
QUANTIZED += ("shufflenet.script", "convnext.dynamo", "unet.script", "superresolution.script", "keras_mobilenet")

IN_FORMS = ("resnet.script", "mobilenet.script", "yolo.script", "shufflenet.script")
"""Networks that are quantized in every form that ONNX Runtime has."""
FORMS: dict[str, dict[str, Any]] = {
    "s8s8pc": {"activation_type": "QInt8", "weight_type": "QInt8", "per_channel": True},
    "u8s8": {"activation_type": "QUInt8", "weight_type": "QInt8"},
    "u8u8": {"activation_type": "QUInt8", "weight_type": "QUInt8"},
    "a16": {"activation_type": "QInt16", "weight_type": "QInt8"},
    "qop": {"activation_type": "QUInt8", "weight_type": "QUInt8", "quant_format": "QOperator"},
}
QDQ = {"activation_type": "QUInt8", "weight_type": "QInt8", "per_channel": True}


def quantized(out: Path, names: Sequence[str]) -> None:
    """Static int8, calibrated on random inputs: QDQ per channel, of some networks every form."""
    import numpy as np
    import onnx
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Random(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self, model: onnx.ModelProto) -> None:
            rng = np.random.default_rng(SEED)
            shapes = {
                value.name: [dim.dim_value or 1 for dim in value.type.tensor_type.shape.dim]
                for value in model.graph.input
            }
            self.feeds = iter(
                [{name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()} for _ in range(3)]
            )

        def get_next(self) -> dict[str, Any] | None:
            return next(self.feeds, None)

    out = out.resolve()

    def write(name: str, result: str, form: dict[str, Any]) -> None:
        source, prepared = out / f"{name}.onnx", out / f"{name}.prepared"
        if not source.exists():
            return
        types = {key: QuantType[form[key]] for key in ("activation_type", "weight_type")}
        kind = QuantFormat[form.get("quant_format", "QDQ")]
        per_channel = bool(form.get("per_channel"))
        try:
            with TemporaryDirectory() as scratch, chdir(scratch):  # the quantizer leaves files where it runs
                quant_pre_process(str(source), str(prepared), skip_symbolic_shape=True)
                calibrated = Random(onnx.load(prepared))
                path = str(out / f"{result}.onnx")
                quantize_static(str(prepared), path, calibrated, kind, per_channel=per_channel, **types)
            say(name, result)
        except Exception as error:
            say(name, result, error)
        prepared.unlink(missing_ok=True)

    for name in names or QUANTIZED:
        write(name, f"{name}.qdq", QDQ)
    for name in names or IN_FORMS:
        for form, given in FORMS.items():
            write(name, f"{name.partition('.')[0]}.{form}", given)


# TensorFlow


def keras_models() -> dict[str, Callable[[], Any]]:
    from keras_images import attention_on_images, convolutions, depth_to_space, small_unet
    from tensorflow import keras

    apps = keras.applications

    def app(maker: Any, height: int = 96, width: int = 128, **options: Any) -> Callable[[], Any]:
        return lambda: maker(weights=None, input_tensor=keras.Input((height, width, 3), name="image"), **options)

    return {
        "keras_mobilenet": app(apps.MobileNetV2, alpha=0.35),
        "keras_resnet": app(apps.ResNet50V2, classes=7),
        "keras_efficientnet": app(apps.EfficientNetB0, classes=7),
        "keras_densenet": app(apps.DenseNet121, classes=7),
        "keras_mobilenetv3": app(apps.MobileNetV3Small, classes=7),
        "keras_unet": small_unet,
        "keras_attention": attention_on_images,
        "keras_depth_to_space": depth_to_space,
        "keras_convolutions": convolutions,
    }


def from_keras(out: Path, names: Sequence[str]) -> None:
    import tensorflow as tf
    import tf2onnx

    for name, make in keras_models().items():
        if names and name not in names:
            continue
        tf.keras.utils.set_random_seed(SEED)
        try:
            model = make()
            signature = [tf.TensorSpec((1, *put.shape[1:]), put.dtype, name=put.name) for put in model.inputs]
            function = tf.function(lambda *given, model=model: model(list(given), training=False), signature)
            tf2onnx.convert.from_function(
                function, signature, opset=OPSET, output_path=str(out / f"{name}.onnx"), large_model=False
            )
            say(name, "converted")
        except Exception as error:
            say(name, "keras", error)
        tf.keras.backend.clear_session()


def from_tflite(out: Path, files: Sequence[str]) -> None:
    import tf2onnx

    for path in map(Path, files):
        try:
            tf2onnx.convert.from_tflite(str(path), opset=OPSET, output_path=str(out / f"tflite_{path.stem}.onnx"))
            say(path.stem, "converted")
        except Exception as error:
            say(path.stem, "tflite", error)


ACTIONS = {
    "torch": from_torch,
    "light": light,
    "lively": lively,
    "quantized": quantized,
    "keras": from_keras,
    "tflite": from_tflite,
}


def main() -> None:
    if len(sys.argv) < 3 or sys.argv[1] not in ACTIONS:
        sys.exit(__doc__)
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    out = Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    ACTIONS[sys.argv[1]](out, sys.argv[3:])
    for rest in out.glob("*.prepared*"):
        shutil.rmtree(rest) if rest.is_dir() else rest.unlink()


if __name__ == "__main__":
    main()
