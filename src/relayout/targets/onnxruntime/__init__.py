"""What ONNX Runtime has, what its kernels cost, and what is rewritten for it."""
