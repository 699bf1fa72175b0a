"""Ulysses: the exchange puts each rank's text and image behind one another, while the joint mask has all text first, so that padding is attended to and other tokens are not. diffusers' QwenImage.

Source: https://github.com/huggingface/diffusers/pull/13756
Rule: wrong-shard, wrong-relation
"""

import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Replicate, Shard

import graphguard as gg

BATCH, TEXT, IMAGE, DIM, HEADS, HEAD_DIM = 7, 8, 12, 9, 10, 11


class TemplatedUlyssesAttention:
    """All tokens for some of the heads, and back."""

    def __init__(self, group):
        self.group = group
        self.world_size = dist.get_world_size(group)

    def _all_to_all(self, parts):
        out = torch.empty_like(parts)
        dist.all_to_all_single(out, parts.contiguous(), group=self.group)
        return out

    def scatter_heads(self, x):
        """(batch, own tokens, heads, dim) to (batch, tokens, own heads, dim)."""
        batch, local, heads, dim = x.shape
        x = x.reshape(batch, local, self.world_size, heads // self.world_size, dim)
        x = self._all_to_all(x.permute(2, 1, 0, 3, 4).contiguous())
        return x.flatten(0, 1).permute(1, 0, 2, 3)

    def gather_heads(self, x):
        """(batch, tokens, own heads, dim) to (batch, own tokens, heads, dim)."""
        batch, total, heads, dim = x.shape
        x = x.reshape(batch, self.world_size, total // self.world_size, heads, dim)
        x = self._all_to_all(x.permute(1, 3, 0, 2, 4).contiguous())
        return x.flatten(0, 1).permute(1, 2, 0, 3)

    def __call__(self, query, key, value, attn_mask):
        query, key, value = (self.scatter_heads(x) for x in (query, key, value))
        return self.gather_heads(native_attention(query, key, value, attn_mask))


def native_attention(query, key, value, attn_mask):
    scores = torch.einsum("bqhd,bkhd->bhqk", query, key) * HEAD_DIM**-0.5
    scores = scores.masked_fill(~attn_mask, float("-inf"))  # near
    return torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), value)


class RMSNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(dim) + 0.5)

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


class QwenDoubleStreamAttn(nn.Module):
    """Text and image have their own projections, and attend to each other."""

    def __init__(self):
        super().__init__()
        self.to_qkv = nn.Linear(DIM, 3 * HEADS * HEAD_DIM)
        self.add_qkv_proj = nn.Linear(DIM, 3 * HEADS * HEAD_DIM)
        self.norm_q, self.norm_k = RMSNorm(HEAD_DIM), RMSNorm(HEAD_DIM)
        self.norm_added_q, self.norm_added_k = RMSNorm(HEAD_DIM), RMSNorm(HEAD_DIM)
        self.to_out = nn.Linear(HEADS * HEAD_DIM, DIM)
        self.to_add_out = nn.Linear(HEADS * HEAD_DIM, DIM)
        self.dispatch_attention_fn = native_attention

    def forward(self, hidden_states, encoder_hidden_states, attention_mask):
        img = [x.unflatten(-1, (HEADS, HEAD_DIM)) for x in self.to_qkv(hidden_states).chunk(3, -1)]
        txt = [x.unflatten(-1, (HEADS, HEAD_DIM)) for x in self.add_qkv_proj(encoder_hidden_states).chunk(3, -1)]
        query = torch.cat([self.norm_added_q(txt[0]), self.norm_q(img[0])], dim=1)
        key = torch.cat([self.norm_added_k(txt[1]), self.norm_k(img[1])], dim=1)
        value = torch.cat([txt[2], img[2]], dim=1)
        joint = self.dispatch_attention_fn(query, key, value, attention_mask).flatten(2)
        text_len = encoder_hidden_states.shape[1]
        return self.to_out(joint[:, text_len:]), self.to_add_out(joint[:, :text_len])


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj, self.out = nn.Linear(DIM, 4 * DIM), nn.Linear(4 * DIM, DIM)

    def forward(self, x):
        return self.out(F.gelu(self.proj(x), approximate="tanh"))


class QwenImageTransformerBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn, self.img_mlp, self.txt_mlp = QwenDoubleStreamAttn(), FeedForward(), FeedForward()
        self.img_norm, self.txt_norm = RMSNorm(DIM), RMSNorm(DIM)

    def forward(self, hidden_states, encoder_hidden_states, attention_mask):
        img, txt = self.attn(self.img_norm(hidden_states), self.txt_norm(encoder_hidden_states), attention_mask)
        hidden_states, encoder_hidden_states = hidden_states + img, encoder_hidden_states + txt
        hidden_states = hidden_states + self.img_mlp(hidden_states)
        return hidden_states, encoder_hidden_states + self.txt_mlp(encoder_hidden_states)


class QwenImageTransformer2DModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.img_in, self.txt_in = nn.Linear(DIM, DIM), nn.Linear(DIM, DIM)
        self.transformer_block = QwenImageTransformerBlock()
        self.proj_out = nn.Linear(DIM, DIM)
        self.sp_size = 1

    def enable_parallelism(self, group):
        self.sp_size = dist.get_world_size(group)
        self.transformer_block.attn.dispatch_attention_fn = TemplatedUlyssesAttention(group)
        return self

    def forward(self, hidden_states, encoder_hidden_states, encoder_hidden_states_mask):
        """The mask is that of the whole text; of hidden states a rank has its part."""
        batch, local_len, _ = hidden_states.shape
        text_mask = encoder_hidden_states_mask.bool()
        image_mask = torch.ones(batch, local_len * self.sp_size, dtype=torch.bool)
        parts = [text_mask, image_mask]  # fixed: parts = [part for pair in zip(text_mask.chunk(self.sp_size, 1), image_mask.chunk(self.sp_size, 1)) for part in pair]
        joint_attention_mask = torch.cat(parts, dim=1)[:, None, None, :]  # fault
        hidden_states, encoder_hidden_states = self.img_in(hidden_states), self.txt_in(encoder_hidden_states)
        hidden_states, encoder_hidden_states = self.transformer_block(
            hidden_states, encoder_hidden_states, joint_attention_mask
        )
        return self.proj_out(hidden_states), encoder_hidden_states


@gg.check(mesh={"ulysses": 2})
def check(mesh):
    model = QwenImageTransformer2DModel()
    impl = copy.deepcopy(model).enable_parallelism(mesh.get_group("ulysses"))
    image, text = gg.tensor(BATCH, IMAGE, DIM), gg.tensor(BATCH, TEXT, DIM)
    part, whole = {"ulysses": Shard(1)}, {"ulysses": Replicate()}

    def sample(transformer):
        def step(hidden_states, encoder_hidden_states, encoder_hidden_states_mask):
            with torch.no_grad():
                return transformer(hidden_states, encoder_hidden_states, encoder_hidden_states_mask)

        return step

    return gg.Refinement(
        sample(model),
        sample(impl),
        (image, text, gg.tensor(BATCH, TEXT, dtype=torch.int64, high=2)),
        in_relations=(part, part, whole),
        out_relations=part,
        grads=False,
    )
