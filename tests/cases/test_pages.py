"""The documentation is right as it stands: its programs are run, its commands print what it says, and the site has all of its pages.

``--record`` writes into a page what its commands print today.
"""

import ast
import importlib.util
import re
import sys
from pathlib import Path

import pytest

from .pages import PageError, blocks, followed, packages, untried

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
# Pages that are followed from top to bottom.
FOLLOWED = sorted([ROOT / "README.md", *(DOCS / f"{name}.md" for name in ("concepts", "faq", "limits", "start", "unknown"))])
FOLLOWED += sorted((DOCS / "how").glob("[a-z]*.md"))
# Pages whose Python is fragments that explain; the programs of the guide are run by test_guide.py.
FRAGMENTS = {"CONTRIBUTING.md", "docs/engine.md", "docs/guide.md", "docs/tracing.md", "tests/cases/README.md"}
INSTALLED = {"graphguard", "torch", "pytest"}


def shown(path):
    return path.relative_to(ROOT).as_posix()


def documents():
    return sorted(path for path in [*ROOT.glob("*.md"), *DOCS.rglob("*.md"), ROOT / "tests/cases/README.md"])


def followed_pages():
    for path in FOLLOWED:
        text = path.read_text(encoding="utf-8")
        own = {Path(block.title).stem for block in blocks(text)}
        frameworks = sorted(packages(text) - own - INSTALLED - sys.stdlib_module_names)
        marks = [pytest.mark.slow, *([pytest.mark.frameworks] if frameworks else [])]
        yield pytest.param(path, frameworks, id=shown(path), marks=marks)


@pytest.mark.parametrize(("path", "frameworks"), [*followed_pages()])
def test_a_page_does_what_it_says(path, frameworks, tmp_path, request):
    missing = [name for name in frameworks if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed: make frameworks")
    page = path.read_text(encoding="utf-8")
    found = followed(page, tmp_path)
    if request.config.getoption("--record"):
        path.write_text(found, encoding="utf-8")
    else:
        assert found == page
