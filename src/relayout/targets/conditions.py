"""The conditions that rows of a target's table name, of nodes and of quantized units."""

from relayout.lowering.conditions import *  # noqa: F403
from relayout.lowering.unit_rows import *  # noqa: F403
