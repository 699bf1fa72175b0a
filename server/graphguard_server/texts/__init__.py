"""Texts as users see them: positions, syntax trees, what edits move, and which tensors a place is about."""
