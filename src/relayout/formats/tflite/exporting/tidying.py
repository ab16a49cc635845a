"""Operators that a draft does not need: those that nobody reads, and a RESHAPE of what a RESHAPE gives.

RESHAPE(RESHAPE(x, [5 1 2 4]), [5 2 4])  ->  x, where that is its shape
CAST(CAST(x, int64), int32)              ->  x, where it is int32
CAST(SHAPE(x), int32)                    ->  SHAPE(x), which gives int32; likewise of ARG_MAX
CAST(RESHAPE(CAST(x, int64), s), float)  ->  CAST(RESHAPE(x, s), float), where x is int32
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from math import prod

import numpy as np

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.exporting.draft import Dims, Draft, DraftOperator, DraftTensor, known
from relayout.formats.tflite.exporting.kernel_types import WIDER
from relayout.formats.tflite.exporting.scales import has_zero_point_of_16_bits, is_change_of_sign

# Tensors that LiteRT would overwrite before all their readers have run: these get a copy.
#
# LiteRT lets an operator write its result over an operand that has no other reader, and it gives what a RESHAPE makes
# the memory of what it reads. Of a chain of such operators it looks at the readers of the first tensor and of the last
# one, and not at those between (`ArenaPlanner::IdentifyInPlaceTensors`, LiteRT 2.3):
#
#     a -> ADD -> b -> RESHAPE -> c -> MUL -> d        d lies where a, b and c do
#                   -> SUB                             and if it runs behind MUL, it reads d instead of b

VIEWS = frozenset({"BITCAST", "EXPAND_DIMS", "RESHAPE", "SQUEEZE"})
"""Builtins whose result is what their first operand holds."""
WRITERS = {"ADD": 2, "DIV": 2, "DYNAMIC_UPDATE_SLICE": 1, "MUL": 2, "SOFTMAX": 1, "SUB": 2}
"""Builtins that may write over an operand -> over how many of the first."""


def separate(draft: Draft) -> None:
    """Let operators that would overwrite what is still read write over a copy, in place."""
    readers = draft.readers()
    last = {tensor: place for place, each in enumerate(draft.operators) for tensor in each.inputs if tensor is not None}
    for tensor in (*draft.inputs, *(each for each in readers if each.variable)):
        readers[tensor] = readers.get(tensor, 0) + 1
    ends = frozenset(draft.inputs), frozenset(draft.outputs)
    memory: dict[DraftTensor, DraftTensor] = {}
    operators: list[DraftOperator] = []
    for place, operator in enumerate(draft.operators):
        written = _written_over(operator, readers, memory, *ends)
        if written is not None:
            root, result = memory.get(written, written), operator.outputs[0]
            if operator.name in WRITERS and last.get(root, place) > place:
                operators.append(copy := whole_slice(draft, written))
                (root,) = copy.outputs  # in whose memory the result lies
                readers[root] = 1
                operator.inputs = [root if each is written else each for each in operator.inputs]
            memory[result] = root
            last[root] = max(last.get(root, place), last.get(result, place))  # of all that lies there
        operators.append(operator)
    draft.operators = operators


def _written_over(
    operator: DraftOperator,
    readers: Mapping[DraftTensor, int],
    memory: Mapping[DraftTensor, DraftTensor],
    inputs: Container[DraftTensor],
    outputs: Container[DraftTensor],
) -> DraftTensor | None:
    """Return the operand in whose memory an operator's result lies; None where it has memory of its own."""
    if not operator.outputs or operator.outputs[0] in outputs:
        return None
    operands = operator.inputs[: 1 if operator.name in VIEWS else WRITERS.get(operator.name, 0)]
    for tensor in operands:
        if tensor is None or tensor.data is not None or tensor in inputs:
            continue
        if operator.name in VIEWS:
            return tensor
        if readers[tensor] == 1 and _may_be_as_long(tensor, operator.outputs[0]):
            return tensor if readers[memory.get(tensor, tensor)] == 1 else None
    return None


def _may_be_as_long(one: DraftTensor, other: DraftTensor) -> bool:
    """Tell whether two tensors may have as many bytes: of open extents that is not known."""
    return not one.is_static or not other.is_static or prod(one.shape) == prod(other.shape)


