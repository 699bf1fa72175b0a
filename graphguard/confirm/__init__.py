"""Captured graphs on numbers: whether the implementation agrees, a counterexample where it does not, a second opinion.

Import the modules: reports need :mod:`~graphguard.confirm.confirmation` where there is no torch.
"""
