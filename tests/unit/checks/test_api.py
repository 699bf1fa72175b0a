"""What the author of a check may write, and what is said where it makes no sense."""

import pytest
import torch

import graphguard as gg


@pytest.mark.parametrize(
    ("shape", "bounds", "said"),
    [
        ((6,), {"low": 0.5}, r"gg\.tensor\(low=0\.5\): bounds are integers"),
        ((6,), {"high": True}, r"gg\.tensor\(high=True\): bounds are integers"),
        ((6,), {"dtype": torch.int64, "low": 4, "high": 4}, "holds no value"),
        ((6,), {"high": 8}, r"gg\.tensor\(high=8\) bounds integers.*floats by default: give dtype=torch\.int64"),
        ((6,), {"dtype": torch.float16, "low": 0, "high": 8}, r"this tensor holds torch\.float16"),
        ((6.0,), {}, "takes the sizes of the dims"),
        ((-1,), {}, "takes the sizes of the dims"),
    ],
)
def test_a_tensor_that_cannot_be_is_refused(shape, bounds, said):
    with pytest.raises(ValueError, match=said):
        gg.tensor(*shape, **bounds)


def test_bounds_are_kept():
    spec = gg.tensor(2, 3, dtype=torch.int64, low=0, high=7)
    assert (spec.low, spec.high) == (0, 7)


def test_a_range_without_a_start_counts_from_zero():
    assert (gg.tensor(3, dtype=torch.int64, high=8).low, gg.tensor(3, dtype=torch.int64, high=-2).low) == (0, None)
    assert gg.tensor(3, dtype=torch.int64, low=-100, high=8).low == -100
    assert gg.tensor(3, dtype=torch.int64).low is None
