"""torchtitan's Llama 3, small, on texts that are made here: what `test_scripts.py` gives its trainer. Run by itself, it writes the tokenizer."""

import json
from pathlib import Path

DIM, VOCABULARY, TOKENS = 32, 32, 8
WORDS = ["<s>", "</s>", *(f"w{number}" for number in range(VOCABULARY - 2))]
TEXTS = [" ".join(WORDS[2 + (7 * line + 3 * word) % 29] for word in range(20)) for line in range(16)]


def small():
    """The trainer's configuration, as `--module titan_tiny --config small` asks for it."""
    from datasets import Dataset
    from torchtitan.components.loss import CrossEntropyLoss
    from torchtitan.components.metrics import MetricsProcessor
    from torchtitan.components.optimizer import LRSchedulersContainer, default_adamw
    from torchtitan.config import TrainingConfig
    from torchtitan.hf_datasets import DatasetConfig
    from torchtitan.hf_datasets.text_datasets import DATASETS, HuggingFaceTextDataLoader
    from torchtitan.models import llama3
    from torchtitan.models.common import ComplexRoPE, Embedding, Linear, RMSNorm
    from torchtitan.trainer import Trainer

    DATASETS["made"] = DatasetConfig(
        path="made",
        loader=lambda _: Dataset.from_list([{"text": text} for text in TEXTS]),
        sample_processor=lambda row: row["text"],
    )
    spec = llama3.model_registry("debugmodel")
    spec.model = llama3.Llama3Model.Config(
        dim=DIM,
        vocab_size=VOCABULARY,
        tok_embeddings=Embedding.Config(
            num_embeddings=VOCABULARY, embedding_dim=DIM, param_init=llama3._EMBEDDING_INIT
        ),
        norm=RMSNorm.Config(normalized_shape=DIM, param_init=llama3._NORM_INIT),
        lm_head=Linear.Config(in_features=DIM, out_features=VOCABULARY, param_init=llama3._output_linear_init(DIM)),
        layers=llama3._build_llama3_layers(
            n_layers=1,
            dim=DIM,
            n_heads=4,
            n_kv_heads=2,
            hidden_dim=48,
            fuse_qkv=False,
            rope=ComplexRoPE.Config(dim=DIM // 4, max_seq_len=16, theta=10000, scaling="none"),
            attn_backend="flex",
        ),
    )
    return Trainer.Config(
        loss=CrossEntropyLoss.Config(global_vocab_size=VOCABULARY),
        hf_assets_path="assets",
        model_spec=spec,
        optimizer=default_adamw(lr=8e-4),
        lr_scheduler=LRSchedulersContainer.Config(warmup_steps=1),
        training=TrainingConfig(
            local_batch_size=2,
            seq_len=TOKENS,
            steps=2,
            mixed_precision_param="float32",
            disable_cuda_graphs=True,
        ),
        dataloader=HuggingFaceTextDataLoader.Config(dataset="made"),
        metrics=MetricsProcessor.Config(log_freq=1),
    )


def write_tokenizer(folder: Path) -> None:
    """A word is a token."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    made = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="<s>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    folder.mkdir()
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>"}))


if __name__ == "__main__":
    write_tokenizer(Path("assets"))
