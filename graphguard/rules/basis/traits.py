"""What one line says of an operator: a trait, which users declare for operators of their own, and :mod:`graphguard.rules.basis.declared` for PyTorch's.

====================================  ==========================================================================================
``elementwise``                       every element of the result is one function of the elements at the same place
``batched(bsH, H -> bsH)``            a function of whole upper-case dims, alone on every position along the lower-case ones
``linear(0; bsI, -> bsO)``            as batched, and linear in the tensor argument of that number
====================================  ==========================================================================================

One group of letters per tensor argument, one letter per dim; ``...`` in front stands for all dims before, the same ones in every group that has it.  What a user declares is assumed, and
every report that rests on it says so; what is declared here is tested against PyTorch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from string import ascii_lowercase, ascii_uppercase
from typing import Final, Literal

from graphguard.ir import DType, Node, Sym, Var
from graphguard.ir.graph import Arg
from graphguard.relations.algebra import Algebra, Unsupported, V
from graphguard.rules.basis.arithmetic import aligned
from graphguard.rules.basis.casting import convert
from graphguard.rules.basis.registry import Call

BEFORE: Final = "..."
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
        named = letters.removeprefix(BEFORE)
        if not named.isalpha() and named:
            raise TraitError(f"{letters!r} in {text!r} must be letters, one per dim")
        if len(set(named)) != len(named):
            raise TraitError(f"{letters!r} in {text!r} names a dim twice")
    if match["form"] == "batched":
        if match["argument"] is not None:
            raise TraitError(f"{text!r}: batched takes no argument number")
        return Trait("batched", inputs, out)
    argument = int(match["argument"] or 0)
    if argument >= len(inputs):
        raise TraitError(f"{text!r} has no tensor argument {argument}")
    return Trait("linear", inputs, out, argument)


def attributes_of(node: Node) -> tuple[object, ...]:
    """All of a call that is no tensor."""
    named = sorted((name, _skeleton_of(arg)) for name, arg in node.kwargs.items())
    draw = () if node.draw is None else (("draw", *node.draw),)
    return (*_skeleton(node.args), *named, *draw)


def _skeleton(args: tuple[Arg, ...]) -> tuple[object, ...]:
    """The arguments with tensors as placeholders."""
    return tuple(_skeleton_of(arg) for arg in args)


def _skeleton_of(arg: Arg) -> object:
    if isinstance(arg, Var):
        return "tensor"
    if isinstance(arg, tuple):
        return _skeleton(arg)
    if isinstance(arg, DType):
        return arg.name
    if isinstance(arg, Sym):
        raise Unsupported(f"a size known only when the program runs: {arg.expr}")
    return repr(arg)


def parse_traits(declared: Mapping[str, str]) -> dict[str, Trait]:
    """Read a table of declarations by operator name; raises :class:`TraitError`."""
    return {op: parse_trait(text) for op, text in declared.items()}


def evaluate_trait(
    a: Algebra[V],
    traits: Sequence[Trait],
    name: str,
    call: Call,
    operands: Sequence[V],
    attributes: tuple[object, ...],
) -> tuple[V, ...]:
    """The results of an operator of which only the trait is known, one for all results or one for each; raises ``Unsupported`` where the call does not fit it."""
    count = len(call.node.outs)
    if len(traits) not in (1, count):
        raise Unsupported(f"{name} has {count} results, its traits {len(traits)}")
    names = [name] if count == 1 else [f"{name}[{index}]" for index in range(count)]
    each = traits if len(traits) == count else [traits[0]] * count
    return tuple(
        _evaluate_one(a, trait, names[index], call, index, operands, attributes) for index, trait in enumerate(each)
    )


def _evaluate_one(
    a: Algebra[V],
    trait: Trait,
    name: str,
    call: Call,
    index: int,
    operands: Sequence[V],
    attributes: tuple[object, ...],
) -> V:
    if trait.form == "elementwise":
        return a.apply(name, attributes, aligned(a, *operands), call.kind(index))
    trait = _spelt_out(trait, name, operands)
    if call.shape(index) == (0,) != (0,) * len(trait.out):  # what this call was not asked for
        return a.full((0,), Fraction(0), call.kind(index))
    if trait.form == "linear":
        return _linear(a, trait, name, call, index, operands, attributes)
    pairs = list(zip(operands, trait.inputs, strict=True))
    return a.opaque(name, attributes, pairs, trait.out, call.shape(index), call.kind(index))


def _spelt_out(trait: Trait, name: str, operands: Sequence[V]) -> Trait:
    """The trait with letters for the dims that ``...`` stands for; raises ``Unsupported`` where the operands have other ranks."""
    misfit = f"{name} does not fit its declared trait: {len(operands)} tensors of other ranks"
    if len(operands) != len(trait.inputs):
        raise Unsupported(misfit)
    before = set()
    for v, letters in zip(operands, trait.inputs, strict=True):
        rest = len(v.shape) - len(letters.removeprefix(BEFORE))
        if letters.startswith(BEFORE):
            before.add(rest)
        elif rest:
            raise Unsupported(misfit)
    if len(before) > 1 or min(before, default=0) < 0:
        raise Unsupported(misfit)
    taken = {letter for group in (*trait.inputs, trait.out) for letter in group}
    free = [letter for letter in ascii_lowercase if letter not in taken]
    lead = "".join(free[: before.pop()]) if before else ""
    inputs = tuple(letters.replace(BEFORE, lead) for letters in trait.inputs)
    return replace(trait, inputs=inputs, out=trait.out.replace(BEFORE, lead))


def _linear(
    a: Algebra[V],
    trait: Trait,
    name: str,
    call: Call,
    index: int,
    operands: Sequence[V],
    attributes: tuple[object, ...],
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
    extents = dict(zip(trait.out, call.shape(index), strict=True))
    sizes = [extents[letter] for letter in (*shared, *to)]
    sizes += [extent for letter, extent in zip(letters, argument.shape, strict=True) if letter.isupper()]
    core = "".join(next(upper) for _ in (*to, *over))
    kernel = a.opaque(name, attributes, others, shared + core, tuple(sizes), "float")
    source = "".join(over.get(letter, letter) for letter in letters)
    target = "".join(to.get(letter, letter) for letter in trait.out)
    names = shared + "".join(to.values()) + "".join(over.values())
    return a.contract([(kernel, names), (convert(a, argument, "float"), source)], target)
