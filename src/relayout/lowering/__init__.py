"""Passes that rewrite a graph for one target, and the rows that they read."""
