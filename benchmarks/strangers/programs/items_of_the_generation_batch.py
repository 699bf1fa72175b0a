"""Completions are generated for several optimizer steps at once; a step's loss is divided by the tokens of all of them, on all processes, and not by those of the step's own accumulation window. TRL's GRPOTrainer.

Source: https://github.com/huggingface/trl/pull/6024
Rule: wrong-scale, wrong-relation
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

FEATURES, HIDDEN, VOCAB, COMPLETION = 5, 7, 9, 6
# tokens of each completion; every process has eight of them, for two optimizer steps
LENGTHS = (6, 2, 1, 3, 5, 4, 2, 1, 6, 6, 3, 2, 1, 4, 2, 5, 3, 1, 2, 6, 4, 5, 5, 3)
SAMPLES, PROCESSES = len(LENGTHS), 3


@dataclass(frozen=True)
class GRPOConfig:
    per_device_train_batch_size: int = 2
    gradient_accumulation_steps: int = 2
    steps_per_generation: int = 4
    num_generations: int = 4
    epsilon: float = 0.2
    learning_rate: float = 2.0
    loss_type: str = "dapo"


class Accelerator:
    def __init__(self, group):
        self.group = group
        self.num_processes, self.process_index = dist.get_world_size(group), dist.get_rank(group)

    def gather(self, tensor):
        """Of all processes, along the first dim; a number becomes a vector."""
        tensor = tensor[None] if tensor.ndim == 0 else tensor
        gathered = [torch.empty_like(tensor) for _ in range(self.num_processes)]
        dist.all_gather(gathered, tensor.contiguous(), group=self.group)
        return torch.cat(gathered)

    def reduce_gradients(self, model):
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG, group=self.group)


class Policy(nn.Module):
    def __init__(self, up, down):
        super().__init__()
        self.up, self.down = nn.Parameter(up.detach().clone()), nn.Parameter(down.detach().clone())

    def forward(self, features, completion_ids):
        """Each token's log-probability."""
        log_probs = (torch.tanh(features @ self.up) @ self.down).log_softmax(-1)
        return log_probs.gather(-1, completion_ids[..., None])[..., 0]


def mask_of(lengths):
    return (torch.arange(COMPLETION) < torch.tensor(lengths)[:, None]).float()


def group_advantages(rewards, num_generations):
    """Completions of one prompt follow one another."""
    groups = rewards.unflatten(0, (-1, num_generations))
    return (groups - groups.mean(1, keepdim=True)).flatten()


def clipped_loss(per_token_logps, old_per_token_logps, advantages, epsilon):
    coef_1 = (per_token_logps - old_per_token_logps).exp()
    coef_2 = coef_1.clamp(1 - epsilon, 1 + epsilon)
    return -torch.min(coef_1 * advantages[:, None], coef_2 * advantages[:, None])


def split_tensor_dict(tensor_dict, num_chunks):
    """Tensors are cut along the first dim; a number goes into every chunk."""
    chunks = {key: [value] * num_chunks if value.ndim == 0 else value.chunk(num_chunks) for key, value in tensor_dict.items()}
    return [{key: parts[index] for key, parts in chunks.items()} for index in range(num_chunks)]


