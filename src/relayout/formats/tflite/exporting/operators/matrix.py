"""Products of matrices."""

from __future__ import annotations

from dataclasses import field
from functools import reduce
from math import prod
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.formats.stored import nbytes
from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import Quantization, TensorContent
from relayout.formats.tflite.exporting.blocks import BITS, Blocks, blocks_of, signed_content
from relayout.formats.tflite.exporting.builder import MATRIX
from relayout.formats.tflite.exporting.draft import Dims, DraftTensor, known
from relayout.formats.tflite.exporting.node import NodeExport
from relayout.formats.tflite.exporting.older import lacks
from relayout.formats.tflite.exporting.operators.convolution import bias_of
from relayout.formats.tflite.exporting.registry import OpenExtentError, Unwritable, exporter
from relayout.formats.tflite.exporting.standard_definitions import transform_matrix
from relayout.formats.tflite.spelled_out import ASYMMETRIC, ROUNDED, Builtin, Operand
from relayout.graph.quantized_unit import Scale, dequantizer_of, scale_of
from relayout.light_dataclass import dataclass

# Products of recurrent operators whose weights were bytes in a `.tflite`: LiteRT rounds each row of the other operand.
#
#     DequantizeLinear<tflite.rounded>(bytes)  ->  Unsqueeze  ->  GRU, RNN
#
# The bytes are the weights of each step's FULLY_CONNECTED, as in the file. As real numbers they give others: where no
# gate keeps a state, each step adds to the distance.

FRONT = ("Identity", "Reshape", "Unsqueeze")  # operators that put an axis of one element before a matrix
PRODUCT = "FULLY_CONNECTED"


@dataclass
class RoundedWeights:
    """Weights of bytes, `rows columns`, and the products with some of their rows."""

    op: NodeExport  # the recurrent operator
    array: NDArray[Any]  # the bytes
    scale: NDArray[np.float32]  # a scale for each row
    asymmetric: bool  # whether products round their data around any number; else around zero
    tensors: dict[tuple[int, int], DraftTensor] = field(default_factory=dict)

    def product(self, data: DraftTensor, begin: int, end: int, bias: DraftTensor | None = None) -> DraftTensor:
        """Return the product of data with some rows."""
        if (begin, end) not in self.tensors:
            self.tensors[begin, end] = self.op.const(
                np.ascontiguousarray(self.array[begin:end]), self._meaning(begin, end), "bytes"
            )
        dims: Dims = (*data.dims[:-1], end - begin)
        return self.op.emit(
            PRODUCT, [data, self.tensors[begin, end], bias], dims, asymmetric_quantize_inputs=self.asymmetric
        )

    def _meaning(self, begin: int, end: int) -> Quantization:
        scale = self.scale[begin:end] if self.scale.size > 1 else self.scale
        return Quantization(scale, np.zeros(scale.shape, np.int64), 0)

    def runs_in(self, runtime: str) -> bool:
        """Return whether a runtime has such products."""
        data = Operand(TensorType.FLOAT32, (1, self.array.shape[1]), None)
        weights = Operand(TensorType.INT8, self.array.shape, self._meaning(0, self.array.shape[0]))
        result = Operand(TensorType.FLOAT32, (1, self.array.shape[0]), None)
        said = {"asymmetric_quantize_inputs": self.asymmetric}
        return not runtime or not lacks(runtime, Builtin(PRODUCT, said, (data, weights, None), (result,)))


