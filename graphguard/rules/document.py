"""The page of all operators, made from the rules: ``python -m graphguard.rules.document > docs/operators.md``."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from graphguard.rules import FAMILIES, RULES

HEAD = """# Operators

What GraphGuard takes every operator to mean. The page is made from the rules (`python -m graphguard.rules.document`); each rule is compared with PyTorch on
numbers, and its value in the engine's normal form with those numbers (`tests/unit/rules`).

- Names are PyTorch's. An in-place operator means its functional twin; arguments that say where a tensor lives are left out.
- A bracket such as `[i = j]` is 1 where the condition holds, else 0.
- *Closed* is a function known by its name and arguments only: equal operands give equal results, and nothing more is used of it. *Batched over* some dims: it acts on
  every position along them alone, so it may be cut there.
- A rule that cannot follow a call (the side conditions stand in its code) leaves the call closed as a whole, and the report names the operator and the reason.
- Float types are the reals: a wider type holds the same number; a narrower one is `cast(x)`, an unknown function of the number and of the type. Integers of
  32 bits and more do not overflow; a cast to a narrower integer type, and arithmetic in one, is `cast(x)` as well unless the numbers are known to fit. Number literals are read as the number they are the rounding of (`graphguard/rules/basis/scalars.py`).
- An operator without a rule stays closed as a whole. Operators of your own can be assumed to be elementwise, batched or linear: `# graphguard: assume elementwise` on a statement that calls one.
- Collectives: `gg.*` in [`graphguard/ir/graph.py`](../graphguard/ir/graph.py).
"""


def operators_page() -> str:
    """The page as Markdown."""
    return HEAD + "".join(_section(family) for family in FAMILIES)


def _section(family: ModuleType) -> str:
    summary = (inspect.getdoc(family) or "").partition("\n\n")[0].replace("\n", " ")
    name = family.__name__.rpartition(".")[2].replace("_", " ")
    rows = [_row(function, names) for function, names in _by_function(family).items()]
    return f"\n## {name.capitalize()}\n\n{summary}\n\n| operator | meaning |\n|---|---|\n" + "".join(rows)


def _by_function(family: ModuleType) -> dict[Callable[..., Any], list[str]]:
    found: dict[Callable[..., Any], list[str]] = {}
    for name, rule in RULES.items():
        if rule.function.__module__ == family.__name__:
            found.setdefault(rule.function, []).append(name)
    return found


def _row(function: Callable[..., Any], names: list[str]) -> str:
    listed = ", ".join(f"`{name.removesuffix('.default')}`" for name in names)
    meaning = " ".join((inspect.getdoc(function) or "").split())
    return f"| {listed} | {_escaped(meaning)} |\n"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;")


if __name__ == "__main__":
    sys.stdout.write(operators_page())
