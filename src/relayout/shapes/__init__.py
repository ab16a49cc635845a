"""Open dimensions of a model: follow the axis to every value, and through every constant that states it."""

from relayout.shapes.opening import Opened, open_axes
from relayout.shapes.parts import OpeningError

__all__ = ["Opened", "OpeningError", "open_axes"]
