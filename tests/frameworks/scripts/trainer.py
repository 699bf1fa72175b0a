"""transformers' Trainer on a random GPT-2 and made-up texts."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Texts(torch.utils.data.Dataset):
    def __init__(self, count: int) -> None:
        numbers = torch.Generator().manual_seed(0)
        self.rows = torch.randint(0, 32, (count, 8), generator=numbers).tolist()

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict:
        return {"input_ids": self.rows[index], "labels": self.rows[index]}


def main() -> None:
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=32, n_positions=8, n_embd=16, n_layer=1, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0
    )
    model = GPT2LMHeadModel(config)
    settings = TrainingArguments(
        output_dir="out",
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        max_steps=2,
        learning_rate=1e-3,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
    )
    trainer = Trainer(model=model, args=settings, train_dataset=Texts(32))
    trainer.train()


if __name__ == "__main__":
    main()
