"""What a user adds: the signature of an operator of their own, and operators that run one in another layout.

>>> from relayout import rules
>>> with rules.scope():
...     @rules.register("vendor:Swish", kind="layout-agnostic")
...     def swish(operator):
...         "Any order."
...         return rules.aligned(operator, (0,))
...     rules.register_variant("Conv", layouts="NHWC OHWI", written="vendor:ConvNhwc")

Both are errors where something is known already: nothing is ever replaced, so that no order of registrations matters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager

from relayout import arguments
from relayout.errors import LayoutError, nearest
from relayout.rules.layouts import STANDARD, OperatorLayouts, at_rank, operator_layouts, why_not
from relayout.rules.operator import Operator, Shapes
from relayout.rules.registry import (
    FUNCTIONS,
    KINDS,
    Key,
    LayoutVariant,
    Rule,
    add,
    add_variant,
    find,
    registry,
    restored,
    variant_keys,
    variants_of,
)
from relayout.rules.signature import Attribute, Fact
from relayout.rules.users_functions import place_of
from relayout.rules.validation import promised, promised_shapes

Facts = Callable[[Operator], Fact]
IMAGE = 4  # the rank in which layouts are compared
_LAYOUTS = arguments.ArgumentKind(
    "a dictionary such as {0: 'NC', 1: 'OI'}",
    lambda value: isinstance(value, Mapping) and all(map(arguments.whole(0).fits, value)),
)
_ATTRIBUTES = arguments.mapping(
    "{'data_layout': 'NHWC'}, of texts, numbers and tuples of whole numbers",
    lambda value: (
        isinstance(value, int | float | str)
        or (isinstance(value, tuple) and all(isinstance(each, int) for each in value))
    ),
)


def scope() -> AbstractContextManager[None]:
    """Return a context that forgets at its end what is registered inside, also after an exception. Not for threads."""
    return restored()


def register(
    *operators: str, kind: str, layouts: Mapping[int, str] | None = None, shapes: Shapes | None = None
) -> Callable[[Facts], Facts]:
    """Register a function as the rule of operators that have none; its docstring's first line is what it says.

    Args:
        operators: `vendor:Swish`; one of ONNX's default domain is `Swish`.
        kind: the class of the operators, one of `KINDS`.
        layouts: for operators on images: input -> the standard names of its first two axes (`NC` for an image, `OI`
            or `IO` for a kernel), for which `--to` and targets have other layouts.
        shapes: a function of the `Operator` that gives (element type, shape) of each output, where the file does not
            state them: `(ir.DataType | None, tuple | None)`; an extent is a number, a name, or "" if it is not known.

    Raises:
        LayoutError: an operator has a rule already, or what is given is none of the above.

    What the function gives is looked at when it is asked of a node: other operands or axes than the node has, what it
    raises, and an attribute `axis` or `axes` of which it says nothing are errors, with its file and line. `check` runs
    the nodes of a model in other orders.
    """
    if kind not in KINDS:
        raise LayoutError(f"{kind!r} is no class of operators: there are {', '.join(KINDS)}")
    if not operators:
        raise LayoutError("a rule of no operator: `register('vendor:Swish', kind=...)`")
    kinds = {"layouts": _LAYOUTS, "shapes": arguments.FUNCTION}
    arguments.check({"layouts": layouts, "shapes": shapes}, kinds, error=LayoutError)
    if layouts and kind != "layout-sensitive":
        raise LayoutError(f"layouts={dict(layouts)} of {', '.join(operators)}: what has layouts is 'layout-sensitive'")
    keys = [_key(operator) for operator in operators]
    for slot, named in (layouts or {}).items():
        if named not in ("NC", "OI", "IO"):
            raise LayoutError(f"{named!r} for input {slot}: an image is NC, a kernel is OI or IO")

    def decorate(facts: Facts) -> Facts:
        arguments.check({"rule": facts}, {"rule": arguments.FUNCTION}, {"rule": ...}, error=LayoutError)
        line = (facts.__doc__ or "").strip().partition("\n")[0]
        for key in keys:
            _refuse_known(key)
        for domain, op_type in dict.fromkeys(keys):
            name = _name((domain, op_type))
            place = place_of(f"the rule of {name}", facts)
            own_shapes = None if shapes is None else promised_shapes(name, shapes)
            facts_of_node = promised(name, facts)
            add(Rule(domain, op_type, kind, line, facts_of_node, dict(layouts or {}), place=place, shapes=own_shapes))
        return facts

    return decorate


def register_variant(
    operator: str, *, layouts: str, written: str | None = None, attributes: Mapping[str, Attribute] | None = None
) -> None:
    """Say which node runs an operator on images in other layouts: it is written instead of a model-local function.

    Args:
        operator: the operator that it runs, with a rule that has `layouts`: `Conv`, or one that was registered.
        layouts: of the images and, after a space, of the kernel: `NHWC OHWI`; other ranks follow.
        written: the node's operator, `vendor:ConvNhwc`; by default `operator` itself.
        attributes: what the node says besides: `{"data_layout": "NHWC"}`.

    Raises:
        LayoutError: the operator is on no images or has no such layouts, its variant in these is known, or the node
            means something else already, or can be none of a user's.
    """
    key, into = _key(operator), _key(operator if written is None else written)
    rule = find(key)
    if rule is None:
        raise LayoutError(f"{operator} has no rule to be a variant of{nearest(operator, map(_name, registry()))}")
    if not rule.layouts:
        raise LayoutError(f"{operator} is no operator on images: its rule names no layouts")
    parsed_layouts = operator_layouts(layouts)
    if reason := why_not(parsed_layouts, rule):
        raise LayoutError(f"a variant of {operator} in {layouts}: {reason}")
    lies = str(at_rank(parsed_layouts, IMAGE, kernels=rule))
    if lies == str(STANDARD):
        raise LayoutError(f"a variant of {operator} in {layouts}: so it runs itself; name other layouts")
    if any(
        lies == str(at_rank(OperatorLayouts.parse(variant.layouts), IMAGE, kernels=rule))
        for variant in variants_of(rule)
    ):
        raise LayoutError(f"{operator} has a variant in {layouts} already")
    arguments.check({"attributes": attributes}, {"attributes": _ATTRIBUTES}, error=LayoutError)
    variant = LayoutVariant(layouts, *into, dict(attributes or {}))
    if into == key and not (key[0] and variant.attributes):
        raise LayoutError(f"a variant of {operator} is written as another operator, or tells its layouts by attributes")
    others = [other for _, other in variant_keys().get(into, ())]
    if any(other.attributes == variant.attributes for other in others):
        raise LayoutError(f"{_name(into)} with these attributes is a variant already")
    if into != key and not others:
        _refuse_known(into)
        if not into[0]:
            raise LayoutError(f"written={written!r}: an operator of a backend has a domain, `vendor:{into[1]}`")
    add_variant(key, variant)


def _refuse_known(key: Key) -> None:
    if key in registry():
        raise LayoutError(f"{_name(key)} has a rule already: nothing is replaced")
    if key in variant_keys():
        raise LayoutError(f"{_name(key)} is a variant of another operator already")


def _key(operator: str) -> Key:
    domain, _, op_type = operator.rpartition(":") if isinstance(operator, str) else ("", "", "")
    if not op_type.isidentifier() or any(character.isspace() for character in domain):
        raise LayoutError(f"{operator!r} names no operator: `vendor:Swish`, or `Swish` of ONNX's own domain")
    if domain.startswith(FUNCTIONS):
        raise LayoutError(f"{operator!r}: domains that begin with {FUNCTIONS} are those of relayout's functions")
    return ("" if domain == "ai.onnx" else domain, op_type)


def _name(key: Key) -> str:
    return f"{key[0]}:{key[1]}" if key[0] else key[1]
