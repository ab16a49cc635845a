"""Operators of the domain com.microsoft that exporters and optimizers write."""

from __future__ import annotations

from functools import reduce

from relayout.formats.tflite.exporting.draft import DraftTensor
from relayout.formats.tflite.exporting.node import NodeExport
from relayout.formats.tflite.exporting.operators.matrix import WEIGHTS_RANK, fully_connected_weights
from relayout.formats.tflite.exporting.registry import Unwritable, exporter


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
    if min(op.rank(0), op.rank(1)) < WEIGHTS_RANK:
        raise Unwritable("a product with a vector")
    left, adjoint, transposed = op.input(0), bool(op.integer("transA")), bool(op.integer("transB"))
    weights = None if adjoint else fully_connected_weights(op, transposed=transposed)
    if weights is None:
        product = op.matmul(left, op.input(1), adj_x=adjoint, adj_y=transposed)
    else:
        dims = (*left.dims[:-1], weights.dims[0])
        product = op.emit("FULLY_CONNECTED", [left, weights], dims, keep_num_dims=len(left.dims) > WEIGHTS_RANK)
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
    found = rest[0][0] if len(rest) == 1 else op.sub(op.mul(rest[0][0], rest[1][1]), op.mul(rest[0][1], rest[1][0]))
    return op.each("NEG", found) if (i + j) % 2 else found
