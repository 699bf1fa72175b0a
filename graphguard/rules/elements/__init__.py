"""Operators of single elements, and tensors made from nothing but numbers."""
