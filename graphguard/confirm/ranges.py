"""Which integers the leaves of a program may hold."""

from __future__ import annotations

from graphguard.ir import Capture
from graphguard.ir.lookups import implied
from graphguard.rules import kind_of


def index_ranges(capture: Capture) -> dict[str, tuple[int, int]]:
    """The range of every integer leaf: declared, else what the specification's look-ups allow, else its own extents.

    That of targets is the range of the classes; ignored ones are beside it.
    """
    known = implied(capture.spec) if capture.spec is not None else {}
    spans: dict[str, tuple[int, int]] = {}
    for leaf in capture.leaves:
        if kind_of(leaf.type.dtype) != "int":
            continue
        low, high = known.get(leaf.name, (0, max((4, *(size for size in leaf.type.shape if isinstance(size, int))))))
        if leaf.ignored is None:
            low = leaf.low if leaf.low is not None else low
            high = leaf.high if leaf.high is not None else max(high, low + 1)
        spans[leaf.name] = (low, high)
    return spans
