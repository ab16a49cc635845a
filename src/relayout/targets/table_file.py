"""A target's table in a file: TOML with the columns of `Target` and `Kernel`, conditions by their names.

name = "my-npu"
line = "my NPU: int8, NHWC"

[[kernels]]
op_types = "Conv"
layouts = ["NHWC OHWI"]
types = ["INT8"]
limits = ["CONSTANT_KERNEL", { window = 7 }]
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from relayout.arguments import TEXT, WORDS, ArgumentKind, check, several, whole
from relayout.errors import LayoutError, ReadError, nearest, printable
from relayout.lowering.conditions import Condition
from relayout.targets import conditions
from relayout.targets.target_table import MOST_NAME, NAME, Kernel, Target

ROWS = "kernels"
_NAMES = "name line fallback joins rest per_transpose per_scattered least_run inline prefers_integers"
TARGET_KEYS = tuple(_NAMES.split())  # columns of `Target` that a file may have, beside its rows
LISTS = ("layouts", "types", "ranks", "limits")
KERNEL_KEYS = ("op_types", *LISTS, "when", "domain", "trailing", "keeps_last")
"""Columns of `Kernel` that a file may have."""
_TEXTS = several("", TEXT.fits)
TEXT_LIST = ArgumentKind('a list of texts, such as ["INT8"]', lambda value: bool(value) and _TEXTS.fits(value))
NUMBER = ArgumentKind("a number", lambda value: isinstance(value, int | float) and not isinstance(value, bool))
MOST_BYTES = 1 << 20  # the largest file that is taken for a table
STRINGS = re.compile(  # Comments and strings, in which there is no key and no row
    r"""#[^\n]*|"{3}(?:\\.|[^\\])*?"{3}|'{3}.*?'{3}|"(?:\\.|[^"\\\n])*"|'[^'\n]*'""", re.DOTALL
)


def named_conditions() -> dict[str, Condition]:
    """Return the conditions that have a name of their own."""
    return {name: value for name, value in sorted(vars(conditions).items()) if isinstance(value, Condition)}


CONDITION_FUNCTIONS: Mapping[str, tuple[Callable[..., Condition], Mapping[str, ArgumentKind]]] = {
    "attribute": (conditions.attribute, {"attribute": WORDS, "allowed": TEXT_LIST, "default": TEXT}),
    "batch": (conditions.batch, {"batch": whole(1)}),
    "bias_of": (lambda types: conditions.bias_of(*map(str.upper, types)), {"bias_of": TEXT_LIST}),
    "constant": (conditions.constant, {"constant": whole(0), "name": WORDS}),
    "inputs": (conditions.inputs, {"inputs": whole(0)}),
    "results_of": (conditions.results_of, {"results_of": NUMBER, "zero_point": whole(-(2**31))}),
    "strides": (conditions.strides, {"strides": whole(1)}),
    "weights_of": (lambda types: conditions.weights_of(*map(str.upper, types)), {"weights_of": TEXT_LIST}),
    "window": (conditions.window, {"window": whole(1)}),
}
"""Key of a condition with arguments -> the function that makes it, and what its keys take, in order."""


def read_table(path: Path) -> Target:
    """Read a target from a TOML file.

    Raises:
        ReadError: the file cannot be read, or is not TOML.
        LayoutError: it is no table of a target; the message names the line.
    """
    import tomllib

    try:
        if path.stat().st_size > MOST_BYTES:
            raise ReadError(f"{path} is too long for a table: {path.stat().st_size:,} bytes")
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise ReadError(f"{path} is not text", hint="a target's table is TOML") from None
    except (OSError, ValueError) as error:  # ValueError: no file can have such a name
        hint = "`relayout targets --new my-npu > my-npu.toml` writes an example"
        reason = getattr(error, "strerror", None) or error
        raise ReadError(f"cannot read '{printable(str(path))}': {reason}", hint=hint) from None
    # Of a text of several lines the ends of lines stay; a text of one line may be a key.
    lines = STRINGS.sub(lambda match: "\n" * match[0].count("\n") or match[0], text).split("\n")
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        reason = str(error).replace("at end of document", f"at line {len(text.rstrip().splitlines()) or 1}, the last")
        raise ReadError(f"{path} cannot be read as TOML: {reason}") from error
    return _Table(path, lines).target(data)


def _place_in(message: str, columns: Mapping[str, Any]) -> tuple[str, str]:
    """Return the key that a message of a row is about, and the word of its value: empty where there is none.

    The message names the key, or quotes a word of the value, or begins with one.
    """
    message = re.sub(r"^a row for [^:]*: ", "", message)
    if named := next((key for key in columns if f"{key}=" in message), ""):
        return named, ""
    words = {key: " ".join(map(str, value if isinstance(value, tuple) else (value,))) for key, value in columns.items()}
    for word in (*re.findall(r"'([^']+)'", message), message.partition(" ")[0].rstrip(":")):
        if key := next((key for key, text in words.items() if word in text.split()), ""):
            return key, word
    return "", ""


