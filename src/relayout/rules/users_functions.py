"""Functions of a user, in rules and targets: whatever one raises becomes an error that says whose it is, and where."""

from __future__ import annotations

import functools
import inspect
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import product
from typing import Any

import onnx_ir as ir

from relayout.errors import ExtensionError, RelayoutError
from relayout.graph.source_names import label
from relayout.layout import Dim
from relayout.rules.operator import Operator

RANKS = range(1, 9)
EXTENTS: tuple[Dim, ...] = ("", 1, 4)  # ranks and extents that are supposed of an operand of which nothing is known
EXCUSED = (IndexError, TypeError, ValueError)  # what a function may raise of an operand of which nothing is known
NO_ANSWER = object()  # stands for no answer: an error of a node that is not known well is an error, too


def is_users(function: Any) -> bool:
    """Tell whether a function is none of this package's."""
    function = function.func if isinstance(function, functools.partial) else function
    module = getattr(function, "__module__", None) or type(function).__module__
    return not module.startswith("relayout.") and not isinstance(function, UsersFunction)


class UsersFunction:
    """A function of a user that says whose it is where it raises something."""

    def __init__(
        self,
        what: str,  # whose function it is: `the rule of vendor:Blur`
        function: Callable[..., Any],  # the function. Its first argument may be an `Operator` or a node.
        *,
        # the answer where the function raises a `TypeError`, `ValueError` or `IndexError` about an operator of which a
        # rank is not known. By default that is an error as well.
        otherwise: Any = NO_ANSWER,
        # says what is wrong with an answer: a function of the arguments and the answer; an empty text where all is well
        check: Callable[[Sequence[Any], Any], str] = lambda _, __: "",
    ) -> None:
        self.what, self.function, self.otherwise, self.check = what, function, otherwise, check
        functools.update_wrapper(self, function, assigned=("__doc__", "__name__", "__qualname__"), updated=())

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Return the function's answer.

        Raises:
            ExtensionError: it raises something, or its answer has another type.
        """
        subject = next((each for each in args if isinstance(each, Operator | ir.Node)), None)
        node = subject.bare if isinstance(subject, Operator) else subject
        about = "" if node is None else f", {asked_of(node)}"
        try:
            answer = self.function(*args, **named)
        except ExtensionError as error:
            if self.what in str(error):
                raise
            raise ExtensionError(f"{self.what}: {error}") from error
        except (Exception, SystemExit) as error:  # whatever a user's function raises: SystemExit would end the process
            if isinstance(error, EXCUSED) and self._is_excused(args, subject):
                return self.otherwise
            raise ExtensionError(f"{place_of(self.what, self.function, error)}{about}: {words_of(error)}") from error
        if problem := self.check(args, answer):
            raise ExtensionError(f"{place_of(self.what, self.function)}{about}: {problem}")
        return answer

    def _is_excused(self, args: Sequence[Any], operator: Operator | ir.Node | None) -> bool:
        """Tell whether an error comes from operands that are not known: for some rank and extent there is none."""
        if self.otherwise is NO_ANSWER or not isinstance(operator, Operator) or not is_vague(operator):
            return False
        for rank, extent in product(RANKS, EXTENTS):
            unknown = (extent,) * rank
            inputs = tuple(
                unknown if shape is None and operator.has(slot) else shape for slot, shape in enumerate(operator.inputs)
            )
            outputs = tuple(unknown if shape is None else shape for shape in operator.outputs)
            supposed = replace(operator, inputs=inputs, outputs=outputs)
            with suppress(Exception):
                self.function(*[supposed if each is operator else each for each in args])
                return True
        return False

    def __eq__(self, other: object) -> bool:
        return self.function == (other.function if isinstance(other, UsersFunction) else other)

    def __hash__(self) -> int:
        return hash(self.function)


def place_of(what: str, function: Callable[..., Any], error: BaseException | None = None) -> str:
    """Say whose a function is, with its file, and its line or that of an error in it."""
    plain = inspect.unwrap(function.func if isinstance(function, functools.partial) else function)
    code = getattr(plain, "__code__", None) or getattr(type(plain).__call__, "__code__", None)
    if code is None:
        return what
    frames = [] if error is None else traceback.extract_tb(error.__traceback__)
    inside = [frame.lineno for frame in frames if frame.filename == code.co_filename]
    return f"{what} ({code.co_filename}:{inside[-1] if inside else code.co_firstlineno})"


def asked_of(node: ir.Node) -> str:
    """Say which node a function was asked about."""
    return f"asked of node {label(node)!r}"


def is_vague(operator: Operator) -> bool:
    """Tell whether the rank of an operand is not known."""
    read = (shape for slot, shape in enumerate(operator.inputs) if operator.has(slot))
    return None in (*read, *operator.outputs)


def words_of(error: BaseException) -> str:
    """Return what an error says, with its class where it is none of relayout's."""
    try:
        said = str(error)
    except Exception:  # a class of the user's own
        said = ""
    return said if isinstance(error, RelayoutError) else ": ".join(filter(None, (type(error).__name__, said)))
