"""Steps of which several operators are made that stand for one: what each reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import onnx_ir as ir
from numpy.typing import NDArray

from relayout.rules import Step


def operands_of_step(
    step: Step,
    found: Mapping[int | str, ir.Value | None],
    constant: Callable[[str, NDArray[Any]], ir.Value],
    stem: str | None,
) -> list[ir.Value | None]:
    """What a step reads.

    Args:
        step: the step.
        found: the operands of the node that it stands for, and what the steps before it give.
        constant: how a constant is made, of a name and an array.
        stem: what names of constants begin with.
    """
    return [
        found[each] if isinstance(each, int | str) else constant(f"{stem}/{step.name}", each) for each in step.inputs
    ]