def _as_toml(value: Any) -> str:
    """Return a value as the file has it."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_as_toml(each)}" for key, each in value.items()) + " }"
    return json.dumps(value, default=str)


class _Table:
    """A file's rows, and the lines on which they stand."""

    def __init__(self, path: Path, lines: Sequence[str]) -> None:
        self.path, self.lines = path, lines
        begins = rf"\s*\[\[\s*{ROWS}\s*\]\]", r".*\{.*\bop_types\b"  # the second: rows of a list in one value
        starts_by_pattern = ([place for place, line in enumerate(lines) if re.match(begin, line)] for begin in begins)
        self.starts = next((places for places in starts_by_pattern if places), [])

    def target(self, data: Mapping[str, Any]) -> Target:
        rows = data.get(ROWS, [])
        has_rows = isinstance(rows, list) and all(isinstance(row, dict) for row in rows)
        self._refuse_large({key: value for key, value in data.items() if key != ROWS or not has_rows}, 0)
        self._refuse_unknown(data, (*TARGET_KEYS, ROWS), 0)
        if not has_rows:
            raise self._error(f"{ROWS} is {rows!r}: each row begins with [[{ROWS}]]", ROWS)
        if not rows:
            raise self._error(f"no rows: each begins with [[{ROWS}]] and has op_types", "")
        columns = {key: value for key, value in data.items() if key != ROWS}
        columns = {
            "name": re.sub(r"[^A-Za-z0-9_.-]", "-", self.path.stem)[:MOST_NAME],
            "line": "a table in a file",
            **columns,
        }
        kernels = tuple(self._kernel(row, index) for index, row in enumerate(rows))
        host = self._fallback(columns.pop("fallback")) if "fallback" in columns else None
        try:
            if host is None:
                return Target(kernels=kernels, **columns)
            return replace(host, kernels=kernels, fallback=host, **columns)
        except LayoutError as error:
            raise self._error(str(error), next((key for key in columns if f"{key}=" in str(error)), "")) from error

    def _fallback(self, name: object) -> Target:
        """Return the target that runs what the rows do not claim; its lowering is done to the whole graph."""
        from relayout.targets.registry import target, targets

        if not isinstance(name, str) or name not in targets():
            near = nearest(str(name), targets())
            raise self._error(f"fallback={name!r}: it takes the name of a target{near}", "fallback")
        return target(name)

    def _kernel(self, row: Mapping[str, Any], index: int) -> Kernel:
        start = self.starts[index] if index < len(self.starts) else 0
        self._refuse_large(row, start)
        self._refuse_unknown(row, KERNEL_KEYS, start)
        if "op_types" not in row:
            raise self._error('a row has no op_types, such as "Conv" or "Add Mul"', "", start)
        columns: dict[str, Any] = dict(row)
        if isinstance(columns["op_types"], list):
            columns["op_types"] = " ".join(map(str, columns["op_types"]))
        for key in LISTS:
            value = columns.get(key, [])
            if not isinstance(value, list):
                raise self._error(f"{key} is no list: write {key} = [{_as_toml(value)}]", key, start)
            columns[key] = tuple(value)
        columns["types"] = tuple(each.upper() if isinstance(each, str) else each for each in columns["types"])
        limits = columns["limits"]
        columns["limits"] = tuple(
            self._condition(each, "limits", start, limits[:place]) for place, each in enumerate(limits)
        )
        if "when" in columns:
            columns["when"] = self._condition(columns["when"], "when", start)
        try:
            return Kernel(**columns)
        except LayoutError as error:
            key, word = _place_in(str(error), columns)
            raise self._error(str(error), key, start, word) from error

    def _condition(self, entry: Any, key: str, start: int, before: Sequence[Any] = ()) -> Condition:
        """Return a condition of a row; `before` are those in front of it."""

        def error(what: str, word: str) -> LayoutError:
            count = sum(each == word if isinstance(each, str) else word in each for each in before)
            return self._error(what, key, start, word, count)

        if isinstance(entry, str):
            known = named_conditions()
            name = entry.upper().replace("-", "_")
            if name not in known:
                raise error(f"there is no condition {entry!r}{nearest(name, known)}", entry)
            return known[name]
        if not isinstance(entry, dict):
            raise self._error(f"{key} has {entry!r}: write a name, or a table such as {{ window = 7 }}", key, start)
        function = next((name for name in entry if name in CONDITION_FUNCTIONS), None)
        if function is None:
            near = nearest(next(iter(entry), ""), CONDITION_FUNCTIONS)
            listed = ", ".join(CONDITION_FUNCTIONS)
            raise error(f"{key} has {entry!r}: known are {listed}{near}", next(iter(entry), ""))
        make, keys = CONDITION_FUNCTIONS[function]
        if missing := [name for name in keys if name not in entry]:
            raise error(f"the condition {function} needs {', '.join(missing)}, too", function)
        if unknown := [name for name in entry if name not in keys]:
            raise error(f"the condition {function} takes no {unknown[0]}{nearest(unknown[0], keys)}", unknown[0])
        try:
            check(entry, keys, where="", error=LayoutError)
            return make(*(entry[name] for name in keys))
        except LayoutError as fault:
            raise error(f"the condition {function}: {fault}", function) from None

    def _refuse_large(self, data: Mapping[str, Any], start: int) -> None:
        for key, value in data.items():
            if not _has_64_bits(value):
                raise self._error(f"{key!r} holds a whole number of more than 64 bits", key, start)

    def _refuse_unknown(self, data: Mapping[str, Any], known: Sequence[str], start: int) -> None:
        for key in data:
            if key not in known:
                raise self._error(f"there is no key {key!r}{nearest(key, known)}", key, start)

    def _error(
        self,
        what: str,  # what is wrong
        key: str,  # the key that it is about; empty: the row as a whole
        start: int = 0,  # the line on which the row begins
        word: str = "",  # the word of the key's value, which may take several lines
        before: int = 0,  # how often the word stands in the value in front of that
    ) -> LayoutError:
        """Return an error that names the file and the line."""
        behind = range(start, len(self.lines))
        ends = next((place for place in behind if place > start and place in self.starts), len(self.lines))
        name = rf"(.*\{{)?\s*(\[\[?\s*({ROWS}\s*\.\s*)?)?['\"]?{re.escape(key)}\b"
        place = next((place for place in range(start, ends) if key and re.match(name, self.lines[place])), start)
        if word:
            whole = rf"(?<![\w-]){re.escape(word)}(?![\w-])"
            places = [at for at in range(place, ends) for _ in re.findall(whole, self.lines[at])]
            place = places[min(before, len(places) - 1)] if places else place
        return LayoutError(f"{self.path}, line {place + 1}: {what}")


