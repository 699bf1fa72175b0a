"""Finite fields: programs evaluated at random points of a pair of them by the same rules as in the proof.

Its main types are ``fields.Fields`` and ``field_run.FieldRun``.
"""
