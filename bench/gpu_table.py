"""Ask LiteRT's GPU accelerator what it takes, and write the table of `--target litert-gpu`.

    python bench/gpu_table.py                       all questions
    python bench/gpu_table.py FAMILY ...            those of some families (moves, products, images, …) again
    python bench/gpu_table.py FILE.tflite ...       operators of files whose form is not in the table

Each question is a file of one operator. They are asked in one process; the answers go into
`src/relayout/targets/litert_gpu/answers.json`. An operator of a file is cut out, with its own extents.
"""

from __future__ import annotations

import itertools
import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from relayout.formats.recognition import PRODUCER
from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.loading import load
from relayout.formats.tflite.container.model import Model, Quantization, Subgraph
from relayout.formats.tflite.container.versions import finished
from relayout.formats.tflite.container.writer import to_bytes
from relayout.formats.tflite.exporting.draft import Draft, DraftOperator, DraftTensor
from relayout.targets.litert_gpu import operator_form
from relayout.targets.litert_gpu.operator_form import form_of
from relayout.verification.litert_gpu import GpuVerdict, Judge

TABLE = Path(operator_form.__file__).with_name("answers.json")
LIMIT_SECONDS = 60.0
FLOAT, INT, BOOL, HALF, INT8, UINT8 = (
    TensorType.FLOAT32,
    TensorType.INT32,
    TensorType.BOOL,
    TensorType.FLOAT16,
    TensorType.INT8,
    TensorType.UINT8,
)
NUMPY = {FLOAT: np.float32, INT: np.int32, BOOL: np.bool_, HALF: np.float16, INT8: np.int8, UINT8: np.uint8}
SHAPES: tuple[tuple[int, ...], ...] = (
    *[(2, 3, 4, 8), (1, 3, 4, 8), (1, 3, 4, 5), (2, 3, 4, 5), (2, 3, 4), (1, 3, 8), (3, 8), (1, 5), (8,)],
)
FEW = ((2, 3, 4, 8), (1, 3, 8), (3, 8))
LISTS = ((2, 3, 4, 8), (2, 3, 4, 5), (1, 3, 4, 5), (2, 3, 4), (1, 3, 8), (3, 8), (1, 5), (8,))
"""Extents of integers that are joined, cut and looked up."""
SAME, VALID = 0, 1


class Question:
    """One operator, under construction."""

    def __init__(self) -> None:
        self.draft = Draft()
        self.rng = np.random.default_rng(0)
        self.feeds: dict[str, Any] = {}

    def input(self, dims: Sequence[int], kind: TensorType = FLOAT, numbers: Any = None) -> DraftTensor:
        """Add an input that is fed the given numbers, or random ones."""
        tensor = DraftTensor(self.draft.unique("input"), kind, tuple(dims))
        self.draft.inputs.append(tensor)
        array = self._numbers(dims, kind) if numbers is None else np.broadcast_to(numbers, dims).astype(NUMPY[kind])
        self.feeds[tensor.name] = array
        return tensor

    def _numbers(self, dims: Sequence[int], kind: TensorType) -> Any:
        if kind in (FLOAT, HALF):
            return self.rng.standard_normal(dims).astype(NUMPY[kind])
        return self.rng.integers(0, 2 if kind == BOOL else 3, dims).astype(NUMPY[kind])

    def constant(self, dims: Sequence[int], kind: TensorType = FLOAT, numbers: Any = None) -> DraftTensor:
        """Add a constant."""
        array = self._numbers(dims, kind) if numbers is None else np.broadcast_to(numbers, dims).astype(NUMPY[kind])
        return self.draft.constant("constant", np.asarray(array, order="C"))

    def ints(self, numbers: Any) -> DraftTensor:
        """Add a constant of int32."""
        return self.draft.constant("ints", np.asarray(numbers, np.int32))

    def operator(
        self,
        name: str,
        inputs: Sequence[DraftTensor | None],
        *dims: Sequence[int],
        kind: TensorType | None = None,
        **options: Any,
    ) -> list[DraftTensor]:
        """Add the operator, with a result for each list of extents."""
        first = next(each.type for each in inputs if each is not None)
        results = [self.draft.tensor("result", first if kind is None else kind, tuple(each)) for each in dims]
        self.draft.add(name, inputs, results, **options)
        return results


