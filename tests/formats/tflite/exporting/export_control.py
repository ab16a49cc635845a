"""Models with bodies: If, Loop and Scan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rules.law import Array
from small import build
from text_form import floats

BRANCH = """
y = If (c) <
    then_branch = t () => (float[2,3] a) { b = Add (x, w)  a = Relu (b) },
    else_branch = e () => (float[2,3] d) { d = Mul (x, x) }
>
z = Neg (y)
"""
COUNTED = """
a, s = Loop (m, k, x) <body = b (int64 i, bool again, float[2,3] v) => (bool go, float[2,3] w, float[3] r) {
    f = Cast<to=1>(i)
    w = Add (v, f)
    go = Identity (again)
    g = ReduceSum<keepdims=0>(w, zero)
    r = Mul (g, q)
}>
"""
UNTIL = """
a, s = Loop (, k, x) <body = b (int64 i, bool again, float[2,3] v) => (bool go, float[2,3] w, float[2,3] r) {
    w = Add (v, v)
    g = ReduceMax<keepdims=0>(w)
    go = Less (g, most)
    r = Identity (v)
}>
"""
NESTED = """
a = Loop (m, k, x) <body = b (int64 i, bool again, float[2,3] v) => (bool go, float[2,3] w) {
    go = Identity (again)
    o = Mod (i, two)
    odd = Cast<to=9>(o)
    w = If (odd) <
        then_branch = t () => (float[2,3] p) { p = Add (v, x) },
        else_branch = e () => (float[2,3] n) { n = Loop (two, k, v) <body = c (int64 j, bool on, float[2,3] u)
            => (bool stay, float[2,3] h) { stay = Identity (on)  h = Mul (u, q) }> }
    >
}>
"""
SCANNED = """
a, s = Scan (x, y) <num_scan_inputs = 1, body = b (float[3] v, float[3] e) => (float[3] w, float[3] r) {
    w = Add (v, e)
    r = Mul (w, q)
}>
"""

Prepared = tuple[Any, Mapping[str, Array]]
MODELS: Mapping[str, Callable[[], Prepared]] = {
    "If": lambda: (
        build("bool c, float[2,3] x", BRANCH, {"w": (3,)}),
        {"c": np.array(True), "x": floats(2, 3)},
    ),
    "Loop": lambda: (
        build("int64 m, float[2,3] x", COUNTED, {"k": np.array(True), "q": (3,), "zero": [0]}),
        {"m": np.array(5), "x": floats(2, 3)},
    ),
    "Scan": lambda: (build("float[3] x, float[n,3] y", SCANNED, {"q": (3,)}), {"x": floats(3), "y": floats(4, 3)}),
}
"""Operator -> a model of it, and what it is fed."""
