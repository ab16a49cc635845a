"""Open dimensions of a model: follow the axis to every value, and through every constant that states it."""

from relayout.shapes.bound import OpeningError
from relayout.shapes.opening import Opened, open_axes

__all__ = ["Opened", "OpeningError", "open_axes"]
