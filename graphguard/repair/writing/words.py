"""The words that messages are made of: operators as PyTorch users know them, groups, factors, tensors of ranks, names in a row."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

from graphguard.ir import Capture, Var
from graphguard.ir.ranks import ranks_text
from graphguard.ops import aten
from graphguard.repair.graph.edits import (
    group_of,
)

Named = Callable[[int, Var], str]
"""What the author calls a tensor of a rank; empty where the source does not say."""

_FACTOR = re.compile(r"([\w/*()]+(?: or [\w/*()]+)*) = (?:\d+/)?\d")
_READABLE = 9999  # of a factor that is told as a ratio
_CLOSE = 1e-9  # how near a square must be to a ratio
_OPERATIONS = {
    "add": "a sum",
    "sub": "a difference",
    "rsub": "a difference",
    "mul": "a product",
    "div": "a quotient",
    "pow": "a power",
    "bmm": "a product",
    "mm": "a product",
    "sdpa": "scaled_dot_product_attention",
}
_MODES = {
    "constant_pad": "pad",
    "reflection_pad": "pad with mode='reflect'",
    "replication_pad": "pad with mode='replicate'",
    "upsample_nearest_exact": "interpolate with mode='nearest-exact'",
    "upsample_nearest": "interpolate with mode='nearest'",
    "upsample_linear": "interpolate with mode='linear'",
    "upsample_bilinear": "interpolate with mode='bilinear'",
    "upsample_bicubic": "interpolate with mode='bicubic'",
    "upsample_trilinear": "interpolate with mode='trilinear'",
    "nll_loss": "nll_loss",
    "embedding_bag": "embedding_bag",
    "fft": "a Fourier transform",
    "grid_sampler": "grid_sample",
}
"""What functions of PyTorch call by name are several operators, known by how these begin."""


def operation(op: str) -> str:
    """An operator as a PyTorch user knows it: ``gelu``, ``all_reduce``, ``the gradient of softmax``, ``torch.ops.mylib.scan``."""
    space, name = op.split(".")[:2]
    if op == aten.view.dtype:
        return "view(dtype)"
    if space not in ("aten", "gg"):
        return f"torch.ops.{space}.{name}"
    gradient = name.endswith(("_backward", "_backward_data"))
    name = re.sub(r"(_backward|_backward_data)$", "", name).removeprefix("_").removeprefix("native_")
    known = _OPERATIONS.get(name) or next((told for start, told in _MODES.items() if name.startswith(start)), name)
    return f"the gradient of {known}" if gradient else known


def result_of(op: str) -> str:
    """``a sum``, ``the gradient of softmax``, ``the result of gelu``."""
    name = operation(op)
    return name if name.startswith(("a ", "the ")) else f"the result of {name}"


def axis_of_group(group: object, capture: Capture) -> str:
    """The name of the mesh axis that a group of ranks runs along; empty where it runs along none."""
    for axis in capture.mesh:
        if isinstance(group, tuple) and group and group_of(capture, int(str(group[0])), axis) == group:
            return axis
    return ""


def group_text(group: object, capture: Capture) -> str:
    """A group of ranks in words: the axis that it runs along, all ranks, or the ranks themselves."""
    if axis := axis_of_group(group, capture):
        return f"axis '{axis}'"
    ranks = group if isinstance(group, tuple) else ()
    return "all ranks" if len(ranks) == capture.world_size else ranks_text(ranks)


def group_size(group: object) -> Fraction:
    """How many ranks a group has."""
    return Fraction(len(group) if isinstance(group, tuple) else 1)


def factor_text(factor: Fraction, capture: Capture, axis: str = "", count: str = "", *, is_sure: bool = True) -> str:
    """A factor in terms of mesh axes where it is one of their sizes: ``dp = 2``, ``1/dp = 1/2``, or ``dp or tp = 2``; ``axis`` if it is known.

    ``count`` is what the author calls the number instead, or as well as an axis of that size, where that is not sure: ``STEPS or dp = 2``.  What is no ratio of small numbers is a root, ``1/sqrt(8) = 0.353553``, else a decimal number.
    """
    if not factor:
        return "0"
    if count == str(factor):
        return count  # as it is written there: no axis, even where one is as large
    sizes = {name: extent for name, extent in capture.mesh.items() if extent > 1 and axis in ("", name)}
    for size, shown in ((factor, "{}"), (1 / factor, "1/{}")):
        names = [name for name, extent in sizes.items() if extent == size and not (count and is_sure)]
        names = [count, *names] if count and (size >= 1) else names
        if names:
            inverted = " or ".join(shown.format(name) for name in names)
            return f"{inverted} = {factor}"
    product = "*".join(sizes)
    if len(sizes) > 1 and factor == capture.world_size:
        return f"{product} = {factor}"
    if len(sizes) > 1 and factor == Fraction(1, capture.world_size):
        return f"1/({product}) = {factor}"
    return str(factor) if max(abs(factor.numerator), factor.denominator) <= _READABLE else _decimal(factor)


def axis_told(text: str, mesh: Mapping[str, int]) -> str:
    """The first mesh axis by whose size a text tells a factor, as :func:`factor_text` does; empty where it tells none so."""
    for told in _FACTOR.findall(text):
        names = set(re.split(r"\W+", told))
        axis = next((axis for axis, size in mesh.items() if size > 1 and axis in names), "")
        if axis:
            return axis
    return ""


def _decimal(factor: Fraction) -> str:
    """A factor that is no ratio of small numbers, as the root that it is of such a ratio, and in six digits."""
    shown, number = f"{float(factor):.6g}", abs(float(factor))
    square = Fraction(number * number).limit_denominator(_READABLE)
    if not square or square.numerator > _READABLE or abs(float(square) - number * number) > _CLOSE * number * number:
        return shown
    sign = "-" if factor < 0 else ""
    if square.numerator == 1:
        return f"{sign}1/sqrt({square.denominator}) = {shown}"
    return f"{sign}sqrt({square}) = {shown}"


def listed(names: Sequence[str], most: int = 6) -> str:
    """``'a', 'b' and 'c'``, or ``'a', 'b', 'c', 'd' and 7 more`` where there are too many."""
    shown = [f"'{name}'" for name in names]
    return in_a_row(shown) if len(names) <= most else f"{', '.join(shown[:4])} and {len(names) - 4} more"


def in_a_row(texts: Sequence[str]) -> str:
    """``a, b and c``."""
    return " and ".join(filter(None, (", ".join(texts[:-1]), texts[-1])))


def span_text(start: int, length: object) -> str:
    """``4..7``, or ``4`` alone; ``4..`` where the length is not known."""
    if not isinstance(length, int):
        return f"{start}.."
    return str(start) if length == 1 else f"{start}..{start + length - 1}"


def spoiled_text(promises: Mapping[str, object] | tuple[str, ...]) -> str:
    """The outputs that a defect spoils, with the verb: ``out is wrong``, ``out[0], out[1] are wrong``."""
    names = list(promises)
    shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
    return f"{shown} {'is' if len(names) == 1 else 'are'} wrong"
