"""Defects of sums: factors, means, norms and summands that count twice, unevenly, or not at all.

One family of defects a file.
"""
