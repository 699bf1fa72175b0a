"""Programs that hardcode CUDA; each is recorded in a world without a GPU.  ``cuda`` stands where the CPU version says ``cpu``."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

SNIPPETS: dict[str, Callable[[str], Any]] = {}


def snippet(program: Callable[[str], Any]) -> Callable[[str], Any]:
    SNIPPETS[program.__name__] = program
    return program


def simple(name: str, program: Callable[[str], Any]) -> None:
    SNIPPETS[name] = program


def on(device: str, x: torch.Tensor) -> torch.Tensor:
    return x.cuda() if device == "cuda" else x


simple("empty", lambda d: torch.empty(2, 3, device=d).zero_())
simple("randn", lambda d: torch.randn(2, 3, device=d))
simple("device_by_number", lambda d: torch.ones(2, 3, device=0 if d == "cuda" else d))
simple("tensor", lambda d: torch.tensor([1, 2], device=d) * 2)
simple("method_cuda", lambda d: on(d, torch.ones(2, 3)) * 2)
simple("to_name", lambda d: torch.ones(2, 3).to(d) * 2)
simple("to_number", lambda d: torch.ones(2, 3).to(0 if d == "cuda" else d) * 2)
simple("linear_on_device", lambda d: nn.Linear(4, 4, device=d)(torch.randn(2, 4, device=d)))
simple("rms_norm", lambda d: F.rms_norm(torch.ones(2, 4, device=d), (4,)))
simple("layer_norm", lambda d: F.layer_norm(torch.ones(2, 4, device=d), (4,)))
simple("drawn_by_generator", lambda d: torch.rand(2, device=d, generator=torch.Generator(device=d).manual_seed(1)))
simple("dropout", lambda d: F.dropout(torch.ones(4, 4, device=d), 0.1))
simple("item_of_a_constant", lambda d: torch.ones(2, device=d) * torch.tensor([3], device=d).item())
simple("item_of_a_sum", lambda d: torch.ones(2, device=d) * torch.ones(3, device=d).sum().item())
simple("graph_pool", lambda d: torch.ones(2, device=d) * (2 if d == "cpu" else len(torch.cuda.graph_pool_handle())))
simple("pin_memory", lambda d: torch.ones(2).pin_memory() * 2 if d == "cuda" else torch.ones(2) * 2)
simple("typed_constructor", lambda d: (torch.cuda.FloatTensor([1, 2]) if d == "cuda" else torch.tensor([1.0, 2.0])) * 2)


@snippet
def forward_gradient(device):
    """PyTorch scripts its formulas for these when one is first wanted."""
    x = torch.ones(2, 4, device=device)
    return torch.func.jvp(lambda t: F.layer_norm(t, (4,)), (x,), (x * 2,))[1]


@snippet
def module_cuda(device):
    module = nn.Linear(4, 4)
    module = module.cuda() if device == "cuda" else module
    return module(torch.randn(2, 4, device=device))


@snippet
def module_to(device):
    return nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)).to(device)(torch.randn(2, 4, device=device))


@snippet
def current_device(device):
    return torch.ones(2, device=torch.cuda.current_device() if device == "cuda" else device)


@snippet
def streams_and_events(device):
    if device == "cpu":
        return torch.ones(2) * 2
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        y = torch.ones(2, device=device) * 2
    torch.cuda.current_stream().wait_stream(stream)
    event = torch.cuda.Event()
    event.record()
    event.wait()
    event.synchronize()
    y.record_stream(torch.cuda.current_stream())
    return y


@snippet
def device_context(device):
    with torch.device(device):
        return torch.ones(2, 2) + torch.arange(2)


@snippet
def attention(device):
    q = torch.randn(1, 2, 8, 16, device=device, dtype=torch.bfloat16)
    return F.scaled_dot_product_attention(q, q, q, is_causal=True)


@snippet
def attention_backward(device):
    q = torch.randn(1, 2, 8, 16, device=device, dtype=torch.bfloat16, requires_grad=True)
    F.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()
    return q.grad


@snippet
def attention_with_a_chosen_kernel(device):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(SDPBackend.MATH):
        q = torch.randn(1, 2, 8, 16, device=device, dtype=torch.bfloat16)
        return F.scaled_dot_product_attention(q, q, q, is_causal=True)


@snippet
def backward(device):
    x = torch.randn(4, 4, device=device, requires_grad=True)
    (x @ x).sum().backward()
    return x.grad


@snippet
def all_reduce(device):
    x = torch.randn(4, 4, device=device)
    dist.all_reduce(x)
    return x


@snippet
def all_reduce_in_backward(device):
    class Reduce(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.view_as(x)

        @staticmethod
        def backward(ctx, g):
            g = g.clone()
            dist.all_reduce(g)
            return g

    x = torch.randn(4, 4, device=device, requires_grad=True)
    Reduce.apply(x * 2).sum().backward()
    return x.grad


@snippet
def new_group(device):
    group = dist.new_group([0, 1], backend="nccl" if device == "cuda" else "gloo")
    x = torch.randn(4, device=device)
    dist.all_reduce(x, group=group)
    return x


@snippet
def recomputation(device):
    x = torch.randn(4, 4, device=device, requires_grad=True)
    checkpoint(lambda t: F.dropout((t @ t).relu(), 0.5), x, use_reentrant=False).sum().backward()
    return x.grad


@snippet
def compiled(device):
    return torch.compile(lambda x: x * 2 + 1)(torch.ones(3, device=device))


@snippet
def scripted(device):
    @torch.jit.script
    def double(x):
        return x * 2 + 1

    return double(torch.ones(3, device=device))


@snippet
def optimizer_step(device):
    weight = nn.Parameter(torch.ones(3, device=device))
    optimizer = torch.optim.AdamW([weight], lr=0.1)
    (weight * weight).sum().backward()
    optimizer.step()
    return weight


@snippet
def clipping(device):
    weight = nn.Parameter(torch.ones(3, device=device))
    (weight * weight).sum().backward()
    nn.utils.clip_grad_norm_([weight], 1.0)
    return weight.grad


def _attention_kernels() -> bool:
    """As a GPU answers: the fused kernel for half precision without a mask, the efficient one for single precision too, cuDNN's for nothing."""

    def answers(dtype: torch.dtype, width: int = 8, mask: bool = False) -> tuple[bool, ...]:
        q = torch.ones(1, 2, 4, width, dtype=dtype, device="cuda")
        bias = torch.ones(4, 4, dtype=dtype, device="cuda") if mask else None
        params = torch.backends.cuda.SDPAParams(q, q, q, bias, 0.0, False, False)
        asked = ("flash", "efficient", "cudnn")
        return tuple(getattr(torch.backends.cuda, f"can_use_{name}_attention")(params) for name in asked)

    half = torch.bfloat16
    return (
        answers(half) == (True, True, False)
        and answers(half, mask=True) == (False, True, False)
        and answers(half, width=6) == (False, False, False)
        and answers(torch.float32) == (False, True, False)
        and answers(torch.float64) == (False, False, False)
    )


