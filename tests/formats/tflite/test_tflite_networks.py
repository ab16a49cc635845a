"""Random networks of the operators that are written otherwise for the sake of their neighbours, against LiteRT."""

from __future__ import annotations

from collections import Counter

import pytest
from tflite_networks import network
from tflite_running import FAST, compare, read

from relayout.formats.tflite.container.loading import load
from relayout.verification import verify

FEW, MANY = range(40), range(40, 400)


def is_fast(seed: int) -> bool:
    """Whether forms are taken that cost bytes and save time: in every second network."""
    return seed % 2 == 0


@pytest.mark.parametrize("seed", [*FEW, *(pytest.param(seed, marks=pytest.mark.slow) for seed in MANY)])
def test_any_network(seed: int) -> None:
    """Within a step or two as a whole; where roundings add up to more, each operator by itself."""
    net = network(seed)
    content = net.bytes()
    steps = 2 if net.whole else 0
    if any(
        result.error > result.tolerance(net.whole) + steps
        for result in compare(content, target=FAST if is_fast(seed) else None)
    ):
        report = verify(content, read(content, target=FAST if is_fast(seed) else None))
        assert report.ok, report


def test_the_networks_hold_every_form() -> None:
    """Over all seeds, so that what is random does not pass one of the forms by."""
    found: Counter[str] = Counter()
    for seed in FEW:
        content = network(seed).bytes()
        model = read(content, target=FAST if is_fast(seed) else None)
        nodes = Counter(node.op_type for node in model.graph)
        found.update(nodes)
        found["wider"] += any("/wider" in (v.name or "") for node in model.graph for v in node.outputs)
        pads = sum(operator.name.startswith("PAD") for operator in load(content).subgraphs[0].operators)
        found["border"] += pads > nodes["Pad"]
    forms = ("BatchNormalization", "DepthToSpace", "GlobalAveragePool", "SpaceToDepth", "border", "wider")
    assert all(found[form] for form in forms), found