def whole_slice(draft: Draft, tensor: DraftTensor) -> DraftOperator:
    """Return a slice of all of a tensor: a copy for an operator to read instead."""
    copy = draft.tensor(f"{tensor.name}/copy", tensor.type, tensor.dims, tensor.quantization)
    begin, size, step = (draft.constant("whole", np.full(len(tensor.dims), each, np.int32)) for each in (0, -1, 1))
    if tensor.is_static:
        return DraftOperator("SLICE", [tensor, begin, size], [copy])
    end_mask = (1 << len(tensor.dims)) - 1  # as for `BuiltinBuilder.part`: LiteRT plans the memory of this one ahead
    return DraftOperator("STRIDED_SLICE", [tensor, begin, begin, step], [copy], {"end_mask": end_mask})


# Builtins that ONNX has no operator for, recognised in a draft; and operators that run on integers as they are.
#
# MUL(SUB(a, b), SUB(a, b))            ->  SQUARED_DIFFERENCE(a, b)
# DIV(1, SQRT(x))                      ->  RSQRT(x)
# QUANTIZE(RSQRT(DEQUANTIZE(x)))       ->  RSQRT(x), on integers
# SELECT_V2(RESHAPE(c, [n 1 1]), a, b) ->  SELECT(c, a, b), which chooses whole rows

LEAST = -128  # the least integer of 8 bits: where it means 0, no number is below 0


def recognise(
    draft: Draft,  # the graph
    *,
    for_litert: bool,  # whether LiteRT alone has to run it: others have no SELECT
) -> None:
    """Write such operators, in place; those that nobody reads any more stay."""
    search = _Search(draft)
    steps = dict.fromkeys(("MUL", "SQUARE"), search.squared_difference) | {"DIV": search.inverse_root}
    steps |= {"SELECT_V2": search.selection_of_rows} if for_litert else {}
    for operator in draft.operators:
        if operator.name in steps and not operator.is_restored:
            steps[operator.name](operator)
    for operator in draft.operators:
        if operator.name == "QUANTIZE":
            search.on_integers(operator)


class _Search:
    def __init__(self, draft: Draft) -> None:
        own = [operator for operator in draft.operators if not operator.is_restored]
        self.producers = {tensor: operator for operator in own for tensor in operator.outputs}
        self.readers = draft.readers()

    def _producer(self, tensor: DraftTensor | None, name: str, readers: int = 1) -> DraftOperator | None:
        """Return the operator of a name that gives a tensor which that many operands are."""
        producer = None if tensor is None else self.producers.get(tensor)
        if producer is None or producer.name != name or tensor is None or self.readers.get(tensor) != readers:
            return None
        return None if producer.options.get("fused_activation_function") else producer

    def squared_difference(self, operator: DraftOperator) -> None:
        """Write a product of a difference with itself as one operator."""
        first = operator.inputs[0]
        both = operator.name == "SQUARE" or operator.inputs[1] is first
        before = self._producer(first, "SUB", readers=len(operator.inputs)) if both else None
        if before is None or operator.outputs[0].type != TensorType.FLOAT32 or operator.outputs[0].quantization:
            return
        if not operator.options.get("fused_activation_function"):
            operator.name, operator.inputs, operator.options = "SQUARED_DIFFERENCE", list(before.inputs), {}

    def selection_of_rows(self, operator: DraftOperator) -> None:
        """Write a choice by the first axis alone without a RESHAPE of its condition."""
        rows, first, second = operator.inputs
        before = self._producer(rows, "RESHAPE")
        condition = None if before is None else before.inputs[0]
        if rows is None or condition is None or first is None or second is None or not first.is_static:
            return
        dims = first.dims
        if len(dims) > 1 and condition.dims == dims[:1] and second.dims == dims and rows.dims == _column(dims):
            operator.name, operator.inputs = "SELECT", [condition, first, second]

    def inverse_root(self, operator: DraftOperator) -> None:
        """Write 1 by a root as one operator."""
        one, root = operator.inputs
        before = self._producer(root, "SQRT")
        array = None if one is None else one.array
        if before is None or array is None or array.size != 1 or not np.all(array == 1):
            return
        if operator.outputs[0].type == TensorType.FLOAT32 and not operator.options.get("fused_activation_function"):
            operator.name, operator.inputs, operator.options = "RSQRT", list(before.inputs), {}

    def on_integers(self, operator: DraftOperator) -> None:
        """Let an operator between DEQUANTIZEs and a QUANTIZE run on integers, where a kernel does."""
        (result,), (source,) = operator.outputs, operator.inputs
        producer = None if source is None else self.producers.get(source)
        takes = None if producer is None else KERNELS.get(producer.name)
        if producer is None or takes is None or source is None or self.readers.get(source) != 1:
            return
        dequantized = [None if each is None else self.producers.get(each) for each in producer.inputs]
        if any(each is None or each.name != "DEQUANTIZE" for each in dequantized):
            return
        integers = [each.inputs[0] for each in dequantized if each is not None]
        if not all(each is not None and _is_byte(each) for each in (*integers, result)) or not takes(integers):
            return
        operator.name, operator.inputs, operator.options = producer.name, integers, dict(producer.options)


