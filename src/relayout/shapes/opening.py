"""Open a fixed dimension of an input, in place: follow the axis, state anew what holds its extent, and infer again."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import onnx_ir as ir

from relayout.errors import LayoutError, ReadError
from relayout.formats.onnx.checking import without_weights
from relayout.formats.onnx.completing import complete
from relayout.formats.onnx.fixing import fix_dims
from relayout.formats.onnx.inferring import infer
from relayout.graph.source_names import SOURCE, is_made
from relayout.graph.subgraphs import reads
from relayout.graph.walks import producers, reached
from relayout.layout import Dim, Extent
from relayout.layout.stored_as import STATED, TENSOR
from relayout.rules import Operator, outputs_of
from relayout.rules.facts import operator_of
from relayout.shapes.following import Following
from relayout.shapes.own_axes import Binding, of_lengths, of_rows
from relayout.shapes.parts import MoreInputsError, OpeningError, Parts
from relayout.shapes.rewriting import DimensionRewriting

# The part of a graph up to which a dimension opens, where an operator binds it: what `--outputs` may name.

MOST = 8  # names that an error lists


def last_opened(
    model: ir.Model,
    seeds: Mapping[ir.Value, Parts],  # inputs and their opened axes
    what: str,  # the dimension, as the user asked for it
    binding: Binding,  # what says why an operator binds an axis
) -> list[str]:
    """Return the source's names of the last values that can be opened; none where they are too many, or inputs.

    What binds the dimension, and whatever reads what that gives, lies behind them.
    """
    following = Following(model, seeds, what, {}, binding)
    nodes = list(model.graph)
    bound: set[object] = set()
    for node in nodes:
        try:
            following.follow(node)
        except OpeningError:
            bound.add(_operator(node))
    behind = _behind(nodes, bound)
    read = {value: None for node in behind for value in reads(node) if value.producer() not in behind}
    fed = set(model.graph.inputs)  # what follows from constants is no end
    for node in nodes:
        if not fed.isdisjoint(reads(node)):
            fed.update(node.outputs)
    opened = [value for value in (*read, *model.graph.outputs) if value in fed and following.parts.get(value)]
    ends = dict.fromkeys(value for value in opened if value.producer() not in behind)
    if any(value.producer() is None or is_made(value) for value in ends) or len(ends) > MOST:
        return []
    return [value.metadata_props.get(TENSOR) or value.name or "" for value in ends]


def _operator(node: ir.Node) -> object:
    """Return what stands for one operator of the source: a `.tflite`'s may be several nodes, and is cut whole."""
    return node.metadata_props.get(SOURCE) or node


def _behind(nodes: Sequence[ir.Node], bound: set[object]) -> dict[ir.Node, None]:
    """Return the nodes of some operators, and of all that read what these give, in order."""
    while True:
        dependents: dict[ir.Node, None] = {}
        for node in nodes:
            if _operator(node) in bound or any(value.producer() in dependents for value in reads(node)):
                dependents[node] = None
        operators = set(map(_operator, dependents))
        if operators <= bound:
            return dependents
        bound = bound | operators


# Prove an opened model by inference: with a number for the name, no operator contradicts what was followed.

NUMBER = 13  # the extent that a model is tried with: one that other extents rarely have


def contradiction(
    model: ir.Model,  # its values have the extents that were followed
    name: str,  # of the opened extent
    before: int | str,  # the extent that it had
    *,
    rows: bool = True,  # whether it is a batch; any other is tried with twice its extent, over which windows slide
) -> str:
    """Return what contradicts the shapes of a model in which an extent is open; nothing if all agree."""
    number = NUMBER if before != NUMBER else NUMBER + 4
    if not rows and isinstance(before, int):
        number = 2 * before
    tried = _completed(model, name, number)
    if isinstance(tried, str):
        return tried
    said = _inconsistency(tried)
    # ONNX's inference is wrong of some operators, whatever their extents are.
    if said and isinstance(before, int) and not isinstance(usual := _completed(model, name, before), str):
        return "" if _inconsistency(usual) else said
    return said


