"""Programs of several layers that are alike, or only look so: what is copied of them, and what must not be."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F  # PyTorch's own idiom
from torch import nn
from torch.utils.checkpoint import checkpoint

from benchmarks.llama_tp import Copy, Reduce

DIM, HEADS, TOKENS = 8, 2, 4
SCALE = 1.0
SEEN: list[int] = []
SHARED = {"count": 0}
Model = nn.Module


class Mlp(nn.Module):
    def __init__(self, dim: int = DIM, bias: bool = True) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(dim, 2 * dim, bias=bias), nn.Linear(2 * dim, dim, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.gelu(self.up(x)))


class PreNorm(nn.Module):
    def __init__(self, eps: float = 1e-5) -> None:
        super().__init__()
        self.norm, self.mlp = nn.LayerNorm(DIM, eps=eps), Mlp()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.mlp(self.norm(x))


class PostNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.mlp = nn.LayerNorm(DIM), Mlp()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.mlp(x) + x)


class Attention(nn.Module):
    """Two query heads for each key."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.kv, self.out = nn.Linear(DIM, DIM), nn.Linear(DIM, DIM), nn.Linear(DIM, DIM)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        batch, tokens, _ = x.shape
        q = self.q(x).view(batch, tokens, HEADS, -1).transpose(1, 2)
        k, v = self.kv(x).view(batch, tokens, 1, -1).transpose(1, 2).chunk(2, -1)
        k, v = (part.repeat_interleave(HEADS, dim=1) for part in (k, v))
        q = q[..., : k.shape[-1]]
        scores = q @ k.transpose(-2, -1) / k.shape[-1] ** 0.5
        if mask is not None:
            scores = scores.masked_fill(mask, -1e9)
        weights = torch.softmax(scores, dim=-1)
        found = (weights @ v).transpose(1, 2).flatten(2)
        return self.out(found)


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.RMSNorm(DIM), nn.RMSNorm(DIM)
        self.attention, self.mlp = Attention(), Mlp(bias=False)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        x = x + self.attention(self.first(x), mask)
        return x + self.mlp(self.second(x))


class Stack(nn.Module):
    """Layers one after the other."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: torch.Tensor, *rest: Any) -> Any:
        x = x * 1
        for layer in self.layers:
            x = layer(x, *rest)
        return x


def stack(layer: Callable[[], nn.Module], count: int = 6) -> Model:
    return Stack(*(layer() for _ in range(count)))


# -- layers that do something else each time ---------------------------------------------------------------------------
class Indexed(PreNorm):
    """Every other layer scales."""

    def __init__(self, index: int) -> None:
        super().__init__()
        self.index = index

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = super().forward(x)
        return y if self.index % 2 else y * 2


class Alternating(nn.Module):
    def __init__(self, index: int) -> None:
        super().__init__()
        self.mlp, self.index = Mlp(), index

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.index % 2:
            return x + self.mlp(x)
        return x - self.mlp(x)


class Numbered(nn.Module):
    """Has a number that its code does not look at."""

    def __init__(self, index: int) -> None:
        super().__init__()
        self.mlp, self.index = Mlp(), index

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.mlp(x)


class Counting(Numbered):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        SHARED["count"] += 1
        return x + self.mlp(x) * SHARED["count"]


class Appending(Numbered):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        SEEN.append(1)
        return x + self.mlp(x) * len(SEEN)


class Lengths(Numbered):
    """Looks at a list that somebody else changes."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.mlp(x) * len(SEEN)


class Scaled(Numbered):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.mlp(x) * SCALE


