"""What targets there are, and the table of each: for `relayout targets`, and as Markdown for its page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from relayout import terminal
from relayout.lowering.passes import passes_for
from relayout.rules.registry import find
from relayout.targets import Target, target, targets
from relayout.targets.registry import aliases
from relayout.targets.target_table import Kernel
from relayout.terminal import Grid, Line, line, tabled

COLUMNS = ("operators", "layouts", "types", "ranks", "limits")
UNIT_COLUMNS = ("unit of", "runs as", "types", "ranks", "limits")
EVERYTHING = "every operator, in every layout"
REST = "every other operator as ONNX has it"
UNITS = "quantized units, of which the first row that fits is taken"
ANY_ORDER = "any order of axes"
ONNX_ORDER = "as ONNX has it"
MARK = "<!-- From here on: written by `relayout.reports.backends.markdown`. -->"
"""What precedes the tables on their page."""

BUILTINS, MANY = "tflite:", 40  # operators that a table of a person's does not name one by one, where there are so many


def tables() -> dict[str, Any]:
    """Return all targets, each in a line, and the names that stand for one of them on a machine: JSON types only."""
    lines = {target_table.name: target_table.line for target_table in targets().values()}
    for alias, owner in aliases().items():
        if isinstance(owner, str):
            lines[alias] = f"another name of {owner}"
        else:
            names = " or ".join(each for each in lines if each.startswith(alias))
            lines[alias] = f"{names}, whichever this machine's CPU runs"
    return {"targets": [{"name": name, "line": line} for name, line in sorted(lines.items())]}


def table(name: str) -> dict[str, Any]:
    """Return one target with its rows: JSON types only.

    Raises:
        LayoutError: there is no target of that name.
    """
    target_table = target(name)
    rows = [row.to_dict() for row in target_table.kernels]
    units = [unit.to_dict() for unit in target_table.units]
    return {
        "name": target_table.name,
        "line": target_table.line,
        "rows": rows,
        "rest": target_table.rest,
        "units": units,
        "passes": [row.name for row in passes_for(target_table)],
    }


def words(row: Mapping[str, Any]) -> dict[str, str]:
    """Return a row of a table, or of its units, for people."""
    types = ", ".join(map(str.lower, row["types"]))
    rest = {"types": types, "ranks": ", ".join(map(str, row["ranks"])) or "any", "limits": "; ".join(row["limits"])}
    names = ", ".join(row["operators"])
    if "layouts" not in row:
        return {"unit of": names, "runs as": row["written"], **rest}
    if len(row["operators"]) >= MANY and all(name.startswith(BUILTINS) for name in row["operators"]):
        names = "builtins of the file that a model was read from"
    layouts = ", ".join(row["layouts"]) + (f" (as {row['written']})" if row["written"] else "")
    return {
        "operators": names + (f" ({row['when']})" if row["when"] else ""),
        "layouts": layouts or (ONNX_ORDER if all(map(_has_layouts, row["operators"])) else ANY_ORDER),
        **rest,
        "types": types or "any",
    }


def _has_layouts(operator: str) -> bool:
    """Return whether an operator keeps ONNX's layout where a row states none: it does not follow its neighbours."""
    domain, _, name = operator.rpartition(":")
    rule = find((domain, name))
    return rule is not None and bool(rule.layouts)


def show(listing: Mapping[str, Any]) -> None:
    """Print what `tables` or `table` gave."""
    if "targets" in listing:
        listed = [list(row.values()) for row in listing["targets"]]
        terminal.show(tabled("name", "backend", rows=listed))
        return
    name, said = listing["name"], listing["line"]
    parts: list[Line | Grid] = [line(said if _letters(said).startswith(_letters(name)) else f"{name}: {said}")]
    if listing["rows"]:
        parts.append(tabled(*COLUMNS, rows=[list(words(row).values()) for row in listing["rows"]]))
        parts += [line(REST)] if listing["rest"] else []
    else:
        parts.append(line(EVERYTHING))
    if listing["units"]:
        rows = [list(words(unit).values()) for unit in listing["units"]]
        parts += [line(""), line(f"{UNITS}:"), tabled(*UNIT_COLUMNS, rows=rows)]
    if listing["passes"]:
        parts += [line(""), line(f"passes: {', '.join(listing['passes'])}")]
    terminal.show(*parts)


def _letters(text: str) -> str:
    """Return the letters and digits of a text, by which `my-npu` and "my NPU" are one name."""
    return "".join(filter(str.isalnum, text.lower()))


def markdown() -> str:
    """Return the tables of all targets, for their page."""
    return "\n".join(line for target_table in targets().values() for line in _section(target_table))


def _section(target_table: Target) -> Iterator[str]:
    yield from (f"## `{target_table.name}`", "", target_table.line + ".", "")
    if not target_table.kernels:
        yield from (EVERYTHING[0].upper() + EVERYTHING[1:] + ".", "")
        return
    others = [each for name, each in targets().items() if name < target_table.name and each.kernels]
    said = _said(target_table)
    if same := next((each for each in others if _said(each) == said), None):
        yield from (f"All rows of `{same.name}`.", "")
        return
    own = None
    for other in others:
        if own := _own_rows(target_table, other):
            yield from (f"These rows, and the rows of `{other.name}` for other operators:", "")
            break
    yield from _table(COLUMNS, [row.to_dict() for row in own or target_table.kernels])
    yield ""
    if own:
        return
    if target_table.rest:
        yield from (REST[0].upper() + REST[1:] + ".", "")
    if same := next((each for each in others if _said(each)[1] == said[1] != []), None):
        yield from (f"The quantized units of `{same.name}`.", "")
    elif target_table.units:
        yield from (UNITS[0].upper() + UNITS[1:] + ":", "")
        yield from _table(UNIT_COLUMNS, [unit.to_dict() for unit in target_table.units])
        yield ""


def _said(target_table: Target) -> tuple[list[dict[str, Any]], list[dict[str, Any]], bool]:
    """Return what the tables of a target say: its rows, its units, and whether it runs the rest."""
    return (
        [row.to_dict() for row in target_table.kernels],
        [unit.to_dict() for unit in target_table.units],
        target_table.rest,
    )


def _own_rows(target_table: Target, other: Target) -> list[Kernel] | None:
    """Return the rows of a target that another lacks; None where it has not all others, for operators beside these."""
    (ours, *more), (theirs, *others) = _said(target_table), _said(other)
    own = [row for row, said in zip(target_table.kernels, ours, strict=True) if said not in theirs]
    names = {name for row in own for name in row.op_types.split()}
    other_rows = [row for row, said in zip(other.kernels, theirs, strict=True) if said not in ours]
    if len(target_table.kernels) - len(own) < len(own) or not all(
        names & set(row.op_types.split()) for row in other_rows
    ):
        return None
    return own if more == others else None


def _table(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield f"| {' | '.join(columns)} |"
    yield "|---" * len(columns) + "|"
    for cells in map(words, rows):
        yield f"| {' | '.join(cells[column].replace(ANY_ORDER, 'any') for column in columns)} |"
