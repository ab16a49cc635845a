"""Write small networks for `bench/quantizing.py`: as ONNX, and as `.tflite` by litert-torch, with the same weights.

    litert/bin/python bench/make_quantizing.py OUT [NAME ...]

The environment has litert-torch, timm, transformers and onnxscript. Weights are random, from a fixed seed. Beside
NAME.onnx lie NAME.litert, which is a `.tflite` of litert-torch, and NAME.npz, inputs with a leading axis of samples.
What an exporter refuses is named, and left out; a file that is there is kept.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch
from torch import Tensor, nn

SEED = 5
LEVELS = 8
CALIBRATING, MOST_BYTES = 4, 1 << 22
LEAST, MOST = 16, 128
"""Inputs to measure on, which calibrate nothing: as many as fit in `MOST_BYTES`, but no fewer and no more than this."""
NAMES = ("x",)
IMAGE = (1, 3, 96, 96)
TIMM = {
    "mobilenetv2_100": 96,
    "mobilenetv3_large_100": 96,
    "mobilenetv3_small_100": 96,
    "mobilenetv4_conv_small": 96,
    "lcnet_050": 96,
    "efficientnet_b0": 96,
    "efficientnet_lite0": 96,
    "efficientvit_b0": 96,
    "densenet121": 64,
    "resnet18": 96,
    "seresnet18": 96,
    "regnety_002": 96,
    "convnext_atto": 96,
    "edgenext_xx_small": 96,
    "ghostnet_050": 96,
    "fasternet_t0": 96,
    "repvgg_a0": 64,
    "mobilevit_xxs": 128,
    "squeezenet1_1": 96,
    "hardcorenas_a": 96,
    "tinynet_e": 96,
}
"""Networks of timm -> height and width of the image."""
Made = tuple[nn.Module, tuple[Any, ...]]


class Tcn(nn.Module):
    """A temporal convolutional network: dilated causal convolutions with residual sums."""

    def __init__(self, width: int = 48, classes: int = 7) -> None:
        super().__init__()
        self.first = nn.Conv1d(20, width, 1)
        self.layers = nn.ModuleList(
            nn.ModuleList(nn.Conv1d(width, width, 3, dilation=2**level) for _ in range(2)) for level in range(4)
        )
        self.last = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for pair in self.layers:
            y = x
            for conv in pair:
                y = conv(nn.functional.pad(y, (2 * conv.dilation[0], 0))).relu()
            x = (x + y).relu()
        return self.last(x[:, :, -1])


class Recurrent(nn.Module):
    """Two recurrent layers over frames, and a classifier of the last one."""

    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.layers = kind(20, 48, 2, batch_first=True)  # type: ignore[call-arg]
        self.last = nn.Linear(48, 7)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.layers(x)[0][:, -1])


class TasNet(nn.Module):
    """The separator of a Conv-TasNet: PReLU and group normalization between depthwise convolutions, a mask."""

    def __init__(self, width: int = 64, blocks: int = 4) -> None:
        super().__init__()
        self.encoder = nn.Conv1d(1, width, 16, 8)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv1d(width, 96, 1),
                nn.PReLU(),
                nn.GroupNorm(1, 96),
                nn.Conv1d(96, 96, 3, padding=2**level, dilation=2**level, groups=96),
                nn.PReLU(),
                nn.GroupNorm(1, 96),
                nn.Conv1d(96, width, 1),
            )
            for level in range(blocks)
        )
        self.mask = nn.Conv1d(width, width, 1)
        self.decoder = nn.ConvTranspose1d(width, 1, 16, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = y = self.encoder(x)
        for block in self.blocks:
            y = y + block(y)
        return self.decoder(x * self.mask(y).sigmoid())


def _dense(*widths: int) -> nn.Module:
    layers: list[nn.Module] = []
    for before, width in pairwise(widths):
        layers += [nn.Linear(before, width), nn.BatchNorm1d(width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], widths[0]))


def networks() -> dict[str, Callable[[], Made]]:
    """Return what makes each network and its inputs."""
    import timm
    import transformers as hf
    from make_npu import keyword_spotting
    from torch_networks import ShuffleNet, SuperResolution, UNet, Yolo, first_of

    def of_timm(name: str, side: int, **options: Any) -> Callable[[], Made]:
        return lambda: (timm.create_model(name, pretrained=False, **options), (torch.randn(1, 3, side, side),))

    def of_hf(model: Any, config: Any, *shape: int) -> Callable[[], Made]:
        def make() -> Made:
            fed = torch.randint(0, 500, shape) if len(shape) == 2 else torch.randn(shape)
            return first_of(model(config)), (fed,)

        return make

    def of(module: Callable[[], nn.Module], *shape: int) -> Callable[[], Made]:
        return lambda: (module(), (torch.randn(shape),))

    text = {"vocab_size": 500, "max_position_embeddings": 64}
    return {
        **{name: of_timm(name, side) for name, side in TIMM.items()},
        "vit": of_timm("vit_tiny_patch16_224", 96, img_size=96, depth=4),
        "mixer": of_timm("mixer_s32_224", 96, img_size=96),
        "swin": of_timm(
            "swin_tiny_patch4_window7_224", 112, img_size=112, embed_dim=36, depths=(2, 2), num_heads=(3, 6)
        ),
        "segformer": of_hf(
            hf.SegformerForSemanticSegmentation,
            hf.SegformerConfig(
                depths=[1, 1, 1, 1],
                hidden_sizes=[16, 32, 80, 96],
                num_attention_heads=[1, 2, 5, 6],
                decoder_hidden_size=48,
                num_labels=7,
            ),
            *IMAGE,
        ),
        "bert": of_hf(
            hf.BertModel,
            hf.BertConfig(hidden_size=128, num_hidden_layers=2, num_attention_heads=2, intermediate_size=512, **text),
            1,
            32,
        ),
        "distilbert": of_hf(
            hf.DistilBertModel, hf.DistilBertConfig(dim=128, n_layers=3, n_heads=4, hidden_dim=512, **text), 1, 32
        ),
        "yolo": of(Yolo, 1, 3, 96, 128),
        "unet": of(UNet, 1, 3, 96, 128),
        "shufflenet": of(ShuffleNet, 1, 3, 96, 128),
        "superresolution": of(SuperResolution, 1, 3, 40, 56),
        "keyword_spotting": of(keyword_spotting, 1, 1, 49, 10),
        "autoencoder": of(lambda: _dense(640, 128, 128, 8, 128), 1, 640),
        "tcn": of(Tcn, 1, 20, 60),
        "lstm": of(lambda: Recurrent(nn.LSTM), 1, 24, 20),
        "gru": of(lambda: Recurrent(nn.GRU), 1, 24, 20),
        "tasnet": of(TasNet, 1, 1, 1600),
    }


def samples(inputs: tuple[Any, ...]) -> list[Any]:
    """Return random inputs with a leading axis of samples."""
    rng = np.random.default_rng(SEED)
    size = sum(x.numel() * x.element_size() for x in inputs)
    count = CALIBRATING + min(max(MOST_BYTES // size, LEAST), MOST)

    def one(shape: tuple[int, ...], is_real: bool) -> Any:
        if not is_real:
            return rng.integers(0, 500, shape)
        return picture(rng, shape) if len(shape) == 4 else rng.standard_normal(shape).astype(np.float32)

    return [np.stack([one(tuple(x.shape), x.is_floating_point()) for _ in range(count)]) for x in inputs]


def picture(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Return noise of all sizes, the coarse as strong as the fine, as pictures have it: they differ in the large."""
    total = np.zeros(shape)
    for level in range(LEVELS):
        grid = rng.standard_normal([*shape[:2], *(-(-side >> level) for side in shape[2:])])
        total += np.kron(grid, np.ones((1, 1, 1 << level, 1 << level)))[:, :, : shape[2], : shape[3]]
    return (total / LEVELS**0.5).astype(np.float32)


