"""Calls whose results are written out here, because PyTorch cannot run the operator on this machine or draws at random."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from .bench import DRAW
from .samples import F64, Call, Make, b, i, p, r

WRITTEN: list[tuple[str, Make]] = []


def written(op: str, make: Callable[[], tuple[tuple[Any, ...], dict[str, Any], list[torch.Tensor]]]) -> None:
    """A call and its results."""

    def call() -> Call:
        args, kwargs, expected = make()
        return Call(op, args, kwargs, expected=expected)

    WRITTEN.append((op, call))


def drawn(op: str, numbers: torch.Tensor, args: tuple[Any, ...], expected: list[torch.Tensor], **kwargs: Any) -> None:
    """A call that draws these numbers."""
    WRITTEN.append((op, lambda: Call(op, args, kwargs, expected=expected, draws={DRAW: numbers.numpy()})))


# -- attention
Operands = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def _qkv(heads: int = 4, groups: int = 2, queries: int = 3, keys: int = 5, grad: bool = False) -> Operands:
    q, k, v = r(2, heads, queries, 4), r(2, groups, keys, 4), r(2, groups, keys, 6)
    return (q.requires_grad_(grad), k.requires_grad_(grad), v.requires_grad_(grad))


def _attention(q: Any, k: Any, v: Any, mask: Any = None, causal: bool = False, scale: float | None = None) -> Any:
    """Result and logsumexp, from the documented equation."""
    k, v = (x.repeat_interleave(q.shape[-3] // x.shape[-3], -3) for x in (k, v))
    s = q @ k.mT * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if causal:
        s = s.masked_fill(~torch.ones(s.shape[-2:], dtype=torch.bool).tril(), -math.inf)
    if mask is not None:
        s = s.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else s + mask
    return s.softmax(-1) @ v, s.logsumexp(-1)


def _sdpa(mask: torch.Tensor | None, causal: bool, scale: float | None) -> Any:
    q, k, v = _qkv(keys=3 if causal else 5)
    return (q, k, v, mask, 0.0, causal, scale, True), {}, [_attention(q, k, v, mask, causal, scale)[0]]


def _sdpa_backward(mask: torch.Tensor | None, causal: bool) -> Any:
    q, k, v = _qkv(grad=True)
    out, _ = _attention(q, k, v, mask, causal)
    g = torch.randn_like(out)
    return (g, q, k, v, out, mask, 0.0, causal, None, True), {}, list(torch.autograd.grad(out, (q, k, v), g))


def _visible() -> torch.Tensor:
    """A mask in which every row sees its first column."""
    mask = b(2, 1, 3, 5)
    mask[..., 0] = True
    return mask


written("gg.sdpa", lambda: _sdpa(None, False, None))
written("gg.sdpa", lambda: _sdpa(None, True, 0.3))
written("gg.sdpa", lambda: _sdpa(_visible(), False, None))
written("gg.sdpa", lambda: _sdpa(r(3, 5), False, None))
written("gg.sdpa_backward", lambda: _sdpa_backward(None, False))
written("gg.sdpa_backward", lambda: _sdpa_backward(None, True))
written("gg.sdpa_backward", lambda: _sdpa_backward(_visible(), False))
written("gg.sdpa_backward", lambda: _sdpa_backward(r(1, 4, 3, 5), False))


def _kernel(*rest: Any, mask: bool = False) -> Any:
    q, k, v = _qkv()
    bias = r(2, 1, 3, 5) if mask else None
    out, lse = _attention(q, k, v, bias)
    return (q, k, v, *((bias, True) if mask else ()), *rest), {}, [out, lse]


def _ring_backward(name: str) -> Any:
    """The second half of the keys, with result and logsumexp of all of them."""
    q, k, v = _qkv(grad=True)
    mask = r(2, 1, 3, 5) if "efficient" in name else None
    out, lse = _attention(q, k, v, mask)
    g = torch.randn_like(out)
    grads = torch.autograd.grad(out, (q, k, v), g)
    weights = (_scores(q, k, mask) - lse[..., None]).exp()
    inner = (g @ v.repeat_interleave(2, 1).mT - (g * out).sum(-1, keepdim=True)) * weights
    part = inner[..., 2:] @ k.repeat_interleave(2, 1)[..., 2:, :] / 2
    operands = (g, q, k[:, :, 2:], v[:, :, 2:])
    tail: tuple[Any, ...] = (None, None, 3, 3, 0.0, False, None, None)
    if mask is not None:
        half = (*operands, mask[..., 2:], out, lse, None, None, 0.0, [True, True, True, False])
    else:
        half = (*operands, out, lse, *tail)
    return half, {}, [part, grads[1][:, :, 2:], grads[2][:, :, 2:]]


def _scores(q: Any, k: Any, mask: Any) -> Any:
    s = q @ k.repeat_interleave(2, 1).mT / 2
    return s if mask is None else s + mask


written("aten._scaled_dot_product_flash_attention.default", _kernel)
written("aten._scaled_dot_product_efficient_attention.default", lambda: _kernel(mask=True))


def _column() -> Any:
    """cuDNN's, whose logsumexp is a column."""
    operands, kwargs, (out, lse) = _kernel(mask=True)
    return operands, kwargs, [out, lse[..., None]]


