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


def _max_pool(index: int) -> Callable[..., np.ndarray]:
    def pool(x: np.ndarray, *attributes: Any) -> np.ndarray:
        k, s, p, d = (attributes[i : i + 2] for i in (0, 2, 4, 6))
        return torch.ops.aten.max_pool2d_with_indices(torch.tensor(x), k, s, p, d, attributes[8])[index].numpy()

    return pool


def _writers(index: np.ndarray, extent: int) -> np.ndarray:
    """The last one on a line writes; tests keep the line last."""
    chosen = np.zeros((*index.shape, extent))
    for place in np.ndindex(index.shape):
        chosen[(*place[:-1], slice(None), index[place])] = 0
        chosen[(*place, index[place])] = 1
    return chosen


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
    "max_pool2d": _max_pool(0),
    "max_pool2d.indices": _max_pool(1),
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
    "matrix_exp": matrices(torch.linalg.matrix_exp),
    "cdist": lambda x, y, p: torch.cdist(torch.tensor(x), torch.tensor(y), p).numpy(),
}