class Configured(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.mlp, self.config = Mlp(), config

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.mlp(x) * self.config.scale


@dataclass
class Settings:
    scale: float = 2.0

    @property
    def twice(self) -> float:
        return 2 * self.scale


class Remembering(Numbered):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.last = x
        return x + self.mlp(x)


class Caching(Numbered):
    def forward(self, x: torch.Tensor, cache: list[torch.Tensor]) -> torch.Tensor:
        cache.append(x)
        return x + self.mlp(x) * len(cache)


class Dropping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mlp, self.drop = Mlp(), nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.drop(self.mlp(x))


class InPlace(Numbered):
    """Adds to the residual itself."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x += self.mlp.down.bias
        return x


class InPlaceInside(Numbered):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * 1
        y += self.mlp(x)
        y.mul_(2)
        return y


class Two(Numbered):
    def forward(self, x: torch.Tensor) -> Any:
        y = self.mlp(x)
        return x + y, y


class Passing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Two(i) for i in range(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = torch.zeros_like(x)
        for layer in self.layers:
            x, y = layer(x)
            total = total + y
        return x + total


class Crossed(Numbered):
    def forward(self, x: torch.Tensor, side: torch.Tensor) -> torch.Tensor:
        return x + self.mlp(x + side)


class Viewed(Numbered):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.mlp(x).flatten(0, 1).view(x.shape)


class Same(Numbered):
    """Gives its argument back."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mlp(x)
        return x


class Detached(Numbered):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.mlp(x).detach()


class Unused(Numbered):
    """Has a parameter that it looks at without need."""

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.extra = nn.Parameter(torch.ones(DIM))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.extra is None:
            return x
        return x + self.mlp(x)


class Outside(Numbered):
    """Closes over a parameter of somebody else."""

    def __init__(self, index: int, other: nn.Linear) -> None:
        super().__init__(index)
        self.others = (other,)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.mlp(x) * self.others[0].weight[0]


class Tied(nn.Module):
    def __init__(self, shared: nn.Linear) -> None:
        super().__init__()
        self.mlp, self.shared = Mlp(), shared

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.shared(self.mlp(x))


class Called(Numbered):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        SEEN.append(1)
        return super().__call__(*args, **kwargs) * len(SEEN)


class Asking(Numbered):
    """Its attributes are its own business."""

    def __getattr__(self, name: str) -> Any:
        if name == "factor":
            SEEN.append(1)
            return len(SEEN)
        return super().__getattr__(name)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.mlp(x) * self.factor


class Property(Numbered):
    @property
    def factor(self) -> int:
        SEEN.append(1)
        return len(SEEN)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.mlp(x) * self.factor


class Defaults(Numbered):
    def forward(self, x: torch.Tensor, seen: list[int] = []) -> torch.Tensor:  # noqa: B006  # the very mistake
        return x + self.mlp(x) * (1 + len(seen))


class Hooked(torch.autograd.Function):
    """Its backward counts."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        SEEN.append(1)
        return grad * len(SEEN)


class CountingBackward(Numbered):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + Hooked.apply(self.mlp(x))


class Factor(torch.autograd.Function):
    """Its backward looks at a global."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return grad * SCALE


class LookingBackward(Numbered):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + Factor.apply(self.mlp(x))


class Squared(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, scale: float) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.scale = scale
        return x * x * scale

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return 2 * x * grad * ctx.scale, None


class Squaring(Numbered):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + Squared.apply(self.mlp(x), 0.5)


class Parallel(nn.Module):
    """Reduces at its end: its backward starts with the gradient as it arrives."""

    def __init__(self, group: Any) -> None:
        super().__init__()
        self.group = group
        ways = dist.get_world_size(group)
        self.norm = nn.LayerNorm(DIM)
        self.up, self.down = nn.Linear(DIM, 2 * DIM // ways, bias=False), nn.Linear(2 * DIM // ways, DIM, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = Copy.apply(self.norm(x), self.group)
        return x + Reduce.apply(self.down(F.relu(self.up(y))), self.group)


class Entered(Parallel):
    """Its backward reduces the very gradient that arrives, in place."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Copy.apply(Reduce.apply(self.down(F.relu(self.up(self.norm(x)))), self.group), self.group)


class Waiting(Parallel):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.down(F.relu(self.up(self.norm(x))))
        work = dist.all_reduce(y, group=self.group, async_op=True)
        work.wait()
        return x + y


class Branching(Numbered):
    """Branches on shapes, and raises in a branch that is not taken."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[-1] != DIM:
            raise ValueError(f"rows of {DIM}")
        y = self.mlp(x)
        return x + y if y.dim() > 2 and y.shape[1] > 1 else y


class Reading(Numbered):
    """Reads an element."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.mlp(x) * x.max().item()


class Kept(nn.Module):
    """Collects what goes through its layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Numbered(i) for i in range(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = []
        for layer in self.layers:
            x = layer(x)
            hidden.append(x)
        return torch.stack(hidden).sum(0)


class Early(Kept):
    """Uses what goes into a layer before the layer does."""

    START = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = torch.zeros_like(x)
        for i, layer in enumerate(self.layers):
            if i >= self.START:
                total = total + x * 2
            x = layer(x)
        return x + total


class Turned(nn.Module):
    """The gradient of its weight lies otherwise than the weight."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(DIM, DIM))
        self.norm = nn.LayerNorm(DIM)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.norm(x) @ self.weight.t().contiguous()


class EarlyButForTheFirst(Early):
    """The same, of the third layer and those after it."""

    START = 2


class Unrolled(nn.Module):
    """Calls its layers from different lines."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c, self.d = PreNorm(), PreNorm(), PreNorm(), PreNorm()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.a(x)
        x = self.b(x)
        x = self.c(x) * 2
        return self.d(x)


class Twice(Kept):
    """Calls each layer twice."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(layer(x))
        return x


class Checkpointed(Kept):
    reentrant = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=self.reentrant)
        return x


class Reentrant(Checkpointed):
    reentrant = True


class Nested(nn.Module):
    """Layers of which only the parts can be copied."""

    def __init__(self, index: int) -> None:
        super().__init__()
        self.first, self.second, self.index = PreNorm(), PreNorm(), index

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        SHARED["count"] += 1
        return self.second(self.first(x)) * SHARED["count"]


class Patched(Kept):
    """Changes a class between its layers."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        usual = Mlp.forward
        try:
            for i, layer in enumerate(self.layers):
                if i == 3:
                    Mlp.forward = lambda self, x: usual(self, x) * 3  # type: ignore[method-assign]
                x = layer(x)
        finally:
            Mlp.forward = usual  # type: ignore[method-assign]
        return x


class Replaced(Kept):
    """Changes what PyTorch is between its layers."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        usual = F.gelu
        try:
            for i, layer in enumerate(self.layers):
                if i == 3:
                    F.gelu = functools.partial(usual, approximate="tanh")
                x = layer(x)
        finally:
            F.gelu = usual
        return x


class Updated(Kept):
    """Changes a parameter after its layer was called."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for i, layer in enumerate(self.layers):
            x = layer(x)
            if i == 3:
                with torch.no_grad():
                    layer.mlp.up.weight.mul_(2)
        return x


class UpdatedUnseen(Kept):
    """Changes a parameter behind autograd's back after its layer was called: the backward pass reads what is there then."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        for layer in self.layers:
            layer.mlp.up.weight.data.mul_(2)
        return x


class Casting(Kept):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for i, layer in enumerate(self.layers):
            with torch.autocast("cpu", torch.bfloat16, enabled=i > 2):
                x = layer(x)
        return x.float()


class Ungraded(Kept):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for i, layer in enumerate(self.layers):
            with torch.set_grad_enabled(i > 2):
                x = layer(x)
        return x


class HookedBetween(Kept):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
            x.register_hook(lambda grad: grad * 2)
        return x


class Looked(Kept):
    """Looks at the autograd graph when its layers have been called."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        assert x.grad_fn is not None
        return x * len(x.grad_fn.next_functions)


class Residual(Kept):
    """Adds to what its layers return, in place."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
            x += 1
        return x


class Picking(Numbered):
    """Branches on the elements of a known table."""

    def forward(self, x: torch.Tensor, side: torch.Tensor) -> torch.Tensor:
        if bool(side[0] > 0):
            return x + self.mlp(x)
        return x - self.mlp(x)


def frozen() -> Model:
    model = stack(PreNorm)
    for parameter in model.layers[3].parameters():  # type: ignore[index, union-attr]
        parameter.requires_grad_(False)
    return model


def other_epsilon() -> Model:
    return Stack(*(PreNorm(1e-6 if i == 3 else 1e-5) for i in range(6)))


def hooked() -> Model:
    model = stack(PreNorm)
    model.layers[3].mlp.register_forward_hook(lambda module, args, out: out * 2)  # type: ignore[index, union-attr]
    return model


def watched_parameter() -> Model:
    model = stack(PreNorm)
    model.layers[3].mlp.up.weight.register_hook(lambda grad: grad * 2)  # type: ignore[index, union-attr]
    return model


def accumulator_hook() -> Model:
    model = stack(PreNorm)
    weight = model.layers[3].mlp.up.weight  # type: ignore[index, union-attr]
    node = weight.expand_as(weight).grad_fn.next_functions[0][0]
    node.register_hook(lambda *_: SEEN.append(1))
    model.node = node
    return model


def replaced_forward() -> Model:
    model = stack(PreNorm)
    layer: Any = model.layers[3]  # type: ignore[index]
    layer.mlp.forward = lambda x: Mlp.forward(layer.mlp, x) * 2
    return model


def subclassed() -> Model:
    class Louder(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * 2

    model = stack(PreNorm)
    model.layers[3].mlp.up = Louder(DIM, 2 * DIM)  # type: ignore[index, union-attr]
    return model


def tied_layers() -> Model:
    model = stack(PreNorm)
    model.layers[3].mlp.up.weight = model.layers[2].mlp.up.weight  # type: ignore[index, union-attr]
    return model


def tied_inside() -> Model:
    model = stack(PreNorm)
    model.layers[3].norm.bias = model.layers[3].norm.weight  # type: ignore[index, union-attr]
    return model


def one_memory() -> Model:
    """Two parameters of one layer share their memory."""
    model = stack(PreNorm)
    norm: Any = model.layers[3].norm  # type: ignore[index, union-attr]
    norm.bias = nn.Parameter(norm.weight.detach())
    return model


def weight_norm() -> Model:
    model = stack(PreNorm)
    nn.utils.parametrizations.weight_norm(model.layers[3].mlp.up)  # type: ignore[index, union-attr]
    return model


class Composed(nn.Module):
    """A layer of steps, which a test chooses."""

    def __init__(self, kinds: tuple[str, ...], scale: float) -> None:
        super().__init__()
        self.kinds, self.scale = kinds, scale
        self.parts = nn.ModuleList(nn.LayerNorm(DIM) if kind == "norm" else nn.Linear(DIM, DIM) for kind in kinds)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = x
        for kind, part in zip(self.kinds, self.parts, strict=False):
            if kind == "norm" or kind == "plain":
                x = part(x)
            elif kind == "residual":
                x = x + part(x)
            elif kind == "gate":
                x = x * torch.sigmoid(part(x))
            elif kind == "in place":
                y = part(x) * 1
                y.mul_(2)
                y += x
                x = y
            elif kind == "scale":
                x = part(x) * self.scale
            elif kind == "function":
                x = part(Squared.apply(x, self.scale))
            elif kind == "views":
                left, right = part(x).chunk(2, -1)
                x = torch.cat([right, -left], dim=-1)
            elif kind == "write":
                y = part(x).clone()
                y[..., 0] = 0
                x = y
            elif kind == "heads":
                q = part(x).view(x.shape[0], x.shape[1], HEADS, -1).transpose(1, 2)
                x = F.scaled_dot_product_attention(q, q, q).transpose(1, 2).flatten(2)
            elif kind == "skip":
                x = x + part(first)
            elif kind == "detached":
                x = part(x) + x.detach()
        return x


KINDS = (
    "norm",
    "plain",
    "residual",
    "gate",
    "in place",
    "scale",
    "function",
    "views",
    "write",
    "heads",
    "skip",
    "detached",
)
BETWEEN = (
    "",
    "",
    "",
    "double",
    "keep",
    "in place",
    "leak",
    "clone",
    "hook",
    "view",
    "update",
    "unseen",
    "ungraded",
    "same",
    "retain",
    "early",
)


# -- code that is followed, or not --------------------------------------------------------------------------------------
class OddGlobal(Numbered):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        global SCALE
        SCALE = 2.0
        return self.mlp(x)


class OddGenerator(Numbered):
    """Goes through a generator that it has kept, with what its variables are by then."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = (part(x) for part in (self.mlp, self.mlp))
        for part in parts:
            x = x + part
        for part in parts:
            x = x - part
        return x


class OddZip(Numbered):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pairs = zip((1, 2), (self.mlp, self.mlp), strict=False)
        for _ in range(2):
            for scale, part in pairs:
                x = x + part(x) * scale
        return x


class OddList(Numbered):
    """A list of two names, of which one grows."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        one = [self.mlp(x)]
        other = one
        other += [x]
        return one[0] * len(one)


class OddTry(Numbered):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        try:
            return self.mlp(x)
        except RuntimeError:
            return x


class OddWith(Numbered):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return self.mlp(x)


class OddPrint(Numbered):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        print(x.shape)
        return self.mlp(x)


class OddDraw(Numbered):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.mlp(x) * torch.rand(1)


class OddAttribute(Numbered):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x.seen = True  # type: ignore[attr-defined]
        return self.mlp(x)


class OddName(Numbered):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.mlp(x) * getattr(self, "in" + "dex")


class OddPrivate(Numbered):
    __scale = 2.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.mlp(x) * self.__scale


class OddGradient(Numbered):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.mlp(x) if x.grad_fn is None else x


class OddDivision(Numbered):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.mlp(x) * (1 / (self.index * 0))


class OddLambda(Numbered):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (lambda y: y + 1)(self.mlp(x))


class OddWhile(Numbered):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        while x.dim() > 5:
            x = x[0]
        return self.mlp(x)


class OddTuple(Numbered):
    def forward(self, x: torch.Tensor) -> Any:
        return self.mlp(x), x


class OddBranches(Numbered):
    """A list of one item or two: which of them is not known."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = [self.mlp] if x.dim() > 5 else [self.mlp, self.mlp]
        for part in parts:
            x = part(x)
        return x


class EvenBranches(Numbered):
    def forward(self, x: torch.Tensor, *rest: Any, scale: float = 2.0) -> torch.Tensor:
        if x.dim() > 5 or (x.shape[0] == 3 and not rest):
            scale = 3.0
        elif x.shape[1] > 2:
            return self.mlp(x) * scale
        first, _ = (x, x) if self.index is None else (x, None)
        assert scale > 1, "large"
        return self.mlp(first) * scale


class EvenParts(Numbered):
    def helped(self, x: torch.Tensor, scale: float) -> torch.Tensor:
        return self.mlp(x) * scale

    @staticmethod
    def twice(x: torch.Tensor) -> torch.Tensor:
        return 2 * x

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for place, scale in enumerate((1.0, 2.0)):
            x = self.helped(x, scale=scale + place)
        q, k = (self.twice(part) for part in (x, x))
        parts = [part[..., :1] for part in (q, k)]
        y = torch.cat([*parts, x], dim=-1)[..., :DIM]
        y[..., 0] *= 2
        y = y.float() if isinstance(y, torch.Tensor) and self.index != "none" else y
        return -y @ torch.softmax(y.transpose(1, 2) / y.shape[-1] ** 0.5, dim=-1) @ y
