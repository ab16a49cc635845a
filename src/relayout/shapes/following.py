"""Follow an opened axis from the inputs through every operator, by the axes that signatures say are the same.

Nothing is changed here. What is found is where the axis lies in each value, and what has to be stated anew. An operator
that binds the axis is an error that names it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import onnx_ir as ir

from relayout.formats.onnx.evaluating import SLIDING
from relayout.graph.domains import RESIZE
from relayout.graph.source_names import Names
from relayout.graph.subgraphs import bodies, reads
from relayout.graph.walks import reached
from relayout.layout import ONE, Extent
from relayout.rules import Fact, Facts, Nested, Operator, Permuted, Regrouped, Signature, rule_of
from relayout.rules.facts import operator_of
from relayout.shapes.own_axes import OWN, VIEWS, Binding, extents_of, of_lengths, of_rows, repeats_along, sources
from relayout.shapes.parts import MoreInputsError, OpenedFactor, OpeningError, Parts, dims_of
from relayout.shapes.rewriting import STATED, Change, Computed, Items, State, is_arithmetic
from relayout.shapes.through_reshapes import Choice, NodeWithBodies, follow_reshape

# Operators that give an axis of another length: windows that slide over it, and a Resize by whole numbers.
#
# The new length is a name of its own, the same for the same formula: two branches of a network that shrink an image
# alike meet again.

SCALES, SIZES = 2, 3  # inputs of a Resize


class WindowLength(NamedTuple):
    """The new length of `n` elements: `(n * scale + more) // stride + 1`, or `n * scale` where the stride is 0."""

    letter: str  # of the axis in the result
    scale: int = 1  # by how much it is longer first
    more: int = 0  # what is added
    stride: int = 0  # of the window

    @property
    def keeps(self) -> bool:
        """True if the length stays as it is."""
        return self.scale == 1 and (not self.stride or (self.stride == 1 and self.more == -1))

    def exact(self, length: Extent) -> Extent | None:
        """Return the new length where it is a multiple of a name: a whole scale, or a stride that leaves no rest."""
        longer = length * Extent(self.scale)
        if not self.stride:
            return longer
        return longer.divide(Extent(self.stride)) if -self.stride <= self.more < 0 else None

    def of(self, extent: int) -> int:
        """Return the new length of a number."""
        longer = extent * self.scale
        return (longer + self.more) // self.stride + 1 if self.stride else longer


def slid(operator: Operator, letter: str) -> WindowLength | None:
    """A convolution or a pool, by its kernel, strides, dilations and pads."""
    rank, weights = operator.rank(), operator.shape(1) if operator.has(1) else None
    kernel = operator.ints("kernel_shape") or (weights or ())[2:]
    axis = _place(letter)
    if rank is None or axis is None or len(kernel) != rank - 2:
        return None
    size, count = kernel[axis], len(kernel)
    stride = (operator.ints("strides") or (1,) * count)[axis]
    reach = (operator.ints("dilations") or (1,) * count)[axis]
    pads = operator.ints("pads") or (0,) * 2 * count
    automatic = operator.string("auto_pad", "NOTSET")
    if not isinstance(size, int) or operator.int("ceil_mode", 0):
        return None
    if automatic.startswith("SAME"):
        return WindowLength(f"t{axis}", more=-1, stride=stride)
    more = 0 if automatic == "VALID" else pads[axis] + pads[axis + count]
    return WindowLength(f"t{axis}", more=more - reach * (size - 1) - 1, stride=stride)


def slid_back(operator: Operator, letter: str) -> WindowLength | None:
    """A transposed convolution: `(n - 1) * stride + reach + more`."""
    rank, weights, axis = operator.rank(), operator.shape(1), _place(letter)
    if rank is None or weights is None or axis is None or operator.ints("output_shape"):
        return None
    count, size = rank - 2, weights[2 + axis]
    stride = (operator.ints("strides") or (1,) * count)[axis]
    reach = (operator.ints("dilations") or (1,) * count)[axis]
    pads = operator.ints("pads") or (0,) * 2 * count
    if not isinstance(size, int) or operator.string("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return None
    more = (operator.ints("output_padding") or (0,) * count)[axis] - pads[axis] - pads[axis + count]
    return WindowLength(f"t{axis}", stride, reach * (size - 1) - stride + more, 1)


def resized(operator: Operator, letter: str) -> WindowLength | None:
    """A Resize by whole scales."""
    axis, scales, sizes = int(letter[1:]), operator.constant(SCALES), operator.integers(SIZES)
    shape = operator.shape() or ()
    axes = operator.ints("axes") or tuple(range(len(shape)))
    if axis not in axes or operator.string("keep_aspect_ratio_policy", "stretch") != "stretch":
        return None
    place, extent = axes.index(axis), shape[axis]
    if sizes is not None and len(sizes) == len(axes) and isinstance(extent, int):
        scale = sizes[place] / extent
    elif scales is not None and scales.size == len(axes) and not operator.has(SIZES):
        scale = float(scales.reshape(-1)[place])
    else:
        return None
    return WindowLength(letter, int(scale)) if scale >= 1 and scale.is_integer() else None


def depth_to_space(operator: Operator, letter: str) -> WindowLength | None:
    """As many elements for each as a block has."""
    axis = _place(letter)
    return None if axis is None else WindowLength(f"t{axis}", operator.int("blocksize", 1))


def space_to_depth(operator: Operator, letter: str) -> WindowLength | None:
    """One element for each block."""
    axis, size = _place(letter), operator.int("blocksize", 1)
    return None if axis is None else WindowLength(f"t{axis}", more=-size, stride=size)


def _place(letter: str) -> int | None:
    """Return which axis of space a letter is; None for any other."""
    return int(letter[1:]) if letter[:1] == "s" and letter[1:].isdigit() else None


WINDOWS: Mapping[tuple[str, str], Callable[[Operator, str], WindowLength | None]] = {
    **dict.fromkeys((("", name) for name in SLIDING), slid),
    ("", "ConvTranspose"): slid_back,
    ("", "DepthToSpace"): depth_to_space,
    ("", RESIZE): resized,
    ("", "SpaceToDepth"): space_to_depth,
}
"""(domain, operator) -> what becomes of the length of one of its axes, by the letter of the operand."""


# Values that are made of extents: a mask of a computed shape, a constant that is repeated for each row of a batch.
#
# Where the shape holds an opened extent, the value has an opened axis.


def part_of(extent: Extent | None, part: OpenedFactor) -> OpenedFactor | None:
    """Return the part that an extent holds of an opened dimension: it leads, since all its steps are alike."""
    rest = None if extent is None else extent.divide(part.length)
    return None if rest is None or not rest.is_static else OpenedFactor(ONE, part.length, part.before, rest)


MADE = {("", "ConstantOfShape"): (0, False), ("", "Expand"): (1, False), ("", "Tile"): (1, True)}
"""(domain, operator) -> the input that holds the extents of its result, and whether it holds how often they repeat."""


def made_parts(
    operator: Operator,  # the node
    items: Items,  # what its vector of extents holds in the result
    part: OpenedFactor,  # the opened dimension
) -> dict[int, OpenedFactor] | None:
    """Return the opened axes of what an operator makes of extents; None where one is not known."""
    output = operator.outputs[0]
    extents: Sequence[Extent | None] = items
    if MADE[operator.node.domain, operator.node.op_type][1]:
        dims = operator.shape() or ()
        extents = [None if item is None else Extent.of(dim) * item for dim, item in zip(dims, items, strict=False)]
    if output is None or any(extent is None for extent in extents) or len(extents) > len(output):
        return None
    lead, part_by_axis = len(output) - len(extents), dict[int, OpenedFactor]()
    for place, extent in enumerate(extents, lead):
        own = part_of(extent, part)
        if own is not None and own.source_extent == Extent.of(output[place]):
            part_by_axis[place] = own
        elif extent is not None and not extent.is_static:
            return None
    return part_by_axis


# An operand that lost its one row, and is stretched over the rows of another: it gets its rows back.
#
# Converters drop a batch of 1 before a sum, since the sum stretches it again:
#
#     x[1 192] + Squeeze(y[1 192])[192]  ->  x[n 192] + y[n 192]


class RowOperand(NamedTuple):
    """An operand whose first dimension starts with the rows that another operand has as an axis."""

    letter: str  # of that axis
    part: OpenedFactor  # what is opened of it
    items: list[int]  # the shape with the rows as an axis of their own


def row_operands(node: ir.Node, fact: Signature, parts: Mapping[ir.Value, Parts]) -> dict[int, RowOperand]:
    """Find the operands of a node that stretches them which get their rows back: input -> its rows."""
    whole = _whole_axes(node, fact, parts)
    order, rows_by_slot = fact.outputs[0] or (), dict[int, RowOperand]()
    for slot, (value, names) in enumerate(zip(node.inputs, fact.inputs, strict=True)):
        merged = parts.get(value, {}).get(0) if value is not None else None
        if value is None or not names or merged is None or merged.is_whole or not merged.outer.is_one:
            continue
        missing = order[: order.index(names[0])] if fact.broadcast and names[0] in order else ()
        letter = next((each for each in missing if each in whole and whole[each].length == merged.length), None)
        rest = [merged.inner, *extents_of(value)[1:]]
        if letter is not None and all(extent.is_static for extent in rest) and len(parts[value]) == 1:
            between = [Extent(1)] * (len(missing) - missing.index(letter) - 1)
            items = [-1, *(extent.number for extent in (*between, *rest))]
            rows_by_slot[slot] = RowOperand(letter, OpenedFactor(ONE, merged.length, merged.before, ONE), items)
    return rows_by_slot


def _whole_axes(node: ir.Node, fact: Signature, parts: Mapping[ir.Value, Parts]) -> dict[str, OpenedFactor]:
    """Return the letters of the axes that are opened as a whole."""
    whole: dict[str, OpenedFactor] = {}
    for value, names in zip(node.inputs, fact.inputs, strict=True):
        if value is None or names is None:
            continue
        for axis, part in parts.get(value, {}).items():
            if part.is_whole:
                whole.setdefault(names[axis], part)
    return whole


SHAPES = frozenset(("Shape", "Size"))  # operators that give the extents of what they read


class Following:
    """An opened axis on its way through a model."""

    def __init__(
        self,
        model: ir.Model,  # the model, whose shapes are known
        seeds: Mapping[ir.Value, Parts],  # inputs and their opened axes
        what: str,  # what the user asked for and may not be
        choices: Mapping[ir.Node, int],  # node -> which of its ways is taken; the first, where nothing is said
        binding: Binding = of_rows,  # what says why an operator binds an axis
    ) -> None:
        self.model, self.what, self.choices, self.binding = model, what, choices, binding
        self.parts: dict[ir.Value, Parts] = dict(seeds)  # value -> its opened axes
        names = (part.length.names for parts in seeds.values() for part in parts.values())
        self.computed = Computed(model, frozenset().union(*names))  # what follows from opened extents
        self.changes: list[Change] = []  # what has to be changed, in order
        self.last: list[Change] = []  # changes that replace nodes: they are made after all others
        self.offered: list[Choice] = []  # the nodes that had several ways, in order
        self._more: dict[ir.Value, Parts] = {}
        self._facts = Facts()
        self._lengths: dict[tuple[str, WindowLength], str] = {}
        known = (dim for value in model.graph.inputs for dim in value.shape or () if not isinstance(dim, int))
        self._names = Names({str(dim.value) for dim in known})

    def run(self) -> None:
        """Follow the axis to the end.

        Raises:
            OpeningError: an operator binds it.
            MoreInputsError: other inputs hold it, too: all that were met.
        """
        try:
            self.follow_all(self.model.graph)
        except OpeningError:
            if not self._more:  # what binds it may be what another input has not yet
                raise
        if self._more:
            raise MoreInputsError(self._more)

    def follow_all(self, graph: ir.Graph) -> None:
        """Follow the axis through the nodes of a graph."""
        for node in graph:
            self.follow(node)

    def follow(self, node: ir.Node) -> None:
        """Follow the axis through a node, if it reads what is opened, or what follows from its extents."""
        if any(self.parts.get(value) or value in self.computed for value in reads(node)):
            self._follow(node)
        elif any(self.computed.knows(value) for value in node.inputs) and is_arithmetic(node, self.computed):
            self.computed.follow(node)

    def mark(self) -> tuple[int, int, int]:
        """Return how far changes have come."""
        return len(self.changes), len(self.last), len(self.offered)

    def reset(self, mark: tuple[int, int, int]) -> None:
        """Forget the changes behind a mark: what follows is followed once more."""
        for listed, length in zip((self.changes, self.last, self.offered), mark, strict=True):
            del listed[length:]  # type: ignore[attr-defined]

    def dims(self, value: ir.Value) -> tuple[Extent, ...]:
        """Return the extents of a value in the result."""
        return dims_of(extents_of(value), self.parts.get(value, {}))

    def _follow(self, node: ir.Node) -> None:
        operator, fact = self._look(node)
        key = node.domain, node.op_type
        first = node.inputs[0] if node.inputs else None
        if node.op_type in SHAPES and not node.domain and first is not None:
            self.computed.shape(node, self.dims(first))
            return
        if not any(self.parts.get(value) for value in reads(node)):
            self._from_extents(node, operator)
            return
        if key in VIEWS and first is not None and self.parts.get(first):
            fact = VIEWS[key](operator, self.parts[first]) or fact
        if any(
            _rank(value) is None
            for value in (*node.inputs, *node.outputs)
            if value is not None and self.parts.get(value)
        ):
            raise self.bound(node, "has an operand of unknown rank")
        self._through(node, operator, fact)

    def _through(self, node: ir.Node, operator: Operator, fact: Fact) -> None:
        match fact:
            case Permuted(perm) if (first := node.inputs[0]) is not None:
                self.parts[node.outputs[0]] = {perm.index(axis): part for axis, part in self.parts[first].items()}
            case Regrouped(shape):
                follow_reshape(self, node, operator, [Extent.of(dim) for dim in shape])
            case Signature():
                self._along(node, operator, fact)
            case Nested():
                NodeWithBodies(self, node, fact).follow()
            case _:
                raise self.bound(node, "has no rule that says what becomes of its axes")

    # Signatures

    def _along(self, node: ir.Node, operator: Operator, fact: Signature) -> None:
        """Follow the axis along the letters of a signature."""
        restored = row_operands(node, fact, self.parts)
        letters, places = self._letters(node, fact, restored)
        result_letters = dict(letters)
        for letter, part in letters.items():
            reason = self.binding(fact, operator, letter, part)
            slides = self._slid(operator, letter, part) if reason and self.binding is of_lengths else None
            if slides is not None:
                del result_letters[letter]
                result_letters |= slides
            elif reason:
                raise self.bound(node, reason)
        for slot, axis, letter in list(_unopened(node, fact, operator, letters, self.parts)):
            if slot not in restored:
                self.demand(node, slot, axis, letters[letter], places[letter])
        self._give(node, fact, result_letters)
        if (stated := STATED.get((node.domain, node.op_type))) is not None and letters:
            self._state(node, operator, stated, next(iter(places.values())))

    def _give(self, node: ir.Node, fact: Signature, result_letters: Mapping[str, OpenedFactor]) -> None:
        """Note which axes of a node's results are open, by the parts of letters."""
        most = max(len(self.parts.get(value, {})) for value in node.inputs if value is not None)
        for value, names in zip(node.outputs, fact.outputs, strict=True):
            if names and value.name:  # an axis that was reduced to 1 element is no longer open
                dims = extents_of(value) if value.shape is not None else ()
                opened = {axis: result_letters[name] for axis, name in enumerate(names) if name in result_letters}
                self.parts[value] = {a: part for a, part in opened.items() if not dims or dims[a] == part.source_extent}
                if self.binding is of_rows and len(self.parts[value]) > most:
                    raise self.bound(node, "pairs each element along it with all others")

    def _state(self, node: ir.Node, operator: Operator, stated: State, place: tuple[ir.Value, int]) -> None:
        """Note how the constants of a node are stated anew; what the graph computes from extents follows by itself."""
        changes = stated(operator, self.parts[node.outputs[0]], place)
        if changes is None and not any(self.computed.knows(value) for value in node.inputs[1:]):
            raise self.bound(node, "reads the extents that it gives from an operand that is no constant")
        self.changes += changes or []

    def _letters(
        self, node: ir.Node, fact: Signature, restored: Mapping[int, RowOperand]
    ) -> tuple[dict[str, OpenedFactor], dict[str, tuple[ir.Value, int]]]:
        """Return the part of each opened letter, and a dimension that has it; give operands their rows back."""
        letters: dict[str, OpenedFactor] = {}
        places: dict[str, tuple[ir.Value, int]] = {}
        for slot, rows in restored.items():
            letters[rows.letter] = rows.part
            self._restore(node, slot, rows)
        for slot, value in enumerate(node.inputs):
            names = fact.inputs[slot]
            if value is not None and value in self.computed and names is not None:
                raise self.bound(node, f"computes with '{value.name}', which depends on the extent itself")
            if value is None or not self.parts.get(value) or slot in restored:
                continue
            if names is None:
                raise self.bound(node, f"reads '{value.name}' as a parameter, whose axes have places of their own")
            for axis, part in self.parts[value].items():
                if letters.setdefault(names[axis], part) != part:
                    raise self.bound(node, "pairs it with an axis in which it lies otherwise")
                places.setdefault(names[axis], (value, axis))
        return letters, places

    def _restore(self, node: ir.Node, slot: int, rows: RowOperand) -> None:
        self.changes.append(lambda r: r.regroup(node, slot, rows.items))

    def _slid(self, operator: Operator, letter: str, part: OpenedFactor) -> dict[str, OpenedFactor] | None:
        """Return the axis of the result along which a window slides over an opened one; None if none does."""
        rule = WINDOWS.get((operator.node.domain, operator.node.op_type))
        window = None if rule is None else rule(operator, letter)
        if window is None or not part.is_whole or not part.before.is_static:
            return None
        before = window.of(part.before.number)
        if before <= 1:
            raise self.bound(operator.node, "leaves one element of it")
        formula = str(part.length), window._replace(letter="")
        if window.keeps:
            return {window.letter: part}
        if (exact := window.exact(part.length)) is not None:
            return {window.letter: OpenedFactor(ONE, exact, Extent(before), ONE)}
        name = self._lengths.get(formula)
        if name is None:
            name = self._lengths[formula] = self._names.unique(f"{part.length}_{len(self._lengths) + 1}")
        return {window.letter: OpenedFactor(ONE, Extent.of(name), Extent(before), ONE)}

    def demand(self, node: ir.Node, slot: int, axis: int, part: OpenedFactor, place: tuple[ir.Value, int]) -> None:
        """Open an axis of an operand that has the source's extent: another input's, or that of a constant."""
        value = node.inputs[slot]
        assert value is not None
        if self.parts.get(value) or value in self.computed:
            raise self.bound(node, f"pairs it with an axis of '{value.name}' in which it lies otherwise")
        seeds = dict(self._origins(value, axis, part))
        if any(each.graph is not self.model.graph for each in seeds):
            raise MoreInputsError(seeds)
        for each, parts in seeds.items():
            self._more[each] = {**self._more.get(each, {}), **parts}
        if seeds:
            return
        if not part.before.is_one and not repeats_along(value, axis, part, self._look):
            raise self.bound(node, f"reads '{value.name}', which holds other elements for each of {part.source_extent}")
        if not (part.outer * part.inner).is_static:  # how many rows there are cannot be read from it
            raise self.bound(node, f"repeats '{value.name}' along an axis that holds another open extent, too")
        self.changes.append(lambda r: r.widen(node, slot, axis, part, place))

    def _origins(self, value: ir.Value, axis: int, part: OpenedFactor) -> Iterator[tuple[ir.Value, Parts]]:
        """Find the inputs, of the model or of a body, of which an axis of a value is an axis."""

        def operands(result: tuple[ir.Value, int, OpenedFactor]) -> list[tuple[ir.Value, int, OpenedFactor]]:
            value, node = result[0], result[0].producer()
            if node is None or value.is_graph_input() or value.const_value is not None:
                return []
            source_axes = sources(node, *result, self._look(node)[1])
            return [(operand, place, own) for operand, place, own in source_axes if operand is not None]

        for origin, place, own in reached([(value, axis, part)], operands):
            if origin.is_graph_input() and own.is_whole and origin.const_value is None:
                yield origin, {place: own}

    def _look(self, node: ir.Node) -> tuple[Operator, Fact]:
        """Return a node as its rule sees it, and what that says for following an axis."""
        operator = operator_of(self.model, node)
        fact, key = self._facts.of(operator), (node.domain, node.op_type)
        if key in OWN:
            return operator, OWN[key](operator, fact)
        rule = rule_of(operator)
        if rule is not None and rule.place and isinstance(fact, Signature) and not fact.across:
            # A rule of a user was made for layouts, and may not say along which axes it computes.
            fact = replace(fact, across=fact.block | frozenset(fact.tail))
        return operator, fact

    # Extents that are computed

    def _from_extents(self, node: ir.Node, operator: Operator) -> None:
        """Follow a node that reads nothing but what is computed from opened extents."""
        if bodies(node):
            raise self.bound(node, "runs bodies by an opened extent")
        row = MADE.get((node.domain, node.op_type))
        extents = node.inputs[row[0]] if row is not None else None
        items = self.computed.items(extents) if extents is not None and extents in self.computed else None
        opened = next(part for parts in self.parts.values() for part in parts.values())
        parts = None if items is None else made_parts(operator, items, opened)
        if parts is None and not is_arithmetic(node, self.computed):
            raise self.bound(node, "depends on the extent itself, not only on its elements")
        if parts is None or (_rank(node.outputs[0]) or 0) <= 1:
            self.computed.follow(node)  # what it gives may be a shape
        if parts is not None:
            self.parts[node.outputs[0]] = parts

    def bound(self, node: ir.Node, reason: str) -> OpeningError:
        """Return the error that a node binds the axis, with what it does."""
        return OpeningError(self.what, node, reason)


def _rank(value: ir.Value | None) -> int | None:
    return None if value is None or value.shape is None else len(value.shape)


def _unopened(
    node: ir.Node,
    fact: Signature,
    operator: Operator,
    letters: Mapping[str, OpenedFactor],
    parts: Mapping[ir.Value, Parts],
) -> Iterator[tuple[int, int, str]]:
    """List the axes of operands that are an opened axis and have the source's extent: (input, axis, letter).

    One of 1 element that the operator stretches stays.
    """
    for slot, (value, names, shape) in enumerate(zip(node.inputs, fact.inputs, operator.inputs, strict=True)):
        if value is None or names is None or shape is None:
            continue
        stretches = fact.stretched if slot or not fact.unidirectional else frozenset[str]()
        for axis, letter in enumerate(names):
            if letter not in letters or axis in parts.get(value, {}):
                continue
            if not (letter in stretches and Extent.of(shape[axis]).is_one):
                yield slot, axis, letter
