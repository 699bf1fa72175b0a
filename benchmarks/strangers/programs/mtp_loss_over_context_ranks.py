"""Context parallelism: the main loss makes good for the mean over the context's ranks, the loss of the token after the next does not. Megatron-LM's MTP.

Source: https://github.com/NVIDIA/Megatron-LM/pull/3959
Rule: wrong-scale
"""

import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

SEQUENCE, HIDDEN, VOCABULARY, NUM_MICROBATCHES, MTP_LOSS_SCALING_FACTOR = 6, 4, 7, 5, 0.3


class MTPLossAutoScaler(torch.autograd.Function):
    """Hands the hidden states through; the extra loss gets the main loss's scale as its gradient."""

    main_loss_backward_scale = 1.0

    @staticmethod
    def forward(ctx, output, mtp_loss):
        ctx.save_for_backward(mtp_loss)
        return output.clone()

    @staticmethod
    def backward(ctx, grad_output):
        (mtp_loss,) = ctx.saved_tensors
        return grad_output, torch.ones_like(mtp_loss) * MTPLossAutoScaler.main_loss_backward_scale

    @staticmethod
    def set_loss_scale(scale):
        MTPLossAutoScaler.main_loss_backward_scale = scale


class MultiTokenPredictionLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.eh_proj = nn.Linear(HIDDEN, HIDDEN, bias=False)

    def forward(self, hidden_states):
        return torch.tanh(self.eh_proj(hidden_states)) + hidden_states


class GPTModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.decoder = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.mtp = MultiTokenPredictionLayer()
        self.output_layer = nn.Linear(HIDDEN, VOCABULARY, bias=False)

    def language_model_loss(self, hidden_states, labels):
        return F.cross_entropy(self.output_layer(hidden_states), labels, reduction="none")

    def process_mtp_loss(self, hidden_states, mtp_labels):
        """The mean over the whole sequence's tokens: the own ones' share of it."""
        mtp_loss = self.language_model_loss(self.mtp(hidden_states), mtp_labels).sum() / SEQUENCE
        return MTPLossAutoScaler.apply(hidden_states, MTP_LOSS_SCALING_FACTOR * mtp_loss)

    def forward(self, decoder_input, labels, mtp_labels):
        hidden_states = torch.tanh(self.decoder(decoder_input))
        hidden_states = self.process_mtp_loss(hidden_states, mtp_labels)
        return self.language_model_loss(hidden_states, labels)


def loss_func(output_tensor):
    return output_tensor.sum() / SEQUENCE


def forward_step_calc_loss(output_tensor, cp_group_size):
    """One micro-batch's loss, as the gradients' mean over the context's ranks needs it."""
    loss = loss_func(output_tensor) * cp_group_size / NUM_MICROBATCHES
    MTPLossAutoScaler.set_loss_scale(1.0 / NUM_MICROBATCHES)  # fixed: MTPLossAutoScaler.set_loss_scale(cp_group_size / NUM_MICROBATCHES)
    return loss


class DistributedDataParallel:
    """Sums all micro-batches' gradients, then takes the mean over the ranks."""

    def __init__(self, module, dp_cp_group=None):
        self.module = module
        self.dp_cp_group = dp_cp_group
        self.size = 1 if dp_cp_group is None else dist.get_world_size(dp_cp_group)
        self.gradient_scaling_factor = 1.0 / self.size

    def finish_grad_sync(self):
        main_grads = {}
        for name, parameter in self.module.named_parameters():
            main_grad = parameter.grad * self.gradient_scaling_factor
            if self.dp_cp_group is not None:
                dist.all_reduce(main_grad, group=self.dp_cp_group)
            main_grads[name] = main_grad
        return main_grads


def train_step(model, cp_group=None):
    ddp = DistributedDataParallel(model, cp_group)

    def step(decoder_input, labels, mtp_labels):
        for microbatch in zip(decoder_input, labels, mtp_labels, strict=True):
            output_tensor = model(*microbatch)
            forward_step_calc_loss(output_tensor, ddp.size).backward()
        return ddp.finish_grad_sync()

    return step


@gg.check(mesh={"cp": 3})
def check(mesh):
    model = GPTModel()
    local = copy.deepcopy(model)
    ids = gg.tensor(NUM_MICROBATCHES, SEQUENCE, dtype=torch.int64, high=VOCABULARY)
    inputs = (gg.tensor(NUM_MICROBATCHES, SEQUENCE, HIDDEN), ids, ids)
    return gg.Refinement(
        train_step(model),
        train_step(local, mesh.get_group("cp")),
        inputs,
        in_relations={"cp": Shard(1)},
        out_relations="replicate",
        grads=False,
    )
