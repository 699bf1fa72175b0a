"""Tensors with as many rows as the data decides: what is dispatched to experts, what a mask chooses.

``orders`` says what such a tensor is and when two have the same rows, ``sizes`` cuts them by symbolic sizes, ``calls`` and ``moves`` say what operators make of them.
"""

from graphguard.refine.ragged.moves import MOVES
from graphguard.refine.ragged.orders import Rows
from graphguard.refine.ragged.program import Ragged, has_symbols

__all__ = ["MOVES", "Ragged", "Rows", "has_symbols"]
