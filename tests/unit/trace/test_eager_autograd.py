"""Programs that use hooks, higher gradients, custom functions and checkpoints, recorded as eager PyTorch runs them, bit for bit."""

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from programs import assert_equals_eager
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

pytestmark = pytest.mark.filterwarnings("ignore")

PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {}


def program(function: Callable[[torch.Tensor], Any]) -> Callable[[torch.Tensor], Any]:
    PROGRAMS[function.__name__] = function
    return function


def leaf(x):
    return x.detach().clone().requires_grad_()


@program
def leaf_inplace(x):
    w = leaf(x)
    with torch.no_grad():
        w.add_(1)
        w[0].zero_()
        w.view(-1)[5:7].mul_(3)
    (w * w * x).sum().backward()
    return (w.grad, w.detach())


@program
def inplace_on_view_autograd(x):
    w = leaf(x)
    y = w * 1
    v = y[1:3]
    v.mul_(w[0])
    y[:, 1].exp_()
    (y * y).sum().backward()
    return (w.grad, y.detach())


@program
def inplace_on_base_then_view_grad(x):
    w = leaf(x)
    y = w * 2
    v = y.view(-1)
    y.mul_(w)
    (v * v).sum().backward()
    return w.grad


@program
def detach_shares(x):
    w = leaf(x)
    y = w * 1
    d = y.detach()
    d.add_(1)
    return y.detach() * 2


@program
def retain_graph(x):
    w = leaf(x)
    y = w.sin() * w
    y.sum().backward(retain_graph=True)
    g = w.grad.clone()
    y.backward(w.detach(), retain_graph=True)
    (2 * y).sum().backward()
    return (g, w.grad)


@program
def grad_accumulate_alias(x):
    w = leaf(x)
    w.grad = torch.ones(4, 4)
    g = w.grad
    (w * x).sum().backward()
    g.mul_(2)
    return w.grad


@program
def zero_grad_modes(x):
    w = nn.Parameter(x * 1)
    o = torch.optim.SGD([w], 0.1)
    (w * w).sum().backward()
    o.zero_grad(set_to_none=False)
    (w * x).sum().backward()
    o.step()
    return (w.detach(), w.grad)


@program
def double_backward(x):
    w = leaf(x)
    (g,) = torch.autograd.grad((w**3).sum(), w, create_graph=True)
    (h,) = torch.autograd.grad((g * g).sum(), w, create_graph=True)
    h.sum().backward()
    return (g.detach(), h.detach(), w.grad)


@program
def gradient_penalty(x):
    m = nn.Linear(4, 3, bias=False)
    m.weight.data = x[:3].clone() * 0.5
    a = leaf(x)
    o = torch.tanh(m(a))
    (g,) = torch.autograd.grad(o.sum(), a, create_graph=True)
    (g.norm(dim=1) - 1).pow(2).mean().backward()
    return (m.weight.grad, a.grad)


@program
def tensor_hooks(x):
    def doubled(parameter):
        parameter.grad.mul_(2)

    w = leaf(x)
    w.register_hook(lambda g: g * 2)
    z = w * 3
    z.register_hook(lambda g: g + 1)
    z.retain_grad()
    w.register_post_accumulate_grad_hook(doubled)
    (z * z).sum().backward()
    return (w.grad, z.grad)


@program
def prehooks(x):
    w = leaf(x)
    z = w * 3
    z.grad_fn.register_prehook(lambda gs: (gs[0] * 2,))
    z.grad_fn.register_hook(lambda gi, go: (gi[0] + go[0], *tuple(gi[1:])))
    z.sum().backward()
    return w.grad


@program
def multi_grad_hook(x):
    w = leaf(x)
    v = leaf(x)
    got = []
    torch.autograd.graph.register_multi_grad_hook((w, v), lambda gs: got.append(gs[0] * gs[1]))
    (w * v).sum().backward()
    return (w.grad, got[0])


@program
def module_backward_hooks(x):
    m = nn.Linear(4, 4, bias=False)
    m.weight.data = x.clone()
    m.register_full_backward_pre_hook(lambda m, g: (g[0] * 2,))
    m.register_full_backward_hook(lambda m, gi, go: (gi[0] * 3,))
    a = leaf(x)
    m(a).sum().backward()
    return (a.grad, m.weight.grad)


@program
def saved_tensor_hooks(x):
    w = leaf(x)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone().mul_(2), lambda t: t / 2):
        y = w * w.exp()
    y.sum().backward()
    return w.grad


class ScaledInPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        x.mul_(y)
        ctx.mark_dirty(x)
        ctx.save_for_backward(y, x)
        return x

    @staticmethod
    def backward(ctx, g):
        y, o = ctx.saved_tensors
        return (g * y, g * o / y)


@program
def mark_dirty(x):
    w = leaf(x)
    v = leaf(x + 5)
    a = w * 1
    b = ScaledInPlace.apply(a, v)
    (a * b).sum().backward()
    return (w.grad, v.grad)


class ExpAndOrder(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        i = x.argsort(-1)
        ctx.mark_non_differentiable(i)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(y)
        return (y, i, x.sum())

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g, _, s):
        (y,) = ctx.saved_tensors
        assert s is None
        return g * y


@program
def non_differentiable(x):
    w = leaf(x)
    y, i, _s = ExpAndOrder.apply(w)
    y.gather(1, i).sum().backward()
    return (w.grad, i)


class Scaled(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, k):
        return x * k

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.k = inputs[1]
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return (g * ctx.k * x.cos(), None)

    @staticmethod
    def jvp(ctx, t, _):
        return t * ctx.k


@program
def setup_context(x):
    w = leaf(x)
    Scaled.apply(w, 3.0).sum().backward()
    return (w.grad, torch.func.vmap(lambda a: Scaled.apply(a, 2.0))(x))


