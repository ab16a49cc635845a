"""The nodes that a target claims, as connected parts."""
