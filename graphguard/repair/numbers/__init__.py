"""What numbers say of a program and of an edit of it: which promises it breaks, and which elements its ranks would have to read.

Main type: ``Point``, both programs on one set of numbers.
"""
