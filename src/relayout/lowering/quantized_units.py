"""Quantized units -> the operators on integers that a target has, before any layout is chosen.

A unit is an operator with a DequantizeLinear before every operand and a QuantizeLinear after its result; of some rows
the latter alone, and what they read is quantized first. The QuantizeLinear becomes the operator on integers, in place:
the value that it gives, and its name, stay. A unit for which the target has no row stays as it is, and so does one that
is better on real numbers (`reals.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.apply.provenance import holds_itself
from relayout.formats.onnx.parts import ANNOTATION
from relayout.graph.source_names import stands_for
from relayout.graph.subgraphs import all_nodes
from relayout.lowering.constants import Constants, as_unsigned
from relayout.lowering.keep_float import read_as_reals
from relayout.lowering.unit_rows import (
    DEQUANTIZING,
    QUANTIZING,
    Reals,
    Unit,
    affine_weights,
    bias_in_steps,
    scale_and_shift,
    vanishes,
)
from relayout.rules import Operator
from relayout.rules.in_graph import operator_of

Array = NDArray[np.generic]
BYTES = (ir.DataType.INT8, ir.DataType.UINT8)
AXES_AS_INPUT = 13
"""Opset from which the axes of a Squeeze are an input."""


class Integers(NamedTuple):
    """Integers and what they mean: `(integers - zero) * scale`, along an axis where there are several scales."""

    values: ir.Value
    scale: ir.Value
    zero: ir.Value
    axis: int

    @property
    def scales(self) -> NDArray[np.float32]:
        """The scales, one or one per item of the axis."""
        return np.asarray(_known(self.scale)).reshape(-1).astype(np.float32)

    @property
    def zeros(self) -> NDArray[np.int64]:
        """The zero points, likewise."""
        return np.asarray(_known(self.zero)).reshape(-1).astype(np.int64)

    @property
    def is_plain(self) -> bool:
        """Whether one scale and one zero point hold for all."""
        return self.scales.size == self.zeros.size == 1

    def alike(self, other: Integers) -> bool:
        """Whether an integer means the same in both."""
        kinds = self.values.dtype == other.values.dtype
        scales = bool(np.array_equal(self.scales, other.scales))
        return kinds and self.is_plain and scales and bool(np.array_equal(self.zeros, other.zeros))


class DeclinedError(Exception):
    """A row does not fit a unit."""


@dataclass
class Found:
    """A unit: its operator, between what it reads and the QuantizeLinear that it ends in."""

    node: ir.Node
    operator: Operator
    end: ir.Node
    result: Integers
    operands: list[Integers | None]


def fuse_units(model: ir.Model, units: Sequence[Unit], unsigned: bool = False) -> dict[str, int]:
    """Write quantized units as the operators on integers that a target has, in place.

    Returns:
        Operator on integers -> how many units it runs now.
    """
    if not units:
        return {}
    fusing = _Fusing(model, units)
    if unsigned:
        fusing.make_unsigned()
    for node in list(all_nodes(model.graph)):
        if node.op_type in QUANTIZING and not node.domain:
            fusing.end(node)
    fusing.clear()
    return dict(sorted(fusing.counts.items()))


class _Fusing:
    def __init__(self, model: ir.Model, units: Sequence[Unit]) -> None:
        self.model, self.units = model, units
        self.counts: Counter[str] = Counter()
        self.constants = Constants(model)
        self.names = self.constants.names
        self.left: dict[ir.Node, None] = {}
        self.zeros: dict[ir.DataType, ir.Value] = {}

    def make_unsigned(self) -> None:
        """Store the data between units as uint8: an integer and its zero point move by 128, and mean the same."""
        for node in list(all_nodes(self.model.graph)):
            if node.domain or node.op_type not in QUANTIZING | DEQUANTIZING or not self._signed(node):
                continue
            value = node.outputs[0]
            if node.op_type in QUANTIZING and self._ends_in_signed(value):
                self._shift(node)
                stands_for(value, value)
                holds_itself(value)
                value.meta.pop(ANNOTATION, None)  # its zero point is that of the other type
                value.dtype, value.name = ir.DataType.UINT8, self.names.unique(f"{value.name}/unsigned")
                for use in value.uses():
                    self._shift(use.node)
            elif node.op_type in QUANTIZING and value.is_graph_output():
                self._pair(node, node.inputs[0], after=False)
            elif node.op_type in DEQUANTIZING and node.inputs[0] in self.model.graph.inputs and value.uses():
                if read_as_reals(self.model, value, self.units):
                    continue  # nothing is gained by another type
                self._pair(node, value, after=True)

    def _ends_in_signed(self, value: ir.Value) -> bool:
        """Whether nodes that dequantize int8 alone read a value, as their first operand."""
        uses = value.uses()
        alone = all(use.idx == 0 and use.node.op_type in DEQUANTIZING and not use.node.domain for use in uses)
        return bool(uses) and alone and not value.is_graph_output() and all(self._signed(use.node) for use in uses)

    def _signed(self, node: ir.Node) -> bool:
        """Whether a node quantizes or dequantizes int8, as a whole."""
        values = node.outputs[0] if node.op_type in QUANTIZING else node.inputs[0]
        found = None if values is None else self._integers(node, values)
        named = len(node.inputs) > 2 and node.inputs[2] is not None
        return found is not None and named and found.is_plain and found.values.dtype == ir.DataType.INT8

    def _shift(self, node: ir.Node) -> None:
        node.attributes.pop("output_dtype", None)
        node.replace_input_with(2, self._shifted(node.inputs[2]))

    def _shifted(self, zero: ir.Value | None) -> ir.Value:
        """An int8 constant as uint8."""
        return self.constants.new(f"{zero.name if zero else 'zero'}/unsigned", as_unsigned(np.asarray(_known(zero))))

    def _pair(self, node: ir.Node, value: ir.Value | None, *, after: bool) -> None:
        """A QuantizeLinear to uint8 and back at an end of the model, which keeps its int8."""
        assert value is not None
        scale, zero = node.inputs[1], self._shifted(node.inputs[2])
        uses = list(value.uses())
        stored = ir.Value(
            name=self.names.unique(f"{value.name}/unsigned"), type=ir.TensorType(ir.DataType.UINT8), shape=value.shape
        )
        real = ir.Value(name=self.names.unique(f"{value.name}/real"), type=value.type, shape=value.shape)
        ends = [
            ir.Node(
                "", op_type, [read, scale, zero], outputs=[given], name=self.names.unique(f"{given.name}/{op_type}")
            )
            for op_type, read, given in (("QuantizeLinear", value, stored), ("DequantizeLinear", stored, real))
        ]
        made: tuple[ir.Value | ir.Node, ...] = (stored, real, *ends)
        for each in made:
            stands_for(each, value)
        assert node.graph is not None
        if after:
            node.graph.insert_after(node, ends)
            for use in uses:
                use.node.replace_input_with(use.idx, real)
        else:
            node.graph.insert_before(node, ends)
            node.replace_input_with(0, real)

    def end(self, node: ir.Node) -> None:
        """Write the unit that a QuantizeLinear ends, if there is one that some row fits."""
        found = self._found(node)
        if found is None:
            return
        dtype = found.result.values.dtype
        for unit in self.units:
            if dtype is None or unit.reals or not unit.takes(found.operator, dtype.name):
                continue
            try:
                inputs = self._affine(found) if unit.affine else self._inputs(unit, found)
            except DeclinedError:
                continue
            self._write(unit, found, inputs)
            return

    def clear(self) -> None:
        """Remove the nodes that nothing reads any longer."""
        for node in reversed(list(all_nodes(self.model.graph))):
            if node in self.left and node.graph is not None and not any(_read(value) for value in node.outputs):
                node.graph.remove(node, safe=True)

    # What a unit is

    def _found(self, end: ir.Node) -> Found | None:
        result = self._integers(end, end.outputs[0])
        value = end.inputs[0]
        if result is None or not result.is_plain or result.values.dtype not in BYTES:
            return None
        scale, zero = float(result.scales[0]), int(result.zeros[0])
        ends = _ends(result.values)
        node = _before(value, end)
        between: list[ir.Node] = []
        while node is not None and vanishes(operator_of(self.model, node), scale, zero, ends):
            between.append(node)
            node = _before(node.inputs[0], node)
        if node is None or node.op_type in DEQUANTIZING:
            return None
        operands = [None if read is None else self._dequantized(read) for read in node.inputs]
        operator, dtype = operator_of(self.model, node), result.values.dtype.name
        early = any(unit.early and unit.takes(operator, dtype) for unit in self.units)
        if all(operand is None for operand in operands) and not early:
            return None
        self.left.update(dict.fromkeys((*between, node)))
        return Found(node, operator, end, result, operands)

    def _dequantized(self, value: ir.Value) -> Integers | None:
        """The integers that a value was dequantized from."""
        node = value.producer()
        if node is None or node.op_type not in DEQUANTIZING or node.domain or node.inputs[0] is None:
            return None
        found = self._integers(node, node.inputs[0])
        if found is not None:
            self.left[node] = None
        return found

    def _integers(self, node: ir.Node, values: ir.Value) -> Integers | None:
        """The integers on one side of a node that quantizes or dequantizes, if their scales are constant floats."""
        scale = node.inputs[1]
        zero = node.inputs[2] if len(node.inputs) > 2 else None
        known = _known(scale)
        if scale is None or known is None or known.dtype != np.float32 or known.ndim > 1 or values.dtype is None:
            return None
        if zero is None:
            zero = self._zero(values.dtype)
        if node.attributes.get_int("block_size", 0) or _known(zero) is None:
            return None
        return Integers(values, scale, zero, node.attributes.get_int("axis", 1))

    def _zero(self, dtype: ir.DataType) -> ir.Value:
        """The zero point of a node that names none."""
        if dtype not in self.zeros:
            self.zeros[dtype] = self.constants.new("zero_point", np.zeros((), dtype.numpy()))
        return self.zeros[dtype]

    def _real(self, value: ir.Value | None) -> Reals | None:
        """A constant as real numbers, dequantized where it is stored as integers."""
        known = _known(value)
        if value is None:
            return None
        if known is not None:
            return known.astype(np.float64) if known.dtype.kind == "f" else None
        found = self._dequantized(value)
        integers = None if found is None else _known(found.values)
        if found is None or integers is None:
            return None
        shape = [1] * integers.ndim
        if not found.is_plain:
            shape[found.axis % integers.ndim] = -1
        zeros, scales = found.zeros, found.scales.astype(np.float64)
        ones: Sequence[int] = shape if integers.ndim else ()
        return np.asarray((integers.astype(np.int64) - zeros.reshape(ones)) * scales.reshape(ones), np.float64)

    # How a row writes it

    def _inputs(self, unit: Unit, found: Found) -> list[ir.Value | None]:
        inputs: list[ir.Value | None] = []
        for slot, form in _slots(unit.operands, len(found.operands)):
            inputs += getattr(self, f"_{FORMS[form]}")(unit, found, slot)
        while inputs and inputs[-1] is None:
            inputs.pop()
        return inputs

    def _result(self, unit: Unit, found: Found, slot: int) -> list[ir.Value | None]:
        return [found.result.scale, found.result.zero]

    def _data(self, unit: Unit, found: Found, slot: int) -> list[ir.Value | None]:
        operand = self._like(_at(found, slot), found.result)
        if not operand.is_plain or operand.values.dtype != found.result.values.dtype:
            raise DeclinedError
        return [operand.values, operand.scale, operand.zero]

    def _like(self, operand: Integers, result: Integers) -> Integers:
        """A constant of int8 as uint8 where the result is."""
        kinds = operand.values.dtype, result.values.dtype
        if _known(operand.values) is None or not operand.is_plain or kinds != BYTES:
            return operand
        return operand._replace(values=self._shifted(operand.values), zero=self._shifted(operand.zero))

    def _alike(self, unit: Unit, found: Found, slot: int) -> list[ir.Value | None]:
        if unit.early and found.operands[slot] is None:
            return [self._earlier(found, slot)]
        operand = _at(found, slot)
        if not operand.alike(found.result):
            raise DeclinedError
        return [operand.values]

    def _earlier(self, found: Found, slot: int) -> ir.Value:
        """An operand, quantized as the result is; what gives it may be a unit now."""
        real, node = found.node.inputs[slot], found.node
        if real is None or real.dtype != ir.DataType.FLOAT or node.graph is None:
            raise DeclinedError
        stem, kind = f"{real.name}/quantized", ir.TensorType(found.result.values.dtype or ir.DataType.UINT8)
        given = ir.Value(name=self.names.unique(stem), type=kind, shape=real.shape)
        read = [real, found.result.scale, found.result.zero]
        end = ir.Node("", "QuantizeLinear", read, outputs=[given], name=self.names.unique(f"{stem}/QuantizeLinear"))
        stands_for(given, real)
        stands_for(end, found.end)
        node.graph.insert_before(node, end)
        node.replace_input_with(slot, None)
        self.end(end)
        return given

    def _kernel(self, unit: Unit, found: Found, slot: int) -> list[ir.Value | None]:
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

    def _bias(self, unit: Unit, found: Found, slot: int) -> list[ir.Value | None]:
        if slot >= len(found.operands) or found.node.inputs[slot] is None:
            return [None]
        bias, own = self._real(found.node.inputs[slot]), found.operands[slot]
        data, kernel = _at(found, 0), _at(found, 1)
        if bias is None or bias.ndim != 1:
            raise DeclinedError
        steps = data.scales.astype(np.float64) * kernel.scales
        stored = None if own is None else _known(own.values)
        integers = bias_in_steps(bias, steps, float(found.result.scales[0]))
        if integers is None:
            raise DeclinedError
        if own is not None and stored is not None and np.array_equal(stored, integers):
            return [own.values]
        return [self.constants.new(f"{found.node.name or found.end.outputs[0].name}/bias", integers)]

    def _quantized(self, unit: Unit, found: Found, slot: int) -> list[ir.Value | None]:
        given = slot < len(found.operands) and found.node.inputs[slot] is not None
        real = self._real(found.node.inputs[slot]) if given else np.zeros(())
        if real is None:
            raise DeclinedError
        integers = np.rint(real / float(found.result.scales[0])) + int(found.result.zeros[0])
        made = np.clip(integers, *_ends(found.result.values)).astype(np.asarray(_known(found.result.zero)).dtype)
        return [self.constants.new(f"{found.node.name or found.end.outputs[0].name}/{slot}", made)]

    def _raw(self, unit: Unit, found: Found, slot: int) -> list[ir.Value | None]:
        return [found.node.inputs[slot] if slot < len(found.operands) else None]

    def _affine(self, found: Found) -> list[ir.Value | None]:
        known = scale_and_shift(found.operator, [self._real(read) for read in found.node.inputs])
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
        kernel = self.constants.new(f"{stem}/kernel", weights.reshape(-1, *(1,) * (rank - 1)))
        return [
            *(data.values, data.scale, data.zero, kernel),
            *(self.constants.new(f"{stem}/kernel_scale", steps), self._zero(ir.DataType.INT8)),
            *(found.result.scale, found.result.zero, self.constants.new(f"{stem}/bias", bias)),
        ]

    def _write(self, unit: Unit, found: Found, inputs: Sequence[ir.Value | None]) -> None:
        """The QuantizeLinear becomes the operator on integers, or the Squeeze after it."""
        node, end = found.node, found.end
        domain, _, op_type = (unit.written or node.op_type).rpartition(":")
        said = dict(unit.attributes(found.operator))
        kept = [attribute for attribute in node.attributes.values() if attribute.name not in said and not unit.affine]
        kept += [ir.convenience.convert_attribute(name, value) for name, value in said.items() if value is not None]
        squeezed = unit.squeezed(found.operator)
        if squeezed:
            before = ir.Node(domain, op_type, inputs, kept, outputs=[self._unsqueezed(end, squeezed)], name=node.name)
            assert end.graph is not None
            end.graph.insert_before(end, before)
            self._turn(end, "", "Squeeze", *self._axes(before.outputs[0], squeezed))
        else:
            self._turn(end, domain, op_type, inputs, kept)
            end.name = node.name or end.name
        if domain:
            self.model.opset_imports.setdefault(domain, 1)
        self.counts[f"{domain}:{op_type}" if domain else op_type] += 1

    def _turn(
        self, end: ir.Node, domain: str, op_type: str, inputs: Sequence[ir.Value | None], attributes: Sequence[ir.Attr]
    ) -> None:
        """Make another node of the end of a unit; what it gives stays."""
        end.domain, end.op_type = domain, op_type
        end.attributes.clear()
        for attribute in attributes:
            end.attributes.add(attribute)
        end.resize_inputs(len(inputs))
        for slot, read in enumerate(inputs):
            end.replace_input_with(slot, read)

    def _unsqueezed(self, end: ir.Node, axes: Sequence[int]) -> ir.Value:
        """What a unit gives, before a Squeeze takes axes from it."""
        given = end.outputs[0]
        dims: list[int | ir.SymbolicDim] = list(given.shape or ())
        for axis in axes:
            dims.insert(axis, 1)
        shape = None if given.shape is None else ir.Shape(dims)
        kept = ir.Value(name=self.names.unique(f"{given.name}/kept"), type=given.type, shape=shape)
        stands_for(kept, given)
        return kept

    def _axes(self, value: ir.Value, axes: Sequence[int]) -> tuple[list[ir.Value | None], list[ir.Attr]]:
        """Inputs and attributes of a Squeeze."""
        if self.model.opset_imports.get("", 1) < AXES_AS_INPUT:
            return [value], [ir.AttrInt64s("axes", list(axes))]
        return [value, self.constants.new(f"{value.name}/axes", np.array(axes, np.int64))], []


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


def _at(found: Found, slot: int) -> Integers:
    operand = found.operands[slot] if slot < len(found.operands) else None
    if operand is None:
        raise DeclinedError
    return operand


def _before(value: ir.Value | None, reader: ir.Node) -> ir.Node | None:
    """The node that gives a value to one reader alone, in the same graph, and gives nothing else."""
    node = None if value is None else value.producer()
    if value is None or node is None or node.graph is not reader.graph or len(value.uses()) != 1:
        return None
    others = [other for other in node.outputs if other is not value and _read(other)]
    return None if others or value.is_graph_output() else node


def _ends(value: ir.Value) -> tuple[int, int]:
    """The least and the largest integer of a value of bytes."""
    return (0, 255) if value.dtype == ir.DataType.UINT8 else (-128, 127)


def _read(value: ir.Value) -> bool:
    return bool(value.uses()) or value.is_graph_output()


def _known(value: ir.Value | None) -> Array | None:
    """A constant: an initializer that no input overrides."""
    if value is None or value.const_value is None or value.is_graph_input() or value.producer() is not None:
        return None
    return value.const_value.numpy()
