"""Whether two recorded specifications ask for the same: node by node, wherever they are written and however their tensors are numbered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import zip_longest

from graphguard.ir.capture import Capture
from graphguard.ir.graph import Arg, Graph, Var


def same_question(first: Capture, second: Capture) -> bool:
    """Whether two captures have the same specification, of the same inputs and parameters, and promise the same of what both promise."""
    if first.spec is None or second.spec is None or first.leaves != second.leaves or first.mesh != second.mesh:
        return False
    wanted = {promise.name: promise.wanted for promise in first.promises}
    promised = all(wanted.get(promise.name, promise.wanted) == promise.wanted for promise in second.promises)
    return promised and same_program(first.spec, second.spec)


def same_program(first: Graph, second: Graph) -> bool:
    """Whether two graphs compute the same outputs by the same calls in the same order."""
    return all(one == other for one, other in zip_longest(_rows(first), _rows(second)))


def calls_between(first: Capture, second: Capture) -> int:
    """How many calls of the ranks only one of two captures makes, by operator and the types of what it gives."""
    pairs = zip(first.ranks, second.ranks, strict=True)
    return sum(((one - other) + (other - one)).total() for one, other in ((_calls(a), _calls(b)) for a, b in pairs))


def _calls(graph: Graph) -> Counter[tuple[object, ...]]:
    return Counter((node.op, *(graph.types[var] for var in node.outs)) for node in graph.nodes)


def _rows(graph: Graph) -> Iterator[tuple[object, ...]]:
    """What a graph does: tensors by the order in which they come."""
    numbers: dict[Var, int] = {}

    def declared(*variables: Var) -> tuple[object, ...]:
        for var in variables:
            numbers.setdefault(var, len(numbers))
        return tuple((numbers[var], graph.types[var]) for var in variables)

    for var, name in graph.inputs.items():
        yield "input", name, declared(var)
    for var, constant in graph.constants.items():
        yield "constant", constant.digest, declared(var)
    for node in graph.nodes:
        arguments = tuple(_numbered(arg, numbers) for arg in node.args)
        words = tuple((key, _numbered(arg, numbers)) for key, arg in node.kwargs.items())
        yield node.op, arguments, words, node.draw, declared(*node.outs)
    for name, var in graph.outputs.items():
        yield "output", name, numbers.get(var)
    for name, var in graph.symbols.items():
        yield "symbol", name, numbers.get(var)


def _numbered(arg: Arg, numbers: Mapping[Var, int]) -> object:
    """An argument with numbers for tensors, told apart from numbers of its own."""
    if isinstance(arg, Var):
        return "tensor", numbers.get(arg)
    if isinstance(arg, tuple):
        return tuple(_numbered(item, numbers) for item in arg)
    return type(arg), arg
