"""Which layouts a node shall run in: what a user asks for, and what a target has."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from relayout.errors import LayoutError, ReadError, nearest
from relayout.graph.source_names import known_as, label
from relayout.graph.subgraphs import all_nodes
from relayout.layout import Layout
from relayout.light_dataclass import dataclass
from relayout.rules import (
    Operator,
    OperatorLayouts,
    Rule,
    Signature,
    Variant,
    in_standard,
    is_on_images,
    registry,
    rule_of,
    variant_in_layouts,
)
from relayout.rules.alike import Alike
from relayout.rules.layouts import IMAGES, KERNELS, STANDARD, fitted, parsed_as
from relayout.rules.signature import costs_nothing
from relayout.rules.users_functions import UsersFunction
from relayout.rules.validation import in_bytes
from relayout.targets.portable import nothing, portable
from relayout.targets.price_list import PriceList

if TYPE_CHECKING:
    from relayout.formats.tflite.importing.import_passes import ImportPasses
    from relayout.targets.target_table import Target


DEFAULT = "default"
NONE = "none"
"""The target's name that stands for no target, and for no lowering: layouts are chosen, and nothing else is done."""
IMAGE = 4  # the rank in which layouts are compared
Layouts = tuple[str, str | None]  # a layout of images, and one of kernels; `default` lets the target choose
LayoutFor = Callable[[ir.Node], Sequence[str] | str | None]


def layouts_of(request: Any) -> Layouts:
    """Read desired layouts: `"NHWC"`, `["NHWC"]`, `["NHWC", "OHWI"]`, `["default"]`.

    Raises:
        LayoutError: it is none.
    """
    words = [request] if isinstance(request, str) else list(request) if isinstance(request, Sequence) else []
    if not 1 <= len(words) <= 2 or not all(isinstance(word, str) for word in words):
        raise LayoutError(
            f"{request!r} is no desired layout: give one for images, or one for images and one for kernels"
        )
    for word, outer, what in zip(words, (IMAGES, KERNELS), ("images", "kernels"), strict=False):
        if word != DEFAULT:
            parsed_as(word, outer, what)
    return words[0], words[1] if len(words) == 2 and words[1] != DEFAULT else None


