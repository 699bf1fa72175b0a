"""What every operator does to values: one file per family, each rule a small pure function over an algebra."""

from graphguard.rules.basis import declared
from graphguard.rules.basis.collectives import combine
from graphguard.rules.basis.registry import RULES, Call, Rule, find_rule, kind_of, rule
from graphguard.rules.basis.traits import Trait, TraitError, parse_trait, parse_traits
from graphguard.rules.elements import activations, creation, elementwise, random_draws, truth
from graphguard.rules.evaluate import evaluate_node
from graphguard.rules.layers import (
    attention,
    convolution,
    grid_sampling,
    losses,
    normalization,
    optimisers,
    resampling,
    sequence_losses,
)
from graphguard.rules.lines import contraction, histograms, linalg, reductions, scaled_products, selection, softmax
from graphguard.rules.positions import embedding, embedding_bag, indexing, layout, masked_scatter, patterns, scatter

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
    sequence_losses,
    embedding,
    embedding_bag,
    indexing,
    scatter,
    masked_scatter,
    selection,
    creation,
    random_draws,
    convolution,
    resampling,
    grid_sampling,
    scaled_products,
    optimisers,
    declared,
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