def _is_byte(tensor: DraftTensor) -> bool:
    meaning = tensor.quantization
    return tensor.type == TensorType.INT8 and meaning is not None and not meaning.per_channel


def _are_positive(tensors: list[DraftTensor | None]) -> bool:
    """Return whether no integers mean numbers below 0, of which the kernel makes an error."""
    return all(
        each is not None and each.quantization is not None and int(each.quantization.zero_point[0]) == LEAST
        for each in tensors
    )


KERNELS: Mapping[str, Callable[[list[DraftTensor | None]], bool]] = {
    "GELU": lambda _: True,
    "RSQRT": _are_positive,
    "SQUARED_DIFFERENCE": lambda _: True,
}
"""Builtin with a kernel for int8 -> whether it takes some operands."""


def _column(dims: Dims) -> Dims:
    """Return the extents of one element for each place of the first axis."""
    return (dims[0], *[1] * (len(dims) - 1))


# A CONCATENATION along a part of an axis, between Reshapes, joins the whole axis.
#
#     CONCATENATION([240 2 4], [60 2 4])  ->  RESHAPE to [600 4]    becomes
#     CONCATENATION([480 4], [120 4])
#
# What it reads is reshaped anyway, so the RESHAPE behind it goes. Elements lie as before: along the axes behind the one
# that is joined every operand has all of them.


def join_whole_axes(draft: Draft) -> None:
    """Write such CONCATENATIONs, in place."""
    producers = draft.producers()
    readers = draft.readers()
    behind = {
        operator.inputs[0]: operator for operator in draft.operators if operator.name == "RESHAPE" and operator.inputs
    }
    removed: set[DraftOperator] = set()
    for operator in draft.operators:
        after = behind.get(operator.outputs[0]) if operator.name == "CONCATENATION" else None
        if after is None or operator.is_restored or readers[operator.outputs[0]] != 1:
            continue
        reshapes, count = _reshapes_before(operator, producers, readers), _merged_axes(operator, after)
        if count and len(reshapes) == len(operator.inputs):
            _merge(draft, operator, reshapes, count)
            operator.outputs = after.outputs
            removed.add(after)
    draft.operators = [each for each in draft.operators if each not in removed]


def _reshapes_before(
    operator: DraftOperator, producers: Mapping[DraftTensor, DraftOperator], readers: Mapping[DraftTensor, int]
) -> list[DraftOperator]:
    """Return the Reshapes whose results an operator alone reads."""
    before = [producers.get(each) for each in operator.inputs if each is not None and readers[each] == 1]
    return [each for each in before if each is not None and each.name == "RESHAPE" and not each.is_restored]


def _merged_axes(operator: DraftOperator, after: DraftOperator) -> int:
    """Return how many axes behind the joined one a RESHAPE merges with it; 0 where it does something else."""
    (result,), (reshaped,) = operator.outputs, after.outputs
    count = len(result.dims) - len(reshaped.dims)
    if count <= 0 or not result.is_static or result.type != reshaped.type:
        return 0
    axis = operator.options.get("axis", 0) % len(result.dims)
    return count if axis + count < len(result.dims) and _merged(result.dims, axis, count) == reshaped.dims else 0


