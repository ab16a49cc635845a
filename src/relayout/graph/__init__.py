"""What a graph is made of: subgraphs, source names, constants. Knows no layouts."""
