"""Keep quantized units on integers, whatever scale a quantizer chose, for targets that prefer integers to exactness.

1. What several operators compute of one value of bytes is a table of 256 numbers. Where one builtin has the same table
   within a few steps, it stands for all of them: HARD_SWISH for HardSigmoid and Mul, GELU for one that is spelled out.
2. A kernel that gives one scale alone gives it to the next operators, if these take any scale.
3. Other units become those of `integer_forms.py`, and a Gather by constants Slices.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from math import ceil, erf
from typing import NamedTuple

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.formats.onnx.evaluating import node_results
from relayout.formats.onnx.parts import ANNOTATION
from relayout.graph.facts import add_notes
from relayout.graph.quantized_unit import DEQUANTIZE, QUANTIZE, Scale, bytes_of, stored_reals, unit_of
from relayout.graph.source_names import Names, known_as, stands_for
from relayout.graph.walks import drop_unread
from relayout.layout.stored_as import MOST_STEPS_OFF, STEPS_OFF
from relayout.lowering.conditions import Condition
from relayout.lowering.constants import Constants
from relayout.lowering.decompose import WORDS_FROM, expand
from relayout.lowering.decomposition_rows import Expansion
from relayout.lowering.fuse_epilogue import only_reader
from relayout.lowering.passes import PASSES
from relayout.rules import Operator, Step, rule_of
from relayout.rules.facts import operator_of
from relayout.rules.slicing import SLICE_INPUTS
from relayout.targets.litert.insertion import Insertion
from relayout.targets.litert.integer_forms import FORMS, IntegerForm, unit_scales
from relayout.targets.litert.integer_scales import requantized
from relayout.targets.litert.quantized_units import AS_ASKED, KERNEL_SCALES, ROWS, candidate_of
from relayout.targets.target_table import Target

# A group normalization as PyTorch's exporter spells it out, as the one operator that ONNX has.
#
# x -> Reshape [n g -1] -> InstanceNormalization -> Reshape [n c h w] -> Mul [c 1 1] -> Add [c 1 1]

INSTANCES, VIEWS = frozenset({"InstanceNormalization"}), frozenset({"Reshape"})
FOLLOWERS = ("Reshape", "Mul", "Add")
GROUPED = "GroupNormalization"  # the operator that stands for all of them


def join_groups(
    model: ir.Model,
    fits: Callable[[ir.Node], bool],  # returns whether a GroupNormalization is wanted; another one stays as it was
) -> None:
    """Write spelled group normalizations as GroupNormalizations, in place."""
    for node in [node for node in model.graph if node.op_type in INSTANCES and not node.domain]:
        chain = _chain(node)
        joined = None if chain is None else _group_normalization(model.graph, node, chain)
        if joined is None or chain is None:
            continue
        before, after = chain[-1].outputs[0], joined.outputs[0]
        before.replace_all_uses_with(after)
        if fits(joined):
            model.graph.remove(chain, safe=True)
        else:
            after.replace_all_uses_with(before)
            model.graph.remove(joined, safe=True)


def _chain(node: ir.Node) -> list[ir.Node] | None:
    """Return an InstanceNormalization and what follows it; None where that is something else, or read otherwise."""
    chain = [node]
    for op_type in FOLLOWERS:
        follower = only_reader(chain[-1])
        if follower is None or follower.op_type != op_type:
            return None
        chain.append(follower)
    return None if chain[-1].outputs[0].is_graph_output() else chain


def _group_normalization(graph: ir.Graph, node: ir.Node, chain: Sequence[ir.Node]) -> ir.Node | None:
    """Add the operator that stands for a chain, and return it; None where none does."""
    rows = node.inputs[0]
    view = None if rows is None else rows.producer()
    image = view.inputs[0] if view is not None and view.op_type in VIEWS and not view.domain else None
    result = chain[-1].outputs[0]
    if image is None or rows is None or rows.shape is None or image.shape is None or result.shape != image.shape:
        return None
    groups, channels = rows.shape[1], image.shape[1]
    if len(image.shape) < 3 or not isinstance(groups, int) or not isinstance(channels, int) or channels % groups:
        return None
    factors = _factors(node, chain, len(image.shape), channels)
    if factors is None or rows.shape[0] != image.shape[0]:
        return None
    place = Insertion(graph, chain[-1])
    parameters = [
        place.constant(array.astype(np.float32), f"{result.name}/{name}")
        for array, name in zip(factors, ("scale", "bias"), strict=True)
    ]
    attributes = {"num_groups": groups, "epsilon": node.attributes.get_float("epsilon", 1e-5)}
    return place.add(GROUPED, [image, *parameters], result.shape, result.type, attributes).producer()


def _factors(
    node: ir.Node, chain: Sequence[ir.Node], rank: int, channels: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Return what each channel is multiplied by, and what is added then; None where something of it is computed."""
    scale, bias = (stored_reals(value) for value in node.inputs[1:3])
    others = []  # the other operands of the product and the sum: constants for each channel
    extents = (channels, *[1] * (rank - 2))
    for before, after in pairwise(chain[1:]):
        array = next((stored_reals(value) for value in after.inputs if value is not before.outputs[0]), None)
        if array is None or array.size != channels or array.shape[-len(extents) :] != extents:
            return None
        others.append(array.reshape(-1))
    if scale is None or bias is None:
        return None
    (weight, shift), repeats = others, channels // len(scale)
    return scale.repeat(repeats) * weight, bias.repeat(repeats) * weight + shift


