"""The one table of operators, and how it is asked."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Final

from graphguard.ops import indexing, layout, pointwise, sums
from graphguard.ops.spec import Family, Traits, names_in

UNKNOWN: Final = Traits()
"""What is known of an operator of somebody else's."""


def _collected(*families: Family) -> dict[str, Traits]:
    table: dict[str, Traits] = {}
    for family in families:
        for text, traits in family.items():
            for name in names_in(text):
                if name in table:
                    raise ValueError(f"{name} is declared twice")
                table[name] = traits
    return table


OPERATORS: Final = _collected(*indexing.FAMILIES, *layout.FAMILIES, *pointwise.FAMILIES, *sums.FAMILIES)


@cache
def traits_of(op: str) -> Traits:
    """What holds of an operator; an in-place name without traits of its own has those of its functional twin."""
    found = OPERATORS.get(op)
    if found is None:
        namespace, _, rest = op.partition(".")
        name, dot, overload = rest.partition(".")
        found = OPERATORS.get(f"{namespace}.{name.rstrip('_')}{dot}{overload}", UNKNOWN)
    return found


def operators(holds: Callable[[Traits], object]) -> frozenset[str]:
    """The operators of which something holds."""
    return frozenset(name for name, traits in OPERATORS.items() if holds(traits))


class _Overloads:
    """The overloads of one operator, by attribute."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, overload: str) -> str:
        op = f"{self._name}.{overload}"
        if op not in OPERATORS:
            raise AttributeError(f"{op} is not in the table of operators")
        setattr(self, overload, op)
        return op


class _Namespace:
    """Names of PyTorch's operators as PyTorch writes them, ``aten.add.Tensor``: one that is not in the table is an error where it is written."""

    def __getattr__(self, name: str) -> _Overloads:
        found = _Overloads(f"aten.{name}")
        setattr(self, name, found)
        return found


aten: Final = _Namespace()
