"""transformers' own models under its own tensor-parallel plan, unmodified: recorded, and judged on numbers, loss and every gradient."""

from pathlib import Path

import pytest

pytest.importorskip("transformers")
pytestmark = [pytest.mark.frameworks, pytest.mark.slow]

from graphguard.checks.configuration import Configuration  # noqa: E402 - only where transformers is there
from graphguard.checks.worker_client import WorkerClient  # noqa: E402
from graphguard.confirm.check import confirm  # noqa: E402
from graphguard.ir import capture_from_json  # noqa: E402

CHECK = """
import torch
import torch.nn as nn
import transformers
from transformers import {config} as Config, {model} as Model
from transformers.distributed import DistributedConfig

import graphguard as gg

SIZES = dict(vocab_size=32, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64, use_cache=False, tie_word_embeddings=False{extra})


class Loss(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens):
        return self.model(input_ids=tokens, labels=tokens, use_cache=False).loss


def parallel(size):
    distributed, _, mesh = Model.prepare_distribute_model(DistributedConfig(tp_size=size))
    return Model.maybe_distribute_model(Model(Config(**SIZES)), distributed, mesh)


@gg.check(mesh={{"tp": 2}})
def language_model(mesh):
    torch.manual_seed(0)
    tokens = gg.tensor(2, 8, dtype=torch.int64, low=0, high=32)
    return gg.Refinement(Loss(Model(Config(**SIZES))), Loss(parallel(2)), (tokens,))


@gg.check(mesh={{"tp": 2}})
def logits(mesh):
    tokens = gg.tensor(2, 8, dtype=torch.int64, low=0, high=32)
    inputs = {{"input_ids": tokens, "use_cache": False}}
    return gg.Refinement(Model(Config(**SIZES)), parallel(2), inputs, grads=False)
"""

MODELS = {
    "llama": ("LlamaConfig", "LlamaForCausalLM", ""),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM", ", head_dim=8"),
    "gemma2": ("Gemma2Config", "Gemma2ForCausalLM", ", head_dim=8, sliding_window=16"),
}


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    with WorkerClient(Configuration(tmp_path_factory.mktemp("frameworks"), timeout=120)) as client:
        yield client


@pytest.mark.parametrize("name", ["language_model", "logits"])
@pytest.mark.parametrize("model", MODELS)
def test_tensor_parallel_plan(client, tmp_path, model, name):
    config, kind, extra = MODELS[model]
    file = Path(tmp_path, "check.py")
    file.write_text(CHECK.format(config=config, model=kind, extra=extra))
    params = {"file": str(file), "root": str(tmp_path), "name": name, "mesh": None}
    capture = capture_from_json(client.call("capture", params)["capture"])
    assert not capture.troubles, [(str(trouble.span), trouble.message) for trouble in capture.troubles]
    gradients = [promise.name for promise in capture.promises if promise.name.startswith("grad(")]
    assert len(gradients) > 8 if name == "language_model" else not gradients
    found = confirm(capture, seconds=60)
    assert (found.status, found.differing) == ("equal", ()), found.reason