# A Gather by constants as Slices, which NPUs have: indices that go up by one step are one Slice.
#
# Gather(x, 3)             becomes    Reshape(Slice(x, 3:4))
# Gather(x, [0, 2, 4, 9])  becomes    Concat(Slice(x, 0:5:2), Slice(x, 9:10))

MOST_SLICES = 8  # slices that a Gather may become


def _runs(indices: Sequence[int]) -> list[range]:
    """Return indices as ranges that go up, each as long as can be."""
    runs: list[range] = []
    place = 0
    while place < len(indices):
        first = indices[place]
        step = indices[place + 1] - first if place + 1 < len(indices) else 1
        end = place + 1
        while step > 0 and end < len(indices) and indices[end] - indices[end - 1] == step:
            end += 1
        is_pair = end - place == 2 and step > 1  # the second may begin a longer run
        end = place + 1 if step <= 0 or is_pair else end
        step = step if end - place > 1 else 1
        runs.append(range(first, indices[end - 1] + 1, step))
        place = end
    return runs


def _slices(operator: Operator) -> list[range] | None:
    """Return the ranges of a Gather's constant indices; None where they or the extent are not known."""
    shape, indices = operator.shape(), operator.constant(1)
    if shape is None or indices is None or not indices.size or not operator.has(0) or operator.constant(0) is not None:
        return None
    extent = shape[operator.int("axis", 0) % len(shape)]
    if not isinstance(extent, int):
        return None
    runs = _runs([int(each) % extent for each in indices.reshape(-1)])
    return runs if len(runs) <= MOST_SLICES else None


def _as_slices(operator: Operator, _: object) -> Sequence[Step]:
    """Slices, a Concat of several, and a Reshape where indices are no list."""
    runs, shape, y = _slices(operator), operator.shape(), operator.outputs[0]
    if runs is None or shape is None or y is None or operator.version < SLICE_INPUTS:
        return ()
    axis = operator.int("axis", 0) % len(shape)
    axes = np.array([axis], np.int64)
    scales, steps, names = unit_scales(operator.node), list[Step](), list[str]()
    for number, run in enumerate(runs):
        begin, end, step = (np.array([each], np.int64) for each in (run.start, run.stop, run.step))
        name = f"part_{number}"
        steps.append(Step("Slice", (0, begin, end, axes, step), name))
        if scales is not None and len(runs) > 1:
            steps += requantized(name, f"quantized_{name}", scales.first.parameters)
            name = f"quantized_{name}"
        names.append(name)
    if len(names) > 1:
        steps.append(Step("Concat", tuple(names), "joined", {"axis": axis}))
    if len(y) != len(shape):
        if not all(isinstance(extent, int) for extent in y):
            return ()
        if scales is not None and len(names) > 1:
            steps += requantized("joined", "quantized", scales.result.parameters)
        steps.append(Step("Reshape", (steps[-1].name, np.array(y, np.int64)), "selected"))
    return tuple(steps)


BY_CONSTANTS = Condition("by constants that are a few ranges", lambda operator: _slices(operator) is not None)
GATHERED_SLICES = Expansion("Gather", (BY_CONSTANTS,), _as_slices)

Table = NDArray[np.float64]
MOST_STEPS = 2  # how many steps of the result a kernel may be off that gives its own scale
MOST_STEPS_OF_TABLES = 4
"""How many steps of the result a builtin may be off that stands for several operators: each of these rounds."""
LONGEST = 12  # how many operators in a row are followed
MICROSOFT = "com.microsoft"


