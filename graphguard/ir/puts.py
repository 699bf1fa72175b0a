"""Another value in the place of one that a program holds, as data: a recording puts it there, and what has it in sight is looked for by the same rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

SPECIFICATION: Final = -1
"""The number of the specification among the programs of a check; those of ranks are theirs."""

TENSOR: Final = "tensor"
"""What is noted of a tensor: this word, whether its memory was written later on, and whether a gradient comes back through it."""


@dataclass(frozen=True, slots=True)
class Put:
    """What takes the place of the value at a place, in the ranks' programs.

    ``make`` says how: the contrary (``not``), that on one rank ``alone``, ``times`` a fraction (numerator and denominator), ``plus`` a number, or ``given``, one for each time
    that the place is come to; of a tensor, a ``copy``, or the tensor ``cut`` off from where its gradient would go.  ``where`` (a name in sight and its value) says when alone it is put there.
    """

    place: int
    make: str
    number: Any = None
    where: tuple[str, Any] | None = None

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Put:
        """From plain data."""
        where = plain.get("where")
        return cls(plain["place"], plain["make"], plain.get("number"), None if where is None else (where[0], where[1]))

    def value(self, program: int, time: int, value: Any, sight: Mapping[str, Any]) -> Any:
        """What a program has at the place instead of a value, when it comes there for so many times, counted from zero."""
        if program == SPECIFICATION or (self.where is not None and not holds(sight, *self.where)):
            return value
        match self.make:
            case "not":
                return not value
            case "alone":
                return value and program == self.number
            case "times":
                more, less = self.number
                return value * more // less if isinstance(value, int) else value * more / less
            case "plus":
                return value + self.number
            case "copy" | "cut":
                return value  # a place that held tensors at first
        return self.number[min(time, len(self.number) - 1)]

    def tensor(self, program: int, value: Any) -> Any:
        """The same of a tensor."""
        if program == SPECIFICATION:
            return value
        match self.make:
            case "copy":
                return value.clone()
            case "cut":
                return value.detach()
        return value  # a place that held numbers at first


def holds(sight: Mapping[str, Any], name: str, wanted: Any) -> bool:
    """Whether a name in sight has a value; 1 is not True."""
    return name in sight and type(sight[name]) is type(wanted) and bool(sight[name] == wanted)
