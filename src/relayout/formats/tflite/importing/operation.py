"""One TFLite operator while it is translated: its operands as ONNX values, ways to emit nodes and hand over results.

Two views of an operand: `stored` is what lies in memory (integers if the tensor is quantized), `real` is what it means
(a DequantizeLinear of this operator's own, so that runtimes recognise dequantize - operator - quantize units).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import MAX_RANK, Operator, Quantization, Tensor
from relayout.formats.tflite.container.schema import SCHEMA
from relayout.formats.tflite.importing import activation
from relayout.formats.tflite.importing.builder import Dims, dims
from relayout.formats.tflite.importing.emission import Emission
from relayout.formats.tflite.importing.extents import product
from relayout.formats.tflite.importing.registry import Unsupported
from relayout.formats.tflite.importing.tensors import DTYPES, FEW_BITS, QUANTIZED_TYPES, array, dequantized
from relayout.formats.tflite.spelled_out import BUILTIN, SMALL, VIEWS, Builtin, Operand, is_restorable
from relayout.graph.source_names import SOURCE
from relayout.graph.walks import behind, producers, reached
from relayout.layout import perm as perms

MOVABLE = (TensorType.INT8, TensorType.UINT8, TensorType.INT16)
"""Quantized types on which a data movement may act directly, unless ONNX Runtime's kernel takes fewer."""

BYTES_ONLY = (TensorType.INT8, TensorType.UINT8)  # quantized types that ONNX Runtime's Pad, MaxPool and Resize take

BYTES = (ir.DataType.INT8, ir.DataType.UINT8)

NARROW = (ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT16, ir.DataType.UINT16)
"""Plain integers that are computed with as wider ones."""


