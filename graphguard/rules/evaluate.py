"""One node of a graph, evaluated over an algebra by the rule of its operator."""

from __future__ import annotations

import inspect
import string
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import Any

from graphguard.ir import Graph, Node, Sym, Var
from graphguard.ir.fuel import CALL, burn
from graphguard.ir.graph import Arg
from graphguard.relations.algebra import Algebra, Unsupported, V
from graphguard.rules.basis.casting import ABSENT, are_settled, settle
from graphguard.rules.basis.registry import Call, Rule, concrete_shape, find_rule, is_complex, kind_of
from graphguard.rules.basis.traits import Trait, attributes_of, evaluate_trait
from graphguard.rules.lines.complex_numbers import evaluate_complex, has_complex

Note = Callable[[str], None]


def evaluate_node(
    algebra: Algebra[V],
    node: Node,
    graph: Graph,
    values: Mapping[Var, V],
    note: Note | None = None,
    traits: Mapping[str, Trait] | None = None,
    *,
    real: bool = False,
) -> tuple[V, ...]:
    """The results of a call, one per output of the node.

    ``values`` holds every operand; ``traits`` are what the user declared of their own operators; ``real`` says that no tensor of the graph is complex, which is looked up otherwise.  An operator without a rule, or whose rule cannot follow here, stays closed: a function
    known by its name and arguments only; ``note`` is told why.  Raises ``Unsupported`` where not even that can be said
    (sizes known only when the program runs).
    """
    burn(CALL)
    trait = traits.get(node.op) if traits else None
    try:
        if trait is not None:
            return _declared(algebra, trait, node, graph, values)
        found = find_rule(node.op)
        if not real and has_complex(node, graph):
            return evaluate_complex(
                algebra,
                found,
                node,
                graph,
                values,
                lambda rule, other: apply_rule(algebra, rule, node, graph, other, note),
            )
        if found is None:
            return _closed(algebra, node, graph, values, f"no rule for {node.op}", note)
        return apply_rule(algebra, found, node, graph, values, note)
    except Unsupported as reason:
        return _closed(algebra, node, graph, values, str(reason), note)


def apply_rule(
    algebra: Algebra[V],
    rule: Rule,
    node: Node,
    graph: Graph,
    values: Mapping[Var, V],
    note: Note | None = None,
) -> tuple[V, ...]:
    """The results by the given rule; raises ``Unsupported``."""
    call = Call(node, graph, rule.parameters)
    args = [
        values[arg] if arg.__class__ is Var else arg if arg.__class__ is int else bind(arg, values) for arg in node.args
    ]
    kwargs = {name: bind(arg, values) for name, arg in node.kwargs.items()} if node.kwargs else {}
    if rule.wants_call:
        kwargs["call"] = call
    try:
        result = rule.function(algebra, *args, **kwargs)
    except TypeError as error:
        _check_binding(algebra, rule, args, kwargs, error)
        raise
    results = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    if note is not None:
        for remark in call.remarks:
            note(remark)
    if rule.gives == "moved" and are_settled(algebra, call, results):
        return results
    return settle(algebra, call, results, rounds=rule.casts, computes=rule.gives == "computed")


def _check_binding(algebra: Algebra[V], rule: Rule, args: list[Any], kwargs: dict[str, Any], error: TypeError) -> None:
    """Tell a call that does not fit the rule's signature from an error inside the rule."""
    try:
        inspect.signature(rule.function).bind(algebra, *args, **kwargs)
    except TypeError as mismatch:
        raise Unsupported(f"arguments of {rule.name}: {mismatch}") from error


def bind(arg: Arg, values: Mapping[Var, V]) -> Any:
    """An argument with tensors replaced by their values."""
    if isinstance(arg, Var):
        return values[arg]
    if isinstance(arg, tuple):
        return [item if item.__class__ is int else bind(item, values) for item in arg]
    if isinstance(arg, Sym):
        raise Unsupported(f"a size known only when the program runs: {arg.expr}")
    return arg


def _closed(
    algebra: Algebra[V], node: Node, graph: Graph, values: Mapping[Var, V], reason: str, note: Note | None
) -> tuple[V, ...]:
    """Every operand whole and in order, every other argument as an attribute: equal calls give equal results."""
    letters = iter(string.ascii_uppercase)
    operands = [(values[var], _take(letters, len(values[var].shape))) for var in node.operands()]
    attributes = attributes_of(node)
    results = []
    for index, out in enumerate(node.outs):
        kind = graph.types[out]
        if kind.dtype == ABSENT:
            results.append(algebra.full((0,), Fraction(0), "float"))
            continue
        shape = (*concrete_shape(kind), 2) if is_complex(kind.dtype) else concrete_shape(kind)
        name = node.op if len(node.outs) == 1 else f"{node.op}[{index}]"
        fresh = _take(letters, len(shape))
        results.append(algebra.opaque(name, attributes, operands, fresh, shape, kind_of(kind.dtype)))
    if note is not None:
        note(reason)
    return tuple(results)


def _declared(algebra: Algebra[V], trait: Trait, node: Node, graph: Graph, values: Mapping[Var, V]) -> tuple[V, ...]:
    call = Call(node, graph)
    operands = [values[var] for var in node.operands()]
    results = evaluate_trait(algebra, (trait,), node.op, call, operands, attributes_of(node))
    return settle(algebra, call, results, rounds=False)


def _take(letters: Iterator[str], count: int) -> str:
    taken = "".join(letter for _, letter in zip(range(count), letters, strict=False))
    if len(taken) < count:
        raise Unsupported("an operator without a rule and with more than 26 dims over all its operands")
    return taken
