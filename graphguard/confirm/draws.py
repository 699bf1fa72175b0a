"""Inputs to try: seeded values for every leaf, within what the program allows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

import torch

from graphguard.confirm.elements import DTYPES, FLOATS, NARROW, UnrunnableError, extents, rounded, stored
from graphguard.confirm.replay import constant_value
from graphguard.ir import Capture, Graph, Leaf, Node, Var

Style = Literal["normal", "positive", "integers", "ones", "zeros"]


@dataclass(frozen=True, slots=True)
class Draw:
    """How leaves get their values: a seed, a scale, a style for all, and other styles for some."""

    seed: int
    scale: float = 1.0
    style: Style = "normal"
    special: Mapping[str, Style] | None = None

    def style_of(self, leaf: str) -> Style:
        """The style of one leaf."""
        return self.style if self.special is None else self.special.get(leaf, self.style)


# Several scales: a saturated tanh hides a wrong operand at one of them, a logarithm wants positive inputs, a clip acts on one side.
DRAWS: Final = (Draw(7), Draw(8, 0.3), Draw(9, 1.0, "positive"), Draw(10, 3.0), Draw(11, 0.03))
# Inputs of no special kind: what is equal on all of them is equal by more than chance, counts of a few things included.
GENERIC: Final = tuple(Draw(seed, 1.0, "positive" if seed % 2 else "normal") for seed in range(21, 29))

Ranges = Mapping[str, tuple[int, int]]


def leaf_values(capture: Capture, draw: Draw, ranges: Ranges) -> dict[str, torch.Tensor]:
    """A value for every leaf, the same for equal leaves and draws; raises :class:`UnrunnableError`."""
    return {
        leaf.name: leaf_value(leaf, draw, ranges.get(leaf.name, (0, 4)), index)
        for index, leaf in enumerate(capture.leaves)
    }


def leaf_value(leaf: Leaf, draw: Draw, span: tuple[int, int], index: int) -> torch.Tensor:
    """One leaf's value; ``span`` bounds integers, ``index`` sets leaves of one draw apart."""
    if leaf.value is not None:
        return constant_value(leaf.value)
    if leaf.type.dtype not in DTYPES:
        raise UnrunnableError(f"element type '{leaf.type.dtype}' of '{leaf.name}' has no numbers here")
    shape, dtype, style = extents(leaf.type), stored(leaf.type.dtype), draw.style_of(leaf.name)
    generator = torch.Generator().manual_seed(draw.seed * 1_000_003 + index)
    if dtype == torch.bool:
        return (
            torch.rand(shape, generator=generator) < 0.5
            if style not in ("ones", "zeros")
            else torch.full(shape, style == "ones")
        )
    if not (dtype.is_floating_point or dtype.is_complex):
        return _integers(shape, dtype, style, span, generator)
    value = _reals(shape, dtype, style, draw.scale, generator)
    return rounded(value, leaf.type.dtype) if leaf.type.dtype in NARROW else value


def _integers(
    shape: tuple[int, ...], dtype: torch.dtype, style: Style, span: tuple[int, int], generator: torch.Generator
) -> torch.Tensor:
    low, high = span
    if style in ("ones", "zeros"):
        return torch.full(shape, min(max(int(style == "ones"), low), high - 1), dtype=dtype)
    return torch.randint(low, max(high, low + 1), shape, generator=generator).to(dtype)


def _reals(
    shape: tuple[int, ...], dtype: torch.dtype, style: Style, scale: float, generator: torch.Generator
) -> torch.Tensor:
    if style in ("ones", "zeros"):
        return torch.full(shape, float(style == "ones"), dtype=dtype)
    if style == "integers":
        return torch.randint(-2, 3, shape, generator=generator).to(dtype)
    value = torch.randn(shape, generator=generator, dtype=dtype) * scale
    return value.abs() + 0.1 * scale if style == "positive" else value