class Operation(Emission):
    """A TFLite operator and its place in the ONNX graph."""

    INT64 = ir.DataType.INT64
    folds_borders = False  # whether a PAD may become the border of the windows that slide over it

    # What the file says.

    def require_rank(self, i: int, *ranks: int) -> int:
        """Return the rank of operand i, refused unless it is one of these."""
        rank = len(self.extents(i))
        if rank not in ranks:
            expected = " or ".join(map(str, ranks))
            raise self.damaged(f"operand {i} of {self.operator.name} has rank {rank}, not {expected}")
        return rank

    def extents(self, i: int) -> Dims:
        """Return the shape of operand i. Weights by blocks are no value by themselves."""
        return self.input(i).shape if self.input(i).blocks is not None else dims(self.stored(i))

    def is_constant(self, i: int) -> bool:
        """Tell whether operand i lies in the file."""
        return self.tensors.is_constant(self.input(i)) or self.stored(i).const_value is not None

    def constant(self, i: int) -> npt.NDArray[Any]:
        """Return the elements of operand i as stored, which must be in the file."""
        if not self.is_constant(i):
            raise Unsupported(f"operand {i} is computed, and ONNX has to know it")
        value = self.stored(i).const_value if self.tensors.has_value(self.input(i)) else None
        # In a subgraph a constant may have been handed in from outside.
        return array(self.input(i)) if value is None or self.input(i).data is not None else value.numpy()

    def integers(self, i: int, at_most: int = MAX_RANK) -> list[int]:
        """Return a short constant operand as Python integers. The limit keeps damaged files from costing time."""
        values = self.constant(i).reshape(-1)
        if values.size > at_most:
            raise self.damaged(f"operand {i} of {self.operator.name} has {values.size} elements")
        return [int(v) for v in values]

    def axis(self, axis: int, rank: int) -> int:
        """Return an axis counted from the front."""
        if not -rank <= axis < rank:
            raise self.damaged(f"{self.operator.name} has axis {axis} of {rank} dimensions")
        return axis % rank

    def spare(self, operator: Operator) -> None:
        """Let the nodes of an operator before this one go, if nothing else reads what they yield; and its Casts."""
        flow, tensors = self.tensors.flow, self.tensors.subgraph.tensors
        casts = [p for p in map(flow.producer, operator.inputs) if p is not None and p.name == "DEQUANTIZE"]
        for one in (operator, *casts):
            values = [self.tensors.value(tensors[i]) for i in one.outputs if self.tensors.has_value(tensors[i])]
            self.builder.spare |= {id(node) for node in _written_for(one, values)}

    # Operands as values.

    def stored(self, i: int) -> ir.Value:
        """Operand i as it lies in memory."""
        if self.input(i).type in (TensorType.COMPLEX64, TensorType.COMPLEX128):
            raise Unsupported("complex numbers")  # those that take them ask for `spectral.pairs`
        return self.tensors.value(self.input(i))

    def real(self, i: int, perm: Sequence[int] | None = None) -> ir.Value:
        """Operand i as real numbers, with its axes in another order if `perm` is given.

        The Transpose comes first, on the integers: they are a quarter of the bytes.
        """
        if perm is None:
            return self.dequantize(i, self.stored(i))
        quantization = self.tensors.quantization(self.input(i))
        axis = list(perm).index(quantization.axis) if quantization and quantization.per_channel else None
        return self.dequantize(i, self.transpose(self.stored(i), perm), axis)

    def dequantize(
        self,
        i: int,  # the operand whose parameters count
        value: ir.Value,  # the integers
        axis: int | None = None,  # where the axis of the scales is now, if there are several and it has moved
    ) -> ir.Value:
        """Return the real numbers of a value that holds operand i's integers, perhaps reordered or reshaped."""
        tensor = self.input(i)
        if (quantization := self.tensors.quantization(tensor)) is None:
            if tensor.type in MOVABLE and tensor.quantization is None:
                raise Unsupported(f"arithmetic on {tensor.type.name} without a scale, for which the kernel takes 0")
            return value
        if quantization.per_channel and axis is None:
            axis = quantization.axis
        name = self.tensors.hint(tensor, "dequantized")
        if tensor.data is not None and self.output().quantization is None and value.dtype in BYTES:
            return self.real_constant(tensor, quantization, value, axis)
        return self.emit("DequantizeLinear", [value, *self.tensors.parameters(tensor)], name=name, axis=axis)

    def real_constant(self, tensor: Tensor, quantization: Quantization, value: ir.Value, axis: int | None) -> ir.Value:
        """Return the real numbers of a constant beside which nothing is quantized."""
        if quantization is tensor.quantization:
            scale, zero_point = self.tensors.parameters(tensor)
        else:
            shape = (-1,) if quantization.per_channel else ()
            zeros = quantization.zero_point.astype((value.dtype or ir.DataType.INT8).numpy())
            scale = self.builder.array(self.tensors.hint(tensor, "scale"), quantization.scale.reshape(shape))
            zero_point = self.builder.array(self.tensors.hint(tensor, "zero_point"), zeros.reshape(shape))
        name = self.tensors.hint(tensor, "dequantized")
        return self.emit("DequantizeLinear", [value, scale, zero_point], name=name, axis=axis)

    def raw(self, i: int) -> ir.Value:
        """Operand i as the integers that the file's tensor holds, even where the graph computes with real numbers."""
        tensor, value = self.input(i), self.stored(i)
        if not self.tensors.dequantize or self.tensors.dtype(tensor) == DTYPES.get(tensor.type):
            return value
        return self.emit("QuantizeLinear", [value, *self.tensors.parameters(tensor)])

    def plain(self, i: int) -> ir.Value:
        """Operand i as numbers: real ones if it is quantized, else integers of a width that ONNX Runtime computes with.

        A result is cast back to its own width.
        """
        value = self.stored(i)
        if self.input(i).quantization is None and value.dtype in NARROW:
            return self.cast(value, ir.DataType.INT32)
        return self.real(i)

    def whole(self, i: int) -> ir.Value:
        """Operand i as the integers that it is stored as, of a width that ONNX computes with; floats as they are.

        For kernels that take no notice of scales. `result_whole` takes the result.
        """
        value = self.raw(i)
        return self.cast(value, ir.DataType.INT32) if value.dtype in NARROW else value

    def bias(self, i: int, *factors: int | Quantization | None) -> ir.Value | None:
        """Return an optional bias: float as it is, integers of 32 bits through DequantizeLinear.

        One of int64 whose integers need more bits is float: ONNX has no other way. It is a vector, whatever its shape
        in the file: the kernels count its elements.

        Args:
            i: the operand.
            factors: the operands whose product it is added to, or their parameters. The kernels add integers, so those
                count in steps of that product, whatever scale the file gives them: of operators that share a bias it
                fits one.
        """
        if not self.has(i):
            return None
        tensor = self.input(i)
        if tensor.type not in (TensorType.INT32, TensorType.INT64):
            return self._flat(self.real(i))
        quantization = self.steps_of(tensor, factors)
        if quantization is None or not self.is_constant(i):
            raise Unsupported(f"{tensor.type.name} bias without a scale" if self.is_constant(i) else "computed bias")
        if quantization.per_channel and quantization.scale.size != prod(tensor.shape):
            raise Unsupported(f"bias of {prod(tensor.shape)} elements for {quantization.scale.size} channels")
        values = self.constant(i).reshape(-1) if tensor.type == TensorType.INT64 else None
        if self.tensors.dequantize or not (values is None or np.array_equal(values.astype(np.int32), values)):
            shape, steps = ir.Shape([prod(tensor.shape)]), Quantization(quantization.scale, quantization.zero_point, 0)
            lazy = ir.LazyTensor(
                lambda: ir.Tensor(dequantized(self.constant(i).reshape(-1), steps)), ir.DataType.FLOAT, shape
            )
            return self.builder.initializer(self.tensors.hint(tensor, "dequantized"), lazy)
        scale = quantization.scale.reshape((-1,) if quantization.per_channel else ())
        value = (
            self._flat(self.stored(i))
            if values is None
            else self.builder.array(self.tensors.hint(tensor, "int32"), values.astype(np.int32))
        )
        zeros = self.builder.shared(self.tensors.hint(tensor, "zero_point"), np.zeros(scale.shape, np.int32))
        return self.emit(
            "DequantizeLinear",
            [value, self.builder.array(self.tensors.hint(tensor, "scale"), scale), zeros],
            name=self.tensors.hint(tensor, "dequantized"),
            axis=0 if quantization.per_channel else None,
        )

    def _flat(self, value: ir.Value) -> ir.Value:
        """Return all elements of a value as one dimension."""
        return value if len(dims(value)) == 1 else self.reshape(value, (product(dims(value)),))

    def steps_of(self, bias: Tensor, factors: Sequence[int | Quantization | None]) -> Quantization | None:
        """Return the scale of a bias: the file's own, unless it is not that of the product."""
        quantizations = [self.input(f).quantization if isinstance(f, int) else f for f in factors]
        scale = np.ones(1, np.float32)
        for quantization in quantizations:
            if quantization is None:
                return bias.quantization
            scale = (scale * quantization.scale).astype(np.float32)
        own = bias.quantization
        if not quantizations or (
            own is not None and own.scale.size in (1, scale.size) and np.allclose(own.scale, scale, 1e-5, 0)
        ):
            return own
        return Quantization(scale, np.zeros(scale.shape, np.int64), 0)

    def alike(self, *operands: int) -> bool:
        """Tell whether operands and result mean the same by an integer."""
        mine = self.output().quantization
        others = [self.input(i).quantization for i in operands]
        return all(o is None for o in others) if mine is None else all(mine.equals(o) for o in others)

    def reread(self, value: ir.Value, before: Quantization | None, after: Quantization | None) -> ir.Value:
        """Return the real numbers that the same integers mean under other parameters."""
        if before is None or after is None:
            raise Unsupported("quantized and plain integers together")
        scale, step = float(before.scale[0]), float(after.scale[0])
        moved = (int(before.zero_point[0]) - int(after.zero_point[0])) * step
        value = self.emit("Mul", [value, self.number(step / scale, value, "ratio")])
        return self.emit("Add", [value, self.number(moved, value, "offset")])

    def carried(
        self,
        *operands: int,  # which operands are moved
        types: Sequence[TensorType] = MOVABLE,  # the quantized types that ONNX Runtime's kernel takes
        fused: int = 0,  # the activation fused into the operator
        results: int = 1,  # how many results there are
        requantized: bool = False,  # whether the kernel does convert between parameters that differ
        # the order of axes in which operands are wanted, and results given; None: as they are
        perm: Sequence[int] | None = None,
    ) -> tuple[list[ir.Value], Callable[..., None]]:
        """Operands of an operator that only moves elements, and the function that takes its results.

        The kernels move integers, whatever the parameters of operand and result say. Where an integer means the same on
        both sides, real numbers are moved, in a unit (see `moves_integers`); else integers are.
        """
        back = None if perm is None else perms.inverse(perm)
        tensors = [*(self.output(k) for k in range(results)), *map(self.input, operands)]
        meanings = _meanings(tensors)
        first, plain = meanings[0], not any(meanings)
        alike = plain or (first is not None and all(first.equals(m) for m in meanings))
        per_channel = any(m is not None and m.per_channel for m in meanings)

        def finish(value: ir.Value, k: int = 0) -> None:
            self.result(value, k, perm=back, fused=fused)

        def finish_stored(value: ir.Value, k: int = 0) -> None:
            if first is not None:
                value = activation.apply_stored(self, value, fused, self.output(k), first)
            self.result_stored(value if back is None else self.transpose(value, back), k)

        def stored() -> list[ir.Value]:
            values = [self.stored(i) for i in operands]
            return values if perm is None else [self.transpose(value, perm) for value in values]

        if plain:
            return stored(), finish
        if requantized and not alike:
            return [self.real(i, perm) for i in operands], finish
        if self.tensors.dequantize:
            values = stored()
            if alike or per_channel:
                return values, finish
            if results == 1:
                return [self.reread(v, m, first) for v, m in zip(values, meanings[1:], strict=True)], finish
            return values, lambda value, k=0: finish(self.reread(value, meanings[-1], meanings[k]), k)
        if not alike or self.moves_integers(operands, types):
            return stored(), finish_stored
        return [self.real(i, perm) for i in operands], finish

    def moves_in_unit(self, i: int, types: Sequence[TensorType] = MOVABLE) -> bool:
        """Tell whether `carried` moves real numbers for the integers of operand i."""
        quantized = self.tensors.quantization(self.input(i)) is not None
        return quantized and self.alike(i) and not self.moves_integers([i], types)

    def moves_integers(self, operands: Sequence[int], types: Sequence[TensorType]) -> bool:
        """Tell whether elements of integers that mean the same before and after are moved by themselves.

        Else they are moved in a unit, as every operator computes: accelerators know integers between the ends of units
        only. A table of which some elements are picked is not made real for it.
        """
        return all(self.input(i).data is not None for i in operands)

    # Results.

    def result(self, value: ir.Value, i: int = 0, *, perm: Sequence[int] | None = None, fused: int = 0) -> None:
        """Hand over result i as real numbers: activation, quantization, axes back in the file's order."""
        value = self.quantize(value, i, perm=perm, fused=fused)
        self.result_stored(value if perm is None else self.transpose(value, perm), i)

    def quantize(self, value: ir.Value, i: int = 0, *, perm: Sequence[int] | None = None, fused: int = 0) -> ir.Value:
        """The integers of result i from its real numbers; `perm` is the order that a later Transpose will restore."""
        tensor = self.output(i)
        quantization = self.tensors.quantization(tensor)
        is_real = value.dtype == ir.DataType.FLOAT
        value = activation.emit_activation(self, value, fused, tensor, quantization)
        if quantization is None or not is_real:
            return value
        axis = None
        if quantization.per_channel:
            axis = quantization.axis if perm is None else perm[quantization.axis]
        return self.emit("QuantizeLinear", [value, *self.tensors.parameters(tensor)], axis=axis)

    def result_whole(self, value: ir.Value) -> None:
        """Pass on integers of any width. Where one does not fit, its lowest bits are kept."""
        self.result_stored(self.cast(value, self.tensors.plain_dtype(self.output())))

    def result_alike(self, value: ir.Value, perm: Sequence[int], fused: int = 0) -> None:
        """Hand over real numbers as the integers that they are in operand 0's terms, whatever the result's are."""
        operand, after = self.input(0), self.output().quantization
        before = self.tensors.quantization(operand)
        if self.alike(0):
            self.result(value, perm=perm, fused=fused)
            return
        if before is None or after is None:  # a float graph
            self.result(self.reread(value, operand.quantization, after), perm=perm, fused=fused)
            return
        value = self.emit("QuantizeLinear", [value, *self.tensors.parameters(operand)])
        value = activation.apply_stored(self, value, fused, self.output(), after)
        self.result_stored(self.transpose(value, perm))

    def result_stored(self, value: ir.Value, i: int = 0) -> None:
        """Hand over result i as it lies in memory."""
        tensor = self.output(i)
        dtype = self.tensors.dtype(tensor)
        if tensor.type == TensorType.INT2:
            raise Unsupported("a result of INT2, whose range no type of ONNX has before opset 25")
        if dtype == ir.DataType.FLOAT and tensor.type in QUANTIZED_TYPES and value.dtype != dtype:
            # A float graph, and an operator that yields integers: a Cast, for one.
            value = self.emit("DequantizeLinear", [value, *self.tensors.parameters(tensor)])
        value = self.cast(value, dtype)
        node = value.producer()
        # A value that has its name already, or that this operator did not compute, needs a node to rename it.
        if node is None or self.tensors.is_bound(value) or node.metadata_props.get(SOURCE) != self.source:
            value = self.emit("Identity", [value])
        self.tensors.bind(tensor, value)