def _merged(dims: Dims, axis: int, count: int) -> Dims:
    """Return extents with an axis and some behind it as one."""
    return (*dims[:axis], prod(known(dims[axis : axis + count + 1])), *dims[axis + count + 1 :])


def _merge(draft: Draft, operator: DraftOperator, reshapes: list[DraftOperator], count: int) -> None:
    """Let the operands of a CONCATENATION have an axis and those behind it as one."""
    axis = operator.options.get("axis", 0) % len(operator.outputs[0].dims)
    for place, reshape in enumerate(reshapes):
        tensor = reshape.outputs[0]
        dims = known(_merged(tensor.dims, axis, count))
        merged_tensor = draft.tensor(f"{tensor.name}/whole", tensor.type, dims, tensor.quantization)
        reshape.inputs = [reshape.inputs[0], draft.constant("shape", np.array(dims, np.int32))]
        reshape.outputs, operator.inputs[place] = [merged_tensor], merged_tensor
    operator.options["axis"] = axis


# What takes one operand of a CONCATENATION out of its result is a copy of that operand.
#
#     SLICE(CONCATENATION(h, c), [0 6], [-1 6])  ->  RESHAPE(c, [-1 6])
#
# Files hold such pairs where something shall run first: LiteRT writes the last state of an LSTM over the first one. The
# state that an operator overwrites stays behind its CONCATENATION; what was read from such a file needs none.

MASKS = ("ellipsis_mask", "new_axis_mask", "shrink_axis_mask")
"""Options of a STRIDED_SLICE by which the axes of its result are not those of its operand."""


def _copy_operands(draft: Draft) -> None:
    """Let such operators copy the operand, in place."""
    producers = draft.producers()
    places: dict[DraftOperator, dict[int, DraftTensor]] = {}
    for operator in draft.operators:
        before = _producer(operator, producers) if operator.name in ("SLICE", "STRIDED_SLICE") else None
        if before is None or before.name != "CONCATENATION" or operator.is_restored or before.is_restored:
            continue
        if before not in places:
            places[before] = _places(before)
        if (tensor := _operand_of(before, places[before], operator)) is not None:
            shape = np.array([dim if isinstance(dim, int) else -1 for dim in tensor.dims], np.int32)
            operator.name, operator.options = "RESHAPE", {}
            operator.inputs = [tensor, draft.constant("shape", shape)]


def _places(joined: DraftOperator) -> dict[int, DraftTensor]:
    """Return the operands of a CONCATENATION by where they begin, up to the first of an open extent."""
    axis, begin, places = joined.options.get("axis", 0), 0, dict[int, DraftTensor]()
    for tensor in joined.inputs:
        if tensor is None or not isinstance(extent := tensor.dims[axis], int):
            break
        if extent:
            places[begin] = tensor
        begin += extent
    return places


def _operand_of(
    joined: DraftOperator, places: Mapping[int, DraftTensor], operator: DraftOperator
) -> DraftTensor | None:
    """Return the operand of a CONCATENATION that a slice takes out of its result; None where it takes anything else."""
    (result,), (begins, is_to_end) = operator.outputs, _taken(operator)
    axis = joined.options.get("axis", 0) % len(result.dims)
    tensor = places.get(begins[axis]) if begins else None
    if tensor is None or tensor.variable or any(begins[:axis] + begins[axis + 1 :]):
        return None
    is_whole = all(ends or isinstance(dim, int) for ends, dim in zip(is_to_end, tensor.dims, strict=False))
    return tensor if is_whole and _is_copy(tensor, result) else None


def _taken(operator: DraftOperator) -> tuple[list[int], list[bool]]:
    """Return where a slice begins along each axis, and whether it takes all from there; nothing where it has steps."""
    arrays = [None if each is None else each.array for each in operator.inputs[1:]]
    begins, ends, *steps = [[] if array is None else array.tolist() for array in arrays]
    if operator.name == "SLICE":
        return begins, [end == -1 for end in ends]
    if any(map(operator.options.get, MASKS)) or set(*steps) != {1}:
        return [], []
    begin, end = (
        [bool(operator.options.get(name, 0) >> axis & 1) for axis in range(len(begins))]
        for name in ("begin_mask", "end_mask")
    )
    return [0 if is_masked else place for is_masked, place in zip(begin, begins, strict=True)], end


