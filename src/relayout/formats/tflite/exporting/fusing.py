"""Fusions that the schema has: an activation into the operator before it, a bias into a product.

    CONV_2D, RELU      ->  CONV_2D(fused_activation_function=RELU)
    FULLY_CONNECTED, ADD(constant)  ->  FULLY_CONNECTED with a bias; a CONV_2D adds it to its own
    RESHAPE to rows, FULLY_CONNECTED, GELU, RESHAPE back  ->  FULLY_CONNECTED(keep_num_dims=True), GELU
    STRIDED_SLICE(x, [0 3], [2 4]), RESHAPE to [2]  ->  STRIDED_SLICE(shrink_axis_mask=2)

Only a result with a single reader is taken in; what moves elements between the two does not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import combinations

import numpy as np

from relayout.formats.tflite.container.enums import ActivationFunctionType, TensorType
from relayout.formats.tflite.container.versions import version
from relayout.formats.tflite.exporting.draft import Draft, DraftOperator, DraftTensor
from relayout.formats.tflite.exporting.file_order import LARGEST_RANK
from relayout.formats.tflite.exporting.older import is_older

ACTIVATIONS: Mapping[str, ActivationFunctionType] = {
    name: ActivationFunctionType[name] for name in ("RELU", "RELU6", "RELU_N1_TO_1")
}
_NAMES = "ADD SUB MUL DIV CONV_2D DEPTHWISE_CONV_2D TRANSPOSE_CONV FULLY_CONNECTED MAX_POOL_2D AVERAGE_POOL_2D"
FUSE_ACTIVATIONS = frozenset(_NAMES.split())  # operators whose kernels apply an activation
FLOATS = (TensorType.FLOAT32,)
FUSE_BOUNDS = frozenset({"ADD", "SUB", "MUL"})
"""Operators whose kernels keep integers without a scale at 0 or above by an activation."""
INTEGERS = (TensorType.INT32, TensorType.INT64)  # these integers
JOINS = frozenset({"CONCATENATION"})  # operators that put all their operands beside each other
MOVES = frozenset({"DEPTH_TO_SPACE", "RESHAPE", "STRIDED_SLICE", "TRANSPOSE", *JOINS})
"""Operators that give elements of their operands, and no others."""
_NAMES = "FULLY_CONNECTED QUANTIZE DEQUANTIZE ELU GELU HARD_SWISH LEAKY_RELU LOGISTIC TANH"
BY_ROWS = frozenset((*_NAMES.split(), *ACTIVATIONS))  # operators that compute each row of their first operand by itself
BIASED = frozenset({"FULLY_CONNECTED", "CONV_2D", "DEPTHWISE_CONV_2D"})
BIAS = 2  # place of a bias among the operands of these


def fuse(draft: Draft, runtime: str, changed: list[DraftTensor], *, as_source: bool, for_litert: bool) -> None:
    """Take activations and biases into the operators before them, in place.

    Args:
        draft: the graph.
        runtime: the oldest runtime that has to run it; "": any.
        changed: gets the tensors that now hold another value than before; they have new names.
        as_source: True if a STRIDED_SLICE takes in a RESHAPE that drops axes of one element, as in a `.tflite`.
        for_litert: True if LiteRT alone has to run it: its kernels bound integers without a scale, too.
    """
    fusion = _Fusion(draft, runtime)
    steps: dict[str, Callable[[DraftOperator], None]] = dict.fromkeys(ACTIVATIONS, fusion.activation)
    steps |= {"ADD": fusion.bias, "FULLY_CONNECTED": fusion.rows}
    steps |= {"MAXIMUM": fusion.bound} if for_litert else {}
    steps |= {"RESHAPE": fusion.shrunk} if as_source else {}
    for operator in list(draft.operators):
        if operator.name in steps and not operator.is_restored:
            steps[operator.name](operator)
    if fusion.removed:
        draft.operators = [each for each in draft.operators if each not in fusion.removed]
    for tensor in fusion.changed:
        tensor.name = draft.unique(f"{tensor.name}/fused")
    changed += fusion.changed


class _Fusion:
    def __init__(self, draft: Draft, runtime: str) -> None:
        self.draft, self.runtime = draft, runtime
        own = [operator for operator in draft.operators if not operator.is_restored]
        self.producers = {tensor: operator for operator in own for tensor in operator.outputs}
        self.readers = draft.readers()
        self.followers = {  # tensor -> the last operator that has it as its first operand
            tensor: operator for operator in draft.operators for tensor in operator.inputs[:1] if tensor is not None
        }
        self.rows_of: dict[DraftTensor, DraftTensor] = {}
        self.removed: set[DraftOperator] = set()
        self.changed: dict[DraftTensor, None] = {}

    def activation(self, operator: DraftOperator) -> None:
        """Take an activation into the operator whose result alone it reads."""
        (tensor,) = operator.inputs
        (result,) = operator.outputs
        if tensor is None or tensor.type not in FLOATS:
            return
        passed: list[DraftTensor] = []
        producers = self._behind_moves(tensor, passed)
        if not producers or any(each.name not in FUSE_ACTIVATIONS for each in producers):
            return
        if any(each.options.get("fused_activation_function") for each in producers):
            return
        for each in producers:
            each.options["fused_activation_function"] = ACTIVATIONS[operator.name]
        if self.runtime and any(
            is_older(self.runtime, each.name, version(*self.draft.described(each))) for each in producers
        ):
            for each in producers:
                del each.options["fused_activation_function"]
            return
        self.changed |= dict.fromkeys(passed)  # results of moves of what is activated now
        self._remove(operator, tensor, result)

    def bound(self, operator: DraftOperator) -> None:
        """Take a MAXIMUM of integers and 0 into the sum or product whose result alone it reads."""
        tensor, zero = operator.inputs
        producer = None if tensor is None else self.producers.get(tensor)
        if producer is None or zero is None or tensor is None or zero.array is None or zero.array.any():
            return
        is_plain = tensor.type in INTEGERS and tensor.quantization is None and tensor.dims == operator.outputs[0].dims
        is_free = producer.name in FUSE_BOUNDS and not producer.options.get("fused_activation_function")
        if is_plain and is_free and self.readers.get(tensor) == 1:
            producer.options["fused_activation_function"] = ActivationFunctionType.RELU
            self._remove(operator, tensor, operator.outputs[0])

    def bias(self, operator: DraftOperator) -> None:
        """Take the addition of a constant row into the product before it."""
        first, second = operator.inputs
        if first is None or second is None:
            return
        tensor, constant = (first, second) if second.data is not None else (second, first)
        if constant.data is None or tensor.data is not None or tensor.type not in FLOATS:
            return
        (result,) = operator.outputs
        producer = self.producers.get(tensor)
        if producer is None or producer.name not in BIASED or self.readers.get(tensor) != 1:
            return
        if result.dims != tensor.dims or producer.options.get("fused_activation_function"):
            return
        own = producer.inputs[BIAS] if len(producer.inputs) > BIAS else None
        row = self._sum(own, constant, tensor.dims[-1] if tensor.dims else 0)
        if row is not None:
            producer.inputs = [*producer.inputs[:BIAS], row]
            if "fused_activation_function" in operator.options:
                producer.options["fused_activation_function"] = operator.options["fused_activation_function"]
            self._remove(operator, tensor, result)

    def _sum(self, bias: DraftTensor | None, constant: DraftTensor, channels: int | str) -> DraftTensor | None:
        """Return the sum of a bias and a constant; None where the constant has no number for each channel."""
        fits = bool(constant.dims) and constant.dims[-1] == channels and np.prod(constant.shape) == channels
        if bias is None:
            return self._row(constant) if fits else None
        array, other = bias.array, constant.array
        if array is None or other is None or not (fits or other.size == 1) or array.shape != (channels,):
            return None
        return self.draft.constant(bias.name, array + other.reshape(-1))

    def _row(self, constant: DraftTensor) -> DraftTensor:
        """Return a constant as one row: itself, or one for all products that read it."""
        if len(constant.dims) == 1:
            return constant
        if constant not in self.rows_of:
            name = self.draft.unique(f"{constant.name}/row")
            self.rows_of[constant] = DraftTensor(name, constant.type, constant.dims[-1:], constant.data)
        return self.rows_of[constant]

    def shrunk(self, operator: DraftOperator) -> None:
        """Let a slice drop the axes of which it takes one place."""
        tensor, (result,) = operator.inputs[0], operator.outputs
        producer = None if tensor is None else self.producers.get(tensor)
        if tensor is None or producer is None or producer.name != "STRIDED_SLICE" or self.readers.get(tensor) != 1:
            return
        is_known = all(each is not None and each.array is not None for each in producer.inputs[1:])
        if producer.options.get("shrink_axis_mask") or not is_known:
            return
        masked, ended = (producer.options.get(name, 0) for name in ("begin_mask", "end_mask"))
        places = [axis for axis, dim in enumerate(tensor.dims) if dim == 1 and not masked >> axis & 1]
        count = len(tensor.dims) - len(result.dims)
        for dropped in combinations(places, count) if count > 0 else ():
            if result.dims == tuple(dim for axis, dim in enumerate(tensor.dims) if axis not in dropped):
                producer.options["shrink_axis_mask"] = mask = sum(1 << axis for axis in dropped)
                producer.options["end_mask"] = ended & ~mask  # a place that is dropped has no end
                self._remove(operator, tensor, result)
                return

    def rows(self, operator: DraftOperator) -> None:
        """Let products take the rows of a tensor of more axes as they are, between a RESHAPE to them and one back.

        What computes element by element may stand between the products.
        """
        flat = operator.inputs[0]
        before = None if flat is None else self.producers.get(flat)
        source = None if before is None or before.name != "RESHAPE" else before.inputs[0]
        if before is None or source is None or flat is None or self.readers[flat] != 1 or not source.is_static:
            return
        if not 3 <= len(source.dims) <= LARGEST_RANK or source.dims[-1:] != flat.dims[-1:]:
            return
        *path, after = self._along(operator)
        (result,) = path[-1].outputs if path else (flat,)
        if after.name != "RESHAPE" or source.type != flat.type or after.outputs[0].type != result.type:
            return
        operator.inputs = [source, *operator.inputs[1:]]
        for each in path:
            if each.name == "FULLY_CONNECTED":
                each.options["keep_num_dims"] = True
            each.outputs[0].dims = (*source.dims[:-1], each.outputs[0].dims[-1])
            self.changed[each.outputs[0]] = None
        self.removed.add(before)
        if after.outputs[0].dims == result.dims:
            self._remove(after, result, after.outputs[0])
            self.changed.pop(result)

    def _along(self, operator: DraftOperator) -> list[DraftOperator]:
        """Return an operator and those behind it that compute each row by itself, up to the first that does not."""
        path = [operator]
        while path[-1].name in BY_ROWS and self.readers.get(path[-1].outputs[0]) == 1:
            after = self.followers.get(path[-1].outputs[0])
            if after is None:
                break
            path.append(after)
        return path

    def _behind_moves(self, tensor: DraftTensor, passed: list[DraftTensor]) -> list[DraftOperator]:
        """Return the operators that compute the elements of a tensor, over those that move them.

        There are none if anything else reads a result on the way.

        Args:
            tensor: the tensor.
            passed: gets the operands of the moves.
        """
        ahead: list[DraftTensor | None] = [tensor]
        operators: list[DraftOperator] = []
        while ahead:
            source = ahead.pop()
            producer = None if source is None or self.readers.get(source) != 1 else self.producers.get(source)
            if producer is None:
                return []
            if producer.name not in MOVES:
                operators.append(producer)
                continue
            operands = producer.inputs if producer.name in JOINS else producer.inputs[:1]
            passed += (each for each in operands if each is not None)
            ahead += operands
        return operators

    def _remove(self, operator: DraftOperator, tensor: DraftTensor, result: DraftTensor) -> None:
        """Let the operator before give what another one gave."""
        producer = self.producers[tensor]
        producer.outputs = [result if each is tensor else each for each in producer.outputs]
        self.producers[result] = producer
        self.removed.add(operator)
