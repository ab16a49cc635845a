"""ONNX operators as TensorFlow Lite's, one function each.

`preparing` rewrites a graph before layouts are chosen: constants are computed, definitions, loops and sequences are
written out. `exporter` walks over a graph whose layouts are chosen; `registry` knows the functions of `operators/`;
`draft` holds the file's graph under construction; `node` is what a function sees of its node, and `steps` writes
arithmetic for it; `kernel_types` says which types kernels take; `fusing` puts activations and biases into the
operators before them.
"""
