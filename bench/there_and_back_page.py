"""The page on conversions there and back, from what `there_and_back.py` found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import node_tests_page
from added_operators import reason_of, reason_of_bytes
from tables import table

THROUGH, AT_ONCE, PEER = "through ONNX", "at once", "onnx2tf"
TOOLS = (THROUGH, AT_ONCE, PEER)
VERDICTS = ("exact", "right", "close", "wrong", "does not run", "refused")
USABLE = ("exact", "right", "close")
MOST_NAMED = 6
"""Models that a line names."""
SHORT = 150
"""Characters of a reason that a line shows."""

Row = dict[str, Any]
Rows = list[Row]


def verdict(row: Row) -> str:
    return str(row.get("verdict", "refused"))


def judged(found: Row, kind: str = "tflite") -> Rows:
    return [each for each in found["models"] if each["kind"] == kind and "left_out" not in each]


def converted(found: Row, tool: str) -> list[tuple[Row, Row]]:
    """Return the models that a tool took, each with its result."""
    return [(each, each["tools"][tool]) for each in judged(found) if tool in each["tools"]]


def usable(found: Row, tool: str) -> list[tuple[Row, Row]]:
    return [(m, row) for m, row in converted(found, tool) if verdict(row) in USABLE and "operators" in row]


def common(found: Row) -> Rows:
    """Return the models that both tools bring back through ONNX exact, right or close."""
    ours = {id(m) for m, _ in usable(found, THROUGH)}
    return [m for m, _ in usable(found, PEER) if id(m) in ours]


def named(models: Iterable[str]) -> str:
    known = list(models)
    more = f" and {len(known) - MOST_NAMED} more" if len(known) > MOST_NAMED else ""
    return ", ".join(f"`{each}`" for each in known[:MOST_NAMED]) + more


def name_of(m: Row) -> str:
    return f"{m['set']}/{m['model']}"


def listed(items: Iterable[str]) -> str:
    return "\n".join(f"- {item}" for item in items) or "- none"


def numbers(found: Row) -> str:
    """A line for each set and tool: how many results have which verdict."""
    lines = []
    sets = dict.fromkeys(m["set"] for m in judged(found))
    for name in (*sets, "all"):
        for tool in TOOLS:
            rows = [row for m, row in converted(found, tool) if name in (m["set"], "all")]
            if rows:
                counts = Counter(map(verdict, rows))
                lines.append([name, tool, str(len(rows)), *(str(counts[each]) for each in VERDICTS)])
    return table(["models", "way", "number", *VERDICTS], lines, 2)


def integers(found: Row) -> str:
    """A sentence about the files whose operators compute integers alone."""
    parts = []
    for tool in TOOLS:
        rows = [row for m, row in converted(found, tool) if m["source"]["integer"]]
        if rows:
            exact = sum(verdict(row) == "exact" for row in rows)
            parts.append(f"{tool}: {exact} of {len(rows)}")
    return f"Files that compute with integers only, equal bit for bit: {'; '.join(parts)}."


MEASURES: dict[str, Callable[[Row], int]] = {
    "operators": lambda row: row["operators"],
    "transposed bytes": lambda row: row["bytes"],
}


def changes(pairs: list[tuple[Row, Row]], label: str) -> list[list[str]]:
    """Return a line for each measure: the sources' sum, the results', how many results have more and fewer."""
    lines = []
    for name, of in MEASURES.items():
        both = [(of(a), of(b)) for a, b in pairs if of(a) is not None and of(b) is not None]
        if both:
            before, after = (sum(column) for column in zip(*both, strict=True))
            more, fewer = sum(b > a for a, b in both), sum(b < a for a, b in both)
            lines.append([name, label, str(len(both)), f"{before:,}", f"{after:,}", str(more), str(fewer)])
    return lines


def sizes(found: Row) -> str:
    """All results of each way; then both tools on the files that both bring back."""
    lines = []
    for tool in TOOLS:
        lines += changes([(m["source"], row) for m, row in usable(found, tool)], tool)
    shared = common(found)
    for tool in (THROUGH, PEER) if shared else ():
        lines += changes([(m["source"], m["tools"][tool]) for m in shared], f"{tool}, where both do")
    head = ["measure", "way", "number", "of the sources", "of the results", "more in", "fewer in"]
    return table(head, lines, 2)


def more_operators(found: Row, tool: str) -> str:
    """A line for each reason for which results have more operators than their sources."""
    groups: dict[str, list[tuple[str, int]]] = {}
    for m, row in usable(found, tool):
        more = row["operators"] - m["source"]["operators"]
        if more > 0:
            groups.setdefault(reason_of(row["gone"], row["added"]), []).append((name_of(m), more))
    lines = [
        [why, str(len(rows)), str(sum(more for _, more in rows)), named(name for name, _ in rows)]
        for why, rows in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    ]
    return table(["reason", "files", "more operators", "which"], lines, 1) if lines else "None."


KEPT = {
    "signatures": "signatures: keys, names of inputs and outputs, their places",
    "tensor names": "names of input and output tensors",
    "types": "types, shapes and scales of inputs and outputs",
    "open extents": "open extents of inputs and outputs",
    "variables": "variables that an operator keeps from run to run",
    "metadata": "metadata buffers",
    "files": "files behind the model",
}


def keeping(found: Row) -> str:
    """A line for everything that a user names: how many results lost some of it."""
    lines = []
    for kind, said in KEPT.items():
        cells = []
        for tool in TOOLS:
            rows = usable(found, tool)
            lost = sum(kind in row["lost"] for _, row in rows)
            cells.append(f"{lost} of {len(rows)}" if rows else "")
        lines.append([said, *cells])
    return table(["lost in", *TOOLS], lines)


def shortfalls(found: Row) -> str:
    """The files that differ by more than rounding, and every Transpose that was added."""
    said = []
    for tool in (THROUGH, AT_ONCE):
        by_text: dict[str, list[str]] = {}
        for m, row in converted(found, tool):
            if verdict(row) in ("wrong", "does not run", "refused"):
                operator, reason = node_tests_page.reasons(row.get("why", "other numbers"))[0]
                text = f"{verdict(row)}: {f'{operator}, ' if operator else ''}{reason[:SHORT]}"
                by_text.setdefault(text, []).append(name_of(m))
            elif verdict(row) == "close":
                by_text.setdefault("close", []).append(f"{name_of(m)} ({row['error']:.1g})")
            before, after = m["source"]["bytes"], row.get("bytes")
            if None not in (before, after) and after > before:
                text = f"more transposed bytes, {reason_of_bytes(row['gone'], row['added'])}"
                by_text.setdefault(text, []).append(f"{name_of(m)} ({before:,} to {after:,})")
        said += [f"{tool}: {text} ({len(models)}): {named(models)}" for text, models in by_text.items()]
    return listed(said)


def peers_faults(found: Row) -> str:
    by_text: dict[str, list[str]] = {}
    for m, row in converted(found, PEER):
        if verdict(row) not in USABLE:
            numbers = "other numbers, of a source on integers" if m["source"]["integer"] else "other numbers"
            text = f"{verdict(row)}: {row.get('why', numbers)[:SHORT]}"
            by_text.setdefault(text, []).append(name_of(m))
    groups = sorted(by_text.items(), key=lambda item: (-len(item[1]), item[0]))
    return listed(f"{text} ({len(models)}): {named(models)}" for text, models in groups)


def state_of_onnx(row: Row) -> str:
    back = row["back"]
    if "runs" not in back:
        return "refused"
    return "does not run" if not back["runs"] else "equal" if back["equal"] else "differs"


def onnx_numbers(found: Row) -> str:
    """A line for each set of ONNX models."""
    rows, lines = judged(found, "onnx"), []
    states = ("equal", "differs", "does not run", "refused")
    for name in (*dict.fromkeys(m["set"] for m in rows), "all"):
        within = [m for m in rows if name in (m["set"], "all")]
        counts = Counter(map(state_of_onnx, within))
        both = [(m["source"]["bytes"], m["back"]["bytes"]) for m in within if state_of_onnx(m) == "equal"]
        before, after = (sum(column) for column in zip(*both, strict=True)) if both else (0, 0)
        more = sum(b > a for a, b in both)
        cells = [str(counts[each]) for each in states]
        lines.append([name, str(len(within)), *cells, f"{before:,}", f"{after:,}", str(more)])
    head = ["models", "number", *states, "bytes of the sources", "of the results", "more in"]
    return table(head, lines)


def onnx_shortfalls(found: Row) -> str:
    said: dict[str, list[str]] = {}
    for m in judged(found, "onnx"):
        state, back = state_of_onnx(m), m["back"]
        if state != "equal":
            text = f"{state}: {back.get('why') or 'other numbers'}"[:SHORT]
            said.setdefault(text, []).append(name_of(m))
        elif back["bytes"] > m["source"]["bytes"]:
            moved = f"{name_of(m)} ({m['source']['bytes']:,} to {back['bytes']:,})"
            said.setdefault("more transposed bytes", []).append(moved)
        if state == "equal" and not back.get("interface", True):
            said.setdefault("another interface", []).append(name_of(m))
    return listed(f"{text} ({len(models)}): {named(models)}" for text, models in said.items())


def left_out(found: Row) -> str:
    groups: dict[str, list[str]] = {}
    for m in found["models"]:
        if "left_out" in m:
            groups.setdefault(m["left_out"].partition(":")[0], []).append(name_of(m))
    return listed(f"{why} ({len(models)}): {named(models)}" for why, models in groups.items())


def samples(found: Row) -> str:
    """A sentence on the sets of which some models were taken, evenly spaced."""
    parts = []
    for name, total in found.get("samples", {}).items():
        taken = sum(m["set"] == name for m in found["models"])
        parts.append(f"{taken} of {total:,} of *{name}*")
    return f"Samples, evenly spaced: {', '.join(parts)}." if parts else "Every model of each set was taken."


def headlines(found: Row) -> str:
    return "\n\n".join([numbers(found), integers(found), sizes(found), onnx_numbers(found)])


def page(found: Row) -> str:
    """The whole page."""
    used = ", ".join(f"{name} {number}" for name, number in found["versions"].items())
    counts = Counter(verdict(row) for _, row in converted(found, THROUGH))
    back = f"{sum(counts[each] for each in USABLE):,}"
    parts = [
        "# There and back, measured",
        f"""relayout converts {len(judged(found)):,} `.tflite` files to ONNX and back, and {len(judged(found, "onnx"))}
