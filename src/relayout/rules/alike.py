"""One answer for all nodes that are alike.

A graph of thousands of nodes has some dozens that differ in what a rule or a target looks at. An answer that has looked
at nothing else is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from relayout.rules.operator import AROUND, Operator

T = TypeVar("T")


class _Answers(Generic[T]):
    """The answers about nodes that are described alike."""

    def __init__(self, about: tuple[object, ...]) -> None:
        self.about = about  # held, since it is known by its identity
        self.slots: tuple[int, ...] | None = ()  # the inputs whose values decide; None: each node is asked about
        self.by_contents: dict[tuple[Hashable, ...], tuple[T]] = {}

    def learn(self, operator: Operator, answer: T, *, is_shared: bool) -> None:
        if not is_shared or AROUND in operator.looked:
            self.slots = None
        if self.slots is None:
            return
        if not operator.looked.issubset(self.slots):
            self.slots = tuple(sorted(operator.looked.union(self.slots)))
            self.by_contents.clear()
        contents = operator.contents(self.slots)
        if contents is not None:
            self.by_contents[contents] = (answer,)


class Alike(Generic[T]):
    """A function of a node that is called once for all nodes that are alike in what it looks at.

    Those are `Operator.described` and the values of the inputs that it reads. What looks at the node itself, and so may
    look at what is around it, is called for each node.
    """

    def __init__(
        self,
        function: Callable[..., T],
        # whether an answer may be another node's, too: not if it holds on to the node
        is_shared: Callable[[T], bool] = lambda _: True,
    ) -> None:
        self.function, self.is_shared = function, is_shared
        self._known: dict[tuple[Hashable, ...], _Answers[T]] = {}

    def __call__(self, operator: Operator, *about: object) -> T:
        """Return the function's answer about a node, and about what is the same object for nodes alike."""
        described = operator.described()
        if described is None:
            return self.function(operator, *about)
        key = (*described, *map(id, about))
        if (answers := self._known.get(key)) is None:
            answers = self._known[key] = _Answers(about)
        contents = None if answers.slots is None else operator.contents(answers.slots)
        if contents is None:
            return self.function(operator, *about)
        if (known := answers.by_contents.get(contents)) is not None:
            return known[0]
        before = set(operator.looked)
        operator.looked.clear()
        answer = self.function(operator, *about)
        answers.learn(operator, answer, is_shared=self.is_shared(answer))
        operator.looked |= before
        return answer
