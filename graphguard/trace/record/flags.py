"""Conditions that are computed as tensors and have one truth in general: whether there is anything (``mask.any()``, ``count == 0``, ``(labels == ignored).all()``), whether numbers differ (``scale != 1.0``)."""

from __future__ import annotations

from collections.abc import Sequence

from graphguard.trace.calls.events import Event, Ref, refs_in
from graphguard.trace.record.branches import Reason, presence

_SIGNS = {"eq": "==", "ne": "!=", "gt": ">", "ge": ">=", "lt": "<", "le": "<="}
_NEGATIONS = frozenset(("logical_not", "bitwise_not"))
_KEEP_FLAGS = frozenset(
    (
        "_to_copy", "alias", "bitwise_and", "bitwise_not", "bitwise_or", "cat", "clone", "copy", "detach", "expand", "index", "logical_and", "logical_not", "logical_or",
        "permute", "reshape", "select", "slice", "squeeze", "stack", "sum", "t", "transpose", "unbind", "unsqueeze", "view", "__and__", "__or__",
    )
)  # fmt: skip
_WHOLE = ("int", "uint")
_COPIES = frozenset(("_to_copy", "alias", "clone", "detach", "lift_fresh"))


def truth_in_general(events: Sequence[Event], condition: Ref) -> tuple[bool, Reason] | None:
    """The truth of a condition where there is something, or where numbers differ, and which of these; None where it asks anything else.

    It asks whether there is something of a mask which compares whole numbers or comes from outside (``any``; ``all``: whether there is anything else), or of a whole number which it compares
    with zero or one; whether numbers differ of a number with a fraction, which it compares with a constant.
    """
    place = _made(events, condition)
    if place is None:
        return None
    event, name = events[place], _name(events[place])
    first = next(iter(refs_in(event.args)), None)
    if first is None:
        return None
    if name in _NEGATIONS:
        inner = truth_in_general(events[:place], first)
        return None if inner is None else (not inner[0], inner[1])
    if name in ("any", "all"):
        chosen = first.dtype.startswith(_WHOLE) or (first.dtype == "bool" and _is_choice(events[:place], first))
        return (name == "any", "present" if name == "any" else "others") if chosen else None
    if name in _SIGNS and len(event.args) == 2 and first.dtype.startswith(_WHOLE):
        truth = presence(_SIGNS[name], event.args[1])
        return None if truth is None else (truth, "present")
    if name in ("eq", "ne") and "float" in first.dtype and _is_constant(events[:place], event.args[1]):
        return name == "ne", "differ"
    return None


def _is_constant(events: Sequence[Event], value: object) -> bool:
    """Whether an operand is a number, or a tensor of the program's own numbers as they were written."""
    if not isinstance(value, Ref):
        return isinstance(value, int | float)
    place = _made(events, value)
    if place is not None:
        return _name(events[place]) in _COPIES and _is_constant(events[:place], refs_in(events[place].args)[0])
    return any(
        event.op == "constant" and value.storage in {one.storage for one in refs_in(event.outs)} for event in events
    )


def _is_choice(events: Sequence[Event], mask: Ref) -> bool:
    """Whether a mask says which whole numbers are equal to something, or is one that the program is given."""
    place = _made(events, mask)
    if place is None:
        return True
    event, operands = events[place], refs_in(events[place].args)
    name = _name(event)
    if name in ("eq", "ne"):
        return all(ref.dtype.startswith((*_WHOLE, "bool")) for ref in operands)
    return name in _KEEP_FLAGS and all(ref.dtype == "bool" and _is_choice(events[:place], ref) for ref in operands)


def _made(events: Sequence[Event], ref: Ref) -> int | None:
    """The call that wrote what a tensor shows; None for what comes from outside."""
    for place in range(len(events) - 1, -1, -1):
        event = events[place]
        if isinstance(event.op, str):
            continue
        written = {one.storage for one in event.written}
        fresh = {one.storage for one in refs_in(event.outs)} - {
            one.storage for one in refs_in((event.args, event.kwargs))
        }
        if ref.storage in written | fresh:
            return place
    return None


def _name(event: Event) -> str:
    return "" if event.kind is None else event.kind.short_name.removesuffix("_")
