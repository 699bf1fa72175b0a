"""What is decided by scores that are divided over the ranks along the vocabulary."""

from collections.abc import Callable
from typing import Any

from torch.distributed.tensor import Replicate, Shard

import graphguard as gg


def verdict(spec: Callable[..., Any], impl: Callable[..., Any], extent: int = 10, ranks: int = 2) -> Any:
    """The report on a function of four rows of scores, which every rank has a part of, against one of the whole rows."""
    return gg.verify(
        spec,
        lambda _: impl,
        (gg.tensor(4, extent),),
        mesh={"tp": ranks},
        in_relations={"tp": Shard(1)},
        out_relations={"tp": Replicate()},
        grads=False,
    )
