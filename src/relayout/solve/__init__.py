"""The layout problem, its exact solvers, and the certificate with its independent checker. Knows no ONNX."""
