"""What ONNX Runtime's own tests of its transpose optimizer and its layout transformer expect, as graphs of ours.

An entry is a graph in ONNX's text form (`T0312(` is a Transpose), the opsets it is for, and what the expectation
leaves: the shapes of the values that may still be transposed, or `SOURCE` where nothing is expected to change. Entries
that begin with `transformer` or `NHWC pass` ask for a layout; those that begin with `later` are of newer versions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

Shape = tuple[int, ...]
SOURCE: Literal["source"] = "source"
EXTENTS = {"a": 3, "b": 6, "c": 5, "d": 7, "one": 1, "two": 2, "four": 4, "eight": 8}
"""Dynamic extents in a run, by name; those of one graph differ."""


@dataclass(frozen=True)
class Entry:
    """A graph and what is left of its Transposes.

    Args:
        inputs: the graph's inputs.
        text: its nodes, or a function of the opset that gives them.
        left: shapes of what may be transposed at run time, or `SOURCE`.
        opsets: those that the entry is for.
        constants: the graph's constants, or a function of the opset.
        outputs: interior values that are outputs, too.
        fed: inputs whose values matter.
        sizes: bytes of an element of each shape in `left`; 4 by default.
        asked: options of `relayout.convert`, for entries of the layout transformer.
    """

    inputs: str
    text: str | Callable[[int], str]
    left: Sequence[Shape] | Literal["source"] = ()
    opsets: Sequence[int] = (15, 18)
    constants: Mapping[str, Any] | Callable[[int], Mapping[str, Any]] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()
    fed: Mapping[str, Any] = field(default_factory=dict)
    sizes: Sequence[int] = ()
    asked: Mapping[str, Any] = field(default_factory=dict)


ENTRIES: dict[str, Entry] = {}


def entry(name: str, inputs: str, text: str | Callable[[int], str], *left: Shape, **given: Any) -> None:
    """Add an entry; a name twice is an error."""
    if name in ENTRIES:
        raise ValueError(f"{name} twice")
    ENTRIES[name] = Entry(inputs, text, given.pop("keeps", left), **given)


def f32(*items: float) -> Any:
    return np.array(items, np.float32)


def scalar(dtype: type, item: float) -> Any:
    return np.array(item, dtype)


A3, A4 = "float[4,6,10] x", "float[4,a,2,b] x"

# Split, Concat, Pad
for name, axis in (("split", "axis=1"), ("split by the default axis", ""), ("split by a negative axis", "axis=-2")):
    entry(
        name,
        A3,
        lambda v, axis=axis: (
            f"t = T120(x) p, q = Split<{', '.join(w for w in (axis, 'num_outputs=2' if v > 17 else '') if w)}>(t) y ="
            f" T201(p) z = T201(q)".replace("Split<>", "Split")
        ),
    )
entry("concat", "float[4,a,2,b] x, float[4,a,2,b] z", "s = T0312(x) t = T0312(z) c = Concat<axis=2>(s, t) y = T0231(c)")
PADS = [1, -2, 3, 4, 5, 6, 7, 8]
entry(
    "pad",
    A4,
    lambda v: (
        "t = T0312(x) "
        + ('p = Pad<mode="constant">(t, k, f)' if v > 10 else f'p = Pad<mode="constant", value=2.3, pads={PADS}>(t)')
        + " y = T0231(p)"
    ),
    opsets=(10, 18),
    constants=lambda v: {"k": PADS, "f": f32(2.3)} if v > 10 else {},
)
entry(
    "pad, value of rank 0",
    A4,
    "t = T0312(x) p = Pad(t, k, f) y = T0231(p)",
    opsets=(15,),
    constants={"k": PADS, "f": scalar(np.float32, 2.3)},
)
entry(
    "pad by a computed amount",
    "float[4,a,2,b] x, int64[8] k",
    "t = T0312(x) m = Add(k, n) p = Pad(t, m, f) y = T0231(p)",
    opsets=(11, 18),
    constants={"n": PADS, "f": scalar(np.float32, 2.3)},
)

# Resize. Excluded, with the reason: level 2 of its optimizer pushes through a Resize that its own CPU provider runs,
# whose kernel resizes any axes. relayout keeps Resize where every runtime has it, and is held to level 1.
SCALES = f32(0.3, 2.5, 1.0, 0.7)
entry(
    "resize",
    A4,
    lambda v: "t = T0312(x) " + ("r = Resize(t, , s)" if v > 10 else "r = Resize(t, s)") + " y = T0231(r)",
    keeps=SOURCE,
    opsets=(10, 18, 21, 23),
    constants={"s": SCALES},
)
entry(
    "resize with a region of zeros",
    A4,
    "t = T0312(x) r = Resize(t, o, s) y = T0231(r)",
    keeps=SOURCE,
    opsets=(11, 18),
    constants={"o": f32(*[0] * 8), "s": SCALES},
)
entry(
    "resize, no region",
    A4,
    "t = T0312(x) r = Resize(t, , s) y = T0231(r)",
    keeps=SOURCE,
    opsets=(15, 18),
    constants={"s": SCALES},
)
entry(
    "resize of a region to sizes",
    A4,
    't = T0312(x) r = Resize<coordinate_transformation_mode="tf_crop_and_resize">(t, o, , s) y = T0231(r)',
    keeps=SOURCE,
    opsets=(15, 18),
    constants={"o": f32(0.1, 0.2, 0.3, 0.4, 0.9, 0.8, 0.7, 0.6), "s": [10, 9, 8, 7]},
)
entry(
    "resize, region and scales without elements",
    "uint8[1,11,13,3] x",
    "t = T0312(x) r = Resize(t, o, e, s) y = T0231(r)",
    keeps=SOURCE,
    opsets=(12, 18),
    constants={"o": f32(), "e": f32(), "s": [1, 7, 5, 4]},
)
for opset in (11, 13):
    entry(
        f"resize, region and scales as inputs, from {opset}",
        "float[4,a,2,b] x, float[8] o, float[4] s",
        't = T0312(x) r = Resize<coordinate_transformation_mode="tf_crop_and_resize">(t, o, s) y = T0231(r)',
        keeps=SOURCE,
        opsets=(opset, 18),
        fed={"o": [0.1, 0.2, 0.3, 0.4, 0.9, 0.8, 0.7, 0.6], "s": [1, 2.5, 1.5, 0.7]},
    )

# An elementwise operator with a scalar; Shape
entry("add", A3, "t = T120(x) a = Add(t, k) y = T201(a)", constants={"k": scalar(np.float32, 3.2)})
D3 = "float[a,6,d] x"
entry("shape", D3, "t = T120(x) y = Shape(t)", opsets=(7, 18, 21, 23))
for name, given in (
    ("", ""),
    ("to an end", "<end=5>"),
    ("to a negative end", "<end=-1>"),
    ("from a negative start", "<start=-30>"),
    ("of one", "<start=1, end=2>"),
    ("of none", "<start=2, end=1>"),
):
    entry(f"shape slice {name}", D3, f"t = T120(x) y = Shape{given}(t)")


# Reductions
def reducing(
    op: str, axes: Sequence[int] | None, keepdims: int | None = None, noop: int | None = None, since: int = 18
) -> dict[str, Any]:
    def text(v: int) -> str:
        words = [
            *([] if keepdims is None else [f"keepdims={keepdims}"]),
            *([] if noop is None else [f"noop_with_empty_axes={noop}"]),
        ]
        if axes and v < since:
            words.append(f"axes=[{','.join(map(str, axes))}]")
        return (
            f"t = T0312(x) r = {op}"
            + (f"<{', '.join(words)}>" if words else "")
            + ("(t, k)" if axes is not None and v >= since else "(t)")
        )

    return {"text": text, "constants": lambda v: {"k": list(axes)} if axes is not None and v >= since else {}}


R4 = "float[a,4,b,5] x"


def reduction(
    name: str,
    op: str,
    axes: Sequence[int] | None,
    then: str = "",
    keepdims: int | None = None,
    noop: int | None = None,
    since: int = 18,
    **given: Any,
) -> None:
    parts = reducing(op, axes, keepdims, noop, since)
    entry(
        name,
        R4,
        lambda v: parts["text"](v) + (f" y = {then}(r)" if then else ""),
        constants=parts["constants"],
        **given,
    )


for keep, then in ((1, "T0231"), (0, "T10")):
    reduction(f"sum, keepdims={keep}", "ReduceSum", (0, -2), then, keep, since=13, opsets=(7, 18))
    reduction(f"sum of all, keepdims={keep}", "ReduceSum", None, "", keep, since=13, opsets=(7, 18))
    reduction(f"sum, keepdims={keep}, 15", "ReduceSum", (0, -2), then, keep, since=13, opsets=(15,))
    reduction(f"sum over no axes, keepdims={keep}", "ReduceSum", (), "", keep, since=13, opsets=(15,))
    reduction(
        f"sum over no axes that does nothing, keepdims={keep}",
        "ReduceSum",
        (),
        "T0231",
        keep,
        1,
        since=13,
        opsets=(15,),
    )
    reduction(
        f"sum over no axes that is over all, keepdims={keep}", "ReduceSum", (), "", keep, 0, since=13, opsets=(15,)
    )
    reduction(f"sum without axes, keepdims={keep}", "ReduceSum", None, "", keep, 0, since=13, opsets=(15,))
    entry(
        f"sum over computed axes, keepdims={keep}",
        "float[a,4,b,5] x, int64 n",
        f"k = Add(n, m) t = T0312(x) y = ReduceSum<keepdims={keep}>(t, k)",
        keeps=SOURCE,
        opsets=(13,),
        constants={"m": [0, -1]},
        fed={"n": 0},
    )
    reduction(f"max, keepdims={keep}", "ReduceMax", (0, -2), then, keep)
    reduction(f"max of all, keepdims={keep}", "ReduceMax", None, "", keep)
reduction("max", "ReduceMax", (0, -2), "T0231")
reduction("max of all", "ReduceMax", None)
for op in ["LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "SumSquare", "L1", "L2"]:
    reduction(f"reduction {op}", f"Reduce{op}", (0, -2), "T10", 0)

# Squeeze and Unsqueeze
S4 = "float[1,a,1,2] x"
entry("squeeze, 7", S4, "t = T0312(x) s = Squeeze<axes=[0,3]>(t) y = T10(s)", opsets=(7,))
entry("squeeze, 11", S4, "t = T0312(x) s = Squeeze<axes=[0,-1]>(t) y = T10(s)", opsets=(11,))
entry("squeeze, 15", S4, "t = T0312(x) s = Squeeze(t, k) y = T10(s)", opsets=(15,), constants={"k": [0, -1]})
entry("squeeze without axes", S4, "t = T0312(x) y = Squeeze(t)", keeps=SOURCE, opsets=(7, 18))
entry("squeeze without axes, 15", S4, "t = T0312(x) y = Squeeze(t)", keeps=SOURCE, opsets=(15,))
entry(
    "squeeze of computed axes",
    "float[1,a,1,2] x, int64[two] k",
    "t = T0312(x) y = Squeeze(t, k)",
    keeps=SOURCE,
    fed={"k": [0, 3]},
)
U4 = "float[2,a,6,5] x"
entry("unsqueeze, 7", U4, "t = T0312(x) s = Unsqueeze<axes=[0,4,7,5]>(t) y = T01364527(s)", opsets=(7,))
entry("unsqueeze, 11", U4, "t = T0312(x) s = Unsqueeze<axes=[0,-4,-1,5]>(t) y = T01364527(s)", opsets=(11,))
entry(
    "unsqueeze, 15",
    U4,
    "t = T0312(x) s = Unsqueeze(t, k) y = T01364527(s)",
    opsets=(15,),
    constants={"k": [0, -4, -1, 5]},
)
entry(
    "unsqueeze of computed axes",
    "float[2,a,6,5] x, int64[4] k",
    "t = T0312(x) s = Unsqueeze(t, k) y = T13620457(s)",
    keeps=SOURCE,
    opsets=(14,),
    fed={"k": [0, 4, 7, 5]},
)

# Slice
L4 = "float[2,4,6,5] x"
entry("slice, 7", L4, "t = T0312(x) s = Slice<axes=[2], starts=[1], ends=[-1]>(t) y = T0231(s)", opsets=(7,))
entry(
    "slice without axes, 7",
    L4,
    "t = T0312(x) s = Slice<starts=[1,-3,0,0], ends=[2,4,10,10]>(t) y = T0231(s)",
    opsets=(7,),
)
for name, given in {
    "slice": {"s": [1], "e": [-1], "k": [2]},
    "slice without axes": {"s": [1, -3, 0, 0], "e": [2, 4, 10, 10]},
    "slice of negative axes": {"s": [1, -3], "e": [2, 4], "k": [1, -2]},
    "slice with steps": {"s": [1, 4], "e": [2, -3], "k": [1, -2], "p": [2, -1]},
}.items():
    for dtype in (np.int64, np.int32):
        entry(
            f"{name}, {dtype.__name__}",
            L4,
            f"t = T0312(x) c = Slice(t, {', '.join(given)}) y = T0231(c)",
            constants={key: np.array(items, dtype) for key, items in given.items()},
        )
for word, dtype in (("int64", np.int64), ("int32", np.int32)):
    starts = {"s": np.array([1, -3], dtype), "e": np.array([2, 4], dtype)}
    entry(
        f"slice of computed axes, {word}",
        f"float[2,4,6,5] x, {word}[2] k",
        "t = T0312(x) c = Slice(t, s, e, k) y = T0231(c)",
        keeps=SOURCE,
        constants=starts,
        fed={"k": [1, -2]},
    )
    entry(
        f"slice by inputs, {word}",
        f"float[2,4,6,5] x, {word}[4] s, {word}[4] e",
        "t = T0312(x) c = Slice(t, s, e) y = T0231(c)",
        fed={"s": [1, -3, 0, 0], "e": [2, 4, 10, 10]},
    )
    entry(
        f"slice by inputs of unknown length, {word}",
        f"float[2,4,6,5] x, {word}[four] s, {word}[four] e",
        "t = T0312(x) c = Slice(t, s, e) y = T0231(c)",
        keeps=SOURCE,
        fed={"s": [1, -3, 0, 0], "e": [2, 4, 10, 10]},
    )

# Tile; ArgMin, ArgMax
entry("tile", "float[2,c,6,3] x", "t = T0312(x) r = Tile(t, k) y = T0231(r)", constants={"k": [1, 2, 1, 3]})
entry(
    "tile by an input",
    "float[2,c,6,3] x, int64[four] k",
    "t = T0312(x) r = Tile(t, k) y = T0231(r)",
    fed={"k": [1, 2, 1, 3]},
)
for op in ("ArgMin", "ArgMax"):
    for axis in ("", "axis=-2"):
        for keep in ("", "keepdims=1", "keepdims=0"):
            words = ", ".join(word for word in (axis, keep) if word)
            then = "T0231" if keep != "keepdims=0" else "T021" if axis else "T120"
            entry(
                f"{op} {words}",
                "float[2,4,c,3] x",
                f"t = T0312(x) r = {op}{f'<{words}>' if words else ''}(t) y = {then}(r)",
            )

# Softmax and its like, of a value of unknown rank
for name, inner, outer, given, opset, left, shape in (
    ("softmax over all", "0312", "0231", "<axis=0>", 12, (), [2, 3, 4, 5]),
    ("softmax over all but the first", "0312", "0231", "", 12, (), [2, 3, 4, 5]),
    ("softmax of rank 5", "10324", "10324", "<axis=-3>", 12, (), [2, 3, 4, 5, 6]),
    ("softmax across the boundary", "0312", "0231", "<axis=2>", 12, SOURCE, [2, 3, 4, 5]),
    ("softmax across the boundary, rank 5", "10324", "10324", "<axis=-2>", 12, SOURCE, [2, 3, 4, 5, 6]),
    ("softmax across the boundary, rank 5 again", "03124", "02314", "<axis=-3>", 12, SOURCE, [2, 3, 4, 5, 6]),
    ("softmax, 15", "0312", "0231", "", 15, (), [2, 3, 4, 5]),
    ("softmax of rank 5, 15", "03124", "02314", "<axis=-3>", 15, (), [2, 3, 4, 5, 6]),
):
    for known in (True, False):
        text = f"t = T{inner}(x) s = Softmax{given}(t) y = T{outer}(s)"
        if known:
            entry(name, f"float[{','.join(map(str, shape))}] x", text, keeps=left, opsets=(opset,))
        else:
            entry(
                f"{name}, of unknown rank",
                "float[n] f, int64[r] s0",
                f"x = Reshape(f, s0) {text}",
                keeps=left,
                opsets=(opset,),
                fed={"s0": shape, "f": np.random.default_rng(0).normal(size=int(np.prod(shape)))},
            )
for op in ("Hardmax", "LogSoftmax"):
    entry(op, "float[2,3,4,5] x", f"t = T0312(x) s = {op}(t) y = T0231(s)", opsets=(15,))

# Broadcasting
for op, dtype, given in (
    *(
        (op, "float", "")
        for op in [
            "Add",
            "Mul",
            "Sub",
            "Div",
            "PRelu",
            "Greater",
            "Less",
            "Pow",
            "Max",
            "Min",
            "Mean",
            "Sum",
            "GreaterOrEqual",
            "LessOrEqual",
        ]
    ),
    ("Equal", "int32", ""),
    ("And", "bool", ""),
    ("Or", "bool", ""),
    ("Xor", "bool", ""),
    ("Mod", "float", "<fmod=1>"),
    ("BitShift", "uint32", '<direction="LEFT">'),
):
    entry(
        f"broadcast {op}",
        f"{dtype}[6,4,10] x, {dtype}[4,10] z",
        f"s = T021(x) t = T10(z) r = {op}{given}(s, t) y = T021(r)",
        fed={
            "x": np.random.default_rng(0).random((6, 4, 10)) + 0.5,
            "z": np.random.default_rng(1).random((4, 10)) + 0.5,
        }
        if dtype == "float"
        else {},
    )
entry(
    "where",
    "bool[4,6,10] c, float s, float[4,6,10] z",
    "t = T120(c) u = T120(z) w = Where(t, s, u) y = T201(w)",
    fed={"s": 0.5},
)
entry(
    "broadcast of operands that are used twice",
    "float[c,two,3,4] x, float[one,3] z",
    "t = T0312(x) s = Sum(t, k, z, k, t) y = T0231(s) w = T0231(s)",
    (2, 3),
    constants={"k": (2, 3)},
)

# Quantization
for word, dtype in (("uint8", np.uint8), ("uint16", np.uint16), ("int16", np.int16)):
    for domain in ("", "com.microsoft."):
        opsets = (15, 18, 21) if domain or word == "uint8" else (21,)
        zero, zeros = scalar(dtype, 10), np.array([2, 3], dtype)
        label = f"{domain}{word}"
        entry(
            f"quantize {label}",
            "float[2,c,6,3] x",
            f"t = T0312(x) q = {domain}QuantizeLinear(t, s, z) y = T0231(q)",
            opsets=opsets,
            constants={"s": scalar(np.float32, 2.3), "z": zero},
        )
        entry(
            f"quantize {label}, axis without use",
            "float[2,c,6,3] x",
            f"t = T0312(x) q = {domain}QuantizeLinear<axis=10>(t, s, z) y = T0231(q)",
            opsets=opsets,
            constants={"s": scalar(np.float32, 2.3), "z": zero},
        )
        entry(
            f"quantize {label} by channel",
            "float[2,c,6,3] x",
            f"t = T0312(x) q = {domain}QuantizeLinear<axis=0>(t, s, z) y = T0231(q)",
            opsets=opsets,
            constants={"s": f32(2.3, 2.4), "z": zeros},
        )
        entry(
            f"quantize {label} by channel, scales of unknown shape",
            f"float[2,c,6,3] x, float[a] f, {word}[a] g, int64[one] n",
            f"s = Reshape(f, n) z = Reshape(g, n) t = T0312(x) q = {domain}QuantizeLinear<axis=1>(t, s, z) y ="
            f" T0231(q)",
            opsets=opsets,
            fed={"f": [2.3, 2.4, 2.5], "n": [-1]},
        )
        entry(
            f"dequantize {label}, axis without use",
            f"{word}[2,c,6,3] x",
            f"t = T0312(x) q = {domain}DequantizeLinear<axis=10>(t, s, z) y = T0231(q)",
            opsets=opsets,
            constants={"s": scalar(np.float32, 2.3), "z": zero},
        )
        entry(
            f"dequantize {label}",
            f"{word}[2,c,6,3] x",
            f"t = T0312(x) q = {domain}DequantizeLinear(t, s, z) y = T0231(q)",
            opsets=opsets,
            constants={"s": scalar(np.float32, 2.3), "z": zero},
        )
        entry(
            f"dequantize {label} by channel",
            f"{word}[2,c,6,3] x",
            f"t = T0312(x) q = {domain}DequantizeLinear<axis=-4>(t, s, z) y = T0231(q)",
            opsets=opsets,
            constants={"s": f32(2.3, 2.4), "z": zeros},
        )
entry(
    "quantize, 10",
    "float[2,c,6,3] x, float s",
    "t = T0312(x) q = QuantizeLinear(t, s, z) y = T0231(q)",
    opsets=(10,),
    constants={"z": scalar(np.uint8, 10)},
    fed={"s": 2.3},
)
entry("cast", "int32[a,4,b,5] x", "t = T0312(x) r = Cast<to=1>(t) y = T0231(r)")
entry(
    "quantized softmax of unknown rank",
    "uint8[n] f, int64[r] s0",
    "x = Reshape(f, s0) t = T0312(x) s = com.microsoft.QLinearSoftmax<axis=1, opset=13>(t, p, q, u, v) y = T0231(s)",
    opsets=(13,),
    fed={"s0": [1, 38, 24, 21], "f": np.arange(19152) % 251},
    constants={
        "p": scalar(np.float32, 0.5086),
        "q": scalar(np.uint8, 74),
        "u": scalar(np.float32, 0.00392),
        "v": scalar(np.uint8, 0),
    },
)

# Outputs, Reshapes that are Transposes
entry(
    "a transpose that is an output",
    "float[a,4,b,5] x",
    "t = T0312(x) y = T0231(t) z = T2013(t)",
    (3, 4, 6, 5),
    (3, 4, 6, 5),
    outputs=("t",),
)
MUL = "m = Mul(x, z)"
entry(
    "a reshape that undoes",
    "float[1,1,1,3] x, float[1,3] z",
    f"{MUL} t = T0312(m) r = Reshape(t, k) y = Identity(r)",
    constants={"k": [1, 1, 1, 3]},
)
entry(
    "a reshape that undoes, as output",
    "float[1,1,1,3] x, float[1,3] z",
    f"{MUL} t = T0312(m) y = Reshape(t, k)",
    constants={"k": [1, 1, 1, 3]},
)
entry(
    "a reshape by an input",
    "float[1,1,1,3] x, float[1,3] z, int64[4] k",
    f"{MUL} t = T0312(m) r = Reshape(t, k) y = Identity(r)",
    keeps=SOURCE,
    fed={"k": [1, 1, 1, 3]},
)


def reshaped(name: str, shape: Sequence[int], perm: str, to: Sequence[int], left: Any, allowzero: int = 0) -> None:
    entry(
        f"reshape {name} {list(shape)} {perm} {list(to)}",
        f"float[{','.join(map(str, shape))}] x",
        f"m = Mul(x, s) t = T{perm}(m) r = Reshape{'<allowzero=1>' if allowzero else ''}(t, k) y = Identity(r)",
        keeps=left,
        opsets=(15,),
        constants={"s": f32(2.5), "k": list(to)},
        outputs=("m",),
    )


for shape, perm, to in (
    ((4, 1, 3), "201", (1, 3, 4)),
    ((4, 1, 4), "201", (1, 4, 4)),
    ((1, 6, 1, 5), "3012", (1, 1, 5, 6)),
    ((1, 6, 1, 5), "2310", (5, 6, 1, 1)),
    ((1, 6, 1, 5), "3021", (1, 5, 6, 1)),
    ((1, 6, 1, 5), "2301", (5, 1, 6, 1)),
):
    reshaped("merges", shape, perm, to, [shape])
for shape, perm, to in (((1, 8), "10", (1, 8)), ((2, 1, 4), "102", (2, 1, 4)), ((1, 2, 1, 3), "0213", (1, 2, 1, 3))):
    reshaped("cancels", shape, perm, to, ())
for shape, perm, to in (
    ((2, 1, 4), "102", (2, 4)),
    ((1, 4, 4, 5), "0312", (1, 5, 2, 8)),
    ((1, 4, 8, 3), "0312", (1, 3, 8, 4)),
):
    reshaped("stays", shape, perm, to, SOURCE)
reshaped("with a zero merges", (1, 5, 7, 1), "0321", (1, 7, 1, 0), [(1, 5, 7, 1)])
reshaped("with a zero stays", (1, 4, 8, 3), "0312", (1, 0, 8, 4), SOURCE)
reshaped("to nothing merges", (1, 5, 7, 0), "0213", (7, 5, 1, 0), [(1, 5, 7, 0)], 1)
reshaped("to nothing stays", (1, 5, 7, 0), "0213", (0, 7, 5, 1), SOURCE, 1)
reshaped("with -1 merges", (1, 5, 7, 1), "0321", (1, 7, 1, -1), [(1, 5, 7, 1)])
reshaped("with -1 stays", (1, 8, 4, 1), "0321", (1, -1, 2, 8), SOURCE)

# Which way
entry(
    "two ways in",
    "float[4,6,10] x, float[4,10] z",
    "s = T120(x) t = Relu(s) u = T10(z) v = Relu(u) m = Mul(t, v) y = T201(m)",
    (4, 10),
)
entry(
    "towards a transpose",
    "float[4,6,10] x, float[10,4] z",
    "t = T120(x) m = Mul(t, z) r = Relu(m) y = T201(r)",
    (10, 4),
)
entry("only towards a transpose", "float[4,6,10] x, float[10,4] z", "t = T120(x) m = Mul(t, z) y = Relu(m)", (4, 6, 10))
entry(
    "not on the operand whose type alone is read",
    "int32[a,4,b,5] x, float[a,4,b,5] z",
    "t = T0312(z) r = CastLike(x, t) y = T0231(r)",
    keeps=SOURCE,
)
entry("both operands", "float[4,6,10] x, float[4,6,10] z", "s = T120(x) t = T120(z) y = Mul(s, t)", (4, 6, 10))
entry(
    "an identity is left out",
    R4,
    lambda v: "t = T0312(x) y = " + ("ReduceMax<keepdims=0>(t, k)" if v > 17 else "ReduceMax<axes=[1], keepdims=0>(t)"),
    constants=lambda v: {"k": [1]} if v > 17 else {},
)

# Regressions
entry(
    "a decomposed einsum",
    "float[2,3,4] x, float[4,5,3] z",
    "u = Unsqueeze(x, three) s = T0123(u) p = Unsqueeze(z, zero) q = T0312(p) r = Mul(s, q) v ="
    " ReduceSum<keepdims=0>(r, two) w = Shape(v) g = Gather(w, first)"
    " c = Concat<axis=0>(g, minus) y = Reshape(v, c)",
    keeps=SOURCE,
    constants={"zero": [0], "two": [1], "three": [3], "first": [0], "minus": [-1]},
    opsets=(15, 18),
)
entry(
    "a constant for a slice and a squeeze, and a loop",
    "float[2,3,4] x, int64 n, bool go",
    "t = T102(x) s = Slice(t, k, e) q = Squeeze(s, k) y = Loop (n, go, q) <body = b (int64 i, bool c, float[2,4] v)"
    " => (bool c2, float[2,4] w) { c2 = Identity(c) h = ReduceSum(t, k) j = Squeeze(h, k) w = Add(v, j) }>",
    keeps=SOURCE,
    constants={"k": [0], "e": [1]},
    fed={"n": 3, "go": True},
)
for axis in (1, -3):
    for given in ("const", "input"):
        image = {"x": np.arange(120, dtype=np.uint8).reshape(2, 3, 4, 5)} if given == "const" else {}
        entry(
            f"dequantize by axis {axis}, {given}",
            "uint8[2,3,4,5] x" if given == "input" else "float[1] unused",
            f"d = DequantizeLinear<axis={axis}>(x, s, z) y = T0231(d)" + (" w = Neg(unused)" if image else ""),
            *([] if image else [(2, 3, 4, 5)]),
            sizes=[] if image else [1],
            constants={**image, "s": f32(0.1, 0.2, 0.3), "z": np.array([1, 2, 3], np.uint8)},
        )
S8, Z8 = (
    {"s": scalar(np.float32, 0.05), "z": scalar(np.uint8, 128)},
    {"ss": scalar(np.float32, 0.02), "zz": scalar(np.int8, 3)},
)
AROUND = (
    "p = T0231(x) q0 = QuantizeLinear(p, s, z) d0 = DequantizeLinear(q0, s, z) g = Sigmoid(d0)"
    " q1 = QuantizeLinear(g, s, z) d1 = DequantizeLinear(q1, s, z)"
)
PER = {"sv": f32(0.02, 0.03, 0.04), "zv": np.array([1, 2, 3], np.int8)}
entry(
    "a weight by channel between units",
    "float[1,3,4,5] x, int8[3] i",
    f"{AROUND} w = DequantizeLinear<axis=0>(i, sv, zv) m = Mul(d1, w) q2 = QuantizeLinear(m, s, z) d2 ="
    f" DequantizeLinear(q2, s, z) y = T0312(d2)",
    constants={**S8, **PER},
)
entry(
    "a constant weight and a quantized output",
    "float[1,3,4,5] x",
    f"{AROUND} w = DequantizeLinear(i, ss, zz) m = Mul(d1, w) q2 = QuantizeLinear(m, s, z) d2 = DequantizeLinear(q2,"
    f" s, z) t = T0312(d2) y = QuantizeLinear(t, s, z)",
    constants={**S8, **Z8, "i": np.array([1, -2, 3], np.int8)},
)
entry(
    "a constant weight by channel",
    "float[1,3,4,5] x",
    f"{AROUND} w = DequantizeLinear<axis=0>(i, sv, zv) m = Mul(d1, w) q2 = QuantizeLinear(m, s, z) d2 ="
    f" DequantizeLinear(q2, s, z) y = T0312(d2)",
    constants={**S8, **PER, "i": np.array([1, -2, 3], np.int8)},
)
entry(
    "a transpose before a weight by channel",
    "float[1,3,4,5] x, int8[1,3,1,1] i",
    f"{AROUND} u = T0231(i) w = DequantizeLinear<axis=-1>(u, sv, zv) m = Mul(d1, w) q2 = QuantizeLinear(m, s, z) d2 ="
    f" DequantizeLinear(q2, s, z) y = T0312(d2)",
    constants={**S8, **PER},
)
entry(
    "a squeeze before a weight by channel",
    "float[1,3,4,5] x, int8[1,1,1,3] i",
    f"{AROUND} u = Squeeze(i, k) w = DequantizeLinear<axis=0>(u, sv, zv) m = Mul(d1, w) q2 = QuantizeLinear(m, s, z)"
    f" d2 = DequantizeLinear(q2, s, z) y = T0312(d2)",
    constants={**S8, **PER, "k": [0, 1, 2]},
)
SHARED = (
    "t = T0312(x) d0 = DequantizeLinear(b, s0, z) a0 = Add(t, d0) d1 = DequantizeLinear(b, s1, z) a1 = Add(a0, d1) d2"
    " = DequantizeLinear(b, s0, z) a2 = Add(a1, d2)"
    " a3 = Add(a2, f) a4 = Add(a3, f) y = T0231(a4)"
)
for name, shape in (("", (1, 3, 2, 5)), (" that is broadcast", (2, 5))):
    entry(
        f"a shared initializer{name}",
        "float[1,2,5,3] x",
        SHARED,
        constants={
            "b": np.arange(np.prod(shape), dtype=np.uint8).reshape(shape),
            "f": shape,
            "s0": scalar(np.float32, 0.1),
            "s1": scalar(np.float32, 0.3),
            "z": scalar(np.uint8, 4),
        },
    )
entry(
    "a shared initializer and selections",
    "bool[3,2] p, bool[2,3] r, float[3] x, float[3] w",
    "t = T10(p) d = DequantizeLinear(b, s, z) u = Where(t, x, d) v = Add(u, w) e = DequantizeLinear(b, s, z) o ="
    " Where(r, v, e) y = T10(o)",
    (2, 3),
    (2, 3),
    (2, 3),
    sizes=[4, 4, 1],
    constants={"b": np.array([1, 2, 3], np.uint8), "s": scalar(np.float32, 0.1), "z": scalar(np.uint8, 4)},
)

# The layout transformer, for a target that runs what is sensitive to layouts in NHWC
TO = {"to": "NHWC"}
entry(
    "transformer: a depthwise convolution and a normalization of tokens",
    "float[1,12,9] x",
    "u = Unsqueeze(x, k) c = Conv<group=12, pads=[1,0,1,0]>(u, w) h = Reshape(c, n) m = Mul(h, s) a = Add(m, s) q ="
    " Squeeze(a, k1) t = T021(q) e = Add(t, b) f = Add(e, b)"
    " g = ReduceMean(f, last) i = Sub(f, g) j = Add(i, s) o = Div(j, s) y = Add(o, b)",
    (1, 12, 9),
    opsets=(18,),
    asked=TO,
    constants={
        "k": [3],
        "k1": [1],
        "last": [-1],
        "n": [1, 1, 12, 9],
        "w": (12, 1, 3, 1),
        "s": scalar(np.float32, 1.5),
        "b": (12,),
    },
)
entry(
    "transformer: resize",
    "float[1,3,4,5] x",
    "y = Resize(x, o, s)",
    (1, 3, 4, 5),
    (1, 3, 8, 15),
    opsets=(11, 18),
    asked=TO,
    constants={"o": f32(), "s": f32(1, 1, 2, 3)},
)
QDQ = {
    "s": scalar(np.float32, 0.05),
    "z": scalar(np.uint16, 3),
    "b": scalar(np.uint8, 3),
    "n": scalar(np.int8, 0),
    "o": scalar(np.float32, 0.01),
}


def unit(name: str, text: str, zero: str = "b") -> str:
    quantized = f"{name}_f = {text} {name}_q = QuantizeLinear({name}_f, s, {zero})"
    return f"{quantized} {name} = DequantizeLinear({name}_q, s, {zero})"


entry(
    "transformer: a mask that is broadcast",
    "float[1,3,6,20] x, int32[20] mask",
    f"{unit('i', 'Identity(x)')} k = DequantizeLinear(w, o, n) {unit('c', 'Conv(i, k)')}"
    f" {unit('m', 'Cast<to=1>(mask)')} {unit('y', 'Mul(c, m)')}",
    (1, 3, 6, 20),
    (20,),
    (1, 5, 6, 20),
    sizes=[1, 1, 1],
    opsets=(18, 21),
    asked=TO,
    constants={**QDQ, "w": np.arange(15, dtype=np.int8).reshape(5, 3, 1, 1)},
)
entry(
    "transformer: quantized tokens",
    "float[1,5,6,3] x",
    f"{unit('i', 'Identity(x)', 'z')} {unit('t', 'T0312(i)', 'z')} k = DequantizeLinear(w, o, n)"
    f" {unit('c', 'Conv(t, k)', 'z')} {unit('r', 'Reshape(c, to)', 'z')} {unit('u', 'T021(r)', 'z')}"
    f" {unit('y', 'Unsqueeze(u, one)', 'z')}",
    (1, 7, 5, 6),
    (1, 7, 30),
    sizes=[2, 2],
    opsets=(21,),
    asked=TO,
    constants={**QDQ, "w": np.arange(21, dtype=np.int8).reshape(7, 3, 1, 1), "to": [1, 7, 30], "one": [1]},
)
entry(
    "transformer: a constant that two branches share",
    "float[1,5,6,3] x, float[1,3,7,8] v",
    f"{unit('i', 'Identity(x)')} {unit('t', 'T0312(i)')} e = DequantizeLinear(kq, o, n) kk = Unsqueeze(e, hw)"
    f" {unit('m', 'Mul(t, kk)')} k = DequantizeLinear(w, o, n) {unit('y', 'Conv(m, k)')}"
    f" {unit('j', 'Identity(v)')} {unit('l', 'Mul(j, kk)')} {unit('q', 'Conv(l, k)')}",
    (1, 3, 7, 8),
    (1, 7, 5, 6),
    (1, 7, 7, 8),
    sizes=[1, 1, 1],
    opsets=(21,),
    asked=TO,
    constants={
        **QDQ,
        "w": np.arange(21, dtype=np.int8).reshape(7, 3, 1, 1),
        "kq": np.array([10, 20, 30], np.int8),
        "hw": [1, 2],
    },
)
for inner, outer, to, shape, left in (
    ("021", "0312", (1, 1, 32, 3), (1, 3, 32), ()),
    ("021", "0231", (1, 3, 1, 32), (1, 32, 3), ()),
    ("0231", "021", (1, 1024, 3), (1, 3, 32, 32), ()),
    ("0231", "0312", (1, 1024, 1, 3), (1, 3, 32, 32), ()),
    ("0312", "021", (1, 3, 1024), (1, 32, 32, 3), ()),
    ("0312", "0231", (1, 3, 1024, 1), (1, 32, 32, 3), ()),
    ("021", "0312", (1, 8, 2, 6), (1, 3, 32), SOURCE),
    ("0231", "0312", (1, 32, 16, 6), (1, 3, 32, 32), SOURCE),
    ("0312", "0231", (1, 6, 16, 32), (1, 32, 32, 3), SOURCE),
):
    entry(
        f"T{inner} reshape {list(shape)} {list(to)} T{outer}",
        f"float[{','.join(map(str, shape))}] x",
        f"t = T{inner}(x) r = Reshape(t, k) y = T{outer}(r)",
        keeps=left,
        constants={"k": list(to)},
    )

# XNNPACK's cases
entry(
    "transformer: depthwise, clip, pointwise, relu",
    "float[1,11,9,6] x",
    "t = T0312(x) a = Conv<group=6, strides=[2,2]>(t, v) b = Clip(a, lo, hi) c = Conv(b, w) d = Conv(c, u) e ="
    " Relu(d) y = T0231(e)",
    opsets=(18,),
    asked=TO,
    constants={
        "v": (6, 1, 3, 3),
        "w": (8, 6, 1, 1),
        "u": (5, 8, 3, 3),
        "lo": scalar(np.float32, -1),
        "hi": scalar(np.float32, 1),
    },
)
for op, given in (("AveragePool", "<kernel_shape=[2,3]>"), ("MaxPool", "<kernel_shape=[2,3], strides=[2,1]>")):
    entry(
        f"transformer: {op}",
        "float[1,11,9,6] x",
        f"t = T0312(x) a = {op}{given}(t) y = T0231(a)",
        opsets=(11, 18),
        asked=TO,
    )
entry(
    "transformer: softmax of the last axis",
    "float[1,11,9,6] x",
    "t = T0312(x) a = Conv(t, w) b = T0231(a) s = Softmax(b) y = Neg(s)",
    opsets=(13, 18),
    asked=TO,
    constants={"w": (5, 6, 2, 3)},
)
for name, given in (
    ("", ""),
    (", output_padding", "<strides=[2,2], output_padding=[1,1]>"),
    (", output_shape", "<strides=[2,2], output_shape=[22,18]>"),
):
    entry(
        f"transformer: ConvTranspose{name}",
        "float[1,11,9,6] x",
        f"t = T0312(x) a = ConvTranspose{given}(t, w) y = T0231(a)",
        opsets=(11, 18),
        asked=TO,
        constants={"w": (6, 5, 3, 2)},
    )

# The CPU provider's NHWC pass, for quantized convolutions
Q = {
    "s": scalar(np.float32, 0.05),
    "z": scalar(np.uint8, 120),
    "ws": scalar(np.float32, 0.01),
    "wz": scalar(np.int8, 0),
}
rng = np.random.default_rng(7)


def kernel(*shape: int) -> Any:
    return rng.integers(-90, 90, shape).astype(np.int8)


def qconv(output: str, image: str, weight: str, given: str = "") -> str:
    return f"{output} = QLinearConv{given}({image}, s, z, {weight}, ws, wz, s, z)"


def cpu(name: str, inputs: str, text: str, *left: Shape, asked: Mapping[str, Any] = TO, **constants: Any) -> None:
    entry(
        f"NHWC pass: {name}",
        inputs,
        text,
        *left,
        sizes=[1] * len(left),
        opsets=(18,),
        asked=asked,
        constants={**Q, **constants},
    )


I8, O8 = (1, 6, 11, 9), (1, 7, 9, 8)
cpu("conv of rank 3", "uint8[1,6,11] x", qconv("y", "x", "w"), (1, 6, 11), (1, 7, 9), w=kernel(7, 6, 3))
cpu("conv", "uint8[1,6,11,9] x", qconv("y", "x", "w"), I8, O8, w=kernel(7, 6, 3, 2))
cpu(
    "conv of rank 5",
    "uint8[1,6,11,9,5] x",
    qconv("y", "x", "w"),
    (1, 6, 11, 9, 5),
    (1, 7, 9, 8, 4),
    w=kernel(7, 6, 3, 2, 2),
)
for op in ("Add", "Mul"):
    cpu(
        f"two convolutions, {op}",
        "uint8[1,6,11,9] x",
        f"{qconv('a', 'x', 'w')} {qconv('b', 'x', 'v')} y = com.microsoft.QLinear{op}(a, s, z, b, s, z, s, z)",
        I8,
        O8,
        w=kernel(7, 6, 3, 2),
        v=kernel(7, 6, 3, 2),
    )
cpu(
    "max pool",
    "uint8[1,6,11,9] x",
    f"{qconv('a', 'x', 'w')} y = MaxPool<kernel_shape=[2,3]>(a)",
    I8,
    (1, 7, 8, 6),
    w=kernel(7, 6, 3, 2),
)
cpu(
    "max pool with indices",
    "uint8[1,6,11,9] x",
    f"{qconv('a', 'x', 'w')} y, i = MaxPool<kernel_shape=[2,3]>(a)",
    I8,
    O8,
    w=kernel(7, 6, 3, 2),
    asked={"desired_layouts": {"QLinearConv": ["NHWC"]}},
)
cpu(
    "global average pool",
    "uint8[1,6,11,9] x",
    f"{qconv('a', 'x', 'w')} b = com.microsoft.QLinearGlobalAveragePool(a, s, z, s, z) {qconv('y', 'b', 'v')}",
    I8,
    w=kernel(7, 6, 3, 2),
    v=kernel(5, 7, 1, 1),
)
cpu(
    "average pool",
    "uint8[1,6,11,9] x",
    f"{qconv('a', 'x', 'w')} b = com.microsoft.QLinearAveragePool<kernel_shape=[2,3]>(a, s, z, s, z)"
    f" {qconv('y', 'b', 'v')}",
    I8,
    (1, 5, 8, 6),
    w=kernel(7, 6, 3, 2),
    v=kernel(5, 7, 1, 1),
)
for axis in (1, -3):
    cpu(
        f"split by {axis}",
        "uint8[1,6,11,9] x",
        f"{qconv('a', 'x', 'w')} p, q = Split<axis={axis}, num_outputs=2>(a) {qconv('y', 'p', 'v')}"
        f" {qconv('r', 'q', 'v')}",
        I8,
        (1, 5, 9, 8),
        (1, 5, 9, 8),
        w=kernel(8, 6, 3, 2),
        v=kernel(5, 4, 1, 1),
    )
    cpu(
        f"split and concat by {axis}",
        "uint8[1,6,11,9] x",
        f"{qconv('a', 'x', 'w')} p, q = Split<axis={axis}, num_outputs=2>(a) c ="
        f" com.microsoft.QLinearConcat<axis={axis}>(s, z, q, s, z, p, s, z) {qconv('y', 'c', 'v')}",
        I8,
        (1, 5, 9, 8),
        w=kernel(8, 6, 3, 2),
        v=kernel(5, 8, 1, 1),
    )
for mode in ("constant", "reflect", "edge"):
    cpu(
        f"pad, {mode}",
        "uint8[1,6,11,9] x",
        f'{qconv("a", "x", "w")} p = Pad<mode="{mode}">(a, k{", z" if mode == "constant" else ""})'
        f" {qconv('y', 'p', 'v')}",
        I8,
        (1, 5, 13, 14),
        w=kernel(7, 6, 3, 2),
        v=kernel(5, 7, 1, 1),
        k=[0, 0, 1, 2, 0, 0, 3, 4],
    )
cpu(
    "activations between units",
    "uint8[1,6,11,9] x",
    f"{qconv('a', 'x', 'w')} {qconv('b', 'x', 'v')} c = com.microsoft.QLinearConcat<axis=1>(s, z, a, s, z, b, s, z)"
    f" {qconv('e', 'c', 'u')} {qconv('f', 'c', 't')}"
    " g = com.microsoft.QLinearSigmoid(e, s, z, s, z) h = com.microsoft.QLinearLeakyRelu<alpha=0.1>(f, s, z, s, z) y"
    " = com.microsoft.QLinearAdd(g, s, z, h, s, z, s, z)",
    I8,
    (1, 4, 9, 8),
    w=kernel(7, 6, 3, 2),
    v=kernel(5, 6, 3, 2),
    u=kernel(4, 12, 1, 1),
    t=kernel(4, 12, 1, 1),
)
cpu(
    "convolutions of two ranks",
    "uint8[1,6,9] x, uint8[1,6,7,9] v",
    f"{qconv('a', 'x', 'w')} {qconv('b', 'v', 'u')} y = com.microsoft.QLinearAdd(a, s, z, b, s, z, s, z)",
    (1, 6, 9),
    (1, 6, 7, 9),
    (1, 7, 9),
    (1, 7, 7, 9),
    w=kernel(7, 6, 1),
    u=kernel(7, 6, 1, 1),
)

# Newer versions
entry(
    "later: gather of one",
    "float[2,4,6,5] x",
    "t = T0312(x) g = Gather<axis=1>(t, i) y = T021(g)",
    (2, 4, 6),
    constants={"i": scalar(np.int64, 2)},
)
entry(
    "later: gather of one, negative axis",
    "float[2,4,6,5] x",
    "t = T0312(x) g = Gather<axis=-3>(t, i) y = T021(g)",
    (2, 4, 6),
    constants={"i": scalar(np.int64, 2)},
)
entry(
    "later: gather of a list",
    "float[2,4,6,5] x",
    "t = T0312(x) g = Gather<axis=1>(t, i) y = T0231(g)",
    keeps=SOURCE,
    constants={"i": [2, 0]},
)
entry(
    "later: gather by an input",
    "float[2,4,6,5] x, int64 i",
    "t = T0312(x) g = Gather<axis=1>(t, i) y = T021(g)",
    keeps=SOURCE,
)
entry(
    "later: a reshape that splits",
    "float[1,12,20,24] x",
    "t = T0312(x) y = Reshape(t, k)",
    (1, 12, 20, 24),
    constants={"k": [1, 3, 8, 12, 20]},
)
entry(
    "later: a reshape that joins",
    "float[1,40,30,80] x",
    "t = T0312(x) r = Reshape(t, k) y = T021(r)",
    constants={"k": [1, 80, 1200]},
)
entry("later: Elu", "float[4,6,10] x", "t = T120(x) e = Elu(t) y = T201(e)")
for op in ("Gelu", "QuickGelu", "FastGelu"):
    entry(f"later: {op}", "float[4,6,10] x", f"t = T120(x) e = com.microsoft.{op}(t) y = T201(e)")
entry(
    "later: FastGelu with a bias",
    "float[4,6,10] x",
    "t = T120(x) e = com.microsoft.FastGelu(t, b) y = T201(e)",
    keeps=SOURCE,
    constants={"b": (4,)},
)
entry(
    "later: slices share a transpose that is undone",
    "float[2,4,6,5] x",
    "t = T0312(x) a = Slice(t, s, e, k) y = T0231(a) b = Slice(t, e, f, k) z = T0231(b)",
    constants={"s": [0], "e": [2], "f": [5], "k": [1]},
)
entry(
    "later: slices share a transpose that stays",
    "float[2,4,6,5] x",
    "t = T0312(x) y = Slice(t, s, e, k) z = Slice(t, e, f, k)",
    keeps=SOURCE,
    constants={"s": [0], "e": [2], "f": [5], "k": [1]},
)
entry(
    "later: a slice of a transpose",
    "float[2,4,6,5] x",
    "t = T0312(x) y = Slice(t, s, e, k)",
    keeps=SOURCE,
    constants={"s": [0], "e": [2], "k": [1]},
)
entry(
    "later: quantized slices that undo",
    "float[2,4,6,5] x",
    f"{unit('i', 'Identity(x)')} {unit('t', 'T0312(i)')} {unit('a', 'Slice(t, st, e, k)')} {unit('y', 'T0231(a)')}"
    f" {unit('c', 'Slice(t, e, f, k)')} {unit('w', 'T0231(c)')}",
    constants={"s": QDQ["s"], "b": QDQ["b"], "st": [0], "e": [2], "f": [5], "k": [1]},
)
entry(
    "later: quantized slices that stay",
    "float[2,4,6,5] x",
    f"{unit('i', 'Identity(x)')} {unit('t', 'T0312(i)')} {unit('y', 'Slice(t, st, e, k)')}"
    f" {unit('w', 'Slice(t, e, f, k)')}",
    keeps=SOURCE,
    constants={"s": QDQ["s"], "b": QDQ["b"], "st": [0], "e": [2], "f": [5], "k": [1]},
)
entry(
    "later: its own quantization",
    "float[2,4,6,5] x",
    f"{unit('i', 'Identity(x)')} {unit('y', 'T0312(i)')}",
    (2, 4, 6, 5),
    sizes=[1],
    constants={"s": QDQ["s"], "b": QDQ["b"]},
)
