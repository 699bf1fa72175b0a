"""Traits that a user declares for operators of their own, in a line each.

====================================  ==========================================================================================
``elementwise``                       every element of the result is one function of the elements at the same place
``batched(bsH, H -> bsH)``            a function of whole upper-case dims, alone on every position along the lower-case ones
``linear(0; bsI, -> bsO)``            as batched, and linear in the tensor argument of that number
====================================  ==========================================================================================

One group of letters per tensor argument, one letter per dim.  What is declared is assumed, and every report that rests on it says so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import ascii_lowercase, ascii_uppercase
from typing import Final, Literal

from graphguard.ir import Node
from graphguard.relations.algebra import Algebra, Unsupported, V
from graphguard.rules.arithmetic import aligned
from graphguard.rules.casting import convert
from graphguard.rules.registry import Call

_FORM: Final = re.compile(r"(?P<form>batched|linear)\((?:(?P<argument>\d+)\s*;)?(?P<inputs>[^>]*)->(?P<out>[^)]*)\)")


class TraitError(ValueError):
    """A declaration that cannot be read; the message says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Trait:
    """What a user says of an operator; ``inputs`` are the letters of every tensor argument, ``argument`` the linear one."""

    form: Literal["elementwise", "batched", "linear"]
    inputs: tuple[str, ...] = ()
    out: str = ""
    argument: int = 0


def parse_trait(text: str) -> Trait:
    """Read a declaration; raises :class:`TraitError`."""
    text = text.strip()
    if text == "elementwise":
        return Trait("elementwise")
    match = _FORM.fullmatch(text)
    if match is None:
        raise TraitError(f"{text!r} is none of elementwise, batched(... -> ...), linear(n; ... -> ...)")
    inputs = tuple(group.strip() for group in match["inputs"].split(","))
    out = match["out"].strip()
    for letters in (*inputs, out):
        if not letters.isalpha() and letters:
            raise TraitError(f"{letters!r} in {text!r} must be letters, one per dim")
        if len(set(letters)) != len(letters):
            raise TraitError(f"{letters!r} in {text!r} names a dim twice")
    if match["form"] == "batched":
        if match["argument"] is not None:
            raise TraitError(f"{text!r}: batched takes no argument number")
        return Trait("batched", inputs, out)
    argument = int(match["argument"] or 0)
    if argument >= len(inputs):
        raise TraitError(f"{text!r} has no tensor argument {argument}")
    return Trait("linear", inputs, out, argument)


def parse_traits(declared: Mapping[str, str]) -> dict[str, Trait]:
    """Read a table of declarations by operator name; raises :class:`TraitError`."""
    return {op: parse_trait(text) for op, text in declared.items()}


def evaluate_trait(
    a: Algebra[V], trait: Trait, node: Node, call: Call, operands: Sequence[V], attributes: tuple[object, ...]
) -> tuple[V, ...]:
    """The results of an operator of which only the trait is known; raises ``Unsupported`` where the call does not fit it."""
    if trait.form == "elementwise":
        return tuple(
            a.apply(_name(node, index), attributes, aligned(a, *operands), call.kind(index))
            for index in range(len(node.outs))
        )
    if len(operands) != len(trait.inputs) or any(
        len(v.shape) != len(letters) for v, letters in zip(operands, trait.inputs, strict=True)
    ):
        raise Unsupported(f"{node.op} does not fit its declared trait: {len(operands)} tensors of other ranks")
    if trait.form == "linear":
        return (_linear(a, trait, node, call, operands, attributes),)
    pairs = list(zip(operands, trait.inputs, strict=True))
    return tuple(
        a.opaque(_name(node, index), attributes, pairs, trait.out, call.shape(index), call.kind(index))
        for index in range(len(node.outs))
    )


def _name(node: Node, index: int) -> str:
    return node.op if len(node.outs) == 1 else f"{node.op}[{index}]"


def _linear(
    a: Algebra[V], trait: Trait, node: Node, call: Call, operands: Sequence[V], attributes: tuple[object, ...]
) -> V:
    """out = the argument contracted with an unknown kernel: whole dims of argument and result, a function of the other operands."""
    letters, argument = trait.inputs[trait.argument], operands[trait.argument]
    others = [pair for i, pair in enumerate(zip(operands, trait.inputs, strict=True)) if i != trait.argument]
    taken = {letter for group in (*trait.inputs, trait.out) for letter in group}
    lower = iter(letter for letter in ascii_lowercase if letter not in taken)
    upper = iter(letter for letter in ascii_uppercase if letter not in taken)
    to = {letter: next(lower) for letter in trait.out if letter.isupper()}
    over = {letter: next(lower) for letter in letters if letter.isupper()}
    shared = "".join(dict.fromkeys(x for _, group in others for x in group if x.islower() and x in trait.out))
    extents = dict(zip(trait.out, call.shape(), strict=True))
    sizes = [extents[letter] for letter in (*shared, *to)]
    sizes += [extent for letter, extent in zip(letters, argument.shape, strict=True) if letter.isupper()]
    core = "".join(next(upper) for _ in (*to, *over))
    kernel = a.opaque(node.op, attributes, others, shared + core, tuple(sizes), "float")
    source = "".join(over.get(letter, letter) for letter in letters)
    target = "".join(to.get(letter, letter) for letter in trait.out)
    names = shared + "".join(to.values()) + "".join(over.values())
    return a.contract([(kernel, names), (convert(a, argument, "float"), source)], target)
