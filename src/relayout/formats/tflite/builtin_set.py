"""The builtins that a runtime of `.tflite` files has, where it has not all of them."""

from typing import NamedTuple

from relayout.formats.tflite.container.enums import TensorType

QUANTIZED = (TensorType.INT8, TensorType.UINT8, TensorType.INT16)
CUSTOM = "CUSTOM"


class Builtins(NamedTuple):
    """The builtins that a runtime has.

    Args:
        of: the runtime, or its target.
        names: the builtins.
        integers: those that it has for quantized integers alone.
    """

    of: str
    names: frozenset[str]
    integers: frozenset[str] = frozenset()

    def has(self, name: str, kind: TensorType | None) -> bool:
        """Tell whether there is a builtin for a type of data; kernels of the user's own are theirs to bring."""
        return name in self.names or name.startswith(CUSTOM) or (name in self.integers and kind in QUANTIZED)

    def of_integers(self) -> "Builtins":
        """Return the builtins for a file whose real numbers become integers afterwards."""
        return self._replace(names=self.names | self.integers)
