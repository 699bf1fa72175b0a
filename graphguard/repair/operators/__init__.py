"""Defects of calls: an operator, an operand or a tensor that one side has and the other does not.

One family of defects a file; the specification is asked what is meant.
"""
