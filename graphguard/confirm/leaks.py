"""Which memory that nobody wrote reaches the outputs in which ranks differ: other numbers in it move them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch

from graphguard.confirm.run.draws import leaf_values
from graphguard.confirm.run.elements import UnrunnableError
from graphguard.confirm.run.replay import Arithmetic, Values
from graphguard.confirm.run.unwritten import EMPTY
from graphguard.confirm.trial import Failure, Trial

_FEW: Final = 1 << 10  # places that are searched

Place = tuple[int, int]


def leak(trial: Trial, failures: Sequence[Failure]) -> Place | None:
    """Rank and call of the first such memory, if every output that differs moves with such memory; None where one does not, or the search has no end."""
    places = [
        (rank, index)
        for rank, graph in enumerate(trial.capture.ranks)
        for index, node in enumerate(graph.nodes)
        if node.op == EMPTY
    ]
    if not places or len(places) > _FEW:
        return None
    names = {failure.promise.name for failure in failures}
    try:
        search = _Search(trial, failures[0], names)
        if search.moved(places) != names:
            return None
        while len(places) > 1:
            first, second = places[: len(places) // 2], places[len(places) // 2 :]
            places = first if search.moved(first) else second
        return places[0] if search.moved(places) else None
    except UnrunnableError:
        return None


class _Search:
    """Runs of the ranks on one draw, with other numbers in some memory."""

    def __init__(self, trial: Trial, failure: Failure, names: set[str]) -> None:
        self.trial = trial
        self.names = names
        self.leaves = leaf_values(trial.capture, failure.draw, trial.ranges)
        self.fuel = trial.to_explain()
        self.before = self._outputs(())

    def _outputs(self, anew: Sequence[Place]) -> list[Values]:
        how = Arithmetic(self.trial.sharp, single=self.trial.single, anew=frozenset(anew))
        return self.trial.ranks(self.leaves, how, fuel=self.fuel)

    def moved(self, places: Sequence[Place]) -> set[str]:
        """The outputs that move with some memory."""
        pairs = zip(self.trial.capture.ranks, self.before, self._outputs(places), strict=True)
        return {
            name
            for graph, before, after in pairs
            for name in self.names & graph.outputs.keys()
            if not _same(before[graph.outputs[name]], after[graph.outputs[name]])
        }


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors have the same elements, or both no number."""
    return one.shape == other.shape and bool(((one == other) | ((one != one) & (other != other))).all())
