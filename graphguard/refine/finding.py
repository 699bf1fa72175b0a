"""One defect, diagnosed: the data that repairs start from and that reports show."""

from __future__ import annotations

from dataclasses import dataclass

from graphguard.ir import Span


@dataclass(frozen=True, slots=True)
class Related:
    """A further place that helps to understand a finding."""

    span: Span
    message: str


@dataclass(frozen=True, slots=True)
class Finding:
    """A root cause.

    ``headline`` stands alone in one line; ``needed`` and ``found`` are relation texts; ``span`` is its place in the user's
    code; ``promises`` are the outputs it spoils; ``tensor`` the user's name for the value.  ``regains`` are variables of the specification that the ranks hold again once
    this defect is mended; they are told where another one spoils the same promises.  ``written_out`` says that only an attempt that writes products of
    sums out confirms the repair. ``touched`` are other outputs that are wrong and rest on what the same line computes: an edit there that leaves them wrong is
    no fix. Findings of which ``alike`` is the same and not empty are one defect in several places. ``seen`` says that the defect itself was seen, such as
    memory that is read and that nothing wrote, or a call that goes round a wrapper: an edit that makes up for it says nothing of its place. ``parameters`` are those that it is about, where its promises are not their gradients alone, each with what is
    seen of it.
    """

    rule: str
    headline: str
    span: Span | None
    needed: str = ""
    found: str = ""
    tensor: str = ""
    promises: tuple[str, ...] = ()
    regains: tuple[int, ...] = ()
    touched: tuple[str, ...] = ()
    written_out: bool = False
    related: tuple[Related, ...] = ()
    alike: str = ""
    seen: bool = False
    parameters: tuple[tuple[str, str], ...] = ()
