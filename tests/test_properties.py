"""A few of the random graphs that `bench/properties.py` goes through by the thousand, and what it must find."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper

import properties
import relayout
from conftest import KERAS
from infer.mixed import Made, mixed_model
from properties import PropertyError, apart, certified, hold
from relayout.formats.onnx.completing import complete
from relayout.infer.build import build
from relayout.infer.candidates import candidates
from relayout.pipeline.result import Result
from running import run


@pytest.mark.parametrize("block", range(4))
@pytest.mark.sampled(every=4)
def test_there_and_back_computes_the_same(block: int) -> None:
    before = after = 0
    has: set[str] = set()
    for seed in range(20 * block, 20 * block + 20):
        made = mixed_model(seed, 4 + seed % 12)
        found = hold(made)
        assert not found.contested
        assert not found.capped
        has |= made.has
        before, after = before + found.source[1], after + found.optimized[1]
    assert has == {"quantized", "per channel", "shuffle", "If", "Loop", "Scan", "dynamic"}
    assert after < before


@pytest.mark.parametrize("seed", [900_009, 900_152, 900_166, 900_179, 900_190])
def test_blocks_of_a_shuffled_axis_keep_its_order(seed: int) -> None:
    """Another reader holds the channels in another order: the kernel kept that, and the blocks did not."""
    for layout in ("NCHW2c", "NCHW4c"):
        hold(mixed_model(seed, 4 + seed % 12), layout)


@pytest.mark.parametrize("seed", [1022, 1155, 1333])
def test_bodies_say_what_cannot_be_inferred_in_them(seed: int) -> None:
    """A stretched value in a Scan: the shape that it is stretched to is a constant of the graph around it."""
    hold(mixed_model(seed, 4 + seed % 12))


def test_a_reshape_that_others_make_a_barrier_is_not_divided() -> None:
    """Two Reshapes split an axis of 6 as 2 times 3 and as 3 times 2: copies of one were counted, and then one again."""
    assert hold(mixed_model(201659, 4 + 201659 % 12)).optimized == (4, 1008)


@pytest.mark.parametrize(("seed", "optimized"), [(302783, (1, 140)), (304822, (2, 864))])
def test_orders_of_an_operand_meet_all_of_the_other_axes(seed: int, optimized: tuple[int, int]) -> None:
    """Where the order of an operand was found before that of the other axes, the two together were no candidate."""
    assert hold(mixed_model(seed, 4 + seed % 12)).optimized == optimized


def test_a_convolution_takes_shuffles_on_both_sides() -> None:
    """Each was a candidate, and both together were none: 960 bytes were called minimal, where nothing need move."""
    made = mixed_model(313819, 4 + 313819 % 12)
    assert relayout.optimize(made.model, dims={"x0_0": 3}).report.bytes == 0


def test_what_a_view_of_integers_gives_to_several_is_divided_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Transpose behind a DequantizeLinear went, and what had read it were readers of that: it could be divided."""
    made = mixed_model(209, 9)
    hold(made)
    monkeypatch.setattr("relayout.pipeline.planning.is_divided_view", lambda node: False)
    with pytest.raises(PropertyError, match="again: 216 bytes fewer"):
        hold(made)


def test_a_reshape_that_is_no_view_stays_one() -> None:
    """Its open extents tell nothing of axes, and two copies of it would each be transposed."""
    hold(mixed_model(1378, 14))


@pytest.mark.parametrize(("seed", "passes"), [(22, True), (23, False)])
def test_more_bytes_are_let_pass_where_splits_do_not_agree(
    monkeypatch: pytest.MonkeyPatch, seed: int, passes: bool
) -> None:
    """One Reshape cuts an axis of six in two threes, others in three twos: on the way back another may be the first."""
    sound = relayout.convert

    def dearer(model: onnx.ModelProto, **options: Any) -> Result:
        result = sound(model, **options)
        more = result.report.bytes + 10**6 * (options["to"] == "NCHW")
        return replace(result, report=replace(result.report, bytes=more, lower_bound=more))

    monkeypatch.setattr(relayout, "convert", dearer)
    monkeypatch.setattr(properties, "certified", lambda result, source: None)
    if passes:
        assert hold(mixed_model(seed, 4 + seed % 12)).contested
    else:
        with pytest.raises(PropertyError, match="back: "):
            hold(mixed_model(seed, 4 + seed % 12))


