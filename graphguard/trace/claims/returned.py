"""What a program returned, sorted by what can be compared: tensors and numbers in its graph, constants as they are, and the rest by name alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from graphguard.ir.graph import Size
from graphguard.trace.claims.outputs import OutputType, matched_names
from graphguard.trace.claims.parameters import State, plain_name
from graphguard.trace.claims.results import NOTHING, Constant, Kind, Result, results_of
from graphguard.trace.record.capture import sizes


@dataclass(frozen=True, slots=True)
class Told:
    """What a program says of its results beside its graph: the ``constants`` among them, words for the ``opaque`` ones, and of what kind each number is."""

    constants: dict[str, Constant] = field(default_factory=dict)
    opaque: dict[str, str] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Returned:
    """The results of a program by name, and ``absent``, those that are gradients that did not arrive, which are zero."""

    results: dict[str, Result]
    absent: frozenset[str] = frozenset()

    @classmethod
    def of(cls, value: Any, states: Iterable[State]) -> Returned:
        """What a program with these parameters returned."""
        listed = list(states)
        named = {plain_name(name): state for state in listed for name in (state.name, *state.aliases)}
        found: dict[str, Result] = {}
        absent: set[str] = set()
        for one in results_of(value):
            result = _as_named(one, listed) if one.kind == "gradient" else one
            parameter = _parameter_without_gradient(result, named)
            if parameter is not None:
                kind: Kind = "gradient" if result.kind == "gradient" else "tensor"
                result = replace(result, kind=kind, value=torch.zeros_like(parameter.detach()))
                absent.add(result.name)
            found[result.name] = result
        return cls(found, frozenset(absent))

    def named_as(self, outputs: Mapping[str, OutputType]) -> Returned:
        """The results under the names that the specification's ``outputs`` have; one tensor on either side is the same one."""
        mine, theirs = list(self.tensors), [one.name for one in outputs.values() if not one.is_number]
        names = {name: name for name in self.results}
        if mine or theirs:
            names |= matched_names(mine, theirs if len(mine) == len(theirs) == 1 else list(outputs))
        else:
            names |= matched_names(list(self.values), list(outputs))
        if len(set(names.values())) < len(names):
            names = {name: name for name in self.results}
        results = {names[name]: replace(result, name=names[name]) for name, result in self.results.items()}
        return Returned(results, frozenset(names[name] for name in self.absent))

    @property
    def tensors(self) -> dict[str, Any]:
        """The tensors, those in arrays included."""
        return {name: one.value for name, one in self.results.items() if one.kind in ("tensor", "array", "gradient")}

    @property
    def numbers(self) -> dict[str, Any]:
        """The numbers that were read from tensors."""
        return {name: one.value for name, one in self.results.items() if one.kind == "number"}

    @property
    def values(self) -> dict[str, Kind]:
        """What the graph says, by name: all but what is neither a tensor nor a number."""
        return {name: one.kind for name, one in self.results.items() if _is_value(one)}

    @property
    def told(self) -> Told:
        """What the graph does not say."""
        return Told(
            {name: one.value for name, one in self.results.items() if one.kind == "constant"},
            {name: one.value for name, one in self.results.items() if one.kind == "opaque"},
            {name: one.told for name, one in self.results.items() if one.is_number},
        )

    @property
    def gradients(self) -> dict[str, str]:
        """The names of the gradients that were returned as such, and those of their parameters, where the program is known to hold these."""
        return {name: one.told for name, one in self.results.items() if one.kind == "gradient"}

    def outputs(self) -> tuple[OutputType, ...]:
        """The values as the ranks need to know them."""
        return tuple(self._output(one) for one in self.results.values() if _is_value(one))

    def _output(self, one: Result) -> OutputType:
        if one.is_number:
            return OutputType(one.name, (), "", differentiable=False, kind=one.kind)
        shape: tuple[Size, ...] = sizes(one.value)
        dtype = str(one.value.dtype).removeprefix("torch.")
        return OutputType(one.name, shape, dtype, has_gradient(one.value), one.name in self.absent, one.kind)


def has_gradient(value: Any) -> bool:
    """Whether a gradient can arrive at a tensor."""
    return bool(value.requires_grad) and (value.is_floating_point() or value.is_complex())


def _is_value(one: Result) -> bool:
    return one.kind != "opaque" and (one.kind != "constant" or one.value.is_number)


def _as_named(one: Result, states: Iterable[State]) -> Result:
    """A gradient under the name that its parameter has in comparisons."""
    state = next((state for state in states if state.tensor is one.of), None)
    return one if state is None else replace(one, name=f"grad({state.name})", told=state.name)


def _parameter_without_gradient(one: Result, named: Mapping[str, State]) -> Any:
    """The parameter that a None stands for: one that has no gradient, and by whose name it was returned."""
    if one.kind == "gradient":
        return one.of if one.value is None else None
    if one.kind != "constant" or one.value != NOTHING or not one.name.endswith('"]'):
        return None
    state = named.get(plain_name(one.name[:-2].rpartition('["')[2]))
    return state.tensor if state is not None and state.tensor.grad is None else None
