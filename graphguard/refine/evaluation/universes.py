"""Evaluated regions, each in a universe of its own."""

from __future__ import annotations

from graphguard.ir import Var
from graphguard.ir.fuel import Fuel
from graphguard.refine.evaluation.audits import observed
from graphguard.refine.evaluation.evaluate import Evaluator, Values
from graphguard.refine.stages.spelling import Number
from graphguard.relations.prove.normal_form import NormalForm
from graphguard.relations.terms.kernels import Universe
from graphguard.relations.terms.values import NormalValue


class Universes:
    """An evaluated region, by number: it serves every region that is spelt alike."""

    def __init__(self, fuel: Fuel) -> None:
        self.algebra = NormalForm(observed(Universe(1, fuel, relative=True)))
        self.evaluator: Evaluator | None = None
        self.values: dict[Number, NormalValue] = {}

    def tables(self, numbers: list[dict[int, Number]]) -> list[Values]:
        """The values by tensor of a region that is spelt like this one, the specification's table first; ``numbers`` are the tensors' by graph."""
        values = self.values
        return [
            Values({Var(var): values[number] for var, number in table.items() if number in values}) for table in numbers
        ]
