"""Frameworks as they are, recorded on every rank and run on numbers against their own sequential model: loss and every gradient."""

from typing import Any

import pytest
import torch
from programs import run, run_ranks

from graphguard.ir import Graph
from graphguard.ir.joining import join, prune_prelude
from graphguard.ir.validity import faults
from graphguard.trace.capture import Recording
from graphguard.trace.world import World

pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("ignore")]

SMALL = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 64,
    "max_position_embeddings": 32,
}
Shapes = dict[str, tuple[int, ...]]


def record(config: Any, rank: int, ways: int) -> tuple[Graph, Shapes]:
    """``tp_plan`` of transformers on one rank; ``ways`` 1 is the model as it is."""
    import transformers
    from transformers.distributed import DistributedConfig

    with World(rank, {"tp": ways}) as world:
        recording = Recording(world)
        with recording:
            model = transformers.AutoModelForCausalLM.from_config(config)
            shapes = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
            if ways > 1:
                kind = type(model)
                distributed, _, meshes = kind.prepare_distribute_model(DistributedConfig(tp_size=ways))
                model = kind.maybe_distribute_model(model, distributed, meshes)
            tokens = recording.leaf("tokens", (2, 6), torch.int64)
            for name, parameter in model.named_parameters():
                value = recording.leaf(name, shapes[name], torch.float32)
                local = getattr(parameter, "_local_tensor", parameter)
                for dim, (mine, whole) in enumerate(zip(local.shape, shapes[name], strict=True)):
                    value = value if mine == whole else value.chunk(ways, dim)[rank]
                recording.bind(parameter, value)
            recording.phase = "forward"
            out = model(input_ids=tokens, labels=tokens, use_cache=False)
            recording.output("loss", out.loss)
            out.loss.backward()
            for name, parameter in model.named_parameters():
                recording.output(f"grad({name})", parameter.grad)
        trace = recording.finish()
    assert trace.graph is not None, trace.troubles
    assert faults(trace.graph, ways) == []
    return trace.graph, shapes


@pytest.mark.parametrize("architecture", ["LlamaConfig", "Qwen3Config"])
def test_transformers_tensor_parallel(architecture: str) -> None:
    transformers = pytest.importorskip("transformers")
    config = getattr(transformers, architecture)(**SMALL)
    sequential, shapes = record(config, 0, 1)
    graphs = prune_prelude(tuple(record(config, rank, 2)[0] for rank in range(2)))
    assert not join(graphs).mismatches
    generator = torch.Generator().manual_seed(1)
    leaves = {name: torch.randn(shape, generator=generator) * 0.2 for name, shape in shapes.items()}
    leaves["tokens"] = torch.randint(0, 64, (2, 6), generator=generator)
    expected = run(prune_prelude((sequential,))[0], leaves)
    found = run_ranks(graphs, leaves)
    for name, value in expected.items():
        parts = [out[name] for out in found]
        dim = next((d for d, (m, n) in enumerate(zip(parts[0].shape, value.shape, strict=True)) if m != n), None)
        wholes = parts if dim is None else [torch.cat(parts, dim)]
        assert all(torch.allclose(whole, value, atol=1e-6) for whole in wholes), name
