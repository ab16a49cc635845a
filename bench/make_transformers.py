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
import signal
import sys
import warnings
from pathlib import Path
from types import FrameType
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

SEED = 0
LIMIT_SECONDS = 150
"""Of one export."""

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


class LateError(Exception):
    """An export takes too long."""


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


def export(kind: str, path: Path, *, dynamo: bool) -> None:
    """Write one network; its first tensor is the result."""
    import torch

    class First(torch.nn.Module):
        def __init__(self, inner: Any) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: Any) -> Any:
            output = self.inner(x)
            tensors = output.to_tuple() if hasattr(output, "to_tuple") else output
            return next(each for each in tensors if isinstance(each, torch.Tensor))

    module, x = network(kind)
    own: dict[str, Any] = {"external_data": False} if dynamo else {}
    with torch.no_grad():
        torch.onnx.export(
            First(module), (x,), path, dynamo=dynamo, input_names=["x"], opset_version=18 if dynamo else 17, **own
        )


def _late(number: int, frame: FrameType | None) -> None:
    raise LateError


def main() -> None:
    warnings.filterwarnings("ignore")
    out, *kinds = sys.argv[1:]
    Path(out).mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGALRM, _late)
    for kind in kinds or [*TEXTS.split(), *PATCHES.split(), *IMAGES.split(), *SOUNDS.split(), CODECS]:
        for exporter in ("script", "dynamo"):
            path = Path(out) / f"{kind}.{exporter}.onnx"
            signal.alarm(LIMIT_SECONDS)
            try:
                export(kind, path, dynamo=exporter == "dynamo")
                print(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB", flush=True)
            except Exception as error:  # of any kind: it is another's exporter
                lines = str(error).strip().splitlines() or ["too late"]
                print(f"{path.name}: {type(error).__name__}: {lines[0][:120]}", flush=True)
            finally:
                signal.alarm(0)


if __name__ == "__main__":
    main()
