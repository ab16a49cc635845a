"""`relayout.light_dataclass` beside the standard library's: the same behaviour, with less to compile."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Callable
from dataclasses import field, fields, replace
from typing import Any

import pytest

from relayout.light_dataclass import dataclass

OPTIONS: list[dict[str, Any]] = [{}, {"frozen": True}, {"eq": False}, {"slots": True}, {"eq": False, "slots": True}]
MAKERS: list[Callable[..., Any]] = [dataclass, dataclasses.dataclass]


def made(maker: Callable[..., Any], **options: Any) -> Any:
    class Point:
        """A point."""

        x: int
        y: int = 2
        note: str = field(default="", compare=False)
        data: list[int] = field(default_factory=list, repr=False, compare=False)

    return maker(**options)(Point)


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("options", OPTIONS, ids=repr)
def test_instances_are_made_shown_and_compared(maker: Callable[..., Any], options: dict[str, Any]) -> None:
    point = made(maker, **options)
    one, same, other = point(1, note="a"), point(1, note="b"), point(x=1, y=3)
    assert repr(one).endswith("Point(x=1, y=2, note='a')")
    assert [each.name for each in fields(one)] == ["x", "y", "note", "data"]
    assert (one == same) is options.get("eq", True)
    assert one != other
    assert one != (1, 2)
    assert one.data is not same.data
    assert replace(one, y=5).y == 5
    match other:
        case point(x, y):
            assert (x, y) == (1, 3)
    with pytest.raises(TypeError, match="missing"):
        point()


@pytest.mark.parametrize("maker", MAKERS)
def test_frozen_ones_are_keys_and_stay_as_they_are(maker: Callable[..., Any]) -> None:
    point = made(maker, frozen=True)
    one = point(1)
    assert {one: "found"}[point(1, note="other")] == "found"
    for name in ("x", "another"):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(one, name, 3)
    with pytest.raises(dataclasses.FrozenInstanceError):
        del one.x
    assert one == point(1)


@pytest.mark.parametrize("maker", MAKERS)
def test_others_are_no_keys_unless_each_equals_only_itself(maker: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(made(maker)(1))
    apart = made(maker, eq=False)
    assert len({apart(1), apart(1)}) == 2


@pytest.mark.parametrize("maker", MAKERS)
def test_fields_are_inherited_and_methods_of_the_class_stay(maker: Callable[..., Any]) -> None:
    @maker(frozen=True)
    class Base:
        x: int

        def __post_init__(self) -> None:
            object.__setattr__(self, "x", self.x + 1)

    @maker(frozen=True)
    class Derived(Base):
        y: int = 0

        def __repr__(self) -> str:
            return "mine"

        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = object.__hash__

    one = Derived(1, 2)
    assert (one.x, one.y, repr(one), one == 5) == (2, 2, "mine", True)
    assert isinstance(hash(one), int)


def test_frozen_with_slots_is_left_to_the_standard_one() -> None:
    with pytest.raises(TypeError, match=r"dataclasses\.dataclass"):
        made(dataclass, frozen=True, slots=True)


def test_less_is_compiled() -> None:
    """One text a class, where the standard one compiles each method; a class without a docstring gets none."""
    code = """
import builtins, dataclasses
from relayout.light_dataclass import dataclass as light
compiled = []
real = builtins.exec
builtins.exec = lambda *given: (compiled.append(given[0]), real(*given))[1]
for maker in (light, dataclasses.dataclass):
    compiled.clear()
    maker(frozen=True)(type("A", (), {"__annotations__": {"x": int}}))
    print(len(compiled))
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout.split()
    assert int(said[0]) == 1
    assert int(said[0]) <= int(said[1])