def rounded_weights_of(op: NodeExport, slot: int) -> RoundedWeights | None:
    """Return the bytes of an operand of one direction; None where it was none, or the runtime has no such products."""
    result = _behind_views(op.value(slot))
    node = dequantizer_of(result)
    if node is None or ROUNDED not in node.metadata_props:
        return None
    source = _behind_views(node.inputs[0])
    if source is None or source.const_value is None or source.is_graph_input():
        return None
    directions, *matrix = op.static(slot)
    scale, tensor = scale_of(node), source.const_value
    if scale is None or tensor.dtype != ir.DataType.INT8 or directions != 1 or tensor.size == 0:
        return None
    if not scale.is_symmetric or not _is_of_rows(node, scale, matrix[0]):
        return None
    weights = RoundedWeights(
        op, tensor.numpy().reshape(matrix), scale.scale, node.metadata_props[ROUNDED] == ASYMMETRIC
    )
    return weights if weights.runs_in(op.graph.runtime.oldest) else None


def _is_of_rows(node: ir.Node, scale: Scale, rows: int) -> bool:
    """Return whether a DequantizeLinear has one scale, or one for each row of a matrix."""
    shape = None if node.inputs[0] is None else node.inputs[0].shape
    if scale.is_one:
        return True
    front = [*[1] * scale.axis, rows]
    return scale.scale.size == rows and shape is not None and [*shape[: len(front)]] == front


def _behind_views(value: ir.Value | None) -> ir.Value | None:
    """Return the value whose elements a value has, in the same order."""
    while value is not None and (node := value.producer()) is not None and node.op_type in FRONT and not node.domain:
        value = node.inputs[0]
    return value


# Products by weights of a few bits, with a scale for each block of a row.

PACKED, SCALES, ZEROS, ORDER, BIAS = range(1, 6)  # operands of MatMulNBits
STORED = {bits: kind for kind, bits in BITS.items()}  # bits of an integer -> the type that holds it in the file


@exporter("MatMulNBits", domain="com.microsoft")
def matmul_nbits(op: NodeExport) -> None:
    """FULLY_CONNECTED by the real numbers that DEQUANTIZE makes of the weights, which stay integers in the file."""
    if op.has(ORDER):
        raise Unwritable("weights whose columns have groups of their own")
    if op.input().type != TensorType.FLOAT32 or not op.dims():
        raise Unwritable(f"a product of {op.input().type.name}")
    weights = _weights(op)
    operand = op.input()
    if len(operand.dims) == 1:
        operand = op.reshape(operand, (1, *operand.dims))
    product = op.fully_connected(operand, weights, op.input(BIAS) if op.has(BIAS) else None)
    op.give(op.reshape(product, op.out_dims()) if len(op.dims()) == 1 else product)


