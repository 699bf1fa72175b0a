"""What is read instead of what, in words."""

from __future__ import annotations

from collections.abc import Mapping

from graphguard.relations.explain.differences import Difference, Place

_SHOWN = 2


def is_moved(difference: Difference) -> bool:
    """Whether all that differs is which elements of one tensor, or which positions, are read."""
    return all(
        read.found.summands is None
        and read.found.numbers is None
        and read.found.leaf == read.needed.leaf
        and len(read.found.at) == len(read.needed.at)
        for read in difference.reads
    )


def reads_text(difference: Difference, promise: str, names: Mapping[str, str]) -> str:
    """``out[2, 0] reads table[0], needs table[4]``; ``names`` are the author's for leaves.  Empty where the words for both are the same."""
    shown = difference.reads[:_SHOWN]
    index = f"[{', '.join(map(str, difference.index))}]" if difference.index else ""
    found, needed = (
        " and ".join(dict.fromkeys(_place_text(place, names) for place in places))
        for places in zip(*((read.found, read.needed) for read in shown), strict=True)
    )
    return f"{promise}{index} reads {found}, needs {needed}" if found != needed else ""


def _place_text(place: Place, names: Mapping[str, str]) -> str:
    if place.summands is not None:
        low, high = place.summands
        return f"summand {low}" if high == low + 1 else f"summands {low}..{high - 1}"
    if place.numbers is not None:
        return f"a mask of {_numbers_text(*place.numbers)}"
    at = ", ".join(":" if each is None else str(each) for each in place.at)
    if not place.leaf:
        return f"position {at}"
    name = _leaf_text(place.leaf, names)
    return f"{name}[{at}]" if at else name


def _leaf_text(leaf: str, names: Mapping[str, str]) -> str:
    """The author's name; of a draw, or of what an operator gives that nobody can follow, the operator's."""
    call, drawn, _ = leaf.partition(" drawn as ")
    if not drawn:
        return names.get(leaf, leaf)
    operator = call.partition("(")[0].removeprefix("aten.").removesuffix(".default").strip("_")
    return f"a result of {operator}"


def _numbers_text(low: int | None, high: int | None) -> str:
    """The numbers from ``low`` to below ``high``, in words where there is no end."""
    if low is None or high is None:
        return (
            f"numbers up to {high - 1}" if high is not None else "all numbers" if low is None else f"numbers from {low}"
        )
    return f"number {low}" if high == low + 1 else f"numbers {low}..{high - 1}"
