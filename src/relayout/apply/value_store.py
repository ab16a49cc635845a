"""Where every value lies in the result, and the Transposes and Reshapes that bring it elsewhere.

For each root at most one Transpose per stored order, made when a reader first wants it; a Reshape between two forms of
one order moves no byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from itertools import groupby
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.apply.blocks import BLOCKED, JOINED, BlockSizes, plain_forms
from relayout.apply.provenance import Origins, declared_dims, entry_of_holds, origins, tag
from relayout.apply.quantization_annotations import Annotations
from relayout.apply.transposing import Turns, distinct, filled_dims, nearest_form, quantizers, relaid, transposed
from relayout.errors import LayoutError
from relayout.graph.source_names import Names
from relayout.infer.graph_sites import Sites
from relayout.infer.sites import Form, Order, Root, View, order_of
from relayout.layout import Extent, product
from relayout.layout.perm import between
from relayout.layout.stored_as import Holds
from relayout.light_dataclass import dataclass

# The shape of a Reshape that is computed at run time, from the extents of values that are there.

SHAPE_HAS_ENDS = 15  # opset from which a Shape tells of some axes alone


class RunTimeShapes:
    """Shapes computed at run time."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def of(self, root: Root, source: Form, target: Form) -> ir.Value:
        """Return the shape of `target` at run time, from that of `source`: several dimensions of both are dynamic.

        What lies in one dimension of `source` with others is read from another value that has it for itself. One
        dimension at most that no value has is a -1: in a run in which another one is 0 it cannot be found. A dimension
        that stays where it is is a 0.
        """
        stem = f"{root.value.name}__{tag(root, target)}"
        source_value, parts = self.storage.stored[root, source], list[Any]()
        for place, (dim, extent) in enumerate(zip(target, root.shape(target), strict=True)):
            axes = tuple([axis for axis, factors in enumerate(source) if factors and set(factors) <= set(dim)])
            if extent.is_static:
                parts.append(extent.number)
            elif place < len(source) and source[place] == dim:
                parts.append(0)
            elif tuple(index for axis in axes for index in source[axis]) != dim:
                is_rest = -1 not in parts and not self._is_measurable(root, extent)
                parts.append(-1 if is_rest else self._measured(root, stem, extent))
            elif len(axes) == 1:
                parts.append(axes)
            else:
                extents = self._extents(root, stem, source_value, axes)
                parts.append(self.storage.compute(root, f"{stem}/product", "ReduceProd", [extents]))
        pieces: list[ir.Value] = []
        for kind, group in groupby(parts, type):
            alike = list(group)
            if kind is int:
                pieces.append(self.storage.constant(f"{stem}/extents", np.array(alike, np.int64)))
            elif kind is tuple:
                pieces.append(self._extents(root, stem, source_value, [axis for (axis,) in alike]))
            else:
                pieces += alike
        if len(pieces) == 1:
            return pieces[0]
        return self.storage.compute(root, f"{stem}/target", "Concat", pieces, [ir.AttrInt64("axis", 0)])

    def _extents(self, root: Root, stem: str, value: ir.Value, axes: Sequence[int]) -> ir.Value:
        """Extents of a value at run time."""
        name, first = f"{stem}/shape", axes[0]
        if self.storage.version >= SHAPE_HAS_ENDS and list(axes) == list(range(first, first + len(axes))):
            ends = [ir.AttrInt64("start", first), ir.AttrInt64("end", first + len(axes))]
            return self.storage.compute(root, name, "Shape", [value], ends)
        indices = self.storage.constant(f"{stem}/axes", np.array(axes, np.int64))
        return self.storage.compute(
            root, f"{stem}/taken", "Gather", [self.storage.compute(root, name, "Shape", [value]), indices]
        )

    def _measured(self, root: Root, stem: str, extent: Extent) -> ir.Value:
        """Return an extent at run time: symbols that stored values have as dimensions, multiplied."""
        factors = (
            [self.storage.constant(f"{stem}/extent", np.array([extent.number], np.int64))] if extent.number != 1 else []
        )
        for symbol in extent.symbols:
            value, axis, times = self._having(root, Extent(1, (symbol,)))
            extents = self._extents(root, stem, value, [axis])
            if times > 1:
                divisor = self.storage.constant(f"{stem}/times", np.array([times], np.int64))
                extents = self.storage.compute(root, f"{stem}/quotient", "Div", [extents, divisor])
            factors.append(extents)
        if len(factors) == 1:
            return factors[0]
        joined = self.storage.compute(root, f"{stem}/factors", "Concat", factors, [ir.AttrInt64("axis", 0)])
        return self.storage.compute(root, f"{stem}/product", "ReduceProd", [joined])

    def _is_measurable(self, root: Root, extent: Extent) -> bool:
        """Tell whether some value has each symbol of an extent as a dimension."""
        try:
            for symbol in extent.symbols:
                self._having(root, Extent(1, (symbol,)))
        except LayoutError:
            return False
        return True

    def _having(self, root: Root, extent: Extent) -> tuple[ir.Value, int, int]:
        """Return a value that is there where `root` is, its dimension of that extent, and how many times it has that.

        Raises:
            LayoutError: there is none.
        """
        several: tuple[ir.Value, int, int] | None = None
        for (other, form), value in self.storage.stored.items():
            if not other.constant and other.graph in (root.graph, self.storage.sites.graph):
                for axis, own_extent in enumerate(other.shape(form)):
                    times = own_extent.divide(extent)
                    if times is not None and times.is_one:
                        return value, axis, 1
                    if times is not None and times.is_static and several is None:
                        several = value, axis, times.number
        if several is not None:
            return several
        raise LayoutError(
            f"the extent {extent} of '{root.value.name}' is in no dimension of its own; fix it with --dim"
        )


