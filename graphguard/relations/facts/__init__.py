"""Facts: what is seen of expressions alone, their sign, their range, and where a step function steps; asked by everybody, asking only ``terms``."""
