"""One registry of operator rules, filled by discovery of this room's modules; a duplicate is an error."""

import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import NamedTuple

import onnx_ir as ir

from relayout.listed_modules import load_all, modules_by_domain
from relayout.rules.operator import Operator, Shapes
from relayout.rules.signature import Attribute, Fact
from relayout.rules.users_functions import is_users, place_of
from relayout.rules.validation import promised, promised_shapes

KINDS = ("layout-sensitive", "layout-agnostic", "axis attributes", "regrouping", "opaque")

ROOM = "relayout.rules"  # the package whose modules have the rules
FUNCTIONS = "relayout."  # prefix of the domains of functions; what follows names the layouts
IMAGES = "on images"  # marks an operator with layouts of its own in the list of modules

Draws = bool | Callable[[ir.Node], bool]
"""Whether an operator draws numbers, others each time; a function, where that depends on the node."""


class Rule(NamedTuple):
    """The rule of one operator.

    Args:
        domain: the operator's domain.
        op_type: its name.
        kind: its class, one of `KINDS`.
        line: what it says, in a line.
        facts: the facts for a node.
        layouts: input -> the standard names of its first two axes, for an operator on images: `NC` for an image, `OI`
            or `IO` for a kernel. Outputs of rank 3 and more are images, too. Empty: no layout has a name here.
        draws: whether it draws numbers (`Draws`).
        repeats: whether it belongs to who reads it: each reader may have one of its own, at no cost.
        place: how errors call a rule of a user, with its file and line; empty for those of this room.
        shapes: types and shapes of the outputs, where neither ONNX's inference nor the axes tell them.
    """

    domain: str
    op_type: str
    kind: str
    line: str
    facts: Callable[[Operator], Fact]
    layouts: Mapping[int, str] = {}
    draws: Draws = False
    repeats: bool = False
    place: str = ""
    shapes: Shapes | None = None


class LayoutVariant(NamedTuple):
    """An operator of its own, or an attribute, that runs an operator on images in other layouts.

    Args:
        layouts: of the images and, after a space, of the kernel: `NHWC OHWI`.
        domain: the domain of the node that runs it.
        op_type: its operator.
        attributes: what it says besides: name -> value.
    """

    layouts: str
    domain: str
    op_type: str
    attributes: Mapping[str, Attribute] = {}


Key = tuple[str, str]  # (domain, operator)

_rules: dict[Key, Rule] = {}
_variants: dict[Key, tuple[LayoutVariant, ...]] = {}  # operator -> what runs it in other layouts
_of_file: dict[str, tuple[dict[Key, Rule], dict[Key, tuple[LayoutVariant, ...]]]] = {}
"""A user's file -> the rules and variants that it registered."""


def rule(
    *op_types: str,
    kind: str,
    domain: str = "",
    layouts: Mapping[int, str] | None = None,
    draws: Draws = False,
    repeats: bool = False,
    shapes: Shapes | None = None,
) -> Callable[[Callable[[Operator], Fact]], Callable[[Operator], Fact]]:
    """Register a function as the rule of operators; its docstring's first line is the row of `relayout ops`.

    Args:
        op_types: names of operators; one string may hold several.
        kind: the class of the operators, one of `KINDS`.
        domain: the operators' domain.
        layouts: input -> the standard names of its first two axes (`Rule.layouts`).
        draws: whether they draw numbers (`Draws`).
        repeats: whether each reader may have one of its own.
        shapes: types and shapes of the outputs (`Rule.shapes`).
    """

    def register(facts: Callable[[Operator], Fact]) -> Callable[[Operator], Fact]:
        if kind not in KINDS:
            raise ValueError(f"{kind!r} is none of {KINDS}")
        line = (facts.__doc__ or "").strip().partition("\n")[0]
        for op_type in " ".join(op_types).split():
            if (domain, op_type) in _rules:
                raise ValueError(f"two rules for {domain}:{op_type}")
            name = f"{domain}:{op_type}" if domain else op_type
            users = is_users(facts)
            rule_function = promised(name, facts) if users else facts
            place = place_of(f"the rule of {name}", facts) if users else ""
            own_shapes = promised_shapes(name, shapes) if shapes is not None and is_users(shapes) else shapes
            _rules[domain, op_type] = Rule(
                domain, op_type, kind, line, rule_function, layouts or {}, draws, repeats, place, own_shapes
            )
        return facts

    return register


def find(key: Key) -> Rule | None:
    """Return the rule of one operator; None if there is none. Of the others no more is loaded than it needs.

    An operator that is not listed may have a rule that is newer than the list: then all are loaded, once.
    """
    if key not in _rules and key in modules_by_domain(ROOM):
        importlib.import_module(f"{ROOM}.{modules_by_domain(ROOM)[key][0]}")
    elif key not in _rules and not key[0].startswith(FUNCTIONS):
        _discover()
    return _rules.get(key)


def has_rule(key: Key) -> bool:
    """Tell whether an operator has a rule. No module is loaded for one that is listed."""
    return key in modules_by_domain(ROOM) or find(key) is not None


def has_layouts(key: Key) -> bool:
    """Tell whether an operator has a rule, and layouts of its own. No module is loaded for it."""
    return bool(_rules[key].layouts) if key in _rules else IMAGES in modules_by_domain(ROOM).get(key, ())


def add(rule: Rule) -> None:
    """Put a rule into the registry."""
    registry()[rule.domain, rule.op_type] = rule


def add_variant(key: Key, variant: LayoutVariant) -> None:
    """Put what runs an operator in other layouts into the registry."""
    _variants[key] = (*_variants.get(key, ()), variant)


def registry() -> dict[Key, Rule]:
    """(domain, operator) -> rule: the room's own in alphabetical order, then those that were registered."""
    _discover()
    return _rules


def variants_of(rule: Rule) -> tuple[LayoutVariant, ...]:
    """Return the registered variants that run an operator in other layouts, beside the functions."""
    return _variants.get((rule.domain, rule.op_type), ())


def variant_keys() -> dict[Key, list[tuple[Key, LayoutVariant]]]:
    """Written operator -> (the operator that it runs, the variant)."""
    variants_by_key: dict[Key, list[tuple[Key, LayoutVariant]]] = {}
    for key, variants in _variants.items():
        for variant in variants:
            variants_by_key.setdefault((variant.domain, variant.op_type), []).append((key, variant))
    return variants_by_key


@contextmanager
def restored() -> Iterator[None]:
    """Afterwards the registry is as it was before, whatever happens in between."""
    rules, variants = dict(registry()), dict(_variants)
    try:
        yield
    finally:
        _rules.clear()
        _rules.update(rules)
        _variants.clear()
        _variants.update(variants)


@contextmanager
def registered_by(file: str) -> Iterator[None]:
    """Let what is registered inside replace what the same file registered when it ran before."""
    rules, variants = _of_file.pop(file, ({}, {}))
    for key in [key for key, rule in rules.items() if _rules.get(key) is rule]:
        del _rules[key]
    for key, own in variants.items():
        _variants[key] = tuple(each for each in _variants.get(key, ()) if each not in own)
    rules, variants = dict(_rules), dict(_variants)
    try:
        yield
    finally:
        _of_file[file] = (
            {key: rule for key, rule in _rules.items() if rule.place and rules.get(key) is not rule},
            {key: tuple(each for each in own if each not in variants.get(key, ())) for key, own in _variants.items()},
        )


@cache
def _discover() -> None:
    load_all(ROOM)
    ordered = dict(sorted(_rules.items()))
    _rules.clear()
    _rules.update(ordered)