Builder = Callable[[Question], Sequence[DraftTensor]]


def elementwise() -> Iterator[Builder]:
    """Yield operators on each element, of one operand and of several."""
    positive = ("LOG", "SQRT", "RSQRT")
    names = "ABS NEG EXP LOG SQRT RSQRT SIN COS TANH LOGISTIC FLOOR CEIL ROUND SQUARE SIGN RELU RELU6 RELU_N1_TO_1"
    for name, dims in itertools.product([*names.split(), "RELU_0_TO_1", "ELU", "HARD_SWISH", "GELU"], SHAPES):
        numbers = None if name not in positive else np.linspace(0.1, 3, prod(dims)).reshape(dims)
        yield lambda q, name=name, dims=dims, n=numbers: q.operator(name, [q.input(dims, numbers=n)], dims)
    for name, dims in itertools.product(("ABS", "NEG", "SIGN"), SHAPES):
        yield lambda q, name=name, dims=dims: q.operator(name, [q.input(dims, INT)], dims)
    for dims in SHAPES:
        yield lambda q, dims=dims: q.operator("LEAKY_RELU", [q.input(dims)], dims, alpha=0.1)
        yield lambda q, dims=dims: q.operator("SOFTMAX", [q.input(dims)], dims, beta=1.0)
        yield lambda q, dims=dims: q.operator("LOG_SOFTMAX", [q.input(dims)], dims)
        yield lambda q, dims=dims: q.operator("L2_NORMALIZATION", [q.input(dims)], dims)
        yield lambda q, dims=dims: q.operator("ZEROS_LIKE", [q.input(dims)], dims)
        yield lambda q, dims=dims: q.operator("LOGICAL_NOT", [q.input(dims, BOOL)], dims)
        for kind, other in itertools.permutations((FLOAT, INT, BOOL, HALF, INT8, UINT8), 2) if dims in FEW else ():
            yield lambda q, dims=dims, k=kind, o=other: q.operator(
                "CAST", [q.input(dims, k)], dims, kind=o, in_data_type=k, out_data_type=o
            )
    yield lambda q: q.operator("EXP", [q.constant((3, 8))], (3, 8))
    for count in (2, 3):
        yield lambda q, n=count: q.operator("ADD_N", [q.input((3, 8)) for _ in range(n)], (3, 8))


def stretches(dims: Sequence[int]) -> list[tuple[int, ...]]:
    """Return extents that stretch to others, among them these."""
    patterns = itertools.product(*((1, dim) for dim in dims))
    found = {pattern[cut:] for pattern in patterns for cut in range(len(dims) + 1)}
    return sorted(each for each in found if len(each) == len(dims) or not each or each[0] != 1 or len(each) == 1)


ARITHMETIC = ["ADD", "SUB", "MUL", "DIV", "MAXIMUM", "MINIMUM", "POW", "SQUARED_DIFFERENCE", "FLOOR_DIV", "FLOOR_MOD"]
COMPARISONS = ["EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL"]
LOGICAL = ("LOGICAL_AND", "LOGICAL_OR")
Operand = tuple[Sequence[int], Any, bool]
"""Extents, numbers, and whether it is a constant."""


def pairs() -> Iterator[Builder]:
    """Yield operators on two operands that stretch to each other."""
    for name in (*ARITHMETIC, *COMPARISONS, *LOGICAL):
        kinds = (BOOL,) if name in LOGICAL else (FLOAT, INT) if name != "POW" else (FLOAT,)
        shapes = FEW if name in ("ADD", "MUL", "DIV", "LESS", "NOT_EQUAL") else FEW[::2]
        for kind, dims in itertools.product(kinds, shapes):
            numbers = np.linspace(0.5, 3, prod(dims)).reshape(dims) if name == "POW" else None
            numbers = np.arange(1, 1 + prod(dims)).reshape(dims) if kind == INT else numbers
            yield from _paired(name, kind, dims, numbers)


