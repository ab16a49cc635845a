"""The walls: imports point down, and what else a reader may rely on without reading every file."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from textwrap import indent

import pytest

import relayout

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "relayout"

# The rooms, bottom first. A room imports from itself and from lower levels, not from its neighbours on its level.
LEVELS = (
    ("errors", "foreign_options", "lazy_exports", "light_dataclass", "listed_modules", "progress"),
    ("internal_errors",),
    ("arguments", "isolation", "terminal"),
    ("graph", "layout"),
    ("rules", "solve"),
    ("formats", "infer"),
    ("apply", "shapes"),
    ("lowering",),
    ("targets",),
    ("partition", "quantization"),
    ("reports", "verification"),
    ("pipeline",),
    ("__init__",),
    ("cli",),
    ("__main__",),
)
LEVEL = {room: level for level, rooms in enumerate(LEVELS) for room in rooms}
# On top of the levels: what a room may not know at all.
IGNORANT = {
    "layout": ("onnx", "onnx_ir"),
    "solve": ("onnx", "onnx_ir"),
    "formats": ("relayout.rules", "relayout.targets"),
}
HEAVY = ("onnxruntime", "ai_edge_litert", "tensorflow", "rich", "highspy", "scipy")
NAMES_THAT_SAY_NOTHING = {"utils", "util", "common", "helpers", "helper", "manager", "base", "misc"}
NAMES_OPERATORS = ("rules", "formats")
MOST_BRANCHES = 20
"""The complexity of a function (McCabe 1976) from which on it needs a reason: a comment `# Complexity: …` above it."""


def faults(path: str, source: str) -> list[str]:
    """What is wrong with one module: `path` relative to the package (`solve/mincut.py`), its text."""
    parts = path.removesuffix(".py").split("/")
    tree = ast.parse(source)
    found = [f"the name {part!r} says nothing" for part in parts if part in NAMES_THAT_SAY_NOTHING]
    if parts[0] not in LEVEL:
        return [*found, f"{parts[0]!r} is no room: give it a level in LEVELS"]
    found += [f"line {line}: {fault}" for line, fault in import_faults(parts, tree)]
    if parts[0] not in NAMES_OPERATORS:
        found += [f"line {line}: compares op_type with a name" for line in comparisons(tree)]
    return found


def import_faults(parts: list[str], tree: ast.Module) -> Iterator[tuple[int, str]]:
    room = parts[0]
    at_start = set(statements_at_import(tree))
    for node in ast.walk(tree):
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        for name in imported(node, parts[:-1]):
            target = room_of(name)
            if target is not None and target != room and LEVEL[target] >= LEVEL[room]:
                yield node.lineno, f"{room} may not import {name}, which is not below it"
            if any(within(name, other) for other in IGNORANT.get(room, ())):
                yield node.lineno, f"{room} may not know {name}"
            if node in at_start and any(within(name, heavy) for heavy in HEAVY):
                yield node.lineno, f"imports {name} at start; import it where it is used"


def imported(node: ast.Import | ast.ImportFrom, package: list[str]) -> list[str]:
    """The full names that a statement imports; `package` is where the module lies, below `relayout`."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    above = ["relayout", *package][: len(package) + 2 - node.level] if node.level else []
    origin = ".".join([*above, *([node.module] if node.module else [])])
    return [f"{origin}.{alias.name}" for alias in node.names]


def room_of(name: str) -> str | None:
    """`relayout.solve.mincut` -> `solve`; `relayout.__version__` -> `__init__`; not ours -> None."""
    first, *rest = name.split(".")
    if first != "relayout":
        return None
    return rest[0] if rest and rest[0] in LEVEL else "__init__"


def within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def statements_at_import(node: ast.AST) -> Iterator[ast.AST]:
    """Everything that runs when the module is imported: not functions, not `if TYPE_CHECKING`."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            continue
        yield child
        yield from statements_at_import(child)


def comparisons(tree: ast.Module) -> Iterator[int]:
    """Lines that ask an `op_type` for a name: `==`, `in (...)`, `match`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Match) and is_op_type(node.subject):
            yield node.lineno
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            if any(map(is_op_type, sides)) and any(map(holds_text, sides)):
                yield node.lineno


