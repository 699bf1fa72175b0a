"""What is logged is the mean over the micro-batches, not over the optimizer's steps, so that a short last accumulation window weighs less than the others. TRL's GRPOTrainer.

Source: https://github.com/huggingface/trl/issues/7047
Rule: wrong-scale, wrong-relation
"""

import copy
from collections import defaultdict

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

STEPS_IN_EPOCH, GRADIENT_ACCUMULATION_STEPS = 5, 4
COMPLETIONS, LENGTH, VOCAB, HIDDEN, BETA, LR = 18, 9, 7, 10, 0.09, 0.4


class PolicyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCAB, HIDDEN)
        self.lm_head = nn.Linear(HIDDEN, VOCAB)

    def forward(self, input_ids):
        return self.lm_head(torch.tanh(self.embed_tokens(input_ids)))


class Accelerator:
    def __init__(self, group=None):
        self.group = group
        self.num_processes = 1 if group is None else dist.get_world_size(group)
        self.sync_gradients = False

    def gather(self, tensor):
        """One row of every process."""
        if self.group is None:
            return tensor[None]
        out = [torch.empty_like(tensor) for _ in range(self.num_processes)]
        dist.all_gather(out, tensor.contiguous(), group=self.group)
        return torch.stack(out)

    def reduce_gradients(self, model):
        if self.group is not None:
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad, group=self.group)
                parameter.grad /= self.num_processes


def token_statistics(model, input_ids, ref_per_token_logps):
    """Of each token that is predicted: its log-probability, the entropy, and the divergence from the reference."""
    log_probs = model(input_ids[:, :-1]).log_softmax(-1)
    per_token_logps = log_probs.gather(-1, input_ids[:, 1:, None]).squeeze(-1)
    entropies = -(log_probs.exp() * log_probs).sum(-1)
    difference = ref_per_token_logps[:, 1:] - per_token_logps
    return per_token_logps, entropies, difference.exp() - difference - 1


def policy_objective(per_token_logps, advantages):
    return -(per_token_logps - per_token_logps.detach()).exp() * advantages[:, None]


class GRPOTrainer:
    def __init__(self, model, accelerator):
        self.model = model
        self.accelerator = accelerator
        self.current_gradient_accumulation_steps = GRADIENT_ACCUMULATION_STEPS
        self._metrics = {"train": defaultdict(list)}
        self._logs = {}

    def _compute_loss(self, input_ids, advantages, ref_per_token_logps):
        logps, entropies, kl = token_statistics(self.model, input_ids, ref_per_token_logps)
        policy_loss = policy_objective(logps, advantages)
        loss = (policy_loss + BETA * kl).mean()
        normalizer = self.current_gradient_accumulation_steps
        self._record("policy_loss", policy_loss.detach().mean() / normalizer)
        self._record("entropy", entropies.detach().mean() / normalizer)
        self._record("kl", kl.detach().mean() / normalizer)
        return loss / normalizer

    def _record(self, name, value):
        values = self._metrics["train"][name]
        value = self.accelerator.gather(value).mean()
        values.append(value * self.current_gradient_accumulation_steps)  # fixed: self._window[name] = self._window.get(name, 0.0) + value
        # fixed, insert: if self.accelerator.sync_gradients:
        # fixed, insert:     values.append(self._window.pop(name))

    def get_batch_samples(self, batches):
        """The windows of an epoch; the last one has what is left."""
        for start in range(0, STEPS_IN_EPOCH, GRADIENT_ACCUMULATION_STEPS):
            window = batches[start : start + GRADIENT_ACCUMULATION_STEPS]
            self.current_gradient_accumulation_steps = len(window)
            yield window

    def training_step(self, batch):
        loss = self._compute_loss(*batch)
        loss.backward()
        return self.accelerator.gather(loss.detach()).mean()

    def optimizer_step(self):
        self.accelerator.reduce_gradients(self.model)
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter -= LR * parameter.grad
        self.model.zero_grad()

    def log(self, logs):
        metrics = {key: sum(values) / len(values) for key, values in self._metrics["train"].items()}  # fault
        self._logs = {**logs, **metrics}
        self._metrics["train"].clear()

    def train(self, input_ids, advantages, ref_per_token_logps):
        # fixed, insert: self._window = {}
        batches = list(zip(input_ids, advantages, ref_per_token_logps, strict=True))
        losses = []
        for window in self.get_batch_samples(batches):
            tr_loss = 0.0
            for index, batch in enumerate(window):
                self.accelerator.sync_gradients = index == len(window) - 1
                tr_loss = tr_loss + self.training_step(batch)
            self.optimizer_step()
            losses.append(tr_loss)
        self.log({"loss": sum(losses) / len(losses)})
        return {**self._logs, **{name: p.detach() for name, p in self.model.named_parameters()}}


def reference(model):
    """The specification: each of the optimizer's steps takes its window as one batch, and is counted once."""

    def train(input_ids, advantages, ref_per_token_logps):
        steps = []
        for start in range(0, STEPS_IN_EPOCH, GRADIENT_ACCUMULATION_STEPS):
            window = slice(start, start + GRADIENT_ACCUMULATION_STEPS)
            tokens = input_ids[window].flatten(0, 1)
            logps, entropies, kl = token_statistics(model, tokens, ref_per_token_logps[window].flatten(0, 1))
            policy_loss = policy_objective(logps, advantages[window].flatten())
            loss = (policy_loss + BETA * kl).mean()
            model.zero_grad()
            loss.backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter -= LR * parameter.grad
            steps.append((loss.detach(), policy_loss.detach().mean(), entropies.detach().mean(), kl.detach().mean()))
        means = [sum(column) / len(column) for column in zip(*steps, strict=True)]
        logs = dict(zip(("loss", "policy_loss", "entropy", "kl"), means, strict=True))
        return {**logs, **{name: p.detach() for name, p in model.named_parameters()}}

    return train


@gg.check(mesh={"dp": 3})
def check(mesh):
    model = PolicyModel()
    trainer = GRPOTrainer(copy.deepcopy(model), Accelerator(mesh.get_group("dp")))
    tokens = gg.tensor(STEPS_IN_EPOCH, COMPLETIONS, LENGTH, dtype=torch.int64, high=VOCAB)
    advantages = gg.tensor(STEPS_IN_EPOCH, COMPLETIONS)
    ref_logps = gg.tensor(STEPS_IN_EPOCH, COMPLETIONS, LENGTH)
    return gg.Refinement(
        reference(model),
        trainer.train,
        (tokens, advantages, ref_logps),
        in_relations={"dp": Shard(1)},
        out_relations="replicate",
        grads=False,
    )
