"""Dilated convolutions that TensorFlow's converter takes apart for open extents: one Conv with dilations each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir
import pytest
from tflite_running import compare, read
from tflite_writing import Net, Scale, options

import relayout

CHANNELS = 3
SHAPING = {"Transpose", "Reshape", "Squeeze", "Unsqueeze"}
UNITS = {"QuantizeLinear", "DequantizeLinear"}


@dataclass(frozen=True)
class Dilated:
    """A dilated convolution over a batch that is open.

    Args:
        extents: of the axes between the batch and the channels.
        dilations: along each of them.
        opened: whether these extents are open, too: the margins are computed then.
        same: whether there is a border, so that the result is as long.
        causal: whether a PAD before it is that border, in front alone.
        depthwise: whether each channel has a kernel of its own.
        kind: the type of the data.
    """

    extents: tuple[int, ...]
    dilations: tuple[int, ...]
    opened: bool = False
    same: bool = True
    causal: bool = False
    depthwise: bool = False
    kind: str = "float32"

    @property
    def scale(self) -> Scale | None:
        return Scale(0.1, 3) if self.kind == "int8" else None

    def signature(self, extents: Sequence[int], channels: int = CHANNELS) -> dict[str, Sequence[int]]:
        """The shape of a tensor, and its open extents; what is open is 1 in the shape."""
        shape = (1, *([1] * len(extents) if self.opened else extents), channels)
        return {"shape": shape, "signature": (-1, *([-1] * len(extents) if self.opened else extents), channels)}

    def net(self) -> Net:
        net = Net()
        x, extents = net.input(**self.signature(self.extents), dtype=self.kind, q=self.scale), list(self.extents)
        if self.causal:
            before = [[0, 0], *([2 * d, 0] for d in self.dilations), [0, 0]]
            extents = [e + 2 * d for e, d in zip(extents, self.dilations, strict=True)]
            padded = self.tensor(net, extents)
            net.op("PAD", [x, net.const(before, "int32")], [padded], options("PadOptions"))
            x = padded
        border = list(self.dilations) if self.same and not self.causal else [0] * len(self.dilations)
        pads, crops, more = self.margins(net, x, extents, border)
        whole = [e + 2 * b + m for e, b, m in zip(extents, border, more, strict=True)]
        inner = [length // d for length, d in zip(whole, self.dilations, strict=True)]
        block = net.const(self.dilations, "int32")
        blocks = self.tensor(net, inner)
        net.op("SPACE_TO_BATCH_ND", [x, block, pads], [blocks])
        convolved = self.convolved(net, blocks, inner)
        length = [e + 2 * b - 2 * d for e, b, d in zip(extents, border, self.dilations, strict=True)]
        y = net.output(**self.signature(length, self.outputs), dtype=self.kind, q=self.scale)
        return net.op("BATCH_TO_SPACE_ND", [convolved, block, crops], [y])

    @property
    def outputs(self) -> int:
        return CHANNELS if self.depthwise else 4

    def tensor(self, net: Net, extents: Sequence[int], channels: int = CHANNELS) -> int:
        return net.tensor(**self.signature(extents, channels), dtype=self.kind, q=self.scale)

    def convolved(self, net: Net, x: int, extents: Sequence[int]) -> int:
        """A convolution of whole windows, with an axis of extent 1 where there is but one."""
        shorter, single = [extent - 2 for extent in extents], len(extents) == 1
        if single:
            image = self.tensor(net, extents)
            self.widen(net, image)
            net.op("EXPAND_DIMS", [x, net.const(-3, "int32")], [image], options("ExpandDimsOptions"))
            x = image
        rows = 1 if single else 3
        shape = (1, rows, 3, self.outputs) if self.depthwise else (self.outputs, rows, 3, CHANNELS)
        rng = np.random.default_rng(1)
        q = None
        if self.kind == "int8":
            q = Scale(np.linspace(0.01, 0.02, self.outputs).tolist(), axis=3 if self.depthwise else 0)
        integers = rng.integers(-100, 100, shape)
        weights = net.const(rng.normal(size=shape) if q is None else integers, self.kind, q=q)
        bias = net.const(rng.normal(size=self.outputs))
        if q is not None:
            steps = [0.1 * float(scale) for scale in np.atleast_1d(np.asarray(q.scale))]
            bias = net.const(rng.integers(-99, 99, self.outputs), "int32", q=Scale(steps))
        y = self.tensor(net, shorter, self.outputs)
        if single:
            self.widen(net, y)
        steps_of = {"strideH": 1, "strideW": 1, "padding": 1, "fusedActivationFunction": 1}
        if self.depthwise:
            table = options("DepthwiseConv2DOptions", depthMultiplier=1, **steps_of)
            net.op("DEPTHWISE_CONV_2D", [x, weights, bias], [y], table, version=3)
        else:
            net.op("CONV_2D", [x, weights, bias], [y], options("Conv2DOptions", **steps_of), version=3)
        if single:
            squeezed = self.tensor(net, shorter, self.outputs)
            net.op("SQUEEZE", [y], [squeezed], options("SqueezeOptions", squeezeDims=[1]))
            y = squeezed
        return y

    @staticmethod
    def widen(net: Net, index: int) -> None:
        tensor = net.graph.tensors[index]
        tensor.shape.insert(1, 1)
        tensor.shapeSignature = [tensor.shapeSignature[0], 1, *tensor.shapeSignature[1:]]

    def margins(self, net: Net, x: int, extents: Sequence[int], border: Sequence[int]) -> tuple[int, int, list[int]]:
        """Pads and crops; where extents are open, as `required_space_to_batch_paddings` computes them."""
        block = list(self.dilations)
        more = [-(e + 2 * b) % d for e, b, d in zip(extents, border, block, strict=True)]
        if not self.opened:
            pads = [[b, b + m] for b, m in zip(border, more, strict=True)]
            return net.const(pads, "int32"), net.const([[0, m] for m in more], "int32"), more
        count = len(block)

        def pair(name: str, first: int, second: int) -> int:
            result = net.tensor((count,), "int32")
            net.op(name, [first, second], [result], options(f"{name.title().replace('_', '')}Options"))
            return result

        def item(vector: int, place: int) -> int:
            result = net.tensor((), "int32")
            bounds = [net.const([number], "int32") for number in (place, place + 1, 1)]
            net.op("STRIDED_SLICE", [vector, *bounds], [result], options("StridedSliceOptions", shrinkAxisMask=1))
            return result

        def packed(values: Sequence[int], shape: tuple[int, ...]) -> int:
            result = net.tensor(shape, "int32")
            net.op("PACK", values, [result], options("PackOptions", valuesCount=len(values)))
            return result

        shape = net.tensor((count + 2,), "int32")
        net.op("SHAPE", [x], [shape], options("ShapeOptions", outType=2))
        known, steps = packed([item(shape, 1 + axis) for axis in range(count)], (count,)), net.const(block, "int32")
        full = pair("ADD", known, net.const([2 * b for b in border], "int32"))
        rest = pair("FLOOR_MOD", pair("SUB", steps, pair("FLOOR_MOD", full, steps)), steps)
        ends = pair("ADD", rest, net.const(border, "int32"))
        rows = [
            [packed([net.const(b, "int32"), item(ends, k)], (2,)) for k, b in enumerate(border)],
            [packed([net.const(0, "int32"), item(rest, k)], (2,)) for k in range(count)],
        ]
        pads, crops = (packed(pairs, (count, 2)) for pairs in rows)
        return pads, crops, more


PLAIN = Dilated((12, 10), (3, 2))
CASES = {
    "with a border": PLAIN,
    "that the blocks do not divide": Dilated((11, 7), (2, 4)),
    "without a border": replace(PLAIN, same=False),
    "depthwise": replace(PLAIN, depthwise=True),
    "of open height and width": replace(PLAIN, opened=True),
    "of open height and width, without a border": replace(PLAIN, opened=True, same=False),
    "depthwise, of open height and width": replace(PLAIN, opened=True, depthwise=True),
    "in one dimension": Dilated((16,), (4,)),
    "in one open dimension": Dilated((16,), (4,), opened=True),
    "causal": Dilated((16,), (2,), causal=True),
    "causal, in one open dimension": Dilated((16,), (4,), opened=True, causal=True),
    "of int8": replace(PLAIN, kind="int8"),
    "of int8, of open height and width": replace(PLAIN, kind="int8", opened=True),
    "depthwise, of int8": replace(PLAIN, kind="int8", depthwise=True),
    "causal, of int8": Dilated((16,), (2,), causal=True, kind="int8"),
}


def operators(model: ir.Model) -> Counter[str]:
    return Counter(node.op_type for node in model.graph)


@pytest.mark.parametrize("name", CASES)
def test_one_convolution_with_dilations(name: str) -> None:
    case = CASES[name]
    net = case.net()
    model = read(net.bytes())
    left = operators(model)
    assert left.keys() - SHAPING - UNITS - {"Clip", "Relu"} == {"Conv"}
    assert left["Conv"] == 1
    (conv,) = [node for node in model.graph if node.op_type == "Conv"]
    expected = case.dilations if len(case.dilations) == 2 else (1, *case.dilations)
    assert tuple(conv.attributes.get_ints("dilations") or ()) == expected
    for batch in (2, 5):
        for extra in (0, 1, 2) if case.opened else (0,):
            size = (batch, *(extent + extra for extent in case.extents), CHANNELS)
            for result in compare(net.bytes(), net.ranges, resize={0: size}):
                assert result.error <= result.tolerance(case.kind == "int8"), result


def test_it_moves_no_blocks() -> None:
    result = relayout.convert(PLAIN.net().bytes(), io="convert")
    assert result.report.transposes == 0
    assert result.report.proved


def test_what_somebody_else_reads_stays() -> None:
    net = PLAIN.net()
    (blocks,) = net.graph.operators[0].outputs
    net.graph.outputs.append(blocks)
    assert operators(read(net.bytes()))["Conv"] == 1
    for result in compare(net.bytes(), net.ranges, resize={0: (2, 12, 10, CHANNELS)}):
        assert result.error <= result.tolerance(False), result


def tampered(name: str) -> Net:
    """A chain that is no dilated convolution, or none of which it is known."""
    net = PLAIN.net()
    _, convolution, batch = net.graph.operators
    if name == "other blocks":
        batch.inputs[1] = net.const([2, 3], "int32")
    elif name == "what the convolution gives is read":
        net.graph.outputs.append(convolution.outputs[0])
    elif name == "cropped in front":
        batch.inputs[2] = net.const([[4, 0], [3, 0]], "int32")
        net.graph.tensors[batch.outputs[0]].shape = [1, 8, 9, 4]
        net.graph.tensors[batch.outputs[0]].shapeSignature = [-1, 8, 9, 4]
    elif name == "in steps":
        convolution.builtinOptions.strideH = 2
    return net


@pytest.mark.parametrize("name", ["what the convolution gives is read", "cropped in front"])
def test_other_chains_stay_as_they_are(name: str) -> None:
    net = tampered(name)
    assert operators(read(net.bytes()))["Transpose"] > 2 + 1
    for result in compare(net.bytes(), net.ranges, resize={0: (2, 12, 10, CHANNELS)}):
        assert result.error <= result.tolerance(False), result


@pytest.mark.parametrize("name", ["other blocks", "in steps"])
def test_chains_that_contradict_themselves_are_not_put_together(name: str) -> None:
    (conv,) = [node for node in read(tampered(name).bytes()).graph if node.op_type == "Conv"]
    assert list(conv.attributes.get_ints("dilations") or ()) == [1, 1]


def test_margins_that_nobody_knows_cancel() -> None:
    """Squares of squares: what is not known of a tensor has a number, however it is computed."""
    net = PLAIN.net()
    dilation, net.graph.operators = net.graph.operators, []
    margins = net.input((2, 2), "int32", 0, 1)
    for _ in range(60):
        squared = net.tensor((2, 2), "int32")
        net.op("MUL", [margins, margins], [squared], options("MulOptions"))
        margins = squared
    dilation[0].inputs[2] = dilation[2].inputs[2] = margins
    net.graph.operators += dilation
    (conv,) = [node for node in read(net.bytes()).graph if node.op_type == "Conv"]
    assert list(conv.attributes.get_ints("pads") or ()) == [0, 0, 0, 0]
    assert list(conv.attributes.get_ints("dilations") or ()) == list(PLAIN.dilations)
