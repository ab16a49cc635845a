"""The translations, one module for each family of operators; whatever is in this folder is registered."""
