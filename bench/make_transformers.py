"""Write ONNX models of about a hundred architectures of the transformers package, from small configurations.

    torch/bin/python bench/make_transformers.py OUT [KIND ...]

Both of PyTorch's exporters write each. The environment has torch, transformers, onnxscript. No weights are fetched:
they are random, with a fixed seed. What an exporter refuses is named, and left out; some of what it writes is no valid
model, which ONNX Runtime refuses, too. `make_onnx.py quantized OUT` quantizes what is in OUT, and

    relayout convert OUT/*.onnx --out-dir RESULTS --format tflite --verify

converts all of it, and compares.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import Any

from torch_exports import write_all

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

SEED = 0

TEXTS = """
albert bert big_bird biogpt bloom canine codegen cohere convbert deberta deberta-v2 distilbert electra ernie falcon fnet
funnel gemma gemma2 gemma3_text glm gpt2 gpt_neo gpt_neox gptj granite ibert layoutlm lfm2 mamba megatron-bert mistral
mobilebert modernbert mpnet nystromformer olmo2 opt phi phi3 qwen2 qwen3 rembert roberta roformer rwkv smollm3
squeezebert stablelm starcoder2 xglm xlnet
"""
PATCHES = """
beit clip_vision_model data2vec-vision deit dinov2 dinov2_with_registers dinov3_vit ijepa mlcd siglip_vision_model vit
vit_mae vit_msn yolos
"""
"""Kinds that cut an image into patches once."""
IMAGES = """
bit convnext convnextv2 cvt dinov3_convnext dpt efficientnet focalnet glpn hiera imagegpt levit mobilenet_v1
mobilenet_v2 mobilevit mobilevitv2 poolformer pvt pvt_v2 regnet resnet segformer swiftformer swin swin2sr swinv2 textnet
"""
"""Kinds with stages of their own: these stay as their configurations have them."""
SOUNDS = "audio-spectrogram-transformer data2vec-audio hubert sew unispeech wav2vec2 wav2vec2-conformer wavlm"
CODECS = "encodec"

SMALL = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "embedding_size", "moe_intermediate_size"), 64),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads", "num_experts", "num_local_experts"), 4),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "hidden_dim", "d_ff", "encoder_ffn_dim", "decoder_ffn_dim"), 128),
    **dict.fromkeys(("head_dim", "d_kv", "attention_head_size"), 16),
    "max_position_embeddings": 64,
    "num_key_value_heads": 2,
    "vocab_size": 200,
}
"""Entry of a configuration -> what it is set to, where a network has it; entries that are lists stay."""
LARGE_IMAGES = frozenset({"swin", "swinv2"})


def network(kind: str) -> tuple[Any, Any]:
    """A network and what it is fed: tokens, an image, or sound."""
    import torch
    from transformers import AutoModel
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    torch.manual_seed(SEED)
    config = CONFIG_MAPPING[kind]()
    if isinstance(getattr(config, "image_size", None), int) and kind not in LARGE_IMAGES:
        config.image_size = 64
    for name, value in () if kind in (*IMAGES.split(), CODECS) else SMALL.items():
        if type(getattr(config, name, None)) is int:
            setattr(config, name, value)
    if kind in TEXTS.split():
        config.use_cache = False
        if (getattr(config, "pad_token_id", None) or 0) >= SMALL["vocab_size"]:
            config.pad_token_id = 0
        return AutoModel.from_config(config).eval(), torch.randint(5, SMALL["vocab_size"] - 1, (2, 24))
    return AutoModel.from_config(config).eval(), _picture_or_sound(kind, config)


def _picture_or_sound(kind: str, config: Any) -> Any:
    import torch

    if kind == "imagegpt":
        return torch.randint(0, SMALL["vocab_size"] - 1, (1, 32))
    if kind == "audio-spectrogram-transformer":
        return torch.randn(1, config.max_length, config.num_mel_bins)
    if kind in SOUNDS.split():
        return torch.randn(1, 8000)
    if kind == CODECS:
        return torch.randn(1, 1, 8000)
    size = getattr(config, "image_size", 64)
    size = size[0] if isinstance(size, list | tuple) else size
    return torch.rand(1, getattr(config, "num_channels", 3), size, size)


def main() -> None:
    out, *kinds = sys.argv[1:]
    kinds = kinds or [*TEXTS.split(), *PATCHES.split(), *IMAGES.split(), *SOUNDS.split(), CODECS]
    write_all(out, {kind: partial(network, kind) for kind in kinds})


if __name__ == "__main__":
    main()
