"""Operators that act on every row alone, on ranks that have some of the rows: images, spectra, alignments, functions that nobody opens."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.tensor import Replicate, Shard

import graphguard as gg

Program = Callable[..., Any]
ROWS = {"dp": Shard(0)}
WHOLE = {"dp": Replicate()}
IMAGE = (gg.tensor(4, 3, 6, 5),)
LABELS = gg.tensor(4, 3, dtype=torch.int64, low=1, high=5)


def warped(x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    return F.grid_sample(x, places, mode="bicubic", padding_mode="border", align_corners=False)


def mixed(x: torch.Tensor) -> torch.Tensor:
    """As FNet mixes tokens and channels."""
    return torch.fft.fft(torch.fft.fft(x, dim=-1), dim=-2).real


def filtered(x: torch.Tensor, taps: torch.Tensor) -> torch.Tensor:
    """A long convolution by the spectra of sequence and filter."""
    spectrum = torch.fft.rfft(x, n=2 * x.shape[1], dim=1) * torch.fft.rfft(taps, n=2 * x.shape[1], dim=0)
    return torch.fft.irfft(spectrum, n=2 * x.shape[1], dim=1)[:, : x.shape[1]]


def turned(x: torch.Tensor, factor: complex = 1j) -> torch.Tensor:
    """Rotary positions by complex exponentials."""
    angles = torch.arange(x.shape[1])[:, None] * torch.tensor([1.0, 0.1])
    return torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2))) * torch.exp(factor * angles)).flatten(-2)


def spectrogram(x: torch.Tensor) -> torch.Tensor:
    return (torch.stft(x, 6, 3, window=torch.hann_window(6), return_complex=True).abs() + 1e-3).log()


def aligned(x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    steps = x.log_softmax(-1).transpose(0, 1)
    return F.ctc_loss(steps, labels, [7] * len(labels), [3] * len(labels), reduction="none")


ON_ROWS: dict[str, tuple[Program, Program, tuple[Any, ...]]] = {
    "cubic interpolation": (
        lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"),
        lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
        IMAGE,
    ),
    "a smaller image": (
        lambda x: F.interpolate(x, size=3, mode="bilinear", antialias=True),
        lambda x: F.interpolate(x, size=3, mode="bilinear"),
        IMAGE,
    ),
    "averages without the border": (
        lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
        lambda x: F.avg_pool2d(x, 3, 2, 1),
        IMAGE,
    ),
    "places of a grid": (warped, lambda x, g: warped(x, -g), (*IMAGE, gg.tensor(4, 2, 2, 2))),
    "mixing by transforms": (mixed, lambda x: mixed(x.transpose(1, 2)).transpose(1, 2) * 2, (gg.tensor(4, 6, 5),)),
    "complex rotations": (turned, lambda x: turned(x, -1j), (gg.tensor(4, 3, 4),)),
    "spectrograms": (spectrogram, lambda x: spectrogram(2 * x), (gg.tensor(4, 20),)),
    "alignments": (aligned, lambda x, t: aligned(x, t.flip(1)), (gg.tensor(4, 7, 5), LABELS)),
    "scaled Bessel functions": (torch.special.i0e, torch.special.i1e, (gg.tensor(4, 6),)),
    "bits": (lambda x: x ^ (x >> 1), lambda x: x ^ (x >> 2), (gg.tensor(4, 6, dtype=torch.int64, low=0, high=99),)),
    "largest of bags": (
        lambda x, at: x.scatter_reduce(1, at, x, "amax"),
        lambda x, at: x.scatter_reduce(1, at, x, "amin"),
        (gg.tensor(4, 6), gg.tensor(4, 6, dtype=torch.int64, low=0, high=6)),
    ),
}


@pytest.mark.parametrize("name", ON_ROWS)
@pytest.mark.parametrize("wrong", [False, True])
def test_rows_apart(name: str, wrong: bool) -> None:
    spec, other, inputs = ON_ROWS[name]
    impl = other if wrong else spec
    report = gg.verify(spec, lambda _: impl, inputs, mesh={"dp": 2}, in_relations=ROWS, out_relations=ROWS, grads=False)
    assert report.verdict is (gg.Verdict.BROKEN if wrong else gg.Verdict.REFINES), report.diagnostics


def gradient(program: Program, reduced: bool = False, whole: int = 1) -> Program:
    """Gradients of all operands; those of the last one, which every rank has whole, are added up."""

    def run(x: torch.Tensor, w: torch.Tensor, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        leaves = [x.detach().requires_grad_(), w.detach().requires_grad_()]
        of_x, of_w = torch.autograd.grad(program(*leaves), leaves, grad)
        if reduced:
            of_w = of_w.clone()
            dist.all_reduce(of_w)
        return of_x, of_w

    return run


@pytest.mark.parametrize(("reduced", "wanted"), [(True, gg.Verdict.REFINES), (False, gg.Verdict.BROKEN)])
@pytest.mark.parametrize(
    ("program", "x", "w", "out"),
    [
        (filtered, (4, 6, 3), (6, 3), (4, 6, 3)),
        (lambda x, g: warped(x, g.expand(len(x), -1, -1, -1)), (4, 2, 5, 6), (1, 3, 2, 2), (4, 2, 3, 2)),
        (lambda x, w: F.interpolate(w * x, size=(3, 7), mode="bicubic"), (4, 2, 5, 6), (2, 5, 6), (4, 2, 3, 7)),
        (lambda x, w: F.hardshrink(F.pad(w * x, (1, 2), mode="reflect")), (4, 2, 5), (2, 5), (4, 2, 8)),
    ],
    ids=["filter", "grid", "interpolation", "padding"],
)
def test_gradients_of_what_every_rank_has(
    program: Program, x: Any, w: Any, out: Any, reduced: bool, wanted: gg.Verdict
) -> None:
    report = gg.verify(
        gradient(program),
        lambda _: gradient(program, reduced),
        (gg.tensor(*x), gg.tensor(*w), gg.tensor(*out)),
        mesh={"dp": 2},
        in_relations=(ROWS, WHOLE, ROWS),
        out_relations=(ROWS, WHOLE),
        grads=False,
    )
    assert report.verdict is wanted, report.diagnostics


@pytest.mark.parametrize(("swapped", "wanted"), [(False, gg.Verdict.REFINES), (True, gg.Verdict.BROKEN)])
def test_a_transform_of_two_dims_with_an_exchange_between(swapped: bool, wanted: gg.Verdict) -> None:
    """Each rank transforms its rows, the ranks exchange blocks, each transforms its columns."""

    def exchanged(x: torch.Tensor) -> torch.Tensor:
        sent = [part.contiguous() for part in torch.view_as_real(x).chunk(2, 1)]
        received = [torch.empty_like(part) for part in sent]
        dist.all_to_all(received, sent)
        return torch.view_as_complex(torch.cat(received[::-1] if swapped else received, 0))

    report = gg.verify(
        lambda x: torch.view_as_real(torch.fft.fft2(x)),
        lambda _: lambda x: torch.view_as_real(torch.fft.fft(exchanged(torch.fft.fft(x, dim=1)), dim=0)),
        (gg.tensor(4, 6),),
        mesh={"dp": 2},
        in_relations=ROWS,
        out_relations={"dp": Shard(1)},
        grads=False,
    )
    assert report.verdict is wanted, report.diagnostics


@pytest.mark.parametrize(("whole", "wanted"), [(True, gg.Verdict.REFINES), (False, gg.Verdict.BROKEN)])
def test_a_transform_sees_the_whole_dim(whole: bool, wanted: gg.Verdict) -> None:
    def gathered(x: torch.Tensor) -> torch.Tensor:
        parts = [torch.empty_like(x) for _ in range(2)]
        dist.all_gather(parts, x)
        return torch.cat(parts)

    report = gg.verify(
        lambda x: torch.fft.rfft(x, dim=0).abs(),
        lambda _: lambda x: torch.fft.rfft(gathered(x) if whole else x, n=4, dim=0).abs(),
        (gg.tensor(4, 6),),
        mesh={"dp": 2},
        in_relations=ROWS,
        out_relations=WHOLE,
        grads=False,
    )
    assert report.verdict is wanted, report.diagnostics


@pytest.mark.parametrize(("reduce", "wanted"), [("MAX", gg.Verdict.REFINES), ("MIN", gg.Verdict.BROKEN)])
def test_stop_tokens_are_among_some_ranks(reduce: str, wanted: gg.Verdict) -> None:
    """Every rank knows some of the tokens that end a sequence."""

    def ended(tokens: torch.Tensor, stops: torch.Tensor) -> torch.Tensor:
        found = torch.isin(tokens, stops).int()
        dist.all_reduce(found, getattr(dist.ReduceOp, reduce))
        return found

    report = gg.verify(
        lambda tokens, stops: torch.isin(tokens, stops).int(),
        lambda _: ended,
        tuple(gg.tensor(size, dtype=torch.int64, low=0, high=50) for size in (6, 4)),
        mesh={"dp": 2},
        in_relations=({}, ROWS),
        out_relations=WHOLE,
        grads=False,
    )
    assert report.verdict is wanted, report.diagnostics


@pytest.mark.parametrize(("ignored", "wanted"), [(255, gg.Verdict.REFINES), (0, gg.Verdict.BROKEN)])
def test_classes_of_pixels_in_bytes(ignored: int, wanted: gg.Verdict) -> None:
    """As segmentation masks are stored."""

    def loss(x: torch.Tensor, classes: torch.Tensor, ignored: int = 255) -> torch.Tensor:
        leaf = x.detach().requires_grad_()
        total = F.cross_entropy(leaf, classes, ignore_index=ignored, reduction="sum")
        return torch.autograd.grad(total, leaf)[0]

    report = gg.verify(
        loss,
        lambda _: lambda x, classes: loss(x, classes, ignored),
        (gg.tensor(4, 5, 2, 3), gg.tensor(4, 2, 3, dtype=torch.uint8, low=0, high=5)),
        mesh={"dp": 2},
        in_relations=ROWS,
        out_relations=ROWS,
        grads=False,
    )
    assert report.verdict is wanted, report.diagnostics


@pytest.mark.parametrize(("shift", "wanted"), [(0, gg.Verdict.REFINES), (1, gg.Verdict.BROKEN)])
def test_a_cache_is_written_where_a_position_says(shift: int, wanted: gg.Verdict) -> None:
    """Keys of new tokens at positions that the program is given, as static caches are filled; every rank has some of the heads."""

    def attended(q: torch.Tensor, cache: torch.Tensor, keys: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        return (q @ cache.index_copy(1, at, keys).transpose(1, 2)).softmax(-1)

    def on_ranks(q: torch.Tensor, cache: torch.Tensor, keys: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        return attended(q, cache, keys, (at + shift) % 8)

    heads = {"tp": Shard(0)}
    report = gg.verify(
        attended,
        lambda _: on_ranks,
        (gg.tensor(4, 2, 6), gg.tensor(4, 8, 6), gg.tensor(4, 2, 6), gg.tensor(2, dtype=torch.int64, low=0, high=8)),
        mesh={"tp": 2},
        in_relations=(heads, heads, heads, {}),
        out_relations=heads,
        grads=False,
    )
    assert report.verdict is wanted, report.diagnostics
