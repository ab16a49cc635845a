"""Networks written by hand in JAX, as their authors build them: Flax NNX, Equinox, and plain `jax.lax`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from flax import nnx

Array = jax.Array
Function = Callable[..., Any]


class ConvBlock(nnx.Module):
    """Convolution, batch normalization, activation."""

    def __init__(
        self,
        given: int,
        out: int,
        kernel: int = 1,
        stride: int = 1,
        groups: int = 1,
        act: Function | None = nnx.silu,
        *,
        rngs: nnx.Rngs,
    ) -> None:
        shape, strides = (kernel, kernel), (stride, stride)
        self.conv = nnx.Conv(given, out, shape, strides, feature_group_count=groups, use_bias=False, rngs=rngs)
        self.norm = nnx.BatchNorm(out, use_running_average=True, rngs=rngs)
        self.act = act

    def __call__(self, x: Array) -> Array:
        x = self.norm(self.conv(x))
        return x if self.act is None else self.act(x)


class ResNet(nnx.Module):
    """Bottlenecks, a strided pool, a pooled head."""

    class Bottleneck(nnx.Module):
        def __init__(self, given: int, out: int, stride: int, rngs: nnx.Rngs) -> None:
            narrow = out // 4
            self.first = ConvBlock(given, narrow, act=nnx.relu, rngs=rngs)
            self.second = ConvBlock(narrow, narrow, 3, stride, act=nnx.relu, rngs=rngs)
            self.third = ConvBlock(narrow, out, act=None, rngs=rngs)
            same = stride == 1 and given == out
            self.shortcut = None if same else ConvBlock(given, out, 1, stride, act=None, rngs=rngs)

        def __call__(self, x: Array) -> Array:
            short = x if self.shortcut is None else self.shortcut(x)
            return nnx.relu(short + self.third(self.second(self.first(x))))

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.stem = ConvBlock(3, 32, 7, 2, act=nnx.relu, rngs=rngs)
        widths = [(32, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 192, 2), (192, 192, 1)]
        self.blocks = nnx.List([self.Bottleneck(*width, rngs) for width in widths])
        self.head = nnx.Linear(192, 7, rngs=rngs)

    def __call__(self, x: Array) -> Array:
        x = nnx.max_pool(self.stem(x), window_shape=(3, 3), strides=(2, 2), padding="SAME")
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean((1, 2)))


class MobileNet(nnx.Module):
    """MobileNetV3: inverted residuals, squeeze and excitation, hard swish."""

    class Inverted(nnx.Module):
        def __init__(self, given: int, out: int, stride: int, expand: int, rngs: nnx.Rngs) -> None:
            wide = given * expand
            self.adds = stride == 1 and given == out
            self.expand = ConvBlock(given, wide, act=nnx.hard_swish, rngs=rngs)
            self.depthwise = ConvBlock(wide, wide, 3, stride, wide, act=nnx.hard_swish, rngs=rngs)
            self.squeeze = nnx.Conv(wide, wide // 4, (1, 1), rngs=rngs)
            self.excite = nnx.Conv(wide // 4, wide, (1, 1), rngs=rngs)
            self.project = ConvBlock(wide, out, act=None, rngs=rngs)

        def __call__(self, x: Array) -> Array:
            y = self.depthwise(self.expand(x))
            scale = self.excite(nnx.relu(self.squeeze(y.mean((1, 2))[:, None, None])))
            y = self.project(y * nnx.hard_sigmoid(scale))
            return x + y if self.adds else y

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.stem = ConvBlock(3, 16, 3, 2, act=nnx.hard_swish, rngs=rngs)
        widths = [(16, 16, 1, 1), (16, 24, 2, 4), (24, 24, 1, 3), (24, 40, 2, 3), (40, 40, 1, 3), (40, 48, 1, 3)]
        self.blocks = nnx.List([self.Inverted(*width, rngs) for width in widths])
        self.last = ConvBlock(48, 96, act=nnx.hard_swish, rngs=rngs)
        self.head = nnx.Linear(96, 7, rngs=rngs)

    def __call__(self, x: Array) -> Array:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(self.last(x).mean((1, 2)))


class ConvNeXt(nnx.Module):
    """Depthwise convolutions, layer normalization of channels, linear layers on channels last."""

    class Block(nnx.Module):
        def __init__(self, width: int, rngs: nnx.Rngs) -> None:
            self.depthwise = nnx.Conv(width, width, (7, 7), feature_group_count=width, rngs=rngs)
            self.norm = nnx.LayerNorm(width, rngs=rngs)
            self.wide = nnx.Linear(width, 4 * width, rngs=rngs)
            self.narrow = nnx.Linear(4 * width, width, rngs=rngs)
            self.scale = nnx.Param(jnp.full((width,), 0.3))

        def __call__(self, x: Array) -> Array:
            return x + self.scale[...] * self.narrow(nnx.gelu(self.wide(self.norm(self.depthwise(x)))))

    def __init__(self, rngs: nnx.Rngs) -> None:
        widths = (24, 48, 96)
        stages: list[Any] = [nnx.Conv(3, 24, (4, 4), (4, 4), rngs=rngs), nnx.LayerNorm(24, rngs=rngs)]
        for stage, width in enumerate(widths):
            if stage:
                before = widths[stage - 1]
                stages += [nnx.LayerNorm(before, rngs=rngs), nnx.Conv(before, width, (2, 2), (2, 2), rngs=rngs)]
            stages += [self.Block(width, rngs) for _ in range(2)]
        self.stages = nnx.List(stages)
        self.norm = nnx.LayerNorm(96, rngs=rngs)
        self.head = nnx.Linear(96, 7, rngs=rngs)

    def __call__(self, x: Array) -> Array:
        for stage in self.stages:
            x = stage(x)
        return self.head(self.norm(x.mean((1, 2))))


class UNet(nnx.Module):
    """Skips, transposed convolutions, group normalization."""

    class Double(nnx.Module):
        def __init__(self, given: int, out: int, rngs: nnx.Rngs) -> None:
            self.first = nnx.Conv(given, out, (3, 3), rngs=rngs)
            self.first_norm = nnx.GroupNorm(out, num_groups=4, rngs=rngs)
            self.second = nnx.Conv(out, out, (3, 3), rngs=rngs)
            self.second_norm = nnx.GroupNorm(out, num_groups=4, rngs=rngs)

        def __call__(self, x: Array) -> Array:
            x = nnx.relu(self.first_norm(self.first(x)))
            return nnx.relu(self.second_norm(self.second(x)))

    def __init__(self, rngs: nnx.Rngs) -> None:
        widths = (16, 32, 48)
        self.down = nnx.List([self.Double(*pair, rngs) for pair in zip((3, 16, 32), widths, strict=True)])
        self.middle = self.Double(48, 64, rngs)
        pairs = ((64, 48), (48, 32), (32, 16))
        self.rise = nnx.List([nnx.ConvTranspose(*pair, (2, 2), (2, 2), rngs=rngs) for pair in pairs])
        self.up = nnx.List([self.Double(2 * out, out, rngs) for _, out in pairs])
        self.head = nnx.Conv(16, 5, (1, 1), rngs=rngs)

    def __call__(self, x: Array) -> Array:
        skips = []
        for block in self.down:
            skips.append(block(x))
            x = nnx.max_pool(skips[-1], window_shape=(2, 2), strides=(2, 2))
        x = self.middle(x)
        for rise, block in zip(self.rise, self.up, strict=True):
            x = block(jnp.concatenate([skips.pop(), rise(x)], -1))
        return self.head(x)


class Attention(nnx.Module):
    """Self-attention; heads are split and merged by reshapes."""

    def __init__(self, width: int, heads: int, causal: bool = False, *, rngs: nnx.Rngs) -> None:
        self.heads, self.causal = heads, causal
        self.packed = nnx.Linear(width, 3 * width, rngs=rngs)
        self.out = nnx.Linear(width, width, rngs=rngs)

    def __call__(self, x: Array) -> Array:
        batch, length, width = x.shape
        packed = self.packed(x).reshape(batch, length, 3, self.heads, width // self.heads)
        q, k, v = packed[:, :, 0], packed[:, :, 1], packed[:, :, 2]
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / (width // self.heads) ** 0.5
        if self.causal:
            scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e9)
        mixed = jnp.einsum("bhqk,bkhd->bqhd", nnx.softmax(scores), v)
        return self.out(mixed.reshape(batch, length, width))


class Layer(nnx.Module):
    """Attention and a feed-forward network, normalized before."""

    def __init__(self, attention: nnx.Module, width: int, rngs: nnx.Rngs) -> None:
        self.attention = attention
        self.first, self.second = nnx.LayerNorm(width, rngs=rngs), nnx.LayerNorm(width, rngs=rngs)
        self.wide, self.narrow = nnx.Linear(width, 160, rngs=rngs), nnx.Linear(160, width, rngs=rngs)

    def __call__(self, x: Array) -> Array:
        x = x + self.attention(self.first(x))
        return x + self.narrow(nnx.gelu(self.wide(self.second(x))))


class ViT(nnx.Module):
    """Patches by a convolution, a class token."""

    def __init__(self, rngs: nnx.Rngs, flax_attention: bool = False) -> None:
        def attention() -> nnx.Module:
            if flax_attention:
                return nnx.MultiHeadAttention(6, 96, decode=False, rngs=rngs)
            return Attention(96, 6, rngs=rngs)

        self.patches = nnx.Conv(3, 96, (8, 8), (8, 8), rngs=rngs)
        self.token = nnx.Param(jax.random.normal(rngs.params(), (1, 1, 96)))
        self.positions = nnx.Param(jax.random.normal(rngs.params(), (1, 12 * 16 + 1, 96)))
        self.layers = nnx.List([Layer(attention(), 96, rngs) for _ in range(3)])
        self.norm = nnx.LayerNorm(96, rngs=rngs)

    def __call__(self, x: Array) -> Array:
        x = self.patches(x)
        x = x.reshape(x.shape[0], -1, x.shape[-1])
        x = jnp.concatenate([jnp.broadcast_to(self.token[...], (x.shape[0], 1, 96)), x], 1) + self.positions[...]
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


class Swin(nnx.Module):
    """Windows of an image, shifted by a roll, and patches merged."""

    class Windows(nnx.Module):
        def __init__(self, width: int, heads: int, window: int, shift: int, rngs: nnx.Rngs) -> None:
            self.attention, self.window, self.shift = Attention(width, heads, rngs=rngs), window, shift

        def __call__(self, x: Array) -> Array:
            n, h, w, c = x.shape
            size = self.window
            x = jnp.roll(x, (-self.shift, -self.shift), (1, 2)) if self.shift else x
            x = x.reshape(n, h // size, size, w // size, size, c).transpose(0, 1, 3, 2, 4, 5)
            x = self.attention(x.reshape(-1, size * size, c)).reshape(n, h // size, w // size, size, size, c)
            x = x.transpose(0, 1, 3, 2, 4, 5).reshape(n, h, w, c)
            return jnp.roll(x, (self.shift, self.shift), (1, 2)) if self.shift else x

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.patches = nnx.Conv(3, 36, (4, 4), (4, 4), rngs=rngs)
        self.first = nnx.List([Layer(self.Windows(36, 3, 4, shift, rngs), 36, rngs) for shift in (0, 2)])
        self.merge = nnx.Linear(144, 72, rngs=rngs)
        self.second = nnx.List([Layer(self.Windows(72, 6, 4, shift, rngs), 72, rngs) for shift in (0, 2)])

    def __call__(self, x: Array) -> Array:
        x = self.patches(x)
        for layer in self.first:
            x = layer(x)
        x = jnp.concatenate([x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)], -1)
        x = self.merge(x)
        for layer in self.second:
            x = layer(x)
        return x


class Mixer(nnx.Module):
    """MLP-Mixer: linear layers on patches and on channels in turns."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        def perceptron(given: int, wide: int) -> nnx.Module:
            return nnx.Sequential(nnx.Linear(given, wide, rngs=rngs), nnx.gelu, nnx.Linear(wide, given, rngs=rngs))

        self.patches = nnx.Conv(3, 64, (8, 8), (8, 8), rngs=rngs)
        self.norms = nnx.List([nnx.LayerNorm(64, rngs=rngs) for _ in range(8)])
        self.tokens = nnx.List([perceptron(12 * 16, 96) for _ in range(4)])
        self.channels = nnx.List([perceptron(64, 128) for _ in range(4)])

    def __call__(self, x: Array) -> Array:
        x = self.patches(x)
        x = x.reshape(x.shape[0], -1, x.shape[-1])
        for index, (tokens, channels) in enumerate(zip(self.tokens, self.channels, strict=True)):
            x = x + tokens(self.norms[2 * index](x).swapaxes(1, 2)).swapaxes(1, 2)
            x = x + channels(self.norms[2 * index + 1](x))
        return x.mean(1)


