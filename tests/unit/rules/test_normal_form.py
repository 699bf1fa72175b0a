"""Every rule over the normal form denotes PyTorch's numbers: the engine's values, element by element."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from graphguard.ir import Graph, Node
from graphguard.relations.algebra import Unsupported
from graphguard.relations.numbers import CASTS, FUNCTIONS
from graphguard.relations.prove.normal_form import NormalForm
from graphguard.relations.terms.denotation import Denotation
from graphguard.rules import evaluate_node

from . import programs
from .bench import DRAW, PLACES, Bench, RuleMode, array_of
from .samples import SAMPLES, Make
from .written import WRITTEN

#: Labels that no class has: the normal form reads the look-up as the fact that every label is one, and reports it.
ASSUMED_IN_RANGE = frozenset({"aten.nll_loss_forward.default", "aten.nll_loss_backward.default"})


def closed(name: str, attributes: tuple[Any, ...], arrays: Any) -> np.ndarray:
    """Elements of functions that are known by name."""
    if name == "cast":
        return CASTS[attributes[0]](arrays[0])
    if name not in FUNCTIONS:
        raise Unsupported(name)
    return FUNCTIONS[name](*arrays)


def check(op: str, args: Any, kwargs: Any, expected: list[torch.Tensor], known: bool = False) -> None:
    algebra = NormalForm()
    bench = Bench(algebra, known)  # type: ignore[arg-type]
    places = tuple(map(bench.argument, args))
    named = {name: bench.argument(arg) for name, arg in kwargs.items() if name not in PLACES}
    outs = tuple(map(bench.variable, expected))
    leaves = {f"x{var.id}": number.array for var, number in bench.values.items()}
    values = {
        var: algebra.literal(number.array) if known else algebra.leaf(f"x{var.id}", number.shape, number.kind)
        for var, number in bench.values.items()
    }
    node = Node(op, places, named, outs, draw=DRAW)
    found = evaluate_node(algebra, node, Graph({}, {}, (node,), bench.types, {}), values)
    denotation = Denotation(leaves, closed, {kernel.id: data for kernel, data in algebra.universe.tables})
    for value, tensor in zip(found, expected, strict=True):
        try:
            elements = denotation.value(value)
        except Unsupported:
            continue  # stays closed
        wanted = array_of(tensor).astype(float)
        np.testing.assert_allclose(elements, wanted, rtol=1e-6, atol=1e-8, err_msg=op)


CALLS = [(op, make) for op, make in [*SAMPLES, *WRITTEN] if op not in ASSUMED_IN_RANGE]


@pytest.mark.parametrize(("op", "make"), CALLS, ids=[f"{i}-{op}" for i, (op, _) in enumerate(CALLS)])
def test_call(op: str, make: Make) -> None:
    torch.manual_seed(1)
    call = make()
    if call.draws is None:
        operands = [arg.clone() if isinstance(arg, torch.Tensor) else arg for arg in call.args]
        check(op, operands, call.kwargs, call.results(), call.known)


class NormalFormMode(RuleMode):
    """Compares over the normal form instead of over numbers."""

    def _compare(self, op: str, call: Any, expected: list[torch.Tensor]) -> None:
        try:
            check(op, *call, expected)
        except AssertionError as error:
            self.wrong.append(f"{op}: {error}")


@pytest.mark.parametrize("name", [name for name in programs.PROGRAMS if "ignored labels" not in name])
def test_program(name: str) -> None:
    with NormalFormMode({}) as mode:
        programs.run(name)
    assert mode.wrong == []
