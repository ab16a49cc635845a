"""The operands of an operator on integers, as a row of the target asks for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import onnx_ir as ir

from relayout.graph.source_names import stands_for
from relayout.light_dataclass import dataclass
from relayout.lowering.unit_integers import BYTES, IntegerReader, Integers, byte_range, known_constant
from relayout.lowering.unit_rows import Unit, affine_weights, bias_in_steps, scale_and_shift
from relayout.rules import Operator


class DeclinedError(Exception):
    """A row does not fit a unit."""


@dataclass
class MatchedUnit:
    """A unit: its operator, between what it reads and the QuantizeLinear that it ends in."""

    node: ir.Node
    operator: Operator
    end: ir.Node
    result: Integers
    operands: list[Integers | None]


class UnitOperands:
    """The operands that a row of the target gives the operator on integers of a unit.

    Args:
        reader: reads integers and makes constants.
        end: writes the unit that a QuantizeLinear ends, for operands that are quantized earlier.
    """

    def __init__(self, reader: IntegerReader, end: Callable[[ir.Node], None]) -> None:
        self._reader, self._end = reader, end

    def of(self, unit: Unit, found: MatchedUnit) -> list[ir.Value | None]:
        """Return the operands of the operator on integers.

        Raises:
            DeclinedError: the row does not fit the unit.
        """
        return self._affine(found) if unit.affine else self._inputs(unit, found)

    def _inputs(self, unit: Unit, found: MatchedUnit) -> list[ir.Value | None]:
        inputs: list[ir.Value | None] = []
        for slot, form in _slots(unit.operands, len(found.operands)):
            inputs += getattr(self, f"_{FORMS[form]}")(unit, found, slot)
        while inputs and inputs[-1] is None:
            inputs.pop()
        return inputs

    def _result(self, unit: Unit, found: MatchedUnit, slot: int) -> list[ir.Value | None]:
        return [found.result.scale, found.result.zero]

    def _data(self, unit: Unit, found: MatchedUnit, slot: int) -> list[ir.Value | None]:
        operand = self._like(_at(found, slot), found.result)
        if not operand.is_plain or operand.values.dtype != found.result.values.dtype:
            raise DeclinedError
        return [operand.values, operand.scale, operand.zero]

    def _like(self, operand: Integers, result: Integers) -> Integers:
        """A constant of int8 as uint8 where the result is."""
        kinds = operand.values.dtype, result.values.dtype
        if known_constant(operand.values) is None or not operand.is_plain or kinds != BYTES:
            return operand
        return operand._replace(values=self._reader.shifted(operand.values), zero=self._reader.shifted(operand.zero))

    def _alike(self, unit: Unit, found: MatchedUnit, slot: int) -> list[ir.Value | None]:
        if unit.early and found.operands[slot] is None:
            return [self._earlier(found, slot)]
        operand = _at(found, slot)
        if not operand.alike(found.result):
            raise DeclinedError
        return [operand.values]

    def _earlier(self, found: MatchedUnit, slot: int) -> ir.Value:
        """An operand, quantized as the result is; what gives it may be a unit now."""
        real, node = found.node.inputs[slot], found.node
        if real is None or real.dtype != ir.DataType.FLOAT or node.graph is None:
            raise DeclinedError
        stem, kind = f"{real.name}/quantized", ir.TensorType(found.result.values.dtype or ir.DataType.UINT8)
        given = ir.Value(name=self._reader.names.unique(stem), type=kind, shape=real.shape)
        read = [real, found.result.scale, found.result.zero]
        end = ir.Node(
            "", "QuantizeLinear", read, outputs=[given], name=self._reader.names.unique(f"{stem}/QuantizeLinear")
        )
        stands_for(given, real)
        stands_for(end, found.end)
        node.graph.insert_before(node, end)
        node.replace_input_with(slot, None)
        self._end(end)
        return given

    def _kernel(self, unit: Unit, found: MatchedUnit, slot: int) -> list[ir.Value | None]:
        operand = _at(found, slot)
        own, data = operand.values.dtype, found.result.values.dtype
        rank = None if operand.values.shape is None else len(operand.values.shape)
        # One column has no scales of its own: those of a vector lie along what is summed over.
        along = operand.is_plain or (
            rank is not None and rank > 1 and operand.axis % rank == unit.channel(found.operator) % rank
        )
        if (own != data and (own, data) != BYTES) or not along or len(set(operand.zeros.tolist())) > 1:
            raise DeclinedError
        return [operand.values, operand.scale, operand.zero]

    def _bias(self, unit: Unit, found: MatchedUnit, slot: int) -> list[ir.Value | None]:
        if slot >= len(found.operands) or found.node.inputs[slot] is None:
            return [None]
        bias, own = self._reader.real(found.node.inputs[slot]), found.operands[slot]
        data, kernel = _at(found, 0), _at(found, 1)
        if bias is None or bias.ndim != 1:
            raise DeclinedError
        steps = data.scales.astype(np.float64) * kernel.scales
        stored = None if own is None else known_constant(own.values)
        integers = bias_in_steps(bias, steps, float(found.result.scales[0]))
        if integers is None:
            raise DeclinedError
        if own is not None and stored is not None and np.array_equal(stored, integers):
            return [own.values]
        return [self._reader.constants.new(f"{found.node.name or found.end.outputs[0].name}/bias", integers)]

    def _quantized(self, unit: Unit, found: MatchedUnit, slot: int) -> list[ir.Value | None]:
        given = slot < len(found.operands) and found.node.inputs[slot] is not None
        real = self._reader.real(found.node.inputs[slot]) if given else np.zeros(())
        if real is None:
            raise DeclinedError
        integers = np.rint(real / float(found.result.scales[0])) + int(found.result.zeros[0])
        made = np.clip(integers, *byte_range(found.result.values)).astype(
            np.asarray(known_constant(found.result.zero)).dtype
        )
        return [self._reader.constants.new(f"{found.node.name or found.end.outputs[0].name}/{slot}", made)]

    def _raw(self, unit: Unit, found: MatchedUnit, slot: int) -> list[ir.Value | None]:
        return [found.node.inputs[slot] if slot < len(found.operands) else None]

    def _affine(self, found: MatchedUnit) -> list[ir.Value | None]:
        known = scale_and_shift(found.operator, [self._reader.real(read) for read in found.node.inputs])
        if known is None:
            raise DeclinedError
        slot, scale, shift = known
        data = _at(found, slot)
        if not data.is_plain or data.values.dtype != found.result.values.dtype:
            raise DeclinedError
        made = affine_weights(scale, shift, float(data.scales[0]), float(found.result.scales[0]))
        if made is None:
            raise DeclinedError
        weights, steps, bias = made
        rank = found.operator.rank(slot) or 0
        stem = found.node.name or found.end.outputs[0].name or found.node.op_type
        kernel = self._reader.constants.new(f"{stem}/kernel", weights.reshape(-1, *(1,) * (rank - 1)))
        return [
            *(data.values, data.scale, data.zero, kernel),
            *(self._reader.constants.new(f"{stem}/kernel_scale", steps), self._reader.zero(ir.DataType.INT8)),
            *(found.result.scale, found.result.zero, self._reader.constants.new(f"{stem}/bias", bias)),
        ]


FORMS = {"": "data", "=": "alike", "w": "kernel", "b": "bias", "q": "quantized", ".": "raw", "y": "result"}
"""Letter of `Unit.operands` -> what it is."""


def _slots(operands: str, count: int) -> Iterator[tuple[int, str]]:
    """(operand, form) of each word of `Unit.operands`."""
    following = 0
    for word in operands.split():
        if word == "y":
            yield -1, word
        elif word[0] == "*":
            yield from ((slot, word[1:]) for slot in range(following, count))
        else:
            slot = int(word[0])
            following = slot + 1
            yield slot, word[1:]


def _at(found: MatchedUnit, slot: int) -> Integers:
    operand = found.operands[slot] if slot < len(found.operands) else None
    if operand is None:
        raise DeclinedError
    return operand
