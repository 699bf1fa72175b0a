"""Operators that move, choose or write elements by their position."""
