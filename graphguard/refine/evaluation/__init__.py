"""Evaluation: the specification and then all ranks in lockstep, over the algebra of normal forms.

Its main type is ``evaluate.Evaluation``; what ranks do on shards is known from what the specification did.
"""
