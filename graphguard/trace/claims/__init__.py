"""What a check claims, on the side of the child that records it: what users declare, its inputs, parameters and results as leaves and outputs.

The main type is :class:`~graphguard.trace.claims.program.Claims`, what one recorded program says beside its graph.
``checks``, ``programs`` and the command line come in; it records with ``record``.
"""