def constant_shape(root: Root, source: Form, target: Form) -> tuple[int, ...] | None:
    """Return the constant `shape` of a Reshape: 0 copies a dynamic dimension in place, -1 stands for one other.

    None where several dimensions would have to be computed.
    """
    shape = []
    for axis, extent in enumerate(root.shape(target)):
        stays = axis < len(source) and source[axis] == target[axis]
        shape.append(extent.number if extent.is_static else 0 if stays else -1)
    return tuple(shape) if shape.count(-1) <= 1 else None


SHAPE_IS_INPUT, AXES_ARE_INPUT = 5, 13
"""Opsets from which a Reshape's shape is an input, and from which the axes of a Squeeze are."""


@dataclass
class Storage:
    """The values of the result, by root and form."""

    sites: Sites  # the source graph
    names: Names  # taken names
    annotations: Annotations  # what the source says of its values beside their nodes
    # the operators that bring images into blocks of channels and back, where there are some
    blocks: BlockSizes | None = None
    turns: Turns = field(default_factory=Turns)  # which orders of values with open extents are made before others
    # graph -> the result's nodes so far, in order. A conversion is appended to the graph of its value when it is first
    # wanted; what a body alone wants of an outer value goes into it in the end (`node_changes`).
    nodes: dict[ir.Graph, list[ir.Node]] = field(default_factory=dict)
    # graph -> the result's initializers
    initializers: dict[ir.Graph, dict[str, ir.Value]] = field(default_factory=dict)
    stored: dict[tuple[Root, Form], ir.Value] = field(default_factory=dict)
    first: dict[tuple[Root, Order], Form] = field(default_factory=dict)
    # root -> the first form of each order in which it is stored; the first of all is its producer's
    forms_of: dict[Root, list[Form]] = field(default_factory=dict)
    shapes: dict[tuple[int, ...], ir.Value] = field(default_factory=dict)
    # output of the source -> the form in which the result gives it: its name is its own
    ends: dict[ir.Value, Form] = field(default_factory=dict)
    emitted: set[str] = field(default_factory=set)  # the names of the nodes that were made here
    # node that brings a value into another form -> that value
    conversions: dict[ir.Node, Root] = field(default_factory=dict)
    # the source's names of roots, as far as they were asked for
    sources: dict[Root, Origins] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.units = quantizers(self.sites)
        self.viewing: dict[Root, list[tuple[ir.Node, View, View]]] = {}
        for node, before, after in self.sites.viewing:
            if node.graph is before.root.graph:
                self.viewing.setdefault(before.root, []).append((node, before, after))
        self.names.taken |= self.annotations.named

    def put(self, root: Root, form: Form, value: ir.Value) -> None:
        """Say that `value` holds `root` in `form`; the first form of a root is its producer's."""
        if self.first.setdefault((root, order_of(form)), form) is form:
            self.forms_of.setdefault(root, []).append(form)
        self.stored[root, form] = value

    def get(self, root: Root, form: Form) -> ir.Value:
        """Return the value that holds `root` in `form`, made from what is there."""
        value = self.stored.get((root, form))
        if value is not None:
            return value
        if root.constant:
            self.put(root, form, self._constant(root, form))
        else:
            self._make(root, form)
        return self.stored[root, form]

    def constant(self, name: str, array: NDArray[np.generic]) -> ir.Value:
        """Return a new initializer."""
        return self._register(self.sites.graph, name, ir.Tensor(array), array.shape)

    # Constants: re-laid at compile time, straight from the source to the target order.

    def _constant(self, root: Root, form: Form) -> ir.Value:
        if form == root.logical and root.value.producer() is None:
            assert root.value.name is not None
            self.initializers[root.graph][root.value.name] = root.value
            return root.value
        tensor = relaid(root, form)
        value = self._register(root.graph, self.name(root, form), tensor, tensor.shape.numpy())
        self.describe(value, root, form)
        return value

    def _register(self, graph: ir.Graph, name: str, tensor: ir.TensorProtocol, shape: Sequence[int]) -> ir.Value:
        name = self.names.unique(name)
        value = ir.Value(name=name, shape=ir.Shape(shape), type=ir.TensorType(tensor.dtype), const_value=tensor)
        self.initializers[graph][name] = value
        return value

    # Values that are computed: a Transpose for another order, a Reshape for another form.

    def _make(self, root: Root, form: Form) -> None:
        if root.is_empty:
            # A value without elements is known, and a Reshape to an extent of 0 cannot be written before opset 14.
            empty = np.empty(
                [extent.number for extent in root.shape(form)], (root.value.dtype or ir.DataType.FLOAT).numpy()
            )
            self.put(root, form, self.constant(self.name(root, form), empty))
            return
        near = self.first.get((root, order_of(form)))
        if near is not None:
            self._reshape(root, near, form)
            return
        if self.blocks is not None and self._reorder(root, form, self.blocks):
            return
        permuting = self.sites.permuting
        own = [(read.form, view.form) for node, read, view in self.viewing.get(root, ()) if node in permuting]
        for before in () if self.sites.inners else self.turns.before(root, form, own, self.forms_of[root]):
            self.get(root, before)
        source = (
            self.forms_of[root][0] if self.sites.inners else nearest_form(self.forms_of[root], form, root.extents, own)
        )
        near, far = transposed(source, form, bounded=not all(e.is_static for e in root.extents))
        self.get(root, near)
        if not self._original(root, near, far, permuting=True):
            perm = ir.AttrInt64s("perm", between(distinct(near), distinct(far)))
            self._emit("Transpose", [self.stored[root, near]], root, far, [perm])
        self.get(root, form)

    # A target's own transforms between plain images and blocks of channels.

    def _reorder(self, root: Root, form: Form, blocks: BlockSizes) -> bool:
        """Bring a value into blocks, or out of them, by the target's own operator, where it has one for that."""
        if root.value.dtype != ir.DataType.FLOAT:
            return False
        for last, plain in enumerate(plain_forms(root, form, blocks.tile)):
            if (root, order_of(plain)) in self.first:
                read = self.get(root, plain)
                self._reordered(blocks.into, read, root, form, {(True, 0): BLOCKED}, channels_last=last)
                return True
        source = self.forms_of[root][0]
        for last, plain in enumerate(plain_forms(root, source, blocks.tile)):
            if order_of(plain) == order_of(form):
                channels = product(root.extents[index] for index in plain[3 if last else 1]).number
                read, joined = self.stored[root, source], {(False, 0): BLOCKED}
                self._reordered(blocks.back, read, root, plain, joined, channels_last=last, channels=channels)
                self.get(root, form)
                return True
        return False

    def _reordered(
        self,
        op_type: str,
        read: ir.Value,
        root: Root,
        form: Form,
        joined: dict[tuple[bool, int], tuple[tuple[int, ...], ...]],
        **attributes: int,
    ) -> None:
        assert self.blocks is not None
        attribute_list = [ir.AttrInt64(name, value) for name, value in attributes.items()]
        node = self._emit(op_type, [read], root, form, attribute_list, self.blocks.domain)
        node.meta[JOINED] = joined
        self.sites.graph.opset_imports.setdefault(self.blocks.domain, 1)

    def _original(self, root: Root, source: Form, target: Form, *, permuting: bool) -> bool:
        """Use the source's own node for a conversion, where it has one and what that reads is there.

        If it is `permuting`, data is moved: a Transpose of axes of one element is a Reshape.
        """
        for node, before, after in self.viewing.get(root, ()):
            value = node.outputs[0]
            is_name_taken = value.name in self.names.taken and self.ends.get(value) != target
            if (node in self.sites.permuting) != permuting:
                continue
            if before.form != source or after.form != target or is_name_taken:
                continue
            others = [self.sites.views.get(other) for other in node.inputs[1:] if other is not None]
            if not all(view and (view.root.constant or view.root in self.forms_of) for view in others):
                continue
            shape, name = value.shape, value.name
            node.replace_input_with(0, self.stored[root, source])
            for slot, other in enumerate(node.inputs):
                view = self.sites.views.get(other) if slot and other is not None else None
                if view is not None:
                    node.replace_input_with(slot, self.get(view.root, view.form))
            if node.name in self.emitted:  # a model that was converted before has nodes that are named like ours
                node.name = self._node_name(node.name)
            self.names.taken.update(each for each in (name, node.name) if each)
            self.describe(value, root, target)
            value.shape = shape
            self._append(root, node)
            self.put(root, target, value)
            return True
        return False

    def _reshape(self, root: Root, source: Form, target: Form) -> None:
        if self._original(root, source, target, permuting=False):
            return
        shape = constant_shape(root, source, target)
        # Beside a -1 no 0 may copy an extent that is 0: in some run each open one may be.
        infers = shape is not None and {0, -1} <= set(shape)
        if (shape is None or infers) and (filled := filled_dims(source)) == filled_dims(target):
            self._place_ones(root, source, filled, target)
            return
        value = self.stored[root, source]
        if shape is None or (infers and self.version >= SHAPE_IS_INPUT):
            self._emit("Reshape", [value, RunTimeShapes(self).of(root, source, target)], root, target)
        elif self.version < SHAPE_IS_INPUT:
            self._emit("Reshape", [value], root, target, [ir.AttrInt64s("shape", shape)])
        else:
            self._emit("Reshape", [value, self._shape(shape)], root, target)

    @property
    def version(self) -> int:
        """The version of the standard's operators."""
        return self.sites.graph.opset_imports.get("", 1)

    def own(self, root: Root, form: Form) -> ir.Value:
        """A value that holds `root` in `form` for one reader alone: it is behind a Reshape that nobody else reads."""
        source = self.first.get((root, order_of(form)), form)
        shape = constant_shape(root, source, form)
        if (root, source) not in self.stored or shape is None or {0, -1} <= set(shape):
            self.get(root, form)
            source, shape = form, constant_shape(root, form, form)
        assert shape is not None
        shared = self.stored.get((root, form))
        self._emit("Reshape", [self.stored[root, source], self._shape(shape)], root, form)
        value = self.stored.pop((root, form))
        if shared is not None:
            self.stored[root, form] = shared
        return value

    def keep_apart(self, root: Root, form: Form) -> None:
        """Put a Reshape that changes nothing behind a value: whoever reads it from now on reads the result."""
        shape = (0,) * len(form)  # each dimension as it is
        self._emit("Reshape", [self.stored[root, form], self._shape(shape)], root, form)

    def _shape(self, shape: tuple[int, ...]) -> ir.Value:
        """Return a constant shape, the same for all that ask for it."""
        if shape not in self.shapes:
            label = "x".join(map(str, shape)) or "scalar"
            self.shapes[shape] = self.constant(f"shape_{label}", np.array(shape, np.int64))
        return self.shapes[shape]

    def _place_ones(self, root: Root, source: Form, filled: Form, target: Form) -> None:
        """Size-1 axes elsewhere: whatever the other extents are, nothing has to be computed."""
        for op_type, form, ones in (("Squeeze", filled, source), ("Unsqueeze", target, target)):
            if form != source:
                operands = [self.stored[root, source]]
                axes = [axis for axis, dim in enumerate(ones) if not dim]
                attributes = []
                if self.version < AXES_ARE_INPUT:
                    attributes = [ir.AttrInt64s("axes", axes)]
                else:
                    operands.append(
                        self.constant(f"{root.value.name}__{tag(root, form)}/axes", np.array(axes, np.int64))
                    )
                if (root, form) not in self.stored:
                    self._emit(op_type, operands, root, form, attributes)
                source = form

    def compute(
        self, root: Root, name: str, op_type: str, inputs: Sequence[ir.Value], attributes: Sequence[ir.Attr] = ()
    ) -> ir.Value:
        """Return the result of a new node, integers, in the graph where `root` is computed."""
        output = ir.Value(name=self.names.unique(name), type=ir.TensorType(ir.DataType.INT64))
        node = ir.Node("", op_type, inputs, attributes, outputs=[output], name=self._node_name(f"{name}/{op_type}"))
        self._append(root, node)
        return output

    def _emit(
        self,
        op_type: str,
        inputs: list[ir.Value],
        root: Root,
        form: Form,
        attributes: Sequence[ir.Attr] = (),
        domain: str = "",
    ) -> ir.Node:
        name = self.name(root, form)
        output = ir.Value(name=self.names.unique(name), type=root.value.type)
        self.describe(output, root, form)
        name = self._node_name(f"{output.name}/{op_type}")
        quantizing = self.units.get(root)
        if quantizing is None:
            node = ir.Node(domain, op_type, inputs, attributes, outputs=[output], name=name)
            self._append(root, node)
        else:
            node = self._emit_unit(quantizing, op_type, inputs, attributes, output, name, root)
        self.put(root, form, output)
        return node

    def _emit_unit(
        self,
        quantizing: ir.Node,
        op_type: str,
        inputs: Sequence[ir.Value],
        attributes: Sequence[ir.Attr],
        output: ir.Value,
        name: str,
        root: Root,
    ) -> ir.Node:
        """Move integers in a unit of their own, as runtimes look for it: between their reals and integers again."""
        read, parameters = inputs[0], quantizing.inputs[1:]
        assert quantizing.inputs[0] is not None
        kind = quantizing.inputs[0].type
        real, moved = (
            ir.Value(name=self.names.unique(f"{value.name}/real"), type=kind, shape=value.shape)
            for value in (read, output)
        )
        ends = [self._node_name(f"{output.name}/{each}") for each in ("DequantizeLinear", "QuantizeLinear")]
        first = ir.Node(quantizing.domain, "DequantizeLinear", [read, *parameters], outputs=[real], name=ends[0])
        node = ir.Node("", op_type, [real, *inputs[1:]], attributes, outputs=[moved], name=name)
        last = ir.Node(quantizing.domain, "QuantizeLinear", [moved, *parameters], outputs=[output], name=ends[1])
        for each in (first, node, last):
            self._append(root, each)
        return node

    def _append(self, root: Root, node: ir.Node) -> None:
        self.nodes[root.graph].append(node)
        self.conversions[node] = root

    def _node_name(self, stem: str) -> str:
        name = self.names.unique(stem)
        self.emitted.add(name)
        return name

    def name(self, root: Root, form: Form) -> str:
        """The name of the source's value that lies like this, where there is one; else the root's, with its order."""
        sources = self.origins(root).names
        free = (name for name, source in sources if source == form and name not in self.names.taken)
        stem = sources[0][0] if sources else root.value.name
        return next(free, None) or f"{stem}__{tag(root, form)}"

    def describe(self, value: ir.Value, root: Root, form: Form) -> None:
        """Give a stored value its shape, and say in its metadata which of the source's values it holds, and how."""
        value.shape = ir.Shape(root.space.of(declared_dims, form, root.shape(form), self.sites.named))
        self.tell(value, root, form)

    def origins(self, root: Root) -> Origins:
        """Return the source's names of a root; to be asked before its values get others."""
        known_origins = self.sources.get(root)
        if known_origins is None:
            known_origins = self.sources[root] = origins(self.sites, root)
        return known_origins

    def tell(self, value: ir.Value, root: Root, form: Form) -> None:
        """Say in a stored value's metadata which of the source's values it holds, and how."""
        names, older = self.origins(root)
        renamed = [(name, source) for name, source in names if not (name == value.name and source == form)]
        entries = [
            Holds(name, *root.space.of(entry_of_holds, (source, form), root.extents, source, form))
            for name, source in (*renamed, *older)
        ]
        Holds.note(value.metadata_props, entries)
        self.annotations.carry(value, root)