def is_op_type(node: ast.expr) -> bool:
    return (isinstance(node, ast.Attribute) and node.attr == "op_type") or (
        isinstance(node, ast.Name) and node.id == "op_type"
    )


def holds_text(node: ast.expr) -> bool:
    return any(isinstance(part, ast.Constant) and isinstance(part.value, str) for part in ast.walk(node))


FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def complexity(node: ast.AST) -> int:
    """Count the decisions of a function, conditions and comprehensions among them, plus one, as radon does.

    A function inside the function counts by itself.
    """
    match node:
        case ast.BoolOp():
            decisions = len(node.values) - 1
        case ast.comprehension():
            decisions = 1 + len(node.ifs)
        case ast.For() | ast.AsyncFor() | ast.While():
            decisions = 1 + bool(node.orelse)
        case ast.Try():
            decisions = len(node.handlers) + bool(node.orelse)
        case ast.Match():
            decisions = len(node.cases)
        case ast.If() | ast.IfExp() | ast.Assert() | ast.FunctionDef() | ast.AsyncFunctionDef():
            decisions = 1
        case _:
            decisions = 0
    inside = (child for child in ast.iter_child_nodes(node) if not isinstance(child, FUNCTIONS))
    return decisions + sum(map(complexity, inside))


def has_reason(lines: list[str], function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether the comment right above a function, or its decorators, gives a reason for its complexity."""
    first = min(part.lineno for part in (function, *function.decorator_list))
    above = takewhile(lambda line: line.startswith("#"), (line.strip() for line in reversed(lines[: first - 1])))
    return any(re.match(r"# Complexity: \w", line) for line in above)


def complexity_faults(source: str) -> list[str]:
    """The functions of a module that are too complex without a reason, or have a reason and need none."""
    lines, found = source.splitlines(), []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, FUNCTIONS):
            number, reason = complexity(node), has_reason(lines, node)
            if number > MOST_BRANCHES and not reason:
                found.append(f"{node.name}, line {node.lineno}: complexity {number}, and no reason above it")
            if number <= MOST_BRANCHES and reason:
                found.append(f"{node.name}, line {node.lineno}: complexity {number}, which needs no reason")
    return found


MODULES = sorted(path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py"))


@pytest.mark.parametrize("path", MODULES)
def test_module_keeps_to_the_walls(path: str) -> None:
    assert faults(path, (SOURCE / path).read_text(encoding="utf-8")) == []


PLANTED = [
    ("solve/mincut.py", "from relayout.infer import problem", "not below"),
    ("solve/mincut.py", "import relayout.cli", "not below"),
    ("solve/mincut.py", "import relayout", "not below"),
    ("solve/mincut.py", "def f():\n    from relayout.rules import conv", "not below"),
    ("rules/conv.py", "from relayout import solve", "not below"),
    ("rules/conv.py", "from ..solve import mincut", "not below"),
    ("rules/__init__.py", "from ..targets import cpu", "not below"),
    ("formats/onnx/read.py", "from ...rewrite import apply", "not below"),
    ("verification/run.py", "from relayout import __version__", "not below"),
    ("layout/perm.py", "import onnx", "may not know"),
    ("solve/problem.py", "def f():\n    from onnx_ir import Model", "may not know"),
    ("formats/tflite/conv.py", "from relayout.rules import conv", "may not know"),
    ("formats/tflite/conv.py", "from relayout import targets", "may not know"),
    ("verification/run.py", "import onnxruntime", "at start"),
    ("reports/table.py", "class A:\n    from rich.table import Table", "at start"),
    ("solve/program.py", "try:\n    import highspy\nexcept ImportError:\n    pass", "at start"),
    ("apply/utils.py", "", "says nothing"),
    ("formats/common/read.py", "", "says nothing"),
    ("extras/nice.py", "", "no room"),
    ("apply/apply.py", "if node.op_type == 'Conv': pass", "op_type"),
    ("infer/build.py", "x = 'Conv' != op_type", "op_type"),
    ("infer/build.py", "x = node.op_type in ('Conv', 'MaxPool')", "op_type"),
    ("apply/apply.py", "match node.op_type:\n    case 'Conv': pass", "op_type"),
]


@pytest.mark.parametrize(("path", "source", "expected"), PLANTED)
def test_planted_fault_is_found(path: str, source: str, expected: str) -> None:
    assert [fault for fault in faults(path, source) if expected in fault]


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("rules/conv.py", "from relayout.layout import Layout\nfrom . import registry\nfrom .pool import rule"),
        ("rules/nn/conv.py", "from ..registry import rule\nfrom ...layout import Layout"),
        ("cli/convert.py", "from relayout import __version__, pipeline"),
        ("verification/run.py", "def f():\n    import onnxruntime"),
        ("reports/table.py", "if TYPE_CHECKING:\n    from rich.table import Table"),
        ("rules/conv.py", "if node.op_type == 'Conv': pass"),
        ("infer/build.py", "rule = RULES[node.op_type]\nsame = a.op_type == b.op_type"),
    ],
)
def test_sound_module_passes(path: str, source: str) -> None:
    assert faults(path, source) == []


@pytest.mark.parametrize("path", MODULES)
def test_function_is_simple_or_says_why_not(path: str) -> None:
    assert complexity_faults((SOURCE / path).read_text(encoding="utf-8")) == []


BRANCHES = "\n".join(f"    if a and b and c: return {number}" for number in range(7))
TWENTY_TWO = f"def f(a, b, c):\n{BRANCHES}\n"


@pytest.mark.parametrize(
    ("source", "faults"),
    [
        (TWENTY_TWO, ["f"]),
        (f"# Complexity: it is a list of cases.\n{TWENTY_TWO}", []),
        (f"# Complexity: it is a list of cases\n# that nobody can read otherwise.\n@cached\n{TWENTY_TWO}", []),
        (f"# Complexity: it is a list of cases.\n\n{TWENTY_TWO}", ["f"]),
        (f"# Complexity:\n{TWENTY_TWO}", ["f"]),
        ("# Complexity: none.\ndef f(): pass", ["f"]),
        (f"class A:\n{indent(TWENTY_TWO, '    ')}", ["f"]),
        (f"def g():\n{indent(TWENTY_TWO, '    ')}", ["f"]),
        (TWENTY_TWO.replace("if a and b and c", "if a and b"), []),
        ("def f(x):\n    return [a if a else b for a in x for b in a if b if a]" + " or x" * 14, []),
        ("def f(x):\n    return [a if a else b for a in x for b in a if b if a]" + " or x" * 15, ["f"]),
        (
            "def f(x):\n    try: x()\n"
            + "".join(f"    except E{number}: pass\n" for number in range(9))
            + "    while x: pass\n    else: pass\n    match x:\n"
            + "".join(f"        case {number}: pass\n" for number in range(9)),
            ["f"],
        ),
    ],
)
def test_complexity_is_counted(source: str, faults: list[str]) -> None:
    assert [fault.split(",")[0] for fault in complexity_faults(source)] == faults


def test_public_names_are_the_documented_ones() -> None:
    documented = re.findall(r"^## `(\w+)", (ROOT / "docs" / "api.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(relayout.__all__) == sorted(documented)
    assert [name for name in relayout.__all__ if not hasattr(relayout, name)] == []


def test_help_imports_nothing_heavy() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "relayout", "--help"], capture_output=True, text=True, check=True
    )
    loaded = {line.rsplit("|", 1)[1].strip().split(".")[0] for line in done.stderr.splitlines() if "|" in line}
    assert "relayout" in loaded, "the list of imports was not understood"
    assert loaded & {"numpy", "onnx", "onnx_ir", *HEAVY} == set()


MOST_LINES = 600
"""Lines of a module that one can hold in mind."""


def test_a_module_is_as_long_as_one_can_hold_in_mind() -> None:
    lengths = {path: len((SOURCE / path).read_text(encoding="utf-8").splitlines()) for path in MODULES}
    assert {path: length for path, length in lengths.items() if length > MOST_LINES} == {}, "move what has a subject"
