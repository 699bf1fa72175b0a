"""Records a small check of our own in the worker before any child is forked, so that no child pays for what torch and Python do on first use."""

from __future__ import annotations

import gc
import importlib
import marshal
import pickle
import time
from collections.abc import Iterable
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812 - the name everybody uses
from torch import nn
from torch.distributed.tensor import DTensor, Replicate, Shard

from graphguard.ir import Capture, CheckRef, Span, capture_to_json
from graphguard.ir.codec import capture_summary
from graphguard.trace.claims.api import Refinement, tensor
from graphguard.trace.process.limits import Limits
from graphguard.trace.programs.assembly import assembled
from graphguard.trace.programs.importing import Target, declared_in_text, reference
from graphguard.trace.programs.job import SPECIFICATION, Job
from graphguard.trace.programs.ranks import record_alone
from graphguard.trace.source.sources import ProjectFiles, meaning_digest

# What children use and the rehearsal itself does not reach.
_LOADED = ("graphguard.confirm.check",)
_RANKS = 2


class _Sum(torch.autograd.Function):
    """The sum over the ranks, as programs that place their collectives by hand write it."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Any) -> torch.Tensor:
        ctx.group = group
        y = x.clone()
        dist.all_reduce(y, group=group)
        return y

    @staticmethod
    def backward(_: Any, *grads: torch.Tensor) -> Any:
        return grads[0], None


class _Sample(nn.Module):
    """A little of everything that models are made of."""

    def __init__(self, mesh: Any = None) -> None:
        super().__init__()
        self.mesh = mesh
        self.embedding = nn.Embedding(8, 4)
        self.norm = nn.LayerNorm(4)
        self.linear = nn.Linear(4, 4)
        self.register_buffer("mask", torch.tril(torch.ones(2, 2)))

    def forward(self, tokens: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        x = self.linear(self.norm(self.embedding(tokens)))
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) + rows
        scores = (x @ x.transpose(-1, -2)).masked_fill(self.mask == 0, float("-inf")).softmax(-1)
        y = torch.cat([F.silu(scores @ x), F.gelu(x)], -1).chunk(2, -1)[0]
        heads = y.unflatten(-1, (2, 2)).transpose(1, 2)
        y = F.scaled_dot_product_attention(heads, heads, heads, is_causal=True).transpose(1, 2).flatten(2)
        if self.mesh is not None:
            y = _Sum.apply(y, self.mesh.get_group()) / self.mesh.size()
            y = y + DTensor.from_local(y, self.mesh, [Shard(0)]).redistribute(self.mesh, [Replicate()]).to_local()[:1]
        return F.cross_entropy(y.reshape(-1, 4), tokens.reshape(-1) % 4)


def _check(mesh: Any) -> Refinement:
    inputs = (tensor(1, 2, dtype=torch.int64), tensor(1, 2, 4))
    return Refinement(spec=_Sample(), impl=_Sample(mesh), inputs=inputs)


class _Told:
    """A link to nobody: what the specification tells is what the ranks are answered."""

    outputs = b""

    def tell(self, message: dict[str, Any]) -> None:
        self.outputs = message["value"]

    def ask(self, _: dict[str, Any]) -> dict[str, Any]:
        return {"value": self.outputs}


def rehearse() -> None:
    """Record the sample; forget everything but what was loaded."""
    for name in _LOADED:
        importlib.import_module(name)
    record_sample()
    settle()


def record_sample() -> Capture:
    """The sample as a check: its specification and its ranks, recorded in this process."""
    link = _Told()
    programs = [_record(program, link) for program in (SPECIFICATION, *range(_RANKS))]
    _Kept.outputs, _Kept.programs = link.outputs, programs
    return _put_together(programs)


def rehearse_program() -> None:
    """Read and import this file once more, and record one rank of the sample: this process then has what it takes to do that with others."""
    declared_in_text(Target(__file__, ""))
    again = ModuleType(f"{__name__}_again")
    exec(ProjectFiles({}).compile(__file__), again.__dict__)  # noqa: S102 - our own text
    link = _Told()
    link.outputs = _Kept.outputs
    if not link.outputs:
        _record(SPECIFICATION, link)
    _record(0, link)
    gc.collect()


def rehearse_assembly() -> None:
    """Compile this file, and put the sample together: this process then has what it takes to do that with any programs."""
    files = ProjectFiles({})
    meaning_digest(files.text(__file__))
    marshal.dumps(files.compile(__file__))
    reference(Target(__file__, ""), "")
    if _Kept.programs:
        _put_together(_Kept.programs)
    gc.collect()


class _Kept:
    """What the sample was when this process, or the one that forked it, recorded it."""

    outputs: bytes = b""
    programs: tuple[bytes, ...] | list[bytes] = ()


def _job() -> Job:
    place = CheckRef("rehearsal", _check.__name__, Span(__file__, _check.__code__.co_firstlineno))
    return Job(_check, {"a": _RANKS}, place, "", Limits(), time.monotonic(), learn=lambda _: None)


def _record(program: int, link: _Told) -> bytes:
    return pickle.dumps(record_alone(_job(), program, {}, link), pickle.HIGHEST_PROTOCOL)


def _put_together(programs: Iterable[bytes]) -> Capture:
    specification, *ranks = [pickle.loads(program) for program in programs]  # noqa: S301 - our own
    capture = assembled(_job(), specification, ranks)
    capture_to_json(capture)
    capture_summary(capture)
    return capture


def settle() -> None:
    """Forget what is not needed and have the collector leave the rest alone: children share memory that nobody writes to."""
    gc.collect()
    gc.freeze()
