"""ONNX operators as TensorFlow Lite's, one function each.

`preparing` rewrites a graph before layouts are chosen: constants are computed, definitions, loops and sequences are
written out. `exporter` writes a model whose layouts are chosen: `graph_export` walks over each of its graphs, and
gathers in `refusals` what cannot be written. `integers` has the tensors of quantized values, by the scales that
`scales` reads; `units` writes what quantized units give and the real numbers between, `constants` the constants.
`registry` knows the functions of `operators/`; `draft` holds the file's graph under construction; `node` is what a
function sees of its node, a `builder` of operators; `kernel_types` says which types the file and the
kernels take; `fusing` puts activations and biases into the operators before them.
"""
