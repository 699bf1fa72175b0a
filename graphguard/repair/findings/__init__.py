"""Findings of what a repair mends, or of what none does: rule, place, and what is said."""
