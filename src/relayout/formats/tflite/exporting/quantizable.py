"""Builtins that quantizers know, for those that they leave in float. A number changes by a rounding at most.

Always, since LiteRT takes no longer for them:

    SQUARE(x)                             ->  MUL(x, x)
    NEG(x)                                ->  MUL(x, -1)
    DIV(x, c)                             ->  MUL(x, 1/c)      of powers of two, which is exact
    SPLIT_V(x)                            ->  STRIDED_SLICEs
    MUL(x, MUL(RELU6(ADD(x, 3)), 1/6))    ->  HARD_SWISH(x)

Where the file is quantized afterwards, since LiteRT takes longer for them on real numbers:

    DIV(x, c)           ->  MUL(x, 1/c), where nobody rounds it to a whole number
    RELU_0_TO_1(x)      ->  MUL(x, 6), RELU6, MUL(1/6)
    LEAKY_RELU(x)       ->  MAXIMUM(x, MUL(x, alpha))
    PRELU(x, a)         ->  SUB(RELU(x), MUL(RELU(MUL(x, -1)), a))
    ABS(x)              ->  MAXIMUM(x, MUL(x, -1))
    MINIMUM(x, y)       ->  SUB(y, RELU(SUB(y, x)))
    REDUCE_MAX(x)       ->  MAX_POOL_2D, or REDUCE_MIN between products with -1
    DEPTH_TO_SPACE(x)   ->  SPLIT, CONCATENATION and a view; SPACE_TO_DEPTH likewise
    RELU6(x)            ->  ADD(x, 0) that applies it, where no other operator does
    GATHER(table, i)    ->  EMBEDDING_LOOKUP, whose table may be integers or halves while all else is float

Where LiteRT runs the integers, in whose kernel for it they take longer:

    HARD_SWISH(x)       ->  MUL(MUL(x, 1/6), RELU6(ADD(x, 3)))

Where others run them, of which an NPU reads the constants again for each pixel:

    ADD(MUL(x, a), b)   ->  DEPTHWISE_CONV_2D(x, a, b), of an image and a number for each channel
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import frexp, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relayout.formats.tflite.container.enums import ActivationFunctionType, Padding, TensorType
from relayout.formats.tflite.exporting.draft import Dims, Draft, DraftOperator, DraftTensor
from relayout.formats.tflite.exporting.tidying import remove_unread

ROUNDING = frozenset(["CAST", "CEIL", "FLOOR", "FLOOR_DIV", "FLOOR_MOD", "ROUND", "EQUAL", "NOT_EQUAL"])
"""Operators in which a rounding of an operand may change the result by a whole number."""
SIX = 6.0
TOLERANCE = 1e-5
"""How far constants of an activation may be from those of its definition."""
TO_READ_WEIGHTS = ("dynamic", "float16")
"""Kinds of quantization that change weights alone."""
STATIC = ("int8", "int16x8")
"""Kinds that change what is computed: the quantizer makes no integers of the state of a fused LSTM."""


def make_quantizable(draft: Draft, quantization: str, *, as_source: bool, for_litert: bool) -> None:
    """Write builtins that quantizers leave in float as others, in place.

    Args:
        draft: the graph, before activations are fused.
        quantization: the kind of quantization that follows; "": what a user may do.
        as_source: True if the operators are those of a `.tflite`, which keeps them where no quantization follows.
        for_litert: True if LiteRT's kernels run it: an NPU and a microcontroller have tables for functions.
    """
    if as_source and not quantization:
        return
    _Rewriting(draft, ALWAYS).run()
    if quantization in TO_READ_WEIGHTS:
        _Rewriting(draft, OF_TABLES).run()
    elif quantization in STATIC:
        _Rewriting(draft, {**FOR_INTEGERS, **(FOR_LITERT if for_litert else FOR_OTHERS)}).run()
    remove_unread(draft)


def fuse_lone_activations(draft: Draft, quantization: str) -> None:
    """Let a sum with 0 apply each activation that no operator before it does, in place, where activations are integers.

    Args:
        draft: the graph, behind fusion.
        quantization: the kind of quantization that follows; "": none.
    """
    if quantization in STATIC:
        _Rewriting(draft, {"RELU6": _Rewriting.lone_activation, "RELU_N1_TO_1": _Rewriting.lone_activation}).run()


class _Rewriting:
    """A pass over the operators of a draft.

    Args:
        draft: the graph.
        forms: builtin -> what writes it as others; False where it stays.
    """

    def __init__(self, draft: Draft, forms: Mapping[str, Callable[[_Rewriting, DraftOperator], bool]]) -> None:
        self.draft, self.forms = draft, forms
        self.producers = {tensor: operator for operator in draft.operators for tensor in operator.outputs}
        self.readers = draft.readers()
        self.rounded = {
            tensor for operator in draft.operators if operator.name in ROUNDING for tensor in operator.inputs
        }

    def run(self) -> None:
        """Rewrite every operator that has a form."""
        operators = list(self.draft.operators)
        self.draft.operators.clear()
        for operator in operators:
            form = None if operator.is_restored else self.forms.get(operator.name)
            if form is None or not _computes_reals(operator) or not form(self, operator):
                self.draft.operators.append(operator)

    def number(self, value: Any) -> DraftTensor:
        """Return a constant of real numbers."""
        return self.draft.constant("number", np.asarray(value, np.float32))

    def step(
        self,
        name: str,
        inputs: list[DraftTensor | None],
        like: DraftTensor,
        *,
        to: DraftTensor | None = None,
        dims: Dims | None = None,
        **options: Any,
    ) -> DraftTensor:
        """Add an operator and return its result: a tensor such as `like`, or `to` itself."""
        made = self.draft.tensor(f"{like.name}/{name.lower()}", like.type, like.dims if dims is None else dims)
        result = made if to is None else to
        self.draft.add(name, inputs, [result], **options)
        return result

    # Always.

    def square(self, operator: DraftOperator) -> bool:
        """Write SQUARE."""
        (x,) = operator.inputs
        self.draft.add("MUL", [x, x], operator.outputs, **_fused(operator))
        return True

    def negation(self, operator: DraftOperator) -> bool:
        """Write NEG."""
        self.draft.add("MUL", [operator.inputs[0], self.number(-1.0)], operator.outputs)
        return True

    def exact_quotient(self, operator: DraftOperator) -> bool:
        """Write DIV by powers of two, and a hard swish that ends in a quotient."""
        return self.hard_swish(operator) or self._quotient(operator, exact=True)

    def quotient(self, operator: DraftOperator) -> bool:
        """Write DIV by other constants."""
        return operator.outputs[0] not in self.rounded and self._quotient(operator, exact=False)

    def _quotient(self, operator: DraftOperator, *, exact: bool) -> bool:
        x, divisor = operator.inputs
        array = None if divisor is None else divisor.array
        if x is None or x.data is not None or array is None or not np.all(np.isfinite(array)) or not np.all(array):
            return False
        reciprocal = (1 / array.astype(np.float64)).astype(np.float32)
        powers = all(abs(frexp(each)[0]) == 0.5 for each in array.reshape(-1).tolist())
        if (exact and not powers) or not np.all(np.isfinite(reciprocal)):
            return False
        self.draft.add("MUL", [x, self.number(reciprocal)], operator.outputs, **_fused(operator))
        return True

    def uneven_split(self, operator: DraftOperator) -> bool:
        """Write SPLIT_V of known sizes."""
        x, sizes, axis = operator.inputs
        if x is None or sizes is None or sizes.array is None or axis is None or axis.array is None:
            return False
        place, begin, rank = int(axis.array.reshape(-1)[0]) % len(x.dims), 0, len(x.dims)
        if not isinstance(x.dims[place], int) or (sizes.array < 0).any():
            return False
        masks: dict[str, Any] = dict.fromkeys(("begin_mask", "end_mask"), (1 << rank) - 1 & ~(1 << place))
        strides = self.draft.constant("strides", np.ones(rank, np.int32))
        for result, size in zip(operator.outputs, sizes.array.reshape(-1).tolist(), strict=True):
            ends = [np.zeros(rank, np.int32) for _ in range(2)]
            ends[0][place], ends[1][place] = begin, begin + size
            limits = [self.draft.constant(name, end) for name, end in zip(("begin", "end"), ends, strict=True)]
            self.draft.add("STRIDED_SLICE", [x, *limits, strides], [result], **masks)
            begin += size
        return True

    def hard_swish(self, operator: DraftOperator) -> bool:
        """Write a product of x with RELU6(x + 3) / 6 as one operator."""
        factors = self._factors(operator)
        numbers = [each for each in factors if isinstance(each, float)]
        tensors = [each for each in factors if not isinstance(each, float)]
        if len(tensors) != 2 or abs(prod(numbers) * SIX - 1) > TOLERANCE:
            return False
        for x, gate in (tensors, tensors[::-1]):
            if self._raised_and_clipped(gate) is x:
                self.draft.add("HARD_SWISH", [x], operator.outputs)
                return True
        return False

    def _factors(self, operator: DraftOperator) -> list[DraftTensor | float]:
        """Return the factors of a product; a product or a quotient by a number that it alone reads has its own."""
        factors: list[DraftTensor | float] = []
        for place, each in enumerate(operator.inputs):
            before = None if each is None else self.producers.get(each)
            if each is None or operator.options.get("fused_activation_function"):
                return []
            if each.array is not None and each.array.size == 1:
                value = float(each.array.reshape(-1)[0])
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
            array = None if three is None else three.array
            if array is not None and array.size == 1 and abs(float(array.reshape(-1)[0]) - 3.0) < TOLERANCE:
                return x
        return None

    # Before a quantization.

    def clip_to_one(self, operator: DraftOperator) -> bool:
        """Write RELU_0_TO_1."""
        (x,), (result,) = operator.inputs, operator.outputs
        wide = self.step("RELU6", [self.step("MUL", [x, self.number(SIX)], result)], result)
        self.step("MUL", [wide, self.number(1 / SIX)], result, to=result)
        return True

    def gated(self, operator: DraftOperator) -> bool:
        """Write HARD_SWISH. A sixth of x has the integers of x, so that no number is rounded once more."""
        (x,), (result,) = operator.inputs, operator.outputs
        gate = self.step("RELU6", [self.step("ADD", [x, self.number(3.0)], result)], result)
        self.step("MUL", [self.step("MUL", [x, self.number(1 / SIX)], result), gate], result, to=result)
        return True

    def affine(self, operator: DraftOperator) -> bool:
        """Write a product and a sum with a number for each channel."""
        product, bias = self._with_channels(operator)
        before = None if product is None else self.producers.get(product)
        if product is None or bias is None or before is None or before.name != "MUL" or self.readers.get(product) != 1:
            return False
        x, factor = self._with_channels(before)
        if x is None or factor is None or before.options.get("fused_activation_function"):
            return False
        weights = self.draft.constant("weights", factor.reshape(1, 1, 1, -1))
        options: dict[str, Any] = {"padding": Padding.VALID, "stride_h": 1, "stride_w": 1, "depth_multiplier": 1}
        inputs = [x, weights, self.draft.constant("bias", bias.reshape(-1))]
        self.draft.add("DEPTHWISE_CONV_2D", inputs, operator.outputs, **options, **_fused(operator))
        return True

    def _with_channels(self, operator: DraftOperator) -> tuple[DraftTensor | None, NDArray[np.generic] | None]:
        """Return the image that an operator reads, and its other operand, a constant for each channel."""
        for x, other in (operator.inputs, operator.inputs[::-1]):
            array, dims = None if other is None else other.array, operator.outputs[0].dims
            is_image = x is not None and x.data is None and len(dims) == 4 and x.dims == dims
            if is_image and array is not None and array.size > 1 and array.size == array.shape[-1] == dims[-1]:
                return x, array
        return None, None

    def leaky_relu(self, operator: DraftOperator) -> bool:
        """Write LEAKY_RELU with a slope of 0 to 1."""
        (x,), (result,) = operator.inputs, operator.outputs
        alpha = float(operator.options.get("alpha", 0.0))
        if not 0 <= alpha <= 1:
            return False
        self.step("MAXIMUM", [x, self.step("MUL", [x, self.number(alpha)], result)], result, to=result)
        return True

    def prelu(self, operator: DraftOperator) -> bool:
        """Write PRELU."""
        (x, slope), (result,) = operator.inputs, operator.outputs
        below = self.step("RELU", [self.step("MUL", [x, self.number(-1.0)], result)], result)
        above = self.step("RELU", [x], result)
        self.step("SUB", [above, self.step("MUL", [below, slope], result)], result, to=result)
        return True

    def absolute(self, operator: DraftOperator) -> bool:
        """Write ABS."""
        (x,), (result,) = operator.inputs, operator.outputs
        self.step("MAXIMUM", [x, self.step("MUL", [x, self.number(-1.0)], result)], result, to=result)
        return True

    def minimum(self, operator: DraftOperator) -> bool:
        """Write MINIMUM."""
        (x, y), (result,) = operator.inputs, operator.outputs
        self.step("SUB", [y, self.step("RELU", [self.step("SUB", [y, x], result)], result)], result, to=result)
        return True

    def greatest(self, operator: DraftOperator) -> bool:
        """Write REDUCE_MAX: over height and width as a pool."""
        (x, axes), (result,) = operator.inputs, operator.outputs
        if x is None or axes is None or axes.array is None:
            return False
        places = sorted(axis % len(x.dims) for axis in axes.array.reshape(-1).tolist())
        sides = x.dims[1:3]
        if places == [1, 2] and len(x.dims) == 4 and all(isinstance(side, int) for side in sides):
            height, width = (int(side) for side in sides)
            options = {"filter_height": height, "filter_width": width, "stride_h": 1, "stride_w": 1}
            dims: Dims = (x.dims[0], 1, 1, x.dims[3])
            keeps = result.dims == dims
            to = result if keeps else None
            pooled = self.step("MAX_POOL_2D", [x], result, to=to, dims=dims, padding=Padding.VALID, **options)
            if not keeps:
                self._reshape(pooled, result)
            return True
        turned = self.step("MUL", [x, self.number(-1.0)], result, dims=x.dims)
        least = self.step("REDUCE_MIN", [turned, axes], result, **operator.options)
        self.step("MUL", [least, self.number(-1.0)], result, to=result)
        return True

    def depth_to_space(self, operator: DraftOperator) -> bool:
        """Write `n h w (b1 b2 c) -> n (h b1) (w b2) c`: the parts of one b1 stand beside each other along w."""
        (x,), (result,) = operator.inputs, operator.outputs
        if x is None or not x.is_static or not result.is_static:
            return False
        made = self.draft.tensor(f"{result.name}/joined", x.type, x.dims)
        self._joined(x, operator.options["block_size"], made, (3, 2))
        self._reshape(made, result)
        return True

    def space_to_depth(self, operator: DraftOperator) -> bool:
        """Write what undoes it."""
        (x,), (result,) = operator.inputs, operator.outputs
        if x is None or not x.is_static or not result.is_static:
            return False
        block = operator.options["block_size"]
        count, rows, columns, channels = result.shape
        view = self.draft.tensor(f"{result.name}/view", x.type, (count, rows, columns * block, channels // block))
        self._reshape(x, view)
        self._joined(view, block, result, (2, 3))
        return True

    def _joined(self, x: DraftTensor, count: int, result: DraftTensor, axes: tuple[int, int]) -> None:
        """Split a tensor along one axis and join the parts along another; the result gets its extents."""
        split, joined = axes
        dims = list(x.shape)
        dims[split] //= count
        parts = [self.draft.tensor(f"{result.name}/part_{place}", x.type, tuple(dims)) for place in range(count)]
        self.draft.add("SPLIT", [self.draft.constant("axis", np.array(split, np.int32)), x], parts, num_splits=count)
        dims[joined] *= count
        result.dims = tuple(dims)
        self.draft.add("CONCATENATION", [*parts], [result], axis=joined)

    def _reshape(self, source: DraftTensor, result: DraftTensor) -> None:
        self.draft.add("RESHAPE", [source], [result])
        self._shape(result)

    def _shape(self, result: DraftTensor) -> None:
        """Give the RESHAPE that was added last its shape."""
        extents = [dim if isinstance(dim, int) else -1 for dim in result.dims]
        self.draft.operators[-1].inputs.append(self.draft.constant("shape", np.array(extents, np.int32)))

    def lone_activation(self, operator: DraftOperator) -> bool:
        """Write an activation as a sum with 0 that applies it."""
        kind = ActivationFunctionType[operator.name]
        self.draft.add("ADD", [operator.inputs[0], self.number(0.0)], operator.outputs, fused_activation_function=kind)
        return True

    def embedding(self, operator: DraftOperator) -> bool:
        """Write GATHER of rows of a constant matrix."""
        (table, places), (result,) = operator.inputs, operator.outputs
        if table is None or places is None or table.data is None or len(table.dims) != 2:
            return False
        of_rows = not operator.options.get("axis") and not operator.options.get("batch_dims")
        if not of_rows or places.type != TensorType.INT32 or not places.dims or not places.is_static:
            return False
        count = prod(places.shape)
        flat = places
        if len(places.dims) != 1:
            flat = self.draft.tensor(f"{result.name}/places", places.type, (count,))
            self._reshape(places, flat)
        rows = (
            result
            if len(places.dims) == 1
            else self.draft.tensor(f"{result.name}/rows", result.type, (count, table.dims[1]))
        )
        self.draft.add("EMBEDDING_LOOKUP", [flat, table], [rows])
        if rows is not result:
            self._reshape(rows, result)
        return True


def _computes_reals(operator: DraftOperator) -> bool:
    """Return whether an operator gives real numbers of single precision that stand for themselves."""
    return all(each.type == TensorType.FLOAT32 and each.quantization is None for each in operator.outputs)


def _fused(operator: DraftOperator) -> dict[str, Any]:
    kind = operator.options.get("fused_activation_function")
    return {"fused_activation_function": kind} if kind else {}


Form = Callable[[_Rewriting, DraftOperator], bool]
ALWAYS: Mapping[str, Form] = {
    "SQUARE": _Rewriting.square,
    "NEG": _Rewriting.negation,
    "DIV": _Rewriting.exact_quotient,
    "SPLIT_V": _Rewriting.uneven_split,
    "MUL": _Rewriting.hard_swish,
}
FOR_INTEGERS: Mapping[str, Form] = {
    "DIV": _Rewriting.quotient,
    "RELU_0_TO_1": _Rewriting.clip_to_one,
    "LEAKY_RELU": _Rewriting.leaky_relu,
    "PRELU": _Rewriting.prelu,
    "ABS": _Rewriting.absolute,
    "MINIMUM": _Rewriting.minimum,
    "REDUCE_MAX": _Rewriting.greatest,
    "DEPTH_TO_SPACE": _Rewriting.depth_to_space,
    "SPACE_TO_DEPTH": _Rewriting.space_to_depth,
}
FOR_LITERT: Mapping[str, Form] = {"HARD_SWISH": _Rewriting.gated}
FOR_OTHERS: Mapping[str, Form] = {"ADD": _Rewriting.affine}
OF_TABLES: Mapping[str, Form] = {"GATHER": _Rewriting.embedding}
