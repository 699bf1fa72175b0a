"""Audit: every step of rewriting of a proof, read again by someone who knows no rule.

``log`` writes down what rules were given and what they made, ``claims`` says which two expressions a rule of a kind holds equal, and ``reader`` evaluates them at points, from
the definition of what normal forms denote.  A wrong rule is so named by its name.
"""
