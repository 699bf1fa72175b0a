"""Addresses tell recorded memory apart, and nothing else has them."""

import os

import torch
from programs import record


def test_views_lie_within_their_memory() -> None:
    seen: list[int] = []

    def program(x: torch.Tensor) -> torch.Tensor:
        y, empty = x * 2, x.new_empty(0)
        seen.extend(t.data_ptr() for t in (y, y[1:], y.view(-1), x * 3, empty))
        seen.append(y.untyped_storage().data_ptr())
        seen.append(y[2:].untyped_storage().data_ptr())
        return y

    record(program, [torch.ones(4, 3)])
    first, row, flat, other, empty, storage, of_view = seen
    assert row - first == 3 * 4
    assert first == flat == storage == of_view
    assert other != first
    assert (empty, first % 4096) == (0, 0)


def test_real_tensors_keep_theirs() -> None:
    real = torch.ones(3)
    before, seen = real.data_ptr(), []

    def program(x: torch.Tensor) -> torch.Tensor:
        seen.append(real.data_ptr())
        return x + real

    record(program, [torch.ones(3)])
    assert seen == [before] == [real.data_ptr()]


def test_nothing_can_be_read_there() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        (address,) = [(x * 1).data_ptr()]
        found.append(address)
        return x

    found: list[int] = []
    record(program, [torch.ones(3)])
    child = os.fork()
    if not child:
        import ctypes
        import faulthandler

        faulthandler.disable()
        ctypes.string_at(found[0], 1)
        os._exit(0)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
