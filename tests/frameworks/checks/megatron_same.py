"""megatron-core as one program: what it is on one rank is its specification."""

import graphguard as gg
from graphguard.frameworks import megatron


@gg.check(mesh={"tp": 2}, params={"sequence": [False, True]})
def gpt(mesh, sequence):
    megatron.world(mesh)
    model = megatron.gpt(megatron.config(sequence_parallel=sequence))
    return gg.Same(megatron.step(megatron.wrapped(model)), megatron.text(2, 6))
