"""Layers that are alike: the first is recorded, the others are copies of it, forward and backward.

The main type is :class:`~graphguard.trace.elide.repeats.Repeats`.
The recorder comes in, and nobody else.
"""
