"""What a target is: the operators that it runs, in which layouts, on which element types. A table, not a program."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import onnx_ir as ir

from relayout import arguments
from relayout.apply.blocks import BlockSizes
from relayout.errors import LayoutError, shortened
from relayout.formats.tflite.container.runtimes import Builtins
from relayout.graph.passes import Pass
from relayout.graph.quantized_unit import DEQUANTIZE, QUANTIZE, QUANTIZING_DOMAINS
from relayout.light_dataclass import dataclass
from relayout.lowering.conditions import DEPTHWISE, NOT_DEPTHWISE, Condition
from relayout.lowering.decomposition_rows import Expansion, why_not_written
from relayout.lowering.fuse_epilogue import Fusion
from relayout.lowering.passes import BY_DEFAULT, check_operators, check_passes, check_types
from relayout.lowering.unit_rows import BYTES, Unit
from relayout.rules import (
    Operator,
    OperatorLayouts,
    Placement,
    Rule,
    Signature,
    Written,
    has_own_layouts,
    in_standard,
    rule_of,
    variant_in_layouts,
)
from relayout.rules.layouts import operator_layouts, why_not
from relayout.rules.registry import find
from relayout.rules.users_functions import UsersFunction, is_users
from relayout.rules.validation import WRITTEN
from relayout.targets.portable import portable
from relayout.targets.price_list import in_which_it_is_last, in_which_one_stays_last

if TYPE_CHECKING:
    from relayout.apply.apply import SingleConsumers
    from relayout.formats.tflite.exporting.file_forms import FileForms
    from relayout.formats.tflite.importing.import_passes import ImportPasses


# The functions of a user in a target's rows: each error in one names the target, the row, the node and the line.


def guard_rows(target: "Target") -> None:
    """Put a `UsersFunction` in the place of each function of a target that is none of this package's.

    Rows are replaced, and never changed: they may be another target's, too.
    """
    where = f"target {target.name!r}: "

    def condition(limit: Condition) -> Condition:
        if not is_users(limit.holds):
            return limit
        what = f"{where}the condition {limit.line!r}"
        return replace(limit, holds=UsersFunction(what, limit.holds, otherwise=False, check=_no_truth))

    def conditions(limits: tuple[Condition, ...]) -> tuple[Condition, ...]:
        return tuple(map(condition, limits)) if any(is_users(limit.holds) for limit in limits) else limits

    def own(each: str | Pass) -> str | Pass:
        if isinstance(each, str):
            return each
        return each._replace(function=_guarded(f"{where}pass {each.name!r}", each.function, check=_no_report))

    def with_columns(row: Any, **columns: Any) -> Any:
        columns["limits"] = conditions(row.limits)
        different = {name: value for name, value in columns.items() if getattr(row, name) is not value}
        return replace(row, **different) if different else row

    def expansion(row: Expansion) -> Any:
        what = f"{where}the expansion of {row.op_type}"
        return with_columns(row, steps=_guarded(what, row.steps, otherwise=(), check=_unwritable))

    def unit(row: Unit) -> Any:
        functions = {name: getattr(row, name) for name in ("channel", "attributes", "squeezed")}
        what = f"of a unit of {row.op_types}"
        return with_columns(
            row, **{name: _guarded(f"{where}`{name}` {what}", each) for name, each in functions.items()}
        )

    def fusion(row: Fusion) -> Fusion:
        what = f"in a fusion of {row.op_type}"
        activations = {
            name: _guarded(f"{where}the parameters of {name} {what}", each) for name, each in row.activations.items()
        }
        return row._replace(limits=conditions(row.limits), activations=activations)

    vars(target).update(
        kernels=tuple([with_columns(row, when=row.when and condition(row.when)) for row in target.kernels]),
        expansions=tuple(map(expansion, target.expansions)),
        units=tuple(map(unit, target.units)),
        fusions=tuple(map(fusion, target.fusions)),
        price=_guarded(f"{where}`price`", target.price, check=_no_price),
        tflite=_guarded(f"{where}`tflite`", target.tflite),
        single_consumers=_guarded(f"{where}`single_consumers`", target.single_consumers),
        lowering=tuple(map(own, target.lowering)),
    )


def _guarded(what: str, function: Any, **options: Any) -> Any:
    return UsersFunction(what, function, **options) if function is not None and is_users(function) else function


def _no_report(_: Sequence[Any], answer: Any) -> str:
    count = arguments.whole(0)
    counts = isinstance(answer, Mapping) and all(isinstance(name, str) and count.fits(answer[name]) for name in answer)
    is_report = counts or arguments.NAMES.fits(answer)
    return "" if is_report else f"it returns {type(answer).__name__}, not counts such as {{'Neg': 2}}, or sentences"


def _no_truth(_: Sequence[Any], answer: Any) -> str:
    return "" if isinstance(answer, bool | np.bool_) else f"it returns {type(answer).__name__}, not True or False"


def _no_price(_: Sequence[Any], answer: Any) -> str:
    is_price = arguments.whole(0).fits(answer)
    return "" if is_price else f"it returns {answer!r}, not bytes, a whole number from 0 on"


def _unwritable(args: Sequence[Any], answer: Any) -> str:
    return why_not_written(args[0], answer)


FLOAT = ("FLOAT", "FLOAT16", "BFLOAT16", "DOUBLE")
INT8 = BYTES
QUANTIZATION = (DEQUANTIZE, QUANTIZE)
"""The ends of a unit: a row for one of them is about a node that is no other operator's end."""
STANDARD = OperatorLayouts.parse("NCHW")
NOT_THERE = "is not in its table"  # how a reason ends where no row is about an operator

