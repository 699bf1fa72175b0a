"""The engine: rules applied at their stages.

Products have a worklist: the first rule that changes a product, and again from the first until none does.  The other stages apply their rules in turn.
"""

from __future__ import annotations

from typing import Any

from graphguard.relations.rewrite.rule import Outcome


def settled_product(product: Any) -> bool:
    """Rewrite a :class:`~graphguard.relations.sums.products.Product` until no rule changes it; False where it is zero."""
    rules, unlogged = product.universe.rules, product.log is None
    while True:
        product.gather()
        for rule in rules.products:
            outcome = rule.act(product) if unlogged else rule(product)
            if outcome is Outcome.ZERO or product.coefficient == 0:
                return False
            if outcome is Outcome.CHANGED:
                break
        else:
            return all((rule.act if unlogged else rule)(product) is not Outcome.ZERO for rule in rules.positions)


def added(universe: Any, items: Any, extents: tuple[int, ...]) -> Any:
    """Terms of a sum, like ones gathered, after the rules for sums."""
    unlogged = universe.log is None
    for rule in universe.rules.sums:
        items = (rule.act if unlogged else rule)(universe, items, extents)
    return items


def first(rules: Any, *arguments: Any) -> Any:
    """What the first rule answers that has an answer; None where none has."""
    for rule in rules:
        found = rule(*arguments)
        if found is not None:
            return found
    return None