ONNX models to `.tflite` and back. Of the files that go through ONNX {back} of {sum(counts.values()):,} come back exact,
right or close, {counts["exact"]:,} of them equal bit for bit. The standard's [node tests](node-tests.md) have a page of
their own.""",
        "![TensorFlow Lite files that go to ONNX and come back](plots/there-and-back.svg)",
        f"""`bench/there_and_back.py` made this page on {found["date"]}. Versions: {used}.""",
        samples(found),
        COMMANDS,
        METHOD,
        f"""onnx2tf converts the ONNX model in the middle back to `.tflite`, for at most {found["peer_most"]} models of
each set, evenly spaced. That ONNX model has images with channels first (`--io nchw`), as onnx2tf expects them. Its
results may have other types and layouts; the best reading counts, and of a model with variables only the first run.""",
        "## From `.tflite` to ONNX and back",
        numbers(found),
        integers(found),
        "## Operators and transposed bytes",
        """The results are those that are exact, right or close. Operators are counted in all graphs of a file, bytes in
one run of the main graph, as for [ONNX to TensorFlow Lite](onnx-to-tflite-benchmark.md). *Where both do* has the files
that relayout and onnx2tf both bring back.""",
        sizes(found),
        "### More operators than the source",
        """Files that come back through ONNX with more operators, by the reason.""",
        more_operators(found, THROUGH),
        "## Names, types, state and metadata",
        """Files that lost any of these, of the results that are exact, right or close.""",
        keeping(found),
        "## Where relayout falls short",
        shortfalls(found),
        "## Where onnx2tf falls short",
        """onnx2tf's files are compared with the source, and not with ONNX. For a source on integers they compute real