def _paired(name: str, kind: TensorType, dims: tuple[int, ...], numbers: Any) -> Iterator[Builder]:
    """Yield an operator on operands of all extents that stretch to some."""
    ask = partial(_of_operands, name, kind, BOOL if name in (*COMPARISONS, *LOGICAL) else kind, dims)
    is_long = name in ("ADD", "MUL") and kind == FLOAT and dims == FEW[0]
    for other in dict.fromkeys(stretches(dims) if is_long else [(), (1,), dims[-1:], dims[1:], dims]):
        part = None if numbers is None else numbers.reshape(-1)[: prod(other)].reshape(other)
        for order, fixed in itertools.product((1, -1), (True, False)):
            if other or fixed:
                yield partial(ask, [(dims, numbers, False), (other, part, fixed)][::order])
    if len(dims) > 1:
        column = (*dims[:-1], 1), None if numbers is None else numbers[..., :1]
        row = (*dims[:-2], 1, dims[-1]), None if numbers is None else numbers[..., :1, :]
        for fixed in ("", "a", "b"):
            yield partial(ask, [(*column, fixed == "a"), (*row, fixed == "b")])
    yield partial(ask, [(dims, numbers, False)])


def _of_operands(
    name: str, kind: TensorType, result: TensorType, dims: Sequence[int], operands: Sequence[Operand], q: Question
) -> list[DraftTensor]:
    """Return the result of an operator on operands; one operand alone is read twice."""
    read = [(q.constant if fixed else q.input)(own, kind, numbers) for own, numbers, fixed in operands]
    return q.operator(name, read if len(read) > 1 else read * 2, dims, kind=result)


def selections() -> Iterator[Builder]:
    """Yield SELECT and SELECT_V2."""
    for dims, kind in itertools.product(FEW, (FLOAT, INT)):
        conditions = dict.fromkeys((dims, (*dims[:-1], 1), (1, *dims[1:]), dims[1:] or dims, dims[-1:], (1,)))
        for condition, fixed in itertools.product(conditions, (True, False)):
            for sides in itertools.product("ics", repeat=2):
                if "i" in sides or condition == dims:
                    yield partial(_selected, "SELECT_V2", kind, dims, condition, fixed, sides)
                if condition == dims and "s" not in sides:
                    yield partial(_selected, "SELECT", kind, dims, condition, fixed, sides)


def _selected(
    name: str,
    kind: TensorType,
    dims: Sequence[int],
    condition: Sequence[int],
    fixed: bool,
    sides: Sequence[str],
    q: Question,
) -> list[DraftTensor]:
    """Return a choice between two sides: inputs `i`, constants `c`, or constants of one number `s`."""
    read = [(q.constant if fixed else q.input)(condition, BOOL)]
    read += [q.input(dims, kind) if side == "i" else q.constant(dims if side == "c" else (), kind) for side in sides]
    return q.operator(name, read, dims, kind=kind)


