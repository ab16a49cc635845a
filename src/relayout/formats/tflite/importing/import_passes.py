"""Passes that a caller may add to a literal import. The importer adds none of them by itself.

A target hands these over (`Target.tflite`), and so does the default (`relayout.targets.portable`). The importer runs
them and knows nothing of why.
"""

from collections.abc import Callable, Mapping
from dataclasses import field
from importlib import import_module

import onnx_ir as ir

from relayout.formats.tflite.importing.operation import Operation
from relayout.graph.passes import Pass, check_order
from relayout.light_dataclass import dataclass

Alternative = Callable[[Operation], bool]
"""A translation in place of the literal one: it hands over the results and returns True, or does nothing and returns
False."""

StandIns = Mapping[str, Mapping[ir.DataType, ir.DataType]]
"""ONNX operator -> the element types that it is not written with -> the types that stand in for them, between Casts."""


AS_IN_FILE = "types of the file"  # what holds of every file: its tensors have the types that it states


@dataclass(frozen=True)
class ImportPasses:
    """Passes over the parsed file, and other translations of some operators."""

    # passes over the parsed file, in order. They change quantized tensors, so a float import skips them.
    over_file: tuple[Pass, ...] = ()
    # TFLite operator -> translations that are tried before the literal one, in order
    alternatives: Mapping[str, tuple[Alternative, ...]] = field(default_factory=dict)
    stand_ins: StandIns = field(default_factory=dict)  # element types that are written between Casts
    # the class that translations work with; a subclass writes some values in forms of its own
    operation: type[Operation] = Operation

    def __post_init__(self) -> None:
        """See that each pass over the file finds what it requires.

        Raises:
            LayoutError: one stands behind a pass that ends it.
        """
        check_order(self.over_file)


def on_use(module: str, name: str) -> Alternative:
    """Return an alternative whose module is loaded when an operator is met that it is for."""

    def written(operation: Operation) -> bool:
        alternative: Alternative = getattr(import_module(module), name)
        return alternative(operation)

    return written


LITERAL = ImportPasses()  # nothing but the literal translation