def enliven(module: nn.Module) -> nn.Module:
    """Give a network biases, scales and weights that differ."""
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.numel() > 1 and parameter.std() == 0:
                is_bias = float(parameter.mean()) == 0
                parameter.copy_(
                    torch.randn_like(parameter) * 0.05 if is_bias else torch.rand_like(parameter) * 0.4 + 0.8
                )
    return module.eval()


def main() -> None:
    warnings.simplefilter("ignore")
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    for name, make in networks().items():
        if sys.argv[2:] and name not in sys.argv[2:]:
            continue
        source, peer = out / f"{name}.onnx", out / f"{name}.litert"
        if source.exists() and peer.exists():
            continue
        try:
            torch.manual_seed(SEED)
            module, inputs = make()
            enliven(module)
            if not source.exists():
                arrays = dict(zip(NAMES, samples(inputs), strict=False))
                np.savez(source.with_suffix(".npz"), **arrays)
                options: dict[str, Any] = {"external_data": False, "optimize": True, "verbose": False}
                torch.onnx.export(
                    module, inputs, str(source), dynamo=True, input_names=list(arrays), opset_version=20, **options
                )
            print(name, "onnx", flush=True)
            if not peer.exists():
                import litert_torch

                litert_torch.convert(module, inputs).export(str(peer))
            print(name, "litert", flush=True)
        except Exception as error:  # of any kind: it is another's exporter
            print(f"{name}: {type(error).__name__}: {' '.join(str(error).split())[:200]}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