# What only a GPU program says, with nothing on the CPU to compare with: it must run.
ONLY_CUDA: dict[str, Callable[[], Any]] = {
    "set_device": lambda: torch.cuda.set_device(0) or True,
    "own_device": lambda: _own_device(),
    "accelerator": lambda: torch.accelerator.set_device_index(2) or torch.cuda.current_device() == 2,
    "accelerator_modulo_devices": lambda: 1 % torch.accelerator.device_count() == 1,
    "legacy_constructors": lambda: _legacy_constructors(),
    "is_available": lambda: torch.cuda.is_available(),
    "device_count": lambda: torch.cuda.device_count(),
    "device_name": lambda: torch.cuda.get_device_name(0),
    "toolkit": lambda: int((torch.version.cuda or "").split(".")[0]) >= 11,
    "capability": lambda: torch.cuda.get_device_capability(),
    "properties": lambda: torch.cuda.get_device_properties(0).major,
    "synchronize": lambda: torch.cuda.synchronize() or True,
    "manual_seed": lambda: torch.cuda.manual_seed(1) or True,
    "manual_seed_all": lambda: torch.cuda.manual_seed_all(1) or True,
    "rng_state": lambda: torch.cuda.set_rng_state(torch.cuda.get_rng_state().clone()) or True,
    "memory": lambda: torch.cuda.memory_allocated() == 0,
    "memory_of_the_module": lambda: torch.cuda.memory.memory_stats()["allocated_bytes.all.current"] == 0,
    "memory_summary": lambda: torch.cuda.memory_summary() == "",
    "rank_modulo_devices": lambda: torch.cuda.set_device(1 % torch.cuda.device_count()) or True,
    "generator": lambda: (
        isinstance(torch.default_generator, torch.Generator)
        and torch.Generator(device="cuda").manual_seed(1) is not None
    ),
    "scripted_optimizers": lambda: importlib.import_module("torch.distributed.optim") is not None,
    "attention_kernels": lambda: _attention_kernels(),
    "empty_cache": lambda: torch.cuda.empty_cache() or True,
    "profiler_ranges": lambda: torch.cuda.nvtx.range_push("step") == torch.cuda.nvtx.range_pop(),
    "is_nccl_available": lambda: dist.is_nccl_available(),
    "backend": lambda: dist.get_backend() == "nccl",
    "is_cuda": lambda: torch.ones(2, device="cuda").is_cuda,
    "autocast": lambda: _autocast(torch.autocast("cuda", dtype=torch.bfloat16)),
    "old_autocast": lambda: _autocast(torch.cuda.amp.autocast(dtype=torch.bfloat16)),
}


def _autocast(casting: Any) -> bool:
    with casting:
        product = nn.Linear(4, 4, device="cuda")(torch.randn(2, 4, device="cuda"))
    return product.dtype == torch.bfloat16


def _own_device() -> bool:
    """A rank has one device, whether it names it by its local rank, as the first one or without a number."""
    torch.cuda.set_device(3)
    own = torch.ones(2, device="cuda:3")
    parts = [torch.ones(2, device="cuda"), torch.ones(2).cuda(), torch.ones(2).to("cuda:0"), torch.ones(2).cuda(3)]
    moved = own.to("cuda:0")
    return torch.cuda.current_device() == 3 and sum(parts, own).device == own.device and moved is own


def _legacy_constructors() -> bool:
    with torch.device("cuda"):
        held = torch.ones(3)
        held.data = torch.Tensor()
        return held.numel() == 0 and torch.Tensor([1, 2]).shape == (2,) and torch.Tensor(2, 3).shape == (2, 3)
