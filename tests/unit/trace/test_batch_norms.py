"""The steps of batch normalisation over ranks compute what one batch normalisation of the whole batch does, forward and backward."""

import pytest
import torch
from torch.nn import functional as F

from graphguard.trace.calls.batch_norm_steps import STEPS

SHAPES = [(7, 3), (5, 4, 6), (3, 2, 4, 5)]
CUTS = [(1, 2), (2, 1), (1, 1)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize("affine", [True, False])
def test_parts_are_normalised_as_the_whole(shape: tuple[int, ...], cuts: tuple[int, int], affine: bool) -> None:
    torch.manual_seed(0)
    step = {name.removeprefix("aten::batch_norm_"): function for name, function in STEPS.items()}
    channels, eps, momentum = shape[1], 1e-3, 0.3
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    weight, bias = (
        (torch.randn(channels, dtype=torch.float64, requires_grad=True) for _ in range(2)) if affine else (None, None)
    )
    running = torch.randn(channels, dtype=torch.float64), torch.rand(channels, dtype=torch.float64)
    mine = tuple(t.clone() for t in running)
    expected = F.batch_norm(x, *running, weight, bias, True, momentum, eps)
    grad = torch.randn(shape, dtype=torch.float64)
    expected.backward(grad)

    parts = x.detach().split((cuts[0], shape[0] - cuts[0]))
    grads = grad.split((cuts[0], shape[0] - cuts[0]))
    with torch.no_grad():
        stats = [step["stats"](part, eps) for part in parts]
        means, inverses = (torch.stack(each) for each in zip(*stats, strict=True))
        counts = torch.tensor([part.numel() // channels for part in parts], dtype=torch.float64)
        mean, inverse = step["gather_stats_with_counts"](parts[0], means, inverses, *mine, momentum, eps, counts)
        found = [step["elemt"](part, weight, bias, mean, inverse, eps) for part in parts]
        sums = [
            step["backward_reduce"](g, part, mean, inverse, weight, True, True, True)
            for g, part in zip(grads, parts, strict=True)
        ]
        total, products, weight_grad, bias_grad = (torch.stack(each).sum(0) for each in zip(*sums, strict=True))
        back = [
            step["backward_elemt"](g, part, mean, inverse, weight, total, products, counts.int())
            for g, part in zip(grads, parts, strict=True)
        ]
    torch.testing.assert_close(torch.cat(found), expected.detach())
    torch.testing.assert_close(torch.cat(back), x.grad)
    torch.testing.assert_close(mine, running)
    if affine:
        torch.testing.assert_close(weight_grad, weight.grad)
        torch.testing.assert_close(bias_grad, bias.grad)


def test_equal_counts_are_one_number() -> None:
    torch.manual_seed(0)
    means, inverses = torch.randn(2, 3), torch.rand(2, 3) + 0.5
    x = torch.randn(4, 3)
    one = STEPS["aten::batch_norm_gather_stats"](x, means, inverses, None, None, 0.1, 1e-5, 4)
    many = STEPS["aten::batch_norm_gather_stats_with_counts"](
        x, means, inverses, None, None, 0.1, 1e-5, torch.full((2,), 4.0)
    )
    torch.testing.assert_close(one, many)


def test_narrow_batches_keep_wide_statistics() -> None:
    x = torch.randn(6, 3, dtype=torch.bfloat16)
    mean, inverse = STEPS["aten::batch_norm_stats"](x, 1e-5)
    assert (mean.dtype, inverse.dtype) == (torch.float32, torch.float32)
    assert STEPS["aten::batch_norm_elemt"](x, None, None, mean, inverse, 1e-5).dtype == torch.bfloat16


def test_an_empty_batch_is_said() -> None:
    from programs import record
    from torch.nn.modules._functions import SyncBatchNorm

    from graphguard.trace.source.errors import TracingError

    def program(x: torch.Tensor) -> torch.Tensor:
        return SyncBatchNorm.apply(x, None, None, None, None, 1e-5, 0.1, torch.distributed.group.WORLD, 2)

    with pytest.raises(TracingError, match="may be empty"):
        record(program, [torch.ones(0, 3)], 0, {"w": 2})
