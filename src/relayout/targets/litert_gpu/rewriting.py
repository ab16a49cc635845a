"""Operators of a `.tflite` in forms that LiteRT's GPU accelerator takes.

An operator that the accelerator does not take is written as others, until it takes them all; where no form leads there,
it stays as it is, and the report names it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relayout.formats.tflite.container.model import Quantization, array_content
from relayout.formats.tflite.elementwise import FUNCTIONS, activated
from relayout.formats.tflite.exporting.draft import NUMPY, NUMPY_TYPES, Draft, DraftOperator, DraftTensor, known
from relayout.formats.tflite.exporting.rewriting import Form, Rewriting
from relayout.formats.tflite.exporting.tidying import tidy_reshapes
from relayout.targets.litert_gpu.operator_form import reason_of

DEEPEST = 8  # forms of forms that are tried
LARGEST_CONSTANT = 1 << 24  # elements up to which a constant is computed
SHARED = 1 << 12  # elements below which equal constants are one


class GpuRewriting(Rewriting):
    """The operators that stand for one, under construction: with constants from files, and as the accelerator wants."""

    def constant_array(self, tensor: DraftTensor) -> NDArray[Any] | None:
        """Return the numbers of a constant, also of one that lies in a file."""
        return array_of(tensor)

    def const(self, array: NDArray[Any], quantization: Quantization | None = None, what: str = "") -> DraftTensor:
        """Add a constant; a long one is not compared with others."""
        if array.size < SHARED:
            return super().const(array, quantization, what)
        array, name = np.asarray(array, order="C"), self.draft.unique(f"{self.name}/{what or 'constant'}")
        return DraftTensor(name, NUMPY_TYPES[array.dtype.name], array.shape, array_content(array), array, quantization)

    def stretch(self, tensor: DraftTensor, dims: Sequence[int | str]) -> DraftTensor:
        """Return a tensor stretched to extents; a computed one is multiplied by ones of as many axes."""
        extents = tuple(map(int, dims))
        if tensor.dims == extents:
            return tensor
        if (array := self.constant_array(tensor)) is not None and prod(extents) <= LARGEST_CONSTANT:
            return self.const(np.broadcast_to(array, extents), tensor.quantization)
        own = (1,) * (len(extents) - len(tensor.dims)) + tensor.dims
        ones = tuple(1 if mine == dim else dim for mine, dim in zip(own, extents, strict=True))
        return self.mul(self.reshape(tensor, own), self.const(np.ones(ones, NUMPY[tensor.type])))

    def part(self, tensor: DraftTensor, axis: int, begin: int, size: int) -> DraftTensor:
        """Return a run of elements along an axis, by a SLICE that states all extents."""
        begins, dims = [0] * len(tensor.dims), list(tensor.dims)
        begins[axis], dims[axis] = begin, size
        if dims == list(tensor.dims):
            return tensor
        return self.emit("SLICE", [tensor, self.ints(begins), self.ints(known(tuple(dims)))], tuple(dims))


def sizes_of(tensor: DraftTensor) -> list[int]:
    """Return the extents of a tensor, all of which are known."""
    return [int(dim) for dim in tensor.dims]


def rewrite(
    draft: Draft,  # the graph
    forms: Mapping[str, Sequence[Form]],  # builtin -> its forms, the best first
    general: Sequence[Form],  # forms of any builtin, which are tried before those
) -> int:
    """Write operators that the accelerator does not take in forms that it takes, in place.

    Returns:
        The number of operators that are written otherwise.
    """
    count, operators = 0, list[DraftOperator]()
    sources, draft.operators = draft.operators, []
    for operator in sources:
        if _is_folded(draft, operator):
            continue
        written = None if not reason_of(operator) else _written(draft, operator, forms, general)
        count += written is not None
        for each in written or ():
            each.node = operator.node
        operators += [operator] if written is None else written
    draft.operators = operators
    tidy_reshapes(draft)
    return count


def _written(
    draft: Draft, operator: DraftOperator, forms: Mapping[str, Sequence[Form]], general: Sequence[Form], depth: int = 0
) -> list[DraftOperator] | None:
    """Return operators that stand for one, all of which are taken; None where there are none."""
    tensors = (*operator.inputs, *operator.outputs)
    if not all(tensor is None or tensor.is_static for tensor in tensors):
        return None
    # RESHAPEs between forms of few axes are merged behind this: one of more axes that is left is between two operators
    # that are not taken.
    for form in (*general, *forms.get(operator.name, ())) if depth < DEEPEST else ():
        written: list[DraftOperator] = []
        operators = _operators_of(draft, operator, form)
        for each in operators or ():
            if _is_folded(draft, each):
                continue
            is_taken = each.name == "RESHAPE" or not reason_of(each)
            parts = [each] if is_taken else _written(draft, each, forms, general, depth + 1)
            if parts is None:
                break
            written += parts
        else:
            if operators is not None:
                return written
    return None


def _operators_of(draft: Draft, operator: DraftOperator, form: Form) -> list[DraftOperator] | None:
    """Return the operators of a form, which give what an operator gives; None where it cannot be written so."""
    writing = GpuRewriting(draft, operator)
    results = form(writing)
    if results is not None:
        writing.finish(results)
    operators, draft.operators = draft.operators, []
    return None if results is None else operators


def _is_folded(draft: Draft, operator: DraftOperator) -> bool:
    """Compute an operator of constants, whose results are such then; False where it is none, or cannot be computed."""
    compute, results = _function_of(operator), operator.outputs
    if compute is None or any(result in draft.outputs or result.quantization is not None for result in results):
        return False
    if not all(result.is_static and prod(result.shape) <= LARGEST_CONSTANT for result in results):
        return False
    if any(tensor is not None and (tensor.data is None or tensor.quantization) for tensor in operator.inputs):
        return False
    arrays = [None if tensor is None else array_of(tensor) for tensor in operator.inputs]
    if any(array is None and tensor is not None for array, tensor in zip(arrays, operator.inputs, strict=True)):
        return False
    with np.errstate(all="ignore"):
        computed = compute(*arrays)
    for result, numbers in zip(results, computed if len(results) > 1 else [computed], strict=True):
        array: NDArray[Any] = np.ascontiguousarray(numbers, NUMPY[result.type]).reshape(result.shape)
        result.data, result.array = array_content(array), array
    return True


def _function_of(operator: DraftOperator) -> Callable[..., Any] | None:
    """Return what makes the results of an operator's operands; None where nobody computes it here."""
    if operator.name in FUNCTIONS:
        return partial(FUNCTIONS[operator.name], operator.options)
    return partial(COMPUTED[operator.name], operator) if operator.name in COMPUTED else None


