"""ONNX operators as TensorFlow Lite's, one function each.

`exporter` walks over a graph whose layouts are chosen; `registry` knows the functions of `operators/`; `draft` holds
the file's graph under construction; `node` is what a function sees of its node; `fusing` puts activations and biases
into the operators before them.
"""
