"""Write ONNX models of the image networks of the timm package: of each family the smallest, at its own size.

    torch/bin/python bench/make_timm.py OUT [FAMILY ...]

Both of PyTorch's exporters write each. The environment has torch, torchvision, timm, onnxscript. No weights are
fetched: they are random, with a fixed seed. What an exporter refuses is named, and left out.

    relayout convert OUT/*.onnx --out-dir RESULTS --format tflite --verify

converts all of it, and compares.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from functools import partial
from typing import Any

from torch_exports import write_all

SEED = 0


def smallest(family: str) -> str | None:
    """The network of a family with the fewest weights; None where none can be made without a choice."""
    import timm
    import torch

    sizes: dict[str, int] = {}
    for name in timm.list_models(module=family):
        with suppress(Exception), torch.device("meta"):  # of any kind: it is another's package
            sizes[name] = sum(each.numel() for each in timm.create_model(name, pretrained=False).parameters())
    return min(sizes, key=lambda name: sizes[name], default=None)


def network(name: str) -> tuple[Any, Any]:
    """A network and an image."""
    import timm
    import torch

    torch.manual_seed(SEED)
    made = timm.create_model(name, pretrained=False).eval()
    return made, torch.rand(1, *made.default_cfg.get("input_size", (3, 224, 224)))


def main() -> None:
    import timm

    out, *families = sys.argv[1:]
    names = [name for family in families or timm.list_modules() if (name := smallest(family)) is not None]
    write_all(out, {name: partial(network, name) for name in names})


if __name__ == "__main__":
    main()
