"""Observations are normalized by running moments; each GPU's environments move its own, although one policy is trained by all. rsl_rl.

Source: https://github.com/leggedrobotics/rsl_rl/pull/226
Rule: missing-reduction, wrong-relation
"""

import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

STEPS, ENVS, OBSERVATIONS, HIDDEN, ACTIONS, EPS, LR = 3, 8, 5, 6, 2, 1e-2, 0.1


class EmpiricalNormalization(nn.Module):
    """Normalize by the mean and the variance of what has been seen."""

    def __init__(self, shape, eps=EPS, group=None):
        super().__init__()
        self.eps = eps
        self.group = group
        self.register_buffer("_mean", torch.zeros(1, shape))
        self.register_buffer("_var", torch.ones(1, shape))
        self.count = 0

    @property
    def num_gpus(self):
        return 1 if self.group is None else dist.get_world_size(self.group)

    def forward(self, x):
        return (x - self._mean) / (self._var.sqrt() + self.eps)

    @torch.no_grad()
    def update(self, x):
        count_x = x.shape[0] * self.num_gpus
        self.count += count_x
        rate = count_x / self.count
        mean_x, var_x = self._batch_moments(x)
        delta_mean = mean_x - self._mean
        self._mean = self._mean + rate * delta_mean
        self._var = self._var + rate * (var_x - self._var + delta_mean * (mean_x - self._mean))

    def _batch_moments(self, x):
        mean_x = x.mean(dim=0, keepdim=True)
        # fixed, insert: if self.group is not None:
        # fixed, insert:     dist.all_reduce(mean_x, group=self.group)
        # fixed, insert:     mean_x = mean_x / self.num_gpus
        var_x = (x - mean_x).square().mean(dim=0, keepdim=True)
        # fixed, insert: if self.group is not None:
        # fixed, insert:     dist.all_reduce(var_x, group=self.group)
        # fixed, insert:     var_x = var_x / self.num_gpus
        return mean_x, var_x


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(OBSERVATIONS, HIDDEN), nn.ELU(), nn.Linear(HIDDEN, ACTIONS))
        self.critic = nn.Linear(OBSERVATIONS, 1)

    def forward(self, obs):
        return self.actor(obs), self.critic(obs).squeeze(-1)


class PPO:
    """The update alone, with the surrogate replaced by a distance to what did well."""

    def __init__(self, policy, group=None):
        self.policy = policy
        self.group = group
        self.optimizer = torch.optim.SGD(policy.parameters(), lr=LR)

    def update(self, obs, actions, returns):
        mu, value = self.policy(obs)
        loss = (mu - actions).square().mean() + 0.7 * (value - returns).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.reduce_parameters()
        self.optimizer.step()

    def reduce_parameters(self):
        """The mean of the gradients, all in one call."""
        if self.group is None:
            return
        grads = torch.cat([p.grad.view(-1) for p in self.policy.parameters()])
        dist.all_reduce(grads, group=self.group)
        grads /= dist.get_world_size(self.group)
        offset = 0
        for p in self.policy.parameters():
            p.grad.copy_(grads[offset : offset + p.numel()].view_as(p.grad))
            offset += p.numel()


class OnPolicyRunner:
    def __init__(self, policy, group=None):
        self.obs_normalizer = EmpiricalNormalization(OBSERVATIONS, group=group)
        self.alg = PPO(policy, group)

    def learn(self, obs, actions, returns):
        for step in range(STEPS):
            self.obs_normalizer.update(obs[step])
            self.alg.update(self.obs_normalizer(obs[step]), actions[step], returns[step])
        return self.act_inference(obs[-1])

    @torch.no_grad()
    def act_inference(self, obs):
        mu, value = self.alg.policy(self.obs_normalizer(obs))
        return {"actions": mu, "values": value}


@gg.check(mesh={"dp": 2})
def check(mesh):
    policy = ActorCritic()
    impl = OnPolicyRunner(copy.deepcopy(policy), mesh.get_group("dp"))
    rollout = (gg.tensor(STEPS, ENVS, OBSERVATIONS), gg.tensor(STEPS, ENVS, ACTIONS), gg.tensor(STEPS, ENVS))
    return gg.Refinement(
        OnPolicyRunner(policy).learn,
        impl.learn,
        rollout,
        in_relations={"dp": Shard(1)},
        out_relations={"dp": Shard(0)},
        grads=False,
    )
