"""Small models of operators that look up, count, transform and take apart."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from tflite_cases import I8, cases, rng
from tflite_writing import Net, options


@cases("FAKE_QUANT")
def fake_quant() -> Iterator[Net]:
    for low, high, bits, narrow in ((-1, 1, 8, False), (-0.3, 2.1, 8, False), (0, 6, 4, False), (-6, 0, 16, False)):
        net = Net()
        table = options("FakeQuantOptions", min=low, max=high, numBits=bits, narrowRange=narrow)
        yield net.op("FAKE_QUANT", [net.input((3, 50))], [net.output((3, 50))], table)


@cases("UNIQUE")
def distinct() -> Iterator[Net]:
    for kind in ("float32", "int32", "int64", "uint8", "int8", "int16"):
        for number, index in ((2, "int32"), (4, "int64")):
            net = Net()
            x = net.input((9,), "int32", 0, 3)
            given = net.tensor((9,), kind)
            net.op("CAST", [x], [given], options("CastOptions"))
            outputs = [net.output((9,), kind), net.output((9,), index)]
            yield net.op("UNIQUE", [given], outputs, options("UniqueOptions", idxOutType=number))


@cases("SEGMENT_SUM")
def sorted_segments() -> Iterator[Net]:
    for kind in ("float32", "int32"):
        net = Net()
        ids = net.const([0, 0, 1, 2], "int32")
        yield net.op("SEGMENT_SUM", [net.input((4, 3), kind, -5, 5), ids], [net.output((3, 3), kind)])
        net = Net()
        x, zero, ids = net.input((4, 3), kind, -5, 5), net.input((1,), "int32", 0, 0), net.tensor((4,), "int32")
        net.op("ADD", [net.const([0, 1, 1, 2], "int32"), zero], [ids], options("AddOptions"))
        yield net.op("SEGMENT_SUM", [x, ids], [net.output((3, 3), kind)])


@cases("UNSORTED_SEGMENT_SUM", "UNSORTED_SEGMENT_MAX")
def counted_segments() -> Iterator[Net]:
    for name in ("SUM", "MAX"):
        net = Net()
        operands = [net.input((4, 3)), net.const([2, 0, 2, -1], "int32"), net.input((1,), "int32", 5, 5)]
        yield net.op(f"UNSORTED_SEGMENT_{name}", operands, [net.output((5, 3))])


@cases("EMBEDDING_LOOKUP_SPARSE")
def sparse_embeddings() -> Iterator[Net]:
    for combiner in (0, 1, 2):
        for places, dense, shape in (
            ([[0, 0], [2, 0], [2, 1]], [3, 2], (3, 4, 2)),
            ([[0, 0, 0], [0, 1, 0], [1, 1, 1]], [2, 2, 2], (2, 2, 4, 2)),
        ):
            net = Net()
            ids, weights = net.input((3,), "int32", 0, 4), net.input((3,), low=0.1, high=3)
            table = net.const(rng().normal(size=(5, 4, 2)))
            operands = [ids, net.const(places, "int32"), net.const(dense, "int32"), weights, table]
            choice = options("EmbeddingLookupSparseOptions", combiner=combiner)
            yield net.op("EMBEDDING_LOOKUP_SPARSE", operands, [net.output(shape)], choice)


@cases("HASHTABLE_LOOKUP")
def keyed() -> Iterator[Net]:
    for kind, q in (("float32", None), ("int32", None)):
        net = Net()
        keys, values = net.const([-3, 1, 4], "int32"), net.const(rng().integers(-9, 9, (3, 2)), kind, q=q)
        outputs = [net.output((7, 2), kind, q=q), net.output((7,), "uint8")]
        yield net.op("HASHTABLE_LOOKUP", [net.input((7,), "int32", -4, 5), keys, values], outputs)


@cases("BUCKETIZE")
def buckets() -> Iterator[Net]:
    for kind in ("float32", "int32"):
        net = Net()
        table = options("BucketizeOptions", boundaries=[-1.5, -1, 0, 2])
        yield net.op("BUCKETIZE", [net.input((3, 5), kind, -3, 3)], [net.output((3, 5), "int32")], table)


@cases("BROADCAST_ARGS")
def broadcast_shapes() -> Iterator[Net]:
    for a, b in (([3, 1], [2, 1, 4]), ([1, 5], [3, 1])):
        net = Net()
        rank = max(len(a), len(b))
        shape, y = net.tensor((rank,), "int32"), net.output(np.broadcast_shapes(a, b))
        first = net.input((len(a),), "int32", 1, 1)
        added = net.tensor((len(a),), "int32")
        net.op("ADD", [first, net.const([e - 1 for e in a], "int32")], [added], options("AddOptions"))
        net.op("BROADCAST_ARGS", [added, net.const(b, "int32")], [shape])
        yield net.op("BROADCAST_TO", [net.input((1,)), shape], [y], version=2)


@cases("SPARSE_TO_DENSE")
def densified() -> Iterator[Net]:
    for kind in ("float32", "int32"):
        for indices, shape, many in (([[0, 1], [2, 3]], (3, 4), 2), ([1, 4], (6,), 2), ([[0, 1], [2, 0]], (3, 4), 0)):
            net = Net()
            operands = [
                net.const(indices, "int32"),
                net.const(shape, "int32"),
                net.input((many,) if many else (), kind),
            ]
            table = options("SparseToDenseOptions")
            yield net.op("SPARSE_TO_DENSE", [*operands, net.const(7, kind)], [net.output(shape, kind)], table)


@cases("BITCAST")
def same_bits() -> Iterator[Net]:
    for a, b, before, after in (
        ("int32", "uint32", (3, 4), (3, 4)),
        ("int8", "uint8", (3, 4), (3, 4)),
        ("int32", "int16", (3, 4), (3, 4, 2)),
        ("int32", "uint8", (3,), (3, 4)),
        ("uint8", "int32", (3, 4), (3,)),
        ("int16", "int32", (3, 2), (3,)),
    ):
        net = Net()
        x = net.input(before, a, -120 if a[0] == "i" else 0, 120)
        yield net.op("BITCAST", [x], [net.output(after, b)], options("BitcastOptions"))


@cases("RFFT2D", "REAL", "IMAG", "COMPLEX_ABS")
def spectra() -> Iterator[Net]:
    for extents, lengths in (((3, 8, 4), (8, 4)), ((2, 1, 16), (1, 16)), ((8, 16), (4, 8))):
        for name, table in (("REAL", None), ("IMAG", None), ("COMPLEX_ABS", None)):
            net = Net()
            shape = (*extents[:-2], lengths[0], lengths[1] // 2 + 1)
            middle = net.tensor(shape, type_name="COMPLEX64")
            net.op("RFFT2D", [net.input(extents), net.const(lengths, "int32")], [middle], options("Rfft2dOptions"))
            yield net.op(name, [middle], [net.output(shape)], table)


@cases("RESHAPE", "SQUEEZE", "EXPAND_DIMS")
def reshaped_spectra() -> Iterator[Net]:
    for name in ("RESHAPE", "SQUEEZE", "EXPAND_DIMS"):
        net = Net()
        middle, other = net.tensor((3, 1, 9), type_name="COMPLEX64"), {"RESHAPE": (27,), "SQUEEZE": (3, 9)}.get(name)
        moved = net.tensor(other or (3, 1, 9, 1), type_name="COMPLEX64")
        net.op("RFFT2D", [net.input((3, 1, 16)), net.const([1, 16], "int32")], [middle], options("Rfft2dOptions"))
        if name == "SQUEEZE":
            net.op(name, [middle], [moved], options("SqueezeOptions", squeezeDims=[1]))
        else:
            operand = net.const([27], "int32") if name == "RESHAPE" else net.const(-1, "int32")
            table = options("ReshapeOptions" if name == "RESHAPE" else "ExpandDimsOptions")
            net.op(name, [middle, operand], [moved], table)
        yield net.op("COMPLEX_ABS", [moved], [net.output(other or (3, 1, 9, 1))])


@cases("CAST")
def cast_spectra() -> Iterator[Net]:
    """Of complex numbers the real parts count, as integers too; what is real has an imaginary part of 0."""
    for kind in ("float32", "int32", "bool"):
        net = Net()
        middle = net.tensor((3, 1, 9), type_name="COMPLEX64")
        net.op("RFFT2D", [net.input((3, 1, 16)), net.const([1, 16], "int32")], [middle], options("Rfft2dOptions"))
        yield net.op("CAST", [middle], [net.output((3, 1, 9), kind)], options("CastOptions"))
    for kind, name in (("float32", "COMPLEX_ABS"), ("int8", "REAL"), ("float32", "IMAG")):
        net = Net()
        middle = net.tensor((3, 5), type_name="COMPLEX64")
        net.op("CAST", [net.input((3, 5), kind, -50, 50)], [middle], options("CastOptions"))
        yield net.op(name, [middle], [net.output((3, 5))])


@cases("STRIDED_SLICE")
def computed_slices() -> Iterator[Net]:
    """Bounds that the graph computes: an added 0 that only the feed knows."""
    for begin, end, stride, masks, shape in (
        ([1, 0, 2], [2, 3, 5], [1, 1, 2], {}, (1, 3, 2)),
        ([-1, 0], [0, 3], [1, 2], {"shrinkAxisMask": 1}, (2, 5)),
        ([0, -1, 4], [0, -9, 0], [1, -1, -2], {"endMask": 3, "beginMask": 1}, (2, 3, 2)),
    ):
        for kind, q in (("float32", None), ("int8", I8)):
            net = Net()
            x, zero = net.input((2, 3, 5), kind, q=q), net.input((1,), "int32", 0, 0)
            bounds = [net.tensor((len(begin),), "int32") for _ in range(2)]
            for given, bound in zip((begin, end), bounds, strict=True):
                net.op("ADD", [net.const(given, "int32"), zero], [bound], options("AddOptions"))
            table, y = options("StridedSliceOptions", **masks), net.output(shape, kind, q=q)
            yield net.op("STRIDED_SLICE", [x, *bounds, net.const(stride, "int32")], [y], table, version=8)
