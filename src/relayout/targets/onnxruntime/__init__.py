"""ONNX Runtime: its operators, what its kernels cost, and what is rewritten for it."""

TABLES = ("cpu", "cpu_avx2", "cpu_nchwc")  # the modules that define targets