class ShuffleNet(nnx.Module):
    """Grouped convolutions with a shuffle of channels between."""

    class Unit(nnx.Module):
        def __init__(self, width: int, rngs: nnx.Rngs) -> None:
            self.first = ConvBlock(width, width // 2, groups=3, act=nnx.relu, rngs=rngs)
            self.depthwise = ConvBlock(width // 2, width // 2, 3, groups=width // 2, act=None, rngs=rngs)
            self.last = ConvBlock(width // 2, width, groups=3, act=None, rngs=rngs)

        def __call__(self, x: Array) -> Array:
            y = self.first(x)
            n, h, w, c = y.shape
            y = y.reshape(n, h, w, 3, c // 3).swapaxes(3, 4).reshape(n, h, w, c)
            return nnx.relu(x + self.last(self.depthwise(y)))

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.stem = ConvBlock(3, 48, 3, 2, act=nnx.relu, rngs=rngs)
        self.units = nnx.List([self.Unit(48, rngs) for _ in range(4)])
        self.head = nnx.Linear(48, 7, rngs=rngs)

    def __call__(self, x: Array) -> Array:
        x = nnx.avg_pool(self.stem(x), window_shape=(2, 2), strides=(2, 2))
        for unit in self.units:
            x = unit(x)
        return self.head(x.mean((1, 2)))


class SuperResolution(nnx.Module):
    """Residual blocks, a pixel shuffle, and the resized image added."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.first = nnx.Conv(3, 24, (3, 3), rngs=rngs)
        self.blocks = nnx.List([nnx.Conv(24, 24, (3, 3), rngs=rngs) for _ in range(6)])
        self.last = nnx.Conv(24, 12, (3, 3), rngs=rngs)

    def __call__(self, image: Array) -> Array:
        x = self.first(image)
        for one, two in zip(self.blocks[::2], self.blocks[1::2], strict=True):
            x = x + two(nnx.relu(one(x)))
        x = self.last(x)
        n, h, w, c = x.shape
        x = x.reshape(n, h, w, 2, 2, c // 4).transpose(0, 1, 3, 2, 4, 5).reshape(n, 2 * h, 2 * w, c // 4)
        return x + jax.image.resize(image, (n, 2 * h, 2 * w, 3), "bilinear", antialias=False)


class Pyramid(nnx.Module):
    """A feature pyramid by resizing, heads on three scales, their boxes in one list."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.stem = ConvBlock(3, 24, 3, 2, rngs=rngs)
        self.down = nnx.List([ConvBlock(*pair, 3, 2, rngs=rngs) for pair in ((24, 32), (32, 48), (48, 64))])
        self.sides = nnx.List([ConvBlock(given, 32, rngs=rngs) for given in (32, 48, 64)])
        self.heads = nnx.List([nnx.Conv(32, 3 * 12, (1, 1), rngs=rngs) for _ in range(3)])

    def __call__(self, x: Array) -> tuple[Array, Array]:
        found, x = [], self.stem(x)
        for block in self.down:
            x = block(x)
            found.append(x)
        sides = [side(level) for side, level in zip(self.sides, found, strict=True)]
        for level in (1, 0):
            sides[level] = sides[level] + jax.image.resize(sides[level + 1], sides[level].shape, "nearest")
        lists = [head(side).reshape(x.shape[0], -1, 12) for head, side in zip(self.heads, sides, strict=True)]
        boxes = jnp.concatenate(lists, 1)
        return nnx.sigmoid(boxes[..., :4]), nnx.softmax(boxes[..., 4:])


class DenseNet(nnx.Module):
    """Everything is concatenated."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.stem = nnx.Conv(3, 24, (3, 3), (2, 2), rngs=rngs)
        layers: list[Any] = []
        width = 24
        for _ in range(3):
            for _ in range(4):
                layers.append(nnx.BatchNorm(width, use_running_average=True, rngs=rngs))
                layers.append(nnx.Conv(width, 12, (3, 3), rngs=rngs))
                width += 12
            layers.append(nnx.Conv(width, width // 2, (1, 1), rngs=rngs))
            width //= 2
        self.layers = nnx.List(layers)
        self.head = nnx.Linear(width, 7, rngs=rngs)

    def __call__(self, x: Array) -> Array:
        x = self.stem(x)
        for block in range(3):
            part = self.layers[9 * block : 9 * block + 9]
            for norm, conv in zip(part[:8:2], part[1:8:2], strict=True):
                x = jnp.concatenate([x, conv(nnx.relu(norm(x)))], -1)
            x = nnx.avg_pool(part[8](x), window_shape=(2, 2), strides=(2, 2))
        return self.head(x.mean((1, 2)))


class Language(nnx.Module):
    """A causal language model with rotary positions, shared heads and gates."""

    class Grouped(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            self.q = nnx.Linear(96, 96, use_bias=False, rngs=rngs)
            self.k, self.v = (nnx.Linear(96, 32, use_bias=False, rngs=rngs) for _ in range(2))
            self.out = nnx.Linear(96, 96, use_bias=False, rngs=rngs)

        def __call__(self, x: Array) -> Array:
            b, t, _ = x.shape
            angle = jnp.arange(t)[:, None] / 100 ** (jnp.arange(8) / 8)
            cos, sin = jnp.cos(angle)[:, None], jnp.sin(angle)[:, None]

            def turned(y: Array) -> Array:
                one, two = jnp.split(y, 2, -1)
                return jnp.concatenate([one * cos - two * sin, two * cos + one * sin], -1)

            q = turned(self.q(x).reshape(b, t, 6, 16)).reshape(b, t, 2, 3, 16)
            k, v = turned(self.k(x).reshape(b, t, 2, 16)), self.v(x).reshape(b, t, 2, 16)
            scores = jnp.einsum("bqgrd,bkgd->bgrqk", q, k) / 4
            scores = jnp.where(jnp.tril(jnp.ones((t, t), bool)), scores, -1e9)
            return self.out(jnp.einsum("bgrqk,bkgd->bqgrd", nnx.softmax(scores), v).reshape(b, t, 96))

    class Gated(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            self.gate, self.up = (nnx.Linear(96, 160, use_bias=False, rngs=rngs) for _ in range(2))
            self.down = nnx.Linear(160, 96, use_bias=False, rngs=rngs)

        def __call__(self, x: Array) -> Array:
            return self.down(nnx.silu(self.gate(x)) * self.up(x))

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.table = nnx.Embed(500, 96, rngs=rngs)
        self.norms = nnx.List([nnx.RMSNorm(96, rngs=rngs) for _ in range(5)])
        self.mixers = nnx.List([self.Grouped(rngs) for _ in range(2)])
        self.gates = nnx.List([self.Gated(rngs) for _ in range(2)])

    def __call__(self, tokens: Array) -> Array:
        x = self.table(tokens)
        for index in range(2):
            x = x + self.mixers[index](self.norms[2 * index](x))
            x = x + self.gates[index](self.norms[2 * index + 1](x))
        return self.norms[4](x) @ self.table.embedding[...].T


class Recurrent(eqx.Module):
    """A convolution over time, then a recurrent cell in a scan."""

    conv: eqx.nn.Conv1d
    cell: Any
    head: eqx.nn.Linear

    def __init__(self, cell: str, key: Array) -> None:
        keys = jax.random.split(key, 3)
        self.conv = eqx.nn.Conv1d(20, 32, 5, padding=2, key=keys[0])
        self.cell = getattr(eqx.nn, cell)(32, 48, key=keys[1])
        self.head = eqx.nn.Linear(48, 11, key=keys[2])

    def one(self, x: Array) -> Array:
        def step(state: Any, given: Array) -> tuple[Any, Array]:
            state = self.cell(given, state)
            return state, state[0] if isinstance(state, tuple) else state

        zeros = jnp.zeros(48)
        state = (zeros, zeros) if isinstance(self.cell, eqx.nn.LSTMCell) else zeros
        _, found = jax.lax.scan(step, state, jax.nn.relu(self.conv(x.T)).T)
        return jax.vmap(self.head)(found)

    def __call__(self, series: Array) -> Array:
        return jax.vmap(self.one)(series)


class Video(nnx.Module):
    """Convolutions and pools in three dimensions."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.convs = nnx.List([nnx.Conv(*pair, (3, 3, 3), rngs=rngs) for pair in ((3, 16), (16, 24), (24, 32))])
        self.norms = nnx.List([nnx.BatchNorm(c, use_running_average=True, rngs=rngs) for c in (16, 24, 32)])
        self.head = nnx.Linear(32, 7, rngs=rngs)

    def __call__(self, x: Array) -> Array:
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = nnx.max_pool(nnx.relu(norm(conv(x))), window_shape=(1, 2, 2), strides=(1, 2, 2))
        return self.head(x.mean((1, 2, 3)))


class EquinoxConvs(eqx.Module):
    """Equinox's layers, channels first and one image at a time, over a batch by `vmap`."""

    layers: list[Any]
    head: eqx.nn.Linear

    def __init__(self, key: Array) -> None:
        keys = jax.random.split(key, 6)
        self.layers = [
            eqx.nn.Conv2d(3, 16, 3, 2, 1, key=keys[0]),
            eqx.nn.GroupNorm(4, 16),
            jax.nn.relu,
            eqx.nn.Conv2d(16, 32, 3, 1, 1, groups=16, key=keys[1]),
            eqx.nn.MaxPool2d(2, 2),
            eqx.nn.Conv2d(32, 24, 1, key=keys[2]),
            jax.nn.silu,
            eqx.nn.ConvTranspose2d(24, 12, 2, 2, key=keys[3]),
            eqx.nn.AvgPool2d(2, 2),
        ]
        self.head = eqx.nn.Linear(12, 7, key=keys[4])

    def one(self, x: Array) -> Array:
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean((1, 2)))

    def __call__(self, images: Array) -> Array:
        return jax.vmap(self.one)(images)


def lax_convolutions(key: Array) -> Function:
    """`conv_general_dilated` in several dimension numbers: channels last, first, and the batch last (CHWN)."""
    keys = jax.random.split(key, 4)
    weights = [
        0.2 * jax.random.normal(k, shape)
        for k, shape in zip(keys, [(3, 3, 3, 16), (3, 3, 16, 24), (32, 24, 3, 3), (32, 7)], strict=True)
    ]

    def network(x: Array) -> Array:
        conv = partial(jax.lax.conv_general_dilated, padding="SAME")
        x = jax.nn.relu(conv(x, weights[0], (2, 2), dimension_numbers=("NHWC", "HWIO", "NHWC")))
        x = jax.nn.relu(conv(x, weights[1], (1, 1), dimension_numbers=("NHWC", "HWIO", "NHWC")))
        x = x.transpose(0, 3, 1, 2)
        x = jax.nn.relu(conv(x, weights[2], (2, 2), dimension_numbers=("NCHW", "OIHW", "NCHW")))
        return x.mean((2, 3)) @ weights[3]

    return network


def lax_products(key: Array) -> Function:
    """`dot_general` that contracts and batches axes wherever they lie."""
    keys = jax.random.split(key, 3)
    a, b, c = (0.3 * jax.random.normal(k, s) for k, s in zip(keys, [(24, 6, 16), (16, 6, 10), (48, 60)], strict=True))

    def network(x: Array) -> Array:
        n, h, w, _ = x.shape
        y = jax.lax.dot_general(x, a, (((3,), (0,)), ((), ())))  # n h w g d
        y = jax.lax.dot_general(y, b, (((4,), (0,)), ((3,), (1,))))  # g n h w e
        mixed = jax.lax.dot_general(y, y, (((2, 4), (2, 4)), ((1, 0), (1, 0))))  # n g w w
        y = jax.lax.dot_general(jax.nn.softmax(mixed), y, (((3,), (3,)), ((0, 1), (1, 0))))  # n g w h e
        return y.transpose(0, 3, 2, 1, 4).reshape(n, h, w, -1) @ c[:, :].reshape(60, 48)

    return network