def _has_64_bits(value: Any) -> bool:
    """Return whether all whole numbers in a value are such as TOML has: Python reads longer ones and prints none."""
    ahead = [value]
    while ahead:
        each = ahead.pop()
        if isinstance(each, dict | list):
            ahead += each.values() if isinstance(each, dict) else each
        elif isinstance(each, int) and not -(2**63) <= each < 2**63:
            return False
    return True


EXAMPLE = """\
# A target: what a backend runs. `relayout convert model.onnx out.onnx --target {name}.toml`
name = "{name}"
line = "int8, NHWC, kernels OHWI"
# fallback = "litert"  # runs all else, in layouts of its own; without one ONNX's own. A .tflite result needs it
# per_transpose = 0    # bytes that each Transpose costs besides those that it moves
# per_scattered = 0    # a Transpose that copies single elements counts each of its bytes as 1 + this many
# rest = false         # the backend also runs every operator that no row is about, as ONNX has it
# joins = false        # it also runs the rows' operators in ONNX's own layout

# Each row: operators, and what must hold of a node. Several rows may be about one operator.
[[kernels]]
op_types = "Conv"
layouts = ["NHWC OHWI"]            # of the image, and of the kernel; several: best first; none: any order of axes
types = ["INT8"]                   # INT8 is a quantized unit: DequantizeLinear -> Conv -> QuantizeLinear
ranks = [4]
when = "NOT_DEPTHWISE"             # which nodes the row is about; without it depthwise ones become a grouped CONV_2D
limits = ["CONSTANT_KERNEL", "SYMMETRIC_WEIGHTS", {{ window = 64 }}, {{ strides = 3 }}]  # window: its longest side

[[kernels]]
op_types = "Conv"
layouts = ["NHWC IHWO"]
types = ["INT8"]
when = "DEPTHWISE"

[[kernels]]
op_types = "MaxPool AveragePool"
layouts = ["NHWC"]
types = ["INT8"]
limits = ["NO_INDICES", "SAME_SCALES"]

[[kernels]]
op_types = "Add Mul Concat Reshape Relu"
types = ["INT8"]

# [[kernels]]
# op_types = "Swish"               # an operator of your own, for which relayout needs a rule
# domain = "vendor"                # its domain

# Conditions by name:
{names}
# Conditions with arguments:
#   {{ attribute = "mode", allowed = ["linear"], default = "nearest" }}    {{ batch = 1 }}    {{ inputs = 2 }}
#   {{ constant = 1, name = "shape" }}    {{ window = 64 }}    {{ strides = 3 }}
#   {{ weights_of = ["INT8"] }}    {{ bias_of = ["INT32"] }}    {{ results_of = 0.00390625, zero_point = -128 }}
"""


def example(name: str) -> str:
    """Return a commented table to begin with.

    Raises:
        LayoutError: the name is none that a target can have.
    """
    if not NAME.fits(name):
        raise LayoutError(f"{name!r} is no name for a target: it takes {NAME.expected}")
    known = named_conditions()
    width = max(map(len, known))
    names = "\n".join(f"#   {each:{width}}  {condition.line}" for each, condition in known.items())
    return EXAMPLE.format(name=name, names=names)
