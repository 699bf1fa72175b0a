"""Operators of neural networks and of their training: convolutions, attention, norms, losses, steps of optimisers."""
