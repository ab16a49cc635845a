"""The exports, by family. Importing a module registers its operators."""
