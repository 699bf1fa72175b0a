"""Megatron's mappings: collectives that know their gradients, over one tensor-parallel group that is set up once."""

import torch
import torch.distributed as dist

_GROUP = None


def initialize_model_parallel(group):
    global _GROUP
    _GROUP = group


def get_tensor_model_parallel_group():
    return _GROUP


def get_tensor_model_parallel_world_size():
    return dist.get_world_size(_GROUP)


def get_tensor_model_parallel_rank():
    return dist.get_rank(_GROUP)


def _reduce(x):
    x = x.contiguous().clone()
    dist.all_reduce(x, group=get_tensor_model_parallel_group())
    return x


def _gather(x, dim):
    parts = [torch.empty_like(x) for _ in range(get_tensor_model_parallel_world_size())]
    dist.all_gather(parts, x.contiguous(), group=get_tensor_model_parallel_group())
    return torch.cat(parts, dim=dim)


def _split(x, dim):
    return x.chunk(get_tensor_model_parallel_world_size(), dim=dim)[get_tensor_model_parallel_rank()].contiguous()


def _reduce_scatter_first(x):
    ranks = get_tensor_model_parallel_world_size()
    out = x.new_empty(x.shape[0] // ranks, *x.shape[1:])
    dist.reduce_scatter_tensor(out, x.contiguous(), group=get_tensor_model_parallel_group())
    return out


class _CopyToModelParallelRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return _reduce(grad)


class _ReduceFromModelParallelRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return _reduce(x)

    @staticmethod
    def backward(ctx, grad):
        return grad


class _ScatterToSequenceParallelRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return _split(x, 0)

    @staticmethod
    def backward(ctx, grad):
        return _gather(grad, 0)


class _GatherFromSequenceParallelRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, tensor_parallel_output_grad):
        ctx.tensor_parallel_output_grad = tensor_parallel_output_grad
        return _gather(x, 0)

    @staticmethod
    def backward(ctx, grad):
        if ctx.tensor_parallel_output_grad:
            return _reduce_scatter_first(grad), None
        return _split(grad, 0), None


class _ReduceScatterToSequenceParallelRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return _reduce_scatter_first(x)

    @staticmethod
    def backward(ctx, grad):
        return _gather(grad, 0)


def copy_to_tensor_model_parallel_region(x):
    return _CopyToModelParallelRegion.apply(x)


def reduce_from_tensor_model_parallel_region(x):
    return _ReduceFromModelParallelRegion.apply(x)


def scatter_to_sequence_parallel_region(x):
    return _ScatterToSequenceParallelRegion.apply(x)


def gather_from_sequence_parallel_region(x, tensor_parallel_output_grad=True):
    return _GatherFromSequenceParallelRegion.apply(x, tensor_parallel_output_grad)


def reduce_scatter_to_sequence_parallel_region(x):
    return _ReduceScatterToSequenceParallelRegion.apply(x)
