"""What is known of every operator beside its formula, in one table: traits, by which all other code asks, and names that must be declared.

``spec`` says what may be declared, a file a family declares it, ``table`` is asked.  It imports nothing of ours, so that anybody may ask.
"""

from graphguard.ops.collectives import (
    COLLECTIVE,
    EXCHANGES,
    MESSAGES,
    REDUCTIONS,
    Collective,
    collectives,
    exchanged,
    gg,
    linked,
)
from graphguard.ops.spec import Family, LookUp, Traits
from graphguard.ops.table import OPERATORS, aten, operators, traits_of

__all__ = [
    "COLLECTIVE",
    "EXCHANGES",
    "MESSAGES",
    "OPERATORS",
    "REDUCTIONS",
    "Collective",
    "Family",
    "LookUp",
    "Traits",
    "aten",
    "collectives",
    "exchanged",
    "gg",
    "linked",
    "operators",
    "traits_of",
]