def keep_integers(model: ir.Model, target: Target) -> dict[str, int]:
    """Write quantized units as others that LiteRT computes on integers, in place.

    Returns:
        Operator, with the number of steps that its units may be off -> how many.
    """
    units = [*_as_one_builtin(model, target), *_with_scales_of_kernels(model)]
    if gathers := sum(expand(model, (GATHERED_SLICES,)).values()):
        add_notes(model, f"{PASSES['decompose'].line}: {gathers} Gather")
    distant: Counter[str] = Counter()
    for form in FORMS:
        # Whether a target has the words of a form.
        rows = (row for row in target.kernels if "INT16" in row.types)
        if form.words and not any(form.words in row.op_types.split() for row in rows):
            continue
        if form.expansion.op_type == GROUPED:
            join_groups(model, partial(_is_near, model, form))
        units += _in_form(model, form, distant)
    if distant:
        listed = ", ".join(f"{count} {name}" for name, count in sorted(distant.items()))
        add_notes(model, f"quantized units that stay on real numbers: {listed}; up to {MOST_STEPS_OFF} steps are taken")
    counts = Counter(f"{unit.name} (at most {unit.steps} step{'s' * (unit.steps != 1)} off)" for unit in units)
    if units:
        steps = {value: unit.steps for unit in units for value in unit.values}
        model.metadata_props[STEPS_OFF] = json.dumps(steps, ensure_ascii=False)
    _spell_words(model)
    return dict(sorted(counts.items()))


class _Kept(NamedTuple):
    """A unit that stays on integers."""

    name: str  # its operator, or the builtin that stands for several
    steps: int  # how many steps of the result it may be off
    values: tuple[str, ...]  # what the source calls its quantized results


def _results(node: ir.Node) -> tuple[str, ...]:
    """Return what the source calls the integers behind an operator."""
    unit = unit_of(node)
    return () if unit is None else tuple(known_as(each.node.outputs[0]) for each in unit.results)


def _in_form(model: ir.Model, form: IntegerForm, distant: Counter[str]) -> Iterator[_Kept]:
    """Write units in a form, and yield them; count those that would be too many steps off."""
    op_type = form.expansion.op_type
    for node in [node for node in model.graph if node.op_type == op_type]:
        operator = operator_of(model, node)
        if not form.expansion.takes(operator):
            continue
        unit = _Kept(op_type, form.steps_off(operator), _results(node))
        if unit.steps > MOST_STEPS_OFF:
            distant[f"{op_type} (integers may be {unit.steps} steps off)"] += 1
        elif expand(model, (form.expansion,), [node]):
            yield unit


def _is_near(model: ir.Model, form: IntegerForm, node: ir.Node) -> bool:
    """Return whether a form writes a node, and is near enough."""
    operator = operator_of(model, node)
    return form.expansion.takes(operator) and form.steps_off(operator) <= MOST_STEPS_OFF


def _spell_words(model: ir.Model) -> None:
    """Give quantizers of 16 bits the domain that has them before the standard does."""
    if model.opset_imports.get("", 1) >= WORDS_FROM:
        return
    for node in model.graph:
        if node.op_type in (QUANTIZE, DEQUANTIZE) and not node.domain:
            integers = node.inputs[0] if node.op_type == DEQUANTIZE else node.outputs[0]
            if integers is not None and integers.dtype in (ir.DataType.INT16, ir.DataType.UINT16):
                node.domain = MICROSOFT
                model.opset_imports.setdefault(MICROSOFT, 1)


# Tables

BYTES_IN_ORDER = np.arange(-128.0, 128.0, dtype=np.float64)


BUILTINS: Mapping[str, Callable[[Table], Table]] = {
    "HardSwish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "Gelu": lambda x: x * 0.5 * (1 + np.vectorize(erf)(x / np.sqrt(2))),
}
"""Operators of one operand that have an integer kernel with any scales, and stand for several."""


def _as_one_builtin(model: ir.Model, target: Target) -> Iterator[_Kept]:
    """Write what several operators compute of one value as a builtin, and yield it."""
    constants = Constants(model)
    for end in [node for node in model.graph if node.op_type == QUANTIZE and not node.domain]:
        result = bytes_of(end)
        if result is None or not any(map(_lacks_builtin, _before(end))):
            continue
        for source, scale, table in _tables(model, constants, end):
            nearest = _nearest_builtin(table, scale, result)
            producer = None if nearest is None else _written(model, constants.names, end, source, nearest[0], target)
            if nearest is not None and producer is not None:
                yield _Kept(*nearest, (known_as(end.outputs[0]),))
                drop_unread(producer.outputs)
                break


