"""What constants become in collectives: exactly what all ranks together make of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.utils._python_dispatch import _disable_current_modes

from graphguard.ir.graph import Constant
from graphguard.trace.calls.collectives import Call
from graphguard.trace.calls.constants import LARGEST, Constants, constant_of
from graphguard.trace.calls.events import Ref
from graphguard.trace.calls.geometry import geometry_of
from graphguard.trace.calls.lockstep import Ledger
from graphguard.trace.graph.layouts import order_of

_ROOTED = {"broadcast", "scatter", "recv"}


def communicate(ledger: Ledger, call: Call, constants: Constants) -> None:
    """Carry what is known of a collective's operands to its results, by way of the other ranks' offers."""
    name = ledger.name(call.kind, (call.group, call.earlier), call.peer, call.tag)
    if call.kind == "barrier":
        return
    deciding = (call.peer,) if call.kind in _ROOTED else call.group
    if call.kind == "send":
        deciding = (ledger.rank,)
    mine = ledger.rank in deciding
    knowledge = constants.knowledge(call.reads) if mine else "known"
    if knowledge == "unwritten" or (
        knowledge == "known" and not all(_small(tensor) for tensor in (*call.reads, *call.writes))
    ):
        knowledge = "unknown"
    if knowledge == "known" and mine:
        ledger.offer(name, deciding, tuple(constant_of(_lying(constants.real(t), t, call.given)) for t in call.reads))
    elif mine:
        ledger.go_past(name)
    answers: Mapping[int, tuple[Constant, ...]] | None = None
    if knowledge == "known" and mine and set(deciding) == {ledger.rank}:
        answers = {ledger.rank: ledger.offers[-1].operands}  # nobody else has a part in it
    elif knowledge == "known":
        answers = ledger.answer(name, deciding)
    if knowledge == "known" and answers is not None:
        with unset_fake_temporarily(), torch.no_grad():
            operands = {rank: [tensor_of(constant) for constant in row] for rank, row in answers.items()}
            results = _results(call, ledger.rank, operands)
            for tensor, value in zip(call.writes, results, strict=True):
                constants.set(tensor, _laid_out(value.to(tensor.dtype), tensor, call.taken))
        return
    constants.forget(call.writes, pending=knowledge != "unknown")


def _lying(value: torch.Tensor, tensor: torch.Tensor, way: str) -> torch.Tensor:
    """The elements of a tensor as they are given away: in the order of memory."""
    order = order_of(Ref(0, geometry_of(tensor)), way)
    with _disable_current_modes():
        return value.permute(order).reshape(value.shape) if order else value


def _laid_out(value: torch.Tensor, tensor: torch.Tensor, way: str) -> torch.Tensor:
    """What comes, as a tensor shows it."""
    shape, order = tuple(tensor.shape), order_of(Ref(0, geometry_of(tensor)), way)
    if not order:
        return value.reshape(shape)
    lying = value.reshape([shape[dim] for dim in order])
    return lying.permute([order.index(dim) for dim in range(len(order))])


def tensor_of(constant: Constant) -> torch.Tensor:
    """The real tensor of a constant that carries its data."""
    assert constant.data is not None
    dtype = getattr(torch, constant.type.dtype)
    shape = [size for size in constant.type.shape if isinstance(size, int)]
    if not constant.data:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(bytearray(constant.data), dtype=dtype).reshape(shape)


def _small(tensor: Any) -> bool:
    return isinstance(tensor, FakeTensor) and all(type(n) is int for n in tensor.shape) and tensor.numel() <= LARGEST


def _results(call: Call, rank: int, operands: dict[int, list[torch.Tensor]]) -> list[torch.Tensor]:
    """What ``rank`` receives."""
    me = call.group.index(rank)
    if call.kind == "all_reduce":
        return [_reduce(call.reduce, [operands[m][0] for m in call.group])]
    if call.kind == "reduce":
        whole = _reduce(call.reduce, [operands[m][0] for m in call.group])
        return [whole if rank == call.peer else operands[rank][0]]
    if call.kind in ("broadcast", "recv"):
        return [operands[call.peer][0]]
    if call.kind in ("all_gather", "gather"):
        parts = [operands[m][0] for m in call.group]
        if call.kind == "gather" and rank != call.peer:
            return []
        return [torch.cat([part.reshape(-1) for part in parts])] if call.flat else parts
    if call.kind == "scatter":
        return [operands[call.peer][me]]
    if call.kind == "reduce_scatter":
        return [_reduce(call.reduce, [_pieces(call, operands[m])[me] for m in call.group])]
    if call.kind == "all_to_all":
        parts = [_pieces(call, operands[m])[me] for m in call.group]
        return [torch.cat([part.reshape(-1) for part in parts])] if call.flat else parts
    return []


def _pieces(call: Call, reads: list[torch.Tensor]) -> list[torch.Tensor]:
    if not call.flat:
        return reads
    if call.read_splits:
        return list(reads[0].split(list(call.read_splits)))
    return (
        list(reads[0].reshape(len(call.group), -1).unbind())
        if call.kind == "reduce_scatter"
        else list(reads[0].chunk(len(call.group)))
    )


def _reduce(kind: str, parts: list[torch.Tensor]) -> torch.Tensor:
    stacked = torch.stack([part.reshape(-1) for part in parts])
    kind, _, factor = kind.partition(":")
    if kind == "premul_sum":
        return (stacked * float(factor)).sum(0)
    if kind == "sum":
        return stacked.sum(0)
    if kind == "avg":
        return stacked.sum(0) / len(parts)
    if kind == "product":
        return stacked.prod(0)
    if kind == "min":
        return stacked.amin(0)
    if kind == "max":
        return stacked.amax(0)
    raise ValueError(f"no reduction {kind!r}")
