"""cuDNN's attention on numbers, without cuDNN: what PyTorch's own attention gives, its logsumexp as a column, and gradients from part of the keys."""

import torch
import torch.nn.functional as F

from graphguard.confirm.run.kernels import cudnn_attention, cudnn_attention_backward

F64 = torch.float64


def test_result_logsumexp_and_gradients() -> None:
    q, k, v = (torch.randn(2, 4, 3, 5, dtype=F64, requires_grad=True) for _ in range(3))
    bias = torch.randn(3, 3, dtype=F64)
    out, lse, *_ = cudnn_attention(q, k, v, bias, True)
    torch.testing.assert_close(out, F.scaled_dot_product_attention(q, k, v, bias))
    torch.testing.assert_close(lse, torch.logsumexp(q @ k.mT / 5**0.5 + bias, -1, keepdim=True))
    grad = torch.randn_like(out)
    expected = torch.autograd.grad(out, (q, k, v), grad)
    with torch.no_grad():
        halves = [
            cudnn_attention_backward(
                grad, q, k[:, :, half], v[:, :, half], out, lse, None, None, bias[:, half], None, None, 3, 3, 0.0, False
            )
            for half in (slice(0, 1), slice(1, 3))
        ]
    torch.testing.assert_close(halves[0][0] + halves[1][0], expected[0])
    torch.testing.assert_close(torch.cat([halves[0][1], halves[1][1]], 2), expected[1])
    torch.testing.assert_close(torch.cat([halves[0][2], halves[1][2]], 2), expected[2])
