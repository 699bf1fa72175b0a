"""Operands of element types that no kernel takes together are an error, as in eager mode."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from programs import record

from graphguard.trace.calls.kinds import kind_of
from graphguard.trace.calls.refusals import refuse_types

WIDE, NARROW = torch.ones(4, 4), torch.ones(4, 4, dtype=torch.bfloat16)
IMAGE, FILTER = torch.ones(1, 2, 5, 5), torch.ones(3, 2, 3, 3, dtype=torch.bfloat16)
PLACES = torch.tensor([0, 1, 2, 3])


def _filled(wide: torch.Tensor, narrow: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
    result = narrow.clone()
    result[narrow > 0] = wide[:1, 0]
    return result


REFUSED: dict[str, Callable[..., object]] = {
    "mm": lambda wide, narrow, places, image, filters: wide @ narrow,
    "linear with a bias": lambda wide, narrow, places, image, filters: F.linear(wide, wide, narrow[0]),
    "addmm": lambda wide, narrow, places, image, filters: torch.addmm(narrow, wide, wide),
    "addmv": lambda wide, narrow, places, image, filters: torch.addmv(narrow[0], wide, wide[0]),
    "mv": lambda wide, narrow, places, image, filters: wide @ narrow[0],
    "addbmm": lambda wide, narrow, places, image, filters: torch.addbmm(narrow, wide[None], wide[None]),
    "convolution": lambda wide, narrow, places, image, filters: F.conv2d(image, filters),
    "group_norm": lambda wide, narrow, places, image, filters: F.group_norm(image, 2, narrow[0, :2], narrow[0, :2]),
    "index_put": lambda wide, narrow, places, image, filters: wide.clone().index_put_((places,), narrow),
    "index_add": lambda wide, narrow, places, image, filters: wide.index_add(0, places, narrow),
    "index_copy": lambda wide, narrow, places, image, filters: wide.index_copy(0, places, narrow),
    "nll_loss's weights": lambda wide, narrow, places, image, filters: F.cross_entropy(wide, places, narrow[0]),
    "nll_loss's classes": lambda wide, narrow, places, image, filters: F.cross_entropy(wide, places.int()),
    "binary_cross_entropy": lambda wide, narrow, places, image, filters: F.binary_cross_entropy(wide, narrow),
    "softmax of integers": lambda wide, narrow, places, image, filters: torch.softmax(places, 0),
    "product of truths": lambda wide, narrow, places, image, filters: (wide > 0) @ (wide > 0),
    "bits of floats": lambda wide, narrow, places, image, filters: wide & wide,
    "a truth less a number": lambda wide, narrow, places, image, filters: 1 - (wide > 0),
    "an integer times a half in place": lambda wide, narrow, places, image, filters: places.clone().mul_(0.5),
    "one number at a place": lambda wide, narrow, places, image, filters: wide.clone().index_put_(
        (places[:1],), narrow[0, :1]
    ),
    "classes of a narrow type": lambda wide, narrow, places, image, filters: F.one_hot(places.int(), 4),
    "places of a narrow type": lambda wide, narrow, places, image, filters: wide.index_copy(0, places.int(), wide),
    "a variance of integers": lambda wide, narrow, places, image, filters: places.var(),
    "one number where a mask is true, added": lambda wide, narrow, places, image, filters: wide.clone().index_put_(
        (torch.tensor([True, False, True, False]),), narrow[0, 0], accumulate=True
    ),
    "attention": lambda wide, narrow, places, image, filters: F.scaled_dot_product_attention(
        wide[None], wide[None], wide[None], narrow[None]
    ),
    "large operands": lambda wide, narrow, places, image, filters: wide.repeat(300, 500) @ narrow.repeat(500, 300),
}
TAKEN: dict[str, Callable[..., object]] = {
    "promotion": lambda wide, narrow, places, image, filters: wide + narrow * places,
    "one element fills a mask": _filled,
    "distances": lambda wide, narrow, places, image, filters: torch.cdist(wide.double(), wide.double()),
    "large operands": lambda wide, narrow, places, image, filters: wide.repeat(300, 500) @ wide.repeat(500, 300),
    "a division by what may be 0": lambda wide, narrow, places, image, filters: places // (places + 1),
    "copy": lambda wide, narrow, places, image, filters: wide.clone().copy_(narrow),
    "softmax of integers in a type": lambda wide, narrow, places, image, filters: torch.softmax(
        places, 0, dtype=torch.float32
    ),
    "norm with wide parameters": lambda wide, narrow, places, image, filters: F.layer_norm(
        narrow, (4,), wide[0], wide[0]
    ),
}


OPERANDS = (WIDE, NARROW, PLACES, IMAGE, FILTER)


@pytest.mark.parametrize("name", REFUSED)
def test_what_eager_mode_refuses_is_refused(name: str) -> None:
    with pytest.raises(RuntimeError) as eager:
        REFUSED[name](*OPERANDS)
    with pytest.raises(type(eager.value)):
        record(REFUSED[name], OPERANDS)


@pytest.mark.parametrize("name", TAKEN)
def test_what_eager_mode_takes_is_taken(name: str) -> None:
    TAKEN[name](*OPERANDS)
    assert record(TAKEN[name], OPERANDS).graph is not None


SHAPES: dict[str, Callable[..., object]] = {
    "a bias of all rows for one row": lambda: F.linear(torch.ones(4, 3), torch.ones(1, 3), torch.ones(2)),
    "addmm": lambda: torch.addmm(torch.ones(4, 5), torch.ones(4, 3), torch.ones(3, 1)),
    "index_add": lambda: torch.zeros(4, 3).index_add_(0, torch.tensor([0, 1]), torch.ones(2, 1)),
    "slice_scatter": lambda: torch.zeros(4, 3).slice_scatter(torch.ones(1, 3), 0, 0, 2),
    "group_norm's weight": lambda: F.group_norm(torch.ones(2, 4, 3), 2, torch.ones(3), torch.ones(3)),
    "a large bias": lambda: F.linear(torch.ones(400, 30), torch.ones(1, 30), torch.ones(2)),
    "a large bias of another width": lambda: torch.addmm(torch.ones(400, 30), torch.ones(400, 50), torch.ones(50, 1)),
    "a large index_add": lambda: torch.zeros(400, 30).index_add_(0, torch.tensor([0, 1]), torch.ones(2, 1)),
}
FITTING: dict[str, Callable[..., object]] = {
    "a bias of one row": lambda: F.linear(torch.ones(4, 3), torch.ones(2, 3), torch.ones(1)),
    "an index at the end": lambda: torch.ones(1, 3).index_select(0, torch.tensor([0])),
    "a factorisation": lambda: torch.linalg.inv(torch.ones(3, 3)),
    "groups of large channels": lambda: F.conv1d(torch.ones(2, 96, 40), torch.ones(64, 6, 5), groups=16),
    "a norm over groups of large channels": lambda: F.group_norm(torch.ones(2, 96, 40), 32),
    "queries of shared heads": lambda: F.scaled_dot_product_attention(
        torch.ones(2, 24, 30, 16), torch.ones(2, 6, 30, 16), torch.ones(2, 6, 30, 16), enable_gqa=True
    ),
    "a large kernel": lambda: F.avg_pool1d(torch.ones(2, 3, 400), 7, stride=5, padding=3),
    "large parts of a fold": lambda: F.fold(torch.ones(2, 3 * 5 * 5, 36), (10, 10), (5, 5)),
    "pixels made of channels": lambda: F.pixel_shuffle(torch.ones(2, 72, 20, 20), 6),
    "a row of a large table": lambda: torch.ones(300, 400).t()[:1] @ torch.ones(300, 2),
}


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_that_do_not_fit_are_refused(name: str) -> None:
    with pytest.raises(RuntimeError):
        SHAPES[name]()
    with pytest.raises(RuntimeError):
        record(SHAPES[name], ())


@pytest.mark.parametrize("name", FITTING)
def test_what_only_numbers_decide_is_not_refused(name: str) -> None:
    record(FITTING[name], ())


@pytest.mark.parametrize("shape", [(4, 3), (60, 70)])
@pytest.mark.parametrize(
    "call",
    [
        lambda x: torch.copysign(x.t(), torch.tensor(1.0)),
        lambda x: x.t() // torch.tensor(2.0),
        lambda x: torch.logaddexp(x.t(), x.t()),
        lambda x: F.batch_norm(x[None].transpose(1, 2), None, None, training=True),
        lambda x: F.scaled_dot_product_attention(
            *(x.view(1, *x.shape, 1).transpose(1, 2),) * 2, x.view(1, *x.shape, 1).transpose(1, 2).expand(-1, -1, -1, 5)
        ),
    ],
)
def test_results_lie_as_kernels_lay_them(call: Callable[[torch.Tensor], torch.Tensor], shape: tuple[int, int]) -> None:
    found = []

    def program(x: torch.Tensor) -> torch.Tensor:
        result = call(x)
        found.append(result.stride())
        return result

    x = torch.ones(shape)
    record(program, (x,))
    assert found == [call(x).stride()]


def test_no_number_is_drawn_to_find_out() -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    refuse_types(kind_of(torch.ops.aten.bernoulli_.float), (torch.ones(3, dtype=torch.bfloat16), 0.5), {})
    assert torch.equal(before, torch.get_rng_state())


def test_what_only_other_devices_take_is_not_refused() -> None:
    with pytest.raises(NotImplementedError):
        torch.ops.aten._cdist_forward(NARROW, NARROW, 2.0, None)
    refuse_types(kind_of(torch.ops.aten._cdist_forward.default), (NARROW, NARROW, 2.0, None), {})


def test_what_the_data_decides_is_not_refused() -> None:
    refuse_types(kind_of(torch.ops.aten._assert_async.default), (torch.ones((), dtype=torch.int64),), {})
