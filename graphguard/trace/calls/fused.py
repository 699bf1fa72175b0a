"""Kernels in the steps that they fuse: optimizers, counts and what libraries define here, batch normalisation over ranks in its own file.

The formulas are those of ``torch.optim`` without ``fused=True`` (``_single_tensor_adam``, ``_single_tensor_sgd``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.distributed.distributed_c10d import _resolve_process_group

from graphguard.trace.calls import batch_norm_steps, symmetric_steps


def steps_of(func: Any) -> Callable[..., Any] | None:
    """What computes the same as a fused kernel by unfused operators, or returns NotImplemented; None for any other operator."""
    return _FUSED.get(func._schema.name)  # noqa: SLF001


def _adam(
    params: Any,
    grads: Any,
    exp_avgs: Any,
    exp_avg_sqs: Any,
    max_exp_avg_sqs: Any,
    state_steps: Any,
    *,
    decoupled: bool,
    lr: Any,
    beta1: float,
    beta2: float,
    weight_decay: float,
    eps: float,
    amsgrad: bool,
    maximize: bool,
    grad_scale: Any = None,
    found_inf: Any = None,  # noqa: ARG001  # an overflow skips the step, which a proof does not follow
) -> None:
    for index, param in enumerate(params):
        grad, mean, square = grads[index], exp_avgs[index], exp_avg_sqs[index]
        if grad_scale is not None:
            grad.div_(grad_scale)
        grad = -grad if maximize else grad
        step = state_steps[index].item()
        if weight_decay and decoupled:
            param.mul_(1 - lr * weight_decay)
        elif weight_decay:
            grad = grad.add(param, alpha=weight_decay)
        mean.lerp_(grad, 1 - beta1)
        square.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        largest = square
        if amsgrad:
            largest = max_exp_avg_sqs[index]
            largest.copy_(torch.maximum(largest, square))
        denominator = (largest.sqrt() / (1 - beta2**step) ** 0.5).add_(eps)
        param.addcdiv_(mean, denominator, value=-(lr / (1 - beta1**step)))


def _sgd(
    params: Any,
    grads: Any,
    buffers: Any,
    *,
    weight_decay: float,
    momentum: float,
    lr: Any,
    dampening: float,
    nesterov: bool,
    maximize: bool,
    is_first_step: bool,
    grad_scale: Any = None,
    found_inf: Any = None,  # noqa: ARG001
) -> None:
    for index, param in enumerate(params):
        grad = grads[index]
        if grad_scale is not None:
            grad.div_(grad_scale)
        grad = -grad if maximize else grad
        if weight_decay:
            grad = grad.add(param, alpha=weight_decay)
        if momentum:
            buffer = buffers[index]
            if is_first_step:
                buffer.copy_(grad)
            else:
                buffer.mul_(momentum).add_(grad, alpha=1 - dampening)
            grad = grad.add(buffer, alpha=momentum) if nesterov else buffer
        param.add_(grad, alpha=-lr)


def _plain_adam(*args: Any, **kwargs: Any) -> None:
    _adam(*args, decoupled=False, **kwargs)


def _adamw(*args: Any, **kwargs: Any) -> None:
    _adam(*args, decoupled=True, **kwargs)


def _unscale(grads: Any, found_inf: Any, inv_scale: Any) -> None:  # noqa: ARG001  # no overflow is assumed
    for grad in grads:
        grad.mul_(inv_scale)


def _bincount(numbers: torch.Tensor, weights: torch.Tensor | None = None, minlength: int = 0) -> Any:
    """How many of each number there are.  Numbers are taken to be below ``minlength``, as those that index a table are to be rows of it: there its size is known."""
    if not minlength:
        return NotImplemented
    rows = torch.eye(minlength, dtype=torch.int64, device=numbers.device)[numbers]
    return rows.sum(0) if weights is None else (rows * weights[:, None]).sum(0)


def _equal(one: torch.Tensor, other: torch.Tensor) -> Any:
    """Whether two tensors are the same, which the program asks for."""
    if one.shape != other.shape:
        return False
    return (one == other).all().item()


def _allclose(
    one: torch.Tensor, other: torch.Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> Any:
    """Whether two tensors are nearly the same, which the program asks for."""
    return torch.isclose(one, other, rtol, atol, equal_nan).all().item()


def _of_bytes(operator: Any, place: int) -> Callable[..., Any]:
    """A loss of classes in uint8, which PyTorch's shape functions do not take though its kernels do."""

    def loss(*args: Any, **kwargs: Any) -> Any:
        if args[place].dtype != torch.uint8:
            return NotImplemented
        return operator(*args[:place], args[place].long(), *args[place + 1 :], **kwargs)

    return loss


def _shard_dim_alltoall(shard: Any, gather_dim: int, shard_dim: int, group: Any) -> Any:
    """DTensor's move of a shard to another dim: every rank sends each member a part of its own, and joins what arrives along the dim that was cut."""
    group = _resolve_process_group(group) if isinstance(group, str) else group
    ranks = group.size()
    parts = torch.stack(shard.chunk(ranks, shard_dim))
    arrived = torch.ops._c10d_functional.all_to_all_single(parts, [1] * ranks, [1] * ranks, group.group_name)  # noqa: SLF001
    return torch.cat(torch.ops._c10d_functional.wait_tensor(arrived).unbind(), gather_dim)  # noqa: SLF001


_FUSED: dict[str, Callable[..., Any]] = (
    batch_norm_steps.STEPS
    | symmetric_steps.STEPS
    | {
        "aten::_fused_adam_": _plain_adam,
        "aten::_fused_adamw_": _adamw,
        "aten::_fused_sgd_": _sgd,
        "aten::bincount": _bincount,
        "aten::equal": _equal,
        "aten::allclose": _allclose,
        "aten::nll_loss_forward": _of_bytes(torch.ops.aten.nll_loss_forward, 1),
        "aten::nll_loss_backward": _of_bytes(torch.ops.aten.nll_loss_backward, 2),
        "aten::nll_loss2d_forward": _of_bytes(torch.ops.aten.nll_loss2d_forward, 1),
        "aten::nll_loss2d_backward": _of_bytes(torch.ops.aten.nll_loss2d_backward, 2),
        "_dtensor::shard_dim_alltoall": _shard_dim_alltoall,
        "aten::_amp_foreach_non_finite_check_and_unscale_": _unscale,
    }
)
