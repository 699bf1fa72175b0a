"""Hypotheses about a program, tried on numbers first and by proof then.

Main type: ``Trials``.  Which families are asked stands in ``hypotheses``.
"""
