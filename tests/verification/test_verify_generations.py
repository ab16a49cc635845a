"""A result of a result is verified against every model that it was made of."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import relayout
from relayout.layout.stored_as import Holds

CHWN = {"layouts": {"x": ("NCHW", "CHWN"), "y": ("NCHW", "CHWN")}}
CHAINS: tuple[tuple[dict[str, Any], ...], ...] = (
    ({"io": "convert"}, {"io": "convert", "to": "NHWC"}),
    ({"io": "convert"}, CHWN),
    ({"io": "convert"}, {"io": "convert", "to": "NHWC"}, {"io": "convert", "to": "NCHW"}),
    ({"io": "convert"}, {"io": "convert", "to": "NHWC"}, {}),
    ({"layouts": {"x": ("NHWC", "CHWN")}}, {"layouts": {"x": ("CHWN", "HWNC")}}),
    ({"io": "convert"}, {"io": "convert", "to": "NHWC", "rename": {"x": "image"}}),
)


def network(height: int, width: int, channels: int) -> onnx.ModelProto:
    """A convolution of images `n h w c`; of equal extents, shapes say nothing of layouts."""
    image = f"float[1, {height}, {width}, {channels}]"
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 20]>
    g ({image} x) => ({image} y) {{
        a = Transpose <perm = [0, 3, 1, 2]> (x)
        b = Conv <pads = [1, 0, 1, 0]> (a, k)
        r = Relu (b)
        y = Transpose <perm = [0, 2, 3, 1]> (r)
    }}""")
    kernel = np.random.default_rng(0).normal(size=(channels, channels, 3, 1)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(kernel, "k"))
    return model


@pytest.mark.parametrize("extents", [(6, 5, 4), (4, 4, 4)], ids=str)
@pytest.mark.parametrize("chain", CHAINS, ids=str)
def test_every_generation_against_every_other(chain: tuple[dict[str, Any], ...], extents: tuple[int, int, int]) -> None:
    made = [network(*extents)]
    for options in chain:
        made.append(relayout.convert(made[-1], **options).proto)
    for one, other in permutations(made, 2):
        assert relayout.verify(one, other).ok


def test_a_model_that_lost_what_it_declared_is_a_source_of_its_own() -> None:
    once = relayout.convert(network(6, 5, 4), io="convert").proto
    twice = relayout.convert(once, **CHWN).proto
    for value in (*once.graph.input, *once.graph.output, *once.graph.value_info):
        del value.metadata_props[:]
    assert relayout.verify(once, twice).ok


def test_layouts_that_viewers_show_are_those_of_the_source() -> None:
    once = relayout.convert(network(6, 5, 4), io="convert").proto
    twice = relayout.convert(once, annotate=True, **CHWN).model
    assert twice.graph.inputs[0].metadata_props["relayout.layout"] == "c h w n"


def test_of_one_name_the_first_source_s_layout_is_the_last_and_told_once() -> None:
    model = network(6, 5, 4)
    for options in (
        {"io": "convert"},
        CHWN,
        {"layouts": {"x": ("CHWN", "HWNC")}},
        {"layouts": {"x": ("HWNC", "NHWC")}},
    ):
        model = relayout.convert(model, **options).proto
    (text,) = [entry.value for entry in model.graph.input[0].metadata_props if entry.key == Holds.KEY]
    own = [held for held in Holds.load(text) if held.name == "x"]
    assert [held.shape for held in own] == [(6, 5, 1, 4), (1, 6, 5, 4)]
