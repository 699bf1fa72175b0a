"""A natural mistake with torchtitan: gradients are summed over ranks, so the loss must be divided by the tokens of all of them."""

from titan_train import DATA, TEXT, CrossEntropyLoss, dims, model, sharded

import graphguard as gg


def step_by_own_tokens(llama):
    """Loss and gradients."""

    def run(tokens, labels):
        valid = (labels != -100).sum()
        loss, _ = CrossEntropyLoss.Config().build()(llama(tokens), labels, valid)
        loss.backward()  # the mistake
        return {name: p.grad for name, p in llama.named_parameters()}

    return run


@gg.check(mesh={"dp": 2})
def divided_by_own_tokens(mesh):
    return gg.Refinement(step_by_own_tokens(model()), step_by_own_tokens(sharded(dims(2))), TEXT, in_relations=DATA)
