"""Networks written by hand in PyTorch, as their authors build them: what transformers does not have."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

WITHOUT_WEIGHTS: dict[str, Any] = {
    "use_timm_backbone": False,
    "use_pretrained_backbone": False,
    "backbone": None,
    "backbone_kwargs": None,
}
"""A DETR's configuration whose backbone is described beside it, so that no weights are fetched."""


class First(nn.Module):
    """A model's main output alone."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, given: Tensor) -> Any:
        found = self.model(given)
        if hasattr(found, "pred_boxes"):
            return found.logits, found.pred_boxes
        for name in ("logits", "predicted_depth", "last_hidden_state"):
            if hasattr(found, name):
                return getattr(found, name)
        return found[0]


def first_of(model: nn.Module) -> nn.Module:
    return First(model).eval()


class ConvBlock(nn.Sequential):
    """Convolution, batch normalization, activation."""

    def __init__(
        self, given: int, out: int, kernel: int = 1, stride: int = 1, groups: int = 1, act: nn.Module | None = None
    ) -> None:
        conv = nn.Conv2d(given, out, kernel, stride, kernel // 2, groups=groups, bias=False)
        super().__init__(conv, nn.BatchNorm2d(out), act if act is not None else nn.SiLU())


def mobilenet() -> nn.Module:
    """MobileNetV2: inverted residuals, a pooled head."""

    class Inverted(nn.Module):
        def __init__(self, given: int, out: int, stride: int, expand: int) -> None:
            super().__init__()
            wide = given * expand
            self.adds = stride == 1 and given == out
            self.layers = nn.Sequential(
                ConvBlock(given, wide, act=nn.ReLU6()),
                ConvBlock(wide, wide, 3, stride, wide, act=nn.ReLU6()),
                nn.Conv2d(wide, out, 1, bias=False),
                nn.BatchNorm2d(out),
            )

        def forward(self, x: Tensor) -> Tensor:
            return x + self.layers(x) if self.adds else self.layers(x)

    plan = [(16, 1), (24, 2), (24, 1), (32, 2), (32, 1), (64, 2), (64, 1), (96, 1)]
    layers: list[nn.Module] = [ConvBlock(3, 16, 3, 2, act=nn.ReLU6())]
    given = 16
    for out, stride in plan:
        layers.append(Inverted(given, out, stride, 6))
        given = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(given, 7)).eval()


class ShuffleNet(nn.Module):
    """ShuffleNetV2: channel split, concat, channel shuffle."""

    class Unit(nn.Module):
        def __init__(self, given: int, out: int, stride: int) -> None:
            super().__init__()
            half = out // 2
            self.stride = stride
            inner = given if stride > 1 else half
            self.left = nn.Sequential()
            if stride > 1:
                self.left = nn.Sequential(
                    nn.Conv2d(given, given, 3, stride, 1, groups=given, bias=False),
                    nn.BatchNorm2d(given),
                    ConvBlock(given, half, act=nn.ReLU()),
                )
            self.right = nn.Sequential(
                ConvBlock(inner, half, act=nn.ReLU()),
                nn.Conv2d(half, half, 3, stride, 1, groups=half, bias=False),
                nn.BatchNorm2d(half),
                ConvBlock(half, half, act=nn.ReLU()),
            )

        def forward(self, x: Tensor) -> Tensor:
            if self.stride == 1:
                kept, given = x.chunk(2, dim=1)
                joined = torch.cat((kept, self.right(given)), dim=1)
            else:
                joined = torch.cat((self.left(x), self.right(x)), dim=1)
            n, c, h, w = joined.shape
            return joined.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [ConvBlock(3, 24, 3, 2, act=nn.ReLU()), nn.MaxPool2d(3, 2, 1)]
        given = 24
        for out, repeat in ((48, 3), (96, 5), (192, 2)):
            for number in range(repeat):
                layers.append(self.Unit(given if number == 0 else out, out, 2 if number == 0 else 1))
            given = out
        self.layers = nn.Sequential(*layers, ConvBlock(given, 256, act=nn.ReLU()))
        self.head = nn.Linear(256, 7)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layers(x).mean((2, 3)))


class SuperResolution(nn.Module):
    """Sub-pixel convolution with group normalization."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Conv2d(3, 24, 5, padding=2)
        self.body = nn.Sequential(
            *(nn.Sequential(nn.Conv2d(24, 24, 3, padding=1), nn.GroupNorm(4, 24), nn.ReLU()) for _ in range(3))
        )
        self.up = nn.Sequential(nn.Conv2d(24, 96, 3, padding=1), nn.PixelShuffle(2), nn.Conv2d(24, 27, 3, padding=1))
        self.last = nn.PixelShuffle(3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.head(x)
        return self.last(self.up(y + self.body(y)))


class C2f(nn.Module):
    """Split, a chain of bottlenecks, and all of it concatenated."""

    def __init__(self, given: int, out: int, count: int, adds: bool) -> None:
        super().__init__()
        self.half = out // 2
        self.adds = adds
        self.first = ConvBlock(given, 2 * self.half)
        self.last = ConvBlock((2 + count) * self.half, out)
        self.chain = nn.ModuleList(
            nn.Sequential(ConvBlock(self.half, self.half, 3), ConvBlock(self.half, self.half, 3)) for _ in range(count)
        )

    def forward(self, x: Tensor) -> Tensor:
        parts = list(self.first(x).split((self.half, self.half), 1))
        for block in self.chain:
            parts.append(parts[-1] + block(parts[-1]) if self.adds else block(parts[-1]))
        return self.last(torch.cat(parts, 1))


class SPPF(nn.Module):
    """Three poolings of one another, concatenated."""

    def __init__(self, given: int, out: int) -> None:
        super().__init__()
        self.first, self.last = ConvBlock(given, given // 2), ConvBlock(given * 2, out)
        self.pool = nn.MaxPool2d(5, 1, 2)

    def forward(self, x: Tensor) -> Tensor:
        parts = [self.first(x)]
        for _ in range(3):
            parts.append(self.pool(parts[-1]))
        return self.last(torch.cat(parts, 1))


class Detect(nn.Module):
    """Boxes as distributions over `bins`, decoded; class scores; all scales concatenated."""

    def __init__(self, widths: tuple[int, ...], classes: int = 10, bins: int = 16) -> None:
        super().__init__()
        self.classes, self.bins = classes, bins
        self.box = nn.ModuleList(nn.Sequential(ConvBlock(w, 32, 3), nn.Conv2d(32, 4 * bins, 1)) for w in widths)
        self.score = nn.ModuleList(nn.Sequential(ConvBlock(w, 32, 3), nn.Conv2d(32, classes, 1)) for w in widths)
        self.project = nn.Conv2d(bins, 1, 1, bias=False)
        self.register_buffer("anchors", torch.randn(2, 252))

    def forward(self, features: list[Tensor]) -> Tensor:
        joined = [
            torch.cat((box(x), score(x)), 1) for box, score, x in zip(self.box, self.score, features, strict=True)
        ]
        n, c = joined[0].shape[:2]
        flat = torch.cat([x.view(n, c, -1) for x in joined], 2)
        box, score = flat.split((4 * self.bins, self.classes), 1)
        count = box.shape[2]
        distances = self.project(box.view(n, 4, self.bins, count).transpose(2, 1).softmax(1)).view(n, 4, count)
        low, high = distances.chunk(2, 1)
        start, end = self.anchors - low, self.anchors + high
        return torch.cat((torch.cat(((start + end) / 2, end - start), 1), score.sigmoid()), 1)


class Yolo(nn.Module):
    """A detector of YOLOv8's build: C2f stages, SPPF, a pyramid up and down, a decoupled head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(ConvBlock(3, 16, 3, 2), ConvBlock(16, 32, 3, 2), C2f(32, 32, 1, True))
        self.third = nn.Sequential(ConvBlock(32, 48, 3, 2), C2f(48, 48, 2, True))
        self.fourth = nn.Sequential(ConvBlock(48, 64, 3, 2), C2f(64, 64, 2, True))
        self.fifth = nn.Sequential(ConvBlock(64, 96, 3, 2), C2f(96, 96, 1, True), SPPF(96, 96))
        self.up = nn.Upsample(scale_factor=2, mode="nearest")
        self.up4, self.up3 = C2f(96 + 64, 64, 1, False), C2f(64 + 48, 48, 1, False)
        self.down3, self.down4 = ConvBlock(48, 48, 3, 2), ConvBlock(64, 64, 3, 2)
        self.out4, self.out5 = C2f(48 + 64, 64, 1, False), C2f(64 + 96, 96, 1, False)
        self.detect = Detect((48, 64, 96))

    def forward(self, x: Tensor) -> Tensor:
        third = self.third(self.stem(x))
        fourth = self.fourth(third)
        fifth = self.fifth(fourth)
        four = self.up4(torch.cat((self.up(fifth), fourth), 1))
        three = self.up3(torch.cat((self.up(four), third), 1))
        four = self.out4(torch.cat((self.down3(three), four), 1))
        five = self.out5(torch.cat((self.down4(four), fifth), 1))
        return self.detect([three, four, five])


class UNet(nn.Module):
    """Down, up by transposed convolutions, skips by concatenation, a head with its classes last."""

    def __init__(self, widths: tuple[int, ...] = (16, 32, 48, 64), classes: int = 5) -> None:
        super().__init__()

        def twice(given: int, out: int) -> nn.Module:
            return nn.Sequential(ConvBlock(given, out, 3, act=nn.ReLU()), ConvBlock(out, out, 3, act=nn.ReLU()))

        self.down = nn.ModuleList(twice(a, b) for a, b in zip((3, *widths), widths, strict=False))
        self.ups = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in pairwise(widths))
        self.join = nn.ModuleList(twice(2 * a, a) for a in widths[:-1])
        self.pool, self.head = nn.MaxPool2d(2), nn.Conv2d(widths[0], classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        skips: list[Tensor] = []
        for level, block in enumerate(self.down):
            x = block(x if level == 0 else self.pool(x))
            skips.append(x)
        for up, join, skip in reversed(list(zip(self.ups, self.join, skips, strict=False))):
            x = join(torch.cat((up(x), skip), 1))
        return self.head(x).permute(0, 2, 3, 1).softmax(-1)
