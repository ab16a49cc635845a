"""The registry of rules: each operator is found with no more loaded than its own module."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

from relayout import rules
from relayout.rules import Variant

ROOT = Path(__file__).parents[2]


def test_the_list_of_modules_is_up_to_date() -> None:
    listed = (Path(rules.__file__).parent / "modules.json").read_text(encoding="utf-8")
    assert listed == runpy.run_path(str(ROOT / "docs" / "make_tables.py"))["modules_of_rules"](), "docs/make_tables.py"


def test_a_rule_is_found_without_the_others() -> None:
    code = """
import sys
from relayout.listed_modules import modules_by_domain
from relayout.rules.registry import find
print(find(("", "LSTM")).line != "", find(("com.microsoft", "BiasGelu")).kind)
print([name for name in ("recurrent", "contributed", "control", "pooling") if f"relayout.rules.{name}" in sys.modules])
"""
    newer = """
modules_by_domain("relayout.rules").pop(("", "MaxPool"))
print(find(("", "MaxPool")).kind, find(("", "NoSuch")))
"""
    said = subprocess.run([sys.executable, "-c", code + newer], capture_output=True, check=True, text=True).stdout
    assert said == "True axis attributes\n['recurrent', 'contributed']\nlayout-sensitive None\n"


def test_tiles_come_in_the_order_of_the_operands() -> None:
    """An axis is split for one tile after another until one does not fit: by their hashes, results would differ."""
    sizes = tuple(enumerate("uvwxyz", 2))
    operands = tuple(("b", f"{letter}/{size}", "s", f"{letter}%{size}") for size, letter in sizes)
    assert Variant(operands, ()).tiles == tuple((letter, size) for size, letter in sizes)
