"""The section "What normalisation does" of docs/engine.md, written from the rules: ``python -m graphguard.relations.simplify.document`` writes it anew."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path
from typing import Any, Final

import graphguard.relations
from graphguard.relations.rewrite.rule import Rule

BEGIN: Final = "<!-- rules: written by graphguard.relations.simplify.document -->\n"
END: Final = "<!-- end of rules -->\n"
SECTIONS: Final = (
    "layout",
    "products",
    "selections",
    "sums",
    "masks on positions",
    "functions",
    "quotients",
    "order",
    "permutations",
    "counts and numbers",
)


def rules() -> list[Rule[Any, Any]]:
    """All rules, by section and name."""
    found: dict[str, Rule[Any, Any]] = {}
    for module in pkgutil.walk_packages(graphguard.relations.__path__, "graphguard.relations."):
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, Rule):
                found[value.name] = value
    return sorted(found.values(), key=lambda rule: (SECTIONS.index(rule.section), rule.name))


def table() -> str:
    """The rules as a table in Markdown."""
    rows = ["| name | equation | example |", "|---|---|---|"]
    section = ""
    for rule in rules():
        if rule.section != section:
            section = rule.section
            rows.append(f"| **{section}** | | |")
        rows.append(
            "| " + " | ".join(each.replace("|", "\\|") for each in (rule.name, rule.equation, rule.example)) + " |"
        )
    return "\n".join(rows) + "\n"


def rewritten(text: str) -> str:
    """A page with the table in its place."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{table()}{END}{after}"


def main() -> None:
    """Write the page."""
    page = Path("docs/engine.md")
    page.write_text(rewritten(page.read_text()))


if __name__ == "__main__":
    main()
