"""Attention: projections are FULLY_CONNECTED, which quantizers and delegates know, and keys are read as they lie."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import pytest
from export_running import agrees
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import relayout
from small import build

ROWS = 7


class Attention:
    """A model with one attention, as PyTorch exports it.

    Args:
        size: channels of a head.
        batch: extents of the batch, or the name of an open one.
        fused: whether queries, keys and values come from one product.
        width: channels of all heads.
        kernels: whether weights are constants.
    """

    def __init__(
        self,
        size: int = 32,
        batch: tuple[int | str, ...] = (1,),
        *,
        fused: bool = False,
        kernels: bool = True,
        width: int = 96,
    ) -> None:
        self.rng = np.random.default_rng(0)
        self.size, self.heads, self.batch, self.kernels, self.width = size, width // size, batch, kernels, width
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [*batch, ROWS, self.width])]
        query, key, value = self._fused() if fused else [self._heads(name) for name in "qkv"]
        lead = len(batch)
        turned = self._node("Transpose", key, perm=[*range(lead + 1), lead + 2, lead + 1])
        scores = self._node("Softmax", self._node("MatMul", query, turned), axis=-1)
        mixed = self._node("Transpose", self._node("MatMul", scores, value), perm=self._by_heads())
        joined = self._node("Reshape", mixed, self._shape(self.width))
        self._node("MatMul", joined, self._weights("o", self.width), name="y")

    @property
    def model(self) -> onnx.ModelProto:
        """The model: of `x`, the batch by rows by channels, `y` of the same shape."""
        output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [*self.batch, ROWS, self.width])
        graph = helper.make_graph(self.nodes, "attention", self.inputs, [output], self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)

    def feed(self) -> dict[str, NDArray[np.float32]]:
        """Random inputs, of two items where the batch is open."""
        shapes = {put.name: [dim.dim_value or 2 for dim in put.type.tensor_type.shape.dim] for put in self.inputs}
        return {name: self.rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}

    def _node(self, op_type: str, *inputs: str, name: str = "", **attributes: object) -> str:
        given = name or f"{op_type}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, list(inputs), [given], given, **attributes))
        return given

    def _constant(self, array: NDArray[np.generic]) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def _shape(self, *last: int) -> str:
        opened = [-1 if isinstance(each, str) else each for each in self.batch]
        return self._constant(np.array([*opened, ROWS, *last], np.int64))

    def _by_heads(self) -> list[int]:
        lead = len(self.batch)
        return [*range(lead), lead + 1, lead, lead + 2]

    def _weights(self, name: str, columns: int) -> str:
        if self.kernels:
            return self._constant((self.rng.normal(size=(self.width, columns)) / 10).astype(np.float32))
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, [self.width, columns]))
        return name

    def _projected(self, name: str, columns: int) -> str:
        product = self._node("MatMul", "x", self._weights(name, columns))
        return self._node("Add", product, self._constant(self.rng.normal(size=columns).astype(np.float32)))

    def _heads(self, name: str) -> str:
        split = self._node("Reshape", self._projected(name, self.width), self._shape(self.heads, self.size))
        return self._node("Transpose", split, perm=self._by_heads())

    def _fused(self) -> list[str]:
        split = self._node("Reshape", self._projected("qkv", 3 * self.width), self._shape(3, self.heads, self.size))
        lead = len(self.batch)
        perm = [lead + 1, *range(lead), lead + 2, lead, lead + 3]
        whole = self._node("Transpose", split, perm=perm)
        return [self._node("Gather", whole, self._constant(np.array(item, np.int64)), axis=0) for item in range(3)]


def operators(result: relayout.Result) -> Counter[str]:
    assert result.file is not None
    (graph,) = result.file.subgraphs
    return Counter(operator.name for operator in graph.operators)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("batch", [(1,), (2,), ("batch",), (), (2, 3)], ids=str)
def test_projections_are_fully_connected(batch: tuple[int | str, ...], fused: bool) -> None:
    """The source's Transpose of the keys for the product is gone; those by heads stay."""
    given = Attention(batch=batch, fused=fused)
    result = relayout.convert(given.model, format="tflite")
    assert result.report.transposes < result.report.source_transposes
    assert result.report.proved
    assert operators(result)["FULLY_CONNECTED"] == (2 if fused else 4)
    assert operators(result)["BATCH_MATMUL"] == 2
    agrees(given.model, given.feed())


def test_kernels_that_are_computed_are_not_moved() -> None:
    given = Attention(kernels=False)
    result = relayout.convert(given.model, format="tflite")
    assert result.report.transposes == 4
    agrees(given.model, given.feed())


def test_an_einsum_reads_keys_as_they_lie() -> None:
    """The report does not know the TRANSPOSE that an export adds by itself: CvT had one in each attention."""
    source = build(
        "float[2,3,5,8] q, float[2,3,7,8] k",
        'y = Einsum<equation = "bhlk,bhtk->bhlt">(q, k)',
        {},
    )
    result = relayout.convert(source, format="tflite")
    assert dict(operators(result)) == {"BATCH_MATMUL": 1}
    rng = np.random.default_rng(0)
    feed = {
        name: rng.normal(size=shape).astype(np.float32) for name, shape in (("q", (2, 3, 5, 8)), ("k", (2, 3, 7, 8)))
    }
    agrees(source, feed)


def test_a_quantized_product_stays_on_integers() -> None:
    """A FusedMatMul would be no unit: it would compute between DEQUANTIZE and QUANTIZE."""
    text = """qq = QuantizeLinear(q, s, z) qd = DequantizeLinear(qq, s, z)
        kq = QuantizeLinear(k, s, z) kd = DequantizeLinear(kq, s, z) t = Transpose<perm = [0, 1, 3, 2]>(kd)
        m = MatMul(qd, t) mq = QuantizeLinear(m, s, z) y = DequantizeLinear(mq, s, z)"""
    scale = {"s": np.array(0.05, np.float32), "z": np.array(0, np.int8)}
    result = relayout.convert(build("float[2,3,5,8] q, float[2,3,7,8] k", text, scale), format="tflite")
    assert dict(operators(result)) == {"QUANTIZE": 2, "TRANSPOSE": 1, "BATCH_MATMUL": 1, "DEQUANTIZE": 1}
