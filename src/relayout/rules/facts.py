"""What is known of a node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from types import FunctionType

import onnx
import onnx_ir as ir

from relayout.errors import LayoutError
from relayout.graph.domains import INTERNAL_NHWC
from relayout.layout import Dim, Extent
from relayout.rules.alike import Alike
from relayout.rules.internal_nhwc import is_internal, layouts_of_internal, standard_of
from relayout.rules.layouts import OperatorLayouts, in_standard_order, is_function, stored, variant_in_layouts
from relayout.rules.operator import WRAPPING, Letters, Operator, is_static
from relayout.rules.registry import FUNCTIONS, LayoutVariant, Rule, find, variant_keys
from relayout.rules.signature import Changes, Fact, Permuted, Placement, Signature, Variant
from relayout.rules.users_functions import UsersFunction
from relayout.rules.validation import refuse_unfit

# Axes that a graph computes: whichever they are, they are renumbered when the model runs.


def along_computed(
    operator: Operator,  # the node
    slot: int,  # the input that holds the axes
    *,
    ordered: bool,  # whether the elements of such an axis have an order
) -> Signature | None:
    """Let an operator run in any order of axes, along those that input `slot` holds; each is one dimension."""
    letters = operator.letters(least=1)
    inputs, outputs = operator.operands({0: letters}), operator.results(letters)
    whole = frozenset(letters) if ordered else frozenset()
    block = frozenset(letters)
    return Signature(inputs, outputs, whole, block, changes=lambda p: renumbered(slot, letters, p), across=block)


def renumbered(slot: int, letters: Letters, placement: Placement) -> Changes:
    """Renumber the axes in input `slot`, of an operand whose axes are `letters`."""
    return Changes(looked_up={slot: tuple(placement.axis(letter) for letter in letters)})


# What element types Transposes and Reshapes take: those that quantize to few bits came with later opsets.

_PARTS = "INT4 UINT4 FLOAT4E2M1 INT2 UINT2"
PARTS = frozenset(ir.DataType[name] for name in _PARTS.split() if name in ir.DataType.__members__)
"""Types of which several elements lie in one byte."""


@cache
def is_transposed(dtype: ir.DataType | None, version: int) -> bool:
    """Return whether Transpose takes elements of a type in an opset: floats of 8 bits from opset 21 on only."""
    if dtype in (None, ir.DataType.UNDEFINED):
        return True
    try:
        schema = onnx.defs.get_schema("Transpose", version, "")
    except onnx.defs.SchemaError:
        return True
    return f"tensor({str(dtype).lower()})" in schema.inputs[0].types


@cache
def is_reshaped(dtype: ir.DataType | None, version: int) -> bool:
    """Tell whether elements of a type may be reshaped: none that Transpose does not take, and no parts of bytes."""
    return is_transposed(dtype, version) and dtype not in PARTS


# Nodes as their rules and targets see them.


def domain_of_version(domain: str) -> str:
    """Return the domain whose imported version says what an operator of a domain is."""
    return "" if domain in ("ai.onnx", INTERNAL_NHWC) or domain.startswith(FUNCTIONS) else domain


def operator_of(model: ir.Model, node: ir.Node, imports: Mapping[str, int] | None = None) -> Operator:
    """Return a node as its rule and a target see it; in a function, by the versions that this imports."""
    domain = domain_of_version(node.domain)
    inputs, outputs = (*map(_shape, node.inputs),), (*map(_shape, node.outputs),)
    return Operator(node, (model.opset_imports if imports is None else imports).get(domain, 1), inputs, outputs)


def _shape(value: ir.Value | None) -> tuple[Dim, ...] | None:
    shape = None if value is None else value.shape
    if value is None or shape is None or type(value.type) in WRAPPING:
        return None
    if is_static(shape.dims):
        return shape.dims
    unnamed, dims = f"?{value.name or ''}", enumerate(shape)
    return tuple(dim if isinstance(dim, int) else str(dim.value or f"{unnamed}.{axis}") for axis, dim in dims)


def rule_of(operator: Operator) -> Rule | None:
    """Return the rule of a node, or of the operator that it runs in other layouts."""
    domain = "" if operator.domain == "ai.onnx" else operator.domain
    if is_function(operator):
        return find(("", operator.name))
    if is_internal(operator.bare):
        key = standard_of(operator.node)
        return None if key is None else find(key)
    rule = find((domain, operator.name))
    if rule is None:
        rule = next((find(key) for key, variant in _written_as(operator)), None)
    return rule


def _called(node: ir.Node) -> tuple[str, str]:
    return "" if node.domain == "ai.onnx" else node.domain, node.op_type


def draws(node: ir.Node) -> bool:
    """Tell whether a node draws random numbers: the same operands give other results each time."""
    rule = find(_called(node))
    if rule is None:
        return False
    return rule.draws if isinstance(rule.draws, bool) else rule.draws(node)


def may_repeat(node: ir.Node) -> bool:
    """Tell whether a node may be duplicated: each consumer may have one of its own, at no cost."""
    rule = find(_called(node))
    return rule is not None and rule.repeats


def is_known(node: ir.Node) -> bool:
    """Tell whether the operator that a node names has a rule, or is a function of a layout."""
    key = _called(node)
    rule = find(key)
    if (rule is not None and rule.kind != "opaque") or key in variant_keys():
        return True
    return node.domain.startswith(FUNCTIONS) or (is_internal(node) and standard_of(node) is not None)


def is_on_images(node: ir.Node) -> bool:
    """Tell whether layouts have names for what a node runs."""
    if node.domain.startswith(FUNCTIONS):
        return True
    rule = find((standard_of(node) or _called(node)) if is_internal(node) else (node.domain, node.op_type))
    return rule is not None and bool(rule.layouts)


def kernel_axes(op_type: str) -> str:
    """Return the first axes of the kernel of a standard operator, `OI` or `IO`; empty where layouts name none."""
    rule = find(("", op_type))
    named = {} if rule is None else rule.layouts
    return next((axes for _, axes in sorted(named.items()) if axes != "NC"), "")


def is_view(node: ir.Node) -> bool:
    """Tell whether a node looks at its operand otherwise, by what it is called: a Transpose, a Reshape."""
    rule = find(_called(node))
    return rule is not None and rule.kind == "regrouping"


def may_go(node: ir.Node) -> bool:
    """Tell whether a node does nothing but give its outputs: there is a rule for it, be it that of a barrier."""
    return find(_called(node)) is not None or is_known(node)


def layouts_of(operator: Operator) -> OperatorLayouts | None:
    """Return the layouts in which a node runs the operator of its rule; None: the standard's, or its own.

    Raises:
        LayoutError: it is a function whose domain names no layouts.
    """
    if is_function(operator):
        return OperatorLayouts.of_domain(operator.domain)
    if is_internal(operator.bare):
        return layouts_of_internal(operator)
    return next((OperatorLayouts.parse(variant.layouts) for _, variant in _written_as(operator)), None)


def has_own_layouts(operator: Operator) -> bool:
    """Tell whether a node runs the operator of its rule in layouts of its own: a function, a registered variant."""
    return is_function(operator) or is_internal(operator.bare) or bool(_written_as(operator))


def _written_as(operator: Operator) -> list[tuple[tuple[str, str], LayoutVariant]]:
    """Return the registered variants that a node is."""
    node = operator.bare
    variants = variant_keys().get((node.domain, node.op_type), ())
    if not variants:
        return []
    pairs = ((name, attribute.value) for name, attribute in node.attributes.items())
    values = {name: tuple(value) if isinstance(value, list | tuple) else value for name, value in pairs}
    return [
        (key, variant)
        for key, variant in variants
        if all(values.get(name) == value for name, value in variant.attributes.items())
    ]


def facts(operator: Operator) -> Fact:
    """Return the facts of a node; None where it has no rule, or is not as its operator is defined.

    Raises:
        RelayoutError: a rule of a user is wrong.
    """
    rule = rule_of(operator)
    if rule is None:
        return None
    try:
        layouts = layouts_of(operator)
        if layouts is not None:
            return _fitted(_in_layouts(operator, rule, layouts), operator)
        fact = rule.facts(operator)
    except (IndexError, TypeError, ValueError, LayoutError):
        return None  # an input, output or attribute that the operator must have is missing or of another type
    if rule.place:
        refuse_unfit(rule.place, fact, operator)
    return _fitted(fact, operator)


class Facts:
    """The facts of a graph's nodes. A rule is asked once for all nodes that are alike in everything it looks at.

    What a rule says may hold on to the node: such a fact is of that node alone.
    """

    def __init__(self) -> None:
        self.of = Alike(facts, _is_shared)  # what is known of a node; see `facts`


def _is_shared(fact: Fact) -> bool:
    """Tell whether a fact holds on to nothing of the node that it was found for."""
    return not isinstance(fact, Signature) or (fact.price is None and _is_plain(fact.changes))


def _is_plain(content: object) -> bool:
    """Tell whether an object consists of names and numbers alone, and a function closes over nothing else."""
    if isinstance(content, UsersFunction):
        return _is_plain(content.function)
    if isinstance(content, FunctionType):
        cells = [cell.cell_contents for cell in content.__closure__ or ()]
        return _is_plain(cells) and _is_plain(content.__defaults__) and _is_plain(content.__kwdefaults__)
    if isinstance(content, dict):
        return _is_plain([*content, *content.values()])
    if isinstance(content, tuple | list | set | frozenset):
        return all(map(_is_plain, content))
    return content is None or isinstance(content, str | int | float | Extent | Variant)


def in_standard(operator: Operator) -> tuple[Operator, Signature] | None:
    """Return a node as the standard has it (of a function the one in its body) and its signature; None: not known."""
    rule = rule_of(operator)
    if rule is None:
        return None
    try:
        layouts = layouts_of(operator)
        inner = operator if layouts is None else in_standard_order(operator, rule, layouts)
        fact = _fitted(rule.facts(inner), inner)
    except (IndexError, TypeError, ValueError, LayoutError):
        return None
    return (inner, fact) if isinstance(fact, Signature) else None


def _in_layouts(operator: Operator, rule: Rule, layouts: OperatorLayouts) -> Fact:
    """A node that runs its rule's operator in other layouts: the standard's signature, in these layouts only."""
    inner = in_standard_order(operator, rule, layouts)
    said = rule.facts(inner)
    if rule.place:
        refuse_unfit(rule.place, said, inner)
    fact = _fitted(said, inner)
    if not isinstance(fact, Signature):
        return None
    return stored(fact, variant_in_layouts(rule, inner, fact, layouts))


def _fitted(fact: Fact, operator: Operator) -> Fact:
    """Return the fact, if it names as many axes as the operands have; outputs that nobody asks for have none."""
    if isinstance(fact, Permuted):
        return fact if sorted(fact.perm) == list(range(operator.rank() or 0)) else None
    if not isinstance(fact, Signature):
        return fact
    if len(fact.inputs) != len(operator.inputs) or len(fact.outputs) != len(operator.outputs):
        return None
    outputs = tuple(letters if operator.wants(slot) else None for slot, letters in enumerate(fact.outputs))
    pairs = [*zip(fact.inputs, operator.inputs, strict=True), *zip(outputs, operator.outputs, strict=True)]
    fits = all(letters is None or (shape is not None and len(shape) == len(letters)) for letters, shape in pairs)
    if outputs != fact.outputs:
        fact = replace(fact, outputs=outputs)
    return fact if fits and not _contradicts(fact, operator) else None


def _contradicts(fact: Signature, operator: Operator) -> bool:
    """Tell whether a stretched axis has a named extent on an input and 1 on the output: the name says nothing."""
    if not fact.broadcast:
        return False
    named = {
        letter
        for letters, shape in zip(fact.inputs, operator.inputs, strict=True)
        for letter, dim in zip(letters or (), shape or (), strict=False)
        if isinstance(dim, str)
    }
    return bool(named) and any(
        dim == 1 and letter in named
        for letters, shape in zip(fact.outputs, operator.outputs, strict=True)
        for letter, dim in zip(letters or (), shape or (), strict=False)
    )
