"""The first and the last stage hold the tied embedding, each in a flat buffer of its own that is cut for the data-parallel ranks; their gradients are summed shard by shard, though the shards begin and end elsewhere. Megatron-FSDP with a pipeline.

Source: https://github.com/NVIDIA/Megatron-LM/pull/6500
Rule: wrong-shard, wrong-relation
"""

import torch
import torch.distributed as dist
from torch.distributed.tensor import Shard

import graphguard as gg

SAMPLES, LENGTH, VOCAB, HIDDEN, INNER, LR = 6, 3, 7, 4, 5, 0.3
# (name, shape) of each stage's parameters in the order of its modules
STAGES = (
    (("word_embeddings", (VOCAB, HIDDEN)), ("in_proj", (HIDDEN, INNER)), ("in_bias", (INNER,))),
    (("out_proj", (INNER, HIDDEN)), ("out_bias", (HIDDEN,)), ("output_layer", (VOCAB, HIDDEN))),
)
SHARED = ("word_embeddings", "output_layer")


def first_stage(parameters, tokens):
    embedded = parameters["word_embeddings"][tokens].mean(1)
    return torch.tanh(embedded @ parameters["in_proj"] + parameters["in_bias"])


def last_stage(parameters, received, labels):
    hidden = torch.tanh(received @ parameters["out_proj"] + parameters["out_bias"])
    logits = hidden @ parameters["output_layer"].t()
    return -logits.log_softmax(-1).gather(-1, labels[:, None]).mean()


def spec(tokens, labels, embedding, in_proj, in_bias, out_proj, out_bias):
    """One step of one process, with one embedding."""
    weights = [weight.clone().requires_grad_() for weight in (embedding, in_proj, in_bias, out_proj, out_bias)]
    names = ("word_embeddings", "in_proj", "in_bias", "out_proj", "out_bias")
    parameters = dict(zip(names, weights, strict=True))
    parameters["output_layer"] = parameters["word_embeddings"]
    loss = last_stage(parameters, first_stage(parameters, tokens), labels)
    grads = torch.autograd.grad(loss, weights)
    updated = dict(zip(names, (w.detach() - LR * g for w, g in zip(weights, grads, strict=True)), strict=True))
    return {"loss": loss.detach()} | updated | {"output_layer": updated["word_embeddings"]}


