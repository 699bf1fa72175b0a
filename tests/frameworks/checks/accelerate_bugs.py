"""A natural mistake with accelerate: the gradients of two batches are added up, though nothing says that there are two."""

from accelerate import Accelerator
from accelerate_steps import MLP, ROWS, X, whole_step

import graphguard as gg


def summed_step(accelerator):
    """Loss and gradients; both halves of the batch count as one each."""
    model = accelerator.prepare(MLP())

    def run(x):
        total = 0
        for half in x.chunk(2):
            loss = model(half).square().mean()
            accelerator.backward(loss)  # the mistake
            total = total + loss.detach() / 2
        mean = accelerator.reduce(total, "mean")
        return {"loss": mean, **{name: p.grad for name, p in model.named_parameters()}}

    return run


@gg.check(mesh={"dp": 2})
def batches_not_averaged(mesh):
    return gg.Refinement(whole_step(), summed_step(Accelerator(cpu=True)), (X,), in_relations=ROWS)
