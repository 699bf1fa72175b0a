"""Natural mistakes in ColossalAI's ShardFormer idiom."""

from shardformer_style import Block, Linear1D_Row, ReduceForward, X, load, shard
from torch.nn import functional as F

import graphguard as gg


class BiasBeforeTheSum(Linear1D_Row):
    def forward(self, x):
        return ReduceForward.apply(F.linear(x, self.weight, self.bias), self.group)  # the mistake


@gg.check(mesh={"tp": 2})
def bias_before_the_sum(mesh):
    block = shard(Block(), mesh.get_group("tp"))
    block.c_out = BiasBeforeTheSum.from_native_module(Block().c_out, mesh.get_group("tp"))
    return gg.Refinement(Block(), block, X, load=load(3), out_relations="replicate")
