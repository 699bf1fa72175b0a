"""Operators of whole dims: sums, products, extremes, orders and transforms."""