def _weights(op: NodeExport) -> DraftTensor:
    """Return the real numbers that weights mean, `rows columns`."""
    rows, columns, bits, block = (op.integer(name) for name in ("N", "K", "bits", "block_size"))
    bits = bits or 4
    if bits not in (2, 4, 8):
        raise Unwritable(f"weights of {bits} bits")
    if min(rows, columns, block) < 1:
        raise Unwritable(f"weights of N {rows}, K {columns} and block_size {block}")
    packed, scales = (op.required_constant(slot, "weights of a few bits") for slot in (PACKED, SCALES))
    zeros = op.required_constant(ZEROS, "the zero point of weights") if op.has(ZEROS) else None
    count = -(-columns // block)
    zero_bytes = rows * -(-count * bits // 8)
    fits = 8 * packed.size == rows * count * block * bits and scales.size == rows * count
    if not fits or (zeros is not None and zeros.size != (zero_bytes if zeros.dtype == np.uint8 else rows * count)):
        raise Unwritable("weights, scales or zero points of other sizes than N, K and block_size say")
    centres = np.full((rows, count), 1 << (bits - 1), np.float32)  # zero points of unsigned integers
    if zeros is not None:
        listed = _unpacked(zeros.reshape(rows, -1), bits)[:, :count] if zeros.dtype == np.uint8 else zeros
        centres = listed.reshape(rows, count).astype(np.float32)
    steps = scales.astype(np.float32).reshape(rows, count)
    is_exact = np.isin(centres, range(1 << bits)).all()
    if columns == count * block and bits in STORED and is_exact:
        tensor = op.value(PACKED).const_value
        assert tensor is not None
        content = signed_content(TensorContent(tensor), bits)
        zero_points = centres.astype(np.int64).reshape(-1) - (1 << bits - 1)
        blocks = Blocks(content, STORED[bits], (rows, columns), block, steps.reshape(-1), zero_points)
        if blocks.is_small:
            return blocks.real_numbers(op.draft, f"{op.name}/weights")

    def numbers() -> ir.TensorProtocol:
        integers = _unpacked(packed.reshape(rows, -1), bits)[:, :columns].astype(np.float32)
        centre, step = (np.repeat(each, block, axis=1)[:, :columns] for each in (centres, steps))
        return ir.Tensor((integers - centre) * step)

    dims = (rows, columns)
    lazy = ir.LazyTensor(numbers, dtype=ir.DataType.FLOAT, shape=ir.Shape(dims), name=op.name)
    return DraftTensor(op.draft.unique(f"{op.name}/weights"), TensorType.FLOAT32, dims, TensorContent(lazy))


def _unpacked(array: NDArray[Any], bits: int) -> NDArray[Any]:
    """Return the numbers of a few bits that bytes hold, the lowest bits first."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    numbers: NDArray[Any] = ((array[..., None] >> shifts) & ((1 << bits) - 1)).reshape(*array.shape[:-1], -1)
    return numbers


@exporter("MatMul")
def matmul(op: NodeExport) -> None:
    """FULLY_CONNECTED where the second operand is a constant matrix, else BATCH_MATMUL."""
    left = op.input(0)
    weights = fully_connected_weights(op, transposed=False)
    if weights is not None and left.dims:
        bias = bias_of(op, 9, left, weights, int(weights.dims[0])) if op.quantized else None
        result, inputs = op.output(0), [weights, *([] if bias is None else [bias])]
        if len(left.dims) > 1:
            op.result("FULLY_CONNECTED", [left, *inputs], keep_num_dims=len(left.dims) > MATRIX)
            return
        row = op.reshape(left, (1, *left.dims))
        product = op.emit("FULLY_CONNECTED", [row, *inputs], (1, *result.dims), result.type, result.quantization)
        op.give(op.reshape(product, result.dims))
        return
    right = op.input(1)
    if len(left.dims) == 0 or len(right.dims) == 0:
        raise Unwritable("a product of scalars")
    if op.quantized and right.data is not None:
        raise Unwritable("a quantized product by constant matrices")
    if left.type not in (TensorType.FLOAT32, TensorType.INT8, TensorType.INT16):
        raise Unwritable(f"a product of {left.type.name}")
    op.give_new(op.matmul(left, right, meaning=op.output(0).quantization))


def fully_connected_weights(
    op: NodeExport,  # the node
    *,
    transposed: bool,  # whether the node has them as `n k`
) -> DraftTensor | None:
    """Return the second operand as the weights `n k` of FULLY_CONNECTED; None where it is `k n` and computed."""
    if len(op.dims(1)) != MATRIX:
        return None
    if not transposed and (numbers := _blocks_of_columns(op)) is not None:
        return numbers
    integers = op.dequantized_constant()
    matrix = op.input(1) if integers is None else integers
    if matrix.data is None:
        is_read = transposed and matrix.type == TensorType.FLOAT32 and not op.integer("transA")
        return matrix if is_read else None
    matrix = matrix if transposed else transposed_weights(op, matrix)
    return matrix if integers is None else op.emit("DEQUANTIZE", [matrix], matrix.dims, TensorType.FLOAT32)


def _blocks_of_columns(op: NodeExport) -> DraftTensor | None:
    """Return weights `k n` with a scale for each block of a column as real numbers `n k`; None where they have none."""
    value = op.value(1)
    transposed = op.graph.transposed_blocks
    if value not in transposed:
        node = dequantizer_of(value)
        blocks = None if node is None else blocks_of(node, transposed=True)
        if blocks is None or not blocks.is_small:
            return None
        transposed[value] = blocks.real_numbers(op.draft, value.name or "weights")
    return transposed[value]


def transposed_weights(op: NodeExport, weights: DraftTensor) -> DraftTensor:
    """Return a constant matrix `k n` as `n k`, transposed when it is written."""
    dims = (weights.dims[1], weights.dims[0])
    quantization = weights.quantization
    if quantization is not None:
        quantization = Quantization(quantization.scale, quantization.zero_point, 1 - quantization.axis)
    if weights.array is not None:
        return op.const(np.ascontiguousarray(weights.array.T), quantization, "weights")
    content = weights.data
    if not isinstance(content, TensorContent):
        raise Unwritable("a large constant that cannot be transposed")
    if quantization is None and weights in op.draft.transposed:
        return op.draft.transposed[weights]
    source = content.tensor
    lazy = ir.LazyTensor(
        lambda: ir.Tensor(np.ascontiguousarray(source.numpy().T)),
        dtype=source.dtype,
        shape=ir.Shape([int(dim) for dim in dims]),
        name=weights.name,
    )
    assert nbytes(source.dtype, tuple(int(dim) for dim in dims)) == content.nbytes
    name = op.draft.unique(f"{weights.name}/transposed")
    tensor = op.draft.transposed[weights] = DraftTensor(
        name, weights.type, dims, TensorContent(lazy), None, quantization
    )
    return tensor


@exporter("Einsum")
def einsum(op: NodeExport) -> None:
    """BATCH_MATMUL of each two operands, with TRANSPOSE, RESHAPE and SUM; MUL and SUM of integers.

    All that these can compute was written as them before; see `targets/litert/einsum_products.py`.
    """
    names = [dim for tensor in op.inputs() for dim in tensor.dims if isinstance(dim, str)]
    if names:
        raise OpenExtentError(
            "extents known only at run time that one axis of a matrix holds, or that may differ", names
        )
    raise Unwritable("an equation that does not fit its operands")


@exporter("Gemm")
def gemm(op: NodeExport) -> None:
    """FULLY_CONNECTED where the second operand is constant, else BATCH_MATMUL, MUL and ADD."""
    left = op.input(0)
    alpha, beta = op.number("alpha", 1.0), op.number("beta", 1.0)
    adjoint, transposed = bool(op.integer("transA")), bool(op.integer("transB"))
    result = op.output(0)
    weights = fully_connected_weights(op, transposed=transposed)
    if adjoint and weights is not None:
        left, adjoint = op.transpose(left, (1, 0)), False
    if weights is not None and not (op.quantized and alpha != 1.0):
        count = weights.dims[0]
        addend_dims = op.dims(2) if op.has(2) and op.constant(2) is not None else ()
        row = addend_dims[-1:] == (count,) and set(addend_dims[:-1]) <= {1}
        if op.quantized or (alpha == 1.0 and beta == 1.0 and (row or not op.has(2))):
            bias = bias_of(op, 2, left, weights, *known((count,))) if op.quantized or op.has(2) else None
            op.result("FULLY_CONNECTED", [left, weights, *([] if bias is None else [bias])])
            return
        product = op.emit("FULLY_CONNECTED", [left, weights], result.dims)
    else:
        product = op.emit("BATCH_MATMUL", [left, op.input(1)], result.dims, adj_x=adjoint, adj_y=transposed)
    if alpha != 1.0:
        product = op.mul(product, alpha)
    if op.has(2):
        addend = op.input(2)
        if beta != 1.0:
            addend = op.mul(addend, beta)
        product = op.add(product, addend)
    op.give(product)


@exporter("STFT")
def stft(op: NodeExport) -> None:
    """GATHER of frames, and FULLY_CONNECTED with the transform's matrix, which a constant window is a part of."""
    batch, count, *parts = op.static()
    step = int(op.required_constant(1, "the step between frames").reshape(-1)[0])
    window = op.constant(2) if op.has(2) else None
    if op.has(3):
        length = int(op.required_constant(3, "the length of a frame").reshape(-1)[0])
    elif op.has(2):
        (length,) = op.static(2)
    else:
        raise Unwritable("frames without a length")
    width = parts[0] if parts else 1
    bins = length // 2 + 1 if op.integer("onesided", 1) else length
    frames = (count - length) // step + 1
    places = np.arange(frames)[:, None] * step + np.arange(length)
    signal = op.reshape(op.input(0), (batch, count, width))
    samples = op.gather(signal, op.ints(places), 1)
    matrix = transform_matrix(length, bins, length, length, width)
    if window is not None:
        weights = np.zeros(length)
        begin = (length - len(window)) // 2
        weights[begin : begin + len(window)] = window
        matrix = (matrix * np.repeat(weights, width)).astype(np.float32)
    elif op.has(2):
        (size,) = op.static(2)
        before = (length - size) // 2
        weighting = op.pad(op.input(2), [(before, length - size - before)])
        samples = op.mul(samples, op.reshape(weighting, (1, 1, length, 1)))
    front = known(samples.dims[:-2])
    flat = op.reshape(samples, (prod(front), matrix.shape[1]))
    op.give(op.reshape(op.fully_connected(flat, op.const(matrix)), (*front, bins, 2)))


# Operators of the domain com.microsoft that exporters and optimizers write.


@exporter("BiasGelu", domain="com.microsoft")
def bias_gelu(op: NodeExport) -> None:
    """ADD and GELU."""
    total = op.add(op.input(0), op.input(1))
    op.result("GELU", [total], approximate=False)


@exporter("FusedMatMul", "TransposeMatMul", domain="com.microsoft")
def fused_matmul(op: NodeExport) -> None:
    """FULLY_CONNECTED where the second operand is a constant matrix or `n k`, else BATCH_MATMUL; MUL."""
    if op.integer("transBatchA") or op.integer("transBatchB"):
        raise Unwritable("axes of a batch that are transposed")
    if min(op.rank(0), op.rank(1)) < MATRIX:
        raise Unwritable("a product with a vector")
    left, adjoint, transposed = op.input(0), bool(op.integer("transA")), bool(op.integer("transB"))
    weights = None if adjoint else fully_connected_weights(op, transposed=transposed)
    if weights is None:
        product = op.matmul(left, op.input(1), adj_x=adjoint, adj_y=transposed)
    else:
        product = op.fully_connected(left, weights)
    alpha = op.number("alpha", 1.0)
    op.give(product if alpha == 1.0 else op.mul(product, alpha))


@exporter("Inverse", domain="com.microsoft")
def inverse(op: NodeExport) -> None:
    """Adjugates divided by the determinant."""
    count = op.static()[-1]
    if count > 3:
        raise Unwritable("inverses of more than three rows")
    rows = [[op.at(op.at(op.input(0), -2, i), -1, j) for j in range(count)] for i in range(count)]
    cofactors = [[_cofactor(op, rows, j, i) for j in range(count)] for i in range(count)]
    total = reduce(op.add, [op.mul(rows[0][j], cofactors[j][0]) for j in range(count)])
    stacked = op.stack([op.stack(row, -1) for row in cofactors], -2)
    op.give(op.div(stacked, op.reshape(total, (*total.dims, 1, 1))))


def _cofactor(op: NodeExport, rows: list[list[DraftTensor]], i: int, j: int) -> DraftTensor:
    rest = [[each for b, each in enumerate(row) if b != j] for a, row in enumerate(rows) if a != i]
    if not rest:
        return op.add(op.mul(rows[0][0], 0.0), 1.0)
    minor = rest[0][0] if len(rest) == 1 else op.sub(op.mul(rest[0][0], rest[1][1]), op.mul(rest[0][1], rest[1][0]))
    return op.each("NEG", minor) if (i + j) % 2 else minor
