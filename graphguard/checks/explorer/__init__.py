"""Both programs side by side, for the relation explorer: rows of tensors that belong together, in a tree of modules."""
