"""A model whose values do not fit into memory together: it runs again for each part of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from relayout.verification.side import Array, Feeds, Runner


class OnDemandRunner:
    """One runner at a time, which shows the values that are asked for: a runtime keeps all that it shows.

    Args:
        shown: the values that a runner has to be made for.
        make: what makes one that shows some of them.
    """

    def __init__(self, shown: Iterable[str], make: Callable[[Sequence[str]], Runner]) -> None:
        self._shown, self._make = set(shown), make
        self._names: list[str] = []
        self._runner: Runner | None = None

    def run(self, feeds: Feeds, names: Sequence[str]) -> dict[str, Array]:
        """The values of these names."""
        wanted = [name for name in names if name in self._shown]
        if self._runner is None or wanted != self._names:
            self._runner = None  # the room that it took is given back first
            self._runner, self._names = self._make(wanted), wanted
        return self._runner.run(feeds, names)
