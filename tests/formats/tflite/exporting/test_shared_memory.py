"""LiteRT lets operators write over their operands, and overlooks readers of what a RESHAPE shares its memory with."""

from __future__ import annotations

import random

import numpy as np
import onnx
import pytest
from export_running import agrees

import relayout
from text_form import model

SHAPES = {"s1": np.array([-1]), "s2": np.array([-1, 1]), "one": np.array(1, np.int32), "two": np.array(2, np.int32)}


def graph(body: str, outputs: str, extents: str = "2,4") -> onnx.ModelProto:
    return model(f"g (int32[{extents}] x) => ({outputs}) {{ {body} }}", **SHAPES)


def copies(source: onnx.ModelProto) -> int:
    """How many copies the `.tflite` has, which computes what ONNX Runtime does."""
    agrees(source, {"x": np.arange(8, dtype=np.int32).reshape(2, 4)})
    operators = relayout.convert(source, format="tflite").report.operators
    return sum(operators.get(name, 0) for name in ("SLICE", "STRIDED_SLICE"))


CHAIN = "p = Add(x, one)  t = Add(p, one)"
"""t lies where p does, which has one reader."""


@pytest.mark.parametrize("extents", ["2,4", "n,4"])
def test_what_is_read_behind_a_writer_is_copied(extents: str) -> None:
    behind = f"{CHAIN} a = Reshape(t, s1)  b = Reshape(t, s2)  c = Mul(b, two)  z = Sub(c, one)  y = Add(a, a)"
    assert copies(graph(behind, "int32[u] y, int32[u,1] z", extents)) == 1
    itself = f"{CHAIN} b = Reshape(t, s2)  c = Mul(b, two)  z = Sub(c, one)  y = Add(t, t)"
    assert copies(graph(itself, f"int32[{extents}] y, int32[u,1] z", extents)) == 1


def test_what_is_written_over_a_copy_is_copied_again() -> None:
    """c lies where the copy of t does, which has one reader: LiteRT does not see that c is read behind e."""
    again = "d = Reshape(c, s1)  e = Mul(d, two)  w = Sub(e, one)  z = Sub(c, one)  y = Add(a, a)"
    body = f"{CHAIN} a = Reshape(t, s1)  b = Reshape(t, s2)  c = Mul(b, two)  {again}"
    assert copies(graph(body, "int32[u] y, int32[u,1] z, int32[u] w")) == 2


@pytest.mark.parametrize(
    "body",
    [
        # What reads it runs before.
        f"{CHAIN} a = Reshape(t, s1)  y = Add(a, a)  b = Reshape(t, s2)  c = Mul(b, two)  z = Sub(c, one)",
        # The first tensor has two readers itself: LiteRT counts these.
        "t = Add(x, one) a = Reshape(t, s1) b = Reshape(t, s2) c = Mul(b, two) z = Sub(c, one) y = Add(a, a)",
        # What is written over has two readers.
        f"{CHAIN} a = Reshape(t, s1)  b = Reshape(t, s2)  c = Mul(b, two)  d = Add(c, b) z = Sub(d, c)  y = Add(a, a)",
        # An output of the graph is not in another's memory.
        f"{CHAIN} a = Reshape(t, s1)  b = Reshape(t, s2)  z = Mul(b, two)  y = Add(a, a)",
    ],
)
def test_nothing_is_copied_where_nothing_is_lost(body: str) -> None:
    assert copies(graph(body, "int32[u] y, int32[u,1] z")) == 0


@pytest.mark.parametrize("seed", range(40))
def test_random_chains_are_right(seed: int) -> None:
    rng = random.Random(seed)
    kind = rng.choice(["int32", "float"])
    body = [f"v0 = Add(x, {kind[0]}one)"]
    made: dict[str, list[str]] = {"s0": ["v0"], "s1": [], "s2": []}
    for number in range(1, rng.randrange(8, 20)):
        name, shape = f"v{number}", rng.choice(list(made))
        pool = made[shape]
        if pool and rng.random() < 0.6:
            operator = rng.choice(["Add", "Sub", "Mul"])
            other = rng.choice([f"{kind[0]}one", f"{kind[0]}two", rng.choice(pool[-3:])])
            body.append(f"{name} = {operator}({rng.choice(pool[-3:])}, {other})")
        else:
            body.append(f"{name} = Reshape(v{rng.randrange(max(0, number - 4), number)}, {shape})")
        pool.append(name)
    ends = {shape: names[-1] for shape, names in made.items() if names}
    dims = {"s0": "2,4", "s1": "8", "s2": "8,1"}
    outputs = ", ".join(f"{kind}[{dims[shape]}] y_{shape}" for shape in ends)
    body += [f"y_{shape} = Neg({name})" for shape, name in ends.items()]
    constants = {"ione": np.int32(1), "itwo": np.int32(3), "fone": np.float32(1), "ftwo": np.float32(0.5)}
    source = model(
        f"g ({kind}[2,4] x) => ({outputs}) {{ {'  '.join(body)} }}",
        **{name: np.asarray(value) for name, value in constants.items() if name[0] == kind[0]},
        s0=np.array([2, 4]),
        s1=np.array([8]),
        s2=np.array([8, 1]),
    )
    agrees(source, {"x": np.arange(8, dtype="float32" if kind == "float" else kind).reshape(2, 4)})
