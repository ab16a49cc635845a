"""Dimensions of a model that are opened: the axis is followed to every value, and through every constant that states it."""

from relayout.shapes.bound import BoundAxis
from relayout.shapes.opening import Opened, open_axes

__all__ = ["BoundAxis", "Opened", "open_axes"]
