"""ZeRO updates a partition of each group of parameters and puts it back into the whole; the number of the partition is left over from another loop, where it was the experts'. DeepSpeed.

Source: https://github.com/deepspeedai/DeepSpeed/pull/2058
Rule: wrong-shard, wrong-relation
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Replicate, Shard

import graphguard as gg

SAMPLES, WIDTH, HIDDEN, EXPERTS, OUT, LR = 28, 5, 6, 2, 3, 0.25


class ExpertParallel:
    """The ranks that have one expert each; without a group, one has all."""

    def __init__(self, group=None):
        self.group = group
        self.size = 1 if group is None else dist.get_world_size(group)
        self.first_expert = 0 if group is None else dist.get_rank(group)

    def gather(self, x):
        out = torch.empty(self.size * x.shape[0], *x.shape[1:])
        dist.all_gather_into_tensor(out, x.contiguous(), group=self.group)
        return out

    def scatter(self, x):
        out = torch.empty(x.shape[0] // self.size, *x.shape[1:])
        dist.reduce_scatter_tensor(out, x.contiguous(), group=self.group)
        return out


class _Dispatch(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, ep):
        ctx.ep = ep
        return ep.gather(x)

    @staticmethod
    def backward(ctx, grad):
        return ctx.ep.scatter(grad), None


class _Combine(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, ep):
        ctx.ep = ep
        return ep.scatter(x)

    @staticmethod
    def backward(ctx, grad):
        return ctx.ep.gather(grad), None


class Model(nn.Module):
    """A dense layer, then experts that all tokens go to, weighted by a gate."""

    def __init__(self, up, bias, gate, experts, ep):
        super().__init__()
        self.ep = ep
        tensors = {"up": up, "bias": bias, "gate": gate, "experts": experts}
        for name, tensor in tensors.items():
            setattr(self, name, nn.Parameter(tensor.detach().clone()))
        self.experts.allreduce = False

    def forward(self, x):
        hidden = torch.tanh(x @ self.up.t() + self.bias)
        probs = (hidden @ self.gate.t()).softmax(-1)
        if self.ep.group is not None:
            hidden, probs = _Dispatch.apply(hidden, self.ep), _Dispatch.apply(probs, self.ep)
        outs = [probs[:, self.ep.first_expert + i, None] * (hidden @ w.t()) for i, w in enumerate(self.experts)]
        out = torch.stack(outs).sum(0)
        return out if self.ep.group is None else _Combine.apply(out, self.ep)


def loss_fn(output, target):
    return (output - target).square().sum(-1).mean()


class ZeroOptimizer:
    """Parameters in flat groups, one partition for each rank that has the same ones."""

    def __init__(self, parameters, dp_process_group, expert_dp_process_group):
        parameters = list(parameters)
        self.dp_world_size = dist.get_world_size(dp_process_group)
        self.param_groups = [[p for p in parameters if not self.is_moe(p)], [p for p in parameters if self.is_moe(p)]]
        self.real_dp_process_group = [dp_process_group, expert_dp_process_group]
        self.partitioned_params, self.single_partition_of_master_weights = [], []
        for i, group in enumerate(self.param_groups):
            flat = self.flatten([parameter.detach() for parameter in group], i)
            partition_id = dist.get_rank(self.real_dp_process_group[i])
            self.partitioned_params.append(list(flat.chunk(dist.get_world_size(self.real_dp_process_group[i]))))
            self.single_partition_of_master_weights.append(self.partitioned_params[i][partition_id].clone())

    @staticmethod
    def is_moe(parameter):
        return not getattr(parameter, "allreduce", True)

    def flatten(self, tensors, i):
        """With zeros at the end, so that partitions are of one size."""
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        return torch.cat([flat, torch.zeros(-flat.numel() % dist.get_world_size(self.real_dp_process_group[i]))])

    def average_gradients(self, i):
        """The own partition of their mean over all data-parallel ranks."""
        grad = self.flatten([parameter.grad for parameter in self.param_groups[i]], i) / self.dp_world_size
        own = torch.empty_like(self.single_partition_of_master_weights[i])
        dist.reduce_scatter_tensor(own, grad, group=self.real_dp_process_group[i])
        return own

    def all_gather_partitions(self, i):
        group = self.real_dp_process_group[i]
        flat = torch.empty(sum(partition.numel() for partition in self.partitioned_params[i]))
        dist.all_gather_into_tensor(flat, self.partitioned_params[i][dist.get_rank(group)], group=group)  # near
        return flat

    @torch.no_grad()
    def step(self):
        for i, master in enumerate(self.single_partition_of_master_weights):
            partition_id = dist.get_rank(self.real_dp_process_group[i])
            assert master.numel() == self.partitioned_params[i][partition_id].numel()
            master.sub_(LR * self.average_gradients(i))

        for i, master in enumerate(self.single_partition_of_master_weights):
            # fixed, insert: partition_id = dist.get_rank(self.real_dp_process_group[i])
            self.partitioned_params[i][partition_id].copy_(master)  # fault

        for i, group in enumerate(self.param_groups):
            parts = self.all_gather_partitions(i)[: sum(p.numel() for p in group)].split([p.numel() for p in group])
            for parameter, part in zip(group, parts, strict=True):
                parameter.copy_(part.view_as(parameter))


def named(model):
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def spec(x, target, *tensors):
    model = Model(*tensors, ExpertParallel())
    loss_fn(model(x), target).backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.sub_(LR * parameter.grad)
    return named(model)


def train_step(ep_group, expert_dp_group):
    def impl(x, target, *tensors):
        model = Model(*tensors, ExpertParallel(ep_group))
        optimizer = ZeroOptimizer(model.parameters(), dist.group.WORLD, expert_dp_group)
        loss_fn(model(x), target).backward()
        optimizer.step()
        return named(model)

    return impl


@gg.check(mesh={"edp": 2, "ep": 2})
def check(mesh):
    batch = (gg.tensor(SAMPLES, WIDTH), gg.tensor(SAMPLES, OUT))
    dense = (gg.tensor(HIDDEN, WIDTH), gg.tensor(HIDDEN), gg.tensor(EXPERTS, HIDDEN))
    samples, whole = {"edp": Shard(0), "ep": Shard(0)}, {"edp": Replicate(), "ep": Replicate()}
    experts = {"edp": Replicate(), "ep": Shard(0)}
    return gg.Refinement(
        spec,
        train_step(mesh.get_group("ep"), mesh.get_group("edp")),
        (*batch, *dense, gg.tensor(EXPERTS, OUT, HIDDEN)),
        in_relations=(samples, samples, whole, whole, whole, experts),
        out_relations=(whole, whole, whole, experts),
        grads=False,
    )