@dataclass
class DesiredLayouts:
    """The layouts that are desired for every operator, in order of precedence.

    Args:
        target: what there is to choose from; None: every layout, as a function.
        to: the layout of all layout-sensitive operators (those that the target claims, where there is one).
        operators: operator -> layouts.
        nodes: node -> layouts, by its name or that of its first output.
        layout_for: node -> layouts, or None where nothing is asked.
        literal: whether nothing is done to a model but that layouts are chosen: the target is called `none`.
        declined: node -> why what was asked for it cannot be.
        answers: node -> what `layout_for` answered.
        named: the file or the operators that the target was asked for by; empty where its name says all.
    """

    target: Target | None = None
    to: str | None = None
    operators: Mapping[str, Layouts] = field(default_factory=dict)
    nodes: Mapping[str, Layouts] = field(default_factory=dict)
    layout_for: LayoutFor | None = None
    literal: bool = False
    declined: dict[str, str] = field(default_factory=dict)
    answers: dict[str, Layouts] = field(default_factory=dict)
    named: str = ""

    def __bool__(self) -> bool:
        """Tell whether anything is desired."""
        return bool(self.target or self.to or self.operators or self.nodes or self.layout_for)

    @staticmethod
    def of(
        to: str | None = None,
        target: str | Target | None = None,
        desired_layouts: Mapping[str, Sequence[str] | str] | None = None,
        node_layouts: Mapping[str, Sequence[str] | str] | None = None,
        layout_for: LayoutFor | None = None,
    ) -> DesiredLayouts:
        """Return the layouts that a user desires.

        Args:
            to: layout of all layout-sensitive operators, such as `NHWC`.
            target: a target, or its name; `none` for no target and no lowering.
            desired_layouts: operator -> layout of images, or layouts of images and kernel; `default` lets the target
                choose.
            node_layouts: the same by a node's name, or that of its first output.
            layout_for: the same by a function of the node; None where nothing is asked.

        Raises:
            LayoutError: a layout that is none, an operator that has none of its own, or a target that is not known.
        """
        if to is not None:
            parsed_as(to, IMAGES, "images")
        for name in desired_layouts or {}:
            if not any(rule.layouts for (_, op_type), rule in registry().items() if op_type == name):
                images = {rule.op_type for rule in registry().values() if rule.layouts}
                raise LayoutError(f"{name!r} is no operator with layouts of its own{nearest(name, images)}")
        literal = target == NONE
        target_table, named = (None, "") if target is None or literal else _target_and_text(target)
        by_function = None if layout_for is None else UsersFunction("`layout_for`", layout_for)
        return DesiredLayouts(
            target_table,
            to,
            _parsed(desired_layouts or {}),
            _parsed(node_layouts or {}),
            by_function,
            literal,
            named=named,
        )

    @property
    def tflite(self) -> ImportPasses:
        """The passes over a `.tflite` beside its literal import."""
        if self.literal:
            return nothing()
        return portable() if self.target is None else self.target.tflite()

    def notes(self) -> tuple[str, ...]:
        """Return what was asked for and could not be, once a graph has been built with it: for a report."""
        return tuple(_grouped(self.declined, "does not run as asked: {}", "do not run as asked: {}"))

    def unmet(self, nodes: Iterable[tuple[ir.Node, str]]) -> tuple[str, ...]:
        """Say which operators on images keep the source's order, though other layouts are asked for.

        Args:
            nodes: the nodes of the graph, each with the reason why it is a barrier, if it is one.
        """
        reasons_by_operator: dict[str, list[str]] = {}
        for node, reason in nodes if self else ():
            if is_on_images(node):
                reasons_by_operator.setdefault(node.op_type, []).append(reason)
        if self.to is not None and not reasons_by_operator:
            return (f"no operator of this model has layouts: {self.to} is asked for, and nothing can run in it",)
        return tuple(
            f"{reasons.count('')} of {len(reasons)} {name} can run in another layout: "
            + "; ".join(dict.fromkeys(reason for reason in reasons if reason))
            for name, reasons in sorted(reasons_by_operator.items())
            if any(reasons)
        )

    def against(self, graph: ir.Graph) -> None:
        """Hold the names in these requests to a model.

        Raises:
            LayoutError: a node that the model does not have.
        """
        if not self.nodes:
            return
        names = dict.fromkeys(name for node in all_nodes(graph) for name in (node.name, node.outputs[0].name) if name)
        for name in self.nodes:
            if name not in names:
                raise LayoutError(f"the model has no node {name!r}{nearest(name, names)}")

    def to_json(self) -> dict[str, Any]:
        """For a plan file: what was asked, answers of `layout_for` included, once a graph has been built with it."""
        named = (
            {"target": NONE}
            if self.literal
            else {}
            if self.target is None
            else {"target": self.named or self.target.name}
        )
        return named | {
            "to": self.to,
            "desired_layouts": {name: _written(layouts) for name, layouts in self.operators.items()},
            "node_layouts": {name: _written(layouts) for name, layouts in {**self.nodes, **self.answers}.items()},
        }

    def __call__(self, operator: Operator, signature: Signature) -> Signature:
        """A node's signature with the variants that are asked for, and the target's prices."""
        if self.target is None or not self.target.transposed_products:
            signature = signature.untransposed
        requested_signature, declined = self._once(operator, signature)
        if declined:
            self.declined[label(operator.bare)] = declined
        return requested_signature

    @cached_property
    def _once(self) -> Alike[tuple[Signature, str]]:
        """Ask `_chosen` once for all nodes alike; a price holds on to its node, which is asked about by itself."""
        return Alike(self._chosen, lambda answer: answer[0].price in (None, costs_nothing))

    def _chosen(self, operator: Operator, signature: Signature) -> tuple[Signature, str]:
        """Return a node's signature as it is asked for, and why it cannot be so, if it cannot."""
        price = None if self.target is None else self.target.price
        if price is None:
            return self._varied(operator, signature)
        requested_signature, declined = self._varied(operator, signature.cheap)
        if isinstance(price, PriceList) and price.of(operator) is None:
            return replace(requested_signature, price=costs_nothing), declined
        where = f"the price of target {self.target.name}: " if self.target else ""
        priced = replace(
            requested_signature, price=lambda placement: in_bytes(where, price(operator, signature, placement))
        )
        return priced, declined

    def _varied(self, operator: Operator, signature: Signature) -> tuple[Signature, str]:
        rule = rule_of(operator)
        if rule is None or not rule.layouts:
            return signature if self.target is None else self.target.runner(operator).placed(operator, signature), ""
        layouts = self._desired(operator)
        ways, declined = self._ways(operator, layouts)
        if not ways:
            # What a target does not have stays in the source's positions: it has no price in others.
            return signature if self.target is None else _where_it_stands(signature), declined
        known = in_standard(operator)
        if known is None:
            return signature, declined
        inner, plain = known
        candidates = [_first(rule, inner, plain, way) for way in ways]
        variants = {variant: None for variant, _ in candidates if variant is not None}
        if not variants:
            declined = candidates[0][1]
        if not variants or (self.target is not None and self.target.joins and layouts is None):
            usual, _ = _first(rule, inner, plain, OperatorLayouts(STANDARD))
            if usual is None:  # of a rank that no layout names: a BatchNormalization behind a Gemm
                return signature, declined
            variants[usual] = None
        if layouts == self._in_general:
            variants |= dict.fromkeys(each for each in signature.variants if each.free)
        return replace(signature, variants=tuple(variants)), declined

    @property
    def _in_general(self) -> Layouts | None:
        """The desired layouts of an operator that is not asked for by name; None if there are none."""
        return None if self.to is None else (self.to, None)

    def _desired(self, operator: Operator) -> Layouts | None:
        if self.layout_for is not None and (answer := self.layout_for(operator.node)) is not None:
            layouts = layouts_of(answer)
            self.answers[label(operator.node)] = layouts
            return layouts
        for name in (operator.node.name, known_as(operator.node.outputs[0])) if self.nodes else ():
            if name and name in self.nodes:
                return self.nodes[name]
        if operator.name in self.operators:
            return self.operators[operator.name]
        if self.to is not None and (self.target is None or self.target.claims(operator)):
            return self._in_general
        return None

    def _ways(self, operator: Operator, layouts: Layouts | None) -> tuple[list[OperatorLayouts], str]:
        """The layouts to choose from, best first (none: as the rule says), and why what is asked for is not there."""
        runner = None if self.target is None else self.target.runner(operator)
        lacks = "" if runner is None else runner.lacks(operator)
        has = runner.layouts(operator) if runner is not None and not lacks else []
        if layouts is None or layouts[0] == DEFAULT:
            return has, ""
        data, kernel = Layout.parse(layouts[0]), None if layouts[1] is None else Layout.parse(layouts[1])
        if not has:
            return [OperatorLayouts(data, kernel)], ""
        matching_ways = [way for way in has if _same(way, data, kernel)]
        if matching_ways or self.target is None:
            return matching_ways or has, ""
        return has, f"{self.target.name} runs {operator.name} in {', '.join(map(str, has))}"