def _nearest_builtin(table: Table, operand: Scale, result: Scale) -> tuple[str, int] | None:
    """Return the builtin that is the fewest steps off a table, and these; None where all are more than some."""
    table_numbers, numbers = result.integers(table), operand.real(BYTES_IN_ORDER)
    if np.isnan(table_numbers).any():  # the root of a number below 0, of which runtimes make any integer
        return None
    off = {name: int(np.abs(result.integers(of(numbers)) - table_numbers).max()) for name, of in BUILTINS.items()}
    nearest = min(off, key=lambda name: off[name])
    return (nearest, off[nearest] + 1) if off[nearest] < MOST_STEPS_OF_TABLES else None


def _before(end: ir.Node) -> Iterator[ir.Node]:
    """Yield the operators before a QuantizeLinear, nearest first."""
    nodes, seen = [end], {end}
    while nodes and len(seen) < 2 * LONGEST:
        for value in nodes.pop(0).inputs:
            node = None if value is None else value.producer()
            if node is not None and node not in seen and node.graph is end.graph:
                seen.add(node)
                nodes.append(node)
                yield node


def _lacks_builtin(node: ir.Node) -> bool:
    return node.op_type not in ROWS and node.op_type not in (QUANTIZE, DEQUANTIZE) and not node.domain


def _tables(model: ir.Model, constants: Constants, end: ir.Node) -> Iterator[tuple[ir.Node, Scale, Table]]:
    """Yield each DequantizeLinear of bytes of which alone a QuantizeLinear's operand is computed, with the table.

    One operator of the way at least has no integer kernel.
    """
    for source in [node for node in _before(end) if node.op_type == DEQUANTIZE]:
        scale, integers = bytes_of(source), source.inputs[0]
        if scale is None or integers is None or integers.const_value is not None:
            continue
        reader = _TableReader(model, constants, integers)
        table = reader.table(end.inputs[0], LONGEST) if integers.shape == end.outputs[0].shape else None
        if table is not None and reader.lacks_builtin:
            yield source, scale, table


class _TableReader:
    """The 256 numbers of values that depend on one value of bytes alone."""

    def __init__(
        self,
        model: ir.Model,
        constants: Constants,  # its constants
        integers: ir.Value,  # the value of bytes
    ) -> None:
        self.model, self.constants, self.integers = model, constants, integers
        self.lacks_builtin = False
        self._known: dict[ir.Value, Table | None] = {}
        self._opsets = [onnx.helper.make_opsetid(*each) for each in model.opset_imports.items()]

    def table(self, value: ir.Value | None, most: int) -> Table | None:
        """Return the numbers that a value has; None where it depends on another value, too."""
        if value is None:
            return None
        if value not in self._known:
            self._known[value] = None
            node = value.producer()
            if node is not None and most and len(node.outputs) == 1:
                is_end = node.op_type == DEQUANTIZE and not node.domain
                self._known[value] = self._dequantized(node, most) if is_end else self._computed(node, most)
        return self._known[value]

    def _dequantized(self, node: ir.Node, most: int) -> Table | None:
        scale, integers = bytes_of(node), node.inputs[0]
        if scale is None or integers is None:
            return None
        if integers is self.integers:
            return scale.real(BYTES_IN_ORDER)
        end = integers.producer()
        before = self.table(end.inputs[0], most - 1) if end is not None and end.op_type == QUANTIZE else None
        return None if before is None else scale.real(scale.integers(before))

    def _computed(self, node: ir.Node, most: int) -> Table | None:
        rule = rule_of(operator_of(self.model, node))
        if rule is None or rule.kind != "layout-agnostic" or node.domain:
            return None
        operands: dict[str, NDArray[np.generic]] = {}
        for read in node.inputs:
            if read is None:
                continue
            number = _number(self.constants, read)
            table = self.table(read, most - 1) if number is None else None
            if number is None and table is None:
                return None
            operands[read.name or ""] = number if number is not None else np.asarray(table, np.float32)
        results = node_results(ir.serde.serialize_node(node), operands, self._opsets)
        if len(results) != 1 or results[0].shape != (256,) or results[0].dtype.kind != "f":
            return None
        self.lacks_builtin |= _lacks_builtin(node)
        return results[0].astype(np.float64)


def _number(constants: Constants, value: ir.Value) -> NDArray[np.generic] | None:
    """Return a constant of one element, also one that is dequantized."""
    array: NDArray[np.generic] | None = constants.array(value)
    if array is None and (real := stored_reals(value)) is not None:
        array = real.astype(np.float32)
    return None if array is None or array.size != 1 else array.reshape(())


