"""The lock and the bounds of the dependencies, and the audit of both that CI runs."""

from __future__ import annotations

import sys
import tomllib
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
AUDIT = ROOT / ".ci" / "audit"

pytestmark = pytest.mark.skipif(not AUDIT.exists(), reason="not a checkout of the repository")


@pytest.fixture(scope="module")
def audit() -> ModuleType:
    loader = SourceFileLoader("audit", str(AUDIT))
    spec = spec_from_loader("audit", loader)
    assert spec is not None
    module = module_from_spec(spec)
    write, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = write
    return module


def requirements(audit: ModuleType) -> list[object]:
    """What pyproject.toml asks for, as an installed package would say it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = [audit.Requirement(text) for text in project["dependencies"]]
    for extra, texts in project["optional-dependencies"].items():
        for requirement in map(audit.Requirement, texts):
            requirement.marker = audit.Requirement(f"x; extra == '{extra}'").marker
            found.append(requirement)
    return found


def test_every_dependency_has_bounds_and_a_locked_version_within(audit: ModuleType) -> None:
    lock = audit.locked(audit.LOCK.read_text())
    assert len(lock) > 20
    assert list(audit.loose(requirements(audit), lock)) == []


def test_what_is_loose_is_named(audit: ModuleType) -> None:
    texts = ["a>=1", "b<2", "c>=1,<2", "d>=1,<2", "e>=1,<2"]
    lock = {"a": "1", "b": "1", "c": "2.1", "e": "1.5"}
    found = list(audit.loose([audit.Requirement(text) for text in texts], lock))
    assert [line.partition(":")[0] for line in found] == ["a", "b", "c", "d"]
    assert "no lower and upper bound" in found[0]
    assert "2.1 is locked, outside of" in found[2]
    assert "not locked" in found[3]


def test_another_version_and_another_package_are_named(audit: ModuleType) -> None:
    lock = audit.locked("# made by a script\nA_b==1.0\nc==2 # why\n")
    assert lock == {"a-b": "1.0", "c": "2"}
    assert list(audit.different(lock, dict(lock))) == []
    found = list(audit.different(lock, {"a-b": "1.1", "new": "3"}))
    assert found == [
        "a-b: 1.0 is locked, 1.1 is needed here",
        "c: 2 is locked, nothing is needed here",
        "new: nothing is locked, 3 is needed here",
    ]


@pytest.mark.parametrize(
    ("answer", "faults", "said"),
    [
        ("", False, "skipped"),
        ('{"dependencies": [{"name": "a", "skip_reason": "not found"}]}', False, "skipped"),
        ('{"dependencies": [{"name": "a", "version": "1", "vulns": []}]}', False, "1 of 1 packages asked"),
        ('{"dependencies": [{"name": "a", "version": "1", "vulns": [{"id": "CVE-1"}]}]}', True, "a 1: CVE-1"),
    ],
)
@pytest.mark.skipif(sys.platform == "win32", reason="a program that is a script")
def test_known_faults_are_errors_and_no_answer_is_not(
    audit: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], answer: str, faults: bool, said: str
) -> None:
    program = tmp_path / "pip-audit"
    program.write_text(f"#!/bin/sh\ncat <<'E'\n{answer}\nE\n")
    program.chmod(0o755)
    assert audit.known_faults(str(program)) == faults
    assert said in capsys.readouterr().out
    assert not audit.known_faults(str(tmp_path / "none"))
