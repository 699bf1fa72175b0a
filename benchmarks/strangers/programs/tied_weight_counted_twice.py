"""Two stages hold the tied embedding; the mark that says so is lost where the shards are made, and its gradient counts twice in the norm. Megatron-FSDP.

Source: https://github.com/NVIDIA/Megatron-LM/pull/7227
Rule: wrong-relation, wrong-scale, extra-reduction
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import graphguard as gg

VOCABULARY, HIDDEN, TOKENS, LR, MAX_NORM = 5, 3, 4, 0.4, 0.1


def clip_coefficient(total_norm):
    return (MAX_NORM / (total_norm + 1e-6)).clamp(max=1.0)


class Reference:
    """The whole model on one device."""

    def __init__(self, embedding, decoder):
        self.embedding = nn.Parameter(embedding)
        self.decoder = nn.Parameter(decoder)

    def step(self, tokens, labels):
        hidden = torch.tanh(F.embedding(tokens, self.embedding) @ self.decoder)
        F.cross_entropy(hidden @ self.embedding.t(), labels).backward()
        grads = [self.embedding.grad, self.decoder.grad]
        total_norm = sum(grad.square().sum() for grad in grads).sqrt()
        coefficient = clip_coefficient(total_norm)
        embedding, decoder = (
            parameter.detach() - LR * coefficient * grad
            for parameter, grad in zip((self.embedding, self.decoder), grads, strict=True)
        )
        return {"embedding": embedding, "decoder": decoder, "norm": total_norm}


def spec_step(embedding, decoder, tokens, labels):
    return Reference(embedding.clone(), decoder.clone()).step(tokens, labels)


class ParallelState:
    def __init__(self, group):
        self.pp_group = group
        self.stage = dist.get_rank(group)
        self.first, self.last = self.stage == 0, self.stage == dist.get_world_size(group) - 1


class LanguageModule:
    """The parameters of one stage; the last one has a copy of the embedding for its output."""

    def __init__(self, state, embedding, decoder):
        self.state = state
        self.word_embeddings = nn.Parameter(embedding.clone())
        self.word_embeddings.is_embedding = True
        self.decoder = nn.Parameter(decoder.clone()) if state.last else None
        if state.last:
            self.word_embeddings.shared = True

    def named_parameters(self):
        named = {"word_embeddings": self.word_embeddings, "decoder": self.decoder}
        return {name: parameter for name, parameter in named.items() if parameter is not None}


def shard_parameter(parameter):
    """The distributed parameter that the optimizer sees."""
    sharded = nn.Parameter(parameter.detach().clone())
    # fixed, insert: sharded.shared = getattr(parameter, "shared", False)
    sharded.is_embedding = getattr(parameter, "is_embedding", False)  # near
    return sharded


class FullyShardedStage:
    def __init__(self, module):
        self.state = module.state
        self.parameters = {name: shard_parameter(each) for name, each in module.named_parameters().items()}  # fault

    def forward_backward(self, tokens, labels):
        """One micro-batch: activations go to the last stage, their gradient comes back."""
        weight = self.parameters["word_embeddings"]
        if self.state.first:
            embedded = F.embedding(tokens, weight)
            dist.send(embedded.detach(), 1)
            grad = torch.empty_like(embedded)
            dist.recv(grad, 1)
            embedded.backward(grad)
            return
        embedded = torch.empty(TOKENS, HIDDEN)
        dist.recv(embedded, 0)
        embedded.requires_grad_()
        hidden = torch.tanh(embedded @ self.parameters["decoder"])
        F.cross_entropy(hidden @ weight.t(), labels).backward()
        dist.send(embedded.grad, 0)

    def finalize_model_grads(self):
        for parameter in self.parameters.values():
            if parameter.is_embedding:
                dist.all_reduce(parameter.grad, group=self.state.pp_group)

    def get_grad_norm(self):
        grads = [each.grad for each in self.parameters.values() if not getattr(each, "shared", False)]  # fault
        total = sum((grad.square().sum() for grad in grads), torch.zeros(()))
        dist.all_reduce(total, group=self.state.pp_group)  # near
        return total.sqrt()

    def step(self):
        total_norm = self.get_grad_norm()
        coefficient = clip_coefficient(total_norm)
        updated = {name: each.detach() - LR * coefficient * each.grad for name, each in self.parameters.items()}
        decoder = updated.get("decoder", torch.empty(HIDDEN, HIDDEN))
        dist.broadcast(decoder, 1, group=self.state.pp_group)
        return {"embedding": updated["word_embeddings"], "decoder": decoder, "norm": total_norm}


def train_step(state):
    def step(embedding, decoder, tokens, labels):
        stage = FullyShardedStage(LanguageModule(state, embedding, decoder))
        stage.forward_backward(tokens, labels)
        stage.finalize_model_grads()
        return stage.step()

    return step


@gg.check(mesh={"pp": 2})
def check(mesh):
    ids = gg.tensor(TOKENS, dtype=torch.int64, high=VOCABULARY)
    inputs = (gg.tensor(VOCABULARY, HIDDEN), gg.tensor(HIDDEN, HIDDEN), ids, ids)
    impl = train_step(ParallelState(mesh.get_group("pp")))
    return gg.Refinement(spec_step, impl, inputs, out_relations="replicate", grads=False)
