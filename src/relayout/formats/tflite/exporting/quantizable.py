"""Builtins that quantizers know, for those that they leave in float. A number changes by a rounding at most.

Always, since LiteRT takes no longer for them:

    SQUARE(x)                             ->  MUL(x, x)
    NEG(x)                                ->  MUL(x, -1)
    DIV(x, c)                             ->  MUL(x, 1/c)      of powers of two, which is exact
    SPLIT_V(x)                            ->  STRIDED_SLICEs
    MUL(x, MUL(RELU6(ADD(x, 3)), 1/6))    ->  HARD_SWISH(x)

Where the file is quantized afterwards, since LiteRT takes longer for them on real numbers:

    DIV(x, c)           ->  MUL(x, 1/c), where nobody rounds it to a whole number
    SPLIT(x)            ->  STRIDED_SLICEs, where nobody reads some part
    RELU_0_TO_1(x)      ->  MUL(x, 6), RELU6, MUL(1/6)
    LEAKY_RELU(x)       ->  ADD(x, RELU(MUL(x, alpha - 1))), where the product applies the RELU; PRELU(x, a) likewise
    ABS(x)              ->  MAXIMUM(x, MUL(x, -1))
    MINIMUM(x, y)       ->  SUB(y, RELU(SUB(y, x)))
    REDUCE_MAX(x)       ->  MAX_POOL_2D, or REDUCE_MIN between products with -1
    DEPTH_TO_SPACE(x)   ->  SPLIT, CONCATENATION and a view; SPACE_TO_DEPTH likewise
    RELU6(x)            ->  ADD(x, 0) that applies it, where no other operator does; RELU(x) for LiteRT
    GATHER(table, i)    ->  EMBEDDING_LOOKUP, whose table may be integers or halves while all else is float

Where LiteRT runs the integers, since it takes less time for these:

    HARD_SWISH(x)       ->  MUL(MUL(x, 1/6), RELU6(ADD(x, 3)))
    MUL(MUL(x, f), c)   ->  MUL(x, MUL(f, c)), where f and the constant have fewer elements than x

Where others run them, of which an NPU reads the constants again for each pixel:

    ADD(MUL(x, a), b)   ->  DEPTHWISE_CONV_2D(x, a, b), of an image or rows and a number for each channel

Where others run them, since an NPU divides by nothing that is computed:

    DIV(x, SQRT(s))              ->  MUL(x, RSQRT(s))
    DIV(x, MAXIMUM(SQRT(s), e))  ->  MUL(x, RSQRT(MAXIMUM(s, e²))); likewise of a tiny number that is added
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import frexp, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relayout.formats.tflite.container.enums import ActivationFunctionType, Padding, TensorType
from relayout.formats.tflite.exporting.draft import Draft, DraftOperator, DraftTensor, all_known, known
from relayout.formats.tflite.exporting.rewriting import Form, Rewriting, rewrite_operators
from relayout.formats.tflite.exporting.tidying import remove_unread

ROUNDING = frozenset(["CAST", "CEIL", "FLOOR", "FLOOR_DIV", "FLOOR_MOD", "ROUND", "EQUAL", "NOT_EQUAL"])
"""Operators in which a rounding of an operand may change the result by a whole number."""
FUSED = "fused_activation_function"
SIX = 6.0
FAR = 64.0  # a bound far above usual numbers: 8 bits hold no difference to it
GUARDS = {"ADD": 1.01e-5, "MAXIMUM": float("inf")}
"""Operators that keep a root from 0 -> the largest number of which the square may do so instead.

