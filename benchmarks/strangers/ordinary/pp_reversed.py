"""A pipeline of two stages: all forwards, then all backwards. The last stage sends the gradient of another micro-batch: the backward loop runs in reverse while the first stage takes it in order.

Rule: wrong-relation
"""
import torch
import torch.distributed as dist
import torch.nn.functional as F

import graphguard as gg

STEPS, MICRO_BATCHES, ROWS, DIM, HIDDEN, OUT, LR = 2, 3, 4, 5, 7, 6, 0.1


def spec(w0, w1, xs, ys):
    for step in range(STEPS):
        w0, w1 = w0.detach().requires_grad_(), w1.detach().requires_grad_()
        x, y = xs[step].flatten(0, 1), ys[step].flatten(0, 1)
        loss = F.mse_loss(torch.tanh(x @ w0) @ w1, y)
        loss.backward()
        w0, w1 = w0 - LR * w0.grad, w1 - LR * w1.grad
    return w0.detach(), w1.detach()


def first_stage(w0, x):
    acts = []
    for m in range(MICRO_BATCHES):
        h = torch.tanh(x[m] @ w0)
        dist.send(h.detach(), dst=1)
        acts.append(h)
    for h in acts:  # fault
        grad = torch.empty_like(h)
        dist.recv(grad, src=1)
        h.backward(grad)


def last_stage(w1, y):
    inputs, losses = [], []
    for m in range(MICRO_BATCHES):
        h = torch.empty(ROWS, HIDDEN)
        dist.recv(h, src=0)
        h.requires_grad_()
        inputs.append(h)
        loss = F.mse_loss(h @ w1, y[m]) / MICRO_BATCHES
        losses.append(loss)
    for h, loss in zip(reversed(inputs), reversed(losses)):  # fixed: for h, loss in zip(inputs, losses):
        loss.backward()
        dist.send(h.grad, dst=0)


def impl(w0, w1, xs, ys):
    rank = dist.get_rank()
    for step in range(STEPS):
        if rank == 0:
            w0 = w0.detach().requires_grad_()
            first_stage(w0, xs[step])
            w0 = w0 - LR * w0.grad
        else:
            w1 = w1.detach().requires_grad_()
            last_stage(w1, ys[step])
            w1 = w1 - LR * w1.grad
    return (w0.detach(), None) if rank == 0 else (None, w1.detach())


@gg.check(mesh={"pp": 2})
def check(mesh):
    return gg.Refinement(
        spec, impl,
        inputs=(
            gg.tensor(DIM, HIDDEN), gg.tensor(HIDDEN, OUT),
            gg.tensor(STEPS, MICRO_BATCHES, ROWS, DIM), gg.tensor(STEPS, MICRO_BATCHES, ROWS, OUT),
        ),
        grads=False,
    )
