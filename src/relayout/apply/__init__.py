"""A plan becomes a graph: storage, reshapes, functions, names."""