# A product of a transposed tensor with itself reads a copy of it once.
#
# LiteRT's XNNPACK folds a TRANSPOSE into the products that read it, operand by operand. Where both operands of a
# BATCH_MATMUL are the result of one TRANSPOSE, it computes another product (LiteRT 2.3; float32, every rank):
#
#     x -> TRANSPOSE -> t -> BATCH_MATMUL(t, t)    becomes    t -> SLICE -> copy;  BATCH_MATMUL(t, copy)
#
# Other builtins that read a transposed tensor twice are right, and so are products of two tensors.


def separate_operands(draft: Draft) -> None:
    """Let products of a transposed tensor by itself read a copy as their second operand, in place."""
    transposed = {tensor for operator in draft.operators if operator.name == "TRANSPOSE" for tensor in operator.outputs}
    operators: list[DraftOperator] = []
    for operator in draft.operators:
        if operator.name == "BATCH_MATMUL":
            left, right = operator.inputs[:2]
            if left is right and left is not None and left in transposed:
                copy = whole_slice(draft, left)
                operators.append(copy)
                operator.inputs[1] = copy.outputs[0]
        operators.append(operator)
    draft.operators = operators


SHAPE = 1  # place of the new shape among the operands of RESHAPE
MOVERS = frozenset({"RESHAPE", "REVERSE_V2", "SLICE", "STRIDED_SLICE", "TRANSPOSE"})
"""Builtins that move elements of their first operand, of integers as of real numbers."""
MOVED = (TensorType.INT8, TensorType.UINT8, TensorType.INT16)  # integers that they move
REQUANTIZED = {  # integers -> those that QUANTIZE makes of them
    TensorType.INT8: MOVED,
    TensorType.UINT8: MOVED,
    TensorType.INT16: (TensorType.INT16, TensorType.INT8),
}


def tidy(
    draft: Draft,  # the graph
    *,
    for_litert: bool,  # whether LiteRT alone has to run it
) -> None:
    """Remove operators that do nothing, in place."""
    recognise(draft, for_litert=for_litert)
    _move_integers(draft)
    _merge_sign_changes(draft)
    _merge_reshapes(draft)
    join_whole_axes(draft)
    _copy_operands(draft)
    remove_unread(draft)
    _shorten_places(draft)
    _remove_copies(draft)
    remove_unread(draft)


def tidy_reshapes(draft: Draft) -> None:
    """Merge RESHAPEs, and remove operators that nobody reads, in place."""
    _merge_reshapes(draft)
    remove_unread(draft)
    _remove_copies(draft)
    remove_unread(draft)


def _move_integers(draft: Draft) -> None:
    """Let operators that only move elements move integers, where they stand between a DEQUANTIZE and a QUANTIZE."""
    producers = draft.producers()
    readers = draft.readers()
    aliases: dict[DraftTensor, DraftTensor] = {}
    for operator in draft.operators:
        operator.inputs = [None if each is None else aliases.get(each, each) for each in operator.inputs]
        if operator.name != "QUANTIZE":
            continue
        (result,) = operator.outputs
        source, path = _integers_before(operator, producers, readers)
        if source is None or not _is_requantized(source, result):
            continue
        for mover in path:
            mover.outputs[0].type, mover.outputs[0].quantization = source.type, source.quantization
        if path:
            path[-1].inputs = [source, *path[-1].inputs[1:]]
            source = path[0].outputs[0]
        operator.inputs = [source]
        if not _has_same_elements(source, result):
            continue
        if result not in draft.outputs:
            aliases[result] = source
        elif path:
            path[0].outputs, operator.outputs = [result], []
    draft.operators = [each for each in draft.operators if each.outputs]