def _column_backward() -> Any:
    half, kwargs, grads = _ring_backward("efficient")
    *operands, mask, out, lse = half[:7]
    return (*operands, out, lse[..., None], None, None, mask, None, None, 3, 3, 0.0, False), kwargs, grads


written("aten._scaled_dot_product_cudnn_attention.default", _column)
written("aten._scaled_dot_product_cudnn_attention_backward.default", _column_backward)
for _name in ("flash", "efficient"):
    _op = f"aten._scaled_dot_product_{_name}_attention_backward.default"
    written(_op, lambda op=_op: _ring_backward(op))

# -- products with scales and in groups
OFFSETS = torch.tensor([2, 2, 5], dtype=torch.int32)
GROUPS = ((0, 2), (2, 2), (2, 5))


def _scaled_mm(rows: bool) -> Any:
    x, w = r(3, 4), r(4, 5)
    sx, sw = (p(3, 1), p(1, 5)) if rows else (p(1)[0], p(1)[0])
    bias = r(5)
    return (x, w, sx, sw, bias, None, F64), {}, [(x * sx) @ (w * sw) + bias]


def _grouped_rows() -> Any:
    x, w = r(5, 3), r(3, 3, 4)
    expected = torch.cat([x[low:high] @ w[g] for g, (low, high) in enumerate(GROUPS)])
    return (x, w, OFFSETS), {}, [expected]


def _grouped_columns() -> Any:
    x, w = r(3, 2, 4), r(4, 5)
    expected = torch.cat([x[g] @ w[:, low:high] for g, (low, high) in enumerate(GROUPS)], 1)
    return (x, w, OFFSETS), {}, [expected]


def _grouped_inner() -> Any:
    x, w = r(2, 5), r(5, 4)
    expected = torch.stack([x[:, low:high] @ w[low:high] for low, high in GROUPS])
    return (x, w, OFFSETS), {}, [expected]


written("aten._scaled_mm.default", lambda: _scaled_mm(True))
written("aten._scaled_mm.default", lambda: _scaled_mm(False))
written("aten._grouped_mm.default", _grouped_rows)
written("aten._grouped_mm.default", _grouped_columns)
written("aten._grouped_mm.default", _grouped_inner)
written("aten._grouped_mm.default", lambda: ((x := r(2, 3, 4), w := r(2, 4, 5)), {}, [x @ w]))
written("aten.mm.dtype", lambda: ((x := r(3, 4), w := r(4, 5), F64), {}, [x @ w]))
written("aten.bmm.dtype", lambda: ((x := r(2, 3, 4), w := r(2, 4, 5), F64), {}, [x @ w]))
written("aten._int_mm.default", lambda: ((x := i(9, 3, 4), w := i(9, 4, 5)), {}, [x @ w]))

# -- names without a function on this machine
written("hlo.logistic", lambda: ((x := r(3),), {}, [x.sigmoid()]))
written("_c10d_functional.wait_tensor.default", lambda: ((x := r(3),), {}, [x]))
written("aten.pin_memory.default", lambda: ((x := r(3),), {}, [x]))
written("aten._autocast_to_full_precision.default", lambda: ((x := r(3).float(), True, True), {}, [x]))
written("aten._autocast_to_reduced_precision.default", lambda: ((x := r(3), True, True), {}, [x.bfloat16()]))
written("aten._add_relu.Tensor", lambda: ((x := r(3), y := r(3)), {"alpha": 2}, [(x + 2 * y).relu()]))
written("aten.linear_backward.default", lambda: _linear_backward())
written("aten.convolution_overrideable.default", lambda: _convolution())
written("aten._native_batch_norm_legit.default", lambda: _batch_norm())
written("aten._fused_rms_norm_backward.default", lambda: _rms_norm_backward())
written("aten._efficientzerotensor.default", lambda: (([2, 3],), {"dtype": F64}, [torch.zeros(2, 3, dtype=F64)]))
written("aten.nan_to_num.default", lambda: ((x := i(5, 3), 1.0), {}, [x]))


def _linear_backward() -> Any:
    x, g, w = r(2, 3, 4), r(2, 3, 5), r(5, 4)
    expected = [g @ w, torch.einsum("bni,bnj->ij", g, x), g.sum((0, 1))]
    return (x, g, w, [True, True, True]), {}, expected


def _convolution() -> Any:
    x, w = r(2, 3, 5), r(4, 3, 2)
    return (x, w, None, [1], [0], [1], False, [0], 1), {}, [torch.nn.functional.conv1d(x, w)]


def _batch_norm() -> Any:
    x, mean, var = r(4, 3), r(3), p(3)
    expected = list(torch.ops.aten.native_batch_norm(x, None, None, mean.clone(), var.clone(), True, 0.1, 1e-5))
    return (x, None, None, mean, var, True, 0.1, 1e-5), {}, expected