numbers between DEQUANTIZE and QUANTIZE, and round otherwise.""",
        peers_faults(found),
        "## From ONNX to `.tflite` and back",
        """ONNX Runtime runs both models as they are written. They are equal within 1e-4 of the largest value, or within
twice what the source differs from itself when it is optimized.""",
        onnx_numbers(found),
        onnx_shortfalls(found),
        "## Left out",
        left_out(found),
    ]
    return "\n\n".join(parts) + "\n"


COMMANDS = """<!-- not run: takes an hour, and onnx2tf in an environment of its own -->
```sh
python3.12 -m venv onnx2tf && onnx2tf/bin/pip install onnx2tf==2.6.9
python bench/there_and_back.py --onnx2tf onnx2tf/bin/python --out out NAME=FOLDER ...
python bench/node_tests.py --constants --onnx2tf onnx2tf/bin/python --json out/node_tests.json
python bench/there_and_back.py --again out --page docs/there-and-back.md
```"""

METHOD = """LiteRT runs the source and each result three times in a row with different inputs, once with its
reference kernels, and three times with other extents where some are open. The worst output counts:

- **exact**: equal bit for bit
- **right**: within 1e-4 of the largest value, or one step of a quantized output
- **close**: within 2 % of the largest value, or three steps
- **wrong**: anything else

The reference kernels count if LiteRT has them for all operators of the result, and if they agree with the default
kernels about the source.

*Through ONNX* is `.tflite → .onnx → .tflite`; *at once* is `.tflite → .tflite`."""
