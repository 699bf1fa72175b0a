"""A program in the making: its values, what each rank holds of them, and the lines of both functions so far."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

T = TypeVar("T")

WHOLE = "whole"
PARTIAL = "partial"
# Where a rank holds a part, its layout is the dim that is cut.
Layout = str | int


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor under one name in both functions; ``shape`` is the specification's, ``memory`` the same for values that share it."""

    name: str
    shape: tuple[int, ...]
    layout: Layout
    memory: int


@dataclass(slots=True)
class Maker:
    """Both functions, line by line.

    ``count`` is the number of ranks on the axis that the program cuts along; ``batch`` of the ranks on another one, which cuts the first dim of
    everything and is left alone.  ``pending`` are waits that are put off; ``module`` are lines before the functions.
    """

    rng: random.Random
    count: int
    batch: int = 1
    spec: list[str] = field(default_factory=list)
    impl: list[str] = field(default_factory=list)
    inputs: list[tuple[str, tuple[int, ...], str]] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=lambda: [""])
    pending: list[str] = field(default_factory=list)
    module: list[str] = field(default_factory=list)
    names: int = 0
    memories: int = 0

    def chance(self, share: float) -> bool:
        """True in so many of all cases."""
        return self.rng.random() < share

    def one(self, choices: Sequence[T]) -> T:
        """One of them."""
        return self.rng.choice(choices)

    def fresh(self, prefix: str) -> str:
        """A name of its own."""
        self.names += 1
        return f"{prefix}{self.names}"

    def say(self, kind: str) -> None:
        """Note what sort of step was made."""
        self.kinds.append(kind)

    def both(self, line: str) -> None:
        """A line of both functions."""
        self.spec.append(line)
        self.impl.append(line)

    def value(self, name: str, shape: tuple[int, ...], layout: Layout, of: Value | None = None) -> Value:
        """A new value, which shares memory with ``of`` where that is given."""
        self.memories += 1
        made = Value(name, shape, layout, self.memories if of is None else of.memory)
        self.values = [value for value in self.values if value.name != name] + [made]
        return made

    def give(self, shape: tuple[int, ...], layout: Layout) -> Value:
        """A new input."""
        name = "xwuvab"[len(self.inputs)]
        axes = ['"dp": Shard(0)'] if self.batch > 1 and name == "x" else []
        axes += [] if layout == WHOLE else ['"tp": Partial()' if layout == PARTIAL else f'"tp": Shard({layout})']
        self.inputs.append((name, shape, "{" + ", ".join(axes) + "}"))
        return self.value(name, shape, layout)

    def changed(self, value: Value, **what: Any) -> Value:
        """A value that is held otherwise from here on; those that share its memory are as well, where the layout means the same for them."""
        made = replace(value, **what)
        kept = []
        for each in self.values:
            if each.name == value.name:
                kept.append(made)
            elif each.memory != value.memory:
                kept.append(each)
            elif {value.layout, made.layout} <= {WHOLE, PARTIAL}:
                kept.append(replace(each, layout=made.layout))
        self.values = kept
        return made

    def found(self, *layouts: Any, dims: int | None = None) -> Value | None:
        """Some value of one of these layouts (``int``: any part); the last ones are the likeliest."""
        fit = [
            value
            for value in self.values
            if (value.layout in layouts or (int in layouts and isinstance(value.layout, int)))
            and (dims is None or len(value.shape) == dims)
        ]
        if not fit:
            return None
        return fit[-1] if self.chance(0.7) else self.one(fit)

    def local(self, value: Value) -> tuple[int, ...]:
        """The shape that a rank holds."""
        return self.cut(value.shape, value.layout)

    def cut(self, shape: tuple[int, ...], layout: Layout) -> tuple[int, ...]:
        """The shape that a rank holds of one."""
        sizes = list(shape)
        if self.batch > 1:
            sizes[0] //= self.batch
        if isinstance(layout, int):
            sizes[layout] //= self.count
        return tuple(sizes)

    def group(self) -> str:
        """The group of one call, as its last argument."""
        name = self.one(self.groups)
        return f", group={name}" if name else ""

    def root(self, word: str, rank: int | str) -> str:
        """The rank that a call speaks of: one of the group's where the program has two axes."""
        return f"group_{word}={rank}" if self.batch > 1 else f"{word}={rank}"

    def empty(self, shape: tuple[int, ...]) -> str:
        """Memory to receive in; seldom other than plain."""
        sizes = ", ".join(map(str, shape))
        if len(shape) != 2 or self.chance(0.85):
            return self.one([f"torch.empty({sizes}, dtype=D)", f"torch.zeros({sizes}, dtype=D)"])
        self.say("memory")
        rows, columns = shape
        return self.one(
            [
                f"torch.empty({columns}, {rows}, dtype=D).t()",
                f"torch.zeros({rows + 1}, {columns}, dtype=D)[1:]",
                f"torch.zeros({rows}, {columns + 1}, dtype=D)[:, 1:]",
                f"torch.zeros({2 * rows}, {columns}, dtype=D)[::2]",
                f"torch.empty_strided(({rows}, {columns}), (1, {rows}), dtype=D)",
                f"torch.zeros({rows * columns + 3}, dtype=D)[3:].view({rows}, {columns})",
            ]
        )

    def on_a_rank(self, line: str) -> str:
        """A line that all ranks run, or one of them."""
        return line if self.chance(0.5) else f"if r == {self.rng.randrange(self.count)}: {line}"