def _integers_before(
    operator: DraftOperator, producers: dict[DraftTensor, DraftOperator], readers: Mapping[DraftTensor, int]
) -> tuple[DraftTensor | None, list[DraftOperator]]:
    """Return the integers that become what a QUANTIZE reads, and the operators that move it, the last one first."""
    path: list[DraftOperator] = []
    before = _producer(operator, producers)
    while before is not None and before.name in MOVERS and readers.get(before.outputs[0]) == 1:
        path.append(before)
        before = _producer(before, producers)
    source = None if before is None or before.name != "DEQUANTIZE" else before.inputs[0]
    return (source if source is not None and source.type in MOVED else None), path


def _is_requantized(a: DraftTensor, b: DraftTensor) -> bool:
    """Return whether QUANTIZE makes integers of others, without real numbers between them.

    Of 16 bits it makes others of 16 bits only where neither has a zero point.
    """
    one_scale = all(each.quantization is not None and not each.quantization.per_channel for each in (a, b))
    has_kernel = b.type != TensorType.INT16 or a.type != TensorType.INT16
    has_kernel = has_kernel or not (has_zero_point_of_16_bits(a) or has_zero_point_of_16_bits(b))
    return one_scale and b.type in REQUANTIZED.get(a.type, ()) and (has_kernel or _has_same_elements(a, b))


def _merge_sign_changes(draft: Draft) -> None:
    """Let one QUANTIZE change the scale and the sign, where two do so one after the other.

    The kernel rounds once either way: a change of sign is exact.
    """
    producers = draft.producers()
    readers = draft.readers()
    for operator in draft.operators:
        before = _producer(operator, producers) if operator.name == "QUANTIZE" else None
        if before is None or before.name != "QUANTIZE":
            continue
        source, middle, result = before.inputs[0], before.outputs[0], operator.outputs[0]
        if source is None or not _is_requantized(source, result) or _has_same_elements(source, result):
            continue
        if is_change_of_sign(source, middle) or (is_change_of_sign(middle, result) and readers[middle] == 1):
            operator.inputs = [source]


def _producer(operator: DraftOperator, producers: dict[DraftTensor, DraftOperator]) -> DraftOperator | None:
    source = operator.inputs[0]
    return None if source is None else producers.get(source)


def _merge_reshapes(draft: Draft) -> None:
    """Let each RESHAPE read what stands before the RESHAPEs before it."""
    producers = draft.producers()
    for operator in draft.operators:
        if operator.name != "RESHAPE":
            continue
        while (before := _reshape_before(operator, producers)) is not None:
            operator.inputs = [before.inputs[0], *operator.inputs[SHAPE:]]


def _copied(operator: DraftOperator, producers: dict[DraftTensor, DraftOperator]) -> list[DraftTensor]:
    """Return the tensor that an operator copies, and the tensors between the two.

    A RESHAPE to the shape of its operand copies it, and so do two CASTs to a type that holds all numbers and back.
    """
    source, result = operator.inputs[0] if operator.inputs else None, operator.outputs[0]
    if source is None or operator.is_restored or operator.name not in ("RESHAPE", "CAST"):
        return []
    if operator.name == "RESHAPE":
        return [source] if _is_copy(source, result) else []
    before = producers.get(source)
    first = None if before is None or before.name != "CAST" or before.is_restored else before.inputs[0]
    if first is None or source.type not in WIDER.get(first.type, ()) or not _has_same_elements(first, result):
        return []
    return [first, source]


def _is_copy(source: DraftTensor, result: DraftTensor) -> bool:
    """Tell whether a tensor of as many elements is another one: extents are known by number or name, all but one."""
    places, others = ([isinstance(dim, int) for dim in each.dims] for each in (source, result))
    static, also = ([dim for dim in each.dims if isinstance(dim, int)] for each in (source, result))
    is_one_open = places == others and static == also and places.count(False) == 1 and 0 not in static
    is_named = source.dims == result.dims and not any(str(dim).startswith("?") for dim in source.dims)
    return (is_one_open or is_named) and _has_same_elements(source, result)


