"""accelerate's loop: a model, AdamW, a loader, two micro-batches for a step."""

import torch
from accelerate import Accelerator
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    torch.manual_seed(0)
    numbers = torch.Generator().manual_seed(0)
    features, targets = torch.randn(64, 8, generator=numbers), torch.randn(64, 1, generator=numbers)
    loader = DataLoader(TensorDataset(features, targets), batch_size=4, shuffle=True)
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch, target in loader:
        with accelerator.accumulate(model):
            loss = functional.mse_loss(model(batch), target)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()


if __name__ == "__main__":
    main()
