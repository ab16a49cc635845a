"""LiteRT: what it runs, and what is rewritten for it before a `.tflite` is written."""

TABLES = ("table",)  # the modules that define targets
