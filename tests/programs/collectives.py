"""The autograd functions of parallel programs, as people write them."""

from typing import Any

import torch
import torch.distributed as dist


class Copy(torch.autograd.Function):
    """The identity, whose gradient is added up over the group."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Any) -> torch.Tensor:
        ctx.group = group
        return x

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        gradient = gradient.clone()
        dist.all_reduce(gradient, group=ctx.group)
        return gradient, None


class Reduce(torch.autograd.Function):
    """The sum over the group, whose gradient is the identity."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Any) -> torch.Tensor:
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient, None


class Total(Copy):
    """The sum over the group of what every rank goes on to use in its own way: the gradient is added up as well."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Any) -> torch.Tensor:
        ctx.group = group
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x


class Gather(torch.autograd.Function):
    """All parts along a dim; the gradient is the sum of every rank's, cut."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Any, dim: int) -> torch.Tensor:
        ctx.group, ctx.dim = group, dim
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, x.contiguous(), group=group)
        return torch.cat(parts, dim)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        parts = [part.contiguous() for part in gradient.chunk(dist.get_world_size(ctx.group), ctx.dim)]
        out = torch.empty_like(parts[0])
        dist.reduce_scatter(out, parts, group=ctx.group)
        return out, None, None


class Scatter(torch.autograd.Function):
    """The sum over the group, cut along a dim; the gradient is gathered."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Any, dim: int) -> torch.Tensor:
        ctx.group, ctx.dim = group, dim
        parts = [part.contiguous() for part in x.chunk(dist.get_world_size(group), dim)]
        out = torch.empty_like(parts[0])
        dist.reduce_scatter(out, parts, group=group)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        parts = [torch.empty_like(gradient) for _ in range(dist.get_world_size(ctx.group))]
        dist.all_gather(parts, gradient.contiguous(), group=ctx.group)
        return torch.cat(parts, ctx.dim), None, None


class Exchange(torch.autograd.Function):
    """Rows to and from every rank, as many as the splits say; the gradient takes the way back."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Any, received: list[int], sent: list[int]) -> torch.Tensor:
        ctx.group, ctx.received, ctx.sent = group, received, sent
        out = x.new_empty(sum(received), *x.shape[1:])
        dist.all_to_all_single(out, x.contiguous(), received, sent, group=group)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        out = gradient.new_empty(sum(ctx.sent), *gradient.shape[1:])
        dist.all_to_all_single(out, gradient.contiguous(), ctx.sent, ctx.received, group=ctx.group)
        return out, None, None, None


class Turn(torch.autograd.Function):
    """One dim is scattered over the group and another gathered, as between sequence and heads; the gradient turns back."""

    @staticmethod
    def turned(x: torch.Tensor, group: Any, scattered: int, gathered: int) -> torch.Tensor:
        sent = [part.contiguous() for part in x.chunk(dist.get_world_size(group), scattered)]
        received = [torch.empty_like(part) for part in sent]
        dist.all_to_all(received, sent, group=group)
        return torch.cat(received, gathered)

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Any, scattered: int, gathered: int) -> torch.Tensor:
        ctx.way = (group, gathered, scattered)
        return Turn.turned(x, group, scattered, gathered)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        return Turn.turned(gradient, *ctx.way), None, None, None


def reduced(x: torch.Tensor, op: Any = dist.ReduceOp.SUM) -> torch.Tensor:
    """The sum over all ranks, or another reduction, without a gradient."""
    x = x.clone()
    dist.all_reduce(x, op=op)
    return x


def gathered(x: torch.Tensor) -> torch.Tensor:
    """Every rank's tensor, along a new first dim, without a gradient."""
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, x)
    return torch.stack(parts)