def _remove_copies(draft: Draft) -> None:
    """Remove operators that copy a tensor. One that is no value of the graph gets the name of the last one that is."""
    producers, readers, aliases = draft.producers(), draft.readers(), dict[DraftTensor, DraftTensor]()
    between = {tensor for tensor in producers if tensor.name not in draft.reserved}
    for operator in draft.operators:
        operator.inputs = [None if each is None else aliases.get(each, each) for each in operator.inputs]
        tensors = _copied(operator, producers)
        if not tensors:
            continue
        source, (result,) = tensors[0], operator.outputs
        if result not in draft.outputs:
            aliases[result] = source = aliases.get(source, source)
            if source in between and result.name in draft.reserved:
                source.name, result.name = result.name, source.name
        elif all(readers.get(each) == 1 for each in tensors) and source in producers:
            producer = producers[source]
            producer.outputs = [result if each is source else each for each in producer.outputs]
            if len(tensors) > 1:  # the CAST to the wider type reads nothing that is there
                producers[tensors[1]].outputs = []
            operator.outputs = []
    draft.operators = [each for each in draft.operators if each.outputs]


PLACES = {"ARG_MAX": "output_type", "ARG_MIN": "output_type", "SHAPE": "out_type"}
"""Builtins that give integers of 32 or of 64 bits -> the option that says which."""


def _shorten_places(draft: Draft) -> None:
    """Let integers of 64 bits that a CAST alone reads have 32: places, and what was of 32 before a CAST and views."""
    producers = {operator.outputs[0]: operator for operator in draft.operators if not operator.is_restored}
    readers = draft.readers()
    for operator in (each for each in draft.operators if each.name == "CAST" and not each.is_restored):
        path, before = list[DraftOperator](), _producer(operator, producers)
        while before is not None and readers[before.outputs[0]] == 1 and before.outputs[0] not in draft.outputs:
            path.append(before)
            before = _producer(before, producers) if before.name in VIEWS and before.name != "BITCAST" else None
        if path and _is_shortened(path[-1], path[:-1], operator):
            for each in path[:-1]:
                each.outputs[0].type = TensorType.INT32
            if (result := operator.outputs[0]).type == TensorType.INT32:
                path[0].outputs, operator.outputs = [result], []
                producers[result] = path[0]
    draft.operators = [each for each in draft.operators if each.outputs]


def _is_shortened(first: DraftOperator, views: Sequence[DraftOperator], cast: DraftOperator) -> bool:
    """Make the integers of 32 bits that views, and a CAST behind them, look at; tell whether there are any."""
    source = first.inputs[0] if first.inputs else None
    if first.name in PLACES and cast.outputs[0].type == TensorType.INT32:
        first.options[PLACES[first.name]] = first.outputs[0].type = TensorType.INT32
        return True
    is_longer = first.name == "CAST" and first.outputs[0].type == TensorType.INT64
    if not views or not is_longer or source is None or source.type != TensorType.INT32:
        return False
    views[-1].inputs[0], first.outputs = source, []
    cast.options["in_data_type"] = TensorType.INT32
    return True


def _reshape_before(operator: DraftOperator, producers: dict[DraftTensor, DraftOperator]) -> DraftOperator | None:
    """Return the RESHAPE before a RESHAPE, where this one may as well read what stands before both."""
    source, shape = operator.inputs[0], operator.inputs[SHAPE] if len(operator.inputs) > SHAPE else None
    before = None if source is None else producers.get(source)
    if before is None or before.name != "RESHAPE" or before.inputs[0] is None or shape is None:
        return None
    first, result = before.inputs[0], operator.outputs[0]
    is_known = shape.data is not None and _has_same_elements(first, result)
    return before if is_known or _is_copy(first, result) else None


def _has_same_elements(a: DraftTensor, b: DraftTensor) -> bool:
    if a.type != b.type or (a.quantization is None) != (b.quantization is None):
        return False
    return a.quantization is None or a.quantization.equals(b.quantization)


def remove_unread(draft: Draft) -> None:
    """Remove operators whose results nobody reads, except custom ones, which may do more, and those without results."""
    read: set[DraftTensor | None] = set(draft.outputs)
    remaining_operators: list[DraftOperator] = []
    for operator in reversed(draft.operators):
        outputs = operator.outputs
        if not outputs or not read.isdisjoint(outputs) or operator.name.startswith("CUSTOM"):
            remaining_operators.append(operator)
            read.update(operator.inputs)
    draft.operators = remaining_operators[::-1]
