"""The conditions that rows of a target's table name; `relayout.lowering.conditions` defines them."""

from relayout.lowering.conditions import *  # noqa: F403
