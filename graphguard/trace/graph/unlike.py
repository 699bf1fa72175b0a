"""What to tell where the ranks' tensors lie in memory in different orders, and a collective exchanges memory."""

from __future__ import annotations

from graphguard.ir.capture import Mending, Trouble
from graphguard.ir.graph import Graph
from graphguard.ir.joining import span_of
from graphguard.ir.layouts import Order, Unlike, laid_out
from graphguard.trace.graph.view_fixes import contiguous, operand


def unlike_layouts(ranks: tuple[Graph, ...]) -> tuple[tuple[Trouble, ...], tuple[Graph, ...]]:
    """The ranks' graphs with their collectives on values, and what is unusual about those that took more than that."""
    graphs, unlike = laid_out(ranks)
    return tuple(_doubt(one, ranks) for one in unlike), graphs


def _doubt(unlike: Unlike, ranks: tuple[Graph, ...]) -> Trouble:
    mendings: list[tuple[Mending, ...]] = []
    for rank, (given, taken) in unlike.orders.items():
        span = span_of(ranks[rank], unlike.nodes[rank])
        mendings += [contiguous(span, unlike.kind, taken=False)] * any(given)
        mendings += [contiguous(span, unlike.kind, taken=True)] * (any(taken) and not any(given))
    rank = next(rank for rank, (given, taken) in unlike.orders.items() if any(given) or any(taken))
    span = span_of(ranks[rank], unlike.nodes[rank])
    name = operand(span, unlike.kind, taken=not any(unlike.orders[rank][0]))
    what = "a tensor" if name is None else f"'{name}'"
    lines = [f"{unlike.kind} works on memory, and {what} of rank {rank} lies there in another order than what it meets"]
    lines.append("found: " + "; ".join(f"rank {member} {_described(*each)}" for member, each in unlike.orders.items()))
    places = {member: span_of(ranks[member], node) for member, node in unlike.nodes.items()}
    related = tuple((at, f"rank {member}: here") for member, at in places.items() if at is not None and at != span)
    return Trouble("collective-mismatch", "\n".join(lines), span, rank, related=related, mendings=_together(mendings))


def _together(mendings: list[tuple[Mending, ...]]) -> tuple[Mending, ...]:
    """All that must be done, in each of the ways."""
    known = [ways for ways in mendings if ways]
    found = []
    for way in range(max(map(len, known), default=0)):
        chosen = [ways[min(way, len(ways) - 1)] for ways in known]
        title = "; ".join(dict.fromkeys(one.title for one in chosen))
        found.append(Mending(title, tuple(dict.fromkeys(edit for one in chosen for edit in one.edits))))
    return tuple(found)


def _described(given: tuple[Order, ...], taken: tuple[Order, ...]) -> str:
    if given == taken:
        return _named(given)
    return " and ".join(f"{verb} {_named(orders)}" for verb, orders in (("gives", given), ("gets", taken)) if orders)


def _named(orders: tuple[Order, ...]) -> str:
    names = [f"dims ({', '.join(map(str, order))}), outermost first" if order else "row by row" for order in orders]
    return " or ".join(dict.fromkeys(names))
