"""Images encoded by one rank are read by another; the gather's backward pass keeps the own rows. Megatron Bridge.

Source: https://github.com/NVIDIA-NeMo/Megatron-Bridge/pull/4784
Rule: missing-reduction, gradient-not-reduced, wrong-relation
"""

import torch
import torch.distributed as dist

import graphguard as gg

PATCHES, TEXT, PIXELS, WIDTH, HIDDEN = 10, 2, 4, 7, 3
SEQUENCE = TEXT + PATCHES
NAMES = ("patch_embed", "merger", "qkv", "proj")


class ContextParallel:
    """The sequence is dealt in chunks from both ends."""

    def __init__(self, group):
        self.group = group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)

    def gather(self, x):
        out = torch.empty(self.size * x.shape[0], *x.shape[1:])
        dist.all_gather_into_tensor(out, x.contiguous(), group=self.group)
        return out

    def scatter(self, x):
        out = torch.empty(x.shape[0] // self.size, *x.shape[1:])
        dist.reduce_scatter_tensor(out, x.contiguous(), group=self.group)
        return out

    def sum(self, x):
        x = x.clone()
        dist.all_reduce(x, group=self.group)
        return x

    def chunks_of(self, rank):
        return rank, 2 * self.size - 1 - rank

    def deal(self, x):
        """This rank's two chunks of something that has a row for each position."""
        chunks = x.chunk(2 * self.size)
        return torch.cat([chunks[i] for i in self.chunks_of(self.rank)])

    def in_order(self, x):
        """From all ranks' chunks to the sequence."""
        chunks = x.chunk(2 * self.size)
        order = [i for rank in range(self.size) for i in self.chunks_of(rank)]
        return torch.cat([chunks[order.index(i)] for i in range(2 * self.size)])


class AllGatherVisionEmbeddings(torch.autograd.Function):
    """The embeddings of all images on every rank."""

    @staticmethod
    def forward(ctx, embeddings, cp):
        ctx.cp = cp
        return cp.gather(embeddings)

    @staticmethod
    def backward(ctx, grad):
        # fixed, insert: grad = ctx.cp.sum(grad)
        return grad.chunk(ctx.cp.size)[ctx.cp.rank], None  # fault


class AllGatherKeysAndValues(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, cp):
        ctx.cp = cp
        return cp.gather(x)

    @staticmethod
    def backward(ctx, grad):
        return ctx.cp.scatter(grad), None


class VisionModel:
    """Patch by patch: an embedding, then the merger into the language model's width."""

    def __init__(self, patch_embed, merger):
        self.patch_embed, self.merger = patch_embed, merger

    def __call__(self, pixel_values):
        return torch.tanh(pixel_values @ self.patch_embed) @ self.merger


class SelfAttention:
    def __init__(self, qkv, proj, cp=None):
        self.qkv, self.proj, self.cp = qkv, proj, cp

    def __call__(self, hidden, positions):
        query, key_value = (hidden @ self.qkv).split((HIDDEN, 2 * HIDDEN), dim=-1)
        if self.cp is not None:
            key_value = self.cp.in_order(AllGatherKeysAndValues.apply(key_value, self.cp))
        key, value = key_value.chunk(2, dim=-1)
        later = torch.arange(SEQUENCE)[None, :] > positions[:, None]
        scores = (query @ key.t() * HIDDEN**-0.5).masked_fill(later, float("-inf"))
        return hidden + scores.softmax(-1) @ value @ self.proj


class VisionLanguageModel:
    """The first word, the images, the other word."""

    def __init__(self, leaves, cp=None):
        self.cp = cp
        self.visual = VisionModel(leaves["patch_embed"], leaves["merger"])
        self.language_model = SelfAttention(leaves["qkv"], leaves["proj"], cp)

    def vision_embeddings(self, pixel_values):
        """With context parallelism, each rank encodes its share of the images."""
        if self.cp is None:
            return self.visual(pixel_values)
        own = self.visual(pixel_values.chunk(self.cp.size)[self.cp.rank])
        return AllGatherVisionEmbeddings.apply(own, self.cp)  # near

    def __call__(self, words, pixel_values):
        images = self.vision_embeddings(pixel_values)
        combined = torch.cat([words[:1], images, words[1:]])
        positions = torch.arange(SEQUENCE)
        if self.cp is not None:
            combined, positions = self.cp.deal(combined), self.cp.deal(positions)
        return self.language_model(combined, positions)


def train_step(cp=None):
    def step(words, pixel_values, target, *weights):
        leaves = {name: w.detach().requires_grad_() for name, w in zip(NAMES, weights, strict=True)}
        output = VisionLanguageModel(leaves, cp)(words, pixel_values)
        if cp is not None:
            target = cp.deal(target)
        loss = (output - target).square().sum() / SEQUENCE
        loss.backward()
        loss, grads = loss.detach(), {name: leaf.grad for name, leaf in leaves.items()}
        if cp is not None:
            loss, grads = cp.sum(loss), {name: cp.sum(grad) for name, grad in grads.items()}
        return {"loss": loss, **grads}

    return step


@gg.check(mesh={"cp": 2})
def check(mesh):
    vision = (gg.tensor(PIXELS, WIDTH), gg.tensor(WIDTH, HIDDEN))
    weights = (*vision, gg.tensor(HIDDEN, 3 * HIDDEN), gg.tensor(HIDDEN, HIDDEN))
    batch = (gg.tensor(TEXT, HIDDEN), gg.tensor(PATCHES, PIXELS), gg.tensor(SEQUENCE, HIDDEN))
    impl = train_step(ContextParallel(mesh.get_group("cp")))
    return gg.Refinement(train_step(), impl, batch + weights, out_relations="replicate", grads=False)
