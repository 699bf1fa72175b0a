"""A counterexample that a person can check: small integers, whole tensors of ones or zeros, while the difference persists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from graphguard.confirm.confirmation import Counterexample
from graphguard.confirm.promises import Comparison
from graphguard.confirm.run.draws import Draw, Style, is_sparse
from graphguard.confirm.run.elements import UnrunnableError
from graphguard.confirm.trial import Failure, Trial
from graphguard.ir import Capture, Leaf
from graphguard.ir.fuel import SECOND, Fuel

# Beyond this many runs, or this work, a simpler input is not worth waiting for.
RUNS = 60
STEPS = 2 * SECOND
EVIDENT = 1e-3
TAME = (
    1e6  # next to a division by almost zero, such as of a row of zeros by its own length, any rounding is a difference
)
VISIBLE = 1e-6  # smaller numbers look like rounding, however much they differ
CLEAR = 6


def minimised(trial: Trial, failure: Failure) -> Counterexample | None:
    """The simplest failing input found for the promise that ``failure`` refutes."""
    search = _Search(replace_promises(trial, failure), failure)
    search.simplify()
    best = search.best
    return example_of(
        trial.capture,
        best,
        {leaf.name: describe(leaf, best.draw, index) for index, leaf in enumerate(trial.capture.leaves)},
    )


def replace_promises(trial: Trial, failure: Failure) -> Trial:
    """The same trial on one promise only."""
    return Trial(trial.capture, (failure.promise,), trial.fuel, copied=trial.copied)


class _Search:
    """Delta debugging over leaves: each step keeps a simpler draw if the promise still fails."""

    def __init__(self, trial: Trial, failure: Failure) -> None:
        self.trial = trial
        self.best = failure
        self.runs = 0
        # A person would rather read a seeded draw now than wait.
        self.fuel = Fuel("the search for a small counterexample", min(STEPS, trial.fuel.left / 2))

    def simplify(self) -> None:
        """Try integers everywhere, then ones everywhere, then ones and zeros leaf by leaf."""
        free = [leaf.name for leaf in self.trial.capture.leaves if leaf.value is None]
        if not any(self._keeps(Draw(seed, scale, "integers")) for scale in _SCALES for seed in (1, 2)):
            return
        for style in _SIMPLE:
            if self._keeps(replace(self.best.draw, special=dict.fromkeys(free, style))):
                return
        for style in _SIMPLE:
            self._by_halves(free, style)

    def _by_halves(self, names: Sequence[str], style: Style) -> None:
        """Give as many leaves as possible one style: a group at once, its halves where that fails."""
        open_ = [name for name in names if self.best.draw.style_of(name) == "integers"]
        if not open_ or self._over():
            return
        if self._keeps(
            replace(self.best.draw, special={**(self.best.draw.special or {}), **dict.fromkeys(open_, style)})
        ):
            return
        if len(open_) > 1:
            middle = len(open_) // 2
            self._by_halves(open_[:middle], style)
            self._by_halves(open_[middle:], style)

    def _over(self) -> bool:
        return self.runs >= RUNS or self.fuel.spent

    def _keeps(self, draw: Draw) -> bool:
        if self._over():
            return False
        self.runs += 1
        try:
            failed = self.trial.run(draw)
        except UnrunnableError:
            return False
        shown = next((failure for failure in failed if clarity(failure) >= clarity(self.best)), None)
        if shown is not None:
            self.best = shown
        return shown is not None


def clarity(failure: Failure) -> int:
    """How plain a difference is: both sides are numbers throughout, of a size that inputs of ordinary size lead to, and nobody would take it for rounding.

    It is plain enough from :data:`CLEAR` on; where that leaves a choice, numbers that can be seen are better than tiny ones.
    """
    sides = [side for c in failure.comparisons for side in (c.expected, c.found)]
    readable = all(bool(side.isfinite().all()) for side in sides)
    tame = all(bool((side.abs() <= TAME).all()) for side in sides if side.is_floating_point())
    evident = any(not c.shaped or bool(_told(c, failure).any()) for c in failure.comparisons)
    visible = any(
        not c.shaped or bool((_told(c, failure) & _visible(c.expected, c.found)).any()) for c in failure.comparisons
    )
    return 2 * (readable + tame + evident) + visible


def _told(comparison: Comparison, failure: Failure) -> torch.Tensor:
    """Where two tensors of one shape differ evidently, and by more than rounding explains."""
    expected, found = comparison.expected, comparison.found
    return failure.slack.apart(expected, found) & _evident(expected, found)


def _evident(expected: torch.Tensor, found: torch.Tensor) -> torch.Tensor:
    """Where two tensors of one shape differ by more than a thousandth."""
    if expected.dtype == torch.bool:
        return expected != found
    return (expected - found).abs() > EVIDENT * torch.maximum(expected.abs(), found.abs())


def _visible(expected: torch.Tensor, found: torch.Tensor) -> torch.Tensor:
    """Where two tensors of one shape differ by more than :data:`VISIBLE`."""
    return expected != found if expected.dtype == torch.bool else (expected - found).abs() > VISIBLE


_SIMPLE: tuple[Style, ...] = ("ones", "zeros")
_SCALES = (1.0, 0.25)  # a saturated function leaves nothing to see at the first


def describe(leaf: Leaf, draw: Draw, index: int) -> str:
    """A leaf's value in a few words."""
    if leaf.value is not None:
        return "as fixed"
    style = draw.style_of(leaf.name)
    words: Mapping[Style, str] = {
        "ones": "all ones",
        "zeros": "all zeros",
        "infinite": f"normal, one element infinite, seed {draw.seed}",
        "undefined": f"normal, one element not a number, seed {draw.seed}",
        "integers": f"{'' if draw.scale == 1 else f'{draw.scale:g} times '}integers -2..2, seed {draw.seed}",
    }
    if style == "sparse" and is_sparse(leaf):
        return f"{_sparse_words(leaf)} but the last, seed {draw.seed}"
    integer = leaf.type.dtype.startswith(("int", "uint"))
    if style in ("signs", "wide") and integer and leaf.low is None and leaf.high is None:
        return f"{_FREE[style]} (no low= or high= is declared), seed {draw.seed}"
    if style in ("ones", "zeros") and leaf.low is not None:
        return "all as small as allowed"
    if style == "integers" and integer:
        return f"in range{'' if leaf.ignored is None else f' or {leaf.ignored}'}, seed {draw.seed}"
    reals = "normal" if style in ("sparse", "mixed", "signs", "wide") else style
    return words.get(style, f"{reals}, scale {draw.scale_of(leaf.name, index):g}, seed {draw.seed}")