@program
def nested_function_double(x):

    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            ctx.save_for_backward(a)
            return a**3

        @staticmethod
        def backward(ctx, g):
            (a,) = ctx.saved_tensors
            return Sq.apply(a) * 3 * g

    class Sq(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            ctx.save_for_backward(a)
            return a * a

        @staticmethod
        def backward(ctx, g):
            (a,) = ctx.saved_tensors
            return 2 * a * g

    w = leaf(x)
    (g,) = torch.autograd.grad(Cube.apply(w).sum(), w, create_graph=True)
    g.sum().backward()
    return w.grad


@program
def returns_view_function(x):

    class V(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            return a.view(-1)

        @staticmethod
        def backward(ctx, g):
            return g.view(4, 4) * 2

    w = leaf(x)
    (V.apply(w * 1) ** 2).sum().backward()
    return w.grad


def block(a, b):
    return torch.tanh(a @ b) * a


@program
def checkpoint_sac(x):
    def policy(ctx, op, *_, **__):
        return CheckpointPolicy.MUST_SAVE if op == torch.ops.aten.mm.default else CheckpointPolicy.PREFER_RECOMPUTE

    w, v = (leaf(x), leaf(x * 2))
    y = checkpoint(
        block, w, v, use_reentrant=False, context_fn=functools.partial(create_selective_checkpoint_contexts, policy)
    )
    y.sum().backward()
    return (w.grad, v.grad)


@program
def parametrize(x):

    class Sym(nn.Module):
        def forward(self, X):
            return X.triu() + X.triu(1).t()

    m = nn.Linear(4, 4, bias=False)
    m.weight.data = x.clone()
    nn.utils.parametrize.register_parametrization(m, "weight", Sym())
    m(x).sum().backward()
    return m.parametrizations.weight.original.grad


@program
def tied(x):
    e = nn.Embedding(4, 4)
    h = nn.Linear(4, 4, bias=False)
    h.weight = e.weight
    e.weight.data.copy_(x)
    h(e(torch.tensor([1, 2, 1]))).pow(2).sum().backward()
    return e.weight.grad


@program
def set_grad_enabled(x):
    w = leaf(x)
    with torch.set_grad_enabled(False):
        y = w * 2
    with torch.inference_mode():
        q = x * 3
    return (y * 1, q.clone())


@program
def grad_of_grad_hooks(x):
    w = leaf(x)
    y = w * w
    y.register_hook(lambda g: g * w)
    (g,) = torch.autograd.grad(y.sum(), w, create_graph=True)
    g.sum().backward()
    return w.grad


@program
def autograd_backward_inputs(x):
    w, v = (leaf(x), leaf(x))
    y = (w * v).sum()
    y.backward(inputs=[w])
    return (w.grad, (v.grad is None) * x)


@program
def grad_is_grads_batched(x):
    w = leaf(x[0])
    y = w**2
    return torch.autograd.grad(y, w, torch.eye(4), is_grads_batched=True)[0]


@program
def accumulate_views(x):
    flat = torch.zeros(20)
    w = nn.Parameter(x * 1)
    b = nn.Parameter(x[0] * 1)
    w.grad = flat[:16].view(4, 4)
    b.grad = flat[16:]
    (w @ b).sum().backward()
    flat.mul_(0.5)
    return (flat, w.grad, b.grad)


@program
def main_grad_hook(x):
    w = nn.Parameter(x * 1)
    w.main_grad = torch.zeros(4, 4)
    acc = w.expand_as(w).grad_fn.next_functions[0][0]
    acc.register_hook(lambda *_: (w.main_grad.add_(w.grad), setattr(w, "grad", None), None)[2])
    (w * w).sum().backward()
    (w * x).sum().backward()
    return w.main_grad


@program
def inplace_relu_grad(x):
    w = leaf(x)
    y = w * 2
    F.relu(y, inplace=True)
    z = F.leaky_relu_(y + 1, 0.1)
    F.dropout(z, 0.0, inplace=True)
    (z * z).sum().backward()
    return w.grad


@program
def retained_views_grad(x):
    w = leaf(x)
    a, b = w.split(2)
    a.retain_grad()
    (a * b).sum().backward()
    return (w.grad, a.grad)


@program
def grad_none_and_unused(x):
    w, v = (leaf(x), leaf(x))
    return torch.autograd.grad((w * 2).sum(), (w, v), allow_unused=True, materialize_grads=True)


@program
def higher_order_mix(x):
    w = leaf(x)
    for _ in range(2):
        (g,) = torch.autograd.grad((w.tanh() ** 2).sum(), w, create_graph=True)
        w = w - 0.1 * g
    v = leaf(x)
    q = v
    for _ in range(2):
        (g,) = torch.autograd.grad((q.tanh() ** 2).sum(), q, create_graph=True)
        q = q - 0.1 * g
    q.sum().backward()
    return v.grad


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_equals_eager(name: str) -> None:
    assert_equals_eager(PROGRAMS[name], torch.randn(4, 4, generator=torch.Generator().manual_seed(1)))


@pytest.mark.parametrize("reentrant", [True, False])
def test_nested_checkpoints_equal_eager(reentrant: bool) -> None:
    def nested(x):
        w, v = leaf(x), leaf(x * 2)
        y = checkpoint(block, w, v, use_reentrant=reentrant)
        z = checkpoint(lambda t: checkpoint(block, t, v, use_reentrant=reentrant), y, use_reentrant=reentrant)
        z.sum().backward()
        return w.grad, v.grad

    assert_equals_eager(nested, torch.randn(4, 4, generator=torch.Generator().manual_seed(1)))