_KERNEL = {
    "op_types": arguments.ArgumentKind("names of operators in one text, such as 'Conv MaxPool'", arguments.WORDS.fits),
    "layouts": arguments.several("a tuple of layouts, such as ('NHWC OHWI',)", arguments.TEXT.fits),
    "types": arguments.several("a tuple of element types, such as ('FLOAT',)", arguments.TEXT.fits),
    "ranks": arguments.several("a tuple of ranks, such as (4,)", arguments.whole(0).fits),
    "limits": arguments.several_of(Condition),
    "when": arguments.instance(Condition, "a Condition"),
    "domain": arguments.TEXT,
    "written": WRITTEN,
    "trailing": arguments.TEXT,
    "keeps_last": arguments.FLAG,
}


@dataclass(frozen=True)
class Kernel:
    """A row of a target's table: operators that it runs.

    Args:
        op_types: names of operators; one string may hold several.
        layouts: where they are layout-sensitive: each way that the target has, best first: the layout of images and,
            after a space, that of the kernel (`NHWC OHWI`). Empty: any order of axes.
        types: element types of input 0 (ONNX's names); empty: any. Of an operator in a quantized unit
            (DequantizeLinear → operator → QuantizeLinear) they are those of the integers: `INT8`, not `FLOAT`.
        ranks: ranks of input 0; empty: any.
        limits: what must hold of a node besides; one that does not names the reason why the target cannot run it.
        when: the nodes that the row is about; None: all of its operators.
        domain: the operators' domain.
        written: the node that runs them in these layouts, where they are not the standard's; None: a function.
        trailing: the attribute that counts an axis which must come last; empty: there is none.
        keeps_last: the axis that comes last must be one that the operator does not reduce.
    """

    op_types: str
    layouts: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    limits: tuple[Condition, ...] = ()
    when: Condition | None = None
    domain: str = ""
    written: Written | None = None
    trailing: str = ""
    keeps_last: bool = False

    def __post_init__(self) -> None:
        """See that the row can be meant: one with a typing error would claim nothing, and nobody would know.

        Raises:
            LayoutError: a column holds something else; a layout is none of images or kernels, or of none that the
                operator has; there is no such operator, or element type.
        """
        where = f"a row for {self.op_types}: "
        for column in (self.layouts, self.types, self.ranks):
            if isinstance(column, str | int):
                raise LayoutError(f"{where}{column!r} is no list; write ({column!r},)")
        arguments.check_fields(self, where, LayoutError, **_KERNEL)
        check_types(self.types, where)
        if self.domain == "ai.onnx":
            raise LayoutError(f"{where}domain='ai.onnx': the domain of ONNX's own operators is ''; leave it out")
        check_operators([] if self.domain else self.op_types.split())
        for name in self.op_types.split() if self.layouts else ():
            rule = find((self.domain, name))
            for layouts in map(operator_layouts, self.layouts):
                if rule is not None and (reason := why_not(layouts, rule)):
                    raise LayoutError(f"{where}{layouts} for {name}: {reason}")

    def concerns(self, operator: Operator, domain: str, name: str) -> bool:
        """Tell whether the row is about a node that runs an operator, in the standard's order."""
        named = self.domain == domain and name in self.op_types.split()
        return named and (self.when is None or self.when.holds(operator))

    def lacks(self, operator: Operator, elements: "Callable[[], _Elements] | None" = None) -> str:
        """Return why this row does not run a node of its operators; empty if it does.

        Args:
            operator: the node.
            elements: gives the element type of the node, for whoever asks several rows; None: it is found here.
        """
        if self.types:
            dtype, is_unit = elements() if elements else _elements_of(operator)
            if dtype is None or dtype.name not in self.types:
                name = "unknown" if dtype is None else dtype.name
                kind = f"a quantized unit of {name}" if is_unit else f"element type {name}"
                return f"{kind}; it takes {', '.join(self.types)}"
        rank = operator.rank() if operator.inputs else None
        if self.ranks and rank not in self.ranks:
            return f"rank {'unknown' if rank is None else rank}"
        return next((f"it wants {limit}" for limit in self.limits if not limit.holds(operator)), "")

    def to_dict(self) -> dict[str, object]:
        """Return the row for machines, and for the tables that people read: JSON types only."""
        written = "" if self.written is None else f"{self.written.domain}:{self.written.op_type}"
        return {
            "operators": [f"{self.domain}:{name}" if self.domain else name for name in self.op_types.split()],
            "when": "" if self.when is None else str(self.when),
            "layouts": list(self.layouts),
            "types": list(self.types),
            "ranks": list(self.ranks),
            "limits": [str(limit) for limit in self.limits],
            "written": written.removeprefix(":"),
            **({"trailing": self.trailing} if self.trailing else {}),
            **({"keeps_last": True} if self.keeps_last else {}),
        }

    def ways(self) -> Iterator[OperatorLayouts]:
        """Its layouts, with the node that runs them."""
        for text in self.layouts:
            way = OperatorLayouts.parse(text)
            yield way if way == STANDARD else replace(way, written=self.written)