def _written(
    model: ir.Model, names: Names, end: ir.Node, source: ir.Node, op_type: str, target: Target
) -> ir.Node | None:
    """Let a QuantizeLinear read one builtin, and return what it read; None where the target has none for the scales."""
    before = end.inputs[0]
    assert before is not None
    domain = "" if model.opset_imports.get("", 1) >= SINCE[op_type] else DOMAINS.get(op_type)
    if domain is None:
        return None
    name = names.unique(f"{before.name}/{op_type}")
    place = Insertion(model.graph, end)
    value = place.add(op_type, [source.outputs[0]], before.shape, before.type, domain=domain, name=name)
    node = value.producer()
    assert node is not None
    stands_for(value, before)
    end.replace_input_with(0, value)
    if domain:
        model.opset_imports.setdefault(domain, 1)
    if not target.claims(operator_of(model, node)):
        end.replace_input_with(0, before)
        model.graph.remove(node, safe=True)
        return None
    return before.producer()


SINCE = {"HardSwish": 14, "Gelu": 20}  # builtin -> the opset that has its operator
DOMAINS = {"Gelu": "com.microsoft"}  # builtin -> the domain that has its operator in older opsets


# Scales of kernels

RANGES: Mapping[str, Callable[[Table], Table]] = {
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Tanh": np.tanh,
    "Softmax": lambda _: np.linspace(0, 1, 1024),
}
"""Operator whose kernel gives one scale -> the numbers that it may give of some."""


def _with_scales_of_kernels(model: ir.Model) -> Iterator[_Kept]:
    """Let the readers of a unit read what its kernel gives, with that scale, and yield the unit."""
    names = Constants(model).names
    for node in [node for node in model.graph if node.op_type in RANGES and not node.domain]:
        scales = unit_scales(node)
        step, zero = KERNEL_SCALES[node.op_type]
        if scales is None or (abs(scales.result.step / step - 1) < 1e-6 and int(scales.result.zero[0]) == zero):
            continue
        kernel = Scale.one(step, zero, scales.result.dtype)
        real_results = RANGES[node.op_type](scales.first.real(BYTES_IN_ORDER))
        own, other = (scale.real(scale.integers(real_results)) for scale in (scales.result, kernel))
        off = ceil(float(np.abs((own - other) / scales.result.step).max()) - 1e-6)
        unit = _Kept(node.op_type, off, _results(node))
        if off <= MOST_STEPS and _rescaled(model, names, node, kernel):
            yield unit


def _rescaled(model: ir.Model, names: Names, node: ir.Node, kernel: Scale) -> bool:
    """Give a unit's result and its readers a scale; tell whether all of them still have a kernel."""
    ends = [use.node for use in node.outputs[0].uses()]
    readers = [use.node for end in ends for use in end.outputs[0].uses()]
    pairs = (*((end, QUANTIZE) for end in ends), *((reader, DEQUANTIZE) for reader in readers))
    if not readers or any(each.op_type != op_type or each.domain for each, op_type in pairs):
        return False
    if any(end.outputs[0].is_graph_output() for end in ends) or not all(
        _takes_any_scale(reader, kernel) for reader in readers
    ):
        return False
    constants = Constants(model)
    for each in (*ends, *readers):
        each.resize_inputs(3)
        for slot, what, array in zip((1, 2), ("scale", "zero_point"), kernel.parameters, strict=True):
            each.replace_input_with(slot, constants.new(f"{node.outputs[0].name}/kernel_{what}", array))
    units = [use.node for reader in readers for use in reader.outputs[0].uses()]
    for value in {each.outputs[0]: None for each in (*ends, *readers, *units)}:  # other numbers: other names
        stands_for(value, value)
        value.meta.pop(ANNOTATION, None)
        value.name = names.unique(f"{value.name}/kernel")
    return True


def _takes_any_scale(reader: ir.Node, kernel: Scale) -> bool:
    """Tell whether the kernels behind a DequantizeLinear give what is asked for with another scale of an operand."""
    uses = list(reader.outputs[0].uses())
    if reader.outputs[0].is_graph_output() or not uses:
        return False
    for use in uses:
        unit, row = unit_of(use.node), ROWS.get(use.node.op_type)
        if unit is None or unit.node is not use.node or row is None:
            return False
        candidate = candidate_of(unit)
        if candidate is None:
            return False
        inputs = (*candidate.inputs[: use.idx], kernel, *candidate.inputs[use.idx + 1 :])
        constants = tuple(each is not None and each.is_constant for each in unit.operands)
        if row(candidate._replace(inputs=inputs, constants=constants)) is not AS_ASKED:
            return False
    return True
