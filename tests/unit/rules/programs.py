"""Small programs, forward and backward: what autograd and the optimisers really call."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

PROGRAMS: dict[str, Callable[[], Any]] = {}
UNARY = "exp log sqrt rsqrt sin cos abs sign floor ceil round trunc erf reciprocal square log1p expm1 neg exp2 log2 log10 tan atan asinh frac sinh cosh erfc"
OVER_DIM = "logsumexp cumsum prod var std softmax log_softmax amax amin"
ACTIVATIONS = "relu gelu silu sigmoid tanh softplus elu leaky_relu hardswish hardsigmoid mish logsigmoid hardtanh relu6 selu celu softsign tanhshrink"
OPTIMISERS = "SGD Adam AdamW Adagrad RMSprop Adamax NAdam RAdam Adadelta"


def program(name: str, run: Callable[[], Any]) -> None:
    """A program; gradients are taken of every result that has one."""
    PROGRAMS[name] = run


def r(*shape: int) -> torch.Tensor:
    """An operand that gradients flow to."""
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def p(*shape: int) -> torch.Tensor:
    """A positive operand that gradients flow to."""
    return (torch.rand(*shape, dtype=torch.float64) + 0.5).requires_grad_()


def run(name: str) -> None:
    """Forward, then backward from random cotangents."""
    torch.manual_seed(len(name))
    results = PROGRAMS[name]()
    listed = results if isinstance(results, (tuple, list)) else [results]
    roots = [y for y in listed if isinstance(y, torch.Tensor) and y.requires_grad]
    if roots:
        torch.autograd.backward(roots, [torch.randn_like(y) for y in roots])


for _name in UNARY.split():
    program(_name, lambda name=_name: getattr(torch, name)(p(3, 4)))
for _name in OVER_DIM.split():
    program(f"{_name} over a dim", lambda name=_name: getattr(p(3, 4), name)(-1))
for _name in ACTIVATIONS.split():
    program(f"F.{_name}", lambda name=_name: getattr(F, name)(r(3, 5)))
program("softplus early", lambda: F.softplus(4 * r(5, 4), 2.0, 1.5))
for _loss in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"):
    for _reduction in ("mean", "sum", "none"):
        program(
            f"{_loss} {_reduction}", lambda loss=_loss, k=_reduction: getattr(F, loss)(r(3, 4), r(3, 4), reduction=k)
        )

program("gelu by tanh", lambda: F.gelu(r(3, 5), approximate="tanh"))
program("glu, prelu", lambda: (F.glu(r(3, 4)), F.prelu(r(3, 4), r(4))))
program("linear", lambda: F.linear(r(2, 3, 4), r(5, 4), r(5)))
program("matmul", lambda: (r(2, 3, 4) @ r(4, 5), r(3, 4) @ r(4), r(2, 1, 3, 4) @ r(3, 4, 5)))
program("einsum", lambda: torch.einsum("bhid,bhjd->bhij", r(2, 2, 3, 4), r(2, 2, 5, 4)))
program("addmm", lambda: torch.addmm(r(3, 5), r(3, 4), r(4, 5), beta=0.5, alpha=2))
program("baddbmm", lambda: torch.baddbmm(r(2, 3, 5), r(2, 3, 4), r(2, 4, 5), beta=0, alpha=2))
program("outer, kron", lambda: (torch.outer(r(3), r(4)), torch.kron(r(2, 2), r(2, 2)), r(3, 3).trace()))

program("layer norm", lambda: (F.layer_norm(r(2, 3, 4), (4,), r(4), r(4)), F.layer_norm(r(2, 3, 4), (3, 4))))
program("rms norm", lambda: F.rms_norm(r(2, 3, 4), (4,), r(4)))
program("group norm", lambda: F.group_norm(r(2, 6, 3, 5), 3, r(6), r(6)))
program(
    "batch norm in training", lambda: F.batch_norm(r(4, 3, 5), torch.zeros(3).double(), p(3).detach(), r(3), r(3), True)
)
program(
    "batch norm in evaluation", lambda: F.batch_norm(r(4, 3, 5), torch.randn(3).double(), p(3).detach(), r(3), r(3))
)
program("batch norm without statistics", lambda: F.batch_norm(r(4, 3, 5, 2), None, None, r(3), r(3), True))
program("normalize", lambda: (F.normalize(r(3, 4)), F.cosine_similarity(r(3, 4), r(3, 4))))

LABELS = torch.tensor([0, 1, 4, 2, 2, 3])
program("cross entropy", lambda: F.cross_entropy(r(6, 5), LABELS))
program("cross entropy, ignored labels", lambda: F.cross_entropy(r(6, 5), torch.tensor([0, -100, 4, 2, -100, 3])))
program("cross entropy, an ignored class", lambda: F.cross_entropy(r(6, 5), LABELS, ignore_index=2, reduction="sum"))
program("cross entropy of every row", lambda: F.cross_entropy(r(6, 5), LABELS, reduction="none"))
program("cross entropy, weighted", lambda: F.cross_entropy(r(6, 5), LABELS, weight=p(5).detach()))
program("cross entropy, smoothed", lambda: F.cross_entropy(r(6, 5), LABELS, label_smoothing=0.1))
program("cross entropy, soft labels", lambda: F.cross_entropy(r(6, 5), torch.rand(6, 5).double()))
program("cross entropy of sequences", lambda: F.cross_entropy(r(2, 5, 3), torch.randint(0, 5, (2, 3))))
program("cross entropy of images", lambda: F.cross_entropy(r(2, 5, 3, 2), torch.randint(0, 5, (2, 3, 2))))
program("nll loss", lambda: F.nll_loss(r(4, 3), torch.tensor([0, 1, 2, 0])))
program("binary cross entropy", lambda: F.binary_cross_entropy(p(3, 4) * 0.6, torch.rand(3, 4).double()))
program(
    "binary cross entropy of logits",
    lambda: F.binary_cross_entropy_with_logits(r(3, 4), torch.rand(3, 4).double(), pos_weight=p(4).detach()),
)
program("kl divergence", lambda: F.kl_div(F.log_softmax(r(3, 4), -1), F.softmax(r(3, 4), -1), reduction="batchmean"))
program(
    "kl of logarithms",
    lambda: F.kl_div(F.log_softmax(r(3, 4), -1), F.log_softmax(r(3, 4), -1), log_target=True, reduction="sum"),
)

IDS = torch.tensor([[1, 2], [3, 1]])
program("embedding", lambda: F.embedding(IDS, r(5, 4)))
program("embedding with padding", lambda: F.embedding(IDS, r(5, 4), padding_idx=1))
program("one hot", lambda: F.one_hot(torch.tensor([1, 0, 2]), 4))
program("index rows", lambda: (r(5, 4)[torch.tensor([1, 2, 2])], r(5, 4, 3)[:, torch.tensor([1, 2, 2])]))
program("index apart", lambda: r(5, 4, 3)[IDS, :, torch.tensor([1, 2])])
program("index pairs", lambda: r(5, 4)[torch.arange(3), torch.tensor([1, 2, 2])])
program("gather", lambda: r(3, 5).gather(1, torch.tensor([[1, 2], [0, 0], [4, 3]])))
program("scatter", lambda: r(3, 5).scatter(1, torch.tensor([[1], [0], [4]]), r(3, 1)))
program("scatter a number", lambda: r(3, 5).scatter(1, torch.tensor([[1, 2], [0, 0], [4, 3]]), 2.0))
program("scatter_add", lambda: r(3, 5).scatter_add(0, torch.tensor([[1, 2, 0], [0, 0, 1]]), r(2, 3)))
program("index_select", lambda: r(3, 5).index_select(1, torch.tensor([1, 2, 4, 1])))
program("index_add", lambda: r(3, 5).index_add(1, torch.tensor([1, 2, 4, 1]), r(3, 4), alpha=2))
program("take_along_dim", lambda: torch.take_along_dim(r(3, 5), torch.tensor([[1, 2], [0, 0], [4, 3]]), 1))
program("masked_fill", lambda: r(3, 4).masked_fill(torch.rand(3, 4) > 0.5, -1.0))
program("where", lambda: torch.where(torch.rand(3, 4) > 0.5, r(3, 4), r(4)))
program("topk and sort", lambda: (r(3, 5).topk(2)[0], r(3, 5).sort()[0]))
program("extremes", lambda: (r(3, 4).max(1)[0], r(3, 4).min(1)[0], r(3, 4).max(), r(3, 4).amax((0, 1))))

program("cat and stack", lambda: (torch.cat([r(2, 3), r(4, 3)], 0), torch.stack([r(2, 3), r(2, 3)], 1)))
program("split", lambda: (*r(7, 3).split(3), *r(3, 7).split([2, 5], 1), *r(7, 3).chunk(3), *r(3, 2).unbind(1)))
program("slices", lambda: (r(7, 6)[1:6:2, -3:], r(7, 6)[3], r(7, 6).narrow(1, 2, 3)))
program("roll and flip", lambda: (r(4, 5).roll((1, -2), (0, 1)), r(4, 5).roll(3), r(3, 4).flip(0)))
program("repeat", lambda: (r(2, 3).repeat(2, 1, 3), r(2, 3).repeat_interleave(2, 1), r(1, 3).expand(4, 2, 3)))
program(
    "pad",
    lambda: (
        F.pad(r(2, 3), (1, 2, -1, 3)),
        F.pad(r(2, 3), (1, 2), value=5.0),
        F.pad(r(2, 3, 4), (1, 2), mode="circular"),
    ),
)
program("triangles", lambda: (r(4, 5).tril(1), r(4, 5).triu(-1), r(4, 5).diagonal(1), torch.diag_embed(r(4))))
program("unfold", lambda: r(3, 9).unfold(1, 3, 2))
program("pixel shuffle", lambda: (F.pixel_shuffle(r(2, 8, 3, 3), 2), F.pixel_unshuffle(r(2, 2, 4, 4), 2)))
program("moved dims", lambda: (r(2, 3, 4).movedim(0, 2), r(4, 6).as_strided((3, 2), (6, 2), 1), r(2, 3, 4).mT))

program("clamp", lambda: (r(3, 4).clamp(-0.5, 0.5), r(3, 4).clamp_min(0), r(3, 4).clamp(max=0.2)))
program("order", lambda: (torch.maximum(r(3, 4), r(3, 4)), torch.minimum(r(3, 4), r(4))))
program("lerp", lambda: (torch.lerp(r(3), r(3), 0.3), torch.lerp(r(3), r(3), r(3))))
program("addcmul", lambda: (torch.addcmul(r(3), r(3), r(3), value=0.5), torch.addcdiv(r(3), r(3), p(3), value=0.5)))
program("powers", lambda: (r(3) ** 2, r(3) ** 3, p(3) ** 0.5, 2.0 ** r(3), p(3) ** r(3)))
program(
    "arithmetic",
    lambda: (1 - r(3) * 2 / p(3), 3 / p(3), -r(3), torch.add(r(3), r(3), alpha=2), torch.sub(r(3), r(1), alpha=3)),
)
program(
    "integers",
    lambda: (
        torch.arange(7) // 2,
        torch.arange(-3, 7) % 3,
        torch.arange(3) * 2.5,
        torch.arange(3) / 2,
        torch.arange(1, 9, 3),
    ),
)
program(
    "kinds",
    lambda: (
        (torch.arange(5) > 2).sum(),
        (torch.arange(5) > 2) * torch.ones(5),
        torch.tensor([1.5, -1.5]).long(),
        torch.arange(5).bool(),
    ),
)
program(
    "made",
    lambda: (
        torch.linspace(0, 1, 5),
        torch.eye(3),
        torch.full((2,), 3),
        torch.meshgrid(torch.arange(3), torch.arange(4), indexing="ij")[0],
    ),
)
program(
    "logic",
    lambda: (
        torch.tensor([1.0, 2.0]).any(),
        torch.tensor([[1.0, 0.0]]).all(1),
        ~torch.tensor([True]),
        torch.isfinite(torch.ones(2)),
    ),
)
program(
    "reductions",
    lambda: (
        r(2, 3, 4).mean((0, 2), keepdim=True),
        r(2, 3, 4).sum(),
        r(2, 3, 4).var((1, 2)),
        r(3, 4).std(0, correction=0),
    ),
)
program("var_mean", lambda: torch.var_mean(r(3, 4)))
program(
    "norms",
    lambda: (
        r(3, 4).norm(),
        torch.linalg.vector_norm(r(3, 4), ord=3, dim=0),
        torch.linalg.vector_norm(r(3, 4), ord=math.inf),
        r(3, 4).norm(p=1),
    ),
)
program("logaddexp", lambda: torch.logaddexp(r(3), r(3)))
program(
    "casts",
    lambda: (torch.ones(3).bfloat16().float(), torch.ones(3).half().add_(torch.ones(3)), torch.ones(3).double()),
)

program("attention, CPU kernel", lambda: F.scaled_dot_product_attention(r(2, 2, 3, 4), r(2, 2, 5, 4), r(2, 2, 5, 4)))
program(
    "attention, causal",
    lambda: F.scaled_dot_product_attention(r(2, 2, 3, 4), r(2, 2, 3, 4), r(2, 2, 3, 4), is_causal=True),
)
program(
    "multi-head attention",
    lambda: nn.MultiheadAttention(8, 2, batch_first=True).double()(r(2, 3, 8), r(2, 3, 8), r(2, 3, 8))[0],
)
program(
    "encoder layer", lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True).double()(r(2, 3, 8))
)
program("LSTM", lambda: nn.LSTM(4, 3).double()(r(5, 2, 4))[0])
program("GRU", lambda: nn.GRU(4, 3).double()(r(5, 2, 4))[0])
program(
    "convolutions",
    lambda: (
        F.conv2d(r(2, 4, 6, 6), r(6, 4, 3, 3), r(6), stride=2, padding=1),
        F.conv1d(r(2, 4, 6), r(6, 2, 3), r(6), groups=2, padding=1),
    ),
)
program(
    "transposed convolution",
    lambda: F.conv_transpose2d(r(2, 4, 3, 3), r(4, 3, 3, 3), r(3), stride=2, padding=1, output_padding=1),
)
program(
    "pooling",
    lambda: (
        F.avg_pool2d(r(2, 3, 6, 6), 2),
        F.adaptive_avg_pool2d(r(2, 3, 5, 6), (2, 3)),
        F.max_pool2d(r(2, 3, 6, 6), 3, 2),
    ),
)
program(
    "interpolation",
    lambda: (
        F.interpolate(r(2, 3, 4, 4), scale_factor=2),
        F.interpolate(r(2, 3, 4, 4), scale_factor=1.5, mode="bilinear"),
    ),
)


def _complex_rotation() -> Any:
    x = torch.view_as_complex(r(3, 4, 2))
    turned = x * torch.polar(torch.ones(3, 4).double(), torch.randn(3, 4).double())
    return torch.view_as_real(turned.reshape(2, 6)).flatten(1), turned.abs(), (turned[1:] + turned[:2]).conj().real


def _complex_fills() -> Any:
    x = torch.view_as_complex(r(3, 4, 2))
    padded = torch.cat([x, torch.ones(2, 4, dtype=torch.complex128), torch.full((1, 4), 0.5, dtype=torch.complex128)])
    filled = (torch.full_like(x, 2.0) * x, x.new_full((3, 4), 3.0) + x, x.new_ones(3, 4) * x, torch.ones_like(x) + x)
    return tuple(torch.view_as_real(one) for one in (padded, *filled, torch.ones(0, 4, dtype=torch.complex128)))


def _transforms() -> Any:
    x, w = r(2, 4, 6), torch.view_as_complex(r(4, 2))
    shifted = torch.fft.ifft(torch.fft.fft(x, dim=1, norm="ortho") * w[:, None], dim=1)
    filtered = torch.fft.irfft2(torch.fft.rfft2(x) * w, s=(4, 6))
    return torch.view_as_real(shifted / (shifted + 2)), filtered, (x.mT.to(torch.complex128) @ w.reshape(4, 1)).abs()


def _steps(optimiser: str, **options: Any) -> None:
    parameters = [nn.Parameter(torch.randn(3, 2).double()), nn.Parameter(torch.randn(4).double())]
    step = getattr(torch.optim, optimiser)(parameters, lr=0.1, **options)
    for _ in range(2):
        for parameter in parameters:
            parameter.grad = torch.randn_like(parameter)
        step.step()


def _clip(**options: Any) -> None:
    parameters = [nn.Parameter(torch.randn(3, 2).double()), nn.Parameter(torch.randn(4).double())]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    nn.utils.clip_grad_norm_(parameters, 1.0, foreach=False, **options)


def _assignments() -> None:
    x = torch.zeros(4, 5).double()
    x[1:3, ::2] = torch.randn(2, 3).double()
    x[:, 0] = 1.0
    x[x > 0.5] = 0.25
    x[0] += 2
    x.index_put_((torch.tensor([0, 2]),), torch.ones(2, 5).double(), accumulate=True)


program("complex rotation", _complex_rotation)
program("complex fills", _complex_fills)
program("transforms", _transforms)
program(
    "interpolation by cubics",
    lambda: (
        F.interpolate(r(2, 3, 4, 5), size=(6, 3), mode="bicubic"),
        F.interpolate(r(2, 3, 8, 9), size=(3, 4), mode="bicubic", antialias=True),
        F.interpolate(r(2, 3, 8, 9), size=(3, 4), mode="bilinear", antialias=True),
        F.interpolate(r(1, 2, 3, 4, 3), scale_factor=2, mode="trilinear"),
        F.interpolate(r(2, 3, 5), size=7, mode="nearest-exact"),
    ),
)
program(
    "padding by what is there",
    lambda: [F.pad(r(2, 3, 5, 4), (1, 2, 2, 0), mode=mode) for mode in ("reflect", "replicate", "circular")],
)
program("pooling of volumes", lambda: (F.max_pool3d(r(1, 2, 4, 5, 4), 2), F.adaptive_avg_pool3d(r(1, 2, 4, 5, 4), 3)))
program(
    "margins of rows",
    lambda: [
        F.multi_margin_loss(r(4, 3), torch.tensor([0, 2, 1, 0]), p=2, margin=0.7, weight=p(3).detach(), reduction=kind)
        for kind in ("none", "mean", "sum")
    ],
)
program(
    "margins of many labels", lambda: F.multilabel_margin_loss(r(2, 4), torch.tensor([[3, 0, -1, 1], [0, -1, 2, 1]]))
)
LABELLED = torch.tensor([[1, 2, 2], [3, 1, 3]])  # as long as any: PyTorch leaves beginnings of shorter ones unwritten
program("alignments", lambda: F.ctc_loss(r(6, 2, 4).log_softmax(-1), LABELLED, (6, 6), (3, 3)))
program(
    "alignments of lengths in tensors",
    lambda: F.ctc_loss(
        r(6, 2, 4).log_softmax(-1), LABELLED, torch.tensor([6, 6]), torch.tensor([3, 3]), reduction="none"
    ),
)
program("bilinear layer", lambda: F.bilinear(r(3, 4), r(3, 5), r(2, 4, 5), r(2)))
program(
    "F.hardshrink, F.softshrink, logit", lambda: (F.hardshrink(r(3, 4)), F.softshrink(r(3, 4)), (p(3, 4) / 2).logit())
)
program("assignments", _assignments)
program("clipping", _clip)
program("clipping by the largest", lambda: _clip(norm_type=math.inf))
for _name in OPTIMISERS.split():
    program(f"optim.{_name}", lambda name=_name: _steps(name, foreach=False))
for _name in ("SGD", "Adam", "AdamW", "Adagrad"):
    program(f"optim.{_name}, fused", lambda name=_name: _steps(name, fused=True, weight_decay=0.1))
program("momentum", lambda: _steps("SGD", momentum=0.9, nesterov=True, weight_decay=0.1, foreach=False))
program("momentum, fused", lambda: _steps("SGD", momentum=0.9, weight_decay=0.1, fused=True))
program("amsgrad, fused", lambda: _steps("AdamW", amsgrad=True, maximize=True, fused=True))