def _completed(model: ir.Model, name: str, number: int) -> ir.Model | str:
    """Return the model with a number for a name and all shapes inferred anew, or what differs from what it had."""
    tried = model.clone()
    fix_dims(tried, {name: number})
    values = [value for node in tried.graph for value in node.outputs if value.name]
    followed = [(value, value.shape) for value in values if value.shape is not None]
    for value in values:
        if value.const_value is None:
            value.shape = None
    complete(tried, outputs_of)
    for value, shape in followed:
        if differing := _differing(shape, value.shape):
            return f"'{value.name}' {differing}"
    return tried


def _inconsistency(model: ir.Model) -> str:
    """Return what ONNX's inference says against a model."""
    try:
        infer(without_weights(model), strict=True)
    except ReadError:
        raise
    except Exception as error:  # onnx raises types of its own
        return " ".join(str(error).split())
    return ""


def _differing(followed: ir.Shape, inferred_shape: ir.Shape | None) -> str:
    """Say how two shapes contradict each other, as far as both are numbers."""
    if inferred_shape is None:
        return ""
    if len(inferred_shape) != len(followed):
        return f"has {len(inferred_shape)} axes and not {len(followed)}"
    pairs: Mapping[int, tuple[object, object]] = dict(enumerate(zip(followed, inferred_shape, strict=True)))
    wrong = [axis for axis, (a, b) in pairs.items() if isinstance(a, int) and isinstance(b, int) and a != b]
    return f"is {list(inferred_shape)} and not {list(followed)}" if wrong else ""


class Opened(NamedTuple):
    """A dimension that was opened."""

    dim: Dim  # its name, or its number where it was given another one
    before: Dim  # its extent in the source
    inputs: Mapping[str, int]  # input -> the axis that it is
    # output -> the axis that it is or is a part of, and how many runs of it that axis holds
    outputs: Mapping[str, tuple[int, Dim]]
    is_batch: bool = True  # whether every element along it is computed by itself


MOST_ATTEMPTS = 64
"""How many ways to regroup dimensions are tried together, where the axis has 1 element and may go into several."""


def open_axes(model: ir.Model, seeds: Mapping[ir.Value, Parts], what: str, *, rows: bool = True) -> Opened:
    """Open axes of inputs that are one dimension, in place.

    Args:
        model: the model, with known shapes.
        seeds: inputs and their opened axes.
        what: what the user asked for and may not be: `axis 2 of 'x' cannot become 33`.
        rows: whether every element along the axis must be computed by itself, as the rows of a batch are. Else the axis
            is opened as one that operators compute along, where it is none such.

    Returns:
        Which inputs and outputs hold the dimension.

    Raises:
        OpeningError: an operator binds it; the model is as it was.
    """
    is_batch = True
    try:
        following = _followed(model, dict(seeds), what, of_rows)
    except OpeningError as bound:
        if bound.node.op_type.startswith("Reduce") and _reduce_without_ones(model):
            return open_axes(model, seeds, what, rows=rows)
        if rows:
            raise bound.with_ends(last_opened(model, seeds, what, of_rows)) from None
        is_batch = False
        try:
            following = _followed(model, dict(seeds), what, of_lengths)
        except OpeningError as length:
            raise length.with_ends(last_opened(model, seeds, what, of_lengths)) from None
    _state_anew(following)
    outputs = {
        value.name or "": (axis, _dim(part.outer))
        for value in model.graph.outputs
        for axis, part in following.parts.get(value, {}).items()
    }
    rewriting = DimensionRewriting(model)
    for change in (*following.changes, *following.last):
        change(rewriting)
    complete(model, outputs_of)
    ends = {value: next(iter(parts.items())) for value, parts in following.parts.items() if parts}
    part = next(iter(next(iter(seeds.values())).values()))
    inputs = {value.name or "": ends[value][0] for value in model.graph.inputs if value in ends}
    if reason := contradiction(model, str(part.length), _dim(part.before), rows=is_batch):
        raise LayoutError(f"{what}: the result would contradict itself: {reason}")
    return Opened(_dim(part.length), _dim(part.before), inputs, outputs, is_batch)


