"""Reduced sizes: the same program at smaller extents, which equations between the extents of its calls allow.

``shrink.shrunk`` is what the others ask.
"""
