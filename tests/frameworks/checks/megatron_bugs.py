"""A natural mistake with megatron-core: an optimiser's step before `finalize_model_grads`."""

import torch
from megatron_gpt import TEXT, config, gpt, parallel, step, wrapped

import graphguard as gg


def trained(model):
    """The parameters after one step of gradient descent."""
    gradients = step(model)

    def run(tokens, labels):
        found = gradients(tokens, labels)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter -= 0.1 * found[name]  # the mistake
        return dict(model.named_parameters())

    return run


@gg.check(mesh={"tp": 2})
def gradients_not_finalised(mesh):
    """Under sequence parallelism norms see only their rank's tokens: their gradients are partial until they are finalised."""
    parallel()
    whole = trained(gpt(config()).cuda())

    def alone(tokens, labels):
        parallel()
        return whole(tokens, labels)

    parallel(2)
    settings = config(2, sequence_parallel=True)
    return gg.Refinement(alone, trained(wrapped(gpt(settings).cuda(), settings)), TEXT)