def _target_and_text(name_or_target: str | Target) -> tuple[Target, str]:
    """Return a target, and the text that states it rather than names it; empty if none does."""
    from relayout.targets import registry

    if not isinstance(name_or_target, str):
        return name_or_target, ""
    return registry.target(name_or_target), name_or_target if registry.is_stated(name_or_target) else ""


def _where_it_stands(signature: Signature) -> Signature:
    """An operator whose positions are not the standard's (a Resize of channels last), in its own alone."""
    named = signature.standard
    is_reordered = (named.inputs, named.outputs) != (signature.inputs, signature.outputs)
    return replace(signature, variants=signature.variants[:1]) if is_reordered else signature


def _same(way: OperatorLayouts, data: Layout, kernel: Layout | None) -> bool:
    """Tell whether a way is what is asked for, whatever rank either was written for."""

    def alike(one: Layout | None, other: Layout) -> bool:
        return one is not None and fitted(one, IMAGE) == fitted(other, IMAGE)

    return alike(way.data, data) and (kernel is None or alike(way.kernel, kernel))


def _first(rule: Rule, operator: Operator, signature: Signature, way: OperatorLayouts) -> tuple[Variant | None, str]:
    """Return the variant for a way, or why there is none.

    Where the channels of one side do not fall into tiles (an image of three), that side lies in the standard's order.
    """
    ways = [way]
    if not way.data.is_plain and way.result is None:
        ways += [replace(way, data=STANDARD, result=way.data), replace(way, result=STANDARD)]
    if way.kernel is not None and not way.kernel.is_plain:
        ways += [replace(each, kernel=without(way.kernel, axis)) for each in ways for axis in way.kernel.tiles]
    reasons: list[str] = []
    for each in ways:
        try:
            return variant_in_layouts(rule, operator, signature, each), ""
        except LayoutError as error:
            reasons.append(str(error))
    return None, reasons[0]


