"""Programs that transform programs or watch them, by ``torch.func``, ``make_fx`` or modes of their own, recorded as eager PyTorch runs them, bit for bit."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
from programs import assert_equals_eager
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

pytestmark = pytest.mark.filterwarnings("ignore")

PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {}


def program(function: Callable[[torch.Tensor], Any]) -> Callable[[torch.Tensor], Any]:
    PROGRAMS[function.__name__] = function
    return function


@program
def func_grad_vmap(x):
    return torch.func.vmap(torch.func.grad(lambda r, s: (r * s).sin().sum()), in_dims=(0, None))(x, x[0])


@program
def func_jvp(x):
    return torch.func.jvp(lambda a: a.tanh() @ a.t(), (x,), (x * 2,))


@program
def func_jacrev(x):
    return torch.func.jacrev(lambda a: (a * a).sum(0))(x)


@program
def func_hessian(x):
    return torch.func.hessian(lambda a: (a**3).sum())(x[0])


@program
def func_linearize(x):
    o, f = torch.func.linearize(lambda a: a.exp(), x)
    return (o, f(x))


@program
def func_vjp(x):
    o, f = torch.func.vjp(lambda a: a.t() @ a, x)
    return (o, f(x)[0])


@program
def func_functional_call(x):
    m = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    ps = {"0.weight": x, "0.bias": x[0]}
    g = torch.func.grad(lambda q: torch.func.functional_call(m, q, (x,)).sum())(ps)
    return (g["0.weight"], g["0.bias"])


@program
def vmap_inplace(x):

    def f(a):
        b = a.clone()
        b[0] = 2
        b.mul_(a)
        return b

    return torch.func.vmap(f)(x)


@program
def forward_mode(x):
    with forward_ad.dual_level():
        d = forward_ad.make_dual(x * 1, x * 3)
        return forward_ad.unpack_dual(d.sin() * d).tangent


@program
def make_fx_inside(x):
    g = make_fx(lambda a: (a * 2).sin())(x)
    return (g(x), g(x * 3))


@program
def functionalize_inside(x):

    def f(a):
        b = a.clone()
        b.add_(1)
        return b

    return torch.func.functionalize(f)(x)


@program
def flop_counter(x):
    with FlopCounterMode(display=False) as c:
        y = x @ x
    return (y, x * c.get_total_flops())


@program
def user_dispatch_mode(x):

    class Twice(TorchDispatchMode):
        def __torch_dispatch__(self, f, types, a=(), k=None):
            r = f(*a, **k or {})
            return r * 2 if f is torch.ops.aten.mm.default else r

    with Twice():
        return x @ x


@program
def user_function_mode(x):

    class Neg(TorchFunctionMode):
        def __torch_function__(self, f, types, a=(), k=None):
            r = f(*a, **k or {})
            return -r if f is torch.exp else r

    with Neg():
        return torch.exp(x)


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_equals_eager(name: str) -> None:
    assert_equals_eager(PROGRAMS[name], torch.randn(4, 4, generator=torch.Generator().manual_seed(1)))


def test_what_ran_before_changes_nothing() -> None:
    """What operators return is remembered; a mode between a recording and its tensors must see every call all the same."""
    x = torch.randn(4, 4, generator=torch.Generator().manual_seed(1))
    assert_equals_eager(lambda a: a * a.exp(), x)
    assert_equals_eager(PROGRAMS["func_linearize"], x)
    assert_equals_eager(PROGRAMS["func_linearize"], x)
