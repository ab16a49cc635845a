"""Write float ONNX models of networks that NPUs run, for `bench/npu.py`, which quantizes them.

    torch/bin/python bench/make_npu.py OUT

The environment has torch, torchvision, timm and onnxscript. No weights are fetched: each network has random ones, from
a fixed seed, and keeps the extents that its authors give it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch_networks import UNet, Yolo

SEED = 5


def keyword_spotting() -> nn.Module:
    """A network of depthwise separable convolutions over 49 frames of 10 features, as in MLPerf Tiny."""

    def separable() -> list[nn.Module]:
        depthwise = nn.Conv2d(64, 64, 3, padding=1, groups=64, bias=False)
        pointwise = nn.Conv2d(64, 64, 1, bias=False)
        return [depthwise, nn.BatchNorm2d(64), nn.ReLU(), pointwise, nn.BatchNorm2d(64), nn.ReLU()]

    first = [nn.Conv2d(1, 64, (10, 4), 2, (5, 1), bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    blocks = [layer for _ in range(4) for layer in separable()]
    return nn.Sequential(*first, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 12), nn.Softmax(-1))


def networks() -> dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]]:
    """Name -> what makes it, and the shape of its input."""
    import timm
    import torchvision

    def timm_model(name: str) -> Callable[[], Any]:
        return lambda: timm.create_model(name, pretrained=False)

    return {
        "mobilenet-v2": (timm_model("mobilenetv2_100"), (1, 3, 224, 224)),
        "mobilenet-v3-large": (timm_model("mobilenetv3_large_100"), (1, 3, 96, 96)),
        "efficientvit-b0": (timm_model("efficientvit_b0"), (1, 3, 96, 96)),
        "efficientnet-b0": (timm_model("efficientnet_b0"), (1, 3, 96, 96)),
        "densenet121": (timm_model("densenet121"), (1, 3, 64, 64)),
        "mobilenet-v3-small": (timm_model("mobilenetv3_small_100"), (1, 3, 224, 224)),
        "efficientnet-lite0": (timm_model("efficientnet_lite0"), (1, 3, 224, 224)),
        "resnet50": (lambda: torchvision.models.resnet50(weights=None), (1, 3, 224, 224)),
        "yolo": (Yolo, (1, 3, 96, 128)),
        "unet": (UNet, (1, 3, 96, 128)),
        "keyword-spotting": (keyword_spotting, (1, 1, 49, 10)),
    }


def main() -> None:
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for name, (make, shape) in networks().items():
        torch.manual_seed(SEED)
        model = make().eval()
        torch.onnx.export(
            model, (torch.rand(shape),), out / f"{name}.onnx", input_names=["image"], opset_version=17, dynamo=False
        )
        print(name)


if __name__ == "__main__":
    main()
