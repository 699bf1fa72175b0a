"""Unmodified training scripts as programs: run as ``torchrun`` runs them, watched, and stopped after some optimizer steps.

The main type is :class:`~graphguard.trace.scripts.script.Script`, what is to be run; :func:`~graphguard.trace.scripts.program.record_script` records it.
``programs`` come in; it records with ``record`` and relates parameters with ``claims``.
"""