def _written_for(operator: Operator, values: Iterable[ir.Value]) -> Iterable[ir.Node]:
    """Return the nodes that were written for an operator, and that values follow from."""

    def own(values: Iterable[ir.Value | None]) -> list[ir.Node]:
        place = f" {operator.place}"
        return [node for node in producers(values) if node.metadata_props.get(SOURCE, "").endswith(place)]

    return reached(own(values), lambda node: own(node.inputs))


class FoldingOperation(Operation):
    """An operator whose borders of zeros become those of the windows that slide over it, as every runtime has them."""

    folds_borders = True


def _meanings(tensors: Sequence[Tensor]) -> list[Quantization | None]:
    """Return what the integers of tensors mean between which elements are moved; None where they are plain numbers."""
    meanings = [t.quantization if t.type in QUANTIZED_TYPES else None for t in tensors]
    kinds = {t.type for t in tensors}
    if any(meanings) and len(kinds) > 1:
        raise Unsupported(f"{' and '.join(sorted(kind.name for kind in kinds))} together, where elements are moved")
    return meanings


# Nodes say of which builtin they were made, where they alone would not be that builtin again.
#
# An operator that several ONNX nodes compute may become other builtins on the way back, and so may weights of few bits
# between real numbers, which LiteRT multiplies with rounded data. One of the nodes then has the builtin's description.

