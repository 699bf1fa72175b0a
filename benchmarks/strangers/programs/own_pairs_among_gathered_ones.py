"""Embeddings are gathered from all ranks for their negatives, and only the own ones carry gradients; averaged over ranks, the contrastive loss's gradient is too small, while the masked words' is right. DeCLUTR.

Source: https://github.com/JohnGiorgi/DeCLUTR/pull/212
Rule: wrong-scale, gradient-not-reduced, wrong-relation
"""

import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Shard

import graphguard as gg

BATCH, LENGTH, VOCAB, DIM, PROJECTED = 6, 5, 11, 6, 4
TEMPERATURE, LR, MASK_ID = 0.5, 0.1, 0


def all_gather_anchor_positive_pairs(anchors, positives, group):
    """The pairs of all replicas, so that there are negatives enough."""
    if group is None:
        return anchors, positives
    world_size = dist.get_world_size(group)
    anchors_list = [torch.ones_like(anchors) for _ in range(world_size)]
    positives_list = [torch.ones_like(positives) for _ in range(world_size)]
    dist.all_gather(anchors_list, anchors.detach().contiguous(), group=group)
    dist.all_gather(positives_list, positives.detach().contiguous(), group=group)
    # what was gathered has no gradients; the own pairs have
    anchors_list[dist.get_rank(group)] = anchors  # near
    positives_list[dist.get_rank(group)] = positives  # near
    return torch.cat(anchors_list), torch.cat(positives_list)


class NTXentLoss(nn.Module):
    def __init__(self, temperature):
        super().__init__()
        self.temperature = temperature

    def get_embeddings_and_labels(self, anchors, positives):
        embeddings = torch.cat((anchors, positives))
        indices = torch.arange(anchors.size(0))
        return embeddings, torch.cat((indices, indices))

    def forward(self, embeddings, labels):
        embeddings = F.normalize(embeddings, dim=-1)
        scores = embeddings @ embeddings.t() / self.temperature
        itself = torch.eye(len(labels), dtype=torch.bool)
        scores = scores.masked_fill(itself, float("-inf"))
        same = (labels[:, None] == labels[None, :]) & ~itself
        log_probs = scores.log_softmax(-1)
        return -log_probs[same].mean()


class TextEncoder(nn.Module):
    """Stands for the pretrained transformer."""

    def __init__(self):
        super().__init__()
        self.embeddings = nn.Embedding(VOCAB, DIM)
        self.mixer = nn.Linear(2 * DIM, DIM)
        self.decoder = nn.Linear(DIM, VOCAB)

    def forward(self, tokens):
        embedded = self.embeddings(tokens)
        context = embedded.mean(1, keepdim=True).expand_as(embedded)
        return torch.tanh(self.mixer(torch.cat((embedded, context), dim=-1)))


class DeCLUTR(nn.Module):
    def __init__(self, encoder, feedforward, loss, group=None):
        super().__init__()
        self._text_field_embedder = encoder
        self._feedforward = feedforward
        self._loss = loss
        self._group = group

    def _forward_internal(self, tokens):
        hidden = self._text_field_embedder(tokens)
        return hidden, self._feedforward(hidden.mean(1))

    def _masked_lm_loss(self, tokens):
        """Each text's third token is masked, and to be told."""
        labels = tokens[:, 2]
        masked = tokens.clone()
        masked[:, 2] = MASK_ID
        hidden, embedded = self._forward_internal(masked)
        logits = self._text_field_embedder.decoder(hidden[:, 2])
        return F.cross_entropy(logits, labels), embedded

    def forward(self, anchors, positives):
        output_dict = {}
        masked_lm_loss, embedded_anchors = self._masked_lm_loss(anchors)
        _, embedded_positives = self._forward_internal(positives)
        embedded_anchors, embedded_positives = all_gather_anchor_positive_pairs(
            embedded_anchors, embedded_positives, self._group
        )
        embeddings, labels = self._loss.get_embeddings_and_labels(embedded_anchors, embedded_positives)
        contrastive_loss = self._loss(embeddings, labels)  # fault
        output_dict["contrastive_loss"] = contrastive_loss.detach()
        # fixed, insert: if self._group is not None:
        # fixed, insert:     contrastive_loss = contrastive_loss * dist.get_world_size(self._group)
        output_dict["loss"] = contrastive_loss + masked_lm_loss  # fault
        return output_dict


class GradientDescentTrainer:
    def __init__(self, model, group=None):
        self.model = model
        self.group = group

    def _average_gradients(self):
        """What the data-parallel wrapper does after the backward pass."""
        for parameter in self.model.parameters():
            dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG, group=self.group)  # near

    def batch_outputs(self, anchors, positives):
        return self.model(anchors, positives)

    def _train_epoch(self, batches):
        contrastive = []
        for anchors, positives in batches:
            output_dict = self.batch_outputs(anchors, positives)
            output_dict["loss"].backward()
            if self.group is not None:
                self._average_gradients()
            with torch.no_grad():
                for parameter in self.model.parameters():
                    parameter.sub_(LR * parameter.grad)
                    parameter.grad = None
            contrastive.append(output_dict["contrastive_loss"])
        return torch.stack(contrastive)


def train(model, group=None):
    trainer = GradientDescentTrainer(model, group)

    def impl(anchors, positives):
        contrastive = trainer._train_epoch([(anchors, positives), (positives, anchors)])
        weights = {name.replace(".", "_"): parameter.detach().clone() for name, parameter in model.named_parameters()}
        return {"contrastive_loss": contrastive, **weights}

    return impl


@gg.check(mesh={"dp": 3})
def check(mesh):
    group = mesh.get_group("dp")
    model = DeCLUTR(TextEncoder(), nn.Linear(DIM, PROJECTED), NTXentLoss(TEMPERATURE))
    local = copy.deepcopy(model)
    local._group = group
    tokens = gg.tensor(BATCH, LENGTH, dtype=torch.int64, low=1, high=VOCAB)
    return gg.Refinement(
        train(model),
        train(local, group),
        (tokens, tokens),
        in_relations={"dp": Shard(0)},
        out_relations="replicate",
        grads=False,
    )