def _state_anew(following: Following) -> None:
    """Give values their shapes in the result, and forget what they hold with the source's extent."""
    for value, parts in following.parts.items():
        if parts:
            value.shape = ir.Shape([_dim(extent) for extent in following.dims(value)])
            if value.producer() is not None:
                value.const_value = None  # what it holds with the source's extent
            if STATED in value.meta:
                value.meta[STATED] = value.shape
    for value in following.computed.values():
        value.const_value = None


# Reductions over a batch of one row, too, as litert-torch writes a normalization of channels: the row is a view's.
#
#     ReduceMean(x[1 c s], axes 0 1)[s]    becomes    Reshape(ReduceMean(x, axes 1)[1 s])


def _reduce_without_ones(model: ir.Model) -> bool:
    """Let reductions leave out axes of one element, in place, and return whether there were any."""
    rewriting, changed = DimensionRewriting(model), False
    for node in list(model.graph):
        operator = operator_of(model, node)
        axes, ones, shape = _reduced(operator)
        if not axes or not ones:
            continue
        changed = True
        if operator.has(1):
            rewriting.restate(node, 1, axes, "axes")
        else:
            rewriting.set_integers(node, "axes", axes)
        if not operator.int("keepdims", 1):
            name, own = f"{node.outputs[0].name}_of_rows", {key: each.value for key, each in node.attributes.items()}
            reads = [value for value in node.inputs if value is not None]
            value = rewriting.emit(node, node.op_type, reads, name, node.outputs[0], **own)
            value.shape = ir.Shape([extent for axis, extent in enumerate(shape) if axis not in axes])
            node.replace_input_with(0, value)
            rewriting.become_reshape(node, [extent for axis, extent in enumerate(shape) if axis not in (*axes, *ones)])
    return changed


def _reduced(operator: Operator) -> tuple[list[int], list[int], list[int]]:
    """Return the axes of several elements that a node reduces, those of one, and its operand's shape if it is known."""
    node, dims = operator.node, operator.shape() or () if operator.node.inputs else ()
    shape = [extent for extent in dims if isinstance(extent, int)]
    if node.domain or not node.op_type.startswith("Reduce") or len(shape) < len(dims):
        return [], [], []
    axes = [axis % len(shape) for axis in (operator.integers(1) if operator.has(1) else operator.ints("axes")) or ()]
    return [axis for axis in axes if shape[axis] != 1], [axis for axis in axes if shape[axis] == 1], shape


def _dim(extent: Extent) -> Dim:
    return extent.number if extent.is_static else str(extent)


def _followed(model: ir.Model, seeds: dict[ir.Value, Parts], what: str, binding: Binding) -> Following:
    """Follow the axis; where it may go several ways, the first that leads to the end."""
    choices: dict[ir.Node, int] = {}
    first: OpeningError | None = None
    attempts = 0
    while attempts < MOST_ATTEMPTS:
        following = Following(model, seeds, what, choices, binding)
        try:
            following.run()
        except MoreInputsError as more:
            known = dict(seeds)
            for value, parts in more.seeds.items():
                seeds[value] = {**seeds.get(value, {}), **parts}
            attempts += seeds == known
            choices = {}
        except OpeningError as bound:
            first = first or bound
            attempts += 1
            if not _advance(choices, following, bound.node):
                break
        else:
            return following
    assert first is not None
    raise first


def _advance(choices: dict[ir.Node, int], following: Following, bound: ir.Node) -> bool:
    """Take the next way at the last node that has one and lies before who binds the axis; False if all were taken."""
    before = reached([bound], lambda node: producers(reads(node)))  # with what its bodies read
    for node, number in reversed(following.offered):
        choice = choices.pop(node, 0) + 1
        if choice < number and node in before:
            choices[node] = choice
            return True
    return False