def array_of(tensor: DraftTensor) -> NDArray[Any] | None:
    """Return the numbers of a constant; None where it is none, or a very large one."""
    if tensor.array is not None:
        return tensor.array
    if tensor.data is None or tensor.type not in NUMPY or prod(tensor.shape) > LARGEST_CONSTANT:
        return None
    raw = tensor.data.tobytes() if isinstance(tensor.data, np.ndarray) else b"".join(tensor.data.chunks())
    return np.frombuffer(raw, NUMPY[tensor.type]).reshape(tensor.shape)


def _product(operator: DraftOperator, a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    a = a.swapaxes(-1, -2) if operator.options.get("adj_x") else a
    return np.asarray(np.matmul(a, b.swapaxes(-1, -2) if operator.options.get("adj_y") else b))


def _dense(operator: DraftOperator, x: NDArray[Any], weights: NDArray[Any], *bias: NDArray[Any]) -> NDArray[Any]:
    product = np.matmul(x.reshape(-1, weights.shape[-1]), weights.T)
    return activated(operator.options, product + bias[0] if bias else product)


def _reduction(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda operator, a, axes: function(a, axis=tuple({int(axis) % a.ndim for axis in axes.reshape(-1)}))


def _scattered(
    operator: DraftOperator, places: NDArray[Any], updates: NDArray[Any], shape: NDArray[Any]
) -> NDArray[Any]:
    total = np.zeros(operator.outputs[0].shape, updates.dtype)
    np.add.at(total, tuple(np.moveaxis(places, -1, 0)), updates)
    return total


COMPUTED: Mapping[str, Callable[..., Any]] = {
    **dict.fromkeys(("CAST", "DEQUANTIZE"), lambda operator, a: a),
    **dict.fromkeys(
        ("RESHAPE", "EXPAND_DIMS", "SQUEEZE"), lambda operator, a, *_: a.reshape(operator.outputs[0].shape)
    ),
    "TRANSPOSE": lambda operator, a, perm: a.transpose(tuple(map(int, perm))),
    "BROADCAST_TO": lambda operator, a, shape: np.broadcast_to(a, operator.outputs[0].shape),
    "FILL": lambda operator, shape, value: np.broadcast_to(value, operator.outputs[0].shape),
    "ZEROS_LIKE": lambda operator, a: np.zeros_like(a),
    "CONCATENATION": lambda operator, *arrays: np.concatenate(arrays, int(operator.options["axis"])),
    "PACK": lambda operator, *arrays: np.stack(arrays, int(operator.options.get("axis", 0))),
    "TILE": lambda operator, a, count: np.tile(a, tuple(map(int, count))),
    "BATCH_MATMUL": _product,
    "SUM": _reduction(np.sum),
    "MEAN": _reduction(np.mean),
    "REDUCE_MAX": _reduction(np.max),
    "REDUCE_MIN": _reduction(np.min),
    "SCATTER_ND": _scattered,
    "SPLIT": lambda operator, axis, a: np.split(a, len(operator.outputs), int(axis.reshape(-1)[0])),
    "FULLY_CONNECTED": _dense,
}
"""Builtins that are computed where all operands are constants: the accelerator wants an operand that it is fed."""
