"""Open extents: `shape_signature` leaves them open, and LiteRT computes the same when they are told at run time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from export_cases import TOLERANCE, cases
from export_refused import REFUSED
from export_running import agrees

import relayout
from relayout.errors import UnsupportedError
from relayout.formats.tflite.container.loading import load
from relayout.verification import verify
from rules.law import Case
from small import build
from text_form import floats

REASONS = (
    "known only at run time",
    "is computed",
    "are computed",
    "is not known",
    "a sequence of open length in version 7",
    "inverses of more than three rows",
    "rows that are compared as a whole",
    "tf_crop_and_resize",
    "its channels do not come last",  # of a DepthToSpace whose channels lie together, which views must split
)
"""What may be said of an operator whose extents are open."""
UNCOUNTED = tuple(f"Resize-18-2x9x8x6_4-mode{mode}" for mode in ("linear", "linear_antialias1", "nearest", "cubic"))
"""Cases whose number of sizes would be open: ONNX Runtime refuses them."""
OPEN = [
    replace(case, dynamic=True)
    for case in cases()
    if not case.dynamic and str(case) not in REFUSED and str(case) not in UNCOUNTED
]


@pytest.mark.slow
@pytest.mark.parametrize("case", OPEN, ids=str)
def test_open_extents_are_computed_or_refused(case: Case) -> None:
    model, feed = case.prepared()
    try:
        agrees(model, feed, tolerance=TOLERANCE.get(case.op_type, 1.0))
    except UnsupportedError as error:
        assert any(reason in str(error) for reason in REASONS), error  # noqa: PT017


NETWORK = """
c = Conv<kernel_shape=[3,3], pads=[1,1,1,1], strides=[2,2]>(x, w, b)
r = Relu (c)
p = MaxPool<kernel_shape=[2,2], strides=[2,2]>(r)
g = GlobalAveragePool (p)
f = Flatten (g)
y = Gemm<transB=1>(f, v)
"""
ROWS = {
    "attention": (
        "float[n,s,8] x",
        "u = MatMul (x, w)  t = T021(x)  a = MatMul (u, t)  p = Softmax (a)  y = MatMul (p, x)",
    ),
    "normalization": ("float[n,s,8] x", "m = LayerNormalization (x, w1)  y = Gelu (m)"),
    "reshaped": ("float[n,s,8] x", "h = Reshape (x, shape)  t = T0213(h)  u = Reshape (t, flat)  y = Relu (u)"),
    "einsum": ("float[n,s,8] x", 'y = Einsum<equation="bsd,de->bse">(x, w)'),
    "picked": ("float[n,s,8] x", "y, i = TopK<axis=1>(x, two)  z = ArgMax<axis=2>(x)"),
    "sums": ("float[n,s,8] x", "y = CumSum (x, one)  z = ReduceL2<keepdims=0>(x, one1)  l = LogSoftmax<axis=1>(x)"),
    "sliced": (
        "float[n,s,8] x",
        "a, b = Split<axis=2, num_outputs=2>(x)  y = Concat<axis=1>(a, b)  z = Slice (x, one1, far, one1)",
    ),
    "shapes": ("float[n,s,8] x", "h = Shape (x)  c = ConstantOfShape (h)  y = Add (c, x)  z = Expand (k, h)"),
    "elements": ("float[n,s,8] x", "t = Tanh (x)  m = Greater (x, t)  y = Where (m, x, t)  z = Clip (x, low, high)"),
    "padded": ("float[n,s,8] x", 'y = Pad (x, pads)  z = Pad<mode="reflect">(x, pads)'),
    "bordered": ("float[n,s,8] x", 'y = Pad<mode="edge">(x, pads)  z = Pad<mode="wrap">(x, pads)'),
    "from behind": ("float[n,s,8] x", "y = Gather<axis=1>(x, behind)  z = Gather<axis=0>(x, behind)"),
    "experts": (
        "float[n,s,8] x",
        'y = Einsum<equation="bnd,edf->bnef">(x, k3)  z = Einsum<equation="bnd,dec->nebc">(x, k3)',
    ),
    "scanned": ("float[n,s,8] x", "y = NonZero (x)  z = Compress<axis=1>(x, q)"),
}


@pytest.mark.parametrize("extents", [(1, 8, 12), (3, 17, 9), (2, 32, 32)], ids=str)
def test_a_network_runs_at_several_extents(extents: tuple[int, ...]) -> None:
    constants = {"w": (4, 3, 3, 3), "b": (4,), "v": (5, 4)}
    model = build(
        "float[n,3,h,w] x", NETWORK.replace("(x, w, b)", "(x, kernel, b)"), {**constants, "kernel": (4, 3, 3, 3)}
    )
    agrees(model, {"x": floats(extents[0], 3, *extents[1:])})


@pytest.mark.parametrize("name", ROWS)
def test_families_run_at_several_extents(name: str) -> None:
    inputs, text = ROWS[name]
    constants = {
        "w": (8, 8),
        "w1": (8,),
        "shape": [0, 0, 2, 4],
        "flat": [0, -1, 4],
        "two": [2],
        "one": np.array(1),
        "one1": [1],
        "far": [np.iinfo(np.int64).max],
        "k": (1, 1, 1),
        "k3": (8, 8, 4),
        "behind": [-1, 0],
        "low": np.float32(-0.5),
        "high": np.float32(0.7),
        "pads": [0, 1, 0, 0, 1, 0],
        "q": np.array([True, False]),
    }
    used = {
        key: value
        for key, value in constants.items()
        if key in text.replace("(", " ").replace(")", " ").replace(",", " ").split()
    }
    model = build(inputs, text, used)
    content = relayout.convert(model, format="tflite").tflite
    assert load(content).subgraphs[0].tensors[load(content).subgraphs[0].inputs[0]].signature == (-1, -1, 8)
    for batch, length in ((1, 2), (3, 5), (2, 7)):
        agrees(model, {"x": floats(batch, length, 8)})


IMAGES = {
    "shuffled": 'y = DepthToSpace<blocksize=2, mode="CRD">(x)',
    "nearest": (
        'y = Resize<mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor">(x, , twice)'
    ),
    "linear": 's = Shape<end=2>(x)  z = Concat<axis=0>(s, size)  y = Resize<mode="linear">(x, , , z)',
    "sampled": "c = Conv<kernel_shape=[1,1]>(x, kernel)  y = AveragePool<kernel_shape=[3,3], strides=[2,2]>(c)",
    "normalized": "y = InstanceNormalization (x, scale, shift)",
}


@pytest.mark.parametrize("name", IMAGES)
def test_images_run_at_several_extents(name: str) -> None:
    constants = {
        "twice": np.array([1, 1, 2, 2], np.float32),
        "size": [9, 11],
        "kernel": (8, 8, 1, 1),
        "scale": (8,),
        "shift": (8,),
    }
    used = {key: value for key, value in constants.items() if f" {key}" in IMAGES[name]}
    model = build("float[n,8,h,w] x", IMAGES[name], used)
    for batch, height, width in ((1, 5, 6), (2, 9, 7)):
        agrees(model, {"x": floats(batch, 8, height, width)})


SOFTMAXES = {
    "n,3,4,1": [(1, 3, 4, 1), (5, 3, 4, 1)],
    "2,c,4,1": [(2, 3, 4, 1), (2, 7, 4, 1)],
    "n,3,h,w": [(1, 3, 4, 2), (5, 3, 2, 6)],
}


@pytest.mark.parametrize("axis", [0, 1, 2, 3])
@pytest.mark.parametrize("extents", SOFTMAXES)
@pytest.mark.parametrize("name", ["Softmax", "LogSoftmax"])
def test_a_softmax_over_several_axes_of_open_extents(name: str, extents: str, axis: int) -> None:
    model = build(f"float[{extents}] x", f"r = Relu (x)  y = {name}<axis={axis}>(r)", {}, opset=11)
    for shape in SOFTMAXES[extents]:
        agrees(model, {"x": floats(*shape)})


@pytest.mark.parametrize("reduction", ["none", "add"])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("count", [4, 1, 0])
def test_a_scatter_of_elements_into_open_extents(count: int, axis: int, reduction: str) -> None:
    """As many rows as a detector finds, and none at all."""
    given = "float[1,n,3] x, int64[1,n,3] i, float[1,n,3] u"
    source = build(given, f'y = ScatterElements<axis={axis}, reduction="{reduction}">(x, i, u)', {})
    rows = np.zeros if axis == 0 else lambda shape: np.arange(count)[::-1].reshape(1, -1, 1) + np.zeros(shape, int)
    feed = {"x": floats(1, count, 3), "i": rows((1, count, 3)).astype(np.int64), "u": floats(1, count, 3, seed=1)}
    agrees(source, feed)


@pytest.mark.parametrize("dims", ["n,3,2", "2,n,2", "n,3,m"])
def test_a_scatter_of_elements_at_constant_places(dims: str) -> None:
    """Places are added up of constants, which nothing may change before the run."""
    places = np.array([[[2, 0], [0, 2], [1, 1]], [[0, 1], [1, 0], [2, 2]]])
    text = "y = ScatterElements<axis=1>(x, i, u)"
    source = build(f"float[{dims}] x, float[2,3,2] u", text, {"i": places})
    agrees(source, {"x": floats(2, 3, 2), "u": floats(2, 3, 2, seed=1)})


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("ratio", [0, 2])
def test_the_number_of_regions_is_open(ratio: int, mode: str) -> None:
    text = f'y = RoiAlign<mode="{mode}", sampling_ratio={ratio}, output_height=3, output_width=2>(x, r, b)'
    model = build("float[2,3,8,6] x, float[n,4] r, int64[n] b", text, {}, opset=16)
    if mode == "max" and not ratio:
        with pytest.raises(UnsupportedError, match="the largest of as many samples as a region is large"):
            relayout.convert(model, format="tflite")
        return
    for count in (5, 1):
        corners = np.sort(floats(count, 2, 2) * 5, 1).reshape(count, 4)
        agrees(model, {"x": floats(2, 3, 8, 6), "r": corners, "b": np.arange(count) % 2})


@pytest.mark.parametrize("text", ["y = GatherND(x, i)", "y = GatherElements<axis=0>(x, i)", "y = Gather<axis=0>(x, i)"])
def test_an_extent_of_0_has_no_places(text: str) -> None:
    """A detector that finds nothing: the kernel of the places that may count from the end divides by the extent."""
    model = build("float[n,3] x, int64[m,1] i", text, {})
    content = relayout.convert(model, format="tflite")
    for rows in (0, 4):
        fed = {"x": floats(rows, 3), "i": np.full((min(rows, 2), 1), -1)}
        assert verify(model, content, inputs=fed).ok


def test_places_of_the_largest_count_from_the_front() -> None:
    text = "v, i = TopK(x, k) t = Unsqueeze(i, a) y = GatherND(z, t)"
    model = build("float[n] x, float[n,3] z", text, {"k": np.array([2]), "a": np.array([1])}, outputs=("y",))
    content = relayout.convert(model, format="tflite")
    assert "FLOOR_MOD" not in content.report.operators
    assert verify(model, content).ok
