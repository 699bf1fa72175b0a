"""Terms: what a tensor is on one piece: references, windows onto kernels, and how kernels are built at their maximal domain.

Its main types are ``kernels.Kernel`` and ``values.NormalValue``; it knows no arithmetic.
"""
