"""Rules of rewriting: a name, the equation that it states, an example of it, and the function that applies it.

The algebra (``products``, ``linear``, ``functions``) knows stages, not rules: a universe carries a :class:`Rules`, and each stage applies those that it has, in
their order.  So a rule may use all of the algebra, which never imports a rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Generic, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class Outcome(Enum):
    """What a rule did to a product under construction."""

    ZERO = "zero"
    CHANGED = "changed"
    SAME = "same"


class Log(Protocol):
    """Who wants to know of rewritings: what the rule was given, as far as it may change it, and what it made."""

    def before(self, rule: Rule[Any, Any], arguments: tuple[Any, ...]) -> Any:
        """What will be needed of the arguments once the rule has changed them."""
        ...

    def after(self, rule: Rule[Any, Any], before: Any, result: Any) -> None:
        """What the rule made."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Rule(Generic[P, R]):
    """One simplification.

    ``equation`` is said in the notation of docs/engine.md, ``example`` is a pair of equal programs, in Python or in words.  ``claim`` says how the two sides of
    the equation are read off what ``act`` takes and returns (see ``relations.audit``).
    """

    name: str
    section: str
    equation: str
    example: str
    claim: str
    act: Callable[P, R]

    def __call__(self, *arguments: P.args, **options: P.kwargs) -> R:
        """Apply it; the first argument is the universe, or what has its log."""
        log: Log | None = arguments[0].log  # type: ignore[attr-defined]
        if log is None:
            return self.act(*arguments, **options)
        before = log.before(self, (*arguments, *options.values()))
        result = self.act(*arguments, **options)
        log.after(self, before, result)
        return result


def rule(name: str, section: str, equation: str, example: str, claim: str) -> Callable[[Callable[P, R]], Rule[P, R]]:
    """Make a function a rule."""
    return lambda act: Rule(name, section, equation, example, claim, act)


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of every stage, in the order in which they are tried; without any the algebra only gathers like terms.

    - ``products``: ``rule(product) -> Outcome``, from the first again after each change.
    - ``positions``: the same, once, when no other rule changes the product: what the place decides at which one looks.
    - ``sums``: ``rule(universe, terms, extents) -> terms``, in turn.
    - ``quotients``: ``rule(universe, coefficient, reference, extents) -> terms | None`` for a product that was made; the first that answers.
    - ``distributed``: ``rule(universe, terms, terms, extents) -> bool``: whether a product of sums is written out.
    - ``divisors``: ``rule(universe, terms, extents) -> (powers of factors, terms)`` for a sum that something is divided by.
    - ``differences``: ``rule(universe, terms, extents) -> terms`` for the difference of two values that are compared.
    - ``functions``: by the function's name, ``rule(universe, name, terms, extents) -> terms | None``; the first that answers.
    """

    products: tuple[Rule[[Any], Outcome], ...] = ()
    positions: tuple[Rule[[Any], Outcome], ...] = ()
    sums: tuple[Rule[..., Any], ...] = ()
    quotients: tuple[Rule[..., Any], ...] = ()
    distributed: tuple[Callable[..., bool], ...] = ()
    divisors: tuple[Rule[..., Any], ...] = ()
    differences: tuple[Rule[..., Any], ...] = ()
    functions: Mapping[str, tuple[Rule[..., Any], ...]] = field(default_factory=dict)


NONE: Final = Rules()
