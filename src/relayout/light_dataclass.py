"""A `dataclass` that costs a fifth of the standard one to define: it compiles `__init__` alone.

The standard one writes each method as a text, which Python compiles whenever the module is loaded. All classes of a
small conversion took as long as a tenth of it. Here the other methods are functions that every class shares. Classes in
the documents are standard ones, which alone their generator knows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(
        cls: type | None = None,  # the class; None: the options of a decorator
        /,
        *,
        frozen: bool = False,  # a field that has a value takes no other one. Not together with `slots`.
        eq: bool = True,  # two are equal if their fields are, and may be keys of a dict if they are frozen
        slots: bool = False,  # they have no dict
    ) -> type | Callable[[type], type]:
        """Do what `dataclasses.dataclass` does, for the options that relayout has.

        Raises:
            TypeError: `frozen` and `slots`, which the standard one makes better.
        """
        if frozen and slots:
            raise TypeError("a frozen class with slots is a task for dataclasses.dataclass")

        def decorate(cls: type) -> type:
            own = set(vars(cls))
            cls.__doc__ = cls.__doc__ or cls.__name__  # else it gets its signature, which takes longer than all else
            cls = dataclasses.dataclass(cls, eq=False, repr=False, slots=slots)
            methods: dict[str, Any] = {"__repr__": _repr}
            if eq:
                methods |= _comparing(cls, hashed=frozen)
            if frozen:
                methods |= {"__setattr__": _set_once, "__delattr__": _refuse_deletion}
            for name, method in methods.items():
                if name not in own:
                    setattr(cls, name, method)
            return cls

        return decorate if cls is None else decorate(cls)


def _repr(self: Any) -> str:
    shown = (f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _comparing(cls: type, *, hashed: bool) -> dict[str, Any]:
    names = [field.name for field in dataclasses.fields(cls) if field.compare]
    compared: Callable[[Any], Any] = attrgetter(*names) if names else lambda item: ()

    def equal(self: Any, other: object) -> bool:
        return bool(compared(self) == compared(other)) if type(other) is type(self) else NotImplemented

    def hash_of(self: Any) -> int:
        return hash(compared(self))

    return {"__eq__": equal, "__hash__": hash_of if hashed else None}


def _set_once(self: Any, name: str, value: object) -> None:
    if name in vars(self) or name not in self.__dataclass_fields__:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
    vars(self)[name] = value


def _refuse_deletion(self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


# Records as dictionaries, for JSON.


def plain(item: Any) -> Any:
    """Return a value with its records as dictionaries, all the way down: dataclasses and named tuples."""
    if is_dataclass(item) and not isinstance(item, type):
        return {each.name: plain(getattr(item, each.name)) for each in fields(item)}
    if isinstance(item, tuple) and hasattr(item, "_fields"):
        return {name: plain(value) for name, value in zip(item._fields, item, strict=True)}
    if isinstance(item, list | tuple):
        return type(item)(map(plain, item))
    return {key: plain(value) for key, value in item.items()} if isinstance(item, dict) else item
