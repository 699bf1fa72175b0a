"""Which calls make new numbers of types in which arithmetic is coarse."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from graphguard.ir import Node, Var
from graphguard.ops import REDUCTIONS, traits_of
from graphguard.relations.prove.normal_form import NormalForm
from graphguard.relations.terms.values import NormalValue
from graphguard.rules import find_rule
from graphguard.rules.basis.registry import COMPLEX_PART, FLOAT_BITS, holds

#: Types in which arithmetic is coarse, each with those that hold all of its numbers, narrow before wide, and with all others.
WIDER_AND_OTHERS: Final = {
    dtype: (
        sorted((wide for wide in FLOAT_BITS if wide != dtype and holds(wide, dtype)), key=FLOAT_BITS.__getitem__),
        [other for other in FLOAT_BITS if other == dtype or not holds(other, dtype)],
    )
    for dtype in FLOAT_BITS
    if FLOAT_BITS[dtype] < FLOAT_BITS["float32"]
}


def float_types(dtypes: Iterable[str]) -> frozenset[str]:
    """The float types among those of a program's tensors, and of the parts of complex ones."""
    return frozenset({COMPLEX_PART.get(dtype, dtype) for dtype in dtypes} & FLOAT_BITS.keys())


def coarse_types(dtypes: frozenset[str]) -> tuple[str, ...]:
    """Of the types of a program's tensors those in which arithmetic is coarse, where there are others as well."""
    return (
        tuple(sorted(dtypes & WIDER_AND_OTHERS.keys()))
        if dtypes & (FLOAT_BITS.keys() - WIDER_AND_OTHERS.keys())
        else ()
    )


def computes_coarsely(algebra: NormalForm, node: Node, values: Mapping[Var, NormalValue]) -> bool:
    """Whether a call with results of a coarse type makes numbers that its operands need not have."""
    traits, rule = traits_of(node.op), find_rule(node.op)
    if traits.exact or (rule is not None and rule.gives != "computed"):
        return False
    return traits.symbol != "*" or all(
        algebra.most_counted(values[each], 0) not in (0.0, 1.0) for each in node.operands()
    )


def adds_coarsely(node: Node, dtype: str) -> bool:
    """Whether a collective makes new numbers of a coarse type."""
    return (
        dtype in WIDER_AND_OTHERS
        and node.op in REDUCTIONS
        and not {"max", "min"}.intersection(arg for arg in node.args if isinstance(arg, str))
    )
