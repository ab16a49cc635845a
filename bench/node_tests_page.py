"""The page on the standard's node tests, from what `node_tests.py` found."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from node_tests import VERDICTS
from tables import table

SHOWN = VERDICTS[:-1]
OPERATOR = re.compile(r"(\S+) \(((?:[^()]|\([^()]*\))*)\) ×\d+")
"""An operator and the reason for which it is refused, in the text of an error."""
MOST_NAMED = 4
SHORT = 140

Verdicts = dict[str, list[str]]


def within(rows: Verdicts) -> Verdicts:
    """Return the tests whose types LiteRT has."""
    return {name: row for name, row in rows.items() if row[0] != "other types"}


def counted(label: str, rows: Verdicts) -> list[str]:
    counts = Counter(verdict for verdict, _ in rows.values())
    right = counts["right"] + counts["as ONNX Runtime"]
    return [label, str(len(rows)), *(str(counts[each]) for each in SHOWN), f"{right / (len(rows) or 1):.1%}"]


def summary(found: dict[str, Any]) -> str:
    ours = within(found["tests"])
    lines = [counted("relayout, all tests", ours)]
    if "peer" in found:
        lines.append(counted("relayout, the sample", {name: ours[name] for name in found["peer"]}))
        lines.append(counted("onnx2tf, the sample", found["peer"]))
    return table(["tool", "tests", *SHOWN, "right or as ONNX Runtime"], lines)


def named(tests: list[str]) -> str:
    more = f" and {len(tests) - MOST_NAMED} more" if len(tests) > MOST_NAMED else ""
    return ", ".join(f"`{each.removeprefix('test_')}`" for each in tests[:MOST_NAMED]) + more


def reasons(text: str) -> list[tuple[str, str]]:
    """Return the operators of a refusal, each with its reason."""
    return OPERATOR.findall(text) or [("", text.partition(";")[0][:SHORT])]


def exclusions(found: dict[str, Any]) -> str:
    """A line for each reason: the operators that are refused, how many tests, and which."""
    groups: dict[str, tuple[dict[str, None], list[str]]] = {}
    for name, (verdict, text) in within(found["tests"]).items():
        if verdict == "refused":
            operator, reason = reasons(text)[0]
            operators, tests = groups.setdefault(reason, ({}, []))
            operators[operator] = None
            tests.append(name)
    rows = sorted(groups.items(), key=lambda item: (-len(item[1][1]), item[0]))
    lines = [
        [reason, ", ".join(filter(None, operators)), named(tests), str(len(tests))]
        for reason, (operators, tests) in rows
    ]
    return table(["reason", "operators", "which", "tests"], lines, 3)


def other_types(found: dict[str, Any]) -> str:
    counts = Counter(reason for verdict, reason in found["tests"].values() if verdict == "other types")
    return table(["types", "tests"], [[kinds, str(count)] for kinds, count in counts.most_common()])


def wrong(found: dict[str, Any]) -> str:
    """A line for each test that relayout does not get right, and does not refuse."""
    rows = [
        f"- `{name}`: {verdict}: {text[:SHORT]}"
        for name, (verdict, text) in within(found["tests"]).items()
        if verdict not in ("right", "refused")
    ]
    return "\n".join(rows) or "- none"


def peers_faults(found: dict[str, Any]) -> str:
    rows = [
        [f"`{name}`", verdict, text[:SHORT]]
        for name, (verdict, text) in found["peer"].items()
        if verdict not in ("right", "as ONNX Runtime")
    ]
    return table(["test", "result", "why"], rows, 3)


def page(found: dict[str, Any]) -> str:
    """The whole page."""
    used = ", ".join(f"{name} {number}" for name, number in found["versions"].items())
    constants = "Integer inputs but the first are constants of the model." if found["constants"] else ""
    ours = counted("", within(found["tests"]))
    parts = [
        "# The standard's node tests, measured",
        f"""The onnx package has tests of each ONNX operator. Of the {ours[1]} whose types LiteRT has,
{ours[-1]} become a `.tflite` that is right, or as ONNX Runtime. The others are listed by their reasons.""",
        "![What becomes of the standard's node tests](plots/node-tests.svg)",
        f"""`bench/node_tests.py` ran on {found["date"]} with {used}. It leaves out
tests that draw at random. {constants} Each is converted, runs in LiteRT, and is held to the
outputs that come with it: within 2e-5 of the largest value and 0.1 % of each. *As ONNX Runtime* means that ONNX
Runtime gives other numbers than the test, and the file gives ONNX Runtime's.""",
    ]
    if "peer" in found:
        ran = f" It ran on {day}." if (day := found.get("peer_date", found["date"])) != found["date"] else ""
        parts.append(
            f"""onnx2tf takes every {found["peer_every"]}th of the tests whose types LiteRT has. Its file may have other
types and channels last.{ran}"""
        )
    parts += [summary(found), "Neither right nor refused by relayout:", wrong(found)]
    parts += [
        "## Exclusions",
        """Tests that relayout refuses, by the reason that its error gives.""",
        exclusions(found),
        """Tests that are not tried, since inputs or outputs have types that LiteRT does not take and give:""",
        other_types(found),
    ]
    if "peer" in found:
        parts += ["## Node tests that onnx2tf does not get right", peers_faults(found)]
    return "\n\n".join(parts) + "\n"