def convolutions(
    types: tuple[str, ...], ranks: tuple[int, ...], limits: tuple[Condition, ...] = (), op_types: str = "Conv"
) -> tuple[Kernel, Kernel]:
    """Return the rows of convolutions as TensorFlow Lite has them: kernels `OHWI`, those of depthwise ones `1HWC`."""
    kinds = (("NHWC OHWI", NOT_DEPTHWISE), ("NHWC IHWO", DEPTHWISE))
    first, second = (Kernel(op_types, (layouts,), types, ranks, limits, when) for layouts, when in kinds)
    return first, second


MOST_NAME = 100  # characters of a target's name, which is a part of names of files and domains
NAME = arguments.ArgumentKind(
    f"a name of at most {MOST_NAME} letters, digits, '-', '_' and '.'",
    lambda value: isinstance(value, str) and bool(re.fullmatch(rf"[A-Za-z0-9_.-]{{1,{MOST_NAME}}}", value)),
)
_TARGET = {
    "name": NAME,
    "line": arguments.TEXT,
    "kernels": arguments.several_of(Kernel),
    "price": arguments.FUNCTION,
    "tflite": arguments.FUNCTION,
    "single_consumers": arguments.FUNCTION,
    "file_forms": arguments.FUNCTION,
    "units": arguments.several_of(Unit),
    "least_run": arguments.whole(0),
    "per_transpose": arguments.BYTES,
    "per_scattered": arguments.BYTES,
    "blocks": arguments.instance(BlockSizes, "a Blocks"),
    "expansions": arguments.several_of(Expansion),
    "builtins": arguments.instance(Builtins, "a Builtins"),
    "lowering": arguments.several(
        "a tuple of lowering passes, names such as 'decompose' or a Pass", lambda value: isinstance(value, str | Pass)
    ),
    "fusions": arguments.several_of(Fusion),
}


