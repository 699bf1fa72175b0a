"""Collectives that PyTorch refuses: lists, splits and flat tensors that do not fit the number of ranks.

The world that a rank is recorded in exchanges nothing, so it would let them pass.  The rules are those of ``torch.distributed`` and of
``c10d::checkSplitSizes`` (torch/csrc/distributed/c10d/Utils.hpp).
"""

from __future__ import annotations

from math import prod
from typing import Final

from graphguard.trace.calls.collectives import Call
from graphguard.trace.calls.events import Ref

_LISTED_READS: Final = frozenset(("reduce_scatter", "all_to_all", "scatter"))
_LISTED_WRITES: Final = frozenset(("all_gather", "all_to_all", "gather"))


def refused(call: Call) -> str | None:
    """Why PyTorch raises an error here, for the user; None where it does not, or where sizes are not known."""
    if call.kind == "all_to_all" and call.flat:
        sides = ("takes", call.reads[0], call.read_splits), ("fills", call.writes[0], call.write_splits)
        reasons = (_badly_split(call, *side) for side in sides)
        return next((reason for reason in reasons if reason is not None), None)
    if call.flat:
        return _wrong_total(call)
    for refs, listed, verb in ((call.reads, _LISTED_READS, "takes"), (call.writes, _LISTED_WRITES, "fills")):
        if call.kind in listed and refs and len(refs) != len(call.group):
            return (
                f"{call.kind} {verb} one tensor for each of the {len(call.group)} ranks of its group; found {len(refs)}"
            )
    return None


def _badly_split(call: Call, verb: str, ref: Ref, splits: tuple[object, ...]) -> str | None:
    members, rows = len(call.group), ref.shape[0]
    if splits and len(splits) != members:
        return (
            f"all_to_all_single {verb} one part for each of the {members} ranks of its group; found {len(splits)} sizes"
        )
    known = [size for size in splits if isinstance(size, int)]
    if not isinstance(rows, int) or len(known) != len(splits):
        return None
    if splits and sum(known) != rows:
        return f"all_to_all_single {verb} {rows} rows, but its sizes add up to {sum(known)}"
    if not splits and rows % members:
        return f"all_to_all_single {verb} {rows} rows, which cannot be divided equally by {members} ranks"
    return None


def _wrong_total(call: Call) -> str | None:
    """One tensor that holds every rank's has as many elements as all of theirs."""
    whole, part = (call.writes, call.reads) if call.kind == "all_gather" else (call.reads, call.writes)
    found, each = _elements(whole[0]), _elements(part[0])
    if found is None or each is None or found == each * len(call.group):
        return None
    return f"{call.kind} needs a tensor of {len(call.group)} x {each} elements for its {len(call.group)} ranks; found {found}"


def _elements(ref: Ref) -> int | None:
    sizes = [size for size in ref.shape if isinstance(size, int)]
    return prod(sizes) if len(sizes) == len(ref.shape) else None