def moves() -> Iterator[Builder]:
    """Yield operators that move elements."""
    for kind in (FLOAT, INT, BOOL):
        for dims in SHAPES:
            if kind != FLOAT and dims not in FEW:
                continue
            targets = [
                (prod(dims),),
                (1, prod(dims)),
                (dims[-1], prod(dims) // dims[-1]),
                (1, dims[-1], prod(dims[:-1])),
            ]
            targets += [(1, 1, dims[-1], prod(dims[:-1])), (dims[-1], 1, 1, prod(dims[:-1]))]
            for target in targets:
                yield lambda q, d=dims, t=target, k=kind: q.operator("RESHAPE", [q.input(d, k), q.ints(t)], t)
            for perm in itertools.permutations(range(len(dims))) if len(dims) > 1 else ():
                yield lambda q, d=dims, p=perm, k=kind: q.operator(
                    "TRANSPOSE", [q.input(d, k), q.ints(p)], [d[axis] for axis in p]
                )
    for dims in SHAPES:
        yield lambda q, d=dims: q.operator("EXPAND_DIMS", [q.input(d), q.ints(0)], (1, *d))
        yield lambda q, d=dims: q.operator("SQUEEZE", [q.input((1, *d[1:]))], d[1:], squeeze_dims=[0])
        yield lambda q, d=dims: q.operator("BROADCAST_TO", [q.input((1, *d[1:])), q.ints((2, *d[1:]))], (2, *d[1:]))
    yield lambda q: q.operator("FILL", [q.ints((3, 8)), q.constant((), FLOAT, 2.0)], (3, 8), kind=FLOAT)


def pieces() -> Iterator[Builder]:
    """Yield operators that move elements along one axis."""
    for dims in SHAPES:
        for axis in range(len(dims)):
            yield from along(dims, axis)


def along(dims: tuple[int, ...], axis: int) -> Iterator[Builder]:
    """Yield operators that move elements along one axis."""

    def extended(extent: int) -> tuple[int, ...]:
        return (*dims[:axis], extent, *dims[axis + 1 :])

    one = [int(each == axis) for each in range(len(dims))]
    less = extended(dims[axis] - 1)
    for kind in (FLOAT, INT) if dims in LISTS else (FLOAT,):
        for sides in ("ii", "ic", "ci", "iii"):
            yield lambda q, k=kind, s=sides: q.operator(
                "CONCATENATION",
                [q.input(dims, k) if each == "i" else q.constant(dims, k) for each in s],
                extended(len(s) * dims[axis]),
                axis=axis,
            )
        if min(less) > 0:
            yield lambda q, k=kind: q.operator("SLICE", [q.input(dims, k), q.ints(one), q.ints(less)], less)
            yield lambda q, k=kind: q.operator(
                "STRIDED_SLICE", [q.input(dims, k), q.ints(one), q.ints(dims), q.ints([1] * len(dims))], less
            )
        yield lambda q, k=kind: q.operator(
            "SPLIT", [q.ints(axis), q.input(extended(2 * dims[axis]), k)], dims, dims, kind=k, num_splits=2
        )
        yield lambda q, k=kind: q.operator(
            "SPLIT_V",
            [q.input(extended(dims[axis] + 1), k), q.ints([dims[axis], 1]), q.ints(axis)],
            dims,
            extended(1),
            num_splits=2,
        )
        yield lambda q, k=kind: q.operator(
            "UNPACK", [q.input(dims, k)], *[(*dims[:axis], *dims[axis + 1 :])] * dims[axis], axis=axis, num=dims[axis]
        )
        yield lambda q, k=kind: q.operator(
            "PACK",
            [q.input(dims, k)] * 1 + [q.input(dims, k)],
            (*dims[:axis], 2, *dims[axis:]),
            axis=axis,
            values_count=2,
        )
        yield lambda q, k=kind: q.operator(
            "TILE", [q.input(dims, k), q.ints([1 + each for each in one])], extended(2 * dims[axis])
        )
        yield lambda q, k=kind: q.operator("REVERSE_V2", [q.input(dims, k), q.ints([axis])], dims)
        for fixed, table in ((True, False), (False, False), (False, True)):

            def gather(q: Question, k: Any = kind, fixed: bool = fixed, table: bool = table) -> list[DraftTensor]:
                places = [0, dims[axis] - 1, 0]
                indices = q.ints(places) if fixed else q.input((3,), INT, places)
                data = q.constant(dims, k) if table else q.input(dims, k)
                return q.operator("GATHER", [data, indices], extended(3), axis=axis)

            yield gather
    step = [1 + each for each in one]
    half = extended((dims[axis] + 1) // 2)
    yield lambda q: q.operator(
        "STRIDED_SLICE", [q.input(dims), q.ints([0] * len(dims)), q.ints(dims), q.ints(step)], half
    )
    if len(dims) > 1:
        yield lambda q: q.operator(
            "STRIDED_SLICE",
            [q.input(dims), q.ints([0] * len(dims)), q.ints(extended(1)), q.ints([1] * len(dims))],
            (*dims[:axis], *dims[axis + 1 :]),
            shrink_axis_mask=1 << axis,
        )
    backwards = [1 - 2 * each for each in one]
    ends = [-dims[axis] - 1 if each == axis else dim for each, dim in enumerate(dims)]
    yield lambda q: q.operator(
        "STRIDED_SLICE",
        [q.input(dims), q.ints([-each for each in one]), q.ints(ends), q.ints(backwards)],
        dims,
    )
    for name, rest in (("PAD", []), ("PADV2", [2.0])):
        yield lambda q, n=name, r=rest: q.operator(
            n,
            [q.input(dims), q.ints([[each, 2 * each] for each in one]), *[q.constant((), FLOAT, each) for each in r]],
            extended(dims[axis] + 3),
        )
    if dims[axis] > 1:
        yield lambda q: q.operator(
            "MIRROR_PAD", [q.input(dims), q.ints([[each, each] for each in one])], extended(dims[axis] + 2)
        )
    for kind in (FLOAT, INT):
        yield lambda q, k=kind: q.operator("CUMSUM", [q.input(dims, k), q.ints(axis)], dims)
    for name in ("ARG_MAX", "ARG_MIN"):
        yield lambda q, n=name: q.operator(
            n, [q.input(dims), q.ints(axis)], (*dims[:axis], *dims[axis + 1 :]), kind=INT, output_type=INT
        )
    if axis == len(dims) - 1 and dims[-1] > 2:

        def largest(q: Question) -> list[DraftTensor]:
            results = [q.draft.tensor("values", FLOAT, extended(2)), q.draft.tensor("places", INT, extended(2))]
            q.draft.add("TOPK_V2", [q.input(dims), q.ints(2)], results)
            return results

        yield largest
    if axis == 0:
        yield lambda q: q.operator("SLICE", [q.input(dims), q.input((len(dims),), INT, 0), q.ints(dims)], dims)


def reductions() -> Iterator[Builder]:
    """Yield reductions along every set of axes."""
    for name, dims in itertools.product(("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD"), SHAPES):
        for count in range(1, len(dims) + 1):
            for axes, keep in itertools.product(itertools.combinations(range(len(dims)), count), (True, False)):
                left = [1 if axis in axes else dim for axis, dim in enumerate(dims) if keep or axis not in axes]
                for kind in (FLOAT, INT) if name != "MEAN" and count == 1 and not keep else (FLOAT,):
                    yield lambda q, n=name, d=dims, a=axes, k=keep, o=left, t=kind: q.operator(
                        n, [q.input(d, t), q.ints(a)], o, keep_dims=k
                    )
    for name, dims in itertools.product(("REDUCE_ANY", "REDUCE_ALL"), SHAPES):
        for axis in range(len(dims)):
            rest = (*dims[:axis], *dims[axis + 1 :])
            yield lambda q, n=name, d=dims, a=axis, o=rest: q.operator(n, [q.input(d, BOOL), q.ints([a])], o)


def products() -> Iterator[Builder]:
    """Yield products of matrices."""
    fronts = [((), ()), ((2,), (2,)), ((1,), (1,)), ((2, 3), (2, 3)), ((1, 3), (1, 3)), ((2,), ()), ((2, 3), ())]
    fronts += [((), (2,)), ((2, 3), (1, 3)), ((2, 3), (2, 1)), ((1, 1), (2, 3)), ((2,), (1,)), ((1,), (2,)), ((1,), ())]
    fronts += [((2, 3), (3,)), ((1, 3), (3,)), ((1, 1), (1, 1))]
    for (left, right), adj_x, adj_y in itertools.product(fronts, (False, True), (False, True)):
        front = np.broadcast_shapes(left, right)
        a, b = (*left, *((5, 8) if not adj_x else (8, 5))), (*right, *((8, 6) if not adj_y else (6, 8)))
        for fixed in ("", "a", "b"):
            yield lambda q, a=a, b=b, x=adj_x, y=adj_y, f=fixed, o=front: q.operator(
                "BATCH_MATMUL",
                [q.constant(a) if f == "a" else q.input(a), q.constant(b) if f == "b" else q.input(b)],
                (*o, 5, 6),
                adj_x=x,
                adj_y=y,
            )
    for dims, bias, act in itertools.product(SHAPES, (False, True), (0, 1, 3)):
        yield lambda q, d=dims, b=bias, a=act: q.operator(
            "FULLY_CONNECTED",
            [q.input(d), q.constant((6, d[-1])), *([q.constant((6,))] if b else [])],
            (*d[:-1], 6) if len(d) > 1 else (1, 6),
            keep_num_dims=len(d) > 2,
            fused_activation_function=a,
        )
    for dims in SHAPES:
        rows = (*dims[:-1], 6) if len(dims) > 1 else (1, 6)
        keep = len(dims) > 2
        yield lambda q, d=dims, r=rows, k=keep: q.operator(
            "FULLY_CONNECTED", [q.input(d), q.input((6, d[-1]))], r, keep_num_dims=k
        )
        yield lambda q, d=dims, r=rows, k=keep: q.operator(
            "FULLY_CONNECTED", [q.input(d), q.input((6, d[-1])), q.constant((6,))], r, keep_num_dims=k
        )
        yield lambda q, d=dims, r=rows, k=keep: q.operator(
            "FULLY_CONNECTED", [q.constant(d), q.input((6, d[-1]))], r, keep_num_dims=k
        )


def images() -> Iterator[Builder]:
    """Yield convolutions, pools and other operators on images."""
    for batch, channels in itertools.product((1, 2), (8, 3)):
        x = (batch, 12, 12, channels)
        windows = [
            (1, 1, 1, SAME),
            (3, 1, 1, SAME),
            (3, 2, 1, SAME),
            (3, 1, 2, SAME),
            (3, 2, 1, VALID),
            (4, 4, 1, VALID),
        ]
        for k, stride, dilation, padding in windows:
            extent = -(-12 // stride) if padding == SAME else (12 - dilation * (k - 1) - 1) // stride + 1
            options = {"padding": padding, "stride_w": stride, "stride_h": stride}
            dilated = {**options, "dilation_w_factor": dilation, "dilation_h_factor": dilation}
            y = (batch, extent, extent)
            for groups in (1, 2):
                own = channels // groups
                if own * groups == channels:
                    yield lambda q, o=own, g=groups, k=k, y=y, d=dilated, x=x: q.operator(
                        "CONV_2D",
                        [q.input(x), q.constant((8, k, k, o)), q.constant((8,))],
                        (*y, 8),
                        **d,
                    )
            for several in (1, 2, 3):
                count = several * channels
                yield lambda q, m=several, n=count, k=k, y=y, d=dilated, x=x: q.operator(
                    "DEPTHWISE_CONV_2D",
                    [q.input(x), q.constant((1, k, k, n)), q.constant((n,))],
                    (*y, n),
                    depth_multiplier=m,
                    **d,
                )
            yield lambda q, k=k, y=y, d=dilated, x=x: q.operator(
                "CONV_2D", [q.input(x), q.input((6, k, k, x[-1])), q.constant((6,))], (*y, 6), **d
            )
            if dilation == 1:
                for name in ("MAX_POOL_2D", "AVERAGE_POOL_2D", "L2_POOL_2D"):
                    yield lambda q, n=name, k=k, y=y, o=options, x=x: q.operator(
                        n, [q.input(x)], (*y, x[-1]), filter_width=k, filter_height=k, **o
                    )
        for k, stride, padding in [(2, 2, VALID), (4, 2, SAME), (3, 2, SAME), (3, 1, SAME), (4, 4, VALID)]:
            extent = 12 * stride if padding == SAME else 11 * stride + k
            y = (batch, extent, extent, 6)
            for bias in (True, False):
                yield lambda q, k=k, s=stride, p=padding, y=y, b=bias, x=x: q.operator(
                    "TRANSPOSE_CONV",
                    [q.ints(y), q.constant((6, k, k, x[-1])), q.input(x), *([q.constant((6,))] if b else [])],
                    y,
                    kind=FLOAT,
                    padding=p,
                    stride_w=s,
                    stride_h=s,
                )
        for name, extent in itertools.product(("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"), (24, 18, 6)):
            for corners, half in ((False, False), (False, True), (True, False)):
                yield lambda q, n=name, e=extent, c=corners, h=half, x=x: q.operator(
                    n,
                    [q.input(x), q.ints((e, e))],
                    (x[0], e, e, x[-1]),
                    align_corners=c,
                    half_pixel_centers=h,
                )
        slopes = [(channels,), (1, 1, channels), (12, 12, channels), (1, 1, 1), (12, 12, 1), (1, 12, 12, channels)]
        for each in slopes:
            yield lambda q, s=each, x=x: q.operator("PRELU", [q.input(x), q.constant(s)], x)
        yield lambda q, x=x: q.operator(
            "LOCAL_RESPONSE_NORMALIZATION", [q.input(x)], x, radius=2, bias=1.0, alpha=0.1, beta=0.75
        )
    for dims in SHAPES:
        yield lambda q, d=dims: q.operator("PRELU", [q.input(d), q.constant(d[-1:])], d)
    for batch in (1, 2):
        yield lambda q, n=batch: q.operator("DEPTH_TO_SPACE", [q.input((n, 4, 4, 8))], (n, 8, 8, 2), block_size=2)
        yield lambda q, n=batch: q.operator("SPACE_TO_DEPTH", [q.input((n, 8, 8, 2))], (n, 4, 4, 8), block_size=2)
    yield lambda q: q.operator(
        "CONV_3D",
        [q.input((1, 4, 6, 6, 2)), q.constant((3, 3, 3, 2, 4)), q.constant((4,))],
        (1, 4, 6, 6, 4),
        stride_d=1,
        stride_w=1,
        stride_h=1,
        padding=SAME,
    )


def tables() -> Iterator[Builder]:
    """Yield operators that look elements up by their places, or write to places."""
    for places in ((5,), (1, 5), (2, 5), (1, 2, 5), ()):
        for table in ((7, 8), (7,), (7, 2, 4)):
            for fixed in (True, False):
                yield lambda q, p=places, t=table, f=fixed: q.operator(
                    "GATHER", [q.constant(t) if f else q.input(t), q.input(p, INT)], (*p, *t[1:]), axis=0
                )
        yield lambda q, p=places: q.operator(
            "ONE_HOT",
            [q.input(p, INT), q.ints(7), q.constant((), FLOAT, 1.0), q.constant((), FLOAT, 0.0)],
            (*p, 7),
            kind=FLOAT,
            axis=-1,
        )
    for table in ((7, 8), (7, 2, 4), (7,)):
        yield lambda q, t=table: q.operator(
            "EMBEDDING_LOOKUP", [q.input((5,), INT), q.constant(t)], (5, *t[1:]), kind=FLOAT
        )
    for data, places in (((7, 8), (5, 1)), ((7, 8, 3), (5, 2)), ((7, 8), (5, 2)), ((2, 7, 8), (2, 5, 2))):
        rest = (*places[:-1], *data[places[-1] :])
        for fixed in (True, False):
            yield lambda q, d=data, p=places, o=rest, f=fixed: q.operator(
                "GATHER_ND", [q.input(d), q.constant(p, INT) if f else q.input(p, INT)], o
            )
            yield lambda q, d=data, p=places, o=rest, f=fixed: q.operator(
                "SCATTER_ND", [q.constant(p, INT) if f else q.input(p, INT), q.input(o), q.ints(d)], d, kind=FLOAT
            )
    for fixed in (True, False):
        yield lambda q, f=fixed: q.operator(
            "DYNAMIC_UPDATE_SLICE",
            [
                q.input((1, 4, 8, 8)),
                q.input((1, 4, 1, 8)),
                q.ints((0, 0, 1, 0)) if f else q.input((4,), INT, [0, 0, 1, 0]),
            ],
            (1, 4, 8, 8),
        )


def halves() -> Iterator[Builder]:
    """Yield what reads numbers of fewer bits."""
    scale = Quantization(np.array([0.05], np.float32), np.array([3], np.int64), 0)
    for dims, kind in itertools.product(SHAPES, (INT8, UINT8)):

        def widened(q: Question, dims: Any = dims, kind: Any = kind) -> list[DraftTensor]:
            x = q.input(dims, kind)
            x.quantization = scale
            return q.operator("DEQUANTIZE", [x], dims, kind=FLOAT)

        def narrowed(q: Question, dims: Any = dims, kind: Any = kind) -> list[DraftTensor]:
            results = q.operator("QUANTIZE", [q.input(dims)], dims, kind=kind)
            results[0].quantization = scale
            return results

        yield widened
        yield narrowed


FAMILIES = {
    family.__name__: family
    for family in (elementwise, moves, pieces, products, images, tables, halves, selections, pairs, reductions)
}


def questions(*names: str) -> Iterator[Question]:
    """Yield the questions of some families, by default of all."""
    for name in names or FAMILIES:
        for build in FAMILIES[name]():
            question = Question()
            question.draft.outputs = list(build(question))
            yield question


def file_of(draft: Draft) -> bytes:
    """Return a draft as a file."""
    return to_bytes(finished(Model(PRODUCER, (draft.finish(),), (), ())))


def cut_out(graph: Subgraph) -> Iterator[tuple[str, Question]]:
    """Yield each operator of a file by itself, with random numbers, and its form."""
    for each in graph.operators:
        question = Question()
        tensors: dict[int, DraftTensor] = {}
        for index in (*each.inputs, *each.outputs):
            if index < 0 or index in tensors:
                continue
            stated = graph.tensors[index]
            if stated.data is not None:
                raw = np.frombuffer(
                    b"".join(stated.data.chunks()) if hasattr(stated.data, "chunks") else stated.data, np.uint8
                )
                small = stated.type in NUMPY and raw.nbytes < 1 << 16
                array = raw.view(NUMPY[stated.type]).reshape(stated.shape) if small else None
                tensors[index] = DraftTensor(stated.name, stated.type, stated.shape, raw, array, stated.quantization)
            elif index in each.inputs and stated.type in NUMPY:
                tensors[index] = question.input(stated.shape, stated.type)
                tensors[index].quantization = stated.quantization
            else:
                tensors[index] = DraftTensor(stated.name, stated.type, stated.shape, quantization=stated.quantization)
        read = [tensors[index] if index >= 0 else None for index in each.inputs]
        results = [tensors[index] for index in each.outputs]
        fields = (
            {}
            if each.options is None
            else dict(each.options._asdict() if hasattr(each.options, "_asdict") else vars(each.options))
        )
        operator = DraftOperator(each.name, read, results, fields)
        question.draft.operators.append(operator)
        question.draft.outputs = results
        yield form_of(operator), question


def answer(judge: Judge, question: Question, folder: Path) -> str:
    """Return the accelerator's answer: "" where it takes the operator and computes it right."""
    place, feeds = folder / "question.tflite", folder / "feeds.npz"
    place.write_bytes(file_of(question.draft))
    np.savez(feeds, **question.feeds)
    return text_of(judge.ask(place, feeds=str(feeds)))


def text_of(verdict: GpuVerdict) -> str:
    """Return an answer as the table has it."""
    if verdict.is_right:
        return ""
    if verdict.is_whole:
        return (
            verdict.problem.splitlines()[0][:100] if verdict.problem else "computes other numbers than the CPU kernels"
        )
    reasons = [each.partition(": ")[2].strip() for each in verdict.reasons if ": " in each]
    words = reasons[0] if reasons else verdict.problem.splitlines()[0] if verdict.problem else "refused"
    for name in ("result", "input", "values", "places", "non-constant tensor"):
        words = words.removesuffix(name).strip()
    return words[:100].strip()


def asked(chosen: Iterable[Question]) -> Iterator[tuple[str, str]]:
    """Yield form and answer of questions that LiteRT's CPU kernels answer."""
    with tempfile.TemporaryDirectory() as scratch, Judge(LIMIT_SECONDS) as judge:
        for question in chosen:
            given = answer(judge, question, Path(scratch))
            if "tflite/kernels/" not in given and "failed to invoke" not in given:
                yield form_of(question.draft.operators[0]), given


def text_of_table(found: dict[str, str]) -> str:
    """Return the table as its file has it."""
    return json.dumps(dict(sorted(found.items())), indent=0) + "\n"


def main() -> None:
    names = sys.argv[1:]
    files = [name for name in names if name.endswith(".tflite")]
    families = [name for name in names if name not in files]
    known: dict[str, str] = json.loads(TABLE.read_text()) if names else {}
    found: dict[str, str] = {}
    for count, (form, given) in enumerate(asked(questions(*families)) if not files or families else ()):
        if given or form not in found:  # one operator that is refused counts for all of its form
            found[form] = given
        if count % 200 == 0:
            print(count, "questions,", len(found), "forms", file=sys.stderr, flush=True)
    known |= found
    for name in files:
        operators = cut_out(load(Path(name)).subgraphs[0])
        chosen = {form: question for form, question in operators if form not in known and "?" not in form}
        for form, given in asked(chosen.values()):
            known[form] = given
            print(form, "->", given or "taken", flush=True)
    TABLE.write_text(text_of_table(known))


if __name__ == "__main__":
    main()
