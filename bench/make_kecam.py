"""Write networks of keras-cv-attention-models as .tflite files by TensorFlow's converter, a shallow one of each family.

    python -m venv kecam
    kecam/bin/pip install tensorflow-cpu==2.19.0 tf_keras==2.19.0 keras-cv-attention-models==1.4.3
    kecam/bin/python bench/make_kecam.py OUT [NAME ...]

The files are `NETWORK.FORMAT.tflite`, in the formats of `make_keras.py`. What the converter refuses is listed in
`refused.json` beside them, with its reason. A file that is there is kept. Weights are random, seeds are fixed; height
and width differ where a family allows it. Left out are VOLO, HaloNet, NAT and HorNet's global filters: the converter
has no slices and products of six dimensions, and no Transpose of complex numbers.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ["TF_USE_LEGACY_KERAS"] = "1"

WIDE, SQUARE = (64, 96, 3), (64, 64, 3)
CLASSES = 7
SEQUENCE = 20

Network = tuple[str, dict[str, Any]]
FOUR = {"num_blocks": [1, 1, 1, 1]}
NARROW = {"num_blocks": [1, 1, 1, 1], "out_channels": [24, 48, 64, 96]}
BEIT = {"depth": 2, "embed_dim": 48, "num_heads": 4, "patch_size": 16}
SWIN = {"num_blocks": [2, 2, 2, 2], "num_heads": [2, 2, 4, 4], "embed_dim": 16}
LANGUAGE = {"num_blocks": 2, "embedding_size": 48, "num_heads": 4, "vocab_size": 99, "max_block_size": SEQUENCE}
NETWORKS: dict[str, Network] = {
    "aotnet": ("aotnet.AotNet", {**NARROW, "input_shape": WIDE}),
    "beit": ("beit.Beit", {**BEIT, "input_shape": WIDE}),
    "botnet": ("botnet.BotNet", {**NARROW, "input_shape": (128, 96, 3)}),
    "botnext_eca": ("botnet.BotNet", {**NARROW, "use_eca": True, "group_size": 8, "input_shape": WIDE}),
    "caformer": ("caformer.CAFormer", {**NARROW, "head_dim": 16, "input_shape": WIDE}),
    "convformer": ("caformer.CAFormer", {**NARROW, "block_types": ["conv"] * 4, "input_shape": WIDE}),
    "cmt": ("cmt.CMT", {**NARROW, "input_shape": WIDE}),
    "cmt_torch": ("cmt.CMT_torch", {**NARROW, "input_shape": SQUARE}),
    "coat": ("coat.CoaT", {"serial_depths": [1] * 4, "embed_dims": [16, 32, 48, 64], "input_shape": WIDE}),
    "coat_parallel": (
        "coat.CoaT",
        {
            "serial_depths": [1] * 4,
            "embed_dims": [32] * 4,
            "mlp_ratios": [4] * 4,
            "parallel_depth": 2,
            "input_shape": WIDE,
        },
    ),
    "coatnet": ("coatnet.CoAtNet", {**NARROW, "stem_width": 16, "head_dimension": 16, "input_shape": WIDE}),
    "convnext": ("convnext.ConvNeXt", {**NARROW, "input_shape": WIDE}),
    "convnext_v2": ("convnext.ConvNeXtV2", {**NARROW, "input_shape": WIDE}),
    "cotnet": (
        "cotnet.CotNet",
        {**NARROW, "out_channels": [64, 128, 128, 128], "strides": [1, 2, 2, 2], "input_shape": WIDE},
    ),
    "cspnext": ("cspnext.CSPNeXt", {**NARROW, "stem_width": 16, "input_shape": WIDE}),
    "davit": ("davit.DaViT", {**NARROW, "num_heads": [2, 4, 4, 8], "input_shape": WIDE}),
    "dinov2": ("beit.DINOv2", {**BEIT, "patch_size": 14, "input_shape": (56, 84, 3)}),
    "edgenext": ("edgenext.EdgeNeXt", {"num_blocks": [2, 2, 2, 2], "input_shape": WIDE}),
    "efficientformer": ("efficientformer.EfficientFormer", {**NARROW, "input_shape": WIDE}),
    "efficientformer_v2": (
        "efficientformer.EfficientFormerV2",
        {"num_blocks": [1, 1, 2, 2], "mlp_ratios": 4, "input_shape": WIDE},
    ),
    "efficientnet_v1": ("efficientnet.EfficientNetV1B0", {"input_shape": WIDE}),
    "efficientnet_v1_lite": ("efficientnet.EfficientNetV1Lite0", {"input_shape": WIDE}),
    "efficientnet_v2": ("efficientnet.EfficientNetV2", {"depthes": [1, 2, 1, 2, 1, 2], "input_shape": WIDE}),
    "efficientnet_v2_gc": (
        "efficientnet.EfficientNetV2",
        {"depthes": [1, 2, 1, 2, 1, 2], "use_global_context_instead_of_se": True, "input_shape": WIDE},
    ),
    "efficientnet_edgetpu": (
        "efficientnet.EfficientNetEdgeTPU",
        {"depthes": [1, 0, 2, 1, 2, 1, 1], "input_shape": WIDE},
    ),
    "efficientvit_b": ("efficientvit.EfficientViT_B", {**FOUR, "input_shape": WIDE}),
    "efficientvit_l": ("efficientvit.EfficientViT_L", {**NARROW, "head_dimension": 16, "input_shape": WIDE}),
    "efficientvit_m": ("efficientvit.EfficientViT_M", {"num_blocks": [1, 1, 2], "input_shape": (112, 112, 3)}),
    "eva": ("beit.EVA", {**BEIT, "input_shape": WIDE}),
    "eva02": ("beit.EVA02", {**BEIT, "patch_size": 14, "input_shape": (56, 84, 3)}),
    "fasternet": ("fasternet.FasterNet", {**FOUR, "input_shape": WIDE}),
    "fastervit": (
        "fastervit.FasterViT",
        {**FOUR, "num_heads": [2, 4, 4, 8], "stem_hidden_dim": 16, "embed_dim": 24, "input_shape": (224, 224, 3)},
    ),
    "fastvit": ("fastvit.FastViT", {**FOUR, "input_shape": WIDE}),
    "fastvit_sa": (
        "fastvit.FastViT",
        {**FOUR, "block_types": ["conv", "conv", "conv", "transformer"], "input_shape": WIDE},
    ),
    "fbnetv3": ("mobilenetv3_family.FBNetV3", {"input_shape": WIDE}),
    "flexivit": ("beit.FlexiViT", {**BEIT, "input_shape": WIDE}),
    "gcvit": ("gcvit.GCViT", {**FOUR, "num_heads": [2, 4, 4, 8], "embed_dim": 16, "input_shape": (64, 128, 3)}),
    "ghostnet": ("ghostnet.GhostNet_050", {"input_shape": WIDE}),
    "ghostnet_v2": ("ghostnet.GhostNetV2", {"width_mul": 0.5, "input_shape": WIDE}),
    "gpvit": (
        "gpvit.GPViT",
        {
            "num_layers": 3,
            "embed_dims": 48,
            "num_window_heads": 4,
            "num_group_heads": 2,
            "group_attention_layer_ids": [1],
            "group_attention_layer_group_tokens": [16],
            "input_shape": WIDE,
        },
    ),
    "hiera": ("hiera.Hiera", {"num_blocks": [1, 2, 2, 1], "embed_dim": 24, "input_shape": (224, 224, 3)}),
    "hornet": ("hornet.HorNet", {**FOUR, "embed_dim": 32, "input_shape": WIDE}),
    "iformer": (
        "iformer.InceptionTransformer",
        {
            **FOUR,
            "embed_dims": [24, 48, 60, 96],
            "num_heads": [3, 6, 10, 12],
            "num_attn_low_heads": [1, 3, 7, 11],
            "input_shape": WIDE,
        },
    ),
    "inceptionnext": ("inceptionnext.InceptionNeXt", {**FOUR, "embed_dims": [24, 48, 64, 96], "input_shape": WIDE}),
    "lcnet": ("mobilenetv3_family.LCNet050", {"input_shape": WIDE}),
    "levit": ("levit.LeViT128S", {"input_shape": WIDE}),
    "maxvit": (
        "maxvit.MaxViT",
        {**NARROW, "stem_width": 16, "head_dimension": 8, "window_ratio": 16, "input_shape": (64, 128, 3)},
    ),
    "meta_transformer": ("beit.MetaTransformer", {**BEIT, "input_shape": WIDE}),
    "mlp_mixer": (
        "mlp_family.MLPMixer",
        {
            "num_blocks": 2,
            "patch_size": 16,
            "stem_width": 48,
            "tokens_mlp_dim": 32,
            "channels_mlp_dim": 96,
            "input_shape": WIDE,
        },
    ),
    "gmlp": (
        "mlp_family.GMLP",
        {"num_blocks": 2, "patch_size": 16, "stem_width": 48, "channels_mlp_dim": 96, "input_shape": WIDE},
    ),
    "resmlp": (
        "mlp_family.ResMLP",
        {"num_blocks": 2, "patch_size": 16, "stem_width": 48, "channels_mlp_dim": 96, "input_shape": WIDE},
    ),
    "wavemlp": ("mlp_family.WaveMLP", {**NARROW, "input_shape": WIDE}),
    "wavemlp_groupnorm": ("mlp_family.WaveMLP", {**NARROW, "use_group_norm": True, "input_shape": WIDE}),
    "mobilenet_v3": ("mobilenetv3_family.MobileNetV3Small", {"width_ratio": 0.5, "input_shape": WIDE}),
    "mobilevit": ("mobilevit.MobileViT", {"num_blocks": [1, 1, 1, 1, 1], "input_shape": WIDE}),
    "mobilevit_v2": ("mobilevit.MobileViT_V2_050", {"input_shape": WIDE}),
    "moganet": ("moganet.MogaNet", {**NARROW, "input_shape": WIDE}),
    "nfnet": (
        "nfnets.NormFreeNet",
        {**FOUR, "stem_width": 32, "out_channels": [32, 64, 96, 96], "group_size": 16, "input_shape": WIDE},
    ),
    "eca_nfnet": (
        "nfnets.NormFreeNet_Light",
        {
            **FOUR,
            "stem_width": 32,
            "out_channels": [64, 64, 96, 128],
            "group_size": 8,
            "attn_type": "eca",
            "input_shape": WIDE,
        },
    ),
    "pvt_v2": (
        "pvt.PyramidVisionTransformerV2",
        {**FOUR, "embed_dims": [16, 32, 40, 64], "input_shape": WIDE},
    ),
    "pvt_v2_linear": (
        "pvt.PyramidVisionTransformerV2",
        {**FOUR, "embed_dims": [16, 32, 40, 64], "use_linear": True, "input_shape": (224, 224, 3)},
    ),
    "regnet_y": ("resnet_family.RegNetY", {**NARROW, "group_size": 8, "input_shape": WIDE}),
    "regnet_z": ("resnet_family.RegNetZB16", {"input_shape": WIDE}),
    "regnet_z_evo": ("resnet_family.RegNetZC16_EVO", {"input_shape": WIDE}),
    "repvit": ("repvit.RepViT", {**FOUR, "input_shape": WIDE}),
    "resnest": ("resnest.ResNest", {**NARROW, "stem_width": 16, "groups": 2, "input_shape": WIDE}),
    "resnet_d": ("resnet_family.ResNetD", {**NARROW, "input_shape": WIDE}),
    "resnet_q": (
        "resnet_family.ResNetQ",
        {**FOUR, "out_channels": [32, 64, 64, 96], "stem_width": 32, "num_features": 128, "input_shape": WIDE},
    ),
    "resnet_v2": ("aotnet.AotNetV2", {**NARROW, "input_shape": WIDE}),
    "resnext": (
        "resnet_family.ResNeXt",
        {**NARROW, "out_channels": [64, 128, 128, 128], "groups": 8, "input_shape": WIDE},
    ),
    "swin_v2": (
        "swin_transformer_v2.SwinTransformerV2",
        {**SWIN, "window_size": 4, "input_shape": (64, 128, 3)},
    ),
    "swin_v2_padded": (
        "swin_transformer_v2.SwinTransformerV2",
        {**SWIN, "window_size": 3, "input_shape": WIDE},
    ),
    "tinynet": ("mobilenetv3_family.TinyNetE", {"input_shape": WIDE}),
    "tinyvit": (
        "tinyvit.TinyViT",
        {**FOUR, "out_channels": [16, 32, 40, 80], "num_heads": [2, 4, 5, 10], "input_shape": (64, 128, 3)},
    ),
    "uniformer": ("uniformer.Uniformer", {**NARROW, "head_dimension": 8, "input_shape": WIDE}),
    "vanillanet": (
        "vanillanet.VanillaNet",
        {"out_channels": [64, 96, 128], "stem_width": 32, "input_shape": WIDE},
    ),
    "vit": ("beit.ViT", {**BEIT, "input_shape": WIDE}),
    "vit5": ("beit.ViT5", {**BEIT, "input_shape": SQUARE}),
    "efficientdet": (
        "efficientdet.EfficientDet",
        {
            "backbone": "mobilenetv3_family.LCNet050",
            "fpn_depth": 1,
            "head_depth": 1,
            "num_channels": 32,
            "input_shape": (128, 128, 3),
        },
    ),
    "yolox": ("yolox.YOLOXNano", {"input_shape": (96, 128, 3)}),
    "yolor": ("yolor.YOLOR", {"csp_depthes": [1] * 4, "csp_channels": [16, 32, 48, 64], "input_shape": (96, 128, 3)}),
    "yolov7": ("yolov7.YOLOV7_Tiny", {"input_shape": (96, 128, 3)}),
    "yolov8": ("yolov8.YOLOV8_N", {"input_shape": (96, 128, 3)}),
    "yolov8_segment": ("yolov8.YOLOV8_N_SEG", {"input_shape": (96, 128, 3)}),
    "yolo_nas": (
        "yolov8.YOLO_NAS",
        {"csp_channels": [16, 32, 48, 64], "csp_depthes": [1] * 4, "input_shape": (96, 128, 3)},
    ),
    "clip_text": (
        "beit.ViTText",
        {"depth": 2, "embed_dim": 48, "num_heads": 4, "vocab_size": 99, "max_block_size": 20},
    ),
    "gpt2": ("gpt2.GPT2", LANGUAGE),
    "llama2": ("llama2.LLaMA2", LANGUAGE),
    "llama2_grouped": ("llama2.LLaMA2", {**LANGUAGE, "num_kv_heads": 2}),
    "diffusion_unet": (
        "stable_diffusion.UNet",
        {
            "input_shape": (16, 24, 4),
            "num_blocks": [1, 1],
            "hidden_channels": 32,
            "hidden_expands": [1, 2],
            "num_attention_blocks": [1, 0],
            "num_heads": 4,
            "conditional_embedding": 24,
        },
    ),
    "diffusion_encoder": (
        "stable_diffusion.Encoder",
        {"input_shape": (32, 48, 3), "num_blocks": [1, 1], "hidden_channels": 32, "hidden_expands": [1, 2]},
    ),
    "diffusion_decoder": (
        "stable_diffusion.Decoder",
        {"input_shape": (16, 24, 4), "num_blocks": [1, 1], "hidden_channels": 32, "hidden_expands": [2, 1]},
    ),
    "sam_encoder": (
        "segment_anything.image_encoders.ImageEncoder_TinyViT_5M",
        {"input_shape": (128, 128, 3), "embed_dims": 32},
    ),
    "sam_mask_decoder": ("segment_anything.mask_decoders.MaskDecoder", {"input_shape": (8, 12, 32)}),
}


def found(path: str) -> Callable[..., Any]:
    """A function of the library by its path."""
    import importlib

    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(f"keras_cv_attention_models.{module}"), name)


@dataclass
class Traced:
    """A network with a batch of one, as `make_keras.make` wants it; Keras would trace each layer to save it."""

    model: Any

    @property
    def inputs(self) -> list[Any]:
        return self.model.inputs

    @property
    def weights(self) -> list[Any]:
        return self.model.weights

    def save(self, folder: str, save_format: str) -> None:
        import tensorflow as tf

        assert save_format == "tf"
        module = tf.Module()
        module.variables_of_layers = self.model.variables
        signature = [tf.TensorSpec(end.shape, end.dtype, end.name) for end in self.inputs]
        module.run = tf.function(lambda *given: self.model(list(given)), input_signature=signature, autograph=False)
        tf.saved_model.save(module, folder, signatures=module.run.get_concrete_function())


def built(path: str, options: dict[str, Any]) -> Traced:
    import inspect

    import tf_keras

    make = found(path)
    given = {"pretrained": None, **options}
    if isinstance(backbone := given.get("backbone"), str):
        given["backbone"] = found(backbone)(input_shape=given["input_shape"], num_classes=0, pretrained=None)
    if "num_classes" in inspect.signature(make).parameters:
        given.setdefault("num_classes", CLASSES)
    tf_keras.backend.clear_session()
    model = make(**given)
    ends = [
        tf_keras.Input([extent or SEQUENCE for extent in end.shape[1:]], 1, dtype=end.dtype) for end in model.inputs
    ]
    return Traced(tf_keras.models.clone_model(model, ends if len(ends) > 1 else ends[0], by_convolutions))


def by_convolutions(layer: Any) -> Any:
    """A layer that takes patches does so by a convolution, for TensorFlow Lite has no other way."""
    options = layer.get_config() if "ExtractPatches" in type(layer).__name__ else {}
    return type(layer).from_config({**options, "force_conv": True}) if options else layer


def main() -> None:
    out, names = Path(sys.argv[1]), sys.argv[2:]
    out.mkdir(parents=True, exist_ok=True)
    if names[:1] != ["--child"]:
        # TensorFlow keeps the memory of what it has converted, and ends its process on some models: a child each.
        for name in names or NETWORKS:
            subprocess.run([sys.executable, __file__, str(out), "--child", name])
        return
    from make_keras import Record, make

    path, name = out / "refused.json", names[1]
    record = Record(path, json.loads(path.read_text()) if path.exists() else {})
    make(name, lambda: built(*NETWORKS[name]), out, record)


if __name__ == "__main__":
    main()