def without(layout: Layout, axis: str) -> Layout:
    """Return a layout without the tile of one axis."""
    return Layout(tuple(factor for factor in layout.factors if factor.axis != axis or not factor.tile))


def _grouped(reasons: Mapping[str, str], one: str, several: str) -> Iterator[str]:
    """Yield a line a reason, with the first node that it is about and how many more."""
    nodes: dict[str, list[str]] = {}
    for node, reason in reasons.items():
        nodes.setdefault(reason, []).append(node)
    for reason, named in nodes.items():
        more = f" and {len(named) - 1} more" if len(named) > 1 else ""
        yield f"{named[0]}{more} {(several if more else one).format(reason)}"


def _written(layouts: Layouts) -> list[str]:
    return [word for word in layouts if word is not None]


def _parsed(requests: Mapping[str, Sequence[str] | str]) -> dict[str, Layouts]:
    """Read `{"Conv": ["NHWC", "OHWI"], "MaxPool": ["NHWC"]}`."""
    return {name: layouts_of(value) for name, value in requests.items()}


# Desired layouts in a file, TOML or JSON.
#
# to = "NHWC"
# target = "xnnpack"
#
# [operators]
# Conv = ["NHWC", "OHWI"]
# Resize = "default"
#
# [nodes]
# "head/conv" = "NCHW"

KEYS = {"to": "to", "target": "target", "operators": "desired_layouts", "nodes": "node_layouts"}
"""Key of the file -> option of `relayout.convert`."""


def read_desired_layouts(path: Path) -> dict[str, Any]:
    """Return the options of `relayout.convert` that a file holds.

    Raises:
        ReadError: it is neither TOML nor JSON, or holds other keys.
        LayoutError: a layout in it is none.
    """
    import tomllib

    try:
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        data = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except UnicodeDecodeError:
        raise ReadError(f"{path} is not text", hint="desired layouts are TOML or JSON") from None
    except (OSError, ValueError, RecursionError) as error:
        kind = "JSON" if path.suffix == ".json" else "TOML"
        raise ReadError(f"{path} cannot be read as {kind}: {error}") from error
    if not isinstance(data, dict) or not path.is_file():
        raise ReadError(f"{path} holds no desired layouts", hint=f"known are {', '.join(KEYS)}")
    if set(data) - set(KEYS):
        raise ReadError(f"{path} holds {', '.join(sorted(set(data) - set(KEYS)))}", hint=f"known are {', '.join(KEYS)}")
    for key, such in (("to", "NHWC"), ("target", "xnnpack")):
        if not isinstance(entry := data.get(key, ""), str):
            raise ReadError(f"{path}: {key} is {entry!r}: it takes a name, such as {such!r}")
    for key, such in (("operators", "Conv"), ("nodes", "conv1")):
        rows = data.get(key, {})
        if not isinstance(rows, dict):
            raise ReadError(f"{path}: {key} is {rows!r}: it takes a table of names and layouts, such as {such}: 'NHWC'")
        for entry in rows.values():
            layouts_of(entry)
    return {KEYS[key]: value for key, value in data.items()}
