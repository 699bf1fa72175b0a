"""Operators that go by indices that tensors hold: look-ups, writes, choices by masks, losses of classes."""

from __future__ import annotations

from functools import partial
from typing import Final

from graphguard.ops.spec import Family, LookUp, Traits

_Chosen: Final = partial(Traits, exact="chosen")

READS: Final[Family] = {
    "embedding": _Chosen(looks_up=LookUp(0, 0, 1), sums=True),
    "index_select gather": _Chosen(looks_up=LookUp(0, None, 2), dim_at=1),
    "one_hot": Traits(looks_up=LookUp(None, None, 0)),
    "index.Tensor _unsafe_index.Tensor": _Chosen(indexes=True),
    "index.Tensor_hacked_twin take take_along_dim value_selecting_reduction_backward": _Chosen(),
    "embedding_dense_backward": Traits(sums=True),
    """
    masked_select nonzero nonzero_numpy _embedding_bag _embedding_bag_forward_only _embedding_bag_backward _embedding_bag_per_sample_weights_backward
    """: Traits(),
}
WRITES: Final[Family] = {
    "index_copy": _Chosen(stores=True),
    "index_put": Traits(indexes=True, stores=True),
    "_index_put_impl index_add scatter_add": Traits(stores=True),
    "scatter.src": Traits(exact="written", stores=True),
    "scatter.value index_fill.int_Scalar,int_Tensor": Traits(exact="written"),
    """
    _unsafe_index_put index_put.hacked_twin scatter.reduce scatter_reduce.two index_reduce masked_scatter masked_scatter_backward
    """: Traits(),
}
LOSSES: Final[Family] = {
    "nll_loss_forward nll_loss2d_forward": Traits(looks_up=LookUp(0, 1, 1), poles=True),
    "nll_loss nll_loss_nd": Traits(exact="written"),
    """
    nll_loss_backward nll_loss2d_backward nll_loss2d cross_entropy_loss mse_loss mse_loss_backward l1_loss huber_loss huber_loss_backward smooth_l1_loss
    smooth_l1_loss_backward binary_cross_entropy binary_cross_entropy_backward kl_div soft_margin_loss soft_margin_loss_backward multi_margin_loss
    multi_margin_loss_backward multilabel_margin_loss_forward multilabel_margin_loss_backward _ctc_loss.default,Tensor _ctc_loss_backward.default,Tensor
    """: Traits(),
    "binary_cross_entropy_with_logits": Traits(exponential=True),
}
FAMILIES: Final = (READS, WRITES, LOSSES)
