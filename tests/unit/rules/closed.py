"""Reference functions, by PyTorch, for what stays closed: named as rules name them, on operands and attributes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch


def last_dim(function: Callable[..., torch.Tensor]) -> Callable[..., np.ndarray]:
    """A function of the last dim; rules put the core dim where it stands, so tests keep it last."""
    return lambda x, *attributes: function(torch.tensor(x), *attributes).numpy()


matrices = last_dim  #: a function of the last two dims


def _max_pool(dims: int, index: int) -> Callable[..., np.ndarray]:
    function = torch.ops.aten.max_pool2d_with_indices if dims == 2 else torch.ops.aten.max_pool3d_with_indices

    def pool(x: np.ndarray, *attributes: Any) -> np.ndarray:
        k, s, p, d = (attributes[i : i + dims] for i in range(0, 4 * dims, dims))
        return function(torch.tensor(x), k, s, p, d, attributes[-1])[index].numpy()

    return pool


def _fourier(function: Callable[[np.ndarray], np.ndarray]) -> Callable[[int], np.ndarray]:
    return lambda extent: function(2 * np.pi / extent * np.outer(np.arange(extent), np.arange(extent)))


def _pseudo_inverse(x: np.ndarray, *rest: Any) -> np.ndarray:
    *tolerances, no_atol, no_rtol, hermitian = rest
    values = iter(tolerances)
    atol, rtol = (None if absent else torch.tensor(next(values)) for absent in (no_atol, no_rtol))
    return torch.linalg.pinv(torch.tensor(x), atol=atol, rtol=rtol, hermitian=hermitian).numpy()


def _writers(index: np.ndarray, extent: int) -> np.ndarray:
    """The last one on a line writes; tests keep the line last."""
    chosen = np.zeros((*index.shape, extent))
    for place in np.ndindex(index.shape):
        chosen[(*place[:-1], slice(None), index[place])] = 0
        chosen[(*place, index[place])] = 1
    return chosen


def _margin(slope: bool, x: np.ndarray, labels: np.ndarray, *rest: Any) -> np.ndarray:
    """Losses, or slopes, of rows of which each has one label."""
    *weights, p, margin = rest
    rest = (torch.tensor(labels), int(p), margin, torch.tensor(weights[0]) if weights else None, 0)
    rows = torch.tensor(x)
    if slope:
        return torch.ops.aten.multi_margin_loss_backward(torch.ones_like(rows[:, 0]), rows, *rest).numpy()  # type: ignore[no-any-return]
    return torch.ops.aten.multi_margin_loss(rows, *rest).numpy()  # type: ignore[no-any-return]


def _margins(index: int, x: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return torch.ops.aten.multilabel_margin_loss_forward(torch.tensor(x), torch.tensor(labels), 0)[index].numpy()  # type: ignore[no-any-return]


def _slope_of_margins(x: np.ndarray, labels: np.ndarray, labelled: np.ndarray) -> np.ndarray:
    ones = torch.ones(len(x), dtype=torch.float64)
    operands = (torch.tensor(x), torch.tensor(labels), 0, torch.tensor(labelled))
    return torch.ops.aten.multilabel_margin_loss_backward(ones, *operands).numpy()  # type: ignore[no-any-return]


def _ctc(index: int, *operands: Any) -> np.ndarray:
    return torch.ops.aten._ctc_loss.Tensor(*_tensors(operands))[index].numpy()  # type: ignore[no-any-return]


def _slope_of_ctc(*operands: Any) -> np.ndarray:
    ones = torch.ones(operands[0].shape[1], dtype=torch.float64)
    return torch.ops.aten._ctc_loss_backward.Tensor(ones, *_tensors(operands)).numpy()  # type: ignore[no-any-return]


def _tensors(operands: tuple[Any, ...]) -> list[Any]:
    return [torch.tensor(v) if isinstance(v, np.ndarray) else v for v in operands]


_MARGINS: dict[str, Callable[..., np.ndarray]] = {
    "multi_margin": lambda *operands: _margin(False, *operands),
    "multi_margin.slope": lambda *operands: _margin(True, *operands),
    "multilabel_margin": lambda *operands: _margins(0, *operands),
    "multilabel_margin.labelled": lambda labels: _margins(1, np.zeros(labels.shape), labels),
    "multilabel_margin.slope": _slope_of_margins,
}
_CTC: dict[str, Callable[..., np.ndarray]] = {
    "ctc": lambda *operands: _ctc(0, *operands),
    "ctc.beginnings": lambda *operands: _ctc(1, *operands),
    "ctc.slope": _slope_of_ctc,
}


def _basis(grid: torch.Tensor, attributes: tuple[Any, ...]) -> torch.Tensor:
    """What every image with a single one makes of a grid: [n, image, place]."""
    mode, padding, corners, *image = attributes
    function = torch.ops.aten.grid_sampler_2d if len(image) == 2 else torch.ops.aten.grid_sampler_3d
    count = int(np.prod(image))
    ones = torch.eye(count, dtype=torch.float64).reshape(1, count, *image).expand(len(grid), -1, *[-1] * len(image))
    return function(ones, grid, mode, padding, corners)  # type: ignore[no-any-return]


def _sampler_weights(grid: np.ndarray, *attributes: Any) -> np.ndarray:
    made = _basis(torch.tensor(grid), attributes).movedim(1, -1)
    return made.reshape(*made.shape[:-1], *attributes[3:]).numpy()


def _sampler_slopes(grid: np.ndarray, *attributes: Any) -> np.ndarray:
    places = torch.tensor(grid, requires_grad=True)
    made = _basis(places, attributes)
    slopes = [torch.autograd.grad(made[:, k].sum(), places, retain_graph=True)[0] for k in range(made.shape[1])]
    return torch.stack(slopes, -1).reshape(*grid.shape, *attributes[3:]).numpy()


CLOSED: dict[str, Callable[..., np.ndarray]] = {
    "argmax": last_dim(lambda x: x.argmax(-1)),
    "argmin": last_dim(lambda x: x.argmin(-1)),
    "prod": last_dim(lambda x: x.prod(-1)),
    "cumprod": last_dim(lambda x: x.cumprod(-1)),
    "cummax": last_dim(lambda x: x.cummax(-1)[0]),
    "cummax.indices": last_dim(lambda x: x.cummax(-1)[1]),
    "cummin": last_dim(lambda x: x.cummin(-1)[0]),
    "cummin.indices": last_dim(lambda x: x.cummin(-1)[1]),
    "topk": last_dim(lambda x, k, largest, ordered: x.topk(k, -1, largest, ordered)[0]),
    "topk.indices": last_dim(lambda x, k, largest, ordered: x.topk(k, -1, largest, ordered)[1]),
    "sort": last_dim(lambda x, down: x.sort(-1, down)[0]),
    "argsort": last_dim(lambda x, down: x.sort(-1, down)[1]),
    "kthvalue": last_dim(lambda x, k: x.kthvalue(k, -1)[0]),
    "kthvalue.indices": last_dim(lambda x, k: x.kthvalue(k, -1)[1]),
    "median": last_dim(lambda x: x.median(-1)[0]),
    "median.indices": last_dim(lambda x: x.median(-1)[1]),
    "searchsorted": lambda line, x, *rest: torch.searchsorted(
        torch.tensor(line), torch.tensor(x), right=rest[-1], sorter=torch.tensor(rest[0]) if len(rest) > 1 else None
    ).numpy(),
    "scatter.writers": _writers,
    "max_pool2d": _max_pool(2, 0),
    "max_pool2d.indices": _max_pool(2, 1),
    "max_pool3d.indices": _max_pool(3, 1),
    "grid_sampler.weights": _sampler_weights,
    "grid_sampler.slopes": _sampler_slopes,
    **_MARGINS,
    **_CTC,
    "mode": last_dim(lambda x: x.mode(-1)[0]),
    "mode.indices": last_dim(lambda x: x.mode(-1)[1]),
    "nanmedian": last_dim(lambda x: x.nanmedian(-1)[0]),
    "nanmedian.indices": last_dim(lambda x: x.nanmedian(-1)[1]),
    "scatter_reduce": lambda x, index, source, reduce, include, dim=-1: (
        torch.tensor(x)
        .scatter_reduce(dim, torch.tensor(index), torch.tensor(source), reduce, include_self=include)
        .numpy()
    ),
    "index_reduce": lambda x, index, source, dim, reduce, include: (
        torch.tensor(x)
        .index_reduce(dim, torch.tensor(index), torch.tensor(source), reduce, include_self=include)
        .numpy()
    ),
    "fourier.cos": _fourier(np.cos),
    "fourier.sin": _fourier(np.sin),
    "inverse": matrices(torch.linalg.inv),
    "lu": matrices(lambda x: torch.linalg.lu_factor(x)[0]),
    "lu.pivots": matrices(lambda x: torch.linalg.lu_factor(x)[1]),
    "lu.inverse": lambda lu, pivots: torch.linalg.lu_solve(
        torch.tensor(lu), torch.tensor(pivots).int(), torch.eye(lu.shape[-1], dtype=torch.float64).expand(lu.shape)
    ).numpy(),
    "linalg.info": matrices(lambda x: torch.zeros(x.shape[:-2])),
    "cholesky": matrices(torch.linalg.cholesky),
    "triangle.inverse": matrices(
        lambda x, upper, unit: torch.linalg.solve_triangular(
            x, torch.eye(x.shape[-1], dtype=torch.float64).expand(x.shape), upper=upper, unitriangular=unit
        )
    ),
    "qr.q": matrices(lambda x, mode: torch.linalg.qr(x, mode)[0]),
    "qr.r": matrices(lambda x, mode: torch.linalg.qr(x, mode)[1]),
    "eigh.values": matrices(lambda x, half: torch.linalg.eigh(x, half)[0]),
    "eigh.vectors": matrices(lambda x, half: torch.linalg.eigh(x, half)[1]),
    "svd.u": matrices(lambda x, full: torch.linalg.svd(x, full)[0]),
    "svd.values": matrices(torch.linalg.svdvals),
    "svd.v": matrices(lambda x, full: torch.linalg.svd(x, full)[2]),
    "det": matrices(torch.linalg.det),
    "det.lu": matrices(lambda x: torch.ops.aten._linalg_det(x)[1]),
    "det.lu.pivots": matrices(lambda x: torch.ops.aten._linalg_det(x)[2]),
    "det.sign": matrices(lambda x: torch.linalg.slogdet(x)[0]),
    "det.log": matrices(lambda x: torch.linalg.slogdet(x)[1]),
    "pseudo-inverse": _pseudo_inverse,
    "cholesky.inverse": matrices(lambda x, upper: torch.cholesky_inverse(x, upper)),
    "matrix_exp": matrices(torch.linalg.matrix_exp),
    "cdist": lambda x, y, p: torch.cdist(torch.tensor(x), torch.tensor(y), p).numpy(),
}
