"""What a call is set to, in the words of its author: PyTorch's operators have numbers where its functions have names."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Final

from graphguard.ir import Node, Var
from graphguard.rules.basis.registry import find_rule

_TOLD: Final = {"correction": int | float, "ord": int | float, "p": int | float}
"""The settings that may be whole numbers, and are no sizes or dims."""
_SIGNATURES: Final[Mapping[str, tuple[str, ...]]] = {
    "_fft_r2c": ("self", "dim", "normalization", "onesided"),
    "_fft_c2r": ("self", "dim", "normalization", "last_dim_size"),
    "_fft_c2c": ("self", "dim", "normalization", "forward"),
    "upsample_linear1d": ("input", "output_size", "align_corners"),
    "upsample_bilinear2d": ("input", "output_size", "align_corners"),
    "upsample_bicubic2d": ("input", "output_size", "align_corners"),
    "upsample_trilinear3d": ("input", "output_size", "align_corners"),
}
"""The parameters of operators that no rule names."""
_REDUCTION: Final = {0: "none", 1: "mean", 2: "sum"}
_CODES: Final[Mapping[str, Mapping[int, str]]] = {
    "reduction": _REDUCTION,
    "interpolation_mode": {0: "bilinear", 1: "nearest", 2: "bicubic"},
    "padding_mode": {0: "zeros", 1: "border", 2: "reflection"},
}
CODED: Final = ("reduction", "normalization", "mode", "interpolation_mode", "padding_mode")
"""The settings that operators have as numbers."""
_BAG: Final = {0: "sum", 1: "mean", 2: "max"}
_FORWARD: Final = {0: "backward", 1: "ortho", 2: "forward"}
_INVERSE: Final = {0: "forward", 1: "ortho", 2: "backward"}
_KEYWORDS: Final = {"normalization": "norm", "interpolation_mode": "mode"}
_UNNAMED: Final = frozenset({"self", "input", "other"})
_DIGITS: Final = 6


def other_settings(node: Node, meant: Node) -> str:
    """Which names, truths and numbers that are no sizes or dims an operator is called with otherwise than the specification's; empty where none is."""
    if node.op != meant.op:
        return ""
    mine, its = _arguments(node), _arguments(meant)
    for name in dict.fromkeys((*mine, *its)):
        pair = _set(mine, name), _set(its, name)
        told = _TOLD.get(name, str | float | bool | None)
        if name != "keepdim" and pair[0] != pair[1] and all(isinstance(each, told) for each in pair):
            return f"'{{what}}' is computed {_setting(name, pair[0])}, the specification's {_setting(name, pair[1])}"
    return ""


def other_setting(node: Node, meant: Node) -> str:
    """How one setting differs between two calls of an operator, ``with norm='backward', the specification's with norm='ortho'``; empty where it is not one that has a name."""
    mine, its = _arguments(node), _arguments(meant)
    names = [name for name in dict.fromkeys((*mine, *its)) if _set(mine, name) != _set(its, name)]
    if len(names) != 1 or names[0] in _UNNAMED or names[0].startswith("argument "):
        return ""
    pair = _set(mine, names[0]), _set(its, names[0])
    if any(isinstance(each, Var | tuple) for each in pair):
        return ""
    found, wanted = (
        _setting(names[0], _word(call, names[0], each)) for call, each in zip((node, meant), pair, strict=True)
    )
    return f"{found}, the specification's {wanted}" if found != wanted else ""


def _word(node: Node, name: str, value: object) -> object:
    """The name of a setting that an operator has as a number."""
    if type(value) is not int:
        return value
    return _codes(node, name).get(value, value)


def _codes(node: Node, name: str) -> Mapping[int, str]:
    op = node.op.split(".")[1]
    if name == "normalization":
        inverse = op == "_fft_c2r" or (op == "_fft_c2c" and _arguments(node).get("forward") is False)
        return _INVERSE if inverse else _FORWARD
    if name == "mode" and "embedding_bag" in op:
        return _BAG
    return _CODES.get(name, {})


def setting_of(node: Node, name: str) -> object:
    """What a call is set to, be it said or left out."""
    return _set(_arguments(node), name)


def place_of(node: Node, name: str) -> int | None:
    """The place among a call's arguments where a setting is said, or would be next; None where it is none of the operator's, or comes later."""
    names = _names(node)
    return names.index(name) if name in names[: len(node.args) + 1] else None


def _set(arguments: Mapping[str, object], name: str) -> object:
    value = arguments.get(name)
    return 1 if name == "correction" and value is None else value  # as Bessel's is


def _arguments(node: Node) -> dict[str, object]:
    """The arguments of a call by the operator's names for them, those that are left out too; tensors as the graph names them."""
    rule = find_rule(node.op)
    parameters = inspect.signature(rule.function).parameters if rule is not None else {}
    names = _names(node)
    defaults = {name: parameters[name].default for name in names if name in parameters}
    given = {names[place] if place < len(names) else f"argument {place}": arg for place, arg in enumerate(node.args)}
    left = {name: default for name, default in defaults.items() if default is not inspect.Parameter.empty}
    return {**left, **given, **node.kwargs}


def _names(node: Node) -> tuple[str, ...]:
    """The operator's names for its arguments in order, as far as they are known."""
    rule = find_rule(node.op)
    return _SIGNATURES.get(node.op.split(".")[1]) or (rule.parameters if rule is not None else ())


def _setting(name: str, value: object) -> str:
    name = _KEYWORDS.get(name, name)
    if name in _UNNAMED:
        return f"with {value:.{_DIGITS}g}" if isinstance(value, float) else f"with {value!r}"
    if value is None:
        return f"without {name}"
    return f"with {name}={value:.{_DIGITS}g}" if isinstance(value, float) else f"with {name}={value!r}"