# Operators that look up rows: (position of the table, dim of the table, position of the index).
_LOOKUPS: Final = {
    "aten.embedding.default": (0, 0, 1),
    "aten.index_select.default": (0, None, 2),
    "aten.gather.default": (0, None, 2),
    "aten.nll_loss_forward.default": (0, 1, 1),
    "aten.one_hot.default": (None, None, 0),
}
# Operators whose integer result holds the values of their first operand, at most shifted or replaced in places.
_PASSING: Final = frozenset(
    (
        "view",
        "_unsafe_view",
        "reshape",
        "clone",
        "_to_copy",
        "to",
        "detach",
        "alias",
        "contiguous",
        "transpose",
        "permute",
        "t",
        "squeeze",
        "unsqueeze",
        "expand",
        "slice",
        "select",
        "index_put",
        "masked_fill",
        "where",
        "copy",
        "flatten",
    )
)


def index_ranges(capture: Capture) -> dict[str, tuple[int, int]]:
    """The range of every integer leaf: declared, else what the specification's look-ups allow, else its own extents."""
    implied = _implied(capture.spec) if capture.spec is not None else {}
    spans: dict[str, tuple[int, int]] = {}
    for leaf in capture.leaves:
        if leaf.type.dtype == "bool" or leaf.type.dtype in FLOATS:
            continue
        low, high = implied.get(leaf.name, (0, max((4, *(size for size in leaf.type.shape if isinstance(size, int))))))
        low = leaf.low if leaf.low is not None else low
        high = leaf.high if leaf.high is not None else max(high, low + 1)
        spans[leaf.name] = (low, high)
    return spans


def _implied(spec: Graph) -> dict[str, tuple[int, int]]:
    producers = spec.producers()
    spans: dict[str, tuple[int, int]] = {}
    for node in spec.nodes:
        for index, extent in _looked_up(spec, node):
            leaf, shift = _origin(spec, producers, index)
            if leaf is not None:
                low, high = spans.get(leaf, (-(1 << 62), 1 << 62))
                spans[leaf] = (max(low, shift), min(high, extent + shift))
    return {leaf: (low, high) for leaf, (low, high) in spans.items() if low < high}


def _looked_up(spec: Graph, node: Node) -> list[tuple[Var, int]]:
    """Index operands of a look-up, each with the extent it looks into."""
    if node.op in ("aten.index.Tensor", "aten.index_put.default", "aten._unsafe_index.Tensor"):
        table, indices = node.args[0], node.args[1]
        if not isinstance(table, Var) or not isinstance(indices, tuple):
            return []
        sizes = spec.types[table].shape
        pairs = [(index, sizes[dim]) for dim, index in enumerate(indices) if dim < len(sizes)]
        return [(i, n) for i, n in pairs if isinstance(i, Var) and isinstance(n, int) and spec.types[i].dtype != "bool"]
    if node.op not in _LOOKUPS:
        return []
    table_at, fixed_dim, index_at = _LOOKUPS[node.op]
    index = node.args[index_at]
    extent: object = node.args[1] if table_at is None and len(node.args) > 1 else -1
    if table_at is not None:
        table = node.args[table_at]
        dim = node.args[1] if fixed_dim is None else fixed_dim
        if isinstance(table, Var) and isinstance(dim, int) and spec.types[table].shape:
            extent = spec.types[table].shape[dim]
    return [(index, extent)] if isinstance(index, Var) and isinstance(extent, int) and extent > 0 else []


def _origin(spec: Graph, producers: Mapping[Var, int], var: Var) -> tuple[str | None, int]:
    """The leaf whose values an index holds, and by how much the leaf's values lie above them."""
    shift = 0
    while var in producers:
        node = spec.nodes[producers[var]]
        name = node.op.split(".")[1]
        operands = [arg for arg in node.args if isinstance(arg, Var)]
        literal = next((arg for arg in node.args[1:] if isinstance(arg, int) and not isinstance(arg, bool)), None)
        if name in ("add", "sub") and len(operands) == 1 and literal is not None:
            shift += literal if name == "sub" else -literal
        elif name not in _PASSING or not operands:
            return None, 0
        if name == "where":
            operands = [operand for operand in operands if operand in producers or operand in spec.inputs][
                1:
            ] or operands
        var = operands[0]
    return spec.inputs.get(var), shift


def elements_of(capture: Capture) -> int:
    """Elements of all leaves together."""
    return sum(math.prod(size for size in leaf.type.shape if isinstance(size, int)) for leaf in capture.leaves)