@dataclass(frozen=True)
class Target:
    """A backend: what it runs, and how.

    Args:
        name: how `--target` calls it: letters, digits, `-`, `_` and `.`, for parts and domains are called by it.
        line: what it is, in a line.
        kernels: its table; empty: every operator, in every layout, as the standard and its functions have it.
        joins: it also runs layout-sensitive operators in the standard's order: its ways join the default ones.
        price: what running a node in an order costs beside its best one, in bytes that might be moved instead: of the
            node, what its rule says, and where its axes lie.
        per_transpose: what each Transpose costs besides the bytes that it moves, in bytes.
        per_scattered: extra bytes for each byte of a Transpose that copies single elements.
        rest: it also runs every operator that no row is about, as the standard has it.
        units: what it has for quantized units; of several rows the first that fits.
        unsigned: what lies between units is stored as uint8, which means the same.
        inline: it has no kernels for functions, and cancels the Transposes of their bodies: these are written in place.
        least_run: its Transpose copies runs of this many elements, or moves one axis, faster than single elements: one
            that moves the innermost axis among others is done in two steps (0: it is not).
        blocks: the blocks of channels that its kernels want: a result that has such kernels is stamped with them.
        expansions: what it runs as other operators, since it takes longer for the one.
        fusions: what it runs as a part of a kernel, before layouts are chosen.
        prefers_integers: a quantized unit stays on integers of LiteRT's kernels, whatever scale its quantizer chose,
            also where it is then some steps off.
        lowering: its lowering passes, those of each stage in order: names (`relayout.lowering.passes`), or its own.
        transposed_products: its product of matrices takes as long by a transposed one, such as the keys of attention.
        tflite: returns what is done to a `.tflite` beside its literal import.
        single_consumers: finds the integers that only one DequantizeLinear may read (see `apply`).
        file_forms: returns the forms in which it takes the operators of a `.tflite`; None: those that LiteRT's CPU
            kernels run.
        fallback: the target that runs what this one does not claim, in layouts of its own: the CPU beside an NPU. None:
            a host that has operators as the standard has them.
        is_litert: LiteRT itself runs the whole file: it may hold what other runtimes of such files lack.
        builtins: those of TensorFlow Lite that its runtime has: a `.tflite` holds no others. None: all.
    """

    name: str
    line: str
    kernels: tuple[Kernel, ...]
    joins: bool = False
    price: Callable[[Operator, Signature, Placement], int] | None = None
    per_transpose: int = 0
    per_scattered: int = 0
    rest: bool = False
    units: tuple[Unit, ...] = ()
    unsigned: bool = False
    inline: bool = False
    least_run: int = 0
    blocks: BlockSizes | None = None
    expansions: tuple[Expansion, ...] = ()
    fusions: tuple[Fusion, ...] = ()
    transposed_products: bool = False
    prefers_integers: bool = False
    is_litert: bool = False
    lowering: tuple[str | Pass, ...] = BY_DEFAULT
    tflite: "Callable[[], ImportPasses]" = portable
    single_consumers: "SingleConsumers | None" = None
    file_forms: "Callable[[], FileForms] | None" = None
    fallback: "Target | None" = None
    builtins: Builtins | None = None

    @property
    def own_operators(self) -> frozenset[str]:
        """The operators that it is written as, `domain:name`, which no other runtime need have."""
        kernels = (f"{row.written.domain}:{row.written.op_type}" for row in self.kernels if row.written is not None)
        return frozenset((*kernels, *(unit.written for unit in self.units if ":" in unit.written)))

    def __post_init__(self) -> None:
        """See that every part of the table is what it is taken for.

        Raises:
            LayoutError: one is not.
        """
        where = f"target {shortened(repr(self.name), 2 * MOST_NAME)}: "
        flags = {each.name: arguments.FLAG for each in fields(self) if each.type in (bool, "bool")}
        kinds = {**flags, **_TARGET, "fallback": arguments.instance(Target, "a Target")}
        arguments.check_fields(self, where, LayoutError, **kinds)
        check_passes(self.lowering, ("target", *vars(self)), where)
        guard_rows(self)

    def rows(self, operator: Operator) -> Iterator[Kernel]:
        """Yield the rows for a node's operator."""
        yield from self._rows(_standard(operator))

    def _rows(self, known: "_Standard") -> Iterator[Kernel]:
        rows = self._by_operator.get((known.domain, known.name), ())
        yield from (row for row in rows if row.when is None or row.when.holds(known.operator))

    @cached_property
    def _by_operator(self) -> Mapping[tuple[str, str], Sequence[Kernel]]:
        """Domain and name of an operator -> the rows about it, in the table's order."""
        rows_by_operator: dict[tuple[str, str], list[Kernel]] = {}
        for row in self.kernels:
            for name in row.op_types.split():
                rows_by_operator.setdefault((row.domain, name), []).append(row)
        return rows_by_operator

    def lacks(self, operator: Operator) -> str:
        """Return why the target cannot run a node; empty if it can."""
        return "" if not self.kernels or self.rest else self._lacks(_standard(operator))

    def _lacks(self, known: "_Standard") -> str:
        reasons = [row.lacks(known.operator, known.elements) for row in self._rows(known)]
        if reasons:
            return "" if not all(reasons) else reasons[0]
        # No row is about the node: no row has its operator, or it meets none of their conditions.
        whens = dict.fromkeys(str(row.when) for row in self._by_operator.get((known.domain, known.name), ()))
        return f"it runs {known.name} only with: {', '.join(whens)}" if whens else f"{known.name} {NOT_THERE}"

    def claims(self, operator: Operator) -> bool:
        """Tell whether the target runs a node, in one of its layouts."""
        return not self.lacks(operator)

    def runner(self, operator: Operator) -> "Target":
        """Return the target that runs a node: this one, or where it does not claim the node its fallback."""
        return self if self.fallback is None or self.claims(operator) else self.fallback.runner(operator)

    def runs(self, operator: Operator) -> bool:
        """Tell whether the target runs a node as it is: it claims the node, in the layout that the node has."""
        known = _standard(operator)
        if self.kernels and not self.rest and self._lacks(known):
            return False
        rule = rule_of(operator)
        if rule is None or not rule.layouts:
            return True
        has = self._layouts(known)
        if not has or (self.joins and not has_own_layouts(operator)):
            return True
        inner = known.inner or in_standard(operator)
        if inner is None:
            return True
        written = (_written(rule, *inner, way) for way in has)
        own = (_domain(operator), operator.name)
        return any(way is not None and (way.domain, way.op_type) == own for way in written)

    def why_not(self, operator: Operator) -> str:
        """Return why the target does not run a node as it is; empty where only its layout differs."""
        known = _standard(operator)
        rule, inner = rule_of(operator), known.inner or in_standard(operator)
        if (reason := self.lacks(operator)) or rule is None or inner is None:
            return reason
        for way in self._layouts(known):
            try:
                variant_in_layouts(rule, *inner, way)
            except LayoutError as error:
                return str(error)
        return ""

    def placed(self, operator: Operator, signature: Signature) -> Signature:
        """Return a node's signature with the axis last that must be, where a row says so."""
        rows = (row for row in self.rows(operator) if row.trailing or row.keeps_last)
        row = next((row for row in rows if not row.lacks(operator)), None)
        letters = signature.inputs[0] if signature.inputs else None
        if row is None or not letters or signature.tail or signature.variants:
            return signature
        if row.keeps_last:
            return in_which_one_stays_last(signature, operator, letters)
        return in_which_it_is_last(signature, letters, letters[operator.int(row.trailing, -1) % len(letters)])

    def layouts(self, operator: Operator) -> list[OperatorLayouts]:
        """Return the ways in which the target runs a node that it claims, best first; none: any order of axes."""
        return self._layouts(_standard(operator))

    def _layouts(self, known: "_Standard") -> list[OperatorLayouts]:
        rows = (row for row in self._rows(known) if not row.lacks(known.operator, known.elements))
        return [way for row in rows for way in row.ways()]


