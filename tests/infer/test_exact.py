"""The engine beside an exact program of its own over all stored orders: equal bytes on every random graph.

Bytes alone count here, whatever number of Transposes it takes.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

import relayout
from infer.exact import BYTES, least_bytes, random_graph
from relayout.pipeline import Io
from relayout.targets import Kernel, Target
from running import by_the_runtime, moved_bytes, run

TRANSPOSED = Target("transposed", "products by columns", (Kernel("MatMul"),), rest=True, transposed_products=True)
SKIPPED = 0.1
"""The part of the graphs whose tables may be too large to compare."""


def inputs(model: onnx.ModelProto, seed: int) -> dict[str, NDArray[np.generic]]:
    rng = np.random.default_rng(seed)
    shapes = {put.name: [dim.dim_value for dim in put.type.tensor_type.shape.dim] for put in model.graph.input}
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def same(wanted: list[NDArray[np.generic]], given: list[NDArray[np.generic]], seed: int) -> None:
    """Another order of axes is another order of summation; a cast may then round to the next integer."""
    for want, got in zip(wanted, given, strict=True):
        assert got.shape == want.shape, seed
        limits = (0, 1) if want.dtype == np.int8 else (1e-3, 1e-4)
        np.testing.assert_allclose(got.astype(float), want.astype(float), *limits, err_msg=str(seed))


def compare(
    seeds: range, rank: int, steps: int, *, exchange: bool = False, transposed: bool = False
) -> tuple[int, int]:
    """How many graphs were compared, every other with a free interface; on how many something is moved at best.

    With `exchange` or `transposed`, the products that may run in other ways: on how many that saves bytes.
    """
    compared = moved = 0
    for seed in seeds:
        keep = bool(seed % 2)
        model, graph = random_graph(seed, steps + seed % 5, rank, keep=keep, exchange=exchange, transposed=transposed)
        onnx.checker.check_model(model, full_check=True)
        least = least_bytes(graph)
        if least is None:
            continue
        io: Io = "keep" if keep else "convert"
        target = TRANSPOSED if transposed else None
        result = relayout.convert(model, io=io, exchange=exchange, target=target, per_transpose=0)
        feed = inputs(result.proto, seed)
        left = moved_bytes(result.proto, feed)
        assert left == result.report.bytes, seed
        assert result.report.proved, seed
        assert left == least, f"seed {seed}: relayout leaves {left} bytes, the least is {least}"
        if keep:
            theirs = by_the_runtime(model, feed)
            assert theirs is not None, seed
            assert left <= theirs or transposed, f"seed {seed}: relayout leaves {left} bytes, the runtime {theirs}"
            same(run(model, feed), run(result.proto, feed), seed)
        compared += 1
        plain = relayout.convert(model, io=io, per_transpose=0).report.bytes if exchange or transposed else 0
        moved += plain > left if exchange or transposed else least > 0
    assert compared >= (1 - SKIPPED) * len(seeds)
    return compared, moved


def test_the_model_of_a_known_graph() -> None:
    """Two readers of one Transpose pay once; a cast to fewer bytes is where it settles."""
    _, graph = random_graph(0, 0, 3)
    assert least_bytes(graph) == 0
    value = graph.values[0]
    shape = graph.shape(value)
    turned = (*value.dims[1:], value.dims[0])
    graph.values.append(type(value)("t", value.tensor, turned))
    graph.output(graph.values[-1])
    graph.output(graph.values[-1])
    assert least_bytes(graph) == 4 * int(np.prod(shape))
    graph.elementwise(value, [], ["q"], onnx.TensorProto.INT8)
    small = graph.values[-1]
    graph.output(type(small)("u", small.tensor, (*small.dims[1:], small.dims[0])))
    assert least_bytes(graph) == 4 * int(np.prod(shape))
    del graph.operators[-4:-2]
    assert least_bytes(graph) == BYTES[onnx.TensorProto.INT8] * int(np.prod(shape))


def test_equal_bytes_on_random_graphs() -> None:
    compared, moved = compare(range(40), rank=3, steps=6)
    assert moved > compared // 4


def test_an_axis_is_gathered_where_its_last_factor_lies_too() -> None:
    """The Reshape of seed 40440 joins two axes with another between them: only gathered late do they cost nothing."""
    compared, moved = compare(range(40440, 40441), rank=4, steps=10)
    assert (compared, moved) == (1, 1)


def test_equal_bytes_where_products_exchange_their_operands() -> None:
    _, saving = compare(range(60), rank=3, steps=6, exchange=True)
    assert saving >= 5


def test_equal_bytes_where_products_read_columns() -> None:
    _, saving = compare(range(60), rank=3, steps=6, transposed=True)
    assert saving >= 5


@pytest.mark.slow
@pytest.mark.parametrize("rank", [3, 4])
def test_equal_bytes_on_many_graphs_with_transposed_products(rank: int) -> None:
    _, saving = compare(range(1000, 1150), rank=rank, steps=7, transposed=True)
    assert saving >= 10


@pytest.mark.slow
@pytest.mark.parametrize(("block", "exchange"), [*((block, False) for block in range(6)), (0, True), (3, True)])
@pytest.mark.parametrize("rank", [3, 4])
def test_equal_bytes_on_many_random_graphs(rank: int, block: int, exchange: bool) -> None:
    start = 10_000 * rank + 100 * block
    compared, found = compare(range(start, start + 60), rank=rank, steps=6 + block, exchange=exchange)
    assert found > (4 if exchange else compared // 4)