_FREE: Mapping[Style, str] = {"signs": "integers of both signs", "wide": "integers to the ends of their type"}


def _sparse_words(leaf: Leaf) -> str:
    if leaf.ignored is not None:
        return f"all {leaf.ignored}"
    return "all false" if leaf.type.dtype == "bool" else "all as small as allowed"


def example_of(capture: Capture, failure: Failure, inputs: dict[str, str]) -> Counterexample | None:
    """The first element at which a failed promise differs evidently, if one does; an element that the ranks do not have at all is not a number."""
    for comparison in failure.comparisons:
        index = _place(comparison, failure)
        if index is None:
            continue
        return Counterexample(
            promise=failure.promise.name,
            rank=comparison.rank,
            index=index,
            expected=float(comparison.expected[index].real),
            found=float(comparison.found[index].real) if comparison.shaped else float("nan"),
            mesh=dict(capture.mesh),
            shapes={
                leaf.name: tuple(size for size in leaf.type.shape if isinstance(size, int)) for leaf in capture.leaves
            },
            inputs=inputs,
            seed=failure.draw.seed,
            found_shape=None if comparison.shaped else tuple(comparison.found.shape),
            expected_shape=None if comparison.shaped else tuple(comparison.expected.shape),
        )
    return None


def _place(comparison: Comparison, failure: Failure) -> tuple[int, ...] | None:
    expected, found = comparison.expected, comparison.found
    if comparison.shaped:
        evident = _told(comparison, failure)
        kinds = (evident & _visible(expected, found), evident)
        best = next((kind for kind in kinds if kind.any()), failure.slack.apart(expected, found))
        places = best.nonzero()
        return tuple(int(i) for i in places[0]) if len(places) else None
    if not expected.numel():
        return None
    if expected.dim() != found.dim():
        return (0,) * expected.dim()
    # The last index along every dim in which the ranks have too few; where they have too many, every element is elsewhere.
    return tuple(mine - 1 if mine > theirs else 0 for mine, theirs in zip(expected.shape, found.shape, strict=True))
