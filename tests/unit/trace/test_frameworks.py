"""Frameworks as they are, recorded on every rank and run on numbers against their own sequential model: loss and every gradient."""

import multiprocessing
from typing import Any

import pytest
import torch
from programs import run, run_ranks

from graphguard.ir import Graph
from graphguard.ir.joining import join
from graphguard.ir.pruning import prune_prelude
from graphguard.ir.validity import faults
from graphguard.trace.record.capture import Recording
from graphguard.trace.worlds.world import World

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


MEGATRON = (("embedding", (32, 16), 0), ("up", (32, 16), 0), ("down", (16, 32), 1), ("head", (32, 16), 0))


def record_megatron(rank: int, ways: int, sequence_parallel: bool, device: str) -> Graph:
    """Megatron-core's layers as a small language model with a vocabulary-parallel loss."""
    from megatron.core import parallel_state
    from megatron.core.model_parallel_config import ModelParallelConfig
    from megatron.core.tensor_parallel import (
        ColumnParallelLinear,
        RowParallelLinear,
        VocabParallelEmbedding,
        scatter_to_sequence_parallel_region,
        vocab_parallel_cross_entropy,
    )

    def untouched(weight: torch.Tensor) -> None:
        """The leaves say what it holds."""

    with World(rank, {"tp": ways}, device) as world:
        recording = Recording(world)
        with recording:
            parallel_state.destroy_model_parallel()
            parallel_state.initialize_model_parallel(tensor_model_parallel_size=ways)
            config = ModelParallelConfig(
                tensor_model_parallel_size=ways,
                sequence_parallel=sequence_parallel,
                use_cpu_initialization=True,
                perform_initialization=False,
                params_dtype=torch.float32,
            )
            how = {"config": config, "init_method": untouched}
            modules = {
                "embedding": VocabParallelEmbedding(32, 16, **how),
                "up": ColumnParallelLinear(16, 32, bias=False, gather_output=False, **how),
                "down": RowParallelLinear(32, 16, bias=False, input_is_parallel=True, skip_bias_add=False, **how),
                "head": ColumnParallelLinear(16, 32, bias=False, gather_output=False, **how),
            }
            for name, shape, dim in MEGATRON:
                module = modules[name].cuda() if device == "cuda" else modules[name]
                recording.bind(module.weight, recording.leaf(name, shape, torch.float32).chunk(ways, dim)[rank])
            tokens, labels = (recording.leaf(name, (4, 2), torch.int64) for name in ("tokens", "labels"))
            recording.phase = "forward"
            x = modules["embedding"](tokens)
            x = scatter_to_sequence_parallel_region(x) if sequence_parallel else x
            y = torch.nn.functional.gelu(modules["up"](x)[0])
            logits = modules["head"](modules["down"](y)[0])[0]
            loss = vocab_parallel_cross_entropy(logits.float(), labels).mean()
            recording.output("loss", loss)
            loss.backward()
            for name, _, _ in MEGATRON:
                recording.output(f"grad({name})", modules[name].weight.grad)
        trace = recording.finish()
    assert trace.graph is not None, trace.troubles
    return trace.graph


def in_a_child(results: Any, ways: int, sequence_parallel: bool, device: str) -> None:
    results.put([record_megatron(rank, ways, sequence_parallel, device) for rank in range(ways)])


@pytest.mark.parametrize(("sequence_parallel", "device"), [(False, "cpu"), (True, "cuda")])
def test_megatron_tensor_parallel_layers(sequence_parallel: bool, device: str) -> None:
    pytest.importorskip("megatron.core")
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    child = context.Process(target=in_a_child, args=(results, 2, sequence_parallel, device))
    child.start()
    graphs = prune_prelude(tuple(results.get(timeout=60)))
    child.join()
    assert not join(graphs).mismatches
    generator = torch.Generator().manual_seed(0)
    leaves = {name: torch.randn(shape, generator=generator) for name, shape, _ in MEGATRON}
    leaves |= {name: torch.randint(0, 32, (4, 2), generator=generator) for name in ("tokens", "labels")}
    expected = run(prune_prelude((record_megatron(0, 1, False, "cpu"),))[0], leaves)
    found = run_ranks(graphs, leaves)
    assert all(torch.allclose(out["loss"], expected["loss"]) for out in found)
    for name, _, dim in MEGATRON:
        whole = torch.cat([out[f"grad({name})"] for out in found], dim)
        assert torch.allclose(whole, expected[f"grad({name})"], atol=1e-4), name
