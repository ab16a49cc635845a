"""The parts of a graph: subgraphs, source names, constants. Knows no layouts."""
