"""GroupQueryAttention with keys and values of earlier runs, rotated heads, and open extents."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import onnx
import pytest
from export_running import agrees
from onnx import TensorProto, helper, numpy_helper

import relayout
from relayout.errors import UnsupportedError
from rules.law import Array
from text_form import floats

HEADS, GROUPS, SIZE, ANGLES = 4, 2, 16, 64
"""Heads are 16 wide, since ONNX Runtime rotates no narrower ones."""


class Run(NamedTuple):
    """One run of an attention.

    Args:
        ends: the place of the last key of each row.
        length: how many queries a row has.
        total: how many keys the longest row has.
        room: how many keys the earlier runs have room for; None: there are none.
    """

    ends: tuple[int, ...]
    length: int
    total: int
    room: int | None = None

    def feed(self, *, packed: bool = False) -> dict[str, Array]:
        batch = len(self.ends)
        widths = (HEADS * SIZE, GROUPS * SIZE, GROUPS * SIZE)
        parts = [floats(batch, self.length, width, seed=seed) for seed, width in enumerate(widths)]
        feed: dict[str, Array] = dict(zip("qkv", parts, strict=True))
        if packed:
            feed = {"q": np.concatenate(parts, 2)}
        if self.room is not None:
            feed |= {name: floats(batch, GROUPS, self.room, SIZE, seed=7) for name in ("pk", "pv")}
        return feed | {"e": np.array(self.ends, np.int32), "t": np.array([self.total], np.int32)}


RUNS = {
    "first": Run((3, 3), 4, 4),
    "first of shorter rows": Run((3, 1), 4, 4),
    "first with room": Run((3, 2), 4, 4, room=6),
    "next": Run((5, 5), 1, 6, room=5),
    "next of shorter rows": Run((5, 3), 1, 6, room=5),
    "next with room": Run((5, 3), 1, 6, room=8),
    "next few": Run((7,), 3, 8, room=5),
    "next few with room": Run((6,), 3, 8, room=9),
}


def model(
    run: Run, *, opened: bool = False, constant: bool = False, packed: bool = False, **said: object
) -> onnx.ModelProto:
    """Return an attention of a run; `constant` says that the number of keys is known."""
    feed = run.feed(packed=packed)
    names = {"q": ("b", "s", None), "k": ("b", "s", None), "v": ("b", "s", None), "e": ("b",), "t": (None,)}
    names |= {"pk": ("b", None, "p", None), "pv": ("b", None, "p", None)}
    inputs = [
        helper.make_tensor_value_info(
            name,
            TensorProto.INT32 if name in "et" else TensorProto.FLOAT,
            [
                name_of if opened and name_of else extent
                for name_of, extent in zip(names[name], array.shape, strict=True)
            ],
        )
        for name, array in feed.items()
        if not (constant and name == "t")
    ]
    tables = [
        numpy_helper.from_array(floats(ANGLES, SIZE // 2, seed=seed), name) for seed, name in ((8, "c"), (9, "d"))
    ]
    totals = [numpy_helper.from_array(feed["t"], "t")] if constant else []
    operands = [name if name in feed else "" for name in ("q", "k", "v", "pk", "pv", "e", "t")]
    node = helper.make_node(
        "GroupQueryAttention",
        operands + (["c", "d"] if said.get("do_rotary") else []),
        ["y", "keys", "values"],
        domain="com.microsoft",
        num_heads=HEADS,
        kv_num_heads=GROUPS,
        **said,
    )
    outputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)
        for name, dims in (("y", ["b", "s", HEADS * SIZE]), ("keys", [None] * 4), ("values", [None] * 4))
    ]
    graph = helper.make_graph([node], "attention", inputs, outputs, [*tables, *totals])
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


@pytest.mark.parametrize("said", [{}, {"do_rotary": 1}, {"do_rotary": 1, "rotary_interleaved": 1}], ids=str)
@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("name", RUNS)
@pytest.mark.sampled(every=3)
def test_keys_of_earlier_runs_come_first(name: str, constant: bool, opened: bool, said: dict[str, object]) -> None:
    run = RUNS[name]
    feed = run.feed()
    if constant:
        del feed["t"]
    agrees(model(run, opened=opened, constant=constant, **said), feed)


@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize("said", [{"local_window_size": 2}, {"softcap": 0.7, "scale": 0.3}], ids=str)
def test_windows_and_caps(said: dict[str, object], opened: bool) -> None:
    for name in ("first of shorter rows", "next with room", "next few"):
        agrees(model(RUNS[name], opened=opened, **said), RUNS[name].feed())


@pytest.mark.parametrize("opened", [False, True])
def test_queries_keys_and_values_in_one_tensor(opened: bool) -> None:
    for name in ("first", "next with room"):
        agrees(model(RUNS[name], opened=opened, packed=True, do_rotary=1), RUNS[name].feed(packed=True))


def test_what_is_refused_says_why() -> None:
    with pytest.raises(UnsupportedError, match="another softmax"):
        relayout.convert(model(RUNS["first"], smooth_softmax=1), format="tflite")
