"""What every operator does to values: one file per family, each rule a small pure function over an algebra."""

from graphguard.rules import (
    activations,
    attention,
    contraction,
    convolution,
    creation,
    elementwise,
    embedding,
    histograms,
    indexing,
    layout,
    linalg,
    losses,
    normalization,
    optimisers,
    patterns,
    random_draws,
    reductions,
    resampling,
    scaled_products,
    scatter,
    selection,
    softmax,
    truth,
)
from graphguard.rules.collectives import combine
from graphguard.rules.evaluate import evaluate_node
from graphguard.rules.registry import RULES, Call, Rule, find_rule, kind_of, rule
from graphguard.rules.traits import Trait, TraitError, parse_trait, parse_traits

FAMILIES = (
    layout,
    patterns,
    elementwise,
    activations,
    truth,
    contraction,
    linalg,
    reductions,
    histograms,
    softmax,
    normalization,
    attention,
    losses,
    embedding,
    indexing,
    scatter,
    selection,
    creation,
    random_draws,
    convolution,
    resampling,
    scaled_products,
    optimisers,
)

__all__ = [
    "FAMILIES",
    "RULES",
    "Call",
    "Rule",
    "Trait",
    "TraitError",
    "combine",
    "evaluate_node",
    "find_rule",
    "kind_of",
    "parse_trait",
    "parse_traits",
    "rule",
]
