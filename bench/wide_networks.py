"""Networks as wide as people run them, most of few layers: heads of 32 and 64 channels, which narrow networks lack.

They are made from configurations, without weights, in an environment with torch and transformers: see
`bench/make_onnx.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

FEW = {"num_hidden_layers": 2}


def wide_networks() -> dict[str, Callable[[], tuple[Any, tuple[Any, ...], str]]]:
    """Name -> what makes the network, its inputs, and the name of the first input."""
    import torch
    import transformers as hf
    from torch_networks import WITHOUT_WEIGHTS, first_of

    def image(height: int = 224, width: int = 224, batch: int = 1) -> tuple[Any, ...]:
        return (torch.randn(batch, 3, height, width),)

    def of(model: Any, config: Any, inputs: tuple[Any, ...], name: str = "image") -> tuple[Any, tuple[Any, ...], str]:
        return first_of(model(config)), inputs, name

    tokens = (torch.randint(0, 500, (1, 128)),)
    vit = {"hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 1536, **FEW}
    return {
        "vit_small": lambda: of(hf.ViTModel, hf.ViTConfig(**vit), image()),
        "yolos_tiny": lambda: of(
            hf.YolosModel,
            hf.YolosConfig(hidden_size=192, num_attention_heads=3, intermediate_size=768, image_size=[224, 288], **FEW),
            image(224, 288),
        ),
        "swin_tiny": lambda: of(hf.SwinModel, hf.SwinConfig(depths=[2, 2, 2, 2]), image()),
        "swinv2_tiny": lambda: of(
            hf.Swinv2Model, hf.Swinv2Config(depths=[2, 2, 2, 2], image_size=256, window_size=8), image(256, 256)
        ),
        "segformer_b0": lambda: of(
            hf.SegformerForSemanticSegmentation, hf.SegformerConfig(num_labels=19), image(256, 320)
        ),
        "pvtv2_b0": lambda: of(hf.PvtV2Model, hf.PvtV2Config(image_size=(224, 224)), image()),
        "cvt_13": lambda: of(hf.CvtModel, hf.CvtConfig(), image()),
        "mobilevit_small": lambda: of(hf.MobileViTModel, hf.MobileViTConfig(), image(256, 256)),
        "bert_small": lambda: of(
            hf.BertModel,
            hf.BertConfig(vocab_size=500, hidden_size=512, num_attention_heads=8, intermediate_size=2048, **FEW),
            tokens,
            "tokens",
        ),
        "llama_small": lambda: of(
            hf.LlamaModel,
            hf.LlamaConfig(
                vocab_size=500,
                hidden_size=512,
                num_attention_heads=8,
                num_key_value_heads=4,
                intermediate_size=1376,
                use_cache=False,
                **FEW,
            ),
            tokens,
            "tokens",
        ),
        "whisper_tiny_encoder": lambda: (
            first_of(
                hf.models.whisper.modeling_whisper.WhisperEncoder(
                    hf.WhisperConfig(d_model=384, encoder_layers=2, encoder_attention_heads=6, encoder_ffn_dim=1536)
                )
            ),
            (torch.randn(1, 80, 3000),),
            "features",
        ),
        "detr_wide": lambda: of(
            hf.DetrForObjectDetection,
            hf.DetrConfig(
                **WITHOUT_WEIGHTS,
                backbone_config=hf.ResNetConfig(depths=[1, 1, 1, 1], out_features=["stage4"]),
                encoder_layers=2,
                decoder_layers=2,
                num_labels=7,
            ),
            image(256, 320),
        ),
    }
