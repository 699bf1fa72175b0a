"""Sums and products of terms, and what is read off them directly: masks, quotients, counts, order and bounds.

Its main types are ``linear.normalise`` and ``products.Product``.  It asks the universe for the rules of its stages, and imports none of them.
"""