MOVING = frozenset({"DequantizeLinear", "Identity", "QuantizeLinear", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
"""Operators that compute nothing of a builtin: they bring its operands and results into the form that ONNX has."""
ACTIVATIONS = frozenset({"Clip", "Relu", "Tanh"})
"""Operators that an activation is, which comes back as a part of the builtin before it."""
ANOTHER = frozenset(["BATCH_TO_SPACE_ND", "EMBEDDING_LOOKUP", "PACK", "SPACE_TO_BATCH_ND", "UNPACK", "WHERE"])
"""Builtins of which one ONNX operator, or views alone, become others."""

WRAPPING = frozenset(["SUM"])
"""Builtins whose results wrap around where integers cannot hold them; those of QuantizeLinear stay at the bound."""

COMPLEX = (TensorType.COMPLEX64, TensorType.COMPLEX128)


def mark_spelled(
    op: Operation,  # the operator
    nodes: Sequence[ir.Node],  # the nodes that were written for it
) -> None:
    """Write the description of an operator into one of its nodes, where they alone would not be that operator again."""
    if not is_restorable(op.operator.name) or op.tensors.dequantize:
        return
    own = [node for node in nodes if node.metadata_props.get(SOURCE) == op.source]
    computing = [node for node in own if node.op_type not in MOVING]
    is_other = op.operator.name in ANOTHER or _wraps(op) or is_mixed(op)
    if len(own) != len(nodes) or not (is_other or _is_spelled_out(op, computing)):
        return
    if not own or any(BUILTIN in node.metadata_props for node in own):
        return
    description = _description(op, own)
    if description is not None and description.is_sound:
        (computing or own)[-1].metadata_props[BUILTIN] = description.dump()


def _is_spelled_out(op: Operation, computing: Sequence[ir.Node]) -> bool:
    if op.operator.name == "QUANTIZE":
        return bool(computing)  # of integers that QuantizeLinear or DequantizeLinear do not have
    activated = bool(op.options.fields.get("fused_activation_function")) and computing[-1:]
    last = activated and computing[-1].op_type in ACTIVATIONS
    return len(computing) - bool(last) != 1


def is_mixed(op: Operation) -> bool:
    """Return whether it computes with integers and with other numbers: no quantized unit says that.

    1. It reads integers with a scale and gives other numbers: LiteRT rounds data beside such weights, or compares.
    2. It reads integers of 4 bits, and gives wider ones.
    """
    operands = [op.input(i) for i in range(len(op.operator.inputs)) if op.has(i)]
    kinds = [t.type for t in operands if t.quantization is not None]
    results = [op.output(i) for i in range(len(op.operator.outputs))]
    wide = all(t.type not in FEW_BITS for t in results)
    return any(kind in FEW_BITS and wide for kind in kinds) or gives_others_for_integers(operands, results)


def _wraps(op: Operation) -> bool:
    """Return whether results that integers cannot hold wrap around."""
    return op.operator.name in WRAPPING and op.output(0).type in QUANTIZED_TYPES


def gives_others_for_integers(operands: Iterable[Tensor], results: Iterable[Tensor]) -> bool:
    """Return whether some operand holds integers with a scale, and no result is of such a type."""
    reads = any(each.quantization is not None and each.type in QUANTIZED_TYPES for each in operands)
    return reads and all(each.type not in QUANTIZED_TYPES for each in results)


def _is_constant(op: Operation, tensor: Tensor) -> bool:
    """Return whether a tensor lies in the file."""
    is_computed = op.tensors.flow.producer(tensor.index) is not None or tensor.index in op.tensors.subgraph.inputs
    return tensor.data is not None and not is_computed


def _description(op: Operation, nodes: Sequence[ir.Node]) -> Builtin | None:
    """Describe an operator; None where a description would not tell all of it."""
    outputs = [op.output(i) for i in range(len(op.operator.outputs))]
    known = [op.input(i) for i in range(len(op.operator.inputs)) if op.has(i)]
    if op.operator.intermediates or not all(map(_is_plain, (*known, *outputs))):
        return None
    # Unsigned integers a result may store as signed ones.
    is_unsigned = any(each.type == TensorType.UINT8 and each.quantization is not None for each in outputs)
    if is_unsigned and not op.tensors.are_unsigned and not _wraps(op):
        return None
    read = {value for node in nodes for value in node.inputs if value is not None}
    inputs = [_operand(op, i, read, nodes) if op.has(i) else None for i in range(len(op.operator.inputs))]
    if any(op.has(i) and each is None for i, each in enumerate(inputs)):
        return None
    results = [Operand.of(tensor, op.tensors.names[tensor.index]) for tensor in outputs]
    more = np.asarray(op.operator.custom_options).tobytes()
    return Builtin(op.operator.name, options_to_say(op), tuple(inputs), tuple(results), custom_options=more)


def options_to_say(op: Operation) -> dict[str, Any]:
    """Return the options of an operator that are not the schema's defaults."""
    options: dict[str, Any] = {}
    for row in SCHEMA.tables.get(op.options.kind, ()):
        option = op.options.fields.get(row.name)
        if isinstance(option, np.ndarray) and option.size:
            options[row.name] = option.tolist()
        elif isinstance(option, int | float) and option != row.default:
            options[row.name] = option
    return options


def _is_plain(tensor: Tensor) -> bool:
    """Return whether a tensor comes back as it is: others are stored otherwise, or keep what they hold."""
    is_other = tensor.shifted or tensor.is_variable or tensor.listed or tensor.blocks is not None
    return not (is_other or tensor.sparsity is not None or tensor.type in COMPLEX)


def _operand(op: Operation, i: int, read: Iterable[ir.Value], nodes: Sequence[ir.Node]) -> Operand | None:
    """Describe an operand; None where neither a value nor the description can hold it."""
    tensor = op.input(i)
    try:
        if not _is_constant(op, tensor):
            return Operand.of(tensor, op.stored(i).name or "")
        value = op.stored(i) if op.tensors.has_value(tensor) else None
        if value is not None and value in read:
            return _weights(tensor, value, nodes)
        if int(np.prod(tensor.shape)) > SMALL:
            return None
        elements = array(tensor)
    except Unsupported:
        return None
    if tensor.quantization is not None and tensor.quantization.per_channel:
        return None
    return Operand.of(tensor)._replace(numbers=tuple(elements.reshape(-1).tolist()))


def _weights(tensor: Tensor, value: ir.Value, nodes: Sequence[ir.Node]) -> Operand | None:
    """Describe a constant: several scales lie in the value with which the nodes dequantize it."""
    operand, meaning = Operand.of(tensor, value.name or ""), tensor.quantization
    if meaning is None or not meaning.per_channel:
        return operand
    for node in nodes if not meaning.zero_point.any() else ():
        if node.op_type == "DequantizeLinear" and behind(node.inputs[0], lambda n: n.op_type in VIEWS) is value:
            scale = node.inputs[1]
            assert scale is not None
            return operand._replace(scales=scale.name or "")
    return None
