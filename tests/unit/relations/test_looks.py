"""What unification looks at: it counts for the budgets that ask for it, and for no proof."""

from graphguard.ir.fuel import LOOKS, Fuel, look
from graphguard.relations.terms.kernels import Universe


def test_looks_count_for_a_budget_that_asks_for_them() -> None:
    proof, search = Fuel("a proof", 10), Fuel("a search", 10, LOOKS)
    look(int(9 / LOOKS))
    assert (proof.left, search.left) == (10, 1)
    part = search.part("a part", 5)
    look(int(2 / LOOKS))
    assert part.spent
    assert search.spent
    assert not proof.spent


def test_a_universe_keeps_how_looks_count() -> None:
    universe = Universe(fuel=Fuel("a search", 10, LOOKS))
    universe.refuel("a question", 20)
    look(int(20 / LOOKS))
    assert universe.fuel.spent
    plain = Universe(fuel=Fuel("a proof", 10))
    plain.refuel("a question", 20)
    look(int(99 / LOOKS))
    assert not plain.fuel.spent
