"""Lightning Fabric, unmodified: a model that it sets up, under DDP."""

from accelerate_steps import MLP, ROWS, X, whole_step
from lightning.fabric import Fabric

import graphguard as gg


def fabric_step(fabric):
    """Loss and gradients."""
    fabric.launch()
    model = fabric.setup(MLP())

    def run(x):
        loss = model(x).square().mean()
        fabric.backward(loss)
        mean = fabric.all_reduce(loss.detach(), reduce_op="mean")
        return {"loss": mean, **{name: p.grad for name, p in model.named_parameters()}}

    return run


@gg.check(mesh={"dp": 2})
def distributed(mesh):
    fabric = Fabric(accelerator="cpu", devices=mesh.size(), strategy="ddp")
    return gg.Refinement(whole_step(), fabric_step(fabric), (X,), in_relations=ROWS)