def _rms_norm_backward() -> Any:
    x, w, g = r(2, 3, 4).requires_grad_(), r(4).requires_grad_(), r(2, 3, 4)
    rstd = (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt()
    expected = torch.autograd.grad(x * rstd * w, (x, w), g)
    return (g, x, [4], rstd, w, [True, True]), {}, list(expected)


def _fused(name: str, lists: int) -> Any:
    """A learning rate in a tensor does what the number does."""
    groups = [[p(3, 2), p(4)] for _ in range(lists)]
    steps = [torch.tensor(2.0), torch.tensor(2.0)]
    common: dict[str, Any] = {"weight_decay": 0.1, "maximize": False}
    tail: tuple[Any, ...] = (steps,)
    if "adam" in name and "grad" not in name:
        tail = ([], steps)
        common |= {"beta1": 0.9, "beta2": 0.99, "eps": 1e-8, "amsgrad": False}
    elif "sgd" in name:
        tail = ()
        common |= {"momentum": 0.9, "dampening": 0.0, "nesterov": True, "is_first_step": False}
    else:
        common |= {"lr_decay": 0.1, "eps": 1e-8}
    function = getattr(torch.ops.aten, f"{name}_").default
    kept = [[t.clone() for t in group] for group in groups]
    function(*kept, *tail, lr=0.01, **common)
    return (*groups, *tail), {"lr": torch.tensor(0.01, dtype=F64), **common}, [t for group in kept for t in group]


for _name, _lists in (("_fused_adam", 4), ("_fused_adamw", 4), ("_fused_sgd", 3), ("_fused_adagrad", 3)):
    written(f"aten.{_name}.tensor_lr", lambda name=_name, lists=_lists: _fused(name, lists))

# -- random draws
U = torch.rand(2, 3, dtype=F64)
N = torch.randn(2, 3, dtype=F64)
K = torch.tensor([[True, False, True], [False, True, True]])
Z = torch.zeros(2, 3, dtype=F64)
drawn("aten.rand.default", U, ([2, 3],), [U])
drawn("aten.rand.generator", U, ([2, 3],), [U])
drawn("aten.rand_like.default", U, (Z,), [U])
drawn("aten.uniform.default", U, (Z, -1.0, 3.0), [U * 4 - 1])
drawn("aten.randn.default", N, ([2, 3],), [N])
drawn("aten.randn.generator", N, ([2, 3],), [N])
drawn("aten.randn_like.default", N, (Z,), [N])
drawn("aten.normal.float_float", N, (0.5, 2.0, [2, 3]), [N * 2 + 0.5])
drawn("aten.normal_functional.default", N, (Z, 0.5, 2.0), [N * 2 + 0.5])
drawn("aten.exponential.default", U, (Z, 2.0), [U / 2])
drawn("aten.randint.default", torch.tensor([1, 4]), (5, [2]), [torch.tensor([1, 4])])
drawn("aten.randint.generator", torch.tensor([1, 4]), (5, [2]), [torch.tensor([1, 4])])
drawn("aten.randint.low", torch.tensor([1, 2]), (2, 5, [2]), [torch.tensor([3, 4])])
drawn("aten.randint.low_generator", torch.tensor([1, 2]), (2, 5, [2]), [torch.tensor([3, 4])])
drawn("aten.randint_like.low_dtype", torch.tensor([1, 2]), (torch.tensor([0, 0]), 2, 5), [torch.tensor([3, 4])])
drawn("aten.randperm.default", torch.tensor([1, 0]), (2,), [torch.tensor([1, 0])])
drawn("aten.randperm.generator", torch.tensor([1, 0]), (2,), [torch.tensor([1, 0])])
for _name in ("p", "float"):
    drawn(f"aten.bernoulli.{_name}", K, (Z, 0.5), [K.double()])
drawn("aten.bernoulli.default", U, (Z + 0.4,), [(U < 0.4).double()])
drawn("aten.bernoulli.Tensor", U, (Z, Z + 0.4), [(U < 0.4).double()])
drawn("aten.native_dropout.default", K, (N, 0.25, True), [N * K / 0.75, K])
drawn("aten.native_dropout.default", K, (N, 0.25, False), [N, torch.ones_like(K)])
drawn("aten.dropout.default", K, (N, 0.25, True), [N * K / 0.75])
drawn(
    "gg.sdpa",
    torch.ones(1, 1, 2, 2, dtype=torch.bool),
    (Q := r(1, 1, 2, 3), Q, Q, None, 0.5),
    [_attention(Q, Q, Q)[0] * 2],
)
written("aten.native_dropout_backward.default", lambda: ((g := r(2, 3), K, 1 / 0.75), {}, [g * K / 0.75]))


# -- what a recording assumes of the data
for _truth in (True, False):
    written("gg.assume", lambda truth=_truth: ((torch.tensor(truth), truth), {}, [torch.tensor(True)]))
for _target in (torch.bfloat16, torch.float32):
    written("gg.rounded", lambda target=_target: ((x := torch.randn(3), False), {}, [x.to(target)]))
