"""Arm's NPUs Ethos-U55 and U65, as Arm's compiler Vela sees them."""

TABLES = ("table",)
