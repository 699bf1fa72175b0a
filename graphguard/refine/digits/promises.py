"""Every promised output of a quotient: as placements, one comparison for all ranks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, TypeAlias

from graphguard.ir import Capture, Placement, Promise
from graphguard.ir.capture import Like
from graphguard.ir.joining import Joined
from graphguard.refine.digits.algebra import Stacked
from graphguard.refine.digits.evaluate import Run
from graphguard.refine.digits.exchanges import Exchange
from graphguard.refine.digits.groups import Coordinates
from graphguard.refine.digits.programs import Quotient
from graphguard.refine.digits.stacks import Stack
from graphguard.refine.evaluation.evaluate import Evaluator, Values, all_real, shape_of
from graphguard.refine.found.layouts import REPLICATE, Layouts, Placements
from graphguard.refine.found.promises import needed_by, told
from graphguard.refine.outcome import PromiseOutcome
from graphguard.relations.algebra import Unsupported
from graphguard.relations.relation import Relation
from graphguard.relations.terms.values import NormalValue

Held: TypeAlias = Mapping[int, Stack]
"""An output, by the programs that have it."""
_CANDIDATES: Final = 256


@dataclass(frozen=True, slots=True)
class Specified:
    """The evaluated specification, which the programs are compared with."""

    evaluator: Evaluator
    leaves: Mapping[str, NormalValue]
    specification: Values
    layouts: Layouts


class Promises:
    """Checks promises; raises ``Unsupported`` at the first that is not proved."""

    def __init__(
        self, capture: Capture, quotient: Quotient, specified: Specified, algebra: Stacked, steps: Joined
    ) -> None:
        self.capture = capture
        self.quotient = quotient
        self.specified = specified
        self.algebra = algebra
        self.steps = steps
        self._preludes: dict[tuple[str, str], list[Run]] = {}

    def checked(self, promise: Promise, runs: list[Run]) -> PromiseOutcome:
        """A promise that holds, with what was found."""
        spec, name = self.capture.spec, promise.name
        assert spec is not None
        held = {at: self._output(run, name) for at, run in enumerate(runs) if name in run.program.outputs}
        if not held:
            raise Unsupported(f"no rank has an output '{name}'")
        var = spec.outputs.get(name)
        if var is not None and not all_real((spec.types[var].dtype,)):
            raise Unsupported("a promise of complex numbers")
        target = None if var is None else self.specified.specification.get(var)
        found = None if target is None else self._found(target, held)
        text = "" if found is None else self._text(name, found, held)
        if isinstance(promise.wanted, Like):
            self._check_like(name, promise.wanted.leaf, held)
        elif target is None:
            raise Unsupported(f"the specification has no output '{name}'")
        elif isinstance(promise.wanted, dict):
            if not self._holds(target, promise.wanted, held):
                raise Unsupported(f"'{name}' is not seen to be placed as promised")
        elif found is None:
            raise Unsupported(f"no placement of '{name}' was found")
        return told(PromiseOutcome(name, True, needed_by(promise, self.capture), text), promise)

    @staticmethod
    def _output(run: Run, name: str) -> Stack:
        try:
            return run.own(run.program.outputs[name])
        except KeyError:
            raise Unsupported(f"'{name}' was not followed: {'; '.join(run.lost[:1])}") from None

    def _text(self, name: str, placements: Placements, held: Held) -> str:
        """What was found, as the ordinary proof says it."""
        ranks = sorted(rank for at in held for rank in self.quotient.programs[at].ranks)
        expression = self.specified.layouts.expression(placements, dict.fromkeys(ranks, name))
        return str(Relation(name, expression, placements))

    # -- placements

    def _found(self, target: NormalValue, held: Held) -> Placements | None:
        """Placements that rebuild the target, in the order in which the ordinary proof tries them."""
        return next((each for each in self._candidates(target, held) if self._holds(target, each, held)), None)

    def _candidates(self, target: NormalValue, held: Held) -> Iterator[Placements]:
        shape = next(iter(held.values())).shape
        if len(shape) != len(target.shape) or any(one.shape != shape for one in held.values()):
            return
        choices: list[list[Placement]] = []
        for axis, (_, size) in enumerate(self.quotient.mesh):
            if size == 1 or self._is_alike(axis, held):
                choices.append([REPLICATE])
                continue
            shards = [
                Placement("shard", dim)
                for dim in range(len(shape))
                if shape[dim] != target.shape[dim] or target.shape[dim] == 0
            ]
            other = [Placement("partial")] if target.kind != "bool" else []
            choices.append([*shards, *other, REPLICATE] if shape != target.shape else [*other, REPLICATE])
        for combination in itertools.islice(itertools.product(*choices), _CANDIDATES):
            yield dict(zip(self.capture.mesh, combination, strict=True))

    def _is_alike(self, axis: int, held: Held) -> bool:
        """Whether ranks that differ in one coordinate are seen to have the same tensor."""
        quotient = self.quotient
        if axis in quotient.digits:
            return all(quotient.digits.index(axis) in self.algebra.alike(one) for one in held.values())
        at = quotient.others.index(axis)
        first: dict[Coordinates, Stack] = {}
        for number, one in held.items():
            place = quotient.programs[number].place
            place = (*place[:at], *place[at + 1 :])
            if not self.algebra.same(first.setdefault(place, one), one):
                return False
        return True

    def _holds(self, target: NormalValue, placements: Mapping[str, Placement], held: Held) -> bool:
        """Whether placements rebuild the target on every rank; the last of them is undone first."""
        parts = {self.quotient.programs[at].place: one.value for at, one in held.items()}
        names = [axis for axis, _ in self.quotient.mesh]
        try:
            for name, placement in reversed(list(placements.items())):
                if name not in names:
                    return False
                if placement.kind == "replicate":
                    continue
                axis = names.index(name)
                if axis in self.quotient.digits:
                    digit = self.quotient.digits.index(axis)
                    parts = {place: self._undone(value, digit, placement) for place, value in parts.items()}
                else:
                    parts = self._put_together(parts, self.quotient.others.index(axis), placement)
            return all(self._is_target(value, target) for value in parts.values())
        except Unsupported:
            return False

    def _is_target(self, value: NormalValue, target: NormalValue) -> bool:
        count, normal = len(self.algebra.sizes), self.algebra.normal
        if value.shape[count:] != target.shape:
            return False
        lead = normal.reshape(target, ((1,) * count + target.shape))
        return normal.same(value, normal.expand(lead, value.shape))

    def _undone(self, value: NormalValue, digit: int, placement: Placement) -> NormalValue:
        """A value put together along a digit, of which a dim of one is left."""
        normal, count = self.algebra.normal, len(self.algebra.sizes)
        lead = (*value.shape[:digit], 1, *value.shape[digit + 1 : count])
        shape = value.shape[count:]
        if placement.kind == "partial":
            return normal.reshape(self._summed(value, digit, placement), (*lead, *shape))
        dim = placement.dim % len(shape) if shape else 0
        if dim >= len(shape) or not -len(shape) <= placement.dim < len(shape):
            raise Unsupported("a shard along no dim")
        order = [at for at in range(len(value.shape)) if at != digit]
        order.insert(count - 1 + dim, digit)
        whole = (*shape[:dim], value.shape[digit] * shape[dim], *shape[dim + 1 :])
        return normal.reshape(normal.permute(value, order), (*lead, *whole))

    def _summed(self, value: NormalValue, digit: int, placement: Placement) -> NormalValue:
        normal = self.algebra.normal
        if value.kind == "bool" or placement.reduce not in ("sum", "avg"):
            raise Unsupported("partial values that are no summands")
        total = normal.sum(value, (digit,))
        if placement.reduce == "avg":
            if value.kind != "float":
                raise Unsupported("the average of integers")
            total = normal.scale(total, Fraction(1, value.shape[digit]))
        return total

    def _put_together(
        self, parts: Mapping[Coordinates, NormalValue], at: int, placement: Placement
    ) -> dict[Coordinates, NormalValue]:
        """Values of programs along an axis that is no digit."""
        normal, count = self.algebra.normal, len(self.algebra.sizes)
        groups: dict[Coordinates, list[NormalValue]] = {}
        for place in sorted(parts):
            groups.setdefault((*place[:at], 0, *place[at + 1 :]), []).append(parts[place])
        found = {}
        for place, values in groups.items():
            first = values[0]
            shape = first.shape[count:]
            if any(value.shape != first.shape or value.kind != first.kind for value in values):
                raise Unsupported("parts of several shapes")
            if placement.kind == "shard":
                if not -len(shape) <= placement.dim < len(shape):
                    raise Unsupported("a shard along no dim")
                found[place] = normal.concat(values, count + placement.dim % len(shape))
                continue
            if first.kind != "float" or placement.reduce not in ("sum", "avg"):
                raise Unsupported("partial values that are no summands")
            total = normal.add(values)
            found[place] = total if placement.reduce == "sum" else normal.scale(total, Fraction(1, len(values)))
        return found

    # -- laid out as a leaf

    def _check_like(self, name: str, leaf: str, held: Held) -> None:
        """Raise ``Unsupported`` where a rank's output is not what its prelude makes of the specification's."""
        before, _, after = name.rpartition(leaf)
        runs = self._prelude(before, after)
        for at, value in held.items():
            run = runs[at]
            each = run.program.labels.get(leaf)
            if each is None:
                raise Unsupported(f"a rank does not hold '{leaf}'")
            try:
                target = run.own(each)
            except KeyError:
                raise Unsupported(f"the layout of '{leaf}' was not followed") from None
            if not self.algebra.same(value, target):
                raise Unsupported(f"'{name}' is not seen to be laid out as promised")

    def _prelude(self, before: str, after: str) -> list[Run]:
        """The programs' preludes, run on the specification's outputs ``before + leaf + after`` in place of the leaves."""
        if (before, after) not in self._preludes:
            spec, there, a = self.capture.spec, self.specified, self.algebra
            assert spec is not None
            leaves = dict(there.leaves)
            for leaf in self.capture.leaves:
                var = spec.outputs.get(before + leaf.name + after)
                value = None if var is None else there.specification.get(var)
                if value is not None:
                    leaves[leaf.name] = value
                elif leaves[leaf.name].kind == "float":
                    leaves[leaf.name] = a.normal.full(shape_of(leaf.type), Fraction(0), "float")
            stacked = {key: a.lift(value) for key, value in leaves.items()}
            runs = [Run(a, there.evaluator, program) for program in self.quotient.programs]
            for run in runs:
                run.start(stacked, there.evaluator)
            Exchange(self.quotient, a, runs).run(self.steps, "prelude")
            self._preludes[before, after] = runs
        return self._preludes[before, after]
