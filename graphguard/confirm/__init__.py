"""Captured graphs on numbers: whether the implementation agrees, a counterexample where it does not, a second opinion."""
