"""What running a capture on numbers said."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Counterexample:
    """The first element at which the implementation differs from what its promise makes of the specification.

    ``rank`` is None where the whole is rebuilt from several ranks; ``index`` is into the specification's output, or, for a
    single rank, into that rank's tensor.  ``inputs`` describes every leaf in a few words ("all ones", "seeded 7").  ``reduced``: ``shapes`` are smaller than the
    program's.  ``found_shape`` and ``expected_shape`` are there where the two tensors are not of one shape: no element is told then.
    """

    promise: str
    rank: int | None
    index: tuple[int, ...]
    expected: float
    found: float
    mesh: dict[str, int]
    shapes: dict[str, tuple[int, ...]]
    inputs: dict[str, str]
    seed: int
    reduced: bool = False
    found_shape: tuple[int, ...] | None = None
    expected_shape: tuple[int, ...] | None = None

    def __str__(self) -> str:
        place = f"[{', '.join(map(str, self.index))}]" if self.index else ""
        owner = "" if self.rank is None else f"rank {self.rank}, "
        if self.found_shape is not None and self.expected_shape is not None:
            return f"{owner}{self.promise}: shape {list(self.found_shape)}, needed {list(self.expected_shape)}"
        found, expected = apart(self.found, self.expected)
        return f"{owner}{self.promise}{place}: {found}, specification {expected}"


def apart(found: float, expected: float) -> tuple[str, str]:
    """Two numbers in six digits, or in as many as it takes to tell them apart."""
    texts = ("", "")
    for digits in (6, 9, 12, 17):
        texts = (f"{found:.{digits}g}", f"{expected:.{digits}g}")
        if texts[0] != texts[1]:
            break
    return texts


@dataclass(frozen=True, slots=True)
class Confirmation:
    """The verdict of numbers: ``equal`` on every draw tried, ``differs``, or ``not-run`` with the reason.

    ``differing`` names the promises that fail; ``ratios`` maps a failing promise to found / expected where that is one constant.
    ``kernels`` lists the operators that ran on a reference kernel of ours instead of torch's.  ``undefined`` is set where ranks only differ by having no
    number where the specification has one: rank and node that divide by zero, or compute with infinities.  ``rounding``: they differ only by what casts to
    narrower types round.  ``unwritten``: rank and node of memory that nobody wrote, where all that differs moves with it.
    ``reduced``: what ran is the program at smaller extents.
    """

    status: Literal["equal", "differs", "not-run"]
    reason: str = ""
    draws: int = 0
    differing: tuple[str, ...] = ()
    ratios: dict[str, float] | None = None
    counterexample: Counterexample | None = None
    kernels: tuple[str, ...] = ()
    seconds: float = 0.0
    steps: float = 0
    undefined: tuple[int, int] | None = None
    rounding: bool = False
    unwritten: tuple[int, int] | None = None
    reduced: bool = False
