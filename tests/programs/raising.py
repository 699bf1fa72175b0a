"""Programs that raise unless a condition of the data holds; pytest, which writes assertions of tests out, leaves these as they are."""

import torch

WIDTH = 4


def asserted(x: torch.Tensor) -> None:
    assert (x > -5).all()


def asserted_beside_another(x: torch.Tensor) -> None:
    assert x.ndim == 2 and torch.all(x > -5), "out of range"  # noqa: PT018 - what is tested


def asserted_of_the_largest(x: torch.Tensor) -> None:
    assert x.max() < 5


def asserted_of_a_number(x: torch.Tensor) -> None:
    assert x.argmax(1).max().item() < WIDTH


def asserted_equal_to_a_number(x: torch.Tensor) -> None:
    assert (x > 5).sum().item() == 0


def asserted_equal_everywhere(x: torch.Tensor) -> None:
    assert torch.equal(x, x + 0)


def asserted_close(x: torch.Tensor) -> None:
    assert torch.allclose(x, x + 1e-12), "moved"


def raised_unless_equal(x: torch.Tensor) -> None:
    if not x.equal(x.clone()):
        raise ValueError


def branched_on_equality(x: torch.Tensor) -> torch.Tensor:
    return x if torch.equal(x, x.flip(0)) else 2 * x


def asserted_of_half(x: torch.Tensor) -> None:
    """A half is no whole number."""
    assert (x > 0).sum().item() / 2 >= 1


def raised_of_a_sum(x: torch.Tensor) -> None:
    if x.sum().item() * -1e-6 > 0.5:
        raise ValueError


def raised(x: torch.Tensor) -> None:
    if (x < -5).any():
        raise ValueError


def raised_where_one_of_two(x: torch.Tensor) -> None:
    if x.ndim == 3 or (x < -5).any():
        raise ValueError


def raised_unless(x: torch.Tensor) -> None:
    if not (x > -5).all().item():
        message = "out of range"
        raise ValueError(message)


def raised_by_the_last(x: torch.Tensor) -> None:
    if x.ndim == 3:
        return
    if (x > -5).all():
        x.sum()
    else:
        raise ValueError


def raised_by_torch(x: torch.Tensor) -> None:
    torch._assert((x > -5).all(), "out of range")


def caught(x: torch.Tensor) -> torch.Tensor:
    try:
        assert (x > 0).all()
    except AssertionError:
        return x
    return 2 * x


def branched(x: torch.Tensor) -> torch.Tensor:
    if (x > 0).all():
        return x
    return 2 * x


def raised_where_both(x: torch.Tensor) -> torch.Tensor:
    """Either condition alone is fine, so neither is known."""
    if (x > 5).all() and x.ndim == 2:
        raise ValueError
    return x
