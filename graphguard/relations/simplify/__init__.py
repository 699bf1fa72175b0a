"""The rules, one file for each of the things that they are about; ``table`` says which are applied at which stage, and in which order.

Rules may use all of the algebra, and never each other.
"""
