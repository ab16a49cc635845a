"""One word, one meaning: a name that modules import from one another has one home, and no retired word comes back."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import click
import pytest

from relayout.cli.entry import cli

SOURCE = Path(__file__).parents[1] / "src"

SAME_MEANING = {
    "Entry entries": "the two registries of TensorFlow Lite operators, of import and of export",
    "load read": "a file of a format, each in the room of its format",
    "check": "refuse what is wrong, in arguments, in a plan file and in an ONNX model",
    "prepare": "make a model ready for what comes next, an export or a runtime",
    "one_line": "the message of an error in one line, as each library words it",
    "all_nodes": "the nodes of a graph and its bodies, as protobuf and as IR",
    "infer_shapes": "ONNX's shape inference, in this process or in a child process",
    "is_identity": "of a perm, and of a node that passes its operand on",
    "Operator Signature": "words of TensorFlow Lite's own schema; the glossary has both meanings of a signature",
    "Quantization": "scale and zero point, of a tensor in a file and of a quantized unit",
    "bordered cut divided extents_of product": "arithmetic on extents, on a format's own operands",
    "Part": "part of a model that a target runs; a part of an axis in a rule that others may import as `rules.Part`",
}
"""Names -> why two modules may have them."""

RETIRED = {
    "apart": "duplicate, strided",
    "together": "merge",
    "found": "the thing that is found",
    "given": "the thing that is given",
    "held": "the thing that is held",
    "told": "the thing that is told",
    "laid": "layout, variant",
    "unlaid": "the standard layout",
    "wish": "layout request",
    "wishes": "layout requests",
    "hang": "eliminate",
    "hung": "eliminated",
    "maker": "producer",
    "wild": "opaque",
    "grain": "granularity",
    "within": "no-regression",
}
"""Words that a name of a class or a function may not have -> what the glossary says instead."""
PARTICIPLES = {"apart", "found", "given", "held", "kept", "laid", "made", "told", "together", "wanted"}
"""Words that tell nothing of the thing that is called so: no variable, parameter, field or function is."""
PUBLIC_PARTICIPLES = {"relayout.errors: found"}  # `UnsupportedError.found`, which programs read
NO_SENTENCES = ("How", "What", "When", "Where", "Whether", "Which", "Who", "Why")
"""First words of docstrings that are not sentences: a function's is imperative, that of a class or property a noun."""
KEPT_OPTIONS = {"--exchange", "--parts", "--per-transpose", "--regions"}
"""Options that the review would call otherwise, and that command lines out there have."""


def public(tree: ast.Module) -> Iterator[str]:
    """The classes and functions of a module that other modules may import."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
            yield node.name


def homes(modules: Mapping[str, ast.Module]) -> dict[str, set[str]]:
    """Name -> the modules that define it and from which another module imports it, also through a third one."""
    defined = {module: set(public(tree)) for module, tree in modules.items()}
    passed_on = {
        module: {alias.name: node.module for node in tree.body if isinstance(node, ast.ImportFrom) and node.module
                 for alias in node.names}
        for module, tree in modules.items()
    }  # fmt: skip

    def home(module: str, name: str) -> str | None:
        seen = set()
        while module not in seen and name not in defined.get(module, ()):
            seen.add(module)
            module = passed_on.get(module, {}).get(name, "")
        return module if name in defined.get(module, ()) else None

    found: dict[str, set[str]] = defaultdict(set)
    for module, tree in modules.items():
        for node in (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module):
            for alias in node.names:
                origin = home(node.module or "", alias.name)
                if origin is not None and origin != module:
                    found[alias.name].add(origin)
    return dict(found)


def words(name: str) -> list[str]:
    """`read_wishes` -> `read`, `wishes`; `OpenedFactor` -> `opened`, `factor`."""
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+", name)]


@pytest.fixture(scope="module")
def modules() -> dict[str, ast.Module]:
    """Module -> its tree."""
    found = {}
    for path in sorted((SOURCE / "relayout").rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def test_a_name_that_others_import_has_one_home(modules: dict[str, ast.Module]) -> None:
    several = {name for name, places in homes(modules).items() if len(places) > 1}
    excepted = {name for names in SAME_MEANING for name in names.split()}
    assert several - excepted == set(), "give one of the two another name"
    assert excepted - several == set(), "no exception any more: take it from the list"


def test_no_public_name_has_a_retired_word(modules: dict[str, ast.Module]) -> None:
    names = {name for tree in modules.values() for name in public(tree) if RETIRED.keys() & set(words(name))}
    assert names == set(), RETIRED


def bound_names(tree: ast.Module) -> Iterator[str]:
    """The names that a module binds, in functions too: of variables, parameters, fields, functions and classes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.id if isinstance(node, ast.Name) else node.attr
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name


def test_no_name_is_a_participle(modules: dict[str, ast.Module]) -> None:
    bound = {f"{module}: {name}" for module, tree in modules.items() for name in bound_names(tree)
             if name.strip("_") in PARTICIPLES}  # fmt: skip
    assert bound == PUBLIC_PARTICIPLES, "name the thing: axis_letters, remaining_nodes"


def test_a_docstring_begins_as_a_sentence_or_a_noun(modules: dict[str, ast.Module]) -> None:
    begun = [
        f"{module}: {node.name}"
        for module, tree in modules.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        if (ast.get_docstring(node) or "").startswith(NO_SENTENCES)
    ]
    assert not begun, "Return …, Tell whether …, The …"


def test_no_option_has_a_retired_word() -> None:
    context = click.Context(cli)
    commands = [cli.get_command(context, name) for name in cli.list_commands(context)]
    flags = {flag for command in commands if command is not None for each in command.params for flag in each.opts}
    assert flags >= KEPT_OPTIONS | {"--target", "--io"}
    assert [flag for flag in flags if RETIRED.keys() & set(words(flag))] == []


def test_a_second_home_and_a_retired_word_are_seen() -> None:
    texts = {
        "p": "from p.a import Port",
        "p.a": "class Port: ...",
        "p.b": "class Port: ...",
        "p.c": "from p import Port",
        "p.d": "from p.b import Port",
    }
    planted = {name: ast.parse(text) for name, text in texts.items()}
    assert homes(planted) == {"Port": {"p.a", "p.b"}}
    assert homes({name: tree for name, tree in planted.items() if name != "p.d"}) == {"Port": {"p.a"}}
    assert RETIRED.keys() & set(words("read_wishes")) == {"wishes"}
    assert RETIRED.keys() & set(words("HeldValue")) == {"held"}
    assert not RETIRED.keys() & set(words("foundation"))
