"""Relations that are found: how the ranks' tensors rebuild the specification's, which promises hold, and where refinement stops."""