class GRPOTrainer:
    def __init__(self, model, args, accelerator):
        self.model, self.args, self.accelerator = model, args, accelerator
        self._step = 0
        self._buffered_inputs = None
        self.losses = []

    def _generate_and_score_completions(self, inputs):
        own = self.args.per_device_train_batch_size * self.args.steps_per_generation
        first = self.accelerator.process_index * own
        completion_mask = mask_of(LENGTHS[first : first + own])
        rewards = self.accelerator.gather(inputs["rewards"])
        advantages = group_advantages(rewards, self.args.num_generations)[first : first + own]
        num_items_in_batch = self.accelerator.gather(completion_mask.sum()).sum()  # fixed: windows = completion_mask.unflatten(0, (-1, self.args.per_device_train_batch_size * self.args.gradient_accumulation_steps))
        # fixed, insert: items = self.accelerator.gather(windows.sum((1, 2))[None]).sum(0)
        # fixed, insert: num_items_in_batch = items.repeat_interleave(self.args.gradient_accumulation_steps)
        return {
            "features": inputs["features"],
            "completion_ids": inputs["completion_ids"],
            "completion_mask": completion_mask,
            "old_per_token_logps": inputs["sampling_logps"],
            "advantages": advantages,
            "num_items_in_batch": num_items_in_batch,
        }

    def _prepare_inputs(self, generation_batch):
        """One slice of what was generated, which lasts for some steps."""
        if self._step % self.args.steps_per_generation == 0:
            generated = self._generate_and_score_completions(generation_batch)
            self._buffered_inputs = split_tensor_dict(generated, self.args.steps_per_generation)
        inputs = self._buffered_inputs[self._step % self.args.steps_per_generation]
        self._step += 1
        return inputs

    def _compute_loss(self, inputs):
        mask = inputs["completion_mask"]
        per_token_logps = self.model(inputs["features"], inputs["completion_ids"])
        per_token_loss = clipped_loss(
            per_token_logps, inputs["old_per_token_logps"], inputs["advantages"], self.args.epsilon
        )
        if self.args.loss_type == "grpo":
            loss = ((per_token_loss * mask).sum(-1) / mask.sum(-1)).mean()
            return loss / self.args.gradient_accumulation_steps
        if self.args.loss_type == "dr_grpo":
            loss = (per_token_loss * mask).sum() / mask.numel()
            return loss / self.args.gradient_accumulation_steps
        normalizer = inputs["num_items_in_batch"].reshape(()) / self.accelerator.num_processes  # near
        return (per_token_loss * mask).sum() / normalizer

    @torch.no_grad()
    def _optimizer_step(self):
        self.accelerator.reduce_gradients(self.model)
        for parameter in self.model.parameters():
            parameter.sub_(self.args.learning_rate * parameter.grad)
            parameter.grad = None

    def train(self, generation_batch):
        for _ in range(self.args.steps_per_generation // self.args.gradient_accumulation_steps):
            step_loss = torch.zeros(())
            for _ in range(self.args.gradient_accumulation_steps):
                loss = self._compute_loss(self._prepare_inputs(generation_batch))
                loss.backward()
                step_loss = step_loss + loss.detach()
            self._optimizer_step()
            self.losses.append(self.accelerator.gather(step_loss).mean())


def spec(features, completion_ids, sampling_logps, rewards, up, down):
    """Each step's loss is a mean over its tokens."""
    args, model, losses = GRPOConfig(), Policy(up, down), []
    advantages = group_advantages(rewards, args.num_generations)
    windows = args.steps_per_generation // args.gradient_accumulation_steps
    for window in range(windows):
        data = (features, completion_ids, sampling_logps, advantages, mask_of(LENGTHS))
        x, ids, old, adv, mask = (t.unflatten(0, (PROCESSES, windows, -1))[:, window].flatten(0, 1) for t in data)
        loss = (clipped_loss(model(x, ids), old, adv, args.epsilon) * mask).sum() / mask.sum()
        grads = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for parameter, grad in zip(model.parameters(), grads, strict=True):
                parameter.sub_(args.learning_rate * grad)
        losses.append(loss.detach())
    return {"losses": torch.stack(losses), "up": model.up.detach(), "down": model.down.detach()}


def train(group):
    def run(features, completion_ids, sampling_logps, rewards, up, down):
        batch = {"features": features, "completion_ids": completion_ids, "sampling_logps": sampling_logps, "rewards": rewards}
        trainer = GRPOTrainer(Policy(up, down), GRPOConfig(), Accelerator(group))
        trainer.train(batch)
        return {"losses": torch.stack(trainer.losses), "up": trainer.model.up.detach(), "down": trainer.model.down.detach()}

    return run


@gg.check(mesh={"dp": PROCESSES})
def check(mesh):
    batch = (
        gg.tensor(SAMPLES, COMPLETION, FEATURES),
        gg.tensor(SAMPLES, COMPLETION, dtype=torch.int64, low=0, high=VOCAB),
        gg.tensor(SAMPLES, COMPLETION),
        gg.tensor(SAMPLES),
    )
    weights = (gg.tensor(FEATURES, HIDDEN), gg.tensor(HIDDEN, VOCAB))
    relations = ({"dp": Shard(0)},) * len(batch) + ({},) * len(weights)
    impl = train(mesh.get_group("dp"))
    return gg.Refinement(spec, impl, batch + weights, in_relations=relations, out_relations="replicate", grads=False)
