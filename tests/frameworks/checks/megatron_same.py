"""megatron-core as one program: what it is on one rank is its specification."""

import torch

import graphguard as gg
from graphguard.frameworks import megatron


@gg.check(mesh={"tp": 2}, params={"sequence": [False, True]})
def gpt(mesh, sequence):
    megatron.world(mesh)
    model = megatron.gpt(megatron.config(sequence_parallel=sequence))
    return gg.Same(megatron.step(megatron.wrapped(model)), megatron.text(2, 6))


@gg.check(mesh={"pp": 2})
def pipeline(mesh):
    megatron.world(mesh)
    model = megatron.gpt(megatron.config(num_layers=2, pipeline_dtype=torch.float32))
    return gg.Same(megatron.scheduled(model, 2), megatron.text(4, 6), load=megatron.loaded(model))
