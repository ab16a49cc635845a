"""Targets answer to their aliases, in any spelling of a name."""

from __future__ import annotations

import pytest

from relayout import LayoutError
from relayout.reports.backends import tables
from relayout.targets import target, targets
from relayout.targets.registry import aliases


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("tflm", "tflite-micro"),
        ("tflite", "litert"),
        ("tflite_micro", "tflite-micro"),
        ("TFLM", "tflite-micro"),
        ("ethosu55", "ethos-u"),
        ("Ethos-U65", "ethos-u"),
        ("ethos_u85", "ethos-u85"),
        ("ethosu85", "ethos-u85"),
        ("vela", "ethos-u"),
        ("LiteRT", "litert"),
        ("edgetpu", "coral"),
    ],
)
def test_an_alias_names_its_target(alias: str, name: str) -> None:
    assert target(alias) is target(name)


def test_every_alias_has_an_owner_and_is_no_target_itself() -> None:
    for alias, owner in aliases().items():
        assert alias not in targets()
        assert not isinstance(owner, str) or owner in targets()


def test_an_unknown_name_names_the_nearest_alias() -> None:
    with pytest.raises(LayoutError, match=r"no target 'tflmm'.*tflm"):
        target("tflmm")


def test_the_list_of_targets_has_the_aliases() -> None:
    lines = {row["name"]: row["line"] for row in tables()["targets"]}
    assert lines["tflm"] == "another name of tflite-micro"