def _written(rule: Rule, operator: Operator, signature: Signature, way: OperatorLayouts) -> Written | None:
    """Return the node as which a node runs in some layouts; None where these do not fit."""
    try:
        return variant_in_layouts(rule, operator, signature, way).written
    except LayoutError:
        return None


class _Elements(NamedTuple):
    """The element type that a node computes with: of a quantized unit its integers'."""

    dtype: ir.DataType | None
    is_unit: bool


def _elements_of(operator: Operator) -> _Elements:
    unit = operator.unit()
    if unit is not None and (operator.name not in QUANTIZATION or unit.node is operator.bare):
        return _Elements(unit.dtype, is_unit=True)
    return _Elements(operator.kind(0), is_unit=False)


class _Standard:
    """A node as tables speak of it, and the operator that it runs: domain and name, of the standard's layout."""

    def __init__(
        self,
        operator: Operator,  # the node
        domain: str,  # the operator's
        name: str,  # the operator's
        # the node and its signature in the standard's layout, where it lies in another
        inner: tuple[Operator, Signature] | None = None,
    ) -> None:
        self.operator, self.domain, self.name, self.inner = operator, domain, name, inner
        self._elements: _Elements | None = None

    def elements(self) -> _Elements:
        """Return the element type that the node computes with; it is found once for all rows."""
        if self._elements is None:
            self._elements = _elements_of(self.operator)
        return self._elements


def _standard(operator: Operator) -> _Standard:
    rule = rule_of(operator) if has_own_layouts(operator) else None
    known = None if rule is None else in_standard(operator)
    if rule is None or known is None:
        return _Standard(operator, _domain(operator), operator.name)
    return _Standard(known[0], rule.domain, rule.op_type, known)


def _domain(operator: Operator) -> str:
    """Return the domain by which tables name an operator: quantizers of 16 bits have another one in old opsets."""
    domain = operator.domain
    is_quantizer = operator.name in QUANTIZATION and domain in QUANTIZING_DOMAINS
    return "" if domain == "ai.onnx" or is_quantizer else domain