def test_what_is_proved_of_some_orders_is_not_called_minimal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relayout.infer.candidates.CAP", 2)
    capped = [hold(mixed_model(seed, 4 + seed % 12)).capped for seed in range(8)]
    assert any(capped)
    assert not all(capped)


def test_a_graph_has_so_many_orders_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sites that are found last have the source's order at least: a right result, and no worse than its source."""
    monkeypatch.setattr("relayout.infer.candidates.MOST", 25)
    monkeypatch.setattr("relayout.infer.candidates.EACH", 1)
    proved = []
    for seed in range(12):
        given = mixed_model(seed, 4 + seed % 12)
        result = relayout.optimize(given.model)
        certified(result, given.model)
        for want, got in zip(run(given.model, given.feed), run(result.proto, given.feed), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)
        assert result.report.bytes <= result.report.source_bytes
        proved.append(result.report.proved)
    assert not all(proved)
    assert any(proved)


def test_where_orders_are_too_many_a_quarter_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can be proved then; but every site keeps one."""
    monkeypatch.setattr("relayout.infer.candidates.MOST", 24)
    monkeypatch.setattr("relayout.infer.candidates.EACH", 0)
    capped = 0
    for seed in range(12):
        model = ir.from_proto(mixed_model(seed, 4 + seed % 12).model)
        complete(model)
        found = candidates(build(model))
        counts = list(map(len, found.labels))
        assert all(counts)
        assert sum(counts) <= (6 + len(counts) if found.capped else 24)
        capped += found.capped
    assert 0 < capped < 12


@pytest.mark.slow
def test_hundreds_of_orders_that_share_an_operator_are_proved() -> None:
    """The relaxation gives each of 720 orders the 720th part of an operator: they are dealt out in groups."""
    report = relayout.optimize(mixed_model(65_313, 4 + 65_313 % 12).model).report
    assert report.proved
    assert 0 < report.bytes < report.source_bytes


@pytest.mark.slow
def test_many_there_and_back() -> None:
    for seed in range(1000, 1400):
        hold(mixed_model(seed, 4 + seed % 12))


MODELS = sorted([*(Path(__file__).parents[1] / "models").glob("*.tflite"), *KERAS.glob("*.tflite")])


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
@pytest.mark.sampled(every=2)
def test_what_is_converted_cannot_be_optimized(path: Path) -> None:
    """Nor can it once an open batch is fixed."""
    model = relayout.convert(path).proto
    dims = {dim.dim_param: 2 for value in model.graph.input for dim in value.type.tensor_type.shape.dim}
    dims.pop("", None)
    for result in (model, *([relayout.optimize(model, dims=dims).proto] if dims else [])):
        report = relayout.optimize(result).report
        assert report.bytes >= report.source_bytes


def test_a_graph_follows_from_its_number() -> None:
    first, again, other = mixed_model(7, 9), mixed_model(7, 9), mixed_model(8, 9)
    assert first.model.SerializeToString() == again.model.SerializeToString()
    assert first.model.SerializeToString() != other.model.SerializeToString()


def made() -> Made:
    return next(m for m in (mixed_model(seed, 12) for seed in range(100)) if "Loop" in m.has and "shuffle" in m.has)


@pytest.mark.parametrize(
    ("fault", "message"),
    [("weights", "other numbers"), ("interface", "another interface"), ("certificate", "certificate is not valid")],
)
def test_faults_are_found(monkeypatch: pytest.MonkeyPatch, fault: str, message: str) -> None:
    sound = relayout.optimize

    def broken(model: onnx.ModelProto) -> Result:
        result = sound(model)
        proto = result.proto
        if fault == "weights":
            for tensor in proto.graph.initializer:
                array = numpy_helper.to_array(tensor)
                if array.dtype == np.float32:
                    tensor.raw_data = np.roll(array.ravel() * 1.01, 1).tobytes()
        elif fault == "interface":
            for node in proto.graph.node:
                names = ["renamed" if name == proto.graph.output[0].name else name for name in node.output]
                node.output[:] = names
            proto.graph.output[0].name = "renamed"
        else:
            result.plan["certificate"] = {}
        monkeypatch.setattr(Result, "proto", property(lambda _: proto))
        return result

    monkeypatch.setattr(relayout, "optimize", broken)
    with pytest.raises((PropertyError, relayout.RelayoutError), match=message):
        hold(made())


def test_how_far_results_are_apart() -> None:
    one = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert apart(one, one) == 0
    assert apart(one, one.T.reshape(2, 3)) > properties.STEPPED
    assert apart(one, np.where(one == 5, np.nan, one)) == float("inf")
