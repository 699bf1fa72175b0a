"""Lightning's Trainer over a LightningModule."""

import os

import lightning
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset


class Regression(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 1))

    def training_step(self, batch, index: int):
        features, targets = batch
        loss = functional.mse_loss(self.layers(features), targets)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main() -> None:
    lightning.seed_everything(0)
    numbers = torch.Generator().manual_seed(0)
    data = TensorDataset(torch.randn(64, 8, generator=numbers), torch.randn(64, 1, generator=numbers))
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=int(os.environ.get("WORLD_SIZE", "1")),
        strategy="ddp",
        max_steps=2,
        gradient_clip_val=1.0,
        logger=False,
        enable_checkpointing=False,
    )
    trainer.fit(Regression(), DataLoader(data, batch_size=4, shuffle=True))


if __name__ == "__main__":
    main()
