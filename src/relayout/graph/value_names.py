"""Names of values and nodes, each given once."""

from __future__ import annotations

from dataclasses import field

from relayout.light_dataclass import dataclass


@dataclass
class Names:
    """Names that are taken; every new one is made unique.

    Args:
        taken: the names.
        numbered: a name that was wanted again -> the last number that was put behind it.
    """

    taken: set[str]
    numbered: dict[str, int] = field(default_factory=dict)

    def unique(self, name: str) -> str:
        """`name`, or `name_2` and so on where it is taken."""
        result, number = name, 1
        if name in self.taken:
            number = self.numbered.get(name, 1)
            while result in self.taken:
                number += 1
                result = f"{name}_{number}"
            self.numbered[name] = number
        self.taken.add(result)
        return result
