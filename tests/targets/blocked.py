"""Models in blocks of channels, run on any CPU: their kernels as what they mean, in operators of ONNX."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import NodeProto, helper, numpy_helper

from relayout.targets.onnxruntime.cpu_guard import BLOCK, block_here
from running import run

Array = NDArray[np.generic]
DOMAIN = "com.microsoft.nchwc"


def run_anywhere(model: onnx.ModelProto, feed: Mapping[str, Array]) -> list[Array]:
    """A model's outputs: by ONNX Runtime where this CPU has the model's blocks, else by what its kernels mean."""
    tile = tile_of(model)
    return run(model if tile in (0, block_here()) else spelled_out(model, tile), feed)


def tile_of(model: onnx.ModelProto) -> int:
    """Channels in the blocks that a model is stamped with; 0: it has none."""
    return next((int(item.value) for item in model.metadata_props if item.key == BLOCK), 0)


def spelled_out(model: onnx.ModelProto, tile: int) -> onnx.ModelProto:
    """The model with each kernel for blocks as operators of ONNX, between what undoes blocks and makes them."""
    found = onnx.ModelProto()
    found.CopyFrom(model)
    spelling = _Spelling(found, tile)
    nodes = [new for node in model.graph.node for new in spelling.of(node)]
    del found.graph.node[:]
    found.graph.node.extend(nodes)
    return found


class _Spelling:
    def __init__(self, model: onnx.ModelProto, tile: int) -> None:
        self.model, self.tile, self.count = model, tile, 0
        self.weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
        self.nodes: list[NodeProto] = []

    def of(self, node: NodeProto) -> Iterator[NodeProto]:
        if node.domain != DOMAIN:
            yield node
            return
        self.nodes = []
        said = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
        getattr(self, f"_{node.op_type.lower()}", self._pool)(node, said)
        yield from self.nodes

    def _add(self, op_type: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        self.count += 1
        name = output or f"spelled_{self.count}"
        self.nodes.append(helper.make_node(op_type, inputs, [name], **attributes))
        return name

    def _constant(self, array: Any) -> str:
        self.count += 1
        name = f"constant_{self.count}"
        self.model.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def _shaped(self, x: str, *dims: int) -> str:
        return self._add("Reshape", x, self._constant(np.array(dims, np.int64)))

    def _out(self, x: str, output: str = "") -> str:
        """A buffer `n c/16 h w 16` that is called `n c h w`, as the image that it is."""
        shape = self._add("Shape", x)
        n, h, w = (self._add("Gather", shape, self._constant(np.array([i], np.int64))) for i in (0, 2, 3))
        rest, tile = self._constant(np.array([-1], np.int64)), self._constant(np.array([self.tile], np.int64))
        parts = self._add("Reshape", x, self._add("Concat", n, rest, h, w, tile, axis=0))
        return self._add("Reshape", self._add("Transpose", parts, perm=[0, 1, 4, 2, 3]), shape, output=output)

    def _in(self, x: str, output: str = "") -> str:
        """An image as a buffer `n c/16 h w 16` that is called `n c h w`."""
        shape = self._add("Shape", x)
        n, h, w = (self._add("Gather", shape, self._constant(np.array([i], np.int64))) for i in (0, 2, 3))
        rest, tile = self._constant(np.array([-1], np.int64)), self._constant(np.array([self.tile], np.int64))
        parts = self._add("Reshape", x, self._add("Concat", n, rest, tile, h, w, axis=0))
        return self._add("Reshape", self._add("Transpose", parts, perm=[0, 1, 3, 4, 2]), shape, output=output)

    def _reorderinput(self, node: NodeProto, said: dict[str, Any]) -> None:
        x = self._add("Transpose", node.input[0], perm=[0, 3, 1, 2]) if said.get("channels_last") else node.input[0]
        self._in(x, node.output[0])

    def _reorderoutput(self, node: NodeProto, said: dict[str, Any]) -> None:
        x = self._out(node.input[0])
        ends = (self._constant(np.array([end], np.int64)) for end in (0, said["channels"], 1))
        x = self._add("Slice", x, *ends)
        self._add(
            "Transpose", x, output=node.output[0], perm=[0, 2, 3, 1] if said.get("channels_last") else [0, 1, 2, 3]
        )

    def _conv(self, node: NodeProto, said: dict[str, Any]) -> None:
        x, kernel, bias, summand = [*node.input, "", ""][:4]
        weights = self.weights[kernel]
        o, i, h, w = weights.shape
        stem = i < self.tile and said.get("group", 1) == 1
        if i % self.tile:
            plain = weights.reshape(o // self.tile, i, h, w, self.tile).transpose(0, 4, 1, 2, 3)
        else:
            tiles = weights.reshape(o // self.tile, i // self.tile, h, w, self.tile, self.tile)
            plain = tiles.transpose(0, 5, 1, 4, 2, 3)
        activation, parameters = said.pop("activation", b"").decode(), said.pop("activation_params", [])
        given = [x if stem else self._out(x), self._constant(np.ascontiguousarray(plain.reshape(o, i, h, w)))]
        y = self._add("Conv", *given, bias, **said)
        if summand:
            y = self._add("Add", y, self._out(summand))
        if activation == "Clip":
            y = self._add("Clip", y, *(self._constant(np.float32(bound)) for bound in parameters))
        elif activation:
            y = self._add(activation, y, **dict(zip(("alpha", "beta"), parameters, strict=False)))
        self._in(y, node.output[0])

    def _pool(self, node: NodeProto, said: dict[str, Any]) -> None:
        self._in(self._add(node.op_type, self._out(node.input[0]), **said), node.output[0])
