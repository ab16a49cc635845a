"""LiteRT's GPU accelerator: what it takes, as it was asked, and the forms in which a `.tflite` is written for it."""

TABLES = ("table",)  # the modules that define targets