Of a maximum that is exact. A sum is off by as much as the number is beside the root.
"""
TINY = 1e-30  # the least that such a square may be
TOLERANCE = 1e-5  # how far constants of an activation may be from those of its definition
TO_READ_WEIGHTS = ("dynamic", "float16")  # kinds of quantization that change weights alone
STATIC = ("int8", "int16x8")
"""Kinds that change what is computed: the quantizer makes no integers of the state of a fused LSTM."""


def make_quantizable(
    draft: Draft,  # the graph, before activations are fused
    quantization: str,  # the kind of quantization that follows; "": what a user may do
    *,
    as_source: bool,  # True if the operators are those of a `.tflite`, which keeps them where no quantization follows
    for_litert: bool,  # True if LiteRT's kernels run it: an NPU and a microcontroller have tables for functions
) -> None:
    """Write builtins that quantizers leave in float as others, in place."""
    if as_source and not quantization:
        return
    _Pass(draft, ALWAYS).run()
    if quantization in TO_READ_WEIGHTS:
        _Pass(draft, OF_TABLES).run()
    elif quantization in STATIC:
        _Pass(draft, {**FOR_INTEGERS, **(FOR_LITERT if for_litert else FOR_OTHERS)}).run()
    remove_unread(draft)


def fuse_lone_activations(draft: Draft, quantization: str, *, for_litert: bool) -> None:
    """Let a sum with 0 apply each activation that no operator before it does, in place, where activations are integers.

    Args:
        draft: the graph, behind fusion.
        quantization: the kind of quantization that follows; "": none.
        for_litert: True if LiteRT's kernels run it: its RELU of bytes takes 8 ns an element, its ADD a thirtieth.
    """
    if quantization in STATIC:
        names = ("RELU6", "RELU_N1_TO_1", *(("RELU",) if for_litert and quantization == "int8" else ()))

        def lone_activation(_: _Pass, op: Rewriting) -> Results:
            kind = ActivationFunctionType[op.operator.name]
            return op.each("ADD", op.operands[0], 0.0, fused_activation_function=kind)

        _Pass(draft, dict.fromkeys(names, lone_activation)).run()


Results = DraftTensor | list[DraftTensor] | None
"""The results of an operator that was written otherwise; None where it stays."""


class _Pass:
    """A pass over the operators of a draft.

    Args:
        draft: the graph.
        forms: builtin -> what writes it as others; None where it stays.
    """

    def __init__(self, draft: Draft, forms: Mapping[str, Callable[[_Pass, Rewriting], Results]]) -> None:
        self.draft, self.forms = draft, forms
        self.producers = draft.producers()
        self.readers = draft.readers()
        self.rounded = {
            tensor for operator in draft.operators if operator.name in ROUNDING for tensor in operator.inputs
        }

    def run(self) -> None:
        """Rewrite every operator that has a form."""
        rewrite_operators(self.draft, 0, self._form_of)

    def _form_of(self, operator: DraftOperator) -> Form | None:
        # Real numbers of single precision that stand for themselves.
        is_real = all(each.type == TensorType.FLOAT32 and each.quantization is None for each in operator.outputs)
        form = self.forms.get(operator.name) if is_real and not operator.is_restored else None
        return None if form is None else partial(form, self)

    # Always.

    def exact_quotient(self, op: Rewriting) -> Results:
        """Write DIV by powers of two, and a hard swish that ends in a quotient."""
        product = self.hard_swish(op)
        return self._quotient(op, exact=True) if product is None else product

    def quotient(self, op: Rewriting) -> Results:
        """Write DIV by other constants."""
        return None if op.result in self.rounded else self._quotient(op, exact=False)

    def by_root(self, op: Rewriting) -> Results:
        """Write DIV by a root. A small number may keep the root from 0; no integer stands for one that small."""
        x, divisor = op.operands
        root, guard, least = self._root_and_guard(divisor)
        if root is None or not 0 <= least <= GUARDS.get(guard, 0.0) or op.result in self.rounded:
            return self.quotient(op)
        (total,), fused = root.inputs, op.fused
        assert total is not None
        if guard:
            total = op.each(guard, total, max(least * least, TINY))
        return op.each("MUL", x, op.each("RSQRT", total), **fused)

    def _root_and_guard(self, divisor: DraftTensor) -> tuple[DraftOperator | None, str, float]:
        """Return the SQRT that a divisor is, and the operator and the number that keep it from 0, if there are any."""
        before = self.producers.get(divisor)
        if before is None or before.options.get(FUSED):
            return None, "", 0.0
        if before.name == "SQRT":
            return before, "", 0.0
        for root, number in (before.inputs, before.inputs[::-1]) if before.name in GUARDS else ():
            least = _number(number)
            if least is not None and root is not None:
                inner, second, _ = self._root_and_guard(root)
                return (None if second else inner), before.name, least
        return None, "", 0.0

    def _quotient(self, op: Rewriting, *, exact: bool) -> Results:
        x, divisor = op.operands
        array = divisor.array
        if x.data is not None or array is None or not np.all(np.isfinite(array)) or not np.all(array):
            return None
        reciprocal = (1 / array.astype(np.float64)).astype(np.float32)
        powers = all(abs(frexp(each)[0]) == 0.5 for each in array.reshape(-1).tolist())
        if (exact and not powers) or not np.all(np.isfinite(reciprocal)):
            return None
        return op.each("MUL", x, reciprocal, **op.fused)

    def uneven_split(self, op: Rewriting) -> Results:
        """Write SPLIT_V of known sizes."""
        x, sizes, axis = op.operands
        if sizes.array is None or axis.array is None:
            return None
        place = int(axis.array.reshape(-1)[0]) % len(x.dims)
        if not isinstance(x.dims[place], int) or (sizes.array < 0).any():
            return None
        return self._slices(op, x, place, sizes.array.reshape(-1).tolist())

    def unread_split(self, op: Rewriting) -> Results:
        """Write a SPLIT with an unread part as slices: that part has no memory, and the quantizer reads it."""
        axis, x = op.operands
        parts = op.operator.outputs
        if axis.array is None or all(part in self.readers for part in parts):
            return None
        place = int(axis.array.reshape(-1)[0]) % len(x.dims)
        return self._slices(op, x, place, [part.dims[place] for part in parts])

    @staticmethod
    def _slices(op: Rewriting, x: DraftTensor, place: int, sizes: Sequence[Any]) -> list[DraftTensor]:
        """Return parts of some sizes along an axis."""
        begin, rank = 0, len(x.dims)
        masks: dict[str, Any] = dict.fromkeys(("begin_mask", "end_mask"), (1 << rank) - 1 & ~(1 << place))
        strides, parts = op.ints([1] * rank), []
        for result, size in zip(op.operator.outputs, sizes, strict=True):
            limits = [op.ints([end if each == place else 0 for each in range(rank)]) for end in (begin, begin + size)]
            parts.append(op.emit("STRIDED_SLICE", [x, *limits, strides], result.dims, **masks))
            begin += size
        return parts

    def hard_swish(self, op: Rewriting) -> Results:
        """Write a product of x with RELU6(x + 3) / 6 as one operator."""
        factors = self._factors(op.operator)
        numbers = [each for each in factors if isinstance(each, float)]
        tensors = [each for each in factors if not isinstance(each, float)]
        if len(tensors) != 2 or abs(prod(numbers) * SIX - 1) > TOLERANCE:
            return None
        for x, gate in (tensors, tensors[::-1]):
            if self._raised_and_clipped(gate) is x:
                return op.each("HARD_SWISH", x)
        return None

    def _factors(self, operator: DraftOperator) -> list[DraftTensor | float]:
        """Return the factors of a product; a product or a quotient by a number that it alone reads has its own."""
        factors: list[DraftTensor | float] = []
        for place, each in enumerate(operator.inputs):
            before = None if each is None else self.producers.get(each)
            if each is None or operator.options.get(FUSED):
                return []
            if (value := _number(each)) is not None:
                factors.append(1 / (value or 1.0) if operator.name == "DIV" and place == 1 else value)
            elif before is not None and before.name in ("MUL", "DIV") and self.readers.get(each) == 1:
                factors += self._factors(before)
            else:
                factors.append(each)
        is_by_number = isinstance(factors[-1], float)
        return factors if operator.name == "MUL" or is_by_number else []

    def _raised_and_clipped(self, gate: DraftTensor) -> DraftTensor | None:
        """Return x of RELU6(x + 3)."""
        clip = self.producers.get(gate)
        total = None if clip is None or clip.name != "RELU6" else self.producers.get(clip.inputs[0] or gate)
        if total is None or total.name != "ADD" or self.readers.get(gate) != 1:
            return None
        for x, three in (total.inputs, total.inputs[::-1]):
            if abs((_number(three) or 0.0) - 3.0) < TOLERANCE:
                return x
        return None

    # Before a quantization.

    def gated(self, op: Rewriting) -> Results:
        """Write HARD_SWISH. A sixth of x has the integers of x, so that no number is rounded once more."""
        (x,) = op.operands
        gate = op.each("RELU6", op.add(x, 3.0))
        return op.mul(op.mul(x, 1 / SIX), gate)

    def small_factor(self, op: Rewriting) -> Results:
        """Write a product with a constant of a product with a small factor, such as the inverse root of a variance."""
        for product, constant in (op.operands, op.operands[::-1]):
            before = self.producers.get(product)
            is_product = before is not None and before.name == "MUL" and self.readers.get(product) == 1
            if constant.data is None or before is None or not is_product or before.options.get(FUSED):
                continue
            for x, factor in (before.inputs, before.inputs[::-1]):
                if x is None or factor is None or factor.data is not None or x.dims != op.result.dims:
                    continue
                if all_known(x.dims) and factor.is_static and prod(factor.shape) * prod(constant.shape) < prod(x.shape):
                    return op.each("MUL", x, op.mul(factor, constant), **op.fused)
        return None

    def affine(self, op: Rewriting) -> Results:
        """Write a product and a sum with a number for each channel."""
        product, bias = self._with_channels(op.operator)
        before = None if product is None else self.producers.get(product)
        if product is None or bias is None or before is None or before.name != "MUL" or self.readers.get(product) != 1:
            return None
        x, factor = self._with_channels(before)
        if x is None or factor is None or before.options.get(FUSED):
            return None
        options: dict[str, Any] = {"padding": Padding.VALID, "stride_h": 1, "stride_w": 1, "depth_multiplier": 1}
        image = op.reshape(x, (1, *x.dims)) if len(x.dims) == 3 else x
        inputs = [image, op.const(factor.reshape(1, 1, 1, -1), what="weights"), op.const(bias.reshape(-1), what="bias")]
        return op.reshape(op.emit("DEPTHWISE_CONV_2D", inputs, image.dims, **options, **op.fused), x.dims)

    def _with_channels(self, operator: DraftOperator) -> tuple[DraftTensor | None, NDArray[np.generic] | None]:
        """Return the image or rows that an operator reads, and its other operand, a constant for each channel."""
        for x, other in (operator.inputs, operator.inputs[::-1]):
            array, dims = None if other is None else other.array, operator.outputs[0].dims
            is_image = x is not None and x.data is None and x.dims == dims
            is_image = is_image and (len(dims) == 4 or (len(dims) == 3 and all_known(dims)))
            if is_image and array is not None and array.size > 1 and array.size == array.shape[-1] == dims[-1]:
                return x, array
        return None, None

    def prelu(self, op: Rewriting) -> Results:
        """Write LEAKY_RELU and PRELU: what is added to x is 0 above 0."""
        x, *slopes = op.operands
        slope = slopes[0] if slopes else op.const(np.array(op.operator.options.get("alpha", 0.0), np.float32))
        if slope.array is not None and (slope.array <= 1).all():
            return op.add(x, op.each("RELU", op.mul(x, slope.array - 1)))
        return op.add(x, op.mul(op.each("RELU", op.mul(x, -1.0)), op.sub(1.0, slope)))

    def minimum(self, op: Rewriting) -> Results:
        """Write MINIMUM: `c - relu(c - x)`, but `-max(-x, -c)` where no difference to a large c is exact."""
        x, bound = op.operands
        if bound.array is not None and np.abs(bound.array).max(initial=0) > FAR:
            return op.mul(op.maximum(op.mul(x, -1.0), op.const(-bound.array)), -1.0)
        return op.sub(bound, op.each("RELU", op.sub(bound, x)))

    def greatest(self, op: Rewriting) -> Results:
        """Write REDUCE_MAX: over height and width as a pool."""
        (x, axes), sides = op.operands, op.operands[0].dims[1:3]
        if axes.array is None:
            return None
        places = sorted(axis % len(x.dims) for axis in axes.array.reshape(-1).tolist())
        if places == [1, 2] and len(x.dims) == 4 and all_known(sides):
            height, width = known(sides)
            options: dict[str, Any] = {"filter_height": height, "filter_width": width, "stride_h": 1, "stride_w": 1}
            return op.emit("MAX_POOL_2D", [x], (x.dims[0], 1, 1, x.dims[3]), padding=Padding.VALID, **options)
        return op.mul(op.same(op.mul(x, -1.0), axes, name="REDUCE_MIN"), -1.0)

    def depth_to_space(self, op: Rewriting) -> Results:
        """Write `n h w (b1 b2 c) -> n (h b1) (w b2) c`: the parts of one b1 stand beside each other along w."""
        (x,) = op.operands
        is_known = x.is_static and op.result.is_static
        return self._joined(op, x, op.operator.options["block_size"], (3, 2)) if is_known else None

    def space_to_depth(self, op: Rewriting) -> Results:
        """Write what undoes it."""
        (x,), result, block = op.operands, op.result, op.operator.options["block_size"]
        if not x.is_static or not result.is_static:
            return None
        count, rows, columns, channels = result.shape
        view = op.reshape(x, (count, rows, columns * block, channels // block))
        return self._joined(op, view, block, (2, 3))

    def _joined(self, op: Rewriting, x: DraftTensor, count: int, axes: tuple[int, int]) -> DraftTensor:
        """Split a tensor along one axis and join the parts along another."""
        split, joined = axes
        dims = list(x.shape)
        dims[split] //= count
        kinds = [(x.type, tuple(dims))] * count
        return op.concat(op.outputs("SPLIT", [op.ints(np.array(split)), x], kinds, num_splits=count), joined)

    def embedding(self, op: Rewriting) -> Results:
        """Write GATHER of rows of a constant matrix."""
        table, places = op.operands
        options = op.operator.options
        if table.data is None or len(table.dims) != 2 or options.get("axis") or options.get("batch_dims"):
            return None
        if places.type != TensorType.INT32 or not places.dims or not places.is_static:
            return None
        count = prod(places.shape)
        rows = op.reshape(places, (count,))
        return op.emit("EMBEDDING_LOOKUP", [rows, table], (count, table.dims[1]), op.result.type)


def _number(tensor: DraftTensor | None) -> float | None:
    """Return the one number that a constant is; None of any other tensor."""
    array = None if tensor is None else tensor.array
    return float(array.reshape(-1)[0]) if array is not None and array.size == 1 else None


FormOfPass = Callable[[_Pass, Rewriting], Results]
ALWAYS: Mapping[str, FormOfPass] = {
    "SQUARE": lambda _, op: op.each("MUL", op.operands[0], op.operands[0], **op.fused),
    "NEG": lambda _, op: op.mul(op.operands[0], -1.0),
    "DIV": _Pass.exact_quotient,
    "SPLIT_V": _Pass.uneven_split,
    "MUL": _Pass.hard_swish,
}
FOR_INTEGERS: Mapping[str, FormOfPass] = {
    "DIV": _Pass.quotient,
    "SPLIT": _Pass.unread_split,
    "RELU_0_TO_1": lambda _, op: op.mul(op.each("RELU6", op.mul(op.operands[0], SIX)), 1 / SIX),
    "LEAKY_RELU": _Pass.prelu,
    "PRELU": _Pass.prelu,
    "ABS": lambda _, op: op.maximum(op.operands[0], op.mul(op.operands[0], -1.0)),
    "MINIMUM": _Pass.minimum,
    "REDUCE_MAX": _Pass.greatest,
    "DEPTH_TO_SPACE": _Pass.depth_to_space,
    "SPACE_TO_DEPTH": _Pass.space_to_depth,
}
FOR_LITERT: Mapping[str, FormOfPass] = {"HARD_SWISH": _Pass.gated, "MUL": _Pass.small_factor}
FOR_OTHERS: Mapping[str, FormOfPass] = {"ADD": _Pass.affine, "DIV": _Pass.by_root}
OF_TABLES: Mapping[str, FormOfPass] = {"GATHER": _Pass.embedding}
