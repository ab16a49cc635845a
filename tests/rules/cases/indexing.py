from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rules.cases.making import X, f, i, ints, n, rng
from rules.law import Array, Case


def cases() -> Iterator[Case]:
    yield from gathers()
    yield from tuples()
    yield from elements()


def gathers() -> Iterator[Case]:
    yield Case("Gather", {"x": f(*X), "n": i(2, 0, 0, 1)}, ("n",), {"axis": 2})
    yield Case("Gather", {"x": f(*X), "n": np.array(1, np.int64)}, ("n",), {"axis": -2})
    yield Case("Gather", {"x": f(*X), "n": i(1)}, attributes={"axis": 1})
    for indices in (ints(5, 4, high=3, dtype=np.int64), ints(5, 1, 4, high=3)):
        yield Case("Gather", {"x": f(*X), "n": indices}, attributes={"axis": 1})
        yield Case("Gather", {"x": f(*X), "n": indices}, ("n",), {"axis": -2})
    yield Case("Gather", {"x": f(5, 6), "n": ints(3, 4, high=5)}, ("x",), opset=1)
    table, places = np.arange(7, dtype=np.float32), np.arange(24, dtype=np.int64).reshape(2, 3, 4) % 7
    yield Case("Gather", {"x": table, "n": places})
    yield Case("Gather", {"x": table, "n": places}, ("x",), {"axis": -1})
    yield Case("Compress", {"x": f(*X), "q": np.array([1, 0, 1, 1], bool)}, ("q",), {"axis": 2})
    yield Case("Compress", {"x": f(*X), "q": np.array([1, 0, 1], bool)}, attributes={"axis": -1}, opset=9)
    yield Case("OneHot", {"x": ints(2, 4, 6, high=5, dtype=np.int64), "d": n(6), "v": i(3, 7)}, ("d",))
    one_hot = {"x": ints(2, 4, 6, low=-5, high=5, dtype=np.int64), "d": i(6), "v": f(2)}
    yield Case("OneHot", one_hot, ("d", "v"), {"axis": 1})
    yield Case("OneHot", one_hot, ("d", "v"), {"axis": -3}, opset=9)


def places(shape: tuple[int, ...], *count: int) -> Array:
    """Index tuples, all different."""
    everything = np.stack(np.unravel_index(rng.permutation(int(np.prod(shape))), shape), -1)
    return everything[: int(np.prod(count))].reshape(*count, len(shape)).astype(np.int64)


def tuples() -> Iterator[Case]:
    for domain in ("", "com.microsoft"):
        for indexed in (1, 2, 3, 4):
            indices = places(X[:indexed], 2)
            yield Case("GatherND", {"x": f(*X), "n": indices}, domain=domain)
            yield Case("GatherND", {"x": f(*X), "n": indices}, ("n",), domain=domain)
    yield Case("GatherND", {"x": f(*X), "n": places(X, 5, 4, 3)})
    yield Case("GatherND", {"x": f(*X), "n": places(X[:3], 3, 1, 6)}, ("n",), opset=11)
    yield Case("GatherND", {"x": f(*X), "n": np.stack([places(X[1:3], 5)] * 2)}, attributes={"batch_dims": 1})
    full = {"x": f(2, 6, 3, 4), "n": places((3, 4), 2, 6)}
    yield Case("GatherND", full, attributes={"batch_dims": 2})
    for op_set in (11, 13, 18):
        for indexed in (1, 2, 3, 4):
            updates = {"n": places(X[:indexed], 2), "u": f(2, *X[indexed:])}
            yield Case("ScatterND", {"x": f(*X), **updates}, opset=op_set)
            yield Case("ScatterND", {"x": f(*X), **updates}, ("n",), opset=op_set)
    updates = {"n": places(X[:3], 3, 4), "u": f(3, 4, 6)}
    yield Case("ScatterND", {"x": f(*X), **updates}, attributes={"reduction": "add"})


def elements() -> Iterator[Case]:
    for shape in ((2, 3, 5, 6), (2, 3, 1, 6), (1, 2, 5, 6)):
        for axis in (2, -2):
            indices = ints(*shape, high=4, dtype=np.int64)
            yield Case("GatherElements", {"x": f(*X), "n": indices}, attributes={"axis": axis})
            yield Case("GatherElements", {"x": f(*X), "n": indices}, ("n",), {"axis": axis})
    yield Case("GatherElements", {"x": f(*X), "n": ints(*X, high=2, dtype=np.int64)}, opset=11)
    indices = np.argsort(rng.random(X), 1)[:, :2]
    for op, opset in (("Scatter", 9), ("ScatterElements", 11), ("ScatterElements", 18)):
        given = {"x": f(*X), "n": indices, "u": f(*indices.shape)}
        yield Case(op, given, attributes={"axis": 1}, opset=opset)
        yield Case(op, given, ("n", "u"), {"axis": 1}, opset=opset)
        yield Case(op, given | {"n": indices[:, :, :3, :4], "u": f(2, 2, 3, 4)}, attributes={"axis": -3}, opset=opset)
    added = {"x": f(*X), "n": ints(*X, high=3, dtype=np.int64), "u": f(*X)}
    yield Case("ScatterElements", added, attributes={"axis": 2, "reduction": "add"})
    turned = np.argsort(rng.random(X), 2)
    for op, opset in (("Scatter", 10), ("ScatterElements", 13)):
        yield Case(op, {"x": f(*X), "n": turned, "u": f(*X)}, attributes={"axis": 2}, opset=opset)
    cache = {"x": f(2, 3, 6, 4), "u": f(2, 3, 5, 4), "n": i(1, 0)}
    yield Case("TensorScatter", cache, opset=24)
    around = cache | {"u": f(2, 3, 6, 4), "n": i(4, 3)}
    yield Case("TensorScatter", around, attributes={"mode": "circular"}, opset=24)
    yield Case("TensorScatter", {"x": f(2, 6, 3, 4), "u": f(2, 1, 3, 4)}, attributes={"axis": 1}, opset=24)