class DBuffer:
    """A stage's tensors, one behind the other, padded so that the data-parallel ranks have equal parts."""

    def __init__(self, shapes, dp_group):
        self.dp_group = dp_group
        self.rank, self.size = dist.get_rank(dp_group), dist.get_world_size(dp_group)
        self.shapes, self.offsets, end = dict(shapes), {}, 0
        for name, shape in shapes:
            self.offsets[name] = end
            end += torch.Size(shape).numel()
        self.part = -(-end // self.size)
        self.data = torch.zeros(self.part)

    def extent(self, name):
        """Where the own part of a tensor begins and ends, counted in the tensor."""
        first, numel = self.offsets[name], torch.Size(self.shapes[name]).numel()
        start = min(max(self.rank * self.part - first, 0), numel)
        stop = min(max((self.rank + 1) * self.part - first, 0), numel)
        return start, stop

    def local(self, name):
        """The own part of a tensor, in this buffer's memory."""
        start, stop = self.extent(name)
        at = self.offsets[name] + start - self.rank * self.part
        return self.data[at : at + stop - start] if stop > start else self.data[:0]

    def flatten(self, tensors):
        flat = torch.zeros(self.part * self.size)
        for name, offset in self.offsets.items():
            flat[offset : offset + tensors[name].numel()] = tensors[name].reshape(-1)
        return flat

    def scatter(self, tensors):
        self.data.copy_(self.flatten(tensors)[self.rank * self.part : (self.rank + 1) * self.part])

    def reduce_scatter(self, tensors):
        dist.reduce_scatter_tensor(self.data, self.flatten(tensors), group=self.dp_group)
        self.data.div_(self.size)

    def full(self, name):
        return self.all_gather()[name]

    def all_gather(self):
        flat = torch.empty(self.part * self.size)
        dist.all_gather_into_tensor(flat, self.data, group=self.dp_group)
        return {
            name: flat[self.offsets[name] : self.offsets[name] + torch.Size(shape).numel()].reshape(shape)
            for name, shape in self.shapes.items()
        }


def all_reduce_uneven(shard, numel, group):
    """Sums tensors that differ in length: they are filled up to a common one."""
    padded = torch.zeros(numel)
    padded[: shard.numel()] = shard
    dist.all_reduce(padded, group=group)
    return padded[: shard.numel()]


def allreduce_embedding_grad(grads, name, embd_group):
    """The two stages' gradients of the shared weight."""
    shard = grads.local(name)
    numel = VOCAB * HIDDEN
    # fixed, insert: grad = grads.full(name).reshape(-1).clone()
    # fixed, insert: dist.all_reduce(grad, group=embd_group)
    # fixed, insert: start, stop = grads.extent(name)
    reduced = all_reduce_uneven(shard, numel, embd_group)  # fixed: reduced = grad[start:stop]
    shard.copy_(reduced)


class PipelineStage:
    def __init__(self, rank, weights, dp_group):
        self.rank = rank
        self.weights = DBuffer(STAGES[rank], dp_group)
        self.grads = DBuffer(STAGES[rank], dp_group)
        self.weights.scatter(weights)

    def forward_backward(self, tokens, labels, pp_group):
        parameters = {name: weight.requires_grad_() for name, weight in self.weights.all_gather().items()}
        if self.rank == 0:
            output = first_stage(parameters, tokens)
            dist.send(output.detach(), group=pp_group, group_dst=1)
            grad_output = torch.empty(output.shape)
            dist.recv(grad_output, group=pp_group, group_src=1)
            grads = torch.autograd.grad(output, list(parameters.values()), grad_output)
            loss = torch.zeros(())
        else:
            received = torch.empty(tokens.shape[0], INNER)
            dist.recv(received, group=pp_group, group_src=0)
            received.requires_grad_()
            loss = last_stage(parameters, received, labels)
            grad_input, *grads = torch.autograd.grad(loss, [received, *parameters.values()])
            dist.send(grad_input, group=pp_group, group_dst=0)
        self.grads.reduce_scatter(dict(zip(parameters, grads, strict=True)))
        return loss.detach().clone()

    def optimizer_step(self):
        self.weights.data.sub_(LR * self.grads.data)


def train_step(mesh):
    pp_group, dp_group = mesh.get_group("pp"), mesh.get_group("dp")

    def step(tokens, labels, embedding, in_proj, in_bias, out_proj, out_bias):
        rank = dist.get_rank(pp_group)
        of_stages = ((embedding, in_proj, in_bias), (out_proj, out_bias, embedding))
        names = [name for name, _ in STAGES[rank]]
        stage = PipelineStage(rank, dict(zip(names, of_stages[rank], strict=True)), dp_group)
        loss = stage.forward_backward(tokens, labels, pp_group)
        allreduce_embedding_grad(stage.grads, SHARED[rank], pp_group)
        stage.optimizer_step()
        dist.all_reduce(loss)
        result = {"loss": loss / dist.get_world_size(dp_group)}
        own = stage.weights.all_gather()
        for index, shapes in enumerate(STAGES):
            for name, shape in shapes:
                weight = own[name].clone() if index == rank else torch.empty(shape)
                dist.broadcast(weight, group=pp_group, group_src=index)
                result[name] = weight
        return result

    return step


@gg.check(mesh={"pp": 2, "dp": 2})
def check(mesh):
    tokens = gg.tensor(SAMPLES, LENGTH, dtype=torch.int64, low=0, high=VOCAB)
    labels = gg.tensor(SAMPLES, dtype=torch.int64, low=0, high=VOCAB)
    shapes = [shape for stage in STAGES for name, shape in stage if name != "output_layer"]
    weights = [gg.tensor(*shape) for shape in shapes]
    relations = ({"dp": Shard(0)},) * 2 + ({},) * len(weights)
    return gg.Refinement(
        spec, train_step(mesh), (tokens, labels, *weights), in_relations=relations, out_relations="replicate", grads=False
    )
