"""A stage of its own predicts the token after the next and has a copy of the embedding; it is not in the group that sums the embedding's gradient. Megatron Bridge.

Source: https://github.com/NVIDIA-NeMo/Megatron-Bridge/pull/5380
Rule: missing-reduction, gradient-not-reduced, wrong-group
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F

import graphguard as gg

VOCABULARY, HIDDEN, TOKENS, MTP_SCALE = 7, 3, 4, 0.3
MTP_STAGE, LAST_STAGE = 1, 2


def decoder_layer(x, weight):
    return x + torch.tanh(x @ weight)


def mtp_layer(hidden, next_embedded, weight):
    return torch.tanh((hidden + 2 * next_embedded) @ weight)


def loss_func(hidden, mtp_hidden, output, labels, mtp_labels):
    return F.cross_entropy(hidden @ output, labels) + MTP_SCALE * F.cross_entropy(mtp_hidden @ output, mtp_labels)


def spec_step(embedding, decoder, mtp, output, tokens, labels, mtp_labels):
    embedding, decoder, mtp, output = (each.detach().clone().requires_grad_() for each in (embedding, decoder, mtp, output))
    hidden = decoder_layer(F.embedding(tokens, embedding), decoder)
    mtp_hidden = mtp_layer(hidden, F.embedding(labels, embedding), mtp)
    loss_func(hidden, mtp_hidden, output, labels, mtp_labels).backward()
    return {"embedding": embedding.grad, "mtp_embedding": embedding.grad, "decoder": decoder.grad, "output": output.grad}


def default_embedding_ranks(pp_ranks, share_embeddings, mtp_ranks):
    """The ranks among which the embedding's gradient is summed."""
    embedding_ranks = [pp_ranks[0]]
    if share_embeddings:
        embedding_ranks.append(pp_ranks[-1])
    # fixed, insert: embedding_ranks += mtp_ranks
    return sorted(set(embedding_ranks))  # fault


class ProcessGroups:
    def __init__(self, pp_group):
        self.pp = pp_group
        self.stage = dist.get_rank(pp_group)
        pp_ranks = dist.get_process_group_ranks(pp_group)
        self.embedding_ranks = default_embedding_ranks(pp_ranks, share_embeddings=False, mtp_ranks=[pp_ranks[MTP_STAGE]])  # near
        self.embedding = dist.new_group(self.embedding_ranks)


def received(source, *shape):
    x = torch.empty(*shape)
    dist.recv(x, source)
    return x.requires_grad_()


class Stage:
    """The parameters of one stage, and its part of the step."""

    def __init__(self, groups, named):
        self.groups = groups
        self.parameters = {name: each.detach().clone().requires_grad_() for name, each in named.items()}

    def step(self, tokens, labels, mtp_labels):
        raise NotImplementedError

    def finalize_model_grads(self):
        weight = self.parameters.get("word_embeddings")
        if weight is not None and self.groups.stage in self.groups.embedding_ranks:  # near
            dist.all_reduce(weight.grad, group=self.groups.embedding)


class FirstStage(Stage):
    def step(self, tokens, labels, mtp_labels):
        hidden = decoder_layer(F.embedding(tokens, self.parameters["word_embeddings"]), self.parameters["decoder"])
        dist.send(hidden.detach(), MTP_STAGE)
        hidden.backward(received(MTP_STAGE, TOKENS, HIDDEN).detach())


class MTPStage(Stage):
    def step(self, tokens, labels, mtp_labels):
        hidden = received(0, TOKENS, HIDDEN)
        mtp_hidden = mtp_layer(hidden, F.embedding(labels, self.parameters["word_embeddings"]), self.parameters["mtp"])
        dist.send(hidden.detach(), LAST_STAGE)
        dist.send(mtp_hidden.detach(), LAST_STAGE)
        hidden_grad = received(LAST_STAGE, TOKENS, HIDDEN).detach()
        mtp_hidden.backward(received(LAST_STAGE, TOKENS, HIDDEN).detach())
        dist.send(hidden_grad + hidden.grad, 0)


class LastStage(Stage):
    def step(self, tokens, labels, mtp_labels):
        hidden, mtp_hidden = received(MTP_STAGE, TOKENS, HIDDEN), received(MTP_STAGE, TOKENS, HIDDEN)
        loss_func(hidden, mtp_hidden, self.parameters["output"], labels, mtp_labels).backward()
        dist.send(hidden.grad, MTP_STAGE)
        dist.send(mtp_hidden.grad, MTP_STAGE)


def gradient_of(stage, name, owner, shape):
    """What the owner of a parameter has, on every rank."""
    grad = stage.parameters[name].grad if stage.groups.stage == owner else torch.empty(shape)
    dist.broadcast(grad, owner, group=stage.groups.pp)
    return grad


def train_step(groups):
    def step(embedding, decoder, mtp, output, tokens, labels, mtp_labels):
        if groups.stage == 0:
            stage = FirstStage(groups, {"word_embeddings": embedding, "decoder": decoder})
        elif groups.stage == MTP_STAGE:
            stage = MTPStage(groups, {"word_embeddings": embedding, "mtp": mtp})
        else:
            stage = LastStage(groups, {"output": output})
        stage.step(tokens, labels, mtp_labels)
        stage.finalize_model_grads()
        return {
            "embedding": gradient_of(stage, "word_embeddings", 0, embedding.shape),
            "mtp_embedding": gradient_of(stage, "word_embeddings", MTP_STAGE, embedding.shape),
            "decoder": gradient_of(stage, "decoder", 0, decoder.shape),
            "output": gradient_of(stage, "output", LAST_STAGE, output.shape),
        }

    return step


@gg.check(mesh={"pp": 3})
def check(mesh):
    ids = gg.tensor(TOKENS, dtype=torch.int64, high=VOCABULARY)
    weights = (gg.tensor(VOCABULARY, HIDDEN), gg.tensor(HIDDEN, HIDDEN), gg.tensor(HIDDEN, HIDDEN), gg.tensor(HIDDEN, VOCABULARY))
    impl = train_step(ProcessGroups(mesh.get_group("pp")))
    return gg.Refinement(spec_step, impl, (*weights, ids, ids, ids), out_relations="replicate", grads=False)
